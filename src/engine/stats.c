/* Figures of the engine: how long jobs waited, read and wrote, and how much. On the turning thread. */
#include "engine/engine_internal.h"

static const double first_bounds[HISTOGRAM_MAX] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double between_bounds[HISTOGRAM_MAX] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5};
static const double whole_bounds[HISTOGRAM_MAX] = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300};
static const double token_bounds[HISTOGRAM_MAX] = {1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000};

static void observe(struct histogram *h, double value) {
    int32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i]) i++;
    h->counts[i]++;
    h->n++;
    h->sum += value;
}

static double seconds(uint64_t from, uint64_t to) {
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

void stats_init(struct engine_stats *s) {
    const struct {
        struct histogram *h;
        const double *bounds;
    } rows[] = {{&s->first_token, first_bounds}, {&s->between_tokens, between_bounds}, {&s->whole, whole_bounds},
                {&s->waiting, first_bounds},     {&s->reading, first_bounds},          {&s->writing, whole_bounds},
                {&s->n_prompt, token_bounds},    {&s->n_answer, token_bounds}};
    s->block_tokens = KV_BLOCK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i].h = (struct histogram){.bounds = rows[i].bounds, .n_bounds = HISTOGRAM_MAX};
}

void stats_token(struct job *j) {
    struct engine_stats *live = &j->engine->live;
    uint64_t now = os_clock_ns();
    if (j->first_ns == 0) {
        j->first_ns = now;
        observe(&live->first_token, seconds(j->submit_ns, now));
    } else {
        observe(&live->between_tokens, seconds(j->last_ns, now));
    }
    j->last_ns = now;
    live->n_new_tokens++;
}

/* Jobs that ended with an error or were cancelled do not count: they say nothing about how long an answer takes. */
void stats_end(const struct job *j, enum job_finish finish) {
    struct engine_stats *live = &j->engine->live;
    uint64_t now = os_clock_ns();
    live->n_finished[finish]++;
    if (finish != JOB_STOP && finish != JOB_LENGTH) return;
    int32_t length = j->usage.n_prompt + j->usage.n_new;
    if (length > live->n_longest) live->n_longest = length;
    uint64_t begun = j->begun_ns ? j->begun_ns : now; /* a job that never ran began now */
    observe(&live->whole, seconds(j->submit_ns, now));
    observe(&live->waiting, seconds(j->submit_ns, begun));
    observe(&live->reading, seconds(begun, j->first_ns ? j->first_ns : now));
    observe(&live->n_prompt, j->usage.n_prompt);
    if (!j->first_ns) return;
    observe(&live->writing, seconds(j->first_ns, j->last_ns));
    observe(&live->n_answer, j->usage.n_new);
}
