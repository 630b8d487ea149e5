/* Any bytes as HTTP: the first byte says how they are cut; every request that is taken keeps to the limits, and its body goes
 * the way of a chat request as far as that needs no model. */
#include "server/http_parse.h"
#include "server/messages.h"
#include "server/params.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct http_limits limits = {.head_bytes = 2048, .n_headers = 16, .body_bytes = 4096};

static void require(bool ok) {
    if (!ok) abort();
}

static void check_body(const struct http_request *r) {
    struct arena a = {0};
    struct api_error e = {0};
    struct params p = {.vocab = 1000};
    struct sb input = {0};
    struct err err;
    yyjson_val *body;
    if (json_depth(sb_str(&r->body)) > 100 || json_parse(&a, sb_str(&r->body), "body", JSON_STRICT, &body, &err)) goto out;
    for (enum param_sets set = PARAMS_CHAT; set <= PARAMS_COMPLETION; set++) {
        p.job.sampling = sampler_defaults();
        p.job.max_new = -1;
        if (params_read(&a, body, set, &p, &e)) {
            require(e.status == 400 && e.message[0]);
            continue;
        }
        if (p.job.sampling.n_bias == 0) require(sampler_check(&p.job.sampling, 1, &err) == ERR_OK);
    }
    if (messages_to_input(body, &(struct messages_options){.prefills = true}, &input, &e) == 0) {
        yyjson_val *again;
        require(json_parse(&a, sb_str(&input), "input", JSON_STRICT, &again, &err) == ERR_OK);
    }
out:
    sb_free(&input);
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    struct http_parse p;
    struct http_request r = {0};
    size_t piece = data[0] ? data[0] : n, at = 1;
    http_parse_init(&p, &limits);
    http_parse_begin(&p, &r);
    while (at < n && p.state != HTTP_BAD) {
        struct str part = str_sub(str_n((const char *)data, n), at, piece);
        at += http_parse_feed(&p, part.p, part.n);
        if (p.state != HTTP_DONE) continue;
        require(r.n_headers <= limits.n_headers + 2 && r.body.n <= limits.body_bytes && r.path.n <= limits.head_bytes);
        check_body(&r);
        http_request_free(&r);
        http_parse_begin(&p, &r);
    }
    if (p.state == HTTP_BAD) require(p.status >= 400 && p.status < 600 && p.why);
    http_request_free(&r);
    http_parse_free(&p);
    return 0;
}
