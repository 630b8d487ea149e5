/* Files, the part that is the same on every system: whole files in and out, lists of names, the form of messages. */
#include "os/os_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { LOAD_PIECE = 64 * 1024, MESSAGE_PATH_BYTES = 300 };

int os_fail_text(struct err *err, int code, const char *verb, const char *path, const char *reason) {
    if (!path) return err_set(err, code, "cannot %s: %s", verb, reason);
    size_t n = strlen(path), skip = n > MESSAGE_PATH_BYTES ? n - MESSAGE_PATH_BYTES : 0;
    while (skip && ((unsigned char)path[skip] & 0xC0) == 0x80) skip++; /* never cut inside a character */
    return err_set(err, code, "cannot %s %s%s: %s", verb, skip ? "..." : "", path + skip, reason);
}

int os_fail_special(struct err *err, const char *path) {
    return os_fail_text(err, ERR_EIO, "open", path, "it is no regular file but a pipe, a socket or a device");
}

int os_file_check_range(const struct os_file *f, size_t n, uint64_t offset, struct err *err) {
    if (offset <= INT64_MAX && n <= INT64_MAX - offset) return 0;
    return err_set(err, ERR_EARG, "%s: byte %llu is beyond any file", os_file_path(f), (unsigned long long)offset);
}

int os_file_read_at(struct os_file *f, void *data, size_t n, uint64_t offset, struct err *err) {
    size_t got;
    TRY(os_file_read_some(f, data, n, offset, &got, err));
    if (got == n) return 0;
    uint64_t size = offset + got;
    os_file_size(f, &size, NULL);
    return err_set(err, ERR_EIO, "%s ends at byte %llu, but %zu bytes are needed from byte %llu on", os_file_path(f),
                   (unsigned long long)size, n, (unsigned long long)offset);
}

/* Pipes and what the kernel makes up say that they are empty: read those piece by piece until they end. */
static int load_unsized(struct arena *a, struct os_file *f, uint64_t max_bytes, struct str *out, struct err *err) {
    struct sb text = {0};
    size_t n;
    int code;
    do {
        sb_reserve(&text, LOAD_PIECE);
        code = os_file_read_some(f, text.p + text.n, LOAD_PIECE, text.n, &n, err);
        if (!code) text.n += n;
        if (!code && text.n > max_bytes)
            code = err_set(err, ERR_ELIMIT, "%s is larger than %llu bytes", os_file_path(f), (unsigned long long)max_bytes);
    } while (!code && n);
    if (!code) *out = str_copy(a, sb_str(&text));
    sb_free(&text);
    return code;
}

static int load_sized(struct arena *a, struct os_file *f, uint64_t size, uint64_t max_bytes, struct str *out, struct err *err) {
    if (size > max_bytes)
        return err_set(err, ERR_ELIMIT, "%s is %llu bytes long, at most %llu are read", os_file_path(f), (unsigned long long)size,
                       (unsigned long long)max_bytes);
    char *data = arena_try(a, (size_t)size + 1);
    if (!data) return err_set(err, ERR_EMEMORY, "%s: no memory for its %llu bytes", os_file_path(f), (unsigned long long)size);
    TRY(os_file_read_at(f, data, (size_t)size, 0, err));
    data[size] = 0;
    *out = str_n(data, (size_t)size);
    return 0;
}

static int load(struct arena *a, const char *path, enum os_open_mode mode, uint64_t max_bytes, struct str *out, struct err *err) {
    struct os_file *f = NULL;
    uint64_t size;
    if (max_bytes == 0) max_bytes = UINT64_C(1) << 30;
    TRY(os_file_open(path, mode, &f, err));
    int code = os_file_size(f, &size, err);
    if (!code) code = size == 0 && mode == OS_INPUT ? load_unsized(a, f, max_bytes, out, err) : load_sized(a, f, size, max_bytes, out, err);
    os_file_close(f);
    return code;
}

int os_file_load(struct arena *a, const char *path, uint64_t max_bytes, struct str *out, struct err *err) {
    return load(a, path, OS_READ, max_bytes, out, err);
}

int os_input_load(struct arena *a, const char *path, uint64_t max_bytes, struct str *out, struct err *err) {
    return load(a, path, OS_INPUT, max_bytes, out, err);
}

/* The temporary name is short and does not grow with the target's, which may already be as long as names can be. The clock tells
 * containers apart that share a folder: their processes often have the same number. */
static void temp_name_beside(const char *path, struct sb *out) {
    static _Atomic uint32_t counter;
    size_t dir = strlen(path);
    while (dir && path[dir - 1] != '/' && path[dir - 1] != '\\' && path[dir - 1] != ':') dir--;
    sb_put(out, str_n(path, dir));
    sb_fmt(out, ".mlxcel-%d-%x-%u.tmp", os_process_id(), (unsigned)os_clock_ns(), (unsigned)atomic_fetch_add(&counter, 1));
}

/* The message speaks of the file that was meant, not of the one beside it that becomes it. */
static void name_instead(struct err *err, const char *temp, const char *path) {
    struct str rest = err ? str_of(err->msg) : STR("");
    size_t at = str_find(rest, str_of(temp), 0);
    struct sb text = {0};
    if (at == STR_NONE) return;
    sb_fmt(&text, "%.*s%s%.*s", (int)at, rest.p, path, STR_ARG(str_from(rest, at + strlen(temp))));
    err_set(err, err->code, "%.400s", text.p);
    sb_free(&text);
}

int os_file_save(const char *path, struct str data, struct err *err) {
    struct sb temp = {0};
    struct os_file *f = NULL;
    temp_name_beside(path, &temp);
    int code = os_file_open(temp.p, OS_WRITE, &f, err);
    if (code) goto out;
    code = os_file_write_at(f, data.p, data.n, 0, err);
    if (code == 0) code = os_file_sync(f, err);
    os_file_close(f);
    if (code == 0) code = os_rename(temp.p, path, err);
    if (code) os_remove(temp.p, NULL);
    else os_dir_sync_of(path);
out:
    if (code) name_instead(err, temp.p, path);
    sb_free(&temp);
    return code;
}

static int compare_names(const void *a, const void *b) {
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

void os_names_add(struct os_names *list, struct str name) {
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 32;
        list->items = mem_realloc(list->items, list->capacity * sizeof *list->items);
    }
    char *copy = mem_alloc(name.n + 1);
    memcpy(copy, name.p, name.n);
    list->items[list->n++] = str_n(copy, name.n);
}

void os_names_free(struct os_names *list) {
    for (size_t i = 0; i < list->n; i++) mem_free((char *)list->items[i].p);
    mem_free(list->items);
    *list = (struct os_names){0};
}

void os_names_take(struct arena *a, struct os_names *list, struct str **out_names, size_t *out_n) {
    if (list->n) qsort(list->items, list->n, sizeof *list->items, compare_names);
    *out_names = arena_new(a, struct str, list->n);
    *out_n = list->n;
    for (size_t i = 0; i < list->n; i++) (*out_names)[i] = str_copy(a, list->items[i]);
    os_names_free(list);
}
