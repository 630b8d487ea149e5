#!/usr/bin/env python3
"""`make install`: the programs, the manual page and the shells' completions, where the system looks for them.

usage: test_install.py BUILD      last line: "N passed, N failed[, N skipped]"
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish, skip  # noqa: E402

TEXTS = {"share/man/man1/mlxcel.1": ["help", "--man"], "share/bash-completion/completions/mlxcel": ["completions", "bash"],
         "share/zsh/site-functions/_mlxcel": ["completions", "zsh"], "share/fish/vendor_completions.d/mlxcel.fish": ["completions", "fish"]}


def check_tree(top):
    program = os.path.join(top, "bin/mlxcel")
    for name in ("mlxcel", "mlxcel-server"):
        r = subprocess.run([os.path.join(top, "bin", name), "--version"], capture_output=True, text=True)
        check(r.returncode == 0, f"{name}: {r}")
    for name, command in TEXTS.items():
        path = os.path.join(top, name)
        text = open(path).read() if os.path.exists(path) else None
        check(text and text == subprocess.run([program, *command], capture_output=True, text=True).stdout, f"{name}: {(text or 'missing')[:80]!r}")
    if not shutil.which("man"):
        return skip("the page by its names: no man here")
    for name in ("mlxcel", "mlxcel-server"):
        r = subprocess.run(["man", "-M", os.path.join(top, "share/man"), name], capture_output=True, text=True, env={**os.environ, "MANPAGER": "cat"})
        check(r.returncode == 0 and "MLXCEL(1)" in r.stdout, f"man {name}: {r.returncode} {r.stdout[:80]!r} {r.stderr}")


def install(build, prefix, **env):
    return subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, text=True, env={**os.environ, **env})


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        top = os.path.join(folder, "a prefix")
        r = install(build, top)
        if check(r.returncode == 0, f"install: {r}"):
            check_tree(top)
        r = install(build, "/opt/mlxcel-test", DESTDIR=folder)  # as packages are made
        page = os.path.join(folder, "opt/mlxcel-test/share/man/man1/mlxcel.1")
        check(r.returncode == 0 and os.path.exists(page) and not os.path.exists("/opt/mlxcel-test"), f"DESTDIR: {r}")
    finish()


main()
