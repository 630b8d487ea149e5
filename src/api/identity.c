/* The identity of a model: hashes over its configuration and over the beginnings of its tensors. */
#include "api/identity.h"

#include "base/hash.h"

enum { SAMPLE_BYTES = 256 };

/* A JSON value, whatever white space its file has. */
static uint64_t hash_json(yyjson_val *v, uint64_t seed) {
    size_t i, n;
    yyjson_val *key, *value;
    seed = hash_pair(seed, (uint64_t)yyjson_get_tag(v));
    if (yyjson_is_str(v)) return hash_bytes(yyjson_get_str(v), yyjson_get_len(v), seed);
    if (yyjson_is_num(v)) {
        double number = yyjson_get_num(v);
        return hash_bytes(&number, sizeof number, seed);
    }
    if (yyjson_is_arr(v)) yyjson_arr_foreach(v, i, n, value) seed = hash_json(value, seed);
    if (yyjson_is_obj(v))
        yyjson_obj_foreach(v, i, n, key, value) seed = hash_json(value, hash_bytes(yyjson_get_str(key), yyjson_get_len(key), seed));
    return seed;
}

int identity_of(const struct checkpoint *c, uint64_t before, uint64_t *out, struct err *err) {
    unsigned char sample[SAMPLE_BYTES];
    uint64_t hash = c->has_config ? hash_json(c->config.root, before) : before;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct st_tensor *t = c->tensors[i].t;
        size_t n = t->bytes < SAMPLE_BYTES ? (size_t)t->bytes : SAMPLE_BYTES;
        if (n) TRY(checkpoint_read(&c->tensors[i], 0, sample, n, err));
        hash = hash_bytes(t->name.p, t->name.n, hash_pair(hash, t->bytes * 64 + (uint64_t)t->dtype));
        hash = hash_bytes(sample, n, hash);
    }
    *out = hash;
    return ERR_OK;
}
