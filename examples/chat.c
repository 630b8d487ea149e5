/* A conversation in the terminal: chat [MODEL]. A line is a message; an empty one, or the end of the input, ends it. */
#include <mlxcel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_MAX = 100, LINE_BYTES = 4096, ANSWER_BYTES = 1 << 16 };

static void fail(const mlxcel_error *error) {
    fprintf(stderr, "chat: %s\n", error->message);
    exit(1);
}

/* Prints the answer as it comes, and keeps it. */
static void answer(mlxcel_model *model, const mlxcel_chat *chat, char *out) {
    mlxcel_job_options options;
    mlxcel_event event;
    mlxcel_error error;
    mlxcel_job *job;
    size_t n = 0;
    mlxcel_job_options_init(&options, sizeof options);
    options.chat = chat;
    if (mlxcel_submit(model, &options, &job, &error)) fail(&error);
    mlxcel_event_init(&event, sizeof event);
    while (event.kind != MLXCEL_EVENT_END) {
        if (mlxcel_next(job, -1, &event, &error)) fail(&error);
        if (event.kind != MLXCEL_EVENT_TEXT || n + event.text_bytes >= ANSWER_BYTES) continue;
        fputs(event.text, stdout);
        fflush(stdout);
        memcpy(out + n, event.text, event.text_bytes + 1);
        n += event.text_bytes;
    }
    puts(event.finish == MLXCEL_FINISH_ERROR ? event.text : "");
    mlxcel_job_free(job);
}

int main(int argc, char **argv) {
    static char lines[MESSAGES_MAX / 2][LINE_BYTES], answers[MESSAGES_MAX / 2][ANSWER_BYTES];
    mlxcel_message messages[MESSAGES_MAX];
    mlxcel_model_options options;
    mlxcel_model *model;
    mlxcel_error error;
    mlxcel_chat chat;
    mlxcel_model_options_init(&options, sizeof options);
    options.model = argc > 1 ? argv[1] : NULL;
    if (mlxcel_model_open(&options, &model, &error)) fail(&error);
    mlxcel_chat_init(&chat, sizeof chat);
    chat.messages = messages;
    for (int i = 0; i < MESSAGES_MAX / 2 && fgets(lines[i], LINE_BYTES, stdin) && lines[i][0] != '\n'; i++) {
        lines[i][strcspn(lines[i], "\n")] = 0;
        messages[2 * i] = (mlxcel_message){"user", lines[i]};
        messages[2 * i + 1] = (mlxcel_message){"assistant", answers[i]};
        chat.n_messages = (size_t)(2 * i + 1);
        answer(model, &chat, answers[i]);
    }
    mlxcel_model_close(model);
    return 0;
}
