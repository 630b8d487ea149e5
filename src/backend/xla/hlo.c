/* StableHLO text, one operation per line. */
#include "backend/xla/hlo.h"

#include <assert.h>
#include <math.h>

static const char *const type_names[N_HLO_TYPES] = {
    [HLO_F32] = "f32", [HLO_BF16] = "bf16", [HLO_F16] = "f16",  [HLO_I32] = "i32",
    [HLO_U8] = "ui8",  [HLO_U16] = "ui16",  [HLO_U32] = "ui32", [HLO_BOOL] = "i1",
};

static bool is_float(enum hlo_type t) {
    return t == HLO_F32 || t == HLO_BF16 || t == HLO_F16;
}

void hlo_put_type(struct sb *out, enum hlo_type type, struct hlo_shape shape) {
    sb_puts(out, "tensor<");
    for (int32_t i = 0; i < shape.rank; i++) sb_fmt(out, "%lldx", (long long)shape.dims[i]);
    sb_fmt(out, "%s>", type_names[type]);
}

static void put_type(struct hlo *h, struct hlo_val v) {
    hlo_put_type(&h->text, v.type, v.shape);
}

struct hlo_val hlo_name(struct hlo *h, enum hlo_type type, struct hlo_shape shape) {
    return (struct hlo_val){++h->n_vals, type, shape};
}

/* A new result; the text up to " = " is written. */
static struct hlo_val result(struct hlo *h, enum hlo_type type, struct hlo_shape shape) {
    struct hlo_val v = hlo_name(h, type, shape);
    sb_fmt(&h->text, "  %%%d = ", v.id);
    return v;
}

static bool same_shape(struct hlo_shape a, struct hlo_shape b) {
    if (a.rank != b.rank) return false;
    for (int32_t i = 0; i < a.rank; i++)
        if (a.dims[i] != b.dims[i]) return false;
    return true;
}

static int64_t count(struct hlo_shape s) {
    int64_t n = 1;
    for (int32_t i = 0; i < s.rank; i++) n *= s.dims[i];
    return n;
}

static void put_list(struct hlo *h, const int32_t *items, int32_t n) {
    sb_putc(&h->text, '[');
    for (int32_t i = 0; i < n; i++) sb_fmt(&h->text, "%s%d", i ? ", " : "", items[i]);
    sb_putc(&h->text, ']');
}

/* ": (type of a, type of b) -> type of the result". */
static void put_types(struct hlo *h, const struct hlo_val *in, int32_t n, struct hlo_val out) {
    sb_puts(&h->text, " : (");
    for (int32_t i = 0; i < n; i++) {
        if (i) sb_puts(&h->text, ", ");
        put_type(h, in[i]);
    }
    sb_puts(&h->text, ") -> ");
    put_type(h, out);
    sb_putc(&h->text, '\n');
}

/* ---- elements ------------------------------------------------------------------------------------------------------ */

static void put_number(struct hlo *h, enum hlo_type type, double value) {
    if (!is_float(type)) sb_fmt(&h->text, "%lld", (long long)value);
    else if (isinf(value)) sb_puts(&h->text, value < 0 ? "0xFF800000" : "0x7F800000");
    else sb_fmt(&h->text, "%.9e", value);
}

struct hlo_val hlo_const(struct hlo *h, enum hlo_type type, double value, struct hlo_shape shape) {
    assert(!isinf(value) || type == HLO_F32);
    struct hlo_val v = result(h, type, shape);
    sb_puts(&h->text, "stablehlo.constant dense<");
    put_number(h, type, value);
    sb_puts(&h->text, "> : ");
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_like(struct hlo *h, struct hlo_val x, double value) {
    return hlo_const(h, x.type, value, x.shape);
}

struct hlo_val hlo_iota(struct hlo *h, enum hlo_type type, struct hlo_shape shape, int32_t dim) {
    struct hlo_val v = result(h, type, shape);
    sb_fmt(&h->text, "stablehlo.iota dim = %d : ", dim);
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_unary(struct hlo *h, const char *op, struct hlo_val x) {
    struct hlo_val v = result(h, x.type, x.shape);
    sb_fmt(&h->text, "stablehlo.%s %%%d : ", op, x.id);
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_erf(struct hlo *h, struct hlo_val x) {
    struct hlo_val v = result(h, x.type, x.shape);
    sb_fmt(&h->text, "chlo.erf %%%d : ", x.id);
    put_type(h, x);
    sb_puts(&h->text, " -> ");
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_binary(struct hlo *h, const char *op, struct hlo_val a, struct hlo_val b) {
    assert(a.type == b.type && same_shape(a.shape, b.shape));
    struct hlo_val v = result(h, a.type, a.shape);
    sb_fmt(&h->text, "stablehlo.%s %%%d, %%%d : ", op, a.id, b.id);
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_with(struct hlo *h, const char *op, struct hlo_val a, double b) {
    return hlo_binary(h, op, a, hlo_like(h, a, b));
}

struct hlo_val hlo_add(struct hlo *h, struct hlo_val a, struct hlo_val b) {
    return hlo_binary(h, "add", a, b);
}
struct hlo_val hlo_sub(struct hlo *h, struct hlo_val a, struct hlo_val b) {
    return hlo_binary(h, "subtract", a, b);
}
struct hlo_val hlo_mul(struct hlo *h, struct hlo_val a, struct hlo_val b) {
    return hlo_binary(h, "multiply", a, b);
}
struct hlo_val hlo_div(struct hlo *h, struct hlo_val a, struct hlo_val b) {
    return hlo_binary(h, "divide", a, b);
}

struct hlo_val hlo_compare(struct hlo *h, const char *direction, struct hlo_val a, struct hlo_val b) {
    assert(a.type == b.type && same_shape(a.shape, b.shape));
    struct hlo_val v = result(h, HLO_BOOL, a.shape);
    const char *kind = is_float(a.type) ? "FLOAT" : a.type == HLO_I32 ? "SIGNED" : "UNSIGNED";
    sb_fmt(&h->text, "stablehlo.compare %s, %%%d, %%%d, %s", direction, a.id, b.id, kind);
    put_types(h, (struct hlo_val[]){a, b}, 2, v);
    return v;
}

struct hlo_val hlo_compare_with(struct hlo *h, const char *direction, struct hlo_val a, double b) {
    return hlo_compare(h, direction, a, hlo_like(h, a, b));
}

struct hlo_val hlo_select(struct hlo *h, struct hlo_val p, struct hlo_val a, struct hlo_val b) {
    assert(p.type == HLO_BOOL && a.type == b.type && same_shape(a.shape, b.shape) && same_shape(p.shape, a.shape));
    struct hlo_val v = result(h, a.type, a.shape);
    sb_fmt(&h->text, "stablehlo.select %%%d, %%%d, %%%d : ", p.id, a.id, b.id);
    put_type(h, p);
    sb_puts(&h->text, ", ");
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

static struct hlo_val retyped(struct hlo *h, const char *op, struct hlo_val x, enum hlo_type type, struct hlo_shape shape) {
    struct hlo_val v = result(h, type, shape);
    sb_fmt(&h->text, "stablehlo.%s %%%d", op, x.id);
    put_types(h, &x, 1, v);
    return v;
}

struct hlo_val hlo_convert(struct hlo *h, struct hlo_val x, enum hlo_type type) {
    return x.type == type ? x : retyped(h, "convert", x, type, x.shape);
}

struct hlo_val hlo_round_bf16(struct hlo *h, struct hlo_val x) {
    struct hlo_val v = result(h, x.type, x.shape);
    sb_fmt(&h->text, "stablehlo.reduce_precision %%%d, format = e8m7 : ", x.id);
    put_type(h, v);
    sb_putc(&h->text, '\n');
    return v;
}

struct hlo_val hlo_bitcast(struct hlo *h, struct hlo_val x, enum hlo_type type) {
    return retyped(h, "bitcast_convert", x, type, x.shape);
}

/* ---- shapes -------------------------------------------------------------------------------------------------------- */

struct hlo_val hlo_reshape(struct hlo *h, struct hlo_val x, struct hlo_shape shape) {
    int64_t n = count(shape);
    assert(count(x.shape) == n);
    (void)n;
    return same_shape(x.shape, shape) ? x : retyped(h, "reshape", x, x.type, shape);
}

struct hlo_val hlo_broadcast(struct hlo *h, struct hlo_val x, struct hlo_shape shape, const int32_t *dims) {
    for (int32_t i = 0; i < x.shape.rank; i++) assert(x.shape.dims[i] == 1 || x.shape.dims[i] == shape.dims[dims[i]]);
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "stablehlo.broadcast_in_dim %%%d, dims = ", x.id);
    put_list(h, dims, x.shape.rank);
    put_types(h, &x, 1, v);
    return v;
}

struct hlo_val hlo_spread(struct hlo *h, struct hlo_val x, struct hlo_shape shape, int32_t first) {
    int32_t dims[HLO_RANK_MAX];
    for (int32_t i = 0; i < x.shape.rank; i++) dims[i] = first + i;
    return hlo_broadcast(h, x, shape, dims);
}

struct hlo_val hlo_slice(struct hlo *h, struct hlo_val x, int32_t dim, int64_t from, int64_t to) {
    assert(0 <= from && from < to && to <= x.shape.dims[dim]);
    if (from == 0 && to == x.shape.dims[dim]) return x;
    struct hlo_shape shape = x.shape;
    shape.dims[dim] = to - from;
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "stablehlo.slice %%%d [", x.id);
    for (int32_t i = 0; i < x.shape.rank; i++)
        sb_fmt(&h->text, "%s%lld:%lld", i ? ", " : "", i == dim ? (long long)from : 0LL,
               i == dim ? (long long)to : (long long)x.shape.dims[i]);
    sb_putc(&h->text, ']');
    put_types(h, &x, 1, v);
    return v;
}

struct hlo_val hlo_concat(struct hlo *h, struct hlo_val a, struct hlo_val b, int32_t dim) {
    assert(a.type == b.type && a.shape.rank == b.shape.rank);
    struct hlo_shape shape = a.shape;
    shape.dims[dim] += b.shape.dims[dim];
    struct hlo_val v = result(h, a.type, shape);
    sb_fmt(&h->text, "stablehlo.concatenate %%%d, %%%d, dim = %d", a.id, b.id, dim);
    put_types(h, (struct hlo_val[]){a, b}, 2, v);
    return v;
}

struct hlo_val hlo_pad_end(struct hlo *h, struct hlo_val x, int32_t dim, int64_t n) {
    if (n == 0) return x;
    struct hlo_shape shape = x.shape;
    shape.dims[dim] = n;
    return hlo_concat(h, x, hlo_const(h, x.type, 0, shape), dim);
}

struct hlo_val hlo_transpose(struct hlo *h, struct hlo_val x, const int32_t *dims) {
    struct hlo_shape shape = x.shape;
    for (int32_t i = 0; i < shape.rank; i++) shape.dims[i] = x.shape.dims[dims[i]];
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "stablehlo.transpose %%%d, dims = ", x.id);
    put_list(h, dims, x.shape.rank);
    put_types(h, &x, 1, v);
    return v;
}

/* ---- across elements ------------------------------------------------------------------------------------------------ */

struct hlo_val hlo_sort_down(struct hlo *h, struct hlo_val x, int32_t dim) {
    struct hlo_val v = result(h, x.type, x.shape), a = hlo_name(h, x.type, (struct hlo_shape){0}),
                   b = hlo_name(h, x.type, (struct hlo_shape){0});
    sb_fmt(&h->text,
           "\"stablehlo.sort\"(%%%d) <{dimension = %d : i64, is_stable = false}> ({\n  ^bb0(%%%d: tensor<f32>, %%%d: tensor<f32>):\n", x.id,
           dim, a.id, b.id);
    struct hlo_val first = hlo_compare(h, "GT", a, b);
    sb_fmt(&h->text, "  stablehlo.return %%%d : tensor<i1>\n  })", first.id);
    put_types(h, &x, 1, v);
    return v;
}

struct hlo_val hlo_reduce(struct hlo *h, const char *op, struct hlo_val x, int32_t dim, double init) {
    struct hlo_val start = hlo_const(h, x.type, init, (struct hlo_shape){0});
    struct hlo_shape shape = x.shape;
    shape.rank--;
    for (int32_t i = dim; i < shape.rank; i++) shape.dims[i] = shape.dims[i + 1];
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "stablehlo.reduce(%%%d init: %%%d) applies stablehlo.%s across dimensions = [%d]", x.id, start.id, op, dim);
    put_types(h, (struct hlo_val[]){x, start}, 2, v);
    return v;
}

static bool in_list(const int32_t *list, int32_t n, int32_t item) {
    for (int32_t i = 0; i < n; i++)
        if (list[i] == item) return true;
    return false;
}

static void append_free(struct hlo_shape *out, struct hlo_val x, const struct hlo_dot *d, const int32_t *batch, const int32_t *contract) {
    for (int32_t i = 0; i < x.shape.rank; i++)
        if (!in_list(contract, d->n_contract, i) && !in_list(batch, d->n_batch, i)) out->dims[out->rank++] = x.shape.dims[i];
}

struct hlo_val hlo_dot(struct hlo *h, struct hlo_val a, struct hlo_val b, const struct hlo_dot *d) {
    assert(a.type == b.type);
    for (int32_t i = 0; i < d->n_contract; i++) assert(a.shape.dims[d->contract_a[i]] == b.shape.dims[d->contract_b[i]]);
    struct hlo_shape shape = {.rank = d->n_batch};
    for (int32_t i = 0; i < d->n_batch; i++) {
        assert(a.shape.dims[d->batch_a[i]] == b.shape.dims[d->batch_b[i]]);
        shape.dims[i] = a.shape.dims[d->batch_a[i]];
    }
    append_free(&shape, a, d, d->batch_a, d->contract_a);
    append_free(&shape, b, d, d->batch_b, d->contract_b);
    struct hlo_val v = result(h, HLO_F32, shape);
    sb_fmt(&h->text, "stablehlo.dot_general %%%d, %%%d, ", a.id, b.id);
    if (d->n_batch) {
        sb_puts(&h->text, "batching_dims = ");
        put_list(h, d->batch_a, d->n_batch);
        sb_puts(&h->text, " x ");
        put_list(h, d->batch_b, d->n_batch);
        sb_puts(&h->text, ", ");
    }
    const char *precision = a.type == HLO_F32 ? "HIGHEST" : "DEFAULT";
    sb_puts(&h->text, "contracting_dims = ");
    put_list(h, d->contract_a, d->n_contract);
    sb_puts(&h->text, " x ");
    put_list(h, d->contract_b, d->n_contract);
    sb_fmt(&h->text, ", precision = [%s, %s]", precision, precision);
    put_types(h, (struct hlo_val[]){a, b}, 2, v);
    return v;
}

static void put_range(struct hlo *h, const char *name, int32_t from, int32_t to) {
    sb_fmt(&h->text, "%s = [", name);
    for (int32_t i = from; i < to; i++) sb_fmt(&h->text, "%s%d", i > from ? ", " : "", i);
    sb_putc(&h->text, ']');
}

struct hlo_val hlo_take(struct hlo *h, struct hlo_val x, struct hlo_val index) {
    assert(index.type == HLO_I32 && index.shape.rank == 1);
    struct hlo_shape shape = x.shape;
    shape.dims[0] = index.shape.dims[0];
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "\"stablehlo.gather\"(%%%d, %%%d) <{dimension_numbers = #stablehlo.gather<", x.id, index.id);
    put_range(h, "offset_dims", 1, x.shape.rank);
    sb_puts(&h->text, ", collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, "
                      "slice_sizes = array<i64: 1");
    for (int32_t i = 1; i < x.shape.rank; i++) sb_fmt(&h->text, ", %lld", (long long)x.shape.dims[i]);
    sb_puts(&h->text, ">}>");
    put_types(h, (struct hlo_val[]){x, index}, 2, v);
    return v;
}

struct hlo_val hlo_put(struct hlo *h, struct hlo_val x, struct hlo_val index, struct hlo_val rows) {
    assert(index.type == HLO_I32 && index.shape.rank == 1 && rows.type == x.type && rows.shape.dims[0] == index.shape.dims[0]);
    struct hlo_val v = result(h, x.type, x.shape);
    struct hlo_val old = hlo_name(h, x.type, (struct hlo_shape){0}), new = hlo_name(h, x.type, (struct hlo_shape){0});
    sb_fmt(&h->text,
           "\"stablehlo.scatter\"(%%%d, %%%d, %%%d) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<", x.id,
           index.id, rows.id);
    put_range(h, "update_window_dims", 1, x.shape.rank);
    sb_puts(&h->text,
            ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({\n");
    sb_fmt(&h->text, "  ^bb0(%%%d: ", old.id);
    put_type(h, old);
    sb_fmt(&h->text, ", %%%d: ", new.id);
    put_type(h, new);
    sb_fmt(&h->text, "):\n    stablehlo.return %%%d : ", new.id);
    put_type(h, new);
    sb_puts(&h->text, "\n  })");
    put_types(h, (struct hlo_val[]){x, index, rows}, 3, v);
    return v;
}

/* The starts of a run-time slice: `at` in one dimension, zero in the others. */
static void put_starts(struct hlo *h, int32_t rank, int32_t dim, struct hlo_val at, struct hlo_val zero) {
    for (int32_t i = 0; i < rank; i++) sb_fmt(&h->text, ", %%%d", i == dim ? at.id : zero.id);
}

static void put_start_types(struct hlo *h, int32_t rank, struct hlo_val out) {
    for (int32_t i = 0; i < rank; i++) sb_puts(&h->text, ", tensor<i32>");
    sb_puts(&h->text, ") -> ");
    put_type(h, out);
    sb_putc(&h->text, '\n');
}

struct hlo_val hlo_slice_at(struct hlo *h, struct hlo_val x, int32_t dim, struct hlo_val at, int64_t n) {
    struct hlo_val zero = hlo_const(h, HLO_I32, 0, (struct hlo_shape){0});
    struct hlo_shape shape = x.shape;
    shape.dims[dim] = n;
    struct hlo_val v = result(h, x.type, shape);
    sb_fmt(&h->text, "stablehlo.dynamic_slice %%%d", x.id);
    put_starts(h, shape.rank, dim, at, zero);
    sb_puts(&h->text, ", sizes = [");
    for (int32_t i = 0; i < shape.rank; i++) sb_fmt(&h->text, "%s%lld", i ? ", " : "", (long long)shape.dims[i]);
    sb_puts(&h->text, "] : (");
    put_type(h, x);
    put_start_types(h, shape.rank, v);
    return v;
}

struct hlo_val hlo_update_at(struct hlo *h, struct hlo_val x, struct hlo_val part, int32_t dim, struct hlo_val at) {
    struct hlo_val zero = hlo_const(h, HLO_I32, 0, (struct hlo_shape){0});
    struct hlo_val v = result(h, x.type, x.shape);
    sb_fmt(&h->text, "stablehlo.dynamic_update_slice %%%d, %%%d", x.id, part.id);
    put_starts(h, x.shape.rank, dim, at, zero);
    sb_puts(&h->text, " : (");
    put_type(h, x);
    sb_puts(&h->text, ", ");
    put_type(h, part);
    put_start_types(h, x.shape.rank, v);
    return v;
}

/* ---- loops ---------------------------------------------------------------------------------------------------------- */

static void put_carried_types(struct hlo *h, const struct hlo_loop *l) {
    put_type(h, l->i);
    for (int32_t k = 0; k < l->n; k++) {
        sb_puts(&h->text, ", ");
        put_type(h, l->carried[k]);
    }
}

void hlo_loop_begin(struct hlo *h, struct hlo_loop *l, struct hlo_val turns) {
    struct hlo_shape scalar = {0};
    struct hlo_val zero = hlo_const(h, HLO_I32, 0, scalar);
    l->first = hlo_name(h, HLO_I32, scalar).id;
    l->i = hlo_name(h, HLO_I32, scalar);
    sb_fmt(&h->text, "  %%%d:%d = stablehlo.while(%%%d = %%%d", l->first, l->n + 1, l->i.id, zero.id);
    for (int32_t k = 0; k < l->n; k++) {
        struct hlo_val inner = hlo_name(h, l->carried[k].type, l->carried[k].shape);
        sb_fmt(&h->text, ", %%%d = %%%d", inner.id, l->carried[k].id);
        l->carried[k] = inner;
    }
    sb_puts(&h->text, ") : ");
    put_carried_types(h, l);
    sb_puts(&h->text, " cond {\n");
    struct hlo_val more = hlo_compare(h, "LT", l->i, turns);
    sb_fmt(&h->text, "  stablehlo.return %%%d : tensor<i1>\n  } do {\n", more.id);
}

void hlo_loop_end(struct hlo *h, struct hlo_loop *l, const struct hlo_val *next) {
    struct hlo_val turn = hlo_with(h, "add", l->i, 1);
    sb_fmt(&h->text, "  stablehlo.return %%%d", turn.id);
    for (int32_t k = 0; k < l->n; k++) sb_fmt(&h->text, ", %%%d", next[k].id);
    sb_puts(&h->text, " : ");
    put_carried_types(h, l);
    sb_puts(&h->text, "\n  }\n");
    /* results are named %first#1 ...: plain numbers for them, by reshapes that cost nothing */
    for (int32_t k = 0; k < l->n; k++) {
        struct hlo_val v = result(h, l->carried[k].type, l->carried[k].shape);
        sb_fmt(&h->text, "stablehlo.reshape %%%d#%d", l->first, k + 1);
        put_types(h, &l->carried[k], 1, v);
        l->carried[k] = v;
    }
}
