/* Reads one value byte by byte and writes it as JSON. Values come in three dialects: JSON itself; Python's literals and
 * keyword arguments; objects with bare keys and strings between two equal quotes, such as {city:<escape>Rome<escape>}.
 * JSON is copied as it is, with control characters inside strings escaped; the others are written anew. */
#ifndef MLXCEL_TEXT_OUTPUT_VALUE_READER_H
#define MLXCEL_TEXT_OUTPUT_VALUE_READER_H

#include "text/output/literal.h"
#include "text/output/output.h"

enum value_dialect { VALUE_JSON, VALUE_PYTHON, VALUE_QUOTED };
enum value_type { VALUE_NONE, VALUE_NULL = 1, VALUE_BOOL = 2, VALUE_NUMBER = 4, VALUE_STRING = 8, VALUE_ARRAY = 16, VALUE_OBJECT = 32 };
enum value_reader_step {
    VALUE_MORE,
    VALUE_DONE,   /* the value ends with this byte */
    VALUE_BEFORE, /* it ended before this byte, which is not taken */
    VALUE_BAD     /* no value can begin like this */
};

struct value_reader {
    struct sb *out;
    enum value_dialect dialect;
    const struct literal *quote; /* VALUE_QUOTED */
    enum value_type type;        /* of the whole value, once it has begun */
    /* A member of the outermost object: its key with quotes and its value in out. */
    size_t key_begin, key_end, value_reader_begin;
    bool has_member;  /* set when one is complete; for the reader's user to clear */
    size_t n_certain; /* of out: what will stay as it is when more comes */
    /* the machine */
    int state;
    int32_t depth;
    uint8_t stack[OUTPUT_DEPTH];
    bool is_key, has_comma, is_triple;
    char string_quote;
    uint8_t n_quotes, n_digits;
    uint32_t code;
    size_t n_matched; /* of quote */
    char word[256];
    size_t n_word;
};

/* out must be empty. The value must be an object unless any_type. */
void value_reader_begin(struct value_reader *r, enum value_dialect dialect, const struct literal *quote, bool any_type, struct sb *out);
/* Python's keyword arguments, from behind their opening bracket. */
void value_reader_begin_keywords(struct value_reader *r, struct sb *out);
enum value_reader_step value_reader_step(struct value_reader *r, char c, bool is_token);
/* The text is at its end: whether that ends the value, too. */
bool value_reader_end(struct value_reader *r);
/* A whole text: true when it is one value, with white space around it or not. */
bool value_reader_read(struct str text, enum value_dialect dialect, struct sb *out, enum value_type *out_type);
/* One byte inside a JSON string. */
void value_reader_put_char(struct sb *out, char c);

#endif
