/* Rendering of chat templates for the command line: reads the files, knows the clock. */
#ifndef MLXCEL_TOOLS_TEMPLATE_H
#define MLXCEL_TOOLS_TEMPLATE_H

#include "base/str.h"

struct template_options {
    const char *model;         /* model folder or tokenizer_config.json; NULL: none */
    const char *template_file; /* instead of the model's own; NULL: none */
    const char *special_file;  /* JSON object of special tokens, instead of the model's; NULL: none */
    struct str now;            /* ISO time for strftime_now; empty: the local time */
};

struct chat_files;
struct template_tool;

/* What a model folder, or one tokenizer_config.json, says about the template. */
int template_files_load(struct arena *a, const char *model, struct chat_files *out, struct err *err);

/* Loads what the options name; everything lives in the arena. */
int template_tool_open(struct arena *a, const struct template_options *options, struct template_tool **out_tool, struct err *err);
/* input is JSON: messages, tools, add_generation_prompt and any further keyword. */
int template_tool_render(const struct template_tool *t, struct arena *a, struct str input, struct str *out_text, struct err *err);
/* One line of {"template", "input", "special"}; appends {"ok": text} or {"error": message}. What a line leaves out is the
 * tool's own. */
void template_tool_line(const struct template_tool *t, struct str line, struct sb *out);

#endif
