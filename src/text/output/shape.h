/* A format's shapes (formats.h) as a program: what may come next at every point of a section of calls. */
#ifndef MLXCEL_TEXT_OUTPUT_SHAPE_H
#define MLXCEL_TEXT_OUTPUT_SHAPE_H

#include "text/output/formats.h"
#include "text/output/literal.h"

enum shape_op {
    SHAPE_LITERAL, /* this text */
    SHAPE_EITHER,  /* what follows here, or what follows at the target */
    SHAPE_JUMP,
    SHAPE_COMMIT, /* the call is complete */
    SHAPE_END,    /* the section is */
    /* holes, in the order of the letters in shape.c */
    SHAPE_NAME,
    SHAPE_FULL_NAME,
    SHAPE_ID,
    SHAPE_SKIP,
    SHAPE_KEY,
    SHAPE_STRING_ATTR,
    SHAPE_TYPE_ATTR,
    SHAPE_VALUE,
    SHAPE_LINES, /* a value with a line break at both ends */
    SHAPE_ARGUMENTS,
    SHAPE_CALL,
    SHAPE_KEYWORDS,
    SHAPE_QUOTED,
    SHAPE_CODE,
    SHAPE_ANSWER,
    SHAPE_ELEMENTS
};

enum { SHAPE_STEPS = 128, SHAPE_CHOICES = 8 };

struct shape_step {
    enum shape_op op;
    int target;
    struct literal literal;
};

struct shape {
    struct shape_step steps[SHAPE_STEPS];
    int n;
    int start; /* of a section */
    int calls; /* of its next call */
};

/* What may come next: one of the literals, each with the step behind it; or what stands at the fallback. */
struct shape_choice {
    const struct literal *literals[SHAPE_CHOICES];
    int next[SHAPE_CHOICES];
    int n;
    int fallback; /* -1: none */
    int other;    /* instead of a fallback that begins with a brace, where none comes; -1: none */
    bool may_end; /* the section may end here */
};

void shape_compile(struct shape *s, struct arena *a, const struct output_format *f, const struct tok *tok);
void shape_next(const struct shape *s, int at, struct shape_choice *out);

#endif
