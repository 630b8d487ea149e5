/* What a user should know about this machine before running a model, each finding with its cure. */
#ifndef MLXCEL_TOOLS_DOCTOR_H
#define MLXCEL_TOOLS_DOCTOR_H

#include "base/str.h"

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE /* works, could be better */, DOCTOR_PROBLEM };

struct doctor_finding {
    const char *topic; /* "system", "processor", "features", "memory", "models", "store", "gpu", "kernels" */
    enum doctor_level level;
    struct str text;
    struct str fix; /* {NULL, 0}: nothing to do */
};

struct doctor_report {
    struct doctor_finding findings[32];
    size_t n;
};

struct session_options;
struct store_options;
struct xla_options;
/* Never fails: what cannot be found out is a finding. */
void doctor_examine(struct arena *a, const struct store_options *store, const struct xla_options *xla, struct doctor_report *out);
/* Adds which kernels the options' model or shape takes on the GPU, one finding for each kind of step. An error is the model's, not the machine's. */
int doctor_examine_model(struct arena *a, const struct session_options *o, struct doctor_report *r, struct err *err);

#endif
