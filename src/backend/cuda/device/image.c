/* Reading kernels.bin. The embedded file is ours, but --kernels and tests hand over others, so every number is checked. */
#include "backend/cuda/device/image.h"

#include "base/arena.h"
#include "base/hash.h"

#include <zstd.h>

static int check_row(const struct cuda_pack *p, int i, const char *name, struct err *err) {
    const struct pack_row *r = &p->rows[i];
    if (!memchr(r->name, 0, sizeof r->name) || r->name[0] == 0) return err_set(err, ERR_EFORMAT, "%s: image %d has no name", name, i);
    if (r->kind > PACK_PTX || r->arch < 30 || r->arch > 999)
        return err_set(err, ERR_EFORMAT, "%s: image %d (%s) is of an unknown kind", name, i, r->name);
    if (r->offset > p->bytes || r->packed_bytes > p->bytes - r->offset || r->raw_bytes > PACK_MAX_RAW_BYTES)
        return err_set(err, ERR_EFORMAT, "%s: image %d (%s) lies outside the file", name, i, r->name);
    return 0;
}

int cuda_pack_open(struct cuda_pack *pack, const void *data, size_t bytes, const char *name, struct err *err) {
    *pack = (struct cuda_pack){.data = data, .bytes = bytes};
    struct pack_header h;
    if (bytes == 0) return 0;
    if (bytes < sizeof h || memcmp(data, PACK_MAGIC, 8) != 0) return err_set(err, ERR_EFORMAT, "%s is no kernel file", name);
    memcpy(&h, data, sizeof h);
    if (h.bytes != bytes)
        return err_set(err, ERR_EFORMAT, "%s has %zu bytes, its header says %llu", name, bytes, (unsigned long long)h.bytes);
    if (h.n_images > PACK_MAX_IMAGES || h.n_images * sizeof(struct pack_row) > bytes - sizeof h)
        return err_set(err, ERR_EFORMAT, "%s: %u images do not fit into it", name, h.n_images);
    pack->rows = (const void *)(pack->data + sizeof h);
    pack->toolkit = (int)h.toolkit;
    for (int i = 0; i < (int)h.n_images; i++) TRY(check_row(pack, i, name, err));
    pack->n_rows = (int)h.n_images;
    return 0;
}

static bool fits(const struct pack_row *r, int device, int driver_version) {
    if (driver_version < (int)r->min_driver) return false;
    if (r->kind == PACK_PTX) return r->arch <= device;
    return cuda_arch_runs((struct cuda_arch){r->arch, (char)r->suffix}, device);
}

/* Machine code before PTX, then the higher architecture, then the special before the plain. */
static bool better(const struct pack_row *a, const struct pack_row *b) {
    if (!b || a->kind != b->kind) return !b || a->kind < b->kind;
    return a->arch != b->arch ? a->arch > b->arch : a->suffix > b->suffix;
}

const struct pack_row *cuda_image_find(const struct cuda_pack *pack, struct str name, int device, int driver_version) {
    const struct pack_row *best = NULL;
    for (int i = 0; i < pack->n_rows; i++) {
        const struct pack_row *r = &pack->rows[i];
        if (str_is(name, r->name) && fits(r, device, driver_version) && better(r, best)) best = r;
    }
    return best;
}

int cuda_image_unpack(const struct cuda_pack *pack, const struct pack_row *row, void **out, size_t *out_bytes, struct err *err) {
    char *image = mem_try((size_t)row->raw_bytes + 1);
    if (!image)
        return err_set(err, ERR_EMEMORY, "no memory for kernel image %s (%llu bytes)", row->name, (unsigned long long)row->raw_bytes);
    size_t n = ZSTD_decompress(image, (size_t)row->raw_bytes, pack->data + row->offset, (size_t)row->packed_bytes);
    if (ZSTD_isError(n) || n != row->raw_bytes || hash_bytes(image, n, 0) != row->hash) {
        mem_free(image);
        return err_set(err, ERR_EFORMAT, "kernel image %s is damaged", row->name);
    }
    *out = image;
    *out_bytes = n;
    return 0;
}

bool cuda_pack_covers(const struct cuda_pack *pack, int device, int driver_version, struct cuda_arch *out_arch) {
    const struct pack_row *best = NULL;
    for (int i = 0; i < pack->n_rows; i++)
        if (fits(&pack->rows[i], device, driver_version) && better(&pack->rows[i], best)) best = &pack->rows[i];
    if (best) *out_arch = (struct cuda_arch){best->arch, best->kind == PACK_PTX ? 'p' : (char)best->suffix};
    return best != NULL;
}

static bool seen_before(const struct cuda_pack *pack, int i) {
    const struct pack_row *rows = pack->rows;
    for (int k = 0; k < i; k++)
        if (rows[k].kind == rows[i].kind && rows[k].arch == rows[i].arch && rows[k].suffix == rows[i].suffix) return true;
    return false;
}

static int put_archs(const struct cuda_pack *pack, enum pack_kind kind, struct sb *out) {
    int n = 0;
    for (int last = 0; last >= 0;) { /* each turn finds the next higher number, since the rows are sorted by name */
        int next = -1;
        for (int i = 0; i < pack->n_rows; i++) {
            const struct pack_row *r = &pack->rows[i];
            int key = r->arch * 256 + r->suffix;
            if (r->kind == kind && !seen_before(pack, i) && key > last && (next < 0 || key < next)) next = key;
        }
        last = next;
        char text[16];
        if (next < 0) break;
        cuda_arch_format((struct cuda_arch){next / 256, (char)(next % 256)}, text);
        sb_fmt(out, "%s%s", n++ ? " " : "", text);
    }
    return n;
}

void cuda_pack_describe(const struct cuda_pack *pack, struct sb *out) {
    int n = put_archs(pack, PACK_CUBIN, out);
    struct sb ptx = {0};
    if (put_archs(pack, PACK_PTX, &ptx)) sb_fmt(out, "%sPTX %s", n++ ? " and " : "", ptx.p);
    if (n == 0) sb_puts(out, "none");
    sb_free(&ptx);
}
