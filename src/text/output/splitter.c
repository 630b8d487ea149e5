/* The splitter: finds markers in text that comes byte by byte, keeps reasoning and content apart, hands calls to call.c.
 *
 * Text that may be the beginning of a marker is held back; so is white space that may stand before a call. A call's own
 * text is kept until it is complete: when it turns out to be none, it is content.
 */
#include "text/output/splitter.h"

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

void output_pieces_put(struct output_pieces *out, enum output_kind kind, int32_t call, struct str text) {
    struct output_piece *last = out->n ? &out->p[out->n - 1] : NULL;
    size_t begin = out->text.n;
    sb_put(&out->text, text);
    if (last && last->kind == kind && last->call == call && last->end == begin && text.n) {
        last->end = out->text.n;
        return;
    }
    if (out->n == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 8;
        out->p = mem_realloc(out->p, out->capacity * sizeof *out->p);
    }
    out->p[out->n++] = (struct output_piece){.kind = kind, .call = call, .id_begin = begin, .begin = begin, .end = out->text.n};
}

void output_pieces_add(struct output_pieces *o, enum output_kind kind, struct str text) {
    if (text.n) output_pieces_put(o, kind, -1, text);
}

void output_pieces_append(struct output_pieces *o, const struct output_pieces *more) {
    for (size_t i = 0; i < more->n; i++) {
        const struct output_piece *p = &more->p[i];
        struct str id = output_piece_id(more, p);
        size_t id_begin = o->text.n, n = o->n;
        sb_put(&o->text, id);
        output_pieces_put(o, p->kind, p->call, output_piece_text(more, p));
        if (o->n > n) o->p[n].id_begin = id_begin;
    }
}

void output_pieces_clear(struct output_pieces *o) {
    o->n = 0;
    sb_clear(&o->text);
}

void output_pieces_free(struct output_pieces *o) {
    mem_free(o->p);
    sb_free(&o->text);
    *o = (struct output_pieces){0};
}

/* ---- characters ------------------------------------------------------------------------------------------------- */

static void release_space(struct splitter *s, enum output_kind kind) {
    if (s->space.n) output_pieces_put(s->out, kind, -1, sb_str(&s->space));
    sb_clear(&s->space);
}

/* White space waits for what follows; true when the byte was such. */
static bool wait_space(struct splitter *s, char c, enum output_kind kind, bool holds) {
    if (!is_space(c)) return false;
    if (s->drops_space) return true;
    sb_putc(&s->space, c);
    if (!holds || s->space.n > SPLITTER_SPACE) release_space(s, kind);
    return true;
}

static void put_char(struct splitter *s, enum output_kind kind, char c) {
    if (s->needs_gap) {
        sb_clear(&s->space);
        output_pieces_put(s->out, kind, -1, STR("\n\n"));
    }
    release_space(s, kind);
    output_pieces_put(s->out, kind, -1, str_n(&c, 1));
    s->drops_space = s->needs_gap = false;
}

static void content_char(struct splitter *s, char c) {
    if (wait_space(s, c, OUTPUT_CONTENT, s->holds_space || s->is_start)) return;
    put_char(s, OUTPUT_CONTENT, c);
    s->is_start = s->is_after_call = false;
}

static void reasoning_char(struct splitter *s, char c) {
    if (wait_space(s, c, OUTPUT_REASONING, true)) return;
    put_char(s, OUTPUT_REASONING, c);
    s->has_reasoning = true;
}

/* ---- where the text goes ---------------------------------------------------------------------------------------- */

static void begin_thoughts(struct splitter *s) {
    sb_clear(&s->space);
    s->state = IN_THOUGHTS;
    s->has_thought = s->drops_space = true;
    s->needs_gap = s->has_reasoning;
}

/* Content follows: another message's, or what stands behind reasoning. */
static void begin_content(struct splitter *s) {
    sb_clear(&s->space);
    s->state = IN_TEXT;
    s->drops_space = true;
    s->needs_gap = !s->is_start;
}

void splitter_after_call(struct splitter *s) {
    s->is_after_call = true;
    if (!s->is_start) return;
    sb_clear(&s->space);
    s->drops_space = true;
}

static void begin_header(struct splitter *s) {
    s->state = IN_HEADER;
    s->n_header = 0;
    sb_clear(&s->raw);
}

static void begin_call(struct splitter *s, int at, bool is_tentative) {
    s->was_thinking = s->state == IN_THOUGHTS;
    s->is_tentative = is_tentative;
    s->state = IN_CALL;
    s->n_header = s->n_close = 0;
    sb_clear(&s->raw);
    call_begin(s, at, (struct str){0});
}

static void act(struct splitter *s, const struct marker *m) {
    switch (m->action) {
    case MARK_THINK: begin_thoughts(s); break;
    case MARK_END_THINK:
        s->has_thought = true;
        begin_content(s);
        break;
    case MARK_CALL:
        begin_call(s, m->next, s->state == IN_THOUGHTS);
        sb_put(&s->raw, m->literal.text);
        break;
    case MARK_FRAME:
        begin_content(s);
        begin_header(s);
        break;
    case MARK_ANSWER:
        s->is_answer = true;
        s->drops_space = true;
        break;
    case MARK_END_ANSWER:
        s->is_answer = false;
        begin_content(s);
        break;
    case MARK_STOP: s->state = AT_STOP; break;
    case MARK_END_FRAME:
    case MARK_SILENT: begin_content(s); break;
    }
}

/* ---- markers ---------------------------------------------------------------------------------------------------- */

static unsigned places_now(const struct splitter *s) {
    if (s->state == IN_THOUGHTS) return IN_REASONING;
    unsigned places = IN_CONTENT | (s->is_answer ? IN_ANSWER : 0);
    if (!s->is_start) return places;
    return places | BEFORE_ANSWER | (s->has_thought ? 0 : BEFORE_THINK);
}

/* The marker that the held text is; NULL with *out_may while it may become one. */
static const struct marker *match(const struct splitter *s, bool *out_may) {
    unsigned places = places_now(s);
    struct str held = sb_str(&s->hold);
    *out_may = false;
    for (int i = 0; i < s->n_markers; i++) {
        const struct marker *m = &s->markers[i];
        if (!(m->places & places) || !str_starts(m->literal.text, held)) continue;
        if (m->literal.is_token && m->literal.is_token[held.n - 1] && !s->is_token) continue;
        if (held.n == m->literal.text.n) return m;
        *out_may = true;
    }
    return NULL;
}

static void step(struct splitter *s, char c);

/* A message that may be calls alone, from its first character on. */
static bool try_whole(struct splitter *s) {
    if (!(s->format->flags & FORMAT_WHOLE) || !s->options.takes_calls || s->tried_whole || !s->is_start || is_space(s->hold.p[0]))
        return false;
    char again[LITERAL_BYTES];
    size_t n = s->hold.n;
    memcpy(again, s->hold.p, n);
    s->tried_whole = true;
    sb_clear(&s->hold);
    begin_call(s, s->shape.start, true);
    for (size_t i = 0; i < n; i++) step(s, again[i]);
    return true;
}

static void step_text(struct splitter *s, char c) {
    bool in_thoughts = s->state == IN_THOUGHTS, may;
    sb_putc(&s->hold, c);
    while (s->hold.n) {
        const struct marker *m = s->hold.n > 1 || s->begins_marker[(unsigned char)s->hold.p[0]] ? match(s, &may) : (may = false, NULL);
        if (m) {
            sb_clear(&s->hold);
            act(s, m);
            return;
        }
        if (may) return;
        if (!in_thoughts && try_whole(s)) return;
        char first = s->hold.p[0];
        memmove(s->hold.p, s->hold.p + 1, --s->hold.n);
        if (in_thoughts) reasoning_char(s, first);
        else content_char(s, first);
    }
}

/* ---- headers of messages ---------------------------------------------------------------------------------------- */

static bool is_header_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80 ||
           (c && strchr("_-.=:/ ", c));
}

enum header { HEADER_MORE, HEADER_DONE, HEADER_BAD };

/* A mark at the beginning of the text: its length; 0 when there is none, STR_NONE while one may come. */
static size_t header_mark(const struct output_frame *f, struct str text) {
    const char *const marks[] = {f->begin, f->marks[0], f->marks[1], f->message};
    size_t n = 0;
    for (size_t i = 0; i < 4; i++) {
        if (!marks[i]) continue;
        struct str mark = str_of(marks[i]);
        if (str_starts(text, mark)) return mark.n;
        if (str_starts(mark, text)) n = STR_NONE;
    }
    return n;
}

static enum header read_header(const struct splitter *s) {
    const struct output_frame *f = s->format->frame;
    struct str text = sb_str(&s->raw), message = str_of(f->message);
    if (text.n > SPLITTER_HEADER) return HEADER_BAD;
    for (size_t i = 0, n; i < text.n; i += n) {
        struct str rest = str_from(text, i);
        n = header_mark(f, rest);
        if (n == STR_NONE) return HEADER_MORE;
        if (n) {
            if (str_starts(rest, message) && i + n == text.n) return HEADER_DONE;
        } else if (is_header_char(text.p[i]) && (!f->everyone || text.p[i] != ' ')) n = 1;
        else return HEADER_BAD;
    }
    struct str start = str_trim(text), to = STR("to=");
    bool is_good = f->everyone || start.n == 0 || header_mark(f, start) || str_starts(start, to) || str_starts(to, start);
    return is_good ? HEADER_MORE : HEADER_BAD;
}

/* The word behind a mark in the header; empty where the mark is absent. */
static struct str header_word(struct str header, const char *mark) {
    size_t at = mark ? str_find(header, str_of(mark), 0) : STR_NONE, n = 0;
    if (at == STR_NONE) return (struct str){0};
    struct str rest = str_from(header, at + strlen(mark));
    while (n < rest.n && !is_space(rest.p[n]) && rest.p[n] != '<') n++;
    return str_sub(rest, 0, n);
}

static bool is_recipient(const struct splitter *s, struct str name) {
    return !s->format->frame->everyone || !s->options.tools.n || typed_tool(s->options.tools, name) || output_is_code_tool(name);
}

static void replay_header(struct splitter *s) {
    char again[SPLITTER_HEADER + 1];
    size_t n = s->raw.n;
    memcpy(again, s->raw.p, n);
    sb_clear(&s->raw);
    s->state = IN_TEXT;
    s->drops_space = false;
    for (size_t i = 0; i < n; i++) step(s, again[i]);
}

static void end_header(struct splitter *s) {
    const struct output_frame *f = s->format->frame;
    struct str header = sb_str(&s->raw);
    struct str recipient = f->everyone ? str_trim(header) : header_word(header, "to="), channel = header_word(header, f->marks[0]);
    bool is_everyone = recipient.n == 0 || (f->everyone && str_is(recipient, f->everyone));
    bool thinks = f->thoughts && (str_is(recipient, f->thoughts) || (is_everyone && str_is(channel, f->thoughts)));
    if (!is_everyone && !thinks && !is_recipient(s, recipient)) {
        replay_header(s);
    } else if (thinks) {
        begin_thoughts(s);
    } else if (is_everyone || !s->options.takes_calls) {
        begin_content(s);
    } else {
        if (str_starts(recipient, STR("functions."))) recipient = str_from(recipient, 10);
        s->state = IN_CALL;
        s->n_header = s->raw.n;
        s->is_tentative = s->was_thinking = false;
        call_begin(s, s->shape.start, s->format->opens[0] ? (struct str){0} : recipient);
    }
}

static void step_header(struct splitter *s, char c) {
    sb_putc(&s->raw, c);
    if (str_is(sb_str(&s->raw), s->format->frame->begin)) sb_clear(&s->raw); /* the prompt's last words, said again */
    switch (read_header(s)) {
    case HEADER_MORE: break;
    case HEADER_DONE: end_header(s); break;
    case HEADER_BAD: replay_header(s); break;
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static int32_t held_calls(const struct splitter *s) {
    int32_t n = 0;
    for (size_t i = 0; i < s->held.n; i++) n += s->held.p[i].kind == OUTPUT_CALL;
    return n;
}

/* This is no call: what it was is text. A header whose message goes on is none of it. */
static void leave_call(struct splitter *s, struct str text) {
    s->state = s->was_thinking ? IN_THOUGHTS : IN_TEXT;
    if (!call_break(s))
        for (size_t i = 0; i < text.n; i++) {
            if (s->was_thinking) reasoning_char(s, text.p[i]);
            else content_char(s, text.p[i]);
        }
    sb_clear(&s->raw);
    s->n_calls -= held_calls(s);
    output_pieces_clear(&s->held);
}

/* The byte does not fit. Neither do the bytes before it that seemed to begin one of the shape's literals: all of them are
 * looked at again, since a marker may begin with them. */
static void leave_at(struct splitter *s, char c) {
    char again[LITERAL_BYTES + 1];
    struct str text = sb_str(&s->raw);
    if (text.n) text.n--;
    size_t n = call_n_partial(s), kept = text.n > s->n_header ? text.n - s->n_header : 0;
    if (n > kept) n = kept;
    if (n) memcpy(again, text.p + text.n - n, n);
    again[n] = c;
    leave_call(s, str_sub(str_from(text, s->n_header), 0, kept - n));
    for (size_t i = 0; i <= n; i++) step(s, again[i]);
}

/* What ends reasoning does so inside a call, too; true when it did. */
static bool ends_thoughts(struct splitter *s, char c) {
    if (!s->was_thinking) return false;
    s->n_close = literal_advance(&s->think_close, s->n_close, c, s->is_token);
    if (s->n_close < s->think_close.text.n) return false;
    struct str text = sb_str(&s->raw);
    leave_call(s, str_sub(text, 0, text.n > s->n_close ? text.n - s->n_close : 0));
    begin_content(s);
    return true;
}

static void step_call(struct splitter *s, char c) {
    enum call_feed fed = CALL_LEFT;
    sb_putc(&s->raw, c);
    if (ends_thoughts(s, c)) return;
    if (s->raw.n <= OUTPUT_CALL_BYTES) fed = call_feed(s, c);
    if (fed == CALL_LEFT) {
        leave_at(s, c);
    } else if (fed == CALL_ENDED && !s->is_tentative) {
        s->state = IN_TEXT;
        if (s->call.ate_frame) begin_header(s);
        sb_clear(&s->raw);
    }
}

static void step(struct splitter *s, char c) {
    switch (s->state) {
    case IN_TEXT:
    case IN_THOUGHTS: step_text(s, c); break;
    case IN_HEADER: step_header(s, c); break;
    case IN_CALL: step_call(s, c); break;
    case AT_STOP: break;
    }
}

static void take(struct splitter *s, struct str text) {
    for (size_t i = 0; i < text.n; i++) {
        if (s->options.tok && text.p[i] == OUTPUT_TOKEN_MARK[0]) s->is_token = !s->is_token;
        else step(s, text.p[i]);
    }
}

void output_push(struct output *o, struct str text, struct output_pieces *out) {
    struct splitter *s = o->s;
    s->out = out;
    if (s->tail.n) { /* whole characters only, so that no piece ends inside one */
        sb_put(&s->tail, text);
        text = sb_str(&s->tail);
    }
    size_t n = utf8_complete_prefix(text);
    take(s, str_sub(text, 0, n));
    if (s->tail.n) {
        memmove(s->tail.p, s->tail.p + n, s->tail.n - n);
        s->tail.n -= n;
    } else if (n < text.n) {
        sb_put(&s->tail, str_from(text, n));
    }
    if (s->options.as_it_comes && s->state == IN_CALL) call_send(s);
}

static void end_text(struct splitter *s) {
    bool in_thoughts = s->state == IN_THOUGHTS;
    for (size_t i = 0; i < s->hold.n; i++) {
        if (in_thoughts) reasoning_char(s, s->hold.p[i]);
        else content_char(s, s->hold.p[i]);
    }
    if (in_thoughts || !s->is_after_call) release_space(s, in_thoughts ? OUTPUT_REASONING : OUTPUT_CONTENT);
}

void output_flush(struct output *o, bool is_cut, struct output_pieces *out) {
    struct splitter *s = o->s;
    s->out = out;
    take(s, sb_str(&s->tail));
    if (s->state == IN_CALL) {
        if (!call_finish(s, is_cut)) {
            leave_call(s, sb_str(&s->raw));
        } else {
            for (size_t i = 0; i < s->held.n; i++) {
                const struct output_piece *p = &s->held.p[i];
                sb_put(&out->text, output_piece_id(&s->held, p));
                output_pieces_put(out, p->kind, p->call, output_piece_text(&s->held, p));
                if (p->kind == OUTPUT_CALL) out->p[out->n - 1].id_begin -= p->begin - p->id_begin;
            }
            s->state = IN_TEXT;
            if (s->held.n) splitter_after_call(s);
        }
    }
    if (s->state == IN_HEADER) {
        s->state = IN_TEXT;
        for (size_t i = 0; i < s->raw.n; i++) content_char(s, s->raw.p[i]);
    }
    if (s->state != AT_STOP) end_text(s);
    sb_clear(&s->tail);
    sb_clear(&s->hold);
    sb_clear(&s->space);
    sb_clear(&s->raw);
}

bool output_is_reasoning(const struct output *o) {
    return o->s->state == IN_THOUGHTS;
}

bool output_is_content(const struct output *o) {
    return o->s->state == IN_TEXT;
}

/* ---- the beginning ---------------------------------------------------------------------------------------------- */

static void add_marker(struct splitter *s, const char *text, enum marker_action action, unsigned places) {
    if (!text || s->n_markers == SPLITTER_MARKERS) return;
    s->markers[s->n_markers++] = (struct marker){literal_make(s->arena, str_of(text), s->options.tok), action, places, 0};
}

/* What can begin a section of calls inside a text. */
static void add_call_markers(struct splitter *s) {
    struct shape_choice choice = {.fallback = -1, .other = -1};
    unsigned places = s->format->frame ? IN_CONTENT : IN_CONTENT | IN_REASONING;
    if (!s->options.takes_calls || s->format->flags & FORMAT_WHOLE || !s->format->calls[0]) return;
    shape_next(&s->shape, s->shape.start, &choice);
    for (int i = 0; i < choice.n && s->n_markers < SPLITTER_MARKERS; i++)
        s->markers[s->n_markers++] = (struct marker){*choice.literals[i], MARK_CALL, places, choice.next[i]};
}

static void add_markers(struct splitter *s, const struct output_reasoning *r) {
    const struct output_format *f = s->format;
    add_call_markers(s);
    if (!f->frame) {
        add_marker(s, r->open, MARK_THINK, r->anywhere ? IN_CONTENT : BEFORE_THINK);
        add_marker(s, r->close, MARK_END_THINK, IN_REASONING | BEFORE_THINK);
        s->think_close = literal_make(s->arena, str_of(r->close), s->options.tok);
    } else {
        add_marker(s, f->frame->begin, MARK_FRAME, IN_CONTENT | IN_REASONING);
        for (size_t i = 0; i < 3; i++) add_marker(s, f->frame->ends[i], MARK_END_FRAME, IN_CONTENT | IN_REASONING);
    }
    for (size_t i = 0; i < FORMAT_SILENT; i++) add_marker(s, f->silent[i], MARK_SILENT, IN_CONTENT);
    add_marker(s, f->answer[0], MARK_ANSWER, BEFORE_ANSWER);
    add_marker(s, f->answer[1], MARK_END_ANSWER, IN_ANSWER);
    add_marker(s, f->stop, MARK_STOP, IN_CONTENT);
    for (int i = 0; i < s->n_markers; i++) {
        s->begins_marker[(unsigned char)s->markers[i].literal.text.p[0]] = true;
        s->holds_space |= (s->markers[i].places & (IN_CONTENT | IN_ANSWER)) != 0;
    }
}

void output_init(struct output *o, struct arena *a, const struct output_options *options) {
    static const struct output_format plain = {.name = "plain"};
    struct splitter *s = arena_new(a, struct splitter, 1);
    o->s = s;
    s->options = *options;
    s->arena = a;
    s->format = options->format ? options->format : &plain;
    const struct output_reasoning *r = options->reasoning ? options->reasoning : s->format->reasoning;
    if (!r) r = &output_reasonings[0];
    if (s->format->calls[0]) shape_compile(&s->shape, a, s->format, options->tok);
    if (s->format->quote) s->quote = literal_make(a, str_of(s->format->quote), options->tok);
    if (s->format->element) s->element = literal_make(a, str_of(s->format->element), options->tok);
    if (s->format->frame) s->frame_begin = literal_make(a, str_of(s->format->frame->begin), options->tok);
    add_markers(s, r);
    s->is_start = true;
    s->state = s->format->frame ? IN_HEADER : IN_TEXT;
    if (options->is_open) begin_thoughts(s);
    if (!options->continues) return;
    if (!options->is_open) s->state = IN_TEXT;
    s->is_start = options->is_open;
    s->drops_space = false;
}

void output_free(struct output *o) {
    struct splitter *s = o->s;
    if (!s) return;
    struct sb *buffers[] = {&s->tail, &s->hold, &s->space, &s->raw};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) sb_free(buffers[i]);
    call_free(&s->call);
    output_pieces_free(&s->held);
    o->s = NULL;
}
