/* Calls as constraints: how a model writes them, from the tools of a request. */
#include "api/service_internal.h"

#include "text/output/forced_gbnf.h"
#include "text/output/formats.h"

/* Reasoning in a message of its own, before the one that is forced: any number of such messages. */
static void put_thoughts(const struct session *s, struct sb *out) {
    const struct output_frame *f = s->format->frame;
    if (!f || !f->marks[0] || !f->thoughts) return;
    struct sb literal = {0};
    sb_putc(out, '(');
    sb_fmt(&literal, "%s%s%s", f->marks[0], f->thoughts, f->message);
    forced_gbnf_put_literal(s->format, s->tok, sb_str(&literal), out);
    sb_puts(out, " .* ");
    sb_clear(&literal);
    sb_fmt(&literal, "%s%s", f->ends[0], f->begin);
    forced_gbnf_put_literal(s->format, s->tok, sb_str(&literal), out);
    sb_puts(out, ")* ");
    sb_free(&literal);
}

/* Content in the place of a call: by its schema, in the message that is for everybody where the format has such. */
static void put_content(const struct session *s, struct arena *a, struct str schema, struct forced_gbnf *g, struct sb *root) {
    const struct output_frame *f = s->format->frame;
    size_t n = forced_gbnf_put_schema(a, schema, g);
    sb_puts(root, " | ");
    if (f && f->marks[0]) forced_gbnf_put_literal(s->format, s->tok, str_fmt(a, "%sfinal%s", f->marks[0], f->message), root);
    sb_fmt(root, " c%zu", n);
}

bool service_force_calls(const struct service *service, struct arena *a, const struct service_calls *calls, struct constraint_source *out) {
    const struct session *s = service->session;
    struct output_forced forced;
    struct forced_gbnf g = {0};
    struct sb root = {0}, trigger = {0};
    *out = (struct constraint_source){0};
    if (!s->format || !output_force(a, s->format, calls->tools, calls->in_parallel, &forced)) return false;
    bool at_once = calls->is_required || calls->content_schema.p;
    if (!at_once && !forced.trigger.n) return false;
    size_t n = forced_gbnf_put(a, &forced.root, s->format, s->tok, &g);
    sb_puts(&root, "root ::= ");
    if (at_once) put_thoughts(s, &root);
    sb_fmt(&root, "(c%zu", n);
    if (calls->content_schema.p) put_content(s, a, calls->content_schema, &g, &root);
    sb_puts(&root, ")\n");
    sb_put(&root, sb_str(&g.rules));
    out->grammar = (struct gram_source){GRAM_GBNF, str_copy(a, sb_str(&root)), g.schemas, g.n_schemas};
    out->at_once = at_once && s->format->frame;
    out->then_free = !at_once;
    if (!at_once) {
        forced_gbnf_mark(s->format, s->tok, forced.trigger, &trigger);
        out->trigger = str_copy(a, sb_str(&trigger));
    }
    sb_free(&root);
    sb_free(&trigger);
    sb_free(&g.rules);
    return true;
}

struct str service_choice_grammar(struct arena *a, const struct str *choices, size_t n) {
    struct sb text = {0};
    sb_puts(&text, "root ::= ");
    for (size_t i = 0; i < n; i++) {
        if (i) sb_puts(&text, " | ");
        forced_gbnf_put_literal(NULL, NULL, choices[i], &text);
    }
    struct str copy = str_copy(a, sb_str(&text));
    sb_free(&text);
    return copy;
}
