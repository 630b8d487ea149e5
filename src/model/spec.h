/* The resolved description of a model: what config.json and the family's row say together, per layer.
 *
 * A family (families.h) is one row of a table that holds only what config.json does not say; spec_resolve joins the two
 * once, and nothing after it looks at model_type or config keys. Zero means Llama.
 *
 * (1) A spec is made in two steps: spec_resolve reads config.json, and weights_bind, before it binds anything, adds what only the
 *     checkpoint shows (the settle functions of mixer.h). From then on it is const.
 * (2) The forward pass reads the spec and never the family's row: what it needs of the row is in the spec.
 */
#ifndef MLXCEL_MODEL_SPEC_H
#define MLXCEL_MODEL_SPEC_H

#include "backend/backend.h"
#include "model/cfg.h"
#include "model/cut.h"

/* What a layer mixes positions with; mixer.h holds the functions. */
enum mixer_kind {
    MIX_ATTENTION,
    MIX_LATENT,
    MIX_DELTA,
    MIX_SSD,
    MIX_SCAN,
    MIX_CONV,
    MIX_LIGHTNING,
    MIX_LRU,
    MIX_SHARED,
    MIX_WKV,
    MIX_EXCHANGE,
    MIX_MLSTM,
    MIX_COMPRESSED,
    MIX_CROSS,
    MIX_NONE,
    N_MIXERS
};
enum ffn_kind { FFN_GATED, FFN_PLAIN /* up, activation, down */, FFN_EXPERTS, FFN_NONE };

/* How a block wires its norms around mixer and feed-forward. */
enum wiring {
    WIRE_PRE,          /* x + f(norm(x)) */
    WIRE_POST,         /* x + norm(f(x)) */
    WIRE_PRE_POST,     /* x + norm(f(norm(x))) */
    WIRE_SUM_NORM,     /* norm(x + f(x)) */
    WIRE_NORM_FIRST,   /* n = norm(x): n + f(n) */
    WIRE_PARALLEL,     /* n = norm(x): x + mixer(n) + ffn(n) */
    WIRE_PARALLEL_TWO, /* x + mixer(norm(x)) + ffn(other_norm(x)) */
};

enum qk_norm {
    QK_NONE,
    QK_HEAD /* one weight for all heads */,
    QK_FULL /* over all heads together */,
    QK_PER_HEAD /* own weight per head */
};

enum rope_scaling { SCALE_NONE, SCALE_LINEAR, SCALE_DYNAMIC, SCALE_YARN, SCALE_LLAMA3, SCALE_LONGROPE, SCALE_PROPORTIONAL, SCALE_FACTORS };

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
    float pos_scale_beta; /* queries grow with the position (struct attn_args) */
    int32_t pos_scale_len;
    float score_scale;  /* what the scaling asks of the attention scores (1 for most) */
    int32_t table;      /* index among the step's tables; -1: fixed for all lengths */
    const int8_t *axes; /* [n_rotated / 2] along which of time, height and width a pair turns, where rows have places; NULL: by position */
};

enum attn_gate {
    ATTN_GATE_NONE,
    ATTN_GATE_IN_Q, /* q_proj gives queries and gates, head by head */
    ATTN_GATE_OWN,  /* a projection of its own, a number per channel */
    ATTN_GATE_HEAD  /* the same, a number per head */
};

struct attn_spec {
    int32_t heads, kv_heads, k_width, v_width;
    int32_t window, chunk;
    float scale, softcap;
    enum qk_norm qk_norm;
    bool has_key_bias;    /* scores get a number by their key: keys have two more elements in the cache */
    bool v_is_k;          /* values are the keys before their norm and rope */
    int32_t rope;         /* index into spec.ropes; -1: no positions here */
    float pos_scale_beta; /* queries grow with the position (struct attn_args) */
    int32_t pos_scale_len, pos_scale_first;
    float clip;          /* of q, k and v; 0: none */
    float v_scale;       /* values are multiplied by it */
    bool has_slopes;     /* scores fall with the distance, in each head by a slope of its own */
    bool slopes_in_bf16; /* they and their products with positions are rounded, and scaled like the scores */
    bool qk_norm_last;   /* queries and keys are normed after their rope */
    bool v_norm;         /* values are normed, without weights */
    enum attn_gate gate; /* the result is multiplied by sigmoid(gate) */
};

/* Attention over a compressed cache: [latent | rotated key] is all that is kept of a position. */
struct latent_spec {
    int32_t q_rank;                       /* 0: queries are projected directly */
    int32_t kv_rank, nope, rope, v_width; /* widths */
    float norm_eps;
    float scale;                               /* of the latent behind its norm */
    float index_eps;                           /* of the norm of the index's keys */
    bool index_turns_last;                     /* the last part of the index's heads has positions, not the first */
    enum rope_kind index_rope;                 /* of the index; 0: the heads' */
    int32_t index_heads, index_width, index_k; /* attention sees so many positions, which an index of its own chooses; 0: it sees all */
};

/* Blocks of attention and feed-forward that layers take turns in; each use has small matrices of its own beside the block's. */
struct shared_spec {
    int32_t n_blocks, rank;
    bool has_qkv_ranks; /* beside queries, keys and values too, not the feed-forward alone */
};

/* A second, narrow embedding of every token, one slice per layer; and experts beside the dense feed-forward. */
struct per_layer_spec {
    int32_t width, vocab; /* 0: no second embedding */
    bool has_experts;
};

/* Several residual streams, of which one passes through the layers and the others follow. */
struct streams_spec {
    int32_t n, active, laurel_rank;
    bool scale;
    bool blends;          /* and are mixed with each other */
    int32_t rounds;       /* of making the weights of that sum up to 1, both ways */
    float eps, magnitude; /* where all take part: added to their weights; factor of what is added to each */
};

/* Attention to compressed entries beside a window. */
struct compressed_spec {
    int32_t width, q_rank;
    int32_t groups, group_rank; /* of the result: heads together, each group with a narrow product of its own */
    int32_t index_heads, index_width, index_k;
    int32_t ropes[2]; /* of layers with a window alone, and of the others; the negative of each stands behind it */
};

struct layer_spec {
    char kind; /* the pattern's letter */
    enum wiring wiring;
    enum mixer_kind mixer;
    enum ffn_kind ffn;
    struct attn_spec attn;
    struct kv_ref kv;
    struct kv_ref index_kv;    /* keys of the index */
    bool borrows_picks;        /* an earlier layer chose the positions that are seen here */
    bool is_unnormed;          /* there is no norm before the mixer */
    bool borrows_kv;           /* an earlier layer wrote the keys and values that are read here */
    int32_t inner;             /* width of the feed-forward */
    float limit, expert_limit; /* of the gated feed-forward, dense or shared, and of experts (ACT_LIMITED_SWIGLU); 0: none */
    bool is_cut;               /* gates are 0 below mean + cut * deviation */
    float cut;
    struct kv_ref more_kv; /* entries that stand for `every` positions each; 0: there are none */
    int32_t every;
    bool picks_entries;  /* an index chooses among them */
    bool by_token;       /* a table says which experts a token has */
    int32_t state;       /* first of the layer's recurrent states */
    int32_t lender, use; /* of a block that layers share: the layer whose weights it has, and how many had such a block before; or of
                             * a file whose layers are two of ours: its layer, and which of the two */
    bool no_attention, no_recurrence;                 /* of several ranks, this one has no part of that */
    struct cut_range heads_part, kv_part, inner_part; /* of the numbers above, which are the rank's own; of 0: they are all */
};

struct norm_spec {
    enum norm_kind kind;
    float eps, weight_offset;
    bool no_weight;
};

/* Layers with ffn FFN_EXPERTS have these. */
struct moe_spec {
    int32_t n_experts, inner;
    int32_t n_passing;       /* more that can be chosen, without matrices: they pass their input on */
    int32_t latent;          /* width that experts work in, between two projections; 0: the stream's own */
    enum act_kind score_act; /* of the scores before they are compared; ACT_NONE: what route says */
    struct route_args route; /* its bias is bound per layer */
    enum ffn_kind kind;      /* of an expert */
    struct act_args act;
    bool scale_input;
    bool limits_first;    /* the limit of experts' gates counts before the activation */
    bool has_bias;        /* the router's choice is biased */
    int32_t shared_inner; /* 0: no shared expert */
    float sum_scale;      /* of what the experts and the shared one make together */
    bool shared_gate;     /* its result is weighed by a sigmoid of its own */
};

/* The recurrent layers of a model, which are all alike; each mixer uses what it has. */
struct recur_spec {
    int32_t heads, width;        /* of the values */
    int32_t k_heads, k_width;    /* delta: of queries and keys */
    int32_t inner;               /* heads * width, or the channels of a scan */
    int32_t groups, state_width; /* state spaces: of B and C */
    int32_t dt_rank, taps;
    float dt_min, dt_max;
    float beta_scale, decay_bound; /* delta: struct delta_args */
    bool decays_by_channel;        /* delta: of the keys, else by head; its result is gated by a sigmoid */
    float out_eps;                 /* of the norm of the result; of a gated memory, of its divisor */
    float gate_cap;                /* soft cap of a gated memory's gates */
    bool bare_norms;               /* a scan: time steps, B and C are normed without weights */
    float bare_eps;                /* and by this eps */
    bool has_norm;                 /* of the result, with its gate before or after; by group or as a whole */
    enum norm_gate norm_gate;
    int32_t norm_groups;
    int32_t rescale_every;                         /* weighed means: layers after which the reference halves its stream; 0: never */
    struct add_args full_sum, linear_sum, ffn_sum; /* lightning: factors of the residual and of what is added */
};

/* Fixed factors of models with attention and a state space side by side. */
struct hybrid_spec {
    float attn_in, attn_out, ssm_in, ssm_out;
    float ffn[2]; /* of the gate, of the result */
    float ssm[5]; /* of the parts of the state space's input: gate, x, B, C, time steps */
};

struct family;
struct stream;

struct spec {
    const struct family *family; /* for those who bind the weights */
    const struct stream *stream; /* NULL: the usual one */
    int32_t n_layers, hidden, vocab, context;
    int32_t attn_inputs;    /* attention reads so many vectors of the stream's width side by side */
    int32_t embed_rows;     /* of the embedding, where it has more than the vocabulary; 0: it has as many */
    int32_t embed_width;    /* of the embedding and the head; others than `hidden` have a projection behind and before them */
    int32_t first_position; /* row of the learned positions that position 0 has */
    bool no_final_norm;
    bool is_encoder;   /* every row sees the whole text; there is no head */
    bool is_prefix;    /* every row of a prompt sees the whole prompt; what is written sees what is before it */
    int32_t n_types;   /* of tokens: ids are token + vocab * type; 0: there are none */
    int32_t n_buckets; /* of the table of distances; 0: there is none */
    struct {
        int32_t span, reach; /* embeddings to each side, 0: there are none; distances that they stand for */
        bool is_log, has_norm;
    } relative;        /* embeddings of distances */
    bool tied, untied; /* untied: the file says so, and must have a head */
    bool wide;         /* products of all layers are (linear_args.wide): routers choose by them, or attention is sharp */
    float embed_scale, logit_scale, logit_softcap, residual_scale;
    struct norm_spec norm;
    enum wiring wiring;
    struct act_args act;
    struct moe_spec moe;
    struct latent_spec latent;
    struct compressed_spec compressed;
    struct per_layer_spec per_layer;
    struct streams_spec streams;
    struct recur_spec recur;
    struct hybrid_spec hybrid;
    struct shared_spec shared;
    const struct layer_spec *layers; /* [n_layers] */
    struct rope_spec ropes[ROPE_TABLES_MAX];
    int32_t n_ropes, n_rope_tables; /* tables that depend on the length */
    struct kv_layout kv;            /* classes; the engine fills in block and slot counts */
    struct rank rank;               /* n above 1: heads and widths of layers are this rank's part (cut.h) */
};

/* Joins the config with its family's row. Unknown model types are refused by name, with the nearest known ones. */
int spec_resolve(struct arena *a, const struct config *config, struct spec *out, struct err *err);
/* The longest context that there may be where `wanted` is asked for: the model's; with dynamic rope, which follows the length of the
 * sequence, any that is longer. */
int32_t spec_longest(const struct spec *s, int32_t wanted);

/* ---- for the parts that resolve a mixer or the feed-forward ------------------------------------------------------- */

struct resolver {
    struct arena *arena;
    struct cfg cfg;
    const struct family *family;
    struct spec *spec;
    struct layer_spec *layers;          /* those of the spec */
    int32_t layer;                      /* whose mixer is resolved now */
    int32_t *kv_layers[KV_CLASSES_MAX]; /* those of the cache's classes */
};

/* Which mixer every layer has (kinds.c), and whether a layer's queries and keys are rotated. */
int resolve_kinds(struct resolver *r, struct err *err);
int resolve_has_rope(const struct resolver *r, int32_t layer, bool *out, struct err *err);
int resolve_window_length(const struct cfg *c, int32_t *out, struct err *err); /* 0: no window */
bool spec_has_windows(const struct spec *s);                                   /* some layers see a window or a chunk only */
/* heads, widths, scale and everything else of a layer's attention that config.json says. */
int resolve_attention(struct resolver *r, int32_t layer, struct err *err);
/* The rope table of a layer, made when it is new. */
enum rope_part { ROPE_SHARE /* as much of the width as config.json says */, ROPE_WHOLE };
int resolve_rope(struct resolver *r, int32_t layer, int32_t width, enum rope_part part, int32_t *out_index, struct err *err);
/* A place in the class of equal caches, made when it is new. n_layers and n_blocks of `want` are ignored. */
int resolve_kv(struct resolver *r, const struct kv_class *want, struct kv_ref *out, struct err *err);
/* A new recurrent state of n f32 elements per sequence. */
int resolve_state(struct resolver *r, int64_t elements, int32_t *out_index, struct err *err);
/* An activation by its name in config.json. */
int resolve_activation(struct str name, enum act_kind *out, struct err *err);
/* Which layers have experts, how wide, how they are chosen (ffn.c). */
int resolve_ffn(struct resolver *r, struct err *err);
/* The experts' part of it, for streams that place them elsewhere. */
int resolve_experts(struct resolver *r, struct err *err);

/* ---- rope ------------------------------------------------------------------------------------------------------- */

/* Fills a table from the config's rope parameters; head_dim is the width of a head. */
int rope_resolve(struct arena *a, const struct cfg *cfg, const struct config_rope *params, int32_t head_dim, struct rope_spec *out,
                 struct err *err);
/* The inverse frequencies for a sequence of `len` positions, where they depend on it. */
void rope_table_at(const struct rope_spec *r, int32_t len, float *out);

#endif
