#!/usr/bin/env python3
"""What somebody sees first: the order and the words of README.md, the index, the tutorial, the page of results; what the page is made of, what the release's workflow
does, and tests/people.md, which names the test of each fault that people met.

usage: test_front.py      last line: "N passed, N failed[, N skipped]"
"""
import os
import re
import struct
import subprocess
import sys
from xml.etree import ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tests", "tests/docs"):
    sys.path.insert(0, os.path.join(ROOT, folder))
from counting import check, finish, parts  # noqa: E402
import seeds  # noqa: E402
from examples import read  # noqa: E402


def check_first_words():
    """One sentence says what it is, for which systems, what it needs not, and how fast it is."""
    first = read("README.md").split("\n\n")[1].replace("\n", " ")
    check(first.count(". ") == 0 and len(first) < 200, f"one sentence: {first}")
    for word in ("MLX", "Hugging Face", "Linux and Windows", "no Python", "no CUDA toolkit", "speed"):
        check(word in first, f"the first sentence has no {word!r}: {first}")


def check_order():
    """What it looks like, how it begins, what it does not do, how fast it is; then how to get it, and first of all that nothing is released."""
    text = read("README.md")
    places = [text.find(mark) for mark in ("pictures/page.png", "## Start", "pictures/terminal.svg", "## What it does, and what it does not", "## Speed", "pictures/speed.svg", "## Install", "## Documents")]
    check(-1 not in places and places == sorted(places), f"the order of README.md: {places}")
    install = re.search(r"^## Install\n\n(.*?)^## ", text, re.M | re.S).group(1)
    files = re.search(r"\.(tar\.gz|zip|deb|rpm|exe)\b", install)
    said = install.find("not released yet")
    check(said >= 0 and (not files or said < files.start()), "that there is no release stands before its files")
    check(len(text.split()) < 900, f"README.md has {len(text.split())} words: what is more belongs to docs/")


def check_what_is_missing():
    table = re.search(r"^## What it does, and what it does not\n\n((?:\|.*\n)+)", read("README.md"), re.M).group(1)
    rows = [[c.strip() for c in line.strip("|\n").split("|")] for line in table.splitlines()]
    check(rows[0][1:] == ["mlxcel", "llama.cpp", "Ollama", "LM Studio", "mlx-lm"] and all(len(r) == 6 for r in rows), f"beside the others: {rows[0]}")
    ours = [r[1] for r in rows[2:]]
    check(sum("**" in cell for cell in ours) >= 3 and any("no macOS" in cell for cell in ours), f"what is missing stands out: {ours}")


def check_pictures():
    """Each is there, and is what its name says."""
    shown = re.findall(r"!\[([^\]]*)\]\((\S+)\)", read("README.md"))
    check([path for _, path in shown] == [f"docs/pictures/{name}" for name in ("page.png", "terminal.svg", "speed.svg")], f"the page, the terminal and the speed are shown: {shown}")
    for alt, path in shown:
        with open(os.path.join(ROOT, path), "rb") as f:
            data = f.read()
        if path.endswith(".png"):
            width, height = struct.unpack(">II", data[16:24])
            check(data[:8] == b"\x89PNG\r\n\x1a\n" and width >= 800 and height >= 500 and alt, f"{path}: {width} x {height}")
        else:
            texts = [t for t in ElementTree.fromstring(data).iter() if t.tag.endswith("}text")]
            check(len(texts) > 5 and alt, f"{path}: {len(texts)} texts")
        check(len(data) <= 100_000, f"{path}: {len(data)} bytes")


def check_index():
    """The index has its four parts, and every document is in it; the diary of speed has its own."""
    index, diary = read("docs/README.md"), read("docs/SPEED.md")
    check(re.findall(r"^## (.*)$", index, re.M) == ["Guide", "Reference", "Inside", "Decisions"], "the parts of the index")
    documents = subprocess.run(["git", "-C", ROOT, "ls-files", "docs/*.md"], capture_output=True, text=True, check=True).stdout.split()
    names = [d.removeprefix("docs/") for d in documents if d != "docs/README.md"]
    missing = [n for n in names if f"({n}" not in (diary if n.startswith("speed/") else index)]
    check(len(names) > 30 and not missing, f"documents that the index does not name: {missing}")


def check_tutorial():
    """From nothing to a served model, on both systems: each part installs, tries, talks and serves."""
    parts = dict(re.findall(r"^## (Linux|Windows)\n(.*?)(?=^## |\Z)", read("docs/start.md"), re.M | re.S))
    for system, words in {"Linux": ("make install", "mlxcel doctor", "mlxcel run qwen3", "mlxcel serve qwen3", "curl "), "Windows": ("windows.md", "mlxcel doctor", "mlxcel run qwen3", "mlxcel serve qwen3", "curl.exe ")}.items():
        missing = [w for w in words if w not in parts.get(system, "")]
        check(not missing, f"{system}: the tutorial has no {missing}")


def check_results():
    words = len(read("docs/SPEED.md").split())
    check(words < 1500 and os.path.isdir(os.path.join(ROOT, "docs/speed")), f"docs/SPEED.md has {words} words; what was tried belongs to docs/speed/")


def check_libraries():
    """What the page is made of comes from packages, by hash, with a licence; the release carries it."""
    bundled = read("tools/bundle_page.py").lower()
    for name in ("markdownit", "katex", "prism"):
        recipe = read(f"cmake/deps/{name}.cmake")
        check(re.search(r"LICENCE \S+", recipe) and re.search(r"deb:\S+ [0-9a-f]{64}", recipe), f"{name}: a licence and a hash")
        check(name.replace("markdownit", "markdown-it") in bundled, f"{name} is in the bundle")


def check_workflow():
    """A tag makes, tests, signs and publishes; each step of the uploads is one that the dry run of tests/release/test_publish.py has."""
    text, steps = read(".github/workflows/release.yml"), set()
    for word in ("make release", "make sign", "make test-release", "packaging/publish.py", "make site", "attest-build-provenance"):
        check(word in text, f"the workflow has no {word}")
    steps = set(re.findall(r"upload\.sh (\w+)", text))
    tried = set(re.findall(r'\("(\w+)", "[A-Z_]+"\)', read("tests/release/test_publish.py")))
    check(steps == tried == {"release", "wheels", "container", "packages"}, f"steps of the workflow {steps}, of the dry run {tried}")
    check(re.search(r"publish:\n.*?if: github\.ref_type == 'tag'", text, re.S), "without a tag nothing is published")


def check_seeds():
    """Every row of tests/people.md has a seed, and every seed still finds its place: so tests/docs/seeds.py can bring each fault back."""
    wrong = list(seeds.rotten(seeds.rows(), seeds.seeds()))
    check(not wrong, f"tests/docs/seeds.toml: {wrong}")


def check_people():
    """Every row of tests/people.md names a test that is there and is called, in a suite that is run."""
    suites = read("tests/suites.list") + "".join(f"test_{name}.c\n" for name in read("tests/unit/sources.cmake").split())
    rows = re.findall(r"^\| (.+?) \| (\S+) (\w+) \|$", read("tests/people.md"), re.M)
    all_rows = [line for line in read("tests/people.md").splitlines() if line.startswith("| ") and not line.endswith("| |") and line != "| fault | test |"]
    check(len(rows) == len(all_rows) >= 70, f"{len(rows)} of {len(all_rows)} rows name a test")
    for fault, path, name in rows:
        text = read(path) if os.path.exists(os.path.join(ROOT, path)) else ""
        made = re.search(rf"^(?:def {name}\(|static void {name}\(void\))", text, re.M)
        check(made and len(re.findall(rf"\b{name}\b", text)) > 1 and (path in suites or os.path.basename(path) in suites), f"{fault}: {path} {name} is not there, or nothing calls it")


def main():
    parts(check_first_words, check_order, check_what_is_missing, check_pictures, check_index, check_tutorial, check_results, check_libraries, check_workflow, check_people, check_seeds)
    finish()


if __name__ == "__main__":
    sys.exit(main())
