/* Adapters by name and by number. */
#include "server/adapters.h"

#include "server/server_internal.h"

#include <math.h>

int adapters_read_scales(struct call *c, yyjson_val *list, const float **out) {
    const struct service_info *info = service_info(c->service);
    float *scales = arena_new(&c->arena, float, info->n_adapters + 1);
    yyjson_val *item;
    size_t i, n;
    if (!yyjson_is_arr(list)) return api_fail(&c->error, 400, NULL, "lora", "lora must be a list of objects with id and scale");
    yyjson_arr_foreach(list, i, n, item) {
        int64_t id;
        yyjson_val *scale = json_get(item, "scale");
        if (!json_val_int(json_get(item, "id"), &id) || !yyjson_is_num(scale) || !(fabs(yyjson_get_num(scale)) <= 100))
            return api_fail(&c->error, 400, NULL, "lora", "lora[%zu] must have an id and a scale within -100 and 100", i);
        if (id < 0 || id >= info->n_adapters)
            return api_fail(&c->error, 404, "adapter_not_found", "lora", "there is no adapter %lld here; GET /lora-adapters lists them",
                            (long long)id);
        scales[id] = (float)yyjson_get_num(scale);
    }
    *out = scales;
    return 0;
}

/* Whether a name is the model's own. Where there are adapters, a wrong name is a wrong adapter's: it is not passed over. */
static bool is_model(struct call *c, struct str name) {
    const struct service_info *info = service_info(c->service);
    return str_is(name, info->name) || models_find(c->server, name);
}

static int read_name(struct call *c) {
    const struct service_info *info = service_info(c->service);
    struct str name = json_str(c->body, "model", json_str(c->body, "name", (struct str){0}));
    if (!name.n || info->n_adapters == 0) return 0;
    for (int32_t i = 0; i < info->n_adapters; i++) {
        if (!str_is(name, info->adapters[i].name)) continue;
        float *scales = arena_new(&c->arena, float, info->n_adapters);
        scales[i] = 1;
        c->adapters = scales;
        c->adapter = info->adapters[i].name;
        return 0;
    }
    if (is_model(c, name)) return 0;
    return api_fail(&c->error, 404, "model_not_found", "model", "there is no model or adapter %.*s here; GET /v1/models lists them",
                    (int)(name.n > 100 ? 100 : name.n), name.p);
}

int adapters_read(struct call *c) {
    yyjson_val *list = yyjson_is_obj(c->body) ? json_given(c->body, "lora") : NULL;
    if (!c->service || c->route->flags & ROUTE_WITHOUT_MODEL || service_state(c->service, NULL) != SERVICE_READY) return 0;
    if (read_name(c)) return -1;
    return list ? adapters_read_scales(c, list, &c->adapters) : 0;
}

struct str adapters_model_name(const struct call *c) {
    return str_of(c->adapter ? c->adapter : service_info(c->service)->name);
}
