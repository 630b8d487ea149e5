/* mlxcel run: talk with a model. */
#include "base/log.h"
#include "cli/chat.h"
#include "cli/session_args.h"
#include "cli/store_args.h"
#include "os/os.h"

struct owner { /* of the conversation */
    const struct args *args;
    struct session_options options;
};

/* Drawn, unless options or the model's generation_config.json say otherwise. */
static int read_sampling(const struct args *args, struct chat *c, struct err *err) {
    struct sampling_given given;
    TRY(sampling_args(args, &given, err));
    c->sampling = sampler_defaults();
    c->sampling.temperature = SAMPLING_TEMPERATURE;
    c->sampling.top_p = 0.95f;
    sampling_resolve(c->session, &given, &c->sampling);
    return sampling_args_extra(args, &c->sampling, err);
}

static void greet(const struct chat *c, bool is_built_in) {
    if (is_built_in)
        chat_say(
            "This is the small built-in story teller: give it a first sentence or a wish. \"mlxcel run MODEL\" talks with another one.");
    chat_say(c->has_template ? "Type a message; /help lists the commands, Ctrl-D leaves."
                             : "This model has no chat template: it goes on with the text that you begin. Enter alone lets it continue.\n"
                               "/help lists the commands, Ctrl-D leaves.");
}

static void read_history(const struct args *args, struct chat *c) {
    struct err err;
    c->history = history_path(args->arena, args_cstr(args, OPT_HOME));
    if (c->history && history_load(c->history, &c->editor, &err)) {
        chat_say("(nothing is known of earlier sessions: %s)", err.msg);
        c->history = NULL;
    }
}

/* What depends on the model. */
static int meet(const struct args *args, struct chat *c, struct err *err) {
    TRY(read_sampling(args, c, err));
    TRY(session_text_load(c->session, err));
    c->has_template = session_has_template(c->session) && !args_flag(args, OPT_NO_TEMPLATE);
    return ERR_OK;
}

static void list_models(struct chat *c, struct sb *out) {
    const struct args *args = ((struct owner *)c->owner)->args;
    struct store_options o;
    struct store_model *models;
    struct arena a = {0};
    size_t n = 0;
    store_args(args, &o);
    const char *dir = store_models_dir(&a, &o);
    if (dir && store_list(&a, dir, &models, &n, NULL)) n = 0;
    for (size_t i = 0; i < n; i++) sb_fmt(out, "%.*s\n", STR_ARG(models[i].id));
    sb_puts(out, "built-in\n");
    arena_free(&a);
}

static int open_model(struct chat *c, const struct session_options *o, struct err *err) {
    struct owner *own = c->owner;
    c->session = NULL;
    TRY(session_open(o, &c->session, err));
    return meet(own->args, c, err);
}

/* Two may not fit beside each other: the old one goes first, and comes back where the new one cannot be had. */
static int change_model(struct chat *c, struct str name, struct err *err) {
    struct owner *own = c->owner;
    struct session_options o = own->options;
    struct sb line = {0};
    struct err again;
    o.shape = NULL;
    TRY(args_model(own->args, str_copy(own->args->arena, name), &o.model, &o.name, err));
    session_close(c->session);
    int code = open_model(c, &o, err);
    if (!code) own->options = o;
    if (code && c->session) session_close(c->session);
    if (code && open_model(c, &own->options, &again)) {
        c->is_over = true;
        chat_say("error: the model that there was cannot be loaded again: %s", again.msg);
        return code;
    }
    session_describe(c->session, &line);
    if (!code) chat_say("%s", line.p);
    sb_free(&line);
    return code;
}

/* What is to be answered at once: --prompt or the words behind the model, and what comes through a pipe; {NULL, 0}: a conversation. */
static int read_prompt(const struct args *args, struct str *out, struct err *err) {
    enum { INPUT_BYTES_MAX = 64 << 20 };
    struct sb text = {0};
    struct str input = {0};
    size_t first = args_has_model_operand(args);
    bool by_words = args->n_operands > first, by_flag = args_str(args, OPT_PROMPT).p != NULL;
    if (by_words && by_flag) return err_set(err, ERR_EARG, "give the prompt once: behind the model or by --prompt");
    if (by_flag) return args_prompt(args, out, err);
    if (!os_is_terminal(OS_STDIN) && !args_flag(args, OPT_LINES)) TRY(os_read_stdin(args->arena, INPUT_BYTES_MAX, &input, err));
    for (size_t i = first; i < args->n_operands; i++) sb_fmt(&text, "%s%.*s", i > first ? " " : "", STR_ARG(args->operands[i]));
    input = str_trim(input);
    if (text.n && input.n) sb_puts(&text, "\n\n");
    sb_put(&text, input);
    *out = text.n ? str_copy(args->arena, sb_str(&text)) : (struct str){0};
    sb_free(&text);
    return ERR_OK;
}

static int talk(const struct args *args, struct chat *c, struct err *err) {
    struct str prompt = {0}, system = args_str(args, OPT_SYSTEM);
    TRY(meet(args, c, err));
    if (system.p && !c->has_template) return err_set(err, ERR_EARG, "--system needs a chat template, and there is none here");
    if (system.p) chat_set_system(c, system);
    TRY(read_prompt(args, &prompt, err));
    c->is_once = prompt.p != NULL;
    if (c->is_once) return chat_turn(c, prompt, err);
    if (!os_is_terminal(OS_STDIN) && !args_flag(args, OPT_LINES)) return ERR_OK; /* the pipe was empty */
    if (c->is_terminal && args_flag(args, OPT_HISTORY)) read_history(args, c);
    if (c->is_terminal) greet(c, !args_given(args, OPT_MODEL) && !args_given(args, OPT_SHAPE) && args->n_operands == 0);
    return chat_loop(c, err);
}

int cmd_run(const struct args *args, struct err *err) {
    struct owner own = {.args = args};
    struct session_options *o = &own.options;
    struct sb line = {0};
    struct chat c = {.change_model = change_model,
                     .list_models = list_models,
                     .owner = &own,
                     .is_terminal = os_is_terminal(OS_STDIN) && os_is_terminal(OS_STDOUT),
                     .max_new = (int32_t)args_int(args, OPT_MAX_TOKENS),
                     .answer.wraps = os_has_screen(OS_STDOUT),
                     .answer.shows = args_flag(args, OPT_SHOW_REASONING)};
    TRY(sampling_args_check(args, err));
    TRY(args_constraint(args, &c.constraint, err));
    TRY(session_args(args, o, err));
    o->prefix_cache = true;
    c.n_stops = args_strings(args, OPT_STOP, &c.stops);
    TRY(session_open(o, &c.session, err));
    session_describe(c.session, &line);
    if (c.is_terminal) log_info("%s", line.p);
    int code = talk(args, &c, err);
    chat_free(&c);
    sb_free(&line);
    if (c.session) session_close(c.session);
    return code;
}
