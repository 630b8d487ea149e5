#!/usr/bin/env python3
"""The examples of docs/server.md and docs/protocols, run as they stand against a server: those for the shell with curl, those in Python where the package is installed,
those in JavaScript where there is Node, files of settings through mlxcel serve --check.

usage: test_examples.py PROGRAM      last line: "N passed, N failed, N skipped"
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import HANG, Server, check, finish, skip

DOCS = Path(__file__).resolve().parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8080"  # as the pages have it


def check_settings(text, what):
    """With models that are there: the page's are not."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "server.toml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(r'^model = "[^"]*"', 'model = "built-in"', text, flags=re.M))
        done = subprocess.run([program, "serve", "--check", "--config", path], capture_output=True, text=True, timeout=HANG, check=False)
        check(done.returncode == 0 and done.stdout.startswith("server: "), f"{what}: {done}")


def command_of(language, text):
    """How to run it; a string says why that is not possible here."""
    if language == "python":
        absent = [name for name in re.findall(r"^import (\w+)", text, re.M) if importlib.util.find_spec(name) is None]
        return f"{absent[0]} is not installed" if absent else [sys.executable, "-c", text]
    if language == "javascript":
        node = shutil.which("node")
        return [node, "--input-type=module", "-e", text] if node else "there is no node here"
    if not shutil.which("curl"):
        return "there is no curl here"
    return ["bash", "-ec", text.replace("curl ", "curl -sS --fail-with-body --noproxy '*' ")]


def run_page(page, url):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    examples = [(language, text) for language, text in blocks if language or text.startswith("curl ")]
    check({"", "python", "javascript"} <= {language for language, _ in examples}, f"{page.name} has an example of each kind")
    for i, (language, text) in enumerate(examples):
        what = f"{page.name}, example {i + 1} ({language or 'shell'})"
        if language == "toml":
            check_settings(text, what)
            continue
        command = command_of(language, text.replace(ADDRESS, url))
        if isinstance(command, str):
            skip(f"{what}: {command}")
            continue
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
        check(done.returncode == 0 and done.stdout.strip(), f"{what}: {done.returncode} {done.stdout[-300:]} {done.stderr[-600:]}")


program = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as slots, Server(program, "--slot-save-path", slots) as s:
    for page in [DOCS / "server.md", *sorted((DOCS / "protocols").glob("*.md"))]:
        run_page(page, s.url)
finish()
