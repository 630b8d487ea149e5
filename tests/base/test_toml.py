#!/usr/bin/env python3
"""The TOML reader beside Python's own: cases by hand, made-up files, and files with something broken in them.

usage: test_toml.py TOML_JSON [--count N] [--seed N]      last line: "N passed, N failed[, N skipped]"
"""
import argparse
import datetime
import json
import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import HANG, check, finish, skip  # noqa: E402

try:
    import tomllib
except ImportError:
    tomllib = None

RIGHT = [
    'a = 1', 'a = "x" # y', 'a.b.c = 1', 'a . b = 2', '"a b" = 1', "'a.b' = 1", '"" = 1', 'a = []', 'a = [1,2,]', 'a = [ # c\n 1, # d\n 2 ]',
    'a = {}', 'a = {b = 1, c.d = 2}', '[a]', '[a.b]\nx=1\n[a]\ny=2', '[[a]]\nx=1\n[[a]]\nx=2\n[a.b]\ny=3', "a = '''\nx'''", 'a = """x"""',
    'a = """x"""""', 'a = """\\\n   x \\\n\n  y"""', "a = ''''x''''", 'a = +1', 'a = -0', 'a = 1_000', 'a = 0xdead_BEEF', 'a = 0o17', 'a = 0b1_1',
    'a = 1e5', 'a = 1.5e-3', 'a = -0.0', 'a = inf', 'a = -nan', 'a.x = 1\nb = 2\n[c]\na.y = 1\n[c.a.z]\nw = 1',
    '[fruit]\napple.color = 1\n[fruit.apple.taste]\nsweet = true', 'a = "\\u00e9\\U0001F600\\t\\b\\f\\r\\n\\\\"', '[ a . "b.c" ]\nx = 1',
    'a = [[1], ["x"], [{b = 1}]]', '[a.b.c]\nx = 1\n[a]\nd = 2\n[a.b]\ne = 3', '3 = 1', '1.2 = 3', 'a-b_c = 1', 'a = true\nb = false', '',
    '# nothing', '\r\n\r\na = 1\r\n', 'a = "\t"', 'a = 1 # x', '[[a.b]]\n[[a.b.c]]\nx = 1', '[a]\nb.c = 1\nb.d = 2',
    'a = 9223372036854775807\nb = -9223372036854775808',
]
WRONG = [
    'a', 'a =', 'a = 1 2', '= 1', 'a = 1\na = 2', 'a.b = 1\na = 2', 'a = 1\na.b = 2', '[a]\n[a]', '[a\nx = 1', '[]', '[a]]', '[[a]', 'a = "x',
    "a = 'x", 'a = "\\q"', 'a = "\\u12"', 'a = "\\ud800"', 'a = [1', 'a = [1 2]', 'a = [,]', 'a = {b = 1,}', 'a = {b = 1', 'a = {\nb = 1}',
    'a = {b = 1}\na.c = 2', 'a = {b = 1}\n[a]', 'a = {b.c = 1}\n[a.b]', 'a = [1]\n[[a]]', '[a]\n[[a]]', '[[a]]\n[a]', '[a.b]\nx = 1\n[a]\nb.y = 2',
    '[fruit]\napple.color = 1\n[fruit.apple]', 'a = 01', 'a = 1_', 'a = _1', 'a = 1__0', 'a = 0x', 'a = 0xg', 'a = 0x_1', 'a = +0x1', 'a = 0b2',
    'a = 1.', 'a = .5', 'a = 1.e5', 'a = 1e', 'a = 1e5.5', 'a = True', 'a = INF', 'a = maybe', 'a = 99999999999999999999', 'a = 0x8000000000000000',
    'a b = 1', 'a = 1 [b]', '[a] b = 1', 'a = "x" "y"', "a = 'x\ny'", 'a.b.c = 1\n[a.b]', 'a. = 1', '.a = 1', 'a = {b = 1, b = 2}',
    '[a.b.c.d]\nz = 9\n[a]\nb.c.d.k.t = 8', "a = '''x", 'a = "\x01"', '# \x01', 'a = 1\rb = 2', 'a = """x""""""', '"""a""" = 1', '"a\\nb" = 1\n"a\\nb" = 2', 'a = 1979-05-27',
    'a = 07:32:00', '[[a]]\n[a.b]\n[a.b]', 'a = [{b = 1}]\n[a.c]', 'a = "\x7f"',
]


def to_plain(v):
    """What the program prints of it; None where it refuses on purpose."""
    if isinstance(v, dict):
        return {k: to_plain(x) for k, x in v.items()}
    if isinstance(v, list):
        return [to_plain(x) for x in v]
    if isinstance(v, (datetime.date, datetime.time)) or (isinstance(v, int) and not isinstance(v, bool) and not -2**63 <= v < 2**63):
        raise ValueError("refused on purpose")
    if isinstance(v, float) and not math.isfinite(v):
        return None
    return v


def expected(text):
    try:
        return to_plain(tomllib.loads(text))
    except (ValueError, RecursionError):
        return "error"


def read_all(program, documents):
    data = b"\0".join(d.encode("utf-8", "surrogatepass") for d in documents)
    lines = subprocess.run([program], input=data, capture_output=True, timeout=HANG, check=True).stdout.decode().split("\n")[:-1]
    check(len(lines) == len(documents), f"a line for each document: {len(lines)} of {len(documents)}")
    return lines


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return type(a) in (int, float) and type(b) in (int, float) and a == b
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def differ(line, want):
    if want == "error" or line.startswith("error "):
        return (want == "error") != line.startswith("error ")
    return not same(order(json.loads(line)), order(want))


def order(v):
    """Python keeps a table where it was first named, and so do we; keys are compared without their order all the same."""
    if isinstance(v, dict):
        return {k: order(v[k]) for k in sorted(v)}
    return [order(x) for x in v] if isinstance(v, list) else v


class Maker:
    """Files at random, mostly right."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def key(self):
        return self.r.choice(["a", "b", "c", "d-e", "f_1", '"x y"', "'q'", "10", "models", '"org/name"'])

    def path(self):
        return self.r.choice([".", " . "]).join(self.key() for _ in range(self.r.choice([1, 1, 1, 2, 3])))

    def text(self):
        body = "".join(self.r.choice(["a", "Z", " ", "é", "😀", "#", "=", "\\n", '\\"', "\\u00e9", "\t", "'"]) for _ in range(self.r.randrange(6)))
        form = self.r.choice(['"%s"', '"%s"', "'%s'", '"""%s"""', '"""\n%s\n"""', "'''%s'''"])
        return form % (body.replace("'", "") if form[0] == "'" else body)

    def number(self):
        return self.r.choice(["0", "1", "-17", "+3", "1_000", "0xFF", "0o7", "0b101", "1.5", "-2e10", "6.02E+23", "inf", "-inf", "0.0", "9223372036854775807"])

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 3 else 5)
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.text()
        if kind == 4:
            return self.r.choice(["true", "false"])
        items = [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        if kind < 7:
            gap = self.r.choice([", ", ",\n  ", " , # c\n"])
            return "[" + self.r.choice(["", "\n"]) + gap.join(items) + self.r.choice(["", ","] if items else [""]) + self.r.choice(["", "\n"]) + "]"
        return "{ " + ", ".join(f"{self.path()} = {v}" for v in items) + " }"

    def document(self):
        lines = []
        for _ in range(self.r.randrange(1, 12)):
            kind = self.r.randrange(10)
            lines.append(f"[{self.path()}]" if kind == 0 else f"[[{self.path()}]]" if kind == 1 else "# c" if kind == 2 else "" if kind == 3
                         else f"{self.path()} = {self.value()}{self.r.choice(['', ' # c'])}")
        return self.r.choice(["\n", "\n", "\r\n"]).join(lines) + self.r.choice(["", "\n"])

    def broken(self, text):
        """A byte dropped, doubled or replaced."""
        if not text:
            return text
        i = self.r.randrange(len(text))
        return text[:i] + self.r.choice(["", text[i] * 2, self.r.choice("[]{}=.,\"'\\#\n\r\x01 _e0")]) + text[i + 1:]


def compare(program, documents, what):
    lines = read_all(program, documents)
    wrong = [(d, line) for d, line in zip(documents, lines) if differ(line, expected(d))]
    check(not wrong, f"{what}: {len(wrong)} of {len(documents)} differ, such as {wrong[0] if wrong else ''!r}")
    check(all("in:" in line or "in is" in line for line in lines if line.startswith("error ")), f"{what}: errors name the file and the line")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--count", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    if not tomllib:
        skip("this Python has no tomllib")
        return finish()
    for d, line in zip(RIGHT, read_all(o.program, RIGHT)):
        check(expected(d) != "error" and not differ(line, expected(d)), f"{d!r}: {line}, {expected(d)}")
    for d, line in zip(WRONG, read_all(o.program, WRONG)):
        check(expected(d) == "error" and line.startswith("error in:"), f"{d!r} is refused with its line: {line}, {expected(d)}")
    maker = Maker(o.seed)
    documents = [maker.document() for _ in range(o.count)]
    compare(o.program, documents, "made-up files")
    compare(o.program, [maker.broken(d) for d in documents], "files with a mistake")
    deep = ["a = " + "[" * 5000, "a = " + "{a=" * 5000, "a" + ".a" * 5000 + " = 1", "[" + "a." * 5000 + "a]", "\n".join(f"k{i} = 1" for i in range(5000))]
    for line in read_all(o.program, deep):
        check(line.startswith("error in:"), f"limits: {line[:100]}")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
