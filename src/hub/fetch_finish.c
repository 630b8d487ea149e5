/* The thread that hashes what has arrived, decides how many connections that wants, and puts whole files in place. */
#include "hub/fetch.h"

/* When a download uses several connections. It starts with one and counts in rounds. A round is HUNGER_BYTES or HUNGER_ROUND_MS, whichever comes first.
 * If in a round the hash and the writer both wait for more than half of the time, or the hash waits HUNGER_MS at once, several connections are tried
 * for TRIAL_BYTES. They stay if they are more than a quarter faster than one. Otherwise one connection goes on for TRIAL_PAUSE rounds before the next
 * trial, and each further pause is more than twice as long. */
enum { HUNGER_BYTES = 16 << 20, HUNGER_ROUND_MS = 300, HUNGER_MS = 100, TRIAL_BYTES = 128 << 20, TRIAL_PAUSE = 16 };

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
    if (f->hunger.n_bytes == 0 && f->hunger.begin_ns == 0) { /* time before the first byte does not count */
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
    if (f->holds && !fetch_must_wait_for_hash(f)) {
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
            fetch_note(f, line.p);
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
    fetch_wake_all(f);
    os_mutex_unlock(f->mutex);
    return ERR_OK;
}

void fetch_run_finisher(void *user) {
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
    if (code) fetch_stop_all(f, code, &err);
}
