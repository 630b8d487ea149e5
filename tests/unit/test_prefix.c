/* engine/prefix: an answer does not depend on what was kept from earlier prompts; blocks are counted, kept and given up. */
#include "unit.h"

#include "api/session_internal.h"
#include "os/os.h"

enum { N_PROMPTS = 12, N_NEW = 8, PROMPT_MAX = 330 };

struct answer {
    int32_t tokens[N_NEW + 1], n, n_cached;
};

/* Prompts that share beginnings of many lengths: whole blocks, parts of a block, everything. */
static int32_t make_prompt(int32_t i, int32_t vocab, int32_t out[PROMPT_MAX]) {
    static const int32_t lengths[N_PROMPTS] = {200, 200, 130, 201, 330, 64, 65, 128, 192, 40, 260, 330};
    static const int32_t shared[N_PROMPTS] = {0, 200, 100, 200, 180, 64, 60, 128, 191, 30, 129, 330};
    for (int32_t k = 0; k < lengths[i]; k++) out[k] = (k < shared[i] || i == 0 ? k * 13 + 5 : k * 17 + i * 101 + 3) % vocab;
    return lengths[i];
}

static int32_t kv_bits;    /* of the sessions that are opened */
static uint64_t cache_ram; /* likewise */
static int32_t little;     /* tokens of their cache, where it is not as large as their contexts; 0: it is */

static int open_session(struct session **out, const char *model, bool prefix, int32_t n_seqs, int32_t context, struct err *err) {
    struct session_options o = {
        .model = model, .n_threads = 1, .n_rows = 64, .n_seqs = n_seqs, .context = context, .prefix_cache = prefix, .n_queue = -1};
    o.kv_bits = kv_bits;
    o.cache_ram = prefix ? cache_ram : 0;
    o.kv_tokens = prefix ? little : 0;
    return session_open(&o, out, err);
}

/* A copy of a model of the test material with other numbers in its config.json. */
static const char *changed_model(struct arena *a, const char *name, const char *const changes[][2], size_t n_changes) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                        "config.json"};
    const char *folder = unit_scratch_dir();
    struct str data = {0};
    struct err err;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_OK(os_file_load(a, str_fmt(a, "%s/golden/%s/%s", unit_data_dir(), name, files[i]).p, UINT64_MAX, &data, &err), err);
        CHECK_OK(os_file_save(str_fmt(a, "%s/%s", folder, files[i]).p, data, &err), err);
    }
    for (size_t i = 0; i < n_changes; i++) {
        size_t at = str_find(data, str_of(changes[i][0]), 0);
        FAIL_IF(at == STR_NONE, "%s: no %s in config.json", name, changes[i][0]);
        struct str rest = str_sub(data, at + strlen(changes[i][0]), data.n);
        data = str_fmt(a, "%.*s%s%.*s", STR_ARG(str_sub(data, 0, at)), changes[i][1], STR_ARG(rest));
    }
    CHECK_OK(os_file_save(str_fmt(a, "%s/config.json", folder).p, data, &err), err);
    return folder;
}

static void submit(struct session *s, int32_t i, struct answer *a) {
    int32_t prompt[PROMPT_MAX], n = make_prompt(i, session_vocab(s), prompt);
    struct err err;
    struct job_spec q = {.tokens = prompt, .n_tokens = n, .max_new = N_NEW, .ignore_eos = true, .sampling = sampler_defaults(), .user = a};
    struct job *job;
    *a = (struct answer){0};
    CHECK_OK(engine_submit(s->engine, &q, 1, &job, &err), err);
}

static void drain(struct session *s) {
    struct err err;
    for (bool idle = false; !idle;) {
        struct job *j;
        CHECK_OK(engine_turn(s->engine, &idle, &err), err);
        while ((j = engine_next_ready(s->engine))) {
            struct answer *a = job_user(j);
            struct job_events ev;
            job_take(j, &ev);
            for (size_t i = 0; i < ev.n_tokens; i++) a->tokens[a->n++] = ev.tokens[i].id;
            a->n_cached = ev.usage.n_cached;
            if (ev.finish) job_release(j);
        }
    }
}

/* Nothing is held by anybody but the cache. */
static void check_blocks(struct session *s) {
    CHECK_INT(engine_stats(s->engine).blocks_used, 0);
}

static void check_same(const char *what, const struct answer *got, const struct answer *want) {
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        FAIL_IF(got[i].n != want[i].n, "%s, prompt %d: %d tokens, expected %d", what, i, got[i].n, want[i].n);
        for (int32_t k = 0; k < want[i].n; k++)
            FAIL_IF(got[i].tokens[k] != want[i].tokens[k], "%s, prompt %d (%d known): token %d is %d, expected %d", what, i,
                    got[i].n_cached, k, got[i].tokens[k], want[i].tokens[k]);
    }
}

static struct engine_stats seen; /* at the end of a comparison */

/* Two rounds, one prompt after another and then all at once, against answers without a cache. Returns how many were known. */
static int64_t compare(const char *what, const char *model, int32_t context) {
    static struct answer plain[N_PROMPTS], got[N_PROMPTS];
    struct session *s;
    struct err err;
    CHECK_OK(open_session(&s, model, false, 1, 512, &err), err);
    for (int32_t i = 0; i < N_PROMPTS; i++) submit(s, i, &plain[i]);
    drain(s);
    session_close(s);
    CHECK_OK(open_session(&s, model, true, 3, context, &err), err);
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        submit(s, i, &got[i]);
        drain(s);
        check_blocks(s);
    }
    check_same(what, got, plain);
    for (int32_t i = 0; i < N_PROMPTS; i++) submit(s, i, &got[i]);
    drain(s);
    check_same(what, got, plain);
    check_blocks(s);
    struct engine_stats stats = engine_stats(s->engine);
    CHECK_INT(stats.n_prefix_hits + stats.n_prefix_misses, 2 * N_PROMPTS);
    seen = stats;
    session_close(s);
    return stats.n_cached_tokens;
}

static void answers_do_not_depend_on_what_was_kept(void) {
    int64_t n = compare("built-in", NULL, 512);
    CHECK(n > 2500);                                          /* of 4,280: most of the second round, and the shared parts of the first */
    CHECK(compare("built-in, little room", NULL, 345) > 500); /* three sequences of 345: entries are given up all the time */
}

static void small_caches_are_kept_alike(void) {
    for (kv_bits = 8; kv_bits > 0; kv_bits -= 4) CHECK(compare("built-in, small cache", NULL, 345) > 500);
}

/* The same with memory of the host for what there is no room for: more is known, and no answer changes; also where that memory is full all the time. */
static void what_has_no_room_comes_back(void) {
    little = 448;
    int64_t without = compare("built-in, little room", NULL, 345);
    CHECK_INT(seen.blocks_away, 0);
    cache_ram = 64 << 20;
    for (kv_bits = 0; kv_bits <= 8; kv_bits += 4) {
        int64_t with = compare("built-in, room on the host", NULL, 345);
        FAIL_IF(with <= without || seen.n_returned_tokens == 0 || seen.blocks_away == 0,
                "%d bits: %lld tokens known, %lld without; %lld came back, %d blocks away", kv_bits, (long long)with, (long long)without,
                (long long)seen.n_returned_tokens, seen.blocks_away);
    }
    kv_bits = 0;
    cache_ram = 3 << 20;
    compare("built-in, little room on the host", NULL, 345);
    CHECK(seen.n_returned_tokens > 0 && seen.blocks_away > 0 && seen.blocks_away < 20);
    cache_ram = 0;
    little = 0;
}

static void too_little_memory_of_the_host_is_refused(void) {
    struct session *s;
    struct err err;
    cache_ram = 1;
    CHECK(open_session(&s, NULL, true, 1, 345, &err) != ERR_OK && strstr(err.msg, "has no room for one block of the cache"));
    cache_ram = 0;
}

/* A long answer leaves the window's blocks of its own prompt behind. The tree gives them up, although the answer still reads the same entries' blocks of
 * the layers without a window: there is room for one window only, and nothing is computed twice. */
static void what_is_behind_a_window_is_given_up(void) {
    enum { N_PROMPT = 449, N_ANSWER = 900 };
    static const char *const longer[][2] = {{"\"sliding_window\": 16", "\"sliding_window\": 448"},
                                            {"\"max_position_embeddings\": 512", "\"max_position_embeddings\": 1536"}};
    if (!unit_data_dir()) unit_skip("no test-data folder");
    struct arena a = {0};
    const char *model = changed_model(&a, "gemma2", longer, 2);
    struct session_options o = {
        .model = model, .n_threads = 1, .n_rows = 8, .n_seqs = 1, .context = 1536, .prefix_cache = true, .n_queue = -1};
    struct session *s;
    struct err err;
    int32_t prompt[N_PROMPT];
    CHECK_OK(session_open(&o, &s, &err), err);
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = (i * 13 + 5) % session_vocab(s);
    struct job_spec q = {.tokens = prompt, .n_tokens = N_PROMPT, .max_new = N_ANSWER, .ignore_eos = true, .sampling = sampler_defaults()};
    struct job *job;
    CHECK_OK(engine_submit(s->engine, &q, 1, &job, &err), err);
    int64_t n = 0;
    enum job_finish finish = 0;
    for (bool idle = false; !idle;) {
        struct job_events ev;
        CHECK_OK(engine_turn(s->engine, &idle, &err), err);
        if (!engine_next_ready(s->engine)) continue;
        job_take(job, &ev);
        n += (int64_t)ev.n_tokens;
        finish = ev.finish;
    }
    CHECK_INT(n, N_ANSWER);
    CHECK_INT(finish, JOB_LENGTH);
    CHECK_INT(engine_stats(s->engine).n_preempted, 0);
    CHECK_INT(engine_stats(s->engine).n_prompt_tokens, N_PROMPT);
    job_release(job);
    session_close(s);
    arena_free(&a);
}

/* Every family of the test material: windows, latent attention, recurrent state, ropes that depend on the length. */
static void every_family(void) {
    struct arena a = {0};
    struct unit_model *models;
    size_t n = unit_golden_models(&a, &models), n_run = 0;
    struct err err;
    for (size_t i = 0; i < n; i++) {
        struct session *s;
        if (open_session(&s, models[i].path, false, 1, 512, &err)) continue; /* not a model, or one that is not run yet */
        bool fits = session_context(s) >= PROMPT_MAX + N_NEW;
        session_close(s);
        if (!fits) continue;
        int64_t n_known = compare(models[i].name, models[i].path, 512);
        FAIL_IF(n_known == 0 && !models[i].rope_by_length, "%s: nothing was known", models[i].name);
        cache_ram = 64 << 20;
        little = 448;
        if (open_session(&s, models[i].path, true, 3, 345, &err) == ERR_OK) { /* others have recurrent state */
            session_close(s);
            compare(models[i].name, models[i].path, 345);
        }
        cache_ram = 0;
        little = 0;
        n_run++;
    }
    arena_free(&a);
    if (n_run == 0) unit_skip("no model can be run");
}

const struct unit_suite unit_prefix = {
    "prefix",
    (const struct unit_case[]){{"answers_do_not_depend_on_what_was_kept", answers_do_not_depend_on_what_was_kept},
                               {"small_caches_are_kept_alike", small_caches_are_kept_alike},
                               {"what_has_no_room_comes_back", what_has_no_room_comes_back},
                               {"too_little_memory_of_the_host_is_refused", too_little_memory_of_the_host_is_refused},
                               {"what_is_behind_a_window_is_given_up", what_is_behind_a_window_is_given_up},
                               {"every_family", every_family},
                               {0}},
};
