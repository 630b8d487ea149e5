#!/usr/bin/env python3
"""The xla backend of the Windows program under Wine: there is no plugin, which it says in one line; with the fake plugin of the unit tests it runs,
and its programs are those of Linux.

usage: test_wine.py FOLDER of the Windows build      last line: "N passed, N failed[, N skipped]"
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish, skip  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
FAKE = "Z:" + os.path.join(BUILD, "fake-pjrt", "fake_pjrt.so")


def run(program, *args, **env):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MLXCEL_") and k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return subprocess.run([os.path.join(ROOT, "tools", "wine.sh"), os.path.join(BUILD, program), *args], cwd=ROOT, env={**kept, **env},
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)


def generate(*args, **env):
    return run("mlxcel.exe", "generate", "--tokens", "5,6,7", "-n", "3", "--ids", "--ignore-eos", "--backend", "xla", *args, **env)


def no_plugin():
    for args, says in [
        ([], "no PJRT plugin found: give its library with --xla-plugin PATH"),
        (["--xla-device", "cuda"], "no PJRT plugin for cuda found"),
        (["--xla-plugin", "Z:/no/such.dll"], "no/such.dll"),
        (["--xla-plugin", "C:/windows/system32/kernel32.dll"], "is no PJRT plugin: it has no function GetPjrtApi"),
        (["--xla-plugin", FAKE, "--xla-device", "cuda"], "runs on fake, not on cuda"),
    ]:
        r = generate(*args)
        check(r.returncode != 0 and says in r.stderr and r.stderr.count("\n") == 1 and not r.stdout, f"{args}: {r}")
    r = run("mlxcel.exe", "doctor")
    check(r.returncode == 0 and "PJRT" not in r.stdout, f"doctor: {r.stdout}")


def with_fake():
    with tempfile.TemporaryDirectory() as cache:
        env = {"MLXCEL_XLA_CACHE": "Z:" + os.path.join(cache, "programs")}
        first, second = generate("--xla-plugin", FAKE, **env), generate("--xla-plugin", FAKE, **env)
        check(first.returncode == 0 and len(first.stdout.split()) == 3 and first.stderr.count("compiled the program for") == 2, f"a run: {first}")
        check(second.returncode == 0 and second.stdout == first.stdout and "compil" not in second.stderr, f"a second run: {second}")
    r = run("xla_programs.exe")
    check(r.returncode == 0 and " passed, 0 failed" in r.stdout, f"programs: {r.stdout[-1000:]}{r.stderr[-300:]}")


def main():
    if not os.path.exists(os.path.join(BUILD, "mlxcel.exe")):
        skip("mlxcel.exe on the xla backend: not built here")
        finish()
    if not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        skip("mlxcel.exe on the xla backend: no Wine here")
        finish()
    if run("mlxcel.exe", "--version").returncode == 127:
        skip("mlxcel.exe on the xla backend: Wine does not run here")
        finish()
    no_plugin()
    with_fake()
    finish()


main()
