/* Drafts are lossless: every checkpoint folder that is named, without drafts, with ones that know the answer and are wrong now and then, and with those of
 * the sequence itself; greedy and drawn, alone and eight at once. The ids must be the same.
 *
 * usage: draft_tests [--backend NAME] [--default-precision] [--only TEXT]... FOLDER...   (a folder, or a folder of folders)
 */
#include "draft_jobs.h"

#include "os/os.h"

#include <stdio.h>

enum { WRONG_EVERY = 4 };

static const char *backend_name = "cpu", *only[16];
static int n_only;
static enum session_precision precision = SESSION_EXACT;
static int n_passed, n_failed, n_skipped;

/* ---- a drafter that knows ------------------------------------------------------------------------------------------------ */

struct knowing {
    struct drafter base;
    const struct draft_answer *answers; /* [DRAFT_JOBS] */
    int32_t vocab;
};

static int32_t job_of(const struct knowing *k, const int32_t *tokens) {
    for (int32_t i = 0; i < DRAFT_JOBS; i++) {
        int32_t n = 0;
        while (n < DRAFT_PROMPT && tokens[n] == draft_prompt_token(i, n, k->vocab)) n++;
        if (n == DRAFT_PROMPT) return i;
    }
    return -1;
}

static void know(struct drafter *d, struct draft_ask *asks, int32_t n) {
    const struct knowing *k = (const struct knowing *)d;
    for (int32_t i = 0; i < n; i++) {
        int32_t i_job = job_of(k, asks[i].tokens), at = asks[i].n_tokens - DRAFT_PROMPT;
        asks[i].n = asks[i].kind = 0;
        for (; i_job >= 0 && asks[i].n < asks[i].most && at < k->answers[i_job].n; at++)
            asks[i].out[asks[i].n++] = (k->answers[i_job].tokens[at] + (at % WRONG_EVERY == 1)) % k->vocab;
    }
}

static void *know_begin(struct drafter *d, int32_t capacity, int32_t vocab) {
    (void)capacity;
    ((struct knowing *)d)->vocab = vocab;
    return d;
}

static void know_end(struct drafter *d, void *state) {
    (void)d, (void)state;
}

static void know_settled(struct drafter *d, void *state, int32_t n_tokens) {
    (void)d, (void)state, (void)n_tokens;
}

static const struct draft_type knowing_type =
    {.name = "knowing", .hopes = {0.9f}, .begin = know_begin, .end = know_end, .propose = know, .settle = know_settled};

/* ---- a model ------------------------------------------------------------------------------------------------------------- */

static int check_model(struct session *s, int32_t *out_drafted, int32_t *out_accepted, struct err *err) {
    struct draft_answer want[DRAFT_JOBS], got[DRAFT_JOBS];
    struct knowing k = {.base = {.type = &knowing_type}, .answers = want};
    s->engine->drafters[DRAFT_MODEL] = &k.base;
    for (int i = 0; i < 2; i++) {
        struct draft_way way = {.draft = DRAFT_NONE, .temperature = (float)i, .n = DRAFT_JOBS};
        TRY(draft_run(s, &way, want, err));
        const struct draft_way ways[] = {{DRAFT_MODEL, way.temperature, 0, DRAFT_JOBS},
                                         {DRAFT_NGRAM, way.temperature, 0, DRAFT_JOBS},
                                         {DRAFT_MODEL, way.temperature, 3, 1},
                                         {DRAFT_NGRAM, way.temperature, 5, 1}};
        for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
            TRY(draft_run(s, &ways[n], got, err));
            TRY(draft_same(got, want + ways[n].first, &ways[n], err));
            for (int32_t j = 0; j < ways[n].n; j++) *out_drafted += got[j].usage.n_drafted, *out_accepted += got[j].usage.n_accepted;
        }
    }
    return ERR_OK;
}

/* Beyond its length such a table is another one for every row: drafts pause. */
static bool has_dynamic_rope(const struct spec *spec) {
    for (int32_t i = 0; i < spec->n_ropes; i++)
        if (spec->ropes[i].scaling == SCALE_DYNAMIC) return true;
    return false;
}

static void check_folder(const char *dir) {
    struct session_options o = {.model = dir,
                                .backend = backend_name,
                                .precision = precision,
                                .n_seqs = DRAFT_JOBS,
                                .context = 128,
                                .n_threads = 2,
                                .draft = DRAFT_NGRAM,
                                .n_queue = -1};
    struct session *s;
    struct err err = {0};
    int32_t n_drafted = 0, n_accepted = 0;
    if (session_open(&o, &s, &err)) {
        printf("%s: FAILED: %s\n", dir, err.msg);
        n_failed++;
        return;
    }
    if (s->model.spec.is_encoder) {
        n_skipped++;
        session_close(s);
        return;
    }
    bool fails = check_model(s, &n_drafted, &n_accepted, &err);
    bool can_draft = !has_dynamic_rope(&s->model.spec);
    if (!fails && can_draft && (n_accepted == 0 || n_accepted == n_drafted))
        fails = err_set(&err, ERR_EFORMAT, "drafts were never right, or never wrong");
    printf("%s: %s%s %d of %d drafted tokens accepted\n", dir, fails ? "FAILED: " : "same,", fails ? err.msg : "", n_accepted, n_drafted);
    fails ? n_failed++ : n_passed++;
    session_close(s);
}

static bool has_model(const char *dir) {
    char path[1200];
    struct os_stat st;
    snprintf(path, sizeof path, "%s/config.json", dir);
    return os_stat(path, &st, NULL) == ERR_OK;
}

static bool is_wanted(const char *path) {
    bool wanted = n_only == 0;
    for (int i = 0; i < n_only && i < 16; i++) wanted |= strstr(path, only[i]) != NULL;
    return wanted;
}

static void check_any(const char *dir) {
    struct arena a = {0};
    struct err err;
    struct str *names;
    size_t n;
    if (has_model(dir)) {
        if (is_wanted(dir)) check_folder(dir);
        return;
    }
    if (os_list_dir(&a, dir, &names, &n, &err)) {
        printf("%s: FAILED: %s\n", dir, err.msg);
        n_failed++;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/%.*s", dir, STR_ARG(names[i]));
        if (has_model(path) && is_wanted(path)) check_folder(path);
    }
    arena_free(&a);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) backend_name = argv[++i];
        else if (strcmp(argv[i], "--default-precision") == 0) precision = SESSION_AUTO;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only[n_only++ % 16] = argv[++i];
        else check_any(argv[i]);
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed > 0;
}
