/* A checkpoint whose weights are changed: by edits, in their order, then by adapters that are added, and by zeros. What is changed becomes plain f32, computed row by row as it
 * is read; everything else stays as it is. */
#ifndef MLXCEL_FILE_FUSED_VIEW_H
#define MLXCEL_FILE_FUSED_VIEW_H

#include "file/adapter.h"

struct fused_adapter {
    struct adapter *adapter;
    float scale;
};

enum fused_op {
    FUSED_SCALE,       /* w * number */
    FUSED_ADD,         /* w + number * other */
    FUSED_INTERPOLATE, /* (1 - number) * w + number * other */
    FUSED_REPLACE,     /* other */
    FUSED_SLERP,       /* along the arc between the two, as vectors of all their numbers; as FUSED_INTERPOLATE where they are parallel */
};

/* What is done to the weights whose paths (without ".weight") a pattern matches. */
struct fused_edit {
    enum fused_op op;
    struct str pattern;
    double number;
    const struct checkpoint *first;  /* whose weight counts in place of the model's; NULL: the model's */
    const struct checkpoint *source; /* of the other weight; NULL: FUSED_SCALE */
    struct str source_path;          /* what it is called there; {NULL, 0}: the same */
    size_t n_matched;
};

/* Inputs of a matrix that count no more: their columns are zeros in the end. */
struct fused_mask {
    struct str path;
    const bool *inputs; /* [n_inputs] */
    int64_t n_inputs;
    bool is_transposed; /* they are its rows */
};

struct fused_changes {
    const struct fused_adapter *adapters;
    size_t n_adapters;
    struct fused_edit *edits;
    size_t n_edits;
    const struct fused_mask *masks;
    size_t n_masks;
};

struct fused_view;
/* Changes the table of tensors. out_formats gets, by path, how each changed matrix was stored: a packed format, or a plain one. The adapters stay open, and
 * *out lives, as long as the checkpoint is read. */
int fused_view_open(struct checkpoint *c, const struct fused_changes *changes, struct map *out_formats, struct fused_view **out,
                    struct err *err);
void fused_view_close(struct fused_view *v); /* NULL is fine */

#endif
