/* The rows of pictures that were computed last. Who uses it holds a lock. */
#ifndef MLXCEL_API_PICTURES_KEPT_H
#define MLXCEL_API_PICTURES_KEPT_H

#include "vision/vision.h"

enum { PICTURES_KEPT = 32, PICTURES_KEPT_BYTES = 256 << 20 };

/* A file by its content. */
struct picture_key {
    uint64_t first, second;
    size_t bytes;
};

struct pictures_kept {
    struct kept_picture {
        struct picture_key key;
        uint64_t used;
        size_t bytes; /* 0: a free place */
        struct vision_picture picture;
    } p[PICTURES_KEPT];
    uint64_t clock;
    size_t bytes;
};

struct picture_key pictures_kept_key(struct str file);
/* NULL: it is not there. Good until the next picture is added. */
const struct vision_picture *pictures_kept_find(struct pictures_kept *k, const struct picture_key *key);
/* Takes the picture over, whose rows have so many bytes; false: it is too large, and stays the caller's. */
bool pictures_kept_add(struct pictures_kept *k, const struct picture_key *key, size_t bytes, const struct vision_picture *picture);
void pictures_kept_free(struct pictures_kept *k);

#endif
