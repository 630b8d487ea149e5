/* OpenAI's responses, between their files: requests become chats, answers become items. */
#ifndef MLXCEL_SERVER_WIRE_RESPONSES_H
#define MLXCEL_SERVER_WIRE_RESPONSES_H

#include "server/chat.h"

/* What an answer needs of its request; the generation's wire_state, in the arena. */
struct responses_state {
    yyjson_val *body;    /* as it came: much of it is said again */
    yyjson_val *customs; /* list of the names of tools whose input is a text of their own */
    struct str items;    /* JSON list: everything that is answered, earlier turns included */
    bool is_kept;        /* store */
    /* of a stream */
    int64_t n_events;
    int32_t n_items;       /* begun so far */
    bool is_open;          /* the last of them is */
    enum output_kind kind; /* of that one: content, reasoning, call */
};

/* The request in the fields of OpenAI's chat completions, with what a response refers to put before it. Nonzero: c->error. */
int responses_to_chat(struct call *c, struct responses_state *state, yyjson_val **out_body);
/* The fields of an error of chat_prepare, under the names that they have here. */
void responses_rename_fields(struct api_error *e);

extern const struct gen_format responses_format;
/* The response as it is now: status is completed, in_progress, cancelled ... */
void responses_put(struct generation *g, const char *status, struct jsonw *w);
/* Whether a tool's calls are texts of their own. */
bool responses_is_custom(const struct responses_state *state, struct str name);

#endif
