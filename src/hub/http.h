/* An HTTP client: one request at a time, redirects under our own rules, everything from the other side under limits.
 *
 * (1) A token goes to the origin (scheme, host, port) of the first URL only, never along a redirect to another.
 * (2) A redirect from https to http is refused, as is any other scheme. Certificates are always checked.
 * (3) Proxies come from the environment by libcurl's rules: HTTPS_PROXY, http_proxy, ALL_PROXY, NO_PROXY.
 * (4) A body is handed on only after on_reply has accepted its status and headers.
 * (5) Where may_connect is given, no connection is made that it has not allowed: also along redirects, and whatever a name means by then.
 * (6) Headers, redirects and refusals without an end are cut; a transfer that is slower than HTTP_LEAST_RATE for stall_s is given up.
 */
#ifndef MLXCEL_HUB_HTTP_H
#define MLXCEL_HUB_HTTP_H

#include "base/str.h"

#include <stdatomic.h>

enum { HTTP_HEADER_BYTES = 2048, HTTP_LEAST_RATE = 100 /* bytes a second */ };

struct http; /* a handle with its connections; one thread at a time */

struct http_options {
    const char *cacert; /* PEM file of further authorities; NULL: the system's */
    int32_t stall_s;    /* a transfer that moves next to nothing for so long is given up */
    /* Asked before every connection, with the bytes of the address, 4 or 16 of them; no proxy is used then. NULL: any is made. */
    bool (*may_connect)(const unsigned char *address, int n);
    const char *socket; /* path of a socket that all requests go to, whatever their host; must outlive the handle; NULL: none */
};

struct http_reply {
    int status;
    int64_t length;      /* of the body; -1: not said */
    int64_t range_start; /* Content-Range; -1: none */
    int64_t range_total; /* -1: none or "*" */
    int32_t retry_after; /* seconds; -1: not said */
    char etag[HTTP_HEADER_BYTES];
    char linked_etag[HTTP_HEADER_BYTES]; /* X-Linked-Etag of the hub, from the first reply that has one */
    int64_t linked_size;                 /* X-Linked-Size; -1: none */
    char commit[128];                    /* X-Repo-Commit */
    char reason[64];                     /* X-Error-Code of the hub: GatedRepo, RepoNotFound ... */
    bool transient;                      /* the failure may pass: worth another try */
    bool unreachable;                    /* no name, no route, or nobody listens: there is no network here, most likely */
    struct sb url;                       /* where the redirects ended */
    struct sb text;                      /* body of a refusal, and of requests without on_body */
};

struct http_request {
    const char *url;
    bool head;            /* HEAD instead of GET */
    const char *body;     /* JSON to POST; NULL: GET */
    const char *token;    /* NULL: none */
    const char *range;    /* "0-99"; NULL: everything */
    const char *if_range; /* an ETag; NULL: none */
    size_t text_bytes;    /* most that is read without on_body; 0: 64 KiB */
    int64_t limit_ms;     /* for all of it; 0: none */
    bool says_waiting;    /* a line in the log when no answer comes for a while */
    /* Before the body of a 2xx reply; nonzero refuses it, and is what http_send returns. */
    int (*on_reply)(void *user, const struct http_reply *reply, struct err *err);
    int (*on_body)(void *user, const void *data, size_t n, struct err *err);
    void *user;
    const atomic_bool *cancel; /* NULL: cannot be stopped */
};

int http_open(const struct http_options *options, struct http **out, struct err *err);
void http_close(struct http *h); /* NULL is fine */

/* 0: a whole reply of any status came. ERR_ENETWORK: none did, the message says why. *out is zeroed storage or an earlier reply. */
int http_send(struct http *h, const struct http_request *request, struct http_reply *out, struct err *err);
void http_reply_free(struct http_reply *r);

/* Whether two URLs have scheme, host and port in common. */
bool http_same_origin(struct str a, struct str b);
/* http or https, with a host and nothing before it. */
bool http_url_ok(struct str url);
bool http_is_secure(struct str url);
/* One path segment, escaped for an URL. */
void http_escape(struct sb *out, struct str segment);
/* A header's value of a reply, tidied: {NULL, 0} when the line is another header. */
struct str http_header_value(struct str line, const char *name);

#endif
