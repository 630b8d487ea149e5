/* Ranks that are processes: what the files of comm/tcp_*.c and comm_tcp.c share with each other and with nobody else.
 *
 * Each rank has a connection to every other one for data, and one to the first rank, the control, for everything else: signs of life, reasons and the end.
 * The thread that computes has the former, the watch (tcp_watch.c) the latter.
 */
#ifndef MLXCEL_COMM_TCP_INTERNAL_H
#define MLXCEL_COMM_TCP_INTERNAL_H

#include "comm/tcp.h"
#include "os/os.h"
#include "os/tcp.h"

enum { WATCH_BUFFER = 1024 };

/* A message on its way in, of the control. */
struct watch_peer {
    struct os_tcp *link;
    unsigned char buffer[WATCH_BUFFER];
    size_t n;
    uint64_t heard_ns;
    bool has_ended; /* and said so */
    char address[OS_TCP_TEXT];
};

struct watch {
    struct watch_peer peers[COMM_RANKS_MAX]; /* by rank; of the others: the first alone */
    struct os_thread *thread;
    struct os_mutex *lock; /* for the reason */
    struct err reason;
    _Atomic uint32_t has_failed, quits;
    int32_t rank, size;
    struct comm_tcp_options options;
};

/* Behind the joining: every rank has its control. */
int tcp_watch_start(struct watch *w, struct err *err);
/* Tells the others why, or that this is the end, and waits until they know. */
void tcp_watch_stop(struct watch *w);
void tcp_watch_fail(struct watch *w, const struct err *reason); /* the first reason counts */
int tcp_watch_failure(struct watch *w, struct err *err);        /* what has failed, as an error */

/* tcp_message.c: messages of the control and of the joining, with their lengths. */
enum tcp_message { MSG_JOIN = 1, MSG_START, MSG_BEAT, MSG_REASON, MSG_END };

struct tcp_message_head {
    uint32_t kind, bytes;
};

/* Whole pieces until a point in time; ERR_ENETWORK where the connection ends, ERR_EBUSY where time does. */
int tcp_message_put(struct os_tcp *t, const void *data, size_t n, uint64_t until_ns, struct err *err);
int tcp_message_take(struct os_tcp *t, void *data, size_t n, uint64_t until_ns, struct err *err);
int tcp_message_send(struct os_tcp *t, enum tcp_message kind, const void *data, size_t n, uint64_t until_ns, struct err *err);
/* Up to `most` bytes into data; what is longer is no message of ours. */
int tcp_message_receive(struct os_tcp *t, uint32_t *out_kind, void *data, size_t most, size_t *out_n, uint64_t until_ns, struct err *err);
/* An error as the payload of MSG_REASON, and back. */
size_t tcp_message_write_reason(const struct err *reason, unsigned char *out, size_t most);
void tcp_message_read_reason(const unsigned char *data, size_t n, struct err *out);

/* tcp_proof.c: both sides of a new connection show that they have the secret, and say which rank they are and what the connection is for. */
enum tcp_use { USE_CONTROL = 1, USE_DATA };
struct tcp_caller {
    int32_t rank;
    enum tcp_use use;
};
int tcp_proof_call(struct os_tcp *t, struct str secret, const struct tcp_caller *own, int32_t callee, uint64_t until_ns, struct err *err);
int tcp_proof_answer(struct os_tcp *t, struct str secret, int32_t own, struct tcp_caller *out, uint64_t until_ns, struct err *err);

/* tcp_join.c: connections to all others. Those that it made are in w->peers and data, also after a failure. */
int tcp_join(const struct comm_tcp_options *o, struct watch *w, struct os_tcp **data, struct err *err);

#endif
