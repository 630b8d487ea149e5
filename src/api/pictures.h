/* Pictures of a request: files through decoder and tower, then their places in a prompt.
 *
 * A template writes one placeholder for each picture; it is expanded to as many tokens as the picture has before the text is tokenized. What a user
 * writes never becomes a placeholder, but in a raw prompt, which is its own template. */
#ifndef MLXCEL_API_PICTURES_H
#define MLXCEL_API_PICTURES_H

#include "engine/job.h"
#include "vision/vision.h"

struct session;
struct tok_span;

struct session_pictures {
    struct vision_picture *p;
    int32_t n;
};

/* Why the model takes no pictures; ERR_OK: it does. */
int session_check_pictures(const struct session *s, struct err *err);
/* Any thread; one at a time computes, and not what was computed before. All of it is in the arena. */
int session_pictures_make(struct session *s, struct arena *a, const struct str *files, size_t n, struct session_pictures *out,
                          struct err *err);
/* Spans with every placeholder expanded, in the arena; NULL pictures: as they are. An error where there are more or fewer placeholders than pictures. */
int session_pictures_expand(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct tok_span **spans,
                            size_t n_spans, struct err *err);
/* The pictures of a prompt whose tokens are in the job, in the arena. */
int session_pictures_attach(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct job_spec *out,
                            struct err *err);

#endif
