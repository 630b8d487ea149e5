/* How a model's own files say that a text becomes a vector: the folders of sentence-transformers. */
#ifndef MLXCEL_API_EMBEDDER_H
#define MLXCEL_API_EMBEDDER_H

#include "engine/pool.h"
#include "file/checkpoint.h"

/* Put before a text, by its name. */
struct embed_prompt {
    struct str name, text;
};

struct embedder {
    enum job_pooling pooling;
    struct pool_head head; /* of no stages: vectors are the pooled states, of length 1 */
    int32_t width;         /* numbers of a vector */
    int32_t max_tokens;    /* of a text; 0: as many as the model has positions */
    bool skips_prompt;     /* the pooling leaves out the prompt's tokens */
    struct embed_prompt *prompts;
    int32_t n_prompts;
    int32_t i_usual; /* the prompt of texts that name none; -1: there is none */
};

/* modules.json, the files that it names, config_sentence_transformers.json and sentence_bert_config.json. A model without them has the mean of
 * all states. What is not known is refused by name. `hidden` is the width of the model's states. */
int embedder_read(struct arena *a, const struct checkpoint *c, int32_t hidden, struct embedder *out, struct err *err);

#endif
