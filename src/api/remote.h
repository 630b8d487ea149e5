/* A file from elsewhere, for who is asked by strangers to fetch it: which addresses may be asked, how much is read and how long it may take are rules.
 *
 * (1) Every connection is held against the rules when it is made, with the address that it is made to: a redirect, and a name that has another address
 *     by then, change nothing. (2) No proxy is asked: it would reach what we must not. (3) What could not be fetched is told alike, whatever the reason
 *     beyond a rule, so that nobody learns from it what is there. */
#ifndef MLXCEL_API_REMOTE_H
#define MLXCEL_API_REMOTE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct remote_rules {
    bool (*may_connect)(const unsigned char *address, int n); /* as address_is_public */
    bool takes_http;                                          /* not https alone */
    size_t max_bytes;
    int64_t limit_ms; /* for all of it */
};

/* What servers use: https, public addresses, 32 MiB, 20 seconds. */
struct remote_rules remote_public_rules(void);

/* The file is the arena's. ERR_EARG: a rule refuses the address; ERR_ELIMIT: too large; ERR_ENETWORK: it cannot be had. */
int remote_fetch(struct arena *a, const struct remote_rules *rules, struct str url, struct str *out, struct err *err);

#endif
