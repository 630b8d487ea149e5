/* Compiling: the front ends by kind, and the life of a compiled grammar. */
#include "text/grammar/front.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema.h"

enum { DEFAULT_SPACE = 40, DEFAULT_TEXT_BYTES = 1 << 20 };
#define DEFAULT_WORK UINT64_C(50000000)

struct gram_options gram_defaults(void) {
    return (struct gram_options){.space = DEFAULT_SPACE, .max_text_bytes = DEFAULT_TEXT_BYTES, .max_work = DEFAULT_WORK};
}

struct gram_options gram_judging(void) {
    struct gram_options o = gram_defaults();
    o.space = GRAM_SPACE_ANY;
    o.outer_space = o.any_order = o.any_escape = o.draft_formats = true;
    return o;
}

/* ---- schemas ----------------------------------------------------------------------------------------------------------- */

static void schema_free(struct schema *s) {
    gram_records_free(&s->node_keys);
    gram_records_free(&s->strings_known);
    gram_lists_free(&s->goal_keys);
    gram_lists_free(&s->maybe_keys);
    map_free(&s->warned);
    map_free(&s->by_uri);
    map_free(&s->dynamic_anchors);
    map_free(&s->patterns);
    map_free(&s->formats);
    arena_free(&s->a);
}

static struct schema schema_begin(struct gram *g, struct sb *warnings, struct err *err) {
    struct schema s = {.g = g, .warnings = warnings, .draft = g->options.draft, .err = err};
    s.strings_known.size = sizeof(struct strterm);
    s.first_goal = g->n_goals;
    s.first_string = g->n_strings;
    return s;
}

static void find_sets(struct schema *s) {
    numbers_init(&s->numbers, &s->g->pool);
    gram_strings_init(&s->strings, &s->a, &s->g->pool);
    s->g->any_string = s->strings.any;
}

int gram_schema_compile(struct gram *g, struct str text, struct sb *warnings, uint32_t *out_goal, struct err *err) {
    struct schema s = schema_begin(g, warnings, err);
    find_sets(&s);
    int code = schema_load(&s, text);
    if (!code) {
        struct lits root = {0};
        gram_lits_add(&s, &root, lit(s.root, false));
        *out_goal = gram_goal_of(&s, &root);
        code = s.code;
        if (!code && *out_goal == PROG_NONE) code = schema_fail(&s, s.root, ERR_EARG, "no value can satisfy the schema");
        if (!code) code = gram_goals_compile(&s);
        if (!code && !g->goals[*out_goal].is_possible) code = schema_fail(&s, s.root, ERR_EARG, "no value can satisfy the schema");
    }
    schema_free(&s);
    return code;
}

/* All texts in which this one stands. */
static dfa_id texts_with(struct dfa_pool *p, struct str part) {
    struct sb pattern = {0};
    dfa_id id = DFA_NONE;
    sb_puts(&pattern, "(?s).*");
    for (size_t i = 0; i < part.n; i++) {
        if (strchr("\\^$.|?*+()[]{}", part.p[i])) sb_putc(&pattern, '\\');
        sb_putc(&pattern, part.p[i]);
    }
    sb_puts(&pattern, ".*");
    regex_compile(p, sb_str(&pattern), REGEX_WHOLE, &id, NULL);
    sb_free(&pattern);
    return id;
}

int gram_bare_compile(struct gram *g, const struct gram_schema *schema, struct sb *warnings, uint32_t *out_goal, bool *may_be_empty,
                      struct err *err) {
    struct schema s = schema_begin(g, warnings, err);
    dfa_id id = DFA_NONE;
    find_sets(&s);
    *out_goal = PROG_NONE;
    *may_be_empty = false;
    int code = schema_load(&s, schema->text);
    if (!code) {
        id = schema_strings_dfa(&s, s.root, schema_scalars(&s, s.root)->strings);
        code = s.code;
    }
    if (!code && schema->without.n) id = dfa_minus(&g->pool, id, texts_with(&g->pool, schema->without));
    if (!code && g->pool.is_over) code = schema_fail(&s, s.root, ERR_ELIMIT, "the schema takes too much work to compile");
    if (!code && id == DFA_NONE) code = schema_fail(&s, s.root, ERR_EARG, "no string can satisfy the schema");
    if (!code) {
        *may_be_empty = dfa_run(dfa_get(&g->pool, id), STR("")) != 0;
        if (*may_be_empty) id = dfa_minus(&g->pool, id, dfa_from_text(&g->pool, STR("")));
        if (id != DFA_NONE) *out_goal = gram_goal_put(g, (struct prog_goal){.raw = id, .is_possible = true, .n_values = PROG_MANY});
    }
    schema_free(&s);
    return code;
}

/* ---- expressions ------------------------------------------------------------------------------------------------------- */

static int compile_regex(struct gram *g, struct str text, struct err *err) {
    dfa_id id;
    if (regex_compile(&g->pool, text, REGEX_WHOLE, &id, err)) return err_prefix(err, "regular expression");
    if (id == DFA_NONE) return err_set(err, ERR_EARG, "regular expression: no text matches it");
    g->goals = arena_new(&g->a, struct prog_goal, 1);
    g->n_goals = 1;
    g->goals[0] = (struct prog_goal){.raw = id, .is_possible = true, .n_values = PROG_MANY};
    g->root_kind = ROOT_REGEX;
    return ERR_OK;
}

int gram_compile(const struct gram_source *source, const struct gram_options *options, struct sb *warnings, struct gram **out,
                 struct err *err) {
    struct gram *g = mem_alloc(sizeof *g);
    int code = ERR_OK;
    *out = NULL;
    g->options = *options;
    dfa_pool_init(&g->pool, &g->a, options->max_work);
    if (source->text.n > options->max_text_bytes)
        code = err_set(err, ERR_ELIMIT, "the grammar is longer than %zu bytes", options->max_text_bytes);
    else if (source->kind == GRAM_JSON_SCHEMA) code = gram_schema_compile(g, source->text, warnings, &g->root, err);
    else if (source->kind == GRAM_JSON_OBJECT) code = gram_schema_compile(g, STR("{\"type\":\"object\"}"), warnings, &g->root, err);
    else if (source->kind == GRAM_REGEX) code = compile_regex(g, source->text, err);
    else code = gbnf_compile(g, source, warnings, err);
    dfa_pool_free(&g->pool);
    if (code) gram_destroy(g);
    else *out = g;
    return code;
}

void gram_destroy(struct gram *g) {
    if (!g) return;
    dfa_pool_free(&g->pool);
    arena_free(&g->a);
    mem_free(g);
}
