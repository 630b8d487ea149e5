/* Splits an answer as it comes into what stands between <think> and </think> at its beginning, and the rest. White space
 * around the tags belongs to neither. How the text was cut into pieces does not matter. */
#ifndef MLXCEL_TEXT_OUTPUT_REASONING_H
#define MLXCEL_TEXT_OUTPUT_REASONING_H

#include "text/output/output.h"

struct reasoning {
    struct arena arena;
    struct output output;
    struct output_pieces pieces;
};

/* inside: the prompt already ended with the opening tag. */
void reasoning_init(struct reasoning *r, bool inside);
void reasoning_free(struct reasoning *r); /* a zeroed one is fine */
void reasoning_push(struct reasoning *r, struct str text, struct sb *out_reasoning, struct sb *out_content);
void reasoning_flush(struct reasoning *r, struct sb *out_reasoning, struct sb *out_content);
/* Whether a rendered prompt leaves the model inside its thoughts. */
bool reasoning_is_open(struct str prompt);

#endif
