/* Child processes on Windows.
 *
 * (1) One thread reads each output stream while this one feeds the input, so that nothing can block anything else.
 * (2) The child inherits exactly its three handles, even when several threads start children at once.
 * (3) Batch files are refused: cmd.exe reads a command line by other rules, and no quoting is safe for both. */
#include "os/win32.h"

enum { PIPE_PIECE = 64 * 1024 };

struct pipes {
    HANDLE child[3], parent[3];
};

static void close_handle(HANDLE *h) {
    if (*h) CloseHandle(*h);
    *h = NULL;
}

static void pipes_close(struct pipes *p) {
    for (int i = 0; i < 3; i++) {
        close_handle(&p->child[i]);
        close_handle(&p->parent[i]);
    }
}

static DWORD pipes_open(struct pipes *p) {
    *p = (struct pipes){0};
    for (int i = 0; i < 3; i++) {
        HANDLE read_end, write_end;
        if (!CreatePipe(&read_end, &write_end, NULL, PIPE_PIECE)) return GetLastError();
        p->child[i] = i == 0 ? read_end : write_end;
        p->parent[i] = i == 0 ? write_end : read_end;
        if (!SetHandleInformation(p->child[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT)) return GetLastError();
    }
    return 0;
}

/* The quoting that CommandLineToArgvW and the C runtimes undo: backslashes count only before a quote. */
static void put_quoted(struct sb *out, const char *arg) {
    if (arg[0] && !strpbrk(arg, " \t\n\v\"")) {
        sb_puts(out, arg);
        return;
    }
    sb_putc(out, '"');
    for (const char *c = arg;; c++) {
        size_t n_slashes = 0;
        while (*c == '\\') c++, n_slashes++;
        size_t n = *c == 0 ? n_slashes * 2 : *c == '"' ? n_slashes * 2 + 1 : n_slashes;
        for (size_t i = 0; i < n; i++) sb_putc(out, '\\');
        if (*c == 0) break;
        sb_putc(out, *c);
    }
    sb_putc(out, '"');
}

static wchar_t *command_line(const char *const *argv) {
    struct sb line = {0};
    for (size_t i = 0; argv[i]; i++) {
        if (i) sb_putc(&line, ' ');
        put_quoted(&line, argv[i]);
    }
    wchar_t *wide = win32_wide(sb_str(&line), NULL);
    sb_free(&line);
    return wide;
}

/* Names of variables are equal without regard to case. The first character may be '=' ("=C:=C:\dir"). */
static bool same_name(const wchar_t *a, const wchar_t *b) {
    const wchar_t *end_a = wcschr(a + (a[0] != 0), L'='), *end_b = wcschr(b + (b[0] != 0), L'=');
    return end_a && end_b && CompareStringOrdinal(a, (int)(end_a - a), b, (int)(end_b - b), TRUE) == CSTR_EQUAL;
}

static void put_wide(struct sb *out, const wchar_t *text) {
    sb_put(out, str_n((const char *)text, (wcslen(text) + 1) * sizeof *text));
}

/* Our environment with the additions in place of what had their names; NULL means inherited. */
static void environment(const char *const *env, struct sb *out) {
    size_t n_new = 0;
    while (env[n_new]) n_new++;
    wchar_t **added = mem_alloc((n_new + 1) * sizeof *added);
    for (size_t i = 0; i < n_new; i++) added[i] = win32_wide(str_of(env[i]), NULL);
    wchar_t *old = GetEnvironmentStringsW();
    for (const wchar_t *e = old; e && *e; e += wcslen(e) + 1) {
        bool replaced = false;
        for (size_t i = 0; i < n_new && !replaced; i++) replaced = same_name(e, added[i]);
        if (!replaced) put_wide(out, e);
    }
    if (old) FreeEnvironmentStringsW(old);
    for (size_t i = 0; i < n_new; i++) {
        put_wide(out, added[i]);
        mem_free(added[i]);
    }
    put_wide(out, L"");
    mem_free(added);
}

struct spawn_args {
    const wchar_t *program, *dir;
    wchar_t *command, *env;
};

static DWORD spawn(const struct spawn_args *s, struct pipes *p, HANDLE *out_process) {
    SIZE_T list_bytes = 0;
    InitializeProcThreadAttributeList(NULL, 1, 0, &list_bytes);
    LPPROC_THREAD_ATTRIBUTE_LIST list = mem_alloc(list_bytes);
    STARTUPINFOEXW start = {.StartupInfo = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES}};
    start.StartupInfo.hStdInput = p->child[0];
    start.StartupInfo.hStdOutput = p->child[1];
    start.StartupInfo.hStdError = p->child[2];
    start.lpAttributeList = list;
    PROCESS_INFORMATION info;
    DWORD flags = CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT, reason = 0;
    BOOL listed = InitializeProcThreadAttributeList(list, 1, 0, &list_bytes);
    if (!listed || !UpdateProcThreadAttribute(list, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, p->child, sizeof p->child, NULL, NULL) ||
        !CreateProcessW(s->program, s->command, NULL, NULL, TRUE, flags, s->env, s->dir, &start.StartupInfo, &info))
        reason = GetLastError();
    if (listed) DeleteProcThreadAttributeList(list);
    mem_free(list);
    if (reason) return reason;
    CloseHandle(info.hThread);
    *out_process = info.hProcess;
    return 0;
}

struct reader {
    HANDLE pipe;
    struct sb text;
    struct os_thread *thread;
};

static void reader_run(void *user) {
    struct reader *r = user;
    DWORD n;
    do {
        sb_reserve(&r->text, PIPE_PIECE);
        n = 0;
        if (!ReadFile(r->pipe, r->text.p + r->text.n, PIPE_PIECE, &n, NULL)) break;
        r->text.n += n;
    } while (n);
}

static void feed(HANDLE pipe, struct str input) {
    while (input.n) {
        DWORD n = 0, piece = (DWORD)(input.n > PIPE_PIECE ? PIPE_PIECE : input.n);
        if (!WriteFile(pipe, input.p, piece, &n, NULL)) return; /* the child reads no more: its own business */
        input = str_from(input, n);
    }
}

/* Feeds and reads until the child has closed its ends. */
static int serve(struct pipes *p, struct str input, struct reader readers[2], struct err *err) {
    readers[0].pipe = p->parent[1];
    readers[1].pipe = p->parent[2];
    int code = os_thread_start(&readers[0].thread, reader_run, &readers[0], "run-out", err);
    if (code == 0) code = os_thread_start(&readers[1].thread, reader_run, &readers[1], "run-err", err);
    if (code == 0) feed(p->parent[0], input);
    else close_handle(&p->parent[2]); /* a child that writes there ends */
    close_handle(&p->parent[0]);
    os_thread_join(readers[0].thread);
    os_thread_join(readers[1].thread);
    return code;
}

static bool is_program(const char *path) {
    struct os_stat st;
    return os_stat(path, &st, NULL) == 0 && st.is_file;
}

/* The name as it is, or with one of the endings that a program has. */
static char *with_ending(struct arena *a, struct str name) {
    static const char *const endings[] = {".exe", ".com", ""};
    for (int i = 0; i < 3; i++) {
        if (!endings[i][0] && str_find_char(name, '.', 0) == STR_NONE) continue;
        char *path = str_cstr(a, str_fmt(a, "%.*s%s", STR_ARG(name), endings[i]));
        if (is_program(path)) return path;
    }
    return NULL;
}

char *os_find_program(struct arena *a, const char *name) {
    if (strpbrk(name, "/\\:")) return with_ending(a, str_of(name));
    const char *path = os_env("PATH");
    struct str rest = str_of(path ? path : ""), dir;
    while (name[0] && str_split_next(&rest, ';', &dir)) {
        dir = str_trim(dir);
        if (dir.n >= 2 && dir.p[0] == '"') dir = str_sub(dir, 1, dir.n - 2);
        if (dir.n == 0) continue; /* "here" is not a place to find programs in */
        char *found = with_ending(a, str_fmt(a, "%s/%s", os_path(a, dir), name));
        if (found) return found;
    }
    return NULL;
}

static bool is_batch(struct str name) {
    char ending[4] = {0};
    for (size_t i = 0; name.n >= 4 && i < 4; i++) ending[i] = (char)(name.p[name.n - 4 + i] | 32);
    return memcmp(ending, ".bat", 4) == 0 || memcmp(ending, ".cmd", 4) == 0;
}

static int start(struct arena *a, const char *const *argv, const char *dir, const char *const *env, struct pipes *p, HANDLE *out_process,
                 struct err *err) {
    char *program = os_find_program(a, argv[0]);
    if (!program)
        return os_fail_text(err, ERR_ENOTFOUND, "run", argv[0], strpbrk(argv[0], "/\\:") ? "no such program" : "not found in PATH");
    if (is_batch(str_of(program))) return os_fail_text(err, ERR_EUNSUPPORTED, "run", argv[0], "batch files are not run");
    struct sb env_block = {0};
    if (env) environment(env, &env_block);
    wchar_t *plain = win32_plain_path(program, "run", err), *wide_dir = dir ? win32_plain_path(dir, "enter", err) : NULL;
    int code = plain && (!dir || wide_dir) ? 0 : ERR_EARG;
    if (code == 0 && wcslen(plain) >= MAX_PATH) {
        mem_free(plain);
        plain = win32_path(program, "run", NULL);
    }
    struct spawn_args s = {.program = plain, .dir = wide_dir, .command = command_line(argv), .env = (wchar_t *)(void *)env_block.p};
    DWORD reason = code ? 0 : pipes_open(p);
    if (code == 0 && reason == 0) reason = spawn(&s, p, out_process);
    if (reason) code = os_fail(err, reason == ERROR_DIRECTORY ? ERROR_PATH_NOT_FOUND : (int)reason, "run", argv[0]);
    mem_free(s.command);
    mem_free(plain);
    mem_free(wide_dir);
    sb_free(&env_block);
    return code;
}

int os_run(struct arena *a, const char *const *argv, const char *dir, const char *const *env, struct str input, struct os_run_result *out,
           struct err *err) {
    struct pipes p = {0};
    HANDLE process = NULL;
    *out = (struct os_run_result){0};
    int code = start(a, argv, dir, env, &p, &process, err);
    if (code) {
        pipes_close(&p);
        return code;
    }
    for (int i = 0; i < 3; i++) close_handle(&p.child[i]);
    struct reader readers[2] = {{0}, {0}};
    code = serve(&p, input, readers, err);
    pipes_close(&p);
    DWORD status = 0;
    WaitForSingleObject(process, INFINITE);
    GetExitCodeProcess(process, &status);
    CloseHandle(process);
    out->exit_code = (int)status;
    out->out = str_copy(a, sb_str(&readers[0].text));
    out->err = str_copy(a, sb_str(&readers[1].text));
    sb_free(&readers[0].text);
    sb_free(&readers[1].text);
    return code;
}

/* By exit, which gives the console its code page back; other threads end with the process. */
void os_leave(int exit_code) {
    os_put_away();
    exit(exit_code);
}
