/* Tokenizers: text to token ids and back, equal to Hugging Face `tokenizers`, SentencePiece and tiktoken.
 *
 * A `struct tok` is built once from the bytes of tokenizer.json, tokenizer.model or a tiktoken file, and is immutable
 * afterwards: any number of threads may use it at the same time. What changes lives in the caller's memory: the ids, the
 * streaming decoder, and `struct tok_work`, optional working memory that makes many calls in a row faster.
 *
 * Text is UTF-8. Invalid bytes in the input are read as U+FFFD, one for each maximal invalid part.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_TOKENIZER_H
#define MLXCEL_TEXT_TOKENIZER_TOKENIZER_H

#include "base/str.h"

struct tok;

/* ---- loading ---------------------------------------------------------------------------------------------------- */

/* `config_json` is tokenizer_config.json (names of bos, eos ...), or empty. Components that are not known are refused by
 * name. The texts need not outlive the call. */
int tok_load_json(struct tok **out, struct str json, struct str config_json, struct err *err);
/* SentencePiece's tokenizer.model, BPE and Unigram. Gives what the SentencePiece library gives. */
int tok_load_sentencepiece(struct tok **out, struct str model, struct str config_json, struct err *err);
/* A tiktoken file: lines of base64 and rank. `pattern` splits the text (empty: cl100k's); special tokens come from
 * config_json's added_tokens_decoder. */
int tok_load_tiktoken(struct tok **out, struct str file, struct str pattern, struct str config_json, struct err *err);
/* Decides by content which of the three the file is. */
int tok_load_any(struct tok **out, struct str file, struct str config_json, struct err *err);
void tok_destroy(struct tok *t); /* NULL is fine */

/* ---- encoding --------------------------------------------------------------------------------------------------- */

struct tok_ids { /* zeroed storage is empty */
    int32_t *p;
    size_t n, capacity;
};
void tok_ids_put(struct tok_ids *ids, int32_t id);
void tok_ids_free(struct tok_ids *ids);

enum tok_flags {
    TOK_ADD_SPECIAL = 1,   /* the post-processor adds bos and the like */
    TOK_PARSE_SPECIAL = 2, /* special tokens that are written in the text become tokens */
    TOK_ADD_BOS = 4,       /* bos also where the post-processor leaves it out and tokenizer_config.json asks for it */
};

/* Appends to *out. Without TOK_PARSE_SPECIAL, special tokens in the text are ordinary text, as with the reference's
 * encode_special_tokens; added tokens that are not special are recognised in both cases. */
int tok_encode(const struct tok *t, struct str text, unsigned flags, struct tok_ids *out, struct err *err);

/* Two texts as one, as the post-processor puts them together; a type for each id. ERR_EUNSUPPORTED where it does not say how. The second text is cut
 * where all would be more than `most` ids, and `cuts` is set. */
struct tok_pair {
    struct str first, second;
    size_t most; /* 0: any number */
    bool cuts;
};
int tok_encode_pair(const struct tok *t, const struct tok_pair *pair, struct tok_ids *out, struct tok_ids *out_types, struct err *err);

/* A part of a text and whether it came from the template (trusted) or from a user. All parts are tokenized as one
 * continuous text; but an added or special token is recognised only where all of its bytes are trusted. What a user
 * types never becomes a control token. (Exception, because it carries no control: added tokens that are white space
 * alone, such as Gemma's runs of newlines, are recognised everywhere.) */
struct tok_span {
    struct str text;
    bool trusted;
};

/* Working memory for one thread: buffers and a cache of words. It adapts to the tokenizer it is used with. */
struct tok_work;
struct tok_work *tok_work_create(void);
void tok_work_destroy(struct tok_work *w);

/* work may be NULL. */
int tok_encode_spans(const struct tok *t, struct tok_work *work, const struct tok_span *spans, size_t n_spans, unsigned flags,
                     struct tok_ids *out, struct err *err);

/* ---- decoding --------------------------------------------------------------------------------------------------- */

/* Appends the text of the ids. Ids that are not in the vocabulary give nothing, as with the reference. */
int tok_decode(const struct tok *t, const int32_t *ids, size_t n, bool skip_special, struct sb *out, struct err *err);

/* Decoding as ids arrive. Each push appends complete characters only, and no more than is certain; all of the output
 * together equals tok_decode of all ids. */
enum { TOK_STREAM_STAGES = 12 };
struct tok_stream_stage {
    struct sb hold;     /* text that waits for what follows */
    uint64_t n_seen;    /* tokens (or characters) so far */
    struct sb previous; /* CTC: the token before */
};
struct tok_match_state; /* of regular expressions in decoders */
struct tok_stream {
    const struct tok *t;
    bool skip_special;
    struct tok_stream_stage stages[TOK_STREAM_STAGES];
    uint64_t room;                            /* bytes that a stage may have been given by now, ... */
    uint64_t n_passed[TOK_STREAM_STAGES + 1]; /* ... and that it was given; the last is the output */
    struct tok_match_state *match;
    struct sb *out;
};
void tok_stream_init(struct tok_stream *s, const struct tok *t, bool skip_special);
/* Right after init: the ids go on with a text that is not pushed. A space at the front of the first token then stays; at the start of a text
 * many tokenizers take it off. The text is that of tok_token_bytes, token by token. */
void tok_stream_continue(struct tok_stream *s);
int tok_stream_push(struct tok_stream *s, int32_t id, struct sb *out, struct err *err);
int tok_stream_flush(struct tok_stream *s, struct sb *out, struct err *err); /* afterwards it is as after init */
void tok_stream_free(struct tok_stream *s);

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

/* Highest id + 1, added tokens included; there may be holes. */
size_t tok_vocab_size(const struct tok *t);
/* The id of a token as it is written in the vocabulary (byte-level: "Ġthe"), or -1. */
int32_t tok_id_of(const struct tok *t, struct str token);
/* The token as it is written; {NULL, 0} where the vocabulary has none. */
struct str tok_token_text(const struct tok *t, int32_t id);
/* The bytes that the token stands for inside a text ("Ġthe" is " the", "<0x0A>" is a newline): for grammars. Special
 * tokens stand for nothing and give {"", 0}; ids that are not in the vocabulary {NULL, 0}. */
struct str tok_token_bytes(const struct tok *t, int32_t id);
bool tok_is_special(const struct tok *t, int32_t id);

/* True when TOK_ADD_SPECIAL would put bos before the text. */
bool tok_adds_bos(const struct tok *t);

#endif
