/* Model families as rows of one table. Only families.c contains their names.
 *
 * A row holds what config.json does not say; zero means Llama. Columns stand in small structs by concern. A column needs
 * two families that use it, or one family and under twenty lines. A family that changes the residual stream itself
 * brings functions of its own (struct stream in forward.h).
 */
#ifndef MLXCEL_MODEL_FAMILIES_H
#define MLXCEL_MODEL_FAMILIES_H

#include "model/forward.h"

/* Which layers have the window where use_sliding_window is set. */
enum window_rule {
    WINDOWS_FROM /* from max_window_layers on */,
    WINDOWS_EVEN_BELOW /* every second one below it */,
    WINDOWS_NOPE /* those without rope */,
    WINDOWS_ALL
};

/* Rows of a fused projection. */
enum qkv_layout {
    QKV_IN_TURN,    /* q, k, v */
    QKV_BY_GROUP,   /* for every key head: its queries, k, v */
    QKV_QVK_BY_FOUR /* four blocks of q, v, k */
};

/* Scores that fall with the distance (ALiBi). */
enum attn_slopes {
    SLOPES_NONE,
    SLOPES_ALWAYS,
    SLOPES_ASK,    /* where config.json has alibi */
    SLOPES_IN_BF16 /* likewise; they and their products with positions are rounded, and scaled like the scores */
};

struct attn_row {
    enum rope_kind rope;       /* 0: ROPE_HALF */
    enum rope_kind index_rope; /* of the index that chooses positions; 0: the heads' */
    bool index_turns_last;     /* the last part of its heads is turned, and its keys are normed by the model's eps */
    bool latents_grow;         /* queries and latents are multiplied by the root of how much narrower their latents are than the stream */
    bool local_rope;           /* sliding layers have a plain table: no scaling, theta from rope_local_base_freq */
    enum window_rule windows;
    bool chunks_have_rope;   /* layers with rope are chunked ones, others full ones, unless layer_types says otherwise */
    bool full_first;         /* a period of layers begins with the full one */
    bool begins_full;        /* the first layer is a full one unless config.json says otherwise */
    int32_t window_kv;       /* sliding layers have so many times the key and value heads; 0: 1 */
    bool ends_full;          /* the last layer is a full one whatever config.json says */
    const char *nope;        /* letters of layers without positions, in models that have sliding layers */
    bool no_rope;            /* no layer has rotary positions */
    const char *rope_switch; /* the key that turns rotary positions on; NULL: always on */
    int32_t inputs;          /* attention reads so many vectors of the stream's width side by side, and its heads are as much wider; 0: 1 */
    bool rope_if_named;      /* only where position_embedding_type says "rope" */
    enum qk_norm qk_norm;
    const char *qk_switch; /* the key that turns the norm of queries and keys on; NULL: always on */
    bool qk_norm_last;     /* after rope */
    bool qk_norm_bare;     /* without weights; only on layers with rope */
    bool v_norm;           /* values are normed, without weights */
    enum attn_gate gate;   /* the result is multiplied by sigmoid(gate) */
    bool key_bias;         /* scores get a number by their key, which comes of its value */
    enum qkv_layout qkv;
    enum attn_slopes slopes;
};

struct moe_row {
    enum route_score score;
    bool normalize; /* always; else where norm_topk_prob says so */
    float norm_eps;
    bool bias;          /* a bias that counts for the choice only */
    bool may_lack_bias; /* converters leave it out */
    bool group_top2;    /* a group's score is the sum of its two best */
    bool scale_input;   /* the router's weight multiplies an expert's input */
    bool shared_gate;
    int32_t n_shared;        /* shared experts where config.json does not count them */
    bool is_transposed;      /* stacked experts are [expert, in, out] */
    bool is_interleaved;     /* rows of gate and up alternate */
    bool is_down_transposed; /* the last matrix alone is */
    bool beside_images; /* as many experts for images follow; the router is stored [in, out], and biases in two rows, the text's first */
    bool limits_first;  /* of experts alone: swiglu_limit, which counts before the activation */
    enum act_kind score_act; /* of the scores of ROUTE_PLAIN */
    bool limits_shared;      /* the shared expert has the limit of the others */
    bool is_plain;           /* experts, and dense layers beside them, have no gate */
};

struct recur_row {
    bool group_norm;        /* a state space's result is normed group by group */
    bool norms_before;      /* recurrent layers have norms before their halves, whatever the wiring of the others */
    bool decays_by_channel; /* of a delta rule; its result is gated by a sigmoid */
    float norm_eps;         /* of the norm of the result; 0: the model's */
    bool bare_norms;        /* time steps, B and C of a selective scan are normed without weights */
    bool time_step_min;     /* time steps are no smaller than time_step_min */
    const char *layer_type; /* what layer_types may call a recurrent layer besides "linear_attention" */
};

struct norm_row {
    enum norm_kind kind;
    float offset; /* 1 where checkpoints store weight - 1 */
    bool no_weight;
};

/* Overrides roles.def. */
struct role_name {
    enum role role;
    const char *name;
};

struct names_row {
    const char *root;                        /* before "layers", tried first; NULL: the usual ones */
    const char *layers, *attn, *ffn, *mixer; /* modules; NULL: "layers" or "h", "self_attn", "mlp", "mixer" */
    const struct role_name *roles;           /* ends with a NULL name */
};

enum family_flag {
    FAM_EMBED_SCALE = 1 << 0,       /* embeddings are multiplied by sqrt(hidden) */
    FAM_LEARNED_POSITIONS = 1 << 1, /* a table of positions is added to the embeddings */
    FAM_TRANSPOSED = 1 << 2,        /* matrices are stored [in, out] */
    FAM_ONE_HALF = 1 << 3,          /* a layer is a mixer or a feed-forward, never both */
    FAM_INNER_HALVED = 1 << 5,      /* intermediate_size counts gate and up together */
    FAM_EMBED_SCALE_BF16 = 1 << 6,  /* embeddings are multiplied by sqrt(hidden), rounded to bf16 */
    FAM_ENCODER = 1 << 7,           /* every row sees the whole text; there is no head */
    FAM_POSITIONS_BEHIND_PAD =
        1 << 8,                  /* the first token has the row behind pad_token_id, and max_position_embeddings counts those before, too */
    FAM_FIRST_UNNORMED = 1 << 9, /* the first layer's mixer has no norm before it */
    FAM_RELATIVE = 1 << 12,      /* queries and keys are multiplied by embeddings of the distance between them */
    FAM_UP_FIRST = 1 << 11,      /* in a fused projection the rows of up come before those of the gate */
    FAM_DISTANCES = 1 << 10,     /* a table by distance and head is added to the scores of all layers */
    FAM_TWO_IN_ONE = 1 << 13,    /* a layer of the file is two of ours, and num_hidden_layers counts the file's */
    FAM_MLX_ADDS_ONE = 1 << 4,   /* files converted for MLX (their experts are called so) have the 1 in their norms' weights already */
};

struct family {
    const char *type;  /* model_type */
    const char *title; /* for people */
    const char
        *pattern; /* one letter per layer, cyclic; NULL: "F"; layer_types in config.json overrides it, and may name kinds behind a blank */
    enum wiring wiring;
    enum ffn_kind ffn; /* FFN_GATED or FFN_PLAIN; experts follow from config.json */
    enum act_kind act; /* whatever config.json has for hidden_act; 0: that, or silu */
    struct norm_row norm;
    struct attn_row attn;
    struct moe_row moe;
    struct recur_row recur;
    struct names_row names;
    const struct key_name *keys; /* ends with {NULL, NULL} */
    const char *defaults;        /* JSON: what keys mean that config.json leaves out */
    int32_t first_position;      /* row of the learned positions that the first token has */
    uint32_t flags;
    const struct stream *stream;
};

/* How many vectors of the stream's width attention reads. */
static inline int32_t attn_inputs(const struct family *f) {
    return f->attn.inputs ? f->attn.inputs : 1;
}

extern const struct stream lightning_stream, hybrid_stream, per_layer_stream, altup_stream, shared_stream, shortcut_stream, wkv_stream,
    exchange_stream, hyper_stream, blend_stream;

extern const struct family family_table[];
extern const int32_t family_count;

/* Another name of a family, in model_type. */
struct alias {
    const char *type, *family;
    const char *architecture; /* only where config.json names this one; NULL: any */
    const char *defaults;     /* NULL: the family's */
    bool has_bare_head;       /* around a text model: the head's factors and caps, which the text model's class applies, are left out */
};
extern const struct alias family_aliases[];
extern const int32_t family_n_aliases;

/* Types that we know and do not run, with the reason. */
struct refusal {
    const char *type, *why;
};
extern const struct refusal family_refusals[];
extern const int32_t family_n_refusals;

/* What a config.json is of, by either name; *out_alias is NULL where it is the family's own. */
const struct family *family_of(const struct config *c, const struct alias **out_alias, struct err *err);
/* By its own name. NULL and an error with the reason, where we know one, and the nearest supported types. */
const struct family *family_find(struct str type, struct err *err);

#endif
