/* Arguments that are written as elements: <key>text</key>, lists as <item> in an element, objects as elements in one. Each
 * tag stands behind a marker, so that text needs no escapes. What comes out is JSON, typed by the tool's schema. */
#ifndef MLXCEL_TEXT_OUTPUT_ELEMENTS_H
#define MLXCEL_TEXT_OUTPUT_ELEMENTS_H

#include "text/output/typed.h"

enum { ELEMENTS_DEPTH = 32 };

struct element {
    char name[64]; /* of the tag */
    struct typed type;
    enum { ELEMENT_TEXT, ELEMENT_OBJECT, ELEMENT_LIST } kind;
    bool has_children;
};

struct elements {
    const struct literal *marker;
    struct sb *out, *text;
    struct element stack[ELEMENTS_DEPTH];
    int32_t depth;
    size_t n_matched; /* of the marker */
    bool in_tag;
    char tag[72];
    size_t n_tag;
};

/* The arguments' own element is open already: `name` is its tag's. text is working memory. */
void elements_begin(struct elements *e, const struct literal *marker, const char *name, struct typed type, struct sb *out, struct sb *text);
enum value_reader_step elements_step(struct elements *e, char c, bool is_token);

#endif
