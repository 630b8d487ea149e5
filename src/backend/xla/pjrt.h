/* A PJRT plugin: opened by path, checked, and called through the few functions that a backend needs.
 *
 * The C API's ABI is declared here in our own words (pjrt_abi.h): a table of functions, each taking one struct that
 * begins with its size. Nothing is linked; nothing above this file sees the ABI. Every failure carries the plugin's own
 * message. A plugin is never unloaded: the libraries behind it do not survive that.
 */
#ifndef MLXCEL_BACKEND_XLA_PJRT_H
#define MLXCEL_BACKEND_XLA_PJRT_H

#include "base/str.h"
#include "tensor/dtype.h"

struct pjrt_buffer;
struct pjrt_executable;

enum { PJRT_RANK_MAX = 8, PJRT_DEVICES_MAX = 64 };

struct pjrt_options {
    const char *plugin;     /* path of the library */
    int device;             /* index among the client's devices; -1: the first */
    int n_used;             /* devices from the first on that one program runs on; 0 and 1: `device` alone */
    double memory_fraction; /* of the device's memory for the plugin's pool; 0: the plugin's default */
    bool no_preallocate;    /* let the pool grow instead of taking it at once */
};

struct pjrt {
    struct os_dl *lib;
    const struct pjrt_table *table;
    const char *path;
    void *client, *device; /* the first of those that are used */
    void *devices[PJRT_DEVICES_MAX];
    int major, minor;
    int n_devices, n_used; /* that there are; that programs run on */
    char platform[32], platform_version[256], device_kind[96];
};

struct pjrt_shape {
    enum dtype dtype;
    int32_t rank;
    int64_t dims[PJRT_RANK_MAX];
    int32_t cut; /* d + 1: dimension d, 0 or 1, is cut into a part for each device, which divides it; 0: every device has all of it */
};

/* Opens the plugin, makes a client and picks the device. */
int pjrt_open(const struct pjrt_options *options, struct pjrt *out, struct err *err);
void pjrt_close(struct pjrt *p);

/* A buffer on the device with a copy of the host's data, or one on each device. Returns when the data may be changed again. */
int pjrt_upload(struct pjrt *p, const void *data, const struct pjrt_shape *shape, struct pjrt_buffer **out, struct err *err);
/* All bytes of a buffer that every device has all of; waits for whatever computes it. */
int pjrt_download(struct pjrt *p, struct pjrt_buffer *b, void *dst, size_t bytes, struct err *err);
void pjrt_buffer_free(struct pjrt *p, struct pjrt_buffer *b);

/* Compiles a StableHLO module in text form. */
/* *library: XLA is to leave products to the device's library instead of tuning its own; becomes false where the plugin has no such option. */
int pjrt_compile(struct pjrt *p, struct str program, bool *library, struct pjrt_executable **out, struct err *err);
/* Queues a run. Arguments that the program aliases to results are used up, but still have to be freed. */
int pjrt_execute(struct pjrt *p, struct pjrt_executable *e, struct pjrt_buffer *const *args, size_t n_args,
                 struct pjrt_buffer **out_results, size_t n_results, struct err *err);
void pjrt_executable_free(struct pjrt *p, struct pjrt_executable *e);

/* Serialised form, for the cache on disk. ERR_EUNSUPPORTED where the plugin has no such thing. */
int pjrt_serialize(struct pjrt *p, struct pjrt_executable *e, struct sb *out, struct err *err);
int pjrt_deserialize(struct pjrt *p, struct str bytes, struct pjrt_executable **out, struct err *err);

/* Bytes in use and in all as the plugin's allocator counts them; false where it does not say. */
bool pjrt_memory(struct pjrt *p, uint64_t *out_used, uint64_t *out_total);

#endif
