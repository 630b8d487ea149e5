/* Two models, and many jobs from many threads that are cancelled at random: the texts of those that end are the texts of jobs run alone.
 * MLXCEL_LOAD_SECONDS: for how long new rounds begin; three rounds without it. */
#include "unit.h"

#include "base/rng.h"
#include "mlxcel.h"
#include "os/os.h"

enum { N_MODELS = 2, N_THREADS = 8, N_JOBS = 32, N_PROMPTS = 6, N_NEW = 24 };

static const char *const prompts[N_PROMPTS] = {"Once upon a time", "The dog", "Lily and Tom went to the park to",
                                               "One day a big",    "She",     "Tim had a red ball"};

static mlxcel_model *models[N_MODELS];
static char *alone[N_MODELS][N_PROMPTS];

static void fill(mlxcel_job_options *o, int i_prompt) {
    static const mlxcel_parameter drawn[] = {{"temperature", 1}, {"top_p", 0.9}}, greedy[] = {{"temperature", 0}};
    mlxcel_job_options_init(o, sizeof *o);
    o->text = prompts[i_prompt];
    o->max_tokens = N_NEW;
    o->parameters = i_prompt % 2 ? drawn : greedy;
    o->n_parameters = i_prompt % 2 ? 2 : 1;
    o->has_seed = 1;
    o->seed = 5 + (uint64_t)i_prompt;
}

struct worker {
    uint64_t seed, n_drawn, until_ns; /* until_ns 0: a few rounds */
    int n_same, n_other, n_cancelled, n_failed;
};

struct slot {
    mlxcel_job *job;
    int i_model, i_prompt, patience; /* events before it is cancelled; -1: never */
    struct sb text;
};

static uint64_t draw(struct worker *w) {
    return rng_at(w->seed, w->n_drawn++, 0);
}

static void begin(struct worker *w, struct slot *s) {
    mlxcel_job_options o;
    s->i_model = (int)(draw(w) % N_MODELS);
    s->i_prompt = (int)(draw(w) % N_PROMPTS);
    s->patience = draw(w) % 3 ? -1 : (int)(draw(w) % N_NEW);
    fill(&o, s->i_prompt);
    if (mlxcel_submit(models[s->i_model], &o, &s->job, NULL)) w->n_failed++;
}

static void end(struct worker *w, struct slot *s, const mlxcel_event *e) {
    bool is_whole = e->finish == MLXCEL_FINISH_LENGTH || e->finish == MLXCEL_FINISH_STOP;
    bool is_same = strcmp(s->text.p ? s->text.p : "", alone[s->i_model][s->i_prompt]) == 0;
    if (!is_whole && e->finish != MLXCEL_FINISH_CANCELLED) w->n_failed++;
    else if (!is_whole) w->n_cancelled++;
    else if (is_same) w->n_same++;
    else w->n_other++;
}

/* One event of one job: true when it is over. */
static bool step(struct worker *w, struct slot *s) {
    mlxcel_event e;
    mlxcel_event_init(&e, sizeof e);
    if (mlxcel_next(s->job, 2, &e, NULL)) w->n_failed++;
    if (e.kind == MLXCEL_EVENT_TEXT) sb_put(&s->text, str_n(e.text, e.text_bytes));
    if (e.kind == MLXCEL_EVENT_END) end(w, s, &e);
    if (s->patience == 0) mlxcel_cancel(s->job);
    if (s->patience >= 0) s->patience--;
    return e.kind == MLXCEL_EVENT_END;
}

/* One event of each job that still runs; how many do. */
static int step_all(struct worker *w, struct slot *slots, int n) {
    int left = 0;
    for (int i = 0; i < n; i++) {
        struct slot *s = &slots[i];
        if (!s->job) continue;
        bool drops = s->patience == 1 && s->i_prompt == 0; /* some are freed as they run */
        if (!step(w, s) && !drops) {
            left++;
            continue;
        }
        mlxcel_job_free(s->job);
        s->job = NULL;
    }
    return left;
}

static void work(void *user) {
    enum { AT_ONCE = N_JOBS / N_THREADS, ROUNDS = 3 };
    struct worker *w = user;
    for (int round = 0; round < ROUNDS || os_clock_ns() < w->until_ns; round++) {
        struct slot slots[AT_ONCE] = {0};
        for (int i = 0; i < AT_ONCE; i++) begin(w, &slots[i]);
        while (step_all(w, slots, AT_ONCE)) continue;
        for (int i = 0; i < AT_ONCE; i++) sb_free(&slots[i].text);
    }
}

static void open_models(void) {
    mlxcel_error error;
    for (int i = 0; i < N_MODELS; i++) {
        mlxcel_model_options o;
        mlxcel_model_options_init(&o, sizeof o);
        o.device = "cpu";
        o.threads = 2;
        o.parallel = 4;
        o.kv_bits = i == 1 ? 8 : 0; /* the other model has another cache, and other texts */
        FAIL_IF(mlxcel_model_open(&o, &models[i], &error), "%s", error.message);
        for (int p = 0; p < N_PROMPTS; p++) {
            mlxcel_job_options job;
            fill(&job, p);
            FAIL_IF(mlxcel_complete(models[i], &job, &alone[i][p], NULL, &error), "%s", error.message);
        }
    }
}

static void company_and_cancelling_change_nothing(void) {
    struct worker workers[N_THREADS] = {0}, sum = {0};
    struct os_thread *threads[N_THREADS];
    int64_t seconds = 0;
    struct err err;
    open_models();
    if (os_env("MLXCEL_LOAD_SECONDS")) CHECK(str_to_int64(str_of(os_env("MLXCEL_LOAD_SECONDS")), &seconds));
    for (int i = 0; i < N_THREADS; i++) {
        workers[i].seed = 77 + (uint64_t)i;
        workers[i].until_ns = seconds ? os_clock_ns() + (uint64_t)seconds * 1000000000 : 0;
        CHECK_OK(os_thread_start(&threads[i], work, &workers[i], "load", &err), err);
    }
    for (int i = 0; i < N_THREADS; i++) {
        os_thread_join(threads[i]);
        sum.n_same += workers[i].n_same;
        sum.n_other += workers[i].n_other;
        sum.n_cancelled += workers[i].n_cancelled;
        sum.n_failed += workers[i].n_failed;
    }
    for (int i = 0; i < N_MODELS; i++) {
        for (int p = 0; p < N_PROMPTS; p++) mlxcel_free(alone[i][p]);
        mlxcel_model_close(models[i]);
    }
    CHECK_INT(sum.n_other, 0);
    CHECK_INT(sum.n_failed, 0);
    CHECK(sum.n_same > N_JOBS && sum.n_cancelled > 3);
}

const struct unit_suite unit_library_load = {
    "library_load", (const struct unit_case[]){{"company_and_cancelling_change_nothing", company_and_cancelling_change_nothing}, {0}}};
