/* Operators. Integers have 64 bits: where Python would go on with larger ones, an OverflowError is raised. */
#include "text/template/tmpl_rt.h"

#include <math.h>

static const char *op_text(enum tk op) {
    return op == TK_POW ? "** or pow()" : tmpl_token_name(op);
}

static _Noreturn void bad_operands(struct rt *rt, enum tk op, struct tv a, struct tv b) {
    if (op == TK_ADD && a.type == TV_STR) rt_raise(rt, "TypeError", "can only concatenate str (not \"%s\") to str", tv_type_name(b));
    if (op == TK_ADD && tv_is_seq(a))
        rt_raise(rt, "TypeError", "can only concatenate %s (not \"%s\") to %s", tv_type_name(a), tv_type_name(b), tv_type_name(a));
    if (op == TK_MUL && (a.type == TV_STR || tv_is_seq(a)))
        rt_raise(rt, "TypeError", "can't multiply sequence by non-int of type '%s'", tv_type_name(b));
    if (op == TK_MUL && (b.type == TV_STR || tv_is_seq(b)))
        rt_raise(rt, "TypeError", "can't multiply sequence by non-int of type '%s'", tv_type_name(a));
    rt_raise(rt, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), tv_type_name(a), tv_type_name(b));
}

static _Noreturn void overflow(struct rt *rt) {
    rt_raise(rt, "OverflowError", "the result needs an integer of more than 64 bits");
}

/* ---- integers ---- */

static int64_t int_add(struct rt *rt, int64_t a, int64_t b) {
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) overflow(rt);
    return a + b;
}

static int64_t int_sub(struct rt *rt, int64_t a, int64_t b) {
    if ((b < 0 && a > INT64_MAX + b) || (b > 0 && a < INT64_MIN + b)) overflow(rt);
    return a - b;
}

static int64_t int_mul(struct rt *rt, int64_t a, int64_t b) {
    if (a == 0 || b == 0) return 0;
    if (a == -1 && b == INT64_MIN) overflow(rt);
    if (b == -1 && a == INT64_MIN) overflow(rt);
    int64_t product = (int64_t)((uint64_t)a * (uint64_t)b);
    if (product / b != a) overflow(rt);
    return product;
}

static int64_t int_floordiv(struct rt *rt, int64_t a, int64_t b) {
    if (b == 0) rt_raise(rt, "ZeroDivisionError", "integer division or modulo by zero");
    if (b == -1) return int_sub(rt, 0, a);
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t int_mod(struct rt *rt, int64_t a, int64_t b) {
    if (b == 0) rt_raise(rt, "ZeroDivisionError", "integer modulo by zero");
    if (b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static struct tv int_pow(struct rt *rt, int64_t a, int64_t b) {
    if (b < 0) {
        if (a == 0) rt_raise(rt, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
        return tv_float(pow((double)a, (double)b));
    }
    int64_t result = 1;
    if (a == 0 || a == 1) return tv_int(b == 0 ? 1 : a);
    if (a == -1) return tv_int(b % 2 ? -1 : 1);
    for (; b > 0; b--) result = int_mul(rt, result, a); /* overflows within 63 rounds */
    return tv_int(result);
}

static struct tv int_binary(struct rt *rt, enum tk op, int64_t a, int64_t b) {
    switch (op) {
    case TK_ADD: return tv_int(int_add(rt, a, b));
    case TK_SUB: return tv_int(int_sub(rt, a, b));
    case TK_MUL: return tv_int(int_mul(rt, a, b));
    case TK_FLOORDIV: return tv_int(int_floordiv(rt, a, b));
    case TK_MOD: return tv_int(int_mod(rt, a, b));
    case TK_POW: return int_pow(rt, a, b);
    default:
        if (b == 0) rt_raise(rt, "ZeroDivisionError", "division by zero");
        return tv_float((double)a / (double)b);
    }
}

/* ---- floats ---- */

static double float_mod(double a, double b) {
    double r = fmod(a, b);
    if (r != 0) return (r < 0) != (b < 0) ? r + b : r;
    return copysign(0.0, b);
}

static double float_floordiv(double a, double b) {
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
    if (div == 0) return copysign(0.0, a / b);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1.0 : whole;
}

static double float_pow(struct rt *rt, double a, double b) {
    if (a == 0 && b < 0) rt_raise(rt, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) rt_raise(rt, "TypeError", "a power with a complex result is not supported");
    double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b)) rt_raise(rt, "OverflowError", "(34, 'Numerical result out of range')");
    return result;
}

static struct tv float_binary(struct rt *rt, enum tk op, double a, double b) {
    if (b == 0 && op == TK_DIV) rt_raise(rt, "ZeroDivisionError", "float division by zero");
    if (b == 0 && op == TK_FLOORDIV) rt_raise(rt, "ZeroDivisionError", "float floor division by zero");
    if (b == 0 && op == TK_MOD) rt_raise(rt, "ZeroDivisionError", "float modulo");
    switch (op) {
    case TK_ADD: return tv_float(a + b);
    case TK_SUB: return tv_float(a - b);
    case TK_MUL: return tv_float(a * b);
    case TK_FLOORDIV: return tv_float(float_floordiv(a, b));
    case TK_MOD: return tv_float(float_mod(a, b));
    case TK_POW: return tv_float(float_pow(rt, a, b));
    default: return tv_float(a / b);
    }
}

/* ---- sequences ---- */

static struct tv str_repeat(struct rt *rt, const struct tstr *s, int64_t count) {
    struct tbuf *b = tbuf_new(rt);
    tbuf_put_repeat(rt, b, s, count > 0 ? (size_t)count : 0);
    struct tv v = tbuf_value(rt, b);
    v.u.s->markup = s->markup;
    return v;
}

static struct tv list_repeat(struct rt *rt, struct tv list, int64_t count) {
    size_t n = list.u.list->n, times = count > 0 ? (size_t)count : 0, total;
    if (size_mul(n, times, &total)) rt_limit(rt, "a list of %zu x %zu items is too long", times, n);
    rt_charge(rt, total);
    struct tv out = tv_list_new(rt, list.type, total);
    for (size_t i = 0; n && i < times; i++) memcpy(out.u.list->items + i * n, list.u.list->items, n * sizeof(struct tv));
    out.u.list->n = total;
    return out;
}

static struct tv repeat(struct rt *rt, struct tv seq, struct tv count) {
    if (seq.type == TV_STR) return str_repeat(rt, seq.u.s, tv_as_int(count));
    return list_repeat(rt, seq, tv_as_int(count));
}

static struct tv add_strings(struct rt *rt, struct tv a, struct tv b) {
    if (a.u.s->markup || b.u.s->markup) {
        a = tmpl_escape_html(rt, a);
        b = tmpl_escape_html(rt, b);
    }
    struct tv v = tv_concat(rt, a.u.s, b.u.s);
    v.u.s->markup = a.u.s->markup || b.u.s->markup;
    return v;
}

struct tv tmpl_op_binary(struct rt *rt, enum tk op, struct tv a, struct tv b) {
    if (op == TK_MOD && a.type == TV_STR) return tmpl_format_percent(rt, a.u.s, b);
    if (a.type == TV_UNDEF) tv_undef_raise(rt, a);
    if (b.type == TV_UNDEF) tv_undef_raise(rt, b);
    if (tv_is_int(a) && tv_is_int(b)) return int_binary(rt, op, tv_as_int(a), tv_as_int(b));
    if (tv_is_num(a) && tv_is_num(b)) return float_binary(rt, op, tv_as_float(a), tv_as_float(b));
    if (a.type == TV_BIG || b.type == TV_BIG) {
        if ((a.type == TV_BIG || tv_is_num(a)) && (b.type == TV_BIG || tv_is_num(b))) overflow(rt);
    }
    if (op == TK_ADD) {
        if (a.type == TV_STR && b.type == TV_STR) return add_strings(rt, a, b);
        if (tv_is_seq(a) && a.type == b.type) return tv_list_concat(rt, a, b);
    }
    if (op == TK_MUL) {
        if ((a.type == TV_STR || tv_is_seq(a)) && tv_is_int(b)) return repeat(rt, a, b);
        if ((b.type == TV_STR || tv_is_seq(b)) && tv_is_int(a)) return repeat(rt, b, a);
    }
    bad_operands(rt, op, a, b);
}

struct tv tmpl_op_negate(struct rt *rt, struct tv a) {
    if (a.type == TV_UNDEF) tv_undef_raise(rt, a);
    if (a.type == TV_FLOAT) return tv_float(-a.u.f);
    if (!tv_is_int(a)) rt_raise(rt, "TypeError", "bad operand type for unary -: '%s'", tv_type_name(a));
    return tv_int(int_sub(rt, 0, tv_as_int(a)));
}

struct tv tmpl_op_positive(struct rt *rt, struct tv a) {
    if (a.type == TV_UNDEF) tv_undef_raise(rt, a);
    if (a.type == TV_FLOAT) return a;
    if (!tv_is_int(a)) rt_raise(rt, "TypeError", "bad operand type for unary +: '%s'", tv_type_name(a));
    return tv_int(tv_as_int(a));
}

bool tmpl_op_compare(struct rt *rt, enum tk op, struct tv a, struct tv b) {
    int c;
    switch (op) {
    case TK_EQ: return tv_eq(rt, a, b);
    case TK_NE: return !tv_eq(rt, a, b);
    case TK_IN: return tv_contains(rt, a, b);
    case TK_NOT: return !tv_contains(rt, a, b);
    case TK_LT: return tv_compare(rt, a, b, "<") == -1;
    case TK_LE: return (c = tv_compare(rt, a, b, "<=")) == -1 || c == 0;
    case TK_GT: return tv_compare(rt, a, b, ">") == 1;
    default: return (c = tv_compare(rt, a, b, ">=")) == 1 || c == 0;
    }
}

/* ---- arguments ---- */

int64_t tmpl_need_int(struct rt *rt, struct tv v) {
    if (v.type == TV_UNDEF) tv_undef_raise(rt, v);
    if (!tv_is_int(v)) rt_raise(rt, "TypeError", "'%s' object cannot be interpreted as an integer", tv_type_name(v));
    return tv_as_int(v);
}

int64_t tmpl_arg_int(struct rt *rt, struct tv v, int64_t absent) {
    return v.type == TV_MISSING ? absent : tmpl_need_int(rt, v);
}

bool tmpl_arg_bool(struct rt *rt, struct tv v, bool absent) {
    return v.type == TV_MISSING ? absent : tv_truth(rt, v);
}

const struct tstr *tmpl_need_str(struct rt *rt, struct tv v, const char *what) {
    if (v.type == TV_UNDEF) tv_undef_raise(rt, v);
    if (v.type != TV_STR) rt_raise(rt, "TypeError", "%s must be str, not %s", what, tv_type_name(v));
    return v.u.s;
}
