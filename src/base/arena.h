/* Memory by lifetime.
 *
 * An arena hands out memory that is released all at once: when the process, the model, the request or the step ends.
 * A function that allocates takes the arena as its first argument, so that ownership is visible in its signature.
 *
 * (1) Small allocations abort when the system has no memory left: nobody can act on that. The library has a reserve for them (mem_reserve).
 * (2) Sizes that come from a file, a request or a context length use arena_try / mem_try and fail politely.
 * (3) Between mem_guard_begin and mem_guard_end every heap allocation of this thread is a defect; debug builds abort
 *     with the guard's name. The engine guards its decode steps with it.
 * (4) An arena is not thread-safe; it belongs to one thread at a time.
 */
#ifndef MLXCEL_BASE_ARENA_H
#define MLXCEL_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunk; /* the newest; older ones behind it */
    size_t chunk_bytes;        /* size of the next chunk; 0 means the default */
    size_t total_bytes;        /* handed out since the last reset */
};

/* Zeroed storage is a valid empty arena. Memory comes zeroed and aligned to 16 bytes. */
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_try(struct arena *a, size_t bytes); /* NULL when there is no memory */
/* `old`, of old_bytes, made larger: in place where it was the last, else a copy. The added part is not zeroed. NULL when there is no memory. */
void *arena_try_grow(struct arena *a, void *old, size_t old_bytes, size_t bytes);
void *arena_alloc_aligned(struct arena *a, size_t bytes, size_t alignment);
void *arena_copy(struct arena *a, const void *data, size_t bytes);
void arena_reset(struct arena *a); /* keeps the largest chunk for reuse */
void arena_free(struct arena *a);

/* A typed, zeroed array; aborts when count * size overflows. */
#define arena_new(a, type, count) ((type *)arena_alloc_array((a), sizeof(type), (size_t)(count)))
void *arena_alloc_array(struct arena *a, size_t size, size_t count);

/* The heap. mem_alloc and mem_realloc abort on failure, mem_try returns NULL. All of them zero new memory except
 * mem_realloc's tail. */
void *mem_alloc(size_t bytes);
void *mem_try(size_t bytes);
void *mem_realloc(void *p, size_t bytes);
void mem_free(void *p);

/* For programs that must not end when there is no memory: a reserve, which mem_alloc and its like spend before they abort. It is taken again as soon as
 * that is possible. mem_reserve takes it where it is not there; false: there is no memory for it, and nothing new should be begun. */
bool mem_reserve(void);

/* Overflow-checked arithmetic for sizes from outside: 0 on success, nonzero (and *out untouched) on overflow. */
int size_mul(size_t a, size_t b, size_t *out);
int size_add(size_t a, size_t b, size_t *out);

void mem_guard_begin(const char *name);
void mem_guard_end(void);
/* For work that a step does once and later steps find done, such as compiling a program: lifts the guard, and puts it back. */
const char *mem_guard_pause(void);
void mem_guard_resume(const char *name);

#endif
