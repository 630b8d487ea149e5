/* Encoders against what the reference computed: the last states of every text. */
#ifndef MLXCEL_TESTS_ENCODER_H
#define MLXCEL_TESTS_ENCODER_H

#include "backend/backend.h"

struct encoder_test {
    const char *dir, *backend;
    const struct device_options *device;
    enum precision precision;
    double tolerance; /* of the states' standard deviation */
    bool is_near;     /* texts in one batch may round otherwise than alone */
    int32_t n_ranks;  /* below 2: one alone */
};

/* Whether the folder's figures are of an encoder. */
bool encoder_is(const char *dir);
/* Each text alone within the tolerance, all in one batch with the same bits, and again in another order. *out_worst: in standard deviations. */
int encoder_check(const struct encoder_test *t, double *out_worst, struct err *err);

#endif
