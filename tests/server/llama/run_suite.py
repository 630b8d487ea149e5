#!/usr/bin/env python3
"""llama.cpp's own tests of its server, unchanged, against this one. Its sources come from the package llama-cpp-python of PyPI, or from the folder that
MLXCEL_LLAMA_SOURCES names (one that holds tools/server/tests).

usage: run_suite.py PROGRAM DATA [part of a test's name ...]      last line: "N passed, N failed, N skipped"

Beside this file, left_out.list names the tests that are left out, each with its reason: those are counted as skipped. differs.list names those that
fail on purpose, with what they assert and why it is otherwise here: they are counted as skipped, too, but also against the share of 90 % that must pass.
"""
import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ("basic", "chat_completion", "completion", "tokenize", "template", "embedding", "rerank", "infill", "slot_save", "ctx_shift", "security",
         "compat_anthropic", "compat_oai_responses", "tool_call")
NEEDS = ("pytest", "requests", "openai", "wget", "filelock")
PACKAGE = "llama-cpp-python"


def skip_all(why):
    print(f"skipped: {why}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def fetch(folder):
    """The tests and the templates that they use, unpacked."""
    pip = shutil.which("pip") or shutil.which("pip3")
    command = [pip or "pip", "download", "-q", "--no-deps", "--no-binary", PACKAGE, "-d", folder, PACKAGE]
    got = subprocess.run(command, capture_output=True, text=True, check=False) if pip else None
    names = [n for n in os.listdir(folder) if n.endswith(".tar.gz")]
    if not names:
        skip_all(f"{PACKAGE} cannot be had: {got.stderr.strip()[-200:] if got else 'there is no pip'}")
    with tarfile.open(os.path.join(folder, names[0])) as package:
        members = [m for m in package.getmembers() if "/llama.cpp/tools/server/tests/" in m.name or "/llama.cpp/models/templates/" in m.name]
        package.extractall(folder, members, filter="data")
    return os.path.join(folder, members[0].name.split("/llama.cpp/")[0], "llama.cpp")


def read_list(name):
    """Patterns of names, and the reasons."""
    rows = [line.split(None, 1) for line in open(os.path.join(HERE, name)) if line.strip() and not line.startswith("#")]
    return [(pattern, why.strip()) for pattern, why in rows]


def find(rules, name):
    return next((why for pattern, why in rules if fnmatch.fnmatchcase(name, pattern)), None)


def run(sources, program, data, work, parts):
    sys.path.insert(0, os.path.join(HERE, ".."))
    from harness import free_port
    report = os.path.join(work, "report.xml")
    env = {**os.environ, "MLXCEL_PROGRAM": os.path.abspath(program), "MLXCEL_TEST_DATA": os.path.abspath(data), "MLXCEL_LLAMA_WORK": work,
           "LLAMA_SERVER_BIN_PATH": os.path.join(HERE, "llama_server.py"), "PORT": str(free_port()), "PYTHONDONTWRITEBYTECODE": "1"}
    tests = os.path.join(sources, "tools", "server", "tests")
    os.makedirs(os.path.join(tests, "tmp"), exist_ok=True)
    select = ["-k", " or ".join(parts)] if parts else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_family=xunit1", *select,
               *(f"unit/test_{name}.py" for name in FILES)]
    with open(os.path.join(work, "pytest.log"), "w") as log:
        subprocess.run(command, cwd=tests, env=env, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not os.path.exists(report):
        sys.exit(open(os.path.join(work, "pytest.log")).read()[-3000:] + "\n0 passed, 1 failed")
    return ET.parse(report).getroot()


def count(root, is_whole):
    """Prints what failed; the number of failures that nobody has explained."""
    out, differs, n_differing = read_list("left_out.list"), read_list("differs.list"), 0
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for case in root.iter("testcase"):
        name = f"{case.get('classname').rsplit('.', 1)[-1].removeprefix('test_')}::{case.get('name')}"
        why = case.find("failure") if case.find("failure") is not None else case.find("error")
        if find(out, name) or case.find("skipped") is not None:
            totals["skipped"] += 1
        elif why is None:
            totals["passed"] += 1
        else:
            reason, message = find(differs, name), (why.get("message") or "\n").splitlines()[0][:200]
            n_differing += bool(reason)
            totals["skipped" if reason else "failed"] += 1
            print(f"{'differs' if reason else 'FAILED'} {name}: {message}{f' ({reason})' if reason else ''}")
    n = totals["passed"] + totals["failed"] + n_differing
    print(f"{totals['passed']} of {n} pass, {n_differing} differ on purpose")
    if is_whole and totals["passed"] < 0.9 * n:
        print("FAILED: less than 90 % pass")
        totals["failed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**totals))
    return totals["failed"]


def main():
    program, data, *parts = sys.argv[1:]
    missing = [n for n in NEEDS if importlib.util.find_spec(n) is None]
    if missing:
        skip_all(f"not installed: {', '.join(missing)}")
    if not os.path.isdir(os.path.join(data, "models", "stories260K")):
        skip_all("the test data has no models/stories260K")
    with tempfile.TemporaryDirectory() as work:
        sources = os.environ.get("MLXCEL_LLAMA_SOURCES") or fetch(work)
        sys.exit(1 if count(run(sources, program, data, work, parts), not parts) else 0)


if __name__ == "__main__":
    main()
