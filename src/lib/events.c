/* Who hears of a job's events. The engine's thread says that there are some: it wakes whoever waits for them in mlxcel_next, without another thread in
 * between. Jobs with a callback go to the events thread, which calls it. */
#include "lib/lib_internal.h"

#include <stdatomic.h>

static _Thread_local const struct mlxcel_job *called_job; /* whose callback this thread is in */

void lib_events_wake(struct mlxcel_model *m) {
    atomic_fetch_add(&m->n_news, 1);
    os_wake_all(&m->n_news);
}

bool lib_events_inside(const struct mlxcel_job *j) {
    return j ? called_job == j : called_job != NULL;
}

int lib_events_check(const char *function, struct err *err) {
    if (!called_job) return ERR_OK;
    return err_set(err, ERR_EARG, "%s waits, and cannot be called in a callback: what it waits for comes when the callback has returned",
                   function);
}

void lib_events_call(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    if (j->is_called) return;
    j->is_called = true;
    j->next_called = NULL;
    *m->called_end = j;
    m->called_end = &j->next_called;
}

/* ---- readers ------------------------------------------------------------------------------------------------------------ */

bool lib_job_await(struct mlxcel_job *j, uint64_t deadline_ns) {
    struct mlxcel_model *m = j->model;
    _Atomic uint32_t *bell = &m->bells[j->i_bell];
    uint64_t now = deadline_ns ? os_clock_ns() : 0;
    if (deadline_ns && now >= deadline_ns) return false;
    uint32_t seen = atomic_load(bell);
    j->is_awaited = true;
    os_mutex_unlock(m->lock);
    os_wait_on(bell, seen, deadline_ns ? (int)((deadline_ns - now + 999999) / 1000000) : -1);
    os_mutex_lock(m->lock);
    return true;
}

uint64_t lib_job_news(struct mlxcel_job *j) {
    if (!j->is_awaited) return 0;
    j->is_awaited = false;
    atomic_fetch_add(&j->model->bells[j->i_bell], 1);
    return UINT64_C(1) << j->i_bell;
}

void lib_events_ring(struct mlxcel_model *m, uint64_t bells) {
    for (int i = 0; bells; i++, bells >>= 1)
        if (bells & 1) os_wake_all(&m->bells[i]);
}

/* ---- the engine's thread ------------------------------------------------------------------------------------------------ */

/* With the lock held: the bells to ring. */
static uint64_t collect(struct mlxcel_model *m) {
    uint64_t bells = 0;
    struct job *job;
    while (!m->quits && (job = service_next_ready(m->service))) {
        struct mlxcel_job *j = job_user(job);
        j->is_ready = true;
        if (j->on_event) lib_events_call(j);
        else bells |= lib_job_news(j);
    }
    return bells;
}

void lib_events_notify(void *model) {
    struct mlxcel_model *m = model;
    bool calls = true; /* while it is being loaded, whoever opens it waits */
    if (atomic_load(&m->is_open)) {
        os_mutex_lock(m->lock);
        uint64_t bells = collect(m);
        calls = m->called != NULL;
        os_mutex_unlock(m->lock);
        lib_events_ring(m, bells);
    }
    if (calls) lib_events_wake(m);
}

/* ---- the events thread -------------------------------------------------------------------------------------------------- */

/* One event, with the lock held, which is let go while the callback runs. The job cannot be freed by another thread meanwhile. Where it has more to
 * tell, it stands behind the others: a slow callback holds nobody's events back for more than one call. */
static void tell_event(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    if (j->is_over || !lib_job_next(j)) return;
    j->in_call = true;
    os_mutex_unlock(m->lock);
    called_job = j;
    j->on_event(j->user, j, &j->last);
    called_job = NULL;
    os_mutex_lock(m->lock);
    j->in_call = false;
    lib_events_ring(m, lib_job_news(j)); /* who wants to free it waits until the callback has returned */
    if (j->is_freed) lib_job_destroy(j); /* the model has another holder: it waits for this thread before it lets go */
    else if (!j->is_over && (j->has_events || j->is_ready)) lib_events_call(j);
}

/* With the lock held. */
static void tell_all(struct mlxcel_model *m) {
    struct mlxcel_job *j;
    while ((j = m->called)) {
        m->called = j->next_called;
        if (!m->called) m->called_end = &m->called;
        j->is_called = false;
        tell_event(j);
    }
}

void lib_events_run(void *model) {
    struct mlxcel_model *m = model;
    for (bool quits = false; !quits;) {
        uint32_t seen = atomic_load(&m->n_news);
        os_mutex_lock(m->lock);
        tell_all(m);
        quits = m->quits && !m->called;
        os_mutex_unlock(m->lock);
        if (!quits) os_wait_on(&m->n_news, seen, -1);
    }
}
