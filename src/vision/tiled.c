/* Towers that see all tiles of a picture at once, and whose states the text model looks at.
 *
 * A picture has as many tiles as the tower takes: those that it lacks are padding. So are some rows behind each tile, since the reference fills tiles up to a multiple of
 * PADDED rows. Padding is seen by what is shown and does not see itself. Rows here: those of all tiles, the class token of each first, then the padding behind tiles. */
#include "vision/vision_internal.h"

#include "base/hash.h"
#include "base/json.h"

enum { PADDED = 8 };

int tiled_open(struct vision *v, const struct config_part *config, struct err *err) {
    struct tower_tiled *t = &v->tiled;
    yyjson_val *list = json_get(config->obj, "supported_aspect_ratios"), *item;
    int64_t tiles = json_int(config->obj, "max_num_tiles", 4);
    size_t i, n;
    if (tiles < 1 || tiles >= TILES_MAX)
        return err_set(err, ERR_EFORMAT, "%s: max_num_tiles of %s is %lld", config->file, config->where, (long long)tiles);
    t->tiles = (int32_t)tiles;
    if (!yyjson_arr_size(list) || yyjson_arr_size(list) > 4096)
        return err_set(err, ERR_EFORMAT, "%s: supported_aspect_ratios of %s must be a list of tiles down and across", config->file,
                       config->where);
    t->ratios = (int32_t(*)[2])arena_new(&v->arena, int32_t, 2 * yyjson_arr_size(list));
    yyjson_arr_foreach(list, i, n, item) {
        for (size_t k = 0; k < 2; k++) t->ratios[i][k] = (int32_t)yyjson_get_sint(yyjson_arr_get(item, k));
        t->n_ratios++;
    }
    return ERR_OK;
}

/* Which row of the tables a picture has. */
static int ratio_of(const struct vision *v, const struct tiles *t, int32_t *out, struct err *err) {
    const struct tower_tiled *d = &v->tiled;
    for (int32_t i = 0; i < d->n_ratios; i++)
        if (d->ratios[i][0] == t->rows && d->ratios[i][1] == t->columns && t->n <= d->tiles) {
            *out = i + 1;
            return ERR_OK;
        }
    return err_set(err, ERR_EFORMAT, "the tower has no positions for %d x %d tiles", t->columns, t->rows);
}

static void add_row(float *to, const float *from, float factor, int32_t n) {
    for (int32_t i = 0; i < n; i++) to[i] += factor * from[i];
}

/* What is added to the rows of a tile: the class token's row, the tile's, and the patch's, alone and by the tile. */
static void fill_positions(const struct vision *v, int32_t ratio, int32_t tile, float *to) {
    const struct tower_tiled *d = &v->tiled;
    int64_t width = v->hidden, row = (int64_t)ratio * d->tiles + tile;
    for (int64_t i = 0; i < d->cells; i++, to += width) {
        if (i == 0) memcpy(to, v->class_row, (size_t)width * sizeof *to);
        else add_row(to, d->before + row * width, d->before_gate, v->hidden);
        add_row(to, v->positions + i * width, 1 - d->gate, v->hidden);
        add_row(to, d->positions + (row * d->cells + i) * width, d->gate, v->hidden);
    }
}

/* Rows by tile, padding behind them. */
struct frame {
    int32_t n, n_shown, n_cells, padding; /* rows; those of tiles that are shown; those of all tiles; behind each tile */
};

static struct frame frame_of(const struct vision *v, int32_t n_tiles) {
    const struct tower_tiled *d = &v->tiled;
    int32_t padding = (PADDED - d->cells % PADDED) % PADDED;
    return (struct frame){(d->cells + padding) * d->tiles, d->cells * n_tiles, d->cells * d->tiles, padding};
}

int32_t tiled_rows(const struct vision *v) {
    return frame_of(v, v->tiled.tiles).n;
}

static void fill_step(const struct vision *v, struct arena *a, const struct patches *tiles, int32_t n_tiles, int32_t ratio,
                      struct step *step) {
    const struct tower_tiled *d = &v->tiled;
    struct frame f = frame_of(v, n_tiles);
    int64_t width = v->hidden;
    float *positions = arena_new(a, float, f.n_cells *width), *zeros = arena_new(a, float, width),
          *behind = arena_new(a, float, d->tiles *width);
    const float **given[4];
    for (int k = 0; k < 4; k++) step->given[k] = given[k] = arena_new(a, const float *, f.n);
    int32_t *spans = arena_new(a, int32_t, 2 * (int64_t)f.n);
    for (int32_t t = 0; t < d->tiles; t++) {
        fill_positions(v, ratio, t, positions + (int64_t)t * d->cells * width);
        add_row(behind + t * width, d->behind + ((int64_t)ratio * d->tiles + t) * width, d->behind_gate, v->hidden);
    }
    for (int32_t r = 0; r < f.n; r++) {
        bool is_padding = r >= f.n_cells;
        int32_t tile = is_padding ? (r - f.n_cells) / f.padding : r / d->cells, cell = r % d->cells;
        if (r < f.n_shown && cell) given[0][r] = tiles[tile].pixels + (int64_t)(cell - 1) * tiles[tile].numbers;
        if (!is_padding) given[1][r] = positions + r * width;
        else given[2][r] = zeros;
        given[3][r] = behind + tile * width;
        spans[2 * r + 1] = r < f.n_shown ? f.n : f.n_shown;
    }
    step->spans[0] = step->spans[1] = spans;
    step->n_rows = step->rows_capacity = f.n;
}

static int run(struct vision *v, struct arena *a, const struct patches *tiles, int32_t n_tiles, int32_t ratio, struct vision_picture *out,
               struct err *err) {
    struct step step = {.n_seqs = 1, .seqs_capacity = 1};
    struct tensor sets[GIVEN_SETS] = {0};
    fill_step(v, a, tiles, n_tiles, ratio, &step);
    step.ids = step.pos = step.seq_of = step.wanted_rows = arena_new(a, int32_t, step.n_rows); /* of which a tower needs nothing */
    step.places = arena_new(a, int32_t, (int64_t)step.n_rows * STEP_AXES);
    step.seqs = arena_new(a, struct step_seq, 1);
    step.seqs[0] = (struct step_seq){.n_rows = step.n_rows, .slot = -1};
    TRY(vision_run(v, &step, sets, err));
    out->rows[0] = mem_try((size_t)sets[0].rows * (size_t)v->text_hidden * sizeof(float));
    if (!out->rows[0]) return err_set(err, ERR_EMEMORY, "no memory for the %d states of a picture", sets[0].rows);
    out->n_rows = sets[0].rows;
    out->n_shown = n_tiles * v->tiled.cells;
    return v->backend->type->read(v->backend, sets[0], out->rows[0], err);
}

int tiled_encode(struct vision *v, const struct tiles *t, struct vision_picture *out, struct err *err) {
    struct arena a = {0};
    int32_t ratio = 0;
    TRY(ratio_of(v, t, &ratio, err));
    struct patches *tiles = arena_new(&a, struct patches, t->n);
    int code = ERR_OK;
    for (int32_t i = 0; i < t->n && !code; i++) {
        code = processor_cut(v, &a, &t->images[i], &tiles[i], err);
        if (!code && tiles[i].n + 1 != v->tiled.cells)
            code = err_set(err, ERR_EFORMAT, "a tile has %d patches, and the tower has positions for %d", tiles[i].n, v->tiled.cells - 1);
        if (!code) out->hash = hash_bytes(tiles[i].pixels, (size_t)tiles[i].n * (size_t)tiles[i].numbers * sizeof(float), out->hash);
    }
    out->hash = hash_pair(out->hash, (uint64_t)ratio);
    if (!code) code = run(v, &a, tiles, t->n, ratio, out, err);
    arena_free(&a);
    return code;
}
