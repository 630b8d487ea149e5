/* engine/sharing.c: which rows of a decode step begin with the same blocks. */
#include "unit.h"

#include "engine/batch.h"

enum { SEQS = 8, BLOCKS = 40 };

struct room {
    struct batch b;
    struct kv kv;
    struct step_seq seqs[SEQS];
    int32_t table[2][SEQS][BLOCKS], sharing[SEQS], common[SEQS];
};

/* Sequences of n blocks and a bit, which have nothing in common. */
static void apart(struct room *r, int32_t n_seqs, int32_t n_blocks) {
    *r = (struct room){0};
    r->kv.layout.n_classes = 2;
    r->b.kv = &r->kv, r->b.common = r->common;
    struct step *s = &r->b.step;
    s->n_rows = s->n_seqs = n_seqs, s->table_capacity = BLOCKS, s->seqs = r->seqs, s->sharing = r->sharing;
    for (int32_t i = 0; i < n_seqs; i++) {
        r->seqs[i] = (struct step_seq){.row = i, .n_rows = 1, .pos = n_blocks * KV_BLOCK + 5};
        for (int32_t c = 0; c < 2; c++)
            for (int32_t k = 0; k < BLOCKS; k++) r->table[c][i][k] = 1000 * (c + 1) + i * BLOCKS + k;
    }
    for (int32_t c = 0; c < 2; c++) s->tables[c] = &r->table[c][0][0];
}

/* Sequence i begins as sequence j does, for n blocks. */
static void begin_alike(struct room *r, int32_t i, int32_t j, int32_t n) {
    for (int32_t c = 0; c < 2; c++) memcpy(r->table[c][i], r->table[c][j], (size_t)n * sizeof(int32_t));
}

static void groups(void) {
    static struct room r;
    apart(&r, SEQS, 30);
    CHECK_INT(batch_find_sharing(&r.b), 0);
    CHECK_INT(r.b.step.n_sharing, 0);
    for (int32_t i = 2; i < SEQS; i++) begin_alike(&r, i, 1, 20);
    CHECK_INT(batch_find_sharing(&r.b), 20 * KV_BLOCK); /* all but the first */
    CHECK_INT(r.b.step.n_sharing, SEQS - 1);
    CHECK_INT(r.sharing[0], 1);
    begin_alike(&r, 7, 0, 9); /* one leaves */
    CHECK_INT(batch_find_sharing(&r.b), 20 * KV_BLOCK);
    CHECK_INT(r.b.step.n_sharing, SEQS - 2);
    r.table[1][3][10] = 7; /* in one class of the cache they part earlier: more rows are worth less than more blocks */
    CHECK_INT(batch_find_sharing(&r.b), 20 * KV_BLOCK);
    CHECK_INT(r.b.step.n_sharing, SEQS - 3);
    for (int32_t i = 2; i < 7; i++) r.table[0][i][11 + i] = 7; /* all differ: as many blocks as save the most */
    CHECK_INT(batch_find_sharing(&r.b), 13 * KV_BLOCK);
    CHECK_INT(r.b.step.n_sharing, 5);
}

/* The block that a step writes belongs to one sequence, few rows or blocks are not worth it, and a device that does not ask gets nothing. */
static void limits(void) {
    static struct room r;
    apart(&r, SEQS, 8);
    for (int32_t i = 1; i < SEQS; i++) begin_alike(&r, i, 0, 9);
    CHECK_INT(batch_find_sharing(&r.b), 8 * KV_BLOCK);
    r.seqs[2].pos = 8 * KV_BLOCK - 1;
    CHECK_INT(batch_find_sharing(&r.b), 8 * KV_BLOCK);
    CHECK_INT(r.b.step.n_sharing, SEQS - 1);
    r.b.step.n_seqs = 3;
    CHECK_INT(batch_find_sharing(&r.b), 0);
    r.b.step.n_seqs = SEQS, r.b.common = NULL;
    CHECK_INT(batch_find_sharing(&r.b), 0);
    apart(&r, SEQS, 30);
    for (int32_t i = 1; i < SEQS; i++) begin_alike(&r, i, 0, 7);
    CHECK_INT(batch_find_sharing(&r.b), 0);
}

static const struct unit_case cases[] = {{"groups", groups}, {"limits", limits}, {0}};
const struct unit_suite unit_sharing = {"sharing", cases};
