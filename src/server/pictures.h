/* Pictures in requests: parts of messages, each with an address that holds the file itself, or, where that is allowed, says where it is. */
#ifndef MLXCEL_SERVER_PICTURES_H
#define MLXCEL_SERVER_PICTURES_H

#include "base/json.h"
#include "server/api_error.h"

enum { PICTURES_MAX = 64 }; /* of one request */

/* Files that the messages brought, in their order; the memory is the arena's. */
struct pictures {
    struct arena *arena;
    struct str files[PICTURES_MAX];
    size_t n;
    bool fetches;    /* addresses of https are taken, too */
    size_t bytes;    /* that were fetched */
    uint64_t end_ns; /* of all that is fetched; 0: nothing was yet */
};

/* The file in an address "data:image/png;base64,...", or at one of https. `param` names the part. */
int pictures_add(struct pictures *p, struct str url, const char *param, struct api_error *e);

#endif
