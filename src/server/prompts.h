/* Prompts of requests: texts, token ids, both mixed, objects that hold a text; one, or a list of them. */
#ifndef MLXCEL_SERVER_PROMPTS_H
#define MLXCEL_SERVER_PROMPTS_H

#include "server/generate.h"

struct prompt_rules {
    const char *param; /* the field, for messages */
    unsigned encoding; /* of texts: flags of enum service_encoding */
    int32_t n_max;     /* prompts in one request */
    bool wants_text;   /* gen_prompt.text is wanted, also of token ids */
    struct str before; /* put before every text that a prompt begins with */
    bool takes_empty;  /* an empty text is one: of the tokens that the model wants around it, else of a space */
};

/* *out and what it holds lie in the call's arena. Nonzero: c->error says why not. */
int prompts_read(struct call *c, yyjson_val *val, const struct prompt_rules *rules, struct gen_prompt **out, int32_t *out_n);

#endif
