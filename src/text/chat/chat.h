/* A model's chat template: chosen from the model's files, rendered to spans.
 *
 * Strings in, strings out: whoever calls this has read the files. As in transformers, chat_template.jinja goes before
 * chat_template.json, that before tokenizer_config.json; a config may hold one template or a list of named ones, of which
 * "tool_use" serves requests with tools and "default" the others.
 */
#ifndef MLXCEL_TEXT_CHAT_CHAT_H
#define MLXCEL_TEXT_CHAT_CHAT_H

#include "text/template/template.h"

/* Contents of the model's files; {NULL, 0} for one that is absent. */
struct chat_files {
    const char *model;              /* stands in messages */
    struct str tokenizer_config;    /* tokenizer_config.json */
    struct str special_tokens_map;  /* special_tokens_map.json */
    struct str chat_template_jinja; /* chat_template.jinja */
    struct str chat_template_json;  /* chat_template.json */
};

struct chat_template; /* immutable; lives in its arena */

/* A model without a template gets a plain User/Assistant form; who uses it asks chat_template_is_plain and says so. */
int chat_template_load(struct arena *a, const struct chat_files *files, struct chat_template **out_template, struct err *err);
bool chat_template_is_plain(const struct chat_template *t); /* the form for models without a template */
/* The source of the template that serves requests with tools, or those without. Empty where none of that name is there. */
struct str chat_template_text(const struct chat_template *t, bool has_tools);
/* The same template with other special tokens. */
struct chat_template *chat_template_with_special(struct arena *a, const struct chat_template *t, yyjson_val *special);

struct chat_request {
    yyjson_val *input; /* object: messages, tools, documents, add_generation_prompt, further keywords for the template; with
                        * continue_final_message the prompt ends with the last message's text */
    struct tmpl_time now;
    struct tmpl_limits limits;
    struct str name; /* of the template to use; empty: as described above */
    bool fits_calls; /* tool calls and results are given to the template in the form that it takes; otherwise as they are */
    bool
        adds_usual; /* see struct tmpl_context; otherwise a template that expects today's date prints its own, often a fixed one, or fails */
};

int chat_render(const struct chat_template *t, struct arena *a, const struct chat_request *request, struct tmpl_output *out_output,
                struct err *err);

#endif
