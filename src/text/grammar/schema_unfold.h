/* What the parts of unfolding share: branches, choices, and the keywords of objects and arrays. */
#ifndef MLXCEL_TEXT_GRAMMAR_SCHEMA_UNFOLD_H
#define MLXCEL_TEXT_GRAMMAR_SCHEMA_UNFOLD_H

#include "text/grammar/schema.h"

/* Somebody (unevaluatedProperties, unevaluatedItems) who must know what a schema and those in its place evaluate. */
struct collector {
    literal lit;
    const struct collector *outer;
    const struct collector *before; /* the branch's list */
};

struct collected {
    const struct collector *by;
    const struct pred *pred; /* names; NULL for items */
    uint32_t n_items;        /* items before this one; UINT32_MAX: all */
    const struct collected *next;
};

struct ways { /* alternatives, each a list of facts; NULL asks for nothing */
    const struct facts **p;
    size_t n, capacity;
};

struct choice {
    struct ways ways;
    const struct choice *next;
};

struct branch {
    const struct facts *facts, *todo;
    const struct choice *choices;
    const struct collected *collected;
    const struct collector *collectors;
};

struct unfolding {
    struct schema *s;
    unsigned kind;
    unfold_fn *fn;
    void *user;
    uint32_t node; /* for messages */
    uint32_t n_found;
    bool is_stopped;
};

const struct facts *gram_facts_put(struct schema *s, const struct facts *list, struct fact f);
const struct facts *gram_facts_literal(struct schema *s, const struct facts *list, literal l, const struct collector *scope);
void gram_branch_fact(struct unfolding *u, struct branch *b, struct fact f);
void gram_branch_literal(struct unfolding *u, struct branch *b, literal l, const struct collector *scope);
void gram_branch_choice(struct unfolding *u, struct branch *b, const struct ways *w);
void gram_branch_collect(struct unfolding *u, struct branch *b, const struct collector *scope, const struct pred *pred, uint32_t n_items);
void gram_way_add(struct unfolding *u, struct ways *w, const struct facts *facts);

/* schema_keywords.c. keywords: what a schema says of its own; break: the ways in which that can fail; equals, differs: values of enum and const. */
void gram_object_keywords(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope);
void gram_object_break(struct unfolding *u, struct ways *w, uint32_t node);
void gram_object_equals(struct unfolding *u, struct branch *b, uint32_t node);
void gram_object_differs(struct unfolding *u, struct ways *w, uint32_t node);
void gram_array_keywords(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope);
void gram_array_break(struct unfolding *u, struct ways *w, uint32_t node);
void gram_array_equals(struct unfolding *u, struct branch *b, uint32_t node);
void gram_array_differs(struct unfolding *u, struct ways *w, uint32_t node);

#endif
