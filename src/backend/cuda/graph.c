/* Graphs of decode steps: built explicitly from the program when a key comes the second time, replayed after that. */
#include "backend/cuda/cuda.h"

/* Two keys share a program when these agree; lengths by bucket. */
static bool same_key(const struct step_key *a, const struct step_key *b) {
    return a->n_rows == b->n_rows && a->n_seqs == b->n_seqs && a->n_logits == b->n_logits &&
           cuda_length_bucket(a->max_len) == cuda_length_bucket(b->max_len);
}

struct cuda_graph *cuda_graph_find(struct cuda *c, const struct step_key *key) {
    if (!key->decode_only) return NULL;
    for (int32_t i = 0; i < c->n_graphs; i++)
        if (same_key(&c->graphs[i].key, key)) return &c->graphs[i];
    return NULL;
}

bool cuda_graph_wanted(struct cuda *c, const struct step_key *key) {
    if (!key->decode_only) return false;
    for (int32_t i = 0; i < c->n_seen && i < SEEN_MAX; i++)
        if (same_key(&c->seen[i], key)) return true;
    c->seen[c->n_seen++ % SEEN_MAX] = *key;
    if (c->n_seen >= 2 * SEEN_MAX) c->n_seen -= SEEN_MAX;
    return false;
}

static int add_nodes(struct cuda *c, CUgraph graph, struct err *err) {
    const struct program *p = &c->program;
    CUgraphNode last = NULL;
    for (int32_t i = 0; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        void *params[] = {p->args + l->args};
        CUDA_KERNEL_NODE_PARAMS node = {
            .func = c->functions[l->kernel],
            .gridDimX = l->grid[0],
            .gridDimY = l->grid[1],
            .gridDimZ = l->grid[2],
            .blockDimX = l->threads,
            .blockDimY = 1,
            .blockDimZ = 1,
            .sharedMemBytes = l->shared_bytes,
            .kernelParams = params,
        };
        CUgraphNode before = last;
        CUDA_TRY(c, c->d->cuGraphAddKernelNode(&last, graph, &before, i > 0, &node), "graph node %s", cuda_kernel_name(l->kernel));
    }
    return ERR_OK;
}

static struct cuda_graph *graph_slot(struct cuda *c) {
    if (c->n_graphs < GRAPHS_MAX) return &c->graphs[c->n_graphs++];
    struct cuda_graph *oldest = &c->graphs[0];
    for (int32_t i = 1; i < GRAPHS_MAX; i++)
        if (c->graphs[i].last_use < oldest->last_use) oldest = &c->graphs[i];
    c->d->cuGraphExecDestroy(oldest->exec);
    return oldest;
}

int cuda_graph_build(struct cuda *c, struct err *err) {
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUDA_TRY(c, c->d->cuGraphCreate(&graph, 0), "a graph");
    int code = add_nodes(c, graph, err);
    if (!code) code = cuda_check(c->d, c->d->cuGraphInstantiate(&exec, graph, 0), err, "a graph of %d kernels", c->program.n_launches);
    c->d->cuGraphDestroy(graph);
    TRY(code);
    struct cuda_graph *g = graph_slot(c);
    *g = (struct cuda_graph){.key = c->key, .exec = exec, .last_use = c->n_steps, .n_outputs = c->n_outputs};
    memcpy(g->outputs, c->outputs, sizeof g->outputs);
    return ERR_OK;
}

void cuda_graphs_drop(struct cuda *c) {
    for (int32_t i = 0; i < c->n_graphs; i++) c->d->cuGraphExecDestroy(c->graphs[i].exec);
    c->n_graphs = 0;
    c->replay = NULL;
}
