/* config.json and generation_config.json: one way to ask, whatever dialect the file is written in.
 *
 * (1) A key is looked up in the text model's part (text_config and its synonyms) first, then at the top; the few keys
 *     that belong to the whole model are looked up at the top first: quantization, quantization_config,
 *     tie_word_embeddings, architectures, model_type. A key that neither part has is looked up in `defaults`, where those
 *     are known; "a.b" is what the object a holds as b; null in the file counts as absent, and no plain value stands in for it.
 * (2) Numbers are checked against the caller's range where they are read; a message names the file, the key, the value
 *     and what was expected. Nothing is clamped or guessed.
 * (3) Quantisation formats are what the file declares: the override of a path, else the default. Shapes verify the
 *     declaration (quant_verify), they never replace it.
 */
#ifndef MLXCEL_FILE_CONFIG_H
#define MLXCEL_FILE_CONFIG_H

#include "base/json.h"
#include "base/map.h"
#include "file/safetensors.h"

struct config {
    const char *name;      /* of the file, for messages */
    yyjson_val *root;      /* an object */
    yyjson_val *text;      /* the text model's part, or NULL */
    struct str model_type; /* at the top; {NULL, 0} when absent */
    struct str text_type;  /* model_type of the text part; the same as model_type when there is none */
    bool is_canonical;     /* keys have the names that the table of families calls its own, whatever the family calls them */
    yyjson_val *defaults;  /* an object: what keys mean that the file leaves out. NULL: nothing is known of that */
    yyjson_val *instead;   /* an object: what counts before the file. NULL: nothing does */
};

int config_parse(struct arena *a, struct str text, const char *name, struct config *out, struct err *err);

/* The value of a key by rule (1), or NULL. */
yyjson_val *config_get(const struct config *c, const char *key);
/* The same of the file alone, without defaults. */
yyjson_val *config_said(const struct config *c, const char *key);
/* Of keys that mean the same, the one that counts: the first that the file has, else the first that has a default, else the first. */
const char *config_first(const struct config *c, const char *const *keys, size_t n);

struct config_range {
    double min, max;
};

/* Absent keys give *out = absent. A value of another type or outside the range is an error. */
int config_int(const struct config *c, const char *key, struct config_range range, int64_t absent, int64_t *out, struct err *err);
int config_num(const struct config *c, const char *key, struct config_range range, double absent, double *out, struct err *err);
int config_str(const struct config *c, const char *key, struct str absent, struct str *out, struct err *err);
/* An array of at most so many whole numbers, or a single one; absent gives n = 0. */
int config_ints(struct arena *a, const struct config *c, const char *key, struct config_range range, size_t most, int64_t **out,
                size_t *out_n, struct err *err);

/* The same on an object inside the file. */
struct config_part {
    const char *file, *where; /* before the key in messages: "config.json", "rope_parameters" */
    yyjson_val *obj;
};
int config_part_int(const struct config_part *p, const char *key, struct config_range range, int64_t absent, int64_t *out, struct err *err);
int config_part_num(const struct config_part *p, const char *key, struct config_range range, double absent, double *out, struct err *err);

/* What every decoder states, checked against sane bounds: the caller's own code may rely on them. */
struct config_shape {
    int64_t n_layers, n_heads, n_kv_heads, head_dim, hidden, intermediate, vocab, context;
};
/* Keys that a family does not have (heads in a pure state-space model) or gives per layer are 0; what is there is checked. */
int config_shape(const struct config *c, struct config_shape *out, struct err *err);

/* ---- rotary embedding ----------------------------------------------------------------------------------------- */

struct config_rope {
    struct str type; /* "default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional", ... */
    double theta;
    double partial;          /* share of the head that is rotated; 1 when not said */
    double factor;           /* 1 when not said */
    double original_context; /* original_max_position_embeddings; 0 when not said */
    yyjson_val *raw;         /* the object with the scaling's own keys (beta_fast, long_factor ...); NULL: none */
    bool is_nested;          /* the layer type has an object of its own */
};

struct rope_ask {
    const char *layer_type; /* NULL: not nested, or "full_attention" */
    int32_t layer;          /* whose entry counts where a flat key is a list with one per layer */
    double theta;           /* where nothing says it */
};

/* From rope_parameters (of the layer type, where it is nested by those), else rope_scaling and the flat keys; rope_parameters of the
 * defaults count where the file has neither object. rope_local_base_freq serves
 * "sliding_attention" in the flat dialect. */
int config_rope(const struct config *c, const struct rope_ask *ask, struct config_rope *out, struct err *err);
/* People turn yarn on by adding it to a file, and leave the length of the context as it was: stretches *context to what yarn reaches. */
int config_stretch(const struct config *c, int64_t *context, struct err *err);

/* ---- quantisation --------------------------------------------------------------------------------------------- */

struct quant_config {
    bool present;         /* the file declares an MLX quantisation */
    struct format base;   /* for every path without an override */
    struct map overrides; /* path -> struct format *; NULL: stored plain */
    struct str foreign;   /* another program's method ("gptq", "awq", "fp8" ...); {NULL, 0} when there is none */
    bool is_repacked;     /* its matrices are shown in formats of ours (packed.h) */
    struct str refusal;   /* why they are not; {NULL, 0}: there is no reason, or nothing is quantised */
};

int quant_config_read(struct arena *a, const struct config *c, struct quant_config *out, struct err *err);
void quant_config_free(struct quant_config *q);

enum quant_answer {
    QUANT_IS_PLAIN,    /* not quantised here, whatever tensors there are */
    QUANT_IS_DEFAULT,  /* by the default: quantised when the path has scales */
    QUANT_IS_DECLARED, /* an override names this path */
};
/* The format declared for a path such as "model.layers.0.mlp.up_proj"; *out is set unless the answer is QUANT_IS_PLAIN. */
int quant_lookup(const struct quant_config *q, struct str path, struct format *out);

/* The tensors of one quantised matrix (biases NULL where there are none) against the declared format: types, shapes, and
 * the invariant packed * 32 == bits * groups * group. Sets f->dtype for affine, and the logical input width. */
int quant_verify(const char *file, const struct st_tensor *weight, const struct st_tensor *scales, const struct st_tensor *biases,
                 struct format *f, int64_t *out_width, struct err *err);

/* ---- generation_config.json ----------------------------------------------------------------------------------- */

/* End-of-sequence ids: generation_config's, then config's, each once. generation may be NULL. */
int config_eos_ids(struct arena *a, const struct config *config, const struct config *generation, int64_t **out, size_t *out_n,
                   struct err *err);

#endif
