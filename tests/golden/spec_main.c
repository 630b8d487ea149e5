/* What spec_resolve makes of configs, as text: one config.json per line of a file, one line of figures (or of error) each.
 * Two configs mean the same model where their lines are equal. No weights, no device.
 *
 * usage: spec_text FILE
 *        spec_text --types     every model_type that is recognised, the family's own and other names of it
 */
#include "model/families.h"
#include "os/os.h"

#include <stdio.h>

/* A list of figures: names and numbers, all that a struct has. */
#define INT(member) sb_fmt(out, " " #member " %d", (int)x->member)
#define NUM(member) sb_fmt(out, " " #member " %.9g", (double)x->member)

static void put_route(struct sb *out, const struct route_args *x) {
    INT(score), INT(k), INT(normalize), INT(n_groups), INT(top_groups), INT(group_top2);
    NUM(norm_eps), NUM(scale), NUM(jitter);
}

static void put_act(struct sb *out, const struct act_args *x) {
    INT(kind), NUM(scale), NUM(p[0]), NUM(p[1]), NUM(p[2]), NUM(p[3]);
}

static void put_model(struct sb *out, const struct spec *x) {
    INT(n_layers), INT(hidden), INT(vocab), INT(context), INT(tied), INT(wiring), INT(embed_width), INT(first_position), INT(no_final_norm);
    INT(is_encoder), INT(n_types), INT(n_buckets), INT(relative.span), INT(relative.reach), INT(relative.is_log), INT(relative.has_norm);
    NUM(embed_scale), NUM(logit_scale), NUM(logit_softcap), NUM(residual_scale);
    INT(norm.kind), NUM(norm.eps), NUM(norm.weight_offset), INT(norm.no_weight);
    put_act(out, &x->act);
}

static void put_moe(struct sb *out, const struct moe_spec *x) {
    sb_puts(out, " | experts:");
    INT(n_experts), INT(inner), INT(latent), INT(kind), INT(scale_input), INT(has_bias), INT(shared_inner), NUM(sum_scale),
        INT(shared_gate);
    put_route(out, &x->route);
    put_act(out, &x->act);
}

static void put_mixers(struct sb *out, const struct spec *x) {
    sb_puts(out, " | latent:");
    INT(latent.q_rank), INT(latent.kv_rank), INT(latent.nope), INT(latent.rope), INT(latent.v_width), NUM(latent.norm_eps);
    INT(latent.index_heads), INT(latent.index_width), INT(latent.index_k);
    INT(compressed.width), INT(compressed.q_rank), INT(compressed.groups), INT(compressed.group_rank), INT(compressed.index_heads);
    INT(compressed.index_width), INT(compressed.index_k), INT(compressed.ropes[0]), INT(compressed.ropes[1]);
    sb_puts(out, " | streams:");
    INT(per_layer.width), INT(per_layer.vocab), INT(per_layer.has_experts);
    INT(streams.n), INT(streams.active), INT(streams.laurel_rank), INT(streams.scale), INT(streams.rounds), NUM(streams.eps);
    sb_puts(out, " | recurrent:");
    INT(recur.heads), INT(recur.width), INT(recur.k_heads), INT(recur.k_width), INT(recur.inner), INT(recur.groups);
    INT(recur.state_width), INT(recur.dt_rank), INT(recur.taps), INT(recur.has_norm), INT(recur.norm_gate), INT(recur.norm_groups);
    NUM(recur.dt_min), NUM(recur.dt_max), NUM(recur.bare_eps), NUM(recur.beta_scale), NUM(recur.decay_bound);
    NUM(recur.gate_cap), NUM(recur.out_eps);
    const struct add_args *sums[] = {&x->recur.full_sum, &x->recur.linear_sum, &x->recur.ffn_sum};
    for (int i = 0; i < 3; i++) sb_fmt(out, " %.9g %.9g", (double)sums[i]->a_scale, (double)sums[i]->b_scale);
    NUM(hybrid.attn_in), NUM(hybrid.attn_out), NUM(hybrid.ssm_in), NUM(hybrid.ssm_out), NUM(hybrid.ffn[0]), NUM(hybrid.ffn[1]);
    for (int i = 0; i < 5; i++) NUM(hybrid.ssm[i]);
}

static void put_rope(struct sb *out, const struct rope_spec *x) {
    sb_puts(out, " | rope:");
    INT(kind), INT(scaling), INT(n_rotated), INT(first), INT(original_len), INT(table), INT(pos_scale_len);
    NUM(theta), NUM(magnitude), NUM(factor), NUM(pos_scale_beta), NUM(score_scale);
    for (int32_t i = 0; i < x->n_rotated / 2; i++) NUM(inv_freq[i]);
    for (int32_t i = 0; i < x->n_rotated / 2 && x->long_freq; i++) NUM(long_freq[i]);
}

static void put_layer(struct sb *out, const struct layer_spec *x) {
    sb_fmt(out, " | %c", x->kind);
    INT(mixer), INT(ffn), INT(kv.kv_class), INT(kv.index), INT(borrows_kv), INT(inner), INT(is_cut), NUM(cut), NUM(limit),
        NUM(expert_limit), INT(state), INT(wiring), INT(borrows_picks);
    INT(more_kv.kv_class), INT(more_kv.index), INT(every), INT(picks_entries), INT(by_token);
    INT(attn.heads), INT(attn.kv_heads), INT(attn.k_width), INT(attn.v_width), INT(attn.window), INT(attn.chunk), INT(attn.qk_norm);
    INT(attn.v_is_k), INT(attn.rope), INT(attn.pos_scale_len), INT(attn.pos_scale_first);
    NUM(attn.scale), NUM(attn.softcap), NUM(attn.pos_scale_beta), NUM(attn.clip), NUM(attn.v_scale), INT(attn.has_slopes);
}

static int put_spec(struct arena *a, struct str line, struct sb *out, struct err *err) {
    struct config config;
    struct spec s;
    TRY(config_parse(a, line, "config.json", &config, err));
    TRY(spec_resolve(a, &config, &s, err));
    put_model(out, &s);
    put_moe(out, &s.moe);
    put_mixers(out, &s);
    for (int32_t i = 0; i < s.n_ropes; i++) put_rope(out, &s.ropes[i]);
    for (int32_t i = 0; i < s.n_layers; i++) put_layer(out, &s.layers[i]);
    return ERR_OK;
}

static int list_types(void) {
    for (int32_t i = 0; i < family_count; i++) printf("%s\n", family_table[i].type);
    for (int32_t i = 0; i < family_n_aliases; i++)
        if (!family_aliases[i].architecture) printf("%s\n", family_aliases[i].type);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--types") == 0) return list_types();
    struct arena all = {0};
    struct str text, line;
    struct err err = {0};
    if (argc != 2 || os_file_load(&all, argv[1], 0, &text, &err)) {
        printf("%s\n", argc == 2 ? err.msg : "usage: spec_text FILE");
        return 2;
    }
    while (str_split_next(&text, '\n', &line)) {
        struct arena a = {0};
        struct sb out = {0};
        err_clear(&err);
        if (line.n == 0) continue;
        if (put_spec(&a, line, &out, &err)) printf("error: %s\n", err.msg);
        else printf("ok:%s\n", out.p);
        sb_free(&out);
        arena_free(&a);
    }
    arena_free(&all);
    return 0;
}
