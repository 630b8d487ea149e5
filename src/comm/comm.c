/* What holds for every kind of group. */
#include "comm/comm.h"

static int check_peer(const struct comm *c, int32_t peer, struct err *err) {
    if (peer >= 0 && peer < c->size) return ERR_OK;
    return err_set(err, ERR_EARG, "there is no rank %d among %d", peer, c->size);
}

int comm_all_reduce(struct comm *c, const float *in, float *out, size_t n, struct err *err) {
    return c->type->all_reduce(c, in, out, n, err);
}

int comm_all_gather(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err) {
    return c->type->all_gather(c, in, bytes, out, total, err);
}

int comm_broadcast(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err) {
    TRY(check_peer(c, root, err));
    return c->type->broadcast(c, root, data, bytes, err);
}

void comm_fail(struct comm *c, const struct err *reason) {
    c->type->fail(c, reason);
}

void comm_close(struct comm *c) {
    if (c) c->type->close(c);
}
