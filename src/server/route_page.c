/* GET /: the chat page that lies in the program, and GET /lib.js and /page.js: its libraries and its own script. It asks for nothing from elsewhere, and the policy says so. */
#include "base/hash.h"
#include "server/server_internal.h"

#include <inttypes.h>

extern const char server_page[], server_page_end[], server_script[], server_script_end[], server_own_script[],
    server_own_script_end[]; /* webui.S */

/* Ollama's own clients ask here whether it runs. */
static bool is_probe(const struct call *c) {
    return str_starts(http_header(&c->exchange->request, "user-agent"), STR("ollama"));
}

/* A file of the page; a browser that has the same one already is told so. */
static void send_file(struct call *c, const char *type, const char *begin, const char *end) {
    char tag[24];
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", hash_bytes(begin, (size_t)(end - begin), 0));
    if (c->server->options.no_page) {
        api_fail(&c->error, 404, "not_found", NULL, "the chat page is switched off (--no-ui)");
        call_reply_error(c);
        return;
    }
    sb_fmt(&c->exchange->headers,
           "ETag: %s\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n", tag);
    if (str_eq(http_header(&c->exchange->request, "if-none-match"), str_of(tag))) call_reply(c, 304, NULL, STR(""));
    else call_reply(c, 200, type, str_n(begin, (size_t)(end - begin)));
}

static void show_page(struct call *c) {
    if (is_probe(c)) {
        call_reply(c, 200, "text/plain; charset=utf-8", STR("Ollama is running"));
        return;
    }
    sb_puts(&c->exchange->headers,
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n");
    send_file(c, "text/html; charset=utf-8", server_page, server_page_end);
}

static void show_script(struct call *c) {
    send_file(c, "text/javascript; charset=utf-8", server_script, server_script_end);
}

static void show_own_script(struct call *c) {
    send_file(c, "text/javascript; charset=utf-8", server_own_script, server_own_script_end);
}

const struct route routes_page[] = {
    {"GET", "/", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_page},
    {"GET", "/index.html", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_page},
    {"GET", "/lib.js", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_script},
    {"GET", "/page.js", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_own_script},
    {0},
};
