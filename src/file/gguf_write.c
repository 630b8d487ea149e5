/* GGUF version 3, little-endian as all machines that this runs on. */
#include "file/gguf_write.h"

static void put(struct sb *b, const void *bytes, size_t n) {
    sb_put(b, str_n(bytes, n));
}

static void put_u32(struct sb *b, uint32_t value) {
    put(b, &value, sizeof value);
}

static void put_u64(struct sb *b, uint64_t value) {
    put(b, &value, sizeof value);
}

static void put_str(struct sb *b, struct str s) {
    put_u64(b, s.n);
    sb_put(b, s);
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_type type) {
    w->n_meta++;
    put_str(&w->meta, str_of(key));
    put_u32(&w->meta, (uint32_t)type);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value) {
    put_key(w, key, GGUF_U32);
    put_u32(&w->meta, value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, double value) {
    put_key(w, key, GGUF_F32);
    gguf_add_f32(w, (float)value);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value) {
    put_key(w, key, GGUF_BOOL);
    sb_putc(&w->meta, value ? 1 : 0);
}

void gguf_put_string(struct gguf_writer *w, const char *key, struct str value) {
    put_key(w, key, GGUF_STRING);
    put_str(&w->meta, value);
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type of, uint64_t n) {
    put_key(w, key, GGUF_ARRAY);
    put_u32(&w->meta, (uint32_t)of);
    put_u64(&w->meta, n);
}

void gguf_add_string(struct gguf_writer *w, struct str value) {
    put_str(&w->meta, value);
}

void gguf_add_i32(struct gguf_writer *w, int32_t value) {
    put(&w->meta, &value, sizeof value);
}

void gguf_add_f32(struct gguf_writer *w, float value) {
    put(&w->meta, &value, sizeof value);
}

static uint64_t filled_up(uint64_t n) {
    return (n + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

uint64_t gguf_put_tensor(struct gguf_writer *w, struct str name, const struct block_type *type, int n_dims, const int64_t *shape) {
    uint64_t at = w->data_bytes, n = 1;
    w->n_tensors++;
    put_str(&w->tensors, name);
    put_u32(&w->tensors, (uint32_t)n_dims);
    for (int i = n_dims - 1; i >= 0; i--) {
        put_u64(&w->tensors, (uint64_t)shape[i]);
        n *= (uint64_t)shape[i];
    }
    put_u32(&w->tensors, type->id);
    put_u64(&w->tensors, at);
    w->data_bytes = filled_up(at + n / type->n * type->bytes);
    return at;
}

void gguf_header(const struct gguf_writer *w, struct sb *out) {
    enum { VERSION = 3 };
    sb_puts(out, "GGUF");
    put_u32(out, VERSION);
    put_u64(out, w->n_tensors);
    put_u64(out, w->n_meta);
    sb_put(out, sb_str(&w->meta));
    sb_put(out, sb_str(&w->tensors));
    while (out->n % GGUF_ALIGNMENT) sb_putc(out, 0);
}

void gguf_writer_free(struct gguf_writer *w) {
    sb_free(&w->meta);
    sb_free(&w->tensors);
}
