/* Graphs of decode steps. A graph is built from the program when a key comes the second time, and replayed after that. Instructions that follow each
 * other are a run; where blocks of a launch may wait for each other, a run becomes one node of the graph. */
#include "backend/cuda/decode/decode.h"

bool cuda_key_checks(const struct step_key *key) {
    return !key->decode_only && key->n_rows <= LIST_ROWS && key->n_logits == key->n_rows && key->n_hidden == 0 && !key->gives &&
           !key->has_places && !key->sees && !key->part;
}

static bool may_replay(const struct step_key *key) {
    return (key->decode_only && !key->gives) || cuda_key_checks(key);
}

/* Whether steps of two keys have the same program. Lengths count by their bucket. */
static bool same_key(const struct step_key *a, const struct step_key *b) {
    return a->part == b->part && a->n_rows == b->n_rows && a->n_seqs == b->n_seqs && a->n_logits == b->n_logits &&
           a->n_hidden == b->n_hidden && cuda_length_bucket(a->shared_len) == cuda_length_bucket(b->shared_len) &&
           (a->shared_len > 0) == (b->shared_len > 0) && a->chooses == b->chooses && a->adapts == b->adapts &&
           a->has_places == b->has_places && a->sees == b->sees && a->has_spans == b->has_spans &&
           cuda_length_bucket(a->max_len) == cuda_length_bucket(b->max_len);
}

struct cuda_graph *cuda_graph_find(struct cuda *c, const struct step_key *key) {
    if (!may_replay(key)) return NULL;
    for (int32_t i = 0; i < c->n_graphs; i++)
        if (same_key(&c->graphs[i].key, key)) return &c->graphs[i];
    return NULL;
}

bool cuda_graph_wanted(struct cuda *c, const struct step_key *key) {
    if (!may_replay(key) || c->ranks.by_nccl) return false;
    for (int32_t i = 0; i < c->n_seen && i < SEEN_MAX; i++)
        if (same_key(&c->seen[i], key)) return true;
    c->seen[c->n_seen++ % SEEN_MAX] = *key;
    if (c->n_seen >= 2 * SEEN_MAX) c->n_seen -= SEEN_MAX;
    return false;
}

/* The number of launches from the i-th on that are instructions. */
static int32_t run_length(const struct cuda *c, int32_t i) {
    const struct program *p = &c->program;
    int32_t n = 0;
    while (i + n < p->n_launches && step_is_instr(p->launches[i + n].kernel)) n++;
    return n;
}

static const struct k_step_run *run_args(const struct cuda *c, int32_t i) {
    return (const struct k_step_run *)(const void *)(c->program.args + c->program.launches[i].args);
}

/* A run of instructions: launches [i, i + n) of the program, instructions [at, at + n_instrs) of struct runs. is_one: kernels/one.cu or its like runs them, by `launch`
 * with rings of `depth` places; several rows then have more instructions than launches. is_mixed: kernels/step.cu does not know all of them. */
struct run {
    int32_t i, n, at, n_instrs, depth;
    bool is_one, is_mixed;
    struct launch launch;
    struct rows_memory x;
};

/* All runs of a program, and their instructions in order. instrs: memory of the graph, which holds the instructions, then their links, then x of several rows. */
struct runs {
    struct run *runs;
    struct k_instr *all;
    struct step_values *values; /* [n] of all */
    CUdeviceptr instrs, x;
    int32_t n_runs, n;
};

static void gather_runs(const struct cuda *c, struct runs *out) {
    size_t most = 2 * (size_t)c->program.n_launches + 1;
    *out = (struct runs){.runs = mem_alloc(most * sizeof *out->runs),
                         .all = mem_alloc(most * sizeof *out->all),
                         .values = mem_alloc(most * sizeof *out->values)};
    for (int32_t i = 0, n; i < c->program.n_launches; i += n ? n : 1) {
        n = run_length(c, i);
        if (!n) continue;
        struct run *r = &out->runs[out->n_runs++];
        *r = (struct run){.i = i, .n = n, .at = out->n};
        for (int32_t k = 0; k < n; k++) {
            r->is_mixed = r->is_mixed || c->program.launches[i + k].kernel != KERNEL_step_run;
            out->values[out->n] = c->program.values[i + k];
            out->all[out->n++] = run_args(c, i + k)->one;
        }
        r->n_instrs = n;
        r->is_one = n > 1 && cuda_list_fits(c, out->all + r->at, n, &r->launch, &r->depth);
        if (r->is_one && c->key.n_rows > 1) r->n_instrs = cuda_rows_expand(out->all + r->at, out->values + r->at, n);
        r->x = cuda_rows_memory(out->all + r->at, r->n_instrs);
        out->n = r->at + r->n_instrs;
    }
}

static void free_runs(struct runs *r) {
    mem_free(r->runs);
    mem_free(r->all);
    mem_free(r->values);
}

/* Gives links and x of all runs their memory behind the instructions, from `at` on; runs use it one after the other. */
static void place_runs(struct runs *r, CUdeviceptr at, size_t links) {
    CUdeviceptr parts = at + links;
    r->x = parts + cuda_latent_parts(r->all, r->n);
    for (int32_t i = 0; i < r->n_runs; i++) {
        struct run *run = &r->runs[i];
        if (!run->is_one) continue;
        cuda_links_place(r->all + run->at, r->values + run->at, run->n_instrs, at, links);
        cuda_latent_place(r->all + run->at, run->n_instrs, parts);
        cuda_rows_place(r->all + run->at, run->n_instrs, &run->x, r->x);
    }
}

static int upload_runs(struct cuda *c, struct runs *r, struct err *err) {
    size_t bytes = (size_t)r->n * sizeof *r->all, links = 0, x = 0;
    for (int32_t i = 0; i < r->n_runs; i++) {
        struct run *run = &r->runs[i];
        size_t need = run->is_one ? cuda_links_find(r->all + run->at, r->values + run->at, run->n_instrs) : 0;
        if (need > links) links = need;
        if (run->x.bytes > x) x = run->x.bytes;
    }
    links = (links + 127) / 128 * 128;
    size_t parts = cuda_latent_parts(r->all, r->n);
    TRY(cuda_alloc(c, bytes + links + parts + x, "instructions of a step", &r->instrs, err));
    place_runs(r, r->instrs + bytes, links);
    if (!c->gpu->can_run_lists) /* each instruction is a launch, and launches wait for each other anyway */
        for (int32_t k = 0; k < r->n; k++) r->all[k].waits = 0;
    TRY(cuda_upload(c, r->instrs, r->all, bytes, "instructions of a step", err));
    if (links) CUDA_TRY(c, c->d->cuMemsetD32Async(r->instrs + bytes, 0, (links + parts) / 4, c->stream), "links of a step");
    if (x) CUDA_TRY(c, c->d->cuMemsetD32Async(r->x, ROWS_NOT_THERE, x / 4, c->stream), "x of a step");
    return ERR_OK;
}

/* The launch of a whole run: that of kernels/one.cu, or of kernels/step.cu with a block on every multiprocessor and the most shared memory that any of
 * its instructions needs. */
static struct launch run_launch(const struct cuda *c, const struct run *r) {
    if (r->is_one) return r->launch;
    struct launch all = c->program.launches[r->i];
    all.grid[0] = (unsigned int)c->gpu->n_sm;
    for (int32_t k = 1; k < r->n; k++)
        if (c->program.launches[r->i + k].shared_bytes > all.shared_bytes) all.shared_bytes = c->program.launches[r->i + k].shared_bytes;
    return all;
}

static int add_node(struct cuda *c, CUgraph graph, const struct launch *l, void *args, CUgraphNode *last, struct err *err) {
    void *params[] = {args};
    CUDA_KERNEL_NODE_PARAMS node = {
        .func = c->gpu->functions[l->kernel],
        .gridDimX = l->grid[0],
        .gridDimY = l->grid[1],
        .gridDimZ = l->grid[2],
        .blockDimX = l->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = l->shared_bytes,
        .kernelParams = params,
    };
    CUgraphNode before = *last;
    bool is_early = before && c->gpu->begins_early[l->kernel];
    CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUDA_TRY(c, c->d->cuGraphAddKernelNode(last, graph, &before, before && !is_early, &node), "graph node %s", cuda_kernel_name(l->kernel));
    if (is_early) CUDA_TRY(c, c->d->cuGraphAddDependencies(graph, &before, last, &edge, 1), "graph node %s", cuda_kernel_name(l->kernel));
    return ERR_OK;
}

/* Adds a run as one node. Where blocks of a launch may not wait for each other, each instruction is a node, with the same links. */
static int add_list(struct cuda *c, CUgraph graph, const struct runs *runs, const struct run *r, CUgraphNode *last, struct err *err) {
    CUdeviceptr instrs = runs->instrs + (size_t)r->at * sizeof(struct k_instr);
    struct k_step_run run = {.instrs = instrs,
                             .barrier = c->counters,
                             .n = r->n_instrs,
                             .tags = r->n_instrs,
                             .depth = r->depth,
                             .x_units = runs->x,
                             .x_rest = (int64_t)r->x.rest,
                             .x_bytes = (int64_t)r->x.bytes};
    struct launch l = run_launch(c, r);
    if (c->gpu->can_run_lists) {
        TRY(add_node(c, graph, &l, &run, last, err));
        CUDA_TRY(c, c->d->cuGraphKernelNodeSetAttribute(*last, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &(CUkernelNodeAttrValue){.cooperative = 1}),
                 "graph node of %d instructions", r->n_instrs);
        return ERR_OK;
    }
    run.n = 1;
    for (int32_t k = 0; k < r->n_instrs; k++) {
        run.instrs = instrs + (size_t)k * sizeof(struct k_instr);
        run.tags = k + 1 == r->n_instrs ? r->n_instrs : 0;
        TRY(add_node(c, graph, &l, &run, last, err));
    }
    return ERR_OK;
}

static int add_nodes(struct cuda *c, CUgraph graph, const struct runs *runs, struct err *err) {
    const struct program *p = &c->program;
    CUgraphNode last = NULL;
    for (int32_t i = 0, k = 0; i < p->n_launches;) {
        const struct run *r = k < runs->n_runs && runs->runs[k].i == i ? &runs->runs[k++] : NULL;
        if (r && (r->is_one || (r->n > 1 && c->gpu->can_run_lists && !r->is_mixed))) {
            TRY(add_list(c, graph, runs, r, &last, err));
            i += r->n;
            continue;
        }
        for (int32_t end = i + (r ? r->n : 1); i < end; i++)
            TRY(add_node(c, graph, &p->launches[i], p->args + p->launches[i].args, &last, err));
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

bool cuda_graph_at_once(const struct cuda *c) {
    struct runs r;
    bool any = false;
    if (!c->is_replayed || c->ranks.by_nccl || !may_replay(&c->key) || c->key.n_rows > LIST_ROWS) return false;
    gather_runs(c, &r);
    for (int32_t i = 0; i < r.n_runs; i++) any = any || r.runs[i].is_one;
    free_runs(&r);
    return any;
}

/* Instructions that read links alone. */
static bool needs_links(const struct k_instr *in) {
    return cuda_is_latent(in) || (in->kind != K_STEP_ATTN && in->u.linear.e.half);
}

/* Whether the instruction behind the i-th is the only one that reads its result, through a link. */
static bool reads_all_of(const struct runs *r, int32_t i) {
    const struct k_instr *next = &r->all[i + 1];
    return next->kind == K_STEP_LINEAR && next->u.linear.x_link && next->u.linear.x_maker == i && r->values[i].reads == 1;
}

bool cuda_one_list_holds(const struct cuda *c) {
    const struct program *p = &c->program;
    struct runs r;
    for (int32_t i = 0; i < p->n_launches; i++) {
        enum op_kind kind = c->base.list.ops[p->launches[i].op].kind;
        bool is_around = kind == OP_EMBED || kind == OP_ACT || kind == OP_ARGMAX || kind == OP_CHOOSE;
        bool passes = p->launches[i].kernel == KERNEL_pass_in || p->launches[i].kernel == KERNEL_pass_out;
        if (!step_is_instr(p->launches[i].kernel) && !is_around && !passes) return false;
    }
    gather_runs(c, &r);
    bool holds = r.n_runs == 1 && r.runs[0].is_one;
    if (holds) cuda_links_find(r.all, r.values, r.n);
    for (int32_t i = 0; i < r.n && holds; i++) holds = !needs_links(&r.all[i]) || !r.all[i].waits;
    for (int32_t i = 0; i < r.n && holds; i++) holds = r.all[i].kind != K_STEP_ROUTER || r.all[i].u.linear.x_link;
    holds = holds && cuda_sums_hold(r.all, r.values, r.n);
    for (int32_t i = 0; i < r.n && holds; i++) holds = r.all[i].kind != K_STEP_VALUES || (i + 1 < r.n && reads_all_of(&r, i));
    free_runs(&r);
    return holds;
}

int cuda_graph_build(struct cuda *c, struct cuda_graph **out, struct err *err) {
    CUgraph graph;
    CUgraphExec exec = NULL;
    struct runs runs = {0};
    CUDA_TRY(c, c->d->cuGraphCreate(&graph, 0), "a graph");
    gather_runs(c, &runs);
    int code = runs.n ? upload_runs(c, &runs, err) : ERR_OK;
    if (!code) code = add_nodes(c, graph, &runs, err);
    if (!code) code = cuda_check(c->d, c->d->cuGraphInstantiate(&exec, graph, 0), err, "a graph of %d kernels", c->program.n_launches);
    c->d->cuGraphDestroy(graph);
    free_runs(&runs);
    if (code) cuda_free(c, &runs.instrs);
    TRY(code);
    struct cuda_graph *g = graph_slot(c);
    *g = (struct cuda_graph){.key = c->key,
                             .exec = exec,
                             .last_use = c->n_steps,
                             .n_outputs = c->n_outputs,
                             .passes = c->passing.by_kernels,
                             .instrs = runs.instrs};
    memcpy(g->outputs, c->outputs, sizeof g->outputs);
    memcpy(g->inputs, c->inputs, sizeof g->inputs);
    g->n_inputs = c->n_inputs;
    *out = g;
    return ERR_OK;
}
