/* server/: what the HTTP reader takes and refuses however the bytes are cut, who is let in, how thoughts are split off. */
#include "unit.h"

#include "base/log.h"
#include "server/api_error.h"
#include "server/guard.h"
#include "server/http_parse.h"

#include <stdio.h>

static const struct http_limits limits = {.head_bytes = 1024, .n_headers = 10, .body_bytes = 64};

#define HOST "Host: localhost\r\n"

struct http_case {
    const char *name, *bytes;
    int status; /* 0: taken */
    const char *body;
};

static const struct http_case cases[] = {
    {"plain get", "GET /a?b=1 HTTP/1.1\r\n" HOST "\r\n", 0, ""},
    {"old version", "GET / HTTP/1.0\r\n\r\n", 0, ""},
    {"body", "POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", 0, "hello"},
    {"chunks", "POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", 0, "hello!"},
    {"trailers", "POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n", 0, "x"},
    {"empty value", "GET / HTTP/1.1\r\nX-A:\r\n" HOST "\r\n", 0, ""},
    {"upgrade offer", "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 0, ""},
    {"both lengths", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL},
    {"both, other order", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, NULL},
    {"two lengths", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, NULL},
    {"length list", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello", 400, NULL},
    {"signed length", "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello", 400, NULL},
    {"negative length", "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400, NULL},
    {"hex length", "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\nhello", 400, NULL},
    {"huge length", "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", 400, NULL},
    {"other coding", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", 400, NULL},
    {"coding list", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, NULL},
    {"two codings", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL},
    {"chunks in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL},
    {"bad chunk size", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nZ\r\nx\r\n0\r\n\r\n", 400, NULL},
    {"negative chunk", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n", 400, NULL},
    {"chunk overflow", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n", 400, NULL},
    {"chunk without end", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n", 400, NULL},
    {"bare line feeds",
     "GET / HTTP/1.1\n"
     "Host: a\n\n",
     400, NULL},
    {"bare line feed in a header", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400, NULL},
    {"bare line feed in chunks", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", 400, NULL},
    {"folded line", "GET / HTTP/1.1\r\n" HOST "X-A: b\r\n c\r\n\r\n", 400, NULL},
    {"folded host", "GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n", 400, NULL},
    {"space before colon", "GET / HTTP/1.1\r\n" HOST "X-A : b\r\n\r\n", 400, NULL},
    {"no host", "GET / HTTP/1.1\r\n\r\n", 400, NULL},
    {"two hosts", "GET / HTTP/1.1\r\n" HOST "Host: b\r\n\r\n", 400, NULL},
    {"absolute target", "GET http://a/ HTTP/1.1\r\n" HOST "\r\n", 0, ""},
    {"absolute target without Host", "GET http://a/ HTTP/1.1\r\n\r\n", 400, NULL},
    {"absolute target, other scheme", "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    {"absolute target without a name", "GET http:///v1 HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    {"absolute target with a user", "GET http://localhost@a/ HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    {"connect", "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    {"version 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, NULL},
    {"version 3", "GET / HTTP/3.0\r\n\r\n", 400, NULL},
    {"nonsense", "\x16\x03\x01\x02", 400, NULL},
    {"unknown method", "BREW / HTTP/1.1\r\n" HOST "\r\n", 400, NULL},
    {"nul in a header", NULL, 400, NULL},
    {"too large", "POST / HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n", 413, NULL},
    {"chunks too large",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n30\r\n000000000000000000000000000000000000000000000000\r\n30\r\n"
     "000000000000000000000000000000000000000000000000\r\n0\r\n\r\n",
     413, NULL},
    {"encoded", "POST / HTTP/1.1\r\n" HOST "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415, NULL},
    {"expectation", "POST / HTTP/1.1\r\n" HOST "Expect: magic\r\nContent-Length: 1\r\n\r\nx", 417, NULL},
    {"many headers",
     "GET / HTTP/1.1\r\n" HOST "A: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n", 431, NULL},
};

/* Feeds the bytes in pieces of one size; the status, 0 when taken. */
static int run_case(struct str bytes, size_t piece, struct http_request *r) {
    struct http_parse p;
    http_parse_init(&p, &limits);
    http_parse_begin(&p, r);
    size_t at = 0;
    while (at < bytes.n && p.state == HTTP_MORE) {
        struct str part = str_sub(bytes, at, piece);
        at += http_parse_feed(&p, part.p, part.n);
    }
    int status = p.state == HTTP_BAD ? p.status : p.state == HTTP_DONE ? 0 : -1;
    CHECK(p.state == HTTP_BAD || at == bytes.n);
    http_parse_free(&p);
    return status;
}

static void requests_are_taken_or_refused(void) {
    static const char with_nul[] = "GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 400; piece = piece * 3 + 1) {
            struct http_request r = {0};
            struct str bytes = cases[i].bytes ? str_of(cases[i].bytes) : str_n(with_nul, sizeof with_nul - 1);
            int status = run_case(bytes, piece, &r);
            bool refused = status == 505 || status == 501 || status == cases[i].status; /* versions and CONNECT have their own */
            FAIL_IF(cases[i].status == 400 ? !(refused && status) : status != cases[i].status, "%s, in pieces of %zu: %d, expected %d",
                    cases[i].name, piece, status, cases[i].status);
            if (status == 0) CHECK_STR(sb_str(&r.body), str_of(cases[i].body));
            http_request_free(&r);
        }
}

static void a_head_that_never_ends(void) {
    struct sb bytes = {0};
    struct http_request r = {0};
    sb_puts(&bytes, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 2000; i++) sb_putc(&bytes, 'a');
    CHECK_INT(run_case(sb_str(&bytes), 100, &r), 431);
    http_request_free(&r);
    sb_clear(&bytes);
    sb_puts(&bytes, "GET /");
    for (int i = 0; i < 2000; i++) sb_putc(&bytes, 'a');
    CHECK_INT(run_case(sb_str(&bytes), 100, &r), 431);
    http_request_free(&r);
    sb_clear(&bytes);
    sb_puts(&bytes, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 9000; i++) sb_putc(&bytes, 'a');
    CHECK_INT(run_case(sb_str(&bytes), 100, &r), 400);
    http_request_free(&r);
    sb_free(&bytes);
}

static void requests_behind_each_other(void) {
    struct http_parse p;
    struct http_request r = {0};
    struct str bytes = STR("POST /one HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nabGET /two?q HTTP/1.1\r\nHOST:  x \r\n\r\nrest");
    http_parse_init(&p, &limits);
    http_parse_begin(&p, &r);
    size_t used = http_parse_feed(&p, bytes.p, bytes.n);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_STR(sb_str(&r.body), STR("ab"));
    CHECK_STR(r.path, STR("/one"));
    CHECK(r.keep_alive);
    http_request_free(&r);
    http_parse_begin(&p, &r);
    used += http_parse_feed(&p, bytes.p + used, bytes.n - used);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_STR(r.path, STR("/two"));
    CHECK_STR(r.query, STR("q"));
    CHECK_STR(http_header(&r, "host"), STR("x"));
    CHECK_STR(str_from(bytes, used), STR("rest"));
    http_request_free(&r);
    http_parse_free(&p);
}

/* RFC 9112, 3.2.2: the target's authority stands in place of the Host header, whatever that says. Slashes too many are no part of a path. */
static void targets(void) {
    static const struct {
        const char *bytes, *host, *path, *query;
    } rows[] = {
        {"GET http://a:80/v1/models?q=1 HTTP/1.1\r\nHost: b\r\n\r\n", "a:80", "/v1/models", "q=1"},
        {"GET HTTPS://[::1]:8080 HTTP/1.1\r\nHost: b\r\n\r\n", "[::1]:8080", "/", ""},
        {"GET http://a?q HTTP/1.1\r\nHost: b\r\n\r\n", "a", "/", "q"},
        {"GET http://a/x HTTP/1.0\r\n\r\n", "a", "/x", ""},
        {"GET /http://a/x HTTP/1.1\r\nHost: b\r\n\r\n", "b", "/http:/a/x", ""},
        {"GET //v1///models/?q=//1/ HTTP/1.1\r\nHost: b\r\n\r\n", "b", "/v1/models", "q=//1/"},
        {"GET http://a//v1/models/ HTTP/1.1\r\nHost: b\r\n\r\n", "a", "/v1/models", ""},
        {"GET /// HTTP/1.1\r\nHost: b\r\n\r\n", "b", "/", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_request r = {0};
        CHECK_INT(run_case(str_of(rows[i].bytes), 7, &r), 0);
        CHECK_STR(http_header(&r, "host"), str_of(rows[i].host));
        CHECK_STR(r.path, str_of(rows[i].path));
        CHECK_STR(r.query, str_of(rows[i].query));
        http_request_free(&r);
    }
}

static void who_is_let_in(void) {
    struct str keys[] = {STR("secret"), STR("other")}, origins[] = {STR("https://app.example")}, hosts[] = {STR("box.lan")};
    struct guard *open = guard_create(&(struct guard_options){.origins = origins, .n_origins = 1, .hosts = hosts, .n_hosts = 1});
    struct guard *closed = guard_create(&(struct guard_options){.keys = keys, .n_keys = 2});
    CHECK(guard_key_ok(open, (struct str){0}));
    CHECK(guard_key_ok(closed, STR("secret")) && guard_key_ok(closed, STR("other")));
    CHECK(!guard_key_ok(closed, (struct str){0}) && !guard_key_ok(closed, STR("secre")) && !guard_key_ok(closed, STR("secrets")));
    CHECK_STR(guard_bearer(STR("Bearer secret")), STR("secret"));
    CHECK_STR(guard_bearer(STR("bearer  other ")), STR("other"));
    CHECK(!guard_bearer(STR("secret")).n && !guard_bearer(STR("Basic secret")).n && !guard_bearer(STR("Bearer ")).n);
    static const char *const good[] = {"localhost", "LocalHost:8080", "127.0.0.1:1", "[::1]:8080", "192.168.1.7", "box.lan:80"};
    static const char *const bad[] = {"localhost.evil.com", "notlocalhost", "evil.com:8080", "127.0.0.1.evil.com", "", "1.2.3",
                                      "box.lan.evil"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK(guard_host_ok(open, str_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!guard_host_ok(open, str_of(bad[i])));
    CHECK(guard_host_ok(closed, STR("any.example")));
    CHECK(guard_origin_ok(open, STR("http://localhost:3000"), STR("x")) && guard_origin_ok(open, STR("https://app.example"), STR("x")));
    CHECK(guard_origin_ok(open, STR("http://192.168.1.7:8080"), STR("192.168.1.7:8080")));
    static const char *const foreign[] = {"http://localhost.evil.com", "https://evil.com",   "null",
                                          "file://localhost",          "http://app.example", "http://notlocalhost"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) CHECK(!guard_origin_ok(open, str_of(foreign[i]), STR("localhost")));
    guard_destroy(open);
    guard_destroy(closed);
}

/* Every code of the layers below has a status; what may hold a path is not told. */
static void errors_become_answers(void) {
    static const struct {
        int code;
        int32_t status;
        bool told, with_param;
    } rows[] = {
        {ERR_EARG, 400, true, true},        {ERR_EFORMAT, 500, false, false}, {ERR_EUNSUPPORTED, 400, true, true},
        {ERR_ENOTFOUND, 404, false, false}, {ERR_EIO, 500, false, false},     {ERR_EMEMORY, 503, false, false},
        {ERR_ELIMIT, 400, true, true},      {ERR_EBUSY, 503, true, false},    {ERR_ECANCELLED, 499, false, false},
        {ERR_ENETWORK, 502, false, false},  {ERR_EDEVICE, 500, false, false}, {ERR_EINTERNAL, 500, false, false},
        {N_ERR_CODES, 500, false, false},   {ERR_OK, 500, false, false},
    };
    CHECK_INT(sizeof rows / sizeof *rows, N_ERR_CODES + 1);
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err;
        struct api_error e = {0};
        err_set(&err, rows[i].code, "/home/somebody/model: broken");
        CHECK_INT(api_fail_err(&e, &err, "prompt"), -1);
        FAIL_IF(e.status != rows[i].status, "code %d is %d, expected %d", rows[i].code, (int)e.status, (int)rows[i].status);
        CHECK_INT(strstr(e.message, "/home") != NULL, rows[i].told);
        CHECK_STR(str_of(e.param), rows[i].with_param ? STR("prompt") : STR(""));
    }
    log_set_level(LOG_INFO); /* as it is at the start */
}

const struct unit_suite unit_http = {
    "http",
    (const struct unit_case[]){{"requests_are_taken_or_refused", requests_are_taken_or_refused},
                               {"a_head_that_never_ends", a_head_that_never_ends},
                               {"requests_behind_each_other", requests_behind_each_other},
                               {"targets", targets},
                               {"who_is_let_in", who_is_let_in},
                               {"errors_become_answers", errors_become_answers},
                               {0}},
};
