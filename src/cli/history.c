/* The history file: read and shortened at the beginning of a session, a line added for each that is typed. */
#include "cli/history.h"

#include "os/os.h"

enum { NEWLINE = 0x1E }; /* in the file */

const char *history_path(struct arena *a, const char *home) {
    if (home) return str_fmt(a, "%s/history", home).p;
    return os_state_root() ? str_fmt(a, "%s/mlxcel/history", os_state_root()).p : NULL;
}

static bool is_kept(struct str line) {
    if (line.n == 0 || line.n > HISTORY_LINE_BYTES || !utf8_valid(line)) return false;
    for (size_t i = 0; i < line.n;) {
        uint32_t code;
        i += utf8_decode(line.p + i, line.n - i, &code);
        if ((code < 32 && code != '\n' && code != '\t') || (code >= 127 && code < 160)) return false;
    }
    return true;
}

/* An entry for the file, or out of it. */
static void put_entry(struct sb *out, struct str entry, char from, char to) {
    for (size_t i = 0; i < entry.n; i++) sb_putc(out, entry.p[i] == from ? to : entry.p[i]);
}

/* Opened and ours until it is closed; the folder is made where it is missing. */
static int open_file(const char *path, struct os_file **out, struct err *err) {
    struct arena a = {0};
    size_t n = strlen(path);
    while (n && path[n - 1] != '/') n--;
    int code = n > 1 ? os_make_dirs(str_cstr(&a, str_n(path, n - 1)), err) : ERR_OK;
    arena_free(&a);
    if (code) return code;
    TRY(os_file_open(path, OS_PRIVATE, out, err));
    code = os_file_lock(*out, true, err);
    if (code) os_file_close(*out);
    return code;
}

/* The newest lines of the text into the editor; how many lines there were. */
static size_t take_lines(struct str text, struct line_edit *e) {
    struct str rest = text, line;
    struct sb entry = {0};
    size_t n_lines = 0;
    while (str_split_next(&rest, '\n', &line)) {
        n_lines += line.n > 0;
        sb_clear(&entry);
        put_entry(&entry, line, NEWLINE, '\n');
        if (is_kept(sb_str(&entry))) line_remember(e, sb_str(&entry));
    }
    sb_free(&entry);
    return n_lines;
}

static int shorten(struct os_file *f, const struct line_edit *e, struct err *err) {
    struct sb text = {0};
    for (size_t i = 0; i < e->n_history; i++) {
        put_entry(&text, str_of(e->history[i]), '\n', NEWLINE);
        sb_putc(&text, '\n');
    }
    int code = text.n ? os_file_write_at(f, text.p, text.n, 0, err) : ERR_OK;
    if (!code) code = os_file_truncate(f, text.n, err);
    sb_free(&text);
    return code;
}

/* A file that grew beyond all measure is read from somewhere in it. */
static int load(struct os_file *f, struct line_edit *e, struct err *err) {
    uint64_t size = 0;
    TRY(os_file_size(f, &size, err));
    uint64_t from = size > HISTORY_FILE_BYTES ? size - HISTORY_FILE_BYTES : 0;
    size_t n = (size_t)(size - from);
    char *text = mem_alloc(n + 1);
    int code = os_file_read_at(f, text, n, from, err);
    if (!code && (take_lines(str_n(text, n), e) > 2 * LINE_HISTORY_MAX || from)) code = shorten(f, e, err);
    mem_free(text);
    return code;
}

int history_load(const char *path, struct line_edit *e, struct err *err) {
    struct os_stat st;
    struct os_file *f;
    if (os_stat(path, &st, NULL) == ERR_ENOTFOUND) return ERR_OK;
    TRY(open_file(path, &f, err));
    int code = load(f, e, err);
    os_file_close(f);
    return code;
}

int history_add(const char *path, struct str line, struct err *err) {
    struct os_file *f;
    uint64_t size;
    struct sb text = {0};
    if (!is_kept(line)) return ERR_OK;
    TRY(open_file(path, &f, err));
    put_entry(&text, line, '\n', NEWLINE);
    sb_putc(&text, '\n');
    int code = os_file_size(f, &size, err);
    if (!code) code = os_file_write_at(f, text.p, text.n, size, err);
    os_file_close(f);
    sb_free(&text);
    return code;
}
