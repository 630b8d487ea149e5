/* Downloading: a few threads that receive, one that writes, one that hashes behind it and puts whole files in place, one that shows how far
 * it is.
 *
 * (1) Everything in struct fetch and its items changes under the mutex; bytes are written and hashed outside it. A chunk that is taken
 *     belongs to one thread.
 * (2) A file that must be started again (it changed, its hash is wrong, its server knows no ranges) is emptied when no thread works on it.
 * (3) The first lasting failure ends all threads; what has arrived stays, with its journal.
 * (4) What arrives is gathered into pieces, written by one thread (the system lets one at a time write into a file), and hashed from
 *     memory; what the pool cannot hold is read again.
 * (5) Where the network is faster than the hash, one connection receives long spans and waits when the pool is full. So bytes are hashed while they
 *     are still in the processor's cache, and few threads compete for the processors. Other connections do not wait for a hash that
 *     lacks a chunk.
 */
#include "hub/fetch.h"

#include "base/log.h"
#include "hub/meter.h"

enum { THREADS_MAX = 16, SPARE_BYTES = 32 << 20 };

void fetch_wake_all(struct fetch *f) {
    os_cond_broadcast(f->tasks);
    os_cond_broadcast(f->room);
    os_cond_broadcast(f->bytes);
    os_cond_broadcast(f->over);
}

void fetch_stop_all(struct fetch *f, int code, const struct err *why) {
    os_mutex_lock(f->mutex);
    if (!f->code) {
        f->code = code;
        f->err = *why;
    }
    atomic_store(&f->stop, true);
    fetch_wake_all(f);
    os_mutex_unlock(f->mutex);
}

void fetch_note(struct fetch *f, const char *text) {
    os_mutex_lock(f->mutex);
    sb_fmt(&f->notes, "%s\n", text);
    os_mutex_unlock(f->mutex);
}

int hub_file_check(const char *path, const struct hub_file *file, struct watch *watch, struct err *err) {
    struct os_stat st;
    char hex[65];
    TRY(os_stat(path, &st, err));
    if (!st.is_file) return err_set(err, ERR_EFORMAT, "%.*s is not a file", STR_ARG(file->name));
    if (st.size != file->size)
        return err_set(err, ERR_EFORMAT, "%.*s has %llu bytes instead of %llu", STR_ARG(file->name), (unsigned long long)st.size,
                       (unsigned long long)file->size);
    if (!watch || !file->sha256[0]) return ERR_OK;
    TRY(digest_file(path, hex, watch, err));
    if (strcmp(hex, file->sha256) != 0) return err_set(err, ERR_EFORMAT, "%.*s has another sha256 than it should", STR_ARG(file->name));
    return ERR_OK;
}

static const char *part_path(struct arena *a, const char *dir, struct str name) {
    struct sha256 s;
    char hex[65];
    digest_begin(&s);
    sha256_update(&s, name.p, name.n);
    digest_end(&s, hex);
    return str_fmt(a, "%s/.mlxcel/%.16s.part", dir, hex).p;
}

struct check_view {
    const struct fetch *fetch;
    struct meter meter;
};

/* Files that are in place are hashed before they count as done. That may take long, so its progress is shown, too. */
static bool show_check(void *user, uint64_t done, uint64_t total) {
    struct check_view *view = user;
    (void)total;
    meter_update(&view->meter, done);
    return !hub_stopped(view->fetch->hub);
}

/* What is there already, and what is to be fetched. */
static int plan(struct fetch *f, struct fetch_result *out, uint64_t *out_need, struct err *err) {
    const struct fetch_options *o = f->options;
    struct check_view view = {.fetch = f};
    struct watch watch = {.tell = show_check, .user = &view, .total = f->repo->total_bytes};
    meter_begin(&view.meter, watch.total, 0, o->quiet);
    f->items = arena_new(&f->arena, struct item, f->repo->n_files + 1);
    for (size_t i = 0; i < f->repo->n_files; i++) {
        const struct hub_file *file = &f->repo->files[i];
        const char *path = str_fmt(&f->arena, "%s/%.*s", o->dir, STR_ARG(file->name)).p;
        bool trusted = o->trusted && o->trusted[i];
        bool known = trusted || file->sha256[0];
        int code = known ? hub_file_check(path, file, trusted ? NULL : &watch, NULL) : ERR_EFORMAT;
        if (code == ERR_ECANCELLED) {
            meter_clear(&view.meter);
            return err_set(err, code, "stopped");
        }
        if (code == ERR_OK) {
            out->n_present++;
            out->present_bytes += file->size;
            f->before_bytes += file->size;
            if (o->on_file) o->on_file(o->user, i);
            continue;
        }
        struct item *it = &f->items[f->n_items++];
        *it = (struct item){.file = file, .i_file = i, .path = path, .part_path = part_path(&f->arena, o->dir, file->name)};
        uint64_t have = 0;
        if (os_stat(it->part_path, &(struct os_stat){0}, NULL) == ERR_OK) {
            TRY(part_open(&f->arena, it->part_path, file, &it->part, err));
            have = it->part.n_done;
            part_close(&it->part);
        }
        f->before_bytes += have;
        *out_need += file->size - have;
    }
    meter_clear(&view.meter);
    return ERR_OK;
}

static int check_space(struct fetch *f, uint64_t need, struct err *err) {
    uint64_t room;
    char a[32], b[32];
    if (need == 0 || os_disk_free(f->options->dir, &room, NULL)) return ERR_OK;
    if (room >= need + SPARE_BYTES) return ERR_OK;
    return err_set(err, ERR_EIO, "%s needs %s, but the disk of %s has %s free", f->repo->id, hub_size_text(need, a), f->options->dir,
                   hub_size_text(room, b));
}

static void show(struct fetch *f, struct meter *p) {
    struct sb notes = {0};
    os_mutex_lock(f->mutex);
    if (!atomic_load(&f->stop) && f->n_finished < f->n_items) os_cond_wait_ms(f->over, f->mutex, 100);
    uint64_t have = f->before_bytes + f->received + atomic_load(&f->gathered);
    notes = f->notes;
    f->notes = (struct sb){0};
    os_mutex_unlock(f->mutex);
    if (notes.n) {
        struct str rest = sb_str(&notes), line;
        meter_clear(p);
        while (str_split_next(&rest, '\n', &line))
            if (line.n) log_warn("%.*s", STR_ARG(line));
        sb_free(&notes);
    }
    have = have < p->total ? have : p->total;
    meter_update(p, have);
    struct watch *w = f->options->watch;
    if (w) w->tell(w->user, have, p->total);
}

static int run_threads(struct fetch *f, struct meter *p, struct err *err) {
    struct worker workers[THREADS_MAX] = {0};
    struct os_thread *finisher = NULL, *writer = NULL;
    struct http_options http = {.cacert = hub_options_of(f->hub)->cacert, .stall_s = hub_options_of(f->hub)->stall_s};
    int code = os_thread_start(&finisher, fetch_run_finisher, f, "hash", err);
    if (!code) code = os_thread_start(&writer, fetch_run_writer, f, "write", err);
    for (int32_t i = 0; i < f->n_threads && !code; i++) {
        workers[i].f = f;
        workers[i].patience = hub_patience(f->hub);
        code = http_open(&http, &workers[i].http, err);
        if (!code) code = os_thread_start(&workers[i].thread, fetch_run_worker, &workers[i], "download", err);
    }
    if (code) fetch_stop_all(f, code, err);
    for (bool over = false; !over;) {
        show(f, p);
        if (hub_stopped(f->hub)) fetch_stop_all(f, ERR_ECANCELLED, &(struct err){.code = ERR_ECANCELLED, .msg = "stopped"});
        os_mutex_lock(f->mutex);
        over = atomic_load(&f->stop) || f->n_finished == f->n_items;
        os_mutex_unlock(f->mutex);
    }
    for (int32_t i = 0; i < f->n_threads; i++) {
        if (workers[i].thread) os_thread_join(workers[i].thread);
        http_close(workers[i].http);
        http_reply_free(&workers[i].reply);
    }
    os_mutex_lock(f->mutex);
    f->closing = true;
    os_cond_signal(f->writes);
    os_mutex_unlock(f->mutex);
    if (writer) os_thread_join(writer);
    if (finisher) os_thread_join(finisher);
    show(f, p);
    return f->code ? err_set(err, f->code, "%s", f->err.msg) : ERR_OK;
}

static int receive(struct fetch *f, uint64_t need, struct err *err) {
    struct meter p;
    f->n_threads = hub_options_of(f->hub)->n_connections;
    if (f->n_threads > THREADS_MAX) f->n_threads = THREADS_MAX;
    if (need < PART_CHUNK_BYTES && f->n_threads > (int32_t)f->n_items) f->n_threads = (int32_t)f->n_items;
    pieces_init(&f->pieces, (size_t)f->n_threads * (1 + QUEUED_MAX) + PIECES_KEPT + 1);
    meter_begin(&p, f->repo->total_bytes, f->before_bytes, f->options->quiet);
    int code = run_threads(f, &p, err);
    meter_end(&p, f->before_bytes + f->received);
    return code;
}

static int run(struct fetch *f, struct fetch_result *out, struct err *err) {
    uint64_t need = 0, begin = os_clock_ns();
    TRY(os_make_dirs(str_fmt(&f->arena, "%s/.mlxcel", f->options->dir).p, err));
    int code = plan(f, out, &need, err);
    if (code == ERR_OK) code = check_space(f, need, err);
    if (code == ERR_OK && f->n_items) code = receive(f, need, err);
    out->n_received = f->n_finished;
    out->received_bytes = f->received;
    out->seconds = (double)(os_clock_ns() - begin) * 1e-9;
    return code;
}

int hub_fetch(struct hub *h, const struct hub_repo *repo, const struct fetch_options *options, struct fetch_result *out, struct err *err) {
    struct fetch f = {.hub = h, .repo = repo, .options = options, .mutex = os_mutex_create()};
    struct os_cond **conds[] = {&f.tasks, &f.room, &f.writes, &f.bytes, &f.over};
    *out = (struct fetch_result){0};
    for (size_t i = 0; i < 5; i++) *conds[i] = os_cond_create();
    int code = run(&f, out, err);
    for (size_t i = 0; i < f.n_items; i++) {
        part_close(&f.items[i].part);
        mem_free(f.items[i].taken);
        mem_free(f.items[i].url);
    }
    pieces_free(&f.pieces);
    sb_free(&f.notes);
    for (size_t i = 0; i < 5; i++) os_cond_destroy(*conds[i]);
    os_mutex_destroy(f.mutex);
    arena_free(&f.arena);
    return code;
}
