/* The inside of the JSON Schema front end.
 *
 * A schema is a formula: subschemas are joined by and, or, not. The way to a program:
 *
 * (1) A literal is a subschema (or a value that must be equaled), taken as it is or negated. A goal is a set of literals that must all hold.
 * (2) Scalars are sets with an algebra (bits, automata over numbers, automata over strings): a literal's set is computed from its keywords.
 * (3) For objects and arrays a goal is unfolded into alternatives without choices (schema_unfold.c): every anyOf, oneOf, if, not ... is
 *     decided, and what remains are plain facts: this member exists, that one does not, members whose names match go to these literals.
 * (4) Each alternative becomes a shape (schema_object.c, schema_array.c) whose members and items are goals again. Goals are
 *     numbered by their literals, so that recursion ends.
 * (5) Goals that no value can meet are found last and taken out (schema_goals.c).
 *
 * An error is kept (`code`), and everything stops soon after; callers look at it where it matters.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_SCHEMA_H
#define MLXCEL_TEXT_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "base/map.h"
#include "text/grammar/intern.h"
#include "text/grammar/numbers.h"
#include "text/grammar/program.h"
#include "text/grammar/strset.h"

enum { KIND_NULL = 1, KIND_BOOLEAN = 2, KIND_NUMBER = 4, KIND_STRING = 8, KIND_ARRAY = 16, KIND_OBJECT = 32, KIND_ALL = 63 };

/* What a node of the schema says about values that are no containers. */
struct scalars {
    bool null, yes, no;
    dfa_id numbers;
    struct strset strings;
};

enum snode_kind { SNODE_SCHEMA, SNODE_VALUE };

struct snode {
    yyjson_val *v;
    enum snode_kind kind;
    uint32_t parent; /* PROG_NONE: the root */
    struct str key;  /* under which the parent has it, as part of a pointer */
    struct str base; /* URI that references are relative to */
    uint32_t same;   /* the node that a plain reference stands for; itself otherwise; PROG_NONE: not looked up yet */
    uint8_t visit;   /* of scalars: 0 no, 1 under way, 2 done */
    struct scalars scalars;
};

typedef uint32_t literal; /* node * 2 + negated */
static inline literal lit(uint32_t node, bool negated) {
    return node * 2 + negated;
}
static inline uint32_t lit_node(literal l) {
    return l / 2;
}
static inline bool lit_negated(literal l) {
    return l & 1;
}

struct lits { /* a set that grows; may hold a literal twice until it is numbered */
    literal *p;
    uint32_t n, capacity;
    bool is_never; /* holds "false" */
};

struct schema {
    struct gram *g;
    struct arena a; /* lives as long as the compilation */
    struct numbers numbers;
    struct strings strings;
    struct sb *warnings;
    struct map warned; /* formats and keywords that were warned of */
    enum gram_draft draft;
    bool names_draft; /* $schema or an option says which */
    yyjson_val *root_value;
    uint32_t root;
    struct records node_keys; /* pointer and kind: numbers are nodes */
    struct snode *nodes;
    uint32_t nodes_capacity;
    struct map by_uri;                 /* URI, or URI#anchor -> node */
    struct map dynamic_anchors;        /* name -> how many */
    struct lists goal_keys;            /* sets of literals: numbers are goals */
    uint32_t first_goal, first_string; /* of this schema: others may have filled the program before */
    struct records strings_known;      /* struct strterm -> g->strings */
    struct map patterns;               /* text -> automaton */
    struct map formats;                /* name -> struct strset */
    int nesting;                       /* subschemas inside each other that are being computed */
    struct lists maybe_keys;           /* sets of literals that were asked for a value */
    uint8_t *maybe;                    /* by number: 0 not known, 1 under way, 2 no, 3 perhaps */
    uint32_t maybe_capacity;
    int code;
    struct err *err;
};

/* ---- schema_load.c: nodes, drafts, references ------------------------------------------------------------------------------ */

int schema_load(struct schema *s, struct str text);
/* The node of a value at a place inside the schema. */
uint32_t schema_node(struct schema *s, enum snode_kind kind, yyjson_val *v, uint32_t parent, struct str key);
/* The node under keyword, or under keyword and name. */
uint32_t schema_child(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v);
uint32_t schema_grandchild(struct schema *s, uint32_t node, const char *keyword, struct str name, yyjson_val *v);
uint32_t schema_item(struct schema *s, uint32_t node, const char *keyword, size_t i, yyjson_val *v);
/* The value of a keyword that the draft has; NULL: absent. */
yyjson_val *schema_keyword(struct schema *s, uint32_t node, const char *keyword);
/* Whether the node says anything that a value can break. */
bool schema_asserts(struct schema *s, uint32_t node);
/* The node a reference leads to; PROG_NONE with an error set. */
uint32_t schema_ref(struct schema *s, uint32_t node, struct str ref);
/* The same for the value of $ref, $dynamicRef or $recursiveRef; one that depends on how it was reached is refused. */
uint32_t schema_target(struct schema *s, uint32_t node, const char *keyword, yyjson_val *ref);
/* The node that a chain of plain references leads to. */
uint32_t schema_same(struct schema *s, uint32_t node);
/* "#/properties/a": where a node stands. */
struct str schema_path(struct schema *s, uint32_t node);
/* Errors: "at #/path: message". */
int schema_fail(struct schema *s, uint32_t node, int code, const char *fmt, ...) MLXCEL_PRINTF(4, 5);
void schema_warn(struct schema *s, uint32_t node, const char *what, struct str name, const char *why);
/* A whole number from 0 on, at most UINT32_MAX - 1; larger ones are cut to that. */
bool schema_size(struct schema *s, uint32_t node, const char *keyword, uint32_t *out);

/* ---- schema_scalars.c ------------------------------------------------------------------------------------------------------- */

const struct scalars *schema_scalars(struct schema *s, uint32_t node);
void gram_scalars_and(struct schema *s, struct scalars *x, const struct scalars *y);
struct scalars gram_scalars_all(struct schema *s);
struct scalars gram_scalars_not(struct schema *s, const struct scalars *x);
bool gram_scalars_empty(const struct scalars *x);
/* Kinds that the node's values may have, containers as its `type`, enum and const say. */
unsigned schema_kinds(struct schema *s, uint32_t node);
/* A set of strings as one automaton, lengths included. */
dfa_id schema_strings_dfa(struct schema *s, uint32_t node, struct strset set);
/* The automaton of a pattern, searched for in a text. */
dfa_id schema_pattern(struct schema *s, uint32_t node, struct str pattern);

/* ---- literals and goals: schema_goals.c ------------------------------------------------------------------------------------ */

/* Adds a goal; its number. */
uint32_t gram_goal_put(struct gram *g, struct prog_goal goal);
void gram_lits_add(struct schema *s, struct lits *l, literal x);
void gram_lits_add_all(struct schema *s, struct lits *l, const struct lits *other);
/* The number of the goal that all of these hold; PROG_NONE: nothing can. */
uint32_t gram_goal_of(struct schema *s, const struct lits *l);
/* False only where certainly no value meets them all. */
bool gram_lits_maybe(struct schema *s, const struct lits *l, int depth);
/* Unfolds all goals, takes out what is impossible. The root's number is 0 where it is the only goal asked for. */
int gram_goals_compile(struct schema *s);
uint32_t gram_put_string(struct schema *s, struct strterm t, uint32_t node);

/* ---- unfolding: schema_unfold.c --------------------------------------------------------------------------------------------- */

enum pred_kind {
    PRED_NAME, /* this name */
    PRED_SET,  /* names of an automaton */
    PRED_REST, /* names that none of `of` has */
    PRED_ALL,
};

struct pred_list;
struct pred { /* a set of names */
    enum pred_kind kind;
    struct str name;
    dfa_id set;
    const struct pred_list *of;
};
struct pred_list {
    const struct pred *pred;
    const struct pred_list *next;
};

/* A plain fact about an object or array. */
enum fact_kind {
    FACT_LITERAL,     /* lit holds of the value itself: to be unfolded */
    FACT_HAS,         /* a member `name` whose value meets lit */
    FACT_LACKS,       /* no member `name` */
    FACT_SOME,        /* some member with a name of pred meets lit */
    FACT_EVERY,       /* every member with a name of pred meets lit */
    FACT_MIN_MEMBERS, /* n */
    FACT_MAX_MEMBERS,
    FACT_ITEM,        /* there is an item n, and it meets lit */
    FACT_ITEM_IF,     /* item n, if there is one, meets lit */
    FACT_ITEMS_FROM,  /* items from n on meet lit */
    FACT_SOME_ITEM,   /* some item from n on meets lit */
    FACT_COUNT_ITEMS, /* between n and n2 items meet lit */
    FACT_MIN_ITEMS,
    FACT_MAX_ITEMS,
    FACT_UNIQUE,
};
#define LIT_TRUE UINT32_MAX
#define LIT_FALSE (UINT32_MAX - 1)
#define LIT_UNIQUE (UINT32_MAX - 2) /* in a goal: its values are told apart, so that each has one spelling */

struct collector;
struct fact {
    enum fact_kind kind;
    literal lit; /* or LIT_TRUE, LIT_FALSE */
    uint32_t n, n2;
    struct str name;
    const struct pred *pred;
    const struct collector *scope; /* FACT_LITERAL: who wants to know what it evaluates */
};

struct facts { /* newest first; never changed, so that branches share them */
    struct fact fact;
    const struct facts *next;
};

/* One alternative: all facts, none of them FACT_LITERAL. Return false to stop. */
typedef bool unfold_fn(struct schema *s, const struct facts *facts, void *user);
/* Calls fn for each alternative of the literals as values of this kind (KIND_OBJECT or KIND_ARRAY). */
void gram_unfold_goal(struct schema *s, const struct lits *l, unsigned kind, unfold_fn *fn, void *user);

/* ---- shapes ------------------------------------------------------------------------------------------------------------------ */

/* schema_object.c, schema_array.c. The number of the shape, or PROG_NONE where it is impossible. */
uint32_t gram_object_shape(struct schema *s, const struct facts *facts);
uint32_t gram_array_shape(struct schema *s, const struct facts *facts, uint32_t node);
/* False only where the facts certainly contradict each other; goes `depth` levels down. */
bool gram_object_maybe(struct schema *s, const struct facts *facts, int depth);
bool gram_array_maybe(struct schema *s, const struct facts *facts, int depth);
bool gram_pred_has(struct schema *s, const struct pred *p, struct str name);
/* For each state of an object's extra names, the classes that it can still lead to. */
void gram_object_reach_classes(struct schema *s, struct prog_object *o);

#endif
