/* GGUF: headers that are accepted and refused, the block types, and a whole small model in one file. tests/gguf compares more of it with
 * the packages that write such files. */
#include "unit.h"

#include "base/half.h"
#include "file/gguf.h"
#include "tensor/quant.h"

static struct arena arena;
static struct gguf gguf;
static struct err err;
static struct str bytes;

/* ---- writing files -------------------------------------------------------------------------------------------------- */

static void put_number(struct sb *b, uint64_t value, int n) {
    for (int i = 0; i < n; i++) sb_putc(b, (char)(value >> 8 * i & 255));
}

static void put_string(struct sb *b, const char *text) {
    put_number(b, strlen(text), 8);
    sb_puts(b, text);
}

static void put_head(struct sb *b, uint64_t n_tensors, uint64_t n_keys) {
    sb_puts(b, "GGUF");
    put_number(b, 3, 4);
    put_number(b, n_tensors, 8);
    put_number(b, n_keys, 8);
}

static void put_key(struct sb *b, const char *key, enum gguf_type type) {
    put_string(b, key);
    put_number(b, (uint64_t)type, 4);
}

static void put_tensor(struct sb *b, const char *name, uint32_t type, const uint64_t *dims, uint32_t n_dims, uint64_t offset) {
    put_string(b, name);
    put_number(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) put_number(b, dims[i], 8);
    put_number(b, type, 4);
    put_number(b, offset, 8);
}

static void pad_to(struct sb *b, size_t alignment) {
    while (b->n % alignment) sb_putc(b, 0);
}

/* Opens what was written, and empties the buffer. */
static int open_written(struct sb *b) {
    bytes = str_copy(&arena, sb_str(b));
    sb_free(b);
    struct st_source source = st_source_memory("x.gguf", &bytes);
    gguf_close(&gguf);
    return gguf_open(&arena, &source, &gguf, &err);
}

static void refuse(struct sb *b, const char *message) {
    FAIL_IF(open_written(b) == ERR_OK, "not refused: %s", message);
    FAIL_IF(str_find(str_of(err.msg), str_of(message), 0) == STR_NONE, "\"%s\", expected \"%s\"", err.msg, message);
    CHECK(str_starts(str_of(err.msg), STR("x.gguf: ")));
}

/* ---- headers ---------------------------------------------------------------------------------------------------------- */

static void values_of_every_type(void) {
    struct sb b = {0};
    int64_t i;
    double f;
    struct str s;
    put_head(&b, 0, 6);
    put_key(&b, "i8", GGUF_I8), put_number(&b, (uint64_t)-5, 1);
    put_key(&b, "u64", GGUF_U64), put_number(&b, UINT64_MAX, 8);
    put_key(&b, "f32", GGUF_F32), put_number(&b, f32_bits(1.5f), 4);
    put_key(&b, "on", GGUF_BOOL), put_number(&b, 1, 1);
    put_key(&b, "name", GGUF_STRING), put_string(&b, "tiny");
    put_key(&b, "list", GGUF_ARRAY), put_number(&b, GGUF_STRING, 4), put_number(&b, 2, 8), put_string(&b, "a"), put_string(&b, "");
    CHECK_OK(open_written(&b), err);
    CHECK(gguf_to_int(gguf_get(&gguf, STR("i8")), &i) && i == -5);
    CHECK(!gguf_to_int(gguf_get(&gguf, STR("u64")), &i));
    CHECK(gguf_to_num(gguf_get(&gguf, STR("f32")), &f) && f == 1.5);
    CHECK(!gguf_to_int(gguf_get(&gguf, STR("f32")), &i));
    CHECK(gguf_to_int(gguf_get(&gguf, STR("on")), &i) && i == 1);
    CHECK(gguf_to_str(gguf_get(&gguf, STR("name")), &s) && str_is(s, "tiny"));
    CHECK(!gguf_get(&gguf, STR("absent")) && !gguf_to_str(NULL, &s));
    const struct gguf_value *list = gguf_get(&gguf, STR("list"));
    struct gguf_value item;
    uint64_t at = 0;
    CHECK(gguf_next(list, &at, &item) && str_is(item.bytes, "a"));
    CHECK(gguf_next(list, &at, &item) && item.bytes.n == 0);
    CHECK(!gguf_next(list, &at, &item));
}

static void shapes_and_places(void) {
    struct sb b = {0};
    put_head(&b, 2, 0);
    put_tensor(&b, "a", 8, (uint64_t[]){64, 3}, 2, 0);
    put_tensor(&b, "b", 0, (uint64_t[]){2}, 1, 224);
    pad_to(&b, 32);
    size_t data = b.n;
    for (int i = 0; i < 224 + 8; i++) sb_putc(&b, 7);
    CHECK_OK(open_written(&b), err);
    CHECK_INT(gguf.n_tensors, 2);
    CHECK_INT(gguf.tensors[0].shape[0], 3);
    CHECK_INT(gguf.tensors[0].shape[1], 64);
    CHECK_INT(gguf.tensors[0].bytes, 3 * 2 * 34);
    CHECK_INT(gguf.tensors[1].offset, data + 224);
}

/* A header that is longer than the first piece that is read. */
static void long_headers(void) {
    struct sb b = {0};
    put_head(&b, 0, 1);
    put_key(&b, "list", GGUF_ARRAY), put_number(&b, GGUF_STRING, 4), put_number(&b, 200000, 8);
    for (int i = 0; i < 200000; i++) put_string(&b, "a token");
    CHECK_OK(open_written(&b), err);
    CHECK_INT(gguf_get(&gguf, STR("list"))->n, 200000);
}

static void bad_heads(void) {
    struct sb b = {0};
    sb_puts(&b, "GGML");
    refuse(&b, "no GGUF file");
    sb_puts(&b, "GGUF"), put_number(&b, 1, 4);
    refuse(&b, "GGUF version 1, known are 2 and 3");
    sb_puts(&b, "GGUF"), put_number(&b, 3u << 24, 4);
    refuse(&b, "big-endian");
    sb_puts(&b, "GGUF"), put_number(&b, 3, 4);
    refuse(&b, "ends inside its header");
    put_head(&b, UINT64_MAX, 0);
    refuse(&b, "tensors, at most");
    put_head(&b, 0, UINT64_MAX);
    refuse(&b, "keys, at most");
}

static void bad_values(void) {
    struct sb b = {0};
    put_head(&b, 0, 1), put_key(&b, "k", (enum gguf_type)13);
    refuse(&b, "k has values of the unknown type 13");
    put_head(&b, 0, 1), put_key(&b, "k", GGUF_STRING), put_number(&b, UINT64_MAX, 8);
    refuse(&b, "ends inside its header");
    put_head(&b, 0, 1), put_key(&b, "k", GGUF_ARRAY), put_number(&b, GGUF_F64, 4), put_number(&b, UINT64_MAX, 8);
    refuse(&b, "the size of its array overflows");
    put_head(&b, 0, 1), put_key(&b, "k", GGUF_ARRAY);
    for (int i = 0; i < 6; i++) put_number(&b, GGUF_ARRAY, 4), put_number(&b, 1, 8);
    refuse(&b, "nested deeper than 4");
    put_head(&b, 0, 2);
    for (int i = 0; i < 2; i++) put_key(&b, "k", GGUF_U8), put_number(&b, 1, 1);
    refuse(&b, "k stands twice");
    put_head(&b, 0, 1), put_key(&b, "\xff", GGUF_U8), put_number(&b, 1, 1);
    refuse(&b, "key 0 is not UTF-8");
    put_head(&b, 0, 1), put_key(&b, "general.alignment", GGUF_U32), put_number(&b, 24, 4);
    refuse(&b, "general.alignment is not a power of two");
}

static void bad_tensors(void) {
    struct sb b = {0};
    put_head(&b, 1, 0), put_tensor(&b, "t", 0, (uint64_t[]){1, 1, 1, 1, 1}, 5, 0);
    refuse(&b, "tensor t: has 5 dimensions, at most 4");
    put_head(&b, 1, 0), put_tensor(&b, "t", 0, (uint64_t[]){UINT64_C(1) << 40, UINT64_C(1) << 40}, 2, 0);
    refuse(&b, "tensor t: the product of its 2 dimensions overflows");
    put_head(&b, 1, 0), put_tensor(&b, "t", 9, (uint64_t[]){32}, 1, 0);
    refuse(&b, "tensor t: type 9 is not known");
    put_head(&b, 1, 0), put_tensor(&b, "t", 12, (uint64_t[]){128}, 1, 0);
    refuse(&b, "tensor t: rows of 128 elements are no multiple of the 256 in a block of Q4_K");
    put_head(&b, 1, 0), put_tensor(&b, "t", 0, (uint64_t[]){1}, 1, 8);
    refuse(&b, "tensor t: begins at 8, which is no multiple of 32");
    put_head(&b, 1, 0), put_tensor(&b, "t", 0, (uint64_t[]){100}, 1, 0);
    refuse(&b, "the file is cut short");
    put_head(&b, 1, 0), put_tensor(&b, "t", 0, (uint64_t[]){100}, 1, UINT64_MAX / 32 * 32);
    refuse(&b, "the file is cut short");
}

/* ---- block types -------------------------------------------------------------------------------------------------------- */

/* Digests of what the gguf package makes of the same blocks. */
static const struct {
    const char *name;
    uint64_t digest;
} digests[] = {
    {"Q4_0", 0x465BD544FEE2BF1Cu},    {"Q4_1", 0x20E87C933D5CE71Bu},   {"Q5_0", 0x30E34F632A590500u},    {"Q5_1", 0x78CD06419CB634EAu},
    {"Q8_0", 0x5812A83A481E74A6u},    {"Q2_K", 0x0052CB5869265403u},   {"Q3_K", 0x9761ABE188401A07u},    {"Q4_K", 0x61EE938FC618DB5Cu},
    {"Q5_K", 0xF29D94CA2BECA02Fu},    {"Q6_K", 0xDD29B79840D612B4u},   {"IQ2_XXS", 0x3C5181116ED5C593u}, {"IQ2_XS", 0xB9DFE067151817DDu},
    {"IQ3_XXS", 0xF3EA5284C2E74D69u}, {"IQ1_S", 0x225F8A5A29EC5396u},  {"IQ4_NL", 0x9173D8EC34F194DBu},  {"IQ3_S", 0x4E4C4A447E81C78Du},
    {"IQ2_S", 0x08AC2FC81CC5BAB7u},   {"IQ4_XS", 0x0F91F567D934AF7Fu}, {"IQ1_M", 0x49171A12930D105Eu},   {"TQ1_0", 0xAA628A74E126AB00u},
    {"TQ2_0", 0xA49F3708F6323167u},   {"MXFP4", 0x2B5D97E5E497883Cu},  {"NVFP4", 0x80A6C0768F12B941u},
};

/* Numbers of f16 in a block, so that none is infinite: their higher bytes. */
static void keep_finite(const struct block_type *t, uint8_t *p) {
    static const struct {
        const char *name;
        int at[2];
    } halves[] = {{"Q4_1", {1, 3}}, {"Q5_1", {1, 3}}, {"Q2_K", {81, 83}}, {"Q4_K", {1, 3}}, {"Q5_K", {1, 3}},
                  {"Q3_K", {109}},  {"Q6_K", {209}},  {"TQ1_0", {53}},    {"TQ2_0", {65}}};
    int at[2] = {1, 0};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        if (strcmp(halves[i].name, t->name) == 0) at[0] = halves[i].at[0], at[1] = halves[i].at[1];
    if (strcmp(t->name, "IQ1_M") == 0) p[55] = (uint8_t)((p[55] & 15) | 0x20);
    else if (t->format.mode == QUANT_MXFP4) p[0] = (uint8_t)((p[0] & 15) | 0x70);
    else if (t->format.mode == QUANT_NVFP4)
        for (int i = 0; i < 4; i++) p[i] &= 0x3F;
    else
        for (int i = 0; i < 2; i++)
            if (at[i]) p[at[i]] = (uint8_t)((p[at[i]] & 0x83) | 0x24);
}

static const struct block_type *type_named(const char *name) {
    for (uint32_t id = 0; id < 64; id++)
        if (block_find(id) && strcmp(block_find(id)->name, name) == 0) return block_find(id);
    unit_fail(__FILE__, __LINE__, "no type %s", name);
}

static uint64_t digest_of(const struct block_type *t) {
    enum { BLOCKS = 4 };
    uint8_t blocks[BLOCKS * 256], planes[N_BLOCK_PLANES][4 * BLOCKS * BLOCK_MAX];
    float out[BLOCKS * BLOCK_MAX];
    uint32_t x = t->id * 2654435761u;
    for (int i = 0; i < BLOCKS * t->bytes; i++) blocks[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < BLOCKS; i++) keep_finite(t, blocks + i * t->bytes);
    for (int i = 0; i < N_BLOCK_PLANES; i++) CHECK(block_plane(t, (enum block_plane)i, blocks, BLOCKS * t->n, planes[i]));
    quant_unpack(&t->format, &(struct quant_row){planes[0], planes[1], planes[2]}, 0, BLOCKS * t->n, out);
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (int i = 0; i < BLOCKS * t->n * 4; i++) {
        uint32_t u = f32_bits(out[i / 4] + 0.0f);
        hash = (hash ^ (u >> i % 4 * 8 & 255)) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static void block_types(void) {
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        uint64_t got = digest_of(type_named(digests[i].name));
        FAIL_IF(got != digests[i].digest, "%s: 0x%016llX", digests[i].name, (unsigned long long)got);
    }
}

/* 128 times a scale beyond 511 is no number of f16. */
static void large_scales(void) {
    uint8_t block[34] = {0}, plane[64];
    const struct block_type *t = type_named("Q8_0");
    block[0] = 0xB0, block[1] = 0x60; /* 600 */
    CHECK(block_plane(t, BLOCK_VALUES, block, 32, plane) && block_plane(t, BLOCK_SCALES, block, 32, plane));
    CHECK(!block_plane(t, BLOCK_BIASES, block, 32, plane));
}

const struct unit_suite unit_gguf = {"gguf", (const struct unit_case[]){{"values_of_every_type", values_of_every_type},
                                                                        {"shapes_and_places", shapes_and_places},
                                                                        {"long_headers", long_headers},
                                                                        {"bad_heads", bad_heads},
                                                                        {"bad_values", bad_values},
                                                                        {"bad_tensors", bad_tensors},
                                                                        {"block_types", block_types},
                                                                        {"large_scales", large_scales},
                                                                        {0}}};
