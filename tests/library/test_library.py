#!/usr/bin/env python3
"""libmlxcel as others get it: an installed tree, the examples built against it by pkg-config and by CMake, the names it shows, its binary interface.

usage: test_library.py BUILD      last line: "N passed, N failed[, N skipped]"
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import HANG, check, finish, skip  # noqa: E402
import abi  # noqa: E402

EXAMPLES = os.path.join(abi.ROOT, "examples")
PROGRAMS = {"chat": "chat.c", "stream": "stream.c", "batch": "batch.c", "search": "search.c", "serve": "serve.c", "story": "story.cpp"}
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-pedantic-errors", "-Werror"]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False, **options)


def check_header():
    for compiler, language, standard in (("cc", "c", "c99"), ("cc", "c", "c17"), ("c++", "c++", "c++11"), ("c++", "c++", "c++17")):
        if not shutil.which(compiler):
            skip(f"the header as {standard}: no {compiler} here")
            continue
        r = run([compiler, "-x", language, f"-std={standard}", *STRICT, "-Wstrict-prototypes" if language == "c" else "-Wold-style-cast",
                 "-fsyntax-only", abi.HEADER])
        check(r.returncode == 0, f"the header as {standard}: {r.stderr}")


def check_names(top):
    lib = os.path.join(top, "lib/libmlxcel.so")
    names = [line.split() for line in run(["nm", "-D", "--defined-only", lib]).stdout.splitlines()]
    shown = sorted(n[-1].split("@")[0] for n in names if n[-2] != "A")
    declared = sorted(re.findall(r"^MLXCEL_API [^;(]*?(\w+)\(", open(abi.HEADER).read(), re.M))
    check(shown == declared, f"the shared library shows {sorted(set(shown) ^ set(declared))}")
    soname = re.search(r"SONAME.*\[(.*)\]", run(["readelf", "-d", lib]).stdout)
    number = re.search(r"#define MLXCEL_ABI (\d+)", open(abi.HEADER).read()).group(1)
    check(soname and soname.group(1) == f"libmlxcel.so.{number}", f"soname {soname and soname.group(1)}")
    static = os.path.join(top, "lib/libmlxcel.a")
    if not os.path.exists(static):
        return skip("the static library: not in this build")
    names = run(["nm", "-g", "--defined-only", static]).stdout.splitlines()
    shown = sorted(n.split()[-1] for n in names if len(n.split()) == 3)
    check(shown == declared, f"the static library shows {sorted(set(shown) ^ set(declared))[:20]}")


def check_contents(top):
    """The commands and their tools are no part of the library: of what src/tools and cli/command.h declare, nothing is in the static one."""
    static = os.path.join(top, "lib/libmlxcel.a")
    if not os.path.exists(static):
        return skip("what the static library holds: not in this build")
    held = {line.split()[-1] for line in run(["nm", "--defined-only", static]).stdout.splitlines() if len(line.split()) == 3}
    folder = os.path.join(abi.ROOT, "src/tools")
    headers = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".h")] + [os.path.join(abi.ROOT, "src/cli/command.h")]
    tools = {name for path in headers for name in re.findall(r"^\w[^/\n(]*?\b(\w+)\(", open(path).read(), re.M)}
    check(len(tools) > 20 and "session_open" in held, f"{len(tools)} functions are looked for among {len(held)}")
    check(not tools & held, f"the library holds {sorted(tools & held)}")


def check_runs(folder, how):
    """Runs what was built in a folder; the same input gives the same output however it was built."""
    cases = {"chat": ([], "Tell me a story about a dog\n"), "stream": (["The cat"], None), "batch": ([], "Once upon a time\nThe dog\nShe\n"),
             "serve": ([], "\n"), "search": (["a dog"], "The dog ran.\nIt is cold today.\nA cat\n"), "story": (["One day"], None)}
    for name, (args, text) in cases.items():
        r = run([os.path.join(folder, name), *args], input=text or "")
        good = r.returncode == 0 and (name == "serve" or len(r.stdout.split()) > 8)
        if name == "serve":
            good = good and re.fullmatch(r"http://127\.0\.0\.1:\d+\n", r.stdout)
        if name == "batch":
            good = good and [line[:3] for line in r.stdout.splitlines()] == ["Onc", "The", "She"]
        if name == "search":
            good = good and "dog" in r.stdout.splitlines()[0]
        check(good, f"{name} by {how}: {r.returncode} {r.stdout!r} {r.stderr}")
    r = run([os.path.join(folder, "story"), "One day", "/no/such/model"])
    check(r.returncode == 1 and "/no/such/model" in r.stderr, f"story of a model that is not there: {r}")


def by_pkg_config(top, folder, static):
    env = {**os.environ, "PKG_CONFIG_PATH": os.path.join(top, "lib/pkgconfig")}
    flags = run(["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "mlxcel"], env=env).stdout.split()
    if static:  # the archive in place of -lmlxcel, which would find the shared one
        flags = [os.path.join(top, "lib/libmlxcel.a") if f == "-lmlxcel" else f for f in flags]
    os.makedirs(folder)
    for name, source in PROGRAMS.items():
        compiler = ["c++", "-std=c++11"] if source.endswith("pp") else ["cc", "-std=c99"]
        r = run([*compiler, *STRICT, "-o", os.path.join(folder, name), os.path.join(EXAMPLES, source), *flags,
                 *([] if static else [f"-Wl,-rpath,{top}/lib"])])
        check(r.returncode == 0, f"{name} by pkg-config, static {static}: {r.stderr}")


def by_cmake(top, folder):
    r = run(["cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_PREFIX_PATH={top}"])
    check(r.returncode == 0, f"find_package: {r.stdout} {r.stderr}")
    r = run(["cmake", "--build", folder])
    check(r.returncode == 0, f"the examples by CMake: {r.stdout} {r.stderr}")


def check_memory(top, folder):
    """Every n-th malloc fails, for many n: errors come back, nothing is left behind, and the process lives."""
    here = os.path.dirname(os.path.abspath(__file__))
    shim, program = os.path.join(folder, "failing.so"), os.path.join(folder, "out_of_memory")
    built = [run(["cc", "-shared", "-fPIC", "-o", shim, os.path.join(here, "failing_malloc.c")]),
             run(["cc", "-o", program, os.path.join(here, "out_of_memory.c"), f"-I{top}/include", f"-L{top}/lib", "-lmlxcel", "-ldl",
                  f"-Wl,-rpath,{top}/lib"])]
    if any(r.returncode for r in built):
        return skip(f"malloc that fails: {built[0].stderr or built[1].stderr}")
    numbers = [*range(3, 30), *range(30, 700, 47)]
    r = run([program, *map(str, numbers)], env={**os.environ, "LD_PRELOAD": shim})
    rows = [tuple(map(int, line.split())) for line in r.stdout.splitlines()]
    check(r.returncode == 0 and len(rows) == len(numbers), f"every n-th malloc fails: {r.returncode} {r.stderr} behind {rows[-1:]}")
    check(not [row for row in rows if row[3] > 0], f"blocks are left behind (n, failures, errors, blocks): {[row for row in rows if row[3] > 0]}")
    check(sum(row[1] for row in rows) > 50 and sum(row[2] for row in rows) > 5, f"hardly anything has failed: {rows}")


def check_abi():
    header = open(abi.HEADER).read()
    record = open(abi.RECORD).read().splitlines()
    check(abi.describe(header) == record, "include/mlxcel.h is not tests/library/abi.txt: run tests/library/abi.py")
    seeds = {"a field in the middle": ("    const char *device; ", "    int32_t zz;\n    const char *device; "),
             "a field of another type": ("int32_t threads; ", "int64_t threads; "),
             "a field of the same size": ("const char *device; ", "void *device; "),
             "a value": ("MLXCEL_E_BUSY = 8", "MLXCEL_E_BUSY = 18"),
             "an argument": ("mlxcel_cancel(mlxcel_job *job)", "mlxcel_cancel(mlxcel_job *job, int32_t now)"),
             "a function": ("MLXCEL_API void mlxcel_cancel(mlxcel_job *job);", ""),
             "a struct without a size": ("char message[508];", "char message[1020];")}
    for what, (old, new) in seeds.items():
        if not check(old in header, f"{what}: the header has no {old!r}"):
            continue
        check(abi.breaks(record, abi.describe(header.replace(old, new, 1))), f"a change is not noticed: {what}")
    grown = header.replace("    void *user;                  /* of progress */", "    void *user;\n    int32_t zz, zz2;").replace(
        "MLXCEL_API void mlxcel_cancel", "MLXCEL_API void mlxcel_zz(void);\nMLXCEL_API void mlxcel_cancel")
    lines = abi.describe(grown)
    check(grown != header and lines != record and not abi.breaks(record, lines), f"what grows breaks: {abi.breaks(record, lines)}")


def main():
    build = os.path.abspath(sys.argv[1])
    check_header()
    check_abi()
    with tempfile.TemporaryDirectory() as folder:
        top = os.path.join(folder, "installed")
        r = run(["cmake", "--install", build, "--prefix", top])
        if not check(r.returncode == 0, f"install: {r}"):
            finish()
        check_names(top)
        check_contents(top)
        check_memory(top, folder)
        by_pkg_config(top, os.path.join(folder, "pkg-config"), False)
        check_runs(os.path.join(folder, "pkg-config"), "pkg-config")
        by_cmake(top, os.path.join(folder, "cmake"))
        check_runs(os.path.join(folder, "cmake"), "CMake")
        if os.path.exists(os.path.join(top, "lib/libmlxcel.a")):
            by_pkg_config(top, os.path.join(folder, "static"), True)
            check_runs(os.path.join(folder, "static"), "the static library")
    finish()


main()
