/* base/: errors, arenas, strings, maps, hashes, half types, elementary functions, JSON. */
#include "unit.h"

#include "base/fmath.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/hmac.h"
#include "base/sha256.h"

#include <math.h>

static void err_prefix_keeps_code(void) {
    struct err err;
    CHECK_INT(err_set(&err, ERR_EFORMAT, "bad %d", 7), ERR_EFORMAT);
    CHECK_INT(err_prefix(&err, "%s", "file.json"), ERR_EFORMAT);
    CHECK_STR(str_of(err.msg), STR("file.json: bad 7"));
}

static void arena_aligns_and_resets(void) {
    struct arena a = {0};
    for (int i = 0; i < 1000; i++) {
        unsigned char *p = arena_alloc(&a, (size_t)i);
        CHECK(((uintptr_t)p & 15) == 0);
        for (int k = 0; k < i; k++) CHECK(p[k] == 0);
        memset(p, 0xAA, (size_t)i);
    }
    CHECK(((uintptr_t)arena_alloc_aligned(&a, 100, 4096) & 4095) == 0);
    arena_reset(&a);
    CHECK_INT(a.total_bytes, 0);
    unsigned char *p = arena_alloc(&a, 30000);
    for (int k = 0; k < 30000; k++) CHECK(p[k] == 0);
    CHECK(arena_try(&a, SIZE_MAX - 8) == NULL);
    arena_free(&a);
    size_t out = 5;
    CHECK(size_mul(SIZE_MAX, 2, &out) && out == 5);
    CHECK(!size_mul(6, 7, &out) && out == 42);
    CHECK(size_add(SIZE_MAX, 1, &out));
}

static void str_searches_and_splits(void) {
    CHECK_INT(str_find(STR("abcabd"), STR("abd"), 0), 3);
    CHECK(str_find(STR("abc"), STR("x"), 0) == STR_NONE);
    struct str rest = STR("a,,b"), piece;
    CHECK(str_split_next(&rest, ',', &piece) && str_is(piece, "a"));
    CHECK(str_split_next(&rest, ',', &piece) && piece.n == 0);
    CHECK(str_split_next(&rest, ',', &piece) && str_is(piece, "b"));
    CHECK(!str_split_next(&rest, ',', &piece));
    CHECK_STR(str_trim(STR(" \t x y\n")), STR("x y"));
    CHECK(str_glob(STR("*.layers.*.q?proj"), STR("model.layers.12.q_proj")));
    CHECK(!str_glob(STR("*.q_proj"), STR("model.q_proj.weight")));
    CHECK_INT(str_distance(STR("kitten"), STR("sitting")), 3);
}

static size_t find_plainly(struct str s, struct str needle, size_t from) {
    for (; from + needle.n <= s.n; from++)
        if (memcmp(s.p + from, needle.p, needle.n) == 0) return from;
    return STR_NONE;
}

/* Texts of two or three letters, needles cut from them or from others like them: many near misses, all kinds of periods. */
static void str_find_is_exact_and_linear(void) {
    char text[400], needle[80];
    uint32_t state = 1;
    for (int round = 0; round < 4000; round++) {
        state = state * 1664525u + 1013904223u;
        uint32_t n_letters = 1 + (state >> 28) % 3, period = 1 + (state >> 20) % 40;
        for (size_t i = 0; i < sizeof text; i++) {
            state = state * 1664525u + 1013904223u;
            bool copy = i >= period && (state >> 16) % 64 != 0;
            text[i] = copy ? text[i - period] : (char)('a' + (state >> 24) % n_letters);
        }
        size_t n = 17 + (state >> 8) % (sizeof needle - 17), at = (state >> 12) % (sizeof text - sizeof needle);
        memcpy(needle, text + at, n);
        if (round % 2) needle[(state >> 4) % n] ^= 1;
        struct str s = {text, sizeof text}, x = {needle, n};
        for (size_t from = 0; from < 300; from += 37) CHECK_INT((int64_t)str_find(s, x, from), (int64_t)find_plainly(s, x, from));
    }
    /* a plain search would compare 10^11 bytes */
    struct arena a = {0};
    size_t n_text = 2000000, n_needle = 100000;
    char *p = arena_alloc(&a, n_text + n_needle);
    memset(p, 'a', n_text + n_needle);
    p[n_text + n_needle / 2] = 'b';
    CHECK(str_find(str_n(p, n_text), str_n(p + n_text, n_needle), 0) == STR_NONE);
    p[n_text + n_needle / 2] = 'a', p[n_text] = 'b';
    CHECK(str_find(str_n(p, n_text), str_n(p + n_text, n_needle), 0) == STR_NONE);
    p[n_text] = 'a', p[n_text + n_needle - 1] = 'b', p[n_text - 1] = 'b';
    CHECK_INT((int64_t)str_find(str_n(p, n_text), str_n(p + n_text, n_needle), 0), (int64_t)(n_text - n_needle));
    arena_free(&a);
}

static void str_parses_numbers(void) {
    int64_t i;
    double d;
    CHECK(str_to_int64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    CHECK(!str_to_int64(STR("9223372036854775808"), &i));
    CHECK(!str_to_int64(STR("12x"), &i) && !str_to_int64(STR(""), &i) && !str_to_int64(STR("-"), &i));
    CHECK(str_to_double(STR("1e-6"), &d) && d == 1e-6);
    CHECK(!str_to_double(STR(" 1"), &d) && !str_to_double(STR("1,5"), &d));
}

static void utf8_rejects_bad_forms(void) {
    CHECK(utf8_valid(STR("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80")));
    CHECK(!utf8_valid(STR("\xC0\x80")) && !utf8_valid(STR("\xED\xA0\x80")) && !utf8_valid(STR("\xF4\x90\x80\x80")) &&
          !utf8_valid(STR("\xE2\x82")));
    CHECK_INT(utf8_complete_prefix(STR("ab\xE2\x82")), 2);
    CHECK_INT(utf8_complete_prefix(STR("ab\xE2\x82\xAC")), 5);
    CHECK_INT(utf8_complete_prefix(STR("ab\xFF")), 3);
    for (uint32_t code = 1; code < 0x110000; code += 37) {
        if (code >= 0xD800 && code < 0xE000) continue;
        char bytes[4];
        uint32_t back;
        size_t n = utf8_encode(code, bytes);
        CHECK(utf8_decode(bytes, n, &back) == n && back == code);
    }
}

static void map_keeps_order(void) {
    struct arena a = {0};
    struct map m = {0};
    for (int i = 0; i < 5000; i++) map_put(&m, str_fmt(&a, "key%d", i), NULL)->value.i = i;
    for (int i = 0; i < 5000; i++) CHECK_INT(map_get_int(&m, str_fmt(&a, "key%d", i), -1), i);
    CHECK_INT(map_get_int(&m, STR("absent"), -1), -1);
    CHECK_INT(m.entries[77].value.i, 77);
    bool is_new = true;
    map_put(&m, STR("key9"), &is_new);
    CHECK(!is_new);
    map_free(&m);
    arena_free(&a);
}

/* RFC 4231, cases 2 and 6: a short key, and one that is longer than a block. */
static void hmac_known_answers(void) {
    unsigned char proof[HMAC_BYTES], other[HMAC_BYTES], key[131];
    char hex[65];
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, proof);
    sha256_hex(proof, hex);
    CHECK(strcmp(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843") == 0);
    memset(key, 0xAA, sizeof key);
    hmac_sha256(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, other);
    sha256_hex(other, hex);
    CHECK(strcmp(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54") == 0);
    CHECK(!hmac_equal(proof, other));
    memcpy(other, proof, sizeof other);
    CHECK(hmac_equal(proof, other));
    other[HMAC_BYTES - 1] ^= 1;
    CHECK(!hmac_equal(proof, other));
}

static void sha256_known_answers(void) {
    struct sha256 s;
    unsigned char digest[32];
    char hex[65];
    sha256_init(&s);
    sha256_update(&s, "abc", 3);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    CHECK_STR(str_of(hex), STR("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    sha256_init(&s);
    for (int i = 0; i < 1000000; i++) sha256_update(&s, "a", 1);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    CHECK_STR(str_of(hex), STR("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

static void half_round_trips(void) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h);
        if (f == f) CHECK_INT(f16_from_f32(f), h);
        float b = bf16_to_f32((uint16_t)h);
        if (b == b) CHECK_INT(bf16_from_f32(b), h);
    }
    for (uint32_t h = 0; h < 256; h++) {
        float f = f8e4m3_to_f32((uint8_t)h);
        if (f == f) CHECK_INT(f8e4m3_from_f32(f), h);
    }
    CHECK_INT(f16_from_f32(65520.0f), 0x7C00);
    CHECK_INT(f16_from_f32(65519.0f), 0x7BFF);
    CHECK_INT(f16_from_f32(1.0f + 1.0f / 2048), 0x3C00); /* ties to even */
    CHECK(e8m0_to_f32(127) == 1.0f && e8m0_to_f32(130) == 8.0f);
}

static void fmath_is_accurate(void) {
    for (double x = -80; x < 80; x += 0.0371) {
        double s, c;
        CHECK_NEAR(m_exp(x), exp(x), 1e-15 * exp(x));
        m_sincos(x * 1000, &s, &c);
        CHECK_NEAR(s, sin(x * 1000), 1e-13);
        CHECK_NEAR(c, cos(x * 1000), 1e-13);
        CHECK_NEAR(m_tanh(x * 0.1), tanh(x * 0.1), 3e-15);
        CHECK_NEAR(m_erf(x * 0.1), erf(x * 0.1), 3e-15);
        if (x > 0) CHECK_NEAR(m_log(x), log(x), 3e-15 * fabs(log(x)) + 1e-15);
    }
    CHECK(m_exp(-800) == 0 && isinf(m_exp(800)) && isnan(m_log(-1)) && isinf(m_log(0)));
    CHECK_NEAR(m_pow(500000.0, -0.75), pow(500000.0, -0.75), 1e-18);
}

/* The same bits everywhere: a hash over many results, pinned. */
static void fmath_bits_are_pinned(void) {
    uint64_t h = 0;
    for (int i = -4000; i < 4000; i++) {
        float x = (float)i * 0.0117f;
        double s, c;
        m_sincos((double)x * 100, &s, &c);
        float v[6] = {m_expf(x), m_tanhf(x), m_erff(x), (float)s, (float)c, i > 0 ? m_logf(x) : 0};
        h = hash_bytes(v, sizeof v, h);
    }
    CHECK(h == UINT64_C(0xaee4bc5249f6a9b5));
}

/* 1 + 2^-12 squared lies 2^-24 above 1 + 2^-11, half a step of a float: what is added decides, however little it is. */
static void fmath_fma_rounds_once(void) {
    const float x = 1 + 0x1p-12f, below = 1 + 0x1p-11f, above = below + 0x1p-23f;
    CHECK(m_fmaf(x, x, 0) == below && m_fmaf(x, x, 0x1p-60f) == above && m_fmaf(x, x, -0x1p-60f) == below);
    CHECK(m_fmaf(-x, x, 0x1p-60f) == -below && m_fmaf(-x, x, -0x1p-60f) == -above);
    CHECK(m_fmaf(x, x, -1) == 0x1p-11f + 0x1p-24f && m_fmaf(x, -x, below) == -0x1p-24f);
    CHECK(isinf(m_fmaf(3e38f, 3e38f, 1)) && isnan(m_fmaf(INFINITY, 1, -INFINITY)) && m_fmaf(0x1p-75f, 0x1p-75f, 0x1p-149f) == 0x1p-148f);
    uint64_t h = 0, state = 1;
    for (int i = 0; i < 100000; i++) {
        float v[3];
        for (int k = 0; k < 3; k++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            v[k] = ldexpf((float)((int32_t)(state >> 32)), (int)(state >> 20 & 31) - 40);
        }
        v[0] = m_fmaf(v[0], v[1], v[2]);
        h = hash_bytes(v, sizeof *v, h);
    }
    CHECK(h == UINT64_C(0x9699c1cc5c5f0138));
}

static void json_reads_and_writes(void) {
    struct arena a = {0};
    struct err err;
    yyjson_val *root;
    struct str text = STR("{\"a\": 64.0, \"b\": NaN, \"c\": \"x\\ny\", \"d\": [1, 2], \"e\": true}");
    CHECK(json_parse(&a, text, "t.json", JSON_STRICT, &root, &err) == ERR_EFORMAT);
    CHECK(strstr(err.msg, "t.json: line 1, column") != NULL);
    CHECK_OK(json_parse(&a, text, "t.json", JSON_LENIENT, &root, &err), err);
    CHECK_INT(json_int(root, "a", 0), 64);
    CHECK(isnan(json_num(root, "b", 0)));
    CHECK_STR(json_str(root, "c", STR("")), STR("x\ny"));
    CHECK_INT(json_int(root, "absent", -5), -5);
    CHECK(json_bool(root, "e", false) && json_get(NULL, "a") == NULL);
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "s", STR("q\"\x01\xFF"));
    jsonw_open(&w, "l", '[');
    jsonw_int(&w, 1);
    jsonw_num(&w, 0.1);
    jsonw_null(&w);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    CHECK_STR(sb_str(&out), STR("{\"s\":\"q\\\"\\u0001\xEF\xBF\xBD\",\"l\":[1,0.1,null]}"));
    sb_clear(&out);
    w = (struct jsonw){.out = &out};
    static const double values[] = {0, -0.0, 1, -0.25, -12.3456789, 0.00000004, 0.00000006, -9999, 123456.5, 1e300};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) jsonw_fixed(&w, values[i]);
    jsonw_end(&w, ']');
    CHECK_STR(sb_str(&out), STR("[0,0,1,-0.25,-12.3456789,0,0.0000001,-9999,123456.5,1e+300]"));
    sb_free(&out);
    arena_free(&a);
}

static void rng_depends_on_all_three(void) {
    CHECK(rng_at(1, 2, 3) == rng_at(1, 2, 3));
    CHECK(rng_at(1, 2, 3) != rng_at(2, 1, 3) && rng_at(1, 2, 3) != rng_at(1, 3, 2));
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) sum += rng_uniform(7, i, 0);
    CHECK_NEAR(sum / 10000, 0.5, 0.02);
}

const struct unit_suite unit_base = {"base", (const struct unit_case[]){
                                                 {"err_prefix_keeps_code", err_prefix_keeps_code},
                                                 {"arena_aligns_and_resets", arena_aligns_and_resets},
                                                 {"str_searches_and_splits", str_searches_and_splits},
                                                 {"str_find_is_exact_and_linear", str_find_is_exact_and_linear},
                                                 {"str_parses_numbers", str_parses_numbers},
                                                 {"utf8_rejects_bad_forms", utf8_rejects_bad_forms},
                                                 {"map_keeps_order", map_keeps_order},
                                                 {"hmac_known_answers", hmac_known_answers},
                                                 {"sha256_known_answers", sha256_known_answers},
                                                 {"half_round_trips", half_round_trips},
                                                 {"fmath_is_accurate", fmath_is_accurate},
                                                 {"fmath_bits_are_pinned", fmath_bits_are_pinned},
                                                 {"fmath_fma_rounds_once", fmath_fma_rounds_once},
                                                 {"json_reads_and_writes", json_reads_and_writes},
                                                 {"rng_depends_on_all_three", rng_depends_on_all_three},
                                                 {0},
                                             }};
