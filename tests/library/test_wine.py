#!/usr/bin/env python3
"""mlxcel.dll under Wine: the Windows build installed, the examples cross-built against it through its CMake package, and run.

usage: test_wine.py FOLDER [--all]      last line: "N passed, N failed[, N skipped]"

FOLDER is the Windows build. --all: also what takes minutes where every instruction is emulated.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import HANG, check, finish, skip  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLCHAIN = os.path.join(ROOT, "cmake/toolchains/windows-x86_64.cmake")
CXX = shutil.which("x86_64-w64-mingw32-g++-win32") or shutil.which("x86_64-w64-mingw32-g++")
IS_EMULATED = os.uname().machine != "x86_64" and "--all" not in sys.argv[2:]
OBJDUMP = "x86_64-w64-mingw32-objdump"
# name: arguments, input, what the output must be like
CASES = {"chat": ([], "Tell me a story about a dog\n", r"(\S+\s+){9,}"), "stream": (["The cat"], "", r"\s*(\S+\s+){9,}\[60 tokens\]\s*"),
         "batch": ([], "Once upon a time\nThe dog\nShe\n", r"(?s)Once upon a time\S* .*\nThe dog\S* .*\nShe\S* .*"),
         "search": (["a dog"], "The dog ran.\nIt is cold today.\nA cat\n", r"(?s)\S+ The dog ran\.\n.*"),
         "serve": ([], "\n", r"http://127\.0\.0\.1:\d+\n"), "story": (["One day"], "", r"One day.* (\S+\s+){8,}")}


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False, **options)


def names_shown(dll):
    """The names in its export table."""
    text = run(OBJDUMP, "-p", dll).stdout
    return sorted(re.findall(r"^\s*\[ *\d+\] (?:\+base\[ *\d+\] +[0-9a-f]+ )?(\w+)$", text[text.index("[Ordinal/Name Pointer]"):], re.M))


def check_dll(dll):
    header = open(os.path.join(ROOT, "include/mlxcel.h"), encoding="utf-8").read()
    declared = sorted(re.findall(r"^MLXCEL_API [^;(]*?(\w+)\(", header, re.M))
    shown = names_shown(dll)
    check(shown == declared, f"mlxcel.dll shows {sorted(set(shown) ^ set(declared))[:20]}")


def check_runs(folder):
    for name, (args, text, like) in CASES.items():
        if IS_EMULATED and name in ("chat", "story", "batch"):
            skip(f"{name}.exe: every instruction would be emulated here")
            continue
        if name == "story" and not CXX:
            skip("story.exe: no C++ compiler for Windows here")
            continue
        r = run(os.path.join(ROOT, "tools/wine.sh"), os.path.join(folder, name + ".exe"), *args, input=text)
        out = r.stdout.replace("\r", "")
        check(r.returncode == 0 and re.fullmatch(like, out), f"{name}.exe: {r.returncode} {out!r} {r.stderr}")
    r = run(os.path.join(ROOT, "tools/wine.sh"), os.path.join(folder, "stream.exe"), "One day", "C:/no/such/model")
    check(r.returncode == 1 and "C:/no/such/model" in r.stderr, f"stream.exe of a model that is not there: {r}")


def can_run(folder):
    if not os.path.exists(os.path.join(folder, "mlxcel.dll")):
        return skip("mlxcel.dll: not built here")
    if not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        return skip("mlxcel.dll: no Wine here")
    if run(os.path.join(ROOT, "tools/wine.sh"), os.path.join(folder, "mlxcel.exe"), "--version").returncode == 127:
        return skip("mlxcel.dll: Wine does not run here")
    return True


def main():
    build = os.path.abspath(sys.argv[1])
    if not can_run(build):
        finish()
    with tempfile.TemporaryDirectory() as folder:
        top, made = os.path.join(folder, "installed"), os.path.join(folder, "examples")
        r = run("cmake", "--install", build, "--prefix", top)
        check(r.returncode == 0, f"install: {r.stdout} {r.stderr}")
        check_dll(os.path.join(top, "bin/mlxcel.dll"))
        r = run("cmake", "-S", os.path.join(ROOT, "examples"), "-B", made, f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}",
                f"-DCMAKE_FIND_ROOT_PATH={top}", f"-DCMAKE_PREFIX_PATH={top}", "-DCMAKE_EXE_LINKER_FLAGS=-static", f"-DCMAKE_CXX_COMPILER={CXX or ''}")
        check(r.returncode == 0, f"find_package: {r.stdout} {r.stderr}")
        r = run("cmake", "--build", made)
        if check(r.returncode == 0, f"the examples by CMake: {r.stdout} {r.stderr}"):
            shutil.copy(os.path.join(top, "bin/mlxcel.dll"), made)
            check_runs(made)
    finish()


main()
