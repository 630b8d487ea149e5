/* Embeddings over the engine's runner: a sequence outside the schedule. */
#include "engine/embed.h"

#include <math.h>

enum { CHUNK = 128 };

struct embed {
    struct engine *engine;
    struct sequence seq;
    enum embed_pooling pooling;
    double *sum; /* [width] */
    float *rows; /* [CHUNK, width] */
};

int32_t embed_width(struct engine *e) {
    return (int32_t)engine_runner(e)->model->spec.hidden;
}

int embed_begin(struct engine *e, const int32_t *tokens, int32_t n_tokens, enum embed_pooling pooling, struct embed **out,
                struct err *err) {
    struct runner *r = engine_runner(e);
    struct embed *b = mem_alloc(sizeof *b);
    b->engine = e;
    b->pooling = pooling;
    if (!sequence_init(&b->seq, &r->kv, n_tokens)) {
        mem_free(b);
        return err_set(err, ERR_EBUSY, "all slots are busy");
    }
    for (int32_t i = 0; i < n_tokens; i++) sequence_append(&b->seq, tokens[i]);
    b->seq.n_prompt = n_tokens;
    b->sum = mem_alloc((size_t)embed_width(e) * sizeof *b->sum);
    b->rows = mem_alloc((size_t)CHUNK * (size_t)embed_width(e) * sizeof *b->rows);
    engine_invite(e, &b->seq);
    *out = b;
    return ERR_OK;
}

void embed_end(struct embed *b) {
    if (!b) return;
    engine_invite(b->engine, NULL);
    sequence_free(&b->seq, &engine_runner(b->engine)->kv);
    mem_free(b->sum);
    mem_free(b->rows);
    mem_free(b);
}

static int normalize(const struct embed *b, float *vector, struct err *err) {
    int32_t width = embed_width(b->engine);
    double square = 0;
    for (int32_t i = 0; i < width; i++) square += b->sum[i] * b->sum[i];
    if (!isfinite(square) || square <= 0) return err_set(err, ERR_EDEVICE, "the model gave no finite states");
    double scale = 1 / sqrt(square);
    for (int32_t i = 0; i < width; i++) vector[i] = (float)(b->sum[i] * scale);
    return ERR_OK;
}

int embed_step(struct embed *b, float *vector, bool *out_done, struct err *err) {
    struct runner *r = engine_runner(b->engine);
    int32_t width = embed_width(b->engine), n = b->seq.n_tokens - b->seq.n_done, most = r->limits.rows < CHUNK ? r->limits.rows : CHUNK;
    if (n > most) n = most;
    *out_done = false;
    if (b->seq.n_done == 0) { /* at first, and when its blocks were taken */
        memset(b->sum, 0, (size_t)width * sizeof *b->sum);
        if (!engine_fits(b->engine, b->seq.n_tokens)) return err_set(err, ERR_EBUSY, "the KV cache is full");
    }
    if (!engine_reserve(b->engine, &b->seq, n)) return err_set(err, ERR_EBUSY, "the KV cache is full");
    bool last = b->seq.n_done + n == b->seq.n_tokens;
    batch_clear(&r->batch);
    batch_add(&r->batch, &b->seq, n, b->pooling == EMBED_MEAN ? LOGITS_ALL : LOGITS_LAST);
    TRY(runner_run_hidden(r, b->rows, err));
    int32_t n_rows = b->pooling == EMBED_MEAN ? n : last ? 1 : 0;
    for (int32_t i = 0; i < n_rows; i++)
        for (int32_t k = 0; k < width; k++) b->sum[k] += (double)b->rows[(int64_t)i * width + k];
    sequence_advance(&b->seq, &r->kv, n);
    *out_done = last;
    return last ? normalize(b, vector, err) : ERR_OK;
}
