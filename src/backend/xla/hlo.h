/* A builder of StableHLO in text form.
 *
 * A value is a small handle: its number in the text, element type and shape. Functions append one operation and return
 * its result; shapes are computed here, and a mismatch is our own mistake (assert). Nothing is known of models.
 *
 * Since a call appends, no two of them stand among the arguments of one call: C leaves their order open, and the text
 * (which is pinned by tests and keys the cache of compiled programs) would depend on the compiler.
 */
#ifndef MLXCEL_BACKEND_XLA_HLO_H
#define MLXCEL_BACKEND_XLA_HLO_H

#include "base/str.h"

enum hlo_type { HLO_F32, HLO_BF16, HLO_F16, HLO_I32, HLO_U8, HLO_U16, HLO_U32, HLO_BOOL, N_HLO_TYPES };
enum { HLO_RANK_MAX = 8 };

struct hlo_shape {
    int32_t rank;
    int64_t dims[HLO_RANK_MAX];
};

struct hlo_val {
    int32_t id; /* %id; 0: none */
    enum hlo_type type;
    struct hlo_shape shape;
};

struct hlo {
    struct sb text;
    int32_t n_vals;
};

#define HLO_SHAPE(...) ((struct hlo_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

static inline int64_t hlo_dim(struct hlo_val v, int32_t i) {
    return v.shape.dims[i];
}

void hlo_put_type(struct sb *out, enum hlo_type type, struct hlo_shape shape);
/* A name for a value that the text defines itself: an argument of a function or of a region. */
struct hlo_val hlo_name(struct hlo *h, enum hlo_type type, struct hlo_shape shape);

/* ---- elements ------------------------------------------------------------------------------------------------------ */

struct hlo_val hlo_const(struct hlo *h, enum hlo_type type, double value, struct hlo_shape shape);
struct hlo_val hlo_like(struct hlo *h, struct hlo_val x, double value); /* a constant of x's type and shape */
struct hlo_val hlo_iota(struct hlo *h, enum hlo_type type, struct hlo_shape shape, int32_t dim);
struct hlo_val hlo_unary(struct hlo *h, const char *op, struct hlo_val x);
struct hlo_val hlo_erf(struct hlo *h, struct hlo_val x);
struct hlo_val hlo_binary(struct hlo *h, const char *op, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_with(struct hlo *h, const char *op, struct hlo_val a, double b); /* a op constant */
struct hlo_val hlo_add(struct hlo *h, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_sub(struct hlo *h, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_mul(struct hlo *h, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_div(struct hlo *h, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_compare(struct hlo *h, const char *direction, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_compare_with(struct hlo *h, const char *direction, struct hlo_val a, double b);
struct hlo_val hlo_select(struct hlo *h, struct hlo_val p, struct hlo_val a, struct hlo_val b);
struct hlo_val hlo_convert(struct hlo *h, struct hlo_val x, enum hlo_type type);
struct hlo_val hlo_round_bf16(struct hlo *h, struct hlo_val x); /* of float32, which it stays; compilers drop a conversion to and fro */
struct hlo_val hlo_bitcast(struct hlo *h, struct hlo_val x, enum hlo_type type); /* of the same size */

/* ---- shapes -------------------------------------------------------------------------------------------------------- */

struct hlo_val hlo_reshape(struct hlo *h, struct hlo_val x, struct hlo_shape shape);
/* Dimension i of x becomes dimension dims[i] of the result; others are repeated. */
struct hlo_val hlo_broadcast(struct hlo *h, struct hlo_val x, struct hlo_shape shape, const int32_t *dims);
struct hlo_val hlo_spread(struct hlo *h, struct hlo_val x, struct hlo_shape shape, int32_t first); /* dims first, first + 1, ... */
struct hlo_val hlo_slice(struct hlo *h, struct hlo_val x, int32_t dim, int64_t from, int64_t to);
struct hlo_val hlo_concat(struct hlo *h, struct hlo_val a, struct hlo_val b, int32_t dim);
struct hlo_val hlo_pad_end(struct hlo *h, struct hlo_val x, int32_t dim, int64_t n); /* with zeros */
struct hlo_val hlo_transpose(struct hlo *h, struct hlo_val x, const int32_t *dims);

/* ---- across elements ------------------------------------------------------------------------------------------------ */

struct hlo_val hlo_sort_down(struct hlo *h, struct hlo_val x, int32_t dim); /* the largest first */
struct hlo_val hlo_reduce(struct hlo *h, const char *op, struct hlo_val x, int32_t dim, double init);
struct hlo_dot {
    int32_t n_batch, batch_a[2], batch_b[2];
    int32_t n_contract, contract_a[2], contract_b[2];
};
/* The result has the batch dimensions, then a's others, then b's; always float32. */
struct hlo_val hlo_dot(struct hlo *h, struct hlo_val a, struct hlo_val b, const struct hlo_dot *d);
/* x[index[i], ...] for index [n] of int32. */
struct hlo_val hlo_take(struct hlo *h, struct hlo_val x, struct hlo_val index);
/* x with x[index[i], ...] = rows[i, ...]. */
struct hlo_val hlo_put(struct hlo *h, struct hlo_val x, struct hlo_val index, struct hlo_val rows);
/* n elements of dimension dim from a place known at run time (a scalar); the other dimensions whole. */
struct hlo_val hlo_slice_at(struct hlo *h, struct hlo_val x, int32_t dim, struct hlo_val at, int64_t n);
struct hlo_val hlo_update_at(struct hlo *h, struct hlo_val x, struct hlo_val part, int32_t dim, struct hlo_val at);

/* ---- loops ---------------------------------------------------------------------------------------------------------- */

enum { HLO_CARRIED_MAX = 3 };
struct hlo_loop {
    int32_t n, first; /* carried values; number of the first result */
    struct hlo_val i; /* the turn, a scalar */
    struct hlo_val carried[HLO_CARRIED_MAX];
};
/* for (i = 0; i < count; i++): the carried values change from turn to turn. `carried` holds their first values, then
 * inside the loop those of the turn, and after hlo_loop_end the last ones. */
void hlo_loop_begin(struct hlo *h, struct hlo_loop *l, struct hlo_val count);
void hlo_loop_end(struct hlo *h, struct hlo_loop *l, const struct hlo_val *next);

#endif
