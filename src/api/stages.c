/* Reading dense layers and norms. */
#include "api/stages.h"

#include "tensor/dtype.h"
#include "tensor/quant.h"

enum { WIDTH_MAX = 1 << 20 };

static int add(struct stages *s, struct pool_stage stage, struct err *err) {
    if (s->n == STAGES_MAX) return err_set(err, ERR_EUNSUPPORTED, "more than %d layers behind the pooling", STAGES_MAX);
    s->list[s->n++] = stage;
    s->width = stage.out;
    if (stage.out > s->widest) s->widest = stage.out;
    return ERR_OK;
}

static int read_f32(struct stages *s, const struct checkpoint_tensor *t, const float **out, struct err *err) {
    void *raw = mem_try(t->t->bytes + 1);
    if (!raw) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->t->name));
    float *values = arena_new(s->arena, float, t->t->n_elements);
    int code = checkpoint_read(t, 0, raw, t->t->bytes, err);
    if (!code && !plain_to_f32(t->t->dtype, raw, (int64_t)t->t->n_elements, values))
        code = err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected F32, F16 or BF16", STR_ARG(t->t->name), dtype_name(t->t->dtype));
    mem_free(raw);
    *out = values;
    return code;
}

static const struct checkpoint_tensor *find(const struct checkpoint *c, const char *name, const char *part) {
    char path[256];
    size_t n = (size_t)snprintf(path, sizeof path, "%s.%s", name, part);
    return n < sizeof path ? checkpoint_find(c, str_n(path, n)) : NULL;
}

static int read_bias(struct stages *s, const struct checkpoint *c, const char *name, int32_t n, const float **out, struct err *err) {
    const struct checkpoint_tensor *t = find(c, name, "bias");
    *out = NULL;
    if (!t) return ERR_OK;
    if (t->t->n_elements != (uint64_t)n) return err_set(err, ERR_EFORMAT, "%s: %s.bias has not %d numbers", c->path, name, n);
    return read_f32(s, t, out, err);
}

int stages_dense(struct stages *s, const struct checkpoint *c, const char *name, enum act_kind act, struct err *err) {
    const struct checkpoint_tensor *t = find(c, name, "weight");
    struct pool_stage stage = {.kind = STAGE_DENSE, .in = s->width, .act = act};
    if (!t) return err_set(err, ERR_EFORMAT, "%s: %s.weight is missing", c->path, name);
    if (t->t->n_dims != 2 || t->t->shape[1] != s->width || t->t->shape[0] < 1 || t->t->shape[0] > WIDTH_MAX)
        return err_set(err, ERR_EFORMAT, "%s: %s.weight does not fit vectors of %d numbers", c->path, name, s->width);
    stage.out = (int32_t)t->t->shape[0];
    TRY(read_f32(s, t, &stage.w, err));
    TRY(read_bias(s, c, name, stage.out, &stage.b, err));
    return add(s, stage, err);
}

int stages_norm(struct stages *s, const struct checkpoint *c, const char *name, float eps, struct err *err) {
    const struct checkpoint_tensor *t = find(c, name, "weight");
    struct pool_stage stage = {.kind = STAGE_NORM, .in = s->width, .out = s->width, .eps = eps};
    if (!t || t->t->n_elements != (uint64_t)s->width)
        return err_set(err, ERR_EFORMAT, "%s: %s.weight has not %d numbers", c->path, name, s->width);
    TRY(read_f32(s, t, &stage.w, err));
    TRY(read_bias(s, c, name, s->width, &stage.b, err));
    return add(s, stage, err);
}

int stages_unit(struct stages *s, struct err *err) {
    return add(s, (struct pool_stage){.kind = STAGE_UNIT, .in = s->width, .out = s->width}, err);
}

int stages_act(struct str class_name, enum act_kind *out, struct err *err) {
    static const struct {
        const char *name;
        enum act_kind act;
    } classes[] = {{"Identity", ACT_NONE}, {"Tanh", ACT_TANH}, {"Sigmoid", ACT_SIGMOID},
                   {"ReLU", ACT_RELU},     {"GELU", ACT_GELU}, {"SiLU", ACT_SILU}};
    struct str rest = class_name, part = rest;
    while (str_split_next(&rest, '.', &part)) continue;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (str_is(part, classes[i].name)) {
            *out = classes[i].act;
            return ERR_OK;
        }
    return err_set(err, ERR_EUNSUPPORTED, "the activation \"%.*s\" is not supported", STR_ARG(class_name));
}

struct pool_head stages_head(const struct stages *s) {
    return (struct pool_head){
        .stages = arena_copy(s->arena, s->list, (size_t)s->n * sizeof *s->list), .n = s->n, .width = s->width, .widest = s->widest};
}
