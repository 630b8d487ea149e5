/* The conversation: messages, turns, reading what the user says. */
#include "cli/chat.h"

#include "cli/interrupt.h"
#include "os/os.h"

enum { MESSAGES_KEPT = 1 }; /* the newest is never dropped */

/* On a screen its lines break between words, as the answers' do. */
void chat_say(const char *fmt, ...) {
    struct sb text = {0}, out = {0};
    struct screen_text screen = {.width = os_console_width()};
    bool dims = os_has_color(OS_STDERR);
    va_list args;
    va_start(args, fmt);
    sb_vfmt(&text, fmt, args);
    va_end(args);
    if (dims) sb_puts(&out, "\x1b[2m");
    if (os_has_screen(OS_STDERR)) screen_text_put(&screen, sb_str(&text), &out), screen_text_end(&screen, &out);
    else sb_put(&out, sb_str(&text));
    if (dims) sb_puts(&out, "\x1b[0m");
    sb_putc(&out, '\n');
    os_write(OS_STDERR, sb_str(&out), NULL);
    screen_text_free(&screen);
    sb_free(&text);
    sb_free(&out);
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

void chat_set_system(struct chat *c, struct str text) {
    sb_clear(&c->system);
    sb_put(&c->system, text);
}

void chat_add(struct chat *c, bool is_user, struct str text) {
    if (c->n_messages == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->messages = mem_realloc(c->messages, c->capacity * sizeof *c->messages);
    }
    char *copy = mem_alloc(text.n + 1);
    memcpy(copy, text.p, text.n);
    struct chat_message *m = &c->messages[c->n_messages++];
    *m = (struct chat_message){.is_user = is_user, .text = copy, .n = text.n};
    if (is_user) m->images = c->images, c->images = (struct chat_images){0};
}

static void free_images(struct chat_images *images) {
    for (size_t i = 0; i < images->n; i++) mem_free((void *)(uintptr_t)images->files[i].p);
    mem_free(images->files);
    *images = (struct chat_images){0};
}

void chat_add_image(struct chat *c, struct str file) {
    struct chat_images *images = &c->images;
    char *copy = mem_alloc(file.n + 1);
    memcpy(copy, file.p, file.n);
    images->files = mem_realloc(images->files, (images->n + 1) * sizeof *images->files);
    images->files[images->n++] = str_n(copy, file.n);
}

void chat_drop_images(struct chat *c) {
    free_images(&c->images);
}

static void drop_first(struct chat *c, size_t n) {
    for (size_t i = 0; i < n; i++) {
        mem_free(c->messages[i].text);
        free_images(&c->messages[i].images);
    }
    memmove(c->messages, c->messages + n, (c->n_messages - n) * sizeof *c->messages);
    c->n_messages -= n;
}

void chat_clear(struct chat *c) {
    drop_first(c, c->n_messages);
}

void chat_free(struct chat *c) {
    chat_clear(c);
    free_images(&c->images);
    mem_free(c->messages);
    answer_free(&c->answer);
    line_free(&c->editor);
    sb_free(&c->system);
    sb_free(&c->input);
    sb_free(&c->line);
}

/* ---- a turn ----------------------------------------------------------------------------------------------------------- */

/* A model without a template goes on with everything that was said, as one text. */
static int encode_text(struct chat *c, struct session_ids *out, struct err *err) {
    struct sb text = {0};
    for (size_t i = 0; i < c->n_messages; i++) {
        const struct chat_message *m = &c->messages[i];
        if (m->is_user && text.n && text.p[text.n - 1] != '\n' && text.p[text.n - 1] != ' ') sb_putc(&text, ' ');
        sb_put(&text, str_n(m->text, m->n));
    }
    int code = session_encode(c->session, &(struct session_prompt){.text = sb_str(&text), .raw = true}, out, err);
    sb_free(&text);
    return code;
}

static int encode_messages(struct chat *c, struct session_ids *out, struct err *err) {
    struct arena a = {0};
    struct session_message *list = arena_new(&a, struct session_message, c->n_messages + 1);
    size_t n = 0, n_images = 0;
    for (size_t i = 0; i < c->n_messages; i++) n_images += c->messages[i].images.n;
    struct str *images = arena_new(&a, struct str, n_images + 1);
    n_images = 0;
    if (c->system.n) list[n++] = (struct session_message){.role = "system", .content = sb_str(&c->system)};
    for (size_t i = 0; i < c->n_messages; i++) {
        const struct chat_message *m = &c->messages[i];
        list[n++] = (struct session_message){m->is_user ? "user" : "assistant", str_n(m->text, m->n), m->images.n};
        for (size_t k = 0; k < m->images.n; k++) images[n_images++] = m->images.files[k];
    }
    struct session_prompt prompt = {.messages = list, .n_messages = n, .images = images, .n_images = n_images};
    int code = session_encode(c->session, &prompt, out, err);
    arena_free(&a);
    return code;
}

/* The oldest turns are left out as soon as the answer would have less than a quarter of the context. */
static int encode(struct chat *c, struct session_ids *out, struct err *err) {
    size_t most = (size_t)session_context(c->session), n_dropped = 0;
    most -= most / 4;
    for (;;) {
        TRY(c->has_template ? encode_messages(c, out, err) : encode_text(c, out, err));
        if (out->n <= most || c->n_messages <= MESSAGES_KEPT) break;
        size_t n = c->n_messages > 2 ? 2 : 1;
        drop_first(c, n);
        n_dropped += n;
    }
    if (n_dropped && c->is_terminal) chat_say("(the context is full: the %zu oldest messages are left out from now on)", n_dropped);
    return ERR_OK;
}

static void on_prompt(void *user, int32_t done, int32_t total) {
    struct chat *c = user;
    if (c->is_terminal) progress_prompt(&c->bar, done, total);
}

static bool on_events(void *user, const struct job_events *ev) {
    struct chat *c = user;
    if (ev->usage.n_new) progress_end(&c->bar);
    return answer_push(&c->answer, ev->pieces);
}

static void show_figures(const struct chat *c, const struct session_result *r) {
    static const char *const ends[] = {[JOB_STOP] = "", [JOB_LENGTH] = ", cut off at the limit", [JOB_CANCELLED] = ", stopped"};
    const struct job_usage *s = &r->usage;
    double rate = s->n_new > 1 && s->new_seconds > 0 ? (s->n_new - 1) / s->new_seconds : 0;
    chat_say("[%d tokens at %.1f tok/s, context %d of %d, %d reused%s]", s->n_new, rate, s->n_prompt + s->n_new,
             session_context(c->session), s->n_cached, ends[r->finish]);
}

/* The model's answer to the prompt, to standard output. */
static int run_answer(struct chat *c, const struct session_ids *ids, struct session_result *out, struct err *err) {
    struct session_watch watch = {.on_events = on_events, .on_prompt = on_prompt, .user = c};
    struct job_spec job = {.tokens = ids->p,
                           .n_tokens = (int32_t)ids->n,
                           .max_new = c->max_new,
                           .sampling = c->sampling,
                           .has_seed = true,
                           .wants_text = true,
                           .wants_progress = true,
                           .continues = !c->has_template,
                           .stops = c->stops,
                           .n_stops = c->n_stops,
                           .constraint = c->constraint};
    if (c->has_template) session_split(c->session, ids->thinks, &job);
    TRY(session_attach(c->session, &job, err));
    answer_begin(&c->answer);
    if (c->is_terminal && !c->is_once) os_term_hush(); /* what is typed meanwhile is the next message's */
    watch.interrupt = interrupt_begin();
    int code = session_run(c->session, &job, &watch, out, err);
    interrupt_end();
    progress_end(&c->bar);
    return code;
}

/* The answer to what was said last. */
static int reply(struct chat *c, struct err *err) {
    struct session_ids ids = {0};
    struct session_result result;
    TRY(encode(c, &ids, err));
    TRY(run_answer(c, &ids, &result, err));
    if (!answer_end(&c->answer)) return err_set(err, c->answer.code, "%s", c->answer.err.msg);
    chat_add(c, false, sb_str(&c->answer.text));
    if (c->is_terminal) show_figures(c, &result);
    c->last = result.usage;
    if (interrupt_came() && (c->is_once || !c->is_terminal)) return err_set(err, ERR_ECANCELLED, "interrupted");
    return ERR_OK;
}

int chat_turn(struct chat *c, struct str text, struct err *err) {
    chat_add(c, true, text);
    int code = reply(c, err);
    if (code && c->messages[c->n_messages - 1].is_user) { /* as if it had not been said */
        struct chat_message *last = &c->messages[--c->n_messages];
        mem_free(last->text);
        free_images(&last->images);
    }
    return code;
}

int chat_retry(struct chat *c, struct err *err) {
    struct chat_message old = c->messages[--c->n_messages];
    int code = reply(c, err);
    if (code && c->messages[c->n_messages - 1].is_user) c->messages[c->n_messages++] = old; /* the answer that there was */
    else mem_free(old.text);
    return code;
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

/* For the next session; a file that cannot be written is said once. */
static void keep_line(struct chat *c, struct str line) {
    struct err err;
    if (!c->history || history_add(c->history, line, &err) == ERR_OK) return;
    chat_say("(what is typed is not kept for the next session: %s)", err.msg);
    c->history = NULL;
}

/* The next line into c->line. */
static enum line_end read_line(struct chat *c, const char *prompt, struct err *err) {
    bool is_there;
    if (!c->is_terminal) return os_read_line(&c->line, &is_there, err) ? LINE_FAILED : is_there ? LINE_DONE : LINE_CLOSED;
    enum line_end end = line_read(&c->editor, prompt);
    sb_clear(&c->line);
    sb_put(&c->line, sb_str(&c->editor.text));
    return end;
}

/* Lines up to the closing quotes; the first line is in c->line. */
static enum line_end read_quoted(struct chat *c, struct err *err) {
    static const struct str quotes = {"\"\"\"", 3};
    struct str rest = str_from(sb_str(&c->line), quotes.n);
    for (;;) {
        size_t at = str_find(rest, quotes, 0);
        sb_put(&c->input, str_sub(rest, 0, at == STR_NONE ? rest.n : at));
        if (at != STR_NONE) return LINE_DONE;
        sb_putc(&c->input, '\n');
        enum line_end end = read_line(c, "... ", err);
        if (end != LINE_DONE) return end;
        rest = sb_str(&c->line);
    }
}

/* What the user says, over several lines where they end in a backslash or stand in triple quotes, into c->input. */
static enum line_end read_message(struct chat *c, struct err *err) {
    sb_clear(&c->input);
    enum line_end end = read_line(c, ">>> ", err);
    if (end == LINE_DONE && str_starts(sb_str(&c->line), STR("\"\"\""))) return read_quoted(c, err);
    while (end == LINE_DONE && str_ends(sb_str(&c->line), STR("\\"))) {
        sb_put(&c->input, str_sub(sb_str(&c->line), 0, c->line.n - 1));
        sb_putc(&c->input, '\n');
        end = read_line(c, "... ", err);
    }
    if (end == LINE_DONE) sb_put(&c->input, sb_str(&c->line));
    return end;
}

/* The message is what the arrow keys bring back, not its lines. */
static enum line_end read_input(struct chat *c, struct err *err) {
    enum line_end end = read_message(c, err);
    if (end == LINE_DONE && c->is_terminal && line_remember(&c->editor, sb_str(&c->input))) keep_line(c, sb_str(&c->input));
    return end;
}

static int talk(struct chat *c, struct err *err) {
    while (!c->is_over) {
        enum line_end end = read_input(c, err);
        struct str text = sb_str(&c->input);
        if (end == LINE_CLOSED) break;
        if (end == LINE_FAILED) return err->code;
        if (end == LINE_CANCELLED) {
            if (text.n == 0 && c->line.n == 0) chat_say("(/bye or Ctrl-D leaves)");
            continue;
        }
        if (str_trim(text).n == 0 && (c->has_template || c->n_messages == 0)) continue;
        if (chat_command(c, str_trim(text))) continue;
        int code = chat_turn(c, text, err);
        if (code && (!c->is_terminal || code == ERR_ECANCELLED)) return code;
        if (code) chat_say("error: %s", err->msg);
    }
    return ERR_OK;
}

int chat_loop(struct chat *c, struct err *err) {
    c->editor.complete = chat_complete;
    c->editor.complete_user = c;
    int code = talk(c, err);
    os_term_end();
    return code;
}
