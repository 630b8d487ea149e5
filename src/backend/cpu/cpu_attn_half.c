/* Attention over a cache in blocks, and the cache in half precision.
 *
 * Keys lie transposed inside a block, so that scores of 64 positions are one vector sum; values lie row by row. A query is
 * one head of one row; a work item is up to QUERIES of them that share a key head: a block is read from memory once for
 * all of them.
 *
 * (1) A row's positions are cut into chunks whose borders depend on the last one that it sees alone. Each chunk has its own largest
 *     score, sum and mix; they are folded in ascending order. Whether one thread walks all chunks or many threads take one
 *     each, the operations are the same, and so are the bits.
 * (2) A query reads the values of its visible positions only: a broken row cannot reach the rows before it.
 */
#include "backend/cpu/cpu_attn.h"

#include "base/fmath.h"

enum { CHUNK_BLOCKS = 4, CHUNKS_MAX = 32, PACKED_CHUNKS = 8, PACKED_BLOCKS = 16, LARGE_BLOCK = 12288 };

bool cpu_kv_half_fits(const struct cpu *c, const struct kv_class *k) {
    if (!c->kern.block_scores || c->base.precision == PRECISION_EXACT || c->base.precision == PRECISION_F32) return false;
    return k->k_width % 16 == 0 && k->v_width % 16 == 0 && k->v_width > 0;
}

/* The half-precision numbers of a block. */
static uint16_t *numbers(const unsigned char *block) {
    return (uint16_t *)(void *)block;
}

enum { WRITE_WIDTH = 128 };

struct write_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    const int32_t *runs; /* [n + 1] first rows */
};

/* Elements of keys lie a block apart: one cache line for each. They are asked for before the first is written, since
 * stores wait for one another. */
static void write_keys(const struct write_job *job, int32_t row, int32_t n, int32_t head, uint16_t *keys) {
    struct tensor k = job->op->in[0];
    int32_t width = job->c->kv[job->op->arg.kv.kv.kv_class].shape.k_width, at = job->step->pos[row] % KV_BLOCK;
    uint16_t narrow[WRITE_RUN][WRITE_WIDTH];
    for (int32_t d = 0; d < width; d++) __builtin_prefetch(keys + (int64_t)d * KV_BLOCK + at, 1);
    for (int32_t d = 0; d < width; d += WRITE_WIDTH) {
        int32_t n_here = width - d < WRITE_WIDTH ? width - d : WRITE_WIDTH;
        for (int32_t i = 0; i < n; i++) job->c->kern.store_f16(narrow[i], cpu_row(job->c, k, row + i) + head * k.head_stride + d, n_here);
        for (int32_t j = 0; j < n_here; j++) {
            uint16_t *to = keys + (int64_t)(d + j) * KV_BLOCK + at;
            for (int32_t i = 0; i < n; i++) to[i] = narrow[i][j];
        }
    }
}

/* One key head of one run. */
static void write_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct write_job *job = ctx;
    struct cpu *c = job->c;
    struct kv_ref kv = job->op->arg.kv.kv;
    const struct cpu_kv_class *cls = &c->kv[kv.kv_class];
    struct tensor v = job->op->in[1];
    int32_t v_width = cls->shape.v_width, heads = cls->shape.heads;
    for (int64_t item = first; item < last; item++) {
        int32_t r = job->runs[item / heads], n = job->runs[item / heads + 1] - r, h = (int32_t)(item % heads), pos = job->step->pos[r];
        int32_t block = block_of(job->step, kv.kv_class, job->step->seq_of[r], pos / KV_BLOCK);
        write_keys(job, r, n, h, numbers(block_at(cls, false, kv, block, h)));
        uint16_t *values = numbers(block_at(cls, true, kv, block, h)) + (int64_t)(pos % KV_BLOCK) * v_width;
        for (int32_t i = 0; i < n; i++) c->kern.store_f16(values + (int64_t)i * v_width, cpu_row(c, v, r + i) + h * v.head_stride, v_width);
    }
}

int32_t cpu_write_runs(const struct op *op, const struct step *step, int32_t *runs) {
    int32_t n = 0;
    for (int32_t r = 0; r < op->in[0].rows; r++)
        if (r == 0 || step->seq_of[r] != step->seq_of[r - 1] || step->pos[r] != step->pos[r - 1] + 1 || step->pos[r] % WRITE_RUN == 0)
            runs[n++] = r;
    runs[n] = op->in[0].rows;
    return n;
}

void cpu_kv_write_half(struct cpu *c, const struct op *op, const struct step *step) {
    int32_t *runs = (int32_t *)c->op_scratch, n = cpu_write_runs(op, step, runs);
    struct write_job job = {c, op, step, runs};
    pool_run(c->pool, (int64_t)n * c->kv[op->arg.kv.kv.kv_class].shape.heads, 1, write_heads, &job);
}

/* Blocks of a chunk for a row that sees up to this position: few threads wait for one, and there are never many chunks. A cache of 8 or 4
 * bits has fewer and longer ones, since each begins by turning its queries. */
static int32_t chunk_blocks(int32_t pos, int32_t bits) {
    int32_t n = pos / KV_BLOCK, each = (n + CHUNKS_MAX) / CHUNKS_MAX, longer = bits ? (n + PACKED_CHUNKS) / PACKED_CHUNKS : 0;
    if (longer > PACKED_BLOCKS) longer = PACKED_BLOCKS;
    if (longer > each) each = longer;
    return each > CHUNK_BLOCKS ? each : CHUNK_BLOCKS;
}

/* A partial result: the mix, the largest score, the sum of the weights; a sum below zero: nothing was visible. */
static int64_t partial_floats(const struct cpu_kv_class *cls) {
    return cls->shape.v_width + 2;
}

static int64_t query_floats(int32_t width, int32_t bits) {
    return bits ? (int64_t)(sizeof(struct kv_query) / sizeof(float)) : width;
}

static struct block_memory memory_of(const struct block_job *job, int32_t thread) {
    const struct cpu_kv_class *cls = block_class(job);
    struct block_memory m = {.q = cpu_thread(job->c, thread)};
    m.part = m.q + QUERIES * query_floats(cls->shape.k_width, cls->bits);
    m.state = m.part + QUERIES * partial_floats(cls);
    m.scores = m.state + QUERIES * partial_floats(cls);
    return m;
}

static void gather_queries(const struct block_job *job, const struct block_item *it, float *q) {
    struct tensor x = job->op->in[0];
    if (block_class(job)->bits) {
        cpu_packed_queries(job, it, (struct kv_query *)(void *)q);
        return;
    }
    for (int32_t i = 0; i < it->n_queries; i++)
        memcpy(q + (int64_t)i * x.width, cpu_row(job->c, x, it->row + i / it->n_heads) + (it->head + i % it->n_heads) * x.head_stride,
               (size_t)x.width * sizeof *q);
}

/* The last position that a row sees. */
static int32_t reach(const struct block_job *job, int32_t row) {
    return cpu_last_visible(&job->op->arg.attn, job->step, row);
}

/* Visible positions [first, last) of query i inside the chunk that begins at `origin`. */
static void visible(const struct block_job *job, const struct block_item *it, int32_t i, int32_t origin, int32_t *first, int32_t *last) {
    int32_t row = it->row + i / it->n_heads, end = reach(job, row) + 1, from = cpu_first_visible(&job->op->arg.attn, job->step, row);
    *first = from > origin ? from : origin;
    *last = end < origin + it->blocks * KV_BLOCK ? end : origin + it->blocks * KV_BLOCK;
}

static void chunk_scores(const struct block_job *job, const struct block_item *it, const struct block_memory *m, int32_t first,
                         int32_t last) {
    struct tensor q = job->op->in[0];
    struct attn_block b = {.width = q.width,
                           .heads = it->n_queries,
                           .q = m->q,
                           .q_stride = q.width,
                           .scores_stride = (int64_t)it->blocks * KV_BLOCK,
                           .scale = cpu_query_scale(&job->op->arg.attn, job->step->pos[it->row])};
    if (block_class(job)->bits) {
        cpu_packed_scores(job, it, m, first, last);
        return;
    }
    for (int32_t i = first; i < last; i++) {
        b.cache = numbers(block_in(job, it, false, i));
        b.next = numbers(i + 1 < last ? block_in(job, it, false, i + 1) : block_in(job, it, true, first));
        b.scores = m->scores + (int64_t)(i % it->blocks) * KV_BLOCK;
        job->c->kern.block_scores(&b);
    }
}

/* Weights of query i in place, of n positions from `first` on. */
static void chunk_softmax(const struct block_job *job, const struct block_item *it, int32_t i, float *s, int32_t first, int32_t n,
                          float *out_max_sum) {
    const struct attn_args *a = &job->op->arg.attn;
    const struct kernels *k = &job->c->kern;
    if (a->softcap > 0) k->act(s, n, &(struct act_args){.kind = ACT_SOFTCAP, .p = {a->softcap}});
    for (int32_t j = 0; cpu_has_places(job->op) && j < n; j++)
        s[j] += cpu_place_bias(job->c, job->op, job->step, it->row + i / it->n_heads, it->head + i % it->n_heads, first + j);
    out_max_sum[0] = k->max(s, n, -INFINITY);
    out_max_sum[1] = k->exp_sum(s, n, out_max_sum[0]);
}

/* The mix of one block. Where the queries see different positions, those that all of them see are taken together; what
 * comes before and after is taken one by one: each query's order stays ascending. */
static void mix_block(const struct block_job *job, const struct attn_block *whole, const int32_t (*range)[2], int32_t start) {
    int32_t low = 0, high = KV_BLOCK;
    for (int32_t i = 0; i < whole->heads; i++) {
        if (range[i][0] - start > low) low = range[i][0] - start;
        if (range[i][1] - start < high) high = range[i][1] - start;
    }
    if (high < low) high = low;
    for (int part = 0; part < 3; part++) {
        struct attn_block b = *whole;
        b.first = low;
        b.last = high;
        if (part == 1) {
            if (low < high) job->c->kern.block_mix(&b);
            continue;
        }
        b.heads = 1;
        for (int32_t i = 0; i < whole->heads; i++) {
            int32_t first = range[i][0] > start ? range[i][0] - start : 0,
                    last = range[i][1] - start < KV_BLOCK ? range[i][1] - start : KV_BLOCK;
            b.first = part == 0 || first > high ? first : high;
            b.last = part == 0 && last > low ? low : last;
            b.scores = whole->scores + i * whole->scores_stride;
            b.out = whole->out + i * whole->out_stride;
            if (b.first < b.last) job->c->kern.block_mix(&b);
        }
    }
}

/* Adds the values of blocks [first, last) to `out`. */
static void chunk_mix(const struct block_job *job, const struct block_item *it, const struct block_memory *m, const int32_t (*range)[2],
                      int32_t first, int32_t last, float *out) {
    const struct cpu_kv_class *cls = block_class(job);
    struct attn_block b = {.width = cls->shape.v_width, .heads = it->n_queries, .out = out, .out_stride = partial_floats(cls)};
    b.scores_stride = (int64_t)it->blocks * KV_BLOCK;
    if (cls->bits) {
        cpu_packed_mix(job, it, m, range, first, last, out, b.out_stride);
        return;
    }
    for (int32_t i = first; i < last; i++) {
        b.cache = numbers(block_in(job, it, true, i));
        b.next = i + 1 < last ? numbers(block_in(job, it, true, i + 1)) : b.cache;
        b.scores = m->scores + (int64_t)(i % it->blocks) * KV_BLOCK;
        mix_block(job, &b, range, i * KV_BLOCK);
    }
}

/* One chunk's partial results of all queries. */
static void run_chunk(const struct block_job *job, const struct block_item *it, const struct block_memory *m, int32_t chunk, float *out) {
    const struct cpu_kv_class *cls = block_class(job);
    int32_t origin = chunk * it->blocks * KV_BLOCK, range[QUERIES][2], low = INT32_MAX, high = 0;
    int64_t floats = partial_floats(cls), stride = (int64_t)it->blocks * KV_BLOCK;
    for (int32_t i = 0; i < it->n_queries; i++) {
        visible(job, it, i, origin, &range[i][0], &range[i][1]);
        if (range[i][0] >= range[i][1]) continue;
        if (range[i][0] < low) low = range[i][0];
        if (range[i][1] > high) high = range[i][1];
    }
    if (low < high) chunk_scores(job, it, m, low / KV_BLOCK, (high - 1) / KV_BLOCK + 1);
    for (int32_t i = 0; i < it->n_queries; i++) {
        float *part = out + i * floats;
        int32_t n = range[i][1] - range[i][0];
        memset(part, 0, (size_t)cls->shape.v_width * sizeof *part);
        part[floats - 1] = -1;
        if (n > 0) chunk_softmax(job, it, i, m->scores + i * stride + (range[i][0] - origin), range[i][0], n, &part[floats - 2]);
    }
    if (low < high) chunk_mix(job, it, m, (const int32_t(*)[2])range, low / KV_BLOCK, (high - 1) / KV_BLOCK + 1, out);
}

/* Folds a chunk's results into what came before it. */
static void fold_chunk(const struct block_item *it, float *state, const float *part, int64_t floats) {
    for (int32_t i = 0; i < it->n_queries; i++, state += floats, part += floats) {
        int64_t width = floats - 2;
        float sum = part[width + 1], max = part[width];
        if (sum < 0) continue;
        if (state[width + 1] < 0) {
            memcpy(state, part, (size_t)floats * sizeof *state);
            continue;
        }
        float most = max > state[width] ? max : state[width], old = m_expf(state[width] - most), new = m_expf(max - most);
        for (int64_t d = 0; d < width; d++) state[d] = state[d] * old + part[d] * new;
        state[width] = most;
        state[width + 1] = state[width + 1] * old + sum * new;
    }
}

static void finish(const struct block_job *job, const struct block_item *it, float *state, int64_t floats) {
    struct tensor y = job->op->out[0];
    const float *sinks = cpu_vec(job->op->arg.attn.sinks);
    for (int32_t i = 0; i < it->n_queries; i++, state += floats) {
        int32_t head = it->head + i % it->n_heads;
        float *out = cpu_row(job->c, y, it->row + i / it->n_heads) + head * y.head_stride, max = state[y.width], sum = state[y.width + 1],
              scale = 1.0f;
        if (sinks) {
            float most = sinks[head] > max ? sinks[head] : max;
            scale = m_expf(max - most);
            sum = sum * scale + m_expf(sinks[head] - most);
        }
        scale /= sum;
        if (block_class(job)->bits) {
            job->c->kern.kv_turn(state, y.width);
            scale /= (float)kv_turn_size(y.width);
        }
        for (int32_t d = 0; d < y.width; d++) out[d] = state[d] * scale;
    }
}

static void start_state(const struct block_item *it, float *state, int64_t floats) {
    for (int32_t i = 0; i < it->n_queries; i++) state[(i + 1) * floats - 1] = -1;
}

/* Items go head by head: what the rows of a prompt see of one head stays in the cache, all heads together would not. */
static struct block_item item_at(const struct block_job *job, int64_t index) {
    const struct step *step = job->step;
    int32_t part = (int32_t)(index % job->parts);
    const int32_t *group = job->groups + index / job->parts % job->n_groups;
    struct block_item it = {.row = group[0], .n_rows = group[1] - group[0], .seq = step->seq_of[group[0]]};
    int32_t last = group[1] - 1, rest = job->per_kv - part * QUERIES;
    it.kv_head = (int32_t)(index / job->parts / job->n_groups);
    it.head = it.kv_head * job->per_kv + part * QUERIES;
    it.n_heads = rest < QUERIES ? rest : QUERIES;
    it.n_queries = it.n_rows * it.n_heads;
    it.blocks = chunk_blocks(reach(job, it.row), block_class(job)->bits);
    it.first_chunk = cpu_first_visible(&job->op->arg.attn, step, it.row) / KV_BLOCK / it.blocks;
    it.last_chunk = reach(job, last) / KV_BLOCK / it.blocks;
    return it;
}

/* ---- the blocks that come next ------------------------------------------------------------------------------------ */

static void enter_chunk(struct block_walk *w) {
    int32_t origin = w->chunk * w->it.blocks, from = cpu_first_visible(&w->job->op->arg.attn, w->job->step, w->it.row) / KV_BLOCK;
    int32_t end = reach(w->job, w->it.row + w->it.n_rows - 1) / KV_BLOCK + 1;
    w->first = from > origin ? from : origin;
    w->last = end < origin + w->it.blocks ? end : origin + w->it.blocks;
    w->i = w->first;
    w->values = false;
}

/* False: there is no unit from this one on. */
static bool enter_unit(struct block_walk *w, int64_t unit) {
    int32_t n_chunks = w->job->n_chunks, step = pool_threads(w->job->c->pool);
    for (; unit < w->job->n_units; unit += step) {
        struct block_item it = item_at(w->job, n_chunks ? unit / n_chunks : unit);
        int32_t chunk = it.first_chunk + (n_chunks ? (int32_t)(unit % n_chunks) : 0);
        if (chunk > it.last_chunk) continue;
        if (n_chunks) it.last_chunk = chunk;
        w->it = it;
        w->unit = unit;
        w->chunk = chunk;
        enter_chunk(w);
        return true;
    }
    return false;
}

/* At the end of all it stays where it is. */
static void walk_on(struct block_walk *w) {
    for (int i = 0; i + 1 < KV_ASKS; i++) w->ahead[i] = w->ahead[i + 1], w->bytes[i] = w->bytes[i + 1];
    w->ahead[KV_ASKS - 1] = block_in(w->job, &w->it, w->values, w->i);
    w->bytes[KV_ASKS - 1] = block_bytes(block_class(w->job), w->values);
    if (w->i + 1 < w->last) w->i++;
    else if (!w->values) w->values = true, w->i = w->first;
    else if (w->chunk < w->it.last_chunk) w->chunk++, enter_chunk(w);
    else enter_unit(w, w->unit + pool_threads(w->job->c->pool));
}

/* A part of each of the next blocks, the last part of the nearest: of each block all parts, before it is read. Of blocks so large
 * that those would not stay in the level-1 cache, all parts of the next one. */
void cpu_walk_step(struct block_walk *w, const unsigned char **ask) {
    for (size_t i = 0; i < KV_ASKS; i++) {
        bool large = w->bytes[0] > LARGE_BLOCK;
        size_t part = large ? i : KV_ASKS - 1 - i, of = large ? 0 : i;
        ask[i] = w->ahead[of] + part * (w->bytes[of] / KV_ASKS);
    }
    walk_on(w);
}

static void walk_start(struct block_walk *w, const struct block_job *job, int64_t unit) {
    *w = (struct block_walk){.job = job};
    enter_unit(w, unit);
    for (int i = 0; i < 1 + KV_ASKS; i++) walk_on(w);
}

/* ---- items -------------------------------------------------------------------------------------------------------- */

static void whole_items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct block_job *job = ctx;
    int64_t floats = partial_floats(block_class(job));
    for (int64_t i = first; i < last; i++) {
        struct block_item it = item_at(job, i);
        struct block_memory m = memory_of(job, thread);
        struct block_walk walk;
        if (block_class(job)->bits) walk_start(&walk, job, i);
        m.walk = &walk;
        gather_queries(job, &it, m.q);
        start_state(&it, m.state, floats);
        for (int32_t chunk = it.first_chunk; chunk <= it.last_chunk; chunk++) {
            run_chunk(job, &it, &m, chunk, m.part);
            fold_chunk(&it, m.state, m.part, floats);
        }
        finish(job, &it, m.state, floats);
    }
}

/* Jobs of one chunk each; whoever does an item's last one folds them all. */
static void split_items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct block_job *job = ctx;
    int64_t floats = partial_floats(block_class(job));
    for (int64_t i = first; i < last; i++) {
        struct block_item it = item_at(job, i / job->n_chunks);
        int32_t index = (int32_t)(i % job->n_chunks), n = it.last_chunk - it.first_chunk + 1;
        if (index >= n) continue;
        struct block_memory m = memory_of(job, thread);
        struct block_walk walk;
        if (block_class(job)->bits) walk_start(&walk, job, i);
        m.walk = &walk;
        float *parts = job->partials + i / job->n_chunks * job->n_chunks * QUERIES * floats;
        gather_queries(job, &it, m.q);
        run_chunk(job, &it, &m, it.first_chunk + index, parts + index * QUERIES * floats);
        if (atomic_fetch_add_explicit(&job->left[i / job->n_chunks], 1, memory_order_acq_rel) + 1 < n) continue;
        start_state(&it, m.state, floats);
        for (int32_t chunk = 0; chunk < n; chunk++) fold_chunk(&it, m.state, parts + chunk * QUERIES * floats, floats);
        finish(job, &it, m.state, floats);
    }
}

/* Rows of an item see more and more; of pictures they see the same. */
static bool sees_alike(const struct block_job *job, int32_t a, int32_t b) {
    const struct attn_args *args = &job->op->arg.attn;
    if (!args->of_pictures) return true;
    return reach(job, a) == reach(job, b) && cpu_first_visible(args, job->step, a) == cpu_first_visible(args, job->step, b);
}

/* Runs of rows of one sequence at neighbouring positions, as many as fill an item. */
static int32_t group_rows(const struct block_job *job, int32_t *groups) {
    const struct step *step = job->step;
    int32_t n_rows = job->op->in[0].rows, n = 0, bits = block_class(job)->bits;
    int32_t most = job->op->arg.attn.pos_scale_len || job->per_kv > QUERIES ? 1 : QUERIES / job->per_kv;
    for (int32_t r = 0, first = 0; r < n_rows; r++) {
        bool same = r > 0 && r - first < most && step->seq_of[r] == step->seq_of[r - 1] && step->pos[r] == step->pos[r - 1] + 1 &&
                    chunk_blocks(reach(job, r), bits) == chunk_blocks(reach(job, first), bits) && sees_alike(job, first, r);
        if (same) continue;
        groups[n++] = first = r;
    }
    groups[n] = n_rows;
    return n;
}

int64_t cpu_attn_half_floats(const struct cpu *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    return QUERIES * ((int64_t)chunk_blocks(c->layout.max_context, c->kv_bits) * KV_BLOCK + query_floats(k->k_width, c->kv_bits) +
                      2 * (k->v_width + 2));
}

/* Items are split by chunks where there are too few of them to keep the threads busy. */
static int64_t split_limit(const struct cpu *c) {
    return 4 * (int64_t)pool_threads(c->pool);
}

int64_t cpu_attn_op_floats(const struct cpu *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    return op->in[0].rows + 1 + split_limit(c) * (1 + (int64_t)CHUNKS_MAX * QUERIES * (k->v_width + 2));
}

void cpu_attn_half(struct cpu *c, const struct op *op, const struct step *step) {
    struct block_job job = {.c = c, .op = op, .step = step};
    int32_t kv_heads = c->kv[op->arg.attn.kv.kv_class].shape.heads, *groups = (int32_t *)c->op_scratch;
    job.per_kv = op->in[0].heads / kv_heads;
    job.parts = (job.per_kv + QUERIES - 1) / QUERIES;
    job.n_groups = group_rows(&job, groups);
    job.groups = groups;
    int64_t n_items = job.n_units = (int64_t)job.n_groups * kv_heads * job.parts;
    if (n_items >= split_limit(c)) {
        pool_run(c->pool, n_items, 1, whole_items, &job);
        return;
    }
    job.left = (_Atomic int32_t *)(groups + op->in[0].rows + 1);
    job.partials = c->op_scratch + op->in[0].rows + 1 + split_limit(c);
    for (int64_t i = 0; i < n_items; i++) {
        struct block_item it = item_at(&job, i);
        atomic_init(&job.left[i], 0);
        if (it.last_chunk - it.first_chunk + 1 > job.n_chunks) job.n_chunks = it.last_chunk - it.first_chunk + 1;
    }
    if (job.n_chunks == 1) job.n_chunks = 0;
    if (job.n_chunks) job.n_units *= job.n_chunks;
    pool_run(c->pool, job.n_units, 1, job.n_chunks ? split_items : whole_items, &job);
}
