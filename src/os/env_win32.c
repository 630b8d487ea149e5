/* Environment and identity on Windows. */
#include "os/win32.h"

#include <shellapi.h>

static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
static struct arena process_arena; /* filled once, under `once` */
static char *home_dir, *cache_root, *config_root;

/* Values handed out so far. A changed value replaces the old one; an unchanged one keeps its address. */
struct env_entry {
    struct env_entry *next;
    char *name, *value;
};
static SRWLOCK env_lock = SRWLOCK_INIT;
static struct env_entry *env_entries;

static char *copy_text(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(mem_alloc(n), text, n);
}

static void read_env(const char *name, struct sb *out) {
    wchar_t *wide_name = win32_wide(str_of(name), NULL);
    DWORD n = GetEnvironmentVariableW(wide_name, NULL, 0);
    if (n) {
        wchar_t *value = mem_alloc((size_t)n * sizeof *value);
        DWORD got = GetEnvironmentVariableW(wide_name, value, n);
        if (got < n) win32_put_utf8(out, value, got);
        mem_free(value);
    }
    mem_free(wide_name);
}

const char *os_env(const char *name) {
    struct sb value = {0};
    const char *out = NULL;
    read_env(name, &value);
    AcquireSRWLockExclusive(&env_lock);
    struct env_entry *e = env_entries;
    while (e && strcmp(e->name, name) != 0) e = e->next;
    if (value.n) {
        if (!e) {
            e = mem_alloc(sizeof *e);
            e->name = copy_text(name);
            e->next = env_entries;
            env_entries = e;
        }
        if (!e->value || strcmp(e->value, value.p) != 0) {
            mem_free(e->value);
            e->value = copy_text(value.p);
        }
        out = e->value;
    }
    ReleaseSRWLockExclusive(&env_lock);
    sb_free(&value);
    return out;
}

char *os_path(struct arena *a, struct str path) {
    char *copy = str_cstr(a, path);
    for (char *c = copy; *c; c++)
        if (*c == '\\') *c = '/';
    return copy;
}

static char *env_copy(const char *name) {
    const char *value = os_env(name);
    return value ? os_path(&process_arena, str_of(value)) : NULL;
}

static BOOL CALLBACK find_all(PINIT_ONCE init, PVOID parameter, PVOID *context) {
    (void)init;
    (void)parameter;
    (void)context;
    home_dir = env_copy("USERPROFILE");
    cache_root = env_copy("LOCALAPPDATA");
    if (!cache_root && home_dir) cache_root = str_cstr(&process_arena, str_fmt(&process_arena, "%s/AppData/Local", home_dir));
    config_root = env_copy("APPDATA");
    if (!config_root && home_dir) config_root = str_cstr(&process_arena, str_fmt(&process_arena, "%s/AppData/Roaming", home_dir));
    return TRUE;
}

static void find_once(void) {
    InitOnceExecuteOnce(&once, find_all, NULL, NULL);
}

int os_process_id(void) {
    return (int)GetCurrentProcessId();
}

const char *os_home_dir(void) {
    find_once();
    return home_dir;
}

const char *os_cache_root(void) {
    find_once();
    return cache_root;
}

const char *os_state_root(void) {
    return os_cache_root();
}

const char *os_config_root(void) {
    find_once();
    return config_root;
}

/* GetVersionEx lies to programs without a manifest; this one does not. */
void os_describe(struct arena *a, struct str *out) {
    LONG(WINAPI * get_version)(OSVERSIONINFOW *);
    OSVERSIONINFOW v = {.dwOSVersionInfoSize = sizeof v};
    if (!win32_symbol(L"ntdll.dll", "RtlGetVersion", &get_version) || get_version(&v)) {
        *out = STR("Windows");
        return;
    }
    enum { FIRST_WINDOWS_11 = 22000 };
    int major = v.dwMajorVersion == 10 && v.dwBuildNumber >= FIRST_WINDOWS_11 ? 11 : (int)v.dwMajorVersion;
    const char *(CDECL * wine_version)(void);
    bool is_wine = win32_symbol(L"ntdll.dll", "wine_get_version", &wine_version);
    *out =
        str_fmt(a, "Windows %d, build %u%s%s", major, (unsigned)v.dwBuildNumber, is_wine ? ", Wine " : "", is_wine ? wine_version() : "");
}

int os_args(struct arena *a, int argc, char **argv, char ***out_argv) {
    int n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    if (!wide) n = argc;
    *out_argv = arena_new(a, char *, (size_t)n + 1);
    for (int i = 0; i < n; i++) (*out_argv)[i] = wide ? win32_utf8(a, wide[i]) : str_cstr(a, str_of(argv[i]));
    LocalFree(wide);
    return n;
}

char *os_registry_string(struct arena *a, const char *key, const char *value) {
    wchar_t *wide_key = win32_wide(str_of(key), NULL), *wide_value = win32_wide(str_of(value), NULL);
    wchar_t text[1024];
    DWORD bytes = sizeof text;
    DWORD flags = RRF_RT_REG_SZ | RRF_SUBKEY_WOW6464KEY; /* always ends in NUL */
    LSTATUS status = RegGetValueW(HKEY_LOCAL_MACHINE, wide_key, wide_value, flags, NULL, text, &bytes);
    mem_free(wide_key);
    mem_free(wide_value);
    return status == ERROR_SUCCESS ? win32_utf8(a, text) : NULL;
}
