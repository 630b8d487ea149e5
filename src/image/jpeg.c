/* JPEG, by libjpeg-turbo. */
#include "image/image_internal.h"

#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

enum { SCANS_MAX = 500 }; /* of a progressive file; each of them is a pass over all of its pixels */

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    struct err *err;
};

static void leave(j_common_ptr common) {
    struct reader *r = common->client_data;
    char message[JMSG_LENGTH_MAX];
    common->err->format_message(common, message);
    err_set(r->err, ERR_EFORMAT, "%s", message);
    longjmp(r->back, 1);
}

/* Warnings are about data that can be shown all the same; but a file that ends too early has no picture. */
static void on_message(j_common_ptr common, int level) {
    struct reader *r = common->client_data;
    if (level >= 0 || common->err->msg_code != JWRN_JPEG_EOF) return;
    err_set(r->err, ERR_EFORMAT, "the file ends too early");
    longjmp(r->back, 1);
}

static void on_progress(j_common_ptr common) {
    struct reader *r = common->client_data;
    if (r->jpeg.input_scan_number <= SCANS_MAX) return;
    err_set(r->err, ERR_ELIMIT, "it has more than %d scans", SCANS_MAX);
    longjmp(r->back, 1);
}

static int32_t orientation_of(const struct jpeg_decompress_struct *jpeg) {
    static const char mark[6] = "Exif\0";
    for (const struct jpeg_marker_struct *m = jpeg->marker_list; m; m = m->next) {
        struct str s = str_n((const char *)m->data, m->data_length);
        if (s.n > sizeof mark && memcmp(s.p, mark, sizeof mark) == 0) return image_exif_orientation(str_from(s, sizeof mark));
    }
    return 0;
}

/* A row of printing colours, where 0 is full colour in the files of most programs. */
static void from_cmyk(const uint8_t *row, int32_t n, bool is_inverted, uint8_t *to) {
    for (int32_t x = 0; x < n; x++, row += 4, to += 4) {
        uint32_t flip = is_inverted ? 255 : 0, light = 255 - (row[3] ^ flip);
        for (int k = 0; k < 3; k++) {
            uint32_t product = (row[k] ^ flip) * light + 128;
            to[k] = (uint8_t)(light - (((product >> 8) + product) >> 8));
        }
        to[3] = 255;
    }
}

static void from_rgb(const uint8_t *row, int32_t n, uint8_t *to) {
    for (int32_t x = 0; x < n; x++, row += 3, to += 4) to[0] = row[0], to[1] = row[1], to[2] = row[2], to[3] = 255;
}

static int read_all(struct reader *r, struct str file, struct raster *out, uint8_t **row, struct err *err) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    if (setjmp(r->back)) return err->code;
    jpeg_create_decompress(jpeg);
    jpeg->client_data = r;
    jpeg->progress = &r->progress;
    r->progress.progress_monitor = on_progress;
    jpeg_mem_src(jpeg, (const unsigned char *)file.p, (uint32_t)file.n);
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(jpeg, TRUE);
    TRY(image_raster_open(out, jpeg->image_width, jpeg->image_height, err));
    bool is_cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    *row = mem_alloc((size_t)out->width * 4);
    for (int32_t y = 0; y < out->height; y++) {
        JSAMPROW rows[1] = {*row};
        jpeg_read_scanlines(jpeg, rows, 1);
        if (is_cmyk) from_cmyk(*row, out->width, jpeg->saw_Adobe_marker, image_raster_row(out, y));
        else from_rgb(*row, out->width, image_raster_row(out, y));
    }
    out->orientation = orientation_of(jpeg);
    jpeg_finish_decompress(jpeg);
    return ERR_OK;
}

int image_decode_jpeg(struct str file, struct raster *out, struct err *err) {
    struct reader r = {0};
    struct err why = {0};
    uint8_t *row = NULL;
    r.err = &why;
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.jpeg.client_data = &r;
    r.errors.error_exit = leave;
    r.errors.emit_message = on_message;
    int code = read_all(&r, file, out, &row, &why);
    jpeg_destroy_decompress(&r.jpeg);
    mem_free(row);
    return code ? err_set(err, code, "%s", why.msg) : ERR_OK;
}
