/* Opening the ranks behind the first, and their threads. */
#include "engine/team.h"

#include "comm/tcp.h"
#include "engine/follow.h"
#include "os/os.h"

/* A rank behind the first. */
struct mate {
    struct arena arena;
    struct comm *comm;
    struct backend *backend;
    struct model model;
    bool has_model;
    struct os_thread *thread;
};

struct team {
    int32_t n; /* ranks of this process */
    struct comm *first;
    struct mate *mates; /* [n], without the first */
};

int team_open(int32_t n, struct team **out, struct err *err) {
    struct comm *comms[COMM_RANKS_MAX];
    TRY(comm_threads_open(n, comms, err));
    struct team *t = mem_alloc(sizeof *t);
    *t = (struct team){.n = n, .first = comms[0], .mates = mem_alloc((size_t)n * sizeof *t->mates)};
    for (int32_t i = 1; i < n; i++) t->mates[i].comm = comms[i];
    *out = t;
    return ERR_OK;
}

int team_join(const struct comm_tcp_options *o, struct team **out, struct err *err) {
    struct comm *comm;
    TRY(comm_tcp_join(o, &comm, err));
    *out = mem_alloc(sizeof **out);
    **out = (struct team){.n = 1, .first = comm};
    return ERR_OK;
}

struct comm *team_comm(const struct team *t) {
    return t->first;
}

static void mate_main(void *user) {
    struct mate *m = user;
    struct err told; /* to all ranks, by follow_calls */
    follow_calls(&m->model, m->backend, &told);
}

static int open_mate(struct mate *m, const struct backend_type *type, const struct device_options *device,
                     const struct backend_options *options, team_model_fn *open_model, void *user, struct err *err) {
    struct device *d;
    struct backend_options own = *options;
    own.comm = m->comm;
    TRY(device_open(type, device, &d, err));
    int code = backend_open(d, &own, &m->backend, err);
    device_release(d);
    if (!code) code = open_model(user, &m->arena, m->backend, &m->model, err);
    m->has_model = !code;
    return code;
}

int team_start(struct team *t, const struct backend_type *type, const struct device_options *devices, const struct backend_options *options,
               team_model_fn *open_model, void *user, struct err *err) {
    int code = ERR_OK;
    for (int32_t i = 1; i < t->n && !code; i++) code = open_mate(&t->mates[i], type, &devices[i], options, open_model, user, err);
    for (int32_t i = 1; i < t->n && !code; i++) code = os_thread_start(&t->mates[i].thread, mate_main, &t->mates[i], "mlxcel-rank", err);
    if (code) comm_fail(t->first, err); /* nobody waits for ranks that do not come */
    return code;
}

uint64_t team_weight_bytes(const struct team *t) {
    uint64_t most = 0;
    for (int32_t i = 1; i < t->n; i++)
        if (t->mates[i].model.weights.bytes > most) most = t->mates[i].model.weights.bytes;
    return most;
}

uint64_t team_free_bytes(const struct team *t) {
    uint64_t least = UINT64_MAX;
    for (int32_t i = 1; i < t->n; i++) {
        uint64_t available = 0, total = 0;
        device_memory(t->mates[i].backend->device, &available, &total);
        if (available && available < least) least = available;
    }
    return least;
}

void team_close(struct team *t) {
    if (!t) return;
    for (int32_t i = 1; i < t->n; i++) {
        struct mate *m = &t->mates[i];
        if (m->thread) os_thread_join(m->thread);
        if (m->has_model) weights_release(m->backend, &m->model.weights);
        backend_close(m->backend);
        comm_close(m->comm);
        arena_free(&m->arena);
    }
    comm_close(t->first);
    mem_free(t->mates);
    mem_free(t);
}
