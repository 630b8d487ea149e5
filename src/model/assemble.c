/* Putting weights together: parts of tensors, read row by row in the order that forward wants.
 *
 * Rows of a weight count through its experts. Each row is found in one part, and there in one tensor: the part's only
 * one (experts stacked) or its expert's own. Quantised planes are row by row too, so the same map serves them all.
 */
#include "model/weights.h"

#include "tensor/quant.h"

enum { PARTS_MAX = 8 };
static const size_t SPAN_BYTES = (size_t)4 << 20; /* rows that do not lie together are picked out of a span this long */

struct source {
    struct str path; /* a '#' in it stands for the expert's number */
    int32_t expert;  /* -1: one tensor for all */
    struct format format;
    struct tensor_info planes[N_PLANES];
};

struct segment {
    struct source *sources; /* [1], or [n_experts] */
    bool per_expert;
    int64_t begin, n; /* rows of an expert of the finished weight */
    int64_t from, run, step, of;
    int64_t skip; /* rows before these, which other ranks have */
};

/* Rows of a segment, of one expert. */
struct row_range {
    int64_t expert, first, n;
};

struct assembly {
    const struct tensor_store *store;
    struct format format;
    int64_t in, out;
    int64_t in_file, in_first; /* of a rank's columns: how many the file has, and which is the first */
    int64_t n_experts, first_expert;
    struct segment segments[PARTS_MAX];
    int32_t n_segments;
    bool is_transposed;
    unsigned char *buffer; /* a span of rows, or a whole transposed matrix */
    size_t buffer_bytes;
    int64_t buffered; /* transposed: 1 + which matrix is in the buffer */
};

static size_t row_bytes(const struct format *f, enum weight_plane plane, int64_t n) {
    size_t (*const functions[N_PLANES])(const struct format *, int64_t) = {quant_values_bytes, quant_scales_bytes, quant_biases_bytes};
    return functions[plane](f, n);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static int need_buffer(struct assembly *a, size_t n, struct err *err) {
    if (n <= a->buffer_bytes) return ERR_OK;
    mem_free(a->buffer);
    a->buffer = mem_try(n);
    a->buffer_bytes = a->buffer ? n : 0;
    return a->buffer ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %zu bytes of a matrix", n);
}

static const struct source *source_of(const struct segment *s, int64_t expert) {
    return &s->sources[s->per_expert ? expert : 0];
}

static int64_t source_row(const struct segment *s, int64_t i) {
    i += s->skip;
    return s->run ? s->from + i / s->run * s->step + i % s->run : s->from + i;
}

static int read_rows(struct assembly *a, const struct segment *s, enum weight_plane plane, struct row_range rows, char *dst,
                     struct err *err) {
    const struct tensor_info *t = &source_of(s, rows.expert)->planes[plane];
    size_t stride = row_bytes(&a->format, plane, a->in), stored = row_bytes(&a->format, plane, a->in_file);
    size_t before = row_bytes(&a->format, plane, a->in_first);
    int64_t base = s->per_expert ? 0 : rows.expert * s->of, i = rows.first, n = rows.n;
    bool is_picked = s->run || stored != stride;
    while (n > 0) {
        int64_t first = source_row(s, i), m = n;
        while (m > 1 && (source_row(s, i + m - 1) - first + 1) * (int64_t)stored > (int64_t)SPAN_BYTES && is_picked) m = (m + 1) / 2;
        int64_t span = source_row(s, i + m - 1) - first + 1;
        bool is_direct = span == m && stored == stride;
        char *to = dst;
        if (!is_direct) {
            TRY(need_buffer(a, (size_t)span * stored, err));
            to = (char *)a->buffer;
        }
        TRY(a->store->read(a->store->user, t, (uint64_t)(base + first) * stored, to, (size_t)span * stored, err));
        for (int64_t k = 0; k < m && !is_direct; k++)
            memcpy(dst + (size_t)k * stride, to + (size_t)(source_row(s, i + k) - first) * stored + before, stride);
        i += m, n -= m;
        dst += (size_t)m * stride;
    }
    return ERR_OK;
}

/* The same from a matrix stored [in, of]: it is read as a whole, rows are its columns. */
static int read_columns(struct assembly *a, const struct segment *s, struct row_range rows, char *dst, struct err *err) {
    const struct tensor_info *t = &source_of(s, rows.expert)->planes[PLANE_VALUES];
    size_t element = (size_t)dtype_bits(a->format.dtype) / 8, bytes = (size_t)(a->in_file * s->of) * element;
    int64_t which = 1 + (s - a->segments) + rows.expert * PARTS_MAX;
    if (a->buffered != which) {
        TRY(need_buffer(a, bytes, err));
        a->buffered = 0;
        TRY(a->store->read(a->store->user, t, s->per_expert ? 0 : (uint64_t)rows.expert * bytes, a->buffer, bytes, err));
        a->buffered = which;
    }
    for (int64_t k = 0; k < rows.n; k++) {
        int64_t row = source_row(s, rows.first + k);
        for (int64_t c = 0; c < a->in; c++, dst += element)
            memcpy(dst, a->buffer + (size_t)((a->in_first + c) * s->of + row) * element, element);
    }
    return ERR_OK;
}

static int read_assembly(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    struct assembly *a = user;
    size_t stride = row_bytes(&a->format, plane, a->in);
    char *to = dst;
    while (n_rows > 0) {
        int64_t expert = a->first_expert + row / a->out, r = row % a->out;
        const struct segment *s = a->segments;
        while (r >= s->begin + s->n) s++;
        int64_t n = s->begin + s->n - r < n_rows ? s->begin + s->n - r : n_rows;
        struct row_range rows = {expert, r - s->begin, n};
        TRY(a->is_transposed ? read_columns(a, s, rows, to, err) : read_rows(a, s, plane, rows, to, err));
        row += n, n_rows -= n;
        to += (size_t)n * stride;
    }
    return ERR_OK;
}

/* ---- finding and checking ----------------------------------------------------------------------------------------- */

static int check_shape(const struct tensor_info *t, int64_t rows, int64_t columns, struct err *err) {
    int64_t got_rows = loader_tensor_elements(t, t->n_dims - 1), got_columns = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    if (got_rows == rows && got_columns == columns) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%.*s is [%lld, %lld], expected [%lld, %lld]", STR_ARG(t->name), (long long)got_rows,
                   (long long)got_columns, (long long)rows, (long long)columns);
}

/* The format of a matrix with scales: what the config declares, verified against the shapes of its planes. */
static int quantised_format(struct loader *l, struct source *s, int64_t rows, int64_t in, struct err *err) {
    struct str path = s->path;
    struct format *f = &s->format;
    TRY(l->store->format(l->store->user, path, f, err));
    if (f->mode == QUANT_AFFINE) f->dtype = s->planes[PLANE_SCALES].dtype;
    if (in % f->group || in * f->bits % 32)
        return err_set(err, ERR_EFORMAT, "%.*s: %lld inputs are no multiple of its group of %d", STR_ARG(path), (long long)in, f->group);
    TRY(check_shape(&s->planes[PLANE_VALUES], rows, in * f->bits / 32, err));
    TRY(check_shape(&s->planes[PLANE_SCALES], rows, in / f->group, err));
    if (s->planes[PLANE_VALUES].dtype != DT_U32)
        return err_set(err, ERR_EFORMAT, "%.*s.weight is %s, expected U32", STR_ARG(path), dtype_name(s->planes[PLANE_VALUES].dtype));
    if (s->planes[PLANE_SCALES].dtype != format_scale_dtype(f))
        return err_set(err, ERR_EFORMAT, "%.*s.scales is %s, expected %s for %s as declared", STR_ARG(path),
                       dtype_name(s->planes[PLANE_SCALES].dtype), dtype_name(format_scale_dtype(f)), quant_mode_name(f->mode));
    if (f->mode != QUANT_AFFINE) return ERR_OK;
    if (f->dtype > DT_BF16)
        return err_set(err, ERR_EFORMAT, "%.*s.scales is %s, expected a float type", STR_ARG(path), dtype_name(f->dtype));
    if (!loader_tensor(l, path, ".biases", s->expert, &s->planes[PLANE_BIASES]))
        return err_set(err, ERR_EFORMAT, "%.*s.biases is missing", STR_ARG(path));
    if (s->planes[PLANE_BIASES].dtype != f->dtype)
        return err_set(err, ERR_EFORMAT, "%.*s.biases and .scales differ in type", STR_ARG(path));
    return check_shape(&s->planes[PLANE_BIASES], rows, in / f->group, err);
}

/* NAME_blocks [..., in / 32, 16] and NAME_scales: bytes of two E2M1 values, low half first, which is what mxfp4 words are. */
static int blocks_format(struct source *s, int64_t rows, int64_t in, struct err *err) {
    const struct tensor_info *values = &s->planes[PLANE_VALUES], *scales = &s->planes[PLANE_SCALES];
    s->format = (struct format){.mode = QUANT_MXFP4, .dtype = DT_U8, .bits = 4, .group = 32};
    if (in % 32 || values->dtype != DT_U8 || scales->dtype != DT_U8)
        return err_set(err, ERR_EFORMAT, "%.*s and its scales must be U8 in groups of 32", STR_ARG(values->name));
    TRY(check_shape(values, rows * (in / 32), 16, err));
    return check_shape(scales, rows, in / 32, err);
}

/* Fills the planes and the format of a source by its path. */
static int locate(struct loader *l, const struct matrix_args *a, const struct stack_part *p, struct source *s, struct err *err) {
    struct str path = s->path;
    int32_t expert = s->expert;
    int64_t rows = (p->of ? p->of : p->out) * (a->n_experts && expert < 0 ? a->n_experts : 1), in = a->in;
    if (!loader_tensor_values(l, path, expert, &s->planes[PLANE_VALUES])) {
        if (!loader_tensor(l, path, "_blocks", expert, &s->planes[PLANE_VALUES]) ||
            !loader_tensor(l, path, "_scales", expert, &s->planes[PLANE_SCALES]))
            return expert > 0 ? err_set(err, ERR_EFORMAT, "%.*s.weight of expert %d is missing from the checkpoint", STR_ARG(path), expert)
                              : loader_missing(l, p->role, a->layer, err);
        return blocks_format(s, rows, in, err);
    }
    if (loader_tensor(l, path, ".scales", expert, &s->planes[PLANE_SCALES])) return quantised_format(l, s, rows, in, err);
    const struct tensor_info *t = &s->planes[PLANE_VALUES];
    s->format = (struct format){.mode = QUANT_NONE, .dtype = t->dtype};
    if (t->dtype > DT_BF16)
        return err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected F32, F16, BF16 or a quantised matrix with scales", STR_ARG(t->name),
                       dtype_name(t->dtype));
    if (!a->is_transposed) return check_shape(t, rows, in, err);
    int64_t of = p->of ? p->of : p->out;
    return check_shape(t, rows / of * in, of, err);
}

static bool format_eq(const struct format *a, const struct format *b) {
    return a->mode == b->mode && a->dtype == b->dtype && a->bits == b->bits && a->group == b->group;
}

/* The rank's rows of a part. */
static int cut_part(const struct loader *l, const struct matrix_args *a, const struct stack_part *p, struct segment *s, struct err *err) {
    struct role_cut cut = loader_cut(p->as ? p->as : p->role);
    struct cut_range range = {0};
    s->n = p->out;
    if (cut.side == CUT_ROWS && !p->is_whole) range = loader_range(l, cut.axis, a->layer, p->out);
    if (range.of == 0) return ERR_OK;
    if (p->out % range.of)
        return err_set(err, ERR_EINTERNAL, "%.*s: %lld rows cannot be cut by %lld", STR_ARG(s->sources->path), (long long)p->out,
                       (long long)range.of);
    s->n = range.n * (p->out / range.of);
    s->skip = range.first * (p->out / range.of);
    return ERR_OK;
}

/* A part's rows, and the columns that it shares with the others. */
static void tell_part(const struct loader *l, const struct matrix_args *a, const struct stack_part *p, struct str path) {
    const struct tensor_watch *watch = l->store->watch;
    enum role as = p->as ? p->as : p->role;
    struct role_cut rows = loader_cut(as), columns = loader_cut(a->into);
    int64_t of = p->of ? p->of : p->out;
    if (!watch || a->n_experts) return;
    struct tensor_use use = {
        .path = path, .role = as, .layer = a->layer, .n = p->out, .from = p->from, .run = p->run, .step = p->step, .of = of};
    use.is_transposed = a->is_transposed;
    if (rows.side == CUT_ROWS) use.side = CUT_ROWS, use.axis = rows.axis;
    watch->use(watch->user, &use);
    if (columns.side != CUT_COLUMNS) return;
    use = (struct tensor_use){
        .path = path, .role = as, .layer = a->layer, .side = CUT_COLUMNS, .axis = columns.axis, .n = a->in, .of = a->in};
    use.is_transposed = a->is_transposed;
    watch->use(watch->user, &use);
}

/* The rank's columns, or matrices. */
static int begin_assembly(const struct loader *l, const struct matrix_args *a, struct assembly *out, struct err *err) {
    struct role_cut cut = loader_cut(a->into);
    struct cut_range range = {0};
    int64_t n_experts = a->n_experts ? a->n_experts : 1;
    *out = (struct assembly){.store = l->store, .in = a->in, .in_file = a->in, .n_experts = n_experts, .is_transposed = a->is_transposed};
    bool is_columns = cut.side == CUT_COLUMNS, is_matrices = cut.side == CUT_MATRICES && a->n_experts;
    if (is_columns || is_matrices) range = loader_range(l, cut.axis, a->layer, is_columns ? a->in : n_experts);
    if (range.of == 0) return ERR_OK;
    int64_t whole = is_columns ? a->in : n_experts, each = whole / range.of;
    if (whole % range.of)
        return err_set(err, ERR_EINTERNAL, "%.*s: %lld cannot be cut by %lld", STR_ARG(loader_path(l, a->into, a->layer)), (long long)whole,
                       (long long)range.of);
    if (is_columns) out->in_first = range.first * each, out->in = range.n * each;
    else out->first_expert = range.first * each, out->n_experts = range.n * each;
    return ERR_OK;
}

static int add_part(struct loader *l, const struct matrix_args *a, const struct stack_part *p, struct assembly *out, bool *same,
                    struct err *err) {
    struct str path;
    struct segment *s = &out->segments[out->n_segments];
    if (!loader_find(l, p->role, a->layer, &path)) return loader_missing(l, p->role, a->layer, err);
    s->per_expert = a->n_experts && str_find_char(path, '#', 0) != STR_NONE;
    int32_t n = s->per_expert ? a->n_experts : 1;
    s->sources = arena_new(&l->scratch, struct source, n);
    for (int32_t e = 0; e < n; e++) {
        struct source *source = &s->sources[e];
        source->path = path;
        source->expert = s->per_expert ? e : -1;
        TRY(locate(l, a, p, source, err));
        if (out->n_segments == 0 && e == 0) out->format = source->format;
        if (!format_eq(&source->format, &out->format)) *same = false;
        if (!*same && e) return err_set(err, ERR_EUNSUPPORTED, "%.*s: experts differ in format", STR_ARG(path));
    }
    tell_part(l, a, p, path);
    s->begin = out->out;
    TRY(cut_part(l, a, p, s, err));
    s->from = p->from, s->run = p->run, s->step = p->step;
    s->of = p->of ? p->of : p->out;
    out->out += s->n;
    out->n_segments++;
    return ERR_OK;
}

/* ---- biases ------------------------------------------------------------------------------------------------------- */

static bool find_bias(struct loader *l, const struct segment *s, int32_t expert, struct tensor_info *out) {
    const struct source *source = source_of(s, expert);
    return loader_tensor_bias(l, source->path, source->expert, out);
}

/* The bias of one part, rows picked as for the matrix, of the rank's experts among n_experts. */
static int read_bias(struct loader *l, const struct assembly *a, const struct segment *s, int32_t n_experts, float *out, struct err *err) {
    struct tensor_info t;
    int64_t n = s->of * (s->per_expert ? 1 : n_experts);
    float *values = mem_try((size_t)n * sizeof *values);
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for the bias of %.*s", STR_ARG(s->sources->path));
    int code = ERR_OK;
    for (int64_t i_expert = 0; i_expert < a->n_experts && !code; i_expert++) {
        int64_t e = a->first_expert + i_expert;
        if (i_expert == 0 || s->per_expert) {
            if (!find_bias(l, s, (int32_t)e, &t)) continue;
            code = loader_read_f32(l, &t, n, values, err);
        }
        for (int64_t i = 0; i < s->n && !code; i++)
            out[i_expert * a->out + s->begin + i] = values[(s->per_expert ? 0 : e * s->of) + source_row(s, i)];
    }
    mem_free(values);
    return code;
}

/* What is added to a sum is added by one rank. */
static bool has_bias(const struct loader *l, const struct matrix_args *a, const struct assembly *asm_) {
    enum cut_side side = loader_cut(a->into).side;
    if (side == CUT_SUMMED) return l->rank.i == 0;
    return side != CUT_COLUMNS || (asm_->in_first == 0 && asm_->in > 0);
}

/* The biases of all parts in one vector; parts without one contribute zeros. */
static int stack_bias(struct loader *l, const struct matrix_args *a, const struct assembly *asm_, struct weight **out, struct err *err) {
    struct tensor_info t;
    bool any = false;
    int32_t n_experts = a->n_experts ? a->n_experts : 1;
    for (int32_t i = 0; i < asm_->n_segments; i++) any |= find_bias(l, &asm_->segments[i], 0, &t);
    if (!any || !has_bias(l, a, asm_)) return ERR_OK;
    int64_t n = asm_->out * asm_->n_experts;
    float *values = mem_try((size_t)n * sizeof *values + 1);
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for a bias of %lld elements", (long long)n);
    int code = ERR_OK;
    for (int32_t i = 0; i < asm_->n_segments && !code; i++)
        if (find_bias(l, &asm_->segments[i], 0, &t)) code = read_bias(l, asm_, &asm_->segments[i], n_experts, values, err);
    struct str name = loader_path(l, a->into, a->layer);
    if (!code) code = loader_constant(l, str_fmt(l->arena, "%.*s.bias", STR_ARG(name)).p, values, n, out, err);
    mem_free(values);
    return code;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static int unpack_row(struct assembly *a, int64_t row, unsigned char *buffer, float *out, struct err *err);

struct adapted_segment {
    struct assembly *assembly;
    const struct segment *segment;
    unsigned char *buffer;
};

static int64_t adapted_row(const void *user, int64_t i) {
    return source_row(((const struct adapted_segment *)user)->segment, i);
}

static int adapted_unpack(void *user, int64_t i, float *out, struct err *err) {
    struct adapted_segment *s = user;
    return unpack_row(s->assembly, s->segment->begin + i, s->buffer, out, err);
}

/* What adapters have for the tensors that a weight was put together from. */
static int adapt_assembly(struct loader *l, struct assembly *asm_, struct weight *w, bool is_embedding, struct err *err) {
    struct adapted_segment segments[PARTS_MAX];
    struct adapted_part parts[PARTS_MAX];
    unsigned char *buffer = mem_alloc(format_row_bytes(&asm_->format, (size_t)asm_->in) + 1);
    for (int32_t i = 0; i < asm_->n_segments; i++) {
        const struct segment *s = &asm_->segments[i];
        segments[i] = (struct adapted_segment){asm_, s, buffer};
        parts[i] = (struct adapted_part){.path = s->sources->path,
                                         .in = asm_->in,
                                         .of = s->of,
                                         .first = s->begin,
                                         .n = s->n,
                                         .is_embedding = is_embedding,
                                         .row = adapted_row,
                                         .unpack = adapted_unpack,
                                         .user = &segments[i]};
    }
    int code = adapt_weight(l, w, parts, asm_->n_segments, err);
    mem_free(buffer);
    return code;
}

static int bind_assembly(struct loader *l, const struct matrix_args *a, struct assembly *asm_, struct err *err) {
    struct bound *b = loader_slot(l, a->into, a->layer);
    struct str name = str_copy(l->arena, loader_path(l, a->into, a->layer));
    struct weight_source source = {.name = name.p,
                                   .format = asm_->format,
                                   .n_experts = (int32_t)asm_->n_experts,
                                   .out = asm_->out,
                                   .in = asm_->in,
                                   .is_router = a->into == ROLE_ROUTER,
                                   .read = read_assembly,
                                   .user = asm_};
    int code = loader_bind(l, &source, &b->w, err);
    bool is_stack = asm_->n_experts != (a->n_experts ? a->n_experts : 1);
    b->first = is_stack ? asm_->first_expert : asm_->segments[0].skip;
    b->of = is_stack ? a->n_experts : asm_->n_segments == 1 && asm_->out != a->parts->out ? a->parts->out : 0;
    if (!code && l->n_adapters && !a->n_experts) code = adapt_assembly(l, asm_, b->w, a->into == ROLE_EMBED, err);
    mem_free(asm_->buffer);
    return code ? code : stack_bias(l, a, asm_, &b->bias, err);
}

int loader_assemble(struct loader *l, const struct matrix_args *a, struct err *err) {
    struct assembly asm_;
    bool same = true;
    int code = begin_assembly(l, a, &asm_, err);
    for (int32_t i = 0; i < a->n_parts && !code; i++) code = add_part(l, a, &a->parts[i], &asm_, &same, err);
    if (!code && asm_.format.mode != QUANT_NONE) asm_.is_transposed = false;
    if (!code && same) code = bind_assembly(l, a, &asm_, err);
    for (int32_t i = 0; i < a->n_parts && !code && !same; i++) { /* each on its own */
        struct matrix_args one = *a;
        one.into = a->parts[i].as ? a->parts[i].as : a->parts[i].role;
        one.parts = &a->parts[i];
        one.n_parts = 1;
        code = loader_assemble(l, &one, err);
    }
    arena_reset(&l->scratch);
    return code;
}

/* One row of all planes behind each other, dequantised. */
static int unpack_row(struct assembly *a, int64_t row, unsigned char *buffer, float *out, struct err *err) {
    const struct format *f = &a->format;
    unsigned char *planes[N_PLANES];
    for (int i = 0; i < N_PLANES; i++) {
        size_t n = row_bytes(f, i, a->in);
        planes[i] = n ? buffer : NULL;
        if (n) TRY(read_assembly(a, i, row, 1, buffer, err));
        buffer += n;
    }
    quant_unpack(f, &(struct quant_row){planes[PLANE_VALUES], planes[PLANE_SCALES], planes[PLANE_BIASES]}, 0, a->in, out);
    return ERR_OK;
}

int loader_unpack(struct loader *l, const struct matrix_args *a, float *out, enum dtype *dtype, struct err *err) {
    struct assembly asm_;
    bool same = true;
    int code = begin_assembly(l, a, &asm_, err);
    for (int32_t i = 0; i < a->n_parts && !code; i++) code = add_part(l, a, &a->parts[i], &asm_, &same, err);
    if (!code && !same)
        code = err_set(err, ERR_EUNSUPPORTED, "%.*s: parts of different formats", STR_ARG(loader_path(l, a->into, a->layer)));
    unsigned char *row = mem_alloc(format_row_bytes(&asm_.format, (size_t)a->in) + 1);
    int64_t n = asm_.out * asm_.n_experts;
    for (int64_t i = 0; i < n && !code; i++) code = unpack_row(&asm_, i, row, out + i * asm_.in, err);
    *dtype = asm_.format.mode == QUANT_NONE ? asm_.format.dtype : DT_F32;
    mem_free(row);
    mem_free(asm_.buffer);
    arena_reset(&l->scratch);
    return code;
}

/* One quantised matrix by its path. */
static int assemble_path(struct loader *l, struct str path, int64_t out, int64_t in, struct assembly *a, struct err *err) {
    struct source *s = arena_new(&l->scratch, struct source, 1);
    *s = (struct source){.path = path, .expert = -1};
    if (!loader_tensor_values(l, path, -1, &s->planes[PLANE_VALUES]) || !loader_tensor(l, path, ".scales", -1, &s->planes[PLANE_SCALES]))
        return err_set(err, ERR_EFORMAT, "%.*s is missing from the checkpoint", STR_ARG(path));
    TRY(quantised_format(l, s, out, in, err));
    *a = (struct assembly){.store = l->store, .format = s->format, .in = in, .in_file = in, .out = out, .n_experts = 1, .n_segments = 1};
    a->segments[0] = (struct segment){.sources = s, .n = out, .of = out};
    return ERR_OK;
}

int loader_quantised(struct loader *l, struct str path, int64_t out, int64_t in, struct weight **w, struct err *err) {
    struct assembly a = {0};
    int code = assemble_path(l, path, out, in, &a, err);
    struct weight_source source = {
        .name = str_cstr(l->arena, path), .format = a.format, .n_experts = 1, .out = out, .in = in, .read = read_assembly, .user = &a};
    if (!code) code = loader_bind(l, &source, w, err);
    mem_free(a.buffer);
    arena_reset(&l->scratch);
    return code;
}

int loader_dequantised(struct loader *l, struct str path, int64_t out, int64_t in, float *values, struct err *err) {
    struct assembly a = {0};
    int code = assemble_path(l, path, out, in, &a, err);
    size_t bytes = 0;
    for (int plane = 0; plane < N_PLANES && !code; plane++) bytes += row_bytes(&a.format, (enum weight_plane)plane, in) + 16;
    unsigned char *buffer = code ? NULL : mem_try(bytes);
    if (!code && !buffer) code = err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(path));
    for (int64_t r = 0; r < out && !code; r++) code = unpack_row(&a, r, buffer, values + r * in, err);
    mem_free(buffer);
    mem_free(a.buffer);
    arena_reset(&l->scratch);
    return code;
}

int loader_stack(struct loader *l, enum role into, const struct stack_part *parts, int32_t n_parts, int32_t layer, int64_t in,
                 struct err *err) {
    return loader_assemble(
        l,
        &(struct matrix_args){
            .into = into, .layer = layer, .parts = parts, .n_parts = n_parts, .in = in, .is_transposed = l->is_transposed && layer >= 0},
        err);
}

int loader_matrix(struct loader *l, enum role role, int32_t layer, int64_t out, int64_t in, struct err *err) {
    return loader_stack(l, role, &(struct stack_part){.role = role, .out = out}, 1, layer, in, err);
}
