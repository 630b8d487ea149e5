/* Short readers over file/config.h: 32-bit numbers with ranges, f32 numbers that must be finite. */
#ifndef MLXCEL_MODEL_CFG_H
#define MLXCEL_MODEL_CFG_H

#include "file/config.h"

/* An integer in [min, max]; absent gives `absent`. Anything else is an error that names the key. */
int cfg_int(const struct config *c, const char *key, int64_t min, int64_t max, int64_t absent, int32_t *out, struct err *err);
/* As cfg_int, but the key must be there. */
int cfg_need(const struct config *c, const char *key, int64_t min, int64_t max, int32_t *out, struct err *err);
int cfg_num(const struct config *c, const char *key, double absent, float *out, struct err *err);
bool cfg_bool(const struct config *c, const char *key, bool absent);
struct str cfg_str(const struct config *c, const char *key, struct str absent);

#endif
