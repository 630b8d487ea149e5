/* The parts of export: metadata and tokens. */
#ifndef MLXCEL_TOOLS_EXPORT_INTERNAL_H
#define MLXCEL_TOOLS_EXPORT_INTERNAL_H

#include "file/checkpoint.h"
#include "file/gguf_arch.h"
#include "file/gguf_write.h"

struct export {
    struct arena arena;
    struct checkpoint c;
    const struct gguf_arch *arch;
    struct config_shape shape;
    struct gguf_writer w;
    float *rope_factors; /* [head_dim / 2] of a tensor of their own; NULL: none */
};

/* export_meta.c: the row of the architecture, and what config.json says. */
int export_meta_arch(struct export *e, struct err *err);
int export_meta(struct export *e, struct err *err);
/* export_tokens.c: the vocabulary. */
int export_tokens(struct export *e, struct err *err);

#endif
