/* Dynamic libraries on Windows. The current folder and PATH are never searched: a library planted there would run. */
#include "os/win32.h"

struct os_dl; /* the module handle itself */

int os_dl_open(const char *name, enum os_dl_where where, struct os_dl **out, struct err *err) {
    bool has_folder = strpbrk(name, "/\\:") != NULL;
    if (where == OS_DL_SYSTEM_ONLY && has_folder)
        return os_fail_text(err, ERR_EARG, "load", name, "a system library has no folder in its name");
    DWORD flags = where == OS_DL_SYSTEM_ONLY ? LOAD_LIBRARY_SEARCH_SYSTEM32 : LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
    if (has_folder) flags |= LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR;
    wchar_t *wide = has_folder ? win32_plain_path(name, "load", err) : win32_wide(str_of(name), NULL);
    if (!wide) return ERR_EARG;
    DWORD old_mode = 0;
    SetThreadErrorMode(SEM_FAILCRITICALERRORS, &old_mode); /* no message boxes */
    HMODULE module = LoadLibraryExW(wide, NULL, flags);
    DWORD reason = GetLastError();
    SetThreadErrorMode(old_mode, NULL);
    mem_free(wide);
    if (!module) return os_fail(err, reason == ERROR_MOD_NOT_FOUND ? ERROR_FILE_NOT_FOUND : (int)reason, "load", name);
    *out = (struct os_dl *)module;
    return 0;
}

bool os_dl_symbol(struct os_dl *lib, const char *name, void *out_function_pointer) {
    FARPROC address = GetProcAddress((HMODULE)lib, name);
    memcpy(out_function_pointer, &address, sizeof address);
    return address != NULL;
}
