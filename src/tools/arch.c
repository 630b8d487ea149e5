/* The families' table, without what only the forward pass needs. */
#include "tools/arch.h"

#include "model/families.h"

size_t arch_count(void) {
    return (size_t)family_count;
}

struct arch arch_get(size_t i) {
    return (struct arch){family_table[i].type, family_table[i].title};
}

static void put(struct sb *out, const char *text) {
    if (out->n) sb_puts(out, ", ");
    sb_puts(out, text);
}

static void describe_layers(const struct family *f, struct sb *out) {
    static const struct {
        char letter;
        const char *text;
    } kinds[] = {
        {'F', "full attention"},
        {'S', "sliding attention"},
        {'C', "chunked attention"},
        {'L', "latent attention"},
        {'D', "gated delta rule"},
        {'M', "state space (SSD)"},
        {'N', "selective scan"},
        {'K', "short convolution"},
        {'G', "lightning attention"},
        {'U', "gated linear recurrence"},
        {'H', "shared attention before a state space"},
        {'R', "weighed mean of all values"},
        {'W', "a memory with exchange"},
        {'X', "a memory with exponential gates"},
        {'P', "a window and compressed entries"},
    };
    const char *pattern = f->pattern ? f->pattern : "F";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strchr(pattern, kinds[i].letter)) put(out, kinds[i].text);
}

/* Whether a family's own default turns a part of each head only. */
static bool is_partial(const struct family *f) {
    struct arena a = {0};
    struct config c = {0};
    struct config_rope rope;
    bool partial = f->defaults && json_parse(&a, str_of(f->defaults), f->type, JSON_LENIENT, &c.defaults, NULL) == ERR_OK &&
                   config_rope(&c, &(struct rope_ask){.theta = 10000}, &rope, NULL) == ERR_OK && rope.partial < 1;
    arena_free(&a);
    return partial;
}

static void describe_attention(const struct family *f, struct sb *out) {
    const struct attn_row *a = &f->attn;
    if (f->flags & FAM_ENCODER) put(out, "an encoder: both ways");
    if (a->no_rope) put(out, "no rotary positions");
    if (a->rope == ROPE_PAIR) put(out, "rope on neighbouring pairs");
    if (is_partial(f)) put(out, "rope on a part of the head");
    if (a->nope) put(out, "full layers without positions");
    if (a->qk_norm == QK_HEAD) put(out, a->qk_norm_last ? "norm of q and k after rope" : "norm of q and k");
    if (a->qk_norm == QK_FULL) put(out, "norm of q and k over all heads");
    if (a->qk_norm == QK_PER_HEAD) put(out, "norm of q and k per head");
    if (a->gate) put(out, "gated attention");
}

static void describe_rest(const struct family *f, struct sb *out) {
    static const char *const wirings[] = {[WIRE_POST] = "norms after",
                                          [WIRE_PRE_POST] = "norms before and after",
                                          [WIRE_SUM_NORM] = "norms of the sums",
                                          [WIRE_NORM_FIRST] = "norms before, kept",
                                          [WIRE_PARALLEL] = "attention and feed-forward in parallel",
                                          [WIRE_PARALLEL_TWO] = "attention and feed-forward in parallel"};
    if (f->wiring != WIRE_PRE) put(out, wirings[f->wiring]);
    if (f->norm.kind == NORM_LAYER) put(out, f->norm.no_weight ? "layer norm without weights" : "layer norm");
    if (f->norm.offset > 0) put(out, "norm weights + 1");
    if (f->ffn == FFN_PLAIN) put(out, "feed-forward without gate");
    if (f->ffn == FFN_EXPERTS) put(out, "experts");
    if (f->flags & FAM_LEARNED_POSITIONS) put(out, "learned positions");
    if (f->flags & (FAM_DISTANCES | FAM_RELATIVE)) put(out, "scores by distance");
    if (f->stream) put(out, "a residual stream of its own");
}

void arch_describe(size_t i, struct sb *out) {
    struct sb text = {0};
    describe_layers(&family_table[i], &text);
    describe_attention(&family_table[i], &text);
    describe_rest(&family_table[i], &text);
    sb_put(out, sb_str(&text));
    sb_free(&text);
}

void arch_markdown(struct sb *out) {
    sb_puts(out,
            "# Model families\n\n"
            "Written by `mlxcel arch --markdown` from the table in src/model/families.c; a test keeps this page equal to it.\n\n"
            "A checkpoint is recognised by `model_type` in its config.json (of `text_config`, where there is one). What a row says holds\n"
            "unless config.json says otherwise.\n\n"
            "| model_type | models | architecture |\n|---|---|---|\n");
    for (size_t i = 0; i < arch_count(); i++) {
        sb_fmt(out, "| `%s` | %s | ", family_table[i].type, family_table[i].title);
        arch_describe(i, out);
        sb_puts(out, " |\n");
    }
    sb_puts(
        out,
        "\n## Other names\n\nFiles under these names are run as well: a text model under another name, or inside a model that also sees or hears\n"
        "(its text part only).\n\n| model_type | runs as |\n|---|---|\n");
    for (int32_t i = 0; i < family_n_aliases; i++)
        sb_fmt(out, "| `%s`%s%s | `%s` |\n", family_aliases[i].type, family_aliases[i].architecture ? " of " : "",
               family_aliases[i].architecture ? family_aliases[i].architecture : "", family_aliases[i].family);
    sb_puts(out, "\n## Not supported, and why\n\nAny other type is refused by its name, with the nearest supported ones. These we know:\n\n"
                 "| model_type | reason |\n|---|---|\n");
    for (int32_t i = 0; i < family_n_refusals; i++) sb_fmt(out, "| `%s` | %s |\n", family_refusals[i].type, family_refusals[i].why);
}
