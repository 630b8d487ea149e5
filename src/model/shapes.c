/* Looking up a shape by name; the table stands with the families (families.c). */
#include "model/shapes.h"

const struct model_shape *model_shape_find(struct str name, struct err *err) {
    char known[400] = "";
    for (int32_t i = 0; i < model_n_shapes; i++) {
        if (str_is(name, model_shapes[i].name)) return &model_shapes[i];
        size_t n = strlen(known);
        if (n + strlen(model_shapes[i].name) + 3 < sizeof known) {
            memcpy(known + n, i ? ", " : "", i ? 2 : 0);
            memcpy(known + n + (i ? 2 : 0), model_shapes[i].name, strlen(model_shapes[i].name) + 1);
        }
    }
    err_set(err, ERR_EARG, "there is no shape \"%.*s\"; known are %s", STR_ARG(name), known);
    return NULL;
}
