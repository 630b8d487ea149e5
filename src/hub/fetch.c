/* Downloading: a few threads that receive, one that writes, one that hashes behind it and puts whole files in place, one that shows how far
 * it is.
 *
 * (1) Everything in struct fetch and its items changes under the mutex; bytes are written and hashed outside it. A chunk that is taken
 *     belongs to one thread.
 * (2) A file that must be started again (it changed, its hash is wrong, its server knows no ranges) is emptied when no thread works on it.
 * (3) The first lasting failure ends all threads; what has arrived stays, with its journal.
 * (4) What arrives is gathered into pieces, written by one thread (the system lets one at a time write into a file), and hashed from
 *     memory; what the pool cannot hold is read again.
 * (5) Where the network is faster than the hash, one connection brings long spans and waits when the pool is full: bytes are hashed while
 *     they are still in the processor's cache, and two threads take turns instead of many fighting for the processors. A hash that waits
 *     for a missing chunk holds nobody up.
 */
#include "hub/hub.h"

#include "base/log.h"
#include "hub/digest.h"
#include "hub/part.h"
#include "hub/meter.h"
#include "hub/pieces.h"
#include "os/os.h"

enum { SPAN_CHUNKS_MAX = 4, FAST_CHUNKS_MAX = 8, RESTARTS_MAX = 2, THREADS_MAX = 16, SPARE_BYTES = 32 << 20 };
/* Pieces beside those that are being filled; how much may be on its way or wait for the hash when the next span is asked for. */
enum { WRITE_BYTES = 16 << 10, QUEUED_MAX = 2, PIECES_KEPT = 16, KEPT_BYTES = PIECES_KEPT * PIECE_BYTES, AHEAD_MAX = 4 << 20 };
/* One connection is enough until hash and writer wait for half the time that so many bytes take (or such a round, where it ends first), or
 * for so long at once. Several stay when they bring more than a quarter more; else they are not tried again for so many rounds, then for
 * many more. */
enum { HUNGER_BYTES = 16 << 20, HUNGER_ROUND_MS = 300, HUNGER_MS = 100, TRIAL_BYTES = 128 << 20, TRIAL_PAUSE = 16 };

enum item_state { ITEM_WAITING, ITEM_OPEN, ITEM_CLOSING /* whole and right: the finisher alone touches it */, ITEM_DONE };

struct item {
    const struct hub_file *file;
    size_t i_file;
    const char *path; /* where it will lie */
    const char *part_path;
    enum item_state state;
    struct part part;
    bool *taken; /* [n_chunks] */
    int n_workers;
    bool restart; /* to be emptied */
    bool single;  /* its server knows no ranges: one request for all of it */
    int n_restarts;
    char *url;    /* where the redirects of an earlier request ended; NULL: ask the hub */
    bool hashing; /* the finisher reads it: not to be emptied */
    struct sha256 sha;
    uint64_t hashed;
    uint64_t old_bytes; /* that were here when it was opened, and are not hashed */
};

struct fetch {
    struct hub *hub;
    const struct hub_repo *repo;
    const struct fetch_options *options;
    struct arena arena; /* under the mutex */
    struct os_mutex *mutex;
    struct os_cond *tasks, *room, *writes, *bytes, *over; /* for workers without work, with; the writer; the finisher; the one who draws */
    struct pieces pieces;
    struct piece *first, *last; /* those that are to be written */
    bool writing;               /* the writer is at work */
    bool closing;               /* no more of them will come */
    struct item *items;
    size_t n_items, n_finished;
    uint64_t before_bytes; /* of files that were in place, and of parts when this began */
    uint64_t received;
    atomic_ullong gathered; /* in pieces, and not in their files */
    uint64_t in_flight;     /* asked for and not here */
    bool hungry;            /* the hash waits for bytes rather than they for it */
    struct {
        uint64_t begin_ns, hash_ns, write_ns, n_bytes; /* of this round: waits of the two */
        double single_rate;                            /* of the last round with one connection; 0: there was none */
        int pause, next_pause; /* rounds until several connections may be tried again; the next such pause is longer */
    } hunger;
    bool holds;   /* a worker waits for the hash with its next span */
    bool crowded; /* one waits for room */
    atomic_bool stop;
    int code;
    struct err err;
    struct sb notes; /* lines for the one who draws */
    int32_t n_threads;
};

static atomic_bool interrupted;

static void on_interrupt(void) {
    atomic_store(&interrupted, true);
}

static void wake_all(struct fetch *f) {
    os_cond_broadcast(f->tasks);
    os_cond_broadcast(f->room);
    os_cond_broadcast(f->bytes);
    os_cond_broadcast(f->over);
}

static void stop_all(struct fetch *f, int code, const struct err *why) {
    os_mutex_lock(f->mutex);
    if (!f->code) {
        f->code = code;
        f->err = *why;
    }
    atomic_store(&f->stop, true);
    wake_all(f);
    os_mutex_unlock(f->mutex);
}

static void note(struct fetch *f, const char *text) {
    os_mutex_lock(f->mutex);
    sb_fmt(&f->notes, "%s\n", text);
    os_mutex_unlock(f->mutex);
}

/* ---- choosing what to ask for ------------------------------------------------------------------------------------------- */

struct task {
    struct fetch *f;
    struct item *item;
    uint32_t chunk, end_chunk; /* those that are taken */
    uint64_t start, pos, end;  /* bytes of the file; pos: the next to be written */
    uint64_t next;             /* where the next piece begins */
    struct piece *piece;       /* what has arrived from there on; NULL: nothing */
    uint32_t n_queued;         /* pieces that wait to be written */
    int write_code;            /* why they cannot be written */
    struct err write_err;
    bool whole;     /* asked for without a range */
    bool transient; /* what a call-back refused may pass */
};

static int open_item(struct fetch *f, struct item *it, struct err *err) {
    TRY(part_open(&f->arena, it->part_path, it->file, &it->part, err));
    it->taken = mem_alloc(it->part.n_chunks * sizeof *it->taken + 1);
    it->old_bytes = it->part.n_done;
    it->state = ITEM_OPEN;
    digest_begin(&it->sha);
    it->hashed = 0;
    os_cond_broadcast(f->bytes); /* it may be whole already */
    return ERR_OK;
}

static int restart_item(struct fetch *f, struct item *it, struct err *err) {
    uint64_t lost = it->part.n_done;
    it->restart = false;
    if (f->received >= lost) f->received -= lost;
    else {
        f->before_bytes -= lost - f->received < f->before_bytes ? lost - f->received : f->before_bytes;
        f->received = 0;
    }
    digest_begin(&it->sha);
    it->hashed = it->old_bytes = 0;
    pieces_forget(&f->pieces, it);
    return part_reset(&it->part, err);
}

/* A hash that is busy with what was here before says nothing about the network. Under the mutex. */
static bool must_wait_for_hash(struct fetch *f) {
    uint64_t ahead = f->in_flight;
    if (f->hungry) return false;
    for (size_t i = 0; i < f->n_items; i++) {
        struct item *it = &f->items[i];
        if (it->state != ITEM_OPEN || !it->file->sha256[0] || it->restart) continue;
        if (it->old_bytes) return false;
        ahead += it->part.n_done - it->hashed;
    }
    return ahead > AHEAD_MAX;
}

/* Long spans save round trips, where those count; at the beginning that is not known. */
static uint32_t span_chunks(struct fetch *f, const struct part *p, uint32_t chunk) {
    if (f->received < (uint64_t)f->n_threads * PART_CHUNK_BYTES) return 1;
    if (!f->hungry) return FAST_CHUNKS_MAX;
    uint32_t most = (p->n_chunks - chunk) / (uint32_t)(f->n_threads * 2);
    return most > SPAN_CHUNKS_MAX ? SPAN_CHUNKS_MAX : most;
}

static bool take_span(struct fetch *f, struct item *it, struct task *out) {
    struct part *p = &it->part;
    part_front(p);
    uint32_t c = p->front;
    while (c < p->n_chunks && (it->taken[c] || p->done[c] == part_chunk_size(p, c))) c++;
    if (c == p->n_chunks || (it->single && it->n_workers)) return false;
    uint32_t most = span_chunks(f, p, c), e = c + 1;
    while (e < p->n_chunks && (it->single || (e - c < most && !it->taken[e] && p->done[e] == 0))) e++;
    for (uint32_t i = c; i < e; i++) it->taken[i] = true;
    it->n_workers++;
    *out = (struct task){.f = f, .item = it, .chunk = c, .end_chunk = e};
    out->start = out->pos = out->next = c * PART_CHUNK_BYTES + p->done[c];
    out->end = e == p->n_chunks ? p->size : e * PART_CHUNK_BYTES;
    out->whole = out->pos == 0 && out->end == p->size;
    f->in_flight += out->end - out->pos;
    return true;
}

/* Under the mutex. */
static int pick(struct fetch *f, struct task *out, bool *out_found, struct err *err) {
    *out_found = false;
    for (size_t i = 0; i < f->n_items; i++) {
        struct item *it = &f->items[i];
        if (it->state >= ITEM_CLOSING) continue;
        if (it->state == ITEM_WAITING) TRY(open_item(f, it, err));
        if (it->restart && (it->n_workers || it->hashing)) continue;
        bool again = it->single && it->part.n_done && it->part.n_done < it->part.size && !it->n_workers;
        if (again && it->hashing) continue;
        if (it->restart || again) TRY(restart_item(f, it, err));
        if ((*out_found = take_span(f, it, out))) return ERR_OK;
    }
    return ERR_OK;
}

static void give_back(struct task *t) {
    struct item *it = t->item;
    struct err err = {0};
    int code = ERR_OK;
    os_mutex_lock(t->f->mutex);
    for (uint32_t c = t->chunk; c < t->end_chunk; c++) {
        it->taken[c] = false;
        if (!it->restart && !code) code = part_grow(&it->part, c, it->part.done[c], true, &err);
    }
    it->n_workers--;
    t->f->in_flight -= t->end - t->pos;
    os_cond_broadcast(t->f->tasks);
    os_cond_broadcast(t->f->bytes);
    os_mutex_unlock(t->f->mutex);
    if (code) stop_all(t->f, code, &err);
}

/* ---- one request -------------------------------------------------------------------------------------------------------- */

static int want_restart(struct task *t, bool single, const char *why, struct err *err) {
    os_mutex_lock(t->f->mutex);
    t->item->restart = true;
    if (single) t->item->single = true;
    else t->item->n_restarts++;
    bool too_often = t->item->n_restarts > RESTARTS_MAX;
    os_cond_broadcast(t->f->room);
    os_mutex_unlock(t->f->mutex);
    t->transient = !too_often;
    return err_set(err, too_often ? ERR_ENETWORK : ERR_EBUSY, "%.*s %s", STR_ARG(t->item->file->name), why);
}

/* The reply belongs to the file that the journal is about, and to the range that was asked for. */
static int on_reply(void *user, const struct http_reply *r, struct err *err) {
    struct task *t = user;
    struct part *p = &t->item->part;
    int64_t size = (int64_t)p->size, said = r->status == 206 ? r->range_total : r->length;
    t->transient = true;
    if (r->status == 206 && r->range_start != (int64_t)t->pos)
        return err_set(err, ERR_ENETWORK, "%.*s: asked for byte %llu on, got another range", STR_ARG(t->item->file->name),
                       (unsigned long long)t->pos);
    if (said >= 0 && said != size)
        return err_set(err, ERR_ENETWORK, "%.*s: the hub's list says %lld bytes, the server sends %lld", STR_ARG(t->item->file->name),
                       (long long)size, (long long)said);
    os_mutex_lock(t->f->mutex);
    bool changed = p->etag[0] && r->etag[0] == '"' && strcmp(p->etag, r->etag) != 0;
    bool stale = t->item->restart;
    int code = ERR_OK;
    if (!changed && !stale && !p->etag[0]) code = part_set_etag(p, r->etag, err);
    os_mutex_unlock(t->f->mutex);
    if (code) return code;
    if (stale) return err_set(err, ERR_EBUSY, "%.*s is started again", STR_ARG(t->item->file->name));
    if (changed) return want_restart(t, false, "has changed on the server", err);
    if (r->status != 206 && !t->whole) return want_restart(t, true, "comes from a server without ranges", err);
    return ERR_OK;
}

/* An open file with bytes to hash up to *out_end, or one that will then be whole; NULL: none at the moment. Under the mutex. */
static struct item *find_hashable(struct fetch *f, uint64_t *out_end, bool *out_whole) {
    for (size_t i = 0; i < f->n_items; i++) {
        struct item *it = &f->items[i];
        if (it->state != ITEM_OPEN || it->restart) continue;
        bool hashes = it->file->sha256[0];
        uint64_t border = (it->hashed / PIECE_BYTES + 1) * PIECE_BYTES;
        *out_end = part_front(&it->part);
        if (hashes && *out_end > border) *out_end = border;
        *out_whole = *out_end == it->part.size && it->n_workers == 0;
        if (*out_whole || (hashes && *out_end > it->hashed)) return it;
    }
    return NULL;
}

/* The one who brings what the hash needs next may be so far ahead of it, the others of the writer. Under the mutex. */
static bool too_far_ahead(struct task *t) {
    struct item *it = t->item;
    bool first = t->pos == part_front(&it->part) && it->file->sha256[0] && !it->old_bytes;
    return first ? t->next - it->hashed >= KEPT_BYTES : t->n_queued >= QUEUED_MAX;
}

static int begin_piece(struct task *t, struct err *err) {
    struct fetch *f = t->f;
    os_mutex_lock(f->mutex);
    while (!t->write_code && !t->item->restart && !atomic_load(&f->stop)) {
        if (!too_far_ahead(t) && (t->piece = pieces_take(&f->pieces))) break;
        f->crowded = true;
        os_cond_wait(f->room, f->mutex);
    }
    bool restart = t->item->restart;
    os_mutex_unlock(f->mutex);
    if (!t->piece && restart) return err_set(err, ERR_EBUSY, "%.*s is started again", STR_ARG(t->item->file->name));
    if (!t->piece) return err_set(err, ERR_ECANCELLED, "stopped"); /* or finish_pieces says why */
    t->piece->owner = t->item;
    t->piece->user = t;
    t->piece->at = t->next;
    return ERR_OK;
}

/* Hands what was gathered to the writer. */
static void end_piece(struct task *t) {
    struct fetch *f = t->f;
    struct piece *piece = t->piece;
    if (!piece) return;
    t->piece = NULL;
    t->next += piece->n;
    piece->next = NULL;
    os_mutex_lock(f->mutex);
    if (f->first) f->last->next = piece;
    else f->first = piece;
    f->last = piece;
    t->n_queued++;
    os_cond_signal(f->writes);
    os_mutex_unlock(f->mutex);
}

/* What came before a cut is kept; the task waits until all of it is written. */
static int finish_pieces(struct task *t, struct err *err) {
    struct fetch *f = t->f;
    end_piece(t);
    os_mutex_lock(f->mutex);
    while (t->n_queued) {
        f->crowded = true;
        os_cond_wait(f->room, f->mutex);
    }
    os_mutex_unlock(f->mutex);
    if (t->write_code) *err = t->write_err;
    return t->write_code;
}

/* In slices that lie where the system's pages do, and are small: Linux takes memory for a larger one in one block, and large blocks are
 * what a virtual machine has given back to its host and must fetch again. */
static int write_piece(const struct item *it, const struct piece *piece, struct err *err) {
    for (uint32_t done = 0; done < piece->n;) {
        uint32_t n = WRITE_BYTES - (uint32_t)((piece->at + done) % WRITE_BYTES);
        if (n > piece->n - done) n = piece->n - done;
        TRY(os_file_write_at(it->part.data, piece->data + done, n, piece->at + done, err));
        done += n;
    }
    return ERR_OK;
}

/* A piece is in the file: into the journal, then to the hash. Under the mutex. */
static void settle_piece(struct task *t, struct piece *piece) {
    struct fetch *f = t->f;
    struct item *it = t->item;
    if (!t->write_code && it->restart) t->write_code = err_set(&t->write_err, ERR_EBUSY, "%.*s is started again", STR_ARG(it->file->name));
    if (!t->write_code) {
        uint32_t c = (uint32_t)(t->pos / PART_CHUNK_BYTES);
        t->pos += piece->n;
        f->received += piece->n;
        f->in_flight -= piece->n;
        t->write_code = part_grow(&it->part, c, (uint32_t)(t->pos - c * PART_CHUNK_BYTES), false, &t->write_err);
    }
    atomic_fetch_sub(&f->gathered, piece->n);
    bool soon = it->file->sha256[0] && piece->at - it->hashed < KEPT_BYTES; /* what comes later is read again */
    if (!t->write_code && soon) piece_keep(piece);
    else piece_give_back(piece);
    t->n_queued--;
    if (f->crowded) {
        f->crowded = false;
        os_cond_broadcast(f->room);
    }
    os_cond_signal(f->bytes);
}

static void run_writer(void *user) {
    struct fetch *f = user;
    os_mutex_lock(f->mutex);
    for (;;) {
        uint64_t begin = os_clock_ns();
        f->writing = false;
        while (!f->first && !f->closing) os_cond_wait(f->writes, f->mutex);
        f->writing = true;
        f->hunger.write_ns += os_clock_ns() - begin;
        struct piece *piece = f->first;
        if (!piece) break;
        f->first = piece->next;
        struct task *t = piece->user;
        if (!t->write_code && !t->item->restart) {
            os_mutex_unlock(f->mutex);
            int code = write_piece(t->item, piece, &t->write_err);
            os_mutex_lock(f->mutex);
            t->write_code = code;
        }
        settle_piece(t, piece);
    }
    os_mutex_unlock(f->mutex);
}

/* Pieces end where their places in the file end, so that none reaches over the end of a chunk. */
static int on_body(void *user, const void *data, size_t n, struct err *err) {
    struct task *t = user;
    const char *bytes = data;
    if (n > t->end - t->next - (t->piece ? t->piece->n : 0)) {
        t->transient = true;
        return err_set(err, ERR_ENETWORK, "%.*s: the server sends more than was asked for", STR_ARG(t->item->file->name));
    }
    while (n) {
        if (!t->piece) TRY(begin_piece(t, err));
        struct piece *piece = t->piece;
        uint64_t end = (t->next / PIECE_BYTES + 1) * PIECE_BYTES;
        if (end > t->end) end = t->end;
        size_t room = (size_t)(end - t->next) - piece->n, take = n < room ? n : room;
        memcpy(piece->data + piece->n, bytes, take);
        piece->n += (uint32_t)take;
        atomic_fetch_add(&t->f->gathered, take);
        bytes += take;
        n -= take;
        if (take == room) end_piece(t);
    }
    return ERR_OK;
}

struct worker {
    struct fetch *f;
    struct http *http;
    struct http_reply reply;
    struct os_thread *thread;
};

/* Sends the request of a task; the address of an earlier one saves its redirects. */
static int send_task(struct worker *w, struct task *t, bool *out_cached, struct err *err) {
    struct fetch *f = w->f;
    struct sb url = {0};
    char range[64], etag[HTTP_HEADER_BYTES] = "";
    os_mutex_lock(f->mutex);
    *out_cached = t->item->url != NULL;
    if (t->item->url) sb_puts(&url, t->item->url);
    else hub_file_url(f->hub, f->repo, t->item->file->name, &url);
    memcpy(etag, t->item->part.etag, strlen(t->item->part.etag) + 1);
    os_mutex_unlock(f->mutex);
    bool ours = http_same_origin(sb_str(&url), str_of(hub_options_of(f->hub)->endpoint));
    struct sb text = {0};
    sb_fmt(&text, "%llu-%llu", (unsigned long long)t->pos, (unsigned long long)t->end - 1);
    memcpy(range, text.p, text.n + 1);
    sb_free(&text);
    struct http_request q = {.url = url.p,
                             .token = ours ? hub_token(f->hub) : NULL,
                             .range = t->whole ? NULL : range,
                             .if_range = !t->whole && etag[0] ? etag : NULL,
                             .on_reply = on_reply,
                             .on_body = on_body,
                             .user = t,
                             .cancel = &f->stop};
    int code = http_send(w->http, &q, &w->reply, err);
    sb_free(&url);
    return code;
}

static void keep_url(struct fetch *f, struct item *it, const struct http_reply *r) {
    os_mutex_lock(f->mutex);
    if (!it->url && r->url.n) {
        it->url = mem_alloc(r->url.n + 1);
        memcpy(it->url, r->url.p, r->url.n);
    }
    os_mutex_unlock(f->mutex);
}

static void drop_url(struct fetch *f, struct item *it) {
    os_mutex_lock(f->mutex);
    mem_free(it->url);
    it->url = NULL;
    os_mutex_unlock(f->mutex);
}

/* 0: the span is here. ERR_EBUSY: let it be, something else is to be done first. Else the failure; w->reply.transient or t->transient say
 * whether another try may help. */
static int try_task(struct worker *w, struct task *t, struct err *err) {
    struct fetch *f = w->f;
    bool cached;
    int code = send_task(w, t, &cached, err);
    struct err why = {0};
    int written = finish_pieces(t, &why);
    if (written && (code == ERR_OK || code == ERR_ENETWORK || code == ERR_ECANCELLED)) {
        code = written;
        *err = why;
    }
    const struct http_reply *r = &w->reply;
    if (code == ERR_OK && r->status >= 200 && r->status <= 299) {
        keep_url(f, t->item, r);
        if (t->pos == t->end) return ERR_OK;
        t->transient = true;
        return err_set(err, ERR_ENETWORK, "%.*s: the connection ended early", STR_ARG(t->item->file->name));
    }
    if (code == ERR_OK && (r->status == 412 || r->status == 416)) return want_restart(t, false, "has changed on the server", err);
    if (cached && code != ERR_EBUSY) drop_url(f, t->item);
    if (code == ERR_OK && cached && (r->status == 401 || r->status == 403 || r->status == 404 || r->status == 410)) {
        t->transient = true; /* an address that was good for a while */
        return err_set(err, ERR_ENETWORK, "%.*s: its address is no longer good", STR_ARG(t->item->file->name));
    }
    if (code == ERR_OK) {
        struct sb what = {0};
        sb_fmt(&what, "%s (%.*s)", f->repo->id, STR_ARG(t->item->file->name));
        code = hub_refusal(f->hub, r, what.p, err);
        sb_free(&what);
    }
    return code;
}

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

/* False: the worker is to end. */
static bool wait_for_task(struct fetch *f, struct task *out) {
    struct err err = {0};
    bool found = false;
    int code = ERR_OK;
    os_mutex_lock(f->mutex);
    while (!code && !atomic_load(&f->stop) && f->n_finished < f->n_items) {
        bool waits = must_wait_for_hash(f);
        if (!waits) code = pick(f, out, &found, &err);
        if (found || code) break;
        f->holds |= waits;
        os_cond_wait(f->tasks, f->mutex);
    }
    os_mutex_unlock(f->mutex);
    if (code) stop_all(f, code, &err);
    return found;
}

static void wait_a_while(struct fetch *f, int32_t ms) {
    uint64_t end = os_clock_ns() + (uint64_t)ms * 1000000;
    os_mutex_lock(f->mutex);
    while (!atomic_load(&f->stop) && os_clock_ns() < end) os_cond_wait_ms(f->tasks, f->mutex, (int)((end - os_clock_ns()) / 1000000) + 1);
    os_mutex_unlock(f->mutex);
}

static void run_worker(void *user) {
    struct worker *w = user;
    struct fetch *f = w->f;
    struct task t;
    int32_t n_failed = 0;
    while (wait_for_task(f, &t)) {
        struct err err = {0};
        w->reply.transient = false;
        int code = try_task(w, &t, &err);
        bool transient = w->reply.transient || t.transient;
        if (t.pos > t.start || code == ERR_EBUSY) n_failed = 0;
        give_back(&t);
        if (code == ERR_OK || code == ERR_EBUSY || atomic_load(&f->stop)) continue;
        if (code != ERR_ENETWORK || !transient || n_failed >= hub_options_of(f->hub)->n_retries) {
            stop_all(f, code, &err);
            continue;
        }
        int32_t ms = hub_wait_ms(&w->reply, n_failed++);
        struct sb line = {0};
        sb_fmt(&line, "%s; trying again in %.1f s", err.msg, ms / 1000.0);
        note(f, line.p);
        sb_free(&line);
        wait_a_while(f, ms);
    }
}

/* ---- whole files -------------------------------------------------------------------------------------------------------- */

/* Under the mutex. */
static void wait_for_bytes(struct fetch *f) {
    uint64_t begin = os_clock_ns();
    if (!os_cond_wait_ms(f->bytes, f->mutex, HUNGER_MS) && !f->first && !f->writing) f->hungry = true;
    f->hunger.hash_ns += os_clock_ns() - begin;
    if (f->hungry && f->holds) {
        f->holds = false;
        os_cond_broadcast(f->tasks);
    }
}

/* Whether more connections would help: not where the hash or the writer is always at work. Under the mutex. */
static void judge_hunger(struct fetch *f, size_t n) {
    uint64_t now = os_clock_ns();
    if (f->hunger.n_bytes == 0 && f->hunger.begin_ns == 0) { /* what was before the first byte does not count */
        f->hunger.begin_ns = now;
        f->hunger.hash_ns = f->hunger.write_ns = 0;
    }
    f->hunger.n_bytes += n;
    uint64_t ns = now - f->hunger.begin_ns;
    bool over =
        f->hungry ? f->hunger.n_bytes >= TRIAL_BYTES : f->hunger.n_bytes >= HUNGER_BYTES || ns >= HUNGER_ROUND_MS * UINT64_C(1000000);
    if (!over) return;
    bool idle = f->hunger.hash_ns * 2 > ns && f->hunger.write_ns * 2 > ns;
    double rate = (double)f->hunger.n_bytes / (double)(ns + 1);
    if (!f->hungry) {
        f->hunger.single_rate = rate;
        if (f->hunger.pause) f->hunger.pause--;
        else f->hungry = idle;
    } else if (f->hunger.single_rate > 0 ? rate < f->hunger.single_rate * 1.25 : !idle) {
        f->hungry = false;
        f->hunger.pause = f->hunger.next_pause += f->hunger.next_pause + TRIAL_PAUSE;
    }
    f->hunger.begin_ns = now;
    f->hunger.hash_ns = f->hunger.write_ns = f->hunger.n_bytes = 0;
}

/* Hashes what find_hashable found, from memory where it is still there, and tells the workers. */
static int hash_more(struct fetch *f, struct item *it, uint64_t end, char *buffer, struct err *err) {
    os_mutex_lock(f->mutex);
    struct piece *piece = pieces_find(&f->pieces, it, it->hashed);
    os_mutex_unlock(f->mutex);
    if (piece && end > piece->at + piece->n) end = piece->at + piece->n;
    size_t n = (size_t)(end - it->hashed);
    int code = ERR_OK;
    if (piece) sha256_update(&it->sha, piece->data + (it->hashed - piece->at), n);
    else {
        code = os_file_read_at(it->part.data, buffer, n, it->hashed, err);
        if (!code) sha256_update(&it->sha, buffer, n);
    }
    os_mutex_lock(f->mutex);
    it->hashed = end;
    if (!piece) it->old_bytes -= n < it->old_bytes ? n : it->old_bytes;
    judge_hunger(f, n);
    piece_give_back(piece);
    if (f->crowded && part_front(&it->part) - end <= KEPT_BYTES / 2) {
        f->crowded = false;
        os_cond_broadcast(f->room);
    }
    if (f->holds && !must_wait_for_hash(f)) {
        f->holds = false;
        os_cond_broadcast(f->tasks);
    }
    os_mutex_unlock(f->mutex);
    return code;
}

static int make_parents(const char *path, struct err *err) {
    struct sb dir = {0};
    size_t n = strlen(path);
    while (n && path[n - 1] != '/') n--;
    sb_put(&dir, str_n(path, n ? n - 1 : 0));
    int code = dir.n ? os_make_dirs(dir.p, err) : ERR_OK;
    sb_free(&dir);
    return code;
}

/* The hash is right: the file gets its name. Only small ones are forced to the disk: for weights that would take longer than the download.
 * What a power cut within the next seconds takes away shows as a wrong size or, to `show --verify`, as a wrong hash. */
static int put_in_place(struct fetch *f, struct item *it, struct err *err) {
    if (it->part.size <= PART_CHUNK_BYTES) TRY(os_file_sync(it->part.data, err));
    part_close(&it->part);
    TRY(make_parents(it->path, err));
    TRY(os_rename(it->part_path, it->path, err));
    os_remove(it->part.log_path, NULL);
    if (f->options->on_file) f->options->on_file(f->options->user, it->i_file);
    return ERR_OK;
}

static int finish_item(struct fetch *f, struct item *it, struct err *err) {
    char hex[65];
    if (it->file->sha256[0]) {
        digest_end(&it->sha, hex);
        if (strcmp(hex, it->file->sha256) != 0) {
            os_mutex_lock(f->mutex);
            it->restart = true;
            int n = ++it->n_restarts;
            os_cond_broadcast(f->tasks);
            os_cond_broadcast(f->room);
            os_mutex_unlock(f->mutex);
            err_set(err, ERR_ENETWORK, "%s/%.*s: the sha256 of what arrived is %.16s..., the hub says %.16s...", f->repo->id,
                    STR_ARG(it->file->name), hex, it->file->sha256);
            if (n > 1) return ERR_ENETWORK;
            struct sb line = {0};
            sb_fmt(&line, "%s; downloading it again", err->msg);
            note(f, line.p);
            sb_free(&line);
            return ERR_OK;
        }
    }
    os_mutex_lock(f->mutex);
    it->state = ITEM_CLOSING;
    os_mutex_unlock(f->mutex);
    TRY(put_in_place(f, it, err));
    os_mutex_lock(f->mutex);
    it->state = ITEM_DONE;
    f->n_finished++;
    wake_all(f);
    os_mutex_unlock(f->mutex);
    return ERR_OK;
}

static void run_finisher(void *user) {
    struct fetch *f = user;
    struct err err = {0};
    char *buffer = mem_alloc(PIECE_BYTES);
    int code = ERR_OK;
    while (!code) {
        uint64_t end = 0;
        bool whole = false;
        os_mutex_lock(f->mutex);
        struct item *it = find_hashable(f, &end, &whole);
        bool over = atomic_load(&f->stop) || f->n_finished == f->n_items;
        if (it) it->hashing = true;
        if (!it && !over) wait_for_bytes(f);
        os_mutex_unlock(f->mutex);
        if (over) break;
        if (!it) continue;
        if (it->file->sha256[0]) {
            code = hash_more(f, it, end, buffer, &err);
            whole = whole && it->hashed == it->part.size;
        }
        if (!code && whole && !atomic_load(&f->stop)) code = finish_item(f, it, &err);
        os_mutex_lock(f->mutex);
        it->hashing = false;
        if (it->restart) os_cond_broadcast(f->tasks);
        os_mutex_unlock(f->mutex);
    }
    mem_free(buffer);
    if (code) stop_all(f, code, &err);
}

/* ---- the whole download ------------------------------------------------------------------------------------------------- */

int hub_file_check(const char *path, const struct hub_file *file, bool with_hash, struct err *err) {
    struct os_stat st;
    char hex[65];
    TRY(os_stat(path, &st, err));
    if (!st.is_file) return err_set(err, ERR_EFORMAT, "%.*s is not a file", STR_ARG(file->name));
    if (st.size != file->size)
        return err_set(err, ERR_EFORMAT, "%.*s has %llu bytes instead of %llu", STR_ARG(file->name), (unsigned long long)st.size,
                       (unsigned long long)file->size);
    if (!with_hash || !file->sha256[0]) return ERR_OK;
    TRY(digest_file(path, hex, err));
    if (strcmp(hex, file->sha256) != 0) return err_set(err, ERR_EFORMAT, "%.*s has another sha256 than the hub's", STR_ARG(file->name));
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

/* What is there already, and what is to be fetched. */
static int plan(struct fetch *f, struct fetch_result *out, uint64_t *out_need, struct err *err) {
    const struct fetch_options *o = f->options;
    f->items = arena_new(&f->arena, struct item, f->repo->n_files + 1);
    for (size_t i = 0; i < f->repo->n_files; i++) {
        const struct hub_file *file = &f->repo->files[i];
        const char *path = str_fmt(&f->arena, "%s/%.*s", o->dir, STR_ARG(file->name)).p;
        bool trusted = o->trusted && o->trusted[i];
        if ((trusted || file->sha256[0]) && hub_file_check(path, file, !trusted, NULL) == ERR_OK) {
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
    meter_update(p, have < p->total ? have : p->total);
}

static int run_threads(struct fetch *f, struct meter *p, struct err *err) {
    struct worker workers[THREADS_MAX] = {0};
    struct os_thread *finisher = NULL, *writer = NULL;
    struct http_options http = {.cacert = hub_options_of(f->hub)->cacert, .stall_s = hub_options_of(f->hub)->stall_s};
    int code = os_thread_start(&finisher, run_finisher, f, "hash", err);
    if (!code) code = os_thread_start(&writer, run_writer, f, "write", err);
    for (int32_t i = 0; i < f->n_threads && !code; i++) {
        workers[i].f = f;
        code = http_open(&http, &workers[i].http, err);
        if (!code) code = os_thread_start(&workers[i].thread, run_worker, &workers[i], "download", err);
    }
    if (code) stop_all(f, code, err);
    for (bool over = false; !over;) {
        show(f, p);
        if (atomic_load(&interrupted)) stop_all(f, ERR_ECANCELLED, &(struct err){.code = ERR_ECANCELLED, .msg = "stopped"});
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

static int run(struct fetch *f, struct fetch_result *out, struct err *err) {
    struct meter p;
    uint64_t need = 0, begin = os_clock_ns();
    TRY(os_make_dirs(str_fmt(&f->arena, "%s/.mlxcel", f->options->dir).p, err));
    TRY(plan(f, out, &need, err));
    TRY(check_space(f, need, err));
    if (f->n_items == 0) return ERR_OK;
    f->n_threads = hub_options_of(f->hub)->n_connections;
    if (f->n_threads > THREADS_MAX) f->n_threads = THREADS_MAX;
    if (need < PART_CHUNK_BYTES && f->n_threads > (int32_t)f->n_items) f->n_threads = (int32_t)f->n_items;
    pieces_init(&f->pieces, (size_t)f->n_threads * (1 + QUEUED_MAX) + PIECES_KEPT + 1);
    atomic_store(&interrupted, false);
    os_on_interrupt(on_interrupt);
    meter_begin(&p, f->repo->total_bytes, f->before_bytes, f->options->quiet);
    int code = run_threads(f, &p, err);
    meter_end(&p, f->before_bytes + f->received);
    os_on_interrupt(NULL);
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
