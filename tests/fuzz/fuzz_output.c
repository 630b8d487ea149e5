/* What a hostile model may write: the first byte is the format, the second what is asked of it, the rest the text. Cuts must
 * not matter, pieces must be in order, arguments of a complete call must be a JSON object, and text without markers must come
 * out as it is. */
#include "text/output/forced.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKS_CALLS = 1, ASKS_AS_IT_COMES = 2, ASKS_OPEN = 4, ASKS_TOOLS = 8 };

struct result {
    struct sb text[2]; /* content, reasoning */
    struct sb calls;   /* names, arguments and ends, with marks between them */
    struct sb args;    /* of the call that is open */
    int32_t n_calls;
    bool is_open;
};

static void check(bool good) {
    if (!good) abort();
}

static void check_arguments(struct str json) {
    struct arena a = {0};
    yyjson_val *value = NULL;
    /* Halves of pairs are escapes that JSON allows and the strict reader refuses. */
    bool strict = str_find(json, STR("\\ud"), 0) == STR_NONE && str_find(json, STR("\\uD"), 0) == STR_NONE && utf8_valid(json);
    if (strict) check(json_parse(&a, json, "arguments", JSON_STRICT, &value, NULL) == ERR_OK && yyjson_is_obj(value));
    arena_free(&a);
}

static void take(struct result *r, const struct output_pieces *pieces) {
    for (size_t i = 0; i < pieces->n; i++) {
        const struct output_piece *p = &pieces->p[i];
        struct str text = output_piece_text(pieces, p);
        check(p->id_begin <= p->begin && p->begin <= p->end && p->end <= pieces->text.n);
        if (p->kind == OUTPUT_CONTENT || p->kind == OUTPUT_REASONING) {
            check(!r->is_open && text.n && p->call == -1);
            sb_put(&r->text[p->kind == OUTPUT_REASONING], text);
            continue;
        }
        check(p->call == r->n_calls && r->is_open == (p->kind != OUTPUT_CALL));
        sb_putc(&r->calls, '\0');
        if (p->kind != OUTPUT_ARGUMENTS) sb_put(&r->calls, text);
        if (p->kind == OUTPUT_CALL) check(text.n), r->is_open = true;
        if (p->kind == OUTPUT_ARGUMENTS) sb_put(&r->args, text);
        if (p->kind != OUTPUT_CALL_END && p->kind != OUTPUT_CALL_CUT) continue;
        if (p->kind == OUTPUT_CALL_END) check_arguments(sb_str(&r->args));
        sb_put(&r->calls, sb_str(&r->args));
        sb_clear(&r->args);
        r->is_open = false;
        r->n_calls++;
    }
}

static void run(const struct output_options *o, struct str text, uint32_t cuts, struct result *r) {
    struct arena a = {0};
    struct output out;
    struct output_pieces pieces = {0};
    output_init(&out, &a, o);
    for (size_t n; text.n; text = str_from(text, n)) {
        cuts = cuts * 1664525 + 1013904223;
        n = cuts ? 1 + (cuts >> 24) % 9 : text.n;
        output_push(&out, str_sub(text, 0, n), &pieces);
        take(r, &pieces);
        output_pieces_clear(&pieces);
    }
    output_flush(&out, false, &pieces);
    take(r, &pieces);
    check(!r->is_open);
    output_pieces_free(&pieces);
    output_free(&out);
    arena_free(&a);
}

static void result_free(struct result *r) {
    sb_free(&r->text[0]);
    sb_free(&r->text[1]);
    sb_free(&r->calls);
    sb_free(&r->args);
}

static const char tool_list[] =
    "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": [\"integer\", \"null\"]}, "
    "\"c\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/properties/d\"}}, \"d\": {\"anyOf\": [{\"type\": \"object\"}, {\"$ref\": \"#/properties/d\"}]}}}}, "
    "{\"name\": \"python\"}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = {0};
    yyjson_val *tools;
    struct output_options o = {0};
    struct result whole = {0}, parted = {0};
    size_t n_formats = 0;
    if (size < 2) return 0;
    while (output_format_at(n_formats)) n_formats++;
    o.format = output_format_at(data[0] % (n_formats + 1));
    o.takes_calls = data[1] & ASKS_CALLS;
    o.is_open = data[1] & ASKS_OPEN;
    check(json_parse(&a, str_n(tool_list, sizeof tool_list - 1), "tools", JSON_STRICT, &tools, NULL) == ERR_OK);
    if (data[1] & ASKS_TOOLS) check(output_tools_read(&a, tools, &o.tools, NULL) == ERR_OK);
    struct str text = str_n((const char *)data + 2, size - 2);
    run(&o, text, 0, &whole);
    o.as_it_comes = data[1] & ASKS_AS_IT_COMES;
    run(&o, text, data[0] * 256u + data[1] + 1, &parted);
    if (!o.as_it_comes)
        check(str_eq(sb_str(&whole.text[0]), sb_str(&parted.text[0])) && str_eq(sb_str(&whole.text[1]), sb_str(&parted.text[1])) &&
              str_eq(sb_str(&whole.calls), sb_str(&parted.calls)));
    if (!o.format && !o.is_open && str_find_char(text, '<', 0) == STR_NONE) check(str_eq(sb_str(&whole.text[0]), text));
    result_free(&whole);
    result_free(&parted);
    arena_free(&a);
    return 0;
}
