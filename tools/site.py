#!/usr/bin/env python3
"""Makes a site with search of README.md and docs/: `make site`, into build/site. mkdocs does the work.

usage: site.py MKDOCS OUT      MKDOCS: the program

The pages lie side by side in the site: README.md is its first page, docs/README.md becomes documents.md, and files of the root that pages link to come along. The
menu is that of docs/README.md. A link that leads nowhere is an error.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<file>[^)\s:#]*)(?P<anchor>#[^)\s]*)?\)")


def place(path):
    """Where a file of the repository lies in the site."""
    if path == "README.md":
        return "index.md"
    if path == "docs/README.md":
        return "documents.md"
    if path == "LICENSE":
        return "LICENSE.txt"
    return path.removeprefix("docs/")


def moved(text, path, known):
    """The text of a file with its links as they are in the site; what does not come along keeps its name alone."""
    def replace(m):
        if not m["file"]:
            return m.group()
        target = os.path.normpath(os.path.join(os.path.dirname(path), m["file"]))
        if target not in known:
            return m["text"]
        return f"[{m['text']}]({os.path.relpath(place(target), os.path.dirname(place(path)) or '.')}{m['anchor'] or ''})"
    return LINK.sub(replace, text)


def menu(known):
    """The sections of docs/README.md with their pages, and what no section names at the end."""
    with open(os.path.join(ROOT, "docs/README.md"), encoding="utf-8") as f:
        text = f.read()
    nav, used = [{"Home": "index.md"}, {"All documents": "documents.md"}], {"README.md", "docs/README.md"}
    for section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        pages = [os.path.normpath(os.path.join("docs", p)) for p in re.findall(r"\]\(([^)#]+\.md)", section[1])]
        pages = [p for p in dict.fromkeys(pages) if p in known and p not in used]
        used.update(pages)
        nav.append({section[0]: [place(p) for p in pages]})
    diary = sorted(p for p in known if p.startswith("docs/speed/"))
    nav.append({"Diary of speed": [place(p) for p in diary]})
    rest = sorted(p for p in known if p.endswith(".md") and p not in used and p not in diary)
    return nav + [{"More": [place(p) for p in rest]}]


def main():
    mkdocs, out = sys.argv[1:]
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "docs"], capture_output=True, text=True, check=True).stdout.split()
    known = {p for p in (*listed, "README.md", *TOP) if os.path.exists(os.path.join(ROOT, p))}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(known):
            target = os.path.join(folder, "pages", place(path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not path.endswith(".md"):
                shutil.copy(os.path.join(ROOT, path), target)
                continue
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = moved(f.read(), path, known)
            with open(target, "w", encoding="utf-8") as f:
                f.write(text)
        config = {"site_name": "mlxcel", "docs_dir": os.path.join(folder, "pages"), "site_dir": os.path.abspath(out), "theme": {"name": "readthedocs", "highlightjs": False}, "plugins": ["search"], "nav": menu(known),
                  "use_directory_urls": False, "markdown_extensions": ["tables", "fenced_code"]}
        with open(os.path.join(folder, "mkdocs.yml"), "w", encoding="utf-8") as f:
            json.dump(config, f)  # JSON is YAML
        return subprocess.run([mkdocs, "build", "--strict", "--quiet", "--config-file", os.path.join(folder, "mkdocs.yml")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
