/* The step block: one allocation cut into arrays; rows are filled sequence by sequence. */
#include "engine/batch.h"

#include "model/spec.h"

#include <assert.h>

static size_t cut(size_t *used, size_t bytes) {
    size_t at = *used;
    *used = (at + bytes + 255) / 256 * 256;
    return at;
}

int batch_init(struct batch *b, const struct spec *spec, struct kv *kv, const struct batch_limits *limits, struct err *err) {
    *b = (struct batch){.spec = spec, .kv = kv, .n_given = limits->given, .is_prefix = limits->is_prefix};
    struct step *s = &b->step;
    s->rows_capacity = limits->rows;
    s->seqs_capacity = limits->seqs;
    s->table_capacity = (limits->context + KV_BLOCK - 1) / KV_BLOCK + 1;
    s->n_rope_tables = spec->n_rope_tables;
    for (int32_t i = 0; i < spec->n_ropes; i++)
        if (spec->ropes[i].n_rotated / 2 > s->rope_width) s->rope_width = spec->ropes[i].n_rotated / 2;
    size_t rows = (size_t)limits->rows * sizeof(int32_t), seqs = (size_t)limits->seqs, used = 0;
    size_t ids = cut(&used, rows), pos = cut(&used, rows), seq_of = cut(&used, rows), wanted = cut(&used, rows);
    size_t seq = cut(&used, seqs * sizeof(struct step_seq)), sharing = cut(&used, seqs * sizeof(int32_t));
    size_t choices = cut(&used, (size_t)limits->logits * sizeof(struct step_choice));
    size_t tables = cut(&used, seqs * (size_t)s->table_capacity * (size_t)kv->layout.n_classes * sizeof(int32_t));
    size_t places = cut(&used, limits->given ? rows * STEP_AXES : 0);
    size_t until = cut(&used, limits->given || limits->is_prefix ? rows : 0);
    size_t given = cut(&used, (size_t)limits->rows * (size_t)limits->given * sizeof(float *));
    s->n_adapters = limits->adapters;
    size_t adapters = cut(&used, seqs * (size_t)s->n_adapters * sizeof(float));
    size_t rope = cut(&used, seqs * (size_t)s->n_rope_tables * (size_t)s->rope_width * sizeof(float));
    s->block = mem_try(used);
    b->hidden_rows = mem_try(rows);
    b->common = limits->reads_shared ? mem_try(seqs * sizeof(int32_t)) : NULL;
    if (!s->block || !b->hidden_rows || (limits->reads_shared && !b->common))
        return err_set(err, ERR_EMEMORY, "no memory for batches of %d rows and %d sequences", limits->rows, limits->seqs);
    s->block_bytes = used;
    unsigned char *p = s->block;
    s->ids = (int32_t *)(p + ids);
    s->pos = (int32_t *)(p + pos);
    s->seq_of = (int32_t *)(p + seq_of);
    s->wanted_rows = (int32_t *)(p + wanted);
    s->seqs = (struct step_seq *)(p + seq);
    s->sharing = (int32_t *)(p + sharing);
    s->places = (int32_t *)(p + places);
    b->until = (int32_t *)(p + until);
    for (int32_t i = 0; i < limits->given; i++) s->given[i] = (const float **)(p + given) + (size_t)i * (size_t)limits->rows;
    s->choices = (struct step_choice *)(p + choices);
    s->adapters = (float *)(p + adapters);
    s->rope = (float *)(p + rope);
    for (int32_t c = 0; c < kv->layout.n_classes; c++)
        s->tables[c] = (int32_t *)(p + tables) + (size_t)c * seqs * (size_t)s->table_capacity;
    return ERR_OK;
}

void batch_free(struct batch *b) {
    mem_free(b->step.block);
    mem_free(b->hidden_rows);
    mem_free(b->common);
    *b = (struct batch){0};
}

void batch_clear(struct batch *b) {
    b->step.n_rows = b->step.n_seqs = b->step.n_logits = b->step.n_wanted = 0;
    b->max_len = b->n_hidden = 0;
    b->chooses = 0;
    b->adapts = b->gives = b->has_places = b->sees = false;
}

/* The length whose rope table the rows get. Rows of the prompt get the table of the whole prompt, however it is cut into chunks; a row of the answer
 * gets the table of the length at that row. */
static int32_t rope_length(const struct sequence *s, int32_t n_rows) {
    int32_t len = s->n_done + n_rows;
    int32_t whole = s->rope_len > s->n_prompt ? s->rope_len : s->n_prompt;
    return len > whole ? len : whole;
}

static void fill_rope(struct batch *b, int32_t i_seq, int32_t len) {
    struct step *s = &b->step;
    for (int32_t i = 0; i < b->spec->n_ropes; i++) {
        const struct rope_spec *r = &b->spec->ropes[i];
        if (r->table >= 0) rope_table_at(r, len, s->rope + ((int64_t)i_seq * s->n_rope_tables + r->table) * s->rope_width);
    }
}

static void fill_adapters(struct batch *b, int32_t i_seq, const struct sequence *seq) {
    float *to = b->step.adapters + (int64_t)i_seq * b->step.n_adapters;
    for (int32_t i = 0; i < b->step.n_adapters; i++) to[i] = seq->adapters ? seq->adapters[i] : 0.0f;
    b->adapts |= seq->adapters != NULL;
}

/* If the token at this position belongs to a picture, the picture's numbers take the place of its embedding. */
static void fill_given(struct batch *b, const struct sequence *seq, int32_t position, int32_t row) {
    for (int32_t k = 0; k < b->n_given; k++) b->step.given[k][row] = NULL;
    b->until[row] = -1;
    for (int32_t i = 0; i < seq->n_pictures; i++) {
        const struct picture_rows *p = &seq->pictures[i];
        if (position < p->first || position >= p->first + p->n) continue;
        for (int32_t k = 0; k < b->n_given; k++)
            if (p->rows[k]) b->step.given[k][row] = p->rows[k] + (int64_t)(position - p->first) * b->spec->hidden;
        b->gives = true;
        if (!p->both_ways) continue;
        b->until[row] = p->first + p->n - 1;
        b->sees = true;
    }
}

static void fill_places(struct batch *b, const struct sequence *seq, int32_t position, int32_t row) {
    for (int k = 0; k < STEP_AXES; k++)
        b->step.places[row * STEP_AXES + k] =
            seq->places && position < seq->n_prompt ? seq->places[position * STEP_AXES + k] : position + seq->place_shift;
    b->has_places |= seq->places != NULL;
}

void batch_add(struct batch *b, const struct sequence *seq, int32_t n_rows, int32_t first_wanted, bool wants_hidden) {
    struct step *s = &b->step;
    assert(s->n_rows + n_rows <= s->rows_capacity && s->n_seqs < s->seqs_capacity && seq->n_done + n_rows <= seq->n_tokens);
    int32_t i_seq = s->n_seqs++;
    s->seqs[i_seq] = (struct step_seq){.row = s->n_rows,
                                       .n_rows = n_rows,
                                       .pos = seq->n_done,
                                       .slot = seq->slot,
                                       .rope_len = rope_length(seq, n_rows),
                                       .starts = seq->n_done == 0};
    for (int32_t c = 0; c < b->kv->layout.n_classes; c++)
        memcpy(s->tables[c] + (int64_t)i_seq * s->table_capacity, seq->tables[c], (size_t)seq->n_blocks[c] * sizeof(int32_t));
    fill_rope(b, i_seq, s->seqs[i_seq].rope_len);
    fill_adapters(b, i_seq, seq);
    for (int32_t i = 0; i < n_rows; i++) {
        int32_t r = s->n_rows++;
        s->ids[r] = seq->tokens[seq->n_done + i];
        s->pos[r] = seq->n_done + i;
        s->seq_of[r] = i_seq;
        if (b->n_given) fill_given(b, seq, s->pos[r], r), fill_places(b, seq, s->pos[r], r);
        if (b->is_prefix) b->until[r] = s->pos[r] < seq->n_prompt ? seq->n_prompt - 1 : -1, b->sees = true;
        if (i < first_wanted) continue;
        if (wants_hidden) b->hidden_rows[b->n_hidden++] = r;
        else s->wanted_rows[s->n_logits++] = r;
    }
    if (seq->n_done + n_rows > b->max_len) b->max_len = seq->n_done + n_rows;
}

struct step_key batch_seal(struct batch *b) {
    struct step *s = &b->step;
    if (b->n_hidden) memcpy(s->wanted_rows + s->n_logits, b->hidden_rows, (size_t)b->n_hidden * sizeof *b->hidden_rows);
    s->n_wanted = s->n_logits + b->n_hidden;
    s->until = b->sees ? b->until : NULL;
    bool decode_only = s->n_rows == s->n_seqs && b->n_hidden == 0;
    return (struct step_key){.n_rows = s->n_rows,
                             .n_seqs = s->n_seqs,
                             .n_logits = s->n_logits,
                             .n_hidden = b->n_hidden,
                             .max_len = b->max_len,
                             .decode_only = decode_only,
                             .shared_len = decode_only ? batch_find_sharing(b) : 0,
                             .chooses = b->chooses,
                             .adapts = b->adapts,
                             .gives = b->gives,
                             .has_places = b->has_places,
                             .sees = b->sees};
}
