/* mlxcel run: talk with a model. */
#include "base/log.h"
#include "cli/chat.h"
#include "cli/session_args.h"
#include "os/os.h"

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

static int talk(const struct args *args, struct chat *c, struct err *err) {
    struct str prompt = args_str(args, OPT_PROMPT), system = args_str(args, OPT_SYSTEM);
    TRY(read_sampling(args, c, err));
    TRY(session_text_load(c->session, err));
    c->has_template = session_has_template(c->session) && !args_flag(args, OPT_NO_TEMPLATE);
    if (system.p && !c->has_template) return err_set(err, ERR_EARG, "--system needs a chat template, and there is none here");
    if (system.p) chat_set_system(c, system);
    c->is_once = prompt.p != NULL;
    TRY(args_prompt(args, &prompt, err));
    if (c->is_once) return chat_turn(c, prompt, err);
    if (c->is_terminal && args_flag(args, OPT_HISTORY)) read_history(args, c);
    if (c->is_terminal) greet(c, !args_given(args, OPT_MODEL) && !args_given(args, OPT_SHAPE) && args->n_operands == 0);
    return chat_loop(c, err);
}

int cmd_run(const struct args *args, struct err *err) {
    struct session_options o;
    struct sb line = {0};
    struct chat c = {.is_terminal = os_is_terminal(OS_STDIN) && os_is_terminal(OS_STDOUT),
                     .max_new = (int32_t)args_int(args, OPT_MAX_TOKENS),
                     .answer.shows = args_flag(args, OPT_SHOW_REASONING)};
    TRY(sampling_args_check(args, err));
    TRY(args_constraint(args, &c.constraint, err));
    TRY(session_args(args, &o, err));
    o.prefix_cache = true;
    c.n_stops = args_strings(args, OPT_STOP, &c.stops);
    TRY(session_open(&o, &c.session, err));
    session_describe(c.session, &line);
    if (c.is_terminal) log_info("%s", line.p);
    int code = talk(args, &c, err);
    chat_free(&c);
    sb_free(&line);
    session_close(c.session);
    return code;
}
