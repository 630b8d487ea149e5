/* For LD_PRELOAD: a malloc that fails at every n-th call while it is armed, and counts the blocks that live. The program under test finds
 * failing_malloc_arm and failing_malloc_live by their names. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static atomic_long every, n_calls, n_live, n_failed;

void failing_malloc_arm(long n) {
    atomic_store(&every, n);
    atomic_store(&n_calls, 0);
    atomic_store(&n_failed, 0);
}

long failing_malloc_live(void) {
    return atomic_load(&n_live);
}

long failing_malloc_failed(void) {
    return atomic_load(&n_failed);
}

static int fails(void) {
    long n = atomic_load(&every);
    if (n == 0 || (atomic_fetch_add(&n_calls, 1) + 1) % n) return 0;
    atomic_fetch_add(&n_failed, 1);
    errno = ENOMEM;
    return 1;
}

static void *count(void *p) {
    if (p) atomic_fetch_add(&n_live, 1);
    return p;
}

void *malloc(size_t bytes) {
    return fails() ? NULL : count(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes) {
    return fails() ? NULL : count(__libc_calloc(n, bytes));
}

void *realloc(void *p, size_t bytes) {
    if (fails()) return NULL;
    void *q = __libc_realloc(p, bytes);
    return p ? q : count(q);
}

void free(void *p) {
    if (p) atomic_fetch_sub(&n_live, 1);
    __libc_free(p);
}
