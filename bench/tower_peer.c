/* The tower of a GGUF file through llama.cpp's mtmd, timed: tower_peer MMPROJ MODEL SIDE THREADS REPEATS prints the tokens of a made-up picture of SIDE x SIDE pixels, then for
 * each pass the seconds on the clock and those of all threads. The first pass is not timed. Compiled against llama.cpp by towers.py; no part of the program. */
#include "llama.h"
#include "mtmd.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int fail(const char *what) {
    fprintf(stderr, "tower_peer: %s\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 6) return fail("usage: tower_peer MMPROJ MODEL SIDE THREADS REPEATS");
    uint32_t side = (uint32_t)atoi(argv[3]);
    int repeats = atoi(argv[5]);
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params model_params = llama_model_default_params();
    model_params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[2], model_params);
    if (!model) return fail("the text model cannot be read");
    struct mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu = false;
    params.print_timings = false;
    params.warmup = false;
    params.n_threads = atoi(argv[4]);
    mtmd_context *c = mtmd_init_from_file(argv[1], model, params);
    unsigned char *pixels = malloc((size_t)side * side * 3);
    if (!c || !pixels) return fail("the tower cannot be read");
    uint32_t random = 1;
    for (size_t i = 0; i < (size_t)side * side * 3; i++) pixels[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    const mtmd_bitmap *bitmap = mtmd_bitmap_init(side, side, pixels);
    struct mtmd_input_text text = {.text = mtmd_default_marker(), .text_len = strlen(mtmd_default_marker())};
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    if (mtmd_tokenize(c, chunks, &text, &bitmap, 1)) return fail("the picture cannot be cut");
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
        const mtmd_input_chunk *chunk = mtmd_input_chunks_get(chunks, i);
        if (mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) continue;
        printf("%zu\n", mtmd_input_chunk_get_n_tokens(chunk));
        for (int r = 0; r <= repeats; r++) {
            double clock = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
            if (mtmd_encode_chunk(c, chunk)) return fail("the tower does not run");
            if (r) printf("%.4f %.4f\n", now(CLOCK_MONOTONIC) - clock, now(CLOCK_PROCESS_CPUTIME_ID) - used);
        }
    }
    return 0;
}
