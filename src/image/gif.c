/* The first frame of a GIF. */
#include "image/image_internal.h"

enum { CODES = 4096, COLOURS = 256, INTERLACED = 0x40, HAS_TABLE = 0x80 };

/* The bits of a frame, which lie in blocks of up to 255 bytes. */
struct bits {
    struct str rest;
    size_t block; /* bytes that are left of the current one */
    uint32_t held;
    int n_held;
    bool is_over;
};

static uint32_t take(struct bits *b, int n) {
    while (b->n_held < n) {
        if (b->block == 0) {
            b->block = b->rest.n ? (uint8_t)b->rest.p[0] : 0;
            b->rest = str_from(b->rest, 1);
        }
        if (b->block == 0 || b->rest.n == 0) {
            b->is_over = true;
            return 0;
        }
        b->held |= (uint32_t)(uint8_t)b->rest.p[0] << b->n_held;
        b->rest = str_from(b->rest, 1);
        b->block--;
        b->n_held += 8;
    }
    uint32_t value = b->held & ((1u << n) - 1);
    b->held >>= n;
    b->n_held -= n;
    return value;
}

struct words {
    uint16_t before[CODES];
    uint8_t last[CODES], string[CODES];
};

/* The colours that a code stands for, last one first; returns how many. */
static int spell(struct words *w, uint32_t code, uint32_t clear) {
    int n = 0;
    for (; code >= clear && n < CODES - 1; code = w->before[code]) w->string[n++] = w->last[code];
    w->string[n++] = (uint8_t)code;
    return n;
}

/* Unpacks the frame's colours; false where the data end before the frame is full, or make no sense. */
static bool unpack(struct bits *b, int width, struct words *w, uint8_t *out, size_t n) {
    uint32_t clear = 1u << width, next = clear + 2, before = CODES;
    int size = width + 1;
    size_t at = 0;
    while (at < n) {
        uint32_t code = take(b, size);
        if (b->is_over || code == clear + 1) return false;
        if (code == clear) {
            next = clear + 2;
            size = width + 1;
            before = CODES;
            continue;
        }
        if (code > next || (code == next && before == CODES) || (before == CODES && code >= clear)) return false;
        bool is_new = code == next;
        int length = spell(w, is_new ? before : code, clear);
        uint8_t first = w->string[length - 1];
        while (length > 0 && at < n) out[at++] = w->string[--length];
        if (is_new && at < n) out[at++] = first;
        if (before != CODES && next < CODES) {
            w->before[next] = (uint16_t)before;
            w->last[next++] = first;
            if (next == 1u << size && size < 12) size++;
        }
        before = code;
    }
    return true;
}

struct frame {
    int32_t x, y, width, height;
    int transparent; /* index of the colour that is; -1: none */
    bool is_interlaced;
    const uint8_t *colours; /* [n_colours][3] */
    int n_colours;
    struct str data; /* from the width of codes on */
};

static bool find_frame(struct str file, struct frame *f) {
    const uint8_t *screen = (const uint8_t *)file.p;
    size_t at = 13;
    f->transparent = -1;
    if (file.n < at) return false;
    if (screen[10] & HAS_TABLE) f->colours = screen + at, f->n_colours = 2 << (screen[10] & 7), at += 3 * (size_t)f->n_colours;
    while (at < file.n) {
        char kind = file.p[at++];
        if (kind == '!') {
            if (file.n - at > 6 && (uint8_t)file.p[at] == 0xf9 && file.p[at + 2] & 1) f->transparent = (uint8_t)file.p[at + 5];
            for (at++; at < file.n && file.p[at]; at += (uint8_t)file.p[at] + 1u) {}
            at++;
            continue;
        }
        if (kind != ',' || file.n - at < 10) return false;
        const char *p = file.p + at;
        *f = (struct frame){(int32_t)le16(p),     (int32_t)le16(p + 2), (int32_t)le16(p + 4),
                            (int32_t)le16(p + 6), f->transparent,       (p[8] & INTERLACED),
                            f->colours,           f->n_colours,         {0}};
        at += 9;
        if (p[8] & HAS_TABLE) f->colours = (const uint8_t *)file.p + at, f->n_colours = 2 << (p[8] & 7), at += 3 * (size_t)f->n_colours;
        if (at >= file.n || !f->n_colours) return false;
        f->data = str_from(file, at);
        return true;
    }
    return false;
}

/* The row that comes as number i of an interlaced frame. */
static int32_t row_of(const struct frame *f, int32_t i) {
    static const int32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    if (!f->is_interlaced) return i;
    for (int pass = 0; pass < 4; pass++) {
        int32_t n = (f->height - first[pass] + step[pass] - 1) / step[pass];
        if (i < n) return first[pass] + i * step[pass];
        i -= n > 0 ? n : 0;
    }
    return 0;
}

static void paint(const struct frame *f, const uint8_t *indices, struct raster *out) {
    for (int32_t i = 0; i < f->height; i++) {
        int32_t y = f->y + row_of(f, i);
        for (int32_t x = 0; x < f->width; x++) {
            int colour = indices[(size_t)i * (size_t)f->width + (size_t)x];
            if (y >= out->height || f->x + x >= out->width || colour == f->transparent) continue;
            uint8_t *to = image_raster_row(out, y) + (size_t)(f->x + x) * 4;
            if (colour < f->n_colours) memcpy(to, f->colours + 3 * colour, 3);
            to[3] = 255;
        }
    }
}

int image_decode_gif(struct str file, struct raster *out, struct err *err) {
    struct frame f = {0};
    if (!find_frame(file, &f)) return err_set(err, ERR_EFORMAT, "the file has no frame, or ends before it");
    int width = (uint8_t)f.data.p[0];
    if (width < 2 || width > 8) return err_set(err, ERR_EFORMAT, "its codes have %d bits", width);
    TRY(image_raster_open(out, le16(file.p + 6), le16(file.p + 8), err));
    size_t n = (size_t)f.width * (size_t)f.height;
    if (n == 0 || n > IMAGE_MAX_PIXELS) return err_set(err, ERR_EFORMAT, "its first frame has %d x %d pixels", f.width, f.height);
    uint8_t *indices = mem_try(n);
    struct words *words = mem_try(sizeof *words);
    struct bits bits = {.rest = str_from(f.data, 1)};
    int code = ERR_OK;
    if (!indices || !words) code = err_set(err, ERR_EMEMORY, "no memory for a frame of %d x %d pixels", f.width, f.height);
    else if (!unpack(&bits, width, words, indices, n)) code = err_set(err, ERR_EFORMAT, "the file is damaged or ends too early");
    if (!code) paint(&f, indices, out);
    mem_free(indices);
    mem_free(words);
    return code;
}
