/* A conversation in the terminal or through a pipe. */
#ifndef MLXCEL_CLI_CHAT_H
#define MLXCEL_CLI_CHAT_H

#include "api/sampling.h"
#include "cli/answer.h"
#include "cli/history.h"
#include "cli/line_edit.h"
#include "cli/progress.h"

struct chat {
    /* set by the caller */
    struct session *session;
    struct sampler_params sampling;
    const struct str *stops;
    size_t n_stops;
    const struct constraint_source *constraint; /* NULL: answers are free */
    int32_t max_new;
    bool is_terminal;    /* prompts, commands' words and figures; else answers alone */
    bool has_template;   /* else the model continues the text */
    const char *history; /* file of lines that were typed; NULL: none */
    /* another model for the rest of the conversation; the names that there are, each followed by a newline */
    int (*change_model)(struct chat *c, struct str name, struct err *err);
    void (*list_models)(struct chat *c, struct sb *out);
    void *owner; /* of these two */
    /* its own */
    struct answer answer;
    struct progress bar; /* of a prompt that is being read */
    struct line_edit editor;
    struct sb system, input, line; /* system: empty is none */
    struct chat_message {
        bool is_user;
        char *text;
        size_t n;
        struct chat_images {
            struct str *files; /* [n] contents of pictures' files */
            size_t n;
        } images;
    } * messages;
    size_t n_messages, capacity;
    struct chat_images images; /* for the next message */
    struct job_usage last;     /* of the newest answer */
    bool is_once;              /* --prompt: one turn, so that an interrupt is the program's end */
    bool is_over;
};

void chat_set_system(struct chat *c, struct str text);
/* One turn: what the user says, and the model's answer to standard output. */
int chat_turn(struct chat *c, struct str text, struct err *err);
/* The newest answer again: another one takes its place. */
int chat_retry(struct chat *c, struct err *err);
/* Turn after turn until /bye or the end of the input. */
int chat_loop(struct chat *c, struct err *err);
void chat_free(struct chat *c);

/* chat_commands.c: a line that begins with a slash; false when it is none. */
bool chat_command(struct chat *c, struct str line);
line_complete_fn chat_complete; /* of commands and what they take; the user is the chat */
/* A line for the user, dimmed where that can be; to the terminal's standard error. */
void chat_say(const char *fmt, ...) MLXCEL_PRINTF(1, 2);
/* chat.c, for the commands */
void chat_clear(struct chat *c);
void chat_add(struct chat *c, bool is_user, struct str text);
/* A picture for the next message, by the content of its file. */
void chat_add_image(struct chat *c, struct str file);
void chat_drop_images(struct chat *c);

#endif
