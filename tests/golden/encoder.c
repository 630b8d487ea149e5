/* Encoders: texts of unequal length, alone and together. */
#include "encoder.h"

#include "../backend_alone.h"
#include "engine/runner.h"
#include "figures.h"
#include "mate.h"
#include "model/model.h"

#include <math.h>

enum { TEXTS_MAX = 8 };

struct texts {
    int32_t n;
    int32_t *ids[TEXTS_MAX], n_ids[TEXTS_MAX];
    float *want[TEXTS_MAX], *got[TEXTS_MAX];
    double sd;
};

struct encoder {
    struct arena arena;
    struct checkpoint cp;
    struct model model;
    struct backend *be;
    struct team *team; /* the other ranks; NULL: none */
    struct runner runner;
    struct texts t;
    int32_t width;
};

bool encoder_is(const char *dir) {
    struct arena a = {0};
    struct figures f;
    bool is = figures_open(&a, dir, &f, NULL) == ERR_OK && figures_find(&f, "hidden", 0) != NULL;
    figures_close(&f);
    arena_free(&a);
    return is;
}

/* Ids carry the types of their tokens. */
static int load_text(struct encoder *e, const struct figures *f, int k, struct err *err) {
    struct texts *t = &e->t;
    void *p;
    int32_t n;
    TRY(figures_load(&e->arena, f, "ids", k, &p, &t->n_ids[k], err));
    t->ids[k] = p;
    if (figures_find(f, "types", k) && e->model.spec.n_types) {
        TRY(figures_load(&e->arena, f, "types", k, &p, &n, err));
        for (int32_t i = 0; i < n; i++) t->ids[k][i] += ((int32_t *)p)[i] * e->model.spec.vocab;
    }
    TRY(figures_load(&e->arena, f, "hidden", k, &p, &n, err));
    t->want[k] = p;
    t->got[k] = arena_new(&e->arena, float, n);
    t->n++;
    return n == t->n_ids[k] * e->width ? ERR_OK : err_set(err, ERR_EFORMAT, "hidden_%d has %d numbers", k, n);
}

static int load_texts(struct encoder *e, const char *dir, struct err *err) {
    struct figures f;
    double sum = 0, square = 0, count = 0;
    TRY(figures_open(&e->arena, dir, &f, err));
    int code = ERR_OK;
    for (int k = 0; k < TEXTS_MAX && !code && figures_find(&f, "hidden", k); k++) code = load_text(e, &f, k, err);
    figures_close(&f);
    for (int32_t k = 0; k < e->t.n; k++)
        for (int32_t i = 0; i < e->t.n_ids[k] * e->width; i++)
            sum += (double)e->t.want[k][i], square += (double)e->t.want[k][i] * (double)e->t.want[k][i], count++;
    e->t.sd = sqrt(square / count - sum / count * (sum / count));
    return code;
}

static int open_encoder(struct encoder *e, const struct encoder_test *t, struct err *err) {
    const struct backend_type *type = backend_find(str_of(t->backend));
    if (!type) return err_set(err, ERR_EARG, "unknown backend %s", t->backend);
    TRY(checkpoint_open(t->dir, &e->cp, err));
    struct backend_options options = {.precision = t->precision};
    if (t->n_ranks > 1) {
        TRY(team_open(t->n_ranks, &e->team, err));
        options.comm = team_comm(e->team);
    }
    TRY(backend_open_alone(type, t->device, &options, &e->be, err));
    struct tensor_store store = model_checkpoint_store(&e->cp);
    TRY(model_open_checkpoint(&e->arena, e->be, &e->cp, &store, NULL, &e->model, err));
    if (e->team) {
        struct device_options devices[COMM_RANKS_MAX];
        for (int32_t i = 0; i < t->n_ranks; i++) devices[i] = *t->device;
        TRY(team_start(e->team, type, devices, &options, mate_open, &e->cp, err));
    }
    e->width = e->model.spec.hidden;
    TRY(load_texts(e, t->dir, err));
    int32_t rows = 0;
    for (int32_t k = 0; k < e->t.n; k++) rows += e->t.n_ids[k];
    return runner_open(&e->model, e->be, &(struct runner_limits){.rows = rows, .seqs = e->t.n}, &e->runner, err);
}

static void close_encoder(struct encoder *e) {
    runner_close(&e->runner);
    if (e->be) {
        model_close(e->be, &e->model);
        backend_close(e->be);
    }
    team_close(e->team);
    checkpoint_close(&e->cp);
    arena_free(&e->arena);
}

/* The states of n texts in one step, one text behind another, into out. */
static int run(struct encoder *e, const int32_t *which, int32_t n, float *out, struct err *err) {
    struct runner *r = &e->runner;
    struct sequence s[TEXTS_MAX];
    batch_clear(&r->batch);
    for (int32_t i = 0; i < n; i++) {
        int32_t k = which[i];
        if (!sequence_init(&s[i], &r->kv, e->t.n_ids[k] + 1)) return err_set(err, ERR_EINTERNAL, "no slot");
        for (int32_t j = 0; j < e->t.n_ids[k]; j++) sequence_append(&s[i], e->t.ids[k][j]);
        s[i].n_prompt = s[i].n_tokens;
        if (!sequence_reserve(&s[i], &r->kv, s[i].n_tokens)) return err_set(err, ERR_EINTERNAL, "no blocks");
        batch_add(&r->batch, &s[i], s[i].n_tokens, 0, true);
    }
    int code = runner_run(r, err);
    if (!code) code = runner_hidden(r, out, err);
    for (int32_t i = 0; i < n; i++) sequence_free(&s[i], &r->kv);
    return code;
}

static int check_near(struct encoder *e, const struct encoder_test *t, int32_t k, const float *got, double *worst, struct err *err) {
    for (int32_t i = 0; i < e->t.n_ids[k] * e->width; i++) {
        double d = fabs((double)got[i] - (double)e->t.want[k][i]) / e->t.sd;
        if (!(d <= *worst)) *worst = d;
        if (!(d <= t->tolerance))
            return err_set(err, ERR_EFORMAT, "text %d, position %d, number %d: %.6g, expected %.6g (%.2g sd)", k, i / e->width,
                           i % e->width, (double)got[i], (double)e->t.want[k][i], d);
    }
    return ERR_OK;
}

static int check_together(struct encoder *e, const struct encoder_test *t, const int32_t *order, double *worst, struct err *err) {
    int64_t n = 0;
    for (int32_t i = 0; i < e->t.n; i++) n += (int64_t)e->t.n_ids[order[i]] * e->width;
    float *all = arena_new(&e->arena, float, n), *got = all;
    TRY(run(e, order, e->t.n, all, err));
    for (int32_t i = 0; i < e->t.n; i++) {
        int32_t k = order[i];
        size_t m = (size_t)e->t.n_ids[k] * (size_t)e->width;
        if (t->is_near) TRY(check_near(e, t, k, got, worst, err));
        else if (memcmp(got, e->t.got[k], m * sizeof *got) != 0)
            return err_set(err, ERR_EFORMAT, "text %d has other states in one batch than alone", k);
        got += m;
    }
    return ERR_OK;
}

static int check_all(struct encoder *e, const struct encoder_test *t, double *worst, struct err *err) {
    int32_t order[TEXTS_MAX];
    for (int32_t k = 0; k < e->t.n; k++) {
        TRY(run(e, &k, 1, e->t.got[k], err));
        TRY(check_near(e, t, k, e->t.got[k], worst, err));
        order[k] = k;
    }
    TRY(check_together(e, t, order, worst, err));
    for (int32_t k = 0; k < e->t.n; k++) order[k] = e->t.n - 1 - k;
    return check_together(e, t, order, worst, err);
}

int encoder_check(const struct encoder_test *t, double *out_worst, struct err *err) {
    struct encoder e = {0};
    *out_worst = 0;
    int code = open_encoder(&e, t, err);
    if (!code) code = check_all(&e, t, out_worst, err);
    close_encoder(&e);
    return code;
}
