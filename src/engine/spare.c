/* Places in the host's memory, in pieces from which the device copies without a detour where it knows such memory. */
#include "engine/spare.h"

#include "os/os.h"

enum { PIECE_BYTES = 64 << 20, PLACES_MAX = 1 << 20 };

struct spare {
    struct backend *be;
    size_t offsets[KV_CLASSES_MAX], place_bytes;
    int32_t n_most, n_made, per_piece;
    void **pieces;
    int32_t *free, n_free;
};

static size_t aligned(size_t n) {
    return (n + 63) / 64 * 64;
}

int spare_open(struct backend *be, const struct kv_layout *layout, uint64_t bytes, struct spare **out, struct err *err) {
    struct spare *s;
    const char *name;
    size_t place = 0, offsets[KV_CLASSES_MAX] = {0};
    if (!be->type->block_read)
        return err_set(err, ERR_EUNSUPPORTED, "--cache-ram is not possible on %s, whose cache cannot be read; leave it out",
                       be->type->name);
    if (layout->n_states > 0 || kv_token_classes(layout) == 0)
        return err_set(err, ERR_EUNSUPPORTED, "--cache-ram keeps attention's cache, and this model has recurrent layers; leave it out");
    for (int32_t c = 0; c < kv_token_classes(layout); c++) {
        offsets[c] = place;
        place += aligned(be->type->block_bytes(be, c, &name));
    }
    uint64_t n = bytes / place;
    if (n == 0)
        return err_set(err, ERR_EARG, "--cache-ram of %llu bytes has no room for one block of the cache, %zu bytes",
                       (unsigned long long)bytes, place);
    *out = s = mem_alloc(sizeof *s);
    s->be = be;
    memcpy(s->offsets, offsets, sizeof offsets);
    s->place_bytes = place;
    s->n_most = n < PLACES_MAX ? (int32_t)n : PLACES_MAX;
    s->per_piece = place < PIECE_BYTES ? (int32_t)(PIECE_BYTES / place) : 1;
    s->pieces = mem_alloc(((size_t)s->n_most / (size_t)s->per_piece + 1) * sizeof *s->pieces);
    s->free = mem_alloc((size_t)s->n_most * sizeof *s->free);
    return ERR_OK;
}

static int32_t places_of(const struct spare *s, int32_t piece) {
    int32_t left = s->n_most - piece * s->per_piece;
    return left < s->per_piece ? left : s->per_piece;
}

static size_t piece_bytes(const struct spare *s, int32_t piece) {
    return (size_t)places_of(s, piece) * s->place_bytes;
}

/* Pages of the system, and not of the heap, which a plan does not touch. */
static void *piece_alloc(struct spare *s, size_t bytes) {
    void *p = NULL;
    if (!s->be->type->host_alloc) return os_pages_alloc(bytes, NULL);
    return s->be->type->host_alloc(s->be, bytes, &p, NULL) ? NULL : p;
}

void spare_close(struct spare *s) {
    if (!s) return;
    for (int32_t i = 0; i * s->per_piece < s->n_made; i++) {
        if (s->be->type->host_free) s->be->type->host_free(s->be, s->pieces[i]);
        else os_pages_free(s->pieces[i], piece_bytes(s, i));
    }
    mem_free(s->pieces);
    mem_free(s->free);
    mem_free(s);
}

int32_t spare_most(const struct spare *s) {
    return s->n_most;
}

/* One more piece. Without memory there are fewer places than allowed. */
static void make_piece(struct spare *s) {
    int32_t piece = s->n_made / s->per_piece, n = places_of(s, piece);
    s->pieces[piece] = piece_alloc(s, piece_bytes(s, piece));
    if (!s->pieces[piece]) {
        s->n_most = s->n_made;
        return;
    }
    for (int32_t i = n - 1; i >= 0; i--) s->free[s->n_free++] = s->n_made + i;
    s->n_made += n;
}

int32_t spare_get(struct spare *s) {
    if (s->n_free == 0 && s->n_made < s->n_most) make_piece(s);
    return s->n_free ? s->free[--s->n_free] : -1;
}

void spare_put(struct spare *s, int32_t place) {
    s->free[s->n_free++] = place;
}

void *spare_at(const struct spare *s, int32_t place, int32_t kv_class) {
    return (unsigned char *)s->pieces[place / s->per_piece] + (size_t)(place % s->per_piece) * s->place_bytes + s->offsets[kv_class];
}
