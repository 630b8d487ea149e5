/* The keywords of objects and arrays as facts, and the facts that break them. */
#include "text/grammar/schema_unfold.h"

#include "text/grammar/regex.h"

#include <stdio.h>

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static const struct pred *pred_name(struct schema *s, struct str name) {
    struct pred *p = arena_new(&s->a, struct pred, 1);
    *p = (struct pred){.kind = PRED_NAME, .name = name};
    return p;
}

static const struct pred *pred_set(struct schema *s, dfa_id set) {
    struct pred *p = arena_new(&s->a, struct pred, 1);
    *p = (struct pred){.kind = PRED_SET, .set = set};
    return p;
}

static const struct pred_list *list_put(struct schema *s, const struct pred_list *list, const struct pred *p) {
    struct pred_list *l = arena_new(&s->a, struct pred_list, 1);
    *l = (struct pred_list){p, list};
    return l;
}

static const struct pred *pred_rest(struct schema *s, const struct pred_list *of) {
    struct pred *p = arena_new(&s->a, struct pred, 1);
    *p = (struct pred){.kind = PRED_REST, .of = of};
    return p;
}

dfa_id schema_strings_dfa(struct schema *s, uint32_t node, struct strset set) {
    dfa_id all = DFA_NONE;
    for (size_t i = 0; i < set.n; i++) {
        dfa_id d = set.terms[i].dfa;
        uint32_t min = set.terms[i].min, max = set.terms[i].max;
        if (min || max != STR_LONG) {
            char pattern[64];
            if (min > 2000 || (max > 2000 && max != STR_LONG)) {
                schema_fail(s, node, ERR_ELIMIT, "strings of more than 2000 characters are not supported here");
                return DFA_NONE;
            }
            if (max == STR_LONG) snprintf(pattern, sizeof pattern, "(?s).{%u,}", min);
            else snprintf(pattern, sizeof pattern, "(?s).{%u,%u}", min, max);
            d = dfa_and(&s->g->pool, d, regex_known(&s->g->pool, pattern));
        }
        all = dfa_or(&s->g->pool, all, d);
    }
    return all;
}

/* Names that the schema of propertyNames does not take. */
static const struct pred *bad_names(struct schema *s, uint32_t names) {
    dfa_id good = schema_strings_dfa(s, names, schema_scalars(s, names)->strings);
    return pred_set(s, dfa_minus(&s->g->pool, s->strings.any, good));
}

static bool need_object(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v) {
    if (v && !yyjson_is_obj(v)) schema_fail(s, node, ERR_EARG, "%s must be an object", keyword);
    return v && !s->code;
}

static bool need_list(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v) {
    if (v && !yyjson_is_arr(v)) schema_fail(s, node, ERR_EARG, "%s must be a list", keyword);
    return v && !s->code;
}

static struct str need_name(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v) {
    struct str name = json_val_str(v);
    if (!name.p) schema_fail(s, node, ERR_EARG, "%s must list strings", keyword);
    return name.p ? name : STR("");
}

/* ---- what a schema says of members by their names ------------------------------------------------------------------------ */

/* Calls back for each rule of properties, patternProperties, additionalProperties: names and the schema of their values. */
typedef void rule_fn(struct unfolding *u, void *to, const struct pred *p, uint32_t child);

static void each_rule(struct unfolding *u, uint32_t node, rule_fn *fn, void *to) {
    struct schema *s = u->s;
    yyjson_val *properties = schema_keyword(s, node, "properties"), *patterns = schema_keyword(s, node, "patternProperties");
    yyjson_val *additional = schema_keyword(s, node, "additionalProperties"), *key, *v;
    const struct pred_list *named = NULL;
    size_t i, n;
    if (need_object(s, node, "properties", properties)) yyjson_obj_foreach(properties, i, n, key, v) {
            const struct pred *p = pred_name(s, json_val_str(key));
            named = list_put(s, named, p);
            fn(u, to, p, schema_grandchild(s, node, "properties", p->name, v));
        }
    if (need_object(s, node, "patternProperties", patterns)) yyjson_obj_foreach(patterns, i, n, key, v) {
            const struct pred *p = pred_set(s, schema_pattern(s, node, json_val_str(key)));
            named = list_put(s, named, p);
            fn(u, to, p, schema_grandchild(s, node, "patternProperties", json_val_str(key), v));
        }
    if (additional) fn(u, to, pred_rest(s, named), schema_child(s, node, "additionalProperties", additional));
}

struct rule_target {
    struct branch *b;
    const struct collector *scope;
};

static void add_rule(struct unfolding *u, void *to, const struct pred *p, uint32_t child) {
    struct rule_target *t = to;
    gram_branch_fact(u, t->b, (struct fact){.kind = FACT_EVERY, .lit = lit(child, false), .pred = p});
    gram_branch_collect(u, t->b, t->scope, p, 0);
}

static void break_rule(struct unfolding *u, void *to, const struct pred *p, uint32_t child) {
    struct fact f = {.kind = FACT_SOME, .lit = lit(child, true), .pred = p};
    if (p->kind == PRED_NAME) f = (struct fact){.kind = FACT_HAS, .lit = lit(child, true), .name = p->name};
    gram_way_add(u, to, gram_facts_put(u->s, NULL, f));
}

static struct fact has(struct str name) {
    return (struct fact){.kind = FACT_HAS, .lit = LIT_TRUE, .name = name};
}

static struct fact lacks(struct str name) {
    return (struct fact){.kind = FACT_LACKS, .name = name};
}

/* ---- dependencies ------------------------------------------------------------------------------------------------------ */

static void depend_on_names(struct unfolding *u, struct branch *b, uint32_t node, struct str name, yyjson_val *list) {
    struct schema *s = u->s;
    struct ways w = {0};
    const struct facts *all = gram_facts_put(s, NULL, has(name));
    for (size_t i = 0; i < yyjson_arr_size(list); i++)
        all = gram_facts_put(s, all, has(need_name(s, node, "dependencies", yyjson_arr_get(list, i))));
    gram_way_add(u, &w, gram_facts_put(s, NULL, lacks(name)));
    gram_way_add(u, &w, all);
    if (yyjson_arr_size(list)) gram_branch_choice(u, b, &w);
}

static void depend_on_schema(struct unfolding *u, struct branch *b, uint32_t child, struct str name, const struct collector *scope) {
    struct schema *s = u->s;
    struct ways w = {0};
    gram_way_add(u, &w, gram_facts_put(s, NULL, lacks(name)));
    gram_way_add(u, &w, gram_facts_literal(s, gram_facts_put(s, NULL, has(name)), lit(child, false), scope));
    if (schema_asserts(s, child)) gram_branch_choice(u, b, &w);
}

static const char *const dependencies[] = {"dependencies", "dependentRequired", "dependentSchemas"};

/* `dependencies` belongs to draft 7 and before. Without a draft it is not clear whether it is meant: refused. */
static yyjson_val *dependency_map(struct schema *s, uint32_t node, size_t i) {
    yyjson_val *map = schema_keyword(s, node, dependencies[i]);
    if (!need_object(s, node, dependencies[i], map)) return NULL;
    if (i == 0 && !s->names_draft)
        schema_fail(
            s, node, ERR_EUNSUPPORTED,
            "dependencies belongs to draft 7, and the schema names no draft: add $schema, or write dependentRequired or dependentSchemas");
    return map;
}

static void apply_dependencies(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    struct schema *s = u->s;
    for (size_t k = 0; k < 3; k++) {
        yyjson_val *map = dependency_map(s, node, k), *key, *v;
        size_t i, n;
        if (map) yyjson_obj_foreach(map, i, n, key, v) {
                struct str name = json_val_str(key);
                if (yyjson_is_arr(v)) depend_on_names(u, b, node, name, v);
                else if (yyjson_is_str(v)) schema_fail(s, node, ERR_EARG, "%s must hold lists or schemas", dependencies[k]);
                else depend_on_schema(u, b, schema_grandchild(s, node, dependencies[k], name, v), name, scope);
            }
    }
}

static void break_dependencies(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    for (size_t k = 0; k < 3; k++) {
        yyjson_val *map = dependency_map(s, node, k), *key, *v;
        size_t i, n;
        if (map) yyjson_obj_foreach(map, i, n, key, v) {
                const struct facts *present = gram_facts_put(s, NULL, has(json_val_str(key)));
                for (size_t j = 0; yyjson_is_arr(v) && j < yyjson_arr_size(v); j++)
                    gram_way_add(u, w, gram_facts_put(s, present, lacks(need_name(s, node, dependencies[k], yyjson_arr_get(v, j)))));
                if (!yyjson_is_arr(v)) {
                    uint32_t child = schema_grandchild(s, node, dependencies[k], json_val_str(key), v);
                    gram_way_add(u, w, gram_facts_literal(s, present, lit(child, true), NULL));
                }
            }
    }
}

/* ---- objects ----------------------------------------------------------------------------------------------------------- */

static struct fact counted(enum fact_kind kind, uint32_t n) {
    return (struct fact){.kind = kind, .n = n};
}

void gram_object_keywords(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    struct schema *s = u->s;
    struct rule_target to = {b, scope};
    yyjson_val *required = schema_keyword(s, node, "required"), *names = schema_keyword(s, node, "propertyNames");
    uint32_t n;
    each_rule(u, node, add_rule, &to);
    if (need_list(s, node, "required", required))
        for (size_t i = 0; i < yyjson_arr_size(required); i++)
            gram_branch_fact(u, b, has(need_name(s, node, "required", yyjson_arr_get(required, i))));
    if (names) {
        uint32_t child = schema_child(s, node, "propertyNames", names);
        if (schema_asserts(s, child))
            gram_branch_fact(u, b, (struct fact){.kind = FACT_EVERY, .lit = LIT_FALSE, .pred = bad_names(s, child)});
    }
    if (schema_size(s, node, "minProperties", &n)) gram_branch_fact(u, b, counted(FACT_MIN_MEMBERS, n));
    if (schema_size(s, node, "maxProperties", &n)) gram_branch_fact(u, b, counted(FACT_MAX_MEMBERS, n));
    apply_dependencies(u, b, node, scope);
}

void gram_object_break(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *required = schema_keyword(s, node, "required"), *names = schema_keyword(s, node, "propertyNames");
    uint32_t n;
    if (need_list(s, node, "required", required))
        for (size_t i = 0; i < yyjson_arr_size(required); i++)
            gram_way_add(u, w, gram_facts_put(s, NULL, lacks(need_name(s, node, "required", yyjson_arr_get(required, i)))));
    each_rule(u, node, break_rule, w);
    if (names) {
        const struct pred *bad = bad_names(s, schema_child(s, node, "propertyNames", names));
        if (bad->set != DFA_NONE)
            gram_way_add(u, w, gram_facts_put(s, NULL, (struct fact){.kind = FACT_SOME, .lit = LIT_TRUE, .pred = bad}));
    }
    if (schema_size(s, node, "minProperties", &n) && n) gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MAX_MEMBERS, n - 1)));
    if (schema_size(s, node, "maxProperties", &n)) gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MIN_MEMBERS, n + 1)));
    break_dependencies(u, w, node);
}

void gram_object_equals(struct unfolding *u, struct branch *b, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *value = s->nodes[node].v, *key, *v;
    const struct pred_list *named = NULL;
    size_t i, n;
    yyjson_obj_foreach(value, i, n, key, v) {
        struct str name = json_val_str(key);
        named = list_put(s, named, pred_name(s, name));
        gram_branch_fact(u, b,
                         (struct fact){.kind = FACT_HAS, .lit = lit(schema_node(s, SNODE_VALUE, v, node, name), false), .name = name});
    }
    gram_branch_fact(u, b, (struct fact){.kind = FACT_EVERY, .lit = LIT_FALSE, .pred = pred_rest(s, named)});
}

void gram_object_differs(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *value = s->nodes[node].v, *key, *v;
    const struct pred_list *named = NULL;
    size_t i, n;
    yyjson_obj_foreach(value, i, n, key, v) {
        struct str name = json_val_str(key);
        named = list_put(s, named, pred_name(s, name));
        gram_way_add(u, w, gram_facts_put(s, NULL, lacks(name)));
        struct fact other = {.kind = FACT_HAS, .lit = lit(schema_node(s, SNODE_VALUE, v, node, name), true), .name = name};
        gram_way_add(u, w, gram_facts_put(s, NULL, other));
    }
    gram_way_add(u, w, gram_facts_put(s, NULL, (struct fact){.kind = FACT_SOME, .lit = LIT_TRUE, .pred = pred_rest(s, named)}));
}

/* ---- arrays ------------------------------------------------------------------------------------------------------------ */

/* Where a schema has its schemas of single items and of the rest, by draft. */
struct item_places {
    const char *prefix_keyword, *rest_keyword;
    yyjson_val *prefix, *rest;
};

static struct item_places find_items(struct schema *s, uint32_t node) {
    struct item_places p = {0};
    yyjson_val *items = schema_keyword(s, node, "items"), *prefix = schema_keyword(s, node, "prefixItems");
    bool is_tuple = yyjson_is_arr(items);
    if (is_tuple && s->draft == GRAM_DRAFT_2020 && s->names_draft)
        schema_fail(s, node, ERR_EARG, "items must be a schema; for a list, write prefixItems");
    if (is_tuple) {
        p = (struct item_places){"items", "additionalItems", items, schema_keyword(s, node, "additionalItems")};
    } else {
        p = (struct item_places){"prefixItems", "items", prefix, items};
        need_list(s, node, "prefixItems", prefix);
    }
    return p;
}

static bool contains_counts(struct schema *s, uint32_t node, uint32_t *min, uint32_t *max) {
    *min = 1;
    *max = PROG_MANY;
    schema_size(s, node, "minContains", min);
    schema_size(s, node, "maxContains", max);
    return schema_keyword(s, node, "contains") != NULL;
}

static literal contained(struct schema *s, uint32_t node, bool negated) {
    return lit(schema_child(s, node, "contains", schema_keyword(s, node, "contains")), negated);
}

static struct fact items_fact(enum fact_kind kind, uint32_t n, literal l) {
    return (struct fact){.kind = kind, .n = n, .lit = l};
}

void gram_array_keywords(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    struct schema *s = u->s;
    struct item_places p = find_items(s, node);
    uint32_t n, n2, n_prefix = (uint32_t)yyjson_arr_size(p.prefix);
    for (uint32_t i = 0; i < n_prefix; i++)
        gram_branch_fact(u, b,
                         items_fact(FACT_ITEM_IF, i, lit(schema_item(s, node, p.prefix_keyword, i, yyjson_arr_get(p.prefix, i)), false)));
    if (p.rest) gram_branch_fact(u, b, items_fact(FACT_ITEMS_FROM, n_prefix, lit(schema_child(s, node, p.rest_keyword, p.rest), false)));
    gram_branch_collect(u, b, scope, NULL, p.rest ? UINT32_MAX : n_prefix);
    if (schema_size(s, node, "minItems", &n)) gram_branch_fact(u, b, counted(FACT_MIN_ITEMS, n));
    if (schema_size(s, node, "maxItems", &n)) gram_branch_fact(u, b, counted(FACT_MAX_ITEMS, n));
    if (yyjson_is_true(schema_keyword(s, node, "uniqueItems"))) gram_branch_fact(u, b, (struct fact){.kind = FACT_UNIQUE});
    if (!contains_counts(s, node, &n, &n2)) return;
    if (scope && s->draft == GRAM_DRAFT_2020)
        schema_fail(s, node, ERR_EUNSUPPORTED, "contains together with unevaluatedItems is not supported");
    struct fact f = {.kind = FACT_COUNT_ITEMS, .n = n, .n2 = n2, .lit = contained(s, node, false)};
    if (n || n2 != PROG_MANY) gram_branch_fact(u, b, f);
}

void gram_array_break(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    struct item_places p = find_items(s, node);
    uint32_t n, n2, n_prefix = (uint32_t)yyjson_arr_size(p.prefix);
    for (uint32_t i = 0; i < n_prefix; i++) {
        uint32_t child = schema_item(s, node, p.prefix_keyword, i, yyjson_arr_get(p.prefix, i));
        gram_way_add(u, w, gram_facts_put(s, NULL, items_fact(FACT_ITEM, i, lit(child, true))));
    }
    if (p.rest)
        gram_way_add(
            u, w, gram_facts_put(s, NULL, items_fact(FACT_SOME_ITEM, n_prefix, lit(schema_child(s, node, p.rest_keyword, p.rest), true))));
    if (schema_size(s, node, "minItems", &n) && n) gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MAX_ITEMS, n - 1)));
    if (schema_size(s, node, "maxItems", &n)) gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MIN_ITEMS, n + 1)));
    if (yyjson_is_true(schema_keyword(s, node, "uniqueItems")))
        schema_fail(s, node, ERR_EUNSUPPORTED, "uniqueItems is not supported where it is negated (not, oneOf, if)");
    if (!contains_counts(s, node, &n, &n2)) return;
    if (n == 1) gram_way_add(u, w, gram_facts_put(s, NULL, items_fact(FACT_ITEMS_FROM, 0, contained(s, node, true))));
    if (n > 1)
        gram_way_add(u, w, gram_facts_put(s, NULL, (struct fact){.kind = FACT_COUNT_ITEMS, .n2 = n - 1, .lit = contained(s, node, false)}));
    if (n2 != PROG_MANY)
        gram_way_add(u, w,
                     gram_facts_put(
                         s, NULL, (struct fact){.kind = FACT_COUNT_ITEMS, .n = n2 + 1, .n2 = PROG_MANY, .lit = contained(s, node, false)}));
}

void gram_array_equals(struct unfolding *u, struct branch *b, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *value = s->nodes[node].v;
    uint32_t n = (uint32_t)yyjson_arr_size(value);
    for (uint32_t i = 0; i < n; i++)
        gram_branch_fact(u, b,
                         items_fact(FACT_ITEM_IF, i, lit(schema_node(s, SNODE_VALUE, yyjson_arr_get(value, i), node, STR("")), false)));
    gram_branch_fact(u, b, counted(FACT_MIN_ITEMS, n));
    gram_branch_fact(u, b, counted(FACT_MAX_ITEMS, n));
}

void gram_array_differs(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *value = s->nodes[node].v;
    uint32_t n = (uint32_t)yyjson_arr_size(value);
    for (uint32_t i = 0; i < n; i++)
        gram_way_add(
            u, w,
            gram_facts_put(s, NULL,
                           items_fact(FACT_ITEM, i, lit(schema_node(s, SNODE_VALUE, yyjson_arr_get(value, i), node, STR("")), true))));
    if (n) gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MAX_ITEMS, n - 1)));
    gram_way_add(u, w, gram_facts_put(s, NULL, counted(FACT_MIN_ITEMS, n + 1)));
}
