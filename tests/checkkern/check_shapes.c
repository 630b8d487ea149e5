#include "check_shapes.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>

static bool next_word(struct str *line, struct str *word) {
    *line = str_trim(*line);
    return line->n && str_split_next(line, ' ', word);
}

const struct check_shape *check_shapes(struct arena *a, int32_t *out_n) {
    enum { MOST = 64 };
    struct str text, line, name, out, in;
    struct err err;
    struct check_shape *shapes = arena_new(a, struct check_shape, MOST);
    int32_t n = 0;
    if (os_file_load(a, "tests/shapes.list", 0, &text, &err) && os_file_load(a, MLXCEL_SOURCE_DIR "/tests/shapes.list", 0, &text, &err)) {
        printf("FAILED  %s\n", err.msg);
        exit(1);
    }
    while (str_split_next(&text, '\n', &line)) {
        struct check_shape *s = &shapes[n];
        if (str_starts(line, STR("#")) || !next_word(&line, &name)) continue;
        if (n == MOST || !next_word(&line, &out) || !next_word(&line, &in) || !str_to_int64(out, &s->out) || !str_to_int64(in, &s->in)) {
            printf("FAILED  tests/shapes.list: %.*s\n", STR_ARG(name));
            exit(1);
        }
        s->name = name;
        n++;
    }
    *out_n = n;
    return shapes;
}
