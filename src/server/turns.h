/* Turns of a conversation, gathered from a protocol's own pieces and written as OpenAI's chat messages. What follows each other under one
 * role is one turn: templates want roles to take turns. */
#ifndef MLXCEL_SERVER_TURNS_H
#define MLXCEL_SERVER_TURNS_H

#include "base/json.h"

struct turns {
    struct jsonw *w;  /* inside the list of messages */
    const char *role; /* of the turn that is open; NULL: none is */
    struct sb text, thoughts, calls;
    struct sb parts; /* texts and pictures before `text`, as a list in JSON that is open; empty: no pictures */
    struct jsonw parts_w;
    struct jsonw calls_w; /* a list in `calls`, open */
    size_t n_calls;
};

void turns_free(struct turns *t);
/* What is added next belongs to this role. */
void turns_begin(struct turns *t, const char *role);
/* A paragraph more: a line break stands before it. */
void turns_add_paragraph(struct sb *out, struct str text);
/* A picture behind the text so far, by its address. */
void turns_add_image(struct turns *t, struct str url);
/* arguments: the text of a JSON object. */
void turns_add_call(struct turns *t, struct str id, struct str name, struct str arguments);
/* What a tool said; ends the open turn. */
void turns_put_result(struct turns *t, struct str id, struct str text);
/* Writes the open turn, or forgets it. */
void turns_end(struct turns *t);
void turns_drop(struct turns *t);
bool turns_is(const struct turns *t, const char *role);

#endif
