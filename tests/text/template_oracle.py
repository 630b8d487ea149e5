#!/usr/bin/env python3
"""Holds tests/text/template.test against Jinja2 in the environment that transformers makes for chat templates.

A case is three lines: the template, its context as JSON, and what comes out: "= text", or "! Exception" where rendering
fails. A line break inside a template or a text is written as the sign U+23CE, a carriage return as U+240D. Lines that
begin with "# " and blank lines stand between cases.

usage: template_oracle.py [--update] [FILE]     last line: "N passed, N failed"
--update writes the third lines anew; a new case may come without one.
"""
import json
import sys
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NEWLINE, RETURN = "\u23ce", "\u240d"
NOW = datetime(2025, 7, 10, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """Refuses names with an underscore in front, as transformers does since 5.22."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=lambda form: NOW.strftime(form), dict=Dict(), namespace=Namespace)
    return env


ENV = environment()


def render(template, context):
    """("=", text) or ("!", name of the exception)."""
    try:
        text = ENV.from_string(template).render(**{"tools": None, "documents": None, **context})
        text.encode("utf-8")
        return "=", text
    except RecursionError:
        return "!", "RecursionError"
    except Exception as e:  # whatever a template can raise is a result
        return "!", type(e).__name__


def show(text):
    return text.replace("\r", RETURN).replace("\n", NEWLINE)


def hide(text):
    return text.replace(NEWLINE, "\n").replace(RETURN, "\r")


def read(path):
    """Items: a str for a line to keep, or a [template, context, expected or None]."""
    items, lines = [], Path(path).read_text(encoding="utf-8").split("\n")
    i = 0
    while i < len(lines):
        if not lines[i] or lines[i].startswith("# "):
            items.append(lines[i])
            i += 1
            continue
        case = [lines[i], lines[i + 1], None]
        i += 2
        if i < len(lines) and lines[i][:1] in ("=", "!"):
            case[2] = lines[i]
            i += 1
        items.append(case)
    return items


def main(argv):
    update = "--update" in argv
    paths = [a for a in argv if a != "--update"]
    path = paths[0] if paths else Path(__file__).with_name("template.test")
    items, passed, failed = read(path), 0, 0
    for item in items:
        if isinstance(item, str):
            continue
        sign, text = render(hide(item[0]), json.loads(item[1]))
        got = f"{sign} {show(text)}" if text else sign
        if got == item[2]:
            passed += 1
        elif update:
            item[2] = got
            passed += 1
        else:
            failed += 1
            print(f"FAILED {item[0]}\n  in the file  {item[2]}\n  Jinja2 says  {got}")
    if update:
        text = "\n".join(line if isinstance(line, str) else "\n".join(line) for line in items)
        Path(path).write_text(text, encoding="utf-8")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
