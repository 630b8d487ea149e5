/* A protocol's manners: what errors, frames and signs of life look like. Its requests and answers are in src/server/wire, one file or two for
 * each protocol; none knows another. */
#ifndef MLXCEL_SERVER_WIRE_H
#define MLXCEL_SERVER_WIRE_H

#include "server/api_error.h"

struct call;

struct wire {
    const char *stream_type;                                         /* the content type of its streams */
    void (*error)(const struct api_error *e, struct sb *out);        /* the body of an answer that is an error */
    void (*stream_error)(const struct api_error *e, struct sb *out); /* an error in the middle of a stream */
    void (*ping)(struct sb *out);                                    /* keeps a silent stream open; NULL: it has nothing for that */
    bool (*skips_model)(const struct call *c); /* a request that is answered without its model, where that is not loaded; NULL: none is */
};

extern const struct wire wire_openai; /* also of everything that belongs to no protocol */
extern const struct wire wire_anthropic, wire_lcpp, wire_ollama;
/* Of a path that has no route: by how it begins. */
const struct wire *wire_of_path(struct str path);

#endif
