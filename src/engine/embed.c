/* Embeddings over the engine's runner: sequences outside the schedule. */
#include "engine/embed.h"

#include <assert.h>
#include <math.h>

enum { CHUNK = 128, TEXTS_MAX = 64 };

struct text {
    struct sequence seq;
    enum embed_pooling pooling;
    double *sum; /* [width] */
    float *vector;
    void *user;
    int32_t n_rows; /* in this step */
};

struct embed {
    struct engine *engine;
    embed_fn *on_done;
    struct text texts[TEXTS_MAX]; /* by age */
    int32_t n_texts, most_texts, most_rows;
    float *rows; /* [most_rows, width] */
};

int32_t embed_width(struct engine *e) {
    return (int32_t)engine_runner(e)->model->spec.hidden;
}

/* The youngest text that holds blocks loses them. */
static bool give_way(void *guest) {
    struct embed *b = guest;
    for (int32_t i = b->n_texts - 1; i >= 0; i--)
        if (b->texts[i].seq.n_done > 0) {
            sequence_drop(&b->texts[i].seq, &engine_runner(b->engine)->kv);
            return true;
        }
    return false;
}

struct embed *embed_open(struct engine *e, embed_fn *on_done) {
    const struct runner *r = engine_runner(e);
    struct embed *b = mem_alloc(sizeof *b);
    b->engine = e;
    b->on_done = on_done;
    b->most_rows = r->limits.rows < CHUNK ? r->limits.rows : CHUNK;
    b->most_texts = r->limits.seqs < TEXTS_MAX ? r->limits.seqs : TEXTS_MAX;
    if (r->kv.layout.n_states > 0) b->most_texts = 1; /* slots of recurrent state are for those who generate */
    b->rows = mem_alloc((size_t)b->most_rows * (size_t)embed_width(e) * sizeof *b->rows);
    engine_invite(e, give_way, b);
    return b;
}

/* ---- texts -------------------------------------------------------------------------------------------------------------- */

static void remove_text(struct embed *b, int32_t i) {
    sequence_free(&b->texts[i].seq, &engine_runner(b->engine)->kv);
    mem_free(b->texts[i].sum);
    memmove(&b->texts[i], &b->texts[i + 1], (size_t)(b->n_texts - i - 1) * sizeof *b->texts);
    b->n_texts--;
}

void embed_close(struct embed *b) {
    if (!b) return;
    engine_invite(b->engine, NULL, NULL);
    while (b->n_texts) remove_text(b, 0);
    mem_free(b->rows);
    mem_free(b);
}

void embed_drop(struct embed *b, const void *user) {
    for (int32_t i = b->n_texts - 1; i >= 0; i--)
        if (b->texts[i].user == user) remove_text(b, i);
}

void *embed_first(const struct embed *b) {
    return b->n_texts ? b->texts[0].user : NULL;
}

static int32_t next_rows(const struct embed *b, const struct text *t) {
    int32_t n = t->seq.n_tokens - t->seq.n_done;
    return n < b->most_rows ? n : b->most_rows;
}

bool embed_has_room(const struct embed *b) {
    int32_t n_rows = 0;
    for (int32_t i = 0; i < b->n_texts; i++) n_rows += next_rows(b, &b->texts[i]);
    return b->n_texts < b->most_texts && n_rows < b->most_rows;
}

int embed_add(struct embed *b, const struct embed_text *text, struct err *err) {
    assert(b->n_texts < TEXTS_MAX);
    struct text t = {.pooling = text->pooling, .vector = text->vector, .user = text->user};
    if (!sequence_init(&t.seq, &engine_runner(b->engine)->kv, text->n_tokens)) return err_set(err, ERR_EBUSY, "all slots are busy");
    for (int32_t i = 0; i < text->n_tokens; i++) sequence_append(&t.seq, text->tokens[i]);
    t.seq.n_prompt = text->n_tokens;
    t.sum = mem_alloc((size_t)embed_width(b->engine) * sizeof *t.sum);
    b->texts[b->n_texts++] = t;
    return ERR_OK;
}

/* ---- a step ------------------------------------------------------------------------------------------------------------- */

static bool find_blocks(struct embed *b, struct text *t, int32_t n_rows) {
    if (t->seq.n_done == 0 && !engine_fits(b->engine, t->seq.n_tokens)) return false;
    return engine_reserve(b->engine, &t->seq, n_rows);
}

/* The next chunk of every text, as far as rows and blocks last. */
static void plan(struct embed *b) {
    struct runner *r = engine_runner(b->engine);
    batch_clear(&r->batch);
    for (int32_t i = 0; i < b->n_texts; i++) {
        struct text *t = &b->texts[i];
        int32_t n = next_rows(b, t);
        t->n_rows = 0;
        if (n > b->most_rows - r->batch.step.n_rows || !find_blocks(b, t, n)) continue;
        if (t->seq.n_done == 0) memset(t->sum, 0, (size_t)embed_width(b->engine) * sizeof *t->sum); /* also after it gave way */
        t->n_rows = n;
        batch_add(&r->batch, &t->seq, n, t->pooling == EMBED_MEAN ? LOGITS_ALL : LOGITS_LAST);
    }
}

/* Adds the states of a text's rows; returns how many there are. */
static int32_t gather(struct embed *b, struct text *t, const float *rows) {
    int32_t width = embed_width(b->engine), n = t->pooling == EMBED_MEAN ? t->n_rows : 1;
    bool is_last = t->seq.n_done + t->n_rows == t->seq.n_tokens;
    for (int32_t i = 0; i < n && (is_last || t->pooling == EMBED_MEAN); i++)
        for (int32_t k = 0; k < width; k++) t->sum[k] += (double)rows[(int64_t)i * width + k];
    return n;
}

static int normalize(const struct embed *b, const struct text *t, struct err *err) {
    int32_t width = embed_width(b->engine);
    double square = 0;
    for (int32_t i = 0; i < width; i++) square += t->sum[i] * t->sum[i];
    if (!isfinite(square) || square <= 0) return err_set(err, ERR_EDEVICE, "the model gave no finite states");
    double scale = 1 / sqrt(square);
    for (int32_t i = 0; i < width; i++) t->vector[i] = (float)(t->sum[i] * scale);
    return ERR_OK;
}

static void collect(struct embed *b) {
    const float *rows = b->rows;
    struct err why;
    for (int32_t i = 0; i < b->n_texts;) {
        struct text *t = &b->texts[i];
        if (t->n_rows) rows += (int64_t)gather(b, t, rows) * embed_width(b->engine);
        sequence_advance(&t->seq, &engine_runner(b->engine)->kv, t->n_rows);
        if (t->seq.n_done < t->seq.n_tokens) {
            i++;
            continue;
        }
        int code = normalize(b, t, &why);
        void *user = t->user;
        remove_text(b, i);
        b->on_done(user, code ? &why : NULL);
    }
}

int embed_step(struct embed *b, struct err *err) {
    struct runner *r = engine_runner(b->engine);
    if (b->n_texts == 0) return ERR_OK;
    plan(b);
    while (r->batch.step.n_rows == 0 && give_way(b)) plan(b); /* texts that hold each other up */
    if (r->batch.step.n_rows == 0) return err_set(err, ERR_EBUSY, "the KV cache is full");
    TRY(runner_run_hidden(r, b->rows, err));
    collect(b);
    return ERR_OK;
}
