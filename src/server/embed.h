/* Texts to vectors: the jobs behind every protocol's embeddings. What the answer looks like is the route's. */
#ifndef MLXCEL_SERVER_EMBED_H
#define MLXCEL_SERVER_EMBED_H

#include "server/generate.h"

struct embedding;

struct embed_input {
    struct job_listener listener; /* first: the job's user */
    struct embedding *of;
    struct service_ids ids;
    int32_t n_skip;  /* positions that the pooling leaves out */
    struct job *job; /* NULL: ended and released */
    float *vectors;  /* [n_vectors, width of the model] */
    int32_t n_vectors;
};

struct embed_form {
    const char *param; /* the field that the texts come from */
    void (*put)(struct embedding *m, struct sb *out);
    bool cuts;       /* what is beyond the context is cut off; else refused */
    bool takes_many; /* a text may have a vector for each of its tokens */
};

struct embedding {
    struct call *call;
    const struct embed_form *form;
    struct embed_input *inputs; /* [n_inputs] */
    int32_t n_inputs, n_open;
    int64_t n_tokens;
    struct session_embedding how;
    int32_t width; /* numbers that are wanted of each vector */
    bool is_base64;
};

/* Reads the texts, and the fields `dimensions` and `encoding_format` of the body; c->state becomes the embedding. On a worker. */
int embed_prepare(struct call *c, yyjson_val *texts, const struct embed_form *form);
/* n_inputs inputs that belong to m, for routes that fill their ids themselves. */
struct embed_input *embed_inputs(struct call *c, struct embedding *m);
/* The route's start. */
void embed_start(struct call *c);
/* The i-th vector of an input. */
const float *embed_vector(const struct embedding *m, const struct embed_input *in, int32_t i);
/* A vector as a list of numbers. */
void embed_put_numbers(struct jsonw *w, const float *v, int32_t n);

#endif
