/* Times a tokenizer inside one process, one thread: loading, the whole text at once, the text line by line.
 *
 * usage: bench_tokenizer TOKENIZER TEXT REPEATS IDS_OUT
 * Prints one JSON object with the seconds of each run; writes the ids of both ways to IDS_OUT as little-endian int32.
 */
#include "api/tokenizer_files.h"
#include "base/json.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Processor time: other programs on the machine do not count. */
static double seconds_since(clock_t start) {
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static void fail(const struct err *err) {
    fprintf(stderr, "bench_tokenizer: %s\n", err->msg);
    exit(1);
}

static void encode(const struct tok *t, struct tok_work *w, struct str text, struct tok_ids *out) {
    struct err err = {0};
    struct tok_span span = {text, true};
    if (tok_encode_spans(t, w, &span, 1, TOK_PARSE_SPECIAL, out, &err)) fail(&err);
}

static void encode_lines(const struct tok *t, struct tok_work *w, struct str text, struct tok_ids *out) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) encode(t, w, line, out);
}

typedef void way_fn(const struct tok *t, struct tok_work *w, struct str text, struct tok_ids *out);

static void measure(struct jsonw *json, const char *key, way_fn *way, const struct tok *t, struct str text, int repeats,
                    struct tok_ids *all) {
    jsonw_key(json, key);
    jsonw_begin(json, '[');
    for (int i = 0; i < repeats; i++) {
        struct tok_ids ids = {0};
        struct tok_work *w = tok_work_create(); /* each run starts with an empty cache */
        clock_t start = clock();
        way(t, w, text, &ids);
        jsonw_num(json, seconds_since(start));
        tok_work_destroy(w);
        if (i == 0)
            for (size_t k = 0; k < ids.n; k++) tok_ids_put(all, ids.p[k]);
        tok_ids_free(&ids);
    }
    jsonw_end(json, ']');
}

int main(int argc, char **argv) {
    struct arena a = {0};
    struct err err = {0};
    struct str text, file;
    struct sb out = {0};
    struct jsonw json = {.out = &out};
    struct tok_ids ids = {0};
    struct tok *t = NULL;
    if (argc != 5) return fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT REPEATS IDS_OUT\n"), 2;
    int repeats = (int)strtol(argv[3], NULL, 10);
    if (os_file_load(&a, argv[2], 0, &text, &err) || os_file_load(&a, argv[1], 0, &file, &err)) fail(&err);
    jsonw_begin(&json, '{');
    jsonw_key(&json, "load");
    jsonw_begin(&json, '[');
    for (int i = 0; i < repeats; i++) {
        clock_t start = clock();
        tok_destroy(t);
        if (tok_load_any(&t, file, STR(""), &err)) fail(&err);
        jsonw_num(&json, seconds_since(start));
    }
    jsonw_end(&json, ']');
    measure(&json, "whole", encode, t, text, repeats, &ids);
    measure(&json, "lines", encode_lines, t, text, repeats, &ids);
    jsonw_end(&json, '}');
    if (os_file_save(argv[4], str_n((const char *)ids.p, ids.n * sizeof *ids.p), &err)) fail(&err);
    printf("%s\n", out.p);
    tok_destroy(t);
    tok_ids_free(&ids);
    sb_free(&out);
    arena_free(&a);
    return 0;
}
