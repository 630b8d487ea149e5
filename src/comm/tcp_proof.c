/* The job's secret, proved by both sides of a connection without showing it.
 *
 * The caller sends a hello with 32 random bytes; the callee answers with 32 of its own and the HMAC of both under the secret; the caller sends another HMAC of
 * the same. So neither a recorded proof nor one that was sent to another rank is of any use. What is sent afterwards is neither signed nor encrypted: ranks
 * belong into a network of their own (docs/ranks.md).
 */
#include "base/hmac.h"
#include "comm/tcp_internal.h"
#include "os/random.h"

enum { PROTOCOL = 1, NONCE = 32 };

struct hello {
    char magic[8];
    uint32_t protocol, use;
    int32_t from, to;
    unsigned char nonce[NONCE];
};

struct answer {
    char magic[8];
    uint32_t protocol, zero;
    unsigned char nonce[NONCE], proof[HMAC_BYTES];
};

/* What is proved: who says it, and both sides' random bytes. */
struct said {
    char who[8];
    struct hello hello;
    unsigned char nonce[NONCE];
};

static const char magic[8] = {'m', 'l', 'x', 'c', 'e', 'l', '-', 'r'};

static void prove(struct str secret, const char *who, const struct hello *h, const unsigned char nonce[NONCE],
                  unsigned char out[HMAC_BYTES]) {
    struct said s;
    memset(&s, 0, sizeof s);
    memcpy(s.who, who, strlen(who));
    s.hello = *h;
    memcpy(s.nonce, nonce, NONCE);
    hmac_sha256(secret.p, secret.n, &s, sizeof s, out);
}

static int check_protocol(const char theirs[8], uint32_t protocol, struct err *err) {
    if (memcmp(theirs, magic, sizeof magic) != 0) return err_set(err, ERR_EFORMAT, "it is another program");
    if (protocol == PROTOCOL) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "it speaks version %u of the ranks' protocol, and this program %d; use one version of mlxcel",
                   protocol, PROTOCOL);
}

int tcp_proof_call(struct os_tcp *t, struct str secret, const struct tcp_caller *own, int32_t callee, uint64_t until_ns, struct err *err) {
    struct hello hello = {.protocol = PROTOCOL, .use = own->use, .from = own->rank, .to = callee};
    struct answer answer;
    unsigned char proof[HMAC_BYTES];
    memcpy(hello.magic, magic, sizeof magic);
    TRY(os_random(hello.nonce, NONCE, err));
    TRY(tcp_message_put(t, &hello, sizeof hello, until_ns, err));
    TRY(tcp_message_take(t, &answer, sizeof answer, until_ns, err));
    TRY(check_protocol(answer.magic, answer.protocol, err));
    prove(secret, "callee", &hello, answer.nonce, proof);
    if (!hmac_equal(proof, answer.proof)) return err_set(err, ERR_EARG, "it has another job secret");
    prove(secret, "caller", &hello, answer.nonce, proof);
    return tcp_message_put(t, proof, sizeof proof, until_ns, err);
}

int tcp_proof_answer(struct os_tcp *t, struct str secret, int32_t own, struct tcp_caller *out, uint64_t until_ns, struct err *err) {
    struct hello hello;
    struct answer answer = {.protocol = PROTOCOL};
    unsigned char proof[HMAC_BYTES], expected[HMAC_BYTES];
    TRY(tcp_message_take(t, &hello, sizeof hello, until_ns, err));
    memcpy(answer.magic, magic, sizeof magic);
    TRY(os_random(answer.nonce, NONCE, err));
    prove(secret, "callee", &hello, answer.nonce, answer.proof);
    TRY(tcp_message_put(t, &answer, sizeof answer, until_ns, err));
    TRY(check_protocol(hello.magic, hello.protocol, err));
    if (tcp_message_take(t, proof, sizeof proof, until_ns, err))
        return err_set(err, ERR_EARG, "a process that calls itself rank %d went away without proving the job secret", hello.from);
    prove(secret, "caller", &hello, answer.nonce, expected);
    if (!hmac_equal(proof, expected))
        return err_set(err, ERR_EARG, "a process that calls itself rank %d has another job secret", hello.from);
    if (hello.to != own) return err_set(err, ERR_EARG, "rank %d looks for rank %d here, and this is rank %d", hello.from, hello.to, own);
    *out = (struct tcp_caller){hello.from, (enum tcp_use)hello.use};
    return ERR_OK;
}
