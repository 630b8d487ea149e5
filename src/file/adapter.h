/* An adapter as it lies on disk: a folder with small matrices that go beside those of a model, as mlx-lm (adapters.safetensors) or PEFT
 * (adapter_model.safetensors) writes it, with adapter_config.json.
 *
 * (1) Opening reads headers and the configuration. Kinds of adapters that are computed otherwise than here are refused by the setting's name.
 * (2) Shapes are checked against each other here, against the model where they are bound.
 */
#ifndef MLXCEL_FILE_ADAPTER_H
#define MLXCEL_FILE_ADAPTER_H

#include "file/checkpoint.h"

enum { ADAPTER_RANK_MAX = 4096 };

struct adapter_module {
    struct str path;                                       /* of the module, as the adapter calls it */
    const struct checkpoint_tensor *down, *up, *magnitude; /* magnitude: NULL where there is none */
    bool is_flipped;                                       /* down is stored [in, rank], up [rank, out] */
    bool is_embedding;                                     /* x is a token */
    bool goes_to_head;                                     /* an embedding's that counts for a tied head, too */
    int32_t rank;
    int64_t in, out;
    double scale;
    bool is_used; /* it found its place in the model */
};

struct adapter {
    const char *path; /* for messages */
    struct checkpoint file;
    struct adapter_module *modules; /* [n_modules] */
    size_t n_modules;
    bool has_magnitudes;
};

/* a->file is open: its modules, by the text of adapter_config.json. is_peft: else mlx-lm's. */
int adapter_read(struct adapter *a, struct str config, bool is_peft, struct err *err);
int adapter_open(const char *path, struct adapter *out, struct err *err);
void adapter_close(struct adapter *a); /* zeroed is fine */
/* The module whose path is this one, or ends with it behind a dot. NULL: there is none. */
struct adapter_module *adapter_find(const struct adapter *a, struct str path);
/* The numbers, down as [rank, in] (of an embedding [in, rank]), up as [out, rank] times the scale. */
int adapter_read_down(const struct adapter_module *m, float *out, struct err *err);
int adapter_read_up(const struct adapter_module *m, float *out, struct err *err);
int adapter_read_magnitude(const struct adapter_module *m, float *out, struct err *err);

#endif
