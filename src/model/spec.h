/* The resolved description of a model: what config.json and the family's row say together, per layer.
 *
 * A family (families.h) is one row of a table that holds only what config.json does not say; spec_resolve joins the two
 * once, and nothing after it looks at model_type or config keys. Zero means Llama.
 */
#ifndef MLXCEL_MODEL_SPEC_H
#define MLXCEL_MODEL_SPEC_H

#include "backend/backend.h"
#include "model/cfg.h"

enum mixer_kind { MIX_ATTENTION, MIX_LATENT, MIX_DELTA, MIX_SSD, MIX_SCAN, MIX_CONV, MIX_LIGHTNING, MIX_NONE, N_MIXERS };
enum ffn_kind { FFN_GATED, FFN_PLAIN /* up, activation, down */, FFN_EXPERTS, FFN_NONE };

/* How a block wires its norms around mixer and feed-forward. */
enum wiring {
    WIRE_PRE = 0,      /* x + f(norm(x)) */
    WIRE_POST = 1,     /* x + norm(f(x)) */
    WIRE_PRE_POST = 2, /* x + norm(f(norm(x))) */
    WIRE_PARALLEL = 3, /* x + mixer(norm(x)) + ffn(norm(x)) */
};

enum qk_norm { QK_NONE, QK_HEAD /* one weight for all heads */, QK_FULL /* over all heads together */, QK_PER_HEAD /* own weight per head */ };

enum rope_scaling { SCALE_NONE, SCALE_LINEAR, SCALE_DYNAMIC, SCALE_YARN, SCALE_LLAMA3, SCALE_LONGROPE, SCALE_PROPORTIONAL };

enum { ROPE_TABLES_MAX = 4 };

/* One table of inverse frequencies. Layers with equal parameters share it. */
struct rope_spec {
    enum rope_kind kind;
    enum rope_scaling scaling;
    int32_t n_rotated, first;
    float theta, magnitude;
    float *inv_freq;      /* [n_rotated / 2]; for lengths within the original context */
    float *long_freq;     /* longrope: beyond it */
    int32_t original_len; /* dynamic, longrope: where the table begins to depend on the length */
    float factor;
    int32_t table;        /* index among the step's tables; -1: fixed for all lengths */
    struct weight *bound; /* inv_freq on the device */
};

struct attn_spec {
    int32_t heads, kv_heads, k_width, v_width;
    int32_t window, chunk;
    float scale, softcap;
    enum qk_norm qk_norm;
    int32_t rope; /* index into spec.ropes; -1: no positions here */
};

struct layer_spec {
    enum mixer_kind mixer;
    enum ffn_kind ffn;
    struct attn_spec attn;
    struct kv_ref kv;
    int32_t inner; /* width of the feed-forward */
};

struct norm_spec {
    enum norm_kind kind;
    float eps, weight_offset;
};

struct family;

struct spec {
    const struct family *family;
    int32_t n_layers, hidden, vocab, context;
    bool tied;
    float embed_scale, logit_scale, logit_softcap, residual_scale;
    struct norm_spec norm;
    enum wiring wiring;
    struct act_args act;
    struct layer_spec *layers; /* [n_layers] */
    struct rope_spec ropes[ROPE_TABLES_MAX];
    int32_t n_ropes, n_rope_tables; /* tables that depend on the length */
    struct kv_layout kv;            /* classes; the engine fills in block and slot counts */
};

/* Joins the config with its family's row. Unknown model types are refused by name, with the nearest known ones. */
int spec_resolve(struct arena *a, const struct config *config, struct spec *out, struct err *err);

/* ---- rope ------------------------------------------------------------------------------------------------------- */

/* Fills a table from the config's rope parameters; head_dim is the width of a head. */
int rope_resolve(struct arena *a, const struct config *config, const struct config_rope *params, int32_t head_dim, struct rope_spec *out,
                 struct err *err);
/* The inverse frequencies for a sequence of `len` positions, where they depend on it. */
void rope_table_at(const struct rope_spec *r, int32_t len, float *out);

#endif
