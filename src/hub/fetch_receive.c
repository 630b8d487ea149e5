/* What the threads that receive do, and the one that writes: choosing chunks, one request after the other, pieces on their way to the file. */
#include "hub/fetch.h"

enum { SPAN_CHUNKS_MAX = 4, FAST_CHUNKS_MAX = 8, RESTARTS_MAX = 2, WRITE_BYTES = 16 << 10 };
/* A try that receives fewer bytes than this counts as fruitless, unless it received everything that it asked for. */
enum { FRUIT_BYTES = 16 << 10 };
/* How much may be on its way or wait for the hash when the next span is asked for. */
enum { AHEAD_MAX = 4 << 20 };
/* A piece that takes longer than this to fill is written as it is. So a program that is killed on a slow line loses at most the bytes of one second. */
#define PIECE_NS_MAX UINT64_C(1000000000)

/* ---- choosing what to ask for ------------------------------------------------------------------------------------------- */

struct task {
    struct fetch *f;
    struct item *item;
    uint32_t chunk, end_chunk; /* those that are taken */
    uint64_t start, pos, end;  /* bytes of the file; pos: the next to be written */
    uint64_t next;             /* where the next piece begins */
    struct piece *piece;       /* what has arrived from there on; NULL: nothing */
    uint64_t piece_ns;         /* when it was begun */
    uint32_t n_queued;         /* pieces that wait to be written */
    int write_code;            /* why they cannot be written */
    struct err write_err;
    bool whole;     /* asked for without a range */
    bool transient; /* what a call-back refused may pass */
};

static int open_item(struct fetch *f, struct item *it, struct err *err) {
    TRY(part_open(&f->arena, it->part_path, it->file, &it->part, err));
    it->taken = mem_alloc(it->part.n_chunks * sizeof *it->taken + 1);
    it->old_bytes = it->most_bytes = it->part.n_done;
    it->state = ITEM_OPEN;
    digest_begin(&it->sha);
    it->hashed = 0;
    os_cond_broadcast(f->bytes); /* it may be whole already */
    return ERR_OK;
}

static int restart_item(struct fetch *f, struct item *it, struct err *err) {
    uint64_t lost = it->part.n_done;
    if (it->restart) it->most_bytes = 0; /* another file: that happens RESTARTS_MAX times */
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

/* Whether the next span has to wait for the hash. A hash that is still busy with bytes of an earlier download says nothing about the network. Under the
 * mutex. */
bool fetch_must_wait_for_hash(struct fetch *f) {
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

/* How many chunks the next request asks for. Long spans save round trips. At the beginning nobody knows whether that matters, so they are short. */
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
    os_mutex_lock(t->f->mutex);
    for (uint32_t c = t->chunk; c < t->end_chunk; c++) it->taken[c] = false;
    it->n_workers--;
    t->f->in_flight -= t->end - t->pos;
    os_cond_broadcast(t->f->tasks);
    os_cond_broadcast(t->f->bytes);
    os_mutex_unlock(t->f->mutex);
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
    if (r->status == 206 && r->length > (int64_t)(t->end - t->pos))
        return err_set(err, ERR_ENETWORK, "%.*s: the server sends more than was asked for", STR_ARG(t->item->file->name));
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

/* Whether a task must wait before it receives more. The task with the bytes that the hash needs next may be KEPT_BYTES ahead of the hash. Any other
 * task may have QUEUED_MAX pieces waiting for the writer. Under the mutex. */
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
    t->piece_ns = os_clock_ns();
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
        t->write_code = part_grow(&it->part, c, (uint32_t)(t->pos - c * PART_CHUNK_BYTES), &t->write_err);
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

void fetch_run_writer(void *user) {
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

/* Pieces end at multiples of their size in the file, so that none reaches over the end of a chunk. */
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
    if (t->piece && os_clock_ns() - t->piece_ns > PIECE_NS_MAX) end_piece(t);
    return ERR_OK;
}

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

/* 0: the span has arrived. ERR_EBUSY: give the task up for now, something else has to be done first. Else the failure; w->reply.transient or
 * t->transient say whether another try may help. */
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
    if (code == ERR_ENETWORK && r->transient) err_prefix(err, "%.*s", STR_ARG(t->item->file->name));
    if (code == ERR_OK && r->status >= 200 && r->status <= 299) {
        keep_url(f, t->item, r);
        if (t->pos == t->end) return ERR_OK;
        t->transient = true;
        return err_set(err, ERR_ENETWORK, "%.*s: the connection ended early", STR_ARG(t->item->file->name));
    }
    if (code == ERR_OK && (r->status == 412 || r->status == 416)) return want_restart(t, false, "has changed on the server", err);
    if (cached && code != ERR_EBUSY) drop_url(f, t->item);
    if (code == ERR_OK && cached && (r->status == 401 || r->status == 403 || r->status == 404 || r->status == 410)) {
        t->transient = true; /* the address of an earlier redirect has expired */
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
        bool waits = fetch_must_wait_for_hash(f);
        if (!waits) code = pick(f, out, &found, &err);
        if (found || code) break;
        f->holds |= waits;
        os_cond_wait(f->tasks, f->mutex);
    }
    os_mutex_unlock(f->mutex);
    if (code) fetch_stop_all(f, code, &err);
    return found;
}

static void wait_a_while(struct fetch *f, int32_t ms) {
    uint64_t end = os_clock_ns() + (uint64_t)ms * 1000000;
    os_mutex_lock(f->mutex);
    while (!atomic_load(&f->stop) && os_clock_ns() < end) os_cond_wait_ms(f->tasks, f->mutex, (int)((end - os_clock_ns()) / 1000000) + 1);
    os_mutex_unlock(f->mutex);
}

/* Whether a try brought the download on. */
static bool was_fruitful(struct fetch *f, struct item *it, int code) {
    os_mutex_lock(f->mutex);
    bool is = code == ERR_OK || it->part.n_done >= it->most_bytes + FRUIT_BYTES;
    if (it->part.n_done > it->most_bytes) it->most_bytes = it->part.n_done;
    os_mutex_unlock(f->mutex);
    return is;
}

/* After a failure that may pass: waits, or ends the download. */
static void try_later(struct worker *w, struct err *err) {
    int32_t ms;
    int code = patience_ask(&w->patience, &w->reply, &ms, err);
    if (code) {
        fetch_stop_all(w->f, code, err);
        return;
    }
    struct sb line = {0};
    sb_fmt(&line, "%s; trying again in %.1f s", err->msg, ms / 1000.0);
    fetch_note(w->f, line.p);
    sb_free(&line);
    wait_a_while(w->f, ms);
}

void fetch_run_worker(void *user) {
    struct worker *w = user;
    struct fetch *f = w->f;
    struct task t;
    while (wait_for_task(f, &t)) {
        struct err err = {0};
        uint64_t begin = os_clock_ns();
        w->reply.transient = false;
        int code = try_task(w, &t, &err);
        bool transient = w->reply.transient || t.transient;
        if (was_fruitful(f, t.item, code)) patience_fruitful(&w->patience, os_clock_ns() - begin);
        else patience_fruitless(&w->patience, os_clock_ns() - begin);
        give_back(&t);
        if (code == ERR_OK || code == ERR_EBUSY || atomic_load(&f->stop)) continue;
        if (code == ERR_ENETWORK && transient) try_later(w, &err);
        else fetch_stop_all(f, code, &err);
    }
}
