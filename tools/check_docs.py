#!/usr/bin/env python3
"""Checks that the documents agree with the tree: docs/dependencies.md names each recipe's version and licence, the CHANGELOG the version;
links between documents lead to files and headings, files that documents and comments name are there, and so are the messages that tables
of failures quote.

usage: check_docs.py [ROOT]
"""
import os
import re
import sys

import csource


def recipes(root):
    for path in csource.files(root, ".cmake"):
        if path.startswith("cmake/deps/"):
            text = csource.read(root, path)
            name = re.search(r"mlxcel_recipe\((\w+)", text)
            if name:
                yield path, name.group(1), re.search(r"VERSION (\S+)", text).group(1), re.search(r"LICENCE (\S+)", text).group(1)


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# files named in words; an upper-case letter stands for a name that is not given: tests/unit/test_NAME.c
NAMED = re.compile(r"(?<![\w/.-])(?:docs|tests|tools|packaging|bench)/[\w./-]*\.(?:md|py|sh|c|h|def|list|cmake)\b")


def anchors(text):
    """The headings as links write them: lower case, without punctuation, blanks as dashes."""
    heads = re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h) for h in heads)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in plain}


def dead_links(root, path, text):
    for m in LINK.finditer(text):
        if re.match(r"[a-z]+:", m.group(1)):
            continue
        name, _, anchor = m.group(1).partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        line = csource.line_of(text, m.start())
        if not os.path.exists(os.path.join(root, target)):
            yield line, f"the link {m.group(1)} leads to no file"
        elif anchor and anchor not in anchors(csource.read(root, target)):
            yield line, f"{target} has no heading for the link #{anchor}"


def missing_files(root, text):
    """Files are named from the root, or from src/ as an include has them."""
    for m in NAMED.finditer(text):
        name = m.group()
        is_there = any(os.path.exists(os.path.join(root, top, name)) for top in ("", "src"))
        if name.rsplit("/", 1)[1] == name.rsplit("/", 1)[1].lower() and not is_there:
            yield csource.line_of(text, m.start()), f"names {name}, which is not there"


def strings(root):
    """The sources as one text, with strings joined that go over several lines."""
    texts = (csource.read(root, p) for p in csource.files(root, ".c", ".h", ".def") if p.startswith(("src/", "tools/")))
    return re.sub(r'"\s*\n\s*"', "", "\n".join(texts))


def unknown_messages(text, sources):
    """Tables of failures begin with what is seen, in backticks; N, digits and dots stand for what differs from case to case."""
    for table in re.finditer(r"^\| (?:message|what you see) \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M):
        for m in re.finditer(r"^\| `([^`]+)` \|", table.group(1), re.M):
            parts = (p.strip(" ,") for p in re.split(r"\.\.\.|\bN\b(?:\.N)?|\d+|[()]", m.group(1)))
            if not all(p in sources for p in parts):
                yield csource.line_of(text, table.start(1) + m.start()), f"no source says \"{m.group(1)}\""


def main():
    root = csource.root_of(sys.argv)
    bad = 0
    sources = strings(root)
    for path in csource.files(root, ".md", ".c", ".h", ".cu", ".cuh", ".def"):
        text = csource.read(root, path)
        found = [*missing_files(root, text)]
        if path.endswith(".md"):
            found += [*dead_links(root, path, text), *unknown_messages(text, sources)]
        for line, message in sorted(found):
            print(f"{path}:{line}: {message}")
            bad += 1
    rows = [line for line in csource.read(root, "docs/dependencies.md").split("\n") if line.startswith("|")]
    for path, name, version, licence in recipes(root):
        if not any(f"| {name} |" in row and f"| {version} |" in row and f"| {licence} |" in row for row in rows):
            print(f"{path}:1: docs/dependencies.md has no row with {name}, {version} and {licence}")
            bad += 1
    version = csource.read(root, "VERSION").strip()
    if f"## {version}" not in csource.read(root, "CHANGELOG.md"):
        print(f"CHANGELOG.md:1: no section for version {version}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
