#!/usr/bin/env python3
"""Shows that the tests of tests/people.md can fail: brings each fault back, and wants its test to notice.

usage: seeds.py [--hang S] [--first] [--list] [ROW ...]      ROW: a number of the rows of tests/people.md (12.2: the second seed of row 12), or words of a fault or of its test

tests/docs/seeds.toml has the smallest edit that brings a fault back: a file, a text that occurs in it once, and what is put there (`times` over); `more`
has further edits where a fault has been mended in two places. The edit is made in a copy of the tree, build/seeds/tree, which has a build of its own;
MLXCEL_SEEDS names another place than build/seeds. First the named part of the test has to pass without the edit, then it has to fail with it. One line
for each seed: "caught" with the first check that failed, or "NOT CAUGHT".
"""
import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from run_tests import data_dir, read_suites  # noqa: E402

PLACE = os.path.abspath(os.environ.get("MLXCEL_SEEDS", os.path.join(ROOT, "build/seeds")))  # several at once need a place for each
TREE, PASSED = os.path.join(PLACE, "tree"), os.path.join(PLACE, "passed.json")
SHARED = ("apt", "downloads", "tokenizers", "venv", "kernels-cache")  # folders of build/ that hold what was fetched
ENDLESS = 1800  # seconds after which a test that does not end is ended
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed(?:, \d+ skipped)?$", re.M)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def rows():
    """(fault, path of the test, name of its part), in the order of tests/people.md."""
    return re.findall(r"^\| (.+?) \| (\S+) (\w+) \|$", read("tests/people.md"), re.M)


def seeds():
    return tomllib.loads(read("tests/docs/seeds.toml"))["seed"]


def edits(seed):
    """(path, text to find, text to put) of each edit."""
    for e in [seed, *seed.get("more", [])]:
        yield e.get("file", seed["file"]), e["find"], e["put"] * seed.get("times", 1)


def rotten(all_rows, all_seeds):
    """What is wrong with the table: rows without a seed, seeds of no row, texts that are not there, or more than once, or not changed."""
    known, seeded = {fault for fault, _, _ in all_rows}, {s["fault"] for s in all_seeds}
    yield from (f"no seed: {fault}" for fault in sorted(known - seeded))
    yield from (f"a seed of no row: {fault}" for fault in sorted(seeded - known))
    for s in all_seeds:
        for path, find, put in edits(s):
            n = read(path).count(find) if os.path.exists(os.path.join(ROOT, path)) else 0
            if n != 1 or find == put:
                yield f"{s['fault']}: {find!r} is {n} times in {path}"


def tree_files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(p for p in listed if os.path.isfile(os.path.join(ROOT, p)))


def write_if_other(path, data, mode=0o644):
    """What stays as it was keeps its time, so that little is built."""
    if os.path.exists(path):
        with open(path, "rb") as f:
            if f.read() == data:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)


def copy_tree():
    """The copy as the tree is; the digest of each file."""
    digests = {}
    for path in tree_files():
        with open(os.path.join(ROOT, path), "rb") as f:
            data = f.read()
        digests[path] = hashlib.sha256(data).hexdigest()
        write_if_other(os.path.join(TREE, path), data, os.stat(os.path.join(ROOT, path)).st_mode & 0o777)
    for top, folders, names in os.walk(TREE):
        folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
        for name in names:
            path = os.path.join(top, name)
            if os.path.relpath(path, TREE) not in digests:
                os.remove(path)
    os.makedirs(os.path.join(TREE, "build"), exist_ok=True)
    for name in SHARED:
        there, here = os.path.join(TREE, "build", name), os.path.join(ROOT, "build", name)
        if os.path.exists(here) and not os.path.lexists(there):
            os.symlink(os.path.realpath(here), there)
    for command in (["init", "-q"], ["add", "-A"]):  # some tests ask git for the files of the tree
        subprocess.run(["git", "-C", TREE, *command], check=True, capture_output=True)
    return digests


def build(targets):
    """None, or what went wrong."""
    steps = [] if os.path.exists(os.path.join(TREE, "build/release/build.ninja")) else [["cmake", "--preset", "release"]]
    for step in [*steps, ["cmake", "--build", "build/release", "--target", *targets]]:
        done = subprocess.run(step, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            return done.stdout[-1500:]
    return None


def test_command(path, name):
    """(words, names of what has to be built) of the suite that has this test."""
    folder = os.path.join(TREE, "build/release")
    if path.endswith(".c"):
        return [f"{folder}/unit_tests", f"{os.path.basename(path)[5:-2]}.{name}"], ["unit_tests"]
    text = next(s["command"] for s in read_suites(os.path.join(ROOT, "tests/suites.list")) if path in s["command"] and ".exe" not in s["command"] and s["cost"] == "short")
    targets = set(re.findall(r"\{build\}/(\w+)", text)) | ({"mlxcel"} if "{program}" in text else set())
    values = {"{build}": folder, "{program}": f"{folder}/mlxcel", "{data}": data_dir(None) or "", "{python}": sys.executable}
    words = [re.sub(r"\{\w+\}", lambda m: values[m.group(0)], w) for w in shlex.split(text)]
    return words, sorted(targets)


def run_test(words, only, hang):
    """(passed, failed, what it printed); failed is -1 where the test did not come to its end."""
    env = {**os.environ, "MLXCEL_TEST_ONLY": only, "MLXCEL_TEST_HANG": str(hang)}
    with subprocess.Popen(words, cwd=TREE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as p:
        try:
            text = p.communicate(timeout=ENDLESS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            text = p.communicate()[0] + "\nit did not end"
    last = SUMMARY.findall(text)
    return (int(last[-1][0]), int(last[-1][1]), text) if last else (0, -1, text)


def first_failure(text):
    found = re.search(r"^FAILED .*", text, re.M)
    return (found.group(0) if found else "it ended with: " + (text.strip().splitlines() or [""])[-1])[:200]


class Known:
    """Which parts passed without a seed, with the same sources and the same test: they need not be run again."""

    def __init__(self, digests):
        self.digests, self.passed = digests, {}
        if os.path.exists(PASSED):
            with open(PASSED, encoding="utf-8") as f:
                self.passed = json.load(f)

    def key(self, path, only):
        parts = [f"{p} {d}" for p, d in sorted(self.digests.items()) if p == path or not p.startswith("tests/") or p == "tests/counting.py"]
        return hashlib.sha256("\n".join([path, only, *parts]).encode()).hexdigest()

    def add(self, key, n):
        self.passed[key] = n
        with open(PASSED, "w", encoding="utf-8") as f:
            json.dump(self.passed, f)


def judge(seed, path, name, known, hang):
    """(whether it was caught, in words)."""
    only = seed.get("only", name)
    words, targets = test_command(path, name)
    key = known.key(path, only)
    if key not in known.passed:
        why = build(targets) if targets else None
        passed, failed, text = (0, -1, why) if why else run_test(words, only, hang)
        if failed or not passed:
            return False, f"without the seed {passed} passed, {failed} failed: {first_failure(text)}"
        known.add(key, passed)
    before = {}
    for path, find, put in edits(seed):
        with open(os.path.join(TREE, path), encoding="utf-8") as f:
            source = f.read()
        before.setdefault(path, source)
        with open(os.path.join(TREE, path), "w", encoding="utf-8") as f:
            f.write(source.replace(find, put))
    try:
        why = build(targets) if targets else None
        if why:
            return False, "with the seed it does not build: " + why
        passed, failed, text = run_test(words, only, hang)
    finally:
        for path, source in before.items():
            with open(os.path.join(TREE, path), "w", encoding="utf-8") as f:
                f.write(source)
    if failed == 0:
        return False, f"{passed} passed"
    return True, first_failure(text)


def wanted(number, row, words):
    return not words or any(w.partition(".")[0] == str(number) or (not w[0].isdigit() and w.lower() in " ".join(row).lower()) for w in words)


def chosen(number, of_row, args):
    """The seeds of a row that are to be tried."""
    places = {int(w.partition(".")[2]) for w in args.row if w.startswith(f"{number}.")}
    return of_row[:1] if args.first else [s for i, s in enumerate(of_row, 1) if not places or i in places]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hang", type=int, default=60, help="seconds after which what a test waits for counts as missing (default 60)")
    parser.add_argument("--first", action="store_true", help="only the first seed of each row")
    parser.add_argument("--list", action="store_true", help="only show the rows with their numbers")
    parser.add_argument("row", nargs="*")
    args = parser.parse_args()
    table, all_seeds = rows(), seeds()
    for wrong in rotten([r for n, r in enumerate(table, 1) if wanted(n, r, args.row)] if args.row else table, all_seeds if not args.row else [s for s in all_seeds if any(
            r[0] == s["fault"] and wanted(n, r, args.row) for n, r in enumerate(table, 1))]):
        sys.exit(wrong)
    known = None if args.list else Known(copy_tree())
    n_caught = n_missed = 0
    for number, row in enumerate(table, 1):
        if not wanted(number, row, args.row):
            continue
        if args.list:
            print(f"{number:3} {' | '.join(row)}")
            continue
        for seed in chosen(number, [s for s in all_seeds if s["fault"] == row[0]], args):
            caught, words = judge(seed, row[1], row[2], known, args.hang)
            n_caught, n_missed = n_caught + caught, n_missed + (not caught)
            print(f"{number:3} {row[0]}: {'caught' if caught else 'NOT CAUGHT'}: {words}", flush=True)
    print(f"{n_caught} passed, {n_missed} failed")
    return 1 if n_missed else 0


if __name__ == "__main__":
    sys.exit(main())
