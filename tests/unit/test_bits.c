/* The same bits everywhere: the built-in model on the reference kernels, hashed. The unit tests run on Linux x86_64,
 * on aarch64 and as a Windows program; a compiler, a library or a kernel that rounds differently fails here. */
#include "unit.h"

#include "base/hash.h"
#include "tools/probe.h"

struct digest {
    uint64_t hash;
    int32_t vocab, n_rows;
};

static int add_row(void *user, const float *row, struct err *err) {
    (void)err;
    struct digest *d = user;
    d->hash = hash_bytes(row, (size_t)d->vocab * sizeof *row, d->hash);
    d->n_rows++;
    return 0;
}

static uint64_t logits_hash(int32_t n_threads, bool no_fuse) {
    struct session *s;
    struct err err;
    int32_t tokens[24];
    CHECK_OK(session_open(&(struct session_options){.device = "cpu",
                                                    .precision = SESSION_EXACT,
                                                    .n_threads = n_threads,
                                                    .context = 64,
                                                    .n_rows = 16,
                                                    .n_logits = -1,
                                                    .no_fuse = no_fuse},
                          &s, &err),
             err);
    for (int32_t i = 0; i < 24; i++) tokens[i] = 17 + i * 151;
    struct digest d = {.vocab = session_vocab(s)};
    int code = probe_logits(s, &(struct job_spec){.tokens = tokens, .n_tokens = 24}, add_row, &d, &err);
    session_close(s);
    CHECK_OK(code, err);
    CHECK_INT(d.n_rows, 24);
    return d.hash;
}

static void logits_are_pinned(void) {
    uint64_t hash = logits_hash(1, false);
    FAIL_IF(hash != UINT64_C(0xa73e9deb16e04985), "hash of the logits is 0x%llx", (unsigned long long)hash);
}

static void logits_ignore_threads_and_fusion(void) {
    uint64_t hash = logits_hash(1, false);
    CHECK(hash == logits_hash(3, false));
    CHECK(hash == logits_hash(1, true));
}

/* The fast kernels round differently from one instruction set to the next, but never by what else is in the batch or by the
 * number of threads: many threads share a row's chunks of positions, few walk them one after the other. */
/* A made-up model with weights of this type instead of the built-in one. */
enum made_up { BUILT_IN, MADE_BF16, MADE_F16, MADE_F32 };

static uint64_t fast_hash(enum made_up made_up, int32_t n_threads, int32_t n_rows, int32_t kv_bits) {
    enum { N = 300 };
    int32_t n = made_up ? 40 : N; /* a made-up model is larger, and some machines are simulated */
    struct session *s;
    struct err err;
    static int32_t tokens[N];
    struct session_options o = {
        .device = "cpu", .n_threads = n_threads, .context = n + 6, .n_rows = n_rows, .n_logits = -1, .kv_bits = kv_bits};
    if (made_up) o.shape = "tiny", o.bits = made_up == MADE_F32 ? 32 : 16, o.f16 = made_up == MADE_F16;
    CHECK_OK(session_open(&o, &s, &err), err);
    for (int32_t i = 0; i < n; i++) tokens[i] = (17 + i * 151) % session_vocab(s);
    struct digest d = {.vocab = session_vocab(s)};
    int code = probe_logits(s, &(struct job_spec){.tokens = tokens, .n_tokens = n}, add_row, &d, &err);
    session_close(s);
    CHECK_OK(code, err);
    return d.hash;
}

static void fast_logits_ignore_threads_and_rows(void) {
    uint64_t hash = fast_hash(BUILT_IN, 1, 64, 16);
    CHECK(hash == fast_hash(BUILT_IN, 8, 64, 16));
    CHECK(hash == fast_hash(BUILT_IN, 3, 5, 16));
    CHECK(hash == fast_hash(BUILT_IN, 6, 1, 16));
}

static void plain_logits_ignore_threads_and_rows(void) {
    for (enum made_up made_up = MADE_BF16; made_up <= MADE_F32; made_up++) {
        uint64_t hash = fast_hash(made_up, 1, 40, 16);
        CHECK(hash == fast_hash(made_up, 3, 5, 16));
        CHECK(hash == fast_hash(made_up, 2, 1, 16));
    }
}

/* A position's bytes in a small cache depend on that position alone, however the prompt was cut. */
static void small_caches_ignore_threads_and_rows(void) {
    for (int32_t bits = 4; bits <= 8; bits += 4) {
        uint64_t hash = fast_hash(BUILT_IN, 1, 64, bits);
        CHECK(hash != fast_hash(BUILT_IN, 1, 64, 16));
        CHECK(hash == fast_hash(BUILT_IN, 8, 64, bits));
        CHECK(hash == fast_hash(BUILT_IN, 3, 5, bits));
        CHECK(hash == fast_hash(BUILT_IN, 6, 1, bits));
    }
}

const struct unit_suite unit_bits = {"bits", (const struct unit_case[]){
                                                 {"logits_are_pinned", logits_are_pinned},
                                                 {"logits_ignore_threads_and_fusion", logits_ignore_threads_and_fusion},
                                                 {"fast_logits_ignore_threads_and_rows", fast_logits_ignore_threads_and_rows},
                                                 {"plain_logits_ignore_threads_and_rows", plain_logits_ignore_threads_and_rows},
                                                 {"small_caches_ignore_threads_and_rows", small_caches_ignore_threads_and_rows},
                                                 {0},
                                             }};
