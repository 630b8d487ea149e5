/* llhttp's callbacks: the head is gathered into one buffer and cut when it is complete, the body is counted as it comes. */
#include "server/http_parse.h"

enum { EXTENSION_BYTES_MAX = 4096, HEADER_OVERHEAD = 4 };

static struct http_parse *parse_of(llhttp_t *parser) {
    return parser->data;
}

static int fail(struct http_parse *p, int32_t status, const char *why) {
    p->status = status;
    p->why = why;
    return -1;
}

static int count_head(struct http_parse *p, size_t n) {
    p->head_bytes += n;
    if (p->head_bytes > p->limits.head_bytes) return fail(p, 431, "the request's headers are too large");
    return 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t n) {
    struct http_parse *p = parse_of(parser);
    if (count_head(p, n)) return -1;
    sb_put(&p->head, str_n(at, n));
    p->target_bytes += n;
    return 0;
}

static struct http_mark *new_mark(struct http_parse *p) {
    if (p->n_marks == p->marks_capacity) {
        p->marks_capacity = p->marks_capacity ? p->marks_capacity * 2 : 32;
        p->marks = mem_realloc(p->marks, (size_t)p->marks_capacity * sizeof *p->marks);
    }
    p->marks[p->n_marks] = (struct http_mark){p->head.n, 0};
    return &p->marks[p->n_marks++];
}

/* Names stand at even places, values at odd ones; trailers behind the body are counted and dropped. */
static int on_header(struct http_parse *p, const char *at, size_t n, bool is_value) {
    if (count_head(p, n)) return -1;
    if (p->has_head) return 0;
    if (p->n_marks == 0 || p->in_value != is_value) {
        if (!is_value && count_head(p, HEADER_OVERHEAD)) return -1;
        new_mark(p);
        p->in_value = is_value;
    }
    if (p->n_marks / 2 > p->limits.n_headers) return fail(p, 431, "the request has too many headers");
    sb_put(&p->head, str_n(at, n));
    p->marks[p->n_marks - 1].n += n;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t n) {
    return on_header(parse_of(parser), at, n, false);
}

static int on_value(llhttp_t *parser, const char *at, size_t n) {
    return on_header(parse_of(parser), at, n, true);
}

/* An empty value has no bytes of its own. */
static int on_value_complete(llhttp_t *parser) {
    struct http_parse *p = parse_of(parser);
    if (p->has_head || p->in_value) return 0;
    new_mark(p);
    p->in_value = true;
    return 0;
}

static void lower(struct arena *a, struct str *s) {
    char *copy = str_cstr(a, *s);
    for (size_t i = 0; i < s->n; i++)
        if (copy[i] >= 'A' && copy[i] <= 'Z') copy[i] = (char)(copy[i] - 'A' + 'a');
    s->p = copy;
}

static void cut_head(struct http_parse *p) {
    struct http_request *r = p->request;
    struct str head = str_copy(&r->arena, sb_str(&p->head));
    r->target = str_sub(head, 0, p->target_bytes);
    r->n_headers = p->n_marks / 2;
    r->headers = arena_new(&r->arena, struct http_header, r->n_headers + 1); /* one more for the host of a target */
    for (int32_t i = 0; i < r->n_headers; i++) {
        struct http_mark name = p->marks[2 * i], value = p->marks[2 * i + 1];
        r->headers[i] = (struct http_header){str_sub(head, name.from, name.n), str_trim(str_sub(head, value.from, value.n))};
        lower(&r->arena, &r->headers[i].name);
    }
}

static int32_t count_headers(const struct http_request *r, const char *name) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_headers; i++) n += str_is(r->headers[i].name, name);
    return n;
}

static bool is_word(struct str s, const char *word) {
    for (size_t i = 0; i < s.n; i++)
        if (word[i] == '\0' || (s.p[i] | 32) != word[i]) return false;
    return word[s.n] == '\0';
}

/* The host that the target names is the one that is meant, whatever the Host header says. */
static void replace_host(struct http_request *r, struct str host) {
    int32_t i = 0;
    while (i < r->n_headers && !str_is(r->headers[i].name, "host")) i++;
    if (i == r->n_headers) r->n_headers++;
    r->headers[i] = (struct http_header){STR("host"), host};
}

/* "http://host/path?query", as proxies are asked, to its path. */
static int cut_absolute(struct http_parse *p, struct str *path) {
    struct http_request *r = p->request;
    size_t colon = str_find(r->target, STR("://"), 0);
    struct str scheme = str_sub(r->target, 0, colon), rest = colon == STR_NONE ? (struct str){0} : str_from(r->target, colon + 3);
    size_t end = 0;
    while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?') end++;
    struct str host = str_sub(rest, 0, end);
    if (!is_word(scheme, "http") && !is_word(scheme, "https")) return fail(p, 400, "the request's target must be a path");
    if (host.n == 0 || str_find_char(host, '@', 0) != STR_NONE) return fail(p, 400, "the request's target names no host");
    replace_host(r, host);
    *path = str_from(rest, end);
    return 0;
}

/* "//v1/models/" is "/v1/models": clients put their paths behind an address that may end with a slash. */
static struct str tidy_path(struct arena *a, struct str path) {
    char *out = str_cstr(a, path);
    size_t n = 0;
    for (size_t i = 0; i < path.n; i++)
        if (path.p[i] != '/' || n == 0 || out[n - 1] != '/') out[n++] = path.p[i];
    if (n > 1 && out[n - 1] == '/') n--;
    return str_n(out, n);
}

static int cut_target(struct http_parse *p) {
    struct http_request *r = p->request;
    struct str path = r->target;
    bool is_path = path.n && path.p[0] == '/', is_star = str_is(path, "*") && str_is(r->method, "OPTIONS");
    if (!is_path && !is_star && cut_absolute(p, &path)) return -1;
    size_t question = str_find_char(path, '?', 0);
    r->path = tidy_path(&r->arena, str_sub(path, 0, question));
    r->query = question == STR_NONE ? STR("") : str_from(path, question + 1);
    if (r->path.n == 0) r->path = STR("/");
    return 0;
}

static int turn_away(struct http_parse *p) {
    p->turned_away = true;
    return fail(p, 403, "the request is not taken");
}

/* What two readers could understand differently; then who asks, before anything is said about the body; then what is not taken. */
static int check_head(struct http_parse *p) {
    struct http_request *r = p->request;
    int32_t n_length = count_headers(r, "content-length"), n_coding = count_headers(r, "transfer-encoding");
    struct str expect = http_header(r, "expect"), encoding = http_header(r, "content-encoding");
    if (n_length > 1 || n_coding > 1 || (n_length && n_coding)) return fail(p, 400, "the length of the body is ambiguous");
    if (n_coding && (r->minor == 0 || !is_word(http_header(r, "transfer-encoding"), "chunked")))
        return fail(p, 400, "the transfer encoding is not taken");
    if (count_headers(r, "host") > 1 || (r->minor > 0 && !count_headers(r, "host"))) return fail(p, 400, "one Host header is needed");
    if (cut_target(p)) return -1;
    if ((n_coding || p->parser.content_length > 0) && p->accept && !p->accept(p->accept_user, r)) return turn_away(p);
    if (encoding.p && encoding.n && !is_word(encoding, "identity")) return fail(p, 415, "encoded bodies are not taken");
    if (expect.p && !is_word(expect, "100-continue")) return fail(p, 417, "the expectation cannot be met");
    if (n_length && p->parser.content_length > p->limits.body_bytes) return fail(p, 413, "the request's body is too large");
    p->wants_continue = expect.p && r->minor > 0 && (n_coding || p->parser.content_length > 0);
    return 0;
}

static int on_headers_complete(llhttp_t *parser) {
    struct http_parse *p = parse_of(parser);
    struct http_request *r = p->request;
    p->has_head = true;
    if (parser->http_major != 1 || parser->http_minor > 1) return fail(p, 505, "HTTP/1.1 is spoken here");
    r->minor = parser->http_minor;
    r->method = str_of(llhttp_method_name((llhttp_method_t)llhttp_get_method(parser)));
    if (str_is(r->method, "CONNECT")) return fail(p, 501, "CONNECT is not taken");
    cut_head(p);
    if (check_head(p)) return -1;
    r->keep_alive = llhttp_should_keep_alive(parser) != 0;
    parser->upgrade = 0; /* an offer of another protocol is passed over */
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t n) {
    struct http_parse *p = parse_of(parser);
    if (n > p->limits.body_bytes - p->request->body.n) return fail(p, 413, "the request's body is too large");
    sb_put(&p->request->body, str_n(at, n));
    return 0;
}

static int on_extension(llhttp_t *parser, const char *at, size_t n) {
    struct http_parse *p = parse_of(parser);
    (void)at;
    p->extension_bytes += n;
    return p->extension_bytes > EXTENSION_BYTES_MAX ? fail(p, 400, "the body's chunks carry too much besides") : 0;
}

static int on_message_complete(llhttp_t *parser) {
    parse_of(parser)->state = HTTP_DONE;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
    .on_message_complete = on_message_complete,
};

void http_parse_init(struct http_parse *p, const struct http_limits *limits) {
    *p = (struct http_parse){.limits = *limits};
}

void http_parse_free(struct http_parse *p) {
    sb_free(&p->head);
    mem_free(p->marks);
}

void http_parse_begin(struct http_parse *p, struct http_request *r) {
    llhttp_init(&p->parser, HTTP_REQUEST, &settings);
    p->parser.data = p;
    p->request = r;
    sb_clear(&p->head);
    p->n_marks = 0;
    p->target_bytes = p->head_bytes = p->extension_bytes = 0;
    p->in_value = p->began = p->has_head = p->wants_continue = p->turned_away = false;
    p->state = HTTP_MORE;
    p->status = 0;
}

size_t http_parse_feed(struct http_parse *p, const char *data, size_t n) {
    if (n == 0 || p->state != HTTP_MORE) return 0;
    p->began = true;
    llhttp_errno_t code = llhttp_execute(&p->parser, data, n);
    if (code == HPE_OK) return n;
    const char *at = llhttp_get_error_pos(&p->parser);
    if (p->state == HTTP_DONE && code == HPE_PAUSED) return at ? (size_t)(at - data) : n;
    p->state = HTTP_BAD;
    if (p->status == 0) {
        p->status = 400;
        p->why = "the request is not well-formed HTTP/1.1";
    }
    return n;
}

void http_request_free(struct http_request *r) {
    sb_free(&r->body);
    arena_free(&r->arena);
    *r = (struct http_request){0};
}

struct str http_header(const struct http_request *r, const char *name) {
    for (int32_t i = 0; i < r->n_headers; i++)
        if (str_is(r->headers[i].name, name)) return r->headers[i].value;
    return (struct str){NULL, 0};
}
