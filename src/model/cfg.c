/* Short readers over file/config.h. */
#include "model/cfg.h"

static const struct config_range any_float = {-3.4e38, 3.4e38};

int cfg_int(const struct config *c, const char *key, int64_t min, int64_t max, int64_t absent, int32_t *out, struct err *err) {
    int64_t value;
    TRY(config_int(c, key, (struct config_range){(double)min, (double)max}, absent, &value, err));
    *out = (int32_t)value;
    return ERR_OK;
}

int cfg_need(const struct config *c, const char *key, int64_t min, int64_t max, int32_t *out, struct err *err) {
    int64_t value;
    TRY(config_need_int(c, key, (struct config_range){(double)min, (double)max}, &value, err));
    *out = (int32_t)value;
    return ERR_OK;
}

int cfg_num(const struct config *c, const char *key, double absent, float *out, struct err *err) {
    double value;
    TRY(config_num(c, key, any_float, absent, &value, err));
    *out = (float)value;
    return ERR_OK;
}

bool cfg_bool(const struct config *c, const char *key, bool absent) {
    yyjson_val *v = config_get(c, key);
    return yyjson_is_bool(v) ? yyjson_get_bool(v) : absent;
}

struct str cfg_str(const struct config *c, const char *key, struct str absent) {
    struct str s = json_val_str(config_get(c, key));
    return s.p ? s : absent;
}
