#!/usr/bin/env python3
"""The site of the documents: each has a page, every link leads to a page and a heading, nothing is loaded from elsewhere, and the search knows all of them.

usage: test_site.py      last line: "N passed, N failed[, N skipped]"; MKDOCS names the program where it is not in the path
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from counting import HANG, check, finish, skip  # noqa: E402


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids = [], [], set()
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.ids.update(v for v in (a.get("id"), a.get("name")) if v)
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        for key in ("src",) if tag in ("script", "img", "iframe") else ("href",) if tag == "link" else ():
            if a.get(key):
                self.loads.append(a[key])


def main():
    mkdocs = os.environ.get("MKDOCS") or shutil.which("mkdocs")
    if not mkdocs:
        skip("the site: no mkdocs here (tools/setup.sh site)")
        finish()
    with tempfile.TemporaryDirectory() as folder:
        r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/site.py"), mkdocs, folder], capture_output=True, text=True, timeout=HANG, check=False)
        check(r.returncode == 0, f"site.py: {r.stdout} {r.stderr}")
        pages = {os.path.relpath(os.path.join(top, n), folder): Page(os.path.join(top, n)) for top, _, names in os.walk(folder) for n in names if n.endswith(".html")}
        documents = subprocess.run(["git", "-C", ROOT, "ls-files", "docs/*.md"], capture_output=True, text=True, check=True).stdout.split()
        missing = [d for d in documents if d != "docs/README.md" and d.removeprefix("docs/").replace(".md", ".html") not in pages]
        check(len(documents) > 30 and not missing and "index.html" in pages, f"documents without a page: {missing}")
        dead = []
        for path, page in pages.items():
            for link in page.links:
                name, _, anchor = link.partition("#")
                if re.match(r"[a-z]+:|//|/|\.$|\.\.$", link) or path == "404.html":
                    continue
                target = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                if not os.path.exists(os.path.join(folder, target)) or (anchor and target in pages and anchor not in pages[target].ids):
                    dead.append(f"{path}: {link}")
        check(not dead, f"links that lead nowhere: {dead[:20]}")
        foreign = sorted({u for p in pages.values() for u in p.loads if re.match(r"(https?:)?//", u)})
        check(not foreign, f"loaded from elsewhere: {foreign}")
        search, index = os.path.join(folder, "search/search_index.json"), []
        if check(os.path.exists(search), "the site has a search"):
            with open(search, encoding="utf-8") as f:
                index = json.load(f)["docs"]
        known = {d["location"].partition("#")[0] or "index.html" for d in index}
        check({p for p in pages if p not in ("404.html", "search.html")} <= known, f"pages that the search does not know: {sorted(set(pages) - known)}")
        check(any("mlxcel quantize" in d["title"] + d["text"] for d in index), "the search knows the commands")
    finish()


if __name__ == "__main__":
    main()
