/* TOML 1.0, read into a tree; for files that users write. Dates and times are refused: nothing here has one.
 *
 * Everything lives in the arena. Errors are one line with file and line: "server.toml:7: ...".
 */
#ifndef MLXCEL_BASE_TOML_H
#define MLXCEL_BASE_TOML_H

#include "base/str.h"

enum { TOML_BYTES_MAX = 4 << 20, TOML_DEPTH_MAX = 100, TOML_KEYS_MAX = 4096 /* in one table */ };

enum toml_kind { TOML_STRING, TOML_INT, TOML_FLOAT, TOML_BOOL, TOML_ARRAY, TOML_TABLE };

/* How a table or a list came to be, which decides what may be added to it. */
enum toml_origin {
    TOML_BY_PATH,   /* a table that a longer header named on its way */
    TOML_BY_HEADER, /* [table], [[list]] */
    TOML_BY_DOTS,   /* a.b = 1 */
    TOML_BY_ITSELF, /* {...} and [...]: whole as they stand */
};

/* A value. */
struct toml {
    enum toml_kind kind;
    enum toml_origin origin;
    int32_t line;                     /* where it stands; of a table, where it was first named */
    struct str key;                   /* in its table; {NULL, 0}: it is in a list */
    struct str s;                     /* TOML_STRING */
    int64_t i;                        /* TOML_INT, TOML_BOOL */
    double f;                         /* TOML_FLOAT */
    struct toml *first, *last, *next; /* of lists and tables: what is in them, in the order of the file */
    int32_t n;
};

/* name stands in messages. */
int toml_parse(struct arena *a, struct str text, const char *name, struct toml **out_root, struct err *err);
/* NULL: the table has no such key. */
struct toml *toml_get(const struct toml *table, struct str key);
/* What a kind is called: "a text", "a table". */
const char *toml_kind_name(enum toml_kind kind);

#endif
