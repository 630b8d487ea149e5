/* The library where every n-th malloc fails: out_of_memory N...  Errors must come back, nothing may leak, and the process must live.
 * A line for each n: how many calls failed, how many functions gave errors, how many blocks are left behind. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mlxcel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_errors;

static int good(int32_t code, const mlxcel_error *error) {
    if (code && (code != error->code || !error->message[0])) abort(); /* an error without words */
    n_errors += code != 0;
    return code == 0;
}

static void ask(mlxcel_model *model) {
    static const mlxcel_parameter greedy[] = {{"temperature", 0}};
    static const char *const texts[] = {"A cat.", "The dog ran."};
    mlxcel_message message = {"user", "Tell me a story"};
    mlxcel_job_options options;
    mlxcel_chat chat;
    mlxcel_error error;
    int32_t *tokens = NULL;
    float *vectors = NULL;
    char *text = NULL;
    size_t n = 0, width;
    double perplexity;
    mlxcel_job_options_init(&options, sizeof options);
    mlxcel_chat_init(&chat, sizeof chat);
    chat.messages = &message;
    chat.n_messages = 1;
    options.chat = &chat;
    options.max_tokens = 8;
    options.parameters = greedy;
    options.n_parameters = 1;
    if (good(mlxcel_complete(model, &options, &text, NULL, &error), &error)) mlxcel_free(text);
    options.chat = NULL;
    options.text = "Yes or no: ";
    options.regex = "(yes|no)";
    if (good(mlxcel_complete(model, &options, &text, NULL, &error), &error)) mlxcel_free(text);
    if (good(mlxcel_embed(model, NULL, texts, 2, &vectors, &width, &error), &error)) mlxcel_free(vectors);
    if (good(mlxcel_tokenize(model, "Once upon a time", 16, 0, &tokens, &n, &error), &error)) {
        if (good(mlxcel_detokenize(model, tokens, n, &text, NULL, &error), &error)) mlxcel_free(text);
        good(mlxcel_perplexity(model, tokens, n, 0, &perplexity, &error), &error);
        mlxcel_free(tokens);
    }
}

static void cycle(void) {
    mlxcel_model_options options;
    mlxcel_model *model;
    mlxcel_error error;
    mlxcel_model_options_init(&options, sizeof options);
    options.device = "cpu";
    options.threads = 1;
    options.parallel = 2;
    if (!good(mlxcel_model_open(&options, &model, &error), &error)) return;
    ask(model);
    mlxcel_model_close(model);
}

int main(int argc, char **argv) {
    void (*arm)(long) = (void (*)(long))dlsym(RTLD_DEFAULT, "failing_malloc_arm");
    long (*live)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "failing_malloc_live");
    long (*failed)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "failing_malloc_failed");
    if (!arm || !live || !failed) return 2;
    mlxcel_log_set(MLXCEL_LOG_NONE, NULL, NULL);
    cycle(); /* what is made once in a process */
    cycle();
    for (int i = 1; i < argc; i++) {
        long before = live();
        n_errors = 0;
        arm(atol(argv[i]));
        cycle();
        long n_failed = failed();
        arm(0);
        printf("%s %ld %d %ld\n", argv[i], n_failed, n_errors, live() - before);
        fflush(stdout);
    }
    return 0;
}
