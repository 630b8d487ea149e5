/* Fields of a request that becomes a chat: those that its protocol reads itself, those that it refuses, and all others, which mean what they
 * mean in chat completions. */
#ifndef MLXCEL_SERVER_CHAT_FIELDS_H
#define MLXCEL_SERVER_CHAT_FIELDS_H

#include "base/json.h"
#include "server/api_error.h"

enum chat_field_kind {
    CHAT_FIELD_OWN = 1, /* the protocol reads it, or it has no effect */
    CHAT_FIELD_REFUSED
};

struct chat_field {
    const char *name;
    enum chat_field_kind kind;
    const char *harmless; /* refused: values that ask for nothing, as in fields.c */
    const char *instead;  /* refused: what to use, or NULL */
};

/* A field of chat completions, and what this protocol calls it. */
struct chat_field_name {
    const char *chat, *here;
};

/* Copies the fields of body that are in no row into the object that is open. rows end with a zeroed one. */
int chat_fields_copy(struct jsonw *w, yyjson_val *body, const struct chat_field *rows, struct api_error *e);
/* An error about one of chat's fields becomes one about the client's. names end with a zeroed one. */
void chat_fields_rename(struct api_error *e, const struct chat_field_name *names);

#endif
