/* Addresses and sockets to listen on. */
#include "server/listen.h"

#include "server/server.h"

#include "os/os.h"

enum { BACKLOG = 511 };

struct str server_socket_path(struct str host) {
    if (str_starts(host, STR("unix:"))) return str_from(host, 5);
    return str_find_char(host, '/', 0) != STR_NONE ? host : (struct str){0};
}

bool listen_is_socket(const union listen_stream *s) {
    return uv_handle_get_type(&s->handle) == UV_NAMED_PIPE;
}

int listen_init_peer(const union listen_stream *listener, uv_loop_t *loop, union listen_stream *out) {
    return listen_is_socket(listener) ? uv_pipe_init(loop, &out->pipe, 0) : uv_tcp_init(loop, &out->tcp);
}

static int port_of(const union listen_stream *s) {
    struct sockaddr_storage address;
    int length = sizeof address;
    if (uv_tcp_getsockname(&s->tcp, (struct sockaddr *)&address, &length)) return 0;
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&address)->sin_port);
}

static int read_address(const char *host, int32_t port, struct sockaddr_storage *out, struct err *err) {
    const char *number = strcmp(host, "localhost") ? host : "127.0.0.1";
    if (uv_ip4_addr(number, port, (struct sockaddr_in *)out) == 0) return ERR_OK;
    if (uv_ip6_addr(number, port, (struct sockaddr_in6 *)out) == 0) return ERR_OK;
    return err_set(err, ERR_EARG, "--host %s is no address; use 127.0.0.1, 0.0.0.0, ::1, another one of this machine, or unix:/PATH", host);
}

/* Beside others, :: stands for its own version of addresses alone: 0.0.0.0 may be among them. */
static int open_address(struct listeners *l, const char *host, int32_t port, uv_connection_cb on_connection, struct err *err) {
    union listen_stream *s = &l->all[l->n - 1];
    struct sockaddr_storage address;
    TRY(read_address(host, l->port ? l->port : port, &address, err));
    bool is_v6_alone = !l->is_one && address.ss_family == AF_INET6;
    int code = uv_tcp_bind(&s->tcp, (const struct sockaddr *)&address, is_v6_alone ? UV_TCP_IPV6ONLY : 0);
    if (!code) code = uv_listen(&s->stream, BACKLOG, on_connection);
    if (code == UV_EADDRINUSE)
        return err_set(err, ERR_ENETWORK,
                       "cannot listen on %s port %d: another program does; choose another port by --port, 0 takes a free one", host, port);
    if (code) return err_set(err, ERR_ENETWORK, "cannot listen on %s port %d: %s", host, port, uv_strerror(code));
    l->port = port_of(s);
    return ERR_OK;
}

static int open_socket(struct listeners *l, const char *path, uv_connection_cb on_connection, struct err *err) {
    union listen_stream *s = &l->all[l->n - 1];
    if (os_socket_file_clear(path, err)) return err_prefix(err, "--host");
    int code = uv_pipe_bind(&s->pipe, path);
    if (!code) code = uv_listen(&s->stream, BACKLOG, on_connection);
    return code ? err_set(err, ERR_ENETWORK, "cannot listen on %s: %s", path, uv_strerror(code)) : ERR_OK;
}

static int open_one(struct listeners *l, uv_loop_t *loop, struct str host, int32_t port, uv_connection_cb on_connection, void *data,
                    struct err *err) {
    struct arena a = {0};
    struct str path = server_socket_path(host);
    union listen_stream *s = &l->all[l->n++];
    if (path.p) uv_pipe_init(loop, &s->pipe, 0);
    else uv_tcp_init(loop, &s->tcp);
    s->handle.data = data;
    int code =
        path.p ? open_socket(l, str_cstr(&a, path), on_connection, err) : open_address(l, str_cstr(&a, host), port, on_connection, err);
    arena_free(&a);
    return code;
}

int listen_check(const char *hosts, struct err *err) {
    struct str rest = str_of(hosts), host;
    struct sockaddr_storage address;
    int32_t n = 0;
    for (int code; str_split_next(&rest, ',', &host); n++) {
        struct arena a = {0};
        host = str_trim(host);
        if (host.n == 0) return err_set(err, ERR_EARG, "--host %s: an address is empty", hosts);
        if (n == LISTENERS_MAX) return err_set(err, ERR_EARG, "--host names more than %d addresses", LISTENERS_MAX);
        code = server_socket_path(host).p ? ERR_OK : read_address(str_cstr(&a, host), 0, &address, err);
        arena_free(&a);
        TRY(code);
    }
    return n ? ERR_OK : err_set(err, ERR_EARG, "--host is empty; use 127.0.0.1");
}

int listen_open(struct listeners *l, uv_loop_t *loop, const char *hosts, int32_t port, uv_connection_cb on_connection, void *data,
                struct err *err) {
    struct str rest = str_of(hosts), host;
    *l = (struct listeners){.is_one = str_find_char(rest, ',', 0) == STR_NONE};
    TRY(listen_check(hosts, err));
    while (str_split_next(&rest, ',', &host)) TRY(open_one(l, loop, str_trim(host), port, on_connection, data, err));
    return ERR_OK;
}

static struct str url_of(struct arena *a, struct str host, int32_t port, bool has_tls) {
    struct str path = server_socket_path(host);
    if (path.p) return str_fmt(a, "unix:%.*s", STR_ARG(path));
    if (str_is(host, "0.0.0.0")) host = STR("127.0.0.1");
    if (str_is(host, "::")) host = STR("::1");
    bool is_v6 = str_find_char(host, ':', 0) != STR_NONE;
    return str_fmt(a, "%s://%s%.*s%s:%d", has_tls ? "https" : "http", is_v6 ? "[" : "", STR_ARG(host), is_v6 ? "]" : "", (int)port);
}

size_t listen_urls(struct arena *a, const char *hosts, int32_t port, bool has_tls, struct str **out) {
    struct str rest = str_of(hosts), host;
    size_t n = 0;
    *out = arena_new(a, struct str, LISTENERS_MAX);
    while (n < LISTENERS_MAX && str_split_next(&rest, ',', &host)) (*out)[n++] = url_of(a, str_trim(host), port, has_tls);
    return n;
}
