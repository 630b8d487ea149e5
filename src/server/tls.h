/* TLS between a connection and its bytes. */
#ifndef MLXCEL_SERVER_TLS_H
#define MLXCEL_SERVER_TLS_H

#include "base/str.h"

struct http_conn;
struct tls_context;
struct tls;

/* Certificate chain and key, PEM. Refused by name where this build has no TLS. */
int tls_context_open(const char *cert_path, const char *key_path, struct tls_context **out, struct err *err);
void tls_context_close(struct tls_context *c); /* NULL is fine */

struct tls *tls_open(struct tls_context *context, struct http_conn *conn); /* NULL: no memory */
void tls_close(struct tls *t);                                             /* NULL is fine */
/* Bytes from the network; what they hold goes to conn_input. */
void tls_input(struct tls *t, const char *data, size_t n);
/* Plain bytes to be sent. */
void tls_send(struct tls *t, struct str data);
/* Says that nothing more will be sent. */
void tls_shutdown(struct tls *t);

#endif
