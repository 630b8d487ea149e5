/* The table of mixers. */
#include "model/mixer.h"

const struct mixer *const mixers[N_MIXERS] = {
    [MIX_ATTENTION] = &attention_mixer,
    [MIX_LATENT] = &latent_mixer,
};

static const struct {
    char letter;
    enum mixer_kind kind;
} letters[] = {
    {'F', MIX_ATTENTION}, {'S', MIX_ATTENTION}, {'C', MIX_ATTENTION}, {'L', MIX_LATENT}, {'D', MIX_DELTA},
    {'M', MIX_SSD},       {'N', MIX_SCAN},      {'K', MIX_CONV},      {'G', MIX_LIGHTNING}, {'-', MIX_NONE},
};

enum mixer_kind mixer_of(char letter) {
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == letter) return letters[i].kind;
    return N_MIXERS;
}
