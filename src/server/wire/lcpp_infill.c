/* llama-server: POST /infill, for models that were trained to fill a gap: text before and behind it, and other files of the project. */
#include "server/wire/lcpp.h"

/* Names of the tokens in vocabularies. repo and file may be missing: then other files stand before the text as they are. */
static const struct names {
    const char *prefix, *suffix, *middle, *repo, *file;
} known[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     NULL, NULL},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>", NULL, NULL},
    {"<PRE>", "<SUF>", "<MID>", NULL, NULL},
};

struct marks {
    int32_t prefix, suffix, middle, repo, file; /* -1: the vocabulary has none */
};

static int32_t id_of(const struct call *c, const char *name) {
    return name ? service_token_id(c->service, str_of(name)) : -1;
}

static int find_marks(struct call *c, struct marks *out) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct names *k = &known[i];
        *out = (struct marks){id_of(c, k->prefix), id_of(c, k->suffix), id_of(c, k->middle), id_of(c, k->repo), id_of(c, k->file)};
        if (out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0) return 0;
    }
    return api_fail(&c->error, 501, NULL, NULL,
                    "this model cannot fill a gap: its vocabulary has no tokens that mark the text before and behind one");
}

/* ---- the prompt --------------------------------------------------------------------------------------------------------- */

struct builder {
    struct call *call;
    int32_t *p;
    size_t n, capacity;
};

static void put_ids(struct builder *b, const int32_t *ids, size_t n) {
    if (b->n + n > b->capacity) {
        b->capacity = (b->n + n) * 2;
        b->p = mem_realloc(b->p, b->capacity * sizeof *b->p);
    }
    memcpy(b->p + b->n, ids, n * sizeof *ids);
    b->n += n;
}

static void put_mark(struct builder *b, int32_t id) {
    if (id >= 0) put_ids(b, &id, 1);
}

static int put_text(struct builder *b, struct str text, unsigned flags, const char *param) {
    struct call *c = b->call;
    struct service_ids ids;
    struct err err;
    if (service_encode(c->service, &c->arena, text, flags, &ids, &err)) return api_fail_err(&c->error, &err, param);
    put_ids(b, ids.p, (size_t)ids.n);
    return 0;
}

/* Another file of the project: its name and its text. */
static int put_file(struct builder *b, const struct marks *m, struct str name, struct str text) {
    static const char param[] = "input_extra";
    put_mark(b, m->file);
    if (m->file >= 0 && (put_text(b, name, 0, param) || put_text(b, STR("\n"), 0, param))) return -1;
    if (m->file < 0 && put_text(b, STR("\n\n"), 0, param)) return -1;
    return put_text(b, text, 0, param);
}

static int put_files(struct builder *b, const struct marks *m, yyjson_val *files) {
    yyjson_val *file;
    size_t i, n;
    if (yyjson_arr_size(files) == 0) return 0;
    put_mark(b, m->repo);
    if (m->repo >= 0 && put_text(b, STR("project\n"), 0, "input_extra")) return -1;
    yyjson_arr_foreach(files, i, n,
                       file) if (put_file(b, m, json_str(file, "filename", STR("file")), json_str(file, "text", STR("")))) return -1;
    if (m->file >= 0 && put_file(b, m, STR("this file"), STR(""))) return -1;
    return 0;
}

static int put_all(struct builder *b, const struct marks *m, yyjson_val *body) {
    if (put_files(b, m, json_get(body, "input_extra"))) return -1;
    if (put_text(b, STR(""), SERVICE_ADD_SPECIAL, "prompt")) return -1;
    put_mark(b, m->prefix);
    if (put_text(b, json_str(body, "input_prefix", STR("")), 0, "input_prefix")) return -1;
    if (put_text(b, json_str(body, "prompt", STR("")), 0, "prompt")) return -1;
    put_mark(b, m->suffix);
    if (put_text(b, json_str(body, "input_suffix", STR("")), 0, "input_suffix")) return -1;
    put_mark(b, m->middle);
    return 0;
}

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int check_files(struct call *c) {
    static const char param[] = "input_extra";
    yyjson_val *files = json_get(c->body, param), *file;
    size_t i, n;
    bool ok = !files || yyjson_is_null(files) || yyjson_is_arr(files);
    yyjson_arr_foreach(files, i, n, file) {
        yyjson_val *name = json_get(file, "filename");
        ok &= yyjson_is_str(json_get(file, "text")) && (!name || yyjson_is_str(name));
    }
    return ok ? 0 : api_fail(&c->error, 400, NULL, param, "%s must be a list of objects with a text and, if known, a filename", param);
}

static int check_text(struct call *c, const char *name, bool is_needed) {
    yyjson_val *val = json_get(c->body, name);
    if (yyjson_is_str(val) || (!is_needed && (!val || yyjson_is_null(val)))) return 0;
    return api_fail(&c->error, 400, NULL, name, "%s must be a text", name);
}

static int prepare(struct call *c) {
    struct generation *g;
    struct marks marks;
    struct builder b = {.call = c};
    if (find_marks(c, &marks) || check_files(c)) return -1;
    if (check_text(c, "prompt", false) || check_text(c, "input_prefix", true) || check_text(c, "input_suffix", true)) return -1;
    if (lcpp_prepare(c, &g)) return -1;
    int code = put_all(&b, &marks, c->body);
    g->prompts = arena_new(&c->arena, struct gen_prompt, 1);
    g->n_prompts = 1;
    g->prompts[0].ids = (struct service_ids){arena_copy(&c->arena, b.p, b.n * sizeof *b.p), (int32_t)b.n};
    mem_free(b.p);
    return code;
}

const struct route routes_lcpp_infill[] = {
    {"POST", "/infill", 0, prepare, generate_start},
    {0},
};
