/* Texts that must differ from each other: words, and sets of them. */
#include "text/grammar/machine.h"

uint32_t gram_word_add(struct gram_machine *m, uint32_t word, uint8_t byte) {
    if (word == WORD_NONE) return WORD_NONE;
    const struct word *before = records_get(&m->words, word);
    struct word w = {word, byte, before->length + 1};
    return gram_records_put(&m->words, &w);
}

static const struct wordset *set_of(const struct gram_machine *m, uint32_t set) {
    return records_get(&m->wordsets, set);
}

uint32_t gram_wordset_add(struct gram_machine *m, uint32_t set, uint32_t word) {
    struct wordset s = {set, word, set_of(m, set)->n + 1};
    return gram_records_put(&m->wordsets, &s);
}

uint32_t gram_wordset_last(const struct gram_machine *m, uint32_t set) {
    return set_of(m, set)->word;
}

uint32_t gram_wordset_before(const struct gram_machine *m, uint32_t set) {
    return set_of(m, set)->before;
}

uint32_t gram_wordset_size(const struct gram_machine *m, uint32_t set) {
    return set_of(m, set)->n;
}

bool gram_wordset_has(const struct gram_machine *m, uint32_t set, uint32_t word) {
    for (; set; set = set_of(m, set)->before)
        if (set_of(m, set)->word == word) return true;
    return false;
}

uint32_t gram_wordset_count(const struct gram_machine *m, uint32_t set, uint32_t word) {
    uint32_t length = ((const struct word *)records_get(&m->words, word))->length, n = 0;
    for (; set; set = set_of(m, set)->before) {
        uint32_t other = set_of(m, set)->word;
        const struct word *w = records_get(&m->words, other);
        while (w->length > length) {
            other = w->before;
            w = records_get(&m->words, other);
        }
        n += other == word;
    }
    return n;
}
