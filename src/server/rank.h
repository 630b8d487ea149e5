/* Documents judged by queries: the jobs behind every protocol's ranking. What the answer looks like is the route's. */
#ifndef MLXCEL_SERVER_RANK_H
#define MLXCEL_SERVER_RANK_H

#include "server/embed.h"

/* A pair of texts whose score is wanted. */
struct rank_pair {
    struct str query, text;
};

struct ranking {
    struct embedding m; /* first: the call's state; each input's vector is one number */
    const struct rank_pair *pairs;
    int32_t top_n; /* so many are shown */
    bool shows_texts;
};

/* Makes jobs of the pairs, which lie in the call's arena: c->state becomes the ranking. The body's fields top_n, instruction and truncate count. On a
 * worker; embed_start is the route's start. */
int rank_prepare(struct call *c, const struct rank_pair *pairs, int32_t n, const struct embed_form *form);
/* The texts of a field: a list of strings, or of objects with a text; with takes_one also a string. */
int rank_read_texts(struct call *c, const char *field, bool takes_one, struct str **out, int32_t *out_n);
/* Numbers of the inputs, the best score first; in the call's arena. */
const int32_t *rank_order(const struct ranking *r);
float rank_score(const struct ranking *r, int32_t i);

#endif
