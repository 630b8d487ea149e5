/* Who may talk to the server: API keys, the Host header (against names that were rebound to this machine), and Origins. */
#ifndef MLXCEL_SERVER_GUARD_H
#define MLXCEL_SERVER_GUARD_H

#include "base/str.h"

struct guard_options {
    const struct str *keys; /* empty: no key is asked for */
    size_t n_keys;
    const struct str *origins; /* besides this machine's own; "*": any */
    size_t n_origins;
    const struct str *hosts; /* further names of this machine; "*": any */
    size_t n_hosts;
};

struct guard;
struct guard *guard_create(const struct guard_options *options);
void guard_destroy(struct guard *g);
/* A name or an address by which only this machine itself is reached. */
bool guard_is_local(struct str name);

/* The key in the Authorization header's value; {NULL, 0} when there is none. */
struct str guard_bearer(struct str authorization);
/* The time it takes does not depend on how much of a key is right. */
bool guard_key_ok(const struct guard *g, struct str key);
/* Names of this machine, addresses, and what was allowed; anything where a key is asked for. */
bool guard_host_ok(const struct guard *g, struct str host);
/* Pages from this machine, from the server itself (host), and what was allowed. */
bool guard_origin_ok(const struct guard *g, struct str origin, struct str host);

#endif
