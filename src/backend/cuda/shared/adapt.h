/* Arguments of kernels/adapt.cu, shared by the host and the kernels. */
#ifndef MLXCEL_BACKEND_CUDA_SHARED_ADAPT_H
#define MLXCEL_BACKEND_CUDA_SHARED_ADAPT_H

#include "backend/cuda/shared/args.h"

/* What one adapter does to a product: struct adapt_part of backend/ops.h. at: the place of its numbers among those of all parts. */
struct k_adapt_part {
    KPTR(const float) down;
    KPTR(const float) up;
    KPTR(const float) gain;
    int32_t adapter, rank, in, out, first, at;
};
enum { K_ADAPT_PARTS = 24 };              /* of a launch */
enum { ADAPT_WARPS = 4, ADAPT_ROWS = 4 }; /* of a block of adapt_down; a warp makes one number for each of the rows */
struct k_adapt {
    struct k_view x, y, out; /* y: the product alone */
    KPTR(const float) bias;
    KPTR(float) hidden;         /* [rows][n_hidden] */
    KPTR(const float) scales;   /* [seqs][n_adapters] */
    KPTR(const int32_t) seq_of; /* [rows of the step] */
    KPTR(const int32_t) wanted; /* the step's row of each row; NULL: they are the same */
    KPTR(const int32_t) ids;    /* of an embedding, as that of EMBED; likewise chosen */
    KPTR(const int32_t) chosen;
    int32_t n_adapters, n_hidden, n_parts, by_token;
    int32_t adds; /* 1: to `out`, which has what earlier launches added; 0: to y */
    float scale;  /* of an embedding */
    struct k_adapt_part parts[K_ADAPT_PARTS];
};

#endif
