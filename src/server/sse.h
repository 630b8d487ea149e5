/* Server-sent events: frames in a buffer, which the caller writes to its stream. */
#ifndef MLXCEL_SERVER_SSE_H
#define MLXCEL_SERVER_SSE_H

#include "base/str.h"

#define SSE_TYPE "text/event-stream; charset=utf-8"

/* The data must hold no line breaks: JSON as the writer makes it. event may be NULL. */
void sse_put(struct sb *out, const char *event, struct str data);
/* A line that readers pass over: keeps the connection open. */
void sse_put_comment(struct sb *out, const char *text);

#endif
