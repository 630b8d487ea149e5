/* Environment and identity on POSIX systems. */
#include "os/os_internal.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char home_dir[PATH_MAX], cache_root[PATH_MAX], state_root[PATH_MAX], config_root[PATH_MAX];

/* Cut names would be wrong names: none is better. */
static void set_path(char out[PATH_MAX], const char *dir, const char *rest) {
    int n = snprintf(out, PATH_MAX, "%s%s", dir, rest);
    if (n < 0 || n >= PATH_MAX) out[0] = 0;
}

/* The folder that the desktop's rules name: absolute, or not at all. */
static void set_root(char out[PATH_MAX], const char *variable, const char *below_home) {
    const char *dir = os_env(variable);
    if (dir && dir[0] == '/') set_path(out, dir, "");
    else if (home_dir[0]) set_path(out, home_dir, below_home);
}

static void find_all(void) {
    const char *home = os_env("HOME");
    struct passwd entry, *found = NULL;
    char text[4096];
    if (!home && getpwuid_r(getuid(), &entry, text, sizeof text, &found) == 0 && found) home = found->pw_dir;
    if (home && home[0] == '/') set_path(home_dir, home, "");
    set_root(cache_root, "XDG_CACHE_HOME", "/.cache");
    set_root(state_root, "XDG_STATE_HOME", "/.local/state");
    set_root(config_root, "XDG_CONFIG_HOME", "/.config");
}

const char *os_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

int os_process_id(void) {
    return (int)getpid();
}

char *os_path(struct arena *a, struct str path) {
    return str_cstr(a, path); /* '\\' is a letter here */
}

const char *os_home_dir(void) {
    pthread_once(&once, find_all);
    return home_dir[0] ? home_dir : NULL;
}

const char *os_cache_root(void) {
    pthread_once(&once, find_all);
    return cache_root[0] ? cache_root : NULL;
}

const char *os_state_root(void) {
    pthread_once(&once, find_all);
    return state_root[0] ? state_root : NULL;
}

const char *os_config_root(void) {
    pthread_once(&once, find_all);
    return config_root[0] ? config_root : NULL;
}

/* PRETTY_NAME="..." of an os-release file. */
static struct str pretty_name(struct str text) {
    struct str line, key = STR("PRETTY_NAME=");
    while (str_split_next(&text, '\n', &line)) {
        if (!str_starts(line, key)) continue;
        line = str_trim(str_from(line, key.n));
        if (line.n >= 2 && line.p[0] == '"') line = str_sub(line, 1, line.n - 2);
        return line;
    }
    return STR("");
}

void os_describe(struct arena *a, struct str *out) {
    struct utsname u;
    struct str text = {0};
    if (uname(&u)) u = (struct utsname){.sysname = "POSIX"};
    if (os_file_load(a, "/etc/os-release", 1 << 16, &text, NULL)) text = STR("");
    struct str name = pretty_name(text);
    if (name.n == 0) name = str_of(u.sysname);
    *out = str_fmt(a, "%.*s, kernel %s", STR_ARG(name), u.release);
}

int os_args(struct arena *a, int argc, char **argv, char ***out_argv) {
    *out_argv = arena_new(a, char *, (size_t)argc + 1);
    for (int i = 0; i < argc; i++) (*out_argv)[i] = str_cstr(a, str_of(argv[i]));
    return argc;
}

char *os_registry_string(struct arena *a, const char *key, const char *value) {
    (void)a, (void)key, (void)value;
    return NULL;
}
