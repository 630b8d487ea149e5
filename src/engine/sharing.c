/* Which rows of a decode step belong to sequences that begin with the same blocks of the cache: a device may read those once for all of them.
 *
 * Blocks are the same where the prefix cache gave them to several sequences. Of all rows, those are taken that save the most reads. */
#include "engine/batch.h"

enum { SHARING_ROWS_MIN = 4, SHARING_BLOCKS_MIN = 8, SHARING_TRIES = 8 };

/* The number of blocks with which both sequences begin, and which this step does not write. */
static int32_t count_common(const struct batch *b, int32_t i, int32_t j) {
    const struct step *s = &b->step;
    int32_t pos = s->seqs[i].pos < s->seqs[j].pos ? s->seqs[i].pos : s->seqs[j].pos, n = pos / KV_BLOCK;
    for (int32_t c = 0; c < kv_token_classes(&b->kv->layout); c++) {
        const int32_t *x = s->tables[c] + (int64_t)i * s->table_capacity, *y = s->tables[c] + (int64_t)j * s->table_capacity;
        int32_t k = 0;
        while (k < n && x[k] == y[k]) k++;
        n = k;
    }
    return n;
}

/* The best group that begins as sequence `leader` does: as many blocks as save the most reads. Fills b->common. Returns the reads that are saved. */
static int64_t try_leader(struct batch *b, int32_t leader, int32_t *out_blocks) {
    int32_t n = b->step.n_seqs;
    int64_t best = 0;
    for (int32_t i = 0; i < n; i++) b->common[i] = count_common(b, leader, i);
    for (int32_t i = 0; i < n; i++) {
        int32_t blocks = b->common[i], rows = 0;
        if (blocks < SHARING_BLOCKS_MIN || blocks == *out_blocks) continue;
        for (int32_t k = 0; k < n; k++) rows += b->common[k] >= blocks;
        if (rows < SHARING_ROWS_MIN || (int64_t)(rows - 1) * blocks <= best) continue;
        best = (int64_t)(rows - 1) * blocks;
        *out_blocks = blocks;
    }
    return best;
}

int32_t batch_find_sharing(struct batch *b) {
    struct step *s = &b->step;
    int32_t blocks = 0, leader = -1;
    int64_t best = 0;
    s->n_sharing = 0;
    if (!b->common || s->n_seqs < SHARING_ROWS_MIN) return 0;
    for (int32_t i = 0; i < s->n_seqs && i < SHARING_TRIES; i++) {
        if (leader >= 0 && count_common(b, leader, i) >= blocks) continue;
        int32_t n = 0;
        int64_t saved = try_leader(b, i, &n);
        if (saved > best) best = saved, blocks = n, leader = i;
    }
    if (leader < 0) return 0;
    for (int32_t i = 0; i < s->n_seqs; i++)
        if (count_common(b, leader, i) >= blocks) s->sharing[s->n_sharing++] = s->seqs[i].row;
    return blocks * KV_BLOCK;
}
