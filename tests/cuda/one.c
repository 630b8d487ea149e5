/* kernels/one.cu, few.cu and several.cu by themselves: products of one row and of several against sums in double precision, with x in every form in which it comes;
 * several rows must have the same bits as each of them alone; both halves of chosen experts, with and without biases; x that is the sum of a norm and a residual. A wait for a word that nobody writes must end with the host's message and leave the
 * kernel usable; the same of kernels/step.cu, whose blocks wait at a barrier. Skipped where there is no GPU. */
#include "../backend_alone.h"

#include "backend/cuda/cuda.h"

#include "base/half.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>

enum { ROWS_MAX = LIST_ROWS, IN_MAX = 3072, OUT_MAX = 208, TILE = 16, UNIT = 64, META = 64, RESULT_STRIDE = OUT_MAX };
enum { EXPERTS = 5, CHOSEN = 3, EXPERTS_ROOM = 4096 };
enum form { PLAIN_F32, PLAIN_BF16, LINK_F32, LINK_BF16, N_FORMS };

static const char *const form_names[N_FORMS] = {"f32", "bf16", "linked f32", "linked bf16"};

struct product {
    int32_t mode, bits, group, in, out;
    enum form form;
    bool has_norm, is_f16; /* is_f16: plain weights, or scales and biases */
    bool has_residual;     /* linked */
    int32_t first, rows;   /* rows of x: which of those that are made */
};

struct bench {
    struct cuda *c;
    CUdeviceptr weights, x, norm, y, residual, instrs, experts, units,
        sum; /* experts: struct chosen; units: x of several rows; sum: struct summed */
    unsigned char packed[OUT_MAX * IN_MAX * 2];
    float w[OUT_MAX * IN_MAX], x_f32[ROWS_MAX][IN_MAX], norm_f32[IN_MAX], y_f32[ROWS_MAX][OUT_MAX], alone[ROWS_MAX][OUT_MAX];
    uint64_t words[ROWS_MAX * IN_MAX], added[ROWS_MAX * OUT_MAX];
};

#define TRY_CU(call, what) TRY(cuda_check(b->c->d, (call), err, "%s", what))

static float draw(uint64_t seed, int32_t i) {
    return (float)(rng_uniform(seed, (uint64_t)i, 0) * 2.0 - 1.0);
}

static bool is_bf16(enum form form) {
    return form == PLAIN_BF16 || form == LINK_BF16;
}

/* ---- what is multiplied ---------------------------------------------------------------------------------------------- */

/* Rows of bf16 or f16. */
static void make_plain(struct bench *b, const struct product *p) {
    for (int32_t i = 0; i < p->out; i++)
        for (int32_t k = 0; k < p->in; k++) {
            float w = draw(2, i * p->in + k);
            uint16_t h = p->is_f16 ? f16_from_f32(w) : bf16_from_f32(w);
            memcpy(b->packed + ((size_t)i * (size_t)p->in + (size_t)k) * 2, &h, 2);
            b->w[i * p->in + k] = p->is_f16 ? f16_to_f32(h) : bf16_to_f32(h);
        }
}

/* Tiles of 4 or 8 bits, or of mxfp4, as kernels/tile.cuh says. */
static int32_t codes_bytes(const struct product *p) {
    return p->bits * 128;
}

static int32_t runs_of(const struct product *p) {
    return p->group < UNIT ? UNIT / p->group : 1;
}

static int32_t unit_bytes(const struct product *p) {
    return p->mode == K_MXFP4 ? TILE_FP4_BYTES : codes_bytes(p) + runs_of(p) * META;
}

/* Code n of the eight from element k on of row r goes into its unit. */
static void put_code(unsigned char *unit, const struct product *p, int32_t r, int32_t k, int32_t code) {
    int32_t word = k % UNIT / 8, n = k % 8, lane = (r % 8) * 4 + word % 4, nibble = n / 2 + n % 2 * 4;
    if (p->bits == 4) unit[lane * 16 + r / 8 * 8 + word / 4 * 4 + nibble / 2] |= (unsigned char)(code << nibble % 2 * 4);
    else unit[word / 4 * 512 + lane * 16 + r / 8 * 8 + nibble % 2 * 4 + nibble / 2] = (unsigned char)code;
}

/* The same of mxfp4, and the power of two of its group. Returns the weight. */
static float put_fp4(unsigned char *unit, int32_t r, int32_t k, uint32_t code, int32_t power) {
    static const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static const int32_t signs[] = {15, 12, 14, 13};
    int32_t word = k % UNIT / 8, n = k % 8, at = (r % 8 * 4 + word % 4) * 16 + r / 8 * 8 + word / 4 * 4;
    uint32_t bits;
    memcpy(&bits, unit + at, 4);
    bits |= (code & 7) << (n % 2 * 16 + 9 - n / 2 * 3) | code >> 3 << (n % 2 * 16 + signs[n / 2]);
    memcpy(unit + at, &bits, 4);
    unit[TILE_CODES + r % 8 * 4 + r / 8 * 2 + k % UNIT / 32] = (unsigned char)(127 + power);
    return ldexpf(code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7], power);
}

static void make_fp4_tiles(struct bench *b, const struct product *p) {
    memset(b->packed, 0, sizeof b->packed);
    for (int32_t i = 0; i < p->out; i++)
        for (int32_t k = 0; k < p->in; k++) {
            unsigned char *unit = b->packed + (size_t)((i / TILE * (p->in / UNIT) + k / UNIT) * TILE_FP4_BYTES);
            uint32_t code = (uint32_t)(rng_at(5, (uint64_t)(i * p->in + k), 0) >> 60);
            b->w[i * p->in + k] = put_fp4(unit, i % TILE, k, code, (i * 7 + k / 32) % 9 - 6);
        }
}

static void make_tiles(struct bench *b, const struct product *p) {
    memset(b->packed, 0, sizeof b->packed);
    for (int32_t i = 0; i < p->out; i++)
        for (int32_t k = 0; k < p->in; k++) {
            unsigned char *unit = b->packed + (size_t)((i / TILE * (p->in / UNIT) + k / UNIT) * unit_bytes(p));
            int32_t r = i % TILE, run = k % UNIT * runs_of(p) / UNIT, at = i * 256 + k / UNIT * 4 + run;
            float scale = 0.05f + 0.05f * draw(3, at), bias = draw(4, at);
            uint16_t both[2] = {p->is_f16 ? f16_from_f32(scale) : bf16_from_f32(scale),
                                p->is_f16 ? f16_from_f32(bias) : bf16_from_f32(bias)};
            int32_t code = (int32_t)(rng_at(5, (uint64_t)(i * p->in + k), 0) >> (64 - p->bits));
            put_code(unit, p, r, k, code);
            memcpy(unit + codes_bytes(p) + run * META + r % 8 * 8 + r / 8 * 4, both, 4);
            scale = p->is_f16 ? f16_to_f32(both[0]) : bf16_to_f32(both[0]);
            bias = p->is_f16 ? f16_to_f32(both[1]) : bf16_to_f32(both[1]);
            b->w[i * p->in + k] = (float)code * scale + bias;
        }
}

/* A row of x of very different sizes, unit by unit. Its words carry `tag`. */
static void make_row(struct bench *b, const struct product *p, int32_t row, uint32_t tag) {
    float *of = b->x_f32[row];
    int32_t at = row * p->in;
    for (int32_t k = 0; k < p->in; k++) {
        float x = draw(6 + 16 * (uint64_t)(p->first + row), k) * ldexpf(1.0f, (k / UNIT + p->first + row) % 5 * 3 - 6);
        of[k] = is_bf16(p->form) ? bf16_to_f32(bf16_from_f32(x)) : x;
    }
    for (int32_t k = 0; k < p->in; k++) {
        if (p->form == LINK_F32) b->words[at + k] = (uint64_t)tag << 32 | f32_bits(of[k]);
        if (p->form == PLAIN_F32) ((float *)b->words)[at + k] = of[k];
        if (p->form == PLAIN_BF16) ((uint16_t *)b->words)[at + k] = bf16_from_f32(of[k]);
        if (p->form == LINK_BF16 && k % 2)
            b->words[(at + k) / 2] = (uint64_t)tag << 32 | (uint64_t)bf16_from_f32(of[k]) << 16 | bf16_from_f32(of[k - 1]);
    }
}

static float added_to(const struct product *p, int32_t row, int32_t i) {
    return draw(8 + 16 * (uint64_t)(p->first + row), i);
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static struct k_instr instr_of(const struct bench *b, const struct product *p) {
    struct k_instr in = {.kind = K_STEP_LINEAR};
    bool is_plain = p->mode == K_PLAIN;
    int32_t n_tiles = p->out / TILE, tile_bytes = p->in / UNIT * unit_bytes(p);
    in.u.linear = (struct k_step_linear){
        .w = {.values = b->weights,
              .values_bytes = p->in * 2,
              .out = p->out,
              .in = p->in,
              .mode = p->mode,
              .bits = p->bits,
              .group = p->group,
              .dtype = p->is_f16 ? K_F16 : K_BF16,
              .tile_bytes = is_plain ? 0 : tile_bytes},
        .x = b->x,
        .x_stride = p->in,
        .x_dtype = is_bf16(p->form) ? K_BF16 : K_F32,
        .norm = p->has_norm ? b->norm : 0,
        .has_norm = p->has_norm,
        .eps = 1e-6f,
        .y = b->y,
        .y_stride = RESULT_STRIDE,
        .y_dtype = K_F32,
        .rows = p->rows,
        .own_scale = 1,
        .inv_in = 1.0f / (float)p->in,
        .n_tiles = n_tiles,
        .tiles_each = n_tiles / b->c->gpu->n_sm,
        .tiles_more = n_tiles % b->c->gpu->n_sm,
    };
    return in;
}

/* The step that begins now has this tag. */
static int next_tag(struct bench *b, uint32_t *out, struct err *err) {
    TRY_CU(b->c->d->cuMemcpyDtoH(out, b->c->counters + 2 * sizeof(uint32_t), sizeof *out), "the last tag");
    *out += 1;
    return ERR_OK;
}

enum { X_BYTES = 6 * (IN_MAX / UNIT * ROWS_MAX * (ROWS_UNIT + ROWS_SCALE) + ROWS_MAX * LIST_WARPS * 8 + 128) };

/* Launches n instructions with the kernel that takes `first`: all at once, or one by one where blocks cannot wait for each other. */
static int launch_instrs(struct bench *b, const struct k_instr *first, const struct k_instr *in, int32_t n, const struct rows_memory *x,
                         struct err *err) {
    struct launch l;
    int32_t depth, at_once = b->c->gpu->can_run_lists ? n : 1;
    if (!cuda_list_fits(b->c, first, 1, &l, &depth)) return err_set(err, ERR_EINTERNAL, "kernels/one.cu does not take this product");
    TRY(cuda_upload(b->c, b->instrs, in, (size_t)n * sizeof *in, "instructions", err));
    for (int32_t i = 0; i < n; i += at_once) {
        struct k_step_run run = {.instrs = b->instrs + (size_t)i * sizeof *in,
                                 .barrier = b->c->counters,
                                 .n = at_once,
                                 .tags = i + at_once == n ? n : 0,
                                 .depth = depth,
                                 .x_units = b->units,
                                 .x_rest = (int64_t)x->rest,
                                 .x_bytes = (int64_t)x->bytes};
        void *params[] = {&run};
        TRY_CU(b->c->d->cuLaunchKernel(b->c->gpu->functions[l.kernel], l.grid[0], 1, 1, l.threads, 1, 1, l.shared_bytes, b->c->stream,
                                       params, NULL),
               "launching");
    }
    return cuda_wait(b->c, err);
}

static int launch_instr(struct bench *b, struct k_instr in, struct err *err) {
    return launch_instrs(b, &in, &in, 1, &(struct rows_memory){0}, err);
}

static int launch(struct bench *b, const struct product *p, struct err *err) {
    struct k_instr one = instr_of(b, p), in[2] = {one};
    struct step_values values[2] = {{.reads = -1}};
    int32_t n = p->rows > 1 ? cuda_rows_expand(in, values, 1) : 1;
    struct k_step_linear *x = &in[0].u.linear, *product = &in[n - 1].u.linear;
    struct rows_memory memory = cuda_rows_memory(in, n);
    cuda_links_find(in, values, n);
    if (p->form >= LINK_F32) x->x_link = b->x;
    if (p->has_residual) product->residual_link = b->residual, product->residual_scale = 1;
    cuda_rows_place(in, n, &memory, b->units);
    return launch_instrs(b, &one, in, n, &memory, err);
}

/* The words that a product reads; `late` ones, of x or of what is added, carry the tag before. */
enum late { LATE_NONE, LATE_X, LATE_RESIDUAL };

static int prepare_words(struct bench *b, const struct product *p, enum late late, struct err *err) {
    uint32_t tag;
    TRY(next_tag(b, &tag, err));
    for (int32_t k = 0; k < p->in; k++) b->norm_f32[k] = 1.0f + 0.5f * draw(7, k);
    for (int32_t row = 0; row < p->rows; row++) {
        make_row(b, p, row, late == LATE_X ? tag - 1 : tag);
        for (int32_t i = 0; i < p->out; i++)
            b->added[row * p->out + i] = (uint64_t)(late == LATE_RESIDUAL ? tag - 1 : tag) << 32 | f32_bits(added_to(p, row, i));
    }
    TRY(cuda_upload(b->c, b->x, b->words, sizeof b->words, "x", err));
    return cuda_upload(b->c, b->residual, b->added, sizeof b->added, "a residual", err);
}

static int prepare(struct bench *b, const struct product *p, enum late late, struct err *err) {
    if (p->mode == K_PLAIN) make_plain(b, p);
    else if (p->mode == K_MXFP4) make_fp4_tiles(b, p);
    else make_tiles(b, p);
    TRY(prepare_words(b, p, late, err));
    TRY(cuda_upload(b->c, b->weights, b->packed, sizeof b->packed, "weights", err));
    return cuda_upload(b->c, b->norm, b->norm_f32, sizeof b->norm_f32, "a norm", err);
}

/* x is rounded to bf16, or to 2^-16 of the largest element of its unit and perhaps of the one beside it. */
static int compare_row(const struct bench *b, const struct product *p, int32_t row, struct err *err) {
    const float *x_f32 = b->x_f32[row], *y = b->y_f32[row];
    double square = 0, largest[IN_MAX / UNIT + 2] = {0};
    for (int32_t k = 0; k < p->in; k++) {
        double x = fabs((double)x_f32[k] * (p->has_norm ? (double)b->norm_f32[k] : 1.0));
        square += (double)x_f32[k] * (double)x_f32[k];
        for (int32_t u = k / UNIT / 2 * 2; u < k / UNIT / 2 * 2 + 2; u++) largest[u] = fmax(largest[u], x);
    }
    double factor = p->has_norm ? 1.0 / sqrt(square / p->in + 1e-6) : 1.0;
    for (int32_t i = 0; i < p->out; i++) {
        double want = 0, error = 1e-6;
        for (int32_t k = 0; k < p->in; k++) {
            double x = (double)x_f32[k] * (p->has_norm ? (double)b->norm_f32[k] : 1.0), w = b->w[i * p->in + k];
            want += x * w;
            error += fabs(w) * (p->mode != K_PLAIN ? largest[k / UNIT] / 65000
                                : p->is_f16        ? fabs(x) / 2048 + largest[k / UNIT] * 1e-7
                                                   : fabs(x) / 256) +
                     fabs(w * x) * 2e-6;
        }
        want = want * factor + (p->has_residual ? (double)added_to(p, row, i) : 0.0);
        if (!(fabs((double)y[i] - want) <= error * factor))
            return err_set(err, ERR_EDEVICE, "result %d of row %d is %.7g, expected %.7g within %.2g", i, row, (double)y[i], want,
                           error * factor);
    }
    return ERR_OK;
}

static int compare(const struct bench *b, const struct product *p, struct err *err) {
    for (int32_t row = 0; row < p->rows; row++) TRY(compare_row(b, p, row, err));
    return ERR_OK;
}

static int check_product(struct bench *b, const struct product *p, struct err *err) {
    TRY(prepare(b, p, LATE_NONE, err));
    TRY(launch(b, p, err));
    TRY_CU(b->c->d->cuMemcpyDtoH(b->y_f32, b->y, sizeof b->y_f32), "results");
    return compare(b, p, err);
}

/* Several rows at once: right, and each as alone. */
static int check_rows(struct bench *b, const struct product *p, struct err *err) {
    struct product one = *p;
    one.rows = 1;
    for (int32_t row = 0; row < p->rows; row++) {
        one.first = row;
        TRY(check_product(b, &one, err));
        memcpy(b->alone[row], b->y_f32[0], sizeof b->alone[row]);
    }
    TRY(check_product(b, p, err));
    for (int32_t row = 0; row < p->rows; row++)
        for (int32_t i = 0; i < p->out; i++)
            if (f32_bits(b->y_f32[row][i]) != f32_bits(b->alone[row][i]))
                return err_set(err, ERR_EDEVICE, "result %d of row %d is %.9g, alone %.9g", i, row, (double)b->y_f32[row][i],
                               (double)b->alone[row][i]);
    return ERR_OK;
}

/* Words of the tag before: a message, not a wait without end; then all is as before. */
static int check_wait(struct bench *b, const struct product *p, enum late late, struct err *err) {
    struct err words = {0};
    TRY(prepare(b, p, late, err));
    if (launch(b, p, &words) != ERR_EDEVICE || !strstr(words.msg, "waited for each other in vain"))
        return err_set(err, ERR_EDEVICE, "a wait for nothing: %s", words.code ? words.msg : "no error");
    return check_product(b, p, err);
}

/* ---- experts ---------------------------------------------------------------------------------------------------------- */

/* One half of CHOSEN of EXPERTS experts: p has the rows of all of them, and x of DOWN is as wide as CHOSEN of its rows. INNER chooses by scores, DOWN finds the choice. */
struct expert_product {
    struct product p;
    bool is_inner, has_biases;
};

/* What lies on the device: the router's words, the choice and its weights, biases by expert. */
struct chosen {
    uint64_t scores[EXPERTS + 1];
    int32_t ids[K_CHOICES_MAX];
    float weights[K_CHOICES_MAX];
    float biases[EXPERTS_ROOM];
};

static const struct k_act clamped = {.kind = ACT_CLAMPED_SWIGLU, .scale = 1, .p = {1.702f, 7}};

/* Scores whose order is 3, 0, 4, and weights that follow from them. */
static void make_choice(struct chosen *c, uint32_t tag) {
    static const float scores[EXPERTS + 1] = {1.5f, -2, 0.25f, 2, 0.75f, 0};
    static const int32_t best[CHOSEN] = {3, 0, 4};
    float sum = 0;
    memset(c, 0, sizeof *c);
    for (int32_t i = 0; i < EXPERTS + 1; i++) c->scores[i] = (uint64_t)tag << 32 | f32_bits(scores[i]);
    for (int32_t i = 0; i < CHOSEN; i++) sum += c->weights[i] = expf(scores[best[i]]), c->ids[i] = best[i];
    for (int32_t i = 0; i < CHOSEN; i++) c->weights[i] /= sum;
    for (int32_t i = 0; i < EXPERTS_ROOM; i++) c->biases[i] = draw(11, i);
}

static int launch_experts(struct bench *b, const struct expert_product *x, struct err *err) {
    const struct product *p = &x->p;
    struct k_instr in = instr_of(b, p);
    struct k_step_linear *a = &in.u.linear;
    int32_t out = p->out / EXPERTS, inner = out / 2, tiles = x->is_inner ? CHOSEN * inner / TILE : out / TILE;
    a->w.out = out;
    a->n_tiles = tiles, a->tiles_each = tiles / b->c->gpu->n_sm, a->tiles_more = tiles % b->c->gpu->n_sm;
    a->bias = x->has_biases ? b->experts + offsetof(struct chosen, biases) : 0;
    a->e = (struct k_step_experts){
        .rule = {.score = ROUTE_SOFTMAX_AFTER, .k = CHOSEN, .scale = 1},
        .ids = b->experts + offsetof(struct chosen, ids),
        .weights = b->experts + offsetof(struct chosen, weights),
        .n_experts = EXPERTS,
        .half = x->is_inner ? K_HALF_INNER : K_HALF_DOWN,
        .k = CHOSEN,
    };
    if (x->is_inner) a->glu_inner = inner, a->act = clamped;
    cuda_links_find(&in, &(struct step_values){.reads = -1}, 1);
    if (x->is_inner) a->e.scores_link = b->experts;
    a->x_link = b->x;
    if (p->has_residual) a->residual_link = b->residual, a->residual_scale = 1;
    return launch_instr(b, in, err);
}

/* A sum and how far it may be off. */
struct about {
    double is, error;
};

/* The largest of the UNIT elements of x from `from` on. */
static double largest_of_unit(const struct bench *b, int32_t from) {
    double largest = 0;
    for (int32_t u = from; u < from + UNIT; u++) {
        double x = fabs((double)b->x_f32[0][u]);
        if (x > largest) largest = x; /* not fmax: gcc 12 for aarch64 ends with an internal error there */
    }
    return largest;
}

/* Row `row` of all weights times x from element `from` on. */
static struct about sum_of(const struct bench *b, const struct product *p, int32_t row, int32_t in, int32_t from, double factor) {
    struct about y = {0, 1e-6};
    for (int32_t k = 0; k < in; k++) {
        double x = (double)b->x_f32[0][from + k] * (p->has_norm ? (double)b->norm_f32[k] : 1.0), w = b->w[row * in + k];
        double largest = largest_of_unit(b, from + k / UNIT * UNIT) * (p->has_norm ? 1.5 : 1.0);
        y.is += w * x * factor;
        y.error += (fabs(w) * (p->mode == K_MXFP4 ? fabs(x) / 2048 + largest * 1e-6 : largest / 65000) + fabs(w * x) * 2e-6) * factor;
    }
    return y;
}

/* Result i of the half: of gate and up of a choice, or of down with all choices. */
static struct about expert_result(const struct bench *b, const struct expert_product *x, const struct chosen *c, int32_t i, double factor) {
    const struct product *p = &x->p;
    int32_t out = p->out / EXPERTS, inner = out / 2;
    if (!x->is_inner) {
        struct about y = {p->has_residual ? (double)added_to(p, 0, i) : 0.0, 0};
        for (int32_t n = 0; n < CHOSEN; n++) {
            int32_t row = c->ids[n] * out + i;
            struct about one = sum_of(b, p, row, p->in, n * p->in, 1);
            y.is += one.is + (x->has_biases ? (double)c->weights[n] * (double)c->biases[row] : 0.0), y.error += one.error;
        }
        return y;
    }
    int32_t row = c->ids[i / inner] * out + i % inner;
    struct about gate = sum_of(b, p, row, p->in, 0, factor), up = sum_of(b, p, row + inner, p->in, 0, factor);
    if (x->has_biases) gate.is += (double)c->biases[row], up.is += (double)c->biases[row + inner];
    double g = fmin(gate.is, 7), u = fmin(fmax(up.is, -7), 7) + 1, act = g / (1 + exp(-1.702 * g)), weight = c->weights[i / inner];
    return (struct about){weight * act * u,
                          weight * (1.2 * gate.error * (fabs(u) + up.error) + fabs(act) * up.error) + fabs(act * u) * 1e-5};
}

static int compare_experts(const struct bench *b, const struct expert_product *x, const struct chosen *c, struct err *err) {
    int32_t n = x->is_inner ? CHOSEN * (x->p.out / EXPERTS / 2) : x->p.out / EXPERTS;
    double square = 0;
    for (int32_t k = 0; k < x->p.in; k++) square += (double)b->x_f32[0][k] * (double)b->x_f32[0][k];
    double factor = x->p.has_norm ? 1.0 / sqrt(square / x->p.in + 1e-6) : 1.0;
    for (int32_t i = 0; i < n; i++) {
        struct about want = expert_result(b, x, c, i, factor);
        double y = (&b->y_f32[0][0])[i];
        if (!(fabs(y - want.is) <= want.error))
            return err_set(err, ERR_EDEVICE, "result %d is %.7g, expected %.7g within %.2g", i, y, want.is, want.error);
    }
    return ERR_OK;
}

/* Right, and the same bits again. INNER leaves its choice for DOWN. */
static int check_experts(struct bench *b, const struct expert_product *x, struct err *err) {
    struct chosen c, left;
    struct product wide = x->p;
    uint32_t tag;
    if (!x->is_inner) wide.in *= CHOSEN;
    for (int32_t turn = 0; turn < 2; turn++) {
        TRY(next_tag(b, &tag, err));
        make_choice(&c, tag);
        left = c;
        if (x->is_inner) memset(left.ids, 0, sizeof left.ids), memset(left.weights, 0, sizeof left.weights);
        TRY(cuda_upload(b->c, b->experts, &left, sizeof left, "a choice", err));
        TRY(prepare(b, &x->p, LATE_NONE, err));
        TRY(prepare_words(b, &wide, LATE_NONE, err));
        TRY(launch_experts(b, x, err));
        if (turn) memcpy(b->alone, b->y_f32, sizeof b->alone);
        TRY_CU(b->c->d->cuMemcpyDtoH(b->y_f32, b->y, sizeof b->y_f32), "results");
        TRY_CU(b->c->d->cuMemcpyDtoH(&left, b->experts, sizeof left), "a choice");
    }
    for (int32_t i = 0; i < CHOSEN; i++)
        if (left.ids[i] != c.ids[i] || fabsf(left.weights[i] - c.weights[i]) > 1e-6f)
            return err_set(err, ERR_EDEVICE, "choice %d is %d by %.7g, expected %d by %.7g", i, left.ids[i], (double)left.weights[i],
                           c.ids[i], (double)c.weights[i]);
    if (memcmp(b->alone, b->y_f32, sizeof b->alone) != 0) return err_set(err, ERR_EDEVICE, "the same experts twice have other bits");
    return compare_experts(b, x, &c, err);
}

/* ---- x that is a sum: the norm of what came, times OWN, and a residual, times KEPT ------------------------------------- */

static const float OWN = 0.75f, KEPT = 1.25f, SUM_OFFSET = 1;

/* What lies on the device: the residual in words and as it is, the norm's weight, room for the sum. */
struct summed {
    uint64_t residual[IN_MAX];
    float plain[IN_MAX], norm[IN_MAX];
    uint64_t sum[IN_MAX];
};

struct sum_product {
    struct product p;
    bool is_linked, has_weight; /* the residual; the norm */
};

static int launch_sum(struct bench *b, const struct sum_product *x, struct err *err) {
    struct k_instr in = instr_of(b, &x->p);
    struct k_step_linear *a = &in.u.linear;
    a->has_sum = 1, a->sum_eps = 1e-5f, a->sum_offset = SUM_OFFSET;
    a->sum_norm = x->has_weight ? b->sum + offsetof(struct summed, norm) : 0;
    a->own_scale = OWN, a->residual_scale = KEPT;
    cuda_links_find(&in, &(struct step_values){.reads = -1}, 1);
    a->x_link = b->x;
    if (x->is_linked) a->residual_link = b->sum + offsetof(struct summed, residual);
    else a->residual = b->sum + offsetof(struct summed, plain);
    a->sum_link = b->sum + offsetof(struct summed, sum);
    return launch_instr(b, in, err);
}

/* tag: that words of the sum have to carry. x_f32 becomes the sum. */
static int compare_sum(struct bench *b, const struct sum_product *x, const struct summed *s, uint32_t tag, struct err *err) {
    const struct product *p = &x->p;
    float *of = b->x_f32[0];
    double square = 0;
    for (int32_t k = 0; k < p->in; k++) square += (double)of[k] * (double)of[k];
    double factor = (double)OWN / sqrt(square / p->in + 1e-5);
    for (int32_t k = 0; k < p->in; k++) {
        double own = (double)of[k] * factor * (x->has_weight ? (double)(s->norm[k] + SUM_OFFSET) : 1.0),
               kept = (double)(s->plain[k] * KEPT);
        float y = f32_from_bits((uint32_t)s->sum[k]);
        if (s->sum[k] >> 32 != tag) return err_set(err, ERR_EDEVICE, "element %d of the sum is not there", k);
        if (!(fabs((double)y - own - kept) <= 1e-6 * (fabs(own) + fabs(kept))))
            return err_set(err, ERR_EDEVICE, "element %d of the sum is %.9g, expected %.9g", k, (double)y, own + kept);
        of[k] = y;
    }
    return compare(b, p, err);
}

static int prepare_sum(struct bench *b, const struct sum_product *x, struct summed *s, enum late late, uint32_t *out_tag, struct err *err) {
    TRY(next_tag(b, out_tag, err));
    for (int32_t k = 0; k < IN_MAX; k++) {
        s->plain[k] = 8 * draw(12, k), s->norm[k] = draw(13, k), s->sum[k] = 0;
        s->residual[k] = (uint64_t)(late == LATE_RESIDUAL ? *out_tag - 1 : *out_tag) << 32 | f32_bits(s->plain[k]);
    }
    TRY(cuda_upload(b->c, b->sum, s, sizeof *s, "a sum", err));
    return prepare(b, &x->p, late, err);
}

/* Right, and the same bits again. */
static int check_sum(struct bench *b, const struct sum_product *x, struct err *err) {
    static struct summed s;
    for (int32_t turn = 0; turn < 2; turn++) {
        uint32_t tag;
        TRY(prepare_sum(b, x, &s, LATE_NONE, &tag, err));
        TRY(launch_sum(b, x, err));
        if (turn) memcpy(b->alone, b->y_f32, sizeof b->alone);
        TRY_CU(b->c->d->cuMemcpyDtoH(b->y_f32, b->y, sizeof b->y_f32), "results");
        TRY_CU(b->c->d->cuMemcpyDtoH(&s, b->sum, sizeof s), "a sum");
        TRY(compare_sum(b, x, &s, tag, err));
    }
    if (memcmp(b->alone, b->y_f32, sizeof b->alone) != 0) return err_set(err, ERR_EDEVICE, "the same sum twice has other bits");
    return ERR_OK;
}

static int check_sum_wait(struct bench *b, const struct sum_product *x, enum late late, struct err *err) {
    static struct summed s;
    struct err words = {0};
    uint32_t tag;
    TRY(prepare_sum(b, x, &s, late, &tag, err));
    if (launch_sum(b, x, &words) != ERR_EDEVICE || !strstr(words.msg, "waited for each other in vain"))
        return err_set(err, ERR_EDEVICE, "a wait for nothing: %s", words.code ? words.msg : "no error");
    return check_sum(b, x, err);
}

/* The same product twice with kernels/step.cu, and a barrier between the two. */
static int launch_barrier(struct bench *b, const struct product *p, struct err *err) {
    struct k_instr in[2] = {instr_of(b, p), instr_of(b, p)};
    struct k_step_run run = {.instrs = b->instrs, .barrier = b->c->counters, .n = 2};
    void *params[] = {&run};
    TRY(cuda_upload(b->c, b->instrs, in, sizeof in, "two instructions", err));
    TRY_CU(b->c->d->cuLaunchKernel(b->c->gpu->functions[KERNEL_step_run], (unsigned int)b->c->gpu->n_sm, 1, 1, 512, 1, 1,
                                   (unsigned int)b->c->gpu->shared_max, b->c->stream, params, NULL),
           "launching");
    return cuda_wait(b->c, err);
}

/* Blocks that have not come yet, more than there are: a message; then all is as before. */
static int check_barrier(struct bench *b, const struct product *p, struct err *err) {
    static const uint32_t few = 0x80000000u;
    struct err words = {0};
    TRY(prepare(b, p, LATE_NONE, err));
    TRY(cuda_upload(b->c, b->c->counters, &few, sizeof few, "the barrier", err));
    if (launch_barrier(b, p, &words) != ERR_EDEVICE || !strstr(words.msg, "waited for each other in vain"))
        return err_set(err, ERR_EDEVICE, "a barrier that nobody reaches: %s", words.code ? words.msg : "no error");
    TRY(launch_barrier(b, p, err));
    TRY_CU(b->c->d->cuMemcpyDtoH(b->y_f32, b->y, sizeof b->y_f32), "results");
    return compare(b, p, err);
}

static int open_bench(struct bench *b, struct err *err) {
    TRY(cuda_alloc(b->c, sizeof b->packed, "weights", &b->weights, err));
    TRY(cuda_alloc(b->c, sizeof b->words, "x", &b->x, err));
    TRY(cuda_alloc(b->c, sizeof b->norm_f32, "a norm", &b->norm, err));
    TRY(cuda_alloc(b->c, sizeof b->y_f32, "results", &b->y, err));
    TRY(cuda_alloc(b->c, sizeof b->added, "a residual", &b->residual, err));
    TRY(cuda_alloc(b->c, sizeof(struct chosen), "a choice", &b->experts, err));
    TRY(cuda_alloc(b->c, sizeof(struct summed), "a sum", &b->sum, err));
    TRY(cuda_alloc(b->c, X_BYTES, "x of several rows", &b->units, err));
    TRY_CU(b->c->d->cuMemsetD32Async(b->units, ROWS_NOT_THERE, X_BYTES / 4, b->c->stream), "x of several rows");
    return cuda_alloc(b->c, 2 * sizeof(struct k_instr), "two instructions", &b->instrs, err);
}

static void close_bench(struct bench *b) {
    CUdeviceptr *all[] = {&b->weights, &b->x, &b->norm, &b->y, &b->residual, &b->instrs, &b->experts, &b->units, &b->sum};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cuda_free(b->c, all[i]);
    cuda_backend.close(&b->c->base);
}

static int n_passed, n_failed;

static void note(int code, const char *name, const struct product *p, const struct err *err) {
    n_passed += code == 0;
    n_failed += code != 0;
    if (!code) return;
    printf("FAILED %s", name);
    if (p)
        printf(" %d bits in groups of %d, %d x %d, %d rows of x %s%s", p->bits, p->group, p->out, p->in, p->rows, form_names[p->form],
               p->has_norm ? ", norm" : "");
    printf(": %s\n", err->msg);
}

/* mxfp4 and 4 bits in groups of 32, with and without biases, with and without a residual; a choice has one unit of k, or several. */
static void check_all_experts(struct bench *b) {
    for (int32_t i = 0; i < 16; i++) {
        struct expert_product x = {.is_inner = i % 2, .has_biases = i / 2 % 2};
        int32_t in = UNIT * (i / 8 ? 5 : 1), out = x.is_inner ? 2 * 48 : 80;
        x.p = (struct product){.mode = i / 4 % 2 ? K_AFFINE : K_MXFP4,
                               .bits = 4,
                               .group = 32,
                               .in = in,
                               .out = out * EXPERTS,
                               .form = LINK_F32,
                               .has_norm = x.is_inner,
                               .has_residual = !x.is_inner && x.has_biases,
                               .rows = 1};
        struct err err = {0};
        note(check_experts(b, &x, &err), x.is_inner ? "gate and up of experts" : "down of experts", &x.p, &err);
    }
}

static void check_all_sums(struct bench *b) {
    static const int32_t ins[] = {64, 320, 1088, IN_MAX}, outs[] = {16, OUT_MAX};
    for (int32_t i = 0; i < 4 * 2 * 2 * 2 * 2; i++) {
        struct sum_product x = {.is_linked = i / 8 % 2, .has_weight = i / 16 % 2};
        x.p = (struct product){.mode = K_AFFINE,
                               .bits = 4,
                               .group = UNIT,
                               .in = ins[i % 4],
                               .out = outs[i / 4 % 2],
                               .form = LINK_F32,
                               .has_norm = i / 32,
                               .is_f16 = i % 4 == 1,
                               .rows = 1};
        struct err err = {0};
        note(check_sum(b, &x, &err), "product of a sum", &x.p, &err);
        if (x.is_linked && x.p.in == 1088)
            note(check_sum_wait(b, &x, i / 4 % 2 ? LATE_X : LATE_RESIDUAL, &err), "wait for a sum", &x.p, &err);
    }
}

static void check_all(struct bench *b) {
    static const int32_t ins[] = {64, 128, 1088, IN_MAX}, outs[] = {16, OUT_MAX};
    static const int32_t bits[] = {4, 8, 16};
    for (int32_t i = 0; i < 3 * 4 * 2 * N_FORMS * 2; i++) {
        struct product p = {.mode = i % 3 == 2 ? K_PLAIN : K_AFFINE,
                            .bits = bits[i % 3],
                            .group = UNIT,
                            .in = ins[i / 3 % 4],
                            .out = outs[i / 12 % 2],
                            .form = (enum form)(i / 24 % N_FORMS),
                            .has_norm = i / 96 % 2,
                            .rows = 1};
        if (p.has_norm && is_bf16(p.form)) continue; /* nobody makes that */
        p.is_f16 = p.in == 128 || (p.mode == K_PLAIN && p.form == LINK_F32);
        p.has_residual = p.in == 1088;
        struct err err = {0};
        note(check_product(b, &p, &err), "product", &p, &err);
        p.rows = 2 + i / 3 % (ROWS_MAX - 1);
        if (p.mode == K_AFFINE && b->c->gpu->functions[KERNEL_several_4_128]) note(check_rows(b, &p, &err), "product of rows", &p, &err);
        p.rows = 1, p.group = UNIT >> (1 + i / 3 % 2);
        if (p.mode == K_AFFINE) note(check_product(b, &p, &err), "product in short groups", &p, &err);
    }
    for (int32_t i = 0; i < 4; i++) {
        struct product p = {.mode = i % 2 ? K_PLAIN : K_AFFINE,
                            .bits = bits[i % 2 * 2],
                            .group = UNIT,
                            .in = 1088,
                            .out = 48,
                            .form = LINK_F32,
                            .has_residual = true,
                            .rows = 1};
        struct err err = {0};
        note(check_wait(b, &p, i / 2 ? LATE_RESIDUAL : LATE_X, &err), i / 2 ? "wait for a residual" : "wait for x", &p, &err);
    }
    if (!b->c->gpu->can_run_lists) return; /* nor do its blocks wait for each other */
    struct product p = {.mode = K_PLAIN, .bits = 16, .group = UNIT, .in = 1088, .out = 48, .form = PLAIN_F32, .rows = 1};
    struct err err = {0};
    note(check_barrier(b, &p, &err), "wait at a barrier", &p, &err);
}

int main(void) {
    static struct bench b;
    struct backend *be;
    struct err err = {0};
    if (backend_open_alone(&cuda_backend, &(struct device_options){0}, &(struct backend_options){0}, &be, &err)) {
        printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", err.msg);
        return 0;
    }
    b.c = (struct cuda *)be;
    if (!b.c->gpu->functions[KERNEL_one_4_128]) printf("skipped: kernels/one.cu is not compiled for this GPU\n");
    else if (open_bench(&b, &err)) note(1, "memory", NULL, &err);
    else {
        check_all(&b);
        if (b.c->gpu->functions[KERNEL_one_mixed_64]) check_all_experts(&b);
        if (b.c->gpu->functions[KERNEL_one_post_128]) check_all_sums(&b);
    }
    close_bench(&b);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_passed + n_failed ? 0 : 1);
    return n_failed ? 1 : 0;
}
