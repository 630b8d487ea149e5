/* TLS by OpenSSL: the network's bytes go through a pair of memory buffers, so that libuv keeps the sockets.
 *
 * What is to be sent before the handshake is over waits here. TLS 1.2 and later, HTTP/1.1 by ALPN, no renegotiation.
 */
#include "server/tls.h"

#include "os/os.h"
#include "server/http_internal.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

enum { RECORD_BYTES = 16 * 1024 };

struct tls_context {
    SSL_CTX *ssl;
};

struct tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    struct http_conn *conn;
    struct sb waiting;
};

static int fail(struct err *err, const char *what, const char *path) {
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    int code = err_set(err, ERR_EARG, "%s %s: %s", what, path, reason ? reason : "not usable");
    ERR_clear_error();
    return code;
}

/* OpenSSL calls every failure to open a file "system lib". */
static int check_readable(const char *option, const char *path, struct err *err) {
    struct os_file *f;
    if (os_file_open(path, OS_READ, &f, err)) return err_prefix(err, "%s", option);
    os_file_close(f);
    return ERR_OK;
}

/* "http/1.1" and nothing else. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned n, void *user) {
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl, (void)user;
    int found = SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_n, ours, sizeof ours - 1, in, n);
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

int tls_context_open(const char *cert_path, const char *key_path, struct tls_context **out, struct err *err) {
    TRY(check_readable("--ssl-cert-file", cert_path, err));
    TRY(check_readable("--ssl-key-file", key_path, err));
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    int code = ERR_OK;
    if (!ssl) return err_set(err, ERR_EMEMORY, "no memory for TLS");
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(ssl, cert_path) != 1) code = fail(err, "--ssl-cert-file", cert_path);
    else if (SSL_CTX_use_PrivateKey_file(ssl, key_path, SSL_FILETYPE_PEM) != 1) code = fail(err, "--ssl-key-file", key_path);
    else if (SSL_CTX_check_private_key(ssl) != 1) code = fail(err, "--ssl-key-file does not belong to the certificate:", key_path);
    if (code) {
        SSL_CTX_free(ssl);
        return code;
    }
    *out = mem_alloc(sizeof **out);
    (*out)->ssl = ssl;
    return ERR_OK;
}

void tls_context_close(struct tls_context *c) {
    if (!c) return;
    SSL_CTX_free(c->ssl);
    mem_free(c);
}

struct tls *tls_open(struct tls_context *context, struct http_conn *conn) {
    struct tls *t = mem_alloc(sizeof *t);
    t->conn = conn;
    t->ssl = SSL_new(context->ssl);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        SSL_free(t->ssl);
        mem_free(t);
        return NULL;
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_accept_state(t->ssl);
    return t;
}

void tls_close(struct tls *t) {
    if (!t) return;
    SSL_free(t->ssl);
    sb_free(&t->waiting);
    mem_free(t);
}

/* What TLS wants on the wire. */
static void flush(struct tls *t) {
    char bytes[RECORD_BYTES];
    int n;
    while ((n = BIO_read(t->out, bytes, sizeof bytes)) > 0) conn_write(t->conn, str_n(bytes, (size_t)n));
}

/* After a call that did not succeed: true when it waits for more bytes, false when the connection is over. */
static bool is_waiting(struct tls *t, int result) {
    int why = SSL_get_error(t->ssl, result);
    flush(t);
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ) return true;
    if (why == SSL_ERROR_ZERO_RETURN) conn_ended(t->conn);
    else conn_close(t->conn);
    return false;
}

static void encrypt(struct tls *t, struct str data) {
    size_t written;
    if (data.n == 0) return;
    int result = SSL_write_ex(t->ssl, data.p, data.n, &written);
    if (result != 1 && is_waiting(t, result)) conn_close(t->conn); /* memory takes everything: this is an error */
    flush(t);
}

static bool shake_hands(struct tls *t) {
    if (SSL_is_init_finished(t->ssl)) return true;
    int result = SSL_do_handshake(t->ssl);
    if (result != 1) {
        is_waiting(t, result);
        return false;
    }
    flush(t);
    encrypt(t, sb_str(&t->waiting));
    sb_free(&t->waiting);
    return t->conn->state != CONN_CLOSED;
}

void tls_input(struct tls *t, const char *data, size_t n) {
    char bytes[RECORD_BYTES];
    ERR_clear_error();
    if (BIO_write(t->in, data, (int)n) != (int)n) {
        conn_close(t->conn);
        return;
    }
    if (!shake_hands(t)) return;
    while (t->conn->state != CONN_CLOSED && t->conn->state != CONN_LINGER) {
        size_t got;
        int result = SSL_read_ex(t->ssl, bytes, sizeof bytes, &got);
        if (result != 1) {
            is_waiting(t, result);
            return;
        }
        conn_input(t->conn, bytes, got);
    }
}

void tls_send(struct tls *t, struct str data) {
    ERR_clear_error();
    if (!SSL_is_init_finished(t->ssl)) sb_put(&t->waiting, data);
    else encrypt(t, data);
}

void tls_shutdown(struct tls *t) {
    if (!SSL_is_init_finished(t->ssl)) return;
    SSL_shutdown(t->ssl);
    flush(t);
    ERR_clear_error();
}
