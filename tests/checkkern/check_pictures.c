/* Cases of what towers of pictures, and pictures in a prompt, need of a backend: rows from the host, attention among rows, means of rows, places along axes,
 * rows that see each other. */
#include "check_ops.h"

#include <stdio.h>

static const int8_t axes[32] = {0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 1, 1, 2, 2, 0, 1, 2, 1, 0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 1, 0};

/* Rows instead of x, then others added to that. */
static struct tensor build_given(struct check *c, struct oplist *l, const struct check_case *w) {
    struct tensor x = w->p[3] ? check_input(c, l, w->in, 1) : (struct tensor){0};
    x = op_given(l, x, &(struct given_args){.width = (int32_t)w->in});
    return op_given(l, x, &(struct given_args){.set = 1, .width = (int32_t)w->in, .adds = 1});
}

static struct tensor build_pool(struct check *c, struct oplist *l, const struct check_case *w) {
    return op_pool_rows(l, check_input(c, l, w->in, 1), w->p[3]);
}

/* p[3 ...]: heads, width of queries and keys, of values, set of spans. */
static struct tensor build_attn_rows(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t heads = w->p[3];
    struct tensor q = tensor_split_heads(check_input(c, l, heads * w->p[4], 1), heads),
                  k = tensor_split_heads(check_input(c, l, heads * w->p[4], 2), heads),
                  v = tensor_split_heads(check_input(c, l, heads * w->p[5], 3), heads);
    return op_attn_rows(l, q, k, v, &(struct attn_rows_args){.scale = 0.25f, .set = w->p[6]});
}

/* p: query heads, cached heads, width twice, window, rope. */
static struct tensor build_seen(struct check *c, struct oplist *l, const struct check_case *w) {
    int32_t heads = w->p[0], kv_heads = w->p[1], width = w->p[2];
    struct tensor q = tensor_split_heads(check_input(c, l, heads * width, 1), heads),
                  k = tensor_split_heads(check_input(c, l, kv_heads * width, 2), kv_heads),
                  v = tensor_split_heads(check_input(c, l, kv_heads * width, 3), kv_heads);
    if (w->p[5]) {
        struct rope_args r = {
            .kind = ROPE_HALF, .n_rotated = 64, .magnitude = 1, .inv_freq = check_vector(c, 32, 6, 0.5f, 0.5f), .axes = axes};
        q = op_rope(l, q, &r);
        k = op_rope(l, k, &r);
    }
    op_kv_write(l, k, v, (struct kv_ref){0, 1});
    return op_attn(l, q, &(struct attn_args){.kv = {0, 1}, .scale = 0.125f, .window = w->p[4], .v_width = width});
}

struct maker {
    struct check_case *out;
    int32_t n, most;
};

static void add(struct maker *m, struct check_case k, int32_t rows) {
    const struct check_step steps[] = {{{70, 0, 9}}, {{1, 0, 1}}, {{1, 100, 4}}, {{1, 1, 1}}, {{1, 1, 1}}};
    memcpy(k.steps, steps, sizeof steps);
    k.n_steps = 5;
    if (rows) k.steps[0] = (struct check_step){{rows, 0, 0}}, k.n_steps = 1;
    if (m->n < m->most) m->out[m->n++] = k;
}

int32_t check_picture_cases(struct check_case *out, int32_t most) {
    static const int32_t heads[][3] = {{2, 64, 64},   {3, 72, 72}, {2, 80, 80},   {1, 88, 88},
                                       {2, 128, 128}, {2, 16, 16}, {1, 160, 160}, {2, 40, 72}};
    static const int32_t seen[][6] = {
        {4, 2, 64, 64, 0, 0}, {2, 1, 256, 256, 40, 0}, {4, 4, 80, 80, 0, 1}, {8, 2, 128, 128, 0, 1}, {4, 2, 128, 128, 30, 1}};
    struct maker m = {out, 0, most};
    for (int32_t i = 0; i < 2; i++) {
        struct check_case k = {.build = build_given, .in = i ? 1176 : 100, .p = {0, 0, 0, i}, .has = CHECK_GIVEN};
        snprintf(k.name, sizeof k.name, "given rows%s", i ? " instead of others" : "");
        add(&m, k, 0);
        k = (struct check_case){.build = build_pool, .in = 300, .p = {0, 0, 0, i ? 9 : 4}, .has = CHECK_GIVEN};
        snprintf(k.name, sizeof k.name, "means of %d rows", k.p[3]);
        add(&m, k, 36);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int32_t set = 0; set < 2; set++) {
            struct check_case k = {
                .build = build_attn_rows, .p = {0, 0, 0, heads[i][0], heads[i][1], heads[i][2], set}, .has = CHECK_SPANS};
            snprintf(k.name, sizeof k.name, "attn_rows, %d heads of %d/%d%s", heads[i][0], heads[i][1], heads[i][2],
                     set ? ", windows" : "");
            add(&m, k, i % 2 ? 150 : 300);
        }
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        for (int32_t gives = 0; gives < 2; gives++) {
            struct check_case k = {.build = build_seen, .has = CHECK_PLACES | CHECK_SEEN | (gives ? CHECK_GIVEN : 0)};
            memcpy(k.p, seen[i], sizeof seen[i]);
            snprintf(k.name, sizeof k.name, "pictures in a prompt, %d/%d heads of %d%s%s%s", k.p[0], k.p[1], k.p[2],
                     k.p[4] ? ", window" : "", k.p[5] ? ", rope by axes" : "", gives ? ", given" : "");
            add(&m, k, 0);
        }
    return m.n;
}
