/* How well a model predicts a text. */
#ifndef MLXCEL_TOOLS_PERPLEXITY_H
#define MLXCEL_TOOLS_PERPLEXITY_H

#include "api/session.h"

struct perplexity_options {
    const int32_t *tokens;
    size_t n_tokens;
    int32_t chunk; /* tokens that are predicted from each other; chunks do not overlap, and a chunk's first token is given */
    /* After every step, and once before the first: tokens read so far and in all, and the perplexity of the chunks that are done (0: none
     * yet); false gives up. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t total, double perplexity);
    void *user;
};

struct perplexity_result {
    double perplexity, error; /* error: one standard deviation of the mean, carried over */
    uint64_t n_predicted, n_chunks;
};

/* Computes as many chunks at once as the session has sequences. */
int perplexity_run(struct session *s, const struct perplexity_options *options, struct perplexity_result *out, struct err *err);

#endif
