/* What holds for every kind of group, and the group of one. */
#include "comm/comm.h"

#include "base/arena.h"

#include <string.h>

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

int comm_send(struct comm *c, int32_t to, const void *data, size_t bytes, struct err *err) {
    TRY(check_peer(c, to, err));
    if (to == c->rank) return err_set(err, ERR_EARG, "rank %d sends to itself", to);
    return c->type->send(c, to, data, bytes, err);
}

int comm_receive(struct comm *c, int32_t from, void *data, size_t bytes, struct err *err) {
    TRY(check_peer(c, from, err));
    if (from == c->rank) return err_set(err, ERR_EARG, "rank %d receives from itself", from);
    return c->type->receive(c, from, data, bytes, err);
}

void comm_fail(struct comm *c, const struct err *reason) {
    c->type->fail(c, reason);
}

void comm_close(struct comm *c) {
    if (c) c->type->close(c);
}

/* ---- alone -------------------------------------------------------------------------------------------------------- */

struct alone {
    struct comm base;
    struct err failed;
};

static int alone_all_reduce(struct comm *c, const float *in, float *out, size_t n, struct err *err) {
    const struct alone *a = (const struct alone *)c;
    if (a->failed.code) return err_set(err, a->failed.code, "%s", a->failed.msg);
    memcpy(out, in, n * sizeof *out);
    return ERR_OK;
}

static int alone_all_gather(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err) {
    const struct alone *a = (const struct alone *)c;
    if (a->failed.code) return err_set(err, a->failed.code, "%s", a->failed.msg);
    if (bytes != total) return err_set(err, ERR_EINTERNAL, "%zu bytes were gathered, expected %zu", bytes, total);
    memcpy(out, in, bytes);
    return ERR_OK;
}

static int alone_broadcast(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err) {
    (void)root, (void)data, (void)bytes;
    const struct alone *a = (const struct alone *)c;
    return a->failed.code ? err_set(err, a->failed.code, "%s", a->failed.msg) : ERR_OK;
}

/* A group of one has no peers: comm_send and comm_receive refuse before these. */
static int alone_send(struct comm *c, int32_t to, const void *data, size_t bytes, struct err *err) {
    (void)c, (void)data, (void)bytes;
    return err_set(err, ERR_EINTERNAL, "no rank %d", to);
}

static int alone_receive(struct comm *c, int32_t from, void *data, size_t bytes, struct err *err) {
    (void)c, (void)data, (void)bytes;
    return err_set(err, ERR_EINTERNAL, "no rank %d", from);
}

static void alone_fail(struct comm *c, const struct err *reason) {
    struct alone *a = (struct alone *)c;
    if (!a->failed.code) a->failed = *reason;
}

static void alone_close(struct comm *c) {
    mem_free(c);
}

static const struct comm_type alone_type = {.name = "alone",
                                            .all_reduce = alone_all_reduce,
                                            .all_gather = alone_all_gather,
                                            .broadcast = alone_broadcast,
                                            .send = alone_send,
                                            .receive = alone_receive,
                                            .fail = alone_fail,
                                            .close = alone_close};

struct comm *comm_alone(void) {
    struct alone *a = mem_alloc(sizeof *a);
    a->base = (struct comm){.type = &alone_type, .size = 1};
    return &a->base;
}
