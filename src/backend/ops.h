/* The op list: what forward() says and what every backend understands.
 *
 * forward() is straight C that calls the constructors below. Each checks shapes once, appends one op and returns handles
 * of the values that the op makes. Nothing is computed here; backends take the finished list (backend.h).
 *
 * (1) The same step key must yield the same list: forward branches on the spec and on shapes, never on tensor contents.
 * (2) Values are single-assignment. The KV cache and the recurrent state change only by KV_WRITE, CONV, DELTA, SSD,
 *     SCAN, LIGHTNING, LRU, WKV, EXCHANGE, MLSTM and COMPRESS.
 * (3) Constructors return no error. The list remembers the first (a shape that does not fit is our own mistake, but the
 *     message reaches the user as one line), and every later call does nothing.
 */
#ifndef MLXCEL_BACKEND_OPS_H
#define MLXCEL_BACKEND_OPS_H

#include "backend/kinds.h"
#include "tensor/tensor.h"

struct weight;

enum op_kind {
#define OP(id, name, member) OP_##id,
#include "backend/ops.def"
#undef OP
    N_OP_KINDS
};

enum { ACT_PARAMS = 4 };

struct embed_args {
    const struct weight *weight; /* an id past its last row reads row 0 */
    float scale;
    int32_t by_position; /* gather by position + position_offset instead of token id */
    int32_t position_offset;
    int32_t vocab;     /* above 0: ids are token + vocab * type, and the token counts */
    int32_t by_type;   /* 1: the type counts */
    int32_t first, of; /* of a part of a table: its first row among `of`; other rows are 0. of 0: it is no part */
};

/* Rows of the host (step.given). Without x a row that has none is 0; with x it stays as it is. */
struct given_args {
    int32_t set, width;
    int32_t adds; /* 1: x + what is given; else that alone */
};

/* The value lies in step.inputs[slot], dense. */
struct input_args {
    int32_t slot;
};

struct linear_args {
    const struct weight *weight;
    const struct weight *bias; /* may be NULL */
    int32_t wide;              /* what follows magnifies rounding: a backend that rounds x to bf16 keeps more of it here */
};

/* What one adapter does to a product y = x W^T + b, from its output `first` on: y += s * (up (down x) + gain * (y - b)), with s the row's own scale of
 * this adapter. An embedding's x is the token: row `token` of down. Vectors of one row in f32. */
struct adapt_part {
    int32_t adapter;
    int32_t rank;
    int64_t in, out, first;
    const struct weight *down; /* [rank, in]; of an embedding [in, rank] */
    const struct weight *up;   /* [out, rank] */
    const struct weight *gain; /* [out] of adapters with magnitudes; NULL: 0 */
};
struct adapt_site {
    const struct adapt_part *parts;
    int32_t n_parts;
    int32_t n_hidden; /* ranks of all parts together */
    int32_t by_token; /* 1: of an embedding */
};

struct adapt_args {
    const struct adapt_site *site;
    const struct weight *bias; /* b; NULL: 0 */
    float scale;               /* of an embedding */
    int32_t of_wanted;         /* 1: rows are those that are wanted */
};

struct norm_args {
    const struct weight *weight; /* [width] or, with per_head, [heads * width]; NULL: none */
    const struct weight *bias;
    enum norm_kind kind;
    float eps;
    float cut;           /* NORM_CUT */
    float weight_offset; /* 1 where the checkpoint stores weight - 1 */
    int32_t per_head;
    enum norm_gate gate; /* with a second input */
    enum act_kind gate_act;
    float a_scale, b_scale; /* ADD_NORM: of the two summands */
};

struct add_args {
    float a_scale, b_scale;
};

struct act_args {
    enum act_kind kind;
    float scale; /* of the result */
    float p[ACT_PARAMS];
};

struct vec_args {
    const struct weight *mul; /* [width] or [1]; NULL: 1 */
    const struct weight *add; /* NULL: 0 */
};

struct rope_args {
    const struct weight *inv_freq; /* [n_rotated / 2]; NULL: the step's own table of the sequence (dynamic scaling) */
    enum rope_kind kind;
    int32_t first; /* element of the head where the rotated part begins */
    int32_t n_rotated;
    int32_t shift;      /* added to the position */
    float magnitude;    /* multiplies sin and cos (yarn, longrope) */
    int32_t table;      /* which of the step's tables, when inv_freq is NULL */
    const int8_t *axes; /* [n_rotated / 2] which of the row's step.places counts; NULL: its position */
};

/* Where a layer's keys and values live: class and index inside the class. */
struct kv_ref {
    int32_t kv_class, index;
};

struct kv_args {
    struct kv_ref kv;
};

struct attn_args {
    struct kv_ref kv;
    const struct weight *sinks;  /* [heads]; NULL: none */
    const struct weight *slopes; /* [heads] added to a score times (the key's position - the row's), after scale and cap; NULL: none */
    const struct weight
        *distances; /* [2 farthest + 1][heads] added likewise, by the key's distance: so far before the row, ... behind it; NULL: none */
    const struct weight *buckets; /* [2 farthest + 1] of op_attn_relative: the column of both tables that counts, by the key's distance */
    float scale;
    float softcap;          /* 0: none */
    int32_t window;         /* keys visible counting the row itself, to each side where both are seen; 0: all */
    int32_t chunk;          /* keys of the row's own chunk of positions only; 0: no chunks */
    int32_t v_width;        /* width of the result; where the class keeps no values, v is the first v_width of k */
    int32_t slopes_in_bf16; /* 1: what is added is scale * (slope * the key's position), the product rounded to bf16 */
    float pos_scale_beta;   /* q *= 1 + beta * log(1 + floor((pos + pos_scale_first) / pos_scale_len)) */
    int32_t pos_scale_len;  /* 0: none of this */
    int32_t pos_scale_first;
    int32_t farthest;   /* of `distances` or `buckets` */
    int32_t both_ways;  /* 1: keys behind the row are seen, too; the step has all rows of the sequence */
    int32_t is_strict;  /* 1: step.until does not count */
    struct kv_ref more; /* ATTN_MORE: keys, which are the values too, of one head, at the end of every `every` positions */
    int32_t every;
    int32_t of_pictures; /* 1: positions are rows of pictures; each row sees those that the first of step.spans has for it */
};

/* Each row sees the rows [from, to) that the step has for it in this set of spans. */
struct attn_rows_args {
    float scale;
    int32_t set;
};

struct pool_rows_args {
    int32_t n;
};

/* A position's score is the sum over heads of weight * max(0, q . key); the k best of those at or before the row's are kept, of equal ones the
 * first. */
struct pick_args {
    struct kv_ref kv; /* keys, one head */
    int32_t k;
    int32_t every; /* above 0: only the last of every so many positions has a key */
};

struct route_args {
    const struct weight *bias;         /* added for the choice only; NULL: none */
    const struct weight *expert_scale; /* [E], multiplies the final weight of each expert; NULL: none */
    enum route_score score;
    int32_t k;
    int32_t normalize; /* weights of the chosen divided by their sum (+ norm_eps) */
    float norm_eps;
    float scale;
    int32_t n_groups, top_groups; /* 0: no groups */
    int32_t group_top2;           /* group score: sum of the two best; else the best */
    float jitter;                 /* sparsemixer's threshold; it knows no bias, groups, normalisation or scale */
};

/* Experts from n_experts on have no matrices: they pass their input on. */
struct passing_args {
    int32_t n_experts;
};

struct experts_args {
    const struct weight *gate_up;   /* [E, 2 * inner, in], gate rows first; or NULL and the two apart */
    const struct weight *gate, *up; /* gate NULL: no gate, up alone */
    const struct weight *down;      /* [E, out, inner] */
    const struct weight *gate_bias, *up_bias, *gate_up_bias, *down_bias; /* [E, n]; NULL: none */
    struct act_args act;
    int32_t inner;
    int32_t first;       /* the number of the first of these experts; choices of others add nothing */
    int32_t scale_input; /* router weight multiplies the input instead of the output */
};

/* Recurrent state: `state` is an index into the layout's state list (backend.h). The rows of a sequence are taken in
 * order, each from the state that the one before left; step_seq.starts means zeros. State is f32; shapes stand below.
 * softplus(x) is log(1 + exp(x)), and x itself above 20. Vectors are flat weights of one row. */

/* y[c] = act(bias[c] + sum over t of w[c, t] * x[position - taps + 1 + t, c]); state [taps - 1, channels], oldest first. */
struct conv_args {
    const struct weight *weight; /* [channels, taps] */
    const struct weight *bias;   /* [channels]; NULL: none */
    int32_t taps, state;
    enum act_kind act;
};

/* Per v head, with its k head (k_heads divides v_heads; head h uses k head h / (v_heads / k_heads)):
 * S = S * exp(-exp(a_log) * softplus(a + dt_bias)); S += k (x) ((v - k S) * beta_scale * sigmoid(b)); y = q S; S [v_heads, k_width, v_width].
 * Where `bound` is not 0, S decays by exp(bound * sigmoid(exp(a_log) * (a + dt_bias))) instead. */
struct delta_args {
    const struct weight *a_log, *dt_bias; /* [v_heads]; dt_bias [v_heads, k_width] where decays are by channel */
    int32_t state;
    int32_t by_channel; /* a is [v_heads, k_width]: every row of S has a decay of its own */
    float bound, beta_scale;
    int32_t k_heads, v_heads, k_width, v_width;
    float scale;     /* of q */
    int32_t l2_norm; /* q and k are divided by sqrt(sum of squares + l2_eps) first */
    float l2_eps;
};

/* Per head, with its group's B and C: dt = clamp(softplus(dt + dt_bias), dt_min, dt_max);
 * S = S * exp(-exp(a_log) * dt) + (dt * x) (x) B; y = S C + d * x; S [heads, head_width, state_width]. */
struct ssd_args {
    const struct weight *a_log, *d, *dt_bias; /* [heads]; d and dt_bias NULL: 0 */
    int32_t state;
    int32_t heads, head_width, groups, state_width;
    float dt_min, dt_max;
};

/* Per channel: dt = softplus(dt); S = S * exp(-exp(a_log) * dt) + dt * x * B; y = S C + d * x; S [channels, state_width]. */
struct scan_args {
    const struct weight *a_log; /* [channels, state_width] */
    const struct weight *d;     /* [channels]; NULL: 0 */
    int32_t state, state_width;
};

/* Per head: S = S * exp(-slope) + k (x) v; y = q S; S [heads, width, width]. */
struct lightning_args {
    const struct weight *slope; /* [heads] */
    int32_t state, heads, width;
};

/* Per channel: a = exp(-8 * sigmoid(r) * rate); S = S * a + x * sigmoid(i) * sqrt(1 - a^2), the root left out at position 0; y = S; S [channels]. */
struct lru_args {
    const struct weight *rate; /* [channels] */
    int32_t state;
};

/* Per channel: y = (A + e^(first + k) v) / (B + e^(first + k)); A = A e^-rate + e^k v; B = B e^-rate + e^k. State [3, channels]: A e^-m, B e^-m and m, the largest
 * exponent so far, so that nothing overflows. */
struct wkv_args {
    const struct weight *rate, *first; /* [channels] */
    int32_t state;
};

/* Per head, all of one width: S' = S * e^(rate * sigmoid(w)), row by row of S; S' += k (x) v - (at * share) (x) (at S); y = r S'. S [heads, width, width], keys by
 * values. */
struct exchange_args {
    float rate;
    int32_t state;
};

/* Per head, with the gates i and f: m' = max(log sigmoid(f) + m, i); S = S * e^(log sigmoid(f) + m - m') + e^(i - m') k (x) (v, 1);
 * y = scale * q S over max(|its last column|, e^-m') + eps. State [heads, k_width, v_width + 1], then m [heads]. */
struct mlstm_args {
    float scale, eps;
    int32_t state;
};

/* x is [values, scores], each of `width` channels or, where windows overlap, of two such series. At positions that end a window of `every`, by channel:
 * y = sum of softmax(scores + bias) * values over the window's positions; where windows overlap, with the second series, and the first one's
 * over the window before. At others 0. State: the inputs of the last positions, as that of a convolution. */
struct compress_args {
    const struct weight *bias; /* [every, channels of the scores] */
    int32_t every, width, state;
    int32_t overlaps; /* 1: there are two series */
};

/* y[k] = post[k] * made + sum over j of C[j, k] x[j]; C is softmax(logits) + eps by rows, then divided by its columns' sums + eps, by its rows' and its
 * columns' again, so that there are `rounds` of columns. */
struct blend_args {
    int32_t rounds;
    float eps;
};

enum { BLEND_STREAMS_MAX = 8 };

struct none_args {
    int32_t unused;
};

enum { OP_INPUTS = 6, OP_OUTPUTS = 2 };

struct op {
    enum op_kind kind;
    int32_t layer; /* for traces and timings; -1 outside layers */
    int32_t n_in, n_out;
    struct tensor in[OP_INPUTS];
    struct tensor out[OP_OUTPUTS];
    union {
        struct embed_args embed;
        struct given_args given;
        struct input_args input;
        struct linear_args linear;
        struct adapt_args adapt;
        struct norm_args norm;
        struct add_args add;
        struct act_args act;
        struct vec_args vec;
        struct rope_args rope;
        struct kv_args kv;
        struct pick_args pick;
        struct attn_args attn;
        struct attn_rows_args attn_rows;
        struct pool_rows_args pool_rows;
        struct route_args route;
        struct passing_args passing;
        struct experts_args experts;
        struct conv_args conv;
        struct delta_args delta;
        struct ssd_args ssd;
        struct scan_args scan;
        struct lightning_args lightning;
        struct lru_args lru;
        struct wkv_args wkv;
        struct exchange_args exchange;
        struct mlstm_args mlstm;
        struct compress_args compress;
        struct blend_args blend;
        struct none_args none;
    } arg;
};

struct value {
    int64_t elements;
    enum dtype dtype;
    int32_t first_op, last_op; /* made by, last read by; -1 until known */
    bool is_output;            /* read by the host after the run: lives to the end */
};

struct oplist {
    struct op *ops;
    struct value *values;
    int32_t n_ops, n_values, ops_capacity, values_capacity;
    int32_t n_rows, n_wanted; /* of the step being described: rows, and those that anything is wanted of */
    int32_t layer;            /* stamped on ops as they come */
    bool adapts;              /* rows of the step have adapters; set behind oplist_begin */
    bool gives, has_places;   /* rows of the step are given, or have places of their own; set behind oplist_begin */
    bool has_spans;           /* step.spans are there; likewise */
    bool is_wanted_only;      /* behind ROWS: rows are those that are wanted */
    struct err err;           /* the first failure */
};

void oplist_begin(struct oplist *l, int32_t n_rows, int32_t n_wanted);
void oplist_free(struct oplist *l);
void oplist_output(struct oplist *l, struct tensor t); /* the host will read it */
/* For passes over a finished list: a value of the shape of t but for its rows, to be made by an op yet to be placed; and who makes and last
 * reads each value, after ops have moved. */
struct tensor oplist_value(struct oplist *l, struct tensor t, int32_t rows, enum dtype dtype);
void oplist_renumber(struct oplist *l);
const char *op_name(enum op_kind kind);
/* Of ATTN_ROWS: scores that are not divided by the root of a head's width get so large that their softmax magnifies what half precision leaves out. */
bool op_is_sharp(const struct op *op);
const char *act_name(enum act_kind kind);

/* Constructors. The argument structs may be compound literals; they are copied. Products and embeddings whose weight has adapters are followed by
 * ADAPT where rows of the step have some. */
struct tensor op_embed(struct oplist *l, const struct embed_args *a);
/* x may be no tensor. */
struct tensor op_given(struct oplist *l, struct tensor x, const struct given_args *a);
/* A dense value of the shape of t. */
struct tensor op_input(struct oplist *l, struct tensor t, int32_t slot);
/* The op as one of this list: its inputs are given, its results are new values of the same shapes. */
struct op *op_copy(struct oplist *l, const struct op *op, const struct tensor *in);
struct tensor op_linear(struct oplist *l, struct tensor x, const struct linear_args *a);
struct tensor op_head_linear(struct oplist *l, struct tensor x, const struct linear_args *a);
struct tensor op_norm(struct oplist *l, struct tensor x, const struct norm_args *a);
struct tensor op_norm_gated(struct oplist *l, struct tensor x, struct tensor gate, const struct norm_args *a);
struct tensor op_add(struct oplist *l, struct tensor a, struct tensor b, const struct add_args *scales /* NULL: 1, 1 */);
struct tensor op_act(struct oplist *l, struct tensor x, const struct act_args *a);
/* act(a) * b; b may have width 1 or heads 1 and is then repeated. */
struct tensor op_glu(struct oplist *l, struct tensor a, struct tensor b, const struct act_args *args);
struct tensor op_mulvec(struct oplist *l, struct tensor x, const struct vec_args *a);
struct tensor op_rope(struct oplist *l, struct tensor x, const struct rope_args *a);
void op_kv_write(struct oplist *l, struct tensor k, struct tensor v /* none where the class keeps no values */, struct kv_ref kv);
/* q [rows, heads, width], weights [rows, 1, heads]; the result is opaque, [rows, 1, k] of DT_I32 for op_attn_picked alone. */
struct tensor op_pick(struct oplist *l, struct tensor q, struct tensor weights, const struct pick_args *a);
struct tensor op_attn(struct oplist *l, struct tensor q, const struct attn_args *a);
/* Scores get what the row's table and the key's table have for their distance, [rows, heads, columns] each, times the scale. Both ways only: the step has all keys. */
struct tensor op_attn_relative(struct oplist *l, struct tensor q, struct tensor by_row, struct tensor by_key, const struct attn_args *a);
struct tensor op_attn_picked(struct oplist *l, struct tensor q, struct tensor picks, const struct attn_args *a);
/* q, k and v [rows, heads, width]. */
struct tensor op_attn_rows(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, const struct attn_rows_args *a);
struct tensor op_pool_rows(struct oplist *l, struct tensor x, int32_t n);
void op_route(struct oplist *l, struct tensor logits, const struct route_args *a, struct tensor *out_ids, struct tensor *out_weights);
/* A choice whose experts all have matrices and differ: those that pass their input on are replaced by others of weight 0. Weights have one more element, the
 * sum of those that were taken out. */
void op_passing(struct oplist *l, struct tensor ids, struct tensor weights, const struct passing_args *a, struct tensor *out_ids,
                struct tensor *out_weights);
struct tensor op_experts(struct oplist *l, struct tensor x, struct tensor ids, struct tensor weights, const struct experts_args *a);
/* x [rows, 1, channels]. */
struct tensor op_conv(struct oplist *l, struct tensor x, const struct conv_args *a);
/* q, k [rows, k_heads, k_width], v [rows, v_heads, v_width], a and b [rows, 1, v_heads] as projected. */
struct tensor op_delta(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, struct tensor a, struct tensor b,
                       const struct delta_args *args);
/* x [rows, heads, head_width], b and c [rows, groups, state_width], dt [rows, 1, heads] as projected. */
struct tensor op_ssd(struct oplist *l, struct tensor x, struct tensor b, struct tensor c, struct tensor dt, const struct ssd_args *a);
/* x and dt [rows, 1, channels], dt before its softplus; b and c [rows, 1, state_width]. */
struct tensor op_scan(struct oplist *l, struct tensor x, struct tensor dt, struct tensor b, struct tensor c, const struct scan_args *a);
struct tensor op_lightning(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, const struct lightning_args *a);
/* x, i and r [rows, 1, channels], i and r before their sigmoid. */
struct tensor op_lru(struct oplist *l, struct tensor x, struct tensor i, struct tensor r, const struct lru_args *a);
/* k and v [rows, 1, channels]. */
struct tensor op_wkv(struct oplist *l, struct tensor k, struct tensor v, const struct wkv_args *a);
/* in: r, w, k, v, at, share. */
struct tensor op_exchange(struct oplist *l, const struct tensor in[6], const struct exchange_args *a);
struct tensor op_compress(struct oplist *l, struct tensor x, const struct compress_args *a);
/* picks: of the entries of the second cache; may be no tensor. */
struct tensor op_attn_more(struct oplist *l, struct tensor q, struct tensor picks, const struct attn_args *a);
/* x [rows, n, width], logits [rows, 1, n * n], made [rows, 1, width], post [rows, 1, n]. */
struct tensor op_blend(struct oplist *l, struct tensor x, struct tensor logits, struct tensor made, struct tensor post,
                       const struct blend_args *a);
/* The gates are [rows, 1, heads]. */
struct tensor op_mlstm(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, struct tensor i, struct tensor f,
                       const struct mlstm_args *a);
/* Of all ranks (struct backend.comm): the sum; and [rows, 1, n] of each, with another n each, as [rows, 1, width]. A rank that brings nothing to the latter
 * has no tensor. */
struct tensor op_sum(struct oplist *l, struct tensor x);
struct tensor op_gather(struct oplist *l, struct tensor x, int32_t width);
struct tensor op_concat(struct oplist *l, struct tensor a, struct tensor b);
struct tensor op_rows(struct oplist *l, struct tensor x);
struct tensor op_argmax(struct oplist *l, struct tensor x);
struct tensor op_choose(struct oplist *l, struct tensor x);

#endif
