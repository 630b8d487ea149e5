/* The form in which a template takes calls back: templates differ in whether a call's arguments are an object or its JSON
 * text, and in whether the content beside a call is empty or null. The form is found by rendering a small conversation. */
#ifndef MLXCEL_TEXT_CHAT_CHAT_FORM_H
#define MLXCEL_TEXT_CHAT_CHAT_FORM_H

#include "text/template/template.h"

struct chat_form {
    bool string_arguments, null_content;
};

struct chat_form chat_form_find(const struct tmpl *t, struct str source, yyjson_val *special);
/* The input with its calls in that form: arguments that are the text of an object become one or the other, and a tool's result
 * gets the name of the tool that its call names. The input itself where there is nothing to change. */
int chat_form_apply(struct arena *a, struct chat_form form, yyjson_val *input, yyjson_val **out_input, struct err *err);

#endif
