/* Measuring: requests of made-up tokens through the engine, timed by the turn that finishes them. */
#include "tools/bench.h"

#include "api/session_internal.h"
#include "backend/cpu/pool.h"
#include "backend/paths.h"
#include "base/fmath.h"
#include "base/hash.h"
#include "base/json.h"
#include "os/os.h"
#include "tools/probe.h"

#include <stdlib.h>

static int32_t token_at(const struct session *s, int64_t i) {
    return (int32_t)(hash_mix((uint64_t)i + 1) % (uint64_t)s->model.spec.vocab);
}

/* By the clock, and by what all threads of the process used. */
struct span {
    double seconds, cpu_seconds;
};

/* What the jobs have made so far: in all, the least and the most of one. */
struct made {
    int64_t all;
    int32_t least, most;
};

static int count_made(struct job **jobs, int32_t n_jobs, struct made *out, struct err *err) {
    *out = (struct made){.least = INT32_MAX};
    for (int32_t i = 0; i < n_jobs; i++) {
        struct job_events ev;
        job_take(jobs[i], &ev);
        if (ev.finish == JOB_ERROR) return err_set(err, ev.err.code, "%s", ev.err.msg);
        int32_t n = ev.usage.n_new, least = ev.finish ? INT32_MAX : n;
        out->all += n;
        if (least < out->least) out->least = least;
        if (n > out->most) out->most = n;
    }
    return ERR_OK;
}

/* Turns the engine until every job has a token. */
static int turn_to_first(struct session *s, struct job **jobs, int32_t n_jobs, struct span *out, struct err *err) {
    uint64_t start = os_clock_ns(), cpu_start = os_cpu_ns();
    struct made made = {0};
    for (bool idle; made.least < 1;) {
        TRY(engine_turn(s->engine, &idle, err));
        TRY(count_made(jobs, n_jobs, &made, err));
    }
    *out = (struct span){(double)(os_clock_ns() - start) * 1e-9, (double)(os_cpu_ns() - cpu_start) * 1e-9};
    return ERR_OK;
}

/* Turns the engine until one job has n tokens, so that all of them run to the end; where one has as many already, until all have. What is made in
 * this time counts, and the time is given for n - 1 tokens of each. */
static int turn_to_last(struct session *s, struct job **jobs, int32_t n_jobs, int32_t n, struct span *out, struct err *err) {
    struct made before, now;
    TRY(count_made(jobs, n_jobs, &before, err));
    now = before;
    bool any = before.most < n;
    uint64_t start = os_clock_ns(), cpu_start = os_cpu_ns();
    for (bool idle; any ? now.most < n : now.least < n;) {
        TRY(engine_turn(s->engine, &idle, err));
        TRY(count_made(jobs, n_jobs, &now, err));
    }
    double share = (double)(n - 1) * n_jobs / (double)(now.all > before.all ? now.all - before.all : 1);
    *out = (struct span){(double)(os_clock_ns() - start) * 1e-9 * share, (double)(os_cpu_ns() - cpu_start) * 1e-9 * share};
    return ERR_OK;
}

static int submit_text(struct session *s, const struct bench_case *c, const struct bench_text *t, struct job **out, struct err *err) {
    struct job_spec spec = {.tokens = t->prompt,
                            .n_tokens = t->n_prompt,
                            .max_new = c->n_new + 1,
                            .ignore_eos = true,
                            .sampling = sampler_defaults(),
                            .replay = t->answer,
                            .n_replay = t->n_answer};
    for (int32_t i = 0; i < c->n_batch; i++) TRY(engine_submit(s->engine, &spec, 1, &out[i], err));
    return ERR_OK;
}

/* Token k of request i: those that are in the cache are the same in every run, and for all requests where they share them; the others are new, so that
 * no cache has them. */
static int32_t token_of(const struct session *s, const struct bench_case *c, int32_t i_run, int32_t i, int32_t k) {
    int64_t request = k >= c->depth ? (int64_t)i_run * 1024 + i + 1024 : c->shares ? 0 : i;
    return token_at(s, request << 24 | k);
}

/* Requests [first, first + n) of made-up tokens. */
static int submit(struct session *s, const struct bench_case *c, int32_t i_run, int32_t first, int32_t n, int32_t n_prompt,
                  struct job **out, struct err *err) {
    int32_t *tokens = mem_alloc((size_t)n_prompt * sizeof *tokens);
    int code = ERR_OK;
    for (int32_t i = first; i < first + n && !code; i++) {
        for (int32_t k = 0; k < n_prompt; k++) tokens[k] = token_of(s, c, i_run, i, k);
        struct job_spec spec = {
            .tokens = tokens, .n_tokens = n_prompt, .max_new = c->n_new + 1, .ignore_eos = true, .sampling = sampler_defaults()};
        code = engine_submit(s->engine, &spec, 1, out++, err);
    }
    mem_free(tokens);
    return code;
}

/* Leaves the first `depth` tokens of a request in the cache. */
static int leave_beginning(struct session *s, const struct bench_case *c, int32_t i, struct err *err) {
    struct bench_case one = *c;
    struct job *job = NULL;
    struct span span;
    one.n_new = 0;
    int code = submit(s, &one, -1, i, 1, c->depth + 1, &job, err);
    if (!code) code = turn_to_first(s, &job, 1, &span, err);
    if (job) job_release(job);
    for (bool idle = false; !code && !idle;) code = engine_turn(s->engine, &idle, err);
    return code;
}

/* The same for all requests, which then begin together: else the first ones would be done when the last ones begin. */
static int leave_beginnings(struct session *s, const struct bench_case *c, struct err *err) {
    int32_t n = c->shares ? 1 : c->n_batch;
    if (c->depth == 0 || !s->options.prefix_cache) return ERR_OK;
    for (int32_t i = 0; i < n; i++) TRY(leave_beginning(s, c, i, err));
    return ERR_OK;
}

/* A prompt case times the way to the first token; a generation case the tokens after it. */
static int run_once(struct session *s, const struct bench_plan *plan, int32_t i_run, struct span *out, struct err *err) {
    const struct bench_case *c = &plan->which;
    int32_t n_prompt = c->n_prompt ? c->depth + c->n_prompt : c->depth + 1, context = session_context(s);
    if (n_prompt + c->n_new + 1 > context)
        return err_set(err, ERR_ELIMIT, "%s of %d at a depth of %d needs %d tokens, but the context is %d",
                       c->n_prompt ? "a prompt" : "an answer", c->n_prompt ? c->n_prompt : c->n_new, c->depth, n_prompt + c->n_new + 1,
                       context);
    struct job **jobs = mem_alloc((size_t)c->n_batch * sizeof *jobs);
    struct span prompt = {0}, answer = {0};
    int code = plan->text ? ERR_OK : leave_beginnings(s, c, err);
    if (!code) code = plan->text ? submit_text(s, c, plan->text, jobs, err) : submit(s, c, i_run, 0, c->n_batch, n_prompt, jobs, err);
    if (!code) code = turn_to_first(s, jobs, c->n_batch, &prompt, err);
    if (!code && c->n_new) code = turn_to_last(s, jobs, c->n_batch, c->n_new + 1, &answer, err);
    for (int32_t i = 0; i < c->n_batch; i++)
        if (jobs[i]) job_release(jobs[i]);
    for (bool idle = false; !code && !idle;) code = engine_turn(s->engine, &idle, err);
    *out = c->n_prompt ? prompt : answer;
    mem_free(jobs);
    return code;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The first run is not timed. */
static int run_all(struct session *s, const struct bench_plan *plan, struct bench_result *out, struct err *err) {
    for (int32_t i = 0; i <= plan->n_repeats; i++) {
        if (plan->on_run) plan->on_run(plan->user, i, plan->n_repeats + 1);
        struct span span = {0};
        TRY(run_once(s, plan, i, &span, err));
        if (i == 0) continue;
        out->seconds[i - 1] = span.seconds;
        out->cpu_seconds[i - 1] = span.cpu_seconds;
    }
    return ERR_OK;
}

int bench_run(struct session *s, const struct bench_plan *plan, struct bench_result *out, struct err *err) {
    const struct bench_case *which = &plan->which;
    int32_t n_repeats = plan->n_repeats;
    double sum = 0, square = 0;
    *out = (struct bench_result){.which = *which, .n_repeats = n_repeats};
    struct engine_stats before = engine_stats(s->engine);
    TRY(run_all(s, plan, out, err));
    struct engine_stats after = engine_stats(s->engine);
    out->n_steps = after.n_steps - before.n_steps;
    out->n_drafted = after.n_drafted_tokens - before.n_drafted_tokens;
    out->n_accepted = after.n_accepted_tokens - before.n_accepted_tokens;
    out->tokens = (double)(which->n_prompt ? which->n_prompt : which->n_new) * which->n_batch;
    for (int32_t i = 0; i < n_repeats; i++) {
        double rate = out->tokens / out->seconds[i];
        sum += rate;
        square += rate * rate;
    }
    qsort(out->seconds, (size_t)n_repeats, sizeof *out->seconds, by_value);
    qsort(out->cpu_seconds, (size_t)n_repeats, sizeof *out->cpu_seconds, by_value);
    out->median_rate = out->tokens / out->seconds[n_repeats / 2];
    double variance = square / n_repeats - sum / n_repeats * (sum / n_repeats);
    out->spread = variance > 0 ? sqrt(variance) : 0;
    if (!which->n_prompt) {
        out->bytes_per_token = session_token_bytes(s, which->n_batch, which->depth + which->n_new / 2);
        out->bandwidth = out->bytes_per_token * out->median_rate;
    }
    return ERR_OK;
}

int bench_slow_times(struct session *s, struct bench_times *out, struct err *err) {
    enum { TIMES_DEPTH = 512, TIMES_NEW = 4 };
    struct step_times times = {0};
    struct span span;
    int32_t room = session_context(s) - TIMES_NEW - 3;
    struct bench_plan plan = {.which = {.n_new = TIMES_NEW, .n_batch = 1, .depth = room < TIMES_DEPTH ? room : TIMES_DEPTH}};
    if (!s->backend->type->watch_times || room < 1) return err_set(err, ERR_EUNSUPPORTED, "only launches on a GPU are timed");
    s->backend->type->watch_times(s->backend, &times);
    int code = run_once(s, &plan, 0, &span, err);
    s->backend->type->watch_times(s->backend, NULL);
    *out = (struct bench_times){times.prompt[0] > 0 ? times.prompt[1] / times.prompt[0] : 0,
                                times.decode[0] > 0 ? times.decode[1] / times.decode[0] : 0};
    return code;
}

/* ---- a text that is replayed ------------------------------------------------------------------------------------------ */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 128;
}

/* A word with the blank before it, a number of up to three digits, blanks in a row, or one other byte: about what tokenizers make of a text. */
static size_t word_length(struct str s) {
    size_t n = s.p[0] == ' ' && s.n > 1 && is_letter(s.p[1]), first = n;
    while (n < s.n && is_letter(s.p[n])) n++;
    if (n > first) return n;
    while (n < s.n && n < 3 && s.p[n] >= '0' && s.p[n] <= '9') n++;
    while (n < s.n && s.p[n] == ' ') n++;
    return n ? n : 1;
}

static void add_words(struct tok_ids *out, struct str text, int32_t vocab) {
    for (size_t n; text.n; text = str_from(text, n)) {
        n = word_length(text);
        tok_ids_put(out, (int32_t)(hash_bytes(text.p, n, 1) % (uint64_t)vocab));
    }
}

static int encode_text(struct session *s, struct arena *a, struct str text, int32_t **out, int32_t *out_n, struct err *err) {
    struct tok_ids ids = {0};
    int code = ERR_OK;
    if (s->has_checkpoint) {
        code = session_text_load(s, err);
        if (!code) code = tok_encode(s->tok, text, 0, &ids, err);
    } else {
        add_words(&ids, text, s->model.spec.vocab);
    }
    *out = arena_copy(a, ids.p, ids.n * sizeof *ids.p);
    *out_n = (int32_t)ids.n;
    tok_ids_free(&ids);
    return code;
}

int bench_read_text(struct session *s, struct arena *a, const char *path, struct bench_text *out, struct err *err) {
    enum { TEXT_MAX = 64 << 20 };
    struct str file;
    yyjson_val *root;
    TRY(os_file_load(a, path, TEXT_MAX, &file, err));
    TRY(json_parse(a, file, path, JSON_STRICT, &root, err));
    struct str prompt = json_val_str(json_get(root, "prompt")), answer = json_val_str(json_get(root, "answer"));
    if (!prompt.n || !answer.n)
        return err_set(err, ERR_EFORMAT, "%s: it must be an object with \"prompt\" and \"answer\", two texts", path);
    TRY(encode_text(s, a, prompt, &out->prompt, &out->n_prompt, err));
    return encode_text(s, a, answer, &out->answer, &out->n_answer, err);
}

/* ---- memory bandwidth ---------------------------------------------------------------------------------------------- */

enum { READ_BYTES = 512 << 20, READ_PIECE = 1 << 20, READ_STREAMS = 8 };

struct read_job {
    const uint64_t *data;
    _Atomic uint64_t sum; /* keeps the reads alive */
};

/* Several stretches of a piece side by side: one stream alone is limited by latency, not by bandwidth. */
static void read_pieces(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    struct read_job *job = ctx;
    uint64_t lane[8] = {0};
    for (int64_t piece = first; piece < last; piece++) {
        const uint64_t *p = job->data + piece * (READ_PIECE / 8);
        for (int64_t i = 0; i < READ_PIECE / READ_STREAMS / 8; i += 8)
            for (int64_t s = 0; s < READ_STREAMS; s++)
                for (int64_t k = 0; k < 8; k++) lane[k] += p[s * (READ_PIECE / READ_STREAMS / 8) + i + k];
    }
    for (int k = 1; k < 8; k++) lane[0] += lane[k];
    job->sum += lane[0];
}

double bench_read_bandwidth(int32_t n_threads) {
    struct pool *pool;
    struct err err;
    void *data = os_pages_alloc(READ_BYTES, &err);
    if (!data) return 0;
    memset(data, 1, READ_BYTES);
    if (pool_create(n_threads > 0 ? n_threads : os_core_count(), &pool, &err)) {
        os_pages_free(data, READ_BYTES);
        return 0;
    }
    struct read_job job = {.data = data};
    double best = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t start = os_clock_ns();
        pool_run(pool, READ_BYTES / READ_PIECE, 4, read_pieces, &job);
        double rate = (double)READ_BYTES / ((double)(os_clock_ns() - start) * 1e-9);
        if (rate > best) best = rate;
    }
    pool_destroy(pool);
    os_pages_free(data, READ_BYTES);
    return best;
}

/* ---- agreement with the reference ---------------------------------------------------------------------------------- */

struct rows {
    float *p;
    int32_t n, vocab;
};

static int keep_row(void *user, const float *row, struct err *err) {
    (void)err;
    struct rows *r = user;
    memcpy(r->p + (int64_t)r->n++ * r->vocab, row, (size_t)r->vocab * sizeof *row);
    return ERR_OK;
}

static int collect_rows(const struct session_options *options, int32_t n, struct rows *out, struct err *err) {
    struct session *s;
    struct session_options o = *options;
    o.context = n;
    o.n_logits = -1;
    TRY(session_open(&o, &s, err));
    out->vocab = session_vocab(s);
    out->p = mem_try((size_t)n * (size_t)out->vocab * sizeof *out->p);
    int32_t *tokens = mem_alloc((size_t)n * sizeof *tokens);
    for (int32_t i = 0; i < n; i++) tokens[i] = token_at(s, i);
    int code = out->p ? probe_logits(s, &(struct job_spec){.tokens = tokens, .n_tokens = n}, keep_row, out, err)
                      : err_set(err, ERR_EMEMORY, "no memory for %d rows of logits", n);
    mem_free(tokens);
    session_close(s);
    return code;
}

static double log_sum_exp(const float *x, int32_t n, int32_t *out_best) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += m_exp((double)x[i] - (double)x[best]);
    *out_best = best;
    return (double)x[best] + m_log(sum);
}

static struct bench_agreement agreement(const struct rows *got, const struct rows *want) {
    struct bench_agreement a = {.n_tokens = want->n};
    for (int32_t r = 0; r < want->n; r++) {
        const float *p = want->p + (int64_t)r * want->vocab, *q = got->p + (int64_t)r * got->vocab;
        int32_t best_p, best_q;
        double total_p = log_sum_exp(p, want->vocab, &best_p), total_q = log_sum_exp(q, got->vocab, &best_q), kl = 0;
        for (int32_t i = 0; i < want->vocab; i++) {
            double lp = (double)p[i] - total_p;
            kl += m_exp(lp) * (lp - ((double)q[i] - total_q));
        }
        a.n_same += best_p == best_q;
        a.mean_kl += kl / want->n;
    }
    return a;
}

int bench_verify(const struct session_options *options, int32_t n_tokens, struct bench_agreement *out_prompt,
                 struct bench_agreement *out_steps, struct err *err) {
    struct rows prompt = {0}, steps = {0}, want = {0};
    struct session_options exact = *options, single = *options;
    exact.backend = "cpu";
    exact.device = NULL;
    exact.gpu_layers = exact.cpu_experts = (struct session_layers){0};
    exact.split = SESSION_SPLIT_USUAL;
    exact.n_stages = 0;
    exact.precision = SESSION_EXACT;
    single.n_rows = 1;
    int code = collect_rows(options, n_tokens, &prompt, err);
    if (!code) code = collect_rows(&single, n_tokens, &steps, err);
    if (!code) code = collect_rows(&exact, n_tokens, &want, err);
    if (!code) *out_prompt = agreement(&prompt, &want), *out_steps = agreement(&steps, &want);
    mem_free(prompt.p);
    mem_free(steps.p);
    mem_free(want.p);
    return code;
}
