/* What a model wrote, as a message: for the command line. Reads the files; text/output does the work. */
#ifndef MLXCEL_TOOLS_PARSE_H
#define MLXCEL_TOOLS_PARSE_H

#include "base/str.h"

struct parse_options {
    const char *model;         /* model folder or tokenizer_config.json, whose template shows the format; NULL: none */
    const char *template_file; /* instead of the model's; NULL: none */
    struct str format;         /* by its name, instead; empty: as the template shows */
    const char *tools_file;    /* JSON list of tools; NULL: any name is taken */
    struct str prompt;         /* how the prompt ended; .p NULL: guessed from the text */
    bool is_cut;               /* a limit ended the text */
    bool as_it_comes;          /* arguments while they are written */
    bool streams;              /* deltas, one per line, instead of the message */
    int64_t n_chars;           /* in a piece of the stream; 0: everything at once */
};

struct parse_tool;

/* The names of all formats, one per line. */
void parse_tools_list(struct sb *out);
/* Everything lives in the arena. */
int parse_tools_open(struct arena *a, const struct parse_options *options, struct parse_tool **out_tool, struct err *err);
/* Appends the message, or its deltas, as JSON with a newline behind each. */
void parse_tools_text(const struct parse_tool *t, struct str text, struct sb *out);
/* One line of {"text", "format" or "template", "tools", "prompt"}; appends the message or {"error": message}. What a line
 * leaves out is the tool's own. */
void parse_tools_line(const struct parse_tool *t, struct str line, struct sb *out);

#endif
