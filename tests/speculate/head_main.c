/* Heads that draft (tests/speculate/heads, made by make_heads.py): their logits are the reference's, for the first guess and for the second; and they are
 * lossless: with and without them the ids are the same, greedy and drawn, alone and eight at once, where blocks run out, and behind a cached prefix.
 *
 * usage: head_tests [--backend NAME] [--quick] FOLDER...   (a model with a head of its own; or HEAD:MODEL)
 * --quick: the logits, and the ids of one greedy answer, alone
 */
#include "../golden/figures.h"
#include "draft_jobs.h"
#include "engine/draft_head.h"
#include "model/draft_head.h"
#include "os/os.h"

#include <math.h>
#include <stdio.h>

enum { GUESSES = 2 };

/* Delta rules: the reference computes prompts by chunks, which is another order of rounding. */
#define TOLERANCE 1e-4
#define TOLERANCE_RECURRENT 1e-3

static const char *backend_name = "cpu";
static bool is_quick;
static int n_passed, n_failed;

/* ---- against the reference ---------------------------------------------------------------------------------------------- */

struct golden {
    struct arena arena;
    const int32_t *prompt, *greedy;
    const float *logits[GUESSES]; /* [n_new][vocab] */
    int32_t n_prompt, n_new, vocab;
};

static int read_golden(const char *dir, struct golden *g, struct err *err) {
    static const char *const stems[GUESSES] = {"first", "second"};
    struct figures f;
    int32_t n = 0;
    TRY(figures_open(&g->arena, dir, &f, err));
    int code = figures_load(&g->arena, &f, "prompt", 0, (void **)&g->prompt, &g->n_prompt, err);
    if (!code) code = figures_load(&g->arena, &f, "greedy", 0, (void **)&g->greedy, &g->n_new, err);
    for (int i = 0; i < GUESSES && !code; i++) code = figures_load(&g->arena, &f, stems[i], 0, (void **)&g->logits[i], &n, err);
    g->vocab = g->n_new ? n / g->n_new : 0;
    figures_close(&f);
    return code;
}

/* Stands before a head's drafter and looks at the logits of its last guess. */
struct looking {
    struct drafter base;
    struct drafter *inner;
    const struct golden *g;
    int32_t n_seen;
    double worst; /* distance from the reference, in standard deviations of its logits */
    struct err err;
};

static double deviation(const float *x, int32_t n) {
    double sum = 0, squares = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        if (isfinite(x[i])) sum += (double)x[i], squares += (double)x[i] * (double)x[i], count++;
    return sqrt(squares / count - sum / count * (sum / count));
}

static void compare(struct looking *l, const struct draft_ask *a, const struct head_drafter *d, const float *logits) {
    const struct golden *g = l->g;
    int32_t at = a->n_tokens - g->n_prompt;
    if (a->n < 1 || a->n > GUESSES || at < 0 || at >= g->n_new) return;
    const float *want = g->logits[a->n - 1] + (int64_t)at * g->vocab;
    double sd = deviation(want, g->vocab);
    for (int32_t i = 0; i < d->runner.model->spec.vocab; i++) {
        int32_t token = d->head->to_target ? d->head->to_target[i] : i;
        double off = fabs((double)logits[i] - (double)want[token]) / sd;
        if (!(off <= l->worst)) l->worst = off;
    }
    l->n_seen++;
}

static void look(struct drafter *drafter, struct draft_ask *asks, int32_t n) {
    struct looking *l = (struct looking *)drafter;
    struct head_drafter *d = (struct head_drafter *)l->inner;
    const float *logits;
    l->inner->type->propose(l->inner, asks, n);
    if (!l->err.code && asks[0].n > 0 && runner_logits(&d->runner, &logits, &l->err) == ERR_OK) compare(l, &asks[0], d, logits);
}

static void *look_begin(struct drafter *d, int32_t capacity, int32_t vocab) {
    struct drafter *inner = ((struct looking *)d)->inner;
    return inner->type->begin(inner, capacity, vocab);
}
static void look_end(struct drafter *d, void *state) {
    struct drafter *inner = ((struct looking *)d)->inner;
    inner->type->end(inner, state);
}
static void look_settle(struct drafter *d, void *state, int32_t n_tokens) {
    struct drafter *inner = ((struct looking *)d)->inner;
    inner->type->settle(inner, state, n_tokens);
}
static void look_observe(struct drafter *d, const struct draft_seen *seen) {
    struct drafter *inner = ((struct looking *)d)->inner;
    inner->type->observe(inner, seen);
}

static const struct draft_type looking_type = {.name = "looking",
                                               .hopes = {0.9f},
                                               .is_dear = true,
                                               .begin = look_begin,
                                               .end = look_end,
                                               .propose = look,
                                               .settle = look_settle,
                                               .observe = look_observe};

/* One greedy job with drafts of n_guesses. */
static int run_greedy(struct session *s, const struct golden *g, int32_t n_guesses, int32_t *out, struct err *err) {
    struct job *j, *ready;
    struct job_events ev = {0};
    struct job_spec spec = {
        .tokens = g->prompt, .n_tokens = g->n_prompt, .max_new = g->n_new, .sampling = sampler_defaults(), .ignore_eos = true};
    int32_t n = 0;
    spec.sampling.temperature = 0;
    spec.max_draft = n_guesses;
    TRY(engine_submit(s->engine, &spec, 1, &j, err));
    for (bool idle = false; !idle;) {
        TRY(engine_turn(s->engine, &idle, err));
        while ((ready = engine_next_ready(s->engine))) {
            job_take(ready, &ev);
            for (size_t i = 0; i < ev.n_tokens && n < g->n_new; i++) out[n++] = ev.tokens[i].id;
            if (ev.finish) job_release(ready);
        }
    }
    return n == g->n_new ? ERR_OK : err_set(err, ERR_EFORMAT, "%d tokens came, expected %d", n, g->n_new);
}

/* Both guesses, wherever the engine asks for them: all of them, since rows cost nothing here. */
static int check_logits(struct session *s, const char *dir, double *worst, struct err *err) {
    struct golden g = {0};
    enum draft_from from = s->options.draft;
    struct drafter *inner = s->engine->drafters[from];
    int code = read_golden(dir, &g, err);
    int32_t got[64];
    for (int32_t n = 1; n <= GUESSES && !code; n++) {
        struct looking l = {.base = {.type = &looking_type}, .inner = inner, .g = &g};
        s->engine->drafters[from] = &l.base;
        code = g.n_new <= 64 ? run_greedy(s, &g, n, got, err) : err_set(err, ERR_EFORMAT, "the reference has %d tokens", g.n_new);
        s->engine->drafters[from] = inner;
        if (!code && l.err.code) code = err_set(err, l.err.code, "%s", l.err.msg);
        for (int32_t i = 0; i < g.n_new && !code; i++)
            if (got[i] != g.greedy[i]) code = err_set(err, ERR_EFORMAT, "token %d is %d, expected %d", i, got[i], g.greedy[i]);
        double most = s->model.spec.kv.n_states ? TOLERANCE_RECURRENT : TOLERANCE;
        if (!code && (l.n_seen < g.n_new / 4 || !(l.worst <= most)))
            code = err_set(err, ERR_EFORMAT, "guess %d: %.2g sd from the reference, at most %.2g; %d compared", n, l.worst, most, l.n_seen);
        if (l.worst > *worst) *worst = l.worst;
    }
    arena_free(&g.arena);
    return code;
}

/* ---- lossless ----------------------------------------------------------------------------------------------------------- */

static int check_lossless(struct session *s, int32_t *drafted, int32_t *accepted, struct err *err) {
    static struct draft_answer want[DRAFT_JOBS], got[DRAFT_JOBS];
    for (int i = 0; i < 2; i++) {
        struct draft_way way = {.draft = DRAFT_NONE, .temperature = (float)i, .n = DRAFT_JOBS};
        TRY(draft_run(s, &way, want, err));
        const struct draft_way ways[] = {{s->options.draft, way.temperature, 0, DRAFT_JOBS}, {s->options.draft, way.temperature, 3, 1}};
        for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
            TRY(draft_run(s, &ways[n], got, err));
            TRY(draft_same(got, want + ways[n].first, &ways[n], err));
            for (int32_t j = 0; j < ways[n].n; j++) *drafted += got[j].usage.n_drafted, *accepted += got[j].usage.n_accepted;
        }
    }
    return ERR_OK;
}

/* HEAD:MODEL, or a model whose checkpoint has the head. */
static int open(const char *arg, struct session_options o, struct session **out, struct err *err) {
    static char head[1024];
    const char *colon = strchr(arg, ':');
    o.model = colon ? colon + 1 : arg;
    snprintf(head, sizeof head, "%.*s", (int)(colon ? colon - arg : 0), arg);
    o.draft = colon ? DRAFT_MODEL : DRAFT_MTP;
    o.draft_model = colon ? head : NULL;
    o.backend = backend_name;
    o.precision = SESSION_EXACT;
    o.n_seqs = DRAFT_JOBS;
    o.context = 128;
    o.n_threads = 2;
    o.n_queue = -1;
    TRY(session_open(&o, out, err));
    (*out)->backend->row_first = (*out)->backend->row_more = 0; /* drafts are as long as they may be */
    (*out)->engine->drafters[o.draft]->cost = 0;
    return ERR_OK;
}

static void tell(const char *arg, const char *what, int code, const struct err *err) {
    code ? n_failed++ : n_passed++;
    printf("%s: %s%s%s\n", arg, what, code ? ": FAILED: " : "", code ? err->msg : "");
}

static void check(const char *arg) {
    static const struct {
        const char *name;
        struct session_options options;
    } ways[] = {{"lossless", {0}},
                {"lossless where blocks run out", {.kv_tokens = 320}},
                {"lossless behind a cached prefix", {.prefix_cache = true}}};
    char dir[1024], what[160];
    struct err err = {0};
    struct session *s;
    double worst = 0;
    const char *colon = strchr(arg, ':');
    snprintf(dir, sizeof dir, "%.*s", colon ? (int)(colon - arg) : 1000, arg);
    int code = open(arg, (struct session_options){0}, &s, &err);
    if (!code) {
        code = check_logits(s, dir, &worst, &err);
        session_close(s);
    }
    snprintf(what, sizeof what, "logits within %.2g sd", worst);
    tell(arg, what, code, &err);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !is_quick; i++) {
        int32_t drafted = 0, accepted = 0;
        code = open(arg, ways[i].options, &s, &err);
        if (!code) {
            code = check_lossless(s, &drafted, &accepted, &err);
            session_close(s);
        }
        if (!code && (accepted == 0 || accepted == drafted)) code = err_set(&err, ERR_EFORMAT, "guesses were never right, or never wrong");
        snprintf(what, sizeof what, "%s, %d of %d drafted tokens accepted", ways[i].name, accepted, drafted);
        tell(arg, what, code, &err);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) backend_name = argv[++i];
        else if (strcmp(argv[i], "--quick") == 0) is_quick = true;
        else check(argv[i]);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}
