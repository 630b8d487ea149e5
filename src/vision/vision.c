/* Opening a tower, and pictures through it. */
#include "vision/vision_internal.h"

#include "base/hash.h"
#include "base/json.h"

static const struct vision_family *find_family(struct str type, struct str vision) {
    for (int32_t i = 0; i < vision_n_families; i++)
        if (str_is(type, vision_table[i].type) && (!vision_table[i].vision || str_is(vision, vision_table[i].vision)))
            return &vision_table[i];
    return NULL;
}

static int open_parts(struct vision *v, const struct checkpoint *c, const struct tensor_store *store, yyjson_val *config, struct err *err) {
    struct config_part part = {"config.json", "vision_config", config};
    v->image_token = (int32_t)json_int(c->config.root, "image_token_id", json_int(c->config.root, "image_token_index", -1));
    if (v->image_token < 0) return err_set(err, ERR_EFORMAT, "config.json: image_token_id is missing");
    const char *open = v->family->open_key, *close = v->family->close_key;
    v->open_token = open ? (int32_t)json_int(c->config.root, open, -1) : -1;
    v->close_token = close ? (int32_t)json_int(c->config.root, close, -1) : -1;
    v->config = c->config.root;
    TRY(tower_bind(v, &part, store, err));
    return processor_open(v, c, err);
}

const char *vision_title(const struct config *c, bool *out_has) {
    yyjson_val *config = json_get(c->root, "vision_config");
    const struct vision_family *family = find_family(c->model_type, json_str(config, "model_type", STR("")));
    *out_has = yyjson_is_obj(config);
    return *out_has && family ? family->title : NULL;
}

int vision_check(const struct config *c, const struct backend *be, struct err *err) {
    bool has_tower;
    const char *title = vision_title(c, &has_tower);
    if (!has_tower) return err_set(err, ERR_ENOTFOUND, "the model takes no pictures: it has no tower");
    if (!title)
        return err_set(err, ERR_EUNSUPPORTED, "the tower of \"%.*s\" is not run here: the model takes text alone", STR_ARG(c->model_type));
    if (be->gives) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED,
                   "towers are computed on the CPU, and this runs on %s: the model takes text alone; use --device cpu for pictures",
                   be->type->name);
}

int vision_open(const struct checkpoint *c, const struct tensor_store *store, struct backend *be, int32_t text_hidden, struct vision **out,
                struct err *err) {
    yyjson_val *config = json_get(c->config.root, "vision_config");
    *out = NULL;
    TRY(vision_check(&c->config, be, err));
    struct vision *v = mem_alloc(sizeof *v);
    *v = (struct vision){
        .family = find_family(c->config.model_type, json_str(config, "model_type", STR(""))), .backend = be, .text_hidden = text_hidden};
    int code = open_parts(v, c, store, config, err);
    if (code) vision_close(v);
    else *out = v;
    return code;
}

void vision_close(struct vision *v) {
    if (!v) return;
    weights_release(v->backend, &v->weights);
    arena_free(&v->arena);
    mem_free(v);
}

struct vision_facts vision_facts(const struct vision *v) {
    return (struct vision_facts){.title = v->family->title,
                                 .image_token = v->image_token,
                                 .open = v->family->open,
                                 .close = v->family->close,
                                 .open_token = v->open_token,
                                 .close_token = v->close_token,
                                 .row_end = v->family->row_end,
                                 .end = v->family->end,
                                 .n_sets = v->n_mergers,
                                 .has_places = v->family->has_places,
                                 .text_hidden = v->text_hidden,
                                 .sees_both_ways = v->family->sees_both_ways,
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

/* The step of the tower: a row before the patches where it has a class token, which sees all and is seen by all. */
static void fill_step(const struct vision *v, struct arena *a, const struct patches *p, struct step *step) {
    int32_t extra = v->class_row ? 1 : 0, n = p->n + extra;
    const float **pixels = arena_new(a, const float *, n);
    *step = (struct step){.n_rows = n, .n_seqs = 1, .places = p->places, .spans = {p->spans[0], p->spans[1]}};
    step->seq_of = arena_new(a, int32_t, n);
    for (int64_t i = 0; i < p->n; i++) pixels[i + extra] = p->pixels + i * p->numbers;
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

static int run_tower(struct vision *v, struct arena *a, const struct patches *p, struct vision_picture *out, struct err *err) {
    struct backend *be = v->backend;
    struct step step;
    struct tensor sets[GIVEN_SETS] = {0};
    if (v->family->positions == POSITIONS_FIXED && (p->height > v->positions_side || p->width > v->positions_side))
        return err_set(err, ERR_EFORMAT, "%d x %d patches, and the tower has positions for %d", p->width, p->height, v->positions_side);
    fill_step(v, a, p, &step);
    struct step_key key = {.n_rows = step.n_rows, .n_seqs = 1, .gives = true, .has_places = true};
    if (be->type->begin(be, &key)) tower_forward(v, &be->list, sets);
    TRY(be->type->end(be, &step, err));
    for (int32_t i = 0; i < v->n_mergers; i++) TRY(read_set(v, p, a, sets[i], &out->rows[i], err));
    return ERR_OK;
}

int vision_encode(struct vision *v, const struct image *image, struct vision_picture *out, struct err *err) {
    struct arena a = {0};
    struct patches p;
    *out = (struct vision_picture){0};
    int code = processor_cut(v, &a, image, &p, err);
    if (!code) code = run_tower(v, &a, &p, out, err);
    if (!code) {
        out->n_tokens = p.n / (v->merge * v->merge);
        out->grid_height = p.height / v->merge;
        out->grid_width = p.width / v->merge;
        out->hash =
            hash_bytes(p.pixels, (size_t)p.n * (size_t)p.numbers * sizeof *p.pixels, hash_pair((uint64_t)p.height, (uint64_t)p.width));
    } else vision_picture_free(out);
    arena_free(&a);
    return code;
}

void vision_picture_free(struct vision_picture *p) {
    for (int i = 0; i < GIVEN_SETS; i++) mem_free(p->rows[i]);
    *p = (struct vision_picture){0};
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
