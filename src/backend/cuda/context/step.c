/* The step block: what changes from step to step, packed into pinned memory and copied to a fixed address, one copy per step.
 *
 * Only the used part of each array travels. Where an array lies is a function of the key (rows, sequences, length bucket), so that kernel
 * arguments, and with them graphs, hold for every step of that key. */
#include "backend/cuda/context/context.h"

enum { STEP_ALIGN = 16, BUCKET_MIN = 256 };

int32_t cuda_length_bucket(int32_t len) {
    int32_t bucket = BUCKET_MIN;
    while (bucket < len && bucket < 1 << 30) bucket *= 2;
    return bucket;
}

static size_t cut(size_t *used, size_t bytes) {
    size_t at = *used;
    *used = (at + bytes + STEP_ALIGN - 1) / STEP_ALIGN * STEP_ALIGN;
    return at;
}

void cuda_step_layout(const struct cuda *c, const struct step_key *key, struct step_layout *out) {
    size_t used = 0, rows = (size_t)key->n_rows * sizeof(int32_t), seqs = (size_t)key->n_seqs;
    out->table_stride = cuda_length_bucket(key->max_len) / K_BLOCK;
    out->ids = cut(&used, rows);
    out->pos = cut(&used, rows);
    out->seq_of = cut(&used, rows);
    out->wanted_rows = cut(&used, (size_t)(key->n_logits + key->n_hidden) * sizeof(int32_t));
    out->seqs = cut(&used, seqs * sizeof(struct k_seq));
    out->sharing = cut(&used, key->shared_len ? 2 * sizeof(int32_t) + rows : 0);
    out->shared_of = cut(&used, key->shared_len ? rows : 0);
    out->choices = cut(&used, key->chooses ? (size_t)key->n_logits * sizeof(struct k_choice) : 0);
    out->rope = cut(&used, seqs * (size_t)c->n_rope_tables * (size_t)c->rope_width * sizeof(float));
    out->tiles = cut(&used, ((size_t)key->n_rows / FLASH_ROWS + seqs) * 2 * sizeof(int32_t));
    out->adapters = cut(&used, key->adapts ? seqs * (size_t)c->n_adapters * sizeof(float) : 0);
    out->given = cut(&used, key->gives ? rows * GIVEN_SETS : 0);
    out->places = cut(&used, key->has_places ? rows * STEP_AXES : 0);
    out->until = cut(&used, key->sees ? rows : 0);
    for (int i = 0; i < 2; i++) out->spans[i] = cut(&used, key->has_spans ? 2 * rows : 0);
    for (int32_t i = 0; i < c->layout.n_classes; i++) out->tables[i] = cut(&used, seqs * (size_t)out->table_stride * sizeof(int32_t));
    out->bytes = used;
}

int cuda_step_open(struct cuda *c, const struct step *step, struct err *err) {
    c->n_rope_tables = step->n_rope_tables;
    c->rope_width = step->rope_width;
    c->n_adapters = step->n_adapters;
    struct step_key most = {.n_rows = step->rows_capacity,
                            .n_seqs = step->seqs_capacity,
                            .n_logits = step->rows_capacity,
                            .max_len = step->table_capacity * K_BLOCK,
                            .chooses = CHOICE_ALL,
                            .adapts = true,
                            .gives = true,
                            .shared_len = KV_BLOCK,
                            .has_places = true,
                            .sees = true,
                            .has_spans = true};
    struct step_layout layout;
    cuda_step_layout(c, &most, &layout);
    if (layout.bytes <= c->step_capacity) return ERR_OK;
    cuda_graphs_drop(c);
    cuda_step_close(c);
    TRY(cuda_alloc(c, layout.bytes, "the data of a step", &c->step_block, err));
    for (int i = 0; i < STAGES; i++) {
        struct cuda_stage *s = &c->stages[i];
        CUDA_TRY(c, c->d->cuMemHostAlloc((void **)&s->data, layout.bytes, 0), "pinned memory for the data of a step");
        CUDA_TRY(c, c->d->cuEventCreate(&s->copied, CU_EVENT_DISABLE_TIMING), "an event");
    }
    c->step_capacity = layout.bytes;
    return cuda_choose_open(c, step->rows_capacity, err);
}

void cuda_step_close(struct cuda *c) {
    cuda_choose_close(c);
    cuda_free(c, &c->step_block);
    for (int i = 0; i < STAGES; i++) {
        struct cuda_stage *s = &c->stages[i];
        if (s->data) c->d->cuMemFreeHost(s->data);
        if (s->copied) c->d->cuEventDestroy(s->copied);
        *s = (struct cuda_stage){0};
    }
    c->step_capacity = 0;
}

/* Block tables, of each sequence as many entries as it has blocks; of pictures all that a step of this key can have. */
static void pack_tables(const struct cuda *c, const struct step *step, unsigned char *data) {
    for (int32_t i = 0; i < c->layout.n_classes; i++)
        for (int32_t s = 0; s < step->n_seqs; s++) {
            int32_t n = (step->seqs[s].pos + step->seqs[s].n_rows + K_BLOCK - 1) / K_BLOCK;
            if (c->layout.classes[i].picture_rows)
                n = c->at.table_stride < step->table_capacity ? c->at.table_stride : step->table_capacity;
            memcpy(data + c->at.tables[i] + (size_t)s * (size_t)c->at.table_stride * sizeof(int32_t),
                   step->tables[i] + (int64_t)s * step->table_capacity, (size_t)n * sizeof(int32_t));
        }
}

/* Rows that the host gives are numbered in each set. */
static void pack_given(const struct cuda *c, const struct step *step, unsigned char *data) {
    int32_t *at = (int32_t *)(data + c->at.given);
    for (int k = 0; k < GIVEN_SETS && c->key.gives; k++)
        for (int32_t r = 0, next = 0; r < step->n_rows; r++) *at++ = step->given[k] && step->given[k][r] ? next++ : -1;
}

/* Rows that have blocks in common, and of each row how many positions. */
static void pack_sharing(const struct cuda *c, const struct step *step, unsigned char *data) {
    int32_t *sharing = (int32_t *)(data + c->at.sharing), *shared_of = (int32_t *)(data + c->at.shared_of);
    if (!c->key.shared_len) return;
    sharing[0] = step->n_sharing, sharing[1] = c->key.shared_len;
    memset(shared_of, 0, (size_t)step->n_rows * sizeof *shared_of);
    for (int32_t i = 0; i < step->n_sharing; i++) sharing[2 + i] = step->sharing[i], shared_of[step->sharing[i]] = c->key.shared_len;
}

/* Where rows lie, and what they see. Places of text are the same along all axes: one of them is all that a decode step needs. */
static void pack_places(const struct cuda *c, const struct step *step, unsigned char *data) {
    size_t rows = (size_t)step->n_rows * sizeof(int32_t);
    int32_t *places = (int32_t *)(data + c->at.places);
    bool is_text = c->key.decode_only && !c->key.gives;
    if (c->key.has_places && !is_text) memcpy(places, step->places, rows * STEP_AXES);
    for (int64_t r = 0; c->key.has_places && is_text && r < step->n_rows; r++) places[r] = step->places[r * STEP_AXES];
    if (c->key.sees) memcpy(data + c->at.until, step->until, rows);
    for (int i = 0; i < 2 && c->key.has_spans; i++) memcpy(data + c->at.spans[i], step->spans[i], 2 * rows);
}

/* Cuts prompt rows into tiles; a tile has rows of one sequence. Sequences with one row come first and get none: the decode kernels take them. */
static void pack_tiles(struct cuda *c, const struct step *step, unsigned char *data) {
    int32_t *tiles = (int32_t *)(data + c->at.tiles), s = 0;
    c->n_tiles = 0;
    while (s < step->n_seqs && step->seqs[s].n_rows == 1) s++;
    c->n_decode = s;
    for (; s < step->n_seqs; s++)
        for (int32_t first = 0; first < step->seqs[s].n_rows; first += FLASH_ROWS, c->n_tiles++) {
            tiles[2 * c->n_tiles] = s;
            tiles[2 * c->n_tiles + 1] = first;
        }
}

int cuda_step_upload(struct cuda *c, const struct step *step, struct err *err) {
    if (c->key.same_step) return ERR_OK;
    struct cuda_stage *stage = &c->stages[c->i_stage];
    c->i_stage = (c->i_stage + 1) % STAGES;
    if (stage->busy) CUDA_TRY(c, c->d->cuEventSynchronize(stage->copied), "waiting for an earlier step");
    unsigned char *data = stage->data;
    size_t rows = (size_t)step->n_rows * sizeof(int32_t);
    memcpy(data + c->at.ids, step->ids, rows);
    memcpy(data + c->at.pos, step->pos, rows);
    memcpy(data + c->at.seq_of, step->seq_of, rows);
    memcpy(data + c->at.wanted_rows, step->wanted_rows, (size_t)step->n_wanted * sizeof(int32_t));
    memcpy(data + c->at.seqs, step->seqs, (size_t)step->n_seqs * sizeof *step->seqs);
    if (c->key.chooses) memcpy(data + c->at.choices, step->choices, (size_t)step->n_logits * sizeof *step->choices);
    size_t ropes = (size_t)step->n_seqs * (size_t)step->n_rope_tables * (size_t)step->rope_width;
    if (ropes) memcpy(data + c->at.rope, step->rope, ropes * sizeof(float));
    if (c->key.adapts) memcpy(data + c->at.adapters, step->adapters, (size_t)step->n_seqs * (size_t)c->n_adapters * sizeof(float));
    pack_sharing(c, step, data);
    pack_given(c, step, data);
    pack_places(c, step, data);
    pack_tables(c, step, data);
    pack_tiles(c, step, data);
    CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(c->step_block, data, c->at.bytes, c->stream), "copying the data of a step");
    CUDA_TRY(c, c->d->cuEventRecord(stage->copied, c->stream), "copying the data of a step");
    stage->busy = true;
    return cuda_masks_send(c, step, err);
}
