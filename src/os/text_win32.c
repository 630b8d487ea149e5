/* Windows: UTF-8 to UTF-16 and back, paths, messages. */
#include "os/win32.h"

wchar_t *win32_wide(struct str utf8, size_t *out_n) {
    int n = utf8.n > INT_MAX / 4 ? 0 : MultiByteToWideChar(CP_UTF8, 0, utf8.p, (int)utf8.n, NULL, 0);
    wchar_t *wide = mem_alloc(((size_t)n + 1) * sizeof *wide);
    if (n) MultiByteToWideChar(CP_UTF8, 0, utf8.p, (int)utf8.n, wide, n);
    if (out_n) *out_n = (size_t)n;
    return wide;
}

void win32_put_utf8(struct sb *out, const wchar_t *text, size_t n) {
    int bytes = n == 0 || n > INT_MAX / 4 ? 0 : WideCharToMultiByte(CP_UTF8, 0, text, (int)n, NULL, 0, NULL, NULL);
    if (bytes <= 0) return;
    char *p = sb_extend(out, (size_t)bytes);
    WideCharToMultiByte(CP_UTF8, 0, text, (int)n, p, bytes, NULL, NULL);
}

char *win32_utf8(struct arena *a, const wchar_t *text) {
    struct sb b = {0};
    win32_put_utf8(&b, text, wcslen(text));
    char *copy = str_cstr(a, sb_str(&b));
    sb_free(&b);
    return copy;
}

int os_fail(struct err *err, int system_code, const char *verb, const char *path) {
    DWORD number = (DWORD)system_code;
    int code = ERR_EIO;
    if (number == ERROR_FILE_NOT_FOUND || number == ERROR_PATH_NOT_FOUND || number == ERROR_INVALID_DRIVE || number == ERROR_BAD_NETPATH)
        code = ERR_ENOTFOUND;
    if (number == ERROR_NOT_ENOUGH_MEMORY || number == ERROR_OUTOFMEMORY || number == ERROR_COMMITMENT_LIMIT) code = ERR_EMEMORY;
    if (number == ERROR_LOCK_VIOLATION || number == ERROR_SHARING_VIOLATION) code = ERR_EBUSY;
    if (number == ERROR_NO_DATA || number == ERROR_BROKEN_PIPE || number == ERROR_PIPE_NOT_CONNECTED)
        code = ERR_ECANCELLED; /* the reader went away */
    wchar_t text[200];
    struct sb reason = {0};
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, number, 0, text, 200, NULL);
    while (n && (text[n - 1] <= ' ' || text[n - 1] == '.')) n--;
    win32_put_utf8(&reason, text, n);
    if (reason.n == 0) sb_fmt(&reason, "system error %u", (unsigned)number);
    os_fail_text(err, code, verb, path, reason.p);
    sb_free(&reason);
    return code;
}

/* The absolute form, with room for a prefix of `before` characters at the front. */
static wchar_t *full_path(const char *path, size_t before, const char *verb, struct err *err) {
    struct str text = str_of(path);
    if (!utf8_valid(text)) {
        os_fail_text(err, ERR_EARG, verb, path, "the name is not valid UTF-8");
        return NULL;
    }
    if (text.n == 0) {
        os_fail(err, ERROR_PATH_NOT_FOUND, verb, "\"\"");
        return NULL;
    }
    wchar_t *wide = win32_wide(text, NULL), *full = NULL;
    for (wchar_t *c = wide; *c; c++)
        if (*c == L'/') *c = L'\\';
    DWORD n = GetFullPathNameW(wide, 0, NULL, NULL);
    if (n) {
        full = mem_alloc((before + n + 1) * sizeof *full);
        if (!GetFullPathNameW(wide, n + 1, full + before, NULL)) n = 0;
    }
    if (n == 0) {
        os_fail(err, (int)GetLastError(), verb, path);
        mem_free(full);
        full = NULL;
    }
    mem_free(wide);
    return full;
}

wchar_t *win32_plain_path(const char *path, const char *verb, struct err *err) {
    return full_path(path, 0, verb, err);
}

/* \\server\share becomes \\?\UNC\server\share; \\?\ and devices (\\.\NUL) stay as they are. */
wchar_t *win32_path(const char *path, const char *verb, struct err *err) {
    enum { ROOM = 8 };
    wchar_t *room = full_path(path, ROOM, verb, err);
    if (!room) return NULL;
    const wchar_t *full = room + ROOM, *prefix = L"";
    if (full[0] == L'\\' && full[1] == L'\\') {
        if (full[2] != L'?' && full[2] != L'.') {
            prefix = L"\\\\?\\UNC\\";
            full += 2;
        }
    } else {
        prefix = L"\\\\?\\";
    }
    size_t n_prefix = wcslen(prefix);
    memmove(room + n_prefix, full, (wcslen(full) + 1) * sizeof *room);
    memcpy(room, prefix, n_prefix * sizeof *room);
    return room;
}

bool win32_symbol(const wchar_t *module, const char *name, void *out_function_pointer) {
    HMODULE handle = GetModuleHandleW(module);
    FARPROC address = handle ? GetProcAddress(handle, name) : NULL;
    memcpy(out_function_pointer, &address, sizeof address);
    return address != NULL;
}
