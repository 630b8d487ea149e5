/* A checkpoint whose matrices have adapters added to them. What an adapter changes becomes a plain matrix of f32, computed row by row as it is read; everything
 * else stays as it is. */
#ifndef MLXCEL_FILE_FUSED_VIEW_H
#define MLXCEL_FILE_FUSED_VIEW_H

#include "file/adapter.h"

struct fused_adapter {
    struct adapter *adapter;
    float scale;
};

struct fused_view;
/* Changes the table of tensors. out_formats gets, by path, how each changed matrix was stored: a packed format, or a plain one. The adapters stay open, and
 * *out lives, as long as the checkpoint is read. */
int fused_view_open(struct checkpoint *c, const struct fused_adapter *adapters, size_t n, struct map *out_formats, struct fused_view **out,
                    struct err *err);
void fused_view_close(struct fused_view *v); /* NULL is fine */

#endif
