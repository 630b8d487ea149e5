/* Threads on POSIX systems.
 *
 * Interrupts (SIGINT, SIGTERM, SIGHUP) are blocked in the threads started here, so that they reach the main thread and
 * end its wait for a line of input. Time-outs use the monotonic clock. */
#include "os/os_internal.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { THREAD_STACK_BYTES = 8 * 1024 * 1024, THREAD_NAME_BYTES = 16 };

struct os_thread {
    pthread_t id;
    void (*run)(void *);
    void *user;
    char name[THREAD_NAME_BYTES];
};

struct os_mutex {
    pthread_mutex_t m;
};

struct os_cond {
    pthread_cond_t c;
};

static void *thread_main(void *arg) {
    struct os_thread *t = arg;
#if defined(__linux__)
    if (t->name[0]) pthread_setname_np(pthread_self(), t->name);
#elif defined(__APPLE__)
    if (t->name[0]) pthread_setname_np(t->name);
#endif
    t->run(t->user);
    return NULL;
}

int os_thread_start(struct os_thread **out, void (*run)(void *), void *user, const char *name, struct err *err) {
    struct os_thread *t = mem_alloc(sizeof *t);
    t->run = run;
    t->user = user;
    for (size_t i = 0; name && name[i] && i + 1 < sizeof t->name; i++) t->name[i] = name[i];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigaddset(&block, SIGTERM);
    sigaddset(&block, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &block, &old); /* the new thread inherits the mask */
    int code = pthread_create(&t->id, &attr, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (code) {
        mem_free(t);
        return os_fail(err, code, "start the thread", name);
    }
    *out = t;
    return 0;
}

void os_thread_join(struct os_thread *t) {
    if (!t) return;
    pthread_join(t->id, NULL);
    mem_free(t);
}

void os_thread_yield(void) {
    sched_yield();
}

struct os_mutex *os_mutex_create(void) {
    struct os_mutex *m = mem_alloc(sizeof *m);
    pthread_mutex_init(&m->m, NULL);
    return m;
}

void os_mutex_destroy(struct os_mutex *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->m);
    mem_free(m);
}

void os_mutex_lock(struct os_mutex *m) {
    pthread_mutex_lock(&m->m);
}

void os_mutex_unlock(struct os_mutex *m) {
    pthread_mutex_unlock(&m->m);
}

struct os_cond *os_cond_create(void) {
    struct os_cond *c = mem_alloc(sizeof *c);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
#ifndef __APPLE__
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&c->c, &attr);
    pthread_condattr_destroy(&attr);
    return c;
}

void os_cond_destroy(struct os_cond *c) {
    if (!c) return;
    pthread_cond_destroy(&c->c);
    mem_free(c);
}

void os_cond_wait(struct os_cond *c, struct os_mutex *m) {
    pthread_cond_wait(&c->c, &m->m);
}

bool os_cond_wait_ms(struct os_cond *c, struct os_mutex *m, int ms) {
    if (ms < 0) ms = 0;
#ifdef __APPLE__
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    return pthread_cond_timedwait_relative_np(&c->c, &m->m, &t) != ETIMEDOUT;
#else
    uint64_t end = os_clock_ns() + (uint64_t)ms * 1000000;
    struct timespec t = {(time_t)(end / 1000000000), (int)(end % 1000000000)};
    return pthread_cond_timedwait(&c->c, &m->m, &t) != ETIMEDOUT;
#endif
}

void os_cond_signal(struct os_cond *c) {
    pthread_cond_signal(&c->c);
}

void os_cond_broadcast(struct os_cond *c) {
    pthread_cond_broadcast(&c->c);
}

#ifdef __linux__

void os_wait_on(_Atomic uint32_t *word, uint32_t expected, int timeout_ms) {
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ms < 0 ? NULL : &t, NULL, 0);
}

void os_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else /* one place to wait for everybody: correct, and enough where no futex is to be had */

static pthread_mutex_t wait_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_cond = PTHREAD_COND_INITIALIZER;

void os_wait_on(_Atomic uint32_t *word, uint32_t expected, int timeout_ms) {
    pthread_mutex_lock(&wait_mutex);
    if (atomic_load(word) == expected) {
        if (timeout_ms < 0) {
            pthread_cond_wait(&wait_cond, &wait_mutex);
        } else {
            int64_t end = os_wall_ns() + (int64_t)timeout_ms * 1000000;
            struct timespec t = {(time_t)(end / 1000000000), (int)(end % 1000000000)};
            pthread_cond_timedwait(&wait_cond, &wait_mutex, &t);
        }
    }
    pthread_mutex_unlock(&wait_mutex);
}

void os_wake_all(_Atomic uint32_t *word) {
    (void)word;
    pthread_mutex_lock(&wait_mutex);
    pthread_cond_broadcast(&wait_cond);
    pthread_mutex_unlock(&wait_mutex);
}

#endif
