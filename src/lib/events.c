/* The events thread of a model: it asks the engine which jobs have something to tell, wakes those who wait for it and calls those who want to be
 * called. */
#include "lib/lib_internal.h"

#include <stdatomic.h>

static _Thread_local const struct mlxcel_job *called_job; /* whose callback this thread is in */

void lib_events_notify(void *model) {
    struct mlxcel_model *m = model;
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

/* With the lock held. */
static void collect(struct mlxcel_model *m) {
    struct job *job;
    while (!m->quits && (job = service_next_ready(m->service))) {
        struct mlxcel_job *j = job_user(job);
        j->is_ready = true;
        if (j->on_event) lib_events_call(j);
        else os_cond_signal(j->news);
    }
}

/* With the lock held, which is let go while the callback runs. The job cannot be freed by another thread meanwhile. */
static void tell_events(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    j->in_call = true;
    while (!j->is_freed && lib_job_step(j)) {
        os_mutex_unlock(m->lock);
        called_job = j;
        j->on_event(j->user, j, &j->last);
        called_job = NULL;
        os_mutex_lock(m->lock);
        if (j->is_over) break;
    }
    j->in_call = false;
    os_cond_broadcast(j->news);
    if (j->is_freed) lib_job_destroy(j); /* the model has another holder: it waits for this thread before it lets go */
}

/* With the lock held. */
static void tell_all(struct mlxcel_model *m) {
    struct mlxcel_job *j;
    while ((j = m->called)) {
        m->called = j->next_called;
        if (!m->called) m->called_end = &m->called;
        j->is_called = false;
        if (!j->is_over) tell_events(j);
    }
}

void lib_events_run(void *model) {
    struct mlxcel_model *m = model;
    for (bool quits = false; !quits;) {
        uint32_t seen = atomic_load(&m->n_news);
        os_mutex_lock(m->lock);
        collect(m);
        tell_all(m);
        quits = m->quits && !m->called;
        os_mutex_unlock(m->lock);
        if (!quits) os_wait_on(&m->n_news, seen, -1);
    }
}
