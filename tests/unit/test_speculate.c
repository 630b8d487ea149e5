/* engine/speculate.c, draft.c, draft_ngram.c: drafts change the steps and nothing else. A drafter that knows the answer, and is wrong now and then, stands
 * in for all kinds. */
#include "engine_rig.h"

enum { N_JOBS = 8, N_NEW = 20, N_PROMPT = 30 };

struct answer {
    int32_t tokens[N_NEW + 1], n;
    float logprobs[N_NEW + 1];
    enum job_finish finish;
    struct job_usage usage;
};

/* ---- a drafter that knows ------------------------------------------------------------------------------------------------ */

struct knowing {
    struct drafter base;
    const struct answer *answers; /* [N_JOBS] */
    int32_t wrong_every;          /* tokens; 0: never */
    int32_t n_settled, n_states;
};

/* The first token of a prompt says whose it is. */
static void know(struct drafter *d, struct draft_ask *asks, int32_t n) {
    const struct knowing *k = (const struct knowing *)d;
    for (int32_t i = 0; i < n; i++) {
        const struct answer *a = &k->answers[asks[i].tokens[0]];
        int32_t at = asks[i].n_tokens - N_PROMPT;
        for (asks[i].n = 0; asks[i].n < asks[i].most && at >= 0 && at < a->n; at++, asks[i].n++)
            asks[i].out[asks[i].n] = a->tokens[at] ^ (k->wrong_every && at % k->wrong_every == 0);
        asks[i].kind = 0;
    }
}

static void *know_begin(struct drafter *d, int32_t capacity, int32_t vocab) {
    struct knowing *k = (struct knowing *)d;
    CHECK(capacity > N_PROMPT && vocab == 4096);
    k->n_states++;
    return k;
}

static void know_end(struct drafter *d, void *state) {
    struct knowing *k = (struct knowing *)d;
    CHECK(state == k);
    k->n_states--;
}

static void know_settled(struct drafter *d, void *state, int32_t n_tokens) {
    struct knowing *k = (struct knowing *)d;
    (void)state;
    k->n_settled++;
    CHECK(n_tokens >= 0 && n_tokens <= N_PROMPT + N_NEW);
}

static const struct draft_type knowing_type =
    {.name = "knowing", .hopes = {0.9f}, .begin = know_begin, .end = know_end, .propose = know, .settle = know_settled};

/* ---- jobs ---------------------------------------------------------------------------------------------------------------- */

typedef void shape_fn(struct job_spec *s, int32_t i);

static void take_events(struct rig *r) {
    struct job *j;
    while ((j = engine_next_ready(r->engine))) {
        struct answer *a = job_user(j);
        struct job_events ev;
        job_take(j, &ev);
        for (size_t i = 0; i < ev.n_tokens; i++) {
            a->logprobs[a->n] = ev.tokens[i].logprob;
            a->tokens[a->n++] = ev.tokens[i].id;
        }
        a->finish = ev.finish;
        a->usage = ev.usage;
        if (ev.finish) job_release(j);
    }
}

static void run_jobs(struct rig *r, shape_fn *shape, int32_t n_jobs, struct answer *out) {
    struct err err;
    for (int32_t i = 0; i < n_jobs; i++) {
        int32_t prompt[N_PROMPT];
        struct job *job;
        for (int32_t k = 0; k < N_PROMPT; k++) prompt[k] = k ? (i * 31 + k % 11 * 7) % 4096 : i;
        out[i] = (struct answer){0};
        struct job_spec spec = {
            .tokens = prompt, .n_tokens = N_PROMPT, .max_new = N_NEW, .sampling = sampler_defaults(), .has_seed = true, .user = &out[i]};
        spec.sampling.seed = (uint64_t)i + 5;
        if (shape) shape(&spec, i);
        CHECK_OK(engine_submit(r->engine, &spec, 1, &job, &err), err);
    }
    for (bool idle = false; !idle;) {
        CHECK_OK(engine_turn(r->engine, &idle, &err), err);
        take_events(r);
    }
}

static void check_same(const struct answer *got, const struct answer *want, int32_t n_jobs) {
    for (int32_t i = 0; i < n_jobs; i++) {
        CHECK_INT(got[i].n, want[i].n);
        CHECK_INT(got[i].finish, want[i].finish);
        CHECK_INT(got[i].usage.n_new, want[i].usage.n_new);
        CHECK_INT(memcmp(got[i].tokens, want[i].tokens, sizeof got->tokens), 0);
        CHECK_INT(memcmp(got[i].logprobs, want[i].logprobs, sizeof got->logprobs), 0);
    }
}

/* The same jobs without drafts, and with ones that are wrong now and then; the steps that the latter took. */
static int64_t compare(const struct rig_options *o, shape_fn *shape, int32_t n_jobs, int32_t wrong_every) {
    struct rig r;
    struct answer want[N_JOBS], got[N_JOBS];
    struct rig_options plain = *o, drafting = *o;
    plain.draft = DRAFT_NONE;
    drafting.draft = DRAFT_NGRAM;
    rig_open(&r, &plain);
    run_jobs(&r, shape, n_jobs, want);
    rig_close(&r);
    rig_open(&r, &drafting);
    struct knowing k = {.base = {.type = &knowing_type}, .answers = want, .wrong_every = wrong_every};
    r.engine->drafters[DRAFT_NGRAM] = &k.base;
    run_jobs(&r, shape, n_jobs, got);
    struct engine_stats stats = engine_stats(r.engine);
    check_same(got, want, n_jobs);
    CHECK_INT(k.n_states, 0);
    int64_t n_drafted = 0, n_accepted = 0;
    for (int32_t i = 0; i < n_jobs; i++) n_drafted += got[i].usage.n_drafted, n_accepted += got[i].usage.n_accepted;
    CHECK_INT(n_drafted, stats.n_drafted_tokens);
    CHECK_INT(n_accepted, stats.n_accepted_tokens);
    CHECK(n_drafted > 0 && n_accepted > 0 && n_accepted <= n_drafted);
    CHECK(wrong_every == 0 || n_accepted < n_drafted);
    rig_close(&r);
    return stats.n_steps;
}

static void at_temperature(struct job_spec *s, int32_t i) {
    s->sampling.temperature = 1;
    s->max_new = N_NEW - i; /* they end one after the other */
}

static void with_penalties(struct job_spec *s, int32_t i) {
    s->sampling.temperature = 0.8f;
    s->sampling.repetition = 1.3f;
    s->sampling.last_n = 7;
    s->sampling.frequency = 0.5f;
    s->sampling.dry_multiplier = i % 2 ? 0.8f : 0;
    s->sampling.top_k = 40;
    s->sampling.n_top = 3;
}

static void with_mirostat(struct job_spec *s, int32_t i) {
    s->sampling.temperature = 1;
    s->sampling.mirostat = 1 + i % 2;
    s->sampling.mirostat_tau = 5;
    s->sampling.mirostat_eta = 0.1f;
}

static void with_ends(struct job_spec *s, int32_t i) {
    static const int32_t ends[] = {1, 3, 5, 7, 9, 11, 13, 15}, first[] = {100, 200};
    static const struct job_words words[] = {{first, 2}, {ends, 1}};
    s->sampling.temperature = 2;
    s->end_tokens = ends + i % 3, s->n_end_tokens = 4;
    s->min_new = i;
    s->bad_words = words, s->n_bad_words = 2;
    s->sampling.n_top = 0;
}

static void kinds_of_sampling(void) {
    const struct rig_options o = {0};
    static shape_fn *const shapes[] = {NULL, at_temperature, with_penalties, with_mirostat, with_ends};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        compare(&o, shapes[i], 1, 3);
        compare(&o, shapes[i], N_JOBS, 4);
    }
}

static void steps_are_saved(void) {
    const struct rig_options o = {0};
    int64_t all_right = compare(&o, NULL, 1, 0), some_wrong = compare(&o, NULL, 1, 4);
    CHECK(all_right < 8); /* the prompt, and 40 tokens */
    CHECK(some_wrong > all_right && some_wrong < 25);
}

static void little_room_changes_nothing(void) {
    compare(&(struct rig_options){.kv_tokens = 4 * 128}, at_temperature, N_JOBS, 5); /* blocks run out: jobs give way */
    compare(&(struct rig_options){.kv_tokens = 4 * 128, .prefix = true}, at_temperature, N_JOBS, 5);
    compare(&(struct rig_options){.seqs = 3, .rows = 4}, NULL, N_JOBS, 6);
}

/* The context of 40 is full, and half of the tokens are forgotten each time. */
static void with_shifts(struct job_spec *s, int32_t i) {
    (void)i;
    s->shifts = true;
    s->sampling.temperature = 1;
}

static void full_contexts_make_room(void) {
    struct answer want[N_JOBS], got[N_JOBS];
    for (int pass = 0; pass < 2; pass++) {
        struct rig r;
        struct knowing k = {.base = {.type = &knowing_type}, .answers = want, .wrong_every = 5};
        rig_open(&r, &(struct rig_options){.draft = pass ? DRAFT_NGRAM : DRAFT_NONE});
        if (pass) r.engine->drafters[DRAFT_NGRAM] = &k.base;
        r.engine->runner.limits.context = 40;
        run_jobs(&r, with_shifts, 4, pass ? got : want);
        rig_close(&r);
    }
    check_same(got, want, 4);
    for (int32_t i = 0; i < 4; i++) CHECK(got[i].usage.n_drafted > 0 && got[i].usage.n_forgotten > 0);
}

/* ---- a draft model --------------------------------------------------------------------------------------------------------- */

static int32_t next_token[4096], token_before[4096], nothing[4096];

/* The model drafts for itself, another one does, and one whose tokens are counted otherwise. */
static void draft_models(void) {
    for (int32_t i = 0; i < 4096; i++) next_token[i] = (i + 1) % 4096, token_before[i] = (i + 4095) % 4096, nothing[i] = -1;
    const struct {
        uint64_t seed;
        struct draft_map map;
        int32_t right; /* 1: every guess; 0: some or none; -1: there are no guesses */
    } cases[] = {
        {7, {NULL, NULL, 0.05}, 1},       {8, {NULL, NULL, 0.05}, 0},     {7, {next_token, token_before, 0.05}, 0},
        {7, {NULL, next_token, 0.05}, 0}, {7, {nothing, NULL, 0.05}, -1},
    };
    struct answer want[N_JOBS], got[N_JOBS];
    struct rig r, d;
    struct err err;
    rig_open(&r, &(struct rig_options){.draft = DRAFT_NONE});
    run_jobs(&r, at_temperature, N_JOBS, want);
    rig_close(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_open(&d, &(struct rig_options){.seed = cases[i].seed});
        rig_open(&r, &(struct rig_options){.draft = DRAFT_MODEL});
        CHECK_OK(engine_set_draft(r.engine, d.engine, &cases[i].map, &err), err);
        run_jobs(&r, at_temperature, N_JOBS, got);
        check_same(got, want, N_JOBS);
        struct engine_stats stats = engine_stats(r.engine);
        CHECK((stats.n_drafted_tokens > 0) == (cases[i].right >= 0));
        run_jobs(&r, NULL, 3, got); /* greedy: the model agrees with itself */
        struct engine_stats later = engine_stats(r.engine);
        int64_t n_drafted = later.n_drafted_tokens - stats.n_drafted_tokens, n_accepted = later.n_accepted_tokens - stats.n_accepted_tokens;
        if (cases[i].right == 1) CHECK(n_accepted > 30 && n_accepted == n_drafted);
        rig_close(&r);
        rig_close(&d);
    }
}

static void draft_models_that_do_not_fit(void) {
    struct rig r, d;
    struct err err;
    rig_open(&d, &(struct rig_options){.seqs = 2});
    rig_open(&r, &(struct rig_options){.draft = DRAFT_MODEL});
    CHECK_INT(engine_set_draft(r.engine, d.engine, &(struct draft_map){NULL, NULL, 0.1}, &err), ERR_EARG);
    d.model.spec.kv.n_states = 1;
    CHECK_INT(engine_set_draft(r.engine, d.engine, &(struct draft_map){NULL, NULL, 0.1}, &err), ERR_EUNSUPPORTED);
    CHECK(strstr(err.msg, "recurrent"));
    d.model.spec.kv.n_states = 0;
    rig_close(&r);
    rig_close(&d);
}

static void wrong_wishes_are_refused(void) {
    struct rig r;
    struct err err;
    struct job *job;
    rig_open(&r, &(struct rig_options){.draft = DRAFT_NONE});
    struct job_spec spec = {
        .tokens = (const int32_t[]){1, 2}, .n_tokens = 2, .max_new = 2, .sampling = sampler_defaults(), .draft = DRAFT_NGRAM};
    CHECK_INT(engine_submit(r.engine, &spec, 1, &job, &err), ERR_EUNSUPPORTED);
    spec.draft = DRAFT_NONE;
    spec.max_draft = DRAFT_MAX + 1;
    CHECK_INT(engine_submit(r.engine, &spec, 1, &job, &err), ERR_EARG);
    rig_close(&r);
}

/* ---- what stood there before ----------------------------------------------------------------------------------------------- */

static struct draft_ask look_up(void *state, const int32_t *tokens, int32_t n, int32_t *out) {
    struct draft_ask a = {.state = state, .tokens = tokens, .n_tokens = n, .most = 6, .out = out};
    draft_ngram.propose(NULL, &a, 1);
    return a;
}

static void ngrams_are_found(void) {
    int32_t tokens[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 20, 21, 22, 23, 24, 25, 26, 5, 2, 3, 4}, out[6];
    void *g = draft_ngram.begin(NULL, 64, 100);
    CHECK_INT(look_up(g, tokens, 9, out).n, 0); /* nothing has come twice */
    CHECK_INT(look_up(g, tokens, 2, out).n, 0);
    struct draft_ask a = look_up(g, tokens, 12, out);
    CHECK_INT(a.n, 6);
    CHECK_INT(a.kind, 0);
    CHECK_INT(memcmp(out, tokens + 4, sizeof out), 0);
    a = look_up(g, tokens, 23, out); /* of two places the later one */
    CHECK_INT(memcmp(out, tokens + 12, sizeof out), 0);
    const int32_t more[] = {5, 6, 7, 8, 9, 2, 3, 4};
    memcpy(tokens + 23, more, sizeof more); /* the one that agrees for longer */
    a = look_up(g, tokens, 31, out);
    CHECK_INT(out[0], 20);
    CHECK_INT(a.kind, 2);
    draft_ngram.settle(NULL, g, 12); /* taken back */
    a = look_up(g, tokens, 12, out);
    CHECK_INT(out[0], 5);
    draft_ngram.end(NULL, g);
    int32_t loop[] = {7, 8, 9, 7, 8, 9, 7, 8, 9}; /* the guess goes on with itself */
    g = draft_ngram.begin(NULL, 64, 100);
    CHECK_INT(look_up(g, loop, 9, out).n, 6);
    for (int32_t i = 0; i < 6; i++) CHECK_INT(out[i], 7 + i % 3);
    const int32_t picture[] = {5, 7, 9, 100, 8, 5, 7, 9}; /* 100 is no token of the vocabulary */
    draft_ngram.settle(NULL, g, 0);
    CHECK_INT(look_up(g, picture, 8, out).n, 0);
    draft_ngram.end(NULL, g);
}

static void lengths_follow_what_came_true(void) {
    const struct draft_cost cost = {0, 0.2}, dear = {0.6, 0.3};
    struct draft_pace p;
    draft_pace_init(&p, &draft_ngram);
    int32_t first = draft_pace_length(&p, 3, &cost, 1, 15);
    CHECK(first >= 3 && first < 15);
    for (int i = 0; i < 20; i++) draft_pace_count(&p, 3, 8, 8);
    CHECK_INT(draft_pace_length(&p, 3, &cost, 1, 15), 15);
    CHECK_INT(draft_pace_length(&p, 3, &cost, 1, 4), 4);
    CHECK_INT(draft_pace_length(&p, 3, &cost, 1, 0), 0);
    CHECK(draft_pace_length(&p, 0, &dear, 1, 15) == 0); /* a guess that is wrong in two of three cases */
    for (int i = 0; i < 40; i++) draft_pace_count(&p, 3, 8, 0);
    int32_t n_tried = 0, n_tokens = 0;
    for (int i = 0; i < 1000; i++) {
        int32_t n = draft_pace_length(&p, 3, &cost, 1, 15);
        n_tried += n > 0;
        n_tokens += n;
        if (n) draft_pace_count(&p, 3, n, 0);
    }
    CHECK(n_tried > 0 && n_tried < 10 && n_tokens <= 2 * n_tried); /* off, but for a look now and then */
    for (int i = 0; i < 20; i++) draft_pace_count(&p, 3, 2, 2);
    CHECK(draft_pace_length(&p, 3, &cost, 1, 15) > 2); /* and on again */
    CHECK(draft_pace_length(&p, 3, &cost, 8, 15) <= draft_pace_length(&p, 3, &cost, 1, 15));
}

const struct unit_suite unit_speculate = {"speculate", (const struct unit_case[]){
                                                           {"kinds_of_sampling", kinds_of_sampling},
                                                           {"steps_are_saved", steps_are_saved},
                                                           {"little_room_changes_nothing", little_room_changes_nothing},
                                                           {"full_contexts_make_room", full_contexts_make_room},
                                                           {"draft_models", draft_models},
                                                           {"draft_models_that_do_not_fit", draft_models_that_do_not_fit},
                                                           {"wrong_wishes_are_refused", wrong_wishes_are_refused},
                                                           {"ngrams_are_found", ngrams_are_found},
                                                           {"lengths_follow_what_came_true", lengths_follow_what_came_true},
                                                           {0},
                                                       }};
