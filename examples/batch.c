/* Many prompts at once: batch [MODEL] <PROMPTS, one per line. They are computed as one batch; answers come out in the order of the prompts. */
#include <mlxcel.h>
#include <stdio.h>
#include <string.h>

enum { PROMPTS_MAX = 256, LINE_BYTES = 1024 };

static int print_answer(mlxcel_job *job, const char *prompt) {
    mlxcel_event event;
    mlxcel_error error;
    mlxcel_event_init(&event, sizeof event);
    printf("%s", prompt);
    while (event.kind != MLXCEL_EVENT_END) {
        if (mlxcel_next(job, -1, &event, &error)) return fprintf(stderr, "batch: %s\n", error.message), 1;
        if (event.kind == MLXCEL_EVENT_TEXT) fputs(event.text, stdout);
    }
    puts("");
    return event.finish == MLXCEL_FINISH_ERROR;
}

int main(int argc, char **argv) {
    static const mlxcel_parameter greedy[] = {{"temperature", 0}};
    static const char *const stops[] = {"\n"};
    static char prompts[PROMPTS_MAX][LINE_BYTES];
    mlxcel_job *jobs[PROMPTS_MAX];
    mlxcel_model_options model_options;
    mlxcel_job_options options;
    mlxcel_model *model;
    mlxcel_error error;
    int n = 0, failed = 0;
    mlxcel_model_options_init(&model_options, sizeof model_options);
    model_options.model = argc > 1 ? argv[1] : NULL;
    model_options.parallel = 16;
    if (mlxcel_model_open(&model_options, &model, &error)) return fprintf(stderr, "batch: %s\n", error.message), 1;
    mlxcel_job_options_init(&options, sizeof options);
    options.max_tokens = 32;
    options.parameters = greedy;
    options.n_parameters = 1;
    options.stops = stops;
    options.n_stops = 1;
    for (; n < PROMPTS_MAX && fgets(prompts[n], LINE_BYTES, stdin); n++) {
        prompts[n][strcspn(prompts[n], "\n")] = 0;
        options.text = prompts[n];
        if (mlxcel_submit(model, &options, &jobs[n], &error)) return fprintf(stderr, "batch: %s\n", error.message), 1;
    }
    for (int i = 0; i < n; i++) {
        failed |= print_answer(jobs[i], prompts[i]);
        mlxcel_job_free(jobs[i]);
    }
    mlxcel_model_close(model);
    return failed;
}
