/* Jobs, threads and the packed file. */
#include "build.h"

#include "backend/cuda/device/driver.h"
#include "backend/cuda/device/pack.h"
#include "base/hash.h"
#include "key.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

enum { PACK_LEVEL = 19, MAX_IMAGE_BYTES = PACK_MAX_RAW_BYTES, LOWERED_PTX = 84 /* PTX 8.4: CUDA 12.4, our driver floor */ };

enum job_state { JOB_WAITING, JOB_DONE, JOB_FAILED };

struct job {
    const struct list_row *row;
    struct target target;
    char arch_name[24]; /* "sm_90a", "compute_75" */
    enum job_state state;
    bool cached;
    double seconds;
    struct str words;  /* of the compiler */
    struct str packed; /* the zstd frame */
    uint64_t raw_bytes, raw_hash;
    struct key key;
    struct sb trouble; /* the explanation of a failure */
    struct err err;
};

struct build {
    const struct build_args *args;
    struct job *jobs;
    int n_jobs, next, n_finished;
    bool stop;
    struct os_mutex *lock;
};

/* ---- one job -------------------------------------------------------------------------------------------------- */

/* What decides the result: the same list is hashed for the cache and passed to nvcc. */
static void add_flags(struct arena *a, const struct build *b, const struct job *job, struct args_list *out) {
    args_add(out, job->target.ptx ? "-ptx" : "-cubin");
    args_add(out, str_fmt(a, "-arch=%s", job->arch_name).p);
    args_add(out, "-O3");
    args_add(out, "-std=c++17");
    args_add(out, "-Xptxas");
    args_add(out, "-v");
    /* names of static functions that stay functions hold a checksum of the source's path: make it the same in every folder */
    args_add(out, "-Xcicc");
    args_add(out, "--orig_src_path_name");
    args_add(out, "-Xcicc");
    args_add(out, job->row->file);
    if (b->args->allow_unsupported) args_add(out, "-allow-unsupported-compiler");
    for (int i = 0; i < job->row->n_flags; i++) args_add(out, job->row->flags[i]);
}

static int fail(struct job *job, const char *const *argv, const struct os_run_result *r, const char *what) {
    sb_fmt(&job->trouble, "%s for %s: %s\n", job->row->file, job->arch_name, what);
    tool_explain(&job->trouble, argv, r);
    struct sb exit = {0};
    tool_put_exit(&exit, r->exit_code);
    err_set(&job->err, ERR_EIO, "%s for %s: %s (%s)", job->row->file, job->arch_name, what, exit.p);
    sb_free(&exit);
    return job->err.code;
}

/* ".version 9.0" becomes ".version 8.4", so that drivers from 12.4 on read it; true only after an older ptxas has assembled it. */
static int lower_ptx(struct arena *a, const struct build *b, struct job *job, const char *path, struct str *text) {
    size_t at = str_find(*text, STR("\n.version "), 0);
    size_t end = at == STR_NONE ? at : str_find_char(*text, '\n', at + 1);
    if (end == STR_NONE) return err_set(&job->err, ERR_EFORMAT, "%s: nvcc's PTX has no .version line", job->row->file);
    struct str head = str_sub(*text, 0, at), tail = str_from(*text, end), lowered;
    struct sb out = {0};
    sb_put(&out, head);
    sb_fmt(&out, "\n.version %d.%d", LOWERED_PTX / 10, LOWERED_PTX % 10);
    sb_put(&out, tail);
    lowered = str_copy(a, sb_str(&out));
    sb_free(&out);
    TRY(os_file_save(path, lowered, &job->err));
    char arch[16];
    cuda_arch_format(job->target.arch, arch);
    const char *object = str_fmt(a, "%s.o", path).p;
    const char *argv[] = {b->args->old_ptxas, str_fmt(a, "-arch=sm_%s", arch).p, path, "-o", object, NULL};
    struct os_run_result r;
    TRY(os_run(a, argv, NULL, NULL, STR(""), &r, &job->err));
    os_remove(object, NULL);
    if (r.exit_code) return fail(job, argv, &r, "the older ptxas refuses the lowered PTX");
    *text = lowered;
    return 0;
}

/* Compiles into a file beside the cache's entry. Its name is this run's alone: another build may share the cache, and compile the same. */
static int compile(struct arena *a, const struct build *b, struct job *job, const char *base, const struct args_list *flags,
                   struct str *out) {
    const char *image =
        str_fmt(a, "%s.%d-%llx.%s", base, os_process_id(), (unsigned long long)os_clock_ns(), job->target.ptx ? "ptx" : "cubin").p;
    struct args_list argv = {0};
    struct os_run_result r;
    struct os_stat st;
    args_add(&argv, b->args->toolkit->nvcc);
    for (int i = 0; i < flags->n; i++) args_add(&argv, flags->v[i]);
    args_add(&argv, "-ccbin");
    args_add(&argv, b->args->host->path);
    args_add(&argv, "-I");
    args_add(&argv, b->args->list->folder);
    args_add(&argv, "-I");
    args_add(&argv, path_join(a, b->args->list->folder, SOURCES));
    args_add(&argv, "-o");
    args_add(&argv, image);
    args_add(&argv, path_join(a, b->args->list->folder, job->row->file));
    TRY(os_run(a, argv.v, NULL, NULL, STR(""), &r, &job->err));
    if (r.exit_code) return fail(job, argv.v, &r, "the compiler failed");
    if (os_stat(image, &st, NULL) || st.size == 0) return fail(job, argv.v, &r, "the compiler reported success but wrote nothing");
    int code = os_file_load(a, image, MAX_IMAGE_BYTES, out, &job->err);
    if (code == 0 && job->target.ptx && b->args->old_ptxas) code = lower_ptx(a, b, job, image, out);
    os_remove(image, NULL);
    struct sb words = {0};
    sb_put(&words, r.out);
    sb_put(&words, r.err);
    job->words = str_copy(a, sb_str(&words));
    sb_free(&words);
    return code;
}

/* A cache entry: three numbers, the compiler's words, the packed image. */
struct entry_header {
    char magic[8];
    uint64_t raw_bytes, raw_hash, words_bytes, packed_bytes, check; /* hash of what follows */
};
#define ENTRY_MAGIC "kernelc1"

static bool cache_get(struct arena *a, struct job *job, const char *path) {
    struct str data;
    struct entry_header h;
    if (os_file_load(a, path, 0, &data, NULL) || data.n < sizeof h) return false;
    memcpy(&h, data.p, sizeof h);
    if (memcmp(h.magic, ENTRY_MAGIC, 8) != 0 || h.words_bytes > data.n || h.packed_bytes > data.n ||
        sizeof h + h.words_bytes + h.packed_bytes != data.n || hash_bytes(data.p + sizeof h, data.n - sizeof h, 0) != h.check)
        return false;
    job->raw_bytes = h.raw_bytes;
    job->raw_hash = h.raw_hash;
    job->words = str_sub(data, sizeof h, (size_t)h.words_bytes);
    job->packed = str_from(data, sizeof h + (size_t)h.words_bytes);
    job->cached = true;
    return true;
}

static int cache_put(const struct job *job, const char *path, struct err *err) {
    struct sb data = {0};
    struct entry_header h = {
        .raw_bytes = job->raw_bytes, .raw_hash = job->raw_hash, .words_bytes = job->words.n, .packed_bytes = job->packed.n};
    memcpy(h.magic, ENTRY_MAGIC, sizeof h.magic);
    sb_extend(&data, sizeof h);
    sb_put(&data, job->words);
    sb_put(&data, job->packed);
    h.check = hash_bytes(data.p + sizeof h, data.n - sizeof h, 0);
    memcpy(data.p, &h, sizeof h);
    int code = os_file_save(path, sb_str(&data), err);
    sb_free(&data);
    return code;
}

static int pack_image(struct arena *a, struct job *job, struct str raw) {
    size_t most = ZSTD_compressBound(raw.n);
    char *packed = arena_try(a, most);
    if (!packed) return err_set(&job->err, ERR_EMEMORY, "%s: no memory to pack %zu bytes", job->row->file, raw.n);
    size_t n = ZSTD_compress(packed, most, raw.p, raw.n, PACK_LEVEL);
    if (ZSTD_isError(n)) return err_set(&job->err, ERR_EINTERNAL, "%s: packing failed: %s", job->row->file, ZSTD_getErrorName(n));
    job->packed = str_n(packed, n);
    job->raw_bytes = raw.n;
    job->raw_hash = hash_bytes(raw.p, raw.n, 0);
    return 0;
}

static int run_job(struct arena *a, const struct build *b, struct job *job) {
    struct args_list flags = {0}, keyed;
    struct str raw;
    add_flags(a, b, job, &flags);
    keyed = flags;
    args_add(&keyed, job->row->file);
    args_add(&keyed, job->target.ptx && b->args->old_ptxas ? "lowered" : "as it is");
    TRY(key_of(a, job->row->file, &keyed, b->args, &job->key, &job->err));
    const char *base = path_join(a, b->args->cache_dir, job->key.text), *entry = str_fmt(a, "%s.img", base).p;
    if (cache_get(a, job, entry)) return 0;
    TRY(compile(a, b, job, base, &flags, &raw));
    TRY(pack_image(a, job, raw));
    return cache_put(job, entry, &job->err);
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

static void announce(struct build *b, const struct job *job) {
    b->n_finished++;
    if (job->state == JOB_FAILED || job->cached || b->args->quiet) return;
    say("[%d/%d] %s %s (%.1f s, %llu bytes)", b->n_finished, b->n_jobs, job->row->file, job->arch_name, job->seconds,
        (unsigned long long)job->raw_bytes);
    struct sb warnings = {0};
    report_rest(job->words, &warnings);
    if (warnings.n) os_write(OS_STDERR, sb_str(&warnings), NULL);
    sb_free(&warnings);
}

struct worker {
    struct build *build;
    struct os_thread *thread;
    struct arena arena; /* what the jobs keep; freed when all is written */
};

static void work(void *user) {
    struct worker *w = user;
    struct build *b = w->build;
    os_mutex_lock(b->lock);
    while (!b->stop && b->next < b->n_jobs) {
        struct job *job = &b->jobs[b->next++];
        os_mutex_unlock(b->lock);
        uint64_t start = os_clock_ns();
        int code = run_job(&w->arena, b, job);
        job->seconds = (double)(os_clock_ns() - start) * 1e-9;
        os_mutex_lock(b->lock);
        job->state = code ? JOB_FAILED : JOB_DONE;
        b->stop |= code != 0;
        announce(b, job);
    }
    os_mutex_unlock(b->lock);
}

/* The calling thread works too, so that no thread at all is still a build. */
static void run_all(struct build *b, struct worker *workers, int n) {
    for (int i = 0; i < n; i++) workers[i].build = b;
    for (int i = 1; i < n; i++)
        if (os_thread_start(&workers[i].thread, work, &workers[i], "kernelc", NULL)) workers[i].thread = NULL;
    work(&workers[0]);
    for (int i = 1; i < n; i++)
        if (workers[i].thread) os_thread_join(workers[i].thread);
}

/* ---- the file ------------------------------------------------------------------------------------------------- */

/* Machine code runs on any driver of its major version (NVIDIA's minor-version compatibility); PTX needs a driver that knows it. */
static uint32_t min_driver(const struct build_args *args, const struct job *job) {
    if (!job->target.ptx) return (uint32_t)(args->toolkit->version / 1000 * 1000);
    return args->old_ptxas ? CUDA_FLOOR : (uint32_t)args->toolkit->version;
}

static int compare_jobs(const void *a, const void *b) {
    const struct job *x = a, *y = b;
    int order = strcmp(x->row->name, y->row->name);
    if (order == 0) order = (int)x->target.ptx - (int)y->target.ptx;
    if (order == 0) order = x->target.arch.number - y->target.arch.number;
    return order ? order : x->target.arch.suffix - y->target.arch.suffix;
}

static void put_zeros(struct sb *out, size_t align) {
    while (out->n % align) sb_putc(out, 0);
}

static void write_pack(const struct build *b, struct sb *out) {
    struct pack_header h = {.n_images = (uint32_t)b->n_jobs, .toolkit = (uint32_t)b->args->toolkit->version};
    memcpy(h.magic, PACK_MAGIC, sizeof h.magic);
    size_t rows_at = sizeof h;
    memset(sb_extend(out, rows_at + (size_t)b->n_jobs * sizeof(struct pack_row)), 0, rows_at + (size_t)b->n_jobs * sizeof(struct pack_row));
    for (int i = 0; i < b->n_jobs; i++) {
        const struct job *job = &b->jobs[i];
        put_zeros(out, PACK_ALIGN);
        struct pack_row row = {.arch = (uint16_t)job->target.arch.number,
                               .suffix = (uint8_t)job->target.arch.suffix,
                               .kind = job->target.ptx ? PACK_PTX : PACK_CUBIN,
                               .min_driver = min_driver(b->args, job),
                               .offset = out->n,
                               .packed_bytes = job->packed.n,
                               .raw_bytes = job->raw_bytes,
                               .hash = job->raw_hash};
        snprintf(row.name, sizeof row.name, "%s", job->row->name);
        memcpy(out->p + rows_at + (size_t)i * sizeof row, &row, sizeof row);
        sb_put(out, job->packed);
    }
    put_zeros(out, PACK_ALIGN);
    h.bytes = out->n;
    h.hash = hash_bytes(out->p + sizeof h, out->n - sizeof h, 0);
    memcpy(out->p, &h, sizeof h);
}

/* An unchanged file keeps its time, so that nothing is linked anew. */
static int save_changed(struct arena *a, const char *path, struct str data, bool *out_changed, struct err *err) {
    struct str old;
    *out_changed = os_file_load(a, path, 0, &old, NULL) != 0 || !str_eq(old, data);
    return *out_changed ? os_file_save(path, data, err) : 0;
}

/* "out: file file", blanks and '#' in names escaped as make and ninja read them. */
static int write_depfile(const struct build *b, struct err *err) {
    struct map all = {0};
    struct sb out = {0};
    sb_puts(&out, b->args->out);
    sb_puts(&out, ":");
    for (int i = 0; i < b->n_jobs; i++)
        for (size_t k = 0; k < b->jobs[i].key.files.n; k++) {
            bool is_new;
            struct str name = b->jobs[i].key.files.entries[k].key;
            map_put(&all, name, &is_new);
            if (!is_new) continue;
            sb_puts(&out, " \\\n  ");
            for (size_t c = 0; c < name.n; c++) {
                if (name.p[c] == ' ' || name.p[c] == '#') sb_putc(&out, '\\');
                sb_putc(&out, name.p[c]);
            }
        }
    sb_putc(&out, '\n');
    int code = os_file_save(b->args->depfile, sb_str(&out), err);
    map_free(&all);
    sb_free(&out);
    return code;
}

/* ---- results -------------------------------------------------------------------------------------------------- */

/* Prints the figures where asked for, and counts kernels that spill although they must not. */
static int check_spills(struct arena *a, const struct build *b) {
    int n_bad = 0;
    if (b->args->report) say("%-28s %-11s %9s %6s %8s %8s  %s", "file", "target", "registers", "stack", "spilled", "shared", "kernel");
    for (int i = 0; i < b->n_jobs; i++) {
        const struct job *job = &b->jobs[i];
        struct kernel_use *uses;
        int n = report_parse(a, job->words, &uses);
        for (int k = 0; k < n; k++) {
            int spilled = uses[k].spill_store_bytes + uses[k].spill_load_bytes;
            if (b->args->report)
                say("%-28s %-11s %9d %6d %8d %8d  %.*s", job->row->file, job->arch_name, uses[k].registers, uses[k].stack_bytes, spilled,
                    uses[k].shared_bytes, STR_ARG(uses[k].name));
            if (spilled <= job->row->spill_bytes || !job->row->no_spill || !report_matches(job->row->no_spill, uses[k].name)) continue;
            n_bad++;
            complain("%s for %s: kernel %.*s spills %d bytes of stores and %d of loads; kernels.list forbids it", job->row->file,
                     job->arch_name, STR_ARG(uses[k].name), uses[k].spill_store_bytes, uses[k].spill_load_bytes);
        }
    }
    return n_bad;
}

static int finish(struct arena *a, struct build *b, double seconds, struct err *err) {
    for (int i = 0; i < b->n_jobs; i++) {
        struct job *job = &b->jobs[i];
        if (job->state != JOB_FAILED) continue;
        if (job->trouble.n) os_write(OS_STDERR, sb_str(&job->trouble), NULL);
        *err = job->err;
        return err->code;
    }
    int n_bad = check_spills(a, b);
    if (n_bad && !b->args->spills_pass)
        return err_set(err, ERR_EFORMAT,
                       "%d kernel%s spill%s registers (--spills warn, -DMLXCEL_CUDA_SPILLS=warn: build them all the same)", n_bad,
                       n_bad == 1 ? "" : "s", n_bad == 1 ? "s" : "");
    struct sb data = {0};
    bool changed = false;
    qsort(b->jobs, (size_t)b->n_jobs, sizeof *b->jobs, compare_jobs);
    write_pack(b, &data);
    int code = save_changed(a, b->args->out, sb_str(&data), &changed, err);
    if (code == 0 && b->args->depfile) code = write_depfile(b, err);
    uint64_t raw = 0;
    int n_cached = 0;
    for (int i = 0; i < b->n_jobs; i++) {
        raw += b->jobs[i].raw_bytes;
        n_cached += b->jobs[i].cached;
    }
    if (code == 0)
        say("%s: %d images of %d files, %.1f KB packed from %.1f KB, toolkit %s, %d compiled, %d from the cache, %.1f s%s", b->args->out,
            b->n_jobs, b->args->list->n_rows, (double)data.n / 1e3, (double)raw / 1e3, b->args->toolkit->version_text, b->n_jobs - n_cached,
            n_cached, seconds, changed ? "" : " (unchanged)");
    sb_free(&data);
    return code;
}

static int make_jobs(struct arena *a, struct build *b, struct err *err) {
    const struct kernel_list *list = b->args->list;
    int n = 0;
    for (int r = 0; r < list->n_rows; r++) n += list->rows[r].targets.n;
    if (n > PACK_MAX_IMAGES) return err_set(err, ERR_ELIMIT, "%d images, at most %d", n, PACK_MAX_IMAGES);
    b->jobs = arena_new(a, struct job, n);
    for (int r = 0; r < list->n_rows; r++) {
        if (strlen(list->rows[r].name) >= PACK_NAME_BYTES)
            return err_set(err, ERR_ELIMIT, "%s: the name is longer than %d bytes", list->rows[r].file, PACK_NAME_BYTES - 1);
        for (int i = 0; i < list->rows[r].targets.n; i++) {
            struct job *job = &b->jobs[b->n_jobs++];
            job->row = &list->rows[r];
            job->target = list->rows[r].targets.items[i];
            char arch[16];
            cuda_arch_format(job->target.arch, arch);
            snprintf(job->arch_name, sizeof job->arch_name, "%s_%s", job->target.ptx ? "compute" : "sm", arch);
        }
    }
    return 0;
}

int build_run(struct arena *a, const struct build_args *args, struct err *err) {
    struct build b = {.args = args};
    uint64_t start = os_clock_ns();
    TRY(os_make_dirs(args->cache_dir, err));
    TRY(os_make_dirs(path_parent(a, args->out), err));
    TRY(make_jobs(a, &b, err));
    int n = args->n_threads < 1 ? 1 : args->n_threads > b.n_jobs ? b.n_jobs : args->n_threads;
    struct worker *workers = arena_new(a, struct worker, n + 1);
    b.lock = os_mutex_create();
    run_all(&b, workers, n);
    os_mutex_destroy(b.lock);
    int code = finish(a, &b, (double)(os_clock_ns() - start) * 1e-9, err);
    for (int i = 0; i < b.n_jobs; i++) {
        sb_free(&b.jobs[i].trouble);
        map_free(&b.jobs[i].key.files);
    }
    for (int i = 0; i < n; i++) arena_free(&workers[i].arena);
    return code;
}
