/* Types from a schema. Only what decides between a string and something else is read; grammars read the rest. */
#include "text/output/typed.h"

enum { SCHEMA_STEPS = 64 }; /* that one question may take: references and alternatives can be nested */

const struct output_tool *typed_tool(struct output_tools tools, struct str name) {
    for (size_t i = 0; i < tools.n; i++)
        if (str_eq(tools.p[i].name, name)) return &tools.p[i];
    return NULL;
}

static yyjson_val *get(yyjson_val *obj, struct str key) {
    return yyjson_is_obj(obj) ? yyjson_obj_getn(obj, key.p, key.n) : NULL;
}

/* "#/$defs/name" inside the root; NULL for references to elsewhere. */
static yyjson_val *refer(struct typed t, struct str ref) {
    if (!str_starts(ref, STR("#"))) return NULL;
    if (ref.n == 1) return t.root;
    struct str path = str_from(ref, 1);
    if (path.n > 512 || !str_starts(path, STR("/"))) return NULL;
    char pointer[513];
    memcpy(pointer, path.p, path.n);
    return yyjson_ptr_getn(t.root, pointer, path.n);
}

static yyjson_val *resolve(struct typed t, int *steps) {
    struct str ref;
    while (++*steps < SCHEMA_STEPS && (ref = json_str(t.schema, "$ref", (struct str){0})).p) t.schema = refer(t, ref);
    return t.schema;
}

struct typed typed_resolve(struct typed t) {
    int steps = 0;
    return (struct typed){resolve(t, &steps), t.root};
}

static const char *const unions[] = {"anyOf", "oneOf", "allOf"};

typedef yyjson_val *part_fn(yyjson_val *schema, struct str key);

/* The first part that the schema itself or one of its alternatives has. */
static yyjson_val *find_part(struct typed t, part_fn *part, struct str key, int *steps) {
    t.schema = resolve(t, steps);
    yyjson_val *found = part(t.schema, key), *item;
    size_t i, n;
    for (size_t k = 0; !found && k < 3; k++) {
        yyjson_val *list = json_get(t.schema, unions[k]);
        if (yyjson_is_arr(list)) yyjson_arr_foreach(list, i, n, item) {
                if (found || ++*steps > SCHEMA_STEPS) break;
                found = find_part((struct typed){item, t.root}, part, key, steps);
            }
    }
    return found;
}

static yyjson_val *member_part(yyjson_val *schema, struct str key) {
    yyjson_val *own = get(json_get(schema, "properties"), key), *others = json_get(schema, "additionalProperties");
    return own ? own : yyjson_is_obj(others) ? others : NULL;
}

static yyjson_val *item_part(yyjson_val *schema, struct str key) {
    (void)key;
    yyjson_val *items = json_get(schema, "items");
    return yyjson_is_obj(items) ? items : NULL;
}

struct typed typed_member(struct typed t, struct str key) {
    int steps = 0;
    return (struct typed){find_part(t, member_part, key, &steps), t.root};
}

struct typed typed_item(struct typed t) {
    int steps = 0;
    return (struct typed){find_part(t, item_part, (struct str){0}, &steps), t.root};
}

bool typed_requires_any(struct typed t) {
    int steps = 0;
    return yyjson_arr_size(json_get(resolve(t, &steps), "required")) > 0;
}

unsigned typed_named(struct str name) {
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"string", VALUE_STRING}, {"integer", VALUE_NUMBER}, {"number", VALUE_NUMBER}, {"boolean", VALUE_BOOL},
                 {"null", VALUE_NULL},     {"array", VALUE_ARRAY},    {"object", VALUE_OBJECT}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(name, names[i].name)) return names[i].type;
    return 0;
}

static unsigned type_of(yyjson_val *v) {
    if (yyjson_is_str(v)) return VALUE_STRING;
    if (yyjson_is_num(v)) return VALUE_NUMBER;
    if (yyjson_is_bool(v)) return VALUE_BOOL;
    if (yyjson_is_arr(v)) return VALUE_ARRAY;
    return yyjson_is_obj(v) ? VALUE_OBJECT : VALUE_NULL;
}

static unsigned own_types(yyjson_val *schema) {
    yyjson_val *type = json_get(schema, "type"), *values = json_get(schema, "enum"), *only = json_get(schema, "const"), *item;
    unsigned types = yyjson_is_str(type) ? typed_named(json_val_str(type)) : 0;
    size_t i, n;
    if (yyjson_is_arr(type)) yyjson_arr_foreach(type, i, n, item) types |= typed_named(json_val_str(item));
    if (!types && yyjson_is_arr(values)) yyjson_arr_foreach(values, i, n, item) types |= type_of(item);
    if (!types && only) types = type_of(only);
    if (types && json_bool(schema, "nullable", false)) types |= VALUE_NULL;
    return types;
}

static unsigned find_types(struct typed t, int *steps) {
    t.schema = resolve(t, steps);
    unsigned types = own_types(t.schema);
    yyjson_val *item;
    size_t i, n;
    for (size_t k = 0; !types && k < 3; k++) {
        yyjson_val *list = json_get(t.schema, unions[k]);
        if (yyjson_is_arr(list)) yyjson_arr_foreach(list, i, n, item) {
                if (++*steps > SCHEMA_STEPS) break;
                types |= find_types((struct typed){item, t.root}, steps);
            }
    }
    return types;
}

unsigned typed_types(struct typed t) {
    int steps = 0;
    return find_types(t, &steps);
}

static void put_string(struct sb *out, struct str text) {
    sb_putc(out, '"');
    for (size_t i = 0; i < text.n; i++) value_reader_put_char(out, text.p[i]);
    sb_putc(out, '"');
}

void typed_put(struct sb *out, struct str text, unsigned types) {
    struct sb json = {0};
    enum value_type type = VALUE_NONE;
    bool has_meaning = types != VALUE_STRING && value_reader_read(text, VALUE_JSON, &json, &type);
    if (!has_meaning && types & ~(unsigned)VALUE_STRING) {
        sb_clear(&json);
        has_meaning = value_reader_read(text, VALUE_PYTHON, &json, &type) && type != VALUE_STRING;
    }
    if (has_meaning && types & VALUE_STRING) has_meaning = (types & type) != 0 && type != VALUE_STRING;
    if (has_meaning) sb_put(out, sb_str(&json));
    else if (!str_trim(text).n && types == VALUE_ARRAY) sb_puts(out, "[]");
    else if (!str_trim(text).n && types == VALUE_OBJECT) sb_puts(out, "{}");
    else put_string(out, text);
    sb_free(&json);
}
