/* Splits an answer as it comes into what stands between <think> and </think> at its beginning, and the rest. White space
 * around the tags belongs to neither. How the text was cut into pieces does not matter. */
#ifndef MLXCEL_TEXT_OUTPUT_REASONING_H
#define MLXCEL_TEXT_OUTPUT_REASONING_H

#include "base/str.h"

enum reasoning_state { REASONING_START, REASONING_INSIDE, REASONING_AFTER, REASONING_NONE };

struct reasoning {
    enum reasoning_state state;
    struct sb hold;
    bool trims; /* white space at the beginning of the current part is dropped */
};

/* inside: the prompt already ended with the opening tag. Zeroed storage is a splitter whose prompt did not. */
void reasoning_init(struct reasoning *r, bool inside);
void reasoning_free(struct reasoning *r);
void reasoning_push(struct reasoning *r, struct str text, struct sb *out_reasoning, struct sb *out_content);
void reasoning_flush(struct reasoning *r, struct sb *out_reasoning, struct sb *out_content);
/* Whether a rendered prompt leaves the model inside its thoughts. */
bool reasoning_is_open(struct str prompt);

#endif
