/* Answers: status line, headers, whole bodies and chunked streams. */
#include "server/http_internal.h"

#include "os/os.h"

#include <assert.h>
#include <time.h>

static const struct {
    int32_t status;
    const char *text;
} reasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

static const char *reason_of(int32_t status) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].text;
    return "Status";
}

/* An origin server with a clock must send it (RFC 9110, 6.6.1). The program keeps the C locale, so the names are English. */
static void put_date(struct sb *out) {
    char text[40];
    struct tm now;
    os_utc_time(os_wall_ns(), &now);
    if (strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &now)) sb_fmt(out, "Date: %s\r\n", text);
}

static void put_head(struct sb *out, struct http_exchange *x, int32_t status, const char *content_type) {
    struct http_conn *c = x->conn;
    if (!x->request.keep_alive || c->server->draining) c->close_after = true;
    sb_fmt(out, "HTTP/1.1 %d %s\r\nServer: mlxcel\r\nConnection: %s\r\n", status, reason_of(status),
           c->close_after ? "close" : "keep-alive");
    put_date(out);
    if (content_type) sb_fmt(out, "Content-Type: %s\r\n", content_type);
    sb_put(out, sb_str(&x->headers));
    x->status = status;
}

void http_reply(struct http_exchange *x, int32_t status, const char *content_type, struct str body) {
    struct http_conn *c = x->conn;
    struct sb out = {0};
    if (!c) return;
    assert(!x->streaming);
    put_head(&out, x, status, content_type);
    if (status != 204 && status != 304) sb_fmt(&out, "Content-Length: %zu\r\n", body.n);
    sb_puts(&out, "\r\n");
    if (!c->is_head) sb_put(&out, body);
    http_hold(x); /* sending may find the client gone */
    conn_send(c, sb_str(&out));
    sb_free(&out);
    if (x->conn) conn_answered(c);
    http_release(x);
}

void http_stream_begin(struct http_exchange *x, int32_t status, const char *content_type) {
    struct http_conn *c = x->conn;
    struct sb out = {0};
    if (!c) return;
    x->streaming = true;
    if (c->is_http10) c->close_after = true;
    put_head(&out, x, status, content_type);
    sb_puts(&out, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"); /* whoever stands between hands on what comes */
    sb_puts(&out, c->is_http10 ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
    conn_send(c, sb_str(&out));
    sb_free(&out);
}

void http_stream_write(struct http_exchange *x, struct str data) {
    struct http_conn *c = x->conn;
    if (!c || data.n == 0) return;
    if (c->is_http10) {
        conn_send(c, data);
        return;
    }
    struct sb out = {0};
    sb_fmt(&out, "%zx\r\n", data.n);
    sb_put(&out, data);
    sb_puts(&out, "\r\n");
    conn_send(c, sb_str(&out));
    sb_free(&out);
}

void http_stream_end(struct http_exchange *x) {
    struct http_conn *c = x->conn;
    if (!c) return;
    http_hold(x);
    if (!c->is_http10) conn_send(c, STR("0\r\n\r\n"));
    if (x->conn) conn_answered(c);
    http_release(x);
}

bool http_is_half_closed(const struct http_exchange *x) {
    return x->conn && x->conn->is_ended;
}

size_t http_pending(const struct http_exchange *x) {
    return x->conn ? uv_stream_get_write_queue_size(&x->conn->peer.stream) : 0;
}
