#!/usr/bin/env python3
"""The wheel of a build: packed, judged, installed into an empty environment, and its tests run there with plain Python.

usage: test_wheel.py BUILD      last line: "N passed, N failed[, N skipped]"
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, ".."))
import counting  # noqa: E402
from counting import HANG, check, finish, skip  # noqa: E402


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False, **options)


def check_wheel(path, again):
    check(open(path, "rb").read() == open(again, "rb").read(), "the same input gives other bytes")
    check(os.path.getsize(path) < 20_000_000, f"the wheel has {os.path.getsize(path)} bytes")
    check(re.fullmatch(r"mlxcel-[\d.]+-py3-none-(manylinux_2_31_|linux_)\w+\.whl", os.path.basename(path)), path)
    check("Requires-Dist" not in zipfile.ZipFile(path).read([n for n in zipfile.ZipFile(path).namelist() if n.endswith("METADATA")][0]).decode(),
          "the wheel has dependencies")
    check_twine(path)
    check_auditwheel(path)


def check_twine(path):
    if importlib.util.find_spec("twine") is None:
        return skip("twine check: no twine here")
    r = run(sys.executable, "-m", "twine", "check", "--strict", path)
    check(r.returncode == 0, f"twine: {r.stdout} {r.stderr}")


def check_auditwheel(path):
    """It finds the tag's promise kept: for manylinux_X_Y, nothing newer; a build for this machine alone is read without a complaint."""
    if importlib.util.find_spec("auditwheel") is None:
        return skip("auditwheel show: no auditwheel here")
    r = run(sys.executable, "-m", "auditwheel", "show", path)
    said = re.search(r'platform tag: "(?:manylinux_(\d+)_(\d+)|linux)_', re.sub(r"\s+", " ", r.stdout))
    if not check(r.returncode == 0 and said, f"auditwheel: {r.stdout} {r.stderr}"):
        return
    promised = re.search(r"-manylinux_(\d+)_(\d+)_", path)
    check(not promised or (said.group(1) and tuple(map(int, said.groups())) <= tuple(map(int, promised.groups()))), f"auditwheel: {r.stdout}")


def readme_example():
    return re.search(r"```python\n(.*?)```", open(os.path.join(ROOT, "python/README.md")).read(), re.S).group(1)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        paths = [run(sys.executable, os.path.join(ROOT, "packaging/wheel.py"), build, os.path.join(folder, name)) for name in "ab"]
        if not check(all(r.returncode == 0 for r in paths), f"wheel.py: {paths[0].stderr}"):
            finish()
        wheel, again = (r.stdout.strip() for r in paths)
        check_wheel(wheel, again)
        venv = os.path.join(folder, "venv")
        r = run(sys.executable, "-m", "venv", venv)
        if r.returncode:
            skip(f"the package in an empty environment: {r.stdout.strip()[:100]}")
            finish()
        python = os.path.join(venv, "bin/python")
        r = run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
        check(r.returncode == 0, f"pip install: {r.stdout} {r.stderr}")
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MLXCEL_LIBRARY")}
        r = run(python, "-c", readme_example(), env=env, cwd=folder)
        check(r.returncode == 0 and len(r.stdout.split()) > 10, f"the README's lines: {r}")
        tests = shutil.copy(os.path.join(HERE, "test_mlxcel.py"), folder)
        r = run(python, tests, env={**env, "MLXCEL_ABI_LIST": os.path.join(ROOT, "tests/library/abi.txt"),
                                 "MLXCEL_TEST_HUB": os.path.join(ROOT, "tests/hub")}, cwd=folder)
        counts = re.search(r"(\d+) passed, (\d+) failed\s*$", r.stdout)
        print(r.stdout[:counts.start()] if counts else r.stdout + r.stderr, end="")
        if check(counts, f"test_mlxcel.py ends without a count: {r.returncode}"):
            counting.n_passed += int(counts.group(1))
            counting.n_failed += int(counts.group(2))
    finish()


main()
