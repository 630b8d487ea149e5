/* Server-sent events. */
#include "server/sse.h"

void sse_put(struct sb *out, const char *event, struct str data) {
    if (event) sb_fmt(out, "event: %s\n", event);
    sb_puts(out, "data: ");
    sb_put(out, data);
    sb_puts(out, "\n\n");
}

void sse_put_comment(struct sb *out, const char *text) {
    sb_fmt(out, ": %s\n\n", text);
}
