/* Constrained output: a grammar says which bytes may come next, and with a vocabulary which tokens.
 *
 * Four front ends (JSON Schema, any JSON object, GBNF, regular expressions) are compiled into one kind of program. Three objects:
 *
 * - struct gram, the compiled grammar. Immutable: threads may share it.
 * - struct gram_vocab, the tokens of a tokenizer by their bytes. Immutable: one per model, shared by all.
 * - struct gram_machine, which runs a grammar: the states that texts have led to, and the masks of tokens that were asked for.
 *   It grows while it is used and belongs to one thread at a time. Requests with the same grammar may share a machine
 *   (under a lock; calls take microseconds) and then share its masks, or have one each.
 *
 * A struct gram_match is one text on its way through a machine: a number for where it stands and one for each token so
 * far. Copying it is copying those numbers, going back is dropping them.
 *
 * What is promised: a text that a match has taken can always be completed to one that the grammar accepts; a text that
 * reached an end is accepted by the grammar, and for JSON Schema is valid by the schema, `format` asserted. What a schema
 * asks for and cannot be held is refused when it is compiled, by name and with the path inside the schema.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_GRAMMAR_H
#define MLXCEL_TEXT_GRAMMAR_GRAMMAR_H

#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

/* ---- compiling ---------------------------------------------------------------------------------------------------------- */

enum gram_kind {
    GRAM_JSON_SCHEMA, /* text: the schema; drafts 4 to 2020-12 */
    GRAM_JSON_OBJECT, /* any JSON object; no text */
    GRAM_GBNF,        /* text: rules, as llama.cpp reads them; `schemas` may be called like rules */
    GRAM_REGEX,       /* text: an expression that the whole output must match */
};

enum { GRAM_SPACE_ANY = 255 };

enum gram_draft { GRAM_DRAFT_AUTO, GRAM_DRAFT_4, GRAM_DRAFT_6, GRAM_DRAFT_7, GRAM_DRAFT_2019, GRAM_DRAFT_2020 };

struct gram_options {      /* gram_defaults() gives what generation uses */
    uint8_t space;         /* at most so many white space characters in a row where JSON allows them; 0: none; GRAM_SPACE_ANY */
    bool outer_space;      /* any white space also before and behind a JSON text */
    bool any_order;        /* members in any order; else as the schema lists them, then those that it does not name */
    bool any_escape;       /* names and strings that the schema says something about may have escapes that they do not need */
    bool draft_formats;    /* a format that the schema's draft does not have is a note; else it is asserted in all drafts */
    enum gram_draft draft; /* GRAM_DRAFT_AUTO: by $schema, else 2020-12 */
    size_t max_text_bytes; /* of the source */
    uint64_t max_work;     /* steps of compiling; about 100 million to the second */
};

struct gram_options gram_defaults(void);
/* For judging a text that somebody wrote: any order, any white space, any spelling of characters. */
struct gram_options gram_judging(void);

struct gram_schema { /* a JSON schema that GBNF rules may call by this name */
    struct str name, text;
    bool is_bare;       /* of strings, which stand without quotes and escapes */
    struct str without; /* and do not hold this text; empty: whatever they hold */
};

struct gram_source {
    enum gram_kind kind;
    struct str text;
    const struct gram_schema *schemas;
    size_t n_schemas;
};

struct gram;
/* Warnings (an unknown format, taken as a note) are appended to *warnings, one per line; it may be NULL. ERR_EUNSUPPORTED and
 * ERR_ELIMIT: the grammar is understood but cannot be held. */
int gram_compile(const struct gram_source *source, const struct gram_options *options, struct sb *warnings, struct gram **out,
                 struct err *err);
void gram_destroy(struct gram *g); /* NULL is fine */

/* ---- the vocabulary ------------------------------------------------------------------------------------------------------ */

struct gram_vocab;
/* Stands before and behind the spelling of a token that is meant as a token; no byte of UTF-8. In the literals of GBNF it is written as
 * U+10FFFF, which no text has. */
#define GRAM_TOKEN_MARK "\xFF"
#define GRAM_TOKEN_CHAR UINT32_C(0x10FFFF)

/* n_tokens: length of the logits, at least the tokenizer's size; ids above its tokens are never allowed. The tokens of `marked` [n_marked],
 * special ones or not, are allowed only where a grammar asks for them by their spelling between marks, and never as the letters of a text. NULL, with an
 * error: there is too little memory. */
struct gram_vocab *gram_vocab_create(const struct tok *t, size_t n_tokens, const int32_t *marked, size_t n_marked, struct err *err);
void gram_vocab_destroy(struct gram_vocab *v); /* NULL is fine */
/* Whether some token's bytes begin with this text, which is not empty, and go on behind it. */
bool gram_vocab_goes_on(const struct gram_vocab *v, struct str text);
/* 32-bit words of a mask; bit i % 32 of word i / 32 is token i. */
size_t gram_mask_words(const struct gram_vocab *v);

/* ---- running -------------------------------------------------------------------------------------------------------------- */

struct gram_machine;
/* g and v must outlive it. v may be NULL: bytes only. The eos tokens are allowed where the text may end; other special tokens never. */
struct gram_machine *gram_machine_create(const struct gram *g, const struct gram_vocab *v, const int32_t *eos, size_t n_eos);
void gram_machine_destroy(struct gram_machine *m); /* NULL is fine */
/* Memory that it holds; whoever shares machines makes a new one for new requests when this has grown large. */
size_t gram_machine_bytes(const struct gram_machine *m);

struct gram_match {
    struct gram_machine *m;
    uint32_t state;
    uint32_t *history; /* states before each token */
    uint32_t n_history, capacity;
    bool has_ended; /* an eos token was taken */
};

void gram_match_init(struct gram_match *t, struct gram_machine *m); /* at the beginning of a text */
void gram_match_free(struct gram_match *t);
void gram_match_copy(struct gram_match *to, const struct gram_match *from); /* `to` is fresh or freed storage */

/* The text may end here. */
bool gram_match_may_end(const struct gram_match *t);
/* Nothing but the end may follow. */
bool gram_match_must_end(struct gram_match *t);
/* Takes one token; false, and nothing is changed, where the grammar does not allow it. */
bool gram_match_token(struct gram_match *t, int32_t token);
/* Takes bytes as one step; the number of them that were allowed. Less than all of them: nothing is changed. */
size_t gram_match_bytes(struct gram_match *t, struct str bytes);
/* Forgets the last n steps (tokens or calls of gram_match_bytes). */
void gram_match_back(struct gram_match *t, size_t n);
/* Appends the bytes that must come next because nothing else may. They are not taken. Stops where the text may end. */
void gram_match_forced(struct gram_match *t, struct sb *out);
/* The bytes that may come next, as 256 bits. */
void gram_match_next_bytes(struct gram_match *t, uint32_t bits[8]);
/* Writes the mask of allowed tokens: gram_mask_words words. */
void gram_match_mask(struct gram_match *t, uint32_t *bits);

#endif
