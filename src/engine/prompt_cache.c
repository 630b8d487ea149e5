/* Jobs about a prompt's cache itself: its blocks and state as bytes (saved.h), from bytes, or given up. On the turning thread. */
#include "engine/engine_internal.h"

/* ---- what can be saved ---------------------------------------------------------------------------------------------------- */

/* Whether the cache of the first n positions can be taken out of that of more. Not with recurrent state, and not where positions have left a window: such
 * a cache stands for one length only, and is saved at a length where a later prompt can go on. */
static bool can_be_cut(const struct engine *e, int32_t n_tokens) {
    const struct kv_layout *l = &e->runner.kv.layout;
    bool can = l->n_states == 0;
    for (int32_t c = 0; c < kv_token_classes(l); c++) can &= l->classes[c].window == 0 || n_tokens < l->classes[c].window;
    return can;
}

int engine_can_save(const struct engine *e, struct err *err) {
    const struct backend_type *type = e->runner.backend->type;
    if (!e->prefix) return err_set(err, ERR_EUNSUPPORTED, "there is no prefix cache");
    if (!type->block_bytes) return err_set(err, ERR_EUNSUPPORTED, "a cache of --backend %s cannot be saved or restored", type->name);
    return ERR_OK;
}

int prompt_cache_check(struct job *j, struct err *err) {
    const struct engine *e = j->engine;
    struct job_spec *s = &j->spec;
    if (s->cache == CACHE_USED) return ERR_OK;
    TRY(engine_can_save(e, err));
    if (j->tree < 0) return err_set(err, ERR_EUNSUPPORTED, "the prompt's adapters have too many different scales to be cached");
    if (s->cache != CACHE_SAVE || can_be_cut(e, s->n_tokens)) return ERR_OK;
    int32_t n = s->n_asked > 0 && s->n_asked < s->n_tokens ? s->n_asked : s->n_tokens;
    s->n_tokens = (n - 1) / KV_BLOCK * KV_BLOCK;
    if (s->n_tokens > 0) return ERR_OK;
    return err_set(err, ERR_EARG, "the prompt has %d tokens, and the cache of this model is saved in steps of %d", n, KV_BLOCK);
}

void engine_saved_reader(const struct engine *e, struct saved_reader *out) {
    const struct runner *r = &e->runner;
    const struct kv_layout *l = &r->kv.layout;
    *out = (struct saved_reader){.n_adapters = r->model->weights.n_adapters, .vocab = r->model->spec.vocab, .context = r->limits.context};
    out->own = saved_head(e->options.identity, l);
    out->own.precision = (int32_t)r->backend->precision;
    out->own.kv_bits = r->backend->kv_bits;
    for (int32_t c = 0; c < kv_token_classes(l) && r->backend->type->block_bytes; c++) {
        const char *layout;
        size_t bytes = r->backend->type->block_bytes(r->backend, c, &layout);
        saved_class_blocks(&out->own.classes[c], bytes, layout);
    }
}

/* ---- saving --------------------------------------------------------------------------------------------------------------- */

static int read_blocks(struct engine *e, const struct sequence *s, const struct saved_head *h, unsigned char *at, struct err *err) {
    struct backend *be = e->runner.backend;
    for (int32_t c = 0; c < h->n_classes; c++)
        for (int32_t i = 0; i < s->n_blocks[c]; i++) {
            if (s->tables[c][i] < 0) continue;
            TRY(be->type->block_read(be, c, s->tables[c][i], at, err));
            at += h->classes[c].block_bytes;
        }
    return h->state_bytes ? be->type->slot_read(be, s->slot, (float *)(void *)at, err) : ERR_OK;
}

static int collect(struct engine *e, struct job *j, struct err *err) {
    const struct sequence *s = &j->seq;
    struct saved_reader reader;
    struct saved parts;
    int32_t n_there[KV_CLASSES_MAX] = {0}, n_blocks = (s->n_tokens + KV_BLOCK - 1) / KV_BLOCK;
    if (!prefix_takes(e->prefix, s))
        return err_set(err, ERR_EUNSUPPORTED, "positions of this prompt depend on its length, and its cache is of no use to another");
    engine_saved_reader(e, &reader);
    struct saved_head *h = &reader.own;
    h->n_tokens = s->n_tokens;
    h->n_scales = s->adapters ? reader.n_adapters : 0;
    for (int32_t c = 0; c < h->n_classes; c++)
        for (int32_t i = 0; i < n_blocks; i++) n_there[c] += s->tables[c][i] >= 0;
    h->file_bytes = saved_bytes(h, n_there);
    if (h->file_bytes > SIZE_MAX || !(j->saved = mem_try((size_t)h->file_bytes)))
        return err_set(err, ERR_EMEMORY, "no memory for the %llu bytes of the cache", (unsigned long long)h->file_bytes);
    memcpy(j->saved, h, sizeof *h);
    saved_parts(h, j->saved, &parts);
    if (h->n_scales) memcpy((float *)parts.scales, s->adapters, (size_t)h->n_scales * sizeof(float));
    memcpy((int32_t *)parts.tokens, s->tokens, (size_t)s->n_tokens * sizeof *s->tokens);
    for (int32_t c = 0; c < h->n_classes; c++)
        for (int32_t i = 0; i < n_blocks; i++) ((unsigned char *)parts.there[c])[i] = s->tables[c][i] >= 0;
    TRY(read_blocks(e, s, h, (unsigned char *)parts.blocks, err));
    saved_seal(j->saved, h->file_bytes);
    j->n_saved = (size_t)h->file_bytes;
    return ERR_OK;
}

enum job_finish prompt_cache_collect(struct engine *e, struct job *j) {
    return collect(e, j, &j->why) ? JOB_ERROR : JOB_STOP;
}

/* ---- restoring ------------------------------------------------------------------------------------------------------------ */

static int no_room(const struct saved *f, struct err *err) {
    return err_set(err, ERR_EBUSY, "the cache has no room for %d tokens now; try again when fewer requests run", f->n_tokens);
}

/* Takes a block for each block of the file. Cached blocks are given up for them, but only if that will be enough. */
static int take_blocks(struct engine *e, const struct saved *f, struct sequence *s, struct err *err) {
    struct kv *kv = &e->runner.kv;
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++) {
        int32_t need = 0;
        for (int32_t i = 0; i < f->n_blocks; i++) need += f->there[c][i];
        if (need > kv->pools[c].n_free + kv->pools[c].n_idle) return no_room(f, err);
    }
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++)
        for (int32_t i = 0; i < f->n_blocks; i++) {
            while (f->there[c][i] && kv->pools[c].n_free == 0)
                if (!prefix_evict(e->prefix, c)) return no_room(f, err);
            s->tables[c][i] = f->there[c][i] ? kv_block_get(kv, c) : -1;
            s->n_blocks[c] = i + 1;
        }
    return ERR_OK;
}

static int write_blocks(struct engine *e, const struct saved *f, const struct sequence *s, struct err *err) {
    struct backend *be = e->runner.backend;
    const unsigned char *at = f->blocks;
    const char *layout;
    for (int32_t c = 0; c < kv_token_classes(&e->runner.kv.layout); c++) {
        size_t bytes = be->type->block_bytes(be, c, &layout);
        for (int32_t i = 0; i < f->n_blocks; i++) {
            if (!f->there[c][i]) continue;
            TRY(be->type->block_write(be, c, s->tables[c][i], at, err));
            at += bytes;
        }
    }
    return f->state ? be->type->slot_write(be, s->slot, f->state, err) : ERR_OK;
}

static int restore(struct engine *e, struct job *j, struct err *err) {
    const struct saved *f = j->spec.saved;
    struct sequence s;
    if (!sequence_init(&s, &e->runner.kv, f->n_tokens + 1)) return no_room(f, err);
    for (int32_t i = 0; i < f->n_tokens; i++) sequence_append(&s, f->tokens[i]);
    s.n_prompt = f->n_tokens + 1; /* so that recurrent state is kept where it stands */
    s.tree = j->tree;
    int code = take_blocks(e, f, &s, err);
    if (!code) code = write_blocks(e, f, &s, err);
    if (!code) {
        s.n_done = f->n_tokens;
        prefix_put(e->prefix, &s);
        j->n_cached = f->n_tokens;
    }
    sequence_free(&s, &e->runner.kv);
    return code;
}

enum job_finish prompt_cache_change(struct engine *e, struct job *j) {
    if (j->spec.cache == CACHE_RESTORE) return restore(e, j, &j->why) ? JOB_ERROR : JOB_STOP;
    prefix_erase(e->prefix, j->tree, j->spec.tokens, j->spec.n_tokens);
    return JOB_STOP;
}
