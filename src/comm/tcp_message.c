/* Whole messages within a time. */
#include "comm/tcp_internal.h"

enum { LOOK_MS = 100 };

static int left_ms(uint64_t until_ns) {
    uint64_t now = os_clock_ns();
    uint64_t ms = now < until_ns ? (until_ns - now) / 1000000 + 1 : 0;
    return ms < LOOK_MS ? (int)ms : LOOK_MS;
}

static int gone(struct err *err) {
    return err_set(err, ERR_ENETWORK, "the connection was closed");
}

static int too_late(struct err *err) {
    return err_set(err, ERR_EBUSY, "nothing came in time");
}

int tcp_message_put(struct os_tcp *t, const void *data, size_t n, uint64_t until_ns, struct err *err) {
    const char *p = data;
    while (n) {
        int64_t sent = os_tcp_send(t, (const struct os_tcp_piece[2]){{p, n}, {NULL, 0}});
        if (sent < 0) return gone(err);
        p += sent;
        n -= (size_t)sent;
        if (sent) continue;
        int ms = left_ms(until_ns);
        if (ms == 0) return too_late(err);
        os_tcp_wait(&(struct os_tcp_wish){.t = t, .sends = true}, 1, ms);
    }
    return ERR_OK;
}

int tcp_message_take(struct os_tcp *t, void *data, size_t n, uint64_t until_ns, struct err *err) {
    char *p = data;
    while (n) {
        int64_t got = os_tcp_receive(t, p, n);
        if (got < 0) return gone(err);
        p += got;
        n -= (size_t)got;
        if (got) continue;
        int ms = left_ms(until_ns);
        if (ms == 0) return too_late(err);
        os_tcp_wait(&(struct os_tcp_wish){.t = t, .receives = true}, 1, ms);
    }
    return ERR_OK;
}

int tcp_message_send(struct os_tcp *t, enum tcp_message kind, const void *data, size_t n, uint64_t until_ns, struct err *err) {
    struct tcp_message_head head = {kind, (uint32_t)n};
    TRY(tcp_message_put(t, &head, sizeof head, until_ns, err));
    return tcp_message_put(t, data, n, until_ns, err);
}

int tcp_message_receive(struct os_tcp *t, uint32_t *out_kind, void *data, size_t most, size_t *out_n, uint64_t until_ns, struct err *err) {
    struct tcp_message_head head;
    TRY(tcp_message_take(t, &head, sizeof head, until_ns, err));
    if (head.bytes > most) return err_set(err, ERR_EFORMAT, "a message of %u bytes came, expected at most %zu", head.bytes, most);
    TRY(tcp_message_take(t, data, head.bytes, until_ns, err));
    *out_kind = head.kind;
    *out_n = head.bytes;
    return ERR_OK;
}

size_t tcp_message_write_reason(const struct err *reason, unsigned char *out, size_t most) {
    int32_t code = reason->code;
    size_t n = strlen(reason->msg);
    if (n > most - sizeof code) n = most - sizeof code;
    memcpy(out, &code, sizeof code);
    memcpy(out + sizeof code, reason->msg, n);
    return sizeof code + n;
}

void tcp_message_read_reason(const unsigned char *data, size_t n, struct err *out) {
    int32_t code = ERR_EINTERNAL;
    size_t used = n < sizeof code ? n : sizeof code;
    memcpy(&code, data, used);
    if (code <= ERR_OK || code >= N_ERR_CODES) code = ERR_EINTERNAL;
    err_set(out, code, "%.*s", (int)(n - used), (const char *)data + used);
}
