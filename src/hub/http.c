/* Requests over libcurl. Status and headers are read by ourselves, so that every redirect passes our rules. */
#include "hub/http.h"

#include "base/log.h"
#include "hub/curl.h"
#include "os/os.h"

#include <limits.h>

enum {
    REDIRECTS_MAX = 10,
    TEXT_BYTES = 64 << 10,
    HEADERS_BYTES_MAX = 256 << 10,
    URL_BYTES_MAX = 16 << 10,
    CONNECT_S = 20,
    SILENCE_S = 5,
    BUFFER_BYTES = 512 << 10
};

struct http {
    const struct curl_api *curl;
    CURL *handle;
    struct http_options options;
    char *cacert;
    char reason[CURL_ERROR_SIZE];
    /* of the request that is running */
    const struct http_request *request;
    struct http_reply *reply;
    bool accepted; /* on_reply has been asked */
    bool enough;   /* of a refusal's body, which is not read to its end */
    int code;      /* of a call-back that refused */
    size_t header_bytes, redirect_bytes;
    uint64_t end_ns;  /* 0: no limit */
    uint64_t tell_ns; /* when it is time to say what is waited for; 0: never, or it was said */
    struct err err;
};

/* ---- URLs ------------------------------------------------------------------------------------------------------------- */

/* Lower-case scheme and authority; false when it is no http URL. */
static bool origin_of(struct str url, struct str *out_scheme, struct str *out_authority) {
    static const struct str schemes[] = {{"https://", 8}, {"http://", 7}};
    for (size_t i = 0; i < 2; i++) {
        if (!str_starts(url, schemes[i])) continue;
        size_t end = schemes[i].n;
        while (end < url.n && url.p[end] != '/' && url.p[end] != '?' && url.p[end] != '#') end++;
        *out_scheme = str_sub(schemes[i], 0, schemes[i].n - 3);
        *out_authority = str_sub(url, schemes[i].n, end - schemes[i].n);
        return out_authority->n > 0 && str_find_char(*out_authority, '@', 0) == STR_NONE;
    }
    return false;
}

bool http_url_ok(struct str url) {
    struct str scheme, authority;
    if (url.n > URL_BYTES_MAX || !origin_of(url, &scheme, &authority)) return false;
    for (size_t i = 0; i < url.n; i++)
        if ((unsigned char)url.p[i] <= 0x20 || url.p[i] == 0x7F) return false;
    return true;
}

bool http_is_secure(struct str url) {
    return str_starts(url, STR("https://"));
}

/* The authority with its port spelled out, so that "host" and "host:443" are one. */
static void put_authority(struct sb *out, struct str scheme, struct str authority) {
    size_t colon = authority.n;
    while (colon > 0 && authority.p[colon - 1] >= '0' && authority.p[colon - 1] <= '9') colon--;
    bool has_port = colon > 0 && authority.p[colon - 1] == ':';
    for (size_t i = 0; i < authority.n; i++) {
        char c = authority.p[i];
        sb_putc(out, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
    }
    if (!has_port) sb_puts(out, str_is(scheme, "https") ? ":443" : ":80");
}

bool http_same_origin(struct str a, struct str b) {
    struct str scheme_a, scheme_b, host_a, host_b;
    if (!origin_of(a, &scheme_a, &host_a) || !origin_of(b, &scheme_b, &host_b) || !str_eq(scheme_a, scheme_b)) return false;
    struct sb text_a = {0}, text_b = {0};
    put_authority(&text_a, scheme_a, host_a);
    put_authority(&text_b, scheme_b, host_b);
    bool same = str_eq(sb_str(&text_a), sb_str(&text_b));
    sb_free(&text_a);
    sb_free(&text_b);
    return same;
}

void http_escape(struct sb *out, struct str segment) {
    for (size_t i = 0; i < segment.n; i++) {
        unsigned char c = (unsigned char)segment.p[i];
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
        if (plain) sb_putc(out, (char)c);
        else sb_fmt(out, "%%%02X", c);
    }
}

/* ---- headers ------------------------------------------------------------------------------------------------------------ */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

struct str http_header_value(struct str line, const char *name) {
    size_t n = strlen(name);
    if (line.n <= n || line.p[n] != ':') return (struct str){0};
    for (size_t i = 0; i < n; i++)
        if (lower(line.p[i]) != lower(name[i])) return (struct str){0};
    return str_trim(str_from(line, n + 1));
}

/* A value that does not fit, or holds control characters, counts as absent. */
static void copy_value(char *out, size_t out_bytes, struct str value) {
    bool ok = value.n < out_bytes;
    for (size_t i = 0; ok && i < value.n; i++) ok = (unsigned char)value.p[i] >= 0x20 && value.p[i] != 0x7F;
    if (!ok) value.n = 0;
    if (value.n) memcpy(out, value.p, value.n);
    out[value.n] = 0;
}

/* "bytes 0-99/1234" */
static void read_content_range(struct str value, struct http_reply *r) {
    if (!str_starts(value, STR("bytes "))) return;
    struct str rest = str_trim(str_from(value, 6)), total = {0};
    size_t slash = str_find_char(rest, '/', 0), dash = str_find_char(rest, '-', 0);
    if (slash == STR_NONE || dash == STR_NONE || dash > slash) return;
    total = str_from(rest, slash + 1);
    if (!str_to_int64(str_sub(rest, 0, dash), &r->range_start) || r->range_start < 0) r->range_start = -1;
    if (!str_to_int64(total, &r->range_total) || r->range_total < 0) r->range_total = -1;
}

static void read_number(struct str value, int64_t *out) {
    if (!str_to_int64(value, out) || *out < 0) *out = -1;
}

static void begin_reply(struct http_reply *r, struct str line) {
    int64_t status = 0;
    size_t blank = str_find_char(line, ' ', 0);
    r->length = r->range_start = r->range_total = -1;
    r->retry_after = -1;
    r->etag[0] = 0;
    r->status = 0;
    if (blank != STR_NONE && str_to_int64(str_sub(line, blank + 1, 3), &status) && status >= 100 && status < 1000) r->status = (int)status;
}

static size_t on_header(char *data, size_t size, size_t n, void *user) {
    struct http *h = user;
    struct http_reply *r = h->reply;
    struct str line = str_trim(str_n(data, n)), v;
    int64_t seconds;
    (void)size;
    h->header_bytes += n;
    if (h->header_bytes > HEADERS_BYTES_MAX) {
        h->code = err_set(&h->err, ERR_ELIMIT, "%.160s answers with more than %d bytes of headers", r->url.p, HEADERS_BYTES_MAX);
        return 0;
    }
    if (str_starts(line, STR("HTTP/"))) begin_reply(r, line);
    else if ((v = http_header_value(line, "content-length")).p) read_number(v, &r->length);
    else if ((v = http_header_value(line, "content-range")).p) read_content_range(v, r);
    else if ((v = http_header_value(line, "etag")).p) copy_value(r->etag, sizeof r->etag, v);
    else if ((v = http_header_value(line, "x-linked-etag")).p) copy_value(r->linked_etag, sizeof r->linked_etag, v);
    else if ((v = http_header_value(line, "x-linked-size")).p) read_number(v, &r->linked_size);
    else if ((v = http_header_value(line, "x-repo-commit")).p) copy_value(r->commit, sizeof r->commit, v);
    else if ((v = http_header_value(line, "x-error-code")).p) copy_value(r->reason, sizeof r->reason, v);
    else if ((v = http_header_value(line, "retry-after")).p && str_to_int64(v, &seconds) && seconds >= 0)
        r->retry_after = (int32_t)(seconds > 86400 ? 86400 : seconds);
    return n;
}

/* ---- the body ----------------------------------------------------------------------------------------------------------- */

static bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int accept_reply(struct http *h) {
    if (h->accepted || h->reply->status < 200 || h->reply->status > 299) return ERR_OK;
    h->accepted = true;
    if (h->request->on_reply) h->code = h->request->on_reply(h->request->user, h->reply, &h->err);
    return h->code;
}

static int keep_text(struct http *h, const char *data, size_t n) {
    bool good = h->reply->status >= 200 && h->reply->status <= 299;
    size_t most = good && h->request->text_bytes ? h->request->text_bytes : TEXT_BYTES;
    size_t room = most - h->reply->text.n;
    if (n > room && good) return err_set(&h->err, ERR_ELIMIT, "the reply is larger than %zu bytes", most);
    sb_put(&h->reply->text, str_n(data, n < room ? n : room));
    h->enough = n > room;
    return ERR_OK;
}

/* Nobody reads the body of a redirect; one that is long is a trap. */
static int pass_redirect(struct http *h, size_t n) {
    h->redirect_bytes += n;
    if (h->redirect_bytes <= TEXT_BYTES) return ERR_OK;
    return err_set(&h->err, ERR_ELIMIT, "%.160s sends more than %d bytes with a redirect", h->reply->url.p, TEXT_BYTES);
}

static size_t on_data(char *data, size_t size, size_t n, void *user) {
    struct http *h = user;
    (void)size;
    bool good = h->reply->status >= 200 && h->reply->status <= 299;
    if (accept_reply(h)) return 0;
    if (is_redirect(h->reply->status)) h->code = pass_redirect(h, n);
    else if (good && h->request->on_body) h->code = h->request->on_body(h->request->user, data, n, &h->err);
    else h->code = keep_text(h, data, n);
    return h->code || h->enough ? 0 : n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct http *h = user;
    struct str scheme = {0}, host = {0};
    (void)a, (void)b, (void)c, (void)d;
    if (h->tell_ns && h->header_bytes == 0 && os_clock_ns() > h->tell_ns) {
        h->tell_ns = 0;
        origin_of(sb_str(&h->reply->url), &scheme, &host);
        log_info("waiting for an answer from %.*s://%.*s", STR_ARG(scheme), STR_ARG(host));
    }
    return h->request->cancel && atomic_load_explicit(h->request->cancel, memory_order_relaxed);
}

/* ---- one request -------------------------------------------------------------------------------------------------------- */

static struct curl_slist *add_header(struct http *h, struct curl_slist *list, const char *name, const char *value) {
    struct sb line = {0};
    sb_fmt(&line, "%s: %s", name, value);
    struct curl_slist *longer = h->curl->slist_append(list, line.p);
    sb_free(&line);
    return longer ? longer : list;
}

static struct curl_slist *make_headers(struct http *h, const char *url) {
    const struct http_request *q = h->request;
    struct curl_slist *list = add_header(h, NULL, "Accept-Encoding", "identity");
    if (q->body) list = add_header(h, list, "Content-Type", "application/json");
    if (q->if_range) list = add_header(h, list, "If-Range", q->if_range);
    if (q->token && http_same_origin(str_of(url), str_of(q->url))) {
        struct sb value = {0};
        sb_fmt(&value, "Bearer %s", q->token);
        list = add_header(h, list, "Authorization", value.p);
        sb_free(&value);
    }
    return list;
}

/* At least one: none would be no limit. */
static int ms_left(const struct http *h) {
    uint64_t now = os_clock_ns();
    return now >= h->end_ns ? 1 : (int)((h->end_ns - now) / 1000000 % INT_MAX) + 1;
}

/* Sockets for addresses that may be asked; each was resolved just now. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *to) {
    struct http *h = user;
    unsigned char address[16];
    int n = os_socket_address(to->family, &to->addr, address);
    (void)purpose;
    if (n == 0 || !h->options.may_connect(address, n)) return CURL_SOCKET_BAD;
    return (curl_socket_t)os_socket_open(to->family, to->socktype, to->protocol);
}

static void set_up(struct http *h, const char *url, struct curl_slist *headers) {
    const struct curl_api *c = h->curl;
    CURL *e = h->handle;
    c->easy_reset(e); /* connections stay open */
    c->easy_setopt(e, CURLOPT_URL, url);
    c->easy_setopt(e, CURLOPT_HTTPHEADER, headers);
    c->easy_setopt(e, CURLOPT_ERRORBUFFER, h->reason);
    c->easy_setopt(e, CURLOPT_USERAGENT, "mlxcel/" MLXCEL_VERSION);
    c->easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    c->easy_setopt(e, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1 * 1L);
    c->easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    c->easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    c->easy_setopt(e, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2 * 1L);
    c->easy_setopt(e, CURLOPT_CONNECTTIMEOUT, CONNECT_S * 1L);
    c->easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, HTTP_LEAST_RATE * 1L);
    c->easy_setopt(e, CURLOPT_LOW_SPEED_TIME, h->options.stall_s * 1L);
    c->easy_setopt(e, CURLOPT_BUFFERSIZE, BUFFER_BYTES * 1L);
    c->easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(e, CURLOPT_HEADERDATA, h);
    c->easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    c->easy_setopt(e, CURLOPT_WRITEDATA, h);
    c->easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    c->easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    c->easy_setopt(e, CURLOPT_XFERINFODATA, h);
    if (h->request->body) c->easy_setopt(e, CURLOPT_COPYPOSTFIELDS, h->request->body);
    else c->easy_setopt(e, CURLOPT_NOBODY, h->request->head ? 1L : 0L);
    c->easy_setopt(e, CURLOPT_RANGE, h->request->range);
    if (h->cacert) c->easy_setopt(e, CURLOPT_CAINFO, h->cacert);
    if (h->options.socket) c->easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, h->options.socket);
    if (h->options.may_connect) {
        c->easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
        c->easy_setopt(e, CURLOPT_OPENSOCKETDATA, h);
        c->easy_setopt(e, CURLOPT_PROXY, "");
    }
    if (h->end_ns) c->easy_setopt(e, CURLOPT_TIMEOUT_MS, ms_left(h) * 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    c->easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* an end does not wait for a name that nobody resolves */
#endif
}

/* Failures that the next try will meet again. */
static bool is_lasting(CURLcode code) {
    static const CURLcode lasting[] = {CURLE_UNSUPPORTED_PROTOCOL,  CURLE_URL_MALFORMAT,           CURLE_PEER_FAILED_VERIFICATION,
                                       CURLE_SSL_CACERT_BADFILE,    CURLE_SSL_ISSUER_ERROR,        CURLE_SSL_CERTPROBLEM,
                                       CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH};
    for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++)
        if (code == lasting[i]) return true;
    return false;
}

/* Failures before anything was sent, known at once: no name, no route, or nobody listens. A connection that only takes too long is none of them. */
static bool is_unreachable(CURLcode code) {
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_CONNECT;
}

static int fail(struct http *h, const char *url, CURLcode result, struct err *err) {
    if (h->code) return err_set(err, h->code, "%s", h->err.msg);
    if (result == CURLE_ABORTED_BY_CALLBACK) return err_set(err, ERR_ECANCELLED, "stopped");
    struct str scheme = {0}, host = {0};
    origin_of(str_of(url), &scheme, &host);
    h->reply->transient = !is_lasting(result);
    h->reply->unreachable = is_unreachable(result);
    const char *reason = h->reason[0] ? h->reason : h->curl->easy_strerror(result);
    const char *cure = result == CURLE_PEER_FAILED_VERIFICATION ? " (--cacert FILE names a further authority)" : "";
    return err_set(err, ERR_ENETWORK, "%.*s://%.*s: %.200s%s", STR_ARG(scheme), STR_ARG(host), reason, cure);
}

static int perform(struct http *h, const char *url, struct err *err) {
    struct curl_slist *headers = make_headers(h, url);
    h->accepted = h->enough = false;
    h->code = ERR_OK;
    h->header_bytes = h->redirect_bytes = 0;
    h->tell_ns = h->request->says_waiting ? os_clock_ns() + SILENCE_S * UINT64_C(1000000000) : 0;
    h->reason[0] = 0;
    sb_clear(&h->reply->text);
    begin_reply(h->reply, (struct str){0});
    set_up(h, url, headers);
    CURLcode result = h->curl->easy_perform(h->handle);
    h->curl->slist_free_all(headers);
    if (result != CURLE_OK && !(h->enough && !h->code)) return fail(h, url, result, err);
    if (h->reply->status == 0) return err_set(err, ERR_ENETWORK, "%.200s answers without a status", url);
    if (!is_redirect(h->reply->status) && accept_reply(h)) return err_set(err, h->code, "%s", h->err.msg); /* an empty body */
    return ERR_OK;
}

/* Where a redirect leads, under the rules; libcurl has resolved a relative one. */
static int next_url(struct http *h, struct sb *url, struct err *err) {
    char *target = NULL;
    h->curl->easy_getinfo(h->handle, CURLINFO_REDIRECT_URL, &target);
    if (!target) return err_set(err, ERR_ENETWORK, "%.200s redirects to nowhere", url->p);
    if (!http_url_ok(str_of(target))) return err_set(err, ERR_ENETWORK, "%.160s redirects to \"%.160s\", which is refused", url->p, target);
    if (http_is_secure(sb_str(url)) && !http_is_secure(str_of(target)))
        return err_set(err, ERR_ENETWORK, "%.160s redirects from https to plain http, which is refused", url->p);
    struct sb copy = {0};
    sb_puts(&copy, target);
    sb_free(url);
    *url = copy;
    return ERR_OK;
}

int http_send(struct http *h, const struct http_request *request, struct http_reply *out, struct err *err) {
    h->request = request;
    h->reply = out;
    out->linked_etag[0] = out->commit[0] = out->reason[0] = 0;
    out->linked_size = -1;
    out->transient = out->unreachable = false;
    h->end_ns = request->limit_ms > 0 ? os_clock_ns() + (uint64_t)request->limit_ms * 1000000 : 0;
    sb_clear(&out->url);
    sb_puts(&out->url, request->url);
    if (!http_url_ok(str_of(request->url))) return err_set(err, ERR_EARG, "\"%.200s\" is no http or https URL", request->url);
    for (int i = 0; i < REDIRECTS_MAX; i++) {
        TRY(perform(h, out->url.p, err));
        if (!is_redirect(out->status)) {
            out->transient = out->status == 408 || out->status == 429 || out->status >= 500;
            return ERR_OK;
        }
        TRY(next_url(h, &out->url, err));
    }
    return err_set(err, ERR_ENETWORK, "%.200s redirects more than %d times", request->url, REDIRECTS_MAX);
}

void http_reply_free(struct http_reply *r) {
    sb_free(&r->url);
    sb_free(&r->text);
}

int http_open(const struct http_options *options, struct http **out, struct err *err) {
    const struct curl_api *curl = curl_open(err);
    if (!curl) return ERR_EUNSUPPORTED;
    CURL *handle = curl->easy_init();
    if (!handle) return err_set(err, ERR_EMEMORY, "libcurl has no memory for a connection");
    struct http *h = mem_alloc(sizeof *h);
    h->curl = curl;
    h->handle = handle;
    h->options = *options;
    const char *cacert = options->cacert ? options->cacert : curl_certificates();
    if (cacert) {
        struct sb path = {0};
        sb_puts(&path, cacert);
        h->cacert = path.p;
    }
    *out = h;
    return ERR_OK;
}

void http_close(struct http *h) {
    if (!h) return;
    h->curl->easy_cleanup(h->handle);
    mem_free(h->cacert);
    mem_free(h);
}
