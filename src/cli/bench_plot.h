/* The figures of a benchmark as a picture: bars in SVG, readable on light and on dark pages. */
#ifndef MLXCEL_CLI_BENCH_PLOT_H
#define MLXCEL_CLI_BENCH_PLOT_H

#include "base/str.h"

struct bench_bar {
    char name[48]; /* of the case: "pp512" */
    bool is_prompt;
    double rate, spread; /* tokens a second, and how far runs lie from it */
};

/* title: the model, which is escaped; bars of prompts and of generation have scales of their own. */
void bench_plot(struct str title, const struct bench_bar *bars, size_t n, struct sb *out);

#endif
