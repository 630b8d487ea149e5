#!/usr/bin/env python3
"""Checks that the documents agree with the tree: docs/dependencies.md names each recipe's version and licence, the CHANGELOG the version.

usage: check_docs.py [ROOT]
"""
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


def main():
    root = csource.root_of(sys.argv)
    bad = 0
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
