/* Constraints: which tokens an answer may consist of.
 *
 * A constraint is a compiled grammar with the masks of tokens that were asked for so far. Jobs with the same grammar share one. The engine keeps
 * those that were used last, so that a grammar which comes again costs nothing.
 *
 * A job names its constraint by what it is made from.
 */
#ifndef MLXCEL_ENGINE_CONSTRAINT_H
#define MLXCEL_ENGINE_CONSTRAINT_H

#include "text/grammar/grammar.h"

struct engine;

struct constraint_source {
    struct gram_source grammar;
    struct str trigger; /* it begins when the answer has come to this text; empty: with the answer's content, behind any reasoning */
    bool at_once;       /* it begins with the answer, whatever that is */
    bool then_free;     /* behind the grammar's text anything may follow; else the answer ends there */
};

/* From any thread: compiles it, so that a job with this constraint finds it ready. Compiling takes milliseconds, for large ones up to a second.
 * Warnings and errors are those of gram_compile. */
int engine_prepare_constraint(struct engine *e, const struct constraint_source *s, struct sb *warnings, struct err *err);

#endif
