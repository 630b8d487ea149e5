/* Golden op lists: what forward says for each family, from its config and the names and shapes of its tensors alone.
 *
 * A folder holds pairs: NAME.json describes a checkpoint without its data, NAME.ops is the op list of a step of three rows,
 * one of which wants logits, or states of an encoder. No weights, no device, milliseconds.
 *
 * usage: trace_tests FOLDER                     compare
 *        trace_tests --update FOLDER            write the lists anew; the difference is for the reviewer
 *        trace_tests --describe FOLDER MODELS   write NAME.json for every checkpoint folder in MODELS
 */
#include "../backend_alone.h"

#include "backend/trace/trace.h"
#include "described.h"
#include "os/os.h"

#include <stdio.h>

static int n_passed, n_failed;

/* ---- walking --------------------------------------------------------------------------------------------------------- */

static int walk(struct arena *a, const char *path, struct sb *out, struct err *err) {
    struct described d;
    struct model m = {0};
    struct backend *be = NULL;
    int code = described_load(a, path, &d, err);
    if (!code) code = backend_open_alone(&trace_backend, &(struct device_options){0}, &(struct backend_options){0}, &be, err);
    if (!code) code = model_open(a, be, &d.config, &d.store, NULL, &m, err);
    if (!code) {
        be->type->begin(be, &(struct step_key){.n_rows = 3, .n_seqs = 1, .n_logits = 1});
        struct tensor states = forward_hidden(&m, &be->list, NULL);
        if (!m.spec.is_encoder) forward_head(&m, &be->list, states);
        code = be->type->end(be, NULL, err);
    }
    if (!code) sb_put(out, trace_text(be));
    if (be) {
        model_close(be, &m);
        backend_close(be);
    }
    described_free(&d);
    return code;
}

/* ---- comparing ------------------------------------------------------------------------------------------------------ */

/* Number of the first line in which the two differ, and that line of `got`. */
static int first_difference(struct str got, struct str want, struct str *line) {
    struct str a, b;
    for (int n = 1;; n++) {
        bool more_a = str_split_next(&got, '\n', &a), more_b = str_split_next(&want, '\n', &b);
        if (more_a != more_b || !more_a || !str_eq(a, b)) {
            *line = more_a ? a : STR("(nothing)");
            return n;
        }
    }
}

static int check(struct arena *a, struct str name, const char *ops, struct str got, struct err *err) {
    struct str want, line;
    TRY(os_file_load(a, ops, 0, &want, err));
    if (str_eq(got, want)) return ERR_OK;
    int n = first_difference(got, want, &line);
    return err_set(err, ERR_EFORMAT, "%.*s.ops line %d: now %.*s", STR_ARG(name), n, STR_ARG(line));
}

static void test_pair(const char *dir, struct str name, bool update) {
    struct arena a = {0};
    struct err err = {0};
    struct sb out = {0};
    struct str json = str_fmt(&a, "%s/%.*s.json", dir, STR_ARG(name)), ops = str_fmt(&a, "%s/%.*s.ops", dir, STR_ARG(name));
    int code = walk(&a, json.p, &out, &err);
    if (!code) code = update ? os_file_save(ops.p, sb_str(&out), &err) : check(&a, name, ops.p, sb_str(&out), &err);
    if (code) printf("FAILED %.*s: %s\n", STR_ARG(name), err.msg);
    n_failed += code != ERR_OK;
    n_passed += code == ERR_OK;
    sb_free(&out);
    arena_free(&a);
}

/* ---- describing ----------------------------------------------------------------------------------------------------- */

static void put_tensor(struct sb *out, const struct st_tensor *t, bool first) {
    sb_puts(out, first ? "\n" : ",\n");
    json_quote(out, t->name);
    sb_fmt(out, ":[\"%s\"", dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims; i++) sb_fmt(out, ",%lld", (long long)t->shape[i]);
    sb_putc(out, ']');
}

static void describe(const char *dir, const char *model, struct str name) {
    struct arena a = {0};
    struct err err = {0};
    struct checkpoint c = {0};
    struct sb out = {0};
    struct str config;
    int code = checkpoint_open(model, &c, &err);
    if (!code) code = checkpoint_file_load(&a, &c, "config.json", 1 << 20, &config, &err);
    if (!code) {
        sb_fmt(&out, "{\"config\":%.*s,\n\"tensors\":{", (int)config.n, config.p);
        for (size_t i = 0; i < c.n_tensors; i++) put_tensor(&out, c.tensors[i].t, i == 0);
        sb_puts(&out, "}}\n");
        code = os_file_save(str_fmt(&a, "%s/%.*s.json", dir, STR_ARG(name)).p, sb_str(&out), &err);
    }
    if (code) printf("%.*s: %s\n", STR_ARG(name), err.msg);
    sb_free(&out);
    checkpoint_close(&c);
    arena_free(&a);
}

/* ---- the folder ----------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    bool update = argc > 2 && !strcmp(argv[1], "--update"), describing = argc > 3 && !strcmp(argv[1], "--describe");
    const char *dir = update || describing ? argv[2] : argc > 1 ? argv[1] : "tests/golden/traces";
    struct arena a = {0};
    struct str *names;
    size_t n;
    struct err err = {0};
    if (os_list_dir(&a, describing ? argv[3] : dir, &names, &n, &err)) {
        printf("%s\n", err.msg);
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        struct os_stat st;
        struct str path = str_fmt(&a, "%s/%.*s", describing ? argv[3] : dir, STR_ARG(names[i]));
        if (describing && os_stat(path.p, &st, NULL) == ERR_OK && st.is_dir) describe(dir, path.p, names[i]);
        else if (!describing && str_ends(names[i], STR(".json"))) test_pair(dir, str_sub(names[i], 0, names[i].n - 5), update);
    }
    arena_free(&a);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed || (!describing && n_passed == 0) ? 1 : 0;
}
