/* safetensors headers: what is accepted, what is refused and in which words. tests/file/test_inspect.py holds the same
 * reader against the reference library on many more. */
#include "unit.h"

#include "file/builtin.h"
#include "file/safetensors.h"

static struct arena arena;
static struct safetensors st;
static struct str bytes;
static struct err err;

/* Opens a file made of a header and n_data zero bytes. */
static int open_header(const char *header, size_t n_data) {
    size_t n = strlen(header);
    char *p = arena_alloc(&arena, 8 + n + n_data);
    for (int i = 0; i < 8; i++) p[i] = (char)((uint64_t)n >> 8 * i & 255);
    memcpy(p + 8, header, n);
    bytes = str_n(p, 8 + n + n_data);
    struct st_source source = st_source_memory("x.safetensors", &bytes);
    return st_open(&arena, &source, &st, &err);
}

static void accept(const char *header, size_t n_data, size_t n_tensors) {
    FAIL_IF(open_header(header, n_data), "%s: %s", header, err.msg);
    CHECK_INT(st.n_tensors, n_tensors);
}

static void refuse(const char *header, size_t n_data, const char *message) {
    FAIL_IF(open_header(header, n_data) != ERR_EFORMAT, "%s: not refused", header);
    FAIL_IF(str_find(str_of(err.msg), str_of(message), 0) == STR_NONE, "%s: %s", header, err.msg);
    CHECK(str_starts(str_of(err.msg), STR("x.safetensors: ")));
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static void good_headers(void) {
    accept("{}", 0, 0);
    accept(" {} \n\t\r", 0, 0);
    accept("{" A "}   ", 4, 1);
    accept("{\"__metadata__\":{\"format\":\"mlx\"}," A "}", 4, 1);
    CHECK_INT(st.n_meta, 1);
    CHECK_STR(st.meta[0].value, STR("mlx"));
    accept("{\"__metadata__\":null}", 0, 0);
    accept("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6],\"x\":{}}," A "}", 6, 2);
    CHECK_STR(st.tensors[0].name, STR("a")); /* by place, not as written */
    CHECK_STR(st.tensors[1].name, STR("b"));
    CHECK_INT(st.tensors[1].bytes, 2);
    CHECK_INT(st.data_bytes, 6);
    accept("{\"z\":{\"dtype\":\"F32\",\"shape\":[0,1099511627776,1099511627776],\"data_offsets\":[0,0]}," A "}", 4, 2);
    accept("{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 1);
    CHECK_INT(st.tensors[0].n_elements, 1);
    accept("{\"f\":{\"dtype\":\"F6_E3M2\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1);
    accept("{" A "," A "}", 4, 1); /* a name twice counts once */
    accept("{\"a\":[\"F32\",[1],[0,4]]}", 4, 1);
}

static void bad_headers(void) {
    refuse("{", 0, "header, byte");
    refuse("[]", 0, "expected an object");
    refuse("{}x", 0, "header, byte");
    refuse("{}", 1, "1 bytes after the last tensor");
    refuse("{" A "}", 3, "after the file's end");
    refuse("{" A "}", 5, "1 bytes after the last tensor");
    refuse("{\"a\":1}", 0, "tensor a: is not an object");
    refuse("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: unknown dtype F31");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "tensor a: dimension 0");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "tensor a: dimension 0");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "F32 [2] takes 8 bytes, data_offsets say 4");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "overflows");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "do not end at a byte");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, "ends at 0 before it begins at 1");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "a hole in the data");
    refuse("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5, "tensors overlap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "shape stands twice");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: a is not a string");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands twice");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}}", 1, "takes 1 bytes");
}

static void bad_lengths(void) {
    static const struct {
        const char prefix[9];
        size_t n;
        const char *message;
    } cases[] = {
        {"", 0, "0 bytes are too few"},
        {"\0\0\0\0\0\0\0", 7, "7 bytes are too few"},
        {"\0\0\0\0\0\0\0\0", 8, "header is empty"},
        {"\1\0\0\0\0\0\0\0", 8, "does not fit the file of 8"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, "and 100 MB are allowed"},
        {"\xf8\xff\xff\xff\xff\xff\xff\xff", 8, "and 100 MB are allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes = str_n(cases[i].prefix, cases[i].n);
        struct st_source source = st_source_memory("x.safetensors", &bytes);
        CHECK_INT(st_open(&arena, &source, &st, &err), ERR_EFORMAT);
        FAIL_IF(str_find(str_of(err.msg), str_of(cases[i].message), 0) == STR_NONE, "case %zu: %s", i, err.msg);
    }
}

static void reads_are_bounded(void) {
    accept("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}," A "}", 6, 2);
    char *data = (char *)(uintptr_t)bytes.p + bytes.n - 6, got[8];
    memcpy(data, "abcdef", 6);
    const struct st_tensor *b = &st.tensors[1];
    CHECK_OK(st_read(&st, b, 0, got, 2, &err), err);
    CHECK_STR(str_n(got, 2), STR("ef"));
    CHECK_OK(st_read(&st, b, 1, got, 1, &err), err);
    CHECK(got[0] == 'f');
    CHECK_INT(st_read(&st, b, 1, got, 2, &err), ERR_EARG);
    CHECK_INT(st_read(&st, b, UINT64_MAX, got, 1, &err), ERR_EARG);
}

/* Every cut of a real header, and every byte of it damaged, is refused or still sound: never a fault. */
static void damaged_real_header(void) {
    struct str model;
    CHECK(builtin_file(STR("model.safetensors"), &model));
    size_t n_header = 0;
    for (int i = 7; i >= 0; i--) n_header = n_header << 8 | (unsigned char)model.p[i];
    char *copy = mem_alloc(model.n);
    memcpy(copy, model.p, model.n);
    for (size_t at = 0; at < 8 + n_header; at += 37) {
        struct arena a = {0};
        char old = copy[at];
        copy[at] = (char)(old ^ (1 << at % 7));
        struct str damaged = str_n(copy, model.n), cut = str_n(model.p, at);
        struct st_source sources[2] = {st_source_memory("damaged", &damaged), st_source_memory("cut", &cut)};
        struct safetensors s;
        if (st_open(&a, &sources[0], &s, &err) == 0) CHECK_INT(s.data_bytes, model.n - 8 - n_header);
        CHECK(st_open(&a, &sources[1], &s, &err) != 0);
        copy[at] = old;
        arena_free(&a);
    }
    mem_free(copy);
}

const struct unit_suite unit_safetensors = {
    "safetensors",
    (const struct unit_case[]){
        {"good_headers", good_headers},
        {"bad_headers", bad_headers},
        {"bad_lengths", bad_lengths},
        {"reads_are_bounded", reads_are_bounded},
        {"damaged_real_header", damaged_real_header},
        {0},
    },
};
