/* The programs of every family, pinned: tests/xla/programs/families.list has a line for each description of a checkpoint in
 * tests/golden/traces with its model type and the digests of three programs. Weights are zeros, the plugin is the fake one;
 * nothing is run. Every product of float32 must ask for the highest precision. What docs/openxla.md says about the types that
 * run is held against the table of families.
 *
 * usage: xla_programs [--update] [--write FOLDER]   (--write keeps the texts, to compare them with those of another build)
 */
#include "../golden/described.h"
#include "../backend_alone.h"
#include "../test_paths.h"
#include "backend/xla/emit.h"
#include "base/sha256.h"
#include "model/families.h"
#include "os/os.h"

#include <stdio.h>

enum { BLOCKS = 9, SLOTS = 2, CONTEXT = 512, DIGITS = 16 };

static const struct kind {
    const char *name;
    struct xla_shape at;
    enum precision precision;
} kinds[] = {
    {"prompt", {.seqs = 1, .rows = 64, .logits = 1, .context = CONTEXT}, PRECISION_EXACT},
    {"decode", {.seqs = 2, .rows = 1, .logits = 2, .context = CONTEXT}, PRECISION_EXACT},
    {"bf16", {.seqs = 1, .rows = 1, .logits = 1, .context = CONTEXT}, PRECISION_BF16},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int n_passed, n_failed;
static const char *plugin, *write_dir;

static void check(bool good, const char *name, const char *what) {
    if (!good) printf("FAILED %s: %s\n", name, what);
    n_passed += good;
    n_failed += !good;
}

/* ---- one program --------------------------------------------------------------------------------------------------- */

static struct tensor describe_head(const struct model *m, struct oplist *l, struct tensor states) {
    struct tensor logits = forward_head(m, l, states);
    oplist_output(l, op_argmax(l, logits));
    return logits;
}

static int emit_model(const struct model *m, struct backend *be, const struct kind *kind, struct xla_program *out, struct err *err) {
    struct kv_layout kv = m->spec.kv;
    struct xla_needs needs;
    kv.max_context = CONTEXT;
    kv.n_slots = SLOTS;
    for (int32_t i = 0; i < kv.n_classes; i++) kv.classes[i].n_blocks = BLOCKS;
    be->type->begin(be, &(struct step_key){.n_rows = xla_all_rows(&kind->at), .n_seqs = kind->at.seqs, .n_logits = kind->at.logits});
    struct tensor states = forward_hidden(m, &be->list, NULL);
    oplist_output(&be->list, m->spec.is_encoder ? states : describe_head(m, &be->list, states));
    if (be->list.err.code) return err_set(err, be->list.err.code, "%s", be->list.err.msg);
    if (!xla_needs_find(&be->list, false, &needs)) return err_set(err, ERR_EUNSUPPORTED, "more than %d rope tables", XLA_ROPES_MAX);
    struct emit_args args = {.list = &be->list, .at = kind->at, .kv = &kv, .needs = &needs, .half = kind->precision == PRECISION_BF16};
    return emit_program(&args, out, err);
}

static int emit_description(struct arena *a, const char *path, const struct kind *kind, struct sb *out, const char **type,
                            struct err *err) {
    struct described d;
    struct model m = {0};
    struct backend *be = NULL;
    struct xla_program program = {0};
    int code = described_load(a, path, &d, err);
    if (!code)
        code = backend_open_alone(&xla_backend, &(struct device_options){.xla.plugin = plugin},
                                  &(struct backend_options){.precision = kind->precision}, &be, err);
    if (!code) code = model_open(a, be, &d.config, &d.store, NULL, &m, err);
    if (!code) {
        *type = m.spec.family->type;
        code = emit_model(&m, be, kind, &program, err);
    }
    if (!code) sb_put(out, sb_str(&program.text));
    xla_program_free(&program);
    if (be) {
        model_close(be, &m);
        backend_close(be);
    }
    described_free(&d);
    return code;
}

/* The first product of float32 that may be rounded, or nothing. */
static struct str rough_product(struct str text) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        size_t types = str_find(line, STR(" : (tensor<"), 0);
        if (str_find(line, STR("stablehlo.dot_general"), 0) == STR_NONE || types == STR_NONE) continue;
        size_t end = str_find_char(line, '>', types);
        bool is_f32 = end != STR_NONE && str_ends(str_sub(line, types, end), STR("f32"));
        if (is_f32 && str_find(line, STR("precision = [HIGHEST, HIGHEST]"), 0) == STR_NONE) return line;
    }
    return (struct str){0};
}

static void put_digest(struct sb *out, struct str text) {
    struct sha256 s;
    unsigned char digest[32];
    char hex[65];
    sha256_init(&s);
    sha256_update(&s, text.p, text.n);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    sb_fmt(out, "%.*s", DIGITS, hex);
}

/* ---- one family ---------------------------------------------------------------------------------------------------- */

/* A line of the list: NAME TYPE KIND=DIGEST..., or NAME TYPE REASON where an emitter is missing. */
static void put_line(struct arena *a, const char *dir, struct str name, struct sb *out) {
    const char *path = str_fmt(a, "%s/%.*s.json", dir, STR_ARG(name)).p, *type = "?";
    struct sb digests = {0};
    struct err err = {0};
    int code = ERR_OK;
    for (int i = 0; i < N_KINDS && !code; i++) {
        struct sb text = {0};
        const char *what = str_fmt(a, "%.*s %s", STR_ARG(name), kinds[i].name).p;
        code = emit_description(a, path, &kinds[i], &text, &type, &err);
        if (code && code != ERR_EUNSUPPORTED) check(false, what, err.msg);
        struct str rough = rough_product(sb_str(&text));
        check(rough.n == 0, what, str_cstr(a, rough));
        sb_fmt(&digests, " %s=", kinds[i].name);
        put_digest(&digests, sb_str(&text));
        if (write_dir && !code &&
            os_file_save(str_fmt(a, "%s/%.*s.%s.mlir", write_dir, STR_ARG(name), kinds[i].name).p, sb_str(&text), &err))
            check(false, what, err.msg);
        sb_free(&text);
    }
    sb_fmt(out, "%.*s %s", STR_ARG(name), type);
    if (code) sb_fmt(out, " %s", err.msg);
    else sb_put(out, sb_str(&digests));
    sb_putc(out, '\n');
    sb_free(&digests);
}

static bool has_line_of(struct str list, const char *type, bool running) {
    struct str line, word;
    while (str_split_next(&list, '\n', &line)) {
        if (!str_split_next(&line, ' ', &word) || !str_split_next(&line, ' ', &word) || !str_is(word, type)) continue;
        if (str_starts(line, STR("prompt=")) == running) return true;
    }
    return false;
}

/* ---- the list and the document ------------------------------------------------------------------------------------- */

static void compare(struct arena *a, struct str got, const char *path) {
    struct str want, line, old;
    struct err err = {0};
    if (os_file_load(a, path, 0, &want, &err)) {
        check(false, path, err.msg);
        return;
    }
    while (str_split_next(&got, '\n', &line)) {
        bool same = str_split_next(&want, '\n', &old) && str_eq(line, old);
        check(same, str_fmt(a, "now %.*s", STR_ARG(line)).p, str_fmt(a, "was %.*s", STR_ARG(old)).p);
    }
    check(want.n == 0, path, "it has more lines");
}

/* The sentence that docs/openxla.md has to contain. */
static void check_document(struct arena *a, struct str list, const char *path) {
    struct sb sentence = {0}, missing = {0};
    struct str text;
    struct err err = {0};
    int n = 0;
    for (int32_t i = 0; i < family_count; i++) {
        bool runs = has_line_of(list, family_table[i].type, true) && !has_line_of(list, family_table[i].type, false);
        n += runs;
        if (!runs) sb_fmt(&missing, "%s`%s`", missing.n ? ", " : "", family_table[i].type);
    }
    sb_fmt(&sentence, "%d of the %d model types run; without an emitter or a fixture: %s.", n, (int)family_count,
           missing.n ? missing.p : "none");
    check(n >= 40, "model types", "fewer than 40 run");
    check(os_file_load(a, path, 0, &text, &err) == ERR_OK && str_find(text, sb_str(&sentence), 0) != STR_NONE, path,
          str_fmt(a, "it must say \"%s\"", sentence.p).p);
    printf("%s\n", sentence.p);
    sb_free(&sentence);
    sb_free(&missing);
}

int main(int argc, char **argv) {
    static const char traces[] = MLXCEL_SOURCE_DIR "/tests/golden/traces", list[] = MLXCEL_SOURCE_DIR "/tests/xla/programs/families.list";
    struct arena a = {0};
    struct str *names;
    struct sb got = {0};
    struct err err = {0};
    size_t n;
    bool update = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--update")) update = true;
        else if (!strcmp(argv[i], "--write") && i + 1 < argc) write_dir = argv[++i];
    }
    struct str exe = str_of(test_exe_path());
    size_t cut = exe.n;
    while (cut > 0 && exe.p[cut - 1] != '/' && exe.p[cut - 1] != '\\') cut--;
    plugin = str_fmt(&a, "%.*sfake-pjrt/fake_pjrt.so", (int)cut, exe.p).p;
    if (os_list_dir(&a, traces, &names, &n, &err)) {
        printf("%s\n", err.msg);
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        struct arena one = {0};
        if (str_ends(names[i], STR(".json"))) put_line(&one, traces, str_sub(names[i], 0, names[i].n - 5), &got);
        arena_free(&one);
    }
    if (update && os_file_save(list, sb_str(&got), &err)) check(false, list, err.msg);
    compare(&a, sb_str(&got), list);
    check_document(&a, sb_str(&got), MLXCEL_SOURCE_DIR "/docs/openxla.md");
    sb_free(&got);
    arena_free(&a);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
