/* The cases: every op kind with its variations, products in every format at row counts around each kernel's limits. */
#include "check_ops.h"
#include "check_shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct check_step one_prompt[] = {{{5, 0, 0}}};

/* ---- products ------------------------------------------------------------------------------------------------------ */

static struct tensor build_linear(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = check_input(c, l, w->in, 1);
    const struct weight *m = check_weight(c, w->format, 1, w->out, w->in, 2, 0.25f),
                        *bias = w->p[0] ? check_vector(c, w->out, 3, 1, 0) : NULL;
    return op_linear(l, x, &(struct linear_args){m, bias, w->p[1]});
}

static struct tensor build_gate(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = check_input(c, l, w->in, 1);
    const struct weight *m = check_weight(c, w->format, 1, 2 * w->out, w->in, 2, 0.25f);
    struct tensor both = op_linear(l, x, &(struct linear_args){m, w->p[0] ? check_vector(c, 2 * w->out, 3, 1, 0) : NULL, 0});
    struct tensor h = op_glu(l, tensor_slice(both, 0, (int32_t)w->out), tensor_slice(both, (int32_t)w->out, (int32_t)w->out),
                             &(struct act_args){.kind = (enum act_kind)w->p[1], .scale = 0.5f, .p = {1.7f, 3.0f, 0.5f, -1e-6f}});
    if (!w->p[2]) return h;
    return op_linear(l, h, &(struct linear_args){check_weight(c, w->format, 1, 32, w->out, 4, 0.25f), NULL, 0});
}

static struct tensor build_head_linear(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = tensor_split_heads(check_input(c, l, w->in * 4, 1), 4);
    return op_head_linear(l, x, &(struct linear_args){check_weight_of_heads(c, w->format, 4, w->out, w->in, 2, 0.25f), NULL, 0});
}

static struct tensor build_embed(struct check *c, struct oplist *l, const struct check_case *w) {
    return op_embed(l, &(struct embed_args){.weight = check_weight(c, w->format, 1, CHECK_ROWS * CHECK_SEQS + 2, w->in, 2, 1),
                                            .scale = w->f[0],
                                            .by_position = w->p[0],
                                            .position_offset = 2 * w->p[0]});
}

/* ---- rows and elements --------------------------------------------------------------------------------------------- */

static struct tensor build_norm(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t heads = w->p[0], width = (int32_t)w->in;
    struct tensor x = tensor_split_heads(check_input(c, l, (int64_t)heads * width, 1), heads),
                  gate = tensor_split_heads(check_input(c, l, (int64_t)heads * width, 5), heads);
    int64_t n = w->p[2] ? (int64_t)heads * width : width;
    struct norm_args a = {.weight = check_vector(c, n, 2, 1, 1),
                          .bias = w->p[1] == NORM_LAYER ? check_vector(c, n, 3, 1, 0) : NULL,
                          .kind = (enum norm_kind)w->p[1],
                          .eps = 1e-5f,
                          .cut = 0.75f,
                          .weight_offset = w->f[0],
                          .per_head = w->p[2],
                          .gate = (enum norm_gate)w->p[3],
                          .gate_act = ACT_SILU};
    if (w->p[3]) return op_norm_gated(l, x, gate, &a);
    return op_norm(l, w->p[4] ? op_add(l, x, gate, &(struct add_args){0.5f, 2.0f}) : x, &a);
}

static struct tensor build_act(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = check_input(c, l, w->in, 1);
    struct act_args scaled = {.kind = ACT_NONE, .scale = 6.0f};
    return op_act(l, op_act(l, x, &scaled),
                  &(struct act_args){.kind = (enum act_kind)w->p[0], .scale = 1.5f, .p = {1.5f, 2.5f, 0.5f, -1e-6f}});
}

static struct tensor build_glu(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = tensor_split_heads(check_input(c, l, w->in, 1), 4), b = check_input(c, l, w->in, 2);
    struct tensor gate = w->p[0] == 0   ? tensor_split_heads(b, 4)
                         : w->p[0] == 1 ? tensor_split_heads(tensor_slice(b, 0, 4), 4)
                                        : tensor_slice(b, 0, 1);
    return op_glu(l, x, gate, &(struct act_args){.kind = ACT_SIGMOID, .scale = 1});
}

static struct tensor build_mix(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = tensor_split_heads(check_input(c, l, w->in, 1), 4), y = check_input(c, l, 24, 2);
    int32_t width = x.width;
    struct tensor z = op_concat(l, x, y);
    z = op_mulvec(l, z, &(struct vec_args){check_vector(c, width + 24, 3, 1, 0), check_vector(c, width + 24, 4, 1, 0)});
    z = op_mulvec(l, z, &(struct vec_args){check_vector(c, 1, 5, 1, 1), NULL});
    return op_rows(l, op_add(l, z, z, &(struct add_args){0.25f, 0.5f}));
}

static struct tensor build_rope(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = tensor_split_heads(check_input(c, l, w->in * 3, 1), 3);
    struct rope_args a = {.kind = (enum rope_kind)w->p[0], .first = w->p[1], .n_rotated = w->p[2], .magnitude = 1.25f, .table = w->p[3]};
    if (!w->p[4]) a.inv_freq = check_vector(c, w->p[2] / 2, 6, 0.5f, 0.5f);
    return op_rope(l, x, &a);
}

static struct tensor build_argmax(struct check *c, struct oplist *l, const struct check_case *w) {
    return op_argmax(l, op_rows(l, check_input(c, l, w->in, 1)));
}

/* ---- attention ----------------------------------------------------------------------------------------------------- */

/* p: q heads, kv heads, k width, v width (0: inside k), window, chunk, sinks, fused (1: norms and rope before it; below 0: so many positions are picked). */
static struct tensor build_attn(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t heads = w->p[0], kv_heads = w->p[1], k_width = w->p[2], v_width = w->p[3];
    struct tensor q = tensor_split_heads(check_input(c, l, heads * k_width, 1), heads),
                  k = tensor_split_heads(check_input(c, l, kv_heads * k_width, 2), kv_heads), v = {0};
    if (v_width) v = tensor_split_heads(check_input(c, l, kv_heads * v_width, 3), kv_heads);
    if (w->p[7] > 0) {
        struct norm_args a = {.kind = NORM_RMS, .eps = 1e-5f};
        a.weight = check_vector(c, k_width, 4, 0.5f, 1);
        q = op_norm(l, q, &a);
        k = op_norm(l, k, &a);
        struct rope_args r = {.kind = w->p[7] == 1 ? ROPE_HALF : ROPE_PAIR,
                              .n_rotated = k_width / 2,
                              .magnitude = 1,
                              .inv_freq = check_vector(c, k_width / 4, 6, 0.5f, 0.5f)};
        q = op_rope(l, q, &r);
        k = op_rope(l, k, &r);
    }
    op_kv_write(l, k, v, (struct kv_ref){0, 1});
    struct attn_args a = {.kv = {0, 1},
                          .scale = w->f[0],
                          .softcap = w->f[1],
                          .window = w->p[4],
                          .chunk = w->p[5],
                          .v_width = v_width ? v_width : k_width - 64};
    if (w->p[6]) a.sinks = check_vector(c, heads, 7, 2, 0);
    if (w->f[2] > 0) a.pos_scale_beta = w->f[2], a.pos_scale_len = 4;
    if (w->f[3] != 0) a.slopes = check_vector(c, heads, 9, fabsf(w->f[3]), 0), a.slopes_in_bf16 = w->f[3] < 0;
    if (w->p[7] >= 0) return op_attn(l, q, &a);
    op_kv_write(l, check_input(c, l, k_width, 10), v, (struct kv_ref){0, 0});
    struct tensor index = tensor_split_heads(check_input(c, l, 3 * k_width, 11), 3);
    return op_attn_picked(l, q, op_pick(l, index, check_input(c, l, 3, 12), &(struct pick_args){.kv = {0, 0}, .k = -w->p[7]}), &a);
}

/* p: heads, 1, width, 0, window, positions of an entry, entries that are picked (0: all). */
static struct tensor build_more(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t heads = w->p[0], width = w->p[2];
    struct rope_args back = {
        .kind = ROPE_PAIR, .n_rotated = 16, .magnitude = 1, .shift = 1 - w->p[5], .inv_freq = check_vector(c, 8, 6, 0.5f, 0.5f)};
    struct tensor q = tensor_split_heads(check_input(c, l, heads * width, 1), heads), picks = {0};
    op_kv_write(l, check_input(c, l, width, 2), (struct tensor){0}, (struct kv_ref){0, 1});
    op_kv_write(l, op_rope(l, check_input(c, l, width, 3), &back), (struct tensor){0}, (struct kv_ref){0, 0});
    if (w->p[6])
        picks = op_pick(l, tensor_split_heads(check_input(c, l, 3 * width, 4), 3), check_input(c, l, 3, 5),
                        &(struct pick_args){.kv = {0, 0}, .k = w->p[6], .every = w->p[5]});
    return op_attn_more(l, q, picks,
                        &(struct attn_args){.kv = {0, 1},
                                            .more = {0, 0},
                                            .every = w->p[5],
                                            .scale = 0.125f,
                                            .window = w->p[4],
                                            .v_width = width,
                                            .sinks = check_vector(c, heads, 7, 2, 0)});
}

/* ---- experts ------------------------------------------------------------------------------------------------------- */

static struct tensor build_route(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor ids, weights;
    struct route_args a = {.score = (enum route_score)w->p[0],
                           .k = w->p[1],
                           .normalize = w->p[2],
                           .norm_eps = 1e-9f,
                           .scale = 1.5f,
                           .n_groups = w->p[3],
                           .top_groups = w->p[4],
                           .group_top2 = w->p[5],
                           .jitter = 0.1f};
    if (w->p[6]) a.bias = check_vector(c, w->in, 8, 0.1f, 0);
    op_route(l, check_input(c, l, w->in, 1), &a, &ids, &weights);
    return w->exact_ints ? ids : weights;
}

/* p: experts with matrices, k. */
static struct tensor build_passing(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor ids, weights;
    op_route(l, check_input(c, l, w->in, 1), &(struct route_args){.score = ROUTE_SOFTMAX, .k = w->p[1], .scale = 1.5f}, &ids, &weights);
    op_passing(l, ids, weights, &(struct passing_args){w->p[0]}, &ids, &weights);
    return w->exact_ints ? ids : weights;
}

/* p: experts, k, inner, stacked, activation, biases, scale_input. */
static struct tensor build_experts(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t n = w->p[0], inner = w->p[2];
    struct tensor ids, weights, x = check_input(c, l, w->in, 1);
    op_route(l, check_input(c, l, n, 9), &(struct route_args){.score = ROUTE_SOFTMAX, .k = w->p[1], .normalize = 1, .scale = 1}, &ids,
             &weights);
    struct experts_args a = {
        .inner = inner, .act = {.kind = (enum act_kind)w->p[4], .scale = 1, .p = {1.7f, 3.0f}}, .scale_input = w->p[6]};
    if (w->p[3] == 1) a.gate_up = check_weight(c, w->format, n, 2 * inner, w->in, 2, 0.25f);
    else a.up = check_weight(c, w->format, n, inner, w->in, 3, 0.25f);
    if (w->p[3] == 0) a.gate = check_weight(c, w->format, n, inner, w->in, 4, 0.25f);
    a.down = check_weight(c, w->format, n, w->out, inner, 5, 0.25f);
    if (w->p[5]) {
        a.down_bias = check_vector(c, n * w->out, 6, 1, 0);
        if (w->p[3] == 1) a.gate_up_bias = check_vector(c, n * 2 * inner, 7, 1, 0);
        if (w->p[3] == 0)
            a.gate_bias = check_vector(c, (int64_t)n * inner, 8, 1, 0), a.up_bias = check_vector(c, (int64_t)n * inner, 10, 1, 0);
    }
    return op_experts(l, x, ids, weights, &a);
}

/* ---- recurrent; states 0 to 4 of the layout ------------------------------------------------------------------------ */

static struct tensor build_conv(struct check *c, struct oplist *l, const struct check_case *w) {
    return op_conv(l, check_input(c, l, 300, 1),
                   &(struct conv_args){.weight = check_vector(c, 1200, 2, 1, 0),
                                       .bias = w->p[0] ? check_vector(c, 300, 3, 1, 0) : NULL,
                                       .taps = 4,
                                       .state = 0,
                                       .act = ACT_SILU});
}

static struct tensor build_delta(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t k_width = w->p[0], v_width = w->p[1];
    struct tensor q = tensor_split_heads(check_input(c, l, 2 * k_width, 1), 2),
                  k = tensor_split_heads(check_input(c, l, 2 * k_width, 2), 2),
                  v = tensor_split_heads(check_input(c, l, 4 * v_width, 3), 4);
    int32_t by_channel = w->p[3], n_decays = by_channel ? 4 * k_width : 4;
    struct tensor a = check_input(c, l, n_decays, 4);
    return op_delta(l, q, k, v, by_channel ? tensor_split_heads(a, 4) : a, check_input(c, l, 4, 5),
                    &(struct delta_args){.a_log = check_vector(c, 4, 6, 1, 0),
                                         .dt_bias = check_vector(c, n_decays, 7, 1, 0),
                                         .state = 1,
                                         .by_channel = by_channel,
                                         .bound = w->f[0],
                                         .beta_scale = w->f[1],
                                         .k_heads = 2,
                                         .v_heads = 4,
                                         .k_width = k_width,
                                         .v_width = v_width,
                                         .scale = 0.25f,
                                         .l2_norm = w->p[2],
                                         .l2_eps = 1e-6f});
}

static struct tensor build_ssd(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t head_width = w->p[0], state_width = w->p[1];
    struct tensor x = tensor_split_heads(check_input(c, l, 4 * head_width, 1), 4),
                  b = tensor_split_heads(check_input(c, l, 2 * state_width, 2), 2),
                  cc = tensor_split_heads(check_input(c, l, 2 * state_width, 3), 2);
    return op_ssd(l, x, b, cc, check_input(c, l, 4, 4),
                  &(struct ssd_args){.a_log = check_vector(c, 4, 5, 1, 0),
                                     .d = check_vector(c, 4, 6, 1, 0),
                                     .dt_bias = check_vector(c, 4, 7, 1, 0),
                                     .state = 2,
                                     .heads = 4,
                                     .head_width = head_width,
                                     .groups = 2,
                                     .state_width = state_width,
                                     .dt_min = 0.01f,
                                     .dt_max = 10.0f});
}

static struct tensor build_scan(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t channels = 40, n = w->p[0];
    return op_scan(l, check_input(c, l, channels, 1), check_input(c, l, channels, 2), check_input(c, l, n, 3), check_input(c, l, n, 4),
                   &(struct scan_args){.a_log = check_vector(c, (int64_t)channels * n, 5, 1, 0),
                                       .d = check_vector(c, channels, 6, 1, 0),
                                       .state = 3,
                                       .state_width = n});
}

static struct tensor build_lru(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t n = w->p[0];
    return op_lru(l, check_input(c, l, n, 1), check_input(c, l, n, 2), check_input(c, l, n, 3),
                  &(struct lru_args){.rate = check_vector(c, n, 4, 0.5f, 0.6f), .state = 4});
}

static struct tensor build_wkv(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t n = w->p[0];
    return op_wkv(l, check_input(c, l, n, 1), check_input(c, l, n, 2),
                  &(struct wkv_args){.rate = check_vector(c, n, 4, 0.5f, 0.6f), .first = check_vector(c, n, 5, 1, 0), .state = 4});
}

static struct tensor build_compress(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t width = w->p[0], every = w->p[1], channels = width * (w->p[3] ? 2 : 1);
    return op_compress(
        l, check_input(c, l, 2 * channels, 1),
        &(struct compress_args){
            .bias = check_vector(c, (int64_t)every * channels, 2, 1, 0), .every = every, .width = width, .state = 4, .overlaps = w->p[3]});
}

static struct tensor build_blend(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t n = w->p[0];
    return op_blend(l, tensor_split_heads(check_input(c, l, n * w->in, 1), n), check_input(c, l, n * n, 2),
                    check_input(c, l, (int32_t)w->in, 3), check_input(c, l, n, 4), &(struct blend_args){.rounds = 20, .eps = 1e-6f});
}

static struct tensor build_exchange(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor in[6];
    for (int32_t i = 0; i < 6; i++) in[i] = tensor_split_heads(check_input(c, l, 3 * w->p[0], i + 1), 3);
    in[4] =
        op_norm(l, in[4], &(struct norm_args){.kind = NORM_RMS, .eps = 1e-6f}); /* of length 1, as models have it: else the memory grows */
    in[4] = op_act(l, in[4], &(struct act_args){.kind = ACT_NONE, .scale = 1.0f / sqrtf((float)w->p[0])});
    in[5] = op_act(l, in[5], &(struct act_args){.kind = ACT_SIGMOID, .scale = 1.0f});
    return op_exchange(l, in, &(struct exchange_args){.rate = -0.6f, .state = 4});
}

static struct tensor build_mlstm(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t k_width = w->p[0], v_width = w->p[1];
    struct tensor q = tensor_split_heads(check_input(c, l, 3 * k_width, 1), 3),
                  k = tensor_split_heads(check_input(c, l, 3 * k_width, 2), 3),
                  v = tensor_split_heads(check_input(c, l, 3 * v_width, 3), 3);
    return op_mlstm(l, q, k, v, check_input(c, l, 3, 4), check_input(c, l, 3, 5),
                    &(struct mlstm_args){.scale = 0.25f, .eps = 1e-6f, .state = 4});
}

static struct tensor build_lightning(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t width = w->p[0];
    struct tensor q = tensor_split_heads(check_input(c, l, 3 * width, 1), 3), k = tensor_split_heads(check_input(c, l, 3 * width, 2), 3),
                  v = tensor_split_heads(check_input(c, l, 3 * width, 3), 3);
    return op_lightning(l, q, k, v,
                        &(struct lightning_args){.slope = check_vector(c, 3, 4, 0.5f, 0.5f), .state = 4, .heads = 3, .width = width});
}

/* ---- whole blocks: what decode steps make of the ops of two dense layers -------------------------------------------------- */

static struct tensor block_norm(struct check *c, struct oplist *l, struct tensor x, uint64_t seed) {
    return op_norm(l, x, &(struct norm_args){.weight = check_vector(c, x.width, seed, 0.25f, 1), .kind = NORM_RMS, .eps = 1e-5f});
}

static struct tensor block_linear(struct check *c, struct oplist *l, const struct check_case *w, struct tensor x, int64_t out,
                                  uint64_t seed) {
    const struct weight *m = check_weight(c, w->format, 1, out, x.width, seed, 0.125f);
    return op_linear(l, x, &(struct linear_args){m, w->p[6] ? check_vector(c, out, seed + 1, 0.5f, 0) : NULL, 0});
}

/* p: q heads, kv heads, width, width, window, norms of q and k, biases, layer of the cache. */
static struct tensor block_attention(struct check *c, struct oplist *l, const struct check_case *w, struct tensor x, int32_t layer) {
    int32_t heads = w->p[0], kv_heads = w->p[1], d = w->p[2];
    struct tensor all = block_linear(c, l, w, x, (int64_t)(heads + 2 * kv_heads) * d, 20);
    struct tensor q = tensor_split_heads(tensor_slice(all, 0, heads * d), heads),
                  k = tensor_split_heads(tensor_slice(all, heads * d, kv_heads * d), kv_heads),
                  v = tensor_split_heads(tensor_slice(all, (heads + kv_heads) * d, kv_heads * d), kv_heads);
    struct rope_args rope = {.inv_freq = check_vector(c, d / 2, 22, 0.1f, 0.2f), .kind = ROPE_HALF, .n_rotated = d, .magnitude = 1};
    struct kv_ref kv = {0, layer};
    if (w->p[5]) q = block_norm(c, l, q, 23);
    q = op_rope(l, q, &rope);
    if (w->p[5]) k = block_norm(c, l, k, 24);
    op_kv_write(l, op_rope(l, k, &rope), v, kv);
    struct attn_args a = {.kv = kv, .scale = 8.0f / (float)d, .v_width = d, .window = w->p[4]};
    return block_linear(c, l, w, tensor_join_heads(op_attn(l, q, &a)), w->in, 26);
}

static struct tensor build_blocks(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = check_input(c, l, w->in, 1);
    int32_t inner = (int32_t)w->out;
    for (int32_t i = 0; i < 2; i++) {
        x = op_add(l, x, block_attention(c, l, w, block_norm(c, l, x, 30), i), NULL);
        struct tensor both = block_linear(c, l, w, block_norm(c, l, x, 31), 2 * w->out, 32);
        struct tensor h =
            op_glu(l, tensor_slice(both, 0, inner), tensor_slice(both, inner, inner), &(struct act_args){.kind = ACT_SILU, .scale = 1});
        x = op_add(l, x, block_linear(c, l, w, h, w->in, 34), &(struct add_args){1.0f, 0.5f});
    }
    return block_linear(c, l, w, block_norm(c, l, op_rows(l, x), 36), 1000, 37);
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */

struct maker {
    struct check_case *out;
    int32_t n, most;
    bool quick;
};

static void add(struct maker *m, struct check_case c) {
    if (c.n_steps == 0) {
        c.steps[0] = one_prompt[0];
        c.n_steps = 1;
    }
    if (m->n == m->most) {
        printf("FAILED  more than %d cases: raise CASES_MAX\n", m->most);
        exit(1);
    }
    m->out[m->n++] = c;
}

/* A prompt, decode rows, a chunk beside a decode row, more decode rows. */
static void add_stateful(struct maker *m, struct check_case c) {
    const struct check_step steps[] = {{{3, 0, 9}}, {{1, 0, 1}}, {{1, 70, 4}}, {{1, 1, 1}}, {{1, 1, 1}}};
    memcpy(c.steps, steps, sizeof steps);
    c.n_steps = 5;
    add(m, c);
}

#define CASE(...) struct check_case k = {__VA_ARGS__}
#define NAME(...) snprintf(k.name, sizeof k.name, __VA_ARGS__)

static void add_products(struct maker *m) {
    static const struct format formats[] = {
        {QUANT_NONE, DT_F32, 0, 0},     {QUANT_NONE, DT_F16, 0, 0},      {QUANT_NONE, DT_BF16, 0, 0},    {QUANT_AFFINE, DT_BF16, 2, 64},
        {QUANT_AFFINE, DT_BF16, 3, 32}, {QUANT_AFFINE, DT_BF16, 4, 32},  {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_F16, 4, 64},
        {QUANT_AFFINE, DT_F32, 4, 128}, {QUANT_AFFINE, DT_BF16, 4, 128}, {QUANT_AFFINE, DT_BF16, 5, 64}, {QUANT_AFFINE, DT_BF16, 6, 128},
        {QUANT_AFFINE, DT_BF16, 8, 32}, {QUANT_AFFINE, DT_BF16, 8, 64},  {QUANT_AFFINE, DT_F16, 8, 128}, {QUANT_MXFP4, DT_BF16, 4, 32},
        {QUANT_MXFP8, DT_BF16, 8, 32},  {QUANT_NVFP4, DT_BF16, 4, 16},   {QUANT_AFFINE, DT_F32, 4, 16},  {QUANT_AFFINE, DT_F32, 8, 16},
        {QUANT_AFFINE, DT_F32, 4, 32},  {QUANT_AFFINE, DT_F32, 5, 32},   {QUANT_AFFINE, DT_F32, 6, 16},
    };
    static const int32_t many[] = {1, 2, 8, 9, 16, 17, 33, 64, 65, 200}, few[] = {1, 7, 9, 40, 70};
    static const struct { int64_t out, in; } shapes[] = {{40, 128}, {272, 640}, {1040, 2048}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        char name[32];
        format_name(&formats[f], name);
        const char *meta = dtype_name(formats[f].dtype);
        for (size_t s = 0; s < (m->quick ? 2 : 3); s++)
            for (size_t r = 0; r < (m->quick ? 5 : 10); r++) {
                if (m->quick && s == 0 && r > 0) continue;
                CASE(.build = build_linear, .format = formats[f], .out = shapes[s].out, .in = shapes[s].in, .p = {(int32_t)r % 2},
                     .n_steps = 1);
                k.steps[0].rows[0] = m->quick ? few[r] : many[r];
                NAME("linear %s %s %lld x %lld, %d rows", name, meta, (long long)k.out, (long long)k.in, k.steps[0].rows[0]);
                add(m, k);
            }
        CASE(.build = build_embed, .format = formats[f], .in = 256, .f = {2.5f}, .p = {(int32_t)f % 2});
        NAME("embed %s %s", name, meta);
        add(m, k);
        k = (struct check_case){.build = build_head_linear, .format = formats[f], .out = 24, .in = 128};
        NAME("head_linear %s %s", name, meta);
        add(m, k);
        k.steps[0].rows[0] = 20;
        k.n_steps = 1;
        NAME("head_linear %s %s, 20 rows", name, meta);
        add(m, k);
        k = (struct check_case){.build = build_experts,
                                .format = formats[f],
                                .out = 72,
                                .in = 128,
                                .p = {6, 2, 128, (int32_t)f % 3,
                                      f % 3 == 2 ? ACT_LIMITED_SWIGLU
                                      : f % 2    ? ACT_SILU
                                                 : ACT_CLAMPED_SWIGLU,
                                      (int32_t)f % 2, f == 4}};
        NAME("experts %s %s", name, meta);
        add(m, k);
    }
    static const struct {
        int64_t out, in;
        int32_t rows;
    } ragged[] = {{264, 328, 130}, {36, 72, 70}, {520, 1000, 300}, {128, 64, 257}, {48, 40, 66}};
    for (size_t i = 0; i < sizeof ragged / sizeof *ragged; i++) { /* prompts whose sizes are no multiples of a tile's */
        CASE(.build = build_linear, .format = {QUANT_NONE, DT_BF16, 0, 0}, .out = ragged[i].out, .in = ragged[i].in, .p = {i % 2 == 0},
             .n_steps = 1);
        k.steps[0].rows[0] = ragged[i].rows;
        NAME("linear ragged %lld x %lld, %d rows", (long long)k.out, (long long)k.in, ragged[i].rows);
        add(m, k);
    }
    static const struct format wide[] = {
        {QUANT_NONE, DT_BF16, 0, 0}, {QUANT_NONE, DT_F16, 0, 0}, {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_BF16, 8, 64}};
    for (size_t f = 0; f < sizeof wide / sizeof *wide;
         f++) { /* eight rows of x that do not fit the shared memory of a decode step's kernel */
        CASE(.build = build_linear, .format = wide[f], .out = 48, .in = 16384, .n_steps = 1);
        char name[32];
        k.steps[0].rows[0] = 8;
        format_name(&wide[f], name);
        NAME("linear wide %s %s", name, dtype_name(wide[f].dtype));
        add(m, k);
    }
    static const int32_t gate_rows[] = {1, 8, 20, 64, 80, 300};
    for (int f = 0; f < 3; f++)
        for (size_t r = 0; r < 6; r++) {
            const struct format g[] = {{QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_BF16, 8, 32}, {QUANT_NONE, DT_BF16, 0, 0}};
            CASE(.build = build_gate, .format = g[f], .out = 192, .in = 256,
                 .p = {(int32_t)r % 2, r == 1 || r == 5 ? ACT_GELU_TANH : ACT_SILU, r != 0}, .n_steps = 1, .slack = 2);
            k.steps[0].rows[0] = gate_rows[r];
            NAME("gate of %d bits, %d rows", f == 0 ? 4 : f == 1 ? 8 : 16, gate_rows[r]);
            add(m, k);
        }
}

/* Inputs from e^-6 to e^6, a few of which are most of a row, as those of a model's second product of a block can be. */
static struct tensor build_uneven(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = op_mulvec(l, check_input(c, l, w->in, 1), &(struct vec_args){.mul = check_vector(c, w->in, 5, 6, 0)});
    x = op_act(l, x, &(struct act_args){.kind = ACT_EXP, .scale = 1});
    return op_linear(l, x, &(struct linear_args){check_weight(c, w->format, 1, w->out, w->in, 2, 0.25f), NULL, 0});
}

/* Prompts with weights in tiles, whose sizes are no multiples of a block's. */
static void add_prompts(struct maker *m) {
    static const struct format formats[] = {
        {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_F16, 4, 32}, {QUANT_AFFINE, DT_BF16, 8, 64}, {QUANT_AFFINE, DT_BF16, 8, 32}};
    static const struct {
        int64_t out, in;
        int32_t rows;
    } ragged[] = {{264, 320, 130}, {136, 64, 257}, {1000, 192, 300}};
    for (size_t f = 0; f < 4; f++) {
        char name[32];
        format_name(&formats[f], name);
        for (size_t i = 0; i < 3; i++) {
            CASE(.build = build_linear, .format = formats[f], .out = ragged[i].out, .in = ragged[i].in, .p = {i != 1}, .n_steps = 1);
            k.steps[0].rows[0] = ragged[i].rows;
            NAME("prompt %s %lld x %lld, %d rows", name, (long long)k.out, (long long)k.in, ragged[i].rows);
            add(m, k);
        }
        CASE(.build = build_uneven, .format = formats[f], .out = 144, .in = 640, .n_steps = 1);
        k.steps[0].rows[0] = 140;
        NAME("prompt %s of uneven inputs", name);
        add(m, k);
        k = (struct check_case){.build = build_gate,
                                .format = formats[f],
                                .out = f % 2 ? 200 : 208,
                                .in = 192,
                                .p = {1, f ? ACT_SILU : ACT_GELU, 0},
                                .n_steps = 1,
                                .slack = 2};
        k.steps[0].rows[0] = 150;
        NAME("prompt %s with a gate of %lld", name, (long long)k.out);
        add(m, k);
    }
}

/* Products that keep more of their input than bf16 does: far closer, where the weights are bf16 themselves. */
static void add_wide(struct maker *m) {
    static const struct format formats[] = {{QUANT_NONE, DT_BF16, 0, 0}, {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_BF16, 8, 64}};
    static const int32_t rows[] = {1, 4, 5, 8, 9, 40, 200};
    static const struct { int64_t out, in; } shapes[] = {{40, 100}, {40, 64}, {272, 640}};
    for (size_t f = 0; f < 3; f++)
        for (size_t r = 0; r < 7; r++) {
            size_t s = f ? 2 : r % 3;
            CASE(.build = build_linear, .format = formats[f], .out = shapes[s].out, .in = shapes[s].in, .p = {(int32_t)r % 2, 1},
                 .n_steps = 1, .slack = f ? 1 : 1.0 / 64);
            k.steps[0].rows[0] = rows[r];
            char name[32];
            format_name(&formats[f], name);
            NAME("wide linear %s %lld x %lld, %d rows", name, (long long)k.out, (long long)k.in, rows[r]);
            add(m, k);
        }
}

/* Products of the dimensions of real models. */
static void add_shapes(struct maker *m) {
    static const struct format formats[] = {{QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_NONE, DT_BF16, 0, 0}, {QUANT_AFFINE, DT_BF16, 8, 32}};
    static const int32_t rows[] = {1, 9, 70};
    struct arena a = {0};
    int32_t n_shapes;
    const struct check_shape *shapes = check_shapes(&a, &n_shapes);
    for (int32_t s = 0; s < n_shapes; s++) {
        bool is_vocabulary = shapes[s].out > 32768; /* few results fit */
        for (size_t f = 0; f < 3; f++)
            for (size_t r = 0; r < (is_vocabulary ? 2 : 3); r++) {
                if ((is_vocabulary || shapes[s].out * shapes[s].in > 8000000) && f != (size_t)s % 3) continue;
                CASE(.build = build_linear, .format = formats[f], .out = shapes[s].out, .in = shapes[s].in, .n_steps = 1);
                char name[32];
                format_name(&formats[f], name);
                k.steps[0].rows[0] = rows[r];
                NAME("shape %.*s %s, %d rows", STR_ARG(shapes[s].name), name, rows[r]);
                add(m, k);
            }
    }
    arena_free(&a);
}

static void add_elements(struct maker *m) {
    static const struct {
        int32_t heads, width, kind, per_head, gate, sum;
        float offset;
    } norms[] = {{1, 100, NORM_RMS, 0, 0, 0, 0},           {1, 2048, NORM_RMS, 0, 0, 0, 1},
                 {1, 4096, NORM_LAYER, 0, 0, 0, 0},        {4, 64, NORM_RMS, 0, 0, 0, 0},
                 {3, 80, NORM_LAYER, 1, 0, 0, 0},          {4, 128, NORM_RMS, 0, GATE_AFTER, 0, 0},
                 {2, 640, NORM_RMS, 1, GATE_BEFORE, 0, 0}, {4, 96, NORM_RMS, 0, GATE_MATCH, 0, 0},
                 {2, 1024, NORM_RMS, 0, GATE_MATCH, 0, 0}, {1, 200, NORM_CUT, 0, 0, 0, 0},
                 {1, 1500, NORM_CUT, 0, 0, 0, 0},          {1, 768, NORM_RMS, 0, 0, 1, 0},
                 {1, 5120, NORM_LAYER, 0, 0, 1, 0}};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        CASE(.build = build_norm, .in = norms[i].width,
             .p = {norms[i].heads, norms[i].kind, norms[i].per_head, norms[i].gate, norms[i].sum}, .f = {norms[i].offset});
        NAME("norm %zu", i);
        add(m, k);
    }
    for (int32_t a = 0; a < N_ACT_KINDS; a++) {
        CASE(.build = build_act, .in = 200, .p = {a});
        NAME("act %s", act_name((enum act_kind)a));
        add(m, k);
    }
    for (int32_t i = 0; i < 3; i++) {
        CASE(.build = build_glu, .in = 320, .p = {i});
        NAME("glu, gate %d", i);
        add(m, k);
    }
    CASE(.build = build_mix, .in = 256);
    NAME("concat, mulvec, add, rows");
    add(m, k);
    static const int32_t ropes[][5] = {
        {ROPE_HALF, 0, 64, 0, 0}, {ROPE_PAIR, 0, 64, 0, 0}, {ROPE_HALF, 16, 32, 0, 0}, {ROPE_PAIR, 8, 48, 1, 1}, {ROPE_HALF, 0, 64, 0, 1}};
    for (size_t i = 0; i < 5; i++) {
        CASE(.build = build_rope, .in = 64, .p = {ropes[i][0], ropes[i][1], ropes[i][2], ropes[i][3], ropes[i][4]});
        NAME("rope %zu", i);
        add_stateful(m, k);
    }
    static const int64_t widths[] = {5, 3000, 40000};
    for (size_t i = 0; i < 3; i++) {
        CASE(.build = build_argmax, .in = widths[i], .exact_ints = true);
        NAME("argmax of %lld", (long long)widths[i]);
        add(m, k);
    }
}

/* The edges of kernels/experts.cu and kernels/experts_sm90.cu: more pairs of an expert than a tile has, more choices than a block has warps, one alone, sums longer than what a
 * warp asks for at once; more experts and choices than it takes, inner widths that are no multiple of its steps, and results that are no whole
 * number of tiles. */
static void add_experts(struct maker *m) {
    static const struct format formats[] = {{QUANT_AFFINE, DT_BF16, 4, 32}, {QUANT_AFFINE, DT_F16, 8, 32}, {QUANT_NONE, DT_BF16, 0, 0},
                                            {QUANT_MXFP4, DT_BF16, 4, 32},  {QUANT_AFFINE, DT_F16, 4, 64}, {QUANT_AFFINE, DT_BF16, 4, 64},
                                            {QUANT_AFFINE, DT_F32, 3, 16},  {QUANT_AFFINE, DT_F32, 6, 16}};
    static const enum act_kind acts[] = {ACT_SILU, ACT_CLAMPED_SWIGLU, ACT_SILU, ACT_CLAMPED_SWIGLU,
                                         ACT_SILU, ACT_GELU_TANH,      ACT_SILU, ACT_SILU};
    static const struct {
        int32_t n_experts, k, in, inner, out, rows, way; /* way: 0 gate and up, 1 stacked, 2 no gate */
        bool has_bias, scale_input;
    } shapes[] = {
        {2, 2, 192, 192, 200, 75, 0, true, false},  {3, 1, 128, 64, 136, 70, 2, true, true},     {9, 4, 256, 128, 64, 9, 1, false, false},
        {3, 2, 1088, 64, 40, 3, 0, false, true},    {24, 20, 128, 320, 24, 2, 1, true, false},   {5, 1, 64, 64, 8, 8, 2, false, false},
        {72, 65, 64, 64, 16, 9, 0, false, false},   {1030, 2, 64, 64, 8, 9, 1, false, false},    {4, 2, 64, 96, 24, 20, 0, false, false},
        {2, 2, 192, 192, 208, 75, 0, true, false},  {3, 2, 1088, 64, 48, 3, 0, false, true},     {24, 20, 128, 320, 32, 2, 1, true, false},
        {32, 4, 256, 192, 304, 9, 1, true, false},  {16, 4, 256, 192, 304, 20, 1, true, false},  {16, 2, 192, 64, 32, 9, 2, true, true},
        {2, 2, 256, 320, 304, 150, 1, true, false}, {2, 2, 1088, 192, 304, 110, 0, false, true}, {3, 1, 128, 64, 144, 70, 2, true, true},
        {4, 2, 192, 128, 144, 20, 1, true, false},  {6, 4, 320, 192, 144, 1, 0, true, false},    {8, 4, 128, 64, 144, 20, 1, true, false},
        {8, 4, 128, 64, 144, 36, 1, true, false},
    };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            char name[32];
            if (formats[f].group && (shapes[i].inner % formats[f].group || shapes[i].in % formats[f].group)) continue;
            format_name(&formats[f], name);
            CASE(.build = build_experts, .format = formats[f], .out = shapes[i].out, .in = shapes[i].in,
                 .p = {shapes[i].n_experts, shapes[i].k, shapes[i].inner, shapes[i].way, acts[f], shapes[i].has_bias,
                       shapes[i].scale_input},
                 .n_steps = 1);
            k.steps[0].rows[0] = shapes[i].rows;
            NAME("experts %s, %d of %d, %d x %d x %d, %d rows", name, k.p[1], k.p[0], shapes[i].in, k.p[2], shapes[i].out, shapes[i].rows);
            add(m, k);
        }
}

static void add_attention(struct maker *m) {
    /* q heads, kv heads, k width, v width, window, chunk, sinks, fused */
    static const int32_t shapes[][8] = {
        {2, 2, 32, 32, 0, 0, 0, 0},   {4, 1, 64, 64, 0, 0, 0, 1},     {4, 2, 64, 64, 40, 0, 1, 0},  {6, 2, 80, 80, 0, 0, 0, 0},
        {4, 4, 96, 96, 0, 32, 0, 0},  {8, 2, 128, 128, 0, 0, 0, 2},   {8, 1, 128, 128, 0, 0, 1, 1}, {3, 1, 128, 128, 70, 0, 0, 0},
        {4, 2, 256, 256, 0, 0, 0, 0}, {5, 1, 256, 256, 0, 48, 1, 1},  {2, 1, 192, 128, 0, 0, 0, 0}, {4, 1, 576, 0, 0, 0, 0, 0},
        {4, 1, 64, 64, 0, 0, 0, 1},   {4, 2, 128, 128, 0, 0, 0, 0},   {4, 1, 80, 0, 0, 0, 0, -5},   {2, 1, 128, 0, 0, 0, 0, -20},
        {20, 1, 576, 0, 0, 0, 0, 0},  {12, 1, 128, 128, 70, 0, 1, 0}, {16, 1, 576, 0, 40, 0, 0, 0}, {6, 2, 96, 96, 0, 0, 1, 1},
        {12, 1, 64, 64, 0, 0, 1, 0},
    };
    static const float slopes[] = {[12] = 0.5f, [13] = -0.25f, [20] = 0}; /* below 0: in bf16 */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CASE(.build = build_attn, .f = {0.125f, i % 3 == 2 ? 5.0f : 0, i == 7 ? 0.1f : 0, i < 12 ? 0 : slopes[i]}, .slack = 1);
        memcpy(k.p, shapes[i], sizeof k.p);
        NAME("attn %d/%d heads of %d/%d%s%s%s%s%s", k.p[0], k.p[1], k.p[2], k.p[3], k.p[4] ? ", window" : "", k.p[5] ? ", chunks" : "",
             k.p[6] ? ", sinks" : "", k.f[3] != 0 ? ", slopes" : "", k.p[7] < 0 ? ", picked" : "");
        add_stateful(m, k);
        if (m->quick && i != 1) continue;
        /* long enough for several splits and buckets */
        struct check_step steps[] = {{{300, 0, 0}}, {{1, 0, 0}}, {{1, 130, 0}}, {{1, 1, 0}}, {{1, 1, 0}}};
        memcpy(k.steps, steps, sizeof steps);
        k.n_steps = 5;
        size_t n = strlen(k.name);
        snprintf(k.name + n, sizeof k.name - n, ", long");
        add(m, k);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) { /* rows that have blocks in common, and one that has not */
        CASE(.build = build_attn, .f = {0.125f, i % 3 == 2 ? 5.0f : 0, i == 7 ? 0.1f : 0, 0}, .slack = 1, .has = CHECK_SHARES);
        memcpy(k.p, shapes[i], sizeof k.p);
        if (k.p[3] != k.p[2] || k.p[7] < 0) continue;
        struct check_step steps[] = {{{300, 0, 0}}, {{1, 1, 0}}, {{1, 1, 1}}, {{1, 1, 1}}};
        memcpy(k.steps, steps, sizeof steps);
        k.n_steps = 4;
        NAME("attn %d/%d heads of %d, shared%s%s%s", k.p[0], k.p[1], k.p[2], k.p[4] ? ", window" : "", k.p[5] ? ", chunks" : "",
             k.p[6] ? ", sinks" : "");
        add(m, k);
    }
}

static void add_blocks(struct maker *m) {
    static const struct {
        struct format format;
        int32_t hidden, inner, p[7];
    } shapes[] = {
        {{QUANT_AFFINE, DT_BF16, 4, 64}, 256, 448, {4, 2, 64, 64, 0, 1, 0}},
        {{QUANT_AFFINE, DT_F16, 4, 32}, 128, 192, {4, 4, 64, 64, 0, 0, 1}},
        {{QUANT_AFFINE, DT_F32, 6, 16}, 256, 192, {4, 2, 64, 64, 0, 0, 0}},
        {{QUANT_AFFINE, DT_F32, 3, 16}, 256, 192, {4, 2, 64, 64, 0, 0, 0}},
        {{QUANT_AFFINE, DT_BF16, 4, 128}, 1280, 2176, {8, 1, 128, 128, 100, 1, 0}},
        {{QUANT_NONE, DT_BF16, 0, 0}, 320, 1088, {6, 2, 128, 128, 0, 1, 1}},
        {{QUANT_AFFINE, DT_BF16, 4, 64}, 512, 256, {4, 1, 256, 256, 0, 0, 0}},
        {{QUANT_AFFINE, DT_BF16, 8, 64}, 256, 256, {4, 2, 64, 64, 0, 0, 0}},
        {{QUANT_AFFINE, DT_BF16, 4, 64}, 576, 64, {2, 1, 64, 64, 0, 1, 0}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CASE(.build = build_blocks, .format = shapes[i].format, .in = shapes[i].hidden, .out = shapes[i].inner, .slack = 3);
        memcpy(k.p, shapes[i].p, sizeof shapes[i].p);
        NAME("blocks %zu", i);
        const struct check_step few[] = {{{5, 0, 3}}, {{1, 0, 1}}, {{1, 0, 1}}, {{1, 6, 0}}, {{1, 1, 1}}, {{1, 0, 0}}},
                                some[] = {{{9, 0, 0}}, {{1, 8, 0}}, {{1, 1, 7}}, {{1, 1, 14}}, {{1, 9, 0}}, {{1, 0, 9}}},
                                many[] = {{{300, 0, 0}}, {{1, 0, 0}}, {{1, 300, 0}}, {{1, 1, 0}}, {{1, 1, 0}}, {{1, 0, 0}}};
        memcpy(k.steps, few, sizeof few);
        k.n_steps = CHECK_STEPS;
        add(m, k);
        NAME("blocks %zu, some rows", i);
        memcpy(k.steps, some, sizeof some);
        if (!m->quick || i == 0 || i == 6) add(m, k);
        if (m->quick && i != 0) continue;
        NAME("blocks %zu, long", i);
        memcpy(k.steps, many, sizeof many);
        add(m, k);
    }
}

static void add_mixers(struct maker *m) {
    /* score, k, normalize, groups, top groups, top2, bias */
    static const int32_t routes[][7] = {{ROUTE_SOFTMAX, 2, 1, 0, 0, 0, 0},       {ROUTE_SOFTMAX, 8, 0, 0, 0, 0, 0},
                                        {ROUTE_SIGMOID, 4, 1, 4, 2, 1, 1},       {ROUTE_SIGMOID, 1, 0, 0, 0, 0, 1},
                                        {ROUTE_SOFTMAX_AFTER, 4, 0, 0, 0, 0, 0}, {ROUTE_SOFTMAX, 3, 0, 8, 3, 0, 0},
                                        {ROUTE_SPARSEMIXER, 2, 0, 0, 0, 0, 0},   {ROUTE_PLAIN, 3, 1, 0, 0, 0, 1}};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        for (int what = 0; what < 2; what++) {
            CASE(.build = build_route, .in = 64, .exact_ints = what == 0);
            memcpy(k.p, routes[i], sizeof routes[i]);
            NAME("route %zu, %s", i, what ? "weights" : "ids");
            add(m, k);
        }
    for (int32_t i = 0; i < 2; i++) {
        CASE(.build = build_conv, .p = {i});
        NAME("conv%s", i ? " with bias" : "");
        add_stateful(m, k);
        k = (struct check_case){.build = build_delta, .p = {i ? 128 : 16, i ? 80 : 24, i}, .f = {0, 1}};
        NAME("delta %d x %d", k.p[0], k.p[1]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_delta, .p = {i ? 16 : 128, 64, 1, 1}, .f = {i ? -5.0f : 0, i ? 1 : 2}};
        NAME("delta %d x %d by channel%s", k.p[0], k.p[1], i ? ", bounded" : "");
        add_stateful(m, k);
        k = (struct check_case){.build = build_ssd, .p = {i ? 64 : 10, i ? 128 : 16}};
        NAME("ssd %d x %d", k.p[0], k.p[1]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_scan, .p = {i ? 64 : 16}};
        NAME("scan %d", k.p[0]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_lightning, .p = {i ? 96 : 32}};
        NAME("lightning %d", k.p[0]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_lru, .p = {i ? 300 : 20}};
        NAME("lru %d", k.p[0]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_wkv, .p = {i ? 300 : 20}};
        NAME("wkv %d", k.p[0]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_exchange, .p = {i ? 64 : 20}};
        NAME("exchange %d", k.p[0]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_mlstm, .p = {i ? 40 : 8, i ? 80 : 20}};
        NAME("mlstm %d x %d", k.p[0], k.p[1]);
        add_stateful(m, k);
        k = (struct check_case){.build = build_compress, .p = {i ? 130 : 20, i ? 4 : 3, 0, i}};
        NAME("compress %d%s", k.p[0], i ? ", overlapping" : "");
        add_stateful(m, k);
        k = (struct check_case){.build = build_more, .p = {3, 1, i ? 256 : 80, 0, i ? 40 : 3, i ? 4 : 3, i ? 5 : 0}, .slack = 1};
        NAME("attn_more %d%s", k.p[2], i ? ", picked" : "");
        add_stateful(m, k);
        k = (struct check_case){.build = build_blend, .in = 300, .p = {i ? 4 : 3}};
        NAME("blend %d", k.p[0]);
        add(m, k);
        k = (struct check_case){.build = build_passing, .in = 64, .p = {40, 12}, .exact_ints = i == 0};
        NAME("passing, %s", i ? "weights" : "ids");
        add(m, k);
    }
}

int32_t check_cases(struct check_case *out, int32_t most, bool quick) {
    struct maker m = {out, 0, most, quick};
    add_elements(&m);
    add_products(&m);
    add_experts(&m);
    add_attention(&m);
    add_blocks(&m);
    add_mixers(&m);
    add_prompts(&m);
    add_wide(&m);
    if (!quick) add_shapes(&m);
    m.n += check_picture_cases(out + m.n, most - m.n);
    return m.n;
}

int32_t check_kv8_cases(struct check_case *out, int32_t most, bool quick) {
    struct maker m = {out, 0, most, quick};
    int32_t n = 0;
    add_attention(&m);
    add_blocks(&m);
    for (int32_t i = 0; i < m.n; i++) {
        struct err err;
        struct kv_class k = {.heads = out[i].p[1], .k_width = out[i].p[2], .v_width = out[i].p[3]};
        if (backend_kv_check(8, &k, &err)) continue;
        struct check_case c = out[i];
        snprintf(c.name, sizeof c.name, "kv8 %.80s", out[i].name);
        out[n++] = c;
    }
    return n;
}

int32_t check_shape_cases(struct check_case *out, int32_t most) {
    struct maker m = {out, 0, most, false};
    add_shapes(&m);
    return m.n;
}
