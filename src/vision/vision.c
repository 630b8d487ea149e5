/* Opening a tower, and pictures through it. */
#include "vision/vision_internal.h"

#include "base/hash.h"
#include "base/json.h"

static const struct vision_family *family_of_types(struct str type, struct str vision) {
    for (int32_t i = 0; i < vision_n_families; i++)
        if (str_is(type, vision_table[i].type) && (!vision_table[i].vision || str_is(vision, vision_table[i].vision)))
            return &vision_table[i];
    return NULL;
}

static const struct vision_family *find_family(const struct config *c) {
    return family_of_types(c->model_type, json_str(json_get(c->root, "vision_config"), "model_type", STR("")));
}

/* "anyres_max_9": tokens of more tiles than that are shrunk. */
static int read_most(struct vision *v, struct err *err) {
    struct str said = json_str(v->config, "vision_aspect_ratio", STR(""));
    size_t at = str_find(said, STR("anyres_max_"), 0);
    int64_t most = 0;
    if (said.n == 0) return ERR_OK;
    if (at != 0 || !str_to_int64(str_from(said, sizeof "anyres_max_" - 1), &most) || most < 1 || most >= TILES_MAX)
        return err_set(err, ERR_EUNSUPPORTED, "config.json: vision_aspect_ratio \"%.*s\" is not supported: the model takes text alone",
                       STR_ARG(said));
    v->most_tiles = (int32_t)most;
    return ERR_OK;
}

static struct config_part tower_part(const struct config *c) {
    return (struct config_part){"config.json", "vision_config", json_get(c->root, "vision_config")};
}

/* What config.json says. */
static int open_config(struct vision *v, const struct config *c, struct err *err) {
    yyjson_val *root = c->root, *text = json_get(root, "text_config"), *scale = json_get(text, "embedding_multiplier");
    struct config_part part = tower_part(c);
    const char *open = v->family->open_key, *close = v->family->close_key;
    v->image_token = (int32_t)json_int(root, "image_token_id", json_int(root, "image_token_index", -1));
    if (v->image_token < 0) return err_set(err, ERR_EFORMAT, "config.json: image_token_id is missing");
    v->open_token = open ? (int32_t)json_int(root, open, -1) : -1;
    v->close_token = close ? (int32_t)json_int(root, close, -1) : -1;
    v->bos_token = (int32_t)json_int(root, "bos_token_id", json_int(text, "bos_token_id", -1));
    v->config = root;
    v->sees_both_ways = v->family->sees_both_ways;
    if (v->family->sees_key) v->sees_both_ways = str_is(json_str(text, v->family->sees_key, STR("")), "vision");
    v->row_scale = yyjson_is_num(scale) ? (float)yyjson_get_num(scale) : 1.0f;
    TRY(read_most(v, err));
    if (v->family->global) TRY(tiled_open(v, &part, err));
    return tower_sizes(v, &part, err);
}

static int open_processor(struct vision *v, const struct vision_source *source, struct err *err) {
    yyjson_val *processor = source->processor;
    if (source->checkpoint) TRY(processor_load(&v->arena, source->checkpoint, &processor, err));
    return processor_open(v, processor, err);
}

static int open_parts(struct vision *v, const struct vision_source *source, struct err *err) {
    struct config_part part = tower_part(source->config);
    TRY(open_config(v, source->config, err));
    TRY(tower_bind(v, &part, source->store, err));
    return open_processor(v, source, err);
}

int vision_open_files(const struct checkpoint *c, int32_t text_hidden, struct vision *out, struct err *err) {
    struct vision_source source = {.config = &c->config, .checkpoint = c};
    *out = (struct vision){.family = find_family(&c->config), .text_hidden = text_hidden};
    if (!out->family) return err_set(err, ERR_EUNSUPPORTED, "its tower is not one that this program runs");
    TRY(open_config(out, &c->config, err));
    return open_processor(out, &source, err);
}

const char *vision_title(const struct config *c, bool *out_has) {
    yyjson_val *config = json_get(c->root, "vision_config");
    const struct vision_family *family = find_family(c);
    *out_has = yyjson_is_obj(config);
    return *out_has && family ? family->title : NULL;
}

int vision_check(const struct config *c, const struct backend *be, struct err *err) {
    bool has_tower;
    const char *title = vision_title(c, &has_tower);
    if (!has_tower) return err_set(err, ERR_ENOTFOUND, "the model takes no pictures: it has no tower");
    if (!title)
        return err_set(err, ERR_EUNSUPPORTED, "the tower of \"%.*s\" is not run here: the model takes text alone", STR_ARG(c->model_type));
    const struct vision_family *family = find_family(c);
    if (be->gives && (be->looks || !family->global)) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED,
                   "pictures of \"%.*s\" are not computed on %s: the model takes text alone there; use --device cpu or cuda for pictures",
                   STR_ARG(c->model_type), be->type->name);
}

int vision_open_source(const struct vision_source *source, struct backend *be, struct vision **out, struct err *err) {
    *out = NULL;
    TRY(vision_check(source->config, be, err));
    struct vision *v = mem_alloc(sizeof *v);
    *v = (struct vision){.family = find_family(source->config), .backend = be, .text_hidden = source->text_hidden};
    int code = open_parts(v, source, err);
    if (code) vision_close(v);
    else *out = v;
    return code;
}

int vision_open(const struct checkpoint *c, const struct tensor_store *store, struct backend *be, int32_t text_hidden, struct vision **out,
                struct err *err) {
    struct vision_source source = {.config = &c->config, .checkpoint = c, .store = store, .text_hidden = text_hidden};
    return vision_open_source(&source, be, out, err);
}

void vision_close(struct vision *v) {
    if (!v) return;
    weights_release(v->backend, &v->weights);
    arena_free(&v->arena);
    mem_free(v);
}

struct vision_facts vision_facts(const struct vision *v) {
    const struct vision_family *f = v->family;
    return (struct vision_facts){.title = f->title,
                                 .placeholder = f->words.placeholder,
                                 .placeholder_token = f->is_open_placeholder ? v->open_token : v->image_token,
                                 .image_token = v->image_token,
                                 .open = f->words.open,
                                 .close = f->words.close,
                                 .open_token = v->open_token,
                                 .close_token = v->close_token,
                                 .n_sets = v->n_mergers,
                                 .has_places = f->has_places,
                                 .text_hidden = v->text_hidden,
                                 .sees_both_ways = v->sees_both_ways,
                                 .sees_in_windows = v->sees_both_ways && f->sees_key,
                                 .is_looked_at = f->global != NULL,
                                 .is_prefix = f->is_prefix,
                                 .bos_before = f->adds_bos ? v->bos_token : -1,
                                 .bos_behind = f->is_prefix ? v->bos_token : -1,
                                 .prompt_end = f->words.prompt_end,
                                 .patch = v->patch,
                                 .layers = v->layers,
                                 .hidden = v->hidden};
}

/* ---- a picture ------------------------------------------------------------------------------------------------------ */

static const float **row_pointers(struct arena *a, const float *rows, int32_t n, int64_t width) {
    const float **p = arena_new(a, const float *, n);
    for (int64_t i = 0; i < n; i++) p[i] = rows + i * width;
    return p;
}

/* The tower's rows come in its own order: they go where their token lies. */
static int read_set(struct vision *v, const struct patches *p, struct arena *a, struct tensor set, float **out, struct err *err) {
    size_t row = (size_t)v->text_hidden * sizeof(float);
    float *rows = arena_try(a, (size_t)set.rows * row);
    *out = mem_try((size_t)set.rows * row);
    if (!rows || !*out) return err_set(err, ERR_EMEMORY, "no memory for the %d tokens of a picture", set.rows);
    TRY(v->backend->type->read(v->backend, set, rows, err));
    for (int32_t i = 0; i < set.rows; i++) memcpy(*out + (int64_t)p->cells[i] * v->text_hidden, rows + (int64_t)i * v->text_hidden, row);
    return ERR_OK;
}

/* The step of the tower: a row beside the patches where it has a class token, which sees all and is seen by all. */
static void fill_step(const struct vision *v, struct arena *a, const struct patches *p, struct step *step) {
    const struct vision_family *f = v->family;
    int32_t extra = v->class_row ? 1 : 0, first = f->is_class_last ? 0 : extra, n = p->n + extra;
    const float **pixels = arena_new(a, const float *, n);
    int32_t *places = arena_new(a, int32_t, (int64_t)n * STEP_AXES);
    *step = (struct step){.n_rows = n, .n_seqs = 1, .rows_capacity = n, .seqs_capacity = 1, .places = places};
    step->ids = step->pos = step->seq_of = step->wanted_rows = arena_new(a, int32_t, n); /* of which a tower needs nothing */
    step->seqs = arena_new(a, struct step_seq, 1);
    step->seqs[0] = (struct step_seq){.n_rows = n, .slot = -1};
    step->spans[0] = p->spans[0], step->spans[1] = p->spans[1];
    for (int64_t i = 0; i < p->n; i++) {
        pixels[i + first] = p->pixels + i * p->numbers;
        for (int k = 1; k < STEP_AXES; k++) places[(i + first) * STEP_AXES + k] = p->places[i * STEP_AXES + k] + f->first_place;
    }
    step->given[0] = pixels;
    if (v->positions) {
        float *positions = arena_new(a, float, (int64_t)n * v->hidden);
        tower_positions(v, p, positions);
        step->given[1] = row_pointers(a, positions, n, v->hidden);
    }
    if (!extra) return;
    int32_t *spans = arena_new(a, int32_t, 2 * (int64_t)n);
    for (int32_t i = 0; i < n; i++) spans[2 * i + 1] = n;
    step->spans[0] = step->spans[1] = spans;
}

int vision_run(struct vision *v, const struct step *step, struct tensor *out_sets, struct err *err) {
    struct backend *be = v->backend;
    struct step_key key = {.n_rows = step->n_rows, .n_seqs = 1, .gives = true, .has_places = true, .has_spans = true};
    if (be->tower_rows_max && step->n_rows > be->tower_rows_max)
        return err_set(err, ERR_ELIMIT, "the picture has %d patches, and %s takes %d: make it smaller, or use --device cpu", step->n_rows,
                       be->type->name, be->tower_rows_max);
    for (int k = 0; k < 2; k++) {
        v->seen[k] = 0;
        for (int64_t i = 0; i < step->n_rows; i++) v->seen[k] += step->spans[k][2 * i + 1] - step->spans[k][2 * i];
    }
    if (be->type->begin(be, &key)) tower_forward(v, &be->list, out_sets);
    return be->type->end(be, step, err);
}

static int run_tower(struct vision *v, struct arena *a, const struct patches *p, struct tile_rows *out, struct err *err) {
    struct step step;
    struct tensor sets[GIVEN_SETS] = {0};
    enum vision_positions kind = v->family->positions;
    if ((kind == POSITIONS_FIXED || kind == POSITIONS_AXES) && (p->height > v->positions_side || p->width > v->positions_side))
        return err_set(err, ERR_EFORMAT, "%d x %d patches, and the tower has positions for %d", p->width, p->height, v->positions_side);
    for (int64_t i = 0; v->family->is_centred && i < (int64_t)p->n * p->numbers; i++) p->pixels[i] = 2 * (p->pixels[i] - 0.5f);
    fill_step(v, a, p, &step);
    TRY(vision_run(v, &step, sets, err));
    *out = (struct tile_rows){.n = p->n / (v->merge * v->merge), .height = p->height / v->merge, .width = p->width / v->merge};
    for (int32_t i = 0; i < v->n_mergers; i++) TRY(read_set(v, p, a, sets[i], &out->rows[i], err));
    return ERR_OK;
}

struct vision_work vision_work(const struct vision *v) {
    const struct oplist *l = &v->backend->list;
    struct vision_work work = {0};
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        const struct weight *w = op->arg.linear.weight;
        if (op->kind == OP_LINEAR) work.flops += 2.0 * op->in[0].rows * (double)w->in * (double)w->out, work.bytes += (double)w->bytes;
        if (op->kind == OP_ATTN_ROWS)
            work.flops += 2.0 * (double)v->seen[op->arg.attn_rows.set] * op->in[0].heads * (op->in[0].width + op->in[2].width);
    }
    return work;
}

int vision_reserve(struct vision *v, struct err *err) {
    enum { USUAL_PATCHES = 4096 };
    struct backend *be = v->backend;
    struct tensor sets[GIVEN_SETS] = {0};
    int32_t each = v->merge * v->merge, n = USUAL_PATCHES / each * each + (v->class_row ? 1 : 0);
    if (v->family->global) n = tiled_rows(v);
    struct step_key key = {.n_rows = n, .n_seqs = 1, .gives = true, .has_places = true, .has_spans = true};
    if (!be->tower_rows_max || !be->type->begin(be, &key)) return ERR_OK;
    tower_forward(v, &be->list, sets);
    return be->type->reserve(be, err);
}

/* One tile after the other: what they need at once stays small. */
static int encode_tiles(struct vision *v, const struct tiles *t, struct tile_rows *rows, uint64_t *hash, struct err *err) {
    int code = ERR_OK;
    for (int32_t i = 0; i < t->n && !code; i++) {
        struct arena a = {0};
        struct patches p;
        code = processor_cut(v, &a, &t->images[i], &p, err);
        if (!code)
            *hash = hash_bytes(p.pixels, (size_t)p.n * (size_t)p.numbers * sizeof *p.pixels,
                               hash_pair(*hash, hash_pair((uint64_t)p.height, (uint64_t)p.width)));
        if (!code) code = run_tower(v, &a, &p, &rows[i], err);
        arena_free(&a);
    }
    return code;
}

int vision_encode(struct vision *v, const struct image *image, struct vision_picture *out, struct err *err) {
    struct arena a = {0};
    struct tiles t = {0};
    *out = (struct vision_picture){.hash = hash_pair((uint64_t)image->height, (uint64_t)image->width)};
    int code = tiles_make(v, &a, image, &t, err);
    struct tile_rows *rows = arena_new(&a, struct tile_rows, t.n + 1);
    if (!code && v->family->global) code = tiled_encode(v, &t, out, err);
    else if (!code) code = encode_tiles(v, &t, rows, &out->hash, err);
    if (!code) code = layout_rows(v, &t, rows, out, err);
    for (int64_t i = 0; !code && v->row_scale != 1.0f && i < (int64_t)out->n_rows * v->text_hidden; i++) out->rows[0][i] *= v->row_scale;
    for (int32_t i = 0; i < t.n; i++)
        for (int k = 0; k < GIVEN_SETS; k++) mem_free(rows[i].rows[k]);
    if (code) vision_picture_free(out);
    tiles_free(&t);
    arena_free(&a);
    return code;
}

void vision_picture_free(struct vision_picture *p) {
    for (int i = 0; i < GIVEN_SETS; i++) mem_free(p->rows[i]);
    mem_free(p->pieces);
    mem_free(p->text);
    *p = (struct vision_picture){0};
}

struct vision_picture vision_picture_copy(const struct vision *v, struct arena *a, const struct vision_picture *p) {
    struct vision_picture copy = *p;
    size_t bytes = (size_t)p->n_rows * (size_t)v->text_hidden * sizeof(float), n_text = 0;
    for (int i = 0; i < GIVEN_SETS; i++)
        if (p->rows[i]) copy.rows[i] = arena_copy(a, p->rows[i], bytes);
    for (int32_t i = 0; i < p->n_pieces; i++) n_text = p->pieces[i].text_at + p->pieces[i].text_n;
    copy.pieces = arena_copy(a, p->pieces, (size_t)p->n_pieces * sizeof *p->pieces);
    copy.text = arena_copy(a, p->text, n_text + 1);
    return copy;
}

void vision_places(const struct vision *v, const int32_t *tokens, int32_t n, const struct vision_picture *pictures, int32_t *places) {
    int32_t next = 0, i_picture = 0;
    for (int32_t i = 0; i < n;) {
        const struct vision_picture *p = tokens[i] == v->image_token ? &pictures[i_picture++] : NULL;
        int32_t count = p ? p->n_tokens : 1, longest = p && p->grid_height > p->grid_width ? p->grid_height : p ? p->grid_width : 1;
        for (int32_t k = 0; k < count && i < n; k++, i++) {
            places[i * STEP_AXES] = next;
            places[i * STEP_AXES + 1] = next + (p ? k / p->grid_width : 0);
            places[i * STEP_AXES + 2] = next + (p ? k % p->grid_width : 0);
        }
        next += longest;
    }
}
