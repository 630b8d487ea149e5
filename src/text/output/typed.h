/* Values that are written bare, without quotes: what a tool's schema says about their type. */
#ifndef MLXCEL_TEXT_OUTPUT_TYPED_H
#define MLXCEL_TEXT_OUTPUT_TYPED_H

#include "text/output/output.h"
#include "text/output/value_reader.h"

/* A part of a schema, and the schema whose definitions it may refer to. */
struct typed {
    yyjson_val *schema, *root;
};

/* NULL when there is no such tool. */
const struct output_tool *typed_tool(struct output_tools tools, struct str name);
/* The schema that a chain of references leads to. */
struct typed typed_resolve(struct typed t);
/* What the schema says about a member, or about the items of a list; {NULL} where it says nothing. */
struct typed typed_member(struct typed t, struct str key);
struct typed typed_item(struct typed t);
/* Members that an object must have. */
bool typed_requires_any(struct typed t);
/* A set of enum value_type; 0 when the schema does not tell. */
unsigned typed_types(struct typed t);
/* The type of this name; 0: none. */
unsigned typed_named(struct str name);
/* Appends a text as a JSON value of one of the types: as it stands where only a string is possible; else what it means as
 * JSON, or as a constant of Python's; a string where it means nothing. */
void typed_put(struct sb *out, struct str text, unsigned types);

#endif
