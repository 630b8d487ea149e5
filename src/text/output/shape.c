/* Shapes to steps. A section is: what opens it, then calls with something between them, then what closes it. */
#include "text/output/shape.h"

#include <assert.h>

struct builder {
    struct shape *s;
    struct arena *a;
    const struct tok *tok;
    bool commits; /* behind the next literal the call is complete */
    bool closes;  /* it is */
};

static int put(struct builder *b, enum shape_op op, int target) {
    assert(b->s->n < SHAPE_STEPS);
    b->s->steps[b->s->n] = (struct shape_step){.op = op, .target = target};
    return b->s->n++;
}

static void commit(struct builder *b) {
    put(b, SHAPE_COMMIT, 0);
    b->commits = false;
    b->closes = true;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n';
}

static const char *put_literal(struct builder *b, const char *p) {
    size_t n = 0;
    while (p[n] && p[n] != '%' && !is_space(p[n])) n++;
    assert(n <= LITERAL_BYTES);
    int at = put(b, SHAPE_LITERAL, 0);
    b->s->steps[at].literal = literal_make(b->a, str_n(p, n), b->tok);
    b->s->steps[at].literal.closes = b->closes;
    if (b->commits) commit(b);
    return p + n;
}

static void put_hole(struct builder *b, char c) {
    static const char letters[] = "nNixkstvVacpgyoe"; /* from SHAPE_NAME on */
    const char *letter = strchr(letters, c);
    assert(letter);
    enum shape_op op = SHAPE_NAME + (enum shape_op)(letter - letters);
    if (op == SHAPE_KEYWORDS) { /* %p: the name and the bracket stand before them */
        put(b, SHAPE_NAME, 0);
        put_literal(b, "(");
    }
    put(b, op, 0);
    if (op >= SHAPE_ARGUMENTS) commit(b);
}

static void put_shape(struct builder *b, const char *p) {
    int open = 0;
    while (p && *p) {
        if (is_space(*p)) p++;
        else if (*p != '%') p = put_literal(b, p);
        else {
            switch (p[1]) {
            case '(':
            case '[':
            case '{': open = put(b, SHAPE_EITHER, 0); break;
            case ')':
                put(b, SHAPE_JUMP, open);
                b->commits = true;
                b->s->steps[open].target = b->s->n;
                break;
            case '_': break;
            case ']':
            case '}': b->s->steps[open].target = b->s->n; break;
            default: put_hole(b, p[1]);
            }
            p += 2;
        }
    }
}

/* Each of the shapes, then a jump to a step that is not known yet: the jumps' places are kept. */
static size_t put_choices(struct builder *b, const char *const *shapes, size_t n_shapes, bool more, int *jumps) {
    size_t n = 0;
    for (; n < n_shapes && shapes[n]; n++) {
        bool is_last = !more && (n + 1 == n_shapes || !shapes[n + 1]);
        int either = is_last ? -1 : put(b, SHAPE_EITHER, 0);
        b->closes = b->commits = false;
        put_shape(b, shapes[n]);
        jumps[n] = put(b, SHAPE_JUMP, 0);
        if (either >= 0) b->s->steps[either].target = b->s->n;
    }
    return n;
}

static void patch(struct shape *s, const int *jumps, size_t n, int target) {
    for (size_t i = 0; i < n; i++) s->steps[jumps[i]].target = target;
}

/* Behind a call: another one, what closes the section, or nothing. */
static void put_after(struct builder *b, const struct output_format *f) {
    struct shape *s = b->s;
    bool is_parted = f->between && str_trim(str_of(f->between)).n;
    bool is_section = f->opens[0] || (f->flags & FORMAT_WHOLE);
    if (is_section && is_parted) {
        int either = put(b, SHAPE_EITHER, 0);
        b->closes = false;
        put_shape(b, f->between);
        put(b, SHAPE_JUMP, s->calls);
        s->steps[either].target = s->n;
    }
    if (is_section && f->close) {
        int either = f->flags & FORMAT_WHOLE ? -1 : put(b, SHAPE_EITHER, 0);
        b->closes = true;
        put_shape(b, f->close);
        put(b, SHAPE_END, 0);
        if (either >= 0) s->steps[either].target = s->n;
    }
    if (is_section && !is_parted && !(f->flags & FORMAT_WHOLE)) {
        put(b, SHAPE_EITHER, s->n + 2);
        put(b, SHAPE_JUMP, s->calls);
    }
    put(b, SHAPE_END, 0);
}

void shape_compile(struct shape *s, struct arena *a, const struct output_format *f, const struct tok *tok) {
    struct builder b = {.s = s, .a = a, .tok = tok};
    int jumps[FORMAT_OPENS], ends[FORMAT_CALLS];
    *s = (struct shape){0};
    bool needs_open = f->opens[0] && !(f->flags & FORMAT_BARE_CALL);
    size_t n_opens = put_choices(&b, f->opens, FORMAT_OPENS, !needs_open, jumps);
    s->calls = s->n;
    patch(s, jumps, n_opens, s->calls);
    size_t n_calls = put_choices(&b, f->calls, FORMAT_CALLS, false, ends);
    patch(s, ends, n_calls, s->n);
    put_after(&b, f);
}

void shape_next(const struct shape *s, int at, struct shape_choice *out) {
    for (;;) {
        const struct shape_step *step = &s->steps[at];
        switch (step->op) {
        case SHAPE_LITERAL:
            assert(out->n < SHAPE_CHOICES);
            out->literals[out->n] = &step->literal;
            out->next[out->n++] = at + 1;
            return;
        case SHAPE_EITHER:
            shape_next(s, at + 1, out);
            at = step->target;
            break;
        case SHAPE_JUMP: at = step->target; break;
        case SHAPE_END: out->may_end = true; /* fallthrough */
        default:
            if (out->fallback < 0) out->fallback = at;
            else if (out->other < 0) out->other = at;
            return;
        }
    }
}
