/* GET /: the chat page that lies in the program. It asks for nothing from elsewhere, and the policy says so. */
#include "server/server_internal.h"

extern const char server_page[], server_page_end[]; /* webui.S */

/* Ollama's own clients ask here whether it runs. */
static bool is_probe(const struct call *c) {
    return str_starts(http_header(&c->exchange->request, "user-agent"), STR("ollama"));
}

static void show_page(struct call *c) {
    if (is_probe(c)) {
        call_reply(c, 200, "text/plain; charset=utf-8", STR("Ollama is running"));
        return;
    }
    if (c->server->options.no_page) {
        api_fail(&c->error, 404, "not_found", NULL, "the chat page is switched off (--no-ui)");
        call_reply_error(c);
        return;
    }
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
