/* Items of a response's output. The k-th is the k-th piece of everything so far that is text, thoughts or the beginning of a call: so events
 * and the whole say the same. */
#ifndef MLXCEL_SERVER_WIRE_RESPONSES_ITEM_H
#define MLXCEL_SERVER_WIRE_RESPONSES_ITEM_H

#include "server/wire/responses.h"

struct responses_item {
    struct generation *g;
    struct gen_choice *c;
    const struct output_piece *p;
    int32_t k;
    bool is_custom; /* a call whose input is a text of its own */
};

struct responses_item_id {
    char text[32];
};

bool responses_item_begins(const struct output_piece *p);
/* Of c->all, which must have it. */
struct responses_item responses_item_at(struct generation *g, struct gen_choice *c, int32_t k);
struct responses_item_id responses_item_id(const struct responses_item *it);
/* The text of a message or of thoughts, the arguments of a call, the input of a custom one. */
struct str responses_item_text(const struct responses_item *it);
void responses_item_put_part(struct jsonw *w, enum output_kind kind, struct str text);
/* is_new: it has begun, and is empty still. */
void responses_item_put(const struct responses_item *it, const char *status, bool is_new, struct jsonw *w);

#endif
