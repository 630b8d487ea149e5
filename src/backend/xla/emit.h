/* From an op list to a StableHLO program.
 *
 * A program serves one shape: `seqs` sequences of `rows` rows each, a context of at most `context` positions. Either
 * rows or seqs is 1: decode steps take many sequences, prompts go one by one, in chunks. What an op means is the CPU
 * backend's word (src/backend/cpu); there is one emitter per kind of op, in a table.
 *
 * Arguments of the program, in this order: the step block (all that changes from step to step, one array of int32);
 * keys and values of each layer; recurrent states; then the weights' planes in the order of their first use. Results:
 * keys, values and states again, in the same memory; then the values that the host may read.
 */
#ifndef MLXCEL_BACKEND_XLA_EMIT_H
#define MLXCEL_BACKEND_XLA_EMIT_H

#include "backend/backend.h"
#include "backend/xla/hlo.h"

struct pjrt_buffer;

/* ---- what a program is made for --------------------------------------------------------------------------------- */

struct xla_shape {
    int32_t seqs, rows, logits, context;
};

static inline int32_t xla_all_rows(const struct xla_shape *s) {
    return s->seqs * s->rows;
}

enum { XLA_ROPES_MAX = 8 };

/* Where each array lies in the step block, counted in int32; sines and cosines are float32 bits. */
struct xla_step_layout {
    int32_t ids, pos, slots, starts, lens, logit_rows, n_valid;
    int32_t tables[KV_CLASSES_MAX], writes[KV_CLASSES_MAX];
    int32_t ropes[XLA_ROPES_MAX];               /* [rows, n_rotated]: cosines, then sines */
    int32_t given[GIVEN_SETS], has[GIVEN_SETS]; /* [rows, width], float32; [rows] 1: the row is given */
    int32_t spans[2];                           /* [rows, 2] */
    int32_t until;                              /* [rows] */
    int32_t size;
};

/* What a list reads of a step: the distinct tables of angles, and what comes with pictures. */
struct xla_needs {
    int32_t n_ropes;
    struct rope_args ropes[XLA_ROPES_MAX];
    int32_t given[GIVEN_SETS]; /* widths; 0: none */
    bool spans[2];
    bool sees;     /* some rows see others behind them: until */
    bool is_tower; /* all rows of the step are one piece, and none is padding */
};

/* False when the list has more tables than fit. */
bool xla_needs_find(const struct oplist *l, bool sees, struct xla_needs *out);
int32_t xla_rope_index(const struct xla_needs *needs, const struct rope_args *a);
void xla_step_layout(const struct xla_shape *at, const struct kv_layout *kv, const struct xla_needs *needs, struct xla_step_layout *out);

/* ---- weights ------------------------------------------------------------------------------------------------------ */

struct xla_plane {
    struct pjrt_buffer *buffer;
    enum hlo_type type;
    struct hlo_shape shape; /* [all rows, elements per row]; vectors [n] */
    int32_t cut;            /* see pjrt_shape */
};

struct xla_weight {
    struct xla_plane planes[N_PLANES];
    bool exact;    /* its products stay in float32 */
    bool unpacked; /* codes of one byte each, whatever the format says */
    float *host;   /* vectors keep a copy here */
    size_t bytes;
};

/* ---- emitting ----------------------------------------------------------------------------------------------------- */

enum { XLA_OUTPUTS_MAX = GIVEN_SETS };

struct xla_program {
    struct sb text;
    const struct weight **weights; /* in the order of the arguments */
    int32_t n_weights, weights_capacity;
    int32_t outputs[XLA_OUTPUTS_MAX]; /* value ids, in the order of the results */
    int32_t n_outputs;
};

struct emit_args {
    const struct oplist *list;
    struct xla_shape at;
    const struct kv_layout *kv;
    const struct xla_needs *needs;
    bool half;         /* products and cache in bf16 */
    int32_t n_devices; /* that the program runs on; 0 and 1: one */
};

/* How arrays lie on n devices, as pjrt_shape.cut says. Rows of matrices, and so experts and words, where n divides them, else their columns; heads of the
 * cache; the rest is everywhere. What lies between follows from that: XLA's partitioner cuts the program. */
static inline int32_t xla_cut_matrix(int64_t n_rows, int64_t n_columns, bool is_vector, int32_t n) {
    if (n <= 1 || is_vector) return 0;
    return n_rows % n == 0 ? 1 : n_columns % n == 0 ? 2 : 0;
}

static inline int32_t xla_cut_heads(int32_t n_heads, int32_t n) {
    return n > 1 && n_heads % n == 0 ? 2 : 0;
}

/* {mhlo.sharding = "..."}, with the number of the result whose memory it shares; alias -1: none. Nothing where there is nothing to say. */
void emit_put_attributes(struct sb *out, int32_t n_devices, int32_t cut, int32_t alias);
/* module NAME, with the number of devices where there are several. */
void emit_put_module(struct sb *out, const char *name, int32_t n_devices);

struct emit {
    struct hlo h;
    struct emit_args a;
    struct xla_step_layout in;
    struct hlo_val step;
    struct hlo_val *values;                                /* by id - 1: [rows, elements of a row] */
    struct hlo_val *k[KV_CLASSES_MAX], *v[KV_CLASSES_MAX]; /* [n_layers]: [blocks * KV_BLOCK, heads * width] */
    struct hlo_val *states;                                /* [slots + 1, elements] */
    struct hlo_val *planes;                                /* [n_weights][N_PLANES] */
    struct xla_program *out;
    struct arena arena;
    struct sb head; /* the arguments, as they come */
};

/* Writes the program of a list. ERR_EUNSUPPORTED names an op that has no emitter. */
int emit_program(const struct emit_args *args, struct xla_program *out, struct err *err);
void xla_program_free(struct xla_program *p);

typedef void emit_fn(struct emit *e, const struct op *op);
emit_fn emit_embed, emit_linear, emit_head_linear;
emit_fn emit_norm, emit_add, emit_act, emit_glu, emit_mulvec, emit_rope, emit_concat, emit_rows, emit_argmax;
emit_fn emit_given, emit_attn_rows, emit_pool_rows;
emit_fn emit_blend, emit_kv_write, emit_pick, emit_attn, emit_attn_more, emit_route, emit_passing, emit_experts;
emit_fn emit_conv, emit_delta, emit_ssd, emit_scan, emit_lightning, emit_lru, emit_wkv, emit_exchange, emit_mlstm, emit_compress;

/* ---- for emitters ------------------------------------------------------------------------------------------------- */

/* n elements of the step block from `at`, in a shape; float32 where asked. */
struct hlo_val emit_step_part(struct emit *e, int32_t at, struct hlo_shape shape, enum hlo_type type);
/* A tensor as [rows, heads, width], or [rows, heads * width]. */
struct hlo_val emit_view(struct emit *e, struct tensor t);
struct hlo_val emit_flat(struct emit *e, struct tensor t);
/* Sets the result i of an op; any shape of the right size. */
void emit_set(struct emit *e, const struct op *op, int32_t i, struct hlo_val v);
/* A vector weight [n], f32. */
struct hlo_val emit_vector(struct emit *e, const struct weight *w);
/* All of a matrix, dequantised: [out, in], or [experts, out, in] of more than one. Its type is that of products. */
struct hlo_val emit_matrix(struct emit *e, const struct weight *w);
/* Some rows of a matrix, or whole experts of a stack [n, out, in], by index. */
struct hlo_val emit_matrix_rows(struct emit *e, const struct weight *w, struct hlo_val index);
struct hlo_val emit_matrix_experts(struct emit *e, const struct weight *w, struct hlo_val index);
/* x in the type in which it is multiplied with w. */
struct hlo_val emit_factor(struct emit *e, const struct weight *w, struct hlo_val x);
struct hlo_val emit_act_of(struct emit *e, struct hlo_val x, enum act_kind kind, const float *p);
struct hlo_val emit_softplus(struct emit *e, struct hlo_val x);
/* act(gate) * up * scale by the rules of the activation. */
struct hlo_val emit_gated(struct emit *e, struct hlo_val gate, struct hlo_val up, const struct act_args *a);

#endif
