/* Tokens of a GGUF file, for the files that write them as tokenizer.json. */
#ifndef MLXCEL_FILE_GGUF_TOKENS_H
#define MLXCEL_FILE_GGUF_TOKENS_H

#include "base/json.h"
#include "file/gguf_open.h"

enum gguf_token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

/* A walk through the tokens with their types and scores. */
struct gguf_tokens {
    const struct gguf_value *texts, *types, *scores;
    uint64_t text_at, type_at, score_at;
    int64_t id;
};

struct gguf_token {
    struct str text;
    int64_t id, type;
    double score;
};

int gguf_tokens_begin(const struct gguf *g, struct gguf_tokens *out, struct err *err);
bool gguf_tokens_next(struct gguf_tokens *t, struct gguf_token *out);

/* ---- pieces of SentencePiece (gguf_pieces.c) ------------------------------------------------------------------------------ */

#define GGUF_PIECES_SPACED "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}"
#define GGUF_PIECES_PREFIXED \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}," GGUF_PIECES_SPACED "]}"
#define GGUF_PIECES_DECODERS \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"
#define GGUF_PIECES_JOINED "{\"type\":\"Sequence\",\"decoders\":[" GGUF_PIECES_DECODERS "]}"
#define GGUF_PIECES_JOINED_STRIPPED \
    "{\"type\":\"Sequence\",\"decoders\":[" GGUF_PIECES_DECODERS ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"

/* A token's text as tokenizer.json has it: the spaces of a user's pieces are marks there. */
void gguf_put_text(struct jsonw *w, const struct gguf_token *t, bool of_pieces);
int gguf_put_pieces(const struct gguf *g, struct str unknown, struct jsonw *w, struct err *err);

/* ---- WordPiece, and pieces of which a text has the likeliest (gguf_words.c) ------------------------------------------------ */

/* A flag of the metadata. */
bool gguf_flag(const struct gguf *g, const char *key, bool absent);

/* What stands around the model in tokenizer.json, without added tokens and what is put around a text. */
void gguf_put_word_parts(const struct gguf *g, struct jsonw *w);
void gguf_put_unigram_parts(const struct gguf *g, struct jsonw *w);
/* The model. unknown: the token for what the vocabulary does not have. */
int gguf_put_words(const struct gguf *g, struct str unknown, struct jsonw *w, struct err *err);
int gguf_put_unigram(const struct gguf *g, int64_t unknown, struct jsonw *w, struct err *err);

#endif
