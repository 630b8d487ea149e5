/* A value of the forward pass: a small handle, passed by value, that never owns memory.
 *
 * Shape is [rows, heads, width]; a plain activation has heads == 1. Strides count elements, the innermost is 1. Several
 * handles may look at one value: views (a head range, a slice of the width) differ in shape, strides and offset only.
 * Values are single-assignment: the op that makes one is the only writer it ever has.
 */
#ifndef MLXCEL_TENSOR_TENSOR_H
#define MLXCEL_TENSOR_TENSOR_H

#include "tensor/dtype.h"

struct tensor {
    int32_t id; /* index of the value in its op list, plus 1; 0 = no tensor */
    enum dtype dtype;
    int32_t rows, heads, width;
    int64_t row_stride, head_stride; /* in elements */
    int64_t offset;                  /* in elements, from the value's start */
};

static inline bool tensor_is(struct tensor t) {
    return t.id != 0;
}
static inline int64_t tensor_row_size(struct tensor t) {
    return (int64_t)t.heads * t.width;
}
/* Whether rows lie one behind the other without gaps, so that [heads, width] is one run. */
static inline bool tensor_rows_dense(struct tensor t) {
    return t.heads == 1 || t.head_stride == t.width;
}

/* The same elements as [rows, heads, width / heads]. */
static inline struct tensor tensor_split_heads(struct tensor t, int32_t heads) {
    t.width = t.width * t.heads / heads;
    t.heads = heads;
    t.head_stride = t.width;
    return t;
}
/* [rows, heads, width] as [rows, 1, heads * width]; only for dense rows. */
static inline struct tensor tensor_join_heads(struct tensor t) {
    t.width *= t.heads;
    t.heads = 1;
    t.head_stride = t.width;
    return t;
}
/* Elements [from, from + width) of every head. */
static inline struct tensor tensor_slice(struct tensor t, int32_t from, int32_t width) {
    t.offset += from;
    t.width = width;
    return t;
}
static inline struct tensor tensor_slice_heads(struct tensor t, int32_t from, int32_t heads) {
    t.offset += from * t.head_stride;
    t.heads = heads;
    return t;
}
/* Rows [from, from + rows). */
static inline struct tensor tensor_slice_rows(struct tensor t, int32_t from, int32_t rows) {
    t.offset += from * t.row_stride;
    t.rows = rows;
    return t;
}

#endif
