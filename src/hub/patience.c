/* Counting tries and time. The clock is the caller's. */
#include "hub/patience.h"

#include "hub/meter.h"

enum { FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 16000 };

int64_t patience_left_ms(const struct patience *p) {
    int64_t left = p->limit_ms + p->fruitful_ms - p->fruitless_ms;
    return left > 0 ? left : 0;
}

void patience_fruitful(struct patience *p, uint64_t ns) {
    p->n_failed = 0;
    p->fruitful_ms += (int64_t)(ns / 1000000);
}

void patience_fruitless(struct patience *p, uint64_t ns) {
    p->fruitless_ms += (int64_t)(ns / 1000000);
}

/* What the server asks for, else longer each time. */
static int32_t next_wait_ms(const struct patience *p, const struct http_reply *r) {
    int32_t ms = FIRST_WAIT_MS;
    if (r->retry_after > 0) return r->retry_after * 1000;
    for (int32_t i = 1; i < p->n_failed && ms < LONGEST_WAIT_MS; i++) ms *= 2;
    return ms;
}

int patience_ask(struct patience *p, const struct http_reply *r, int32_t *out_ms, struct err *err) {
    char wait[32], limit[32];
    struct err why = *err;
    if (++p->n_failed >= p->n_tries) return why.code;
    *out_ms = next_wait_ms(p, r);
    if (*out_ms <= patience_left_ms(p)) {
        p->fruitless_ms += *out_ms;
        return ERR_OK;
    }
    return err_set(err, why.code, "%.300s; the next try would be in %s, and no more than %s is spent on waiting (download --max-wait)",
                   why.msg, meter_time(*out_ms / 1000.0, wait), meter_time((double)p->limit_ms / 1000.0, limit));
}
