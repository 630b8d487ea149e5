/* TLS where this build has none: refused by name. */
#include "server/tls.h"

int tls_context_open(const char *cert_path, const char *key_path, struct tls_context **out, struct err *err) {
    (void)cert_path, (void)key_path, (void)out;
    return err_set(err, ERR_EUNSUPPORTED, "this build has no TLS: leave --ssl-cert-file out, and put a proxy with TLS before the server");
}

void tls_context_close(struct tls_context *c) {
    (void)c;
}

struct tls *tls_open(struct tls_context *context, struct http_conn *conn) {
    (void)context, (void)conn;
    return NULL;
}

void tls_close(struct tls *t) {
    (void)t;
}

void tls_input(struct tls *t, const char *data, size_t n) {
    (void)t, (void)data, (void)n;
}

void tls_send(struct tls *t, struct str data) {
    (void)t, (void)data;
}

void tls_shutdown(struct tls *t) {
    (void)t;
}
