/* Literals, scanners and PCRE2 behind one "next match". */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pattern.h"

#include "text/tokenizer/unicode.h"

#include <limits.h>
#include <pcre2.h>

enum {
    QUICK_STEPS = 128,  /* backtracking steps of a match that is not counted, ... */
    QUICK_BYTES = 256,  /* ... and how far it may look ahead: a step takes longer in a longer text */
    WORK = 10000000,    /* places that all other matches may visit in a text: some tenths of a second, ... */
    WORK_PER_BYTE = 64, /* ... and more for a longer one */
    MATCH_LIMIT = 100000000,
    DEPTH_LIMIT = 10000000,
    HEAP_LIMIT_KIB = 128 * 1024,
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 16 * 1024 * 1024,
    MAX_PATTERN_BYTES = 8 * 1024,
    MAX_LITERAL_BYTES = 256,
    MAX_REWRITTEN_BYTES = 1024 * 1024, /* of an expression with its properties written out */
};

struct tok_pattern {
    struct str literal; /* where scanner and code are NULL; empty: matches nowhere */
    const struct tok_scanner *scanner;
    pcre2_code *code;
    pcre2_code *counted; /* the same; calls back at every part of the expression. NULL: too large for that */
};

struct tok_match_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    size_t left;  /* work that counted matches may still do in this text */
    size_t place; /* where a counted match stood last */
};

/* ---- the dialect ------------------------------------------------------------------------------------------------ */

/* \w of Oniguruma is that of the crate regex but for a few characters, and again for some of them within a class. */
static bool is_word(uint32_t c, bool in_class) {
    if (c == 0x200C || c == 0x200D) return false;
    return (!in_class && (c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE))) || tok_uni(c) & UNI_WORD;
}

static bool has_property(uint32_t c, uint32_t flags, bool in_class) {
    return flags == UNI_WORD ? is_word(c, in_class) : (tok_uni(c) & flags) != 0;
}

/* The characters with (or without) a property as ranges: "\x{61}-\x{7a}...". So the answer is the reference's, whatever
 * version of Unicode PCRE2 was built with. */
static void put_ranges(struct sb *out, uint32_t flags, bool negate, bool in_class) {
    bool inside = false, uniform = false;
    unsigned block = UINT_MAX;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        if (c == 0xD800) c = 0xE000;
        if (c % 128 == 0 && c < 0x110000) { /* most blocks are the same as the one before, and of one kind */
            if (uniform && block == tok_uni_index[c >> 7]) {
                c += 127;
                continue;
            }
            block = tok_uni_index[c >> 7];
            uniform = true;
        }
        bool now = c < 0x110000 && has_property(c, flags, in_class) != negate;
        if (now && !inside) sb_fmt(out, "\\x{%x}-", (unsigned)c);
        if (!now && inside) sb_fmt(out, "\\x{%x}", (unsigned)(c == 0xE000 ? 0xD7FF : c - 1));
        if (now != inside && c % 128) uniform = false;
        inside = now;
    }
}

/* A general category; its characters are known here, or those with none of the flags, or (0) only to PCRE2. */
static const struct category {
    const char *name, *long_name;
    uint32_t flags;
    bool none_of;
} categories[] = {{"L", "letter", UNI_L, false},
                  {"Lu", "uppercaseletter", UNI_LU, false},
                  {"Ll", "lowercaseletter", UNI_LL, false},
                  {"Lt", "titlecaseletter", UNI_LT, false},
                  {"Lm", "modifierletter", UNI_LM, false},
                  {"Lo", "otherletter", UNI_LO, false},
                  {"M", "mark", UNI_M, false},
                  {"Mn", "nonspacingmark", 0, false},
                  {"Mc", "spacingmark", 0, false},
                  {"Me", "enclosingmark", 0, false},
                  {"N", "number", UNI_N, false},
                  {"Nd", "decimalnumber", UNI_ND, false},
                  {"Nl", "letternumber", 0, false},
                  {"No", "othernumber", 0, false},
                  {"P", "punctuation", UNI_P, false},
                  {"Pc", "connectorpunctuation", UNI_PC, false},
                  {"Pd", "dashpunctuation", 0, false},
                  {"Ps", "openpunctuation", 0, false},
                  {"Pe", "closepunctuation", 0, false},
                  {"Pi", "initialpunctuation", 0, false},
                  {"Pf", "finalpunctuation", 0, false},
                  {"Po", "otherpunctuation", 0, false},
                  {"S", "symbol", UNI_S, false},
                  {"Sm", "mathsymbol", 0, false},
                  {"Sc", "currencysymbol", 0, false},
                  {"Sk", "modifiersymbol", 0, false},
                  {"So", "othersymbol", 0, false},
                  {"Z", "separator", UNI_Z, false},
                  {"Zs", "spaceseparator", 0, false},
                  {"Zl", "lineseparator", 0, false},
                  {"Zp", "paragraphseparator", 0, false},
                  {"C", "other", UNI_L | UNI_M | UNI_N | UNI_P | UNI_S | UNI_Z, true},
                  {"Cc", "control", 0, false},
                  {"Cf", "format", 0, false},
                  {"Cn", "unassigned", UNI_CN, false},
                  {"Co", "privateuse", 0, false}};

/* Names are compared without case, blanks, hyphens and underscores. */
static bool is_named(struct str name, const char *known) {
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == ' ' || c == '-' || c == '_') continue;
        if (!*known || (c | 0x20) != (*known | 0x20)) return false;
        known++;
    }
    return !*known;
}

static const struct category *find_category(struct str name) {
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (is_named(name, categories[i].name) || is_named(name, categories[i].long_name)) return &categories[i];
    return NULL;
}

struct rewriting {
    struct str in;
    struct sb *out;
    bool ranges;   /* properties as ranges; else PCRE2's own */
    bool caseless; /* at this place */
};

static int rewrite(const struct rewriting *r, struct err *err);

/* The class "[A&&[^B]]" is written as a look-ahead, (?:(?![B])[A]). Anything more involved is refused. */
static int rewrite_intersection(const struct rewriting *r, struct str class_, struct err *err) {
    size_t cut = str_find(class_, STR("&&"), 0);
    struct str left = str_sub(class_, 1, cut - 1), right = str_from(class_, cut + 2);
    right.n -= 1; /* the outer bracket */
    bool plain = right.n > 3 && right.p[0] == '[' && right.p[1] == '^' && right.p[right.n - 1] == ']' && left.n && left.p[0] != '^' &&
                 str_find_char(left, '[', 0) == STR_NONE && str_find_char(str_sub(right, 2, right.n - 3), '[', 0) == STR_NONE;
    if (!plain) return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: regular expression class %.*s is not supported", STR_ARG(class_));
    struct sb text = {0};
    sb_puts(&text, "(?:(?![");
    sb_put(&text, str_sub(right, 2, right.n - 3));
    sb_puts(&text, "])[");
    sb_put(&text, left);
    sb_puts(&text, "])");
    int code = rewrite(&(struct rewriting){sb_str(&text), r->out, r->ranges, r->caseless}, err);
    sb_free(&text);
    return code;
}

static void put_class(const struct rewriting *r, uint32_t flags, bool negate, bool in_class) {
    if (!in_class) sb_putc(r->out, '[');
    put_ranges(r->out, flags, negate, in_class);
    if (!in_class) sb_putc(r->out, ']');
}

/* The script that patterns name, as Oniguruma has it; other scripts are PCRE2's own. */
static void put_han(struct sb *out, bool negate) {
    static const uint32_t han[][2] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
                                      {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
                                      {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
                                      {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
                                      {0x30000, 0x3134A}, {0x31350, 0x323AF}, {0x110000, 0}};
    uint32_t from = 0;
    for (size_t i = 0; i < sizeof han / sizeof *han; i++) {
        if (negate) sb_fmt(out, "\\x{%x}-\\x{%x}", (unsigned)from, (unsigned)han[i][0] - 1);
        else if (han[i][1]) sb_fmt(out, "\\x{%x}-\\x{%x}", (unsigned)han[i][0], (unsigned)han[i][1]);
        from = han[i][1] + 1;
    }
}

/* Newer PCRE2 also counts what a script shares with others (U+3002 in \p{Han}) and keeps the script alone as \p{sc:Han}, which older
 * ones do not know. */
static bool is_script(struct str name) {
    struct sb text = {0};
    int number;
    PCRE2_SIZE offset;
    sb_fmt(&text, "\\p{sc:%.*s}", STR_ARG(name));
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text.p, text.n, PCRE2_UTF, &number, &offset, NULL);
    pcre2_code_free(code);
    sb_free(&text);
    return code != NULL;
}

/* \p{...} or \P{...} at i; its length, or 0 when it is left to PCRE2. Without a brace it is the letter p. */
static size_t rewrite_property(const struct rewriting *r, size_t i, bool in_class) {
    bool negate = r->in.p[i + 1] == 'P';
    size_t end = str_find_char(r->in, '}', i);
    if (i + 2 >= r->in.n || r->in.p[i + 2] != '{') return sb_putc(r->out, r->in.p[i + 1]), 2;
    if (end == STR_NONE) return 0;
    struct str name = str_sub(r->in, i + 3, end - i - 3);
    if (name.n && name.p[0] == '^') name = str_from(name, 1), negate = !negate;
    const struct category *category = find_category(name);
    bool guard = r->caseless && !in_class; /* on its own it does not care about case; in a class it does */
    sb_puts(r->out, guard ? "(?-i:" : "");
    if (r->ranges && category && category->flags) {
        put_class(r, category->flags, negate != category->none_of, in_class);
    } else if (r->ranges && str_is(name, "Han")) {
        sb_puts(r->out, in_class ? "" : "[");
        put_han(r->out, negate);
        sb_puts(r->out, in_class ? "" : "]");
    } else {
        if (category) name = str_of(category->name);
        sb_fmt(r->out, "\\%c{%s%.*s}", negate ? 'P' : 'p', !category && is_script(name) ? "sc:" : "", STR_ARG(name));
    }
    sb_puts(r->out, guard ? ")" : "");
    return end + 1 - i;
}

/* A border of words, or (negate) a place without one. */
static void put_border(const struct rewriting *r, bool negate) {
    static const char *const parts[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="}, {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
    for (int i = 0; i < 4; i++) {
        sb_puts(r->out, parts[negate][i]);
        put_class(r, UNI_WORD, false, false);
    }
    sb_puts(r->out, "))");
}

/* Hexadecimal digits from i on, at most so many. */
static size_t hex_len(struct str in, size_t i, size_t most) {
    size_t n = 0;
    while (n < most && i + n < in.n && in.p[i + n] && strchr("0123456789abcdefABCDEF", in.p[i + n])) n++;
    return n;
}

/* \uHHHH at i; its length, or 0. */
static size_t rewrite_code(const struct rewriting *r, size_t i) {
    if (hex_len(r->in, i + 2, 4) < 4) return 0;
    sb_fmt(r->out, "\\x{%.4s}", r->in.p + i + 2);
    return 6;
}

/* One escape at i, inside a class or not; returns its length. */
static size_t rewrite_escape(const struct rewriting *r, size_t i, bool in_class) {
    char c = i + 1 < r->in.n ? r->in.p[i + 1] : 0;
    size_t n = c == 'p' || c == 'P' ? rewrite_property(r, i, in_class) : c == 'u' ? rewrite_code(r, i) : 0;
    if (n) return n;
    if (c == 's' || c == 'S') put_class(r, UNI_SPACE, c == 'S', in_class);
    else if (r->ranges && (c == 'w' || c == 'W')) put_class(r, UNI_WORD, c == 'W', in_class);
    else if (r->ranges && (c == 'd' || c == 'D')) put_class(r, UNI_ND, c == 'D', in_class);
    else if (r->ranges && !in_class && (c == 'b' || c == 'B')) put_border(r, c == 'B');
    else if (c == 'v') sb_puts(r->out, "\\x0b");
    else if (c == 'h') sb_puts(r->out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
    else if (c == 'H' && !in_class) sb_puts(r->out, "[^0-9a-fA-F]");
    else if (c == 'O' && !in_class) sb_puts(r->out, "(?s:.)");
    else if (c && strchr("EFIJLQTUVijlmq", c)) sb_putc(r->out, c); /* letters: some mean something here */
    else sb_put(r->out, str_sub(r->in, i, 2));
    return c ? 2 : 1;
}

/* The end of the class that opens at i (behind its bracket), or STR_NONE. */
static size_t class_end(struct str r, size_t i) {
    int depth = 0;
    for (size_t k = i; k < r.n; k++) {
        if (r.p[k] == '\\') k++;
        else if (r.p[k] == '[') depth++;
        else if (r.p[k] == ']' && --depth == 0) return k + 1;
    }
    return STR_NONE;
}

/* Where case does not matter, ranges take in the other case and properties do not. So what of a class has another case is also put as ranges: letters,
 * and the numerals and letters in circles that have case without being letters. What is not upper is lower, as far as that goes. */
static void put_cased(struct sb *out, struct str name, bool negate) {
    bool upper = str_is(name, "upper");
    if (!upper && !str_is(name, "lower")) return;
    upper ^= negate;
    put_ranges(out, upper ? UNI_LU : UNI_LL, false, true);
    sb_puts(out, upper ? "\\x{2160}-\\x{216f}\\x{24b6}-\\x{24cf}" : "\\x{2170}-\\x{217f}\\x{24d0}-\\x{24e9}");
}

/* [:name:] or [:^name:] at i, within a class; returns its length. */
static size_t rewrite_posix(const struct rewriting *r, size_t i) {
    static const struct {
        const char *name, *property;
        uint32_t flags;
    } classes[] = {{"digit", NULL, UNI_ND},    {"space", NULL, UNI_SPACE},      {"punct", NULL, UNI_P | UNI_S}, {"word", NULL, UNI_WORD},
                   {"alpha", "Alphabetic", 0}, {"alnum", "Alphabetic", UNI_ND}, {"upper", "Uppercase", 0},      {"lower", "Lowercase", 0}};
    size_t end = str_find(r->in, STR(":]"), i), n = end == STR_NONE ? 1 : end + 2 - i;
    bool negate = n > 3 && r->in.p[i + 2] == '^';
    struct str name = n > 4 ? str_sub(r->in, i + 2 + negate, n - 4 - negate) : STR("");
    for (size_t k = 0; k < sizeof classes / sizeof *classes && r->ranges; k++) {
        if (!str_is(name, classes[k].name)) continue;
        if (negate && classes[k].flags && classes[k].property) break; /* neither of two has no short form */
        if (classes[k].flags) put_ranges(r->out, classes[k].flags, negate, true);
        if (r->caseless) put_cased(r->out, name, negate);
        if (classes[k].property) sb_fmt(r->out, "\\%c{%s}", negate ? 'P' : 'p', classes[k].property);
        return n;
    }
    sb_put(r->out, str_sub(r->in, i, n));
    return n;
}

/* What "(?imx)" has set, for each open group. */
struct groups {
    struct group {
        bool caseless, extended;
        int n_more;   /* parentheses that close with it */
        size_t start; /* in the output, behind what opens it */
    } at[64];
    size_t n;
};

/* "(?i-m:" or "(?i)" at i: its length, or 0. */
static size_t options_len(struct str in, size_t i) {
    size_t k = i + 2;
    if (i + 1 >= in.n || in.p[i + 1] != '?') return 0;
    while (k < in.n && strchr("imx-", in.p[k]) && in.p[k]) k++;
    return k > i + 2 && k < in.n && (in.p[k] == ':' || in.p[k] == ')') ? k + 1 - i : 0;
}

/* There m lets the dot match newlines, and "a(?i)b|c" is "a(?i:b|c)". */
static void put_options(struct rewriting *r, struct groups *g, struct str options) {
    struct group *now = &g->at[g->n - 1];
    bool on = true, rest = options.p[options.n - 1] == ')', in_place = rest && r->out->n == now->start;
    if (!rest) {
        g->at[g->n] = (struct group){now->caseless, now->extended, 0, 0};
        now = &g->at[g->n++];
    } else if (!in_place) {
        now->n_more++;
    }
    for (size_t i = 0; i + 1 < options.n; i++) {
        char c = options.p[i];
        if (c == '-') on = false;
        if (c == 'i') now->caseless = on;
        if (c == 'x') now->extended = on;
        sb_putc(r->out, c == 'm' ? 's' : c);
    }
    sb_putc(r->out, in_place ? ')' : ':');
    now->start = in_place || !rest ? r->out->n : now->start;
}

/* "(?#...)", or "# ..." up to the end of its line: its length, or 0. */
static size_t comment_len(struct str rest, bool extended) {
    bool to_line_end = extended && rest.p[0] == '#';
    if (!to_line_end && !str_starts(rest, STR("(?#"))) return 0;
    size_t end = str_find_char(rest, to_line_end ? '\n' : ')', 0);
    return end != STR_NONE ? end + 1 : to_line_end ? rest.n : 0;
}

/* A parenthesis or comment at i, outside of classes; its length is 0 where the character means something else. */
static int rewrite_group(struct rewriting *r, struct groups *g, size_t i, size_t *out_len, struct err *err) {
    struct str rest = str_from(r->in, i);
    struct group *now = &g->at[g->n - 1];
    size_t n_options, n_comment = comment_len(rest, now->extended);
    *out_len = n_comment;
    if (n_comment) { /* one without an end would hide the parentheses that are put behind it */
        bool is_open = rest.p[0] == '#' && rest.p[n_comment - 1] != '\n';
        if (!is_open) sb_put(r->out, str_sub(rest, 0, n_comment));
        return ERR_OK;
    }
    if (rest.p[0] != '(' && rest.p[0] != ')') return ERR_OK;
    *out_len = 1;
    if (rest.p[0] == ')') {
        for (int k = 0; k <= now->n_more; k++) sb_putc(r->out, ')');
        if (g->n > 1) g->n--;
    } else if (g->n == sizeof g->at / sizeof *g->at) {
        return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: a regular expression with groups %zu deep is not supported", g->n);
    } else if ((n_options = options_len(r->in, i)) > 0) {
        put_options(r, g, str_sub(rest, 0, n_options));
        *out_len = n_options;
    } else {
        sb_putc(r->out, '(');
        g->at[g->n++] = (struct group){now->caseless, now->extended, 0, r->out->n};
    }
    r->caseless = g->at[g->n - 1].caseless;
    return ERR_OK;
}

/* Oniguruma's Ruby dialect as PCRE2 reads it. A class within a class adds to it: its brackets go. */
static int rewrite(const struct rewriting *given, struct err *err) {
    struct rewriting own = *given, *r = &own;
    struct groups groups = {{{given->caseless, false, 0, given->out->n}}, 1};
    int depth = 0; /* of classes */
    for (size_t i = 0; i < r->in.n;) {
        char c = r->in.p[i];
        size_t group = 0;
        if (r->out->n > MAX_REWRITTEN_BYTES)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: a regular expression has more than %d bytes with its properties written out",
                           MAX_REWRITTEN_BYTES);
        if (!depth) TRY(rewrite_group(r, &groups, i, &group, err));
        i += group;
        if (group) continue;
        if (c == '\\') {
            i += rewrite_escape(r, i, depth > 0);
            continue;
        }
        if (c == '[' && depth == 0) {
            size_t end = class_end(r->in, i);
            struct str class_ = end == STR_NONE ? STR("") : str_sub(r->in, i, end - i);
            if (str_find(class_, STR("&&"), 0) != STR_NONE) {
                TRY(rewrite_intersection(r, class_, err));
                i = end;
                continue;
            }
            depth = 1;
        } else if (c == '[' && str_starts(str_from(r->in, i), STR("[:"))) { /* [[:alpha:]] */
            i += rewrite_posix(r, i);
            continue;
        } else if (c == '[') {
            if (str_starts(str_from(r->in, i), STR("[^")))
                return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: regular expression class %.*s within another is not supported",
                               STR_ARG(str_sub(r->in, i, 80)));
            depth++;
        } else if (c == ']' && depth > 0) {
            depth--;
        }
        if (!(c == '[' && depth > 1) && !(c == ']' && depth > 0)) sb_putc(r->out, c);
        i++;
    }
    for (int k = 0; groups.n == 1 && k < groups.at[0].n_more; k++) sb_putc(r->out, ')');
    return ERR_OK;
}

/* "{n,m}" at i: its length, or 0. */
static size_t interval_len(struct str in, size_t i) {
    size_t k = i + 1, digits = 0;
    for (; k < in.n && ((in.p[k] >= '0' && in.p[k] <= '9') || in.p[k] == ','); k++) digits += in.p[k] != ',';
    return digits && k < in.n && in.p[k] == '}' ? k + 1 - i : 0;
}

/* The length of what a quantifier behind it is about: an escape, a class, a character. */
static size_t atom_len(struct str in, size_t i) {
    size_t end = in.p[i] == '[' ? class_end(in, i) : STR_NONE;
    if (end != STR_NONE) return end - i;
    if (in.p[i] != '\\' || i + 1 >= in.n) return tok_utf8_len((unsigned char)in.p[i]);
    char c = in.p[i + 1];
    end = c && strchr("pPxkg", c) && i + 2 < in.n && in.p[i + 2] == '{' ? str_find_char(in, '}', i) : STR_NONE;
    if (end != STR_NONE) return end + 1 - i;
    return 1 + tok_utf8_len((unsigned char)c) + (c == 'x' || c == 'u' ? hex_len(in, i + 2, c == 'x' ? 2 : 4) : 0);
}

/* There "X{1,3}+" repeats X{1,3}, "X{2}?" is two or none, and "X{,3}" begins at none; here the first would be possessive, the second lazy
 * and the third text. */
static void rewrite_intervals(struct str in, struct sb *out) {
    enum { OPEN_MAX = 64 };
    size_t atom = 0, open[OPEN_MAX], n_open = 0, n;
    for (size_t i = 0; i < in.n; i += n) {
        char c = in.p[i];
        if (c == '{' && (n = interval_len(in, i)) > 0) {
            sb_puts(out, in.p[i + 1] == ',' ? "{0" : "{");
            sb_put(out, str_sub(in, i + 1, n - 1));
            char next = i + n < in.n ? in.p[i + n] : 0;
            bool fixed = str_find_char(str_sub(in, i, n), ',', 0) == STR_NONE;
            if (next != '+' && !(next == '?' && fixed)) continue;
            size_t n_atom = out->n - atom;
            sb_puts(out, "(?:)");
            memmove(out->p + atom + 3, out->p + atom, n_atom);
            memcpy(out->p + atom, "(?:", 3);
            out->p[atom + 3 + n_atom] = ')';
            continue;
        }
        n = strchr("(){*+?|^$", c) ? 1 : atom_len(in, i);
        if (c == '(' && n_open++ < OPEN_MAX) open[n_open - 1] = out->n;
        if (c == ')' && n_open && --n_open < OPEN_MAX) atom = open[n_open];
        if (!strchr("()*+?|^$", c)) atom = out->n;
        sb_put(out, str_sub(in, i, n));
    }
}

enum { COMPILE = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C };

static int compile_as(struct str regex, bool ranges, struct tok_pattern *out, struct err *err) {
    struct sb rewritten = {0}, plain = {0};
    rewrite_intervals(regex, &plain);
    int code = rewrite(&(struct rewriting){sb_str(&plain), &rewritten, ranges, false}, err), number;
    sb_free(&plain);
    PCRE2_SIZE offset;
    if (!code) {
        struct str s = sb_str(&rewritten);
        PCRE2_UCHAR message[120];
        out->code = pcre2_compile((PCRE2_SPTR)s.p, s.n, COMPILE, &number, &offset, NULL);
        if (out->code) {
            int ignored;
            out->counted = pcre2_compile((PCRE2_SPTR)s.p, s.n, COMPILE | PCRE2_AUTO_CALLOUT, &ignored, &offset, NULL);
        } else {
            pcre2_get_error_message(number, message, sizeof message);
            code = err_set(err, ERR_EFORMAT, "tokenizer.json: regular expression \"%.*s\": %s", STR_ARG(str_sub(regex, 0, 80)),
                           (const char *)message);
        }
    }
    sb_free(&rewritten);
    return code;
}

/* With properties as ranges; where that makes it too large, with PCRE2's own. */
static int compile(struct str regex, struct tok_pattern *out, struct err *err) {
    int code = compile_as(regex, true, out, err);
    if (code == ERR_EFORMAT) code = compile_as(regex, false, out, err);
    if (!code) pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD); /* without it, matching is slower and the same */
    return code;
}

/* ---- patterns --------------------------------------------------------------------------------------------------- */

int tok_pattern_literal(struct arena *a, struct str literal, struct tok_pattern **out, struct err *err) {
    if (literal.n > MAX_LITERAL_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer.json: a pattern of %zu bytes is too long, at most %d are read", literal.n,
                       MAX_LITERAL_BYTES);
    *out = arena_new(a, struct tok_pattern, 1);
    (*out)->literal = str_copy(a, literal);
    return ERR_OK;
}

int tok_pattern_regex(struct arena *a, struct str regex, bool no_scanner, struct tok_pattern **out, struct err *err) {
    *out = arena_new(a, struct tok_pattern, 1);
    if (!no_scanner && ((*out)->scanner = tok_scanner_find(regex))) return ERR_OK;
    if (regex.n > MAX_PATTERN_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer.json: a regular expression of %zu bytes is too long, at most %d are read", regex.n,
                       MAX_PATTERN_BYTES);
    return compile(regex, *out, err);
}

int tok_pattern_read(struct arena *a, yyjson_val *json, const char *what, struct tok_pattern **out, struct err *err) {
    struct str text = json_str(json, "String", (struct str){0});
    if (text.p) return tok_pattern_literal(a, text, out, err);
    text = json_str(json, "Regex", (struct str){0});
    if (text.p) return tok_pattern_regex(a, text, false, out, err);
    return err_set(err, ERR_EFORMAT, "tokenizer.json: %s has no pattern {\"String\": ...} or {\"Regex\": ...}", what);
}

void tok_pattern_destroy(struct tok_pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_code_free(p->counted);
    p->code = p->counted = NULL;
}

struct str tok_pattern_literal_of(const struct tok_pattern *p) {
    return p->scanner || p->code || !p->literal.n ? (struct str){NULL, 0} : p->literal;
}

const struct tok_scanner *tok_pattern_scanner(const struct tok_pattern *p) {
    return p->scanner;
}

/* Counts how far a match went since the last part of the expression, forwards or back. */
static int count_work(pcre2_callout_block *block, void *user) {
    struct tok_match_state *s = user;
    size_t now = block->current_position, work = 1 + (now > s->place ? now - s->place : s->place - now);
    s->place = now;
    if (work > s->left) return PCRE2_ERROR_MATCHLIMIT;
    s->left -= work;
    return 0;
}

static struct tok_match_state *state_create(void) {
    struct tok_match_state *s = mem_alloc(sizeof *s);
    s->left = WORK;
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->context) {
        pcre2_set_depth_limit(s->context, DEPTH_LIMIT);
        pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
        pcre2_set_callout(s->context, count_work, s);
        if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    }
    return s;
}

void tok_match_state_refill(struct tok_match_state *s) {
    if (s) s->left = WORK;
}

void tok_match_state_destroy(struct tok_match_state *s) {
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->data);
    mem_free(s);
}

/* A match is first looked for in a few steps and not far ahead. PCRE2 says when it would have had to look further (a partial match); only
 * then, and when the steps did not suffice, it is looked for in the whole text, and the work is counted. The result is PCRE2's. */
static int match(const struct tok_pattern *p, struct tok_match_state *s, struct str text, size_t from) {
    for (;;) {
        size_t end = from + QUICK_BYTES < text.n ? from + QUICK_BYTES : text.n;
        while (end < text.n && ((unsigned char)text.p[end] & 0xC0) == 0x80) end++;
        uint32_t options = PCRE2_NO_UTF_CHECK | (end < text.n ? PCRE2_PARTIAL_HARD : 0);
        pcre2_set_match_limit(s->context, QUICK_STEPS);
        int rc = pcre2_match(p->code, (PCRE2_SPTR)text.p, end, from, options, s->data, s->context);
        if (rc >= 0 || (rc == PCRE2_ERROR_NOMATCH && end == text.n)) return rc;
        if (rc != PCRE2_ERROR_NOMATCH) break;
        from = end;
    }
    if (!p->counted) return PCRE2_ERROR_MATCHLIMIT;
    s->place = from;
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    return pcre2_match(p->counted, (PCRE2_SPTR)text.p, text.n, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
}

static int regex_next(const struct tok_pattern *p, struct tok_match_state *s, struct str text, struct tok_cursor *c, struct tok_match *out,
                      bool *out_found, struct err *err) {
    if (!s->data || !s->context) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for matching");
    if (c->from == 0 && !c->has_last) s->left += text.n * WORK_PER_BYTE;
    while (c->from <= text.n) {
        int rc = match(p, s, text, c->from);
        if (rc == PCRE2_ERROR_NOMATCH) return ERR_OK;
        if (rc < 0)
            return err_set(err, ERR_ELIMIT,
                           "tokenizer: the regular expression of the pre-tokenizer exceeds its limits on this text (PCRE2 %d)", rc);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
        size_t start = v[0], end = v[1] < v[0] ? v[0] : v[1]; /* \K in a look-behind can turn them around */
        if (start < c->from) return ERR_OK;
        if (start == end && c->has_last && end == c->last_end) { /* no empty match right behind another */
            c->from = end < text.n ? end + tok_utf8_len((unsigned char)text.p[end]) : text.n + 1;
            continue;
        }
        *out = (struct tok_match){start, end};
        *c = (struct tok_cursor){end, end, true};
        *out_found = true;
        return ERR_OK;
    }
    return ERR_OK;
}

int tok_pattern_next(const struct tok_pattern *p, struct tok_match_state **state, struct str text, struct tok_cursor *at,
                     struct tok_match *out, bool *out_found, struct err *err) {
    *out_found = false;
    if (p->scanner) {
        *out_found = p->scanner->next(text, at->from, &out->start, &out->end);
        if (*out_found) at->from = out->end;
        return ERR_OK;
    }
    if (p->code) {
        if (!*state) *state = state_create();
        return regex_next(p, *state, text, at, out, out_found, err);
    }
    if (p->literal.n == 0) return ERR_OK;
    size_t hit = str_find(text, p->literal, at->from);
    if (hit == STR_NONE) return ERR_OK;
    *out = (struct tok_match){hit, hit + p->literal.n};
    at->from = out->end;
    *out_found = true;
    return ERR_OK;
}
