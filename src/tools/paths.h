/* Which kernels of the CUDA backend a model takes: how much of what its steps read goes through reference rows, which are slow.
 *
 * Made from the backend's own choice (backend/paths.h) on a device that only plans: nothing is computed, and no memory of the GPU is taken. */
#ifndef MLXCEL_TOOLS_PATHS_H
#define MLXCEL_TOOLS_PATHS_H

#include "api/session.h"
#include "backend/backend.h"
#include "backend/paths.h"

struct sb;

enum { PATHS_STEPS = 3 };
#define PATHS_LIMIT 0.01 /* a larger share on reference rows is worth a word */

struct paths_step {
    const char *name;
    int32_t rows, len; /* len: positions that a row sees at most; the model's context where that is shorter */
    bool is_prompt;
    struct step_paths paths;
};

struct paths_report {
    struct paths_step steps[PATHS_STEPS];
};

/* The options' model or made-up shape on a GPU. ERR_EUNSUPPORTED: its backend does not choose among kernels. */
int paths_examine(const struct session_options *o, struct device *gpu, struct paths_report *out, struct err *err);
/* The same for a session that runs on a GPU alone. */
int paths_of_session(struct session *s, const struct session_options *o, struct paths_report *out, struct err *err);
double paths_slow_share(const struct step_paths *p);
/* One line about a step: "1 row at 4096 tokens: reads 4.51 GB in 3 launches, none of it by reference rows". */
void paths_describe(const struct paths_step *s, struct sb *out);

#endif
