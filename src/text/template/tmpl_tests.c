/* The tests of `is`. */
#include "text/template/tmpl_rt.h"

#define TEST(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

static struct tv modulo_is(struct rt *rt, struct tv v, struct tv by, int64_t rest) {
    return tv_bool(tv_eq(rt, tmpl_op_binary(rt, TK_MOD, v, by), tv_int(rest)));
}

static struct tv call_method(struct rt *rt, struct tv v, const char *name) {
    struct tcall none = {0};
    return tmpl_builtin_call(rt, tmpl_builtin_lookup(tmpl_methods_str_is, str_of(name)), tmpl_to_str(rt, v), &none);
}

TEST(t_odd) {
    UNUSED;
    return modulo_is(rt, self, tv_int(2), 1);
}
TEST(t_even) {
    UNUSED;
    return modulo_is(rt, self, tv_int(2), 0);
}
TEST(t_divisibleby) {
    UNUSED;
    return modulo_is(rt, self, args[0], 0);
}
TEST(t_defined) {
    UNUSED;
    return tv_bool(self.type != TV_UNDEF);
}
TEST(t_undefined) {
    UNUSED;
    return tv_bool(self.type == TV_UNDEF);
}
TEST(t_filter) {
    UNUSED;
    return tv_bool(self.type == TV_STR && tmpl_builtin_find(BUILTIN_FILTER, tv_str(self)));
}
TEST(t_test) {
    UNUSED;
    return tv_bool(self.type == TV_STR && tmpl_builtin_find(BUILTIN_TEST, tv_str(self)));
}
TEST(t_none) {
    UNUSED;
    return tv_bool(self.type == TV_NONE);
}
TEST(t_boolean) {
    UNUSED;
    return tv_bool(self.type == TV_BOOL);
}
TEST(t_false) {
    UNUSED;
    return tv_bool(self.type == TV_BOOL && !self.u.b);
}
TEST(t_true) {
    UNUSED;
    return tv_bool(self.type == TV_BOOL && self.u.b);
}
TEST(t_integer) {
    UNUSED;
    return tv_bool(self.type == TV_INT || self.type == TV_BIG);
}
TEST(t_float) {
    UNUSED;
    return tv_bool(self.type == TV_FLOAT);
}
TEST(t_lower) {
    UNUSED;
    return call_method(rt, self, "islower");
}
TEST(t_upper) {
    UNUSED;
    return call_method(rt, self, "isupper");
}
TEST(t_string) {
    UNUSED;
    return tv_bool(self.type == TV_STR);
}
TEST(t_mapping) {
    UNUSED;
    return tv_bool(self.type == TV_DICT);
}
TEST(t_number) {
    UNUSED;
    return tv_bool(tv_is_num(self) || self.type == TV_BIG);
}
TEST(t_sequence) {
    UNUSED;
    return tv_bool(self.type == TV_STR || tv_is_seq(self) || self.type == TV_DICT || self.type == TV_RANGE || self.type == TV_UNDEF);
}
TEST(t_iterable) {
    UNUSED;
    return tv_bool(tv_is_iterable(self));
}
TEST(t_callable) {
    UNUSED;
    return tv_bool((self.type >= TV_LOOP && self.type <= TV_METHOD) || self.type == TV_JOINER || self.type == TV_BLOCK ||
                   self.type == TV_UNDEF);
}
TEST(t_sameas) {
    UNUSED;
    return tv_bool(tv_same(self, args[0]));
}
TEST(t_escaped) {
    UNUSED;
    return tv_bool(self.type == TV_STR && self.u.s->markup);
}
TEST(t_in) {
    UNUSED;
    return tv_bool(tv_contains(rt, self, args[0]));
}
TEST(t_eq) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_EQ, self, args[0]));
}
TEST(t_ne) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_NE, self, args[0]));
}
TEST(t_gt) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_GT, self, args[0]));
}
TEST(t_ge) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_GE, self, args[0]));
}
TEST(t_lt) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_LT, self, args[0]));
}
TEST(t_le) {
    UNUSED;
    return tv_bool(tmpl_op_compare(rt, TK_LE, self, args[0]));
}

const struct builtin tmpl_tests[] = {
    {"odd", t_odd, ""},
    {"even", t_even, ""},
    {"divisibleby", t_divisibleby, "num"},
    {"defined", t_defined, ""},
    {"undefined", t_undefined, ""},
    {"filter", t_filter, ""},
    {"test", t_test, ""},
    {"none", t_none, ""},
    {"boolean", t_boolean, ""},
    {"false", t_false, ""},
    {"true", t_true, ""},
    {"integer", t_integer, ""},
    {"float", t_float, ""},
    {"lower", t_lower, ""},
    {"upper", t_upper, ""},
    {"string", t_string, ""},
    {"mapping", t_mapping, ""},
    {"number", t_number, ""},
    {"sequence", t_sequence, ""},
    {"iterable", t_iterable, ""},
    {"callable", t_callable, ""},
    {"sameas", t_sameas, "other"},
    {"escaped", t_escaped, ""},
    {"in", t_in, "seq"},
    {"==", t_eq, "/other"},
    {"eq", t_eq, "/other"},
    {"equalto", t_eq, "/other"},
    {"!=", t_ne, "/other"},
    {"ne", t_ne, "/other"},
    {">", t_gt, "/other"},
    {"gt", t_gt, "/other"},
    {"greaterthan", t_gt, "/other"},
    {">=", t_ge, "/other"},
    {"ge", t_ge, "/other"},
    {"<", t_lt, "/other"},
    {"lt", t_lt, "/other"},
    {"lessthan", t_lt, "/other"},
    {"<=", t_le, "/other"},
    {"le", t_le, "/other"},
    {NULL, NULL, NULL},
};
