/* Who wants to know how far something long is, and may end it: reading or copying files of gigabytes. */
#ifndef MLXCEL_HUB_WATCH_H
#define MLXCEL_HUB_WATCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct watch {
    bool (*tell)(void *user, uint64_t done, uint64_t total); /* false: end it */
    void *user;
    uint64_t done, total; /* bytes */
};

/* So many more bytes are done. ERR_ECANCELLED: nobody wants the rest. w may be NULL. */
static inline int watch_add(struct watch *w, uint64_t n, struct err *err) {
    if (!w) return ERR_OK;
    w->done += n;
    return w->tell(w->user, w->done, w->total) ? ERR_OK : err_set(err, ERR_ECANCELLED, "stopped");
}

#endif
