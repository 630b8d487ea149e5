/* Text as it comes, with other work in between: stream [PROMPT [MODEL]]. Every 50 milliseconds without an event a dot goes to standard error. */
#include <mlxcel.h>
#include <stdio.h>

static void tell(const mlxcel_event *event) {
    switch (event->kind) {
    case MLXCEL_EVENT_NONE: fputs(".", stderr); break;
    case MLXCEL_EVENT_PROGRESS: fprintf(stderr, "%d of %d tokens read\n", (int)event->n_read, (int)event->n_prompt); break;
    case MLXCEL_EVENT_REASONING: fprintf(stderr, "%s", event->text); break;
    case MLXCEL_EVENT_TEXT: fputs(event->text, stdout); break;
    case MLXCEL_EVENT_END: printf("\n[%d tokens]\n", (int)event->n_new); break;
    default: break;
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const mlxcel_parameter sampling[] = {{"temperature", 0.7}, {"top_p", 0.9}};
    mlxcel_model_options model_options;
    mlxcel_job_options options;
    mlxcel_event event;
    mlxcel_model *model;
    mlxcel_error error;
    mlxcel_job *job;
    mlxcel_model_options_init(&model_options, sizeof model_options);
    model_options.model = argc > 2 ? argv[2] : NULL;
    if (mlxcel_model_open(&model_options, &model, &error)) return fprintf(stderr, "stream: %s\n", error.message), 1;
    mlxcel_job_options_init(&options, sizeof options);
    options.text = argc > 1 ? argv[1] : "Once upon a time";
    options.max_tokens = 60;
    options.parameters = sampling;
    options.n_parameters = 2;
    options.has_seed = 1;
    options.seed = 7;
    options.wants_progress = 1;
    if (mlxcel_submit(model, &options, &job, &error)) return fprintf(stderr, "stream: %s\n", error.message), 1;
    mlxcel_event_init(&event, sizeof event);
    while (event.kind != MLXCEL_EVENT_END) {
        if (mlxcel_next(job, 50, &event, &error)) return fprintf(stderr, "stream: %s\n", error.message), 1;
        tell(&event);
    }
    mlxcel_job_free(job);
    mlxcel_model_close(model);
    return 0;
}
