/* Compiled programs on disk, where the plugin can save them: one file each, named by a digest of all that they depend on
 * (plugin, device, the compiler's flags, the program's text). A file is our magic, the digest of what follows, and what
 * the plugin gave. The folder may be deleted, shared or read-only at any time; whatever goes wrong with it costs a
 * compilation and a line, never the run.
 */
#include "backend/xla/xla.h"

#include "base/log.h"
#include "base/sha256.h"
#include "os/cpu.h"
#include "os/os.h"

static const char cache_magic[8] = {'M', 'L', 'X', 'C', 'E', 'L', 'X', '1'};
enum { DIGEST_BYTES = 32, CACHE_HEAD = sizeof cache_magic + DIGEST_BYTES };

static void digest_of(struct str data, unsigned char out[DIGEST_BYTES]) {
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, data.p, data.n);
    sha256_final(&s, out);
}

static const char *cache_path(struct xla *x, struct arena *a, struct str text) {
    struct sb key = {0};
    char hex[DIGEST_BYTES * 2 + 1];
    unsigned char digest[DIGEST_BYTES];
    const char *flags = x->device->flags;
    sb_fmt(&key, "%s\n%s\n%s\n%d.%d\n%s\n", x->pjrt->platform, x->pjrt->platform_version, x->pjrt->device_kind, x->pjrt->major,
           x->pjrt->minor, flags ? flags : "");
    if (x->device->is_cpu) cpu_describe(&key); /* the plugin compiles for the processor that it runs on */
    sb_putc(&key, '\n');
    sb_put(&key, text);
    digest_of(sb_str(&key), digest);
    sha256_hex(digest, hex);
    sb_free(&key);
    return str_fmt(a, "%s/%.32s.bin", x->device->cache_dir, hex).p;
}

static bool is_whole(struct str file) {
    unsigned char digest[DIGEST_BYTES];
    if (file.n <= CACHE_HEAD || memcmp(file.p, cache_magic, sizeof cache_magic) != 0) return false;
    digest_of(str_from(file, CACHE_HEAD), digest);
    return memcmp(digest, file.p + sizeof cache_magic, sizeof digest) == 0;
}

static bool cache_load(struct xla *x, const char *path, struct pjrt_executable **out) {
    struct arena a = {0};
    struct str file;
    struct err err = {0};
    int code = os_file_load(&a, path, 0, &file, &err);
    bool is_absent = code == ERR_ENOTFOUND;
    if (!code && !is_whole(file)) code = err_set(&err, ERR_EFORMAT, "%s is damaged", path);
    else if (!code && pjrt_deserialize(x->pjrt, str_from(file, CACHE_HEAD), out, &err)) code = err_prefix(&err, "%s", path);
    if (code && !is_absent) log_warn("xla: %s; the program is compiled again", err.msg);
    arena_free(&a);
    return code == ERR_OK;
}

/* Removes the files that were written longest ago until the others fit. */
static void trim(const char *dir, uint64_t limit) {
    struct arena a = {0};
    struct str *names;
    size_t n, oldest;
    if (os_list_dir(&a, dir, &names, &n, NULL)) n = 0;
    struct os_stat *files = arena_new(&a, struct os_stat, n + 1);
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const char *path = str_fmt(&a, "%s/%.*s", dir, STR_ARG(names[i])).p;
        if (!str_ends(names[i], STR(".bin")) || os_stat(path, &files[i], NULL) || !files[i].is_file) files[i] = (struct os_stat){0};
        total += files[i].size;
    }
    while (total > limit) {
        oldest = n;
        for (size_t i = 0; i < n; i++)
            if (files[i].size && (oldest == n || files[i].mtime_ns < files[oldest].mtime_ns)) oldest = i;
        if (oldest == n) break;
        os_remove(str_fmt(&a, "%s/%.*s", dir, STR_ARG(names[oldest])).p, NULL);
        total -= files[oldest].size;
        files[oldest].size = 0;
    }
    arena_free(&a);
}

static int cache_save(struct xla *x, const char *path, struct pjrt_executable *exec, struct err *err) {
    struct sb bytes = {0};
    unsigned char digest[DIGEST_BYTES];
    memset(sb_extend(&bytes, CACHE_HEAD), 0, CACHE_HEAD);
    int code = pjrt_serialize(x->pjrt, exec, &bytes, err);
    if (!code) {
        digest_of(str_from(sb_str(&bytes), CACHE_HEAD), digest);
        memcpy(bytes.p, cache_magic, sizeof cache_magic);
        memcpy(bytes.p + sizeof cache_magic, digest, sizeof digest);
        code = os_make_dirs(x->device->cache_dir, err);
    }
    if (!code) code = os_file_save(path, sb_str(&bytes), err);
    sb_free(&bytes);
    if (!code) trim(x->device->cache_dir, XLA_CACHE_BYTES_MAX);
    return code;
}

/* What cannot be kept is compiled again at the next start: told once. */
static void keep(struct xla *x, const char *path, struct pjrt_executable *exec) {
    struct err err = {0};
    int code = cache_save(x, path, exec, &err);
    if (!code || x->cache_failed) return;
    x->cache_failed = true;
    if (code == ERR_EUNSUPPORTED) log_info("xla: compiled programs are not kept: %s", err.msg);
    else log_warn("xla: compiled programs are not kept: %s (MLXCEL_XLA_CACHE names another folder)", err.msg);
}

int xla_compile_cached(struct xla *x, struct str text, const char *what, struct pjrt_executable **out, struct err *err) {
    struct arena a = {0};
    const char *path = x->device->cache_dir ? cache_path(x, &a, text) : NULL;
    int code = ERR_OK;
    if (path && cache_load(x, path, out)) {
        x->n_loaded++;
        log_debug("xla: program for %s loaded from %s", what, path);
    } else {
        uint64_t start = os_clock_ns();
        log_info("xla: compiling the program for %s ...", what);
        code = pjrt_compile(x->pjrt, text, &x->library_products, out, err);
        if (!code) {
            x->n_compiled++;
            log_info("xla: compiled the program for %s in %.1f s", what, (double)(os_clock_ns() - start) * 1e-9);
            if (path) keep(x, path, *out);
        }
    }
    arena_free(&a);
    return code;
}
