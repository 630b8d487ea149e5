/* Jobs that the calling thread runs itself: it turns the engine and takes the events. */
#include "api/session_internal.h"

#include <stdatomic.h>

struct run {
    struct job *job;
    const struct session_watch *watch;
    struct session_result *result;
    struct err err;
};

static bool is_interrupted(const struct session_watch *w) {
    return w && w->interrupt && atomic_load(w->interrupt);
}

/* Hands the job's events on; true when it is over. */
static bool take(struct run *r) {
    const struct session_watch *w = r->watch;
    struct job_events ev;
    job_take(r->job, &ev);
    r->result->finish = ev.finish;
    r->result->usage = ev.usage;
    r->err = ev.err;
    bool goes_on = !w || !w->on_events || w->on_events(w->user, &ev);
    if (!ev.finish && ev.usage.n_new == 0 && w && w->on_prompt) w->on_prompt(w->user, ev.usage.n_read, ev.usage.n_prompt);
    if (!ev.finish && (!goes_on || is_interrupted(w))) job_cancel(r->job);
    return ev.finish != JOB_GOES_ON;
}

static int turn_until_over(struct session *s, struct run *r, struct err *err) {
    bool idle;
    while (!take(r)) TRY(engine_turn(s->engine, &idle, err));
    return r->result->finish == JOB_ERROR ? err_set(err, r->err.code, "%s", r->err.msg) : ERR_OK;
}

int session_run(struct session *s, const struct job_spec *spec, const struct session_watch *watch, struct session_result *out,
                struct err *err) {
    struct run r = {.watch = watch, .result = out};
    *out = (struct session_result){0};
    if (spec->wants_text || spec->sampling.dry_multiplier > 0) TRY(session_text_load(s, err));
    TRY(engine_submit(s->engine, spec, 1, &r.job, err));
    int code = turn_until_over(s, &r, err);
    job_release(r.job);
    return code;
}
