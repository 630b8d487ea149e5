/* Bytes to HTTP/1.1 requests, under limits; knows no sockets, so that any bytes can be fed to it.
 *
 * llhttp parses, strictly. On top of it: what could be read in two ways is refused (both or two lengths, unknown transfer
 * encodings, folded lines, bare line feeds), sizes are checked before memory is spent, encoded bodies are not taken.
 * After HTTP_BAD nothing more may be fed: the connection must be answered with `status` and closed.
 */
#ifndef MLXCEL_SERVER_HTTP_PARSE_H
#define MLXCEL_SERVER_HTTP_PARSE_H

#include "base/str.h"

#include <llhttp.h>

struct http_limits {
    size_t head_bytes; /* request line and headers; 431 */
    int32_t n_headers; /* 431 */
    size_t body_bytes; /* 413 */
};

struct http_header {
    struct str name, value; /* name in lower case */
};

struct http_request {
    struct arena arena; /* holds the head */
    struct str method, target, query;
    struct str path; /* without doubled slashes and one at its end */
    struct http_header *headers;
    int32_t n_headers;
    int32_t minor; /* HTTP/1.x */
    struct sb body;
    bool keep_alive;
};

void http_request_free(struct http_request *r);
/* {NULL, 0} when absent. The name in lower case. */
struct str http_header(const struct http_request *r, const char *name);

enum http_state { HTTP_MORE, HTTP_DONE, HTTP_BAD };

struct http_mark {
    size_t from, n;
};

struct http_parse {
    llhttp_t parser;
    struct http_limits limits;
    struct http_request *request; /* filled; the caller's */
    struct sb head;               /* target, names and values one after another */
    struct http_mark *marks;      /* of names and values in head, in turn */
    int32_t n_marks, marks_capacity;
    size_t target_bytes, head_bytes, extension_bytes;
    bool in_value, began, has_head; /* began: a byte of this request was seen; has_head: all of its headers */
    bool wants_continue;            /* the client waits for "100 Continue" */
    enum http_state state;
    int32_t status; /* HTTP_BAD: what to answer */
    const char *why;
    /* Asked before a body is read (NULL: all are); false: HTTP_BAD and turned_away, and what to answer is the asked one's affair. */
    bool (*accept)(void *user, const struct http_request *r);
    void *accept_user;
    bool turned_away;
};

void http_parse_init(struct http_parse *p, const struct http_limits *limits);
void http_parse_free(struct http_parse *p);
/* Begins the next request, which is filled into *r (zeroed). */
void http_parse_begin(struct http_parse *p, struct http_request *r);
/* Returns how many bytes were used; all of them unless the request is done or bad. */
size_t http_parse_feed(struct http_parse *p, const char *data, size_t n);

#endif
