/* Arenas and the heap: the only file that calls malloc. */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_CHUNK_DEFAULT = 64 * 1024, ARENA_CHUNK_MAX = 8 * 1024 * 1024, RESERVE_BYTES = 2 << 20 };

struct arena_chunk {
    struct arena_chunk *older;
    size_t used, capacity;
    size_t pad; /* keeps data 16-byte aligned */
    unsigned char data[];
};

static _Thread_local const char *guard_name;

static void die(const char *what, size_t bytes) {
    fprintf(stderr, "mlxcel: %s (%zu bytes)%s%s\n", what, bytes, guard_name ? " inside guard " : "", guard_name ? guard_name : "");
    abort();
}

static void guard_check(size_t bytes) {
    if (guard_name) die("heap allocation where none is allowed", bytes);
}

void mem_guard_begin(const char *name) {
#ifndef NDEBUG
    guard_name = name;
#else
    (void)name;
#endif
}

void mem_guard_end(void) {
    guard_name = NULL;
}

const char *mem_guard_pause(void) {
    const char *name = guard_name;
    guard_name = NULL;
    return name;
}

void mem_guard_resume(const char *name) {
    guard_name = name;
}

void *mem_try(size_t bytes) {
    guard_check(bytes);
    return calloc(1, bytes ? bytes : 1);
}

static void *_Atomic reserve;

bool mem_reserve(void) {
    if (atomic_load(&reserve)) return true;
    void *mine = malloc(RESERVE_BYTES), *there = NULL;
    if (!mine) return false;
    if (!atomic_compare_exchange_strong(&reserve, &there, mine)) free(mine);
    return true;
}

/* True: it was there, and the caller may try again. */
static bool spend_reserve(void) {
    void *p = atomic_exchange(&reserve, NULL);
    free(p);
    return p != NULL;
}

void *mem_alloc(size_t bytes) {
    void *p = mem_try(bytes);
    if (p) return p;
    if (spend_reserve()) p = mem_try(bytes);
    if (!p) die("out of memory", bytes);
    mem_reserve();
    return p;
}

void *mem_realloc(void *p, size_t bytes) {
    guard_check(bytes);
    void *q = realloc(p, bytes ? bytes : 1);
    if (q) return q;
    if (spend_reserve()) q = realloc(p, bytes ? bytes : 1);
    if (!q) die("out of memory", bytes);
    mem_reserve();
    return q;
}

void mem_free(void *p) {
    free(p);
}

int size_mul(size_t a, size_t b, size_t *out) {
    if (b && a > SIZE_MAX / b) return 1;
    *out = a * b;
    return 0;
}

int size_add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return 1;
    *out = a + b;
    return 0;
}

/* Takes bytes from the newest chunk if they fit there; the memory was zeroed by mem_try or by arena_reset. */
static void *chunk_take(struct arena_chunk *c, size_t bytes, size_t alignment) {
    if (!c) return NULL;
    uintptr_t base = (uintptr_t)c->data;
    uintptr_t at = (base + c->used + alignment - 1) & ~(uintptr_t)(alignment - 1);
    size_t offset = (size_t)(at - base);
    if (offset > c->capacity || bytes > c->capacity - offset) return NULL;
    c->used = offset + bytes;
    return c->data + offset;
}

static size_t next_chunk_bytes(struct arena *a, size_t need) {
    size_t size = a->chunk_bytes ? a->chunk_bytes : ARENA_CHUNK_DEFAULT;
    if (size < ARENA_CHUNK_MAX) a->chunk_bytes = size * 2;
    return size > need ? size : need;
}

static void *arena_take(struct arena *a, size_t bytes, size_t alignment) {
    void *p = chunk_take(a->chunk, bytes, alignment);
    if (!p) {
        size_t need, total;
        if (size_add(bytes, alignment, &need)) return NULL;
        size_t capacity = next_chunk_bytes(a, need);
        if (size_add(capacity, sizeof(struct arena_chunk), &total)) return NULL;
        struct arena_chunk *c = mem_try(total);
        if (!c) return NULL;
        c->capacity = capacity;
        c->older = a->chunk;
        a->chunk = c;
        p = chunk_take(c, bytes, alignment);
    }
    a->total_bytes += bytes;
    return p;
}

void *arena_try(struct arena *a, size_t bytes) {
    return arena_take(a, bytes, ARENA_ALIGN);
}

/* Alone in its chunk: the chunk itself grows, which the system does for large ones without a copy. */
static void *grow_chunk(struct arena *a, size_t bytes) {
    size_t total;
    if (size_add(bytes, sizeof(struct arena_chunk), &total)) return NULL;
    guard_check(total);
    struct arena_chunk *c = realloc(a->chunk, total);
    if (!c) return NULL;
    a->total_bytes += bytes - c->used;
    c->used = c->capacity = bytes;
    a->chunk = c;
    return c->data;
}

void *arena_try_grow(struct arena *a, void *old, size_t old_bytes, size_t bytes) {
    struct arena_chunk *c = a->chunk;
    if (bytes <= old_bytes) return old;
    if (c && old == c->data && old_bytes == c->used && bytes > c->capacity) return grow_chunk(a, bytes);
    void *p = arena_try(a, bytes);
    if (p && old) memcpy(p, old, old_bytes);
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes) {
    return arena_alloc_aligned(a, bytes, ARENA_ALIGN);
}

void *arena_alloc_aligned(struct arena *a, size_t bytes, size_t alignment) {
    void *p = arena_take(a, bytes, alignment);
    if (p) return p;
    if (spend_reserve()) p = arena_take(a, bytes, alignment);
    if (!p) die("out of memory", bytes);
    mem_reserve();
    return p;
}

void *arena_alloc_array(struct arena *a, size_t size, size_t count) {
    size_t bytes;
    if (size_mul(size, count, &bytes)) die("array size overflows", count);
    return arena_alloc(a, bytes);
}

void *arena_copy(struct arena *a, const void *data, size_t bytes) {
    void *p = arena_alloc(a, bytes);
    if (bytes) memcpy(p, data, bytes);
    return p;
}

void arena_reset(struct arena *a) {
    struct arena_chunk *keep = NULL;
    for (struct arena_chunk *c = a->chunk; c; c = c->older)
        if (!keep || c->capacity > keep->capacity) keep = c;
    for (struct arena_chunk *c = a->chunk, *older; c; c = older) {
        older = c->older;
        if (c != keep) free(c);
    }
    a->chunk = keep;
    a->total_bytes = 0;
    if (!keep) return;
    memset(keep->data, 0, keep->used);
    keep->used = 0;
    keep->older = NULL;
}

void arena_free(struct arena *a) {
    for (struct arena_chunk *c = a->chunk, *older; c; c = older) {
        older = c->older;
        free(c);
    }
    *a = (struct arena){0};
}
