/* engine/stop: what comes out does not depend on how the text was cut, and is what a search over the whole text gives. */
#include "unit.h"

#include "base/rng.h"
#include "text/output/stop.h"

#include <stdio.h>

struct stop_case {
    const char *strings[4], *text, *want;
    int matched;
};

static const struct stop_case cases[] = {
    {{NULL}, "hello", "hello", -1},
    {{"lo"}, "hello", "hel", 0},
    {{"x"}, "hello", "hello", -1},
    {{"hello"}, "hello", "", 0},
    {{"\n\n", "###"}, "a\nb###c\n\n", "a\nb", 1},
    {{"abcd", "bc"}, "abcd", "a", 1}, /* complete first */
    {{"bc", "abc"}, "xabc", "x", 1},  /* complete at the same byte: the longer */
    {{"aab"}, "aaaab", "aa", 0},      /* a failed beginning is itself a beginning */
    {{"abab!"}, "ababab!", "ab", 0},
    {{"abab!"}, "abababab", "abababab", -1},
    {{"</s>"}, "1 < 2 </ 3 </s", "1 < 2 </ 3 </s", -1},
    {{"\xC3\xA9"}, "caf\xC3\xA9s", "caf", 0},
};

static void run_case(const struct stop_case *c, uint64_t seed) {
    struct arena a = {0};
    struct stop s;
    struct err err;
    struct sb out = {0};
    struct str strings[4];
    size_t n = 0, at = 0, length = strlen(c->text);
    while (n < 4 && c->strings[n]) strings[n] = str_of(c->strings[n]), n++;
    CHECK_OK(stop_init(&s, &a, strings, n, &err), err);
    bool found = false;
    for (uint64_t draw = 0; at < length; draw++) {
        size_t piece = seed == 0 ? length : 1 + (size_t)(rng_at(seed, 0, draw) % 3);
        struct str text = str_sub(str_of(c->text), at, piece);
        found = stop_push(&s, text, &out);
        at += text.n;
    }
    stop_flush(&s, &out);
    CHECK_STR(sb_str(&out), str_of(c->want));
    CHECK_INT(s.matched, c->matched);
    CHECK_INT(found, c->matched >= 0);
    sb_free(&out);
    stop_free(&s);
    arena_free(&a);
}

static void cutting_does_not_matter(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 0; seed < 20; seed++) run_case(&cases[i], seed);
}

static void certain_text_is_not_held(void) {
    struct arena a = {0};
    struct stop s;
    struct err err;
    struct sb out = {0};
    struct str strings[] = {STR("stop here")};
    CHECK_OK(stop_init(&s, &a, strings, 1, &err), err);
    stop_push(&s, STR("one st"), &out);
    CHECK_STR(sb_str(&out), STR("one "));
    stop_push(&s, STR("ep"), &out);
    CHECK_STR(sb_str(&out), STR("one step"));
    sb_free(&out);
    stop_free(&s);
    arena_free(&a);
}

static void a_string_that_is_kept(void) {
    struct arena a = {0};
    struct stop s;
    struct err err;
    struct sb out = {0};
    struct str strings[] = {STR("END")};
    CHECK_OK(stop_init(&s, &a, strings, 1, &err), err);
    s.keeps = true;
    CHECK(!stop_push(&s, STR("the E"), &out));
    CHECK(stop_push(&s, STR("ND of it"), &out));
    CHECK_STR(sb_str(&out), STR("the END"));
    sb_free(&out);
    stop_free(&s);
    arena_free(&a);
}

static void bad_strings_are_refused(void) {
    struct arena a = {0};
    struct stop s;
    struct err err;
    struct str many[STOP_STRINGS_MAX + 1];
    static char big[STOP_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++) many[i] = STR("x");
    CHECK_INT(stop_init(&s, &a, many, STOP_STRINGS_MAX + 1, &err), ERR_EARG);
    many[0] = STR("");
    CHECK_INT(stop_init(&s, &a, many, 1, &err), ERR_EARG);
    many[0] = str_n(big, sizeof big);
    CHECK_INT(stop_init(&s, &a, many, 1, &err), ERR_EARG);
    arena_free(&a);
}

const struct unit_suite unit_stop = {
    "stop",
    (const struct unit_case[]){{"cutting_does_not_matter", cutting_does_not_matter},
                               {"certain_text_is_not_held", certain_text_is_not_held},
                               {"a_string_that_is_kept", a_string_that_is_kept},
                               {"bad_strings_are_refused", bad_strings_are_refused},
                               {0}},
};
