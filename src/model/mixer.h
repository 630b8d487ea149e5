/* Mixers: the ways in which a layer lets positions see each other. Each is an algorithm, and so a file with one of
 * these at its foot; a family's pattern names them by letter. */
#ifndef MLXCEL_MODEL_MIXER_H
#define MLXCEL_MODEL_MIXER_H

#include "model/forward.h"

struct mixer {
    const char *name;
    /* Fills the layer's part of the spec: widths, caches, states. */
    int (*resolve)(struct resolver *r, int32_t layer, struct err *err);
    /* Adds to the spec what only the checkpoint shows, before anything is bound; NULL: nothing. */
    int (*settle)(struct loader *l, struct spec *spec, int32_t layer, struct err *err);
    int (*bind)(struct loader *l, int32_t layer, struct err *err);
    struct tensor (*mix)(const struct pass *p, struct tensor x);
    /* Of several ranks, one without a part of the layer: takes part where the others gather. NULL: they do not. */
    void (*join)(const struct pass *p);
    bool is_recurrent; /* it keeps states, no keys and values */
};

/* By enum mixer_kind. MIX_NONE is a mixer that does nothing. */
extern const struct mixer *const mixer_table[N_MIXERS];
extern const struct mixer attention_mixer, latent_mixer, delta_mixer, ssd_mixer, scan_mixer, shortconv_mixer, lightning_mixer, lru_mixer,
    shared_mixer, wkv_mixer, exchange_mixer, mlstm_mixer, compressed_mixer, cross_mixer;

/* The mixer that a pattern's letter stands for; N_MIXERS for an unknown letter.
 * F full attention, S sliding window, C chunks, L latent, D gated delta, M ssd, N selective scan, K short convolution,
 * G lightning, U linear recurrence, H ssd behind a block that layers share, R weighed mean, W memory with exchange, X gated memory, A a window of a
 * compressed model, B with all its entries, P with picked ones, Z pictures, - none, E none in front of experts. */
enum mixer_kind mixer_of(char letter);

/* Embeddings of distances (relative.c): those of a layer, bound with layer -1 first; attention with them. */
int relative_bind(struct loader *l, int32_t layer, struct err *err);
struct tensor relative_attend(const struct pass *p, struct tensor q, struct tensor k, const struct attn_args *usual);

#endif
