/* What will be written, tensor by tensor; for the files of quantize alone. */
#ifndef MLXCEL_TOOLS_QUANTIZE_INTERNAL_H
#define MLXCEL_TOOLS_QUANTIZE_INTERNAL_H

#include "tools/quantize.h"
#include "file/checkpoint.h"

enum { QUANTIZE_DIMS_MAX = 8 };

/* One tensor of the result: weight, scales or biases. */
struct quantize_plane {
    struct str name;
    enum dtype dtype;
    int n_dims;
    int64_t shape[QUANTIZE_DIMS_MAX];
    uint64_t bytes, offset; /* offset: in its shard's data */
    int32_t i_shard;
};

/* One tensor of the source, or the experts of a stack. */
struct quantize_item {
    struct str path;                          /* without ".weight" where it is quantised */
    const struct checkpoint_tensor **sources; /* [n_sources] of the same shape, in the order of the experts */
    size_t n_sources, capacity;
    struct format format; /* QUANT_NONE: plain, cast to its dtype */
    bool is_special;      /* its format stands in config.json by its path */
    int64_t rows, width;  /* of one source, as it is written */
    bool is_turned;       /* stored [in, out], and written [out, in] as MLX does */
    struct quantize_plane planes[3];
    int n_planes;
};

struct quantize_plan {
    struct arena arena;
    const struct quantize_options *options;
    struct format base;
    bool *matched;             /* [options->n_overrides] */
    enum dtype dtype;          /* that floats are cast to; N_DTYPES: as they are */
    bool turns;                /* matrices of the layers are stored [in, out] */
    const struct map *formats; /* NULL, or by path the format of matrices that are not as they are stored; everything else is copied */
    bool is_plain;             /* nothing stays packed */
    struct quantize_item *items;
    size_t n_items;
    int32_t n_shards;
    uint64_t source_bytes, target_bytes, n_parameters;
};

/* The model with all matrices that another program packed as plain ones; what they were is in out_formats, by path. NULL: they stay packed. */
int quantize_open(const char *source, struct checkpoint *c, struct map *out_formats, struct err *err);
int quantize_plan_make(const struct checkpoint *c, const struct quantize_options *o, struct quantize_plan *out, struct err *err);
/* The plan of a copy: formats is as in the plan. */
int quantize_plan_keep(const struct checkpoint *c, const struct quantize_options *o, const struct map *formats, bool is_plain,
                       struct quantize_plan *out, struct err *err);
int quantize_write(const struct checkpoint *c, const struct quantize_plan *p, struct err *err);
void quantize_plan_free(struct quantize_plan *p);

#endif
