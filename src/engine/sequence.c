/* Sequences: growth of block tables, freeing behind a window, dropping for preemption. */
#include "engine/sequence.h"

#include "base/hash.h"
#include "engine/sampler.h"
#include "model/spec.h"

#include <assert.h>

static int32_t blocks_for(int32_t n_positions) {
    return (n_positions + KV_BLOCK - 1) / KV_BLOCK;
}

bool sequence_init(struct sequence *s, struct kv *kv, int32_t capacity) {
    *s = (struct sequence){.capacity = capacity, .slot = -1};
    if (kv->layout.n_states > 0) {
        s->slot = kv_slot_get(kv);
        if (s->slot < 0) return false;
    }
    s->tokens = mem_alloc((size_t)capacity * sizeof *s->tokens);
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++)
        s->tables[c] = mem_alloc((size_t)(blocks_for(capacity) + 1) * sizeof **s->tables);
    return true;
}

void sequence_drop(struct sequence *s, struct kv *kv) {
    for (int32_t c = 0; c < kv->layout.n_classes; c++) {
        for (int32_t i = 0; i < s->n_blocks[c]; i++)
            if (s->tables[c][i] >= 0) kv_block_put(kv, c, s->tables[c][i]);
        s->n_blocks[c] = 0;
    }
    s->n_done = 0;
    s->has_states = false;
}

void sequence_free(struct sequence *s, struct kv *kv) {
    sequence_drop(s, kv);
    if (s->slot >= 0) kv_slot_put(kv, s->slot);
    for (int32_t c = 0; c < kv->layout.n_classes; c++) mem_free(s->tables[c]);
    mem_free(s->tokens);
    *s = (struct sequence){.slot = -1};
}

void sequence_append(struct sequence *s, int32_t token) {
    assert(s->n_tokens < s->capacity);
    s->tokens[s->n_tokens++] = token;
}

void sequence_place_pictures(struct sequence *s, const struct picture_rows *pictures, int32_t n, const int32_t *places) {
    s->pictures = pictures;
    s->n_pictures = n;
    s->places = places;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < pictures[i].n; k++)
            s->tokens[pictures[i].first + k] = (int32_t)(hash_pair(pictures[i].hash, (uint64_t)k) & (PICTURE_TOKEN - 1)) | PICTURE_TOKEN;
    int32_t last = -1;
    for (int32_t i = 0; places && i < s->n_prompt * STEP_AXES; i++)
        if (places[i] > last) last = places[i];
    s->place_shift = places ? last + 1 - s->n_prompt : 0;
}

const struct picture_rows *sequence_cut_picture(const struct sequence *s, int32_t n_done) {
    for (int32_t i = 0; i < s->n_pictures; i++) {
        const struct picture_rows *p = &s->pictures[i];
        if (p->both_ways && p->first < n_done && n_done < p->first + p->n) return p;
    }
    return NULL;
}

void sequence_see(struct sequence *s, struct kv *kv, const struct picture_states *states) {
    int32_t c = kv_token_classes(&kv->layout);
    s->states = states;
    for (int32_t i = 0; states && i < states->n_marks; i++) s->tokens[states->marks[i].first] |= PICTURE_TOKEN;
    if (states) s->tables[c] = mem_alloc((size_t)blocks_for(states->n) * sizeof **s->tables);
}

bool sequence_reserve_states(struct sequence *s, struct kv *kv) {
    int32_t c = kv_token_classes(&kv->layout), need = blocks_for(s->states->n);
    if (need - s->n_blocks[c] > kv->pools[c].n_free) return false;
    while (s->n_blocks[c] < need) s->tables[c][s->n_blocks[c]++] = kv_block_get(kv, c);
    return true;
}

bool sequence_reserve(struct sequence *s, struct kv *kv, int32_t n_rows) {
    int32_t need = blocks_for(s->n_done + n_rows);
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++)
        if (need - s->n_blocks[c] > kv->pools[c].n_free) return false;
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++)
        while (s->n_blocks[c] < need) s->tables[c][s->n_blocks[c]++] = kv_block_get(kv, c);
    return true;
}

void sequence_advance(struct sequence *s, struct kv *kv, int32_t n_rows) {
    s->n_done += n_rows;
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++) {
        int32_t window = kv->layout.classes[c].window;
        if (window == 0) continue;
        /* the next row, at n_done, sees n_done - window + 1 and later */
        int32_t gone = (s->n_done - window + 1) / KV_BLOCK;
        for (int32_t i = gone - 1; i >= 0 && s->tables[c][i] >= 0; i--) {
            kv_block_put(kv, c, s->tables[c][i]);
            s->tables[c][i] = -1;
        }
    }
}

static bool table_changes(const struct rope_spec *r, int32_t before, int32_t after, bool exact) {
    if (r->table < 0 || after <= r->original_len) return false;
    return r->scaling == SCALE_LONGROPE ? before <= r->original_len : exact && after != before;
}

void sequence_follow_rope(struct sequence *s, struct kv *kv, const struct spec *spec, bool exact) {
    int32_t before = s->rope_len > s->n_done ? s->rope_len : s->n_done, after = s->n_tokens;
    bool changes = false;
    if (s->n_done == 0 || after <= before) return;
    for (int32_t i = 0; i < spec->n_ropes; i++) changes |= table_changes(&spec->ropes[i], before, after, exact);
    if (!changes) return;
    sequence_drop(s, kv);
    s->rope_len = after;
}

int32_t sequence_rows_alike(const struct sequence *s, const struct spec *spec, bool exact, int32_t n) {
    for (int32_t i = 0; i < spec->n_ropes && !exact; i++) {
        const struct rope_spec *r = &spec->ropes[i];
        if (r->scaling != SCALE_DYNAMIC) continue;
        int32_t alike = s->n_prompt > r->original_len ? s->n_prompt : r->original_len;
        int32_t most = s->n_done < alike ? alike - s->n_done : 1;
        if (n > most) n = most;
    }
    return n;
}
