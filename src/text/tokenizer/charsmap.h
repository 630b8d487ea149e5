/* SentencePiece's precompiled_charsmap: a double array from byte sequences to replacements. */
#ifndef MLXCEL_TEXT_TOKENIZER_CHARSMAP_H
#define MLXCEL_TEXT_TOKENIZER_CHARSMAP_H

#include "base/str.h"

struct tok_charsmap {
    const uint32_t *units;
    size_t n_units;
    struct str pool; /* replacements, each ended by a NUL */
};

/* The blob: size of the array in bytes, the array, the pool. Copied. */
int tok_charsmap_init(struct arena *a, struct str blob, struct tok_charsmap *out, struct err *err);
int tok_charsmap_base64(struct arena *a, struct str text, struct tok_charsmap *out, struct err *err);
/* The shortest (or longest) key that s begins with: its replacement, and its length; {NULL, 0} when there is none. s is valid UTF-8; keys
 * that end inside of one of its characters do not count. */
struct str tok_charsmap_find(const struct tok_charsmap *m, struct str s, bool longest, size_t *out_len);

#endif
