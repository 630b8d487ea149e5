/* Limits of a rendering and the way out of it. */
#include "text/template/tmpl_rt.h"

static _Noreturn void leave(struct rt *rt, int code, const char *kind, const char *text) {
    if (kind) err_set(rt->err, code, "chat template line %d: %s: %s", rt->line, kind, text);
    else err_set(rt->err, code, "%s", text);
    longjmp(rt->fail, code);
}

void rt_raise(struct rt *rt, const char *kind, const char *fmt, ...) {
    struct err e;
    va_list args;
    va_start(args, fmt);
    err_vset(&e, ERR_EARG, fmt, args);
    va_end(args);
    leave(rt, ERR_EARG, strcmp(kind, "TemplateError") == 0 ? NULL : kind, e.msg);
}

void rt_limit(struct rt *rt, const char *fmt, ...) {
    struct err e;
    va_list args;
    va_start(args, fmt);
    err_vset(&e, ERR_ELIMIT, fmt, args);
    va_end(args);
    leave(rt, ERR_ELIMIT, "LimitError", e.msg);
}

void rt_charge(struct rt *rt, size_t steps) {
    if (steps > rt->steps_left) rt_limit(rt, "the template does more than %zu steps", rt->limits.steps);
    rt->steps_left -= steps;
}

void *rt_alloc(struct rt *rt, size_t bytes) {
    size_t used = rt->arena->total_bytes - rt->memory_start;
    if (bytes > rt->limits.memory_bytes || used > rt->limits.memory_bytes - bytes)
        rt_limit(rt, "the template needs more than %zu bytes of memory", rt->limits.memory_bytes);
    rt_charge(rt, bytes / 512); /* memory costs time as well */
    void *p = arena_try(rt->arena, bytes);
    if (!p) leave(rt, ERR_EMEMORY, "MemoryError", "out of memory");
    return p;
}

void *rt_alloc_array(struct rt *rt, size_t size, size_t count) {
    size_t bytes;
    if (size_mul(size, count, &bytes)) rt_limit(rt, "the template needs more than %zu bytes of memory", rt->limits.memory_bytes);
    return rt_alloc(rt, bytes);
}

void rt_enter(struct rt *rt) {
    if (++rt->depth > rt->limits.depth) rt_raise(rt, "RecursionError", "nested more than %zu deep", rt->limits.depth);
}
