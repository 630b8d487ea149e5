/* What a model with a tower does with a picture: resize and cut it into patches, run the tower over them, hand out rows for the text model.
 *
 * Families are rows of the table in towers.c; no other file here names one. The tower is an op list like the text model's, in a backend context
 * of its own: weights, scratch memory and steps do not meet. One thread at a time encodes.
 */
#ifndef MLXCEL_VISION_VISION_H
#define MLXCEL_VISION_VISION_H

#include "file/checkpoint.h"
#include "image/image.h"
#include "model/weights.h"

struct vision;

/* A part of a picture's place in the prompt: text, then tokens. */
struct vision_piece {
    size_t text_at, text_n; /* in the picture's text */
    int32_t n_tokens;
};

/* How the text model sees a picture. */
struct vision_picture {
    int32_t n_tokens;                /* of the prompt */
    int32_t n_rows;                  /* of each set: one for each token, or states that the text model looks at */
    int32_t n_shown;                 /* of states: those before padding */
    int32_t grid_height, grid_width; /* tokens of a picture that lies in two dimensions; 0: they lie in a row */
    float *rows[GIVEN_SETS];         /* [n_rows][hidden]; NULL where the model has fewer sets */
    struct vision_piece *pieces;
    int32_t n_pieces;
    char *text;    /* of the pieces */
    uint64_t hash; /* of the pixels */
};

struct vision_facts {
    const char *title;       /* of the tower, for people */
    const char *placeholder; /* text that stands for a picture before it is expanded; NULL: that of the token below */
    int32_t placeholder_token;
    const char *open, *close;        /* text around the tokens of a picture */
    int32_t open_token, close_token; /* tokens around those; -1: none */
    int32_t image_token;             /* every token with this id is a row of a picture */
    int32_t n_sets;                  /* of rows */
    int32_t text_hidden;             /* numbers of a row */
    bool sees_both_ways;             /* the rows of one picture see each other */
    bool has_places;                 /* tokens lie in time, height and width */
    bool sees_in_windows;            /* in layers with a window alone */
    bool is_looked_at;               /* rows are states that layers of the text model look at, not tokens */
    bool is_prefix;                  /* all rows of a prompt see each other; pictures come first where the text has no place for them */
    int32_t bos_before;              /* token before a text that has none, but behind pictures at its beginning; -1: none */
    int32_t bos_behind;              /* token behind the last picture; -1: none */
    const char *prompt_end;          /* text at the end of a prompt with pictures; NULL: none */
    int32_t patch, layers, hidden;
};

/* What a config.json says: whether there is a tower, and its name; NULL where it is not run here. */
const char *vision_title(const struct config *c, bool *out_has);
/* A tower and its projector as the files of a checkpoint describe them: no weight is read. */
enum { VISION_USUAL_SIDE = 1024 };
struct vision_outline {
    int32_t layers, hidden, patch; /* pixels of a patch's side */
    int32_t merge, n_matrices;     /* the projector: patches of a token's side, and matrices from there to the text model's rows */
    bool pools;                    /* a token is the mean of its patches; else they are joined */
    int32_t n_sets;                /* of rows: those of the last layer, then those behind others */
    int32_t n_tokens;              /* of a picture of VISION_USUAL_SIDE in both directions */
};
int vision_outline(const struct checkpoint *c, int32_t text_hidden, struct vision_outline *out, struct err *err);
/* Whether a model takes pictures on a device, by its config.json alone. ERR_ENOTFOUND: it has no tower. ERR_EUNSUPPORTED: it has one that is not run here,
 * and the message says which. On both the text part works without it. */
int vision_check(const struct config *c, const struct backend *be, struct err *err);
/* The tower of a checkpoint that vision_check lets pass. */
int vision_open(const struct checkpoint *c, const struct tensor_store *store, struct backend *be, int32_t text_hidden, struct vision **out,
                struct err *err);
/* A made-up tower of a well-known model's shape (tower_shapes.c); ERR_EARG lists them. `a` holds what it needs while it is opened. */
int vision_open_shape(struct arena *a, struct str shape, struct backend *be, struct vision **out, struct err *err);
/* On a device with memory of its own: what a picture of the usual size needs there, before others take it. Larger ones ask for more when they come. */
int vision_reserve(struct vision *v, struct err *err);
void vision_close(struct vision *v); /* NULL is fine; the backend stays open */
struct vision_facts vision_facts(const struct vision *v);
int vision_encode(struct vision *v, const struct image *image, struct vision_picture *out, struct err *err);
void vision_picture_free(struct vision_picture *p);
/* A copy that belongs to the arena: nobody frees it. */
struct vision_picture vision_picture_copy(const struct vision *v, struct arena *a, const struct vision_picture *p);
/* What the tower did for the last tile: multiplications and additions of products and attention, and bytes of weights that it read. */
struct vision_work {
    double flops, bytes;
};
struct vision_work vision_work(const struct vision *v);
/* Where the n tokens of a prompt lie: pictures[i] begins at the i-th run of image tokens. `places` is [n][STEP_AXES]. */
void vision_places(const struct vision *v, const int32_t *tokens, int32_t n, const struct vision_picture *pictures, int32_t *places);

#endif
