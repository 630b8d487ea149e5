/* The schema's nodes: where they stand, which draft they speak, what their references mean. */
#include "text/grammar/schema.h"

#include <stdio.h>

enum { MAX_DEPTH = 256 };

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

struct str schema_path(struct schema *s, uint32_t node) {
    const struct str *parts[2 * MAX_DEPTH];
    size_t n = 0;
    struct sb path = {0};
    for (uint32_t i = node; i != PROG_NONE && n < sizeof parts / sizeof *parts; i = s->nodes[i].parent)
        if (s->nodes[i].key.n) parts[n++] = &s->nodes[i].key;
    sb_putc(&path, '#');
    while (n--) {
        sb_putc(&path, '/');
        sb_put(&path, *parts[n]);
    }
    struct str out = str_copy(&s->a, sb_str(&path));
    sb_free(&path);
    return out;
}

int schema_fail(struct schema *s, uint32_t node, int code, const char *fmt, ...) {
    if (s->code) return s->code;
    va_list args;
    va_start(args, fmt);
    err_vset(s->err, code, fmt, args);
    va_end(args);
    s->code = code;
    struct str path = schema_path(s, node);
    return err_prefix(s->err, "at %.*s", (int)(path.n > 200 ? 200 : path.n), path.p);
}

void schema_warn(struct schema *s, uint32_t node, const char *what, struct str name, const char *why) {
    bool is_new;
    struct str key = str_fmt(&s->a, "%s %.*s", what, STR_ARG(str_sub(name, 0, 100)));
    map_put(&s->warned, key, &is_new);
    if (!is_new || !s->warnings) return;
    struct str path = schema_path(s, node);
    sb_fmt(s->warnings, "at %.*s: %.*s %s\n", (int)(path.n > 200 ? 200 : path.n), path.p, STR_ARG(key), why);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------- */

struct node_key { /* without holes */
    uint64_t pointer, kind;
};

uint32_t schema_node(struct schema *s, enum snode_kind kind, yyjson_val *v, uint32_t parent, struct str key) {
    struct node_key k = {(uint64_t)(uintptr_t)v, kind};
    uint32_t id = gram_records_put(&s->node_keys, &k), n = s->node_keys.n;
    if (n > s->nodes_capacity) {
        uint32_t capacity = s->nodes_capacity ? 2 * s->nodes_capacity : 64;
        struct snode *nodes = arena_new(&s->a, struct snode, capacity);
        if (s->nodes_capacity) memcpy(nodes, s->nodes, s->nodes_capacity * sizeof *nodes);
        s->nodes = nodes;
        s->nodes_capacity = capacity;
    }
    struct snode *node = &s->nodes[id];
    if (!node->v) {
        struct str base = parent == PROG_NONE ? STR("") : s->nodes[parent].base;
        *node = (struct snode){.v = v, .kind = kind, .parent = parent, .key = key, .base = base, .same = PROG_NONE};
    }
    return id;
}

uint32_t schema_child(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v) {
    return schema_node(s, SNODE_SCHEMA, v, node, str_of(keyword));
}

static struct str pointer_part(struct schema *s, const char *keyword, struct str name) {
    struct sb b = {0};
    sb_fmt(&b, "%s/", keyword);
    for (size_t i = 0; i < name.n && i < 100; i++) {
        if (name.p[i] == '~') sb_puts(&b, "~0");
        else if (name.p[i] == '/') sb_puts(&b, "~1");
        else sb_putc(&b, name.p[i]);
    }
    struct str out = str_copy(&s->a, sb_str(&b));
    sb_free(&b);
    return out;
}

static uint32_t known_node(const struct schema *s, yyjson_val *v) {
    struct node_key k = {(uint64_t)(uintptr_t)v, SNODE_SCHEMA};
    return gram_records_find(&s->node_keys, &k);
}

uint32_t schema_grandchild(struct schema *s, uint32_t node, const char *keyword, struct str name, yyjson_val *v) {
    uint32_t known = known_node(s, v);
    return known != UINT32_MAX ? known : schema_node(s, SNODE_SCHEMA, v, node, pointer_part(s, keyword, name));
}

uint32_t schema_item(struct schema *s, uint32_t node, const char *keyword, size_t i, yyjson_val *v) {
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    return schema_grandchild(s, node, keyword, str_of(number), v);
}

/* ---- keywords and drafts ----------------------------------------------------------------------------------------------- */

/* Keywords that not all drafts have; the others are in all of them. */
static const struct {
    const char *name;
    enum gram_draft first, last;
} limited[] = {
    {"const", GRAM_DRAFT_6, GRAM_DRAFT_2020},
    {"contains", GRAM_DRAFT_6, GRAM_DRAFT_2020},
    {"propertyNames", GRAM_DRAFT_6, GRAM_DRAFT_2020},
    {"contentEncoding", GRAM_DRAFT_7, GRAM_DRAFT_7}, /* later drafts say that it is a note */
    {"contentMediaType", GRAM_DRAFT_7, GRAM_DRAFT_7},
    {"if", GRAM_DRAFT_7, GRAM_DRAFT_2020},
    {"then", GRAM_DRAFT_7, GRAM_DRAFT_2020},
    {"else", GRAM_DRAFT_7, GRAM_DRAFT_2020},
    {"dependentRequired", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"dependentSchemas", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"minContains", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"maxContains", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"unevaluatedItems", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"unevaluatedProperties", GRAM_DRAFT_2019, GRAM_DRAFT_2020},
    {"prefixItems", GRAM_DRAFT_2020, GRAM_DRAFT_2020},
    {"$dynamicRef", GRAM_DRAFT_2020, GRAM_DRAFT_2020},
    {"$recursiveRef", GRAM_DRAFT_2019, GRAM_DRAFT_2019},
};

static bool draft_has(enum gram_draft draft, const char *keyword) {
    for (size_t i = 0; i < sizeof limited / sizeof *limited; i++)
        if (strcmp(limited[i].name, keyword) == 0) return draft >= limited[i].first && draft <= limited[i].last;
    return true;
}

/* Up to draft 7 nothing beside a $ref counts. */
static bool is_bare_ref(const struct schema *s, yyjson_val *v) {
    return s->draft <= GRAM_DRAFT_7 && yyjson_is_str(json_get(v, "$ref"));
}

yyjson_val *schema_keyword(struct schema *s, uint32_t node, const char *keyword) {
    yyjson_val *v = s->nodes[node].v, *found = json_get(v, keyword);
    if (!found || (is_bare_ref(s, v) && strcmp(keyword, "$ref") != 0)) return NULL;
    if (draft_has(s->draft, keyword)) return found;
    schema_warn(s, node, "keyword", str_of(keyword), "asserts nothing in this draft and is taken as a note");
    return NULL;
}

static const char *const assertions[] = {
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "items",
    "prefixItems",
    "additionalItems",
    "maxItems",
    "minItems",
    "uniqueItems",
    "contains",
    "unevaluatedItems",
    "maxProperties",
    "minProperties",
    "required",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
};

bool schema_asserts(struct schema *s, uint32_t node) {
    yyjson_val *v = s->nodes[node].v;
    if (!yyjson_is_obj(v)) return !yyjson_is_true(v);
    for (size_t i = 0; i < sizeof assertions / sizeof *assertions; i++)
        if (json_get(v, assertions[i]) && schema_keyword(s, node, assertions[i])) return true;
    return false;
}

static int find_draft(struct schema *s) {
    static const struct {
        const char *part;
        enum gram_draft draft;
    } known[] = {{"draft-04", GRAM_DRAFT_4},   {"draft-06", GRAM_DRAFT_6},   {"draft-07", GRAM_DRAFT_7},
                 {"2019-09", GRAM_DRAFT_2019}, {"2020-12", GRAM_DRAFT_2020}, {"json-schema.org/schema", GRAM_DRAFT_2020}};
    struct str uri = json_val_str(json_get(s->root_value, "$schema"));
    s->names_draft = s->draft != GRAM_DRAFT_AUTO;
    if (s->names_draft) return ERR_OK;
    s->draft = GRAM_DRAFT_2020;
    if (!uri.p) return ERR_OK;
    s->names_draft = true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_find(uri, STR("json-schema.org/"), 0) != STR_NONE && str_find(uri, str_of(known[i].part), 0) != STR_NONE) {
            s->draft = known[i].draft;
            return ERR_OK;
        }
    return schema_fail(s, s->root, ERR_EUNSUPPORTED, "$schema \"%.*s\" is none of drafts 4 to 2020-12: leave it out for 2020-12",
                       STR_ARG(str_sub(uri, 0, 100)));
}

bool schema_size(struct schema *s, uint32_t node, const char *keyword, uint32_t *out) {
    yyjson_val *v = schema_keyword(s, node, keyword);
    struct decimal d;
    uint64_t n;
    if (!v) return false;
    if (!yyjson_is_raw(v) || gram_decimal_parse(&s->a, str_n(yyjson_get_raw(v), yyjson_get_len(v)), &d, s->err) || d.is_negative ||
        !gram_decimal_is_whole(&d)) {
        schema_fail(s, node, ERR_EARG, "%s must be a whole number from 0 on", keyword);
        return false;
    }
    *out = !gram_decimal_to_size(&d, &n) || n >= UINT32_MAX ? UINT32_MAX - 1 : (uint32_t)n;
    return true;
}

/* ---- URIs -------------------------------------------------------------------------------------------------------------- */

struct uri {
    struct str scheme, authority, path; /* with "//" in authority; scheme with ":" */
};

static struct uri split_uri(struct str s) {
    struct uri u = {{s.p, 0}, {s.p, 0}, s};
    for (size_t i = 0; i < s.n && s.p[i] != '/' && s.p[i] != '?'; i++)
        if (s.p[i] == ':') {
            u.scheme = str_sub(s, 0, i + 1);
            u.path = str_from(s, i + 1);
            break;
        }
    if (str_starts(u.path, STR("//"))) {
        size_t end = str_find_char(u.path, '/', 2);
        if (end == STR_NONE) end = u.path.n;
        u.authority = str_sub(u.path, 0, end);
        u.path = str_from(u.path, end);
    }
    return u;
}

/* "." and ".." in a path. */
static void put_path(struct sb *out, struct str path) {
    size_t floor = out->n;
    struct str part, rest = path;
    bool first = true, ends_open = false;
    while (str_split_next(&rest, '/', &part)) {
        ends_open = false;
        if (str_is(part, ".")) {
            ends_open = true;
        } else if (str_is(part, "..")) {
            while (out->n > floor && out->p[out->n - 1] != '/') out->n--;
            if (out->n > floor) out->n--;
            while (out->n > floor && out->p[out->n - 1] != '/') out->n--;
            if (out->n > floor) out->n--;
            ends_open = true;
        } else {
            if (!first) sb_putc(out, '/');
            sb_put(out, part);
        }
        first = false;
    }
    if (ends_open) sb_putc(out, '/');
}

/* ref relative to base, both without fragments. */
static struct str resolve_uri(struct schema *s, struct str base, struct str ref) {
    struct uri b = split_uri(base), r = split_uri(ref);
    struct sb out = {0};
    if (ref.n == 0) return base;
    if (r.scheme.n) {
        sb_put(&out, ref);
    } else {
        sb_put(&out, b.scheme);
        sb_put(&out, r.authority.n ? r.authority : b.authority);
        if (r.authority.n || str_starts(r.path, STR("/"))) {
            put_path(&out, r.path);
        } else {
            size_t cut = b.path.n;
            while (cut && b.path.p[cut - 1] != '/') cut--;
            struct sb path = {0};
            sb_put(&path, str_sub(b.path, 0, cut));
            sb_put(&path, r.path);
            put_path(&out, sb_str(&path));
            sb_free(&path);
        }
    }
    struct str result = str_copy(&s->a, sb_str(&out));
    sb_free(&out);
    return result;
}

static struct str cut_fragment(struct str uri, struct str *out_fragment) {
    size_t hash = str_find_char(uri, '#', 0);
    *out_fragment = hash == STR_NONE ? STR("") : str_from(uri, hash + 1);
    return hash == STR_NONE ? uri : str_sub(uri, 0, hash);
}

/* ---- the index of all nodes -------------------------------------------------------------------------------------------- */

enum shape { SHAPE_ONE, SHAPE_LIST, SHAPE_MAP };

static const struct {
    const char *name;
    enum shape shape;
} holders[] = {
    {"additionalProperties", SHAPE_ONE},
    {"additionalItems", SHAPE_ONE},
    {"items", SHAPE_ONE},
    {"contains", SHAPE_ONE},
    {"propertyNames", SHAPE_ONE},
    {"not", SHAPE_ONE},
    {"if", SHAPE_ONE},
    {"then", SHAPE_ONE},
    {"else", SHAPE_ONE},
    {"unevaluatedItems", SHAPE_ONE},
    {"unevaluatedProperties", SHAPE_ONE},
    {"allOf", SHAPE_LIST},
    {"anyOf", SHAPE_LIST},
    {"oneOf", SHAPE_LIST},
    {"prefixItems", SHAPE_LIST},
    {"items", SHAPE_LIST},
    {"properties", SHAPE_MAP},
    {"patternProperties", SHAPE_MAP},
    {"definitions", SHAPE_MAP},
    {"$defs", SHAPE_MAP},
    {"dependentSchemas", SHAPE_MAP},
    {"dependencies", SHAPE_MAP},
};

static void register_anchor(struct schema *s, uint32_t node, struct str name, bool is_dynamic) {
    struct str key = str_fmt(&s->a, "%.*s#%.*s", (int)s->nodes[node].base.n, s->nodes[node].base.p, (int)name.n, name.p);
    bool is_new;
    struct map_entry *e = map_put(&s->by_uri, key, &is_new);
    if (is_new) e->value.i = node;
    if (is_dynamic) map_put(&s->dynamic_anchors, name, NULL)->value.i++;
}

static void register_id(struct schema *s, uint32_t node) {
    yyjson_val *v = s->nodes[node].v;
    struct str id = json_val_str(json_get(v, s->draft == GRAM_DRAFT_4 ? "id" : "$id")), fragment;
    if (id.p && !(is_bare_ref(s, v) && s->nodes[node].parent != PROG_NONE)) {
        struct str document = cut_fragment(id, &fragment);
        if (document.n) {
            s->nodes[node].base = resolve_uri(s, s->nodes[node].base, document);
            bool is_new;
            struct map_entry *e = map_put(&s->by_uri, s->nodes[node].base, &is_new);
            if (is_new) e->value.i = node;
        }
        if (fragment.n && fragment.p[0] != '/' && s->draft <= GRAM_DRAFT_7) register_anchor(s, node, str_copy(&s->a, fragment), false);
    }
    struct str anchor = json_val_str(json_get(v, "$anchor"));
    if (anchor.p && s->draft >= GRAM_DRAFT_2019) register_anchor(s, node, anchor, false);
    anchor = json_val_str(json_get(v, "$dynamicAnchor"));
    if (anchor.p && s->draft >= GRAM_DRAFT_2020) register_anchor(s, node, anchor, true);
}

static void index_node(struct schema *s, uint32_t node);

static void index_holder(struct schema *s, uint32_t node, const char *name, enum shape shape, yyjson_val *held) {
    size_t i, n;
    yyjson_val *item, *key;
    if (shape == SHAPE_ONE && yyjson_is_obj(held)) index_node(s, schema_child(s, node, name, held));
    if (shape == SHAPE_LIST && yyjson_is_arr(held)) yyjson_arr_foreach(held, i, n, item) index_node(s, schema_item(s, node, name, i, item));
    if (shape == SHAPE_MAP && yyjson_is_obj(held)) yyjson_obj_foreach(held, i, n, key, item) {
            if (yyjson_is_obj(item)) index_node(s, schema_grandchild(s, node, name, json_val_str(key), item));
        }
}

static void index_node(struct schema *s, uint32_t node) {
    yyjson_val *v = s->nodes[node].v;
    if (!yyjson_is_obj(v)) return;
    register_id(s, node);
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        yyjson_val *held = json_get(v, holders[i].name);
        if (held) index_holder(s, node, holders[i].name, holders[i].shape, held);
    }
}

/* ---- references -------------------------------------------------------------------------------------------------------- */

/* One part of a JSON pointer inside a fragment: %xx, ~0 and ~1 undone. */
static struct str unescape_part(struct schema *s, struct str part) {
    struct sb b = {0};
    for (size_t i = 0; i < part.n; i++) {
        char c = part.p[i];
        int64_t code;
        if (c == '%' && i + 2 < part.n) {
            char hex[3] = {part.p[i + 1], part.p[i + 2], 0};
            code = 0;
            for (int k = 0; k < 2; k++) {
                char h = hex[k];
                int digit = h >= '0' && h <= '9' ? h - '0' : (h | 0x20) >= 'a' && (h | 0x20) <= 'f' ? (h | 0x20) - 'a' + 10 : -1;
                code = digit < 0 || code < 0 ? -1 : code * 16 + digit;
            }
            if (code >= 0) {
                c = (char)code;
                i += 2;
            }
        }
        sb_putc(&b, c);
    }
    struct sb out = {0};
    for (size_t i = 0; i < b.n; i++) {
        if (b.p[i] == '~' && i + 1 < b.n && (b.p[i + 1] == '0' || b.p[i + 1] == '1')) sb_putc(&out, b.p[++i] == '0' ? '~' : '/');
        else sb_putc(&out, b.p[i]);
    }
    struct str result = str_copy(&s->a, sb_str(&out));
    sb_free(&b);
    sb_free(&out);
    return result;
}

static uint32_t follow_pointer(struct schema *s, uint32_t from, struct str pointer) {
    yyjson_val *v = s->nodes[from].v;
    uint32_t nearest = from; /* the last node on the way that has a place */
    struct str rest = str_from(pointer, 1), raw, path = {pointer.p, 0};
    while (str_split_next(&rest, '/', &raw)) {
        struct str part = unescape_part(s, raw);
        int64_t i;
        if (yyjson_is_obj(v)) v = yyjson_obj_getn(v, part.p, part.n);
        else if (yyjson_is_arr(v) && str_to_int64(part, &i) && i >= 0) v = yyjson_arr_get(v, (size_t)i);
        else v = NULL;
        if (!v) return PROG_NONE;
        path.n = (size_t)(raw.p + raw.n - pointer.p);
        if (known_node(s, v) != UINT32_MAX) nearest = known_node(s, v);
    }
    if (s->nodes[nearest].v == v) return nearest;
    return schema_node(s, SNODE_SCHEMA, v, from, str_copy(&s->a, str_from(path, 1)));
}

static bool find_uri(struct schema *s, struct str uri, uint32_t *out) {
    struct map_entry *e = map_find(&s->by_uri, uri);
    if (e) *out = (uint32_t)e->value.i;
    return e != NULL;
}

uint32_t schema_ref(struct schema *s, uint32_t node, struct str ref) {
    struct str fragment, document = cut_fragment(ref, &fragment);
    struct str uri = resolve_uri(s, s->nodes[node].base, document);
    uint32_t at = s->root, found = PROG_NONE;
    if (!find_uri(s, uri, &at) && uri.n) {
        schema_fail(s, node, ERR_EUNSUPPORTED, "$ref \"%.*s\" leads out of the schema", STR_ARG(str_sub(ref, 0, 100)));
        return PROG_NONE;
    }
    if (fragment.n == 0) found = at;
    else if (fragment.p[0] == '/') found = follow_pointer(s, at, fragment);
    else if (!find_uri(s, str_fmt(&s->a, "%.*s#%.*s", (int)uri.n, uri.p, (int)fragment.n, fragment.p), &found)) found = PROG_NONE;
    if (found == PROG_NONE && fragment.n && fragment.p[0] == '/' && document.n == 0) found = follow_pointer(s, s->root, fragment);
    if (found == PROG_NONE) schema_fail(s, node, ERR_EARG, "$ref \"%.*s\" leads nowhere", STR_ARG(str_sub(ref, 0, 100)));
    else if (!yyjson_is_obj(s->nodes[found].v) && !yyjson_is_bool(s->nodes[found].v)) {
        schema_fail(s, node, ERR_EARG, "$ref \"%.*s\" does not lead to a schema", STR_ARG(str_sub(ref, 0, 100)));
        return PROG_NONE;
    }
    return found;
}

uint32_t schema_target(struct schema *s, uint32_t node, const char *keyword, yyjson_val *ref) {
    struct str text = json_val_str(ref), fragment;
    if (!text.p) {
        schema_fail(s, node, ERR_EARG, "%s must be a string", keyword);
        return PROG_NONE;
    }
    cut_fragment(text, &fragment);
    bool is_dynamic = strcmp(keyword, "$dynamicRef") == 0 && map_get_int(&s->dynamic_anchors, fragment, 0) > 1;
    if (strcmp(keyword, "$recursiveRef") == 0) is_dynamic = s->by_uri.n > 1;
    if (is_dynamic) {
        schema_fail(s, node, ERR_EUNSUPPORTED, "%s \"%.*s\" depends on how it is reached and is not supported", keyword,
                    STR_ARG(str_sub(text, 0, 80)));
        return PROG_NONE;
    }
    return schema_ref(s, node, text);
}

uint32_t schema_same(struct schema *s, uint32_t node) {
    uint32_t at = node;
    for (int steps = 0; s->nodes[at].same == PROG_NONE && !s->code; steps++) {
        yyjson_val *v = s->nodes[at].v, *ref = s->nodes[at].kind == SNODE_SCHEMA ? json_get(v, "$ref") : NULL;
        bool is_plain = yyjson_is_str(ref) && (s->draft <= GRAM_DRAFT_7 || yyjson_obj_size(v) == 1);
        if (!is_plain) {
            s->nodes[at].same = at;
        } else if (steps > 100) {
            schema_fail(s, node, ERR_EARG, "the schema refers to itself without end");
        } else {
            uint32_t next = schema_target(s, at, "$ref", ref);
            if (next == PROG_NONE) break;
            at = next;
        }
    }
    if (s->code) return node;
    return s->nodes[node].same = s->nodes[at].same;
}

int schema_load(struct schema *s, struct str text) {
    if (json_depth(text) > MAX_DEPTH) return err_set(s->err, ERR_ELIMIT, "the schema is nested deeper than %d levels", (int)MAX_DEPTH);
    TRY(json_parse(&s->a, text, "schema", JSON_RAW_NUMBERS, &s->root_value, s->err));
    s->node_keys.size = sizeof(struct node_key);
    s->root = schema_node(s, SNODE_SCHEMA, s->root_value, PROG_NONE, STR(""));
    if (!yyjson_is_obj(s->root_value) && !yyjson_is_bool(s->root_value))
        return schema_fail(s, s->root, ERR_EARG, "a schema is an object or a boolean");
    TRY(find_draft(s));
    map_put(&s->by_uri, STR(""), NULL)->value.i = s->root;
    index_node(s, s->root);
    return s->code;
}
