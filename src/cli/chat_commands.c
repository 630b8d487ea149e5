/* What can be typed with a slash: a table of words and functions. */
#include "cli/chat.h"

#include "base/json.h"
#include "os/os.h"

#include <stdarg.h>

static void help(struct chat *c, struct str rest);

static void clear(struct chat *c, struct str rest) {
    (void)rest;
    chat_clear(c);
    chat_say("The conversation begins anew.");
}

static void set_system(struct chat *c, struct str rest) {
    if (!c->has_template) {
        chat_say("This model has no chat template, so there is no place for a system prompt.");
        return;
    }
    if (rest.n) chat_set_system(c, str_is(rest, "none") ? STR("") : rest);
    if (c->system.n) chat_say("System prompt: %s", c->system.p);
    else chat_say("There is no system prompt. /system TEXT sets one, /system none takes it away.");
}

static void bye(struct chat *c, struct str rest) {
    (void)rest;
    c->is_over = true;
}

static void retry(struct chat *c, struct str rest) {
    struct err err = {0};
    (void)rest;
    if (c->n_messages == 0 || c->messages[c->n_messages - 1].is_user) {
        chat_say("There is no answer yet that could be tried again.");
        return;
    }
    c->sampling.seed++; /* else it would be the same */
    if (chat_retry(c, &err)) chat_say("error: %s", err.msg);
}

static void show(struct chat *c, struct str rest) {
    struct sb line = {0};
    (void)rest;
    session_describe(c->session, &line);
    chat_say("%s", line.p);
    chat_say("%zu messages, %d of %d tokens of context", c->n_messages, c->last.n_prompt + c->last.n_new, session_context(c->session));
    if (c->system.n) chat_say("System prompt: %s", c->system.p);
    sb_free(&line);
}

static void change_model(struct chat *c, struct str rest) {
    struct err err = {0};
    struct sb names = {0};
    if (!c->change_model) {
        chat_say("The model cannot be changed here.");
    } else if (rest.n == 0) {
        session_describe(c->session, &names);
        chat_say("%s", names.p);
        sb_clear(&names);
        c->list_models(c, &names);
        chat_say(names.n ? "/model NAME changes it. Models on this machine:" : "/model NAME changes it. The store has no models yet.");
        for (struct str left = sb_str(&names), one; str_split_next(&left, '\n', &one);)
            if (one.n) chat_say("  %.*s", STR_ARG(one));
    } else if (c->change_model(c, rest, &err)) {
        chat_say("error: %s", err.msg);
    }
    sb_free(&names);
}

/* ---- files ------------------------------------------------------------------------------------------------------------ */

static void put_message(struct jsonw *w, const char *role, struct str text) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", str_of(role));
    jsonw_put_str(w, "content", text);
    jsonw_end(w, '}');
}

static void save(struct chat *c, struct str rest) {
    struct arena a = {0};
    struct sb out = {0}, pretty = {0};
    struct jsonw w = {.out = &out};
    struct err err;
    if (rest.n == 0) {
        chat_say("/save FILE needs the name of a file.");
        return;
    }
    jsonw_begin(&w, '{');
    jsonw_open(&w, "messages", '[');
    if (c->system.n) put_message(&w, "system", sb_str(&c->system));
    for (size_t i = 0; i < c->n_messages; i++)
        put_message(&w, c->messages[i].is_user ? "user" : "assistant", str_n(c->messages[i].text, c->messages[i].n));
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    json_pretty(sb_str(&out), &pretty);
    sb_putc(&pretty, '\n');
    if (os_file_save(str_cstr(&a, rest), sb_str(&pretty), &err)) chat_say("error: %s", err.msg);
    else chat_say("%zu messages are in %s.", c->n_messages, str_cstr(&a, rest));
    sb_free(&out);
    sb_free(&pretty);
    arena_free(&a);
}

static bool is_message(yyjson_val *item) {
    struct str role = json_str(item, "role", STR(""));
    return json_str(item, "content", (struct str){0}).p && (str_is(role, "system") || str_is(role, "user") || str_is(role, "assistant"));
}

static int load_file(struct chat *c, struct arena *a, const char *path, struct err *err) {
    struct str text;
    yyjson_val *root, *item, *list;
    size_t i, n;
    TRY(os_file_load(a, path, 64 << 20, &text, err));
    TRY(json_parse(a, text, path, JSON_STRICT, &root, err));
    list = json_get(root, "messages");
    bool ok = yyjson_is_arr(list);
    yyjson_arr_foreach(list, i, n, item) ok = ok && is_message(item);
    if (!ok) return err_set(err, ERR_EFORMAT, "%s is no conversation: it needs \"messages\" with role and content", path);
    chat_clear(c);
    chat_set_system(c, STR(""));
    yyjson_arr_foreach(list, i, n, item) {
        struct str role = json_str(item, "role", STR("")), content = json_str(item, "content", STR(""));
        if (str_is(role, "system")) chat_set_system(c, content);
        else chat_add(c, str_is(role, "user"), content);
    }
    return ERR_OK;
}

static void load(struct chat *c, struct str rest) {
    struct arena a = {0};
    struct err err;
    const char *path = str_cstr(&a, rest);
    if (rest.n == 0) chat_say("/load FILE needs the name of a file.");
    else if (load_file(c, &a, path, &err)) chat_say("error: %s", err.msg);
    else chat_say("%zu messages from %s. The conversation goes on from there.", c->n_messages, path);
    arena_free(&a);
}

/* ---- pictures --------------------------------------------------------------------------------------------------------- */

static int add_image(struct chat *c, struct arena *a, struct str path, struct err *err) {
    struct str file;
    int32_t width, height;
    TRY(os_file_load(a, str_cstr(a, path), 64 << 20, &file, err));
    TRY(session_check_picture(c->session, file, &width, &height, err));
    chat_add_image(c, file);
    chat_say("A picture of %d x %d pixels goes with your next message.", width, height);
    return ERR_OK;
}

static void add_picture(struct chat *c, struct str rest) {
    struct arena a = {0};
    struct err err;
    if (!c->has_template) chat_say("This model has no chat template, so there is no place for a picture.");
    else if (rest.n == 0)
        chat_say("%zu pictures go with your next message. /image FILE adds one, /image none takes them away.", c->images.n);
    else if (str_is(rest, "none")) chat_drop_images(c);
    else if (add_image(c, &a, rest, &err)) chat_say("error: %s", err.msg);
    arena_free(&a);
}

/* ---- settings --------------------------------------------------------------------------------------------------------- */

static void show_settings(const struct chat *c) {
    struct sampler_params usual = sampler_defaults();
    chat_say("max_tokens %d, seed %llu, show_reasoning %s", c->max_new, (unsigned long long)c->sampling.seed,
             c->answer.shows ? "on" : "off");
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        double value = sampler_field_get(&c->sampling, f);
        bool differs = value > sampler_field_get(&usual, f) || value < sampler_field_get(&usual, f);
        if (i < 5 || differs) chat_say("%s %g", f->name, value);
    }
    chat_say("/set NAME VALUE changes one; the names are those of the options, with _.");
}

static bool set_other(struct chat *c, struct str name, struct str value) {
    int64_t n;
    bool on = str_is(value, "on") || str_is(value, "true") || str_is(value, "1");
    if (str_is(name, "show_reasoning")) c->answer.shows = on;
    else if (!str_to_int64(value, &n)) return false;
    else if (str_is(name, "max_tokens") && n >= -1 && n <= INT32_MAX) c->max_new = (int32_t)n;
    else if (str_is(name, "seed") && n >= 0) c->sampling.seed = (uint64_t)n;
    else return false;
    return true;
}

static void set(struct chat *c, struct str rest) {
    struct str name;
    double value;
    if (rest.n == 0) {
        show_settings(c);
        return;
    }
    str_split_next(&rest, ' ', &name);
    rest = str_trim(rest);
    const struct sampler_field *f = sampler_field_find(name);
    if (f && str_to_double(rest, &value) && sampler_field_set(&c->sampling, f, value)) chat_say("%s is %g now.", f->name, value);
    else if (f) chat_say("%s must be a number from %g to %g.", f->name, f->min, f->max);
    else if (set_other(c, name, rest)) chat_say("%.*s is %.*s now.", STR_ARG(name), STR_ARG(rest));
    else chat_say("There is no setting \"%.*s\" with such a value; /set lists them.", STR_ARG(name));
}

/* ---- the table -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *other, *values, *help;
    void (*run)(struct chat *c, struct str rest);
} table[] = {
    {"help", "?", "", "this list", help},
    {"clear", "new", "", "forget the conversation; the system prompt stays", clear},
    {"system", NULL, "[TEXT]", "show or set the instructions; none: no more", set_system},
    {"retry", NULL, "", "another answer to the last message", retry},
    {"show", NULL, "", "the model, the system prompt and how full the context is", show},
    {"model", NULL, "[NAME]", "show or change the model; the conversation stays", change_model},
    {"set", NULL, "[NAME VALUE]", "show or change settings: temperature, max_tokens, seed ...", set},
    {"image", NULL, "[FILE]", "a picture for the next message; none: no more", add_picture},
    {"save", NULL, "FILE", "write the conversation to a file, without its pictures", save},
    {"load", NULL, "FILE", "read one back", load},
    {"bye", "exit", "", "leave; so does Ctrl-D", bye},
};

static void help(struct chat *c, struct str rest) {
    (void)c, (void)rest;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        chat_say("/%s %-*s  %s", table[i].name, 18 - (int)strlen(table[i].name), table[i].values, table[i].help);
    chat_say("Several lines: paste them, end a line with \\, or put them between \"\"\" and \"\"\".");
    chat_say("Ctrl-C stops an answer. Tab completes commands and models, Ctrl-R searches what was said.");
}

static void put_choice(struct sb *out, struct str prefix, struct str choice) {
    if (str_starts(choice, prefix)) sb_fmt(out, "%.*s\n", STR_ARG(choice));
}

static void complete_value(struct chat *c, struct str command, struct str word, struct sb *out) {
    struct sb names = {0};
    if (str_is(command, "/set")) {
        static const char *const others[] = {"max_tokens", "seed", "show_reasoning"};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) put_choice(out, word, str_of(others[i]));
        for (size_t i = 0; i < n_sampler_fields; i++) put_choice(out, word, str_of(sampler_fields[i].name));
    } else if (str_is(command, "/model") && c->list_models) {
        c->list_models(c, &names);
        for (struct str rest = sb_str(&names), one; str_split_next(&rest, '\n', &one);)
            if (one.n) put_choice(out, word, one);
    }
    sb_free(&names);
}

void chat_complete(void *user, struct str before, struct sb *out) {
    size_t blank = str_find_char(before, ' ', 0);
    if (!str_starts(before, STR("/")) || str_find_char(before, '\n', 0) != STR_NONE) return;
    if (blank != STR_NONE) {
        struct str word = str_from(before, blank + 1);
        if (str_find_char(word, ' ', 0) == STR_NONE) complete_value(user, str_sub(before, 0, blank), word, out);
        return;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sb name = {0};
        sb_fmt(&name, "/%s", table[i].name);
        put_choice(out, before, sb_str(&name));
        sb_free(&name);
    }
}

bool chat_command(struct chat *c, struct str line) {
    if (!str_starts(line, STR("/")) || str_find_char(line, '\n', 0) != STR_NONE) return false;
    struct str rest = str_from(line, 1), word;
    if (!str_split_next(&rest, ' ', &word)) word = STR("");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_is(word, table[i].name) || (table[i].other && str_is(word, table[i].other)) ||
            (str_is(word, "quit") && table[i].run == bye)) {
            table[i].run(c, str_trim(rest));
            return true;
        }
    chat_say("There is no command /%.*s; /help lists them.", STR_ARG(word));
    return true;
}
