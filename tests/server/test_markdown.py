#!/usr/bin/env python3
"""The chat page's Markdown against the specification: every example of CommonMark and of GitHub's extensions goes through the page's renderer in
a browser, and its nodes are compared with those of the expected markup. Then formulas and code.

usage: test_markdown.py PROGRAM [FOLDER for the sheets: the page beside the reference]      last line: "N passed, N failed[, N skipped]"

The examples are those of spec.txt in Debian's sources of cmark-gfm, fetched through apt into the download cache.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import harness
from chatpage import browser, open_page
from harness import Server, check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARCHIVE, VERSION = "cmark-gfm_0.29.0.gfm.6.orig.tar.gz", "0.29.0.gfm.6"
SHA256 = "b17d86164c0822b5db3818780b44cb130ff30e9c6ec6a64f199b6d142684dba0"

# Where the page is not to do what the specification says: raw HTML is shown as text.
MARKUP = {"HTML blocks", "Raw HTML", "Disallowed Raw HTML (extension)"}
EXAMPLE = re.compile(r"^`{32} example([^\n]*)\n(.*?)^\.\n(.*?)^`{32}$", re.M | re.S)

# Plain forms of what the page dresses up, so that trees can be compared.
PLAIN = """
LEAVES.softbreak = () => "\\n";
LEAVES.image = t => { const n = el("img"); n.setAttribute("src", t.attrGet("src")); n.setAttribute("alt", plainText(t.children)); if (t.attrGet("title")) n.title = t.attrGet("title"); return n; };
LEAVES.code_block = t => el("pre", {}, el("code", {}, t.content));
LEAVES.fence = t => { const c = el("code", {}, t.content), lang = language(t); if (lang) c.className = "language-" + lang; return el("pre", {}, c); };
link = (url, title) => { const a = el("a"); a.setAttribute("href", url); if (title) a.title = title; return a; };
const plainText = ts => (ts || []).map(t => t.type === "image" ? plainText(t.children) : t.type === "softbreak" ? "\\n" : t.content).join("");
function tree(node) {
  if (node.nodeType === 3) return node.data;
  if (node.tagName === "DIV" && node.className === "wide") return tree(node.firstChild);
  const tag = {DEL: "S"}[node.tagName] || node.tagName, attrs = [];
  for (const {name, value} of node.attributes || []) {
    if (name === "style") attrs.push(["align", node.style.textAlign]);
    else if (["href", "src", "title", "start", "align", "alt"].includes(name)) attrs.push([name, value]);
    else if (name === "class" && value.startsWith("language-")) attrs.push([name, value]);
    else if (name === "checked") attrs.push([name, ""]);
  }
  let kids = [];
  for (const n of node.childNodes) {
    let t = tree(n);
    if (typeof t === "string" && typeof kids.at(-1) === "string") kids.push(kids.pop() + t); else kids.push(t);
  }
  const block = ["BODY", "UL", "OL", "LI", "BLOCKQUOTE", "TABLE", "THEAD", "TBODY", "TR", "DIV"].includes(tag);
  if (tag !== "PRE" && tag !== "CODE") kids = kids.map(k => typeof k === "string" ? k.replace(/[ \\t]*\\n[ \\t]*/g, "\\n").replace(/ +/g, " ") : k);
  if (block) kids = kids.map(k => typeof k === "string" ? k.trim() : k);
  if (tag === "P" || /^(H\\d|T[DH])$/.test(tag)) { // blanks at the edges are none
    if (typeof kids[0] === "string") kids[0] = kids[0].trimStart();
    if (typeof kids.at(-1) === "string") kids.push(kids.pop().trimEnd());
  }
  kids = kids.map((k, i) => typeof k === "string" && i && Array.isArray(kids[i - 1]) && kids[i - 1][0] === "BR" ? k.trimStart() : k);
  return [tag, attrs.sort(), kids.filter(k => k !== "" && !(k[0] === "TBODY" && !k[2].length))];
}
function compare(text, html, extended) {
  parser.set({linkify: extended});
  const want = tree(new DOMParser().parseFromString(html, "text/html").body), body = document.createElement("body");
  body.append(...markdown(text));
  return [JSON.stringify(tree(body)), JSON.stringify(want)];
}
const raw = markdownIt({html: true});
const hasMarkup = text => JSON.stringify(raw.parse(text, {})).includes('"type":"html_');
"""


def spec():
    cache = os.environ.get("MLXCEL_DEPS_CACHE") or os.path.join(ROOT, "build/downloads")
    path = os.path.join(cache, ARCHIVE)
    if not os.path.exists(path):
        os.makedirs(cache, exist_ok=True)
        done = subprocess.run([os.path.join(ROOT, "tools/debian_fetch.sh"), "source", "bookworm", "cmark-gfm", VERSION, cache], capture_output=True, text=True, check=False)
        if done.returncode:
            return None, done.stderr.strip()
    with open(path, "rb") as f:
        if hashlib.sha256(f.read()).hexdigest() != SHA256:
            return None, f"{path} is not the archive that was meant"
    with tarfile.open(path) as tar:
        return tar.extractfile(f"cmark-gfm-{VERSION}/test/spec.txt").read().decode(), None


def examples(text):
    """(section, number, Markdown, HTML)."""
    heads = [(m.start(), m.group(1)) for m in re.finditer(r"^#{1,6} +(.*)$", re.sub(EXAMPLE, lambda m: " " * len(m.group(0)), text), re.M)]
    for n, m in enumerate(EXAMPLE.finditer(text), 1):
        section = [name for at, name in heads if at < m.start()][-1]
        yield section, n, m.group(2).replace("→", "\t"), m.group(3).replace("→", "\t")


# What the page does otherwise on purpose, by the example's number.
OTHERWISE = {
    202: "a line without | ends a table",
    308: "\\\\[ begins a formula",
    625: "more closing brackets than opening ones end an address",
    629: "an address of mail ends with a domain that there is", 630: "the same", 631: "the same",
    626: "what looks like an entity at the end belongs to the address",
}


# The examples of one section, ours on the left and the specification's markup on the right, in the page's own colours.
BESIDE = """(pairs => {
  const half = inside => { const d = el("div", {className: "md"}, ...inside); d.style.cssText = "flex: 1; min-width: 0; border: 1px solid var(--line); padding: 4px 10px"; return d; };
  const rows = pairs.map(([text, html]) => { const r = el("div", {}, half(markdown(text)), half(new DOMParser().parseFromString(html, "text/html").body.childNodes)); r.style.cssText = "display: flex; gap: 8px"; return r; });
  const sheet = el("div", {}, ...rows);
  sheet.id = "sheet";
  sheet.style.cssText = "position: absolute; inset: 0 0 auto 0; z-index: 9; background: var(--bg); display: grid; gap: 4px; padding: 8px; grid-column: 1 / 3";
  document.getElementById("sheet")?.remove();
  document.body.style.overflow = "visible";
  document.body.append(sheet);
  return sheet.scrollHeight + 20; })"""


# What can be read in each row of the sheet, left and right.
SEEN = """(() => { document.querySelectorAll("#sheet .code > .bar").forEach(n => n.remove());
            return [...document.querySelectorAll("#sheet > div")].map(r => [...r.children].map(n => n.innerText.split(/\\s+/).filter(Boolean).join(" "))); })()"""


def sheets(b, folder):
    """A picture for each section, the page's rendering beside the reference's: what a person looks at. Both sides have the same words, and no sheet is empty."""
    text, why = spec()
    if not text:
        harness.skip(f"sheets of the specification's examples: {why}")
        return
    sections = {}
    for section, n, source, html in examples(text):
        if section not in MARKUP and n not in OTHERWISE and not re.search(r"<[\w!]", source):
            sections.setdefault(section, []).append([source, html])
    different = {}
    for section, pairs in sections.items():
        height = b.run(f"{BESIDE}({json.dumps(pairs)})")
        b.screen(1280, min(int(height), 12000))
        path = os.path.join(folder, "spec-" + re.sub(r"\W+", "-", section.lower()).strip("-") + ".png")
        b.picture(path)
        rows = b.run(SEEN)
        wrong = [r for r, (_, html) in zip(rows, pairs) if r[0] != r[1] and "<img" not in html]  # of a picture the page shows the words
        if os.path.getsize(path) < 1000 or len(rows) != len(pairs) or not any(r[0] for r in rows) or wrong:
            different[section] = wrong or rows
    check(len(sections) > 20 and not different, f"{len(sections)} sheets of examples; different or empty: {different}")
    b.run('document.getElementById("sheet").remove(); document.body.style.overflow = ""')


def check_spec(b):
    text, why = spec()
    if not text:
        harness.skip(f"the examples of the specification: {why}")
        return
    b.run(PLAIN + "; 0")
    markup, sections = 0, {}
    for section, n, source, html in examples(text):
        if section in MARKUP or b.run(f"hasMarkup({json.dumps(source)})"):
            markup += 1
            continue
        if n in OTHERWISE:
            continue
        got, want = b.run(f"compare({json.dumps(source)}, {json.dumps(html)}, {json.dumps('extension' in section)})")
        sections.setdefault(section, []).append(f"example {n}: {source!r} became {got}, not {want}" if got != want else None)
    for section, results in sections.items():
        wrong = [r for r in results if r]
        check(not wrong, f"{section}: {len(wrong)} of {len(results)} differ: {wrong}")
    total = sum(len(r) for r in sections.values())
    check(total >= 580 and markup <= 90, f"{total} examples compared, {markup} with raw markup left out")
    print(f"{total} examples of the specification, {markup} with raw markup left out, {len(OTHERWISE)} otherwise on purpose")


# What the page once got wrong, and the texts of the nodes that it must make.
FAULTS = (
    ("| a |\n|---|\n| b \\| c |", "td", ["b | c"]), ("| a |\n|---|\n| `b \\| c` |", "td code", ["b | c"]), ("| a | b |\n|---|---|\n| `x` | y |", "td", ["x", "y"]),
    ("***x***", "em strong, strong em", ["x"]), ("- [ ] a\n- [x] b", "input[type=checkbox]", ["", ""]), ("- [ ] a\n- [x] b", "li", [" a", " b"]), ("- [x] b", "input:checked", [""]),
    ("- a\n\n  ```\n  code\n  ```\n- b", "li pre", ["code"]), ("- a\n\n  ```\n  code\n  ```\n- b", "ul > li > p", ["a", "b"]), ("1. a\n\n       code", "li pre", ["code"]),
)


def check_faults(b):
    for text, nodes, want in FAULTS:
        got = b.run(f"[...el('div', {{}}, ...markdown({json.dumps(text)})).querySelectorAll({json.dumps(nodes)})].map(n => n.textContent)")
        check(got == want, f"{text!r}: {nodes} are {got}, not {want}")


def check_formulas(b):
    for text, formulas, wide in (("a $x^2$ b", 1, 0), (r"\(a\) and \[b\]", 2, 1), ("$$\n\\frac{1}{2}\n$$", 1, 1), ("it costs $5 and $10", 0, 0), ("$5/$10 a day", 0, 0), ("`$x$`", 0, 0),
                                 ("```\n$$x$$\n```", 0, 0), (r"\$x\$", 0, 0), ("$$a$$", 1, 1), ("- item\n\n  $$\n  y\n  $$", 1, 1), ("$5 is $x$", 1, 0), ("$$ never closed", 0, 0)):
        got = b.run(f"(() => {{ const d = el('div', {{}}, ...markdown({json.dumps(text)})); return [d.querySelectorAll('math').length, d.querySelectorAll('div.formula').length]; }})()")
        check(got == [formulas, wide], f"{text!r}: {got} formulas and wide ones")
    check(b.run(r"el('div', {}, ...markdown('$\\href{javascript:alert(1)}{x}$ $\\frac{$')).querySelectorAll('a, script').length") == 0, "formulas bring no links")
    check(b.run(r"el('div', {}, ...markdown('$\\notacommand{x}$')).querySelector('code').textContent") == r"\notacommand{x}", "what is no formula is shown as it is")


def main():
    with browser("Markdown of the chat page") as b:
        with Server(sys.argv[1], "--parallel", "1") as s:
            b.call("Page.enable")
            check(open_page(b, s.url), "the page is there")
            harness.parts((check_faults, b), (check_formulas, b))
            with tempfile.TemporaryDirectory() as passing:
                harness.parts((sheets, b, sys.argv[2] if len(sys.argv) > 2 else passing), (check_spec, b))
    harness.finish()


if __name__ == "__main__":
    main()
