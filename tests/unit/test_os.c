/* os/: files under hard names, locks between processes, threads, children with two full pipes, libraries, machine size,
 * control-group texts, CPU levels. The runner starts itself as a child (see child_modes). */
#include "../test_paths.h"
#include "unit.h"

#include "os/cgroup.h"
#include "os/cpu.h"
#include "os/os.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* ---- the child ------------------------------------------------------------------------------------------------ */

/* 127: qemu-user loses the reason of a failed exec; no mode of ours ends with it. */
enum { FLOOD_BYTES = 3 << 20, CHILD_BUSY = 7, CHILD_FAILED = 8, EXEC_FAILED = 127 };

static void child_put(enum os_stream s, struct str text) {
    if (os_write(s, text, NULL)) exit(CHILD_FAILED);
}

static int child_args(int argc, char **argv) {
    struct sb out = {0};
    for (int i = 0; i < argc; i++) sb_fmt(&out, "%zu:%s;", strlen(argv[i]), argv[i]);
    child_put(OS_STDOUT, sb_str(&out));
    sb_free(&out);
    return 0;
}

static int child_flood(int argc, char **argv) {
    static char block[4096];
    (void)argc;
    (void)argv;
    for (int i = 0; i < FLOOD_BYTES / (int)sizeof block; i++) {
        memset(block, 'o', sizeof block);
        child_put(OS_STDOUT, str_n(block, sizeof block));
        memset(block, 'e', sizeof block);
        child_put(OS_STDERR, str_n(block, sizeof block));
    }
    return 0;
}

static int child_cat(int argc, char **argv) {
    struct arena a = {0};
    struct str text;
    (void)argc;
    (void)argv;
    if (os_read_stdin(&a, UINT64_MAX, &text, NULL)) return CHILD_FAILED;
    child_put(OS_STDOUT, text);
    arena_free(&a);
    return 0;
}

static int child_lines(int argc, char **argv) {
    struct sb line = {0}, out = {0};
    (void)argc;
    (void)argv;
    bool is_there;
    while (os_read_line(&line, &is_there, NULL) == 0 && is_there) sb_fmt(&out, "[%s]", line.p ? line.p : "");
    child_put(OS_STDOUT, sb_str(&out));
    sb_free(&line);
    sb_free(&out);
    return 0;
}

static int child_exit(int argc, char **argv) {
    child_put(OS_STDERR, STR("going\n"));
    return argc ? atoi(argv[0]) : 0;
}

static int child_lock(int argc, char **argv) {
    struct os_file *f;
    if (argc != 2 || os_file_open(argv[1], OS_UPDATE, &f, NULL)) return CHILD_FAILED;
    int code = os_file_lock(f, strcmp(argv[0], "wait") == 0, NULL);
    os_file_close(f);
    return code == ERR_EBUSY ? CHILD_BUSY : code ? CHILD_FAILED : 0;
}

static int child_env(int argc, char **argv) {
    const char *value = argc ? os_env(argv[0]) : NULL;
    child_put(OS_STDOUT, value ? str_of(value) : STR("(none)"));
    return 0;
}

static int child_cwd(int argc, char **argv) {
    (void)argc;
    (void)argv;
    child_put(OS_STDOUT, str_of(test_work_dir()));
    return 0;
}

static _Atomic int n_interrupts;

static void count_interrupt(void) {
    atomic_fetch_add(&n_interrupts, 1);
}

static int child_interrupt(int argc, char **argv) {
    (void)argc;
    (void)argv;
    os_on_interrupt(count_interrupt);
    raise(SIGINT);
    raise(SIGTERM);
    return atomic_load(&n_interrupts);
}

static void write_last_words(void) {
    child_put(OS_STDERR, STR("put away\n"));
}

static void handle_ourselves(int number) {
    (void)number;
}

/* Ends by os_leave, or by an interrupt that nobody takes; not by one that somebody else takes, nor after the function was taken back. */
static int child_end(int argc, char **argv) {
    if (argc != 1) return CHILD_FAILED;
    bool is_others = strcmp(argv[0], "others") == 0;
    if (is_others) signal(SIGINT, handle_ourselves);
    os_on_end(write_last_words);
    if (strcmp(argv[0], "leave") == 0) os_leave(7);
    if (strcmp(argv[0], "undone") == 0) os_on_end(NULL);
    raise(is_others ? SIGINT : SIGTERM);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} child_modes[] = {{"args", child_args}, {"flood", child_flood}, {"cat", child_cat}, {"lines", child_lines},         {"exit", child_exit},
                   {"lock", child_lock}, {"env", child_env},     {"cwd", child_cwd}, {"interrupt", child_interrupt}, {"end", child_end}};

int unit_child(int argc, char **argv) {
    signal(SIGINT, SIG_DFL); /* a shell that runs the tests in the background has it ignored, and so it would stay */
    signal(SIGTERM, SIG_DFL);
    os_console_init();
    for (size_t i = 0; i < sizeof child_modes / sizeof child_modes[0]; i++)
        if (argc && strcmp(argv[0], child_modes[i].name) == 0) return child_modes[i].run(argc - 1, argv + 1);
    return CHILD_FAILED;
}

enum { MAX_CHILD_ARGS = 16 };

/* args ends with NULL. */
static int try_child(struct arena *a, const char *const *args, struct str input, struct os_run_result *out, struct err *err) {
    const char *argv[MAX_CHILD_ARGS + 3] = {test_exe_path(), "--child"};
    for (int i = 0; args[i] && i < MAX_CHILD_ARGS; i++) argv[2 + i] = args[i];
    return os_run(a, argv, NULL, NULL, input, out, err);
}

static struct os_run_result run_child(struct arena *a, const char *const *args, struct str input) {
    struct os_run_result r;
    struct err err;
    int code = try_child(a, args, input, &r, &err);
    bool is_foreign = code ? strstr(err.msg, "Exec format error") != NULL : r.exit_code == EXEC_FAILED;
    if (is_foreign) unit_skip("an emulated program cannot start itself here");
    FAIL_IF(code, "%s", err.msg);
    return r;
}

static bool is_posix(void) {
    return test_exe_path()[0] == '/';
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

/* Spaces, umlauts, an emoji, and far more than 260 characters. */
static const char *hard_folder(struct arena *a) {
    struct sb path = {0};
    sb_puts(&path, unit_scratch_dir());
    for (int i = 0; i < 6; i++)
        sb_puts(&path, "/a folder with \xC3\xA4\xC3\xB6\xC3\xBC \xF0\x9F\x98\x80 and a name that goes on and on for a while");
    const char *out = str_cstr(a, sb_str(&path));
    sb_free(&path);
    CHECK(strlen(out) > 400);
    return out;
}

static void files_with_hard_names(void) {
    struct arena a = {0};
    struct err err;
    struct os_stat st;
    struct str text, *names;
    size_t n;
    const char *dir = hard_folder(&a), *file = str_fmt(&a, "%s/\xC3\xA9t\xC3\xA9 1.txt", dir).p;
    CHECK_INT(os_stat(dir, &st, &err), ERR_ENOTFOUND);
    CHECK(strstr(err.msg, "cannot look at ...") == err.msg && strlen(err.msg) > 310);
    CHECK(!os_can_write(dir));
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK(os_can_write(dir));
    CHECK_OK(os_stat(dir, &st, &err), err);
    CHECK(st.is_dir && !st.is_file);
    CHECK_OK(os_file_save(file, STR("first"), &err), err);
    CHECK_OK(os_file_save(file, STR("second"), &err), err);
    CHECK_OK(os_file_load(&a, file, 0, &text, &err), err);
    CHECK_STR(text, STR("second"));
    CHECK(text.p[text.n] == 0);
    CHECK_OK(os_stat(file, &st, &err), err);
    CHECK(st.is_file && !st.is_dir && st.size == 6);
    CHECK(llabs(st.mtime_ns - os_wall_ns()) < INT64_C(60) * 1000000000);
    CHECK_OK(os_list_dir(&a, dir, &names, &n, &err), err);
    CHECK_INT(n, 1); /* no temporary file stays */
    CHECK_STR(names[0], STR("\xC3\xA9t\xC3\xA9 1.txt"));
    const char *moved = str_fmt(&a, "%s/moved", dir).p;
    CHECK_OK(os_rename(file, moved, &err), err);
    CHECK_INT(os_file_load(&a, file, 0, &text, &err), ERR_ENOTFOUND);
    CHECK_OK(os_remove(moved, &err), err);
    CHECK_INT(os_remove(moved, &err), ERR_ENOTFOUND);
    CHECK_OK(os_remove_tree(unit_scratch_dir(), &err), err);
    arena_free(&a);
}

static void files_fail_with_reasons(void) {
    struct arena a = {0};
    struct err err;
    struct os_file *f;
    struct str text, *names;
    size_t n;
    const char *dir = unit_scratch_dir(), *file = str_fmt(&a, "%s/file", dir).p;
    CHECK_INT(os_file_open(str_fmt(&a, "%s/absent/x", dir).p, OS_READ, &f, &err), ERR_ENOTFOUND);
    CHECK(strstr(err.msg, "absent/x"));
    CHECK(os_file_open(str_fmt(&a, "%s/absent/x", dir).p, OS_WRITE, &f, NULL) != 0);
    CHECK(os_file_open("", OS_READ, &f, &err) != 0);
    CHECK(os_file_open(dir, OS_READ, &f, &err) != 0);
    CHECK(strstr(err.msg, "folder"));
    CHECK_OK(os_file_save(file, STR("0123456789"), &err), err);
    CHECK_INT(os_file_load(&a, file, 9, &text, &err), ERR_ELIMIT);
    CHECK_OK(os_file_load(&a, file, 10, &text, &err), err);
    CHECK(os_make_dirs(file, &err) != 0);
    CHECK(os_make_dirs(str_fmt(&a, "%s/below", file).p, &err) != 0);
    CHECK(os_list_dir(&a, file, &names, &n, &err) != 0);
    CHECK_INT(os_list_dir(&a, str_fmt(&a, "%s/absent", dir).p, &names, &n, &err), ERR_ENOTFOUND);
    CHECK_OK(os_remove_tree(str_fmt(&a, "%s/absent", dir).p, &err), err);
    CHECK(os_remove(dir, NULL) != 0); /* not empty */
    arena_free(&a);
}

static void positioned_reads_and_writes(void) {
    struct arena a = {0};
    struct err err;
    struct os_file *f;
    uint64_t size;
    char got[16] = {0};
    const char *path = str_fmt(&a, "%s/data", unit_scratch_dir()).p;
    CHECK_OK(os_file_open(path, OS_UPDATE, &f, &err), err);
    CHECK_OK(os_file_write_at(f, "world", 5, 6, &err), err);
    CHECK_OK(os_file_write_at(f, "hello ", 6, 0, &err), err);
    CHECK_OK(os_file_sync(f, &err), err);
    CHECK_OK(os_file_size(f, &size, &err), err);
    CHECK_INT(size, 11);
    CHECK_OK(os_file_read_at(f, got, 5, 6, &err), err);
    CHECK_STR(str_n(got, 5), STR("world"));
    CHECK_OK(os_file_read_at(f, got, 0, 11, &err), err);
    CHECK_INT(os_file_read_at(f, got, 6, 6, &err), ERR_EIO);
    CHECK(strstr(err.msg, "ends at byte 11") && strstr(err.msg, "data"));
    CHECK_INT(os_file_read_at(f, got, 1, UINT64_C(1) << 40, &err), ERR_EIO);
    CHECK_INT(os_file_read_at(f, got, 1, UINT64_MAX, &err), ERR_EARG);
    CHECK_OK(os_file_truncate(f, 8, &err), err);
    CHECK_INT(os_file_read_at(f, got, 5, 6, &err), ERR_EIO);
    CHECK_OK(os_file_truncate(f, UINT64_C(5) << 30, &err), err); /* sparse, beyond 4 GiB */
    CHECK_OK(os_file_write_at(f, "far", 3, (UINT64_C(5) << 30) - 3, &err), err);
    CHECK_OK(os_file_read_at(f, got, 3, (UINT64_C(5) << 30) - 3, &err), err);
    CHECK_STR(str_n(got, 3), STR("far"));
    CHECK_OK(os_file_truncate(f, 0, &err), err);
    os_file_close(f);
    CHECK_OK(os_file_open(path, OS_READ, &f, &err), err);
    CHECK(os_file_write_at(f, "x", 1, 0, &err) != 0);
    os_file_close(f);
    os_file_close(NULL);
    arena_free(&a);
}

struct reader {
    struct os_file *f;
    int index;
    bool is_right;
    struct os_thread *thread;
};

enum { N_READERS = 4, READ_WORDS = 4096 };

static void reader_run(void *user) {
    struct reader *r = user;
    r->is_right = true;
    for (uint32_t i = 0; i < READ_WORDS; i++) {
        uint32_t at = (i * 7919 + (uint32_t)r->index) % READ_WORDS, word = 0;
        if (os_file_read_at(r->f, &word, sizeof word, (uint64_t)at * sizeof word, NULL) || word != at) r->is_right = false;
    }
}

static void reads_from_many_threads(void) {
    struct arena a = {0};
    struct err err;
    struct os_file *f;
    struct reader readers[N_READERS];
    const char *path = str_fmt(&a, "%s/words", unit_scratch_dir()).p;
    uint32_t *words = arena_new(&a, uint32_t, READ_WORDS);
    for (uint32_t i = 0; i < READ_WORDS; i++) words[i] = i;
    CHECK_OK(os_file_save(path, str_n((const char *)words, READ_WORDS * sizeof *words), &err), err);
    CHECK_OK(os_file_open(path, OS_READ, &f, &err), err);
    for (int i = 0; i < N_READERS; i++) {
        readers[i] = (struct reader){.f = f, .index = i};
        CHECK_OK(os_thread_start(&readers[i].thread, reader_run, &readers[i], "reader", &err), err);
    }
    for (int i = 0; i < N_READERS; i++) os_thread_join(readers[i].thread);
    for (int i = 0; i < N_READERS; i++) CHECK(readers[i].is_right);
    os_file_close(f);
    arena_free(&a);
}

static void open_file_is_replaced(void) {
    struct arena a = {0};
    struct err err;
    struct os_file *f;
    struct str text;
    char got[3];
    const char *path = str_fmt(&a, "%s/target", unit_scratch_dir()).p;
    CHECK_OK(os_file_save(path, STR("old"), &err), err);
    CHECK_OK(os_file_open(path, OS_READ, &f, &err), err);
    CHECK_OK(os_file_save(path, STR("new"), &err), err);
    CHECK_OK(os_file_read_at(f, got, 3, 0, &err), err);
    CHECK_STR(str_n(got, 3), STR("old"));
    os_file_close(f);
    CHECK_OK(os_file_load(&a, path, 0, &text, &err), err);
    CHECK_STR(text, STR("new"));
    arena_free(&a);
}

/* By the system's own program: a symbolic link, or a junction where those need rights. */
static bool make_link(struct arena *a, const char *target, const char *link) {
    struct os_run_result r;
    if (os_find_program(a, "ln"))
        return os_run(a, (const char *const[]){"ln", "-s", target, link, NULL}, NULL, NULL, STR(""), &r, NULL) == 0;
    char *command[] = {str_cstr(a, str_of(link)), str_cstr(a, str_of(target))};
    for (int i = 0; i < 2; i++)
        for (char *c = command[i]; *c; c++)
            if (*c == '/') *c = '\\';
    const char *const argv[] = {"cmd", "/c", "mklink", "/J", command[0], command[1], NULL};
    struct os_stat st;
    return os_run(a, argv, NULL, NULL, STR(""), &r, NULL) == 0 && r.exit_code == 0 && os_stat(link, &st, NULL) == 0;
}

static void tree_removal_spares_link_targets(void) {
    struct arena a = {0};
    struct err err;
    struct os_stat st;
    const char *dir = unit_scratch_dir(), *outside = str_fmt(&a, "%s/outside", dir).p, *tree = str_fmt(&a, "%s/tree", dir).p;
    const char *kept = str_fmt(&a, "%s/kept", outside).p, *link = str_fmt(&a, "%s/deep/link", tree).p;
    CHECK_OK(os_make_dirs(outside, &err), err);
    CHECK_OK(os_make_dirs(str_fmt(&a, "%s/deep", tree).p, &err), err);
    CHECK_OK(os_file_save(kept, STR("kept"), &err), err);
    CHECK_OK(os_file_save(str_fmt(&a, "%s/deep/gone", tree).p, STR("gone"), &err), err);
    if (!make_link(&a, outside, link) || !make_link(&a, outside, str_fmt(&a, "%s/top", dir).p)) unit_skip("no program makes links here");
    CHECK_OK(os_remove_tree(tree, &err), err);
    CHECK_INT(os_stat(tree, &st, NULL), ERR_ENOTFOUND);
    CHECK_OK(os_remove_tree(str_fmt(&a, "%s/top/", dir).p, &err), err);
    CHECK_OK(os_stat(kept, &st, &err), err);
    arena_free(&a);
}

static void names_are_sorted(void) {
    struct arena a = {0};
    struct err err;
    struct str *names;
    size_t n;
    const char *dir = unit_scratch_dir();
    for (int i = 99; i >= 0; i--) CHECK_OK(os_file_save(str_fmt(&a, "%s/n%02d", dir, i).p, STR(""), &err), err);
    CHECK_OK(os_list_dir(&a, dir, &names, &n, &err), err);
    CHECK_INT(n, 100);
    for (int i = 0; i < 100; i++) CHECK_STR(names[i], str_fmt(&a, "n%02d", i));
    uint64_t bytes = 0;
    CHECK_OK(os_disk_free(dir, &bytes, &err), err);
    CHECK(bytes > 0);
    CHECK_OK(os_disk_free(str_fmt(&a, "%s/n00", dir).p, &bytes, &err), err);
    arena_free(&a);
}

static void pages_are_zeroed(void) {
    struct err err;
    static const size_t sizes[] = {0, 1, 5000, 1 << 21, (5 << 20) + 123};
    for (int i = 0; i < 5; i++) {
        unsigned char *p = os_pages_alloc(sizes[i], &err);
        CHECK(p && ((uintptr_t)p & 4095) == 0);
        for (size_t k = 0; k < sizes[i]; k++) CHECK(p[k] == 0);
        if (sizes[i]) memset(p, 0xAA, sizes[i]);
        os_pages_free(p, sizes[i]);
    }
    CHECK(os_pages_alloc(SIZE_MAX / 4, &err) == NULL && err.code == ERR_EMEMORY);
    CHECK(os_pages_alloc(SIZE_MAX, &err) == NULL);
    os_pages_free(NULL, 0);
}

/* ---- locks ---------------------------------------------------------------------------------------------------- */

struct waiting_child {
    const char *path;
    int exit_code;
    _Atomic bool is_done;
    struct os_thread *thread;
};

static void waiting_child_run(void *user) {
    struct waiting_child *w = user;
    struct arena a = {0};
    struct os_run_result r;
    int code = try_child(&a, (const char *const[]){"lock", "wait", w->path, NULL}, STR(""), &r, NULL);
    w->exit_code = code ? -1 : r.exit_code;
    atomic_store(&w->is_done, true);
    arena_free(&a);
}

static void locks_between_processes(void) {
    struct arena a = {0};
    struct err err;
    struct os_file *f, *other;
    char got[5];
    const char *path = str_fmt(&a, "%s/lock", unit_scratch_dir()).p;
    const char *const try_lock[] = {"lock", "try", path, NULL};
    CHECK_OK(os_file_save(path, STR("inside"), &err), err);
    CHECK_INT(run_child(&a, try_lock, STR("")).exit_code, 0);
    CHECK_OK(os_file_open(path, OS_UPDATE, &f, &err), err);
    CHECK_OK(os_file_lock(f, false, &err), err);
    CHECK_INT(run_child(&a, try_lock, STR("")).exit_code, CHILD_BUSY);
    CHECK_OK(os_file_open(path, OS_UPDATE, &other, &err), err);
    CHECK_INT(os_file_lock(other, false, &err), ERR_EBUSY);
    CHECK_OK(os_file_read_at(other, got, 5, 0, &err), err); /* advisory: reading goes on */
    os_file_close(other);
    struct waiting_child w = {.path = path};
    CHECK_OK(os_thread_start(&w.thread, waiting_child_run, &w, "waiter", &err), err);
    os_sleep_ms(300);
    CHECK(!atomic_load(&w.is_done));
    os_file_close(f);
    os_thread_join(w.thread);
    CHECK_INT(w.exit_code, 0);
    arena_free(&a);
}

/* ---- processes ------------------------------------------------------------------------------------------------ */

static bool is_flood(struct str s, char c) {
    size_t i = 0;
    while (i < s.n && s.p[i] == c) i++;
    return s.n == FLOOD_BYTES && i == s.n;
}

static void run_captures_two_floods(void) {
    struct arena a = {0};
    struct os_run_result r = run_child(&a, (const char *const[]){"flood", NULL}, STR("never read"));
    CHECK_INT(r.exit_code, 0);
    CHECK(is_flood(r.out, 'o') && is_flood(r.err, 'e'));
    arena_free(&a);
}

struct flooded {
    bool is_right;
    struct os_thread *thread;
};

static void flooded_run(void *user) {
    struct flooded *t = user;
    struct arena a = {0};
    struct os_run_result r;
    if (try_child(&a, (const char *const[]){"flood", NULL}, STR(""), &r, NULL) == 0)
        t->is_right = is_flood(r.out, 'o') && is_flood(r.err, 'e');
    arena_free(&a);
}

/* A pipe end that leaked into a neighbour's child would keep somebody waiting for ever. */
static void run_from_many_threads(void) {
    struct arena a = {0};
    struct err err;
    struct flooded threads[3] = {{0}, {0}, {0}};
    run_child(&a, (const char *const[]){"exit", "0", NULL}, STR("")); /* skips where nothing can be started */
    for (int i = 0; i < 3; i++) CHECK_OK(os_thread_start(&threads[i].thread, flooded_run, &threads[i], NULL, &err), err);
    for (int i = 0; i < 3; i++) os_thread_join(threads[i].thread);
    for (int i = 0; i < 3; i++) CHECK(threads[i].is_right);
    arena_free(&a);
}

static void run_feeds_input(void) {
    struct arena a = {0};
    size_t n = 2 << 20;
    char *text = arena_alloc(&a, n);
    for (size_t i = 0; i < n; i++) text[i] = (char)(i * 31 >> 3);
    struct os_run_result r = run_child(&a, (const char *const[]){"cat", NULL}, str_n(text, n));
    CHECK_INT(r.exit_code, 0);
    CHECK(str_eq(r.out, str_n(text, n)) && r.err.n == 0);
    r = run_child(&a, (const char *const[]){"cat", NULL}, STR(""));
    CHECK_INT(r.out.n, 0);
    r = run_child(&a, (const char *const[]){"exit", "0", NULL}, str_n(text, n)); /* it never reads */
    CHECK_INT(r.exit_code, 0);
    r = run_child(&a, (const char *const[]){"lines", NULL}, STR("one\ntwo \xC3\xBC\r\n\nlast"));
    CHECK_STR(r.out, STR("[one][two \xC3\xBC][][last]"));
    arena_free(&a);
}

static void run_quotes_arguments(void) {
    static const char *const nasty[] = {"args",
                                        "",
                                        "plain",
                                        "two words",
                                        "tab\there",
                                        "say \"hi\"",
                                        "back\\slash",
                                        "trailing\\",
                                        "trailing space \\\\",
                                        "\\\"",
                                        "\"",
                                        "a\\\\\"b c",
                                        "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80",
                                        "%PATH% ^& | > $HOME `x` 'y' *",
                                        NULL};
    struct arena a = {0};
    struct sb want = {0};
    for (int i = 1; nasty[i]; i++) sb_fmt(&want, "%zu:%s;", strlen(nasty[i]), nasty[i]);
    struct os_run_result r = run_child(&a, nasty, STR(""));
    CHECK_STR(r.out, sb_str(&want));
    sb_free(&want);
    arena_free(&a);
}

static void run_reports_failures(void) {
    struct arena a = {0};
    struct err err;
    const char *emulator = os_env("MLXCEL_TEST_EMULATED");
    if (emulator && strcmp(emulator, "qemu") == 0) unit_skip("under qemu-user a child cannot tell its parent that it did not begin");
    struct os_run_result r = run_child(&a, (const char *const[]){"exit", "42", NULL}, STR(""));
    CHECK_INT(r.exit_code, 42);
    CHECK_STR(r.err, STR("going\n"));
    CHECK_INT(os_run(&a, (const char *const[]){"mlxcel-no-such-program", NULL}, NULL, NULL, STR(""), &r, &err), ERR_ENOTFOUND);
    CHECK_STR(str_of(err.msg), STR("cannot run mlxcel-no-such-program: not found in PATH"));
    CHECK_INT(os_run(&a, (const char *const[]){"./no/such/program", NULL}, NULL, NULL, STR(""), &r, &err), ERR_ENOTFOUND);
    CHECK(os_run(&a, (const char *const[]){test_exe_path(), "--child", "exit", NULL}, "/no/such/folder", NULL, STR(""), &r, &err) != 0);
    CHECK(os_find_program(&a, "mlxcel-no-such-program") == NULL && os_find_program(&a, "") == NULL);
    const char *path = str_fmt(&a, "%s/no-program", unit_scratch_dir()).p;
    CHECK_OK(os_file_save(path, STR("not a program"), &err), err);
    CHECK(os_run(&a, (const char *const[]){path, NULL}, NULL, NULL, STR(""), &r, &err) != 0);
    arena_free(&a);
}

static void run_sets_folder_and_environment(void) {
    struct arena a = {0};
    struct err err;
    struct os_run_result r;
    run_child(&a, (const char *const[]){"exit", "0", NULL}, STR(""));
    const char *const show[] = {test_exe_path(), "--child", "env", "MLXCEL_TEST_VALUE", NULL};
    const char *const env[] = {"MLXCEL_TEST_VALUE=\xC3\xBC = \xF0\x9F\x98\x80", NULL};
    CHECK_OK(os_run(&a, show, NULL, env, STR(""), &r, &err), err);
    CHECK_STR(r.out, STR("\xC3\xBC = \xF0\x9F\x98\x80"));
    CHECK_OK(os_run(&a, show, NULL, NULL, STR(""), &r, &err), err);
    CHECK_STR(r.out, STR("(none)"));
    const char *const path[] = {test_exe_path(), "--child", "env", "PATH", NULL};
    CHECK_OK(os_run(&a, path, NULL, env, STR(""), &r, &err), err);
    CHECK_STR(r.out, str_of(os_env("PATH")));
    const char *const replace[] = {"PATH=only this", NULL};
    CHECK_OK(os_run(&a, path, NULL, replace, STR(""), &r, &err), err);
    CHECK_STR(r.out, STR("only this"));
    const char *dir = str_fmt(&a, "%s/w\xC3\xB6rk here", unit_scratch_dir()).p;
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK_OK(os_run(&a, (const char *const[]){test_exe_path(), "--child", "cwd", NULL}, dir, NULL, STR(""), &r, &err), err);
    CHECK(str_ends(r.out, STR("w\xC3\xB6rk here")));
    arena_free(&a);
}

/* The runner itself: names that fit no case are no success. */
static void run_of_no_case_fails(void) {
    struct arena a = {0};
    struct os_run_result r;
    struct err err;
    run_child(&a, (const char *const[]){"exit", "0", NULL}, STR("")); /* skips where it cannot start itself */
    const char *const argv[] = {test_exe_path(), "no_such_case", NULL};
    CHECK_OK(os_run(&a, argv, NULL, NULL, STR(""), &r, &err), err);
    CHECK_INT(r.exit_code, 1);
    CHECK(str_starts(r.out, STR("0 passed, 0 failed")) && str_find(r.err, STR("no case has such a name"), 0) != STR_NONE);
    arena_free(&a);
}

static void interrupts_reach_the_function(void) {
    struct arena a = {0};
    if (!is_posix()) unit_skip("only a console sends interrupts on this system");
    CHECK_INT(run_child(&a, (const char *const[]){"interrupt", NULL}, STR("")).exit_code, 2);
    arena_free(&a);
}

static void the_terminal_is_put_away_last(void) {
    static const struct {
        const char *how;
        int exit_code;
        const char *says;
    } rows[] = {{"leave", 7, "put away\n"}, {"kill", 128 + SIGTERM, "put away\n"}, {"undone", 128 + SIGTERM, ""}, {"others", 0, ""}};
    struct arena a = {0};
    if (!is_posix()) unit_skip("only a console sends interrupts on this system");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct os_run_result r = run_child(&a, (const char *const[]){"end", rows[i].how, NULL}, STR(""));
        CHECK_INT(r.exit_code, rows[i].exit_code);
        CHECK_STR(r.err, str_of(rows[i].says));
    }
    arena_free(&a);
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

struct turns {
    struct os_mutex *mutex;
    struct os_cond *cond;
    int n;
};

enum { N_TURNS = 2000 };

static void turns_run(void *user) {
    struct turns *t = user;
    for (int i = 0; i < N_TURNS; i++) {
        os_mutex_lock(t->mutex);
        while (t->n % 2 == 0) os_cond_wait(t->cond, t->mutex);
        t->n++;
        os_cond_signal(t->cond);
        os_mutex_unlock(t->mutex);
    }
}

static void conditions_take_turns(void) {
    struct err err;
    struct os_thread *thread;
    struct turns t = {.mutex = os_mutex_create(), .cond = os_cond_create()};
    CHECK_OK(os_thread_start(&thread, turns_run, &t, "a name that is longer than the system takes", &err), err);
    for (int i = 0; i < N_TURNS; i++) {
        os_mutex_lock(t.mutex);
        while (t.n % 2 == 1) os_cond_wait(t.cond, t.mutex);
        t.n++;
        os_cond_broadcast(t.cond);
        os_mutex_unlock(t.mutex);
    }
    os_thread_join(thread);
    CHECK_INT(t.n, 2 * N_TURNS);
    os_mutex_lock(t.mutex);
    uint64_t start = os_clock_ns();
    while (os_cond_wait_ms(t.cond, t.mutex, 30)) {}
    CHECK(os_clock_ns() - start > 20000000);
    os_mutex_unlock(t.mutex);
    os_cond_destroy(t.cond);
    os_mutex_destroy(t.mutex);
}

struct gate {
    _Atomic uint32_t word;
    _Atomic int n_through;
};

static void gate_run(void *user) {
    struct gate *g = user;
    while (atomic_load(&g->word) == 0) os_wait_on(&g->word, 0, -1);
    atomic_fetch_add(&g->n_through, 1);
}

static void words_wake_all_waiters(void) {
    struct err err;
    struct gate g = {0};
    struct os_thread *threads[4];
    for (int i = 0; i < 4; i++) CHECK_OK(os_thread_start(&threads[i], gate_run, &g, "waiter", &err), err);
    os_sleep_ms(30);
    CHECK_INT(atomic_load(&g.n_through), 0);
    atomic_store(&g.word, 1);
    os_wake_all(&g.word);
    for (int i = 0; i < 4; i++) os_thread_join(threads[i]);
    CHECK_INT(atomic_load(&g.n_through), 4);
    os_wait_on(&g.word, 0, -1); /* not equal: returns at once */
    uint64_t start = os_clock_ns();
    while (os_clock_ns() - start < 20000000) os_wait_on(&g.word, 1, 30); /* nobody wakes it: it comes back by its limit alone */
    os_thread_yield();
    os_thread_join(NULL);
}

/* ---- libraries, identity, machine, time ------------------------------------------------------------------------ */

static void libraries_open_or_say_why_not(void) {
    struct err err;
    struct os_dl *lib = NULL;
    static const char *const candidates[][2] = {{"libm.so.6", "cos"}, {"kernel32.dll", "GetTickCount64"}, {"libSystem.dylib", "cos"}};
    CHECK_INT(os_dl_open("mlxcel-no-such-library", OS_DL_ANY, &lib, &err), ERR_ENOTFOUND);
    CHECK(strstr(err.msg, "mlxcel-no-such-library"));
    CHECK_INT(os_dl_open("mlxcel-no-such-library.dll", OS_DL_SYSTEM_ONLY, &lib, &err), ERR_ENOTFOUND);
    CHECK_INT(os_dl_open("/tmp/libm.so.6", OS_DL_SYSTEM_ONLY, &lib, &err), ERR_EARG);
    for (int i = 0; i < 3; i++) {
        double (*function)(double) = NULL;
        if (os_dl_open(candidates[i][0], OS_DL_SYSTEM_ONLY, &lib, &err)) continue;
        CHECK(os_dl_symbol(lib, candidates[i][1], &function) && function);
        if (strcmp(candidates[i][1], "cos") == 0) CHECK(function(0.0) == 1.0);
        CHECK(!os_dl_symbol(lib, "mlxcel_no_such_symbol", &function) && !function);
        return;
    }
    unit_fail(__FILE__, __LINE__, "%s", err.msg);
}

static void identity_is_known(void) {
    struct arena a = {0};
    struct err err;
    struct os_stat st;
    struct str text;
    CHECK_OK(os_stat(test_exe_path(), &st, &err), err);
    CHECK(st.is_file && st.size > 1000);
    CHECK(os_env("MLXCEL_NO_SUCH_VARIABLE") == NULL && os_env("PATH") && os_process_id() > 0);
    CHECK_OK(os_stat(test_temp_dir(), &st, &err), err);
    /* one form: what the system gives has '/' alone, and so has what others wrote; elsewhere '\\' is a letter */
    CHECK_STR(str_of(os_path(&a, STR("C:\\Users\\m e/models"))), is_posix() ? STR("C:\\Users\\m e/models") : STR("C:/Users/m e/models"));
    const char *const ours[] = {os_home_dir(), os_cache_root(), os_state_root()};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        CHECK(is_posix() || !ours[i] || str_find_char(str_of(ours[i]), '\\', 0) == STR_NONE);
    CHECK(st.is_dir);
    os_describe(&a, &text);
    CHECK(text.n > 5 && utf8_valid(text));
    CHECK(os_console_width() > 0);
    if (os_home_dir()) CHECK(os_cache_root() != NULL);
    arena_free(&a);
}

static void machine_numbers_are_sane(void) {
    struct os_memory m;
    os_memory(&m);
    CHECK(m.total > UINT64_C(64) << 20 && m.total < UINT64_C(1) << 50);
    CHECK(m.available > 0 && m.available <= m.total);
    CHECK(m.resident > 0 && m.resident < m.total);
    CHECK(os_core_count() >= 1 && os_core_count() <= os_cpu_count() && os_cpu_count() < 1 << 16);
    CHECK(strlen(os_cpu_name()) > 2);
}

static void clocks_advance(void) {
    struct tm t;
    uint64_t start = os_clock_ns();
    int64_t wall = os_wall_ns();
    os_sleep_ms(20);
    CHECK(os_clock_ns() - start >= 15000000);
    uint64_t cpu = os_cpu_ns();
    for (start = os_clock_ns(); os_cpu_ns() <= cpu && os_clock_ns() - start < UINT64_C(60000000000);) {} /* it grows while this works */
    CHECK(os_cpu_ns() > cpu);
    CHECK(os_wall_ns() > wall && wall > INT64_C(1700000000) * 1000000000);
    os_local_time(INT64_C(1000000000) * 1000000000, &t);
    CHECK_INT(t.tm_year, 101);
    CHECK_INT(t.tm_mon, 8);
    os_utc_time(INT64_C(1000000000) * 1000000000, &t); /* Sunday, 9 September 2001, 01:46:40 */
    CHECK(t.tm_mday == 9 && t.tm_wday == 0 && t.tm_hour == 1 && t.tm_min == 46 && t.tm_sec == 40);
}

/* ---- control groups and CPU flags ------------------------------------------------------------------------------ */

static void control_group_texts(void) {
    struct str path;
    struct str v1 = STR("12:cpu,cpuacct:/docker/abc\n5:memory:/docker/a:b\n1:name=systemd:/x\n0::/system.slice\n");
    CHECK(cgroup_path(v1, STR("memory"), &path) && str_is(path, "/docker/a:b"));
    CHECK(cgroup_path(v1, STR("cpu"), &path) && str_is(path, "/docker/abc"));
    CHECK(cgroup_path(v1, STR(""), &path) && str_is(path, "/system.slice"));
    CHECK(!cgroup_path(v1, STR("pids"), &path) && !cgroup_path(STR(""), STR(""), &path) && !cgroup_path(STR("0:"), STR(""), &path));
    CHECK(cgroup_path(STR("0::/"), STR(""), &path) && str_is(path, "/"));
    CHECK(cgroup_bytes(STR("max\n")) == CGROUP_NO_LIMIT && cgroup_bytes(STR("9223372036854771712\n")) == CGROUP_NO_LIMIT);
    CHECK_INT(cgroup_bytes(STR("2147483648\n")), INT64_C(2147483648));
    CHECK(cgroup_bytes(STR("-1")) == CGROUP_NO_LIMIT && cgroup_bytes(STR("")) == CGROUP_NO_LIMIT);
    struct str stat = STR("anon 100\ninactive_file 4096\ntotal_inactive_file 8192\n");
    CHECK_INT(cgroup_stat(stat, STR("inactive_file")), 4096);
    CHECK_INT(cgroup_stat(stat, STR("total_inactive_file")), 8192);
    CHECK_INT(cgroup_stat(stat, STR("file")), 0);
    CHECK_INT(cgroup_cpus(STR("max 100000\n")), 0);
    CHECK_INT(cgroup_cpus(STR("150000 100000\n")), 2);
    CHECK_INT(cgroup_cpus(STR("1000 100000\n")), 1);
    CHECK_INT(cgroup_cpus(STR("garbage")), 0);
    CHECK_INT(cgroup_cpus_v1(STR("-1\n"), STR("100000\n")), 0);
    CHECK_INT(cgroup_cpus_v1(STR("400000\n"), STR("100000\n")), 4);
    CHECK_INT(cgroup_cpus_v1(STR("400000\n"), STR("0\n")), 0);
    struct str list = STR("0-3,8,10-11\n");
    int first, last, sum = 0;
    while (cgroup_list_next(&list, &first, &last))
        for (int i = first; i <= last; i++) sum += i;
    CHECK_INT(sum, 0 + 1 + 2 + 3 + 8 + 10 + 11);
    struct str bad = STR("3-1");
    CHECK(!cgroup_list_next(&bad, &first, &last));
}

static void cpu_levels_and_masks(void) {
    struct err err;
    uint32_t mask;
    CHECK_OK(cpu_level_parse(STR("ref"), &mask, &err), err);
    CHECK_INT(mask, 0);
    CHECK_OK(cpu_level_parse(STR("avx512"), &mask, &err), err);
    CHECK((mask & CPU_AVX2) && (mask & CPU_AVX512) && !(mask & CPU_VNNI) && !(mask & CPU_NEON));
    CHECK_OK(cpu_level_parse(STR("avxvnni"), &mask, &err), err);
    CHECK((mask & CPU_AVX2) && (mask & CPU_AVXVNNI) && !(mask & CPU_AVX512));
    CHECK_OK(cpu_level_parse(STR("amx"), &mask, &err), err);
    CHECK((mask & CPU_AVX2) && (mask & CPU_VNNI) && (mask & CPU_AMX_INT8) && (mask & CPU_AMX_BF16));
    CHECK_OK(cpu_level_parse(STR("i8mm"), &mask, &err), err);
    CHECK((mask & CPU_NEON) && (mask & CPU_DOTPROD) && (mask & CPU_I8MM) && !(mask & CPU_BF16) && !(mask & CPU_AVX2));
    CHECK_INT(cpu_level_parse(STR("avx1024"), &mask, &err), ERR_EARG);
    CHECK(strstr(err.msg, "avx1024") && strstr(err.msg, "ref, avx2, avxvnni, avx512") && strstr(err.msg, "bf16"));
    uint32_t all = cpu_flags();
    CHECK(!(all & CPU_AVX512) || (all & CPU_AVX2));
    CHECK(!(all & CPU_NEON) || !(all & CPU_AVX2));
    struct sb text = {0};
    cpu_flags_mask(0);
    CHECK_INT(cpu_flags(), 0);
    cpu_describe(&text);
    CHECK_STR(sb_str(&text), STR("ref"));
    cpu_flags_mask(UINT32_MAX);
    CHECK_INT(cpu_flags(), all);
    sb_clear(&text);
    cpu_describe(&text);
    CHECK(text.n > 0);
    sb_free(&text);
}

const struct unit_suite unit_os = {"os", (const struct unit_case[]){
                                             {"files_with_hard_names", files_with_hard_names},
                                             {"files_fail_with_reasons", files_fail_with_reasons},
                                             {"positioned_reads_and_writes", positioned_reads_and_writes},
                                             {"reads_from_many_threads", reads_from_many_threads},
                                             {"open_file_is_replaced", open_file_is_replaced},
                                             {"tree_removal_spares_link_targets", tree_removal_spares_link_targets},
                                             {"names_are_sorted", names_are_sorted},
                                             {"pages_are_zeroed", pages_are_zeroed},
                                             {"locks_between_processes", locks_between_processes},
                                             {"run_captures_two_floods", run_captures_two_floods},
                                             {"run_from_many_threads", run_from_many_threads},
                                             {"run_feeds_input", run_feeds_input},
                                             {"run_quotes_arguments", run_quotes_arguments},
                                             {"run_reports_failures", run_reports_failures},
                                             {"run_sets_folder_and_environment", run_sets_folder_and_environment},
                                             {"run_of_no_case_fails", run_of_no_case_fails},
                                             {"interrupts_reach_the_function", interrupts_reach_the_function},
                                             {"the_terminal_is_put_away_last", the_terminal_is_put_away_last},
                                             {"conditions_take_turns", conditions_take_turns},
                                             {"words_wake_all_waiters", words_wake_all_waiters},
                                             {"libraries_open_or_say_why_not", libraries_open_or_say_why_not},
                                             {"identity_is_known", identity_is_known},
                                             {"machine_numbers_are_sane", machine_numbers_are_sane},
                                             {"clocks_advance", clocks_advance},
                                             {"control_group_texts", control_group_texts},
                                             {"cpu_levels_and_masks", cpu_levels_and_masks},
                                             {0},
                                         }};
