/* Any bytes as generation_config.json beside a config.json (a NUL stands between the two, the config first): the end ids are few and in range,
 * and what sampling takes from the file is something that the sampler takes. */
#include "api/sampling.h"
#include "api/session_internal.h"
#include "base/log.h"
#include "file/limits.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void keep_silent(enum log_level level, const char *line, void *user) {
    (void)level, (void)line, (void)user;
}

static void check_ids(struct arena *a, const struct config *config, const struct config *generation) {
    struct err err = {0};
    int64_t *ids;
    size_t n;
    if (config_eos_ids(a, config, generation, &ids, &n, &err)) {
        require(err.msg[0] != '\0');
        return;
    }
    require(n <= 2 * EOS_IDS_MAX);
    for (size_t i = 0; i < n; i++) {
        require(ids[i] >= 0 && ids[i] <= INT32_MAX);
        for (size_t k = 0; k < i; k++) require(ids[k] != ids[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct str all = str_n((const char *)data, n);
    size_t cut = str_find_char(all, '\0', 0);
    struct arena a = {0};
    struct config config;
    static struct session s;
    struct err err = {0};
    struct str first = cut == STR_NONE ? STR("{}") : str_sub(all, 0, cut), second = cut == STR_NONE ? all : str_from(all, cut + 1);
    log_set_sink(keep_silent, NULL);
    s.has_checkpoint = s.checkpoint.has_generation = true;
    if (config_parse(&a, first, "config.json", &config, &err) == ERR_OK &&
        config_parse(&a, second, "generation_config.json", &s.checkpoint.generation, &err) == ERR_OK) {
        struct sampling_given given = {0};
        struct sampler_params p = sampler_defaults();
        check_ids(&a, &config, &s.checkpoint.generation);
        sampling_resolve(&s, &given, &p);
        require(sampler_check(&p, 1000, &err) == ERR_OK);
    } else {
        require(err.msg[0] != '\0');
    }
    arena_free(&a);
    return 0;
}
