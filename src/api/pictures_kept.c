/* Pictures that were computed before, by the bytes of their files: in a conversation each turn brings them all again. */
#include "api/pictures_kept.h"

#include "base/hash.h"

struct picture_key pictures_kept_key(struct str file) {
    return (struct picture_key){hash_bytes(file.p, file.n, 0x9e3779b97f4a7c15ull), hash_bytes(file.p, file.n, 0xc2b2ae3d27d4eb4full),
                                file.n};
}

static bool is_same(const struct picture_key *a, const struct picture_key *b) {
    return a->first == b->first && a->second == b->second && a->bytes == b->bytes;
}

static void drop(struct pictures_kept *k, struct kept_picture *p) {
    k->bytes -= p->bytes;
    vision_picture_free(&p->picture);
    *p = (struct kept_picture){0};
}

const struct vision_picture *pictures_kept_find(struct pictures_kept *k, const struct picture_key *key) {
    for (int32_t i = 0; i < PICTURES_KEPT; i++) {
        struct kept_picture *p = &k->p[i];
        if (!p->bytes || !is_same(&p->key, key)) continue;
        p->used = ++k->clock;
        return &p->picture;
    }
    return NULL;
}

/* The one that nobody asked for longest, or a free place. */
static struct kept_picture *oldest(struct pictures_kept *k) {
    struct kept_picture *found = &k->p[0];
    for (int32_t i = 1; i < PICTURES_KEPT; i++)
        if (k->p[i].used < found->used) found = &k->p[i];
    return found;
}

bool pictures_kept_add(struct pictures_kept *k, const struct picture_key *key, size_t bytes, const struct vision_picture *picture) {
    if (bytes == 0 || bytes > PICTURES_KEPT_BYTES) return false;
    struct kept_picture *slot = oldest(k);
    if (slot->bytes) drop(k, slot);
    while (k->bytes + bytes > PICTURES_KEPT_BYTES) {
        struct kept_picture *next = NULL;
        for (int32_t i = 0; i < PICTURES_KEPT; i++)
            if (k->p[i].bytes && (!next || k->p[i].used < next->used)) next = &k->p[i];
        drop(k, next);
    }
    *slot = (struct kept_picture){*key, ++k->clock, bytes, *picture};
    k->bytes += bytes;
    return true;
}

void pictures_kept_free(struct pictures_kept *k) {
    for (int32_t i = 0; i < PICTURES_KEPT; i++)
        if (k->p[i].bytes) drop(k, &k->p[i]);
}
