/* Files on Windows, by the system's own calls: libuv neither shares deletion on request nor locks nor maps files.
 *
 * (1) Every path goes through win32_path. (2) Every file is opened with all sharing on, so that it can be read,
 * replaced and removed by others while it is open. (3) Virus scanners hold new files for moments: what may fail by that
 * is tried again for a second. */
#include "os/win32.h"

#include <stdio.h>

enum { IO_PIECE = 1 << 30, RETRY_COUNT = 20, RETRY_MS = 50 };

struct os_file {
    HANDLE handle;
    char *path; /* for messages */
};

static int64_t filetime_ns(FILETIME t) {
    int64_t ticks = (int64_t)((uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime); /* 100 ns since 1601 */
    return (ticks - INT64_C(116444736000000000)) * 100;
}

static bool is_transient(DWORD code) {
    return code == ERROR_SHARING_VIOLATION || code == ERROR_ACCESS_DENIED || code == ERROR_LOCK_VIOLATION || code == ERROR_DIR_NOT_EMPTY;
}

static HANDLE open_any(const wchar_t *wide, DWORD access) {
    return CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                       FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

/* Through a handle, so that links are followed. */
int os_stat(const char *path, struct os_stat *out, struct err *err) {
    wchar_t *wide = win32_path(path, "look at", err);
    if (!wide) return ERR_EARG;
    BY_HANDLE_FILE_INFORMATION info;
    HANDLE h = open_any(wide, FILE_READ_ATTRIBUTES);
    int code = 0;
    if (h == INVALID_HANDLE_VALUE) {
        code = os_fail(err, (int)GetLastError(), "look at", path);
    } else if (GetFileType(h) != FILE_TYPE_DISK) {
        *out = (struct os_stat){0};
    } else if (!GetFileInformationByHandle(h, &info)) {
        code = os_fail(err, (int)GetLastError(), "look at", path);
    } else {
        bool is_dir = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
        *out = (struct os_stat){.size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow,
                                .mtime_ns = filetime_ns(info.ftLastWriteTime),
                                .is_dir = is_dir,
                                .is_file = !is_dir};
    }
    if (h != INVALID_HANDLE_VALUE) CloseHandle(h);
    mem_free(wide);
    return code;
}

bool os_can_write(const char *dir) {
    wchar_t *wide = win32_path(dir, "write", NULL);
    HANDLE h = wide ? open_any(wide, FILE_ADD_FILE) : INVALID_HANDLE_VALUE;
    if (h != INVALID_HANDLE_VALUE) CloseHandle(h);
    mem_free(wide);
    return h != INVALID_HANDLE_VALUE;
}

static bool is_folder(const wchar_t *wide) {
    DWORD attributes = GetFileAttributesW(wide);
    return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY);
}

/* CON, NUL, COM1 and pipes by their names: Windows makes \\.\NUL of C:\model\NUL. */
static bool is_device_path(const wchar_t *wide) {
    return wcsncmp(wide, L"\\\\.\\", 4) == 0;
}

/* A link may lead to a device or a pipe, too. Disks as a whole count as FILE_TYPE_DISK and have no file's facts. */
static bool is_regular(HANDLE h) {
    BY_HANDLE_FILE_INFORMATION info;
    return GetFileType(h) == FILE_TYPE_DISK && GetFileInformationByHandle(h, &info) &&
           !(info.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE));
}

int os_file_open(const char *path, enum os_open_mode mode, struct os_file **out, struct err *err) {
    /* a private file is as private as its folder in the user's profile */
    static const DWORD how[] = {[OS_READ] = OPEN_EXISTING,
                                [OS_INPUT] = OPEN_EXISTING,
                                [OS_WRITE] = CREATE_ALWAYS,
                                [OS_UPDATE] = OPEN_ALWAYS,
                                [OS_PRIVATE] = OPEN_ALWAYS};
    bool reads = mode == OS_READ || mode == OS_INPUT;
    const char *verb = reads ? "open" : "write";
    wchar_t *wide = win32_path(path, verb, err);
    if (!wide) return ERR_EARG;
    if (mode == OS_READ && is_device_path(wide)) {
        mem_free(wide);
        return os_fail_special(err, path);
    }
    DWORD access = reads ? GENERIC_READ : GENERIC_READ | GENERIC_WRITE;
    /* whoever serves a pipe that we are led to may know who we are, and not act as us */
    DWORD flags = FILE_ATTRIBUTE_NORMAL | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    HANDLE h = CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, how[mode], flags, NULL);
    DWORD reason = GetLastError();
    bool folder = h == INVALID_HANDLE_VALUE && is_folder(wide);
    mem_free(wide);
    if (folder) return os_fail_text(err, ERR_EIO, verb, path, "it is a folder");
    if (h == INVALID_HANDLE_VALUE) return os_fail(err, (int)reason, verb, path);
    if (mode == OS_READ && !is_regular(h)) {
        CloseHandle(h);
        return os_fail_special(err, path);
    }
    struct os_file *f = mem_alloc(sizeof *f);
    f->handle = h;
    size_t n = strlen(path) + 1;
    f->path = mem_alloc(n);
    memcpy(f->path, path, n);
    *out = f;
    return 0;
}

void os_file_close(struct os_file *f) {
    if (!f) return;
    CloseHandle(f->handle);
    mem_free(f->path);
    mem_free(f);
}

const char *os_file_path(const struct os_file *f) {
    return f->path;
}

int os_file_size(struct os_file *f, uint64_t *out, struct err *err) {
    LARGE_INTEGER size;
    *out = 0;
    if (GetFileType(f->handle) != FILE_TYPE_DISK) return 0;
    if (!GetFileSizeEx(f->handle, &size)) return os_fail(err, (int)GetLastError(), "look at", f->path);
    *out = (uint64_t)size.QuadPart;
    return 0;
}

static OVERLAPPED at_offset(uint64_t offset) {
    return (OVERLAPPED){.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
}

int os_file_read_some(struct os_file *f, void *data, size_t n, uint64_t offset, size_t *out_n, struct err *err) {
    size_t done = 0;
    TRY(os_file_check_range(f, n, offset, err));
    while (done < n) {
        OVERLAPPED where = at_offset(offset + done);
        DWORD got = 0, piece = (DWORD)(n - done < IO_PIECE ? n - done : IO_PIECE);
        if (!ReadFile(f->handle, (char *)data + done, piece, &got, &where)) {
            DWORD reason = GetLastError();
            if (reason == ERROR_HANDLE_EOF || reason == ERROR_BROKEN_PIPE) break;
            return os_fail(err, (int)reason, "read", f->path);
        }
        if (got == 0) break;
        done += got;
    }
    *out_n = done;
    return 0;
}

int os_file_write_at(struct os_file *f, const void *data, size_t n, uint64_t offset, struct err *err) {
    size_t done = 0;
    TRY(os_file_check_range(f, n, offset, err));
    while (done < n) {
        OVERLAPPED where = at_offset(offset + done);
        DWORD put = 0, piece = (DWORD)(n - done < IO_PIECE ? n - done : IO_PIECE);
        if (!WriteFile(f->handle, (const char *)data + done, piece, &put, &where))
            return os_fail(err, (int)GetLastError(), "write", f->path);
        done += put;
    }
    return 0;
}

int os_file_sync(struct os_file *f, struct err *err) {
    if (FlushFileBuffers(f->handle) || GetFileType(f->handle) != FILE_TYPE_DISK) return 0;
    return os_fail(err, (int)GetLastError(), "write", f->path);
}

int os_file_truncate(struct os_file *f, uint64_t size, struct err *err) {
    if (size > INT64_MAX) return os_fail_text(err, ERR_EARG, "resize", f->path, "size too large");
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = (LONGLONG)size};
    if (SetFileInformationByHandle(f->handle, FileEndOfFileInfo, &end, sizeof end)) return 0;
    return os_fail(err, (int)GetLastError(), "resize", f->path);
}

/* Locked bytes cannot be read by others, so the lock is taken on one byte that no file has: it is advisory that way. */
int os_file_lock(struct os_file *f, bool wait, struct err *err) {
    OVERLAPPED where = at_offset(UINT64_C(1) << 62);
    DWORD flags = LOCKFILE_EXCLUSIVE_LOCK | (wait ? 0 : LOCKFILE_FAIL_IMMEDIATELY);
    if (LockFileEx(f->handle, flags, 0, 1, 0, &where)) return 0;
    DWORD reason = GetLastError();
    if (reason == ERROR_LOCK_VIOLATION || reason == ERROR_IO_PENDING)
        return os_fail_text(err, ERR_EBUSY, "lock", f->path, "another process holds it");
    return os_fail(err, (int)reason, "lock", f->path);
}

/* As on POSIX: the old file's readers keep it. Systems and disks that do not know this say so, and get the older call. */
static bool rename_posix(const wchar_t *from, const wchar_t *to) {
    enum { RENAME_REPLACE = 1, RENAME_POSIX = 2, RENAME_INFO_EX = 22 }; /* not in every toolchain's headers */
    struct info {
        DWORD flags;
        HANDLE root;
        DWORD name_bytes;
        wchar_t name[1];
    };
    HANDLE h = open_any(from, DELETE | SYNCHRONIZE);
    if (h == INVALID_HANDLE_VALUE) return false;
    size_t n = wcslen(to), bytes = sizeof(struct info) + n * sizeof *to;
    struct info *info = mem_alloc(bytes);
    info->flags = RENAME_REPLACE | RENAME_POSIX;
    info->name_bytes = (DWORD)(n * sizeof *to);
    memcpy(info->name, to, n * sizeof *to);
    bool ok = SetFileInformationByHandle(h, (FILE_INFO_BY_HANDLE_CLASS)RENAME_INFO_EX, info, (DWORD)bytes);
    mem_free(info);
    CloseHandle(h);
    return ok;
}

/* Where an open file cannot be replaced, it can still be moved aside: not atomic, but the last resort of several. */
static bool rename_aside(const wchar_t *from, const wchar_t *to) {
    static volatile LONG counter;
    DWORD attributes = GetFileAttributesW(to);
    if (attributes == INVALID_FILE_ATTRIBUTES || (attributes & FILE_ATTRIBUTE_DIRECTORY)) return false;
    wchar_t name[64];
    const wchar_t *slash = wcsrchr(to, L'\\');
    size_t n_dir = slash ? (size_t)(slash - to) + 1 : 0;
    int n = _snwprintf(name, 64, L".mlxcel-old-%lu-%ld.tmp", GetCurrentProcessId(), InterlockedIncrement(&counter));
    wchar_t *aside = mem_alloc((n_dir + (size_t)n + 1) * sizeof *aside);
    memcpy(aside, to, n_dir * sizeof *aside);
    memcpy(aside + n_dir, name, (size_t)n * sizeof *aside);
    bool ok = false;
    if (MoveFileExW(to, aside, 0)) {
        ok = MoveFileExW(from, to, MOVEFILE_WRITE_THROUGH);
        if (ok) DeleteFileW(aside); /* takes effect when its last reader closes it */
        else MoveFileExW(aside, to, 0);
    }
    mem_free(aside);
    return ok;
}

static DWORD rename_wide(const wchar_t *from, const wchar_t *to) {
    DWORD reason = 0;
    if (rename_posix(from, to)) return 0;
    for (int i = 0; i < RETRY_COUNT; i++) {
        if (i) Sleep(RETRY_MS);
        if (MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) return 0;
        reason = GetLastError();
        if (!is_transient(reason)) return reason;
        if (rename_aside(from, to)) return 0;
    }
    return reason;
}

int os_rename(const char *from, const char *to, struct err *err) {
    wchar_t *wide_from = win32_path(from, "rename", err), *wide_to = wide_from ? win32_path(to, "rename to", err) : NULL;
    int code = ERR_EARG;
    if (wide_to) {
        DWORD reason = rename_wide(wide_from, wide_to);
        code = reason ? os_fail(err, (int)reason, "rename to", to) : 0;
    }
    mem_free(wide_from);
    mem_free(wide_to);
    return code;
}

/* One file, empty folder or link (never what the link points to). */
static DWORD remove_one(const wchar_t *wide) {
    DWORD reason = ERROR_ACCESS_DENIED;
    for (int i = 0; i < RETRY_COUNT && is_transient(reason); i++) {
        if (i) Sleep(RETRY_MS);
        DWORD attributes = GetFileAttributesW(wide);
        if (attributes == INVALID_FILE_ATTRIBUTES) return GetLastError();
        if (attributes & FILE_ATTRIBUTE_READONLY) SetFileAttributesW(wide, attributes & ~(DWORD)FILE_ATTRIBUTE_READONLY);
        BOOL ok = attributes & FILE_ATTRIBUTE_DIRECTORY ? RemoveDirectoryW(wide) : DeleteFileW(wide);
        reason = ok ? 0 : GetLastError();
    }
    return reason;
}

int os_remove(const char *path, struct err *err) {
    wchar_t *wide = win32_path(path, "remove", err);
    if (!wide) return ERR_EARG;
    DWORD reason = remove_one(wide);
    mem_free(wide);
    return reason ? os_fail(err, (int)reason, "remove", path) : 0;
}

static wchar_t *join(const wchar_t *dir, const wchar_t *name) {
    size_t n_dir = wcslen(dir), n_name = wcslen(name), slash = n_dir && dir[n_dir - 1] != L'\\';
    wchar_t *all = mem_alloc((n_dir + slash + n_name + 1) * sizeof *all);
    memcpy(all, dir, n_dir * sizeof *all);
    if (slash) all[n_dir] = L'\\';
    memcpy(all + n_dir + slash, name, n_name * sizeof *all);
    return all;
}

/* The first or next entry other than "." and ".."; *find is NULL before the first call. */
static bool next_entry(const wchar_t *dir, HANDLE *find, WIN32_FIND_DATAW *out, DWORD *out_reason) {
    for (;;) {
        BOOL ok;
        if (!*find) {
            wchar_t *pattern = join(dir, L"*");
            *find = FindFirstFileExW(pattern, FindExInfoBasic, out, FindExSearchNameMatch, NULL, 0);
            ok = *find != INVALID_HANDLE_VALUE;
            mem_free(pattern);
        } else {
            ok = FindNextFileW(*find, out);
        }
        if (ok && (wcscmp(out->cFileName, L".") == 0 || wcscmp(out->cFileName, L"..") == 0)) continue;
        DWORD reason = ok ? 0 : GetLastError();
        if (!ok && *find != INVALID_HANDLE_VALUE) FindClose(*find);
        bool is_end = reason == ERROR_NO_MORE_FILES || reason == ERROR_FILE_NOT_FOUND; /* the latter: an empty root */
        *out_reason = is_end ? 0 : reason;
        return ok;
    }
}

int os_list_dir(struct arena *a, const char *path, struct str **out_names, size_t *out_n, struct err *err) {
    wchar_t *wide = win32_path(path, "list", err);
    if (!wide) return ERR_EARG;
    struct os_names names = {0};
    HANDLE find = NULL;
    WIN32_FIND_DATAW entry;
    DWORD reason = 0;
    struct sb name = {0};
    DWORD attributes = GetFileAttributesW(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) reason = GetLastError();
    else if (!(attributes & FILE_ATTRIBUTE_DIRECTORY)) reason = ERROR_PATH_NOT_FOUND;
    while (!reason && next_entry(wide, &find, &entry, &reason)) {
        sb_clear(&name);
        win32_put_utf8(&name, entry.cFileName, wcslen(entry.cFileName));
        os_names_add(&names, sb_str(&name));
    }
    sb_free(&name);
    mem_free(wide);
    if (reason) {
        os_names_free(&names);
        return os_fail(err, (int)reason, "list", path);
    }
    os_names_take(a, &names, out_names, out_n);
    return 0;
}

/* Links and junctions are removed themselves; only real folders are entered. */
static DWORD remove_all(const wchar_t *wide) {
    DWORD attributes = GetFileAttributesW(wide), reason = 0;
    if (attributes == INVALID_FILE_ATTRIBUTES) return GetLastError();
    if ((attributes & FILE_ATTRIBUTE_DIRECTORY) && !(attributes & FILE_ATTRIBUTE_REPARSE_POINT)) {
        HANDLE find = NULL;
        WIN32_FIND_DATAW entry;
        while (next_entry(wide, &find, &entry, &reason)) {
            wchar_t *child = join(wide, entry.cFileName);
            reason = remove_all(child);
            mem_free(child);
            if (reason && reason != ERROR_FILE_NOT_FOUND) {
                FindClose(find);
                return reason;
            }
        }
        if (reason) return reason;
    }
    return remove_one(wide);
}

int os_remove_tree(const char *path, struct err *err) {
    wchar_t *wide = win32_path(path, "remove", err);
    if (!wide) return ERR_EARG;
    size_t n = wcslen(wide);
    if (n > 8 && wide[n - 1] == L'\\') wide[n - 1] = 0; /* "link\" would be followed */
    DWORD reason = remove_all(wide);
    mem_free(wide);
    if (reason == 0 || reason == ERROR_FILE_NOT_FOUND || reason == ERROR_PATH_NOT_FOUND) return 0;
    return os_fail(err, (int)reason, "remove", path);
}

static DWORD make_one(const wchar_t *wide) {
    if (CreateDirectoryW(wide, NULL)) return 0;
    DWORD reason = GetLastError();
    if (reason == ERROR_PATH_NOT_FOUND) return reason;
    return is_folder(wide) ? 0 : reason; /* a drive answers ACCESS_DENIED, not ALREADY_EXISTS */
}

int os_make_dirs(const char *path, struct err *err) {
    wchar_t *wide = win32_path(path, "make the folder", err);
    if (!wide) return ERR_EARG;
    DWORD reason = make_one(wide);
    size_t n = wcslen(wide);
    for (size_t i = 7; reason == ERROR_PATH_NOT_FOUND && i < n; i++) { /* after "\\?\C:\" */
        if (wide[i] != L'\\') continue;
        wide[i] = 0;
        make_one(wide); /* parts of a server's name cannot be made: the last step tells */
        wide[i] = L'\\';
    }
    if (reason == ERROR_PATH_NOT_FOUND) reason = make_one(wide);
    mem_free(wide);
    return reason ? os_fail(err, (int)reason, "make the folder", path) : 0;
}

int os_disk_free(const char *path, uint64_t *out_bytes, struct err *err) {
    wchar_t *wide = win32_path(path, "look at", err);
    if (!wide) return ERR_EARG;
    ULARGE_INTEGER bytes;
    DWORD reason = GetFileAttributesW(wide) == INVALID_FILE_ATTRIBUTES ? GetLastError() : 0;
    if (reason == 0 && !is_folder(wide)) {
        wchar_t *slash = wcsrchr(wide, L'\\');
        if (slash) slash[1] = 0;
    }
    if (reason == 0 && !GetDiskFreeSpaceExW(wide, &bytes, NULL, NULL)) reason = GetLastError();
    mem_free(wide);
    if (reason) return os_fail(err, (int)reason, "look at", path);
    *out_bytes = bytes.QuadPart;
    return 0;
}

void os_dir_sync_of(const char *path) {
    (void)path; /* MOVEFILE_WRITE_THROUGH did it */
}
