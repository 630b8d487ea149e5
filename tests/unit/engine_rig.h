/* An engine over a made-up model on the CPU, for the tests of src/engine. */
#ifndef TEST_ENGINE_RIG_H
#define TEST_ENGINE_RIG_H

#include "../backend_alone.h"
#include "unit.h"

#include "api/synth.h"
#include "engine/engine_internal.h"
#include "model/model.h"

struct rig {
    struct arena arena;
    struct backend *be;
    struct model model;
    struct engine *engine;
};

struct rig_options {
    int32_t n_threads, rows, seqs; /* 0: 2, 64, 8 */
    int32_t chunk, step_ms, max_step_ms, rows_max, n_logits;
    int64_t kv_tokens;
    int32_t kv_bits;
    bool no_fuse, prefix;
    bool dynamic;       /* a rope that follows the length, trained on 16 positions */
    const int32_t *eos; /* two tokens, or NULL */
    enum draft_from draft;
    uint64_t seed; /* of the weights; 0: 7 */
};

/* The made-up model with a rope that follows the length, trained on 16 positions. */
static inline const struct config *rig_dynamic_config(struct arena *a) {
    static const char text[] =
        "{\"model_type\":\"qwen3\",\"hidden_size\":128,\"intermediate_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":4096,\"max_position_embeddings\":16,\"tie_word_embeddings\":true,"
        "\"quantization\":{\"group_size\":64,\"bits\":4},\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":40.0}}";
    struct config *c = arena_new(a, struct config, 1);
    struct err err;
    CHECK_OK(config_parse(a, str_of(text), "config.json", c, &err), err);
    return c;
}

static inline void rig_open(struct rig *r, const struct rig_options *o) {
    struct err err;
    struct synth *synth;
    *r = (struct rig){0};
    struct backend_options be = {.precision = PRECISION_EXACT, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    CHECK_OK(backend_open_alone(&cpu_backend, &(struct device_options){.n_threads = o->n_threads ? o->n_threads : 2}, &be, &r->be, &err),
             err);
    r->be->device->step_ms = o->step_ms;
    r->be->rows_max = o->rows_max;
    CHECK_OK(synth_create(&r->arena, &(struct synth_args){.shape = STR("tiny"), .bits = 4, .seed = o->seed ? o->seed : 7}, &synth, &err),
             err);
    struct tensor_store store = synth_store(synth);
    const struct config *config = o->dynamic ? rig_dynamic_config(&r->arena) : synth_config(synth);
    CHECK_OK(model_open(&r->arena, r->be, config, &store, NULL, &r->model, &err), err);
    if (o->dynamic) r->model.spec.context = 512; /* as --ctx-size does */
    struct engine_options options = {
        .limits = {.rows = o->rows ? o->rows : 64, .seqs = o->seqs ? o->seqs : 8, .logits = o->n_logits, .kv_tokens = o->kv_tokens},
        .draft = o->draft,
        .prefix = o->prefix,
        .chunk = o->chunk,
        .max_step_ms = o->max_step_ms,
        .eos = o->eos,
        .n_eos = o->eos ? 2 : 0,
        .n_queue = -1};
    CHECK_OK(engine_open(&r->model, r->be, &options, &r->engine, &err), err);
}

static inline void rig_close(struct rig *r) {
    engine_close(r->engine);
    model_close(r->be, &r->model);
    backend_close(r->be);
    arena_free(&r->arena);
}

#endif
