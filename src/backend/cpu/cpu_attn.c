/* The KV cache on the CPU and attention over it.
 *
 * A cached head row is found by (layer, block, head, position in block). Each row of the batch attends to the positions
 * of its own sequence only, in ascending order, so its result depends on its own history (both ways: its own text) alone. Prompt rows read the
 * keys that KV_WRITE stored in the same step: there is one path for prefill and decode.
 */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"
#include "base/half.h"
#include "os/os.h"

/* Bytes of a class's keys or values, and of one block of one layer. */
static size_t block_bytes(const struct cpu_kv_class *k, int32_t width) {
    if (k->bits) return (size_t)k->shape.heads * kv_block_size(width, k->bits);
    return (size_t)k->shape.heads * KV_BLOCK * (size_t)width * (k->half ? sizeof(uint16_t) : sizeof(float));
}

static size_t class_bytes(const struct cpu_kv_class *k, int32_t width) {
    return block_bytes(k, width) * (size_t)k->shape.n_layers * (size_t)k->shape.n_blocks;
}

static size_t state_bytes(const struct cpu *c) {
    return (size_t)c->state_total * (size_t)c->layout.n_slots * sizeof(float);
}

int32_t cpu_kv_number_bytes(const struct backend *be, const struct kv_class *k) {
    return cpu_kv_half_fits((const struct cpu *)be, k) ? sizeof(uint16_t) : sizeof(float);
}

int cpu_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    struct cpu *c = (struct cpu *)be;
    cpu_kv_close(be);
    c->layout = *layout;
    for (int32_t i = 0; i < layout->n_classes; i++) {
        struct cpu_kv_class *k = &c->kv[i];
        k->shape = layout->classes[i];
        if (c->kv_bits) TRY(backend_kv_check(c->kv_bits, &k->shape, err));
        k->bits = c->kv_bits;
        k->half = !k->bits && cpu_kv_half_fits(c, &k->shape);
        if (k->shape.n_layers == 0) continue; /* another device has them */
        k->k = cpu_pages_alloc(be->device, class_bytes(k, k->shape.k_width), "KV cache", err);
        if (!k->k) return err->code;
        if (k->shape.v_width == 0) continue;
        k->v = cpu_pages_alloc(be->device, class_bytes(k, k->shape.v_width), "KV cache", err);
        if (!k->v) return err->code;
    }
    c->state_total = 0;
    for (int32_t i = 0; i < layout->n_states; i++) {
        c->state_offsets[i] = c->state_total;
        c->state_total += layout->states[i].elements;
    }
    if (c->state_total == 0) return ERR_OK;
    c->states = cpu_pages_alloc(be->device, state_bytes(c), "recurrent state", err);
    return c->states ? ERR_OK : err->code;
}

bool cpu_kv_lend(const struct backend *be, int32_t kv_class, struct kv_lent *out) {
    const struct cpu_kv_class *k = &((const struct cpu *)be)->kv[kv_class];
    *out = (struct kv_lent){k->k, k->v, class_bytes(k, k->shape.k_width), class_bytes(k, k->shape.v_width)};
    return k->half && k->shape.n_layers && !k->shape.picture_rows;
}

void cpu_kv_close(struct backend *be) {
    struct cpu *c = (struct cpu *)be;
    for (int32_t i = 0; i < c->layout.n_classes; i++) {
        struct cpu_kv_class *k = &c->kv[i];
        cpu_pages_free(be->device, k->k, class_bytes(k, k->shape.k_width));
        cpu_pages_free(be->device, k->v, class_bytes(k, k->shape.v_width));
        *k = (struct cpu_kv_class){0};
    }
    cpu_pages_free(be->device, c->states, state_bytes(c));
    c->states = NULL;
    c->layout = (struct kv_layout){0};
}

/* The row of a head at a position inside a block. */
static float *cached(const struct cpu_kv_class *k, void *base, int32_t width, int32_t layer, int32_t block, int32_t head, int32_t at) {
    int64_t index = (((int64_t)layer * k->shape.n_blocks + block) * k->shape.heads + head) * KV_BLOCK + at;
    return (float *)base + index * width;
}

static void copy_block(const struct cpu_kv_class *k, void *base, int32_t width, int32_t from, int32_t to) {
    size_t bytes = block_bytes(k, width);
    for (size_t layer = 0; layer < (size_t)k->shape.n_layers; layer++) {
        unsigned char *first = (unsigned char *)base + layer * (size_t)k->shape.n_blocks * bytes;
        memcpy(first + (size_t)to * bytes, first + (size_t)from * bytes, bytes);
    }
}

int cpu_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    (void)err;
    const struct cpu_kv_class *k = &((struct cpu *)be)->kv[kv_class];
    copy_block(k, k->k, k->shape.k_width, from, to);
    if (k->v) copy_block(k, k->v, k->shape.v_width, from, to);
    return ERR_OK;
}

int cpu_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    (void)err;
    struct cpu *c = (struct cpu *)be;
    memcpy(c->states + (int64_t)to * c->state_total, c->states + (int64_t)from * c->state_total, (size_t)c->state_total * sizeof(float));
    return ERR_OK;
}

/* ---- blocks and slots in and out ---------------------------------------------------------------------------------------- */

size_t cpu_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout) {
    const struct cpu_kv_class *k = &((const struct cpu *)be)->kv[kv_class];
    *out_layout = k->bits == 8 ? "cpu-8" : k->bits == 4 ? "cpu-4" : k->half ? "cpu-f16" : "cpu-f32";
    size_t bytes = block_bytes(k, k->shape.k_width) + (k->v ? block_bytes(k, k->shape.v_width) : 0);
    return bytes * (size_t)k->shape.n_layers;
}

/* Copies the keys or values of a block, layer by layer, out of the pool or into it; returns what follows `out` or `in`. One of them is NULL. */
static size_t move_block(const struct cpu_kv_class *k, void *base, int32_t width, int32_t block, unsigned char *out,
                         const unsigned char *in) {
    size_t bytes = block_bytes(k, width), n_layers = (size_t)k->shape.n_layers;
    for (size_t layer = 0; base && layer < n_layers; layer++) {
        unsigned char *at = (unsigned char *)base + (layer * (size_t)k->shape.n_blocks + (size_t)block) * bytes;
        if (out) memcpy(out + layer * bytes, at, bytes);
        else memcpy(at, in + layer * bytes, bytes);
    }
    return bytes * n_layers;
}

int cpu_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err) {
    (void)err;
    const struct cpu_kv_class *k = &((struct cpu *)be)->kv[kv_class];
    unsigned char *out = dst;
    out += move_block(k, k->k, k->shape.k_width, block, out, NULL);
    move_block(k, k->v, k->shape.v_width, block, out, NULL);
    return ERR_OK;
}

int cpu_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err) {
    (void)err;
    const struct cpu_kv_class *k = &((struct cpu *)be)->kv[kv_class];
    const unsigned char *in = src;
    in += move_block(k, k->k, k->shape.k_width, block, NULL, in);
    move_block(k, k->v, k->shape.v_width, block, NULL, in);
    return ERR_OK;
}

int cpu_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err) {
    (void)err;
    const struct cpu *c = (const struct cpu *)be;
    memcpy(dst, c->states + (int64_t)slot * c->state_total, (size_t)c->state_total * sizeof *dst);
    return ERR_OK;
}

int cpu_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err) {
    (void)err;
    struct cpu *c = (struct cpu *)be;
    memcpy(c->states + (int64_t)slot * c->state_total, src, (size_t)c->state_total * sizeof *src);
    return ERR_OK;
}

/* ---- attention ---------------------------------------------------------------------------------------------------------- */

static int32_t block_of(const struct step *step, int32_t kv_class, int32_t seq, int32_t pos) {
    return step->tables[kv_class][(int64_t)seq * step->table_capacity + pos / KV_BLOCK];
}

void cpu_run_kv_write(struct cpu *c, const struct op *op, const struct step *step) {
    struct kv_ref kv = op->arg.kv.kv;
    const struct cpu_kv_class *cls = &c->kv[kv.kv_class];
    struct tensor k = op->in[0], v = op->in[1];
    if (cls->half || cls->bits) {
        (cls->half ? cpu_kv_write_half : cpu_kv_write_packed)(c, op, step);
        return;
    }
    for (int32_t r = 0; r < k.rows; r++) {
        int32_t pos = step->pos[r], block = block_of(step, kv.kv_class, step->seq_of[r], pos);
        for (int32_t h = 0; h < cls->shape.heads; h++) {
            memcpy(cached(cls, cls->k, cls->shape.k_width, kv.index, block, h, pos % KV_BLOCK), cpu_row(c, k, r) + h * k.head_stride,
                   (size_t)cls->shape.k_width * sizeof(float));
            if (op->n_in == 2)
                memcpy(cached(cls, cls->v, cls->shape.v_width, kv.index, block, h, pos % KV_BLOCK), cpu_row(c, v, r) + h * v.head_stride,
                       (size_t)cls->shape.v_width * sizeof(float));
        }
    }
}

struct attn_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

/* First visible position of a row. */
int32_t cpu_first_visible(const struct attn_args *a, const struct step *step, int32_t r) {
    int32_t pos = step->pos[r], first = 0;
    if (a->of_pictures) return step->spans[0][2 * r];
    if (a->window > 0 && pos - a->window + 1 > first) first = pos - a->window + 1;
    if (a->chunk > 0 && pos / a->chunk * a->chunk > first) first = pos / a->chunk * a->chunk;
    return first;
}

int32_t cpu_last_visible(const struct attn_args *a, const struct step *step, int32_t r) {
    if (a->of_pictures) return step->spans[0][2 * r + 1] - 1;
    int32_t pos = step->pos[r];
    if (!a->both_ways) return step->until && !a->is_strict && step->until[r] > pos ? step->until[r] : pos;
    const struct step_seq *seq = &step->seqs[step->seq_of[r]];
    int32_t end = seq->pos + seq->n_rows - 1;
    return a->window > 0 && a->window - 1 < end - pos ? pos + a->window - 1 : end;
}

float cpu_query_scale(const struct attn_args *a, int32_t pos) {
    if (a->pos_scale_len == 0) return a->scale;
    return a->scale * (1.0f + a->pos_scale_beta * m_logf(1.0f + (float)((pos + a->pos_scale_first) / a->pos_scale_len)));
}

static int64_t distance_of(const struct attn_args *a, int32_t p, int32_t pos) {
    int64_t most = a->farthest, d = p - pos;
    return most + (d < -most ? -most : d > most ? most : d);
}

/* The row's own table and the key's; all keys are rows of the step. */
static float relative_bias(const struct cpu *c, const struct op *op, const struct step *step, int32_t r, int32_t head, int32_t p) {
    const struct attn_args *a = &op->arg.attn;
    const struct step_seq *seq = &step->seqs[step->seq_of[r]];
    int32_t column = (int32_t)cpu_vec(a->buckets)[distance_of(a, p, step->pos[r])], key = seq->row + p - seq->pos;
    struct tensor by_row = op->in[1], by_key = op->in[2];
    return a->scale *
           (cpu_row(c, by_row, r)[head * by_row.head_stride + column] + cpu_row(c, by_key, key)[head * by_key.head_stride + column]);
}

bool cpu_has_places(const struct op *op) {
    return op->arg.attn.slopes || op->arg.attn.distances || op->n_in == 3;
}

float cpu_place_bias(const struct cpu *c, const struct op *op, const struct step *step, int32_t r, int32_t head, int32_t p) {
    const struct attn_args *a = &op->arg.attn;
    int32_t pos = step->pos[r];
    if (op->n_in == 3) return relative_bias(c, op, step, r, head, p);
    if (a->distances) return cpu_vec(a->distances)[distance_of(a, p, pos) * op->in[0].heads + head];
    float slope = cpu_vec(a->slopes)[head];
    return a->slopes_in_bf16 ? a->scale * bf16_to_f32(bf16_from_f32(slope * (float)p)) : slope * (float)(p - pos);
}

/* What a row looks at: all positions from `first` on, or those that were picked. */
struct seen {
    int32_t first, n;
    const int32_t *picks; /* NULL: all */
};

static struct seen seen_by(const struct attn_job *job, int32_t r) {
    int32_t first = cpu_first_visible(&job->op->arg.attn, job->step, r);
    struct seen s = {first, cpu_last_visible(&job->op->arg.attn, job->step, r) - first + 1, NULL};
    if (job->op->n_in != 2) return s;
    s.picks = (const int32_t *)(const void *)cpu_row(job->c, job->op->in[1], r);
    if (s.n > job->op->in[1].width) s.n = job->op->in[1].width;
    return s;
}

static int32_t position_of(const struct seen *s, int32_t i) {
    return s->picks ? s->picks[i] : s->first + i;
}

/* Scores of one head over the positions seen, softmax weights in place; returns the sum of the weights. */
static float attn_scores(const struct attn_job *job, const float *q, int32_t r, int32_t head, const struct seen *seen, float *scores) {
    const struct attn_args *a = &job->op->arg.attn;
    const struct cpu_kv_class *cls = &job->c->kv[a->kv.kv_class];
    int32_t seq = job->step->seq_of[r], pos = job->step->pos[r], kv_head = head / (job->op->in[0].heads / cls->shape.heads);
    bool has_places = cpu_has_places(job->op);
    float scale = cpu_query_scale(a, pos), max = a->sinks ? cpu_vec(a->sinks)[head] : -INFINITY;
    for (int32_t i = 0; i < seen->n; i++) {
        int32_t p = position_of(seen, i), block = block_of(job->step, a->kv.kv_class, seq, p);
        const float *key = cached(cls, cls->k, cls->shape.k_width, a->kv.index, block, kv_head, p % KV_BLOCK);
        float s = job->c->kern.dot(q, key, cls->shape.k_width) * scale;
        if (a->softcap > 0) s = a->softcap * m_tanhf(s / a->softcap);
        if (has_places) s += cpu_place_bias(job->c, job->op, job->step, r, head, p);
        scores[i] = s;
        if (s > max) max = s;
    }
    float sum = job->c->kern.exp_sum(scores, seen->n, max);
    return a->sinks ? sum + m_expf(cpu_vec(a->sinks)[head] - max) : sum;
}

static void attn_head(const struct attn_job *job, int32_t r, int32_t head, int32_t thread) {
    struct cpu *c = job->c;
    const struct attn_args *a = &job->op->arg.attn;
    const struct cpu_kv_class *cls = &c->kv[a->kv.kv_class];
    struct tensor q = job->op->in[0], y = job->op->out[0];
    float *scores = cpu_thread(c, thread);
    struct seen seen = seen_by(job, r);
    float sum = attn_scores(job, cpu_row(c, q, r) + head * q.head_stride, r, head, &seen, scores);
    int32_t seq = job->step->seq_of[r];
    int32_t kv_head = head / (q.heads / cls->shape.heads);
    float *out = cpu_row(c, y, r) + head * y.head_stride;
    memset(out, 0, (size_t)y.width * sizeof(float));
    for (int32_t i = 0; i < seen.n; i++) {
        int32_t p = position_of(&seen, i), block = block_of(job->step, a->kv.kv_class, seq, p);
        const float *value = cls->v ? cached(cls, cls->v, cls->shape.v_width, a->kv.index, block, kv_head, p % KV_BLOCK)
                                    : cached(cls, cls->k, cls->shape.k_width, a->kv.index, block, kv_head, p % KV_BLOCK);
        c->kern.axpy(out, value, scores[i], y.width);
    }
    for (int32_t i = 0; i < y.width; i++) out[i] /= sum;
}

static void attn_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct attn_job *job = ctx;
    int32_t heads = job->op->in[0].heads;
    for (int64_t i = first; i < last; i++) attn_head(job, (int32_t)(i / heads), (int32_t)(i % heads), thread);
}

void cpu_run_attn(struct cpu *c, const struct op *op, const struct step *step) {
    struct attn_job job = {c, op, step};
    if (cpu_in_blocks(c, op)) {
        cpu_attn_half(c, op, step);
        return;
    }
    pool_run(c->pool, (int64_t)op->in[0].rows * op->in[0].heads, 1, attn_heads, &job);
}

/* ---- a window, and entries of a second cache -------------------------------------------------------------------------- */

/* Entry i of those that a row sees: its positions, then those of the second cache. */
static const float *entry_of(const struct attn_job *job, int32_t r, const struct seen *seen, int32_t i) {
    const struct attn_args *a = &job->op->arg.attn;
    bool is_more = i >= seen->n;
    struct kv_ref kv = is_more ? a->more : a->kv;
    int32_t k = i - seen->n, p = !is_more ? seen->first + i : seen->picks ? seen->picks[k] : (k + 1) * a->every - 1;
    const struct cpu_kv_class *cls = &job->c->kv[kv.kv_class];
    int32_t block = block_of(job->step, kv.kv_class, job->step->seq_of[r], p);
    return cached(cls, cls->k, cls->shape.k_width, kv.index, block, 0, p % KV_BLOCK);
}

static void more_head(const struct attn_job *job, int32_t r, int32_t head, float *scores) {
    const struct attn_args *a = &job->op->arg.attn;
    struct tensor q = job->op->in[0], y = job->op->out[0];
    const struct kernels *k = &job->c->kern;
    const float *query = cpu_row(job->c, q, r) + head * q.head_stride;
    float sink = cpu_vec(a->sinks)[head];
    struct seen seen = {cpu_first_visible(a, job->step, r), 0, NULL};
    seen.n = job->step->pos[r] - seen.first + 1;
    int32_t n_more = (job->step->pos[r] + 1) / a->every;
    if (job->op->n_in == 2) {
        seen.picks = (const int32_t *)(const void *)cpu_row(job->c, job->op->in[1], r);
        if (n_more > job->op->in[1].width) n_more = job->op->in[1].width;
    }
    float max = sink, *out = cpu_row(job->c, y, r) + head * y.head_stride;
    int32_t n = seen.n + n_more;
    for (int32_t i = 0; i < n; i++) {
        scores[i] = k->dot(query, entry_of(job, r, &seen, i), q.width) * a->scale;
        if (scores[i] > max) max = scores[i];
    }
    float sum = k->exp_sum(scores, n, max) + m_expf(sink - max);
    memset(out, 0, (size_t)y.width * sizeof *out);
    for (int32_t i = 0; i < n; i++) k->axpy(out, entry_of(job, r, &seen, i), scores[i], y.width);
    for (int32_t i = 0; i < y.width; i++) out[i] /= sum;
}

static void more_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct attn_job *job = ctx;
    int32_t heads = job->op->in[0].heads;
    for (int64_t i = first; i < last; i++) more_head(job, (int32_t)(i / heads), (int32_t)(i % heads), cpu_thread(job->c, thread));
}

void cpu_run_attn_more(struct cpu *c, const struct op *op, const struct step *step) {
    struct attn_job job = {c, op, step};
    pool_run(c->pool, (int64_t)op->in[0].rows * op->in[0].heads, 1, more_heads, &job);
}

/* ---- picking positions --------------------------------------------------------------------------------------------- */

/* The k-th largest of n numbers, which it reorders. */
static float kth_largest(float *x, int32_t n, int32_t k) {
    int32_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i > j) break;
            float kept = x[i];
            x[i++] = x[j], x[j--] = kept;
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    return x[k - 1];
}

static int32_t pick_every(const struct op *op) {
    return op->arg.pick.every > 0 ? op->arg.pick.every : 1;
}

/* Of numbers that are no numbers none is larger: they count as the smallest there is. */
static void pick_scores(const struct attn_job *job, int32_t r, int32_t n, float *scores) {
    struct cpu *c = job->c;
    struct tensor q = job->op->in[0], w = job->op->in[1];
    struct kv_ref kv = job->op->arg.pick.kv;
    const struct cpu_kv_class *cls = &c->kv[kv.kv_class];
    for (int32_t i = 0; i < n; i++) {
        int32_t p = (i + 1) * pick_every(job->op) - 1, block = block_of(job->step, kv.kv_class, job->step->seq_of[r], p);
        const float *key = cached(cls, cls->k, cls->shape.k_width, kv.index, block, 0, p % KV_BLOCK);
        float sum = 0;
        for (int32_t h = 0; h < q.heads; h++) {
            float dot = c->kern.dot(cpu_row(c, q, r) + h * q.head_stride, key, q.width);
            if (dot > 0) sum += cpu_row(c, w, r)[h] * dot;
        }
        scores[i] = sum == sum ? sum : -INFINITY;
    }
}

static void pick_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct attn_job *job = ctx;
    int32_t k = job->op->arg.pick.k;
    float *scores = cpu_thread(job->c, thread), *sorted = scores + job->c->layout.max_context;
    for (int64_t row = first; row < last; row++) {
        int32_t r = (int32_t)row, every = pick_every(job->op), n = (job->step->pos[r] + 1) / every,
                *out = (int32_t *)(void *)cpu_row(job->c, job->op->out[0], r), taken = 0;
        float bar = -INFINITY;
        int32_t equal = n; /* of those at the bar */
        if (n > k) {
            pick_scores(job, r, n, scores);
            memcpy(sorted, scores, (size_t)n * sizeof *sorted);
            bar = kth_largest(sorted, n, k);
            equal = k;
            for (int32_t p = 0; p < n; p++) equal -= scores[p] > bar;
        }
        for (int32_t p = 0; p < n && taken < k; p++)
            if (n <= k || scores[p] > bar || (scores[p] == bar && equal-- > 0)) out[taken++] = (p + 1) * every - 1;
    }
}

void cpu_run_pick(struct cpu *c, const struct op *op, const struct step *step) {
    struct attn_job job = {c, op, step};
    pool_run(c->pool, op->in[0].rows, 1, pick_rows, &job);
}
