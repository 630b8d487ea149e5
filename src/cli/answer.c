/* Answers as they come. Escape sequences go to terminals that show colours, and nowhere else. */
#include "cli/answer.h"

#include "base/log.h"
#include "os/os.h"

void answer_begin(struct answer *a) {
    sb_clear(&a->thoughts);
    sb_clear(&a->text);
    a->notes = a->dims = false;
    a->breaks = true;
    a->joins = os_is_terminal(OS_STDOUT) && os_is_terminal(OS_STDERR);
}

static void put_bytes(struct answer *a, struct str text) {
    if (a->silent || a->code || text.n == 0) return;
    a->breaks = text.p[text.n - 1] == '\n';
    a->code = os_write(OS_STDOUT, text, &a->err);
    log_gap(!a->breaks && a->joins ? "\n" : NULL);
}

/* Of what the model says. */
static void put(struct answer *a, struct str text) {
    struct sb out = {0};
    if (!a->wraps || a->silent) {
        put_bytes(a, text);
        return;
    }
    a->screen.width = os_console_width();
    a->screen.marks = os_has_color(OS_STDOUT) && !a->dims;
    screen_text_put(&a->screen, text, &out);
    put_bytes(a, sb_str(&out));
    sb_free(&out);
}

/* What is held back of it. */
static void flush(struct answer *a) {
    struct sb out = {0};
    if (!a->wraps || a->silent) return;
    screen_text_end(&a->screen, &out);
    put_bytes(a, sb_str(&out));
    sb_free(&out);
}

static void put_code(struct answer *a, const char *sequence) {
    if (!a->silent && !a->code && os_has_color(OS_STDOUT)) a->code = os_write(OS_STDOUT, str_of(sequence), &a->err);
}

static void begin_thoughts(struct answer *a) {
    if (!a->shows) {
        if (!a->notes && os_has_color(OS_STDOUT)) put_code(a, "\x1b[2mthinking ...\x1b[0m");
        a->notes = true;
        return;
    }
    if (a->dims) return;
    a->dims = true;
    if (os_has_color(OS_STDOUT)) put_code(a, "\x1b[2m");
    else put(a, STR("<think>\n"));
}

static void end_thoughts(struct answer *a) {
    if (a->notes) put_code(a, "\r\x1b[K");
    a->notes = false;
    if (!a->dims) return;
    flush(a);
    a->dims = false;
    put_code(a, "\x1b[0m");
    if (!os_has_color(OS_STDOUT)) put(a, STR("\n</think>"));
    flush(a); /* a last word waits for what follows it */
    put_bytes(a, STR("\n\n"));
}

static void push_thoughts(struct answer *a, struct str thoughts) {
    sb_put(&a->thoughts, thoughts);
    begin_thoughts(a);
    if (a->shows) put(a, thoughts);
}

static void push_text(struct answer *a, struct str text) {
    sb_put(&a->text, text);
    end_thoughts(a);
    put(a, text);
}

bool answer_push(struct answer *a, const struct output_pieces *pieces) {
    for (size_t i = 0; i < pieces->n; i++) {
        struct str text = output_piece_text(pieces, &pieces->p[i]);
        if (text.n == 0) continue;
        if (pieces->p[i].kind == OUTPUT_REASONING) push_thoughts(a, text);
        else push_text(a, text);
    }
    return a->code == ERR_OK;
}

bool answer_end(struct answer *a) {
    if (a->notes || a->dims) end_thoughts(a);
    flush(a);
    if (!a->breaks || a->text.n == 0) put_bytes(a, STR("\n"));
    return a->code == ERR_OK;
}

void answer_free(struct answer *a) {
    sb_free(&a->thoughts);
    sb_free(&a->text);
    screen_text_free(&a->screen);
}
