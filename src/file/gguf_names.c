/* Names of tensors: "blk.3.attn_q.weight" as "model.layers.3.self_attn.q_proj.weight". */
#include "file/gguf_arch.h"

/* @l stands for the layer, @a and @f for its attention and its feed-forward; = for a name that nothing stands before. */
static const struct gguf_word common[] = {
    {"token_embd", "embed_tokens"},
    {"token_embd_norm", "word_embeddings_layernorm"},
    {"position_embd", "wpe"},
    {"output", "=lm_head"},
    {"output_norm", "norm"},
    {"attn_norm", "@l.input_layernorm"},
    {"ffn_norm", "@l.post_attention_layernorm"},
    {"post_attention_norm", "@l.post_attention_layernorm"},
    {"post_ffw_norm", "@l.post_feedforward_layernorm"},
    {"attn_q", "@a.q_proj"},
    {"attn_k", "@a.k_proj"},
    {"attn_v", "@a.v_proj"},
    {"attn_qkv", "@a.qkv_proj"},
    {"attn_output", "@a.o_proj"},
    {"attn_q_norm", "@a.q_norm"},
    {"attn_k_norm", "@a.k_norm"},
    {"attn_sinks", "@a.sinks"},
    {"attn_q_a", "@a.q_a_proj"},
    {"attn_q_a_norm", "@a.q_a_layernorm"},
    {"attn_q_b", "@a.q_b_proj"},
    {"attn_kv_a_mqa", "@a.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "@a.kv_a_layernorm"},
    {"attn_kv_b", "@a.kv_b_proj"},
    {"attn_k_b", "@a.embed_q"},
    {"attn_v_b", "@a.unembed_out"},
    {"ffn_gate", "@f.gate_proj"},
    {"ffn_up", "@f.up_proj"},
    {"ffn_down", "@f.down_proj"},
    {"ffn_gate_inp", "@f.gate"},
    {"exp_probs_b.bias", "@f.gate.e_score_correction_bias"},
    {"ffn_gate_exps", "@f.switch_mlp.gate_proj"},
    {"ffn_up_exps", "@f.switch_mlp.up_proj"},
    {"ffn_gate_up_exps", "@f.switch_mlp.gate_up_proj"},
    {"ffn_down_exps", "@f.switch_mlp.down_proj"},
    {"ffn_gate_shexp", "@f.shared_experts.gate_proj"},
    {"ffn_up_shexp", "@f.shared_experts.up_proj"},
    {"ffn_down_shexp", "@f.shared_experts.down_proj"},
    {"ffn_gate_inp_shexp", "@f.shared_expert_gate"},
    {NULL, NULL},
};

static const char *find_word(const struct gguf_word *words, struct str theirs) {
    for (; words && words->theirs; words++)
        if (str_is(theirs, words->theirs)) return words->ours;
    return NULL;
}

/* "blk.12.attn_q.weight" -> 12, "attn_q.weight"; others have no layer: -1. */
static int64_t take_layer(struct str *name) {
    int64_t layer;
    if (!str_starts(*name, STR("blk."))) return -1;
    size_t dot = str_find_char(*name, '.', 4);
    if (dot == STR_NONE || !str_to_int64(str_sub(*name, 4, dot - 4), &layer) || layer < 0) return -1;
    *name = str_from(*name, dot + 1);
    return layer;
}

static const char *or_else(const char *name, const char *usual) {
    return name ? name : usual;
}

/* The module of a layer that the letter stands for; "": none. */
static const char *module_of(const struct gguf_set *s, char letter) {
    if (letter == 'a') return or_else(s->arch->attn, "self_attn");
    if (letter != 'f') return "";
    return s->has_experts && s->arch->moe_ffn ? s->arch->moe_ffn : or_else(s->arch->ffn, "mlp");
}

static struct str expand(struct arena *a, const struct gguf_set *s, int64_t layer, const char *ours, struct str suffix) {
    const char *root = or_else(s->arch->root, "model.");
    if (ours[0] == '=') return str_fmt(a, "%s%.*s", ours + 1, STR_ARG(suffix));
    if (ours[0] != '@' || layer < 0) return str_fmt(a, "%s%s%.*s", root, ours, STR_ARG(suffix));
    const char *module = module_of(s, ours[1]);
    return str_fmt(a, "%s%s.%lld%s%s%s%.*s", root, or_else(s->arch->layers, "layers"), (long long)layer, *module ? "." : "", module,
                   ours + 2, STR_ARG(suffix));
}

struct str gguf_our_name(struct arena *a, const struct gguf_set *s, struct str name) {
    const struct gguf_arch *arch = s->arch;
    static const struct str suffixes[] = {{"", 0}, {".weight", 7}, {".bias", 5}};
    struct str rest = name;
    int64_t layer = take_layer(&rest);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (!str_ends(rest, suffixes[i])) continue;
        struct str base = str_sub(rest, 0, rest.n - suffixes[i].n);
        const char *ours = find_word(arch->names, base);
        if (!ours) ours = find_word(common, base);
        if (ours) return expand(a, s, layer, ours, suffixes[i]);
    }
    /* an unknown tensor of a layer stays one: nobody reads it, and that is reported */
    return layer < 0 ? name
                     : str_fmt(a, "%s%s.%lld.%.*s", or_else(arch->root, "model."), or_else(arch->layers, "layers"), (long long)layer,
                               STR_ARG(rest));
}

/* Of names that mean the same here, the one that stands first in the lists. */
static void add_names(struct arena *a, const struct gguf_set *s, const struct gguf_word *words, int64_t layer, struct map *out) {
    static const char *const suffixes[] = {".weight", ".bias"};
    for (; words && words->theirs; words++)
        for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
            bool is_new;
            if ((words->ours[0] == '@') != (layer >= 0)) continue;
            struct str theirs = layer < 0 ? str_fmt(a, "%s%s", words->theirs, suffixes[i])
                                          : str_fmt(a, "blk.%lld.%s%s", (long long)layer, words->theirs, suffixes[i]);
            struct map_entry *e = map_put(out, gguf_our_name(a, s, theirs), &is_new);
            if (is_new) e->value.ptr = str_cstr(a, theirs);
        }
}

void gguf_their_names(struct arena *a, const struct gguf_set *s, int64_t n_layers, struct map *out) {
    for (int64_t layer = -1; layer < n_layers; layer++) {
        add_names(a, s, s->arch->names, layer, out);
        add_names(a, s, common, layer, out);
    }
}
