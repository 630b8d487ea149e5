/* A list from the oldest to the newest. */
#include "server/response_store.h"

#include <uv.h>

struct entry {
    struct entry *next;
    size_t bytes;
    struct response_record record; /* its texts stand behind the entry */
};

struct response_store {
    uv_mutex_t lock;
    struct entry *oldest, **end; /* where the next one goes */
    size_t n, bytes;
};

struct response_store *response_store_create(void) {
    struct response_store *s = mem_alloc(sizeof *s);
    uv_mutex_init(&s->lock);
    s->end = &s->oldest;
    return s;
}

static void unlink_entry(struct response_store *s, struct entry **at) {
    struct entry *e = *at;
    *at = e->next;
    if (s->end == &e->next) s->end = at;
    s->n--;
    s->bytes -= e->bytes;
    mem_free(e);
}

void response_store_destroy(struct response_store *s) {
    if (!s) return;
    while (s->oldest) unlink_entry(s, &s->oldest);
    uv_mutex_destroy(&s->lock);
    mem_free(s);
}

static struct str copy_behind(char **at, struct str text) {
    struct str copy = {*at, text.n};
    if (text.n) memcpy(*at, text.p, text.n);
    *at += text.n;
    return copy;
}

void response_store_put(struct response_store *s, const struct response_record *record) {
    size_t bytes = sizeof(struct entry) + record->id.n + record->response.n + record->items.n;
    struct entry *e = bytes <= RESPONSES_BYTES_MAX ? mem_try(bytes) : NULL;
    if (!e) return;
    char *at = (char *)(e + 1);
    e->bytes = bytes;
    e->record.id = copy_behind(&at, record->id);
    e->record.response = copy_behind(&at, record->response);
    e->record.items = copy_behind(&at, record->items);
    uv_mutex_lock(&s->lock);
    while (s->oldest && (s->n >= RESPONSES_MAX || s->bytes + bytes > RESPONSES_BYTES_MAX)) unlink_entry(s, &s->oldest);
    *s->end = e;
    s->end = &e->next;
    s->n++;
    s->bytes += bytes;
    uv_mutex_unlock(&s->lock);
}

/* Where the entry hangs; NULL where there is none. Under the lock. */
static struct entry **find(struct response_store *s, struct str id) {
    for (struct entry **at = &s->oldest; *at; at = &(*at)->next)
        if (str_eq((*at)->record.id, id)) return at;
    return NULL;
}

bool response_store_get(struct response_store *s, struct arena *a, struct str id, struct response_record *out) {
    uv_mutex_lock(&s->lock);
    struct entry **at = find(s, id);
    if (at) {
        const struct response_record *r = &(*at)->record;
        *out = (struct response_record){str_copy(a, r->id), str_copy(a, r->response), str_copy(a, r->items)};
    }
    uv_mutex_unlock(&s->lock);
    return at != NULL;
}

bool response_store_remove(struct response_store *s, struct str id) {
    uv_mutex_lock(&s->lock);
    struct entry **at = find(s, id);
    if (at) unlink_entry(s, at);
    uv_mutex_unlock(&s->lock);
    return at != NULL;
}
