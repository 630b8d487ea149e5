/* What the files of the TOML reader share. */
#ifndef MLXCEL_BASE_TOML_INTERNAL_H
#define MLXCEL_BASE_TOML_INTERNAL_H

#include "base/toml.h"

struct toml_reader {
    struct arena *arena;
    const char *name;
    struct str text;
    size_t at;
    int32_t line, depth;
    struct err *err;
};

/* "NAME:LINE: ..." */
int toml_fail(struct toml_reader *r, const char *fmt, ...) MLXCEL_PRINTF(2, 3);
/* The next byte, or -1 at the end. */
int toml_peek(const struct toml_reader *r);
bool toml_starts(const struct toml_reader *r, const char *what);
void toml_skip_blanks(struct toml_reader *r); /* spaces and tabs */
/* A comment may stand here; then the line must end. */
int toml_end_line(struct toml_reader *r);
/* White space, newlines and comments: between the items of a list. */
int toml_skip_lines(struct toml_reader *r);

/* toml_text.c: what stands between quotation marks, of any of the four kinds; "..." and '...' alone where it is a key. */
int toml_text_read(struct toml_reader *r, bool is_key, struct str *out);
/* toml_number.c: numbers, true and false. */
int toml_number_read(struct toml_reader *r, struct toml *out);

#endif
