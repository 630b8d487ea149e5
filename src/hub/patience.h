/* How long the hub is waited for: one for each thread that asks it.
 *
 * (1) Time is either fruitful (something came) or not. All fruitless time together, waits between tries included, is at most limit_ms and
 *     what was fruitful: a hub that says "later" again and again ends a download, a line that is cut now and then does not.
 * (2) So many failures in a row end it, too.
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
/* After a failure that may pass, which *err tells: 0 with the time to wait before the next try, which counts as spent; else the
 * failure's code, and the message says what was at its end. */
int patience_ask(struct patience *p, const struct http_reply *reply, int32_t *out_ms, struct err *err);

#endif
