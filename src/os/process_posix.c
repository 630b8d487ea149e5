/* Child processes on POSIX systems, by posix_spawn and poll: libuv would need a loop of its own for this one wait.
 *
 * (1) The three pipes are served by one poll loop, so that no amount of output on one stream can block the other.
 * (2) Our ends are close-on-exec; the child starts with an empty signal mask and the default SIGPIPE. */
#include "os/os_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PIPE_PIECE = 64 * 1024 };

struct pipes {
    int child[3];  /* the child's 0, 1, 2 */
    int parent[3]; /* our other ends */
};

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void pipes_close(struct pipes *p) {
    for (int i = 0; i < 3; i++) {
        close_fd(&p->child[i]);
        close_fd(&p->parent[i]);
    }
}

static int pipe_cloexec(int fds[2]) {
#ifdef __APPLE__
    if (pipe(fds)) return errno;
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    fcntl(fds[1], F_SETFD, FD_CLOEXEC);
    return 0;
#else
    return pipe2(fds, O_CLOEXEC) ? errno : 0;
#endif
}

static int pipes_open(struct pipes *p) {
    *p = (struct pipes){.child = {-1, -1, -1}, .parent = {-1, -1, -1}};
    for (int i = 0; i < 3; i++) {
        int fds[2], code = pipe_cloexec(fds);
        if (code) return code;
        p->child[i] = fds[i == 0 ? 0 : 1];
        p->parent[i] = fds[i == 0 ? 1 : 0];
        fcntl(p->parent[i], F_SETFL, O_NONBLOCK);
        /* spawn's dup2 onto 0..2 must not meet a pipe end that already has such a number */
        if (p->child[i] <= 2) {
            int moved = fcntl(p->child[i], F_DUPFD_CLOEXEC, 3);
            if (moved < 0) return errno;
            close(p->child[i]);
            p->child[i] = moved;
        }
    }
    return 0;
}

/* Our environment with the additions in place of what had their names. */
static char **merge_env(struct arena *a, const char *const *env) {
    if (!env) return environ;
    size_t n_old = 0, n_new = 0, n = 0;
    while (environ[n_old]) n_old++;
    while (env[n_new]) n_new++;
    char **all = arena_new(a, char *, n_old + n_new + 1);
    for (size_t i = 0; i < n_old; i++) {
        bool replaced = false;
        for (size_t k = 0; k < n_new && !replaced; k++) {
            const char *equals = strchr(env[k], '=');
            replaced = equals && strncmp(environ[i], env[k], (size_t)(equals - env[k]) + 1) == 0;
        }
        if (!replaced) all[n++] = environ[i];
    }
    for (size_t k = 0; k < n_new; k++) all[n++] = str_cstr(a, str_of(env[k]));
    return all;
}

struct spawn_args {
    const char *program;
    const char *const *argv;
    const char *dir;
    char **env;
};

static int spawn(const struct spawn_args *s, struct pipes *p, pid_t *out_pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    int code = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    for (int i = 0; i < 3 && code == 0; i++) code = posix_spawn_file_actions_adddup2(&actions, p->child[i], i);
    if (s->dir && code == 0) code = posix_spawn_file_actions_addchdir_np(&actions, s->dir);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (code == 0) code = posix_spawn(out_pid, s->program, &actions, &attr, (char *const *)s->argv, s->env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

static void feed(int *fd, struct str *input) {
    ssize_t n = input->n ? write(*fd, input->p, input->n) : 0;
    if (n > 0) *input = str_from(*input, (size_t)n);
    bool broken = n < 0 && errno != EINTR && errno != EAGAIN; /* the child reads no more: its own business */
    if (broken || input->n == 0) close_fd(fd);
}

static void drain(int *fd, struct sb *out) {
    sb_reserve(out, PIPE_PIECE);
    ssize_t n = read(*fd, out->p + out->n, PIPE_PIECE);
    if (n > 0) out->n += (size_t)n;
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) close_fd(fd);
}

static void serve(struct pipes *p, struct str input, struct sb *out, struct sb *err_out) {
    if (input.n == 0) close_fd(&p->parent[0]);
    while (p->parent[0] >= 0 || p->parent[1] >= 0 || p->parent[2] >= 0) {
        struct pollfd wait[3];
        for (int i = 0; i < 3; i++) wait[i] = (struct pollfd){.fd = p->parent[i], .events = i == 0 ? POLLOUT : POLLIN};
        if (poll(wait, 3, -1) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (wait[0].revents) feed(&p->parent[0], &input);
        if (wait[1].revents) drain(&p->parent[1], out);
        if (wait[2].revents) drain(&p->parent[2], err_out);
    }
}

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

char *os_find_program(struct arena *a, const char *name) {
    if (strchr(name, '/')) return is_program(name) ? str_cstr(a, str_of(name)) : NULL;
    const char *path = os_env("PATH");
    struct str rest = str_of(path ? path : "/usr/local/bin:/usr/bin:/bin"), dir;
    while (name[0] && str_split_next(&rest, ':', &dir)) {
        if (dir.n == 0) continue; /* "here" is not a place to find programs in */
        char *full = str_cstr(a, str_fmt(a, "%.*s/%s", STR_ARG(dir), name));
        if (is_program(full)) return full;
    }
    return NULL;
}

/* A path relative to here, although the child may start elsewhere. */
static char *absolute(struct arena *a, const char *path) {
    char here[4096];
    if (path[0] == '/' || !getcwd(here, sizeof here)) return str_cstr(a, str_of(path));
    return str_cstr(a, str_fmt(a, "%s/%s", here, path));
}

static void ignore_sigpipe(void) {
    signal(SIGPIPE, SIG_IGN);
}

int os_run(struct arena *a, const char *const *argv, const char *dir, const char *const *env, struct str input, struct os_run_result *out,
           struct err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ignore_sigpipe);
    *out = (struct os_run_result){0};
    char *program = os_find_program(a, argv[0]);
    if (!program) return os_fail_text(err, ERR_ENOTFOUND, "run", argv[0], strchr(argv[0], '/') ? "no such program" : "not found in PATH");
    struct pipes p;
    pid_t pid;
    int code = pipes_open(&p);
    struct spawn_args s = {.program = absolute(a, program), .argv = argv, .dir = dir, .env = merge_env(a, env)};
    if (code == 0) code = spawn(&s, &p, &pid);
    if (code) {
        pipes_close(&p);
        return os_fail(err, code, "run", argv[0]);
    }
    for (int i = 0; i < 3; i++) close_fd(&p.child[i]);
    struct sb text = {0}, err_text = {0};
    serve(&p, input, &text, &err_text);
    pipes_close(&p);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    out->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    out->out = str_copy(a, sb_str(&text));
    out->err = str_copy(a, sb_str(&err_text));
    sb_free(&text);
    sb_free(&err_text);
    return 0;
}

void os_leave(int exit_code) {
    os_put_away();
    _exit(exit_code);
}
