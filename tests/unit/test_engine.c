/* engine/: what a request gets does not depend on batch, chunks, threads, preemption or fusion; bad requests are refused. */
#include "unit.h"

#include "api/synth.h"
#include "engine/embed.h"
#include "model/model.h"

enum { N_REQUESTS = 5, N_NEW = 24, N_PROMPT_MAX = 100 };

struct rig {
    struct arena arena;
    struct backend *be;
    struct model model;
    struct engine *engine;
};

struct rig_options {
    int32_t n_threads, rows, seqs, chunk, step_ms, rows_max;
    int64_t kv_tokens;
    int32_t kv_bits;
    bool no_fuse;
    bool dynamic;
};

/* The made-up model with a rope that follows the length, trained on 16 positions. */
static const struct config *dynamic_config(struct arena *a) {
    static const char text[] =
        "{\"model_type\":\"qwen3\",\"hidden_size\":128,\"intermediate_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":4096,\"max_position_embeddings\":16,\"tie_word_embeddings\":true,"
        "\"quantization\":{\"group_size\":64,\"bits\":4},\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":40.0}}";
    struct config *c = arena_new(a, struct config, 1);
    struct err err;
    CHECK_OK(config_parse(a, str_of(text), "config.json", c, &err), err);
    return c;
}

static void rig_open(struct rig *r, const struct rig_options *o) {
    struct err err;
    struct synth *synth;
    *r = (struct rig){0};
    struct backend_options be = {.precision = PRECISION_EXACT, .n_threads = o->n_threads, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    CHECK_OK(cpu_backend.open(&be, &r->be, &err), err);
    r->be->step_ms = o->step_ms;
    r->be->rows_max = o->rows_max;
    CHECK_OK(synth_create(&r->arena, &(struct synth_args){.shape = STR("tiny"), .bits = 4, .seed = 7}, &synth, &err), err);
    struct tensor_store store = synth_store(synth);
    const struct config *config = o->dynamic ? dynamic_config(&r->arena) : synth_config(synth);
    CHECK_OK(model_open(&r->arena, r->be, config, &store, &r->model, &err), err);
    if (o->dynamic) r->model.spec.context = 512; /* as --ctx-size does */
    struct engine_options options = {.limits = {.rows = o->rows, .seqs = o->seqs, .kv_tokens = o->kv_tokens}, .chunk = o->chunk};
    CHECK_OK(engine_open(&r->model, r->be, &options, &r->engine, &err), err);
}

static void rig_close(struct rig *r) {
    engine_close(r->engine);
    model_close(r->be, &r->model);
    r->be->type->close(r->be);
    arena_free(&r->arena);
}

struct answer {
    int32_t tokens[N_NEW + 1], n;
    enum finish finish;
};

static void on_event(void *user, const struct engine_event *event) {
    struct answer *a = user;
    if (event->token >= 0) a->tokens[a->n++] = event->token;
    a->finish = event->finish;
}

static int submit(struct rig *r, int32_t i, struct answer *a, struct job **job, struct err *err) {
    int32_t prompt[N_PROMPT_MAX], n = 3 + i * 17 % N_PROMPT_MAX;
    for (int32_t k = 0; k < n; k++) prompt[k] = (i * 31 + k * 7) % 4096;
    struct engine_request q = {.tokens = prompt, .n_tokens = n, .max_new = N_NEW, .on_event = on_event, .user = a};
    *a = (struct answer){0};
    return engine_submit(r->engine, &q, job, err);
}

static void drain(struct rig *r) {
    bool idle = false;
    struct err err;
    while (!idle) CHECK_OK(engine_step(r->engine, &idle, &err), err);
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
        CHECK_INT(got[i].finish, FINISH_LENGTH);
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
    bool idle;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3});
    const struct kv *kv = &engine_runner(r.engine)->kv;
    int32_t n_free = kv->pools[0].n_free;
    for (int32_t i = 0; i < N_REQUESTS; i++) CHECK_OK(submit(&r, i, &answers[i], &jobs[i], &err), err);
    for (int i = 0; i < 6; i++) CHECK_OK(engine_step(r.engine, &idle, &err), err);
    CHECK(kv->pools[0].n_free < n_free);
    engine_cancel(r.engine, jobs[1]); /* running */
    engine_cancel(r.engine, jobs[4]); /* waiting */
    CHECK_INT(answers[1].finish, FINISH_CANCELLED);
    CHECK_INT(answers[4].finish, FINISH_CANCELLED);
    drain(&r);
    CHECK_INT(answers[0].n, N_NEW);
    CHECK_INT(kv->pools[0].n_free, n_free);
    CHECK_INT(engine_stats(r.engine).n_running, 0);
    rig_close(&r);
}

static void bad_requests_are_refused(void) {
    struct rig r;
    struct err err;
    struct answer a = {0};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1});
    int32_t good = 5, outside = 4096, negative = -1;
    int32_t *longer = mem_alloc(600 * sizeof *longer);
    struct engine_request q = {.tokens = &good, .n_tokens = 0, .max_new = 1, .on_event = on_event, .user = &a};
    CHECK_INT(engine_submit(r.engine, &q, NULL, &err), ERR_EARG);
    q.n_tokens = 1;
    q.tokens = &outside;
    CHECK_INT(engine_submit(r.engine, &q, NULL, &err), ERR_EARG);
    q.tokens = &negative;
    CHECK_INT(engine_submit(r.engine, &q, NULL, &err), ERR_EARG);
    q.tokens = longer;
    q.n_tokens = 600;
    CHECK_INT(engine_submit(r.engine, &q, NULL, &err), ERR_ELIMIT);
    q.n_tokens = 500; /* the context of 512 ends it */
    q.max_new = -1;
    CHECK_OK(engine_submit(r.engine, &q, NULL, &err), err);
    drain(&r);
    CHECK_INT(a.n, 12);
    CHECK_INT(a.finish, FINISH_LENGTH);
    q.max_new = 0;
    a = (struct answer){0};
    CHECK_OK(engine_submit(r.engine, &q, NULL, &err), err);
    drain(&r);
    CHECK_INT(a.n, 0);
    CHECK_INT(a.finish, FINISH_LENGTH);
    mem_free(longer);
    rig_close(&r);
}

static int32_t poisoned(void *user, const struct engine_choice *choice, struct err *err) {
    (void)user, (void)choice;
    err_set(err, ERR_EARG, "nothing to choose from");
    return -1;
}

/* The second largest logit, and who asked. */
static int32_t second(void *user, const struct engine_choice *c, struct err *err) {
    int32_t best = 0, next = -1;
    (void)user, (void)err;
    for (int32_t i = 1; i < c->vocab; i++) {
        if (c->logits[i] > c->logits[best]) {
            next = best;
            best = i;
        } else if (next < 0 || c->logits[i] > c->logits[next]) {
            next = i;
        }
    }
    return c->worker < 3 ? next : -1;
}

static void run_seconds(int32_t n_threads, int32_t seqs, struct answer answers[N_REQUESTS]) {
    struct rig r;
    struct err err;
    rig_open(&r, &(struct rig_options){.n_threads = n_threads, .rows = 64, .seqs = seqs});
    CHECK_INT(engine_workers(r.engine), n_threads);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        int32_t prompt[] = {1 + i, 2, 3};
        struct engine_request q = {
            .tokens = prompt, .n_tokens = 3, .max_new = N_NEW, .on_event = on_event, .choose = second, .user = &answers[i]};
        answers[i] = (struct answer){0};
        CHECK_OK(engine_submit(r.engine, &q, NULL, &err), err);
    }
    drain(&r);
    rig_close(&r);
}

static void workers_choose_the_same(void) {
    static struct answer alone[N_REQUESTS], got[N_REQUESTS];
    run_seconds(1, 1, alone);
    run_seconds(3, N_REQUESTS, got);
    check_same(got, alone);
}

static void an_error_ends_its_own_request_only(void) {
    struct rig r;
    struct err err;
    struct answer bad = {0}, good;
    int32_t prompt[] = {1, 2, 3};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    struct engine_request q = {.tokens = prompt, .n_tokens = 3, .max_new = 5, .on_event = on_event, .choose = poisoned, .user = &bad};
    CHECK_OK(engine_submit(r.engine, &q, NULL, &err), err);
    CHECK_OK(submit(&r, 1, &good, NULL, &err), err);
    drain(&r);
    CHECK_INT(bad.finish, FINISH_ERROR);
    CHECK_INT(good.n, N_NEW);
    rig_close(&r);
}

static void submit_length(struct rig *r, int32_t n_tokens, uint64_t group, int32_t max_new, struct answer *a) {
    int32_t prompt[512];
    struct err err;
    for (int32_t k = 0; k < n_tokens; k++) prompt[k] = (n_tokens + k * 11) % 4096;
    struct engine_request q = {.tokens = prompt, .n_tokens = n_tokens, .max_new = max_new, .on_event = on_event, .user = a, .group = group};
    *a = (struct answer){0};
    CHECK_OK(engine_submit(r->engine, &q, NULL, &err), err);
}

/* Two prompts that fit one after the other but not at once; then one that grows beyond the cache, with others behind it. */
static void a_small_cache_holds_nobody_up(void) {
    struct rig r;
    struct answer a, b, c;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 3, .kv_tokens = 256});
    submit_length(&r, 300, 0, 8, &a);
    submit_length(&r, 310, 0, 8, &b);
    submit_length(&r, 20, 0, 8, &c);
    drain(&r);
    CHECK_INT(a.n, 8);
    CHECK_INT(b.n, 8);
    CHECK_INT(c.n, 8);
    submit_length(&r, 480, 0, 24, &a); /* 504 positions, where 7 blocks hold 448 */
    submit_length(&r, 20, 0, 8, &b);
    submit_length(&r, 30, 0, 8, &c);
    drain(&r);
    CHECK_INT(a.finish, FINISH_ERROR);
    CHECK_INT(b.n, 8);
    CHECK_INT(c.n, 8);
    const struct kv *kv = &engine_runner(r.engine)->kv;
    CHECK_INT(kv->pools[0].n_free, kv->pools[0].n_blocks - 1);
    rig_close(&r);
}

enum { EMBED_TOKENS = 300, EMBED_WIDTH_MAX = 4096, N_TEXTS = 9 };

static int32_t n_embedded;

static void on_embedded(void *user, const struct err *why) {
    (void)user;
    FAIL_IF(why, "%s", why->msg);
    n_embedded++;
}

static void add_text(struct embed *b, int32_t n_tokens, int32_t seed, enum embed_pooling pooling, float *out) {
    int32_t tokens[EMBED_TOKENS];
    struct err err;
    for (int32_t k = 0; k < n_tokens; k++) tokens[k] = (seed + k * 13) % 4096;
    CHECK_OK(embed_add(b, &(struct embed_text){tokens, n_tokens, pooling, out, NULL}, &err), err);
}

/* Steps of the engine, a batch of texts before each, until n vectors are there. */
static void embed_between_steps(struct rig *r, struct embed *b, int32_t n) {
    struct err err;
    bool idle;
    n_embedded = 0;
    for (int32_t i = 0; i < 1000 && n_embedded < n; i++) {
        int code = embed_step(b, &err);
        CHECK(code == ERR_OK || (code == ERR_EBUSY && engine_stats(r->engine).n_running > 0));
        CHECK_OK(engine_step(r->engine, &idle, &err), err);
    }
    CHECK_INT(n_embedded, n);
}

static void embed_one(struct rig *r, float *out) {
    struct embed *b = embed_open(r->engine, on_embedded);
    CHECK(embed_width(r->engine) <= EMBED_WIDTH_MAX);
    add_text(b, EMBED_TOKENS, 0, EMBED_MEAN, out);
    embed_between_steps(r, b, 1);
    embed_close(b);
}

/* Texts of many lengths: each alone, then in one another's company, with room for all and with little, a request beside them. */
static void texts_are_embedded_together(void) {
    static float alone[N_TEXTS][EMBED_WIDTH_MAX], together[N_TEXTS][EMBED_WIDTH_MAX];
    static const int32_t lengths[N_TEXTS] = {1, 7, 200, 3, 129, 64, 300, 2, 65}, caches[] = {0, 384};
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct answer a;
        rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 160, .seqs = N_TEXTS, .kv_tokens = caches[k]});
        struct embed *b = embed_open(r.engine, on_embedded);
        for (int32_t i = 0; i < N_TEXTS; i++) {
            add_text(b, lengths[i], i, i % 2 ? EMBED_LAST : EMBED_MEAN, alone[i]);
            embed_between_steps(&r, b, 1);
        }
        for (int32_t i = 0; i < N_TEXTS; i++) add_text(b, lengths[i], i, i % 2 ? EMBED_LAST : EMBED_MEAN, together[i]);
        submit_length(&r, 100, 0, 8, &a);
        embed_between_steps(&r, b, N_TEXTS);
        drain(&r);
        CHECK_INT(a.n, 8);
        for (int32_t i = 0; i < N_TEXTS; i++) CHECK(memcmp(alone[i], together[i], (size_t)embed_width(r.engine) * sizeof **alone) == 0);
        embed_close(b);
        const struct kv *kv = &engine_runner(r.engine)->kv;
        CHECK_INT(kv->pools[0].n_free, kv->pools[0].n_blocks - 1);
        rig_close(&r);
    }
}

/* An embedding that holds most of the cache gives it to a request that needs it, and its vector is the same. */
static void an_embedding_gives_way(void) {
    static float alone[EMBED_WIDTH_MAX], beside[EMBED_WIDTH_MAX];
    struct rig r;
    struct answer a;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1, .kv_tokens = 256});
    embed_one(&r, alone);
    submit_length(&r, 310, 0, 8, &a);
    embed_one(&r, beside);
    drain(&r);
    CHECK_INT(a.n, 8);
    CHECK_INT(a.finish, FINISH_LENGTH);
    CHECK(memcmp(alone, beside, (size_t)embed_width(r.engine) * sizeof *alone) == 0);
    const struct kv *kv = &engine_runner(r.engine)->kv;
    CHECK_INT(kv->pools[0].n_free, kv->pools[0].n_blocks - 1);
    rig_close(&r);
}

/* Admission looked in on: prompts that were let in while the cache still seemed empty hold each other up. */
static void prompts_that_hold_each_other_up(void) {
    struct rig r;
    struct answer answers[4];
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 512, .seqs = 4, .chunk = 16, .kv_tokens = 128});
    for (int32_t i = 0; i < 4; i++) submit_length(&r, 150 + i, 0, N_NEW, &answers[i]);
    drain(&r);
    for (int32_t i = 0; i < 4; i++) CHECK_INT(answers[i].n, N_NEW);
    rig_close(&r);
}

static void one_request_of_many_leaves_room(void) {
    struct rig r;
    struct err err;
    struct answer many[6], one;
    bool idle = false;
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 2});
    for (int32_t i = 0; i < 6; i++) submit_length(&r, 10 + i, 7, N_NEW, &many[i]);
    submit_length(&r, 30, 8, N_NEW, &one);
    while (!idle && one.finish == FINISH_NONE) CHECK_OK(engine_step(r.engine, &idle, &err), err);
    int32_t n_done = 0;
    for (int32_t i = 0; i < 6; i++) n_done += many[i].finish != FINISH_NONE;
    CHECK(n_done <= 3); /* in order of arrival it would come after five of them */
    drain(&r);
    for (int32_t i = 0; i < 6; i++) CHECK_INT(many[i].n, N_NEW);
    CHECK_INT(one.n, N_NEW);
    rig_close(&r);
}

/* A device with a time limit gets other chunks, not other answers. */
static void chunks_follow_the_time(void) {
    CHECK_INT(engine_next_chunk(256, 256, 151, 150, 2048), 128);
    CHECK_INT(engine_next_chunk(256, 100, 151, 150, 2048), 50);
    CHECK_INT(engine_next_chunk(256, 256, 149, 150, 2048), 256);
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
    struct answer first, a = {0};
    rig_open(&r, &(struct rig_options){.n_threads = 1, .rows = 64, .seqs = 1});
    CHECK_OK(submit(&r, 0, &first, NULL, &err), err);
    drain(&r);
    int32_t prompt[3] = {0, 7, 14}, eos[] = {9999, first.tokens[4]};
    struct engine_request q = {.tokens = prompt, .n_tokens = 3, .max_new = N_NEW, .eos = eos, .n_eos = 2, .on_event = on_event, .user = &a};
    CHECK_OK(engine_submit(r.engine, &q, NULL, &err), err);
    drain(&r);
    CHECK_INT(a.finish, FINISH_EOS);
    CHECK(a.n <= 5 && a.tokens[a.n - 1] == first.tokens[4]);
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
                                                     {"an_embedding_gives_way", an_embedding_gives_way},
                                                     {"texts_are_embedded_together", texts_are_embedded_together},
                                                     {"prompts_that_hold_each_other_up", prompts_that_hold_each_other_up},
                                                     {"one_request_of_many_leaves_room", one_request_of_many_leaves_room},
                                                     {"chunks_follow_the_time", chunks_follow_the_time},
                                                     {"workers_choose_the_same", workers_choose_the_same},
                                                     {"eos_ends_a_request", eos_ends_a_request},
                                                     {0},
                                                 }};
