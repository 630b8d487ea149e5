/* The chat page, byte for byte as it lies in src/server/webui; found by route_page.c under these names. */
#include "base/embed.inc"

    EMBED SYMBOL(server_page), SYMBOL(server_page_end), "src/server/webui/index.html"
