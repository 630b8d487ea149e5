/* GET /: the chat page that lies in the program. It asks for nothing from elsewhere, and the policy says so. */
#include "server/server_internal.h"

extern const char server_page[], server_page_end[]; /* webui.S */

static void show_page(struct call *c) {
    sb_puts(&c->exchange->headers,
            "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
            "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n");
    call_reply(c, 200, "text/html; charset=utf-8", str_n(server_page, (size_t)(server_page_end - server_page)));
}

const struct route routes_page[] = {
    {"GET", "/", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_page},
    {"GET", "/index.html", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_page},
    {0},
};
