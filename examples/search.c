/* Search by meaning: search QUERY [MODEL] <TEXTS, one per line. The texts come out with those first whose vectors are nearest to the query's. */
#include <mlxcel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 1000, LINE_BYTES = 1024 };

struct found {
    float score;
    const char *text;
};

static int nearer_first(const void *a, const void *b) {
    float x = ((const struct found *)a)->score, y = ((const struct found *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

int main(int argc, char **argv) {
    static char lines[TEXTS_MAX][LINE_BYTES];
    static struct found found[TEXTS_MAX];
    const char *texts[TEXTS_MAX + 1];
    mlxcel_model_options options;
    mlxcel_model *model;
    mlxcel_error error;
    float *vectors;
    size_t n = 1, width;
    if (argc < 2) return fprintf(stderr, "usage: search QUERY [MODEL] <TEXTS\n"), 2;
    mlxcel_model_options_init(&options, sizeof options);
    options.model = argc > 2 ? argv[2] : NULL;
    if (mlxcel_model_open(&options, &model, &error)) return fprintf(stderr, "search: %s\n", error.message), 1;
    texts[0] = argv[1];
    for (; n <= TEXTS_MAX && fgets(lines[n - 1], LINE_BYTES, stdin); n++) {
        lines[n - 1][strcspn(lines[n - 1], "\n")] = 0;
        texts[n] = lines[n - 1];
    }
    if (mlxcel_embed(model, NULL, texts, n, &vectors, &width, &error)) return fprintf(stderr, "search: %s\n", error.message), 1;
    for (size_t i = 1; i < n; i++) {
        found[i - 1].text = texts[i];
        for (size_t k = 0; k < width; k++) found[i - 1].score += vectors[k] * vectors[i * width + k];
    }
    qsort(found, n - 1, sizeof *found, nearer_first);
    for (size_t i = 0; i + 1 < n; i++) printf("%.4f %s\n", (double)found[i].score, found[i].text);
    mlxcel_free(vectors);
    mlxcel_model_close(model);
    return 0;
}
