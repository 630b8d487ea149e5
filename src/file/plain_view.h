/* A checkpoint with all its matrices unpacked: for programs that write weights anew. Quantised PATH.weight, .scales and .biases become one PATH.weight of f32,
 * whose rows are unpacked as they are read. */
#ifndef MLXCEL_FILE_PLAIN_VIEW_H
#define MLXCEL_FILE_PLAIN_VIEW_H

#include "file/checkpoint.h"

/* Replaces them in the table; what they were stays in out, by path, as struct format. */
int plain_view(struct checkpoint *c, struct map *out_formats, struct err *err);

#endif
