/* The template engine over a hostile template and a hostile context: the input is the template, a NUL, and JSON. Spans must
 * make up the text; limits are small, so that an input costs milliseconds. */
#include "text/template/template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good) {
    if (!good) abort();
}

static void check_output(const struct tmpl_output *out) {
    size_t n = 0;
    for (size_t i = 0; i < out->n_spans; i++) {
        check(out->spans[i].text.p == out->text.p + n && out->spans[i].text.n);
        check(i == 0 || out->spans[i].is_user != out->spans[i - 1].is_user);
        n += out->spans[i].text.n;
    }
    check(n == out->text.n && utf8_valid(out->text));
    for (size_t i = 0; i < out->n_generations; i++)
        check(out->generations[i].begin <= out->generations[i].end && out->generations[i].end <= n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str all = str_n((const char *)data, size);
    size_t cut = str_find_char(all, '\0', 0);
    struct arena a = {0};
    struct err err;
    struct tmpl *t;
    yyjson_val *input = NULL;
    if (cut != STR_NONE && json_parse(&a, str_from(all, cut + 1), "context", JSON_LENIENT, &input, &err)) input = NULL;
    if (tmpl_parse(&a, cut == STR_NONE ? all : str_sub(all, 0, cut), &t, &err) == 0) {
        struct tmpl_context ctx = {
            .input = input,
            .special = input,
            .now = {.year = 2025, .month = 7, .day = 10},
            .limits = {.steps = 20000, .memory_bytes = 4 << 20, .output_bytes = 1 << 20},
        };
        struct tmpl_output out;
        if (tmpl_render(t, &a, &ctx, &out, &err) == 0) check_output(&out);
        else check(err.msg[0] || err.code == ERR_EARG);
    }
    arena_free(&a);
    return 0;
}
