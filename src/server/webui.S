/* The chat page, byte for byte as it lies in src/server/webui, and the scripts that cmake/page.cmake makes for it; found by route_page.c under these names. */
#include "base/embed.inc"

    EMBED SYMBOL(server_page), SYMBOL(server_page_end), "src/server/webui/index.html"
    EMBED SYMBOL(server_script), SYMBOL(server_script_end), "page/lib.js"
    EMBED SYMBOL(server_own_script), SYMBOL(server_own_script_end), "page/page.js"
