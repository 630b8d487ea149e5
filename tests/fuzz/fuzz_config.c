/* Any bytes as config.json: every reader answers with a value inside its range or an error with a message. */
#include "file/config.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct err err;

static bool succeeded(int code) {
    if (code && (err.code != code || err.msg[0] == '\0')) abort();
    return code == ERR_OK;
}

static void require(bool ok) {
    if (!ok) abort();
}

static void check_rope(const struct config *c) {
    static const char *const types[] = {NULL, "full_attention", "sliding_attention"};
    for (int i = 0; i < 3; i++) {
        struct config_rope r;
        if (!succeeded(config_rope(c, &(struct rope_ask){.layer_type = types[i], .theta = 10000}, &r, &err))) continue;
        require(isfinite(r.theta) && r.theta > 0 && r.partial >= 0 && r.partial <= 1 && r.factor > 0 && r.type.p);
    }
}

static void check_quant(struct arena *a, const struct config *c) {
    static const char *const paths[] = {"model.layers.0.mlp.up_proj", "lm_head", "a.b", ""};
    struct quant_config q;
    if (!succeeded(quant_config_read(a, c, &q, &err))) return;
    for (size_t i = 0; i < 4; i++) {
        struct format f;
        if (quant_lookup(&q, str_of(paths[i]), &f) != QUANT_IS_PLAIN) require(format_valid(&f));
    }
    quant_config_free(&q);
}

static void check_shape(const struct config *c) {
    struct config_shape s;
    if (!succeeded(config_shape(c, &s, &err))) return;
    require(s.n_layers >= 0 && s.n_layers <= 4096 && s.head_dim >= 0 && s.n_heads >= 0 && s.vocab >= 0 && s.context >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct arena a = {0};
    struct config c;
    err_clear(&err);
    if (succeeded(config_parse(&a, str_n((const char *)data, n), "config.json", &c, &err))) {
        int64_t *ids;
        size_t n_ids;
        check_shape(&c);
        check_rope(&c);
        check_quant(&a, &c);
        if (succeeded(config_eos_ids(&a, &c, &c, &ids, &n_ids, &err)))
            for (size_t i = 0; i < n_ids; i++) require(ids[i] >= 0 && ids[i] <= INT32_MAX);
    }
    arena_free(&a);
    return 0;
}
