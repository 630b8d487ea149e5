/* The parts of a tokenizer and how they fit together.
 *
 *   text -> added tokens -> normalizers -> added tokens of normalized text -> pre-tokenizers -> model -> post-processor
 *   ids  -> token strings -> decoders -> text
 *
 * Each part is a small struct with a function pointer; sequences are flattened into arrays when the file is read.
 * (1) Everything reachable from struct tok is immutable after loading. (2) Whatever a call changes lies in struct
 * tok_work. (3) Between the parts, text is valid UTF-8.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_INTERNAL_H
#define MLXCEL_TEXT_TOKENIZER_INTERNAL_H

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocab.h"

#include "base/json.h"

/* What a file may ask for. With these, the work for a byte of text and the memory for a byte of the file are bounded by numbers that no
 * file can change. SECURITY.md lists them; each is several times what known tokenizers have. */
enum {
    TOK_MAX_ID = 1 << 24,       /* ids beyond this are refused */
    TOK_MAX_HOLES = 1 << 16,    /* ids without a token, besides three for each that has one: tables by id have a place for all of them */
    TOK_MAX_PARTS = 64,         /* components in one flattened sequence */
    TOK_MAX_DEPTH = 16,         /* nested sequences in the file */
    TOK_MAX_TOKEN_BYTES = 512,  /* a token that is searched for at every place of a text, or cut at every place when the file is read */
    TOK_MAX_WORD_BYTES = 4096,  /* any other token */
    TOK_MAX_PART_BYTES = 256,   /* a string of a component: what it looks for, puts in the place of something, or before it */
    TOK_MAX_POST_IDS = 256,     /* ids around a text */
    TOK_MAX_GROWTH = 64,        /* times a text may grow on its way to the model, ... */
    TOK_MAX_GROWTH_FREE = 4096, /* ... and bytes that it may grow by in any case */
    TOK_MAX_SPOKEN = 8,         /* times a token may grow on its way through the decoders, ... */
    TOK_MAX_SPOKEN_FREE = 16,   /* ... as if each were so many bytes longer */
};

/* ---- text between the parts ------------------------------------------------------------------------------------- */

/* A stretch of text. `mark`, where it is not NULL, has a byte for every byte of text: 1 trusted, 0 not. */
struct tok_text {
    struct str s;
    const uint8_t *mark;
    bool at_start; /* begins where the whole input begins (Metaspace, "first") */
};

/* The two buffers that normalizers write to in turn. */
struct tok_buf {
    struct sb text, mark;
};

struct tok_match_state; /* pattern.c: PCRE2's match data */

struct tok_word_cache {       /* see word_cache.h */
    int small_bits, big_bits; /* of the numbers of slots */
    struct tok_small_slot *small;
    struct tok_big_slot *big;
};

struct tok_work {
    struct sb repaired, joined, joined_mark;
    struct tok_buf norm[2];
    int i_norm;       /* the buffer that the next normalizer writes to */
    size_t norm_room; /* bytes that a normalizer may write */
    size_t pre_room;  /* bytes that pre-tokenizers may write for this piece, all together */
    struct tok_cells cells;
    struct sb pre[TOK_MAX_PARTS]; /* text that a pre-tokenizer rewrote, by stage */
    struct tok_match_state *match;
    const char *end; /* of the memory that the model's piece lies in: how far it may read */
    /* models */
    struct tok_word_cache cache;
    uint64_t cache_owner; /* serial number of the tokenizer whose words are in the cache */
    bool keep;            /* outlives the call: worth a full cache */
    void *scratch;        /* symbols of a word, nodes of a lattice */
    size_t scratch_bytes;
    void *heap;
    size_t heap_bytes;
};

/* The bytes that a text may become: for a file, another text is a way to fill the memory. */
size_t tok_growth_room(size_t n_bytes);
int tok_growth_fail(const char *what, struct err *err);

/* At least `bytes` of scratch memory in *p; contents are not kept. ERR_EMEMORY when there is none. */
int tok_scratch(void **p, size_t *have, size_t bytes, struct err *err);

/* ---- parts ------------------------------------------------------------------------------------------------------ */

struct tok_norm {
    const char *name;
    int (*run)(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err);
    void (*destroy)(struct tok_norm *self); /* optional */
    union {
        enum tok_form form;
        struct {
            struct tok_pattern *pattern;
            struct str content;
            char single; /* the pattern, where it is one ASCII character; else 0 */
        } replace;
        struct str prepend;
        struct {
            bool left, right;
        } strip;
        struct {
            bool clean, chinese, accents, lower;
        } bert;
        struct tok_charsmap *charsmap;
        struct {
            struct tok_charsmap *charsmap; /* NULL: none */
            struct tok_trie *kept;         /* user-defined symbols pass unchanged; NULL: none */
            bool dummy_prefix, one_space, escape, suffix;
        } spm;
    } u;
};

struct tok_pre_run;

struct tok_pre {
    const char *name;
    int (*split)(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err);
    void (*destroy)(struct tok_pre *self); /* optional */
    struct tok_pattern *pattern;
    uint32_t flag;      /* of the characters that are the delimiter, where there is no pattern */
    uint32_t delimiter; /* one character; 0 = none */
    int behavior;       /* enum tok_behavior */
    bool invert, add_prefix_space, rewrite_bytes;
    int scheme;    /* Metaspace: enum tok_scheme */
    bool split_on; /* Metaspace: split */
    struct str replacement;
    size_t length; /* FixedLength */
};

enum tok_behavior { BEHAVIOR_REMOVED, BEHAVIOR_ISOLATED, BEHAVIOR_PREVIOUS, BEHAVIOR_NEXT, BEHAVIOR_CONTIGUOUS };
enum tok_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct tok_pre_run {
    const struct tok *t;
    struct tok_work *w;
    struct tok_ids *out;
};
/* Hands a piece to the stage after `stage`, or to the model after the last. Empty pieces vanish. */
int tok_pre_emit(struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err);
/* The model takes bytes itself: the last stage, a ByteLevel, need not rewrite them, and goes if it does nothing else. */
void tok_pre_own_bytes(struct tok *t);

struct tok_model {
    const char *name;
    int (*encode)(const struct tok *t, struct tok_work *w, struct str piece, struct tok_ids *out, struct err *err);
    void *self;
};

struct tok_dec {
    const char *name;
    /* A token is a run of `text` calls closed by `end`; what passes on goes to the next stage by tok_dec_text/_end. */
    int (*text)(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err);
    int (*end)(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err);
    int (*flush)(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err); /* optional */
    void (*destroy)(struct tok_dec *self);                                                         /* optional */
    struct tok_pattern *pattern;
    struct str content, prefix;
    uint32_t code;
    size_t start, stop;
    bool cleanup, drop_first, one_space;
};
extern const struct tok_dec tok_dec_spm; /* SentencePiece's own decoding */
int tok_run_spm(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err);
int tok_dec_text(struct tok_stream *s, size_t stage, struct str text, struct err *err);
int tok_dec_end(struct tok_stream *s, size_t stage, struct err *err);

/* The ids around the text: what comes before and after it, from all post-processors together. */
struct tok_post {
    struct tok_ids before, after;
    /* of two texts: what comes before the first, between them, behind the second, with a type for each id; and the types of the texts */
    struct tok_ids pair[3], pair_types[3];
    int32_t text_types[2];
    bool has_pair;
};

/* ---- added tokens ----------------------------------------------------------------------------------------------- */

struct tok_added_token {
    struct str content;    /* as in the file */
    struct str normalized; /* what is searched for when .normalize; also what decoding writes */
    int32_t id;
    bool single_word, lstrip, rstrip, normalize, special;
    bool blank;   /* white space alone, and not special */
    bool literal; /* searched for in normalized text as it is written */
};

struct tok_added {
    struct tok_added_token *tokens;
    size_t n;
    struct tok_trie raw, normalized; /* values are positions in tokens */
    struct tok_table by_content;
    struct str *contents;
};

struct tok_added_match {
    size_t start, end; /* with the white space that lstrip and rstrip take */
    const struct tok_added_token *token;
};
enum tok_trust { TRUST_ALL, TRUST_NO_SPECIAL, TRUST_MARKS };
/* The next added token at or after *at in the text; false when there is none. *at is moved behind it. `from` is where
 * the previous match ended. */
bool tok_added_next(const struct tok_added *a, const struct tok_trie *trie, struct tok_text text, enum tok_trust trust, size_t *at,
                    size_t from, struct tok_added_match *out);

/* ---- the whole -------------------------------------------------------------------------------------------------- */

enum tok_id_flag { ID_SPECIAL = 1, ID_ADDED = 2 };

struct tok {
    struct arena arena;
    uint64_t serial;
    struct tok_added added;
    struct tok_norm *norms;
    size_t n_norms;
    struct tok_pre *pres;
    size_t n_pres;
    struct tok_model model;
    struct tok_post post;
    struct tok_dec *decs;
    size_t n_decs;
    bool no_decoder; /* token strings are joined by spaces */
    /* by id */
    size_t n_ids;
    struct str *text;  /* as decoding sees it; {NULL, 0} for holes */
    struct str *bytes; /* what tok_token_bytes answers */
    uint8_t *id_flags;
    /* the model's own vocabulary */
    size_t n_vocab;    /* entries */
    struct str *vocab; /* [n_ids of the model] by id: raw bytes where byte_level, else the token string */
    size_t n_vocab_ids;
    struct tok_table table; /* over vocab */
    struct str *written;    /* by id: the token strings of the file; vocab itself where that is not byte-level */
    struct tok_table odd;   /* over written: byte-level tokens that are outside the alphabet and not in the table */
    bool byte_level;        /* vocab holds raw bytes and the last ByteLevel pre-tokenizer is the model's own step */
    int32_t bos, eos, pad, unk;
    bool config_bos; /* add_bos_token of tokenizer_config.json */
};

/* Byte-level alphabet: the code point that stands for a byte, and back (-1 for others). */
uint32_t tok_byte_char(unsigned char byte);
static inline int tok_char_byte(uint32_t c) {
    if (c < 0x7F) return c > 0x20 ? (int)c : -1;
    if (c < 0x100) return c > 0xA0 && c != 0xAD ? (int)c : -1;
    if (c < 0x121) return (int)(c - 0x100);
    if (c < 0x143) return (int)(c - 0x121 + 0x7F);
    return c == 0x143 ? 0xAD : -1;
}
/* The id of "<0xNN>" in the model's vocabulary, or -1. */
int32_t tok_byte_fallback_id(const struct tok *t, unsigned char byte);
/* The byte of a token "<0xNN>" (any case), or -1. */
int tok_byte_token(struct str token);
/* Appends the bytes of a base64 text; false when it is none. */
bool tok_base64(struct str text, struct sb *out);

/* Loading. The vocabulary has been read into (tokens, ids) before; these build the parts from JSON. */
int tok_read_normalizers(struct tok *t, yyjson_val *root, struct err *err);
int tok_read_pre_tokenizers(struct tok *t, yyjson_val *root, struct err *err);
int tok_read_decoders(struct tok *t, yyjson_val *root, struct err *err);
void tok_post_free_pair(struct tok_post *post);
int tok_read_post_processor(struct tok *t, yyjson_val *root, struct err *err);
int tok_read_added(struct tok *t, yyjson_val *list, struct err *err);
int tok_read_config(struct tok *t, struct str config_json, struct err *err);
/* The added_tokens_decoder of tokenizer_config.json, with the ids that it states: for files that hold no added tokens. */
int tok_read_added_decoder(struct tok *t, yyjson_val *config, struct err *err);
/* The id of a token in the model's own vocabulary, as it is written; -1 when absent. */
int32_t tok_model_id(const struct tok *t, struct str token);
int tok_added_room(struct tok *t, size_t n, struct err *err);
int tok_added_put(struct tok *t, struct tok_added_token token, struct err *err);
/* Programmatic parts, for SentencePiece and tiktoken. */
struct tok *tok_new(void);
int tok_finish(struct tok *t, struct err *err); /* tables by id, serial number */
int tok_added_build(struct tok *t, struct err *err);
int tok_build_bytes(struct tok *t, struct err *err);
int tok_normalize(const struct tok *t, struct tok_work *w, struct tok_text *text, struct err *err);

/* A string of a component, copied: `absent` when it is not there, an error when it is longer than TOK_MAX_PART_BYTES. */
int tok_part_str(struct tok *t, yyjson_val *part, const char *key, struct str absent, struct str *out, struct err *err);
/* A component's "type", or an error that names `what`. */
int tok_type_of(yyjson_val *part, const char *what, struct str *out, struct err *err);
int tok_unknown(struct str type, const char *what, struct err *err);

/* models */
struct tok_bpe_options {
    struct str unk_token, prefix, suffix; /* p == NULL: none */
    bool fuse_unk, byte_fallback, ignore_merges;
};
struct tok_merge {
    int32_t left, right, merged;
    uint32_t rank; /* lowest first; pairs of equal rank from left to right */
};
int tok_bpe_init(struct tok *t, const struct tok_bpe_options *options, const struct tok_merge *merges, size_t n_merges, struct err *err);
int tok_read_bpe(struct tok *t, yyjson_val *model, struct err *err);
int tok_read_wordpiece(struct tok *t, yyjson_val *model, struct err *err);
int tok_read_wordlevel(struct tok *t, yyjson_val *model, struct err *err);
int tok_read_unigram(struct tok *t, yyjson_val *model, struct err *err);
struct tok_unigram_options {
    const double *scores; /* [n_vocab_ids] */
    const bool *skip;     /* tokens that text never becomes; NULL: none */
    double unk_score;
    int32_t unk; /* -1: none */
    bool byte_fallback;
    bool single; /* add in single precision, as SentencePiece does */
};
int tok_unigram_init(struct tok *t, const struct tok_unigram_options *o, struct err *err);
/* No token of the vocabulary is longer than those that are searched for may be. */
int tok_check_lengths(const struct tok *t, struct err *err);
/* Reads {"token": id} into t->vocab and t->table (raw bytes where t->byte_level). */
int tok_read_vocab(struct tok *t, yyjson_val *vocab, struct err *err);
int tok_set_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err);
/* Tokens are raw bytes; t->byte_level is set. */
int tok_set_raw_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err);

/* A byte-level vocabulary by rank: load_tiktoken.c builds it, load_tekken.c reads another file of the kind. */
struct tok_ranks {
    struct sb bytes;
    size_t *starts; /* [n + 1] in bytes */
    int32_t *ids;   /* ascending as the ranks */
    size_t n;
};
int tok_build_ranks(struct tok *t, struct arena *a, const struct tok_ranks *r, struct str pattern, struct err *err);
bool tok_is_tekken(struct str json);
int tok_load_tekken(struct tok **out, struct str json, struct str config_json, struct err *err);

#endif
