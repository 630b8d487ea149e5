/* A pool of pieces. There are few, so that looking at all of them costs nothing; the first free one is the likeliest to be in the cache. */
#include "hub/pieces.h"

#include "base/arena.h"

void pieces_init(struct pieces *p, size_t n) {
    *p = (struct pieces){.all = mem_alloc(n * sizeof *p->all), .n = n};
    for (size_t i = 0; i < n; i++) p->all[i].data = mem_alloc(PIECE_BYTES);
}

void pieces_free(struct pieces *p) {
    for (size_t i = 0; i < p->n; i++) mem_free(p->all[i].data);
    mem_free(p->all);
    *p = (struct pieces){0};
}

struct piece *pieces_take(struct pieces *p) {
    struct piece *found = NULL;
    for (size_t i = 0; i < p->n; i++) {
        struct piece *q = &p->all[i];
        if (q->state == PIECE_TAKEN || (found && q->state == PIECE_KEPT && q->at <= found->at)) continue;
        found = q;
        if (q->state == PIECE_FREE) break;
    }
    if (!found) return NULL;
    found->state = PIECE_TAKEN;
    found->n = 0;
    return found;
}

void piece_keep(struct piece *piece) {
    piece->state = PIECE_KEPT;
}

void piece_give_back(struct piece *piece) {
    if (piece) piece->state = PIECE_FREE;
}

struct piece *pieces_find(struct pieces *p, const void *owner, uint64_t at) {
    for (size_t i = 0; i < p->n; i++) {
        struct piece *q = &p->all[i];
        if (q->state != PIECE_KEPT || q->owner != owner || at < q->at || at - q->at >= q->n) continue;
        q->state = PIECE_TAKEN;
        return q;
    }
    return NULL;
}

void pieces_forget(struct pieces *p, const void *owner) {
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i].state == PIECE_KEPT && p->all[i].owner == owner) piece_give_back(&p->all[i]);
}
