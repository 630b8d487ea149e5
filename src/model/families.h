/* Model families as rows of one table. Only families.c contains their names.
 *
 * A row holds what config.json does not say; zero means Llama. Columns stand in small structs by concern. A column needs
 * two families that use it, or one family and under twenty lines. A family that changes the residual stream itself
 * brings functions of its own (struct stream in forward.h).
 */
#ifndef MLXCEL_MODEL_FAMILIES_H
#define MLXCEL_MODEL_FAMILIES_H

#include "model/forward.h"

struct attn_row {
    enum rope_kind rope; /* 0: ROPE_HALF */
    float theta;         /* rope_theta where the file has none; 0: 10000 */
    float partial;       /* partial_rotary_factor likewise; 0: 1 */
    bool local_rope;     /* sliding layers have a plain table: no scaling, theta from rope_local_base_freq */
    float local_theta;   /* where the file has no rope_local_base_freq; 0: rope_theta */
    const char *nope;    /* letters of layers without positions, in models that have sliding layers */
    bool no_rope;        /* no layer has rotary positions */
    bool rope_if_named;  /* only where position_embedding_type says "rope" */
    enum qk_norm qk_norm;
    const char *qk_switch; /* the key that turns the norm of queries and keys on; NULL: always on */
    bool qk_norm_last;     /* after rope */
    bool qk_norm_bare;     /* without weights; only on layers with rope */
    bool v_norm;           /* values are normed, without weights */
    bool gate;             /* q_proj gives queries and gates; the result is multiplied by sigmoid(gate) */
    bool qkv_by_head;      /* the fused projection is [heads][q | k | v] */
};

enum moe_normalize { NORMALIZE_ASK /* norm_topk_prob; absent: no */, NORMALIZE_ASK_YES /* absent: yes */, NORMALIZE_ALWAYS };

struct moe_row {
    enum route_score score;
    enum moe_normalize normalize;
    float norm_eps;
    bool bias;        /* a bias that counts for the choice only */
    bool group_top2;  /* a group's score is the sum of its two best */
    bool scale_input; /* the router's weight multiplies an expert's input */
    bool shared_gate;
    int32_t n_shared;    /* shared experts where config.json does not count them */
    bool is_transposed;  /* stacked experts are [expert, in, out] */
    bool is_interleaved; /* rows of gate and up alternate */
    bool is_plain;       /* experts, and dense layers beside them, have no gate */
};

struct recur_row {
    bool group_norm;        /* a state space's result is normed group by group */
    bool time_step_min;     /* time steps are no smaller than time_step_min */
    const char *layer_type; /* what layer_types may call a recurrent layer besides "linear_attention" */
};

struct norm_row {
    enum norm_kind kind;
    float offset; /* 1 where checkpoints store weight - 1 */
    float eps;    /* where the file has none; 0: 1e-6 */
    bool no_weight;
};

/* Overrides roles.def. */
struct role_name {
    enum role role;
    const char *name;
};

struct names_row {
    const char *root;                        /* before "layers", tried first; NULL: the usual ones */
    const char *layers, *attn, *ffn, *mixer; /* modules; NULL: "layers", "self_attn", "mlp", "mixer" */
    const struct role_name *roles;           /* ends with a NULL name */
};

enum family_flag {
    FAM_TIED = 1 << 0,              /* tied embeddings unless config.json says otherwise */
    FAM_EMBED_SCALE = 1 << 1,       /* embeddings are multiplied by sqrt(hidden) */
    FAM_LEARNED_POSITIONS = 1 << 2, /* a table of positions is added to the embeddings */
    FAM_TRANSPOSED = 1 << 3,        /* matrices are stored [in, out] */
    FAM_ONE_HALF = 1 << 4,          /* a layer is a mixer or a feed-forward, never both */
};

struct family {
    const char *type;    /* model_type */
    const char *title;   /* for people */
    const char *pattern; /* one letter per layer, cyclic; NULL: "F"; layer_types in config.json overrides it */
    enum wiring wiring;
    enum ffn_kind ffn; /* FFN_GATED or FFN_PLAIN; experts follow from config.json */
    enum act_kind act; /* where config.json has no hidden_act; 0: silu */
    struct norm_row norm;
    struct attn_row attn;
    struct moe_row moe;
    struct recur_row recur;
    struct names_row names;
    const struct key_name *keys;        /* ends with {NULL, NULL} */
    const struct key_default *defaults; /* ends with {NULL, 0} */
    uint32_t flags;
    const struct stream *stream;
};

extern const struct stream lightning_stream, hybrid_stream, per_layer_stream, altup_stream;

extern const struct family family_table[];
extern const int32_t family_count;

/* Types that we know and do not run, with the reason. */
struct refusal {
    const char *type, *why;
};
extern const struct refusal family_refusals[];
extern const int32_t family_n_refusals;

/* NULL and an error with the reason, where we know one, and the nearest supported types. */
const struct family *family_find(struct str type, struct err *err);

#endif
