/* The table of mixers. */
#include "model/mixer.h"

static int resolve_none(struct resolver *r, int32_t layer, struct err *err) {
    (void)r, (void)layer, (void)err;
    return ERR_OK;
}

static int bind_none(struct loader *l, int32_t layer, struct err *err) {
    (void)l, (void)layer, (void)err;
    return ERR_OK;
}

static struct tensor mix_none(const struct pass *p, struct tensor x) {
    (void)p;
    return x;
}

static const struct mixer no_mixer = {.name = "none", .resolve = resolve_none, .bind = bind_none, .mix = mix_none};

const struct mixer *const mixer_table[N_MIXERS] = {
    [MIX_ATTENTION] = &attention_mixer,
    [MIX_LATENT] = &latent_mixer,
    [MIX_DELTA] = &delta_mixer,
    [MIX_SSD] = &ssd_mixer,
    [MIX_SCAN] = &scan_mixer,
    [MIX_CONV] = &shortconv_mixer,
    [MIX_LIGHTNING] = &lightning_mixer,
    [MIX_LRU] = &lru_mixer,
    [MIX_SHARED] = &shared_mixer,
    [MIX_WKV] = &wkv_mixer,
    [MIX_EXCHANGE] = &exchange_mixer,
    [MIX_MLSTM] = &mlstm_mixer,
    [MIX_COMPRESSED] = &compressed_mixer,
    [MIX_NONE] = &no_mixer,
};

static const struct {
    char letter;
    enum mixer_kind kind;
} letters[] = {
    {'F', MIX_ATTENTION},  {'S', MIX_ATTENTION},  {'C', MIX_ATTENTION}, {'L', MIX_LATENT},    {'D', MIX_DELTA},
    {'M', MIX_SSD},        {'N', MIX_SCAN},       {'K', MIX_CONV},      {'G', MIX_LIGHTNING}, {'U', MIX_LRU},
    {'H', MIX_SHARED},     {'R', MIX_WKV},        {'W', MIX_EXCHANGE},  {'X', MIX_MLSTM},     {'A', MIX_COMPRESSED},
    {'B', MIX_COMPRESSED}, {'P', MIX_COMPRESSED}, {'-', MIX_NONE},      {'E', MIX_NONE},
};

enum mixer_kind mixer_of(char letter) {
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == letter) return letters[i].kind;
    return N_MIXERS;
}
