/* Words are held back until they end, and the begin of a line until it is known what it is: a few characters at most. */
#include "cli/screen_text.h"

#include "cli/line_view.h"

/* ---- colours ---------------------------------------------------------------------------------------------------------- */

static void put_style(const struct screen_text *s, struct sb *out) {
    if (!s->marks) return;
    sb_puts(out, "\x1b[0m");
    if (s->bold || s->is_heading) sb_puts(out, "\x1b[1m");
    if (s->slanted) sb_puts(out, "\x1b[3m");
    if (s->is_quote) sb_puts(out, "\x1b[2m");
    if (s->code || s->in_fence) sb_puts(out, "\x1b[36m");
}

static bool has_style(const struct screen_text *s) {
    return s->bold || s->is_heading || s->slanted || s->is_quote || s->code || s->in_fence;
}

/* ---- words ------------------------------------------------------------------------------------------------------------ */

static bool is_letter(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

/* The mark that begins at p[i] of a word and is one: it opens before a character and closes behind one. Its length; 0: it is text. */
static size_t mark_at(struct screen_text *s, struct str w, size_t i) {
    char before = i ? w.p[i - 1] : ' ';
    if (w.p[i] == '`') {
        s->code = !s->code;
        return 1;
    }
    if (s->code || w.p[i] != '*') return 0;
    size_t n = i + 1 < w.n && w.p[i + 1] == '*' ? 2 : 1;
    char behind = i + n < w.n ? w.p[i + n] : ' ';
    bool *style = n == 2 ? &s->bold : &s->slanted;
    if (*style ? before == ' ' && i == 0 && w.n > n : behind == ' ' || (n == 1 && is_letter(before))) return 0;
    *style = !*style;
    return n;
}

/* The word as it is written; how many columns it takes. */
static int dress(struct screen_text *s, struct str w, struct sb *out) {
    int n_columns = 0;
    for (size_t i = 0; i < w.n;) {
        size_t n_mark = s->marks ? mark_at(s, w, i) : 0;
        uint32_t code;
        if (n_mark) {
            put_style(s, out);
            i += n_mark;
            continue;
        }
        size_t n = utf8_decode(w.p + i, w.n - i, &code);
        sb_put(out, str_n(w.p + i, n));
        n_columns += char_columns(code);
        i += n;
    }
    return n_columns;
}

static void put_blanks(struct sb *out, int n) {
    while (n-- > 0) sb_putc(out, ' ');
}

static void end_word(struct screen_text *s, struct sb *out) {
    struct sb dressed = {0};
    if (s->word.n == 0) return;
    int n = dress(s, sb_str(&s->word), &dressed);
    if (s->column > s->indent && s->column + s->n_blanks + n > s->width) {
        sb_putc(out, '\n');
        put_blanks(out, s->indent);
        s->column = s->indent;
    } else {
        put_blanks(out, s->n_blanks);
        s->column += s->n_blanks;
    }
    sb_put(out, sb_str(&dressed));
    s->column += n;
    if (s->column > s->width) s->column %= s->width; /* longer than a line: the terminal has broken it */
    s->n_blanks = 0;
    sb_clear(&s->word);
    sb_free(&dressed);
}

/* ---- lines ------------------------------------------------------------------------------------------------------------ */

enum kind { KIND_OPEN, KIND_TEXT, KIND_HEADING, KIND_ITEM, KIND_QUOTE, KIND_FENCE, KIND_RAW };

static size_t run_of(struct str t, char c) {
    size_t n = 0;
    while (n < t.n && t.p[n] == c) n++;
    return n;
}

/* What a line is, by its first characters; KIND_OPEN: more of them will tell. */
static enum kind kind_of(struct str head) {
    struct str t = str_from(head, run_of(head, ' '));
    if (t.n == 0) return KIND_OPEN;
    size_t n = run_of(t, t.p[0]), n_digits = 0;
    switch (t.p[0]) {
    case '#': return n > 6 ? KIND_TEXT : n == t.n ? KIND_OPEN : t.p[n] == ' ' ? KIND_HEADING : KIND_TEXT;
    case '-':
    case '*':
    case '+': return t.n == 1 ? KIND_OPEN : t.p[1] == ' ' ? KIND_ITEM : KIND_TEXT;
    case '>': return t.n == 1 ? KIND_OPEN : KIND_QUOTE;
    case '|': return KIND_RAW;
    case '`':
    case '~': return n >= 3 ? KIND_FENCE : n == t.n ? KIND_OPEN : KIND_TEXT;
    default: break;
    }
    while (n_digits < t.n && t.p[n_digits] >= '0' && t.p[n_digits] <= '9') n_digits++;
    if (n_digits == 0 || n_digits > 9) return KIND_TEXT;
    if (n_digits == t.n) return KIND_OPEN;
    if (t.p[n_digits] != '.' && t.p[n_digits] != ')') return KIND_TEXT;
    return n_digits + 1 == t.n ? KIND_OPEN : t.p[n_digits + 1] == ' ' ? KIND_ITEM : KIND_TEXT;
}

static void put_char(struct screen_text *s, struct str bytes, uint32_t code, struct sb *out);

/* The begin of the line goes out as what it is. */
static void decide(struct screen_text *s, enum kind kind, struct sb *out) {
    struct str head = sb_str(&s->head);
    size_t n_blanks = run_of(head, ' ');
    struct str rest = str_from(head, n_blanks);
    s->at = SCREEN_TEXT;
    if (s->in_fence && kind != KIND_FENCE) kind = KIND_RAW;
    if (kind == KIND_FENCE || kind == KIND_RAW) {
        if (kind == KIND_FENCE && !s->in_fence) s->in_fence = true, put_style(s, out);
        else if (kind == KIND_FENCE) s->ends_fence = true;
        sb_put(out, head);
        s->at = SCREEN_RAW;
    } else if (kind == KIND_HEADING && s->marks) {
        s->is_heading = true;
        put_style(s, out);
    } else {
        if (kind == KIND_QUOTE && s->marks) s->is_quote = true, put_style(s, out);
        if (kind == KIND_ITEM) sb_put(out, head);
        else put_blanks(out, (int)n_blanks);
        s->column = s->indent = (int)(kind == KIND_ITEM ? head.n : n_blanks);
        if (kind == KIND_QUOTE) sb_puts(out, "> "), s->indent = s->column += 2, rest = str_from(rest, 1);
        for (size_t i = 0, n; kind != KIND_ITEM && i < rest.n; i += n) {
            uint32_t code;
            n = utf8_decode(rest.p + i, rest.n - i, &code);
            put_char(s, str_n(rest.p + i, n), code, out);
        }
        if (kind == KIND_QUOTE) s->n_blanks = 0;
    }
    sb_clear(&s->head);
}

static void end_line(struct screen_text *s, struct sb *out) {
    if (s->at == SCREEN_BEGIN && s->head.n) {
        enum kind kind = kind_of(sb_str(&s->head));
        decide(s, kind == KIND_OPEN ? KIND_TEXT : kind, out);
    }
    end_word(s, out);
    if (s->is_empty_line && (s->bold || s->slanted || s->code)) { /* a mark that never closed ends with its paragraph */
        s->bold = s->slanted = s->code = false;
        put_style(s, out);
    }
    bool changes = s->is_heading || s->is_quote || s->ends_fence;
    if (s->ends_fence) s->in_fence = false;
    s->is_heading = s->is_quote = s->ends_fence = false;
    if (changes && s->marks) put_style(s, out);
    sb_putc(out, '\n');
    s->column = s->indent = s->n_blanks = 0;
    s->at = SCREEN_BEGIN;
    s->is_empty_line = true;
}

static void put_char(struct screen_text *s, struct str bytes, uint32_t code, struct sb *out) {
    if (code == '\n') {
        end_line(s, out);
        return;
    }
    if (code == '\r') return;
    if ((code < 32 && code != '\t') || (code >= 127 && code < 160)) bytes = STR("\xEF\xBF\xBD"), code = 0xFFFD;
    if (code != ' ' && code != '\t') s->is_empty_line = false;
    if (s->at == SCREEN_BEGIN) {
        sb_put(&s->head, bytes);
        enum kind kind = kind_of(sb_str(&s->head));
        if (kind != KIND_OPEN) decide(s, kind, out);
    } else if (s->at == SCREEN_RAW) {
        sb_put(out, bytes);
    } else if (code == ' ' || code == '\t') {
        end_word(s, out);
        s->n_blanks += code == ' ' ? 1 : 4;
    } else {
        bool is_wide = char_columns(code) == 2; /* a line may break before and behind it */
        if (is_wide) end_word(s, out);
        sb_put(&s->word, bytes);
        if (is_wide) end_word(s, out);
    }
}

static size_t length_of(char first) {
    unsigned char c = (unsigned char)first;
    return c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
}

void screen_text_put(struct screen_text *s, struct str text, struct sb *out) {
    for (size_t i = 0; i < text.n; i++) {
        uint32_t code;
        s->part[s->n_part++] = text.p[i];
        if (s->n_part < length_of(s->part[0])) continue;
        utf8_decode(s->part, s->n_part, &code);
        put_char(s, str_n(s->part, s->n_part), code, out);
        s->n_part = 0;
    }
}

void screen_text_end(struct screen_text *s, struct sb *out) {
    if (s->at == SCREEN_BEGIN && s->head.n) decide(s, KIND_TEXT, out);
    end_word(s, out);
    if (has_style(s) && s->marks) sb_puts(out, "\x1b[0m");
    s->in_fence = s->ends_fence = s->is_heading = s->is_quote = s->bold = s->slanted = s->code = false;
    s->column = s->indent = s->n_blanks = 0;
    s->n_part = 0;
    s->at = SCREEN_BEGIN;
    s->is_empty_line = true;
}

void screen_text_free(struct screen_text *s) {
    sb_free(&s->head);
    sb_free(&s->word);
}
