/* Small layers behind a model's last states, read from a checkpoint into stages of src/engine/pool.h. */
#ifndef MLXCEL_API_STAGES_H
#define MLXCEL_API_STAGES_H

#include "engine/pool.h"
#include "file/checkpoint.h"

enum { STAGES_MAX = 16 };

struct stages {
    struct arena *arena;
    int32_t width; /* of what comes out so far */
    int32_t widest;
    struct pool_stage list[STAGES_MAX];
    int32_t n;
};

/* NAME.weight [any, width] and NAME.bias, if there is one, then the activation. */
int stages_dense(struct stages *s, const struct checkpoint *c, const char *name, enum act_kind act, struct err *err);
/* NAME.weight [width] and NAME.bias, if there is one. */
int stages_norm(struct stages *s, const struct checkpoint *c, const char *name, float eps, struct err *err);
/* Makes the length 1. */
int stages_unit(struct stages *s, struct err *err);
/* An activation by the name of a class of torch ("torch.nn.modules.activation.Tanh"). */
int stages_act(struct str class_name, enum act_kind *out, struct err *err);
/* In the arena. */
struct pool_head stages_head(const struct stages *s);

#endif
