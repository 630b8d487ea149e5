/* Where the layers of a model run: on the GPU, on several, or some of them, or their experts, on the CPU. Decided before anything is loaded. */
#ifndef MLXCEL_API_PLACEMENT_H
#define MLXCEL_API_PLACEMENT_H

#include "backend/split/split.h"

struct session;
struct tensor_store;

struct placement {
    bool is_split;  /* else the device has it all */
    bool is_forced; /* some is the CPU's because it does not fit the GPUs, not because somebody asked for it */
    bool has_grown; /* over several GPUs, because it does not fit one */
    struct split_plan plan;
    char names[SIDES_MAX][32];   /* of several GPUs */
    uint64_t weights[SIDES_MAX]; /* bytes; of one device alone those of SIDE_CARD */
    uint64_t cache[SIDES_MAX];   /* of each GPU: bytes that the plan has for the cache */
    uint64_t step;               /* of each GPU: bytes for the values of a step */
    uint64_t borrowed;           /* and for weights of the CPU that prompts copy there */
    uint64_t all;                /* bytes of weights in all */
    int32_t n_expert_layers;     /* layers that have experts */
    int32_t n_experts_moved;     /* layers on the GPU whose experts are the CPU's */
    int32_t cached;              /* tokens that the plan's cache holds */
    int32_t rows;                /* of a step; 0: as many as suit the device */
};

/* By the session's options and device, and what of the model the store has. An error says what does not fit, and what would. Where the answer is
 * plain nothing is counted, unless `counts`. */
int placement_choose(struct session *s, const struct tensor_store *store, uint64_t total, bool counts, struct err *err);
/* Whether the CPU has a part of the model. */
bool placement_has_host(const struct placement *p);
/* "18 of 48 layers on the GPU (3.1 GB), 30 on the CPU (5.0 GB)" */
void placement_describe(const struct placement *p, struct sb *out);

#endif
