/* tmpl_render: from JSON to values, the run, from the output buffer to spans.
 *
 * Every string of the input is the user's, with one exception: a message's role and a content part's type, where they are
 * one of the words below. Templates build control tokens from them ('<|' + message.role + '|>'), and those words cannot
 * forge any other. */
#include "text/template/tmpl_rt.h"

#include <stdio.h>

enum { CONTEXT_MAX_DEPTH = 128 };

struct loader {
    struct rt *rt;
    size_t n_values, n_bytes;
    int depth;
    bool user;
};

static bool is_trusted_word(struct str key, struct str value) {
    static const char *const roles[] = {"system", "user",    "assistant",   "tool",    "developer", "function",
                                        "model",  "ipython", "observation", "context", NULL};
    static const char *const types[] = {"text", "image", "image_url", "audio", "video", "function", "tool", NULL};
    const char *const *words = str_is(key, "role") ? roles : str_is(key, "type") ? types : NULL;
    for (; words && *words; words++)
        if (str_is(value, *words)) return true;
    return false;
}

static struct tv load(struct loader *l, yyjson_val *v, struct str key);

static struct tv load_array(struct loader *l, yyjson_val *v) {
    struct tv list = tv_list_new(l->rt, TV_LIST, yyjson_arr_size(v));
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(v, i, n, item) tv_list_push(l->rt, list.u.list, load(l, item, STR("")));
    return list;
}

static struct tv load_object(struct loader *l, yyjson_val *v) {
    struct tdict *d = tdict_new(l->rt);
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(v, i, n, key, item) {
        struct str name = json_val_str(key);
        l->n_bytes += name.n;
        tdict_set(l->rt, d, tv_str_of(l->rt, name, l->user), load(l, item, name));
    }
    return (struct tv){TV_DICT, {.dict = d}};
}

static struct tv load_big(struct loader *l, struct str digits) {
    struct tv v = tv_str_copy(l->rt, digits, false);
    v.type = TV_BIG;
    return v;
}

static struct tv load_number(struct loader *l, yyjson_val *v) {
    if (yyjson_is_real(v)) return tv_float(yyjson_get_real(v));
    if (yyjson_is_sint(v)) return tv_int(yyjson_get_sint(v));
    uint64_t u = yyjson_get_uint(v);
    if (u <= INT64_MAX) return tv_int((int64_t)u);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)u);
    return load_big(l, str_of(text));
}

static struct tv load_value(struct loader *l, yyjson_val *v, struct str key) {
    if (yyjson_is_str(v)) {
        struct str s = json_val_str(v);
        l->n_bytes += s.n;
        return tv_str_of(l->rt, s, l->user && !is_trusted_word(key, s));
    }
    if (yyjson_is_num(v)) return load_number(l, v);
    if (yyjson_is_raw(v)) return load_big(l, str_n(yyjson_get_raw(v), yyjson_get_len(v)));
    if (yyjson_is_bool(v)) return tv_bool(yyjson_get_bool(v));
    if (yyjson_is_arr(v)) return load_array(l, v);
    if (yyjson_is_obj(v)) return load_object(l, v);
    return TV_NONE_V;
}

static struct tv load(struct loader *l, yyjson_val *v, struct str key) {
    if (++l->depth > CONTEXT_MAX_DEPTH) rt_limit(l->rt, "the input is nested more than %d deep", CONTEXT_MAX_DEPTH);
    l->n_values++;
    struct tv value = load_value(l, v, key);
    l->depth--;
    return value;
}

/* Only what the template names is converted. */
static void load_context(struct loader *l, yyjson_val *object, bool user) {
    l->user = user;
    if (!yyjson_is_obj(object)) return;
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(object, i, n, key, item) {
        struct str name = json_val_str(key);
        int at = tmpl_name_find(l->rt->t, name);
        if (at >= 0 && !l->rt->t->is_hidden[at]) l->rt->globals[at] = load(l, item, name);
    }
}

static void set_global(struct rt *rt, const char *name, struct str text, bool user) {
    int at = tmpl_name_find(rt->t, str_of(name));
    if (at >= 0 && !rt->t->is_hidden[at]) rt->globals[at] = tv_str_of(rt, text, user);
}

/* The names under which templates take today's date and the tools from their caller. */
static void load_usual(struct rt *rt, yyjson_val *tools) {
    struct sb json = {0}, text = {0};
    struct jsonw w = {.out = &json};
    set_global(rt, "date_string", tmpl_time_format(rt, STR("%d %b %Y")), false);
    set_global(rt, "datetime", tmpl_time_format(rt, STR("%b %d %Y")), false);
    if (tmpl_name_find(rt->t, STR("functions")) < 0) return;
    if (yyjson_arr_size(tools)) {
        jsonw_val(&w, tools);
        json_pretty(sb_str(&json), &text);
    }
    struct str copy = str_copy(rt->arena, str_trim(sb_str(&text)));
    sb_free(&json);
    sb_free(&text);
    set_global(rt, "functions", copy, true);
}

static size_t or_default(size_t value, size_t fallback) {
    return value ? value : fallback;
}

static void prepare(struct rt *rt, const struct tmpl_context *ctx) {
    struct loader l = {.rt = rt};
    rt->limits = ctx->limits;
    rt->limits.memory_bytes = SIZE_MAX / 2; /* while the context is loaded: its size is the caller's business */
    rt->limits.depth = or_default(rt->limits.depth, 400);
    rt->limits.range = or_default(rt->limits.range, 100000);
    rt->limits.output_bytes = or_default(rt->limits.output_bytes, (size_t)64 << 20);
    rt->steps_left = SIZE_MAX;
    rt->globals = rt_new(rt, struct tv, rt->t->n_names);
    /* tools and documents are null where none are given, as apply_chat_template passes them */
    static const char *const nullable[] = {"tools", "documents"};
    for (size_t i = 0; i < 2; i++) {
        int at = tmpl_name_find(rt->t, str_of(nullable[i]));
        if (at >= 0 && !rt->t->is_hidden[at]) rt->globals[at] = TV_NONE_V;
    }
    if (ctx->adds_usual) load_usual(rt, json_get(ctx->input, "tools"));
    load_context(&l, ctx->special, false);
    load_context(&l, ctx->input, true);
    rt->limits.steps = rt->steps_left = or_default(ctx->limits.steps, 1000000 + 400 * l.n_values + l.n_bytes);
    rt->limits.memory_bytes = or_default(ctx->limits.memory_bytes, ((size_t)32 << 20) + 16 * l.n_bytes);
    rt->memory_start = rt->arena->total_bytes;
}

static size_t count_spans(const struct tbuf *b) {
    size_t n = b->used != 0;
    for (size_t i = 1; b->marks && i < b->used; i++) n += b->marks[i] != b->marks[i - 1];
    return n;
}

static void cut_spans(struct rt *rt, struct tmpl_output *out) {
    const struct tbuf *b = rt->root_out;
    *out =
        (struct tmpl_output){.text = str_n(b->p ? b->p : "", b->used), .generations = rt->generations, .n_generations = rt->n_generations};
    size_t n = count_spans(b), from = 0;
    out->spans = arena_new(rt->arena, struct tmpl_span, n + 1);
    for (size_t i = 1; i <= b->used; i++) {
        if (i < b->used && (!b->marks || b->marks[i] == b->marks[from])) continue;
        out->spans[out->n_spans++] = (struct tmpl_span){str_sub(out->text, from, i - from), b->marks ? b->marks[from] : b->user};
        from = i;
    }
}

static int run(struct rt *rt, const struct tmpl_context *ctx, struct tmpl_output *out) {
    int code = setjmp(rt->fail);
    if (code) return code;
    prepare(rt, ctx);
    rt->out = rt->root_out = tbuf_new(rt);
    tmpl_exec(rt, rt->t->root);
    cut_spans(rt, out);
    return ERR_OK;
}

int tmpl_render(const struct tmpl *t, struct arena *a, const struct tmpl_context *ctx, struct tmpl_output *out_output, struct err *err) {
    *out_output = (struct tmpl_output){0};
    struct rt *rt = arena_new(a, struct rt, 1);
    rt->arena = a;
    rt->t = t;
    rt->now = ctx->now;
    rt->err = err;
    rt->memory_start = a->total_bytes;
    return run(rt, ctx, out_output);
}
