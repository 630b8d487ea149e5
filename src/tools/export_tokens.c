/* tokenizer.json as the vocabulary of a GGUF file: byte-level BPE whose way to cut texts has a name there, and pieces of SentencePiece. */
#include "tools/export_internal.h"

#include "base/log.h"
#include "file/gguf_tokens.h"

struct tokens {
    struct export *e;
    yyjson_val *root, *model, *side; /* tokenizer.json, its model, tokenizer_config.json (NULL: there is none) */
    struct str *texts;
    int32_t *types;
    float *scores;
    int64_t n;
    bool is_pieces;
};

/* ---- the way to cut texts ---------------------------------------------------------------------------------------------- */

/* What a pre-tokenizer does, in one form: its parts behind one another. */
static void flatten(yyjson_val *v, struct sb *out) {
    struct str type = json_str(v, "type", STR("none"));
    yyjson_val *parts = json_get(v, "pretokenizers"), *pattern = json_get(v, "pattern"), *part;
    size_t i, n;
    if (str_is(type, "Sequence")) {
        yyjson_arr_foreach(parts, i, n, part) flatten(part, out);
        return;
    }
    sb_fmt(out, "%.*s(", STR_ARG(type));
    if (str_is(type, "Split")) {
        struct str regex = json_str(pattern, "Regex", json_str(pattern, "String", STR("")));
        sb_fmt(out, "%.*s,%.*s,%d", STR_ARG(regex), STR_ARG(json_str(v, "behavior", STR(""))), json_bool(v, "invert", false));
    } else if (str_is(type, "Digits")) {
        sb_fmt(out, "%d", json_bool(v, "individual_digits", false));
    } else if (str_is(type, "ByteLevel")) {
        sb_fmt(out, "%d,%d", json_bool(v, "add_prefix_space", true), json_bool(v, "use_regex", true));
    }
    sb_puts(out, ")");
}

static bool cuts_alike(struct arena *a, const struct gguf_pre *pre, struct str wanted) {
    struct sb flat = {0};
    yyjson_val *parts;
    bool is_same = false;
    if (json_parse(a, str_of(pre->parts), pre->name, JSON_STRICT, &parts, NULL) == ERR_OK) {
        flatten(parts, &flat);
        is_same = str_eq(sb_str(&flat), wanted);
    }
    sb_free(&flat);
    return is_same;
}

/* The first name of the table that stands for the same parts; "default" means different things to different readers. */
static int find_pre(const struct tokens *t, const char **out, struct err *err) {
    struct sb flat = {0};
    bool ignores_merges = json_bool(t->model, "ignore_merges", false), has_norm = json_given(t->root, "normalizer") != NULL;
    bool is_nfc = str_is(json_str(json_get(t->root, "normalizer"), "type", STR("")), "NFC");
    flatten(json_get(t->root, "pre_tokenizer"), &flat);
    *out = NULL;
    for (const struct gguf_pre *p = gguf_arch_pres; p->name && !*out && (is_nfc || !has_norm); p++)
        if (strcmp(p->name, "default") != 0 && p->ignores_merges == ignores_merges && (p->normalizer != NULL) == has_norm &&
            cuts_alike(&t->e->arena, p, sb_str(&flat)))
            *out = p->name;
    sb_free(&flat);
    return *out ? ERR_OK
                : err_set(err, ERR_EUNSUPPORTED, "%s: the pre_tokenizer of tokenizer.json has no name in GGUF files", t->e->c.path);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------------ */

static int read_vocab(struct tokens *t, struct err *err) {
    yyjson_val *vocab = json_get(t->model, "vocab"), *key, *value, *added = json_get(t->root, "added_tokens");
    size_t i, n;
    if (!str_is(json_str(t->model, "type", STR("")), "BPE") || !yyjson_is_obj(vocab))
        return err_set(err, ERR_EUNSUPPORTED, "%s: the tokenizer is %.*s, and only BPE is written to GGUF files", t->e->c.path,
                       STR_ARG(json_str(t->model, "type", STR("none"))));
    yyjson_obj_foreach(vocab, i, n, key, value) {
        int64_t id = yyjson_get_sint(value);
        if (id < 0 || id >= t->n)
            return err_set(err, ERR_EFORMAT, "%s: token %lld is beyond vocab_size of config.json", t->e->c.path, (long long)id);
        t->texts[id] = json_val_str(key);
        t->types[id] = TOKEN_NORMAL;
        if (t->is_pieces && t->texts[id].n == 6 && str_starts(t->texts[id], STR("<0x"))) t->types[id] = TOKEN_BYTE;
    }
    yyjson_arr_foreach(added, i, n, value) {
        int64_t id = json_int(value, "id", -1);
        if (id < 0 || id >= t->n)
            return err_set(err, ERR_EFORMAT, "%s: token %lld is beyond vocab_size of config.json", t->e->c.path, (long long)id);
        t->texts[id] = json_str(value, "content", STR(""));
        t->types[id] = json_bool(value, "special", false) ? TOKEN_CONTROL : TOKEN_USER;
    }
    return ERR_OK;
}

static int64_t id_of(const struct tokens *t, struct str text) {
    for (int64_t id = 0; id < t->n && text.p; id++)
        if (t->texts[id].p && str_eq(t->texts[id], text)) return id;
    return -1;
}

/* The text of a token that tokenizer_config.json names: a string, or an object with its content. */
static struct str named(const struct tokens *t, const char *key) {
    yyjson_val *v = json_get(t->side, key);
    return yyjson_is_obj(v) ? json_str(v, "content", (struct str){0}) : json_val_str(v);
}

/* Both halves of a merge: "a b", or a list of two. */
static struct str merge_text(struct arena *a, yyjson_val *merge) {
    if (!yyjson_is_arr(merge)) return json_val_str(merge);
    struct str left = json_val_str(yyjson_arr_get(merge, 0)), right = json_val_str(yyjson_arr_get(merge, 1));
    return str_fmt(a, "%.*s %.*s", STR_ARG(left), STR_ARG(right));
}

/* A piece's score is its place in the list of merges; those that nothing merges to come last. */
static void score_pieces(struct tokens *t) {
    yyjson_val *merges = json_get(t->model, "merges"), *merge;
    struct map ids = {0};
    size_t i, n;
    for (int64_t id = 0; id < t->n; id++) {
        t->scores[id] = t->types[id] == TOKEN_NORMAL ? -1e6f : 0;
        if (t->texts[id].p) map_put(&ids, t->texts[id], NULL)->value.i = id;
    }
    yyjson_arr_foreach(merges, i, n, merge) {
        struct str text = merge_text(&t->e->arena, merge);
        size_t blank = str_find_char(text, ' ', 1);
        if (blank == STR_NONE) continue;
        struct str whole = str_fmt(&t->e->arena, "%.*s%.*s", (int)blank, text.p, STR_ARG(str_from(text, blank + 1)));
        const struct map_entry *found = map_find(&ids, whole);
        if (found && t->scores[found->value.i] == -1e6f) t->scores[found->value.i] = -(float)i;
    }
    map_free(&ids);
}

static void put_merges(struct tokens *t) {
    yyjson_val *merges = json_get(t->model, "merges"), *merge;
    size_t i, n;
    gguf_put_array(&t->e->w, "tokenizer.ggml.merges", GGUF_STRING, yyjson_arr_size(merges));
    yyjson_arr_foreach(merges, i, n, merge) gguf_add_string(&t->e->w, merge_text(&t->e->arena, merge));
}

static void put_vocab(struct tokens *t) {
    struct gguf_writer *w = &t->e->w;
    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->n);
    for (int64_t id = 0; id < t->n; id++)
        gguf_add_string(w, t->texts[id].p ? t->texts[id] : str_fmt(&t->e->arena, "[PAD%lld]", (long long)id));
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->n);
    for (int64_t id = 0; id < t->n; id++) gguf_add_i32(w, t->types[id]);
    if (!t->is_pieces) return;
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)t->n);
    for (int64_t id = 0; id < t->n; id++) gguf_add_f32(w, t->scores[id]);
}

/* ---- what stands around a text ----------------------------------------------------------------------------------------- */

/* The template of the post-processor, or of the one among several that has one. */
static yyjson_val *find_template(yyjson_val *post) {
    yyjson_val *several = json_get(post, "processors"), *part, *found = NULL;
    size_t i, n;
    if (json_get(post, "single")) return json_get(post, "single");
    yyjson_arr_foreach(several, i, n, part) if (!found) found = json_get(part, "single");
    return found;
}

static void put_specials(struct tokens *t) {
    static const char *const keys[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                          {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                          {"pad_token", "tokenizer.ggml.padding_token_id"}};
    yyjson_val *single = find_template(json_get(t->root, "post_processor"));
    struct gguf_writer *w = &t->e->w;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = id_of(t, named(t, keys[i][0]));
        if (id >= 0) gguf_put_u32(w, keys[i][1], (uint32_t)id);
    }
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", json_get(yyjson_arr_get_first(single), "SpecialToken") != NULL);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token",
                  yyjson_arr_size(single) > 1 && json_get(yyjson_arr_get_last(single), "SpecialToken") != NULL);
}

/* The token that ends a turn is the one of tokenizer_config.json where generation stops at it; a second one has a key of its own. */
static int put_ends(struct tokens *t, struct err *err) {
    int64_t *ids, named_id = id_of(t, named(t, "eos_token")), first;
    size_t n;
    const struct checkpoint *c = &t->e->c;
    TRY(config_eos_ids(&t->e->arena, &c->config, c->has_generation ? &c->generation : NULL, &ids, &n, err));
    first = named_id >= 0 ? named_id : n ? ids[0] : -1;
    if (first >= 0) gguf_put_u32(&t->e->w, "tokenizer.ggml.eos_token_id", (uint32_t)first);
    for (size_t i = 0, more = 0; i < n; i++) {
        static const char *const keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
        if (ids[i] == first) continue;
        if (more < 2) gguf_put_u32(&t->e->w, keys[more++], (uint32_t)ids[i]);
        else log_warn("%s: token %lld, which ends an answer, has no place in a GGUF file", c->path, (long long)ids[i]);
    }
    return ERR_OK;
}

static int put_chat(struct tokens *t, struct err *err) {
    struct str text = {0};
    int code = checkpoint_file_load(&t->e->arena, &t->e->c, "chat_template.jinja", 0, &text, err);
    if (code && code != ERR_ENOTFOUND) return code;
    if (code) text = json_str(t->side, "chat_template", (struct str){0});
    if (text.p) gguf_put_string(&t->e->w, "tokenizer.chat_template", text);
    return ERR_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------------- */

/* Normalizers of pieces: blanks become marks, with or without one before the text. */
static int put_prefix(const struct tokens *t, struct err *err) {
    static const char *const known[] = {GGUF_PIECES_SPACED, GGUF_PIECES_PREFIXED};
    yyjson_val *norm = json_get(t->root, "normalizer"), *other;
    for (size_t i = 0; i < 2 && !json_given(t->root, "pre_tokenizer"); i++) {
        TRY(json_parse(&t->e->arena, str_of(known[i]), "normalizer", JSON_STRICT, &other, err));
        if (!yyjson_equals(norm, other)) continue;
        gguf_put_bool(&t->e->w, "tokenizer.ggml.add_space_prefix", i == 1);
        return ERR_OK;
    }
    return err_set(err, ERR_EUNSUPPORTED, "%s: the normalizer or pre_tokenizer of tokenizer.json is none that GGUF files have with pieces",
                   t->e->c.path);
}

static int load(struct tokens *t, const char *name, yyjson_val **out, struct err *err) {
    struct str text;
    TRY(checkpoint_file_load(&t->e->arena, &t->e->c, name, 0, &text, err));
    return json_parse(&t->e->arena, text, name, JSON_LENIENT, out, err);
}

int export_tokens(struct export *e, struct err *err) {
    struct tokens t = {.e = e, .n = e->shape.vocab};
    const char *pre = NULL;
    TRY(load(&t, "tokenizer.json", &t.root, err));
    int code = load(&t, "tokenizer_config.json", &t.side, err);
    if (code && code != ERR_ENOTFOUND) return code;
    t.model = json_get(t.root, "model");
    t.is_pieces = json_bool(t.model, "byte_fallback", false);
    t.texts = arena_new(&e->arena, struct str, t.n + 1);
    t.types = arena_new(&e->arena, int32_t, t.n + 1);
    t.scores = arena_new(&e->arena, float, t.n + 1);
    for (int64_t id = 0; id < t.n; id++) t.texts[id] = (struct str){0}, t.types[id] = TOKEN_UNUSED;
    TRY(read_vocab(&t, err));
    int64_t unknown = t.is_pieces ? id_of(&t, json_str(t.model, "unk_token", (struct str){0})) : -1;
    if (unknown >= 0) t.types[unknown] = TOKEN_UNKNOWN;
    gguf_put_string(&e->w, "tokenizer.ggml.model", str_of(gguf_arch_vocabs[t.is_pieces ? GGUF_PIECES : GGUF_BYTES]));
    if (t.is_pieces) {
        TRY(put_prefix(&t, err));
        score_pieces(&t);
    } else {
        TRY(find_pre(&t, &pre, err));
        gguf_put_string(&e->w, "tokenizer.ggml.pre", str_of(pre));
        put_merges(&t);
    }
    put_vocab(&t);
    put_specials(&t);
    TRY(put_ends(&t, err));
    return put_chat(&t, err);
}
