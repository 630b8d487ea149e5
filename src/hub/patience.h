/* How long to wait for the hub. Each thread that asks it has a patience of its own.
 *
 * (1) Time is fruitful (something arrived) or fruitless, waits between tries included. Fruitless time may be at most limit_ms more than fruitful
 *     time. So a hub that says "later" again and again ends a download; a line that is cut now and then does not.
 * (2) n_tries failures in a row end it, too.
 * (3) A wait that would go beyond (1) is not begun.
 */
#ifndef MLXCEL_HUB_PATIENCE_H
#define MLXCEL_HUB_PATIENCE_H

#include "hub/http.h"

struct patience {
    int32_t n_tries, n_failed; /* n_failed: in a row */
    int64_t limit_ms, fruitful_ms, fruitless_ms;
};

/* What may still be spent without success; 0: nothing. */
int64_t patience_left_ms(const struct patience *p);
void patience_fruitful(struct patience *p, uint64_t ns);
void patience_fruitless(struct patience *p, uint64_t ns);
/* Call it after a failure that may pass; *err says which. 0: try again after the given time, which counts as spent. Otherwise the failure's code, after
 * n_tries failures or where the wait would be too long; then the message says so. */
int patience_ask(struct patience *p, const struct http_reply *reply, int32_t *out_ms, struct err *err);

#endif
