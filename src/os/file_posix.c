/* Files on POSIX systems, by plain system calls: libuv's file calls would add a loop and a request to each of them.
 * Every call that a signal may interrupt is repeated. */
#include "os/os_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { IO_PIECE = 1 << 30 /* Linux moves at most 2 GiB - 4 KiB per call */ };

struct os_file {
    int fd;
    char *path; /* for messages */
};

int os_fail(struct err *err, int system_code, const char *verb, const char *path) {
    int code = ERR_EIO;
    if (system_code == ENOENT || system_code == ENOTDIR) code = ERR_ENOTFOUND;
    if (system_code == ENOMEM) code = ERR_EMEMORY;
    if (system_code == EWOULDBLOCK) code = ERR_EBUSY;
    if (system_code == EPIPE) code = ERR_ECANCELLED; /* the reader went away */
    return os_fail_text(err, code, verb, path, strerror(system_code));
}

static int64_t stat_mtime_ns(const struct stat *st) {
#ifdef __APPLE__
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#else
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#endif
}

int os_stat(const char *path, struct os_stat *out, struct err *err) {
    struct stat st;
    if (stat(path, &st)) return os_fail(err, errno, "look at", path);
    *out = (struct os_stat){
        .size = (uint64_t)st.st_size, .mtime_ns = stat_mtime_ns(&st), .is_dir = S_ISDIR(st.st_mode), .is_file = S_ISREG(st.st_mode)};
    return 0;
}

bool os_can_write(const char *dir) {
    return access(dir, W_OK | X_OK) == 0;
}

static int check_kind(const struct stat *st, enum os_open_mode mode, const char *path, struct err *err) {
    if (S_ISDIR(st->st_mode)) return os_fail_text(err, ERR_EIO, "open", path, "it is a folder");
    return mode == OS_READ && !S_ISREG(st->st_mode) ? os_fail_special(err, path) : 0;
}

/* A device is asked for its kind before it is opened, since opening may do something to it; and again afterwards, since it may have been
 * put there meanwhile. O_NONBLOCK is for that case, for leases, and for regular files that the kernel makes up and that wait for news. */
int os_file_open(const char *path, enum os_open_mode mode, struct os_file **out, struct err *err) {
    static const int flags[] = {[OS_READ] = O_RDONLY | O_NONBLOCK | O_NOCTTY,
                                [OS_INPUT] = O_RDONLY | O_NOCTTY,
                                [OS_WRITE] = O_RDWR | O_CREAT | O_TRUNC,
                                [OS_UPDATE] = O_RDWR | O_CREAT,
                                [OS_PRIVATE] = O_RDWR | O_CREAT};
    struct stat st;
    int fd;
    if (mode == OS_READ && stat(path, &st) == 0) TRY(check_kind(&st, mode, path, err));
    do fd = open(path, flags[mode] | O_CLOEXEC, mode == OS_PRIVATE ? 0600 : 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return os_fail(err, errno, mode == OS_READ || mode == OS_INPUT ? "open" : "write", path);
    int code = fstat(fd, &st) ? os_fail(err, errno, "look at", path) : check_kind(&st, mode, path, err);
    if (code) {
        close(fd);
        return code;
    }
    struct os_file *f = mem_alloc(sizeof *f);
    f->fd = fd;
    size_t n = strlen(path) + 1;
    f->path = mem_alloc(n);
    memcpy(f->path, path, n);
    *out = f;
    return 0;
}

void os_file_close(struct os_file *f) {
    if (!f) return;
    close(f->fd);
    mem_free(f->path);
    mem_free(f);
}

const char *os_file_path(const struct os_file *f) {
    return f->path;
}

int os_file_size(struct os_file *f, uint64_t *out, struct err *err) {
    struct stat st;
    if (fstat(f->fd, &st)) return os_fail(err, errno, "look at", f->path);
    *out = (uint64_t)st.st_size;
    return 0;
}

int os_file_read_some(struct os_file *f, void *data, size_t n, uint64_t offset, size_t *out_n, struct err *err) {
    size_t done = 0;
    TRY(os_file_check_range(f, n, offset, err));
    while (done < n) {
        size_t piece = n - done < IO_PIECE ? n - done : IO_PIECE;
        ssize_t got = pread(f->fd, (char *)data + done, piece, (off_t)(offset + done));
        if (got < 0 && errno == ESPIPE) got = read(f->fd, (char *)data + done, piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return os_fail(err, errno, "read", f->path);
        if (got == 0) break;
        done += (size_t)got;
    }
    *out_n = done;
    return 0;
}

int os_file_write_at(struct os_file *f, const void *data, size_t n, uint64_t offset, struct err *err) {
    size_t done = 0;
    TRY(os_file_check_range(f, n, offset, err));
    while (done < n) {
        size_t piece = n - done < IO_PIECE ? n - done : IO_PIECE;
        ssize_t put = pwrite(f->fd, (const char *)data + done, piece, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return os_fail(err, errno, "write", f->path);
        done += (size_t)put;
    }
    return 0;
}

int os_file_sync(struct os_file *f, struct err *err) {
    /* EINVAL: a file system or device that has nothing to sync */
    if (fsync(f->fd) && errno != EINVAL) return os_fail(err, errno, "write", f->path);
    return 0;
}

int os_file_truncate(struct os_file *f, uint64_t size, struct err *err) {
    if (size > INT64_MAX) return os_fail_text(err, ERR_EARG, "resize", f->path, "size too large");
    int rc;
    do rc = ftruncate(f->fd, (off_t)size);
    while (rc && errno == EINTR);
    return rc ? os_fail(err, errno, "resize", f->path) : 0;
}

/* flock belongs to the open file, not to the process, so that it also works between two parts of one process. */
int os_file_lock(struct os_file *f, bool wait, struct err *err) {
    int rc;
    do rc = flock(f->fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    while (rc && errno == EINTR);
    if (rc == 0) return 0;
    if (errno == EWOULDBLOCK) return os_fail_text(err, ERR_EBUSY, "lock", f->path, "another process holds it");
    return os_fail(err, errno, "lock", f->path);
}

int os_rename(const char *from, const char *to, struct err *err) {
    return rename(from, to) ? os_fail(err, errno, "rename to", to) : 0;
}

int os_remove(const char *path, struct err *err) {
    return remove(path) ? os_fail(err, errno, "remove", path) : 0;
}

/* Durable renames need a sync of the folder; it is a best effort, since some file systems refuse it. */
void os_dir_sync_of(const char *path) {
    struct sb dir = {0};
    const char *slash = strrchr(path, '/');
    sb_put(&dir, slash ? str_n(path, slash == path ? 1 : (size_t)(slash - path)) : STR("."));
    int fd = open(dir.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    sb_free(&dir);
}

static int read_names(int fd, struct os_names *names) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return errno;
    }
    struct dirent *e;
    errno = 0;
    while ((e = readdir(dir)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) os_names_add(names, str_of(e->d_name));
    int code = errno;
    closedir(dir);
    return code;
}

int os_list_dir(struct arena *a, const char *path, struct str **out_names, size_t *out_n, struct err *err) {
    struct os_names names = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 ? errno : read_names(fd, &names);
    if (code) {
        os_names_free(&names);
        return os_fail(err, code, "list", path);
    }
    os_names_take(a, &names, out_names, out_n);
    return 0;
}

/* Removes `name` inside the open folder `at`. Working from open folders means that nobody can swap a folder for a link
 * to elsewhere while we descend. Gives an errno value. */
static int remove_at(int at, const char *name) {
    if (unlinkat(at, name, 0) == 0) return 0;
    int first = errno;
    if (first != EISDIR && first != EPERM) return first;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOTDIR || errno == ELOOP ? first : errno;
    struct os_names names = {0};
    int listing = dup(fd), code = listing < 0 ? errno : read_names(listing, &names);
    for (size_t i = 0; i < names.n && code == 0; i++) {
        code = remove_at(fd, names.items[i].p);
        if (code == ENOENT) code = 0;
    }
    os_names_free(&names);
    close(fd);
    if (code == 0 && unlinkat(at, name, AT_REMOVEDIR)) code = errno;
    return code;
}

int os_remove_tree(const char *path, struct err *err) {
    struct sb clean = {0};
    sb_puts(&clean, path);
    while (clean.n > 1 && clean.p[clean.n - 1] == '/') clean.p[--clean.n] = 0; /* "link/" would be followed */
    int code = remove_at(AT_FDCWD, clean.p);
    sb_free(&clean);
    return code == 0 || code == ENOENT ? 0 : os_fail(err, code, "remove", path);
}

static int make_one(const char *path) {
    if (mkdir(path, 0777) == 0) return 0;
    int code = errno;
    struct stat st;
    if (code == ENOENT || stat(path, &st)) return code;
    return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
}

int os_make_dirs(const char *path, struct err *err) {
    struct sb part = {0};
    sb_puts(&part, path);
    int code = make_one(part.p ? part.p : "");
    for (size_t i = 1; code == ENOENT && i < part.n; i++) {
        if (part.p[i] != '/') continue;
        part.p[i] = 0;
        int step = make_one(part.p);
        part.p[i] = '/';
        if (step) {
            code = step;
            goto out;
        }
    }
    if (code == ENOENT) code = make_one(part.p ? part.p : "");
out:
    sb_free(&part);
    return code ? os_fail(err, code, "make the folder", path) : 0;
}

int os_disk_free(const char *path, uint64_t *out_bytes, struct err *err) {
    struct statvfs st;
    if (statvfs(path, &st)) return os_fail(err, errno, "look at", path);
    *out_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}
