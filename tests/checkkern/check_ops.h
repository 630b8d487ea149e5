/* Cases of checkkern --cuda: op lists built the same way on two backends, and what may differ between their results. */
#ifndef MLXCEL_TESTS_CHECK_OPS_H
#define MLXCEL_TESTS_CHECK_OPS_H

#include "backend/backend.h"

enum { CHECK_ROWS = 320, CHECK_SEQS = 3, CHECK_WEIGHTS = 32, CHECK_BLOCKS = 32, CHECK_STEPS = 6 };

/* Rows of each sequence in one step; 0: it sits out. */
struct check_step {
    int32_t rows[CHECK_SEQS];
};

struct check;

/* What the steps of a case have besides tokens. */
enum { CHECK_GIVEN = 1, CHECK_PLACES = 2, CHECK_SEEN = 4, CHECK_SPANS = 8, CHECK_SHARES = 16, CHECK_GIVEN_WIDTH = 1176 };

struct check_case {
    char name[96];
    struct tensor (*build)(struct check *c, struct oplist *l, const struct check_case *which);
    struct check_step steps[CHECK_STEPS];
    int32_t n_steps;
    struct format format;
    int64_t out, in; /* of products; widths elsewhere */
    int32_t p[8];    /* what the builder makes of them */
    float f[4];
    int32_t has;     /* bits of these */
    bool exact_ints; /* results are indices: they must be equal */
    double slack;    /* factor on the tolerance of the default precision; 0: 1 */
};

/* One backend with the weights that a case's builder asked for, in the order of asking. */
struct check {
    struct backend *be;
    struct arena arena;
    struct weight weights[CHECK_WEIGHTS];
    int32_t n_weights, i_weight;
    struct step step;
    int32_t *until; /* of step, where a case has it */
    float *numbers; /* [CHECK_ROWS][CHECK_GIVEN_WIDTH] which the host gives */
    struct kv_layout layout;
    struct tensor result;     /* of the last walk */
    int32_t done[CHECK_SEQS]; /* positions of each sequence so far */
};

/* Element i of the data with this seed, in [-1, 1), exact in bf16. */
float check_value(uint64_t seed, int64_t i);
/* The next weight, [experts, out, in] of the format, from the seed; bound on the first walk and found again on later ones. */
const struct weight *check_weight(struct check *c, struct format f, int32_t n_experts, int64_t out, int64_t in, uint64_t seed, float scale);
const struct weight *check_weight_of_heads(struct check *c, struct format f, int32_t heads, int64_t out, int64_t in, uint64_t seed,
                                           float scale);
const struct weight *check_vector(struct check *c, int64_t n, uint64_t seed, float scale, float offset);
/* Input rows [n_rows, 1, width]: other numbers for every position. */
struct tensor check_input(struct check *c, struct oplist *l, int64_t width, uint64_t seed);

/* All cases, into an array of at most `most`; quick: few and small ones, for the emulator. */
int32_t check_cases(struct check_case *out, int32_t most, bool quick);
/* Those with a cache, for one of 8 bits. */
int32_t check_kv8_cases(struct check_case *out, int32_t most, bool quick);
/* Those of pictures. */
int32_t check_picture_cases(struct check_case *out, int32_t most);
/* Those of tests/shapes.list alone. */
int32_t check_shape_cases(struct check_case *out, int32_t most);

#endif
