/* Checkpoints that other programs quantised: FP8, GPTQ, AWQ, compressed-tensors, ModelOpt and bitsandbytes, as Hugging Face has them.
 *
 * (1) A matrix is recognised by the tensors that it is stored in; quantization_config says what those cannot (widths, offsets).
 * (2) Behind this the checkpoint looks as MLX would have written it: PATH.weight, PATH.scales, PATH.biases with a format of ours that holds
 *     the same numbers, or a plain PATH.weight where none does. Matrices are repacked as they are read, one at a time.
 * (3) What cannot be read stays as it was, and `refusal` of the checkpoint's quantisation says why: commands that need no weights go on.
 */
#ifndef MLXCEL_FILE_PACKED_H
#define MLXCEL_FILE_PACKED_H

#include "file/checkpoint.h"

/* The tensors that a matrix is stored in. */
enum packed_part {
    PACKED_VALUES,
    PACKED_SCALES,
    PACKED_ZEROS,
    PACKED_SECOND,
    PACKED_ORDER,
    PACKED_STATE,
    PACKED_MAP,
    PACKED_MAP_2,
    N_PACKED_PARTS
};

/* A matrix taken apart: a code per element, a scale and a zero point per group of columns. w = (code - zero) * scale. */
struct packed_numbers {
    uint8_t *codes;        /* [rows, in] */
    float *scales, *zeros; /* [rows, groups]; zeros of fp codes are not used */
    float *values;         /* [rows, in] in place of all that, where the codes are no steps of a grid */
};

/* bitsandbytes: how the scales are packed. */
struct packed_nested {
    bool is_nested;
    int64_t block; /* scales that share one of their own */
    float offset;
};

struct packed_matrix {
    struct str path;
    const struct packed_kind *kind;
    const struct checkpoint_tensor *parts[N_PACKED_PARTS]; /* NULL where there is none */
    int64_t n_experts, rows, in;                           /* rows: of all experts */
    int n_dims;
    int64_t shape[4];             /* of the weight, unpacked */
    int bits;                     /* of a code */
    int64_t group, n_groups;      /* columns that share a scale, as stored; the last group may be short */
    int64_t block_rows;           /* rows that do */
    int zero_plus;                /* is added to stored zero points */
    bool is_scattered;            /* columns of a group do not lie together: order says whose each is */
    int64_t offset;               /* without zero points: what is taken off a code */
    enum dtype dtype;             /* of the scales, or of what is unpacked */
    struct format format;         /* of ours */
    struct packed_nested *nested; /* NULL: not of bitsandbytes */
};

struct packed_kind {
    const char *name;
    bool is_fp; /* codes are E2M1 or E4M3 */
    int (*load)(const struct packed_matrix *m, struct packed_numbers *out, struct err *err);
};

/* Replaces the quantised tensors in the table. On failure the table is as it was. */
int packed_open(struct checkpoint *c, struct err *err);
void packed_close(struct packed_view *v); /* NULL is fine */

/* ---- packed_find.c: what there is ------------------------------------------------------------------------------------------ */

struct packed_list {
    struct packed_matrix *matrices;
    size_t n;
    struct map taken;  /* names of tensors that are not shown any more */
    size_t n_unpacked; /* matrices that become plain */
};
int packed_find(const struct checkpoint *c, struct arena *a, struct packed_list *out, struct err *err);
void packed_list_free(struct packed_list *l);

/* ---- packed_load.c: reading one -------------------------------------------------------------------------------------------- */

extern const struct packed_kind packed_gptq, packed_awq, packed_rows_int, packed_rows_i8, packed_fp8, packed_nvfp4, packed_mxfp4,
    packed_codebook;

/* All elements of a tensor as f32; F8 types count. */
int packed_read_floats(const struct checkpoint_tensor *t, float **out, struct err *err);
int packed_read_bytes(const struct checkpoint_tensor *t, unsigned char **out, struct err *err);
/* Whether every zero point is 0 or a power of two: the bias is a number of the scales' type then. */
int packed_zeros_are_powers(const struct packed_matrix *m, bool *out, struct err *err);

#endif
