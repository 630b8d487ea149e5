/* Threads on Windows: slim locks and condition variables, which need no clean-up; WaitOnAddress for single words. */
#include "os/win32.h"

#include <process.h>
#include <stdatomic.h>

enum { THREAD_STACK_BYTES = 8 * 1024 * 1024 };

struct os_thread {
    HANDLE handle;
    void (*run)(void *);
    void *user;
};

struct os_mutex {
    SRWLOCK lock;
};

struct os_cond {
    CONDITION_VARIABLE c;
};

static unsigned __stdcall thread_main(void *arg) {
    struct os_thread *t = arg;
    t->run(t->user);
    return 0;
}

static void set_name(HANDLE thread, const char *name) {
    HRESULT(WINAPI * describe)(HANDLE, PCWSTR);
    if (!name || !win32_symbol(L"kernelbase.dll", "SetThreadDescription", &describe)) return;
    wchar_t *wide = win32_wide(str_of(name), NULL);
    describe(thread, wide);
    mem_free(wide);
}

int os_thread_start(struct os_thread **out, void (*run)(void *), void *user, const char *name, struct err *err) {
    struct os_thread *t = mem_alloc(sizeof *t);
    t->run = run;
    t->user = user;
    t->handle = (HANDLE)_beginthreadex(NULL, THREAD_STACK_BYTES, thread_main, t, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (!t->handle) {
        mem_free(t);
        return os_fail(err, (int)GetLastError(), "start the thread", name);
    }
    set_name(t->handle, name);
    *out = t;
    return 0;
}

void os_thread_join(struct os_thread *t) {
    if (!t) return;
    WaitForSingleObject(t->handle, INFINITE);
    CloseHandle(t->handle);
    mem_free(t);
}

void os_thread_yield(void) {
    SwitchToThread();
}

struct os_mutex *os_mutex_create(void) {
    struct os_mutex *m = mem_alloc(sizeof *m);
    InitializeSRWLock(&m->lock);
    return m;
}

void os_mutex_destroy(struct os_mutex *m) {
    mem_free(m);
}

void os_mutex_lock(struct os_mutex *m) {
    AcquireSRWLockExclusive(&m->lock);
}

void os_mutex_unlock(struct os_mutex *m) {
    ReleaseSRWLockExclusive(&m->lock);
}

struct os_cond *os_cond_create(void) {
    struct os_cond *c = mem_alloc(sizeof *c);
    InitializeConditionVariable(&c->c);
    return c;
}

void os_cond_destroy(struct os_cond *c) {
    mem_free(c);
}

void os_cond_wait(struct os_cond *c, struct os_mutex *m) {
    SleepConditionVariableSRW(&c->c, &m->lock, INFINITE, 0);
}

bool os_cond_wait_ms(struct os_cond *c, struct os_mutex *m, int ms) {
    return SleepConditionVariableSRW(&c->c, &m->lock, ms < 0 ? 0 : (DWORD)ms, 0) != 0;
}

void os_cond_signal(struct os_cond *c) {
    WakeConditionVariable(&c->c);
}

void os_cond_broadcast(struct os_cond *c) {
    WakeAllConditionVariable(&c->c);
}

/* Looked up at run time: the import library for these two is missing in some toolchains. Every Windows 10 has them. */
static INIT_ONCE wait_once = INIT_ONCE_STATIC_INIT;
static BOOL(WINAPI *wait_on_address)(volatile VOID *, PVOID, SIZE_T, DWORD);
static VOID(WINAPI *wake_by_address_all)(PVOID);

static BOOL CALLBACK wait_find(PINIT_ONCE once, PVOID parameter, PVOID *context) {
    (void)once;
    (void)parameter;
    (void)context;
    win32_symbol(L"kernelbase.dll", "WaitOnAddress", &wait_on_address);
    win32_symbol(L"kernelbase.dll", "WakeByAddressAll", &wake_by_address_all);
    return TRUE;
}

void os_wait_on(_Atomic uint32_t *word, uint32_t expected, int timeout_ms) {
    InitOnceExecuteOnce(&wait_once, wait_find, NULL, NULL);
    if (wait_on_address) wait_on_address(word, &expected, sizeof expected, timeout_ms < 0 ? INFINITE : (DWORD)timeout_ms);
    else if (atomic_load(word) == expected) Sleep(1);
}

void os_wake_all(_Atomic uint32_t *word) {
    InitOnceExecuteOnce(&wait_once, wait_find, NULL, NULL);
    if (wake_by_address_all) wake_by_address_all((PVOID)word);
}
