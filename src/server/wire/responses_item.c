/* Items of the output: found among the pieces, and written. */
#include "server/wire/responses_item.h"

#include "base/hash.h"

#include <stdio.h>

static bool is_custom_tool(const struct responses_state *state, struct str name) {
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(state->customs, i, n, item) if (str_eq(json_val_str(item), name)) return true;
    return false;
}

bool responses_item_begins(const struct output_piece *p) {
    return p->kind == OUTPUT_CONTENT || p->kind == OUTPUT_REASONING || p->kind == OUTPUT_CALL;
}

/* The piece of everything so far that the k-th item begins with. */
static const struct output_piece *item_piece(const struct gen_choice *c, int32_t k) {
    for (size_t i = 0; i < c->all.n; i++)
        if (responses_item_begins(&c->all.p[i]) && k-- == 0) return &c->all.p[i];
    return NULL;
}

struct responses_item responses_item_at(struct generation *g, struct gen_choice *c, int32_t k) {
    const struct output_piece *p = item_piece(c, k);
    bool is_custom = p->kind == OUTPUT_CALL && is_custom_tool(g->wire_state, output_piece_text(&c->all, p));
    return (struct responses_item){g, c, p, k, is_custom};
}

struct responses_item_id responses_item_id(const struct responses_item *it) {
    const char *prefix = it->p->kind == OUTPUT_CONTENT ? "msg" : it->p->kind == OUTPUT_REASONING ? "rs" : it->is_custom ? "ctc" : "fc";
    uint64_t hash = hash_pair(hash_bytes(it->g->id.p, it->g->id.n, 0), (uint64_t)it->k);
    struct responses_item_id id;
    snprintf(id.text, sizeof id.text, "%s_%016llx", prefix, (unsigned long long)hash);
    return id;
}

struct str responses_item_text(const struct responses_item *it) {
    struct arena *a = &it->g->call->arena;
    yyjson_val *parsed;
    if (it->p->kind != OUTPUT_CALL) return output_piece_text(&it->c->all, it->p);
    struct str arguments = chat_call_arguments(it->g, &it->c->all, it->p->call);
    if (!it->is_custom) return arguments;
    bool is_good = !json_parse(a, arguments, "arguments", JSON_STRICT, &parsed, NULL) && yyjson_is_str(json_get(parsed, "input"));
    return is_good ? json_str(parsed, "input", STR("")) : arguments;
}

void responses_item_put_part(struct jsonw *w, enum output_kind kind, struct str text) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", kind == OUTPUT_CONTENT ? STR("output_text") : STR("reasoning_text"));
    jsonw_put_str(w, "text", text);
    if (kind == OUTPUT_CONTENT) {
        jsonw_put_raw(w, "annotations", STR("[]"));
        jsonw_put_raw(w, "logprobs", STR("[]"));
    }
    jsonw_end(w, '}');
}

static void put_call_item(const struct responses_item *it, struct str text, struct jsonw *w) {
    jsonw_put_str(w, "call_id", chat_call_id(it->g, it->c, &it->c->all, it->p));
    jsonw_put_str(w, "name", output_piece_text(&it->c->all, it->p));
    jsonw_put_str(w, it->is_custom ? "input" : "arguments", text);
}

void responses_item_put(const struct responses_item *it, const char *status, bool is_new, struct jsonw *w) {
    enum output_kind kind = it->p->kind;
    struct str text = is_new ? STR("") : responses_item_text(it);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_of(responses_item_id(it).text));
    if (kind == OUTPUT_CALL) jsonw_put_str(w, "type", it->is_custom ? STR("custom_tool_call") : STR("function_call"));
    else jsonw_put_str(w, "type", kind == OUTPUT_CONTENT ? STR("message") : STR("reasoning"));
    jsonw_put_str(w, "status", str_of(status));
    if (kind == OUTPUT_CALL) {
        put_call_item(it, text, w);
    } else {
        if (kind == OUTPUT_CONTENT) jsonw_put_str(w, "role", STR("assistant"));
        else jsonw_put_raw(w, "summary", STR("[]"));
        jsonw_open(w, "content", '[');
        if (!is_new) responses_item_put_part(w, kind, text);
        jsonw_end(w, ']');
    }
    jsonw_end(w, '}');
}
