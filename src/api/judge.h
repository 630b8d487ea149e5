/* How a model judges a document by a query: a head for classification behind its last states, or the words yes and no of a language model. */
#ifndef MLXCEL_API_JUDGE_H
#define MLXCEL_API_JUDGE_H

#include "engine/pool.h"
#include "file/checkpoint.h"
#include "model/forward.h"
#include "text/tokenizer/tokenizer.h"

struct judge {
    enum {
        JUDGE_NONE,
        JUDGE_PAIR /* query and document are one text of two parts */,
        JUDGE_WORDS /* a chat asks, yes or no answers */
    } kind;
    enum job_pooling pooling;
    struct pool_head head; /* to one number */
};

/* The checkpoint's head; JUDGE_NONE and no error where it has none. What is not known is refused by name. */
int judge_read(struct arena *a, const struct checkpoint *c, const struct spec *spec, struct judge *out, struct err *err);
/* The two words of a language model: their rows of the head, so that the score is the share of yes. */
int judge_read_words(struct arena *a, const struct checkpoint *c, const struct spec *spec, const struct tok *tok, struct judge *out,
                     struct err *err);

#endif
