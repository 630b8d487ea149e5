/* Inside the CPU backend: its state and the runners that execute ops.
 *
 * An op list is planned at end() (plan.h) and then run op by op. A runner splits its rows or output elements over the
 * pool; a row's result depends on that row's own data only, never on the thread count or on what else is in the batch.
 */
#ifndef MLXCEL_BACKEND_CPU_CPU_H
#define MLXCEL_BACKEND_CPU_CPU_H

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/kern.h"
#include "backend/plan.h"

/* A bound weight: the checkpoint's planes, row after row; or panels (pack.h). */
struct cpu_weight {
    unsigned char *values, *scales, *biases;
    size_t values_stride, scales_stride, biases_stride; /* bytes per row */
    unsigned char *panels;                              /* NULL: planes */
    struct pack_shape pack;
    size_t bytes;
};

struct cpu_kv_class {
    struct kv_class shape;
    bool half;    /* f16 in the layout of cpu_attn_half.c; else f32 */
    int32_t bits; /* 8 or 4: codes and scales in the layout of kern_kv_tmpl.h; 0: whole numbers */
    void *k, *v;  /* [layers][blocks][heads][KV_BLOCK][width] */
};

enum { CPU_ROPE_TABLES = 2 };

struct cpu {
    struct backend base;
    struct cpu_device *device;
    struct pool *pool; /* the device's; to be used between cpu_device_enter and cpu_device_leave */
    struct kernels kern;
    struct plan plan;
    unsigned char *scratch;
    size_t scratch_bytes;
    float *thread_scratch; /* [threads][thread_floats] for scores, dequantised rows, routing */
    int64_t thread_floats;
    float *rope_angles; /* [CPU_ROPE_TABLES][rope_floats], of this step (cpu_rope.c) */
    int64_t rope_floats;
    struct rope_args rope_args[CPU_ROPE_TABLES];
    bool rope_known[CPU_ROPE_TABLES];
    int rope_next;
    unsigned char *acts; /* quantised rows of the linear layer at hand */
    size_t acts_bytes;
    const struct op *expected; /* a LINEAR whose acts are made by the op before it (cpu_linear_expect) */
    struct quant_acts expected_acts;
    float *op_scratch; /* for what an op keeps between its passes */
    int64_t op_floats;
    struct kv_layout layout;
    struct cpu_kv_class kv[KV_CLASSES_MAX];
    float *states; /* [slots][state_total] */
    int64_t state_offsets[STATES_MAX], state_total;
    int32_t kv_bits; /* wanted for all classes; 0: f16 or f32 */
    bool no_fuse;
    struct err failed; /* of this step: another rank's failure */
};

typedef void cpu_runner(struct cpu *c, const struct op *op, const struct step *step);

cpu_runner cpu_run_embed, cpu_run_input, cpu_run_linear, cpu_run_head_linear, cpu_run_adapt;
cpu_runner cpu_run_norm, cpu_run_add_norm, cpu_run_add, cpu_run_act, cpu_run_glu, cpu_run_mulvec, cpu_run_rope, cpu_run_concat,
    cpu_run_rows, cpu_run_argmax, cpu_run_blend;
cpu_runner cpu_run_kv_write, cpu_run_attn, cpu_run_attn_more, cpu_run_pick;
cpu_runner cpu_run_route, cpu_run_passing, cpu_run_experts;
cpu_runner cpu_run_conv, cpu_run_delta, cpu_run_ssd, cpu_run_scan, cpu_run_lightning, cpu_run_lru, cpu_run_wkv, cpu_run_exchange,
    cpu_run_mlstm, cpu_run_compress;
cpu_runner cpu_run_given, cpu_run_attn_rows, cpu_run_pool_rows;
cpu_runner cpu_run_sum, cpu_run_gather;

/* y = (act(gate) already in y) * up * scale, the up half by the rules of the activation; up_stride 0 repeats one factor. */
void cpu_gate(const struct act_args *a, float *y, const float *up, int64_t n, int64_t up_stride);
/* Floats of op_scratch that ARGMAX needs; those, and bytes of `acts`, that EXPERTS needs. */
int64_t cpu_argmax_floats(const struct op *op);
int64_t cpu_adapt_floats(const struct op *op);  /* ADAPT's */
int64_t cpu_gather_floats(const struct op *op); /* GATHER's */
int64_t cpu_experts_scratch(const struct op *op);
size_t cpu_experts_acts_bytes(const struct op *op);

int cpu_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void cpu_weight_release(struct backend *be, struct weight *w);
bool cpu_weight_lend(const struct backend *be, const struct weight *w, struct weight_lent *out);
int32_t cpu_kv_number_bytes(const struct backend *be, const struct kv_class *k);
int cpu_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err);
void cpu_kv_close(struct backend *be);
bool cpu_kv_lend(const struct backend *be, int32_t kv_class, struct kv_lent *out);
size_t cpu_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout);
int cpu_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err);
int cpu_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err);
int cpu_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err);
int cpu_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err);
int cpu_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err);
int cpu_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err);

/* The half-precision cache: whether a class can have it, and the two ops over it. */
bool cpu_kv_half_fits(const struct cpu *c, const struct kv_class *k);
cpu_runner cpu_kv_write_half, cpu_attn_half;
int64_t cpu_attn_rows_floats(const struct cpu *c, const struct op *op); /* likewise of ATTN_ROWS */
int64_t cpu_attn_rows_op_floats(const struct cpu *c, const struct op *op);
/* The same in half precision, where it can be. */
bool cpu_rows_in_half(const struct cpu *c, const struct op *op);
int64_t cpu_rows_half_floats(const struct op *op);
int64_t cpu_rows_half_op_floats(const struct op *op);
cpu_runner cpu_run_rows_half;
int64_t cpu_attn_half_floats(const struct cpu *c, const struct op *op); /* scratch memory per thread */
int64_t cpu_attn_op_floats(const struct cpu *c, const struct op *op);   /* of the op */
/* The cache of 8 or 4 bits: the writer; attention is cpu_attn_half. */
cpu_runner cpu_kv_write_packed;
/* First visible position of a row; scale of its scores. */
int32_t cpu_first_visible(const struct attn_args *a, const struct step *step, int32_t r);
/* The last position that row r sees: its own, or one behind it. */
int32_t cpu_last_visible(const struct attn_args *a, const struct step *step, int32_t r);
float cpu_query_scale(const struct attn_args *a, int32_t pos);
/* What a head's slope, or its tables of distances, add to the score that row r gives the key at position p; whether there is any of that. */
float cpu_place_bias(const struct cpu *c, const struct op *op, const struct step *step, int32_t r, int32_t head, int32_t p);
bool cpu_has_places(const struct op *op);

/* Whether the cache that an attention reads lies in blocks of a layout of its own. */
static inline bool cpu_in_blocks(const struct cpu *c, const struct op *attn) {
    const struct cpu_kv_class *k = &c->kv[attn->arg.attn.kv.kv_class];
    return k->half || k->bits;
}

/* Floats of one table of angles for this op's rows. */
int64_t cpu_rope_floats(const struct op *op);

/* Norms and ropes of queries and keys (cpu_heads.c): how many ops from the i-th on are done in one pass, 0: none; and that pass. */
int32_t cpu_heads_find(const struct oplist *l, int32_t i);
void cpu_run_heads(struct cpu *c, int32_t i, const struct step *step);
/* One head of a NORM; a head of a ROPE, in place; where the angles of two ROPEs are, [rows][n_rotated]. */
void cpu_norm_head(struct cpu *c, const struct op *op, int64_t head, const float *from, float *to);
void cpu_rope_turn(const struct rope_args *a, const float *angles, float *x);
void cpu_rope_angles(struct cpu *c, const struct op *a, const struct op *b, const struct step *step, const float **out_a,
                     const float **out_b);

/* What each thread reads first of a LINEAR's weights, if that is known and memory is what limits it. */
struct pool_ahead cpu_linear_ahead(const struct cpu *c, const struct op *op);

/* Where op writes what the LINEAR behind it reads, and there are few rows: the threads that write them make their activations, too. One thread
 * would do it for all later, from the caches of the others. Such an op says when it has written row r, or columns [from, from + n)
 * of it, whole spans. */
void cpu_linear_expect(struct cpu *c, const struct op *op, const struct op *next);
void cpu_made_row(struct cpu *c, const struct op *op, int64_t r);
void cpu_made_part(struct cpu *c, const struct op *op, int64_t r, int64_t from, int64_t n);

/* Bytes that cpu_run_linear needs in `acts` for this op. */
size_t cpu_linear_acts_bytes(const struct op *op);

/* HEAD_LINEAR over panels of plain weights: whether it can be, its bytes of `acts`. */
bool cpu_head_panels(const struct op *op);
size_t cpu_head_acts_bytes(const struct op *op);
void cpu_run_head_panels(struct cpu *c, const struct op *op);

/* Lays rows of activations for a matrix into memory; returns the bytes that they take. NULL: the bytes alone. */
size_t cpu_place_acts(const struct pack_shape *s, int64_t n_rows, unsigned char *memory, struct quant_acts *out);
/* One row of a matrix as floats, from its planes or its panels. */
void cpu_unpack_row(const struct cpu *c, const struct weight *w, int64_t row, float *out);

/* The memory of a tensor's first element. */
static inline float *cpu_data(const struct cpu *c, struct tensor t) {
    return (float *)(c->scratch + c->plan.offsets[t.id - 1]) + t.offset;
}
static inline float *cpu_row(const struct cpu *c, struct tensor t, int64_t row) {
    return cpu_data(c, t) + row * t.row_stride;
}
static inline float *cpu_thread(const struct cpu *c, int32_t thread) {
    return c->thread_scratch + (int64_t)thread * c->thread_floats;
}
/* A weight as this backend keeps it. */
static inline const struct cpu_weight *cpu_packed(const struct weight *w) {
    return w->packed;
}
/* A vector weight's elements. */
static inline const float *cpu_vec(const struct weight *w) {
    return w ? (const float *)cpu_packed(w)->values : NULL;
}
static inline struct quant_row cpu_weight_row(const struct weight *w, int64_t row) {
    const struct cpu_weight *p = cpu_packed(w);
    return (struct quant_row){p->values + (size_t)row * p->values_stride, p->scales ? p->scales + (size_t)row * p->scales_stride : NULL,
                              p->biases ? p->biases + (size_t)row * p->biases_stride : NULL};
}
/* State `index` of a sequence's slot. */
static inline float *cpu_state(const struct cpu *c, int32_t index, int32_t slot) {
    return c->states + (int64_t)slot * c->state_total + c->state_offsets[index];
}

#endif
