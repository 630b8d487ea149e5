"""Renders a Helm chart that keeps to the few template features named here; anything else, and a value that is not there, is an error.

{{ }} with - on either side, {{/* */}}; .Values.a.b, .Release.Name, $.Values.a, ".", "text", numbers, (call in brackets), pipelines;
if, else, range over a list, define, end; include, toYaml, nindent, quote, int, add, mul, eq, gt, not.
"""
import os
import re

import yaml

TOKEN = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
WORD = re.compile(r'\s*("[^"]*"|[()|]|[^\s()|]+)')


class Unknown(Exception):
    """The chart has something that this renderer, or the values, do not know."""


def tokens(text):
    """(kind, text): what stands between the braces, and what is around it, trimmed as the dashes say."""
    parts, at, trims = [], 0, False
    for m in TOKEN.finditer(text):
        before = text[at:m.start()]
        before = before.lstrip() if trims else before
        parts += [("text", before.rstrip() if m[1] else before), ("code", m[2])]
        at, trims = m.end(), bool(m[3])
    rest = text[at:]
    return parts + [("text", rest.lstrip() if trims else rest)]


def parse(parts, inside=False):
    """A list of nodes: text, ("put", code), (kind, code, body, other)."""
    body, other = [], None
    while parts:
        kind, text = parts.pop(0)
        here = body if other is None else other
        word = text.split(" ")[0] if kind == "code" else ""
        if kind == "text":
            here.append(text)
        elif text.startswith("/*"):
            continue
        elif word in ("if", "range", "define"):
            here.append((word, text[len(word):].strip(), *parse(parts, True)))
        elif word == "else" and text == "else" and inside and other is None:
            other = []
        elif word == "end" and inside:
            return body, other
        elif word in ("else", "end", "with", "template", "block"):
            raise Unknown(f"{{{{ {text} }}}}")
        else:
            here.append(("put", text))
    if inside:
        raise Unknown("end is missing")
    return body, other


def is_define(node):
    return not isinstance(node, str) and node[0] == "define"


def to_yaml(value):
    return yaml.safe_dump(value, default_flow_style=False, width=1000).removesuffix("...\n").rstrip("\n")


def quoted(value):
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


FUNCTIONS = {"quote": quoted, "toYaml": to_yaml, "nindent": lambda n, text: "\n" + "\n".join(" " * n + line for line in text.split("\n")), "int": int,
             "add": lambda *n: sum(map(int, n)), "mul": lambda a, b: int(a) * int(b), "eq": lambda a, b: a == b, "gt": lambda a, b: a > b, "not": lambda a: not a}


class Chart:
    def __init__(self, folder):
        self.folder, self.parts, self.pages = folder, {}, {}
        with open(os.path.join(folder, "values.yaml"), encoding="utf-8") as f:
            self.values = yaml.safe_load(f)
        for name in sorted(os.listdir(os.path.join(folder, "templates"))):
            with open(os.path.join(folder, "templates", name), encoding="utf-8") as f:
                nodes = parse(tokens(f.read()))[0]
            self.parts.update({node[1].strip('"'): node[2] for node in nodes if is_define(node)})
            if not name.startswith("_"):
                self.pages[name] = [node for node in nodes if not is_define(node)]

    def look_up(self, path, dot):
        at = self.root if path.startswith("$") else dot
        for name in path.lstrip("$").strip(".").split("."):
            if name and (not isinstance(at, dict) or name not in at):
                raise Unknown(f"there is no {path}")
            at = at[name] if name else at
        return at

    def term(self, words, dot):
        word = words.pop(0)
        if word == "(":
            value = self.pipeline(words, dot)
            if not words or words.pop(0) != ")":
                raise Unknown("a bracket is open")
            return value
        if word.startswith('"'):
            return word.strip('"')
        if re.fullmatch(r"\d+", word):
            return int(word)
        if word.startswith((".", "$")):
            return self.look_up(word, dot)
        raise Unknown(f"{word} is no value")

    def call(self, words, dot, last):
        """One step of a pipeline; `last` is what the step before gave."""
        if not words[0][0].isalpha():
            return self.term(words, dot)
        name, args = words.pop(0), []
        while words and words[0] not in ("|", ")"):
            args.append(self.term(words, dot))
        args += last
        if name == "include":
            return self.render(self.parts[args[0]], args[1])
        if name not in FUNCTIONS:
            raise Unknown(f"the function {name}")
        return FUNCTIONS[name](*args)

    def pipeline(self, words, dot):
        value = self.call(words, dot, [])
        while words and words[0] == "|":
            words.pop(0)
            value = self.call(words, dot, [value])
        return value

    def evaluate(self, code, dot):
        words = WORD.findall(code)
        value = self.pipeline(words, dot)
        if words:
            raise Unknown(f"{' '.join(words)} in {{{{ {code} }}}}")
        return value

    def render(self, nodes, dot):
        out = ""
        for node in nodes or []:
            if isinstance(node, str):
                out += node
            elif node[0] == "put":
                value = self.evaluate(node[1], dot)
                out += str(value).lower() if isinstance(value, bool) else str(value)
            elif node[0] == "if":
                out += self.render(node[2] if self.evaluate(node[1], dot) else node[3], dot)
            elif node[0] == "range":
                out += "".join(self.render(node[2], item) for item in self.evaluate(node[1], dot))
            else:
                raise Unknown(f"{node[0]} inside a page")
        return out

    def objects(self, release, changes):
        """The objects of all pages. changes: {"model.name": value}, as --set has them."""
        values = yaml.safe_load(yaml.safe_dump(self.values))
        for path, value in changes.items():
            *above, name = path.split(".")
            at = values
            for step in above:
                at = at[step]
            if name not in at:
                raise Unknown(f"values.yaml has no {path}")
            at[name] = value
        self.root = {"Values": values, "Release": {"Name": release}}
        found = []
        for name, nodes in self.pages.items():
            found += [o for o in yaml.safe_load_all(self.render(nodes, self.root)) if o]
        return found
