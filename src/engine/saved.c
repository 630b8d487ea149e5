/* The form of a saved cache: head, sizes, checks, places. Knows neither files nor engines. */
#include "engine/saved.h"

#include "base/hash.h"
#include "engine/kv_size.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct saved_class) == 48 && sizeof(struct saved_head) == 64 + 48 * KV_CLASSES_MAX, "the head has no gaps");

static const char magic[8] = "MLXCELKV";

struct saved_head saved_head(uint64_t model, const struct kv_layout *l) {
    struct saved_head h = {.version = SAVED_VERSION,
                           .head_bytes = sizeof h,
                           .model = model,
                           .block_tokens = KV_BLOCK,
                           .n_classes = kv_token_classes(l),
                           .state_bytes = kv_state_bytes(l)};
    memcpy(h.magic, magic, sizeof magic);
    for (int32_t c = 0; c < kv_token_classes(l); c++) {
        const struct kv_class *k = &l->classes[c];
        h.classes[c] = (struct saved_class){
            .n_layers = k->n_layers, .heads = k->heads, .k_width = k->k_width, .v_width = k->v_width, .window = k->window};
    }
    return h;
}

void saved_class_blocks(struct saved_class *k, uint64_t block_bytes, const char *layout) {
    size_t n = strlen(layout);
    k->block_bytes = block_bytes;
    memset(k->layout, 0, sizeof k->layout);
    memcpy(k->layout, layout, n < sizeof k->layout ? n : sizeof k->layout - 1);
}

static int32_t blocks_of(int32_t n_tokens) {
    return (n_tokens + KV_BLOCK - 1) / KV_BLOCK;
}

/* Scales, tokens and what is there, behind the head. */
static uint64_t fixed_bytes(const struct saved_head *h) {
    uint64_t n = ((uint64_t)h->n_scales + (uint64_t)h->n_tokens) * 4 + (uint64_t)h->n_classes * (uint64_t)blocks_of(h->n_tokens);
    return sizeof *h + (n + 7) / 8 * 8;
}

uint64_t saved_bytes(const struct saved_head *h, const int32_t n_there[KV_CLASSES_MAX]) {
    uint64_t n = fixed_bytes(h) + h->state_bytes + sizeof(uint64_t);
    for (int32_t c = 0; c < h->n_classes; c++) n += (uint64_t)n_there[c] * h->classes[c].block_bytes;
    return n;
}

void saved_parts(const struct saved_head *h, const void *data, struct saved *out) {
    const unsigned char *p = data;
    *out = (struct saved){.n_scales = h->n_scales, .n_tokens = h->n_tokens, .n_blocks = blocks_of(h->n_tokens)};
    out->blocks = p + fixed_bytes(h);
    p += sizeof *h;
    out->scales = (const float *)(const void *)p;
    p += (size_t)h->n_scales * 4;
    out->tokens = (const int32_t *)(const void *)p;
    p += (size_t)h->n_tokens * 4;
    for (int32_t c = 0; c < h->n_classes; c++, p += out->n_blocks) out->there[c] = p;
}

static uint64_t sum_of(const void *data, uint64_t n) {
    return hash_bytes(data, (size_t)(n - sizeof(uint64_t)), SAVED_VERSION);
}

void saved_seal(void *data, uint64_t n) {
    uint64_t sum = sum_of(data, n);
    memcpy((unsigned char *)data + n - sizeof sum, &sum, sizeof sum);
}

/* ---- checks --------------------------------------------------------------------------------------------------------------- */

static bool same_class(const struct saved_class *a, const struct saved_class *b) {
    return a->n_layers == b->n_layers && a->heads == b->heads && a->k_width == b->k_width && a->v_width == b->v_width &&
           a->window == b->window;
}

/* What must be the same; the message names the first that is not. */
static int check_same(const struct saved_head *h, const struct saved_reader *r, struct err *err) {
    const struct saved_head *own = &r->own;
    if (h->model != own->model) return err_set(err, ERR_EARG, "the cache was saved by another model, or by other weights of it");
    if (h->n_classes != own->n_classes || h->state_bytes != own->state_bytes || h->block_tokens != own->block_tokens)
        return err_set(err, ERR_EARG, "the cache was saved by a model with other layers");
    if (h->kv_bits != own->kv_bits)
        return err_set(err, ERR_EARG, "the cache was saved with --kv-bits %d, and this one has %d", h->kv_bits ? h->kv_bits : 16,
                       own->kv_bits ? own->kv_bits : 16);
    if (h->precision != own->precision) return err_set(err, ERR_EARG, "the cache was saved with another --precision");
    for (int32_t c = 0; c < h->n_classes; c++) {
        const struct saved_class *a = &h->classes[c], *b = &own->classes[c];
        if (!same_class(a, b)) return err_set(err, ERR_EARG, "the cache was saved by a model with other layers");
        if (a->block_bytes != b->block_bytes || memcmp(a->layout, b->layout, sizeof a->layout))
            return err_set(err, ERR_EARG, "the cache was saved as %.*s, and this one is %.*s: another device or processor",
                           SAVED_LAYOUT_BYTES - 1, a->layout, SAVED_LAYOUT_BYTES - 1, b->layout);
    }
    return ERR_OK;
}

int saved_check_head(const struct saved_head *h, uint64_t file_bytes, const struct saved_reader *r, struct err *err) {
    if (file_bytes < sizeof *h + sizeof(uint64_t) || memcmp(h->magic, magic, sizeof magic))
        return err_set(err, ERR_EFORMAT, "the file is no saved cache");
    if (h->version != SAVED_VERSION || h->head_bytes != sizeof *h)
        return err_set(err, ERR_EFORMAT, "the cache was saved in form %u, and this program reads form %d", (unsigned)h->version,
                       SAVED_VERSION);
    if (h->file_bytes != file_bytes)
        return err_set(err, ERR_EFORMAT, "the file has %llu bytes where it had %llu: it is not whole", (unsigned long long)file_bytes,
                       (unsigned long long)h->file_bytes);
    TRY(check_same(h, r, err));
    if (h->n_scales != 0 && h->n_scales != r->n_adapters)
        return err_set(err, ERR_EARG, "the cache was saved with %d adapters, and the model has %d", h->n_scales, r->n_adapters);
    if (h->n_tokens < 1) return err_set(err, ERR_EFORMAT, "the saved cache has no tokens");
    if (h->n_tokens > r->context)
        return err_set(err, ERR_EARG, "the saved cache has %d tokens, and the context is %d", h->n_tokens, r->context);
    if (h->state_bytes && h->n_tokens % KV_BLOCK) return err_set(err, ERR_EFORMAT, "the saved cache has recurrent state inside a block");
    if (fixed_bytes(h) + h->state_bytes + sizeof(uint64_t) > file_bytes) return err_set(err, ERR_EFORMAT, "the saved cache is damaged");
    return ERR_OK;
}

/* Which blocks are there, and that they make up the file's size. A class without a window has all of them. */
static int check_blocks(const struct saved_head *h, const struct saved *s, uint64_t n, struct err *err) {
    int32_t n_there[KV_CLASSES_MAX] = {0};
    for (int32_t c = 0; c < h->n_classes; c++)
        for (int32_t i = 0; i < s->n_blocks; i++) {
            if (s->there[c][i] > 1 || (!s->there[c][i] && h->classes[c].window == 0))
                return err_set(err, ERR_EFORMAT, "the saved cache lacks a block");
            n_there[c] += s->there[c][i];
        }
    return saved_bytes(h, n_there) == n ? ERR_OK : err_set(err, ERR_EFORMAT, "the saved cache is damaged");
}

int saved_open(const void *data, uint64_t n, const struct saved_reader *r, struct saved *out, struct err *err) {
    struct saved_head h;
    uint64_t sum;
    if (n < sizeof h) return err_set(err, ERR_EFORMAT, "the file is no saved cache");
    memcpy(&h, data, sizeof h);
    TRY(saved_check_head(&h, n, r, err));
    memcpy(&sum, (const unsigned char *)data + n - sizeof sum, sizeof sum);
    if (sum != sum_of(data, n)) return err_set(err, ERR_EFORMAT, "the saved cache is damaged: its sum is wrong");
    saved_parts(&h, data, out);
    TRY(check_blocks(&h, out, n, err));
    for (int32_t i = 0; i < out->n_tokens; i++)
        if (out->tokens[i] < 0 || out->tokens[i] >= r->vocab)
            return err_set(err, ERR_EFORMAT, "token %d of the saved cache is outside the vocabulary", i);
    if (h.state_bytes) out->state = (const float *)(const void *)((const unsigned char *)data + n - sizeof sum - h.state_bytes);
    return ERR_OK;
}
