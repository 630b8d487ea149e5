/* engine/: what a request gets does not depend on batch, chunks, threads, preemption or fusion; bad requests are refused. */
#include "engine_rig.h"

#include "base/hash.h"

#include <math.h>

enum { N_REQUESTS = 5, N_NEW = 24, N_PROMPT_MAX = 100 };

struct answer {
    int32_t tokens[N_NEW + 1], n;
    enum job_finish finish;
    struct err err;
    float *vector; /* of an embedding: where it goes */
    size_t n_scores;
    uint64_t scores_hash;
};

/* A job that writes n_new tokens of its own accord: the largest logits, no end. */
static struct job_spec plain_spec(const int32_t *prompt, int32_t n, int32_t n_new, struct answer *a) {
    *a = (struct answer){0};
    return (struct job_spec){
        .tokens = prompt, .n_tokens = n, .max_new = n_new, .sampling = sampler_defaults(), .has_seed = true, .user = a};
}

static int submit(struct rig *r, int32_t i, struct answer *a, struct job **job, struct err *err) {
    int32_t prompt[N_PROMPT_MAX], n = 3 + i * 17 % N_PROMPT_MAX;
    struct job *unused;
    for (int32_t k = 0; k < n; k++) prompt[k] = (i * 31 + k * 7) % 4096;
    struct job_spec spec = plain_spec(prompt, n, N_NEW, a);
    return engine_submit(r->engine, &spec, 1, job ? job : &unused, err);
}

/* Takes what has come; jobs that are over are released. */
static void take_events(struct rig *r) {
    struct job *j;
    while ((j = engine_next_ready(r->engine))) {
        struct answer *a = job_user(j);
        struct job_events ev;
        job_take(j, &ev);
        for (size_t i = 0; i < ev.n_tokens; i++) a->tokens[a->n++] = ev.tokens[i].id;
        for (size_t i = 0; i < ev.n_scores; i++) a->scores_hash = hash_bytes(&ev.scores[i], sizeof *ev.scores, a->scores_hash);
        a->n_scores += ev.n_scores;
        a->finish = ev.finish;
        a->err = ev.err;
        if (ev.vectors) memcpy(a->vector, ev.vectors, (size_t)ev.n_vectors * (size_t)engine_width(r->engine) * sizeof *a->vector);
        if (ev.finish) job_release(j);
    }
}

static bool turn(struct rig *r) {
    struct err err;
    bool idle;
    CHECK_OK(engine_turn(r->engine, &idle, &err), err);
    take_events(r);
    return !idle;
}

static void drain(struct rig *r) {
    while (turn(r)) continue;
}

/* All requests, with this engine's limits. */
static struct engine_stats run_all(const struct rig_options *o, struct answer answers[N_REQUESTS]) {
    struct rig r;
    struct err err;
    rig_open(&r, o);
    for (int32_t i = 0; i < N_REQUESTS; i++) CHECK_OK(submit(&r, i, &answers[i], NULL, &err), err);
    drain(&r);
    struct engine_stats stats = engine_stats(r.engine);
    rig_close(&r);
    return stats;
}

static void check_same(const struct answer *got, const struct answer *want) {
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        CHECK_INT(got[i].n, N_NEW);
        CHECK_INT(got[i].finish, JOB_LENGTH);
        for (int32_t k = 0; k < N_NEW; k++) CHECK_INT(got[i].tokens[k], want[i].tokens[k]);
    }
}

static void answers_do_not_depend_on_the_batch(void) {
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1}, alone);
    check_same(alone, alone);
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = N_REQUESTS}, got);
    check_same(got, alone);
    run_all(&(struct rig_options){.n_threads = 3, .rows = 16, .seqs = N_REQUESTS, .chunk = 5}, got);
    check_same(got, alone);
    run_all(&(struct rig_options){.n_threads = 2, .rows = 512, .seqs = 3, .no_fuse = true}, got);
    check_same(got, alone);
}

/* A device's own limit on a step's rows holds, whatever was asked for. */
static void rows_of_a_device(void) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 2, .rows_max = 16});
    CHECK_INT(engine_limits(r.engine)->rows, 16);
    rig_close(&r);
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1}, alone);
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = N_REQUESTS, .rows_max = 16}, got);
    check_same(got, alone);
}

static void preemption_changes_nothing(void) {
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1}, alone);
    /* the cache holds fewer positions than all requests together need */
    struct engine_stats stats = run_all(&(struct rig_options){.n_threads = 2, .rows = 64, .seqs = N_REQUESTS, .kv_tokens = 64}, got);
    CHECK(stats.n_preempted > 0);
    check_same(got, alone);
}

/* Old keys keep the table of their length: computed again, they have to get the same one. */
static void dynamic_rope_outlives_preemption(void) {
    static struct answer plain[N_REQUESTS], alone[N_REQUESTS], got[N_REQUESTS];
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1}, plain);
    run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1, .dynamic = true}, alone);
    CHECK(memcmp(plain, alone, sizeof alone) != 0);
    run_all(&(struct rig_options){.n_threads = 1, .rows = 16, .seqs = N_REQUESTS, .chunk = 5, .dynamic = true}, got);
    check_same(got, alone);
    struct rig_options small = {.n_threads = 1, .rows = 64, .seqs = N_REQUESTS, .kv_tokens = 64, .dynamic = true};
    CHECK(run_all(&small, got).n_preempted > 0);
    check_same(got, alone);
}

static void small_caches_change_with_nothing_else(void) {
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    for (int32_t bits = 4; bits <= 8; bits += 4) {
        run_all(&(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 1, .kv_bits = bits}, alone);
        run_all(&(struct rig_options){.n_threads = 3, .rows = 16, .seqs = N_REQUESTS, .chunk = 5, .kv_bits = bits}, got);
        check_same(got, alone);
        run_all(&(struct rig_options){.n_threads = 2, .rows = 64, .seqs = N_REQUESTS, .kv_tokens = 64, .kv_bits = bits}, got);
        check_same(got, alone);
    }
}

static void blocks_come_back(void) {
    struct rig r;
    struct err err;
    struct answer answers[N_REQUESTS];
    struct job *jobs[N_REQUESTS];
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3});
    CHECK_INT(engine_stats(r.engine).blocks_used, 0);
    for (int32_t i = 0; i < N_REQUESTS; i++) CHECK_OK(submit(&r, i, &answers[i], &jobs[i], &err), err);
    for (int i = 0; i < 6; i++) turn(&r);
    CHECK(engine_stats(r.engine).blocks_used > 0);
    job_cancel(jobs[1]); /* running */
    job_cancel(jobs[4]); /* waiting */
    turn(&r);
    CHECK_INT(answers[1].finish, JOB_CANCELLED);
    CHECK_INT(answers[4].finish, JOB_CANCELLED);
    drain(&r);
    CHECK_INT(answers[0].n, N_NEW);
    CHECK_INT(engine_stats(r.engine).blocks_used, 0);
    CHECK_INT(engine_stats(r.engine).n_running, 0);
    rig_close(&r);
}

static void bad_requests_are_refused(void) {
    struct rig r;
    struct err err;
    struct answer a;
    struct job *job;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1});
    int32_t good = 5, outside = 4096, negative = -1;
    int32_t *longer = mem_alloc(600 * sizeof *longer);
    struct job_spec q = plain_spec(&good, 0, 1, &a);
    CHECK_INT(engine_submit(r.engine, &q, 1, &job, &err), ERR_EARG);
    q.n_tokens = 1;
    q.tokens = &outside;
    CHECK_INT(engine_submit(r.engine, &q, 1, &job, &err), ERR_EARG);
    q.tokens = &negative;
    CHECK_INT(engine_submit(r.engine, &q, 1, &job, &err), ERR_EARG);
    q.tokens = longer;
    q.n_tokens = 600;
    CHECK_INT(engine_submit(r.engine, &q, 1, &job, &err), ERR_ELIMIT);
    q.n_tokens = 512; /* no room for an answer */
    CHECK_INT(engine_submit(r.engine, &q, 1, &job, &err), ERR_ELIMIT);
    q.n_tokens = 500; /* the context of 512 ends it */
    q.max_new = -1;
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    drain(&r);
    CHECK_INT(a.n, 12);
    CHECK_INT(a.finish, JOB_LENGTH);
    q.max_new = 0;
    a = (struct answer){0};
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    drain(&r);
    CHECK_INT(a.n, 0);
    CHECK_INT(a.finish, JOB_LENGTH);
    mem_free(longer);
    rig_close(&r);
}

/* One bad spec of a request: none of its jobs is taken. */
static void a_request_is_taken_whole(void) {
    struct rig r;
    struct err err;
    struct answer a, b;
    struct job *jobs[2];
    int32_t good[] = {1, 2, 3}, bad[] = {1, -1, 3};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    struct job_spec specs[2] = {plain_spec(good, 3, N_NEW, &a), plain_spec(bad, 3, N_NEW, &b)};
    CHECK_INT(engine_submit(r.engine, specs, 2, jobs, &err), ERR_EARG);
    drain(&r);
    CHECK_INT(a.n, 0);
    specs[1].tokens = good;
    CHECK_OK(engine_submit(r.engine, specs, 2, jobs, &err), err);
    drain(&r);
    CHECK_INT(a.n, N_NEW);
    CHECK_INT(b.n, N_NEW);
    rig_close(&r);
}

static void run_drawn(int32_t n_threads, int32_t seqs, struct answer answers[N_REQUESTS]) {
    struct rig r;
    struct err err;
    struct job *job;
    rig_open(&r, &(struct rig_options){.n_threads = n_threads, .rows = 64, .seqs = seqs});
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        int32_t prompt[] = {1 + i, 2, 3};
        struct job_spec q = plain_spec(prompt, 3, N_NEW, &answers[i]);
        q.sampling.temperature = 1;
        q.sampling.seed = (uint64_t)i;
        CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    }
    drain(&r);
    rig_close(&r);
}

static void workers_choose_the_same(void) {
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    run_drawn(1, 1, alone);
    run_drawn(3, N_REQUESTS, got);
    check_same(got, alone);
}

static void an_error_ends_its_own_request_only(void) {
    struct rig r;
    struct err err;
    struct answer bad, good;
    struct job *job;
    int32_t prompt[] = {1, 2, 3};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    struct job_spec q = plain_spec(prompt, 3, 5, &bad);
    q.sampling.presence = 1;
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    job->spec.sampling.presence = NAN; /* no request can ask for that: the second token has nothing to be chosen from */
    CHECK_OK(submit(&r, 1, &good, NULL, &err), err);
    drain(&r);
    CHECK_INT(bad.finish, JOB_ERROR);
    CHECK_INT(bad.n, 1);
    CHECK(bad.err.code != ERR_OK);
    CHECK_INT(good.n, N_NEW);
    rig_close(&r);
}

static void submit_length(struct rig *r, int32_t n_tokens, int32_t max_new, struct answer *a) {
    int32_t prompt[512];
    struct err err;
    struct job *job;
    for (int32_t k = 0; k < n_tokens; k++) prompt[k] = (n_tokens + k * 11) % 4096;
    struct job_spec q = plain_spec(prompt, n_tokens, max_new, a);
    CHECK_OK(engine_submit(r->engine, &q, 1, &job, &err), err);
}

/* Two prompts that fit one after the other but not at once; then one that grows beyond the cache, with others behind it. */
static void a_small_cache_holds_nobody_up(void) {
    struct rig r;
    struct answer a, b, c;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3, .kv_tokens = 256});
    submit_length(&r, 300, 8, &a);
    submit_length(&r, 310, 8, &b);
    submit_length(&r, 20, 8, &c);
    drain(&r);
    CHECK_INT(a.n, 8);
    CHECK_INT(b.n, 8);
    CHECK_INT(c.n, 8);
    submit_length(&r, 480, 24, &a); /* 504 positions, where 7 blocks hold 448 */
    submit_length(&r, 20, 8, &b);
    submit_length(&r, 30, 8, &c);
    drain(&r);
    CHECK_INT(a.finish, JOB_ERROR);
    CHECK_INT(b.n, 8);
    CHECK_INT(c.n, 8);
    CHECK_INT(engine_stats(r.engine).blocks_used, 0);
    rig_close(&r);
}

enum { TEXT_TOKENS = 300, WIDTH_MAX = 4096, N_TEXTS = 9 };

static void submit_text(struct rig *r, int32_t n_tokens, int32_t seed, enum job_pooling pooling, struct answer *a, float *vector) {
    int32_t tokens[TEXT_TOKENS];
    struct err err;
    struct job *job;
    CHECK(engine_width(r->engine) <= WIDTH_MAX);
    for (int32_t k = 0; k < n_tokens; k++) tokens[k] = (seed + k * 13) % 4096;
    struct job_spec q = {.tokens = tokens, .n_tokens = n_tokens, .rows = ROWS_HIDDEN, .pooling = pooling, .user = a};
    *a = (struct answer){.vector = vector};
    CHECK_OK(engine_submit(r->engine, &q, 1, &job, &err), err);
}

static float alone[N_TEXTS][WIDTH_MAX], together[N_TEXTS][WIDTH_MAX];
static const int32_t lengths[N_TEXTS] = {1, 7, 200, 3, 129, 64, 300, 2, 65};

static void submit_nth_text(struct rig *r, int32_t i, struct answer *a, float *vector) {
    submit_text(r, lengths[i], i, i % 2 ? POOL_LAST : POOL_MEAN, a, vector);
}

/* A full context is halved behind the tokens that are kept, and the answer goes on as if what was forgotten had never been there. */
static void full_contexts_make_room(void) {
    enum { CONTEXT = 512, N_PROMPT = 500, KEPT = 5, GONE = (CONTEXT - KEPT) / 2 };
    int32_t tokens[CONTEXT];
    struct rig r;
    struct answer a, b;
    struct err err;
    struct job *job;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    for (int32_t k = 0; k < N_PROMPT; k++) tokens[k] = (k * 11) % 4096;
    struct job_spec q = plain_spec(tokens, N_PROMPT, N_NEW, &a);
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    drain(&r);
    CHECK_INT(a.n, CONTEXT - N_PROMPT); /* it may not: the context ends it */
    q = plain_spec(tokens, N_PROMPT, N_NEW, &a);
    q.shifts = true;
    q.n_keep = KEPT;
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    drain(&r);
    CHECK_INT(a.n, N_NEW);
    CHECK_INT(a.finish, JOB_LENGTH);
    memcpy(tokens + N_PROMPT, a.tokens, (CONTEXT - N_PROMPT) * sizeof *tokens);
    memmove(tokens + KEPT, tokens + KEPT + GONE, (CONTEXT - KEPT - GONE) * sizeof *tokens);
    q = plain_spec(tokens, CONTEXT - GONE, N_NEW - (CONTEXT - N_PROMPT), &b);
    CHECK_OK(engine_submit(r.engine, &q, 1, &job, &err), err);
    drain(&r);
    CHECK_INT(b.n, N_NEW - (CONTEXT - N_PROMPT));
    CHECK(memcmp(a.tokens + (CONTEXT - N_PROMPT), b.tokens, (size_t)b.n * sizeof *b.tokens) == 0);
    CHECK_INT(engine_stats(r.engine).blocks_used, 0);
    rig_close(&r);
}

/* Texts of many lengths: each alone, then in one another's company, with room for all and with little, an answer beside them. */
static void texts_are_embedded_together(void) {
    static const int32_t caches[] = {0, 384};
    for (int k = 0; k < 4; k++) {
        struct rig r;
        struct answer a, texts[N_TEXTS];
        rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 160, .seqs = N_TEXTS + 1, .kv_tokens = caches[k % 2]});
        r.be->mixes_rows = k < 2; /* a device that cannot mix computes the two kinds of rows in turn */
        for (int32_t i = 0; i < N_TEXTS; i++) {
            submit_nth_text(&r, i, &texts[i], alone[i]);
            drain(&r);
            CHECK_INT(texts[i].finish, JOB_STOP);
        }
        for (int32_t i = 0; i < N_TEXTS; i++) submit_nth_text(&r, i, &texts[i], together[i]);
        submit_length(&r, 100, 8, &a);
        drain(&r);
        CHECK_INT(a.n, 8);
        for (int32_t i = 0; i < N_TEXTS; i++) CHECK(memcmp(alone[i], together[i], (size_t)engine_width(r.engine) * sizeof **alone) == 0);
        CHECK_INT(engine_stats(r.engine).blocks_used, 0);
        rig_close(&r);
    }
}

/* Without pooling every token has a vector of its own, also where the prompt came in chunks: their mean and the last are what pooling gives. */
static void tokens_have_vectors_of_their_own(void) {
    static float each[TEXT_TOKENS][WIDTH_MAX];
    float want[WIDTH_MAX], last[WIDTH_MAX], *own = &each[0][0];
    struct rig r;
    struct answer a;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2, .chunk = 16});
    int32_t width = engine_width(r.engine);
    submit_text(&r, TEXT_TOKENS, 3, POOL_MEAN, &a, want);
    drain(&r);
    submit_text(&r, TEXT_TOKENS, 3, POOL_LAST, &a, last);
    drain(&r);
    submit_text(&r, TEXT_TOKENS, 3, POOL_NONE, &a, own);
    drain(&r);
    CHECK_INT(a.finish, JOB_STOP);
    double square = 0, sums[WIDTH_MAX] = {0}, last_square = 0;
    for (int32_t k = 0; k < width; k++) {
        for (int32_t i = 0; i < TEXT_TOKENS; i++) sums[k] += (double)own[i * width + k];
        square += sums[k] * sums[k];
        last_square += (double)own[(TEXT_TOKENS - 1) * width + k] * (double)own[(TEXT_TOKENS - 1) * width + k];
    }
    for (int32_t k = 0; k < width; k++) {
        CHECK(fabs(sums[k] / sqrt(square) - (double)want[k]) < 1e-6);
        CHECK(fabs((double)own[(TEXT_TOKENS - 1) * width + k] / sqrt(last_square) - (double)last[k]) < 1e-6);
    }
    rig_close(&r);
}

/* Vectors are the same bits as they were when embeddings had a driver of their own: hashed then, hashed now. */
static void vectors_are_pinned(void) {
    struct rig r;
    struct answer texts[N_TEXTS];
    uint64_t hash = 0;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 160, .seqs = N_TEXTS});
    for (int32_t i = 0; i < N_TEXTS; i++) submit_nth_text(&r, i, &texts[i], together[i]);
    drain(&r);
    for (int32_t i = 0; i < N_TEXTS; i++) hash = hash_bytes(together[i], (size_t)engine_width(r.engine) * sizeof **together, hash);
    FAIL_IF(hash != UINT64_C(0x6bed1f5f343dbc68), "hash of the vectors is 0x%llx", (unsigned long long)hash);
    rig_close(&r);
}

/* A text is preempted in the middle: its vector is the same. Answers of several lengths need another block at several moments. */
static void an_embedding_gives_way(void) {
    struct rig r;
    struct answer a, text;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2, .chunk = 16, .kv_tokens = 256});
    submit_text(&r, TEXT_TOKENS, 0, POOL_MEAN, &text, alone[0]);
    drain(&r);
    for (int32_t n = 46; n < 54; n++) {
        submit_length(&r, n, N_NEW, &a);
        submit_text(&r, TEXT_TOKENS, 0, POOL_MEAN, &text, together[0]);
        drain(&r);
        CHECK_INT(a.n, N_NEW);
        CHECK_INT(text.finish, JOB_STOP);
        CHECK(memcmp(alone[0], together[0], (size_t)engine_width(r.engine) * sizeof **alone) == 0);
    }
    CHECK(engine_stats(r.engine).n_preempted > 0);
    CHECK_INT(engine_stats(r.engine).blocks_used, 0);
    rig_close(&r);
}

struct seen_rows {
    int32_t next;
    uint64_t hash;
};

static void on_rows(void *user, int32_t first, int32_t n_rows, const float *logits) {
    struct seen_rows *seen = user;
    CHECK_INT(first, seen->next);
    seen->next += n_rows;
    for (int32_t i = 0; i < n_rows; i++) seen->hash = hash_bytes(logits + (int64_t)i * 4096, 4096 * sizeof *logits, seen->hash);
}

static void submit_rows(struct rig *r, int32_t n_tokens, int32_t n_new, struct seen_rows *seen, struct answer *a) {
    int32_t tokens[TEXT_TOKENS];
    struct err err;
    struct job *job;
    for (int32_t k = 0; k < n_tokens; k++) tokens[k] = k * 13 % 4096;
    struct job_spec q = plain_spec(tokens, n_tokens, n_new, a);
    q.rows = ROWS_LOGITS;
    q.on_rows = on_rows;
    q.rows_user = seen;
    *seen = (struct seen_rows){0};
    CHECK_OK(engine_submit(r->engine, &q, 1, &job, &err), err);
}

/* The logits of a prompt come once each, in order, with the same bits: alone, few at a time, in company, and through preemption. */
static void prompts_show_their_logits(void) {
    struct rig r;
    struct answer a, b, c;
    struct seen_rows one, two;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 160, .seqs = 1, .n_logits = 160});
    submit_rows(&r, 200, 0, &one, &a);
    drain(&r);
    CHECK_INT(one.next, 200);
    CHECK_INT(a.finish, JOB_STOP);
    rig_close(&r);
    for (int k = 0; k < 2; k++) {
        rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3, .n_logits = k ? 12 : 0, .kv_tokens = k ? 128 : 0});
        for (int32_t n = 42; n < 48; n++) {
            submit_length(&r, n, N_NEW, &b);
            submit_rows(&r, 200, k ? N_NEW : 0, &two, &c);
            drain(&r);
            CHECK_INT(b.n, N_NEW);
            CHECK_INT(c.n, k ? N_NEW : 0);
            CHECK_INT(two.next, 200);
            CHECK(one.hash == two.hash);
        }
        CHECK(k == 0 || engine_stats(r.engine).n_preempted > 0);
        rig_close(&r);
    }
}

static void submit_scores(struct rig *r, int32_t n_tokens, int32_t n_new, struct answer *a) {
    int32_t tokens[TEXT_TOKENS];
    struct err err;
    struct job *job;
    for (int32_t k = 0; k < n_tokens; k++) tokens[k] = k * 13 % 4096;
    struct job_spec q = plain_spec(tokens, n_tokens, n_new, a);
    q.rows = ROWS_SCORES;
    q.sampling.n_top = 2;
    CHECK_OK(engine_submit(r->engine, &q, 1, &job, &err), err);
}

/* Every token of a prompt but the first gets its log-probability once: alone, in company, and through preemption. */
static void prompts_get_their_scores(void) {
    struct rig r;
    struct answer one, two, other;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 160, .seqs = 1, .n_logits = 160});
    submit_scores(&r, 200, 0, &one);
    drain(&r);
    CHECK_INT((int32_t)one.n_scores, 199);
    CHECK_INT(one.finish, JOB_LENGTH);
    rig_close(&r);
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3, .n_logits = 12, .kv_tokens = 128});
    for (int32_t n = 42; n < 48; n++) {
        submit_length(&r, n, N_NEW, &other);
        submit_scores(&r, 200, N_NEW, &two);
        drain(&r);
        CHECK_INT(two.n, N_NEW);
        CHECK_INT((int32_t)two.n_scores, 199);
        CHECK(two.scores_hash == one.scores_hash);
    }
    CHECK(engine_stats(r.engine).n_preempted > 0);
    rig_close(&r);
}

/* Tokens that end an answer, a least length before they may, and sequences that do not come. */
static void tokens_that_end_or_do_not_come(void) {
    struct rig r;
    struct err err;
    struct answer plain, a;
    struct job *job;
    const int32_t prompt[] = {5, 6, 7, 8};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1});
    struct job_spec spec = plain_spec(prompt, 4, N_NEW, &plain);
    CHECK_OK(engine_submit(r.engine, &spec, 1, &job, &err), err);
    drain(&r);
    spec = plain_spec(prompt, 4, N_NEW, &a);
    spec.end_tokens = &plain.tokens[1];
    spec.n_end_tokens = 1;
    CHECK_OK(engine_submit(r.engine, &spec, 1, &job, &err), err);
    drain(&r);
    CHECK(a.finish == JOB_STOP && a.n <= 1);
    a = (struct answer){0};
    spec.min_new = 3;
    CHECK_OK(engine_submit(r.engine, &spec, 1, &job, &err), err);
    drain(&r);
    CHECK(a.n >= 3);
    for (int32_t i = 0; i < 3; i++) CHECK(a.tokens[i] != plain.tokens[1]);
    spec = plain_spec(prompt, 4, 2, &a);
    struct job_words words = {plain.tokens, 2};
    spec.bad_words = &words;
    spec.n_bad_words = 1;
    CHECK_OK(engine_submit(r.engine, &spec, 1, &job, &err), err);
    drain(&r);
    CHECK(a.n == 2 && a.tokens[0] == plain.tokens[0] && a.tokens[1] != plain.tokens[1]);
    spec = plain_spec(prompt, 4, 3, &a);
    spec.allowed = &prompt[2];
    spec.n_allowed = 1;
    CHECK_OK(engine_submit(r.engine, &spec, 1, &job, &err), err);
    drain(&r);
    CHECK(a.n == 3 && a.tokens[0] == 7 && a.tokens[2] == 7);
    rig_close(&r);
}

/* Admission looked in on: prompts that were let in while the cache still seemed empty hold each other up. */
static void prompts_that_hold_each_other_up(void) {
    struct rig r;
    struct answer answers[4];
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 4, .chunk = 16, .kv_tokens = 128});
    for (int32_t i = 0; i < 4; i++) submit_length(&r, 150 + i, N_NEW, &answers[i]);
    drain(&r);
    for (int32_t i = 0; i < 4; i++) CHECK_INT(answers[i].n, N_NEW);
    rig_close(&r);
}

static void one_request_of_many_leaves_room(void) {
    struct rig r;
    struct err err;
    struct answer many[6], one;
    struct job *jobs[6];
    struct job_spec specs[6];
    int32_t prompt[16] = {0};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    for (int32_t i = 0; i < 6; i++) specs[i] = plain_spec(prompt, 10 + i, N_NEW, &many[i]);
    CHECK_OK(engine_submit(r.engine, specs, 6, jobs, &err), err);
    submit_length(&r, 30, N_NEW, &one);
    while (one.finish == JOB_GOES_ON && turn(&r)) continue;
    int32_t n_done = 0;
    for (int32_t i = 0; i < 6; i++) n_done += many[i].finish != JOB_GOES_ON;
    CHECK(n_done <= 3); /* in order of arrival it would come after five of them */
    drain(&r);
    for (int32_t i = 0; i < 6; i++) CHECK_INT(many[i].n, N_NEW);
    CHECK_INT(one.n, N_NEW);
    rig_close(&r);
}

/* Rows of a prompt in one step; the chunk is what it would be after a slow one. */
static int32_t prompt_rows(struct rig *r) {
    r->engine->chunk = 16;
    turn(r);
    return engine_stats(r->engine).rows_prefill;
}

/* A prompt is read in small parts while an answer is being written, and as a whole when nobody waits. */
static void prompts_give_way_to_answers(void) {
    struct rig r;
    struct answer first, second, third;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 256, .seqs = 2, .max_step_ms = 1000000});
    submit_length(&r, 100, N_NEW, &first);
    CHECK_INT(prompt_rows(&r), 100);
    submit_length(&r, 90, N_NEW, &second);
    for (int32_t i = 0; i < 5; i++) CHECK_INT(prompt_rows(&r), 16);
    CHECK_INT(prompt_rows(&r), 10);
    drain(&r);
    submit_length(&r, 120, N_NEW, &third);
    CHECK_INT(prompt_rows(&r), 120);
    drain(&r);
    CHECK_INT(first.n + second.n + third.n, 3 * N_NEW);
    rig_close(&r);
}

/* A device with a time limit gets other chunks, not other answers. */
static void chunks_follow_the_time(void) {
    CHECK_INT(engine_next_chunk(256, 256, 160, 150, 2048), 192);
    CHECK_INT(engine_next_chunk(256, 256, 900, 150, 2048), 128);
    CHECK_INT(engine_next_chunk(256, 100, 160, 150, 2048), 75);
    CHECK_INT(engine_next_chunk(256, 256, 149, 150, 2048), 256);
    CHECK_INT(engine_next_chunk(256, 256, 96, 150, 2048), 320);
    CHECK_INT(engine_next_chunk(256, 256, 49, 150, 2048), 512);
    CHECK_INT(engine_next_chunk(256, 255, 1, 150, 2048), 256); /* a short prompt says nothing about longer ones */
    CHECK_INT(engine_next_chunk(2048, 2048, 1, 150, 2048), 2048);
    CHECK_INT(engine_next_chunk(16, 16, 9999, 150, 2048), 16);
    struct rig free_rig, watched;
    struct err err;
    struct answer a[2], b[2];
    rig_open(&free_rig, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    rig_open(&watched, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2, .step_ms = 1});
    for (int32_t i = 0; i < 2; i++) {
        CHECK_OK(submit(&free_rig, 3 + i, &a[i], NULL, &err), err);
        CHECK_OK(submit(&watched, 3 + i, &b[i], NULL, &err), err);
    }
    drain(&free_rig);
    drain(&watched);
    for (int32_t i = 0; i < 2; i++) {
        CHECK_INT(a[i].n, b[i].n);
        CHECK(memcmp(a[i].tokens, b[i].tokens, sizeof a[i].tokens) == 0);
    }
    rig_close(&free_rig);
    rig_close(&watched);
}

static void eos_ends_a_request(void) {
    struct rig r;
    struct err err;
    struct answer first, a;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1});
    CHECK_OK(submit(&r, 0, &first, NULL, &err), err);
    drain(&r);
    rig_close(&r);
    int32_t eos[] = {9999, first.tokens[4]};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1, .eos = eos});
    CHECK_OK(submit(&r, 0, &a, NULL, &err), err);
    drain(&r);
    CHECK_INT(a.finish, JOB_STOP);
    CHECK(a.n <= 4); /* the end itself is no part of the answer */
    CHECK_INT(engine_stats(r.engine).n_new_tokens, a.n + 1);
    rig_close(&r);
}

const struct unit_suite unit_engine = {"engine", (const struct unit_case[]){
                                                     {"answers_do_not_depend_on_the_batch", answers_do_not_depend_on_the_batch},
                                                     {"rows_of_a_device", rows_of_a_device},
                                                     {"preemption_changes_nothing", preemption_changes_nothing},
                                                     {"dynamic_rope_outlives_preemption", dynamic_rope_outlives_preemption},
                                                     {"small_caches_change_with_nothing_else", small_caches_change_with_nothing_else},
                                                     {"blocks_come_back", blocks_come_back},
                                                     {"bad_requests_are_refused", bad_requests_are_refused},
                                                     {"an_error_ends_its_own_request_only", an_error_ends_its_own_request_only},
                                                     {"a_small_cache_holds_nobody_up", a_small_cache_holds_nobody_up},
                                                     {"a_request_is_taken_whole", a_request_is_taken_whole},
                                                     {"an_embedding_gives_way", an_embedding_gives_way},
                                                     {"vectors_are_pinned", vectors_are_pinned},
                                                     {"prompts_show_their_logits", prompts_show_their_logits},
                                                     {"prompts_get_their_scores", prompts_get_their_scores},
                                                     {"tokens_that_end_or_do_not_come", tokens_that_end_or_do_not_come},
                                                     {"full_contexts_make_room", full_contexts_make_room},
                                                     {"texts_are_embedded_together", texts_are_embedded_together},
                                                     {"tokens_have_vectors_of_their_own", tokens_have_vectors_of_their_own},
                                                     {"prompts_that_hold_each_other_up", prompts_that_hold_each_other_up},
                                                     {"one_request_of_many_leaves_room", one_request_of_many_leaves_room},
                                                     {"chunks_follow_the_time", chunks_follow_the_time},
                                                     {"prompts_give_way_to_answers", prompts_give_way_to_answers},
                                                     {"workers_choose_the_same", workers_choose_the_same},
                                                     {"eos_ends_a_request", eos_ends_a_request},
                                                     {0},
                                                 }};
