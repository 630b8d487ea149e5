/* A device: what models that run on it share. Driver, threads and kernels, and a budget of memory.
 *
 * (1) A device is held by who opened it and by every backend on it. The last one to let go closes it, so that models may be
 *     closed in any order.
 * (2) Everything here may be called from any thread.
 * (3) The budget counts what backends take: weights, caches, scratch memory. Without a limit it only counts.
 */
#ifndef MLXCEL_BACKEND_DEVICE_H
#define MLXCEL_BACKEND_DEVICE_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend_type;

/* Settings of the xla backend. */
struct xla_options {
    const char *plugin;          /* library of a PJRT plugin; NULL: looked for */
    const char *environments[2]; /* of Python, in which it is looked for besides the user's own; NULL: none */
    double memory_fraction;      /* of the device's memory for the plugin's pool; 0: the plugin's default */
    bool no_preallocate;         /* the pool grows instead of being taken at once */
    const char *cache;           /* folder of compiled programs; "off": none; NULL: in the user's cache folder */
    int32_t n_programs;          /* that a model keeps in memory; 0: the default */
    const char *dump;            /* folder for the text of every program; NULL: none */
    const char *flags;           /* of XLA itself, which reads them, too; NULL: none */
    const char *unused;          /* a variable that is set and does nothing here; NULL: none */
};

struct device_options {
    const char *name;      /* "cuda:1"; NULL: the first */
    int32_t n_sharing;     /* ranks that share a GPU, each with its part of the multiprocessors and of the memory; 0 and 1: it is alone */
    int32_t n_threads;     /* of the CPU; 0: one per physical core */
    uint64_t memory_limit; /* bytes that all models together may take; 0: what is there */
    struct xla_options xla;
};

struct device {
    const struct backend_type *type;
    bool is_gpu;            /* its memory is not the host's */
    bool shares;            /* the CPU may run a part of a model that it has no room for */
    int32_t rows_default;   /* of a step, where nobody says how many */
    int32_t places_default; /* requests that a server computes at once, likewise */
    double cache_share;     /* of its free memory that a server's cache may take; 0: as much as places and context ask for */
    int32_t step_ms;        /* the system ends work that takes long: prompt chunks are cut so that a step stays below; 0: it does not */
    _Atomic bool lost;      /* it fails at everything from now on: only a new process can use it again */
    uint64_t limit;         /* 0: none */
    uint64_t plan_limit;    /* what is planned with, where other devices of a group have less; 0: the limit alone */
    _Atomic uint64_t used;
    _Atomic int32_t n_holders;
};

/* Items [first, last) on worker number `worker` (0 is the caller). */
typedef void device_items_fn(void *ctx, int64_t first, int64_t last, int32_t worker);

int device_open(const struct backend_type *type, const struct device_options *options, struct device **out, struct err *err);
struct device *device_hold(struct device *d); /* returns d */
void device_release(struct device *d);        /* NULL is fine */
/* Bytes that can still be had, within the limit, and in all. 0 free: unknown. */
void device_memory(struct device *d, uint64_t *out_free, uint64_t *out_total);
/* Counts bytes that are about to be allocated; an error when they do not fit the limit. */
int device_take(struct device *d, size_t bytes, const char *what, struct err *err);
void device_give(struct device *d, size_t bytes);

#endif
