/* engine/saved and engine/prompt_cache: a cache that is saved comes back as it was, in another session; a file that is cut, altered or of another model
 * is refused and changes nothing. */
#include "unit.h"

#include "api/session_internal.h"
#include "engine/saved.h"
#include "os/os.h"

enum { N_NEW = 8, PROMPT_MAX = 330 };

struct result {
    struct job_events ev;
    int32_t tokens[N_NEW + 1], n;
    void *saved; /* a copy */
};

static int open_session(struct session **out, const char *model, bool prefix, int32_t kv_bits, struct err *err) {
    struct session_options o = {.model = model,
                                .n_threads = 1,
                                .n_rows = 64,
                                .n_seqs = 2,
                                .context = 512,
                                .prefix_cache = prefix,
                                .n_queue = -1,
                                .kv_bits = kv_bits};
    return session_open(&o, out, err);
}

/* Runs one job to its end. */
static void run(struct session *s, struct job_spec spec, struct result *out) {
    struct err err;
    struct job *job, *j;
    *out = (struct result){0};
    spec.sampling = sampler_defaults();
    spec.ignore_eos = true;
    CHECK_OK(engine_submit(s->engine, &spec, 1, &job, &err), err);
    for (bool idle = false; !idle || !out->ev.finish;) {
        CHECK_OK(engine_turn(s->engine, &idle, &err), err);
        while ((j = engine_next_ready(s->engine))) {
            job_take(j, &out->ev);
            for (size_t i = 0; i < out->ev.n_tokens; i++) out->tokens[out->n++] = out->ev.tokens[i].id;
        }
    }
    if (out->ev.n_saved) {
        out->saved = mem_alloc(out->ev.n_saved);
        memcpy(out->saved, out->ev.saved, out->ev.n_saved);
    }
    job_release(job);
}

static int32_t make_prompt(int32_t n, int32_t vocab, int32_t out[PROMPT_MAX]) {
    for (int32_t k = 0; k < n; k++) out[k] = (k * 13 + 5) % vocab;
    return n;
}

static struct job_spec ask(const int32_t *tokens, int32_t n) {
    return (struct job_spec){.tokens = tokens, .n_tokens = n, .max_new = N_NEW};
}

static struct job_spec order(enum job_cache cache, const int32_t *tokens, int32_t n, const struct saved *saved) {
    return (struct job_spec){.tokens = tokens, .n_tokens = n, .cache = cache, .saved = saved};
}

static void restore(struct session *s, const struct result *file, int32_t want) {
    struct saved_reader reader;
    struct saved saved;
    struct result r;
    struct err err;
    engine_saved_reader(s->engine, &reader);
    CHECK_OK(saved_open(file->saved, file->ev.n_saved, &reader, &saved, &err), err);
    run(s, order(CACHE_RESTORE, saved.tokens, saved.n_tokens, &saved), &r);
    CHECK_INT(r.ev.finish, JOB_STOP);
    CHECK_INT(r.ev.usage.n_cached, want);
    CHECK_INT(engine_stats(s->engine).blocks_used, 0);
}

/* Asked, saved, restored into another session, asked again. Returns how many tokens were known there. */
static int32_t round_trip(const char *what, const char *model, int32_t n_prompt, int32_t kv_bits) {
    struct session *s;
    struct err err;
    struct result plain, saved, again;
    int32_t tokens[PROMPT_MAX + N_NEW];
    CHECK_OK(open_session(&s, model, true, kv_bits, &err), err);
    make_prompt(n_prompt, session_vocab(s), tokens);
    run(s, ask(tokens, n_prompt), &plain);
    memcpy(tokens + n_prompt, plain.tokens, (size_t)(plain.n - 1) * sizeof *tokens);
    struct job_spec save = order(CACHE_SAVE, tokens, n_prompt + plain.n - 1, NULL);
    save.n_asked = n_prompt;
    run(s, save, &saved);
    FAIL_IF(saved.ev.finish != JOB_STOP, "%s: %s", what, saved.ev.err.msg);
    CHECK_INT(engine_stats(s->engine).blocks_used, 0);
    session_close(s);
    CHECK_OK(open_session(&s, model, true, kv_bits, &err), err);
    restore(s, &saved, saved.ev.usage.n_prompt);
    run(s, ask(tokens, n_prompt), &again);
    FAIL_IF(again.n != plain.n || memcmp(again.tokens, plain.tokens, sizeof plain.tokens), "%s: the answer is another", what);
    CHECK_INT(engine_stats(s->engine).blocks_used, 0);
    session_close(s);
    mem_free(saved.saved);
    return again.ev.usage.n_cached;
}

static void comes_back_in_another_session(void) {
    CHECK_INT(round_trip("210 tokens", NULL, 210, 0), 209);
    CHECK_INT(round_trip("a part of a block", NULL, 21, 0), 20);
    CHECK_INT(round_trip("whole blocks", NULL, 128, 0), 127);
    CHECK_INT(round_trip("8 bits", NULL, 210, 8), 209);
}

static void every_family(void) {
    struct arena a = {0};
    struct unit_model *models;
    size_t n = unit_golden_models(&a, &models), n_run = 0;
    struct err err;
    for (size_t i = 0; i < n; i++) {
        struct session *s;
        if (models[i].rope_by_length) continue;
        if (open_session(&s, models[i].path, true, 0, &err)) continue; /* not a model, or one that is not run yet */
        bool fits = session_context(s) >= 200 + N_NEW && !s->model.spec.is_encoder;
        session_close(s);
        if (!fits) continue;
        int32_t n_known = round_trip(models[i].name, models[i].path, 200, 0);
        FAIL_IF(n_known < 128, "%s: %d tokens were known", models[i].name, n_known);
        n_run++;
    }
    arena_free(&a);
    if (n_run == 0) unit_skip("no model can be run");
}

static void what_is_erased_is_computed_again(void) {
    struct session *s;
    struct err err;
    struct result r;
    int32_t tokens[PROMPT_MAX], n = 200;
    CHECK_OK(open_session(&s, NULL, true, 0, &err), err);
    make_prompt(n, session_vocab(s), tokens);
    run(s, ask(tokens, n), &r);
    run(s, ask(tokens, n), &r);
    CHECK_INT(r.ev.usage.n_cached, 192);
    run(s, order(CACHE_ERASE, tokens, n, NULL), &r);
    CHECK_INT(r.ev.finish, JOB_STOP);
    CHECK_INT(engine_stats(s->engine).blocks_cached, 0);
    run(s, ask(tokens, n), &r);
    CHECK_INT(r.ev.usage.n_cached, 0);
    session_close(s);
}

/* What other prompts share is not erased with one of them. */
static void shared_blocks_stay(void) {
    struct session *s;
    struct err err;
    struct result r;
    int32_t one[PROMPT_MAX], two[PROMPT_MAX], n = 200;
    CHECK_OK(open_session(&s, NULL, true, 0, &err), err);
    make_prompt(n, session_vocab(s), one);
    make_prompt(n, session_vocab(s), two);
    for (int32_t i = 64; i < n; i++) two[i] = (i * 7 + 1) % session_vocab(s);
    run(s, ask(one, n), &r);
    run(s, ask(two, n), &r);
    run(s, order(CACHE_ERASE, one, n, NULL), &r);
    run(s, ask(two, n), &r);
    CHECK_INT(r.ev.usage.n_cached, 192);
    session_close(s);
}

static void save_small(struct session **s, struct result *out, struct saved_reader *reader) {
    struct err err;
    int32_t tokens[PROMPT_MAX];
    CHECK_OK(open_session(s, NULL, true, 0, &err), err);
    make_prompt(70, session_vocab(*s), tokens);
    run(*s, order(CACHE_SAVE, tokens, 70, NULL), out);
    CHECK_INT(out->ev.finish, JOB_STOP);
    engine_saved_reader((*s)->engine, reader);
}

static void must_refuse(const void *data, size_t n, const struct saved_reader *r, const char *what, size_t at) {
    struct saved saved;
    struct err err = {0};
    FAIL_IF(saved_open(data, n, r, &saved, &err) == ERR_OK, "%s at byte %zu was taken", what, at);
    FAIL_IF(err.msg[0] == '\0' || strchr(err.msg, '\n'), "%s at byte %zu: no line", what, at);
}

static void a_cut_file_is_refused(void) {
    struct session *s;
    struct result r;
    struct saved_reader reader;
    save_small(&s, &r, &reader);
    for (size_t n = 0; n < r.ev.n_saved; n = n < 2048 || n + 64 > r.ev.n_saved ? n + 1 : n + 997) {
        unsigned char *cut = mem_alloc(n + 1); /* its own size: reading beyond is seen */
        memcpy(cut, r.saved, n);
        must_refuse(cut, n, &reader, "a cut", n);
        if (n >= sizeof(struct saved_head)) { /* one that claims to be whole, with a sum that is right */
            uint64_t bytes = n;
            memcpy(cut + offsetof(struct saved_head, file_bytes), &bytes, sizeof bytes);
            saved_seal(cut, n);
            must_refuse(cut, n, &reader, "a sealed cut", n);
        }
        mem_free(cut);
    }
    mem_free(r.saved);
    session_close(s);
}

static void a_flipped_bit_is_refused(void) {
    struct session *s;
    struct result r;
    struct saved_reader reader;
    save_small(&s, &r, &reader);
    unsigned char *data = r.saved;
    for (size_t i = 0; i < r.ev.n_saved; i += i < 2048 ? 1 : 499)
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (unsigned char)(1 << bit);
            must_refuse(data, r.ev.n_saved, &reader, "a flipped bit", i);
            data[i] ^= (unsigned char)(1 << bit);
        }
    mem_free(r.saved);
    session_close(s);
}

static void check_message(const struct result *r, const struct saved_reader *reader, const char *want) {
    struct saved saved;
    struct err err = {0};
    CHECK(saved_open(r->saved, r->ev.n_saved, reader, &saved, &err) != ERR_OK);
    FAIL_IF(!strstr(err.msg, want), "\"%s\" does not say \"%s\"", err.msg, want);
}

static void what_is_another_is_named(void) {
    struct session *s;
    struct result r;
    struct saved_reader reader, other;
    save_small(&s, &r, &reader);
    other = reader, other.own.model++;
    check_message(&r, &other, "another model");
    other = reader, other.own.precision++;
    check_message(&r, &other, "--precision");
    other = reader, other.own.kv_bits = 8;
    check_message(&r, &other, "--kv-bits");
    other = reader, other.own.classes[0].heads++;
    check_message(&r, &other, "other layers");
    other = reader, other.own.classes[0].layout[0] ^= 1;
    check_message(&r, &other, "another device");
    other = reader, other.context = 69;
    check_message(&r, &other, "the context is 69");
    other = reader, other.vocab = 5;
    check_message(&r, &other, "outside the vocabulary");
    mem_free(r.saved);
    session_close(s);
}

/* Other weights under the same configuration are another model. */
static void other_weights_have_another_identity(void) {
    struct session *s[2];
    struct saved_reader readers[2];
    struct err err;
    for (uint64_t i = 0; i < 2; i++) {
        struct session_options o = {.shape = "tiny",
                                    .bits = 16,
                                    .seed = i,
                                    .n_threads = 1,
                                    .n_rows = 64,
                                    .n_seqs = 1,
                                    .context = 128,
                                    .prefix_cache = true,
                                    .n_queue = -1};
        if (session_open(&o, &s[i], &err)) unit_skip("there is no such shape");
        engine_saved_reader(s[i]->engine, &readers[i]);
        session_close(s[i]);
    }
    CHECK(readers[0].own.model != readers[1].own.model);
}

const struct unit_suite unit_saved = {
    "saved",
    (const struct unit_case[]){{"comes_back_in_another_session", comes_back_in_another_session},
                               {"every_family", every_family},
                               {"what_is_erased_is_computed_again", what_is_erased_is_computed_again},
                               {"shared_blocks_stay", shared_blocks_stay},
                               {"a_cut_file_is_refused", a_cut_file_is_refused},
                               {"a_flipped_bit_is_refused", a_flipped_bit_is_refused},
                               {"what_is_another_is_named", what_is_another_is_named},
                               {"other_weights_have_another_identity", other_weights_have_another_identity},
                               {0}},
};
