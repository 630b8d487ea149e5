/* Graphs of decode steps: built explicitly from the program when a key comes the second time, replayed after that. Where blocks of a launch
 * may wait for each other, a run of instructions becomes one node. */
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

/* Instructions in a row from the i-th launch on. */
static int32_t run_length(const struct cuda *c, int32_t i) {
    const struct program *p = &c->program;
    int32_t n = 0;
    while (i + n < p->n_launches && p->launches[i + n].kernel == KERNEL_step_run) n++;
    return n;
}

static const struct k_step_run *run_args(const struct cuda *c, int32_t i) {
    return (const struct k_step_run *)(const void *)(c->program.args + c->program.launches[i].args);
}

/* The instructions of all runs, in the order of the launches, in device memory of the graph's own. */
static int upload_instrs(struct cuda *c, CUdeviceptr *out, struct err *err) {
    int32_t n = 0;
    *out = 0;
    for (int32_t i = 0; i < c->program.n_launches; i++) n += c->program.launches[i].kernel == KERNEL_step_run;
    if (n == 0 || !c->can_run_lists) return ERR_OK;
    struct k_instr *all = mem_alloc((size_t)n * sizeof *all);
    for (int32_t i = 0, k = 0; i < c->program.n_launches; i++)
        if (c->program.launches[i].kernel == KERNEL_step_run) all[k++] = run_args(c, i)->one;
    int code = cuda_alloc(c, (size_t)n * sizeof *all, "instructions of a step", out, err);
    if (!code) code = cuda_check(c->d, c->d->cuMemcpyHtoD(*out, all, (size_t)n * sizeof *all), err, "instructions of a step");
    mem_free(all);
    return code;
}

/* One launch for n instructions: a block on every multiprocessor, with the most shared memory that one of them needs. */
static struct launch run_launch(const struct cuda *c, int32_t i, int32_t n) {
    struct launch all = c->program.launches[i];
    all.grid[0] = (unsigned int)c->n_sm;
    for (int32_t k = 1; k < n; k++)
        if (c->program.launches[i + k].shared_bytes > all.shared_bytes) all.shared_bytes = c->program.launches[i + k].shared_bytes;
    return all;
}

static int add_nodes(struct cuda *c, CUgraph graph, CUdeviceptr instrs, struct err *err) {
    const struct program *p = &c->program;
    CUgraphNode last = NULL;
    for (int32_t i = 0, n; i < p->n_launches; i += n) {
        struct launch one = p->launches[i], *l = &one;
        struct k_step_run run;
        void *params[] = {p->args + l->args};
        n = instrs ? run_length(c, i) : 0;
        bool is_run = n > 1;
        if (is_run) {
            one = run_launch(c, i, n);
            run = (struct k_step_run){.instrs = instrs, .barrier = c->counters, .n = n};
            params[0] = &run;
        }
        instrs += (instrs ? (CUdeviceptr)n : 0) * sizeof(struct k_instr);
        if (n < 1) n = 1;
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
        if (is_run)
            CUDA_TRY(c,
                     c->d->cuGraphKernelNodeSetAttribute(last, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &(CUkernelNodeAttrValue){.cooperative = 1}),
                     "graph node of %d instructions", n);
    }
    return ERR_OK;
}

static struct cuda_graph *graph_slot(struct cuda *c) {
    if (c->n_graphs < GRAPHS_MAX) return &c->graphs[c->n_graphs++];
    struct cuda_graph *oldest = &c->graphs[0];
    for (int32_t i = 1; i < GRAPHS_MAX; i++)
        if (c->graphs[i].last_use < oldest->last_use) oldest = &c->graphs[i];
    c->d->cuGraphExecDestroy(oldest->exec);
    cuda_free(c, &oldest->instrs);
    return oldest;
}

int cuda_graph_build(struct cuda *c, struct err *err) {
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUdeviceptr instrs;
    CUDA_TRY(c, c->d->cuGraphCreate(&graph, 0), "a graph");
    int code = upload_instrs(c, &instrs, err);
    if (!code) code = add_nodes(c, graph, instrs, err);
    if (!code) code = cuda_check(c->d, c->d->cuGraphInstantiate(&exec, graph, 0), err, "a graph of %d kernels", c->program.n_launches);
    c->d->cuGraphDestroy(graph);
    if (code) cuda_free(c, &instrs);
    TRY(code);
    struct cuda_graph *g = graph_slot(c);
    *g = (struct cuda_graph){.key = c->key, .exec = exec, .last_use = c->n_steps, .n_outputs = c->n_outputs, .instrs = instrs};
    memcpy(g->outputs, c->outputs, sizeof g->outputs);
    return ERR_OK;
}

void cuda_graphs_drop(struct cuda *c) {
    for (int32_t i = 0; i < c->n_graphs; i++) {
        c->d->cuGraphExecDestroy(c->graphs[i].exec);
        cuda_free(c, &c->graphs[i].instrs);
    }
    c->n_graphs = 0;
    c->replay = NULL;
}
