/* Files from elsewhere, by the hub's HTTP client. */
#include "api/remote.h"

#include "base/log.h"
#include "base/address.h"
#include "hub/http.h"

struct remote_rules remote_public_rules(void) {
    return (struct remote_rules){.may_connect = address_is_public, .max_bytes = 32 << 20, .limit_ms = 20000};
}

static int read_reply(const struct remote_rules *rules, int code, const struct http_reply *reply, struct arena *a, struct str *out,
                      const struct err *why, struct err *err) {
    if (code) log_debug("a picture was not fetched: %s", why->msg);
    if (code == ERR_ELIMIT) return err_set(err, ERR_ELIMIT, "the file is larger than %zu bytes", rules->max_bytes);
    if (code == ERR_EARG) return err_set(err, ERR_EARG, "%s", why->msg);
    if (code) return err_set(err, ERR_ENETWORK, "the file cannot be fetched: the address is not public, or nothing answers there in time");
    if (reply->status != 200) return err_set(err, ERR_ENETWORK, "the file cannot be fetched: status %d", reply->status);
    *out = str_copy(a, sb_str(&reply->text));
    return ERR_OK;
}

int remote_fetch(struct arena *a, const struct remote_rules *rules, struct str url, struct str *out, struct err *err) {
    struct http *http;
    struct http_reply reply = {0};
    struct http_options options = {.stall_s = 10, .may_connect = rules->may_connect};
    struct err why = {0};
    if (!http_url_ok(url) || !(rules->takes_http || http_is_secure(url)))
        return err_set(err, ERR_EARG, "the address must begin with https://, and name neither a user nor a password");
    TRY(http_open(&options, &http, err));
    struct http_request request = {.url = str_cstr(a, url), .text_bytes = rules->max_bytes, .limit_ms = rules->limit_ms};
    int code = http_send(http, &request, &reply, &why);
    code = read_reply(rules, code, &reply, a, out, &why, err);
    http_reply_free(&reply);
    http_close(http);
    return code;
}
