/* Calls: the shape's steps are followed byte by byte; what stands in the holes becomes a name and JSON. */
#include "text/output/splitter.h"

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool call_is_name_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80 ||
           (c && strchr("_-.:/@$+", c));
}

static bool is_whole(const struct splitter *s) {
    return s->format->flags & FORMAT_WHOLE;
}

/* ---- a complete call -------------------------------------------------------------------------------------------- */

static void reset(struct call *c) {
    struct sb *buffers[] = {&c->name, &c->id, &c->key, &c->attr, &c->text, &c->args, &c->json};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) sb_clear(buffers[i]);
    c->has_name = c->is_group = c->is_begun = c->ate_frame = false;
    c->n_members = c->n_sent = c->args_begin = c->args_end = 0;
}

void call_free(struct call *c) {
    struct sb *buffers[] = {&c->name, &c->id, &c->key, &c->attr, &c->text, &c->args, &c->json};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) sb_free(buffers[i]);
}

static void send_begin(struct splitter *s, struct output_pieces *out) {
    struct call *c = &s->call;
    size_t id_begin = out->text.n;
    sb_put(&out->text, sb_str(&c->id));
    output_pieces_put(out, OUTPUT_CALL, s->n_calls, sb_str(&c->name));
    out->p[out->n - 1].id_begin = id_begin;
    c->is_begun = true;
}

static void send_arguments(struct splitter *s, struct output_pieces *out, struct str args) {
    struct call *c = &s->call;
    if (args.n <= c->n_sent) return;
    output_pieces_put(out, OUTPUT_ARGUMENTS, s->n_calls, str_from(args, c->n_sent));
    c->n_sent = args.n;
}

/* A name that the request does not know is no call where only the name tells a call from other text. */
static bool is_known(const struct splitter *s, struct str name) {
    return !is_whole(s) || !s->options.tools.n || typed_tool(s->options.tools, name);
}

struct typed call_arguments_type(const struct splitter *s) {
    const struct output_tool *tool = typed_tool(s->options.tools, sb_str(&s->call.name));
    return (struct typed){tool ? tool->parameters : NULL, tool ? tool->parameters : NULL};
}

bool call_commit(struct splitter *s) {
    struct call *c = &s->call;
    struct output_pieces *out = s->is_tentative ? &s->held : s->out;
    if (c->name.n == 0 || !is_known(s, sb_str(&c->name))) return false;
    if (c->is_group && c->n_members) sb_putc(&c->args, '}');
    if (c->args.n == 0) sb_puts(&c->args, "{}");
    if (!s->format->no_call || !str_is(sb_str(&c->name), s->format->no_call)) {
        if (!c->is_begun) send_begin(s, out);
        send_arguments(s, out, sb_str(&c->args));
        output_pieces_put(out, OUTPUT_CALL_END, s->n_calls++, (struct str){0});
    }
    reset(c);
    if (s->is_tentative) return true;
    sb_clear(&s->raw);
    s->n_header = 0;
    splitter_after_call(s);
    return true;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

bool call_set_name(struct splitter *s, struct str name) {
    struct call *c = &s->call;
    struct sb copy = {0};
    sb_put(&copy, name);
    sb_clear(&c->name);
    sb_put(&c->name, sb_str(&copy));
    sb_free(&copy);
    c->has_name = true;
    return c->name.n && is_known(s, sb_str(&c->name));
}

/* "functions.NAME:INDEX" is the id and holds the name. */
static bool split_name(struct splitter *s) {
    struct call *c = &s->call;
    struct str full = sb_str(&c->name), name = full;
    size_t n = full.n;
    sb_clear(&c->id);
    sb_put(&c->id, full);
    while (n > 0 && full.p[n - 1] >= '0' && full.p[n - 1] <= '9') n--;
    if (n > 0 && n < full.n && full.p[n - 1] == ':') name.n = n - 1;
    if (str_starts(name, STR("functions."))) name = str_from(name, 10);
    return call_set_name(s, name);
}

/* ---- parameters ------------------------------------------------------------------------------------------------- */

static void begin_member(struct splitter *s) {
    struct call *c = &s->call;
    sb_puts(&c->args, c->n_members++ ? ", " : "{");
    json_quote(&c->args, str_trim(sb_str(&c->key)));
    sb_puts(&c->args, ": ");
    sb_clear(&c->attr);
    c->is_group = true;
}

/* An attribute of the tag says what the value is, else the tool's schema. */
static unsigned value_types(const struct splitter *s) {
    const struct call *c = &s->call;
    const unsigned others = VALUE_NULL | VALUE_BOOL | VALUE_NUMBER | VALUE_ARRAY | VALUE_OBJECT;
    struct str attr = sb_str(&c->attr);
    if (attr.n) return str_is(attr, "true") || str_is(attr, "string") ? VALUE_STRING : others;
    return typed_types(typed_member(call_arguments_type(s), str_trim(sb_str(&c->key))));
}

static void put_value_char(struct call *c, char byte) {
    if (c->types == VALUE_STRING) value_reader_put_char(&c->args, byte);
    else sb_putc(&c->text, byte);
}

static void value_char(struct splitter *s, char byte) {
    struct call *c = &s->call;
    bool strips = s->shape.steps[c->at].op == SHAPE_LINES, is_first = c->is_first;
    c->is_first = false;
    if (strips && byte == '\n' && is_first) return;
    if (c->has_newline) put_value_char(c, '\n');
    c->has_newline = strips && byte == '\n';
    if (!c->has_newline) put_value_char(c, byte);
}

static void begin_value(struct splitter *s) {
    struct call *c = &s->call;
    c->types = s->format->flags & FORMAT_CDATA ? 0 : value_types(s);
    c->is_first = true;
    c->has_newline = false;
    sb_clear(&c->text);
    if (c->types == VALUE_STRING) sb_putc(&c->args, '"');
}

/* False when the closing tag stands inside <![CDATA[ ]]> and closes nothing. */
static bool end_value(struct splitter *s, const struct literal *close) {
    struct call *c = &s->call;
    struct str text = sb_str(&c->text);
    if (c->types == VALUE_STRING) {
        sb_putc(&c->args, '"');
        return true;
    }
    if (s->format->flags & FORMAT_CDATA) {
        struct str open = STR("<![CDATA["), end = STR("]]>");
        c->types = value_types(s);
        if (str_starts(text, open)) {
            if (text.n < open.n + end.n || !str_ends(text, end)) {
                c->types = 0;
                sb_put(&c->text, close->text);
                return false;
            }
            text = str_sub(text, open.n, text.n - open.n - end.n);
        }
    }
    typed_put(&c->args, text, c->types);
    return true;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static void begin_hole(struct splitter *s) {
    struct call *c = &s->call;
    c->n_matched = 0;
    switch (s->shape.steps[c->at].op) {
    case SHAPE_KEY: sb_clear(&c->key); break;
    case SHAPE_STRING_ATTR:
    case SHAPE_TYPE_ATTR: sb_clear(&c->attr); break;
    case SHAPE_VALUE:
    case SHAPE_LINES: begin_value(s); break;
    case SHAPE_ARGUMENTS: value_reader_begin(&c->value, VALUE_JSON, NULL, false, &c->args); break;
    case SHAPE_CALL:
    case SHAPE_ANSWER:
        sb_clear(&c->json);
        value_reader_begin(&c->value, VALUE_JSON, NULL, false, &c->json);
        break;
    case SHAPE_KEYWORDS: value_reader_begin_keywords(&c->value, &c->args); break;
    case SHAPE_QUOTED: value_reader_begin(&c->value, VALUE_QUOTED, &s->quote, false, &c->args); break;
    case SHAPE_ELEMENTS: elements_begin(&c->elements, &s->element, "invoke", call_arguments_type(s), &c->args, &c->text); break;
    default: sb_clear(&c->text); break;
    }
}

/* Goes on from the step until a byte is needed. */
static enum call_feed run(struct splitter *s, int at) {
    struct call *c = &s->call;
    for (;;) {
        const struct shape_step *step = &s->shape.steps[at];
        c->at = at;
        switch (step->op) {
        case SHAPE_JUMP: at = step->target; break;
        case SHAPE_COMMIT:
            if (s->shape.steps[at - 1].op != SHAPE_ANSWER && !call_commit(s)) return CALL_LEFT;
            at++;
            break;
        case SHAPE_END: c->mode = CALL_OVER; return CALL_ENDED;
        case SHAPE_LITERAL:
        case SHAPE_EITHER:
            c->mode = CALL_CHOOSING;
            c->choice = (struct shape_choice){.fallback = -1, .other = -1};
            shape_next(&s->shape, at, &c->choice);
            c->alive = (1u << c->choice.n) - 1;
            c->n_matched = 0;
            c->best = -1;
            return CALL_TAKEN;
        default:
            c->mode = CALL_HOLE;
            begin_hole(s);
            return CALL_TAKEN;
        }
    }
}

void call_begin(struct splitter *s, int at, struct str name) {
    reset(&s->call);
    if (name.n) call_set_name(s, name);
    run(s, at);
}

static enum call_feed end_literal(struct splitter *s, int which) {
    struct call *c = &s->call;
    if (c->choice.literals[which]->closes && !s->is_tentative) sb_clear(&s->raw);
    return run(s, c->choice.next[which]);
}

/* A longer literal did not come: what stands behind the shorter one is read again. */
static enum call_feed go_back(struct splitter *s, char byte) {
    struct call *c = &s->call;
    char again[LITERAL_BYTES];
    size_t n = c->n_matched - c->n_best;
    memcpy(again, s->raw.p + s->raw.n - 1 - n, n);
    enum call_feed fed = end_literal(s, c->best);
    for (size_t i = 0; i < n && fed == CALL_TAKEN; i++) fed = call_feed(s, again[i]);
    return fed == CALL_TAKEN ? call_feed(s, byte) : CALL_LEFT;
}

static bool needs_brace(enum shape_op op) {
    return op == SHAPE_ARGUMENTS || op == SHAPE_CALL || op == SHAPE_ANSWER;
}

static enum call_feed fall_back(struct splitter *s, char byte) {
    struct call *c = &s->call;
    int at = c->choice.fallback;
    if (at >= 0 && byte != '{' && c->choice.other >= 0 && needs_brace(s->shape.steps[at].op)) at = c->choice.other;
    if (at < 0 || s->shape.steps[at].op == SHAPE_END) return CALL_LEFT;
    if (s->shape.steps[at].op == SHAPE_CODE && !output_is_code_tool(sb_str(&c->name))) return CALL_LEFT;
    run(s, at);
    return call_feed(s, byte);
}

static enum call_feed choose(struct splitter *s, char byte) {
    struct call *c = &s->call;
    unsigned alive = 0;
    int done = -1;
    if (c->n_matched == 0 && is_space(byte)) return CALL_TAKEN;
    for (int i = 0; i < c->choice.n; i++) {
        const struct literal *l = c->choice.literals[i];
        if (!(c->alive >> i & 1) || !literal_takes(l, c->n_matched, byte, s->is_token)) continue;
        if (c->n_matched + 1 == l->text.n) done = i;
        else alive |= 1u << i;
    }
    if (done >= 0 && !alive) return end_literal(s, done);
    if (!alive) {
        if (c->best >= 0) return go_back(s, byte);
        return c->n_matched ? CALL_LEFT : fall_back(s, byte);
    }
    c->alive = alive;
    c->n_matched++;
    if (done >= 0) {
        c->best = done;
        c->n_best = c->n_matched;
    }
    return CALL_TAKEN;
}

static enum call_feed step_name(struct splitter *s, char byte) {
    struct call *c = &s->call;
    enum shape_op op = s->shape.steps[c->at].op;
    struct sb *into = op == SHAPE_ID ? &c->id : op == SHAPE_SKIP ? &c->text : &c->name;
    if (into->n == 0 && is_space(byte)) return CALL_TAKEN;
    if (call_is_name_char(byte)) {
        sb_putc(into, byte);
        return into->n <= OUTPUT_NAME_BYTES ? CALL_TAKEN : CALL_LEFT;
    }
    if (into->n == 0) return CALL_LEFT;
    if (op == SHAPE_FULL_NAME && !split_name(s)) return CALL_LEFT;
    if (op == SHAPE_NAME && !call_set_name(s, sb_str(&c->name))) return CALL_LEFT;
    run(s, c->at + 1);
    return call_feed(s, byte);
}

/* Text up to a literal: keys, attributes, values. */
static enum call_feed step_until(struct splitter *s, char byte) {
    struct call *c = &s->call;
    enum shape_op op = s->shape.steps[c->at].op;
    const struct literal *close = &s->shape.steps[c->at + 1].literal;
    bool is_value = op == SHAPE_VALUE || op == SHAPE_LINES;
    struct sb *into = op == SHAPE_KEY ? &c->key : &c->attr;
    size_t before = c->n_matched, now = literal_advance(close, before, byte, s->is_token);
    for (size_t i = 0; i < before + 1 - now; i++) {
        char out = i < before ? close->text.p[i] : byte;
        if (is_value) value_char(s, out);
        else sb_putc(into, out);
    }
    c->n_matched = now;
    if (!is_value && into->n > OUTPUT_NAME_BYTES) return CALL_LEFT;
    if (now < close->text.n) return CALL_TAKEN;
    c->n_matched = 0;
    if (is_value && !end_value(s, close)) return CALL_TAKEN;
    if (op == SHAPE_KEY) begin_member(s);
    return run(s, c->at + 2);
}

/* Code goes to the end of the text, or to the next message. */
static enum call_feed step_code(struct splitter *s, char byte) {
    struct call *c = &s->call;
    sb_putc(&c->text, byte);
    if (!s->frame_begin.text.n) return CALL_TAKEN;
    c->n_matched = literal_advance(&s->frame_begin, c->n_matched, byte, s->is_token);
    if (c->n_matched < s->frame_begin.text.n) return CALL_TAKEN;
    c->text.n -= c->n_matched;
    if (!call_take_code(s)) return CALL_LEFT;
    enum call_feed fed = run(s, c->at + 1);
    c->ate_frame = true;
    return fed;
}

static enum call_feed step_value(struct splitter *s, char byte) {
    struct call *c = &s->call;
    enum shape_op op = s->shape.steps[c->at].op;
    enum value_reader_step step =
        op == SHAPE_ELEMENTS ? elements_step(&c->elements, byte, s->is_token) : value_reader_step(&c->value, byte, s->is_token);
    if (step == VALUE_BAD || step == VALUE_BEFORE) return CALL_LEFT;
    if (op == SHAPE_CALL && c->value.has_member && !call_take_member(s)) return CALL_LEFT;
    if (step == VALUE_MORE) return CALL_TAKEN;
    if (op == SHAPE_CALL && !call_take_arguments(s)) return CALL_LEFT;
    if (op == SHAPE_ANSWER && !call_take_answer(s, sb_str(&c->json))) return CALL_LEFT;
    return run(s, c->at + 1);
}

enum call_feed call_feed(struct splitter *s, char byte) {
    struct call *c = &s->call;
    if (c->mode == CALL_OVER && is_space(byte)) return CALL_TAKEN;
    if (c->mode == CALL_OVER) {
        if (is_whole(s)) return CALL_LEFT;
        run(s, s->shape.start); /* another section may follow */
    }
    if (c->mode == CALL_CHOOSING) return choose(s, byte);
    switch (s->shape.steps[c->at].op) {
    case SHAPE_NAME:
    case SHAPE_FULL_NAME:
    case SHAPE_ID:
    case SHAPE_SKIP: return step_name(s, byte);
    case SHAPE_KEY:
    case SHAPE_STRING_ATTR:
    case SHAPE_TYPE_ATTR:
    case SHAPE_VALUE:
    case SHAPE_LINES: return step_until(s, byte);
    case SHAPE_CODE: return step_code(s, byte);
    default: return step_value(s, byte);
    }
}

size_t call_n_partial(const struct splitter *s) {
    return s->call.mode == CALL_CHOOSING ? s->call.n_matched : 0;
}

bool call_finish(struct splitter *s, bool is_cut) {
    struct call *c = &s->call;
    if (c->mode == CALL_HOLE && s->shape.steps[c->at].op == SHAPE_CODE) {
        if (is_cut || !call_take_code(s) || run(s, c->at + 1) == CALL_LEFT) return false;
    }
    if (is_whole(s)) return c->mode == CALL_OVER || (c->mode == CALL_CHOOSING && c->n_matched == 0 && c->choice.may_end);
    if (c->mode != CALL_CHOOSING) return c->mode == CALL_OVER;
    for (int i = 0; i < c->choice.n; i++)
        if (c->alive >> i & 1 && c->choice.literals[i]->closes) return true; /* the beginning of what closes it */
    return false;
}

/* ---- as it comes ------------------------------------------------------------------------------------------------ */

void call_send(struct splitter *s) {
    struct call *c = &s->call;
    if (!c->has_name || s->is_tentative || c->mode != CALL_HOLE) return;
    enum shape_op op = s->shape.steps[c->at].op;
    struct str args = sb_str(&c->args);
    if (op == SHAPE_CALL) {
        struct str key = str_sub(sb_str(&c->json), c->value.key_begin + 1, c->value.key_end - c->value.key_begin - 2);
        if (c->args_end) args = str_sub(sb_str(&c->json), c->args_begin, c->args_end - c->args_begin);
        else if (c->value.depth > 1 && output_is_arguments_key(key))
            args = str_from(str_sub(sb_str(&c->json), 0, c->value.n_certain), c->value.value_reader_begin);
        if (args.n == 0 || args.p[0] != '{') return;
    } else if (op == SHAPE_ARGUMENTS || op == SHAPE_KEYWORDS || op == SHAPE_QUOTED) {
        args.n = c->value.n_certain;
    } else if (op != SHAPE_VALUE && op != SHAPE_LINES && op != SHAPE_KEY && op != SHAPE_ELEMENTS) {
        return;
    }
    if (args.n == 0 || (s->format->no_call && str_is(sb_str(&c->name), s->format->no_call))) return;
    if (!c->is_begun) send_begin(s, s->out);
    send_arguments(s, s->out, args);
}

bool call_break(struct splitter *s) {
    if (!s->call.is_begun) return false;
    output_pieces_put(s->out, OUTPUT_CALL_CUT, s->n_calls++, (struct str){0});
    reset(&s->call);
    splitter_after_call(s);
    return true;
}
