#!/usr/bin/env python3
"""Random templates, rendered by mlxcel and by Jinja2: the same text, or an error on both sides. One in three is about a random text.

usage: fuzz_template.py PROGRAM [--count N] [--seed N]     last line: "N passed, N failed"
"""
import argparse
import json
import random
import re
import subprocess
import sys
import unicodedata
import warnings

import template_oracle
from fuzz_tokenizers import Texts

CONTEXT = {"x": 5, "y": -3, "z": 0, "f": 2.5, "s": "Hello World", "w": "  padded\n", "u": "h\u00e9llo \u4e2d\u6587 \U0001F600", "e": "",
           "l": [3, 1, 2], "m": ["b", "A", "c"], "d": {"b": 1, "a": [1, {"k": None}]}, "n": None, "t": True, "k": [],
           "users": [{"name": "bob", "age": 30}, {"name": "Al", "age": 25}, {"name": "cy", "age": 30}]}
NAMES = list(CONTEXT) + ["missing"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "list", "first", "last", "sort", "join", "join(', ')", "string", "int",
           "float", "abs", "round", "round(1)", "reverse", "reverse|list", "unique|list", "sum", "min", "max", "tojson", "tojson(indent=2)",
           "default('d')", "default('d', true)", "replace('l', 'L')", "batch(2)|list", "slice(2)|list", "items|list", "dictsort", "wordcount",
           "map('string')|list", "map('upper')|join", "select|list", "reject('none')|list", "map(attribute='name')|list", "center(9)",
           "selectattr('age', 'gt', 26)|list", "groupby('age')", "indent(2)", "truncate(7, true, '..', 0)", "format(1)", "e", "urlencode",
           "sort(reverse=true)", "sort(attribute='age')", "select('string')|list", "striptags", "count",
           "safe", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "forceescape", "min(attribute='age')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "odd", "even",
         "true", "false", "lower", "upper", "divisibleby 2", "eq 5", "in [1, 2]", "sameas none", "gt 1", "escaped", "callable"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "split()", "split('l')", "split(' ', 1)", "rsplit(none, 1)", "title()",
           "startswith('H')", "endswith('d')", "replace('o', '0')", "find('l')", "count('l')", "splitlines()", "capitalize()", "swapcase()",
           "items()", "keys()", "values()", "get('a')", "get('q', 1)", "index(1)", "count(1)", "append(1)", "isdigit()", "isalpha()", "zfill(8)",
           "partition('l')", "rpartition('o')", "center(15, '*')", "join(m)", "format(x, 2)", "isspace()", "casefold()", "removeprefix('He')"]
LITERALS = ["1", "0", "-1", "2", "1.5", "1e3", "'a'", "'abc'", "''", "true", "false", "none", "[]", "[1, 2]", "['b', 'a']", "{}", "{'a': 1}", "(1, 2)",
            "'%s-%s'", "'%d'", "'{}:{}'", "range(3)", "'<b>'", "'\\n'", "[[1, 2], [3, 4]]", "'\u00e9'", "10", "dict(a=1)"]


# what is asked of a random text r: filters and methods that want one, and everything that cuts or prints
NOT_OF_TEXT = r"select|map|groupby|sort\(a|min\(a|format|files|int$|float$|abs|round|sum|xml|items|keys|values|get|append|index|count\(1"
OF_TEXT = [sign + name for sign, names in (("|", FILTERS), (".", METHODS)) for name in names if not re.match(NOT_OF_TEXT, name)]
OF_TEXT += [".split(none, 1)", ".split(maxsplit=2)", ".rsplit(maxsplit=1)", ".splitlines(true)", "|tojson(ensure_ascii=true)",
            "[::-1]", "[1:3]", "[-2:]", "|list|sort", "|list|unique|list", "|truncate(8)", "|indent(2, true, true)", ".istitle()", ".isnumeric()", ".isprintable()",
            ".expandtabs(3)", ".partition(' ')", " is lower", "|trim('ae ')", " ~ [r]", "|list|map('title')|list", ".strip('ae\\n')"]
FRAGMENTS = ["<b>x</b>", "&amp;", "a-b-c d", "1,000", " 12 ", "\u01c5", "\u00df", "\u0391\u03a3", "\u03a3.", "\ufb03", "\u0130", "don't", "\u2028", "\x1c", "\x85", " e\x0c", "x \n"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.texts = Texts(f"text {seed}", FRAGMENTS)

    def case(self):
        """A template and the text r that it may ask for, without characters that this Python does not know yet."""
        kind = self.r.random()
        if kind < 0.33:
            return "{{ r" + self.r.choice(OF_TEXT) + " }}", "".join(c for c in self.texts.text() if unicodedata.category(c) != "Cn")
        if kind < 0.43:
            return "{{ " + self.expr(4) + " }}", ""
        return "{{ " + self.value(3) + " }}" if kind < 0.73 else self.body(3, False), ""

    def expr(self, depth):
        r = self.r
        if depth > 0 and r.random() < 0.5:
            return self.value(depth - 1)
        if depth <= 0 or r.random() < 0.12:
            return r.choice(NAMES) if r.random() < 0.6 else r.choice(LITERALS)
        kind = r.randrange(14)
        a = self.expr(depth - 1)
        if kind <= 2:
            return f"({a}) {r.choice(BINARY)} ({self.expr(depth - 1)})"
        if kind == 3:
            return f"{a} {r.choice(BINARY)} {self.expr(depth - 1)}"
        if kind <= 5:
            return f"({a})|{r.choice(FILTERS)}"
        if kind == 6:
            return f"({a}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
        if kind == 7:
            return f"({a}).{r.choice(METHODS)}"
        if kind == 8:
            return f"({a})[{self.expr(depth - 2)}]"
        if kind == 9:
            part = lambda: r.choice(["", "1", "-1", "2", "x", "-2", "0", "100"])
            return f"({a})[{part()}:{part()}{r.choice(['', ':' + part()])}]"
        if kind == 10:
            return f"{a} if {self.expr(depth - 1)} else {self.expr(depth - 1)}"
        if kind == 11:
            return f"[{a}, {self.expr(depth - 1)}]"
        if kind == 12:
            return f"{r.choice(['not', '-', '+'])} ({a})"
        return f"({a}).{r.choice(['name', 'a', 'b', 'x', '0', 'age', 'k'])}"

    def text(self, depth):
        """An expression that is a string, mostly."""
        r = self.r
        if depth <= 0:
            return r.choice(["s", "w", "u", "e", "'abc'", "'a-b c'", "users[0].name", "m[1]", "'\u00e9\U0001F600'", "'<b>'"])
        a, b, n = self.text(depth - 1), self.text(depth - 1), self.number(depth - 2)
        return r.choice([f"({a} ~ {b})", f"({a} + {b})", f"({a}|{r.choice(['upper', 'lower', 'trim', 'title', 'capitalize', 'reverse', 'string', 'tojson', 'e', 'indent', 'center(7)', 'striptags', 'urlencode', 'safe'])})",
                         f"{a}[{n}:{self.number(0)}]", f"{a}[::{r.choice([1, 2, -1, -2, 3])}]", f"{a}.{r.choice(['upper', 'strip', 'title', 'swapcase', 'lower', 'capitalize', 'casefold'])}()",
                         f"{a}.replace({b}, 'X')", f"({a} * ({n} % 4))", f"({self.seq(depth - 1)}|join({b}))", f"({a} if {self.truth(depth - 1)} else {b})",
                         f"{a}.split({b} or ' ')|first", f"('%s|%5s|%-4s' % ({a}, {b}, {n}))", f"'{{}}{{:>6}}{{!r}}'.format({a}, {b}, {n})", f"{a}.strip({b})",
                         f"({n}|string)", f"({self.seq(depth - 1)}|string)", f"({a}|truncate(5, true, '', 0))", f"({a}|replace({b}, '_'))", f"({self.seq(depth - 1)}|tojson)"])

    def number(self, depth):
        r = self.r
        if depth <= 0:
            return r.choice(["x", "y", "z", "f", "1", "2", "-1", "0", "7", "1.5", "10", "users[1].age", "l[0]", "true"])
        a, b = self.number(depth - 1), self.number(depth - 1)
        return r.choice([f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // ({b} or 3))", f"({a} % ({b} or 3))", f"({a} / ({b} or 3))", f"({a}|abs)", f"({a}|round)", f"({a}|round(2))",
                         f"({a}|int)", f"({a}|float)", f"({self.text(depth - 1)}|length)", f"({self.seq(depth - 1)}|length)", f"-{a}", f"(l|sum + {b})", f"(l|max)", f"({a} if {self.truth(depth - 1)} else {b})",
                         f"{self.text(depth - 1)}.find({self.text(depth - 2)})", f"{self.text(depth - 1)}.count({self.text(depth - 2)})", f"({self.text(depth - 1)}|wordcount)"])

    def truth(self, depth):
        r = self.r
        if depth <= 0:
            return r.choice(["true", "false", "t", "n", "x", "e", "k", "missing", "s", "d"])
        a, b = self.number(depth - 1), self.text(depth - 1)
        return r.choice([f"{a} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {self.number(depth - 1)}", f"({b} {r.choice(['<', '==', '!=', 'in', 'not in'])} {self.text(depth - 1)})",
                         f"(not {self.truth(depth - 1)})", f"({self.truth(depth - 1)} {r.choice(['and', 'or'])} {self.truth(depth - 1)})", f"{b}.startswith({self.text(depth - 2)})",
                         f"({self.value(depth - 1)} is {r.choice(['', 'not '])}{r.choice(['defined', 'none', 'string', 'number', 'mapping', 'iterable', 'sequence', 'boolean', 'integer'])})",
                         f"({a} in {self.seq(depth - 1)})", f"{a} < {self.number(depth - 1)} <= {self.number(depth - 1)}", f"{b}.is{r.choice(['alpha', 'digit', 'space', 'upper', 'lower', 'title', 'alnum'])}()"])

    def seq(self, depth):
        r = self.r
        if depth <= 0:
            return r.choice(["l", "m", "k", "[1, 2]", "users", "range(4)", "d", "s", "(1, 'a')", "d.items()", "d.keys()"])
        a = self.seq(depth - 1)
        return r.choice([f"({a}|list)", f"({a}|list)[{self.number(0)}|int:]", f"({a}|reverse|list)", f"({a}|map('string')|list)", f"({a}|select('{r.choice(['string', 'number', 'defined', 'mapping'])}')|list)",
                         f"({a}|map('string')|sort)", f"({a}|map('string')|unique|list)", f"({a}|batch(2)|list)", f"({a}|slice(2, 0)|list)", f"({a}|list + [{self.value(depth - 1)}])", f"[{self.value(depth - 1)}, {self.value(depth - 1)}]",
                         f"({self.text(depth - 1)}.split())", f"{self.text(depth - 1)}.splitlines()", f"(users|map(attribute='{r.choice(['name', 'age'])}')|list)", f"(users|{r.choice(['select', 'reject'])}attr('age', 'gt', {self.number(0)})|list)",
                         f"(users|groupby('{r.choice(['name', 'age'])}'))", "(users|sort(attribute='name'))", "(d|dictsort)", f"{self.text(depth - 1)}.partition('l')", f"(users|map(attribute='zip', default={self.value(0)})|list)"])

    def value(self, depth):
        return self.r.choice([self.text, self.number, self.truth, self.seq])(depth)

    def body(self, depth, loop):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randrange(1, 4)))

    def statement(self, depth, loop):
        r = self.r
        sign = lambda: r.choice(["", "", "", "-", "+"])
        tag = lambda text: "{%" + sign() + " " + text + " " + sign() + "%}"
        pad = r.choice(["", "", " ", "\n", "\n  ", " a\n", "b", "  \n\n"])
        kind = r.randrange(12) if depth > 0 else r.randrange(4)
        if kind <= 2:
            end = r.choice(["", "", "-"])
            return pad + "{{" + r.choice(["", "", "-"]) + " " + self.expr(2) + " " + end + "}}"
        if kind == 3:
            inside = r.choice(["loop.index", "loop.last", "loop.length", "loop.previtem", "loop.cycle('a', 'b')", "loop.revindex0"]) if loop else "x"
            return pad + "{{ " + inside + " }}"
        if kind == 4:
            return pad + tag(f"set {r.choice('abx')} = {self.expr(2)}") + pad + "{{ a }}"
        if kind <= 6:
            middle = tag(f"elif {self.expr(1)}") + self.body(depth - 1, loop) if r.random() < 0.3 else ""
            other = tag("else") + self.body(depth - 1, loop) if r.random() < 0.5 else ""
            return pad + tag(f"if {self.expr(2)}") + self.body(depth - 1, loop) + middle + other + tag("endif") + pad
        if kind <= 8:
            over = r.choice(["l", "m", "users", "range(3)", "d", "s[:3]", "k", self.expr(1)])
            test = f" if {self.expr(1)}" if r.random() < 0.2 else ""
            stop = tag("if loop.index == 2") + tag(r.choice(["break", "continue"])) + tag("endif") if r.random() < 0.2 else ""
            other = tag("else") + "none" if r.random() < 0.3 else ""
            return pad + tag(f"for i in {over}{test}") + stop + self.body(depth - 1, True) + "{{ i }}" + other + tag("endfor") + pad
        if kind == 9:
            return pad + tag("set a") + self.body(depth - 1, loop) + tag("endset") + "{{ a }}"
        if kind == 10:
            name = r.choice(["f1", "f2"])
            return tag(f"macro {name}(p, q={self.expr(1)})") + self.body(depth - 1, False) + "{{ p }}{{ q }}" + tag("endmacro") + "{{ " + name + "(x) }}"
        return pad + tag(f"with a = {self.expr(1)}") + self.body(depth - 1, loop) + tag("endwith")


def same(mine, want):
    sign, text = want
    if "ok" in mine:
        return sign == "=" and mine["ok"] == text
    if sign == "!":
        return True
    return False


def comparable(mine, want):
    """Not where Python prints an address or an integer beyond 64 bits, where Jinja folds a slice of a constant that has none, nor where
    views of dicts are subtracted as sets."""
    error = mine.get("error", "")
    if re.search(r" at 0x[0-9a-f]+|\d{19,}", want[1]) or "more than 64 bits" in error or "complex result" in error:
        return False
    return not re.search(r"not subscriptable|'slice'|slice indices|operand type.* for -: .*dict_|not supported between instances of 'dict_", error)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    passed = failed = errors = 0
    maker = Maker(args.seed)
    for start in range(0, args.count, 1000):
        batch = [maker.case() for _ in range(min(1000, args.count - start))]
        lines = "\n".join(json.dumps({"template": t, "input": {**CONTEXT, "r": r}}) for t, r in batch)
        done = subprocess.run([args.program, "template", "--jsonl", "--now", "2025-07-10T12:00:00"], input=lines, capture_output=True,
                              text=True, encoding="utf-8", check=False)
        answers = done.stdout.split("\n")[:-1]
        if len(answers) != len(batch):
            print(f"FAILED the program ended after {len(answers)} of {len(batch)} lines: {batch[len(answers)]!r}")
            failed += 1
            continue
        for (source, text), answer in zip(batch, answers):
            want, mine = template_oracle.render(source, json.loads(json.dumps({**CONTEXT, "r": text}))), json.loads(answer)
            if not comparable(mine, want):
                continue
            errors += want[0] == "!"
            if same(mine, want):
                passed += 1
            else:
                failed += 1
                if failed <= 40:
                    print(f"FAILED {source!r} {text!r}\n  Jinja2 {want}\n  mlxcel {mine}")
    print(f"{errors} of them errors on both sides")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
