/* A checkpoint without some of its tensors, rows and columns, and with other names for what stays. Bytes are copied as they are stored, packed ones too. */
#ifndef MLXCEL_FILE_CUT_VIEW_H
#define MLXCEL_FILE_CUT_VIEW_H

#include "file/checkpoint.h"

struct cut_tensor {
    struct str name;            /* its new one; {NULL, 0}: it goes */
    const bool *rows, *columns; /* [those that are stored] which of them go; NULL: none. What a vector has are rows */
};

/* Changes the table of tensors; cuts are [c->n_tensors], and live as long as the checkpoint is read. */
int cut_view(struct checkpoint *c, const struct cut_tensor *cuts, struct err *err);

#endif
