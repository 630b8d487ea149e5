/* Where the rows of a picture go: tiles side by side where the model lays them out as one picture, and the text around them. */
#include "vision/vision_internal.h"

#include "base/fmath.h"

struct writer {
    const struct vision *v;
    struct vision_picture *out;
    struct sb text;
    int32_t capacity;
    size_t piece_at; /* where the text of the piece began */
};

static void put(struct writer *w, const char *text, int32_t row, int32_t column) {
    for (; text && *text; text++) {
        bool is_row = strncmp(text, "{r}", 3) == 0, is_column = strncmp(text, "{c}", 3) == 0;
        if (is_row || is_column) sb_fmt(&w->text, "%d", is_row ? row + 1 : column + 1), text += 2;
        else sb_putc(&w->text, *text);
    }
}

/* The text since the last piece, and n tokens behind it. */
static void end_piece(struct writer *w, int32_t n) {
    struct vision_picture *p = w->out;
    if (p->n_pieces == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 8;
        p->pieces = mem_realloc(p->pieces, (size_t)w->capacity * sizeof *p->pieces);
    }
    p->pieces[p->n_pieces++] = (struct vision_piece){w->piece_at, w->text.n - w->piece_at, n};
    w->piece_at = w->text.n;
}

/* Tokens of a tile, with text behind their rows where the family has some. */
static void put_tokens(struct writer *w, const struct tile_rows *t) {
    const struct vision_words *words = &w->v->family->words;
    if (!words->row_end) {
        end_piece(w, t->n);
        return;
    }
    for (int32_t y = 0; y < t->height; y++) {
        end_piece(w, t->width);
        put(w, y + 1 == t->height ? words->end : words->row_end, 0, 0);
    }
}

static void put_tiles(struct writer *w, const struct tiles *t, const struct tile_rows *rows) {
    const struct vision_words *words = &w->v->family->words;
    int32_t i = 0;
    for (int32_t r = 0; r < t->rows; r++) {
        for (int32_t c = 0; c < t->columns; c++) {
            put(w, words->tile, r, c);
            put_tokens(w, &rows[i++]);
            if (c + 1 < t->columns) put(w, words->between, r, c);
        }
        put(w, words->tiles_end, r, 0);
    }
    if (i == t->n) return;
    put(w, t->rows ? words->whole : words->alone, 0, 0);
    put_tokens(w, &rows[i]);
}

/* ---- tiles as one picture ------------------------------------------------------------------------------------------- */

struct grid {
    const float *const *rows; /* [height * width] */
    int32_t top, left, height, width, stride;
};

/* What the canvas shows of the picture: tokens of the black on both sides are left out. */
static struct grid without_padding(const struct tiles *t, int32_t height, int32_t width) {
    struct grid g = {.height = height, .width = width, .stride = width};
    double h = t->height, w = t->width;
    if (w / h > (double)width / height) {
        int32_t shown = (int32_t)(floor(h * ((double)width / w) * 1e7 + 0.5) / 1e7), padding = (height - shown) / 2;
        g.top = padding, g.height -= 2 * padding;
    } else {
        int32_t shown = (int32_t)(floor(w * ((double)height / h) * 1e7 + 0.5) / 1e7), padding = (width - shown) / 2;
        g.left = padding, g.width -= 2 * padding;
    }
    return g;
}

/* Row i of n over a line of `from`, by cells: the two that it lies between, and how far behind the first. */
static void between_cells(int32_t i, int32_t n, int32_t from, int32_t *low, int32_t *high, float *rest) {
    float at = ((float)i + 0.5f) * ((float)from / (float)n) - 0.5f;
    at = at < 0 ? 0 : at;
    *low = (int32_t)at < from - 1 ? (int32_t)at : from - 1;
    *high = *low + 1 < from ? *low + 1 : *low;
    *rest = at - (float)*low;
}

static void mix(const struct grid *g, int32_t height, int32_t width, int32_t y, int32_t x, int32_t n, float *out) {
    int32_t up, down, left, right;
    float dy, dx;
    between_cells(y, height, g->height, &up, &down, &dy);
    between_cells(x, width, g->width, &left, &right, &dx);
    const float *const *top = g->rows + (int64_t)(g->top + up) * g->stride + g->left;
    const float *const *bottom = g->rows + (int64_t)(g->top + down) * g->stride + g->left;
    for (int32_t i = 0; i < n; i++)
        out[i] = (1 - dy) * ((1 - dx) * top[left][i] + dx * top[right][i]) + dy * ((1 - dx) * bottom[left][i] + dx * bottom[right][i]);
}

/* The whole picture's rows, then those of the tiles as they lie, each line ended by the row for that. */
static int lay_out(const struct vision *v, const struct tiles *t, const struct tile_rows *rows, struct vision_picture *out,
                   struct err *err) {
    int64_t width = v->text_hidden;
    int32_t h = rows[1].height, w = rows[1].width, whole = rows[0].n;
    const float **all = mem_try((size_t)(t->rows * h) * (size_t)(t->columns * w) * sizeof *all);
    if (!all) return err_set(err, ERR_EMEMORY, "no memory for the tokens of a picture");
    for (int32_t i = 0; i < t->rows * t->columns; i++)
        for (int32_t k = 0; k < h * w; k++)
            all[(int64_t)(i / t->columns * h + k / w) * (t->columns * w) + i % t->columns * w + k % w] = rows[i + 1].rows[0] + k * width;
    struct grid g = without_padding(t, t->rows * h, t->columns * w);
    g.rows = all;
    double ratio = v->most_tiles ? sqrt((double)g.height * g.width / ((double)v->most_tiles * h * h)) : 0;
    int32_t height = ratio > 1.1 ? (int32_t)floor(g.height / ratio) : g.height,
            across = ratio > 1.1 ? (int32_t)floor(g.width / ratio) : g.width;
    out->n_tokens = whole + height * (across + 1);
    float *to = out->rows[0] = mem_try((size_t)out->n_tokens * (size_t)width * sizeof *to);
    if (to) {
        memcpy(to, rows[0].rows[0], (size_t)(whole * width) * sizeof *to);
        to += whole * width;
        for (int32_t y = 0; y < height; y++) {
            for (int32_t x = 0; x < across; x++, to += width) mix(&g, height, across, y, x, v->text_hidden, to);
            memcpy(to, v->newline, (size_t)width * sizeof *to);
            to += width;
        }
    }
    mem_free(all);
    return to ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for the %d tokens of a picture", out->n_tokens);
}

/* The rows of all tiles behind each other. */
static int put_behind(const struct vision *v, const struct tiles *t, const struct tile_rows *rows, struct vision_picture *out,
                      struct err *err) {
    for (int32_t i = 0; i < t->n; i++) out->n_tokens += rows[i].n;
    for (int32_t k = 0; k < v->n_mergers; k++) {
        float *to = out->rows[k] = mem_try((size_t)out->n_tokens * (size_t)v->text_hidden * sizeof *to);
        if (!to) return err_set(err, ERR_EMEMORY, "no memory for the %d tokens of a picture", out->n_tokens);
        for (int32_t i = 0; i < t->n; i++) {
            size_t n = (size_t)rows[i].n * (size_t)v->text_hidden;
            memcpy(to, rows[i].rows[k], n * sizeof *to);
            to += n;
        }
    }
    return ERR_OK;
}

int layout_rows(const struct vision *v, const struct tiles *t, const struct tile_rows *rows, struct vision_picture *out, struct err *err) {
    struct writer w = {.v = v, .out = out};
    if (out->n_rows) { /* states: one token stands for all of them */
        out->n_tokens = 1;
        end_piece(&w, 1);
        end_piece(&w, 0);
    } else if (v->newline) {
        TRY(lay_out(v, t, rows, out, err));
        end_piece(&w, out->n_tokens);
    } else {
        TRY(put_behind(v, t, rows, out, err));
        put_tiles(&w, t, rows);
        end_piece(&w, 0);
    }
    if (!out->n_rows) out->n_rows = out->n_tokens;
    if (t->n == 1 && rows[0].n) out->grid_height = rows[0].height, out->grid_width = rows[0].width;
    out->text = mem_alloc(w.text.n + 1);
    if (w.text.n) memcpy(out->text, w.text.p, w.text.n);
    sb_free(&w.text);
    return ERR_OK;
}
