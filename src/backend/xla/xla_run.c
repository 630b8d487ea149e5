/* Steps: cut into pieces, each padded to a program's shape, run, and read back. */
#include "backend/xla/xla.h"

#include "base/fmath.h"

#include <assert.h>

bool xla_begin(struct backend *be, const struct step_key *key) {
    ((struct xla *)be)->sees = key->sees;
    oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return true;
}

static void *grown(void *p, int32_t *capacity, int32_t need, size_t size) {
    if (need <= *capacity) return p;
    const char *guard = mem_guard_pause();
    *capacity = need + need / 2;
    p = mem_realloc(p, (size_t)*capacity * size);
    mem_guard_resume(guard);
    return p;
}

void xla_pieces_drop(struct xla *x) {
    for (int32_t i = 0; i < x->n_pieces; i++)
        for (int32_t k = 0; k < x->pieces[i].n_outputs; k++) pjrt_buffer_free(x->pjrt, x->pieces[i].results[k]);
    x->n_pieces = 0;
}

/* ---- filling the step block --------------------------------------------------------------------------------------- */

/* Some sequences of a step with the same number of rows each, from row `skip` of each on. */
struct part {
    const struct step *step;
    int32_t seq, n_seqs, skip, n_rows;
};

static void fill_angles(struct xla *x, const struct xla_executable *e, const struct part *p, int32_t i_rope) {
    const struct rope_args *a = &x->needs.ropes[i_rope];
    int32_t half = a->n_rotated / 2;
    float *out = (float *)(void *)(x->block + e->in.ropes[i_rope]);
    for (int32_t s = 0; s < p->n_seqs; s++) {
        const struct step_seq *seq = &p->step->seqs[p->seq + s];
        const float *inv_freq = a->inv_freq
                                    ? ((const struct xla_weight *)a->inv_freq->packed)->host
                                    : p->step->rope + ((int64_t)(p->seq + s) * p->step->n_rope_tables + a->table) * p->step->rope_width;
        for (int32_t r = 0; r < p->n_rows; r++, out += a->n_rotated) {
            int32_t row = seq->row + p->skip + r;
            for (int32_t i = 0; i < half; i++) {
                double sine, cosine;
                int32_t place = a->axes ? p->step->places[row * STEP_AXES + a->axes[i]] : p->step->pos[row] + a->shift;
                m_sincos((double)((float)place * inv_freq[i]), &sine, &cosine);
                out[i] = (float)cosine * a->magnitude;
                out[half + i] = (float)sine * a->magnitude;
            }
        }
    }
}

/* Block numbers of a sequence; a block that was given back is never seen, the reserved one stands in for it. Padded rows are
 * written behind the end, each at its own place: a scatter leaves those out, and may count on all places being different. */
static void fill_tables(struct xla *x, const struct xla_executable *e, const struct part *p, int32_t c) {
    const struct step *step = p->step;
    int32_t stride = e->at.context / KV_BLOCK, *tables = x->block + e->in.tables[c], *writes = x->block + e->in.writes[c];
    for (int32_t r = 0; r < xla_all_rows(&e->at); r++) writes[r] = x->layout.classes[c].n_blocks * KV_BLOCK + r;
    for (int32_t s = 0; s < p->n_seqs; s++) {
        const struct step_seq *seq = &step->seqs[p->seq + s];
        const int32_t *from = step->tables[c] + (int64_t)(p->seq + s) * step->table_capacity;
        int32_t n = (seq->pos + p->skip + p->n_rows + KV_BLOCK - 1) / KV_BLOCK;
        for (int32_t i = 0; i < n && i < stride; i++) tables[s * stride + i] = from[i] < 0 ? 0 : from[i];
        for (int32_t r = 0; r < p->n_rows; r++) {
            int32_t pos = seq->pos + p->skip + r;
            writes[s * e->at.rows + r] = from[pos / KV_BLOCK] * KV_BLOCK + pos % KV_BLOCK;
        }
    }
}

/* What comes with pictures, for row `to` of the block from row `from` of the step. */
static void fill_pictures(struct xla *x, const struct xla_executable *e, const struct step *step, int64_t from, int64_t to) {
    for (int i = 0; i < GIVEN_SETS; i++) {
        int64_t width = x->needs.given[i];
        const float *row = width && step->given[i] ? step->given[i][from] : NULL;
        if (!row) continue;
        memcpy(x->block + e->in.given[i] + to * width, row, (size_t)width * sizeof *row);
        x->block[e->in.has[i] + to] = 1;
    }
    for (int i = 0; i < 2; i++)
        if (x->needs.spans[i]) memcpy(x->block + e->in.spans[i] + 2 * to, step->spans[i] + 2 * from, 2 * sizeof *x->block);
    if (x->needs.sees) x->block[e->in.until + to] = step->until ? step->until[from] : -1;
}

static void fill_block(struct xla *x, const struct xla_executable *e, const struct part *p) {
    const struct step *step = p->step;
    memset(x->block, 0, (size_t)e->in.size * sizeof *x->block);
    for (int32_t s = 0; s < e->at.seqs; s++) {
        const struct step_seq *seq = s < p->n_seqs ? &step->seqs[p->seq + s] : NULL; /* NULL: padding */
        x->block[e->in.slots + s] = seq && seq->slot >= 0 ? seq->slot : x->layout.n_slots + s;
        x->block[e->in.starts + s] = seq ? seq->starts && p->skip == 0 : 1;
        x->block[e->in.lens + s] = seq ? seq->pos + p->skip + p->n_rows : 1;
        for (int32_t r = 0; seq && r < p->n_rows; r++) {
            x->block[e->in.ids + s * e->at.rows + r] = step->ids[seq->row + p->skip + r];
            x->block[e->in.pos + s * e->at.rows + r] = step->pos[seq->row + p->skip + r];
            fill_pictures(x, e, step, seq->row + p->skip + r, (int64_t)s * e->at.rows + r);
        }
    }
    x->block[e->in.n_valid] = p->n_rows;
    for (int32_t c = 0; c < x->layout.n_classes; c++) fill_tables(x, e, p, c);
    for (int32_t i = 0; i < x->needs.n_ropes; i++) fill_angles(x, e, p, i);
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

static int run_program(struct xla *x, const struct xla_executable *e, struct xla_piece *piece, struct err *err) {
    int32_t n = 1 + x->n_memory;
    if (x->n_memory) memcpy(x->args + 1, x->memory, (size_t)x->n_memory * sizeof *x->args);
    for (int32_t i = 0; i < e->n_weights; i++) {
        const struct xla_weight *w = e->weights[i]->packed;
        for (int k = 0; k < N_PLANES; k++)
            if (w->planes[k].buffer) x->args[n++] = w->planes[k].buffer;
    }
    struct pjrt_shape shape = {.dtype = DT_I32, .rank = 1, .dims = {e->in.size}};
    TRY(pjrt_upload(x->pjrt, x->block, &shape, &x->args[0], err));
    int code = pjrt_execute(x->pjrt, e->exec, x->args, (size_t)n, x->results, (size_t)(x->n_memory + e->n_outputs), err);
    pjrt_buffer_free(x->pjrt, x->args[0]);
    TRY(code);
    for (int32_t i = 0; i < x->n_memory; i++) {
        pjrt_buffer_free(x->pjrt, x->memory[i]);
        x->memory[i] = x->results[i];
    }
    piece->at = e->at;
    piece->n_outputs = e->n_outputs;
    memcpy(piece->outputs, e->outputs, sizeof piece->outputs);
    for (int32_t i = 0; i < e->n_outputs; i++) piece->results[i] = x->results[x->n_memory + i];
    return ERR_OK;
}

static void reserve_run(struct xla *x, const struct xla_executable *e) {
    x->block = grown(x->block, &x->block_capacity, e->in.size, sizeof *x->block);
    x->args = grown(x->args, &x->args_capacity, 1 + x->n_memory + N_PLANES * e->n_weights, sizeof *x->args);
    x->results = grown(x->results, &x->results_capacity, x->n_memory + XLA_OUTPUTS_MAX, sizeof *x->results);
    x->pieces = grown(x->pieces, &x->pieces_capacity, x->n_pieces + 1, sizeof *x->pieces);
}

/* Rows of the step that lie in this part, among those whose logits are wanted from *next on. */
static void note_wanted(struct xla *x, struct xla_executable *e, const struct part *p, struct xla_piece *piece, int32_t *next) {
    const struct step *step = p->step;
    int32_t first = step->seqs[p->seq].row + p->skip, n = p->n_seqs * p->n_rows;
    piece->first_wanted = *next;
    for (; *next < step->n_wanted && step->wanted_rows[*next] < first + n; ++*next) {
        int32_t row = step->wanted_rows[*next] - first;
        bool has_all = e->at.logits == xla_all_rows(&e->at);
        if (!has_all) x->block[e->in.logit_rows + *next - piece->first_wanted] = row;
        x->wanted[*next] = has_all ? row : *next - piece->first_wanted;
    }
    piece->n_wanted = *next - piece->first_wanted;
}

static int32_t count_wanted(const struct part *p, int32_t next) {
    int32_t end = p->step->seqs[p->seq].row + p->skip + p->n_seqs * p->n_rows, n = 0;
    while (next + n < p->step->n_wanted && p->step->wanted_rows[next + n] < end) n++;
    return n;
}

static int32_t batch_bucket(int32_t n) {
    int32_t bucket = 1;
    while (bucket < n) bucket *= 2;
    return bucket;
}

/* The shape that a part asks for. */
static struct xla_shape shape_of(const struct xla *x, const struct part *p, int32_t next) {
    int32_t len = 0;
    for (int32_t s = 0; s < p->n_seqs; s++) {
        int32_t end = p->step->seqs[p->seq + s].pos + p->skip + p->n_rows;
        if (end > len) len = end;
    }
    struct xla_shape at = {.seqs = 1, .rows = 1, .context = xla_context_bucket(&x->layout, len)};
    if (x->needs.is_tower) return (struct xla_shape){.seqs = 1, .rows = p->n_rows, .logits = p->n_rows, .context = at.context};
    if (p->n_rows == 1) {
        at.seqs = at.logits = batch_bucket(p->n_seqs);
        return at;
    }
    at.rows = p->n_rows <= XLA_CHUNK_SMALL ? XLA_CHUNK_SMALL : p->n_rows <= XLA_CHUNK_LARGE ? XLA_CHUNK_LARGE : at.context;
    at.logits = count_wanted(p, next) > 1 ? at.rows : 1;
    return at;
}

static int run_part(struct xla *x, const struct part *p, int32_t *next, struct err *err) {
    struct xla_executable *e;
    TRY(xla_program_get(x, shape_of(x, p, *next), &e, err));
    reserve_run(x, e);
    struct xla_piece *piece = &x->pieces[x->n_pieces];
    *piece = (struct xla_piece){0};
    fill_block(x, e, p);
    note_wanted(x, e, p, piece, next);
    piece->is_whole = x->needs.is_tower;
    TRY(run_program(x, e, piece, err));
    x->n_pieces++;
    return ERR_OK;
}

/* Rows that see those behind them, too, cannot wait for another chunk. */
static bool sees_both_ways(const struct xla *x) {
    const struct oplist *l = &x->base.list;
    if (x->needs.is_tower || x->needs.sees) return true;
    for (int32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i].kind == OP_ATTN && l->ops[i].arg.attn.both_ways) return true;
    return false;
}

static int run_prompt(struct xla *x, const struct step *step, int32_t seq, int32_t *next, struct err *err) {
    int32_t n_rows = step->seqs[seq].n_rows, chunk = sees_both_ways(x) ? n_rows : XLA_CHUNK_LARGE;
    for (int32_t skip = 0; skip < n_rows; skip += chunk) {
        int32_t n = n_rows - skip < chunk ? n_rows - skip : chunk;
        TRY(run_part(x, &(struct part){.step = step, .seq = seq, .n_seqs = 1, .skip = skip, .n_rows = n}, next, err));
    }
    return ERR_OK;
}

static int too_many_ropes(struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "more than %d rope tables", XLA_ROPES_MAX);
}

int xla_end(struct backend *be, const struct step *step, struct err *err) {
    struct xla *x = (struct xla *)be;
    if (be->list.err.code) return err_set(err, be->list.err.code, "%s", be->list.err.msg);
    if (!xla_needs_find(&be->list, x->sees, &x->needs)) return too_many_ropes(err);
    xla_pieces_drop(x);
    x->wanted = grown(x->wanted, &x->wanted_capacity, step->rows_capacity, sizeof *x->wanted);
    int32_t next = 0;
    for (int32_t s = 0; s < step->n_seqs;) {
        int32_t n = 0;
        while (s + n < step->n_seqs && n < XLA_BATCH_MAX && step->seqs[s + n].n_rows == 1) n++;
        if (n) TRY(run_part(x, &(struct part){.step = step, .seq = s, .n_seqs = n, .n_rows = 1}, &next, err));
        else TRY(run_prompt(x, step, s, &next, err));
        s += n ? n : 1;
    }
    return ERR_OK;
}

/* Nothing is compiled before its first use; a list that cannot be emitted is refused now. */
int xla_reserve(struct backend *be, struct err *err) {
    struct xla *x = (struct xla *)be;
    if (be->list.err.code) return err_set(err, be->list.err.code, "%s", be->list.err.msg);
    struct xla_program program;
    if (!xla_needs_find(&be->list, x->sees, &x->needs)) return too_many_ropes(err);
    struct emit_args args = {.list = &be->list,
                             .at = {.seqs = 1, .rows = 1, .logits = 1, .context = xla_context_bucket(&x->layout, 1)},
                             .kv = &x->layout,
                             .needs = &x->needs,
                             .half = x->half,
                             .n_devices = x->pjrt->n_used};
    TRY(emit_program(&args, &program, err));
    xla_program_free(&program);
    return ERR_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static int find_output(const struct xla_piece *p, int32_t id, int32_t *out, struct err *err) {
    *out = 0;
    while (*out < p->n_outputs && p->outputs[*out] != id) ++*out;
    return *out < p->n_outputs ? ERR_OK : err_set(err, ERR_EINTERNAL, "value %d is no output of the last step", id);
}

static int read_whole(struct xla *x, const struct xla_piece *p, int32_t id, size_t bytes, void *dst, struct err *err) {
    int32_t i;
    TRY(find_output(p, id, &i, err));
    return pjrt_download(x->pjrt, p->results[i], dst, bytes, err);
}

static int read_piece(struct xla *x, const struct xla_piece *p, int32_t id, size_t row_bytes, unsigned char *dst, struct err *err) {
    int32_t i;
    TRY(find_output(p, id, &i, err));
    size_t bytes = (size_t)p->at.logits * row_bytes;
    if (bytes > x->stage_bytes) {
        mem_free(x->stage);
        x->stage_bytes = 0;
        x->stage = mem_try(bytes);
        if (!x->stage) return err_set(err, ERR_EMEMORY, "no memory to read %d rows of results", p->at.logits);
        x->stage_bytes = bytes;
    }
    TRY(pjrt_download(x->pjrt, p->results[i], x->stage, bytes, err));
    for (int32_t k = 0; k < p->n_wanted; k++)
        memcpy(dst + (size_t)k * row_bytes, x->stage + (size_t)x->wanted[p->first_wanted + k] * row_bytes, row_bytes);
    return ERR_OK;
}

int xla_read(struct backend *be, struct tensor t, void *dst, struct err *err) {
    struct xla *x = (struct xla *)be;
    size_t row_bytes = (size_t)tensor_row_size(t) * 4;
    assert(t.offset == 0 && t.row_stride == tensor_row_size(t));
    for (int32_t i = 0; i < x->n_pieces; i++) {
        const struct xla_piece *p = &x->pieces[i];
        if (p->is_whole) return read_whole(x, p, t.id, (size_t)t.rows * row_bytes, dst, err);
        if (p->n_wanted) TRY(read_piece(x, p, t.id, row_bytes, (unsigned char *)dst + (size_t)p->first_wanted * row_bytes, err));
    }
    return ERR_OK;
}
