#!/usr/bin/env python3
"""Makes the two scripts of the chat page: lib.js has its libraries, markdown-it, KaTeX and a part of Prism, and page.js our own files.

usage: bundle_page.py MARKDOWN_IT KATEX PRISM OWN OUT      the first three are the folders of cmake/deps, OWN is src/server/webui, OUT a folder

markdown-it is made of modules in the manner of Node: each becomes a function, and a `require` of a few lines finds them by path. Its comments
of whole lines are left out: they are a third of it. The licences go with the release (packaging/pack.py).
"""
import json
import os
import re
import sys

# In an order in which each finds what it builds on.
LANGUAGES = """markup css clike javascript bash c cpp csharp diff docker go haskell http ini java json julia kotlin latex lua makefile markdown
 markup-templating matlab objectivec perl php powershell python r ruby rust scala sql swift toml typescript yaml zig""".split()
# Our own files, each behind those that it uses while it is read.
OWN = ("markdown.js", "basics.js", "chats.js", "thread.js", "files.js", "ask.js", "page.js")
# The browser does what markdown-it asks punycode for.
PUNYCODE = r"module.exports = {toASCII: host => /[^\0-\x7f]/.test(host) ? new URL('http://' + host).hostname : host, toUnicode: host => host};"


def resolve(folder, name, top):
    """The file that `require(name)` in folder means."""
    base = os.path.join(folder, name) if name.startswith(".") else os.path.join(top, "node_modules", name)
    for path in (base, base + ".js", base + ".json", os.path.join(base, "index.js")):
        if os.path.isfile(path):
            return os.path.normpath(path)
    raise SystemExit(f"bundle_page: {folder} requires {name}, which is not there")


def without_comments(text):
    text = re.sub(r"^[ \t]*/\*.*?\*/[ \t]*$", "", text, flags=re.M | re.S)
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"^[ \t]*//.*$", "", text, flags=re.M)).strip()


def collect(path, top, modules):
    """Adds a file and what it requires: {path below top: text of the function's body}."""
    key = os.path.relpath(path, top)
    if key in modules:
        return key
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if path.endswith(".json"):
        modules[key] = "module.exports = " + json.dumps(json.loads(text), ensure_ascii=True, separators=(",", ":")) + ";"
        return key
    modules[key] = ""

    def replace(m):
        if m.group(2) == "punycode":
            modules["punycode"] = PUNYCODE
            return 'require("punycode")'
        return f'require({json.dumps(collect(resolve(os.path.dirname(path), m.group(2), top), top, modules))})'
    modules[key] = re.sub(r"require\((['\"])([^'\"]+)\1\)", replace, without_comments(text))
    return key


def bundle(name, entry, top):
    modules = {}
    first = collect(os.path.join(top, entry), top, modules)
    parts = ",\n".join(f"{json.dumps(k)}: (module, exports, require) => {{\n{v}\n}}" for k, v in sorted(modules.items()))
    return (f"const {name} = (() => {{\nconst files = {{\n{parts}}}, made = {{}};\n"
            "const require = path => { if (!made[path]) { made[path] = {exports: {}}; files[path](made[path], made[path].exports, require); } return made[path].exports; };\n"
            f"return require({json.dumps(first)});\n}})();\n")


def languages(top):
    """Prism with the languages of the list; one that this version has not is passed over. It is not to look through the page by itself."""
    out = ["self.Prism = {manual: true, disableWorkerMessageHandler: true};"]
    for name in ["core", *LANGUAGES]:
        path = os.path.join(top, "components", f"prism-{name}.min.js")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                out.append(f.read().strip() + ";")
    return "\n".join(out) + "\n"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def main():
    markdown, katex, prism, own, out = sys.argv[1:]
    scripts = {"lib.js": bundle("markdownIt", "lib/index.js", markdown) + read(katex, "katex.js").rstrip() + "\n" + languages(prism),
               "page.js": "".join(read(own, name) for name in OWN)}
    for name, text in scripts.items():
        with open(os.path.join(out, name), "w", encoding="utf-8", newline="\n") as f:
            f.write(text)


if __name__ == "__main__":
    main()
