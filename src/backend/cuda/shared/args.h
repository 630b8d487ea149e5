/* What a kernel is told: one plain struct per kernel, passed by value. The only header that host C and device code share.
 *
 * (1) Pointers are device addresses: typed in kernels, 64-bit numbers on the host. (2) Offsets and strides are 64 bits and count
 * elements unless a name ends in _bytes. (3) Nothing here changes from step to step: kernels find positions, block tables and slots in
 * the step block, whose address is fixed, so that a graph of these launches can be replayed. */
#ifndef MLXCEL_BACKEND_CUDA_SHARED_ARGS_H
#define MLXCEL_BACKEND_CUDA_SHARED_ARGS_H

#include "backend/kinds.h"

#include <stdint.h>

#ifdef __CUDACC__
#define KPTR(type) type *
#define KALIGN64 alignas(64)
#else
#define KPTR(type) uint64_t
#define KALIGN64 _Alignas(64)
#endif

enum { K_BLOCK = 64 };                       /* positions in a KV block */
enum k_dtype { K_F32, K_BF16, K_F16, K_I8 }; /* of activations, caches and plain weights; I8: caches alone (kernels/kv8.cuh) */
enum k_mode { K_PLAIN, K_AFFINE, K_MXFP4, K_MXFP8, K_NVFP4 };

/* A sequence of the step; the same layout as struct step_seq of backend.h. */
struct k_seq {
    int32_t row, n_rows, pos, slot, rope_len, starts;
};

/* [rows, heads, width], innermost stride 1; p is the first element. */
struct k_view {
    KPTR(void) p;
    int64_t row_stride, head_stride;
    int32_t dtype, heads, width, rows;
};

struct k_weight {
    KPTR(const unsigned char) values;
    KPTR(const unsigned char) scales;
    KPTR(const unsigned char) biases;
    int64_t values_bytes, scales_bytes, biases_bytes; /* per row */
    int64_t out, in;
    int32_t mode, bits, group, dtype; /* dtype: of plain elements, or of affine scales */
    int64_t tile_bytes;               /* of 16 rows in tiles (kernels/tile.cuh); 0: row after row */
};

/* Turns rows [first, first + n) of a weight into tiles, or tiles into rows of bf16. */
struct k_tile {
    struct k_weight w; /* the source */
    KPTR(unsigned char) out;
    int64_t first, n; /* rows, of whole tiles */
};

/* Panels of backend/cpu/pack.h to tiles, `n` of them; out may be in. */
struct k_panels {
    KPTR(const unsigned char) in;
    KPTR(unsigned char) out;
    int64_t n, units;    /* units of 64 elements along k */
    int32_t bits, group; /* of a code: 4 or 8; 16, 32 or 64 */
    int32_t narrow;      /* scales and biases are bf16; else f32, which become f16 */
};

/* Activation: kind is enum act_kind of backend/kinds.h. */
struct k_act {
    int32_t kind;
    float scale;
    float p[4];
};

struct k_embed {
    struct k_weight w;
    KPTR(const int32_t) ids;    /* tokens; below 0: -1 - r stands for the token that row r of the step before chose */
    KPTR(const int32_t) chosen; /* tokens that the step before chose */
    KPTR(const int32_t) pos;
    struct k_view y;
    float scale;
    int32_t by_position, position_offset, vocab, by_type;
    int32_t first, of; /* of a part of a table: its first row among `of`, other rows are 0; of 0: it is no part */
};

struct k_linear {
    struct k_weight w;
    KPTR(const float) bias;
    struct k_view x, y;
    int64_t first_out; /* rows of w that this launch covers begin here; y's column too */
    int64_t n_out;
    int32_t per_head;    /* HEAD_LINEAR: head h uses rows h * out ... of w */
    int32_t k_splits;    /* warps or blocks along the input dimension */
    KPTR(float) partial; /* [k_splits, rows, n_out]: sums over parts of k, which are added up later */
    struct k_act act;    /* with a gate: y = act(gate) * up; the gate's rows come first, those of up glu_inner behind them */
    int64_t glu_inner;   /* 0: no gate */
};

/* Dequantises rows [first, first + n) of w to bf16, dense. */
struct k_dequant {
    struct k_weight w;
    KPTR(void) out;
    int64_t first, n;
};

/* y[m, n] = sum over k of x[m, k] * w[n, k] (+ bias), both bf16 and dense along k. */
struct k_gemm {
    KPTR(const void) x;
    KPTR(const void) w;
    KPTR(const float) bias;
    KPTR(void) y;
    int64_t x_stride, w_stride, y_stride;
    int64_t y_column; /* first column of y */
    int32_t m, n, k, y_dtype;
    int64_t x_head, w_head, y_head; /* elements to the next head's, where each head has a matrix of its own */
};

/* x as integers of 16 bits (kernels/gemm_bytes.cu): units of 64 elements, each of `rows` rows, a multiple of 64; what one means in a row; for each run
 * of 64 elements, or of 32 where runs is 2, the integers' sum in every row. */
struct k_bytes_x {
    KPTR(const void) x;
    KPTR(unsigned char) units;
    KPTR(float) scales;
    KPTR(float) sums;
    int64_t x_stride;
    int32_t x_dtype, k, rows, runs;
};

/* A product of these with a weight in tiles. With a gate y = act(gate) * up: the gate's rows come first, those of up glu_inner behind them. */
struct k_bytes {
    struct k_weight w;
    KPTR(const unsigned char) units;
    KPTR(const float) scales;
    KPTR(const float) sums;
    KPTR(const float) bias;
    KPTR(void) y;
    int64_t y_stride, glu_inner; /* 0: no gate */
    int32_t m, rows, y_dtype, pad;
    struct k_act act;
};

/* A matrix as the copy engine of sm_90 knows it (CUtensorMap), with the alignment that it needs. */
struct k_tensor_map {
    KALIGN64 uint64_t opaque[16];
};

/* The same product through tensor maps. Boxes have 64 elements along k; those of x have 128 rows, those of w half as many rows as a tile of results is
 * wide. */
struct k_wgemm {
    struct k_tensor_map x_map, w_map;
    KPTR(const float) bias;
    KPTR(void) y;
    int64_t y_stride, y_column;
    int64_t up_bias; /* with a gate: distance from its bias to that of up */
    int32_t m, n, k, y_dtype;
    int32_t up_row;      /* y = act(gate) * up: distance from a row of the gate to the row of up; 0: no gate */
    struct k_act act;    /* SILU or GELU_TANH */
    struct k_tile aside; /* rows of the next weight, which idle warps dequantise meanwhile; n = 0: none */
    int64_t aside_up;    /* dequantise as many rows again, so many rows behind the first; 0: no */
};

struct k_norm {
    struct k_view x, b, y, sum; /* b: the gate, or the second summand; sum: of ADD_NORM */
    KPTR(const float) weight;
    KPTR(const float) bias;
    int32_t kind, per_head, gate, gate_act;
    float eps, weight_offset, a_scale, b_scale;
    int32_t is_add;
    float cut;
    int64_t part_stride; /* x is the sum of n_parts parts of a product, so many elements apart */
    int32_t n_parts, pad;
};

/* ADD, ACT, GLU, MULVEC, CONCAT, ROWS and conversions. */
struct k_elem {
    struct k_view a, b, y;
    struct k_act act;
    float a_scale, b_scale;
    KPTR(const float) mul;
    KPTR(const float) add;
    KPTR(const int32_t) rows; /* of ROWS */
    int32_t mul_is_one, pad;
};

struct k_rope {
    struct k_view x, y;
    KPTR(const float) inv_freq; /* NULL: the step's table */
    KPTR(const float) step_rope;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) seq_of;
    int32_t kind, first, n_rotated, table;
    int32_t n_rope_tables, rope_width;
    float magnitude;
    int32_t shift;              /* added to the position */
    KPTR(const int32_t) places; /* [rows][3] which stand for pos; NULL: pos */
    uint32_t axes[32];          /* two bits for each pair: which of the three */
};

/* Rows of numbers from the host. */
struct k_given {
    struct k_view x, y;        /* x.p NULL: none */
    KPTR(const int32_t) at;    /* [rows] which of `numbers` are the row's; -1: it has none */
    KPTR(const float) numbers; /* [][width] */
    int32_t adds, pad;         /* adds: to x */
};

struct k_pool_rows {
    struct k_view x, y;
    int32_t n, pad;
};

/* Attention among the rows of a step. */
struct k_attn_rows {
    struct k_view q, k, v, y;
    KPTR(const int32_t) spans; /* [rows][2] rows that a row sees, from and to */
    KPTR(void) keys;           /* kernels/flash_rows.cu: bf16 [heads][rows][width], filled up with zeros */
    KPTR(void) values;
    float scale;
    int32_t width;
};

/* One layer of one KV class. k and v are [blocks][heads][K_BLOCK][width], or [blocks][heads] of the blocks of kernels/kv8.cuh. */
struct k_cache {
    KPTR(void) k;
    KPTR(void) v; /* NULL: the values are a part of the keys */
    KPTR(const int32_t) table;
    int32_t table_stride; /* blocks per sequence in the table */
    int32_t heads, k_width, v_width, dtype, pad;
};

struct k_kv_write {
    struct k_cache c;
    struct k_view k, v;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) seq_of;
};

/* Blocks of a cache of 8 bits that sequences from first_seq on see, as bf16: k and v are [blocks][heads][K_BLOCK][width], with the same numbers. */
struct k_kv_unpack {
    struct k_cache c;
    KPTR(void) k;
    KPTR(void) v;
    KPTR(const struct k_seq) seqs;
    int32_t window, chunk, first_seq, pad;
};

/* Values between the host's memory and ours, whole words; then a word of the host is counted up. */
enum { PASS_VALUES = 12 };
struct k_pass {
    struct {
        KPTR(const void) from;
        KPTR(void) to;
        int64_t bytes;
    } of[PASS_VALUES];
    KPTR(uint32_t) count;
    KPTR(volatile uint32_t) done;
    int32_t n, pad;
};

/* A layer of the host's cache, blocks of f16 by the numbers of the table: keys [heads][k_width][K_BLOCK], values [heads][K_BLOCK][v_width]. c: the layer here, bf16. */
struct k_lent {
    struct k_cache c;
    KPTR(void) k;
    KPTR(void) v;
    KPTR(const struct k_seq) seqs;
    int32_t window;   /* of the class: positions behind it may be gone */
    int32_t is_whole; /* fetching: 1: the step's own positions are there, too */
};

/* Norms and ropes of queries and keys, and KV_WRITE, in one kernel. */
struct k_qkv {
    struct k_cache c;
    struct k_view q, k, v, y; /* y: the queries */
    KPTR(const float) q_norm;
    KPTR(const float) k_norm;
    KPTR(const float) inv_freq;
    KPTR(const float) step_rope;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) rope_pos; /* of rope */
    KPTR(const int32_t) seq_of;
    int32_t kind, first, n_rotated, table;
    int32_t n_rope_tables, rope_width;
    float magnitude, q_eps, k_eps, q_offset, k_offset;
    int32_t n_parts;     /* q, k and v are sums of so many parts of a product; 0: they are whole */
    int64_t part_stride; /* elements */
};

struct k_attn {
    struct k_cache c;
    struct k_view q, y;
    KPTR(const float) sinks;
    KPTR(const float) slopes;    /* the reference rows only */
    KPTR(const float) distances; /* likewise */
    KPTR(const int32_t) picks;   /* likewise: positions of each row; NULL: all that are visible */
    int64_t picks_stride;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) until; /* [rows] last position of the row's picture, or -1; NULL: there is none */
    KPTR(const int32_t) seq_of;
    KPTR(const struct k_seq) seqs;
    KPTR(const int32_t) tiles; /* of prompt rows: pairs (sequence, first row of the tile inside it) */
    KPTR(float) partial;       /* split decode: [rows][heads][shared_splits + splits][v_width + 2], of a cache of 8 bits v_width + 4 */
    KPTR(uint32_t)
    counters; /* split decode: [rows][cached heads], of a cache of 8 bits [rows][cached heads][sets], runs that are done; 0 between launches */
    float scale, softcap, pos_scale_beta;
    int32_t window, chunk, pos_scale_len;
    int32_t group; /* query heads per cached head */
    int32_t splits;
    int32_t first_row; /* first row of the launch */
    int32_t pos_scale_first, slopes_in_bf16;
    int32_t n_picks;
    int32_t farthest, both_ways; /* the reference rows only */
    /* Decode rows that have blocks in common (kernels/prefix.cu). sharing: how many rows, how many positions, then the rows; shared_of: [rows] those positions, or
     * 0 where the row has no part in it; shared_splits: runs of these positions, whose parts come first in partial. NULL: no rows have. */
    KPTR(const int32_t) sharing;
    KPTR(const int32_t) shared_of;
    int32_t shared_splits;
    KPTR(const int32_t)
    spans; /* the reference rows only: [rows][2] positions of pictures that a row sees, from and to; NULL: those of its text */
};

/* With the projection's heads, of which it makes queries and the new keys and values. */
struct k_attn_new {
    struct k_attn a;
    struct k_qkv n;
};

/* With products for distances; the keys are rows of the step. */
struct k_attn_relative {
    struct k_attn a;
    struct k_view by_row, by_key;
    KPTR(const float) buckets; /* [2 farthest + 1] */
};

/* And entries of a second cache, at the end of every `every` positions: all, or those that were picked (a.picks). */
struct k_attn_more {
    struct k_attn a;
    struct k_cache more;
    int32_t every, pad;
};

struct k_pick {
    struct k_cache c;
    struct k_view q, w;
    KPTR(int32_t) y;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) seq_of;
    int64_t y_stride;
    int32_t k, keys; /* keys: the power of two at or above k */
    int32_t every;   /* the last of so many positions has a key */
    int32_t pad;
};

/* Attention of prompt rows on sm_90a; the cache of a layer through tensor maps, a row for each position and head, in boxes of 64 x 64. */
struct k_flash {
    struct k_tensor_map k_map, v_map;
    struct k_attn a;
};

struct k_argmax {
    struct k_view x;
    KPTR(int32_t) y;
    KPTR(int32_t) chosen; /* [rows] the same tokens again, for the next step */
    KPTR(float) best;     /* [rows][chunks] */
    KPTR(int32_t) at;
    int64_t y_stride;
    int32_t chunks, pad;
};

/* How a row's token is chosen; the same layout as struct step_choice of backend.h. It lies in the step block. */
struct k_choice {
    uint64_t seed;
    int32_t position, top_k;
    float temperature, top_p, min_p, repetition, frequency, presence;
    int32_t slot, n_bias, counts_input, leaves, mask, n_top;
};

struct k_bias {
    int32_t token;
    float bias;
};

enum { K_TOP_MAX = 20, K_BIAS_MAX = 1024, K_TOP_K_MAX = 1024 };

/* The token that was chosen; the same layout as struct step_chosen of backend.h. */
struct k_chosen {
    int32_t token;
    float logit;        /* of the token, as the model gave it */
    float largest, sum; /* of the row as the model gave it: the largest logit, the sum of exp(logit - largest); where n_top >= 0 */
    int32_t n_top;
    int32_t top_tokens[K_TOP_MAX];
    float top_logits[K_TOP_MAX];
    int32_t pad[3];
};

enum { K_BUCKETS = 2048, K_LIST_MAX = 2048, K_PIECE = 2048 };
enum { K_LIST_BYTES = K_LIST_MAX * 12 }; /* of shared memory: a list's keys, and a number for each */

/* What one kernel of kernels/choose.cu leaves for the next, for each row. */
struct k_choose_row {
    float largest; /* logit */
    int32_t at;    /* token that has it; -1: none can be chosen */
    float total;   /* sum of exp(logit - largest) */
    float cut;     /* kept are logits above it, and those equal to it up to the token `tie` */
    int32_t tie;
    int32_t near_all; /* buckets 0 to this are listed; -1: none */
    int32_t near_cut; /* the bucket that top-p cuts through; -1: none */
    float from;       /* logits from here on are listed; INFINITY: none */
};

/* Each row exists twice: the row from which the token is chosen, and, behind all of those, the row as the model gave it. The second is used where the
 * log-probabilities of a row are wanted that bias, penalties or masks have changed. */
struct k_choose {
    KPTR(const float) logits;
    KPTR(float) shaped; /* [rows][vocab] rows that were changed */
    KPTR(const struct k_choice) choices;
    KPTR(const uint32_t) masks;     /* [][mask_words] bits of tokens that may be chosen */
    KPTR(uint32_t) said;            /* [slots][vocab] how often a token stands in the window (low half) and in the answer */
    KPTR(const struct k_bias) bias; /* [slots][K_BIAS_MAX] */
    KPTR(const int32_t) ids;        /* of the step's rows, see k_embed */
    KPTR(const int32_t) wanted_rows;
    KPTR(int32_t) chosen;            /* [rows] read as the step before left it, written */
    KPTR(struct k_chosen) out;       /* [rows] */
    KPTR(struct k_choose_row) state; /* [2 rows] */
    KPTR(float) part_best;           /* [2 rows][slices] */
    KPTR(int32_t) part_at;
    KPTR(float) part_sum;
    KPTR(uint32_t) buckets;  /* [2 rows][slices][2][K_BUCKETS] counts, and fractions of mass */
    KPTR(uint64_t) lists;    /* [2 rows][2][K_LIST_MAX] rank and token */
    KPTR(int32_t) list_n;    /* [2 rows][2] */
    KPTR(float) piece_sum;   /* [2 rows][pieces][4] of K_PIECE / 4 tokens each */
    KPTR(uint32_t) counters; /* [2 rows] zero between launches */
    int64_t stride;          /* of logits */
    int32_t vocab, rows, slices, mask_words;
};

/* How experts are chosen by the router's scores, and weighed: as struct route_args of backend/ops.h. */
struct k_route_rule {
    KPTR(const float) bias;
    KPTR(const float) expert_scale;
    int32_t score, k, normalize, n_groups, top_groups, group_top2;
    float norm_eps, scale, jitter;
    int32_t pad;
};

struct k_route {
    struct k_view x;
    KPTR(int32_t) ids;
    KPTR(float) weights;
    int64_t ids_stride, weights_stride;
    struct k_route_rule rule;
};

struct k_passing {
    KPTR(const int32_t) ids;
    KPTR(const float) weights;
    KPTR(int32_t) out_ids;
    KPTR(float) out_weights; /* [rows][k + 1] */
    int64_t ids_stride, weights_stride;
    int32_t rows, k, n_experts, pad;
};

struct k_experts {
    struct k_weight gate, up, down;       /* gate.values NULL: no gate; stacked gate_up: up begins `inner` rows after gate in each expert */
    int64_t gate_rows, up_rows, up_first; /* rows per expert of the matrices that hold them; row of up's first */
    KPTR(const float) gate_bias;
    KPTR(const float) up_bias;
    KPTR(const float) down_bias;
    int64_t gate_bias_stride, up_bias_stride, up_bias_first; /* per expert */
    struct k_view x, y;
    KPTR(const int32_t) ids;
    KPTR(const float) weights;
    int64_t ids_stride, weights_stride;
    KPTR(float) inner_values; /* [pairs, inner]; of kernels/moe.cu */
    KPTR(void) inner_terms;   /* bf16 [2][pairs, inner]; of kernels/experts.cu; with many rows in the order of `pairs`, and the rest: */
    KPTR(void)
    x_terms;             /* bf16 [2][rows, width]; of batches of requests this and inner_terms are integers of 16 bits (kernels/x16.cuh), in
                           * kernels/experts_sm90.cu f16 with the rows' scales behind them */
    KPTR(float) outer;   /* [pairs, out], the same */
    KPTR(int32_t) pairs; /* by expert */
    KPTR(int32_t) places; /* of each pair in `pairs` */
    KPTR(int32_t) tiles;  /* their number; (expert, first of its pairs, how many) of each */
    struct k_act act;
    int32_t inner, k, n_experts, scale_input;
    int32_t first;      /* the number of the first of these experts; choices of others add nothing */
    int32_t tile_pairs; /* pairs of an expert that a block takes, at most */
    int32_t depth;      /* of a batch of requests: units of weights that a warp has under way, 2 or 4 */
};

/* What ranks do together (kernels/ranks.cu): a sum of `total` numbers, or rows of parts. */
enum { RANKS_MAX = 16 };
struct k_ranks {
    KPTR(unsigned char) desks[RANKS_MAX]; /* of all ranks */
    KPTR(uint32_t) rounds;                /* rounds until now; blocks that have left the launch */
    KPTR(uint32_t) counters;              /* of the context */
    KPTR(const float) in;
    KPTR(float) out;
    int64_t total;                               /* numbers of a sum; of rows: slots that they take */
    int64_t whole, width, in_stride, out_stride; /* of rows: numbers in all and of this rank's part; from a row to the next */
    int32_t rank, n, n_rounds, pad;
};

/* Recurrent ops: state of a sequence is state + slot * slot_stride. */
struct k_state {
    KPTR(float) p;
    int64_t slot_stride;
    KPTR(const struct k_seq) seqs;
    KPTR(const int32_t) seq_of;
};

struct k_conv {
    struct k_state s;
    struct k_view x, y;
    KPTR(const float) weight;
    KPTR(const float) bias;
    int32_t taps, act;
};

struct k_delta {
    struct k_state s;
    struct k_view q, k, v, a, b, y;
    KPTR(const float) a_log;
    KPTR(const float) dt_bias;
    int32_t k_heads, v_heads, k_width, v_width;
    float scale, l2_eps, bound, beta_scale;
    int32_t l2_norm, by_channel;
};

struct k_ssd {
    struct k_state s;
    struct k_view x, b, c, dt, y;
    KPTR(const float) a_log;
    KPTR(const float) d;
    KPTR(const float) dt_bias;
    int32_t heads, head_width, groups, state_width;
    float dt_min, dt_max;
};

struct k_scan {
    struct k_state s;
    struct k_view x, dt, b, c, y;
    KPTR(const float) a_log;
    KPTR(const float) d;
    int32_t state_width, pad;
};

struct k_lru {
    struct k_state s;
    struct k_view x, i, r, y;
    KPTR(const float) rate;
};

struct k_wkv {
    struct k_state s;
    struct k_view k, v, y;
    KPTR(const float) rate;
    KPTR(const float) first;
};

struct k_compress {
    struct k_state s;
    struct k_view x, y;
    KPTR(const float) bias;
    KPTR(const int32_t) pos;
    int32_t every, width, overlaps, pad;
};

struct k_blend {
    struct k_view x, logits, made, post, y;
    int32_t rounds;
    float eps;
};

struct k_exchange {
    struct k_state s;
    struct k_view r, w, k, v, at, share, y;
    int32_t width;
    float rate;
};

struct k_mlstm {
    struct k_state s;
    struct k_view q, k, v, i, f, y;
    int32_t heads, k_width, v_width;
    float scale, eps;
    int32_t pad;
};

struct k_lightning {
    struct k_state s;
    struct k_view q, k, v, y;
    KPTR(const float) slope;
    int32_t heads, width;
};

/* ---- decode steps (kernels/step.cu, kernels/one.cu): instructions, one behind the other in one launch or each in its own ----
 *
 * A link is what one instruction makes and a later one of the same list reads: tagged words (kernels/sync.cuh), rows one behind the other;
 * a word has one f32 or two bf16. Its tag is the launch's first and the number of the instruction that made it. */

enum k_step_kind { K_STEP_LINEAR, K_STEP_ATTN, K_STEP_ROUTER, K_STEP_X, K_STEP_QUERIES, K_STEP_LATENT, K_STEP_VALUES };

/* The experts of a row are three instructions: the router's scores; gate and up of the chosen experts, one expert behind the other, each result times
 * the expert's weight; down, as one product whose k runs through all chosen experts. Every block chooses the experts by itself. */
enum k_step_half { K_HALF_NONE, K_HALF_INNER, K_HALF_DOWN };
enum { K_CHOICES_MAX = 16 };

struct k_step_experts {
    struct k_route_rule rule;         /* INNER: how the choice is made */
    KPTR(const uint64_t) scores_link; /* INNER: the router's scores, and who made them */
    KPTR(int32_t) ids;                /* [rule.k] chosen experts, kept for DOWN where it is a launch of its own */
    int32_t scores_maker, n_experts;
    int32_t half;        /* enum k_step_half */
    int32_t k;           /* experts that are chosen */
    KPTR(float) weights; /* [rule.k] kept likewise, where down has biases */
};

/* y = a product of up to eight rows, with the norm before it and the gate or the residual behind it. */
struct k_step_linear {
    struct k_weight w;      /* 4 bits in tiles, or bf16 */
    KPTR(const float) bias; /* of experts: a row for each of them */
    KPTR(const void) x;
    KPTR(const int32_t) x_rows; /* which rows; NULL: in order */
    int64_t x_stride;
    KPTR(const float) norm; /* weight of an rms norm of x; NULL: 1 */
    KPTR(const float) residual;
    KPTR(void) y;
    int64_t residual_stride, y_stride;
    int64_t glu_inner; /* 0: no gate */
    struct k_act act;
    float own_scale, residual_scale, eps, norm_offset;
    float inv_in; /* 1 / w.in */
    int32_t x_dtype, y_dtype, rows, has_norm;
    int32_t n_tiles, tiles_each, tiles_more; /* tiles of 16 results: in all, of each block, and how many blocks have one more */
    int32_t x_maker, residual_maker;         /* instructions that made what the links have */
    KPTR(const uint64_t) x_link;             /* NULL: x lies at x, the residual at residual */
    KPTR(const uint64_t) residual_link;
    KPTR(uint64_t) y_link; /* NULL: nobody reads y through a link; y NULL: nobody reads it otherwise */
    struct k_step_experts e;
    /* Lists of several rows: K_STEP_X makes x of the products behind it, with their norm (kernels/rows_x.cuh), and makes `x_old` ready to be written again. */
    KPTR(unsigned char) x_units;
    KPTR(unsigned char) x_old;      /* NULL: none */
    int32_t x_old_in, x_old_blocks; /* elements of a row of x_old; the first blocks of the launch that have tiles of every product */
    /* kernels/one_post.cu, where has_sum is 1: x is a norm of what came, times own_scale, plus the residual, times residual_scale; it goes through sum_link to who adds to it. */
    KPTR(const float) sum_norm; /* weight of that norm; NULL: 1 */
    KPTR(uint64_t) sum_link;    /* NULL: nobody does */
    float sum_eps, sum_offset;
    int32_t has_sum, sum_pad;
    /* Lists with latent attention: the tiles of an expert that every row takes, beside those that it chooses. It counts as choices behind those of e.rule.k, each
     * as wide as one of them. */
    KPTR(const unsigned char) shared;
};

/* Norms of queries and keys, rope, the new keys and values into the cache, and attention of decode rows. */
struct k_step_attn {
    struct k_cache c;
    KPTR(const float) q;
    KPTR(const float) k;
    KPTR(const float) v;
    int64_t q_row, k_row, v_row, q_head, k_head, v_head; /* strides */
    KPTR(void) y;
    int64_t y_row; /* stride; heads lie one behind the other */
    KPTR(const float) q_norm;
    KPTR(const float) k_norm;
    KPTR(const float) inv_freq;
    KPTR(const float) step_rope;
    KPTR(const float) sinks;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) rope_pos; /* of rope */
    KPTR(const int32_t) seq_of;
    KPTR(float) partial;     /* [rows][heads][splits][width + 2], of a cache of 8 bits width + 4 */
    KPTR(uint32_t) counters; /* [rows][cached heads], zero between launches: splits that are done */
    int32_t rope_kind, rope_first, n_rotated, table, n_rope_tables, rope_width;
    float magnitude, q_eps, k_eps, q_offset, k_offset;
    float scale, softcap, pos_scale_beta;
    int32_t window, chunk, pos_scale_len, pos_scale_first;
    int32_t group, splits, rows, y_dtype, has_q_norm, has_k_norm;
    int32_t single, items; /* of kernels/one.cu: the most runs of a row whose query heads are items of their own; the most items of a row */
    int32_t qkv_maker, qkv_row;    /* of the link: the instruction that made it, words of its row */
    int32_t q_at, k_at, v_at;      /* where queries, keys and values begin in that row */
    KPTR(const uint64_t) qkv_link; /* NULL: they lie at q, k and v */
    KPTR(uint64_t) y_link;
};

/* Latent attention of a row (kernels/one_latent.cuh) is three instructions, which are told the same: queries into the space of latents, with their rope; attention, with the
 * norm, the rope and the storing of the new position; results of each head out of the space of latents. */
struct k_step_latent {
    struct k_cache c;
    struct k_weight w;            /* QUERIES, VALUES: a matrix for each head, one behind the other */
    KPTR(const uint64_t) q_link;  /* QUERIES: [heads][nope + rope] f32, from q_at on */
    KPTR(const uint64_t) kv_link; /* LATENT: [values + rope] f32, from kv_at on */
    KPTR(const uint64_t) x_link;  /* LATENT: what QUERIES made; VALUES: parts, [heads][splits][values + 2] */
    KPTR(uint64_t) y_link;        /* QUERIES: [heads][width / 2] pairs of bf16; LATENT: parts; VALUES: [heads][v_width] f32 */
    KPTR(const float) norm;       /* of the new position */
    KPTR(const float) inv_freq;
    KPTR(const float) step_rope;
    KPTR(const int32_t) pos;
    KPTR(const int32_t) rope_pos;
    KPTR(const int32_t) seq_of;
    int32_t q_at, kv_at, q_maker, kv_maker;
    int32_t heads, nope, v_width, splits; /* splits: runs of positions at most */
    int32_t rope_kind, table, n_rope_tables, rope_width;
    float magnitude, eps, norm_offset, scale, pos_scale_beta;
    int32_t pos_scale_len, pos_scale_first;
};

/* Where a product's weights lie, for the rings of kernels/one.cu. Attention has none: its units are 0. */
struct k_stream {
    KPTR(const unsigned char) values;
    KPTR(const float) norm;         /* weights of the norm, fetched ahead of x */
    int32_t tile_bytes, pair_bytes; /* of a tile; from a pair to the next */
    int32_t second;                 /* bytes from a tile to the other of its pair */
    int32_t units, parts;           /* units of 64 along k; tiles of weights for a tile of results, 2 with a gate */
    int32_t tiles_each, tiles_more; /* as in the product */
    int32_t half;                   /* enum k_step_half */
    int32_t expert_tiles;           /* of one expert's matrix */
    int32_t each;                   /* of one choice: tiles of INNER, units of DOWN */
};

enum { K_INSTR_BYTES = 512 };

struct k_instr {
    int32_t kind;
    int32_t number;     /* in its list */
    int32_t waits;      /* it begins when all blocks have done the instructions before it */
    int32_t unit_bytes; /* of a product in tiles: of a unit of 64 elements */
    struct k_stream stream;
    union {
        struct k_step_linear linear;
        struct k_step_attn attn;
        struct k_step_latent latent;
        unsigned char bytes[K_INSTR_BYTES - 72];
    } u;
};

struct k_step_run {
    KPTR(const struct k_instr) instrs; /* NULL: `one` alone */
    KPTR(uint32_t) barrier;            /* arrivals and departures, zero between launches; the last tag of the launches before */
    int32_t n;
    int32_t tags;  /* how many tags this launch uses up */
    int32_t depth; /* places of a warp's ring in kernels/one.cu */
    /* Lists of several rows: x of their products. Who leaves the launch last makes what lies from x_rest on ready to be written again, and after a wait without an end all of it. */
    KPTR(unsigned char) x_units;
    int64_t x_rest, x_bytes;
    struct k_instr one;
};

#endif
