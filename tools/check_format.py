#!/usr/bin/env python3
"""Checks, or with --fix restores, the form that .clang-format describes. clang-format 14 decides, since versions differ.

usage: check_format.py [--fix] [ROOT]
"""
import os
import shutil
import subprocess
import sys

import csource

VERSION = "14"


def find_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {VERSION}." in subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout:
            return path
    return None


def main():
    args = [a for a in sys.argv[1:] if a != "--fix"]
    fix = len(args) != len(sys.argv) - 1
    root = csource.root_of([sys.argv[0]] + args)
    tool = find_clang_format()
    if not tool:
        print(f"check_format: clang-format {VERSION} is missing: install the package clang-format-{VERSION}")
        return 1
    paths = [p for p in csource.files(root, ".c", ".h") if p.split("/")[0] in ("src", "include", "tests", "tools")]
    bad = 0
    for path in paths:
        full = os.path.join(root, path)
        want = subprocess.run([tool, "--style=file", full], capture_output=True, check=True).stdout
        with open(full, "rb") as f:
            have = f.read()
        if have == want:
            continue
        if fix:
            with open(full, "wb") as f:
                f.write(want)
            print(f"formatted {path}")
            continue
        line = next((i for i, (a, b) in enumerate(zip(have.split(b"\n"), want.split(b"\n")), 1) if a != b), 1)
        print(f"{path}:{line}: not in the form of .clang-format: run `make format`")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
