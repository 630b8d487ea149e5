/* Choosing on the GPU: the tables of what was said, masks of tokens, and the results on their way to the host. */
#include "backend/cuda/context/context.h"

static_assert(sizeof(struct k_choice) == sizeof(struct step_choice), "choices travel as they are");
static_assert(sizeof(struct k_chosen) == sizeof(struct step_chosen), "results come back as they are");
static_assert(sizeof(struct k_bias) == sizeof(struct choice_bias), "biases travel as they are");
static_assert((int)K_TOP_MAX == CHOICE_TOP_MAX && (int)K_BIAS_MAX == CHOICE_BIAS_MAX && (int)K_TOP_K_MAX == CHOICE_TOP_K_MAX,
              "the same limits");

/* ---- tables ----------------------------------------------------------------------------------------------------------- */

/* Graphs are dropped, because their kernels hold the addresses. */
static int open_tables(struct cuda *c, const struct choice_tables *t, struct err *err) {
    if (c->said) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "waiting for earlier steps");
    cuda_graphs_drop(c);
    TRY(cuda_alloc(c, (size_t)t->n_slots * (size_t)t->vocab * sizeof(uint32_t), "what was said", &c->said, err));
    return cuda_alloc(c, (size_t)t->n_slots * CHOICE_BIAS_MAX * sizeof(struct choice_bias), "biases", &c->biases, err);
}

static void count_tokens(const struct choice_tables *t, uint32_t *said) {
    int32_t first = t->last_n < 0 || t->last_n > t->n_history ? 0 : t->n_history - t->last_n;
    memset(said, 0, (size_t)t->vocab * sizeof *said);
    for (int32_t i = first; i < t->n_history; i++) /* tokens that stand for pictures are beyond the vocabulary */
        if (t->history[i] < t->vocab && (said[t->history[i]] & 0xffff) < 0xffff) said[t->history[i]]++;
    for (int32_t i = t->n_prompt; i < t->n_history; i++)
        if (said[t->history[i]] >> 16 < 0xffff) said[t->history[i]] += 0x10000;
}

int cuda_choice_begin(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    TRY(open_tables(c, t, err));
    size_t bytes = (size_t)t->vocab * sizeof(uint32_t), bias_bytes = (size_t)t->n_bias * sizeof *t->bias;
    if (bytes > BOUNCE_BYTES) return err_set(err, ERR_ELIMIT, "a vocabulary of %d is too large to count tokens of", t->vocab);
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "waiting for earlier steps"); /* they may still read the tables */
    count_tokens(t, (uint32_t *)(void *)c->bounce);
    TRY(cuda_upload(c, c->said + (size_t)slot * bytes, c->bounce, bytes, "what was said", err));
    if (t->n_bias == 0) return ERR_OK;
    return cuda_upload(c, c->biases + (size_t)slot * CHOICE_BIAS_MAX * sizeof *t->bias, t->bias, bias_bytes, "biases", err);
}

/* ---- masks ------------------------------------------------------------------------------------------------------------ */

static int open_masks(struct cuda *c, int32_t rows, int32_t words, struct err *err) {
    size_t bytes = (size_t)rows * (size_t)words * sizeof(uint32_t);
    if (c->masks) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "waiting for earlier steps");
    cuda_graphs_drop(c); /* their kernels hold the address */
    TRY(cuda_alloc(c, bytes, "masks of tokens", &c->masks, err));
    c->mask_words = words;
    for (int i = 0; i < STAGES; i++) {
        CUDA_TRY(c, c->d->cuMemHostAlloc((void **)&c->mask_stages[i].data, bytes, 0), "pinned memory for masks of tokens");
        CUDA_TRY(c, c->d->cuEventCreate(&c->mask_stages[i].copied, CU_EVENT_DISABLE_TIMING), "an event");
    }
    return ERR_OK;
}

int cuda_mask_room(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    TRY(open_masks(c, rows, words, err));
    c->i_mask_stage = (c->i_mask_stage + 1) % STAGES;
    struct cuda_stage *stage = &c->mask_stages[c->i_mask_stage];
    if (stage->busy) CUDA_TRY(c, c->d->cuEventSynchronize(stage->copied), "waiting for an earlier step");
    *out = (uint32_t *)(void *)stage->data;
    return ERR_OK;
}

int cuda_masks_send(struct cuda *c, const struct step *step, struct err *err) {
    struct cuda_stage *stage = &c->mask_stages[c->i_mask_stage];
    size_t bytes = (size_t)step->n_masks * (size_t)step->mask_words * sizeof *step->masks;
    if (step->n_masks == 0) return ERR_OK;
    CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(c->masks, step->masks, bytes, c->stream), "masks of tokens");
    CUDA_TRY(c, c->d->cuEventRecord(stage->copied, c->stream), "masks of tokens");
    stage->busy = true;
    return ERR_OK;
}

void cuda_masks_close(struct cuda *c) {
    cuda_free(c, &c->masks);
    for (int i = 0; i < STAGES; i++) {
        if (c->mask_stages[i].data) c->d->cuMemFreeHost(c->mask_stages[i].data);
        if (c->mask_stages[i].copied) c->d->cuEventDestroy(c->mask_stages[i].copied);
        c->mask_stages[i] = (struct cuda_stage){0};
    }
}

/* ---- results ---------------------------------------------------------------------------------------------------------- */

int cuda_choose_open(struct cuda *c, int32_t rows, struct err *err) {
    size_t bytes = (size_t)rows * sizeof(struct step_chosen);
    TRY(cuda_alloc(c, (size_t)rows * sizeof(int32_t), "chosen tokens", &c->chosen, err));
    TRY(cuda_alloc(c, 2 * (size_t)rows * sizeof(uint32_t), "counters of rows", &c->choose_counters, err));
    CUDA_TRY(c, c->d->cuMemsetD32Async(c->choose_counters, 0, 2 * (size_t)rows, c->stream), "counters of rows");
    for (int i = 0; i < RESULTS; i++) {
        CUDA_TRY(c, c->d->cuMemHostAlloc((void **)&c->results[i].data, bytes, 0), "pinned memory for chosen tokens");
        CUDA_TRY(c, c->d->cuEventCreate(&c->results[i].done, CU_EVENT_DISABLE_TIMING), "an event");
    }
    return ERR_OK;
}

void cuda_choose_close(struct cuda *c) {
    cuda_free(c, &c->chosen);
    cuda_free(c, &c->choose_counters);
    for (int i = 0; i < RESULTS; i++) {
        if (c->results[i].data) c->d->cuMemFreeHost(c->results[i].data);
        if (c->results[i].done) c->d->cuEventDestroy(c->results[i].done);
        c->results[i] = (struct cuda_result){0};
    }
}

/* The address of the step's records; 0 where the step only took the largest logits. */
static CUdeviceptr records_of(const struct cuda *c) {
    return c->key.chooses && c->n_outputs ? c->scratch + (size_t)c->outputs[c->n_outputs - 1].offset : 0;
}

int cuda_results_send(struct cuda *c, struct err *err) {
    struct cuda_result *r = &c->results[c->i_result];
    CUdeviceptr records = records_of(c);
    size_t each = records ? sizeof(struct step_chosen) : sizeof(int32_t);
    c->i_result = (c->i_result + 1) % RESULTS;
    r->n = c->key.n_logits;
    r->has_records = records != 0;
    if (r->n == 0) return ERR_OK;
    CUDA_TRY(c, c->d->cuMemcpyDtoHAsync(r->data, records ? records : c->chosen, (size_t)r->n * each, c->stream), "chosen tokens");
    CUDA_TRY(c, c->d->cuEventRecord(r->done, c->stream), "chosen tokens");
    return ERR_OK;
}

static int take_results(struct cuda *c, int32_t age, struct step_chosen *out, struct err *err) {
    const struct cuda_result *r = &c->results[(c->i_result - 1 - age + 2 * RESULTS) % RESULTS];
    TRY(cuda_use(c, err));
    if (r->n == 0) return ERR_OK;
    TRY(cuda_calls_wait(c, r->done, err));
    CUDA_TRY(c, c->d->cuEventSynchronize(r->done), "running a step");
    TRY(cuda_check_waits(c, err));
    if (r->has_records) memcpy(out, r->data, (size_t)r->n * sizeof *out);
    else
        for (int32_t i = 0; i < r->n; i++) out[i].token = ((const int32_t *)(const void *)r->data)[i];
    return ERR_OK;
}

int cuda_chosen(struct backend *be, int32_t age, struct step_chosen *out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    return cuda_note_lost(c, take_results(c, age, out, err));
}
