/* A full context that makes room: half of the tokens behind those that are kept are forgotten, and the rest is computed again, as if the forgotten
 * ones had never stood there. */
#include "engine/engine_internal.h"

enum { LEAST_LEFT = 4 /* tokens behind those that are kept */ };

/* Tokens at the front that stay: at least the first, which begins the text for the model. */
static int32_t count_kept(const struct job *j) {
    int32_t n = j->spec.n_keep < 0 ? j->spec.n_tokens : j->spec.n_keep, most = j->seq.n_tokens - LEAST_LEFT;
    return n < 1 ? 1 : n > most ? most : n;
}

static int32_t count_left(const struct job *j) {
    return j->spec.max_new < 0 ? INT32_MAX : j->spec.max_new - j->usage.n_new;
}

/* Of n tokens from `first` on, those that belong to the prompt. */
static int32_t in_prompt(const struct job *j, int32_t first, int32_t n) {
    int32_t most = j->spec.n_tokens - first;
    return most < 0 ? 0 : n < most ? n : most;
}

bool shift_job(struct engine *e, struct job *j) {
    struct sequence *s = &j->seq;
    int32_t context = e->runner.limits.context, left = count_left(j), kept = count_kept(j), n_gone = (s->n_tokens - kept) / 2;
    if (!j->spec.shifts || s->n_tokens < context || left <= 0 || n_gone < 1) return false;
    int32_t n_prompt = in_prompt(j, kept, n_gone), n_answer = n_gone - n_prompt;
    memmove(s->tokens + kept, s->tokens + kept + n_gone, (size_t)(s->n_tokens - kept - n_gone) * sizeof *s->tokens);
    s->n_tokens -= n_gone;
    s->n_prompt = j->spec.n_tokens = j->spec.n_tokens - n_prompt;
    j->spec.min_new = j->spec.min_new > n_answer ? j->spec.min_new - n_answer : 0;
    j->spec.sampling.seed +=
        UINT64_C(0x9E3779B97F4A7C15); /* random numbers depend on a token's position, and positions are now used a second time */
    j->n_limit = left > context - s->n_tokens ? context : s->n_tokens + left;
    j->bound.refused = 0;
    j->n_forgotten += n_gone;
    choose_end(e, j); /* the device's tables still count the tokens that were forgotten */
    speculate_moved(j);
    sequence_drop(s, &e->runner.kv);
    return true;
}
