/* The tools of a chat request: which the model may call, and whether it must. */
#ifndef MLXCEL_SERVER_TOOLS_H
#define MLXCEL_SERVER_TOOLS_H

#include "api/service.h"
#include "server/api_error.h"

/* In the order of OpenAI's values; a named tool is an object there. */
enum tool_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED, TOOLS_NAMED };

struct tools {
    yyjson_val *list; /* as the client sent it; NULL: there are none, or they are not to be used */
    enum tool_choice choice;
    struct str name;    /* TOOLS_NAMED */
    bool one_at_a_time; /* parallel_tool_calls: false */
};

/* Refuses what is malformed, and tools where the model's template shows no way to call them. */
int tools_read(struct arena *a, yyjson_val *body, const struct service_info *info, struct tools *out, struct api_error *e);
/* How the answer is taken apart. */
void tools_apply(struct arena *a, const struct tools *t, const struct service_info *info, struct job_spec *job);

#endif
