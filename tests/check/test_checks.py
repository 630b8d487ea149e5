#!/usr/bin/env python3
"""Breaks each rule of `make check` in a small tree and sees the check complain; what is allowed must pass.

The last line is "N passed, N failed"; the format cases are skipped where clang-format 14 is missing.
"""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = "/* A file of the check's own tests: it owns nothing. */\n"


def lines(n):
    return "".join(f"    x += {i};\n" for i in range(n))


# (check, file, text, part of the complaint; None where the text must pass)
CASES = [
    ("style", "kernels/zz.cu", HEAD + "__global__ void f() {\n    after_previous();\n}\n__global__ void g() {\n}\n", "1 of 2 kernels do not wait"),
    ("style", "kernels/zz.cu", HEAD + "__global__ void f() {\n    after_previous();\n}\n", None),
    ("layers", "src/lib/zz.c", '#include "cli/args.h"\n', "src/lib may include cli/serve.h of src/cli alone"),
    ("layers", "src/base/zz.c", '#include "os/os.h"\n', "src/base must not include from src/os"),
    ("layers", "src/tensor/zz.c", '#include "file/safetensors.h"\n', "src/tensor must not include from src/file"),
    ("layers", "src/text/zz.c", '#include "tensor/dtype.h"\n', "src/text must not include from src/tensor"),
    ("layers", "src/file/zz.c", '#include "model/spec.h"\n', "src/file must not include from src/model"),
    ("layers", "src/backend/cpu/zz.c", '#include "model/spec.h"\n', "src/backend must not include from src/model"),
    ("layers", "src/backend/cpu/zz.c", '#include "backend/cuda/zz.h"\n', "backend cpu must not include backend cuda"),
    ("layers", "src/backend/zz.c", '#include "backend/cpu/zz.h"\n', "one backend's private header"),
    ("layers", "src/backend/cuda/lower/zz.c", '#include "backend/cuda/decode/decode.h"\n', "it may know shared, device, context beside itself"),
    ("layers", "src/backend/cuda/lower/zz.c", '#include "backend/cuda/cuda.h"\n', "src/backend/cuda/lower must not include backend/cuda/cuda.h"),
    ("layers", "src/backend/cuda/decode/zz.c", '#include "backend/cuda/lower/lower.h"\n', None),
    ("layers", "src/backend/cuda/decode/zz.c", "void zz_back(void) {\n    yy_forth();\n}\n", "in a circle: zz.c -> yy.c -> zz.c"),
    ("layers", "src/backend/cuda/decode/zz.c", "void zz_there(void) {\n    yy_forth();\n}\n", None),
    ("layers", "src/model/zz.c", '#include "engine/engine.h"\n', "src/model must not include from src/engine"),
    ("layers", "src/model/zz.c", '#include "os/os.h"\n', "src/model must not include from src/os"),
    ("layers", "src/engine/zz.c", '#include "api/tools.h"\n', "src/engine must not include from src/api"),
    ("layers", "src/cli/zz.c", '#include "engine/engine.h"\n', "src/cli must not include from src/engine"),
    ("layers", "src/cli/zz.c", '#include "tools/bench.h"\n', None),
    ("layers", "src/cli/zz.c", '#include "api/session.h"\n', None),
    ("layers", "src/cli/zz.c", '#include "api/session_internal.h"\n', "src/cli may include api/build.h and api/sampling.h and api/session.h and"),
    ("layers", "src/server/zz.c", '#include "api/session.h"\n', "src/server may include api/build.h and api/remote.h and api/service.h of src/api alone"),
    ("layers", "src/server/zz.c", '#include "engine/engine.h"\n', "src/server must not include from src/engine"),
    ("layers", "src/lib/zz.c", '#include "api/session.h"\n', "src/lib may include api/machine.h and api/service.h of src/api alone"),
    ("layers", "src/lib/zz.c", '#include "tools/bench.h"\n', "src/lib must not include from src/tools"),
    ("layers", "src/server/zz.c", '#include "tools/inspect.h"\n', "src/server must not include from src/tools"),
    ("layers", "src/api/zz.c", '#include "tools/inspect.h"\n', "src/api must not include from src/tools"),
    ("layers", "src/server/zz.c", '#include "model/spec.h"\n', "src/server must not include from src/model"),
    ("layers", "src/api/zz.c", '#include "server/http.h"\n', "src/api must not include from src/server"),
    ("layers", "src/engine/zz.c", '#include "mlxcel.h"\n', "must not include mlxcel.h"),
    ("layers", "src/server/zz.c", '#include "mlxcel.h"\n', "src/server must not include mlxcel.h"),
    ("layers", "src/lib/zz.c", '#include "engine/engine.h"\n', "src/lib must not include from src/engine"),
    ("layers", "src/lib/zz.c", '#include "api/service.h"\n#include "mlxcel.h"\n', None),
    ("layers", "src/base/zz.c", '#include "err.h"\n', "is not written from src/"),
    ("layers", "src/text/zz.c", "#include <windows.h>\n", "<windows.h> may be included in src/os only"),
    ("layers", "src/text/zz.c", "#include <sys/mman.h>\n", "<sys/mman.h> may be included in src/os only"),
    ("layers", "src/model/zz.c", "#include <yyjson.h>\n", "<yyjson.h> may be included in"),
    ("layers", "src/engine/zz.c", '#include "model/model.h"\n#include "base/err.h"\n', None),
    ("style", "src/base/zz.c", "/* long */\n" * 1201, "the file has"),
    ("style", "src/base/zz.c", "static void f(int x) {\n" + lines(100) + "}\n", "f has 102 lines, at most 100"),
    ("style", "src/base/zz.c", "static void f(int x) {\n" + lines(98) + "}\n", None),
    ("style", "src/text/zz.c", "void f(void) {\n    void *p = malloc(1);\n}\n", "malloc() allocates outside"),
    ("style", "src/text/zz.c", "void f(void) {\n    free(0);\n}\n", "free() allocates outside"),
    ("style", "src/file/zz.c", "void f(void) {\n    fopen(0, 0);\n}\n", "fopen() files are opened through"),
    ("style", "src/engine/zz.c", 'void f(void) {\n    printf("x");\n}\n', "printf() writes past"),
    ("style", "src/engine/zz.c", 'void f(void) {\n    getenv("x");\n}\n', "getenv() the environment"),
    ("style", "src/engine/zz.c", 'void f(void) {\n    os_env("x");\n}\n', "os_env() the environment is read through the option table"),
    ("style", "src/model/zz.c", "void f(struct pass *p) {\n    g(p->m->spec.family);\n}\n", "reads no row of a family"),
    ("style", "src/api/zz.c", "void f(struct backend *b) {\n    g(b->type == &cuda_backend);\n}\n", "asked what it can do"),
    ("style", "src/os/zz.c", "void f(char *p) {\n    strcpy(p, p);\n}\n", "strcpy() is unsafe"),
    ("style", "src/os/zz.c", "void f(char *p) {\n    sprintf(p, p);\n}\n", "sprintf() is unsafe"),
    ("style", "src/model/zz.c", "#ifdef _WIN32\n#endif\n", "_WIN32 operating systems"),
    ("style", "src/model/zz.c", "#if defined(__linux__)\n#endif\n", "__linux__ operating systems"),
    ("style", "src/model/zz.c", "static long x;\n", "long has 32 bits"),
    ("style", "src/model/zz.c", "static unsigned long long x;\n", "long has 32 bits"),
    ("style", "src/model/zz.c", "int f(int x) {\n    return g((long long)x) + h((unsigned long long)x);\n}\n", None),
    ("style", "src/model/zz.c", "/* as long as it takes; malloc() in words */\n", None),
    ("style", "src/model/zz.c", "/* TO" + "DO: later */\n", "finish it or open an issue"),
    ("style", "src/model/zz.c", "int x; /* FIX" + "ME */\n", "finish it or open an issue"),
    ("style", "src/engine/zz.c", "void f(void) {\n    pthread_create();\n}\n", "belongs to src/os"),
    ("style", "src/engine/zz.c", "void f(void) {\n    exit(1);\n}\n", "only the command line ends the process"),
    ("style", "src/model/zz.c", "int x; \n", "blanks at the end"),
    ("style", "src/model/zz.c", None, "does not open with a comment"),
    ("style", "cmake/zz.cmake", "add_compile_options(-march=" + "native)\n", "is never used"),
    ("style", "cmake/zz.cmake", "add_compile_options(-ffast-" + "math)\n", "is never used"),
    ("style", "cmake/zz.cmake", "file(DOWNLOAD http://deb.debian.org/debian/pool/x)\n", "deb.debian.org is the host of a registry"),
    ("style", "tools/zz.sh", "curl https://github.com/a/b/archive/refs/tags/v1.tar.gz\n", "is the host of a registry"),
    ("style", "src/backend/xla/zz.c", "void f(void) {\n    g(hlo_mul(h, hlo_neg(h, x), emit_flat(e, y)));\n}\n", "two arguments of this call emit"),
    ("style", "src/engine/zz.c", 'static const char *f = "zebra9_moe";\n', "zebra9_moe is a family"),
    ("style", "src/engine/zz.c", "int zebra9_norm(void);\n", "zebra9 is a family"),
    ("style", "src/engine/zz.c", "/* zebra9 needs this */\n", None),
    ("style", "src/text/output/formats.def", 'FORMAT("zebra9", .opens = {"<zebra9:call>"})\n', None),
    ("style", "src/text/output/zz.def", 'FORMAT("zebra9", .opens = {"<zebra9:call>"})\n', "zebra9 is a family"),
    ("style", "src/engine/zz.h", "/* x */\nint zz_count(const char *p,\n             int n);\n", "does not call zz_count"),
    ("style", "src/engine/zz.h", "/* x */\nint zz_count(int n);\nstatic inline int zz_twice(int n) {\n    return 2 * zz_count(n);\n}\n", None),
    ("style", "src/engine/zz.h", "/* x */\nextern const int options[3];\n", "options is a name of the whole program"),
    ("style", "src/engine/zz.h", "/* x */\n_Noreturn void fail(const char *p);\n", "fail is a name of the whole program"),
    ("style", "src/engine/zz.h", "/* x */\nextern const int zz_count;\nextern const struct x engine_rows[];\n", None),
    ("style", "include/zz.h", "/* x */\nint zz_count(int n);\n", "does not call zz_count"),
    ("style", "include/zz.h", "/* x */\nint zz_tested(int n);\n", "does not call zz_tested"),
    ("style", "src/engine/zz.h", "/* x */\ntypedef int zz_fn(int n);\nstruct zz {\n    int (*count)(int n);\n};\n", None),
    ("format", "src/base/zz.c", "int  f(void){return 1;}\n", "not in the form of .clang-format"),
    ("docs", "cmake/deps/zz.cmake", "mlxcel_recipe(zz\n  VERSION 1.2\n  LICENCE MIT\n)\n", "has no row with zz, 1.2 and MIT"),
    ("docs", "docs/zz.md", "# A heading: with `signs`\n[a](dependencies.md) [b](#a-heading-with-signs) [c](https://x.invalid/y) [d](../VERSION)\n", None),
    ("docs", "docs/zz.md", "[a](no-such.md)\n", "the link no-such.md leads to no file"),
    ("docs", "docs/zz.md", "# One\n```\n# two\n```\n[a](#two)\n", "docs/zz.md has no heading for the link #two"),
    ("docs", "docs/zz.md", "[a](dependencies.md#no-such-heading)\n", "docs/dependencies.md has no heading"),
    ("docs", "docs/zz.md", "docs/dependencies.md and tests/unit/test_NAME.c\n", None),
    ("docs", "docs/zz.md", "see tests/" + "zz/gone.py\n", "names tests/" + "zz/gone.py"),
    ("docs", "src/base/zz.c", "/* docs/" + "gone.md explains */\n", "names docs/" + "gone.md"),
    ("docs", "docs/zz.md", "| message | cure |\n|---|---|\n| `no such words, N of them` | none |\n", 'no source says "no such words, N of them"'),
    ("docs", "docs/zz.md", "| what you see | cure |\n|---|---|\n| `owns N nothing` | none |\n", None),
    ("docs", "VERSION", "99.9.9\n", "no section for version 99.9.9"),
]
FAMILIES = 'const struct family families[] = {\n    {.type = "zebra9"},\n    {.type = "zebra9_moe"},\n};\n'


def run(check, tree):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", f"check_{check}.py"), tree], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write(text)


def small_tree(folder):
    """What the checks of documents and format read, and a table of families that only the cases know."""
    for name in ("VERSION", ".clang-format"):
        shutil.copy(os.path.join(ROOT, name), os.path.join(folder, name))
    for name, keep in (("CHANGELOG.md", "## "), ("docs/dependencies.md", "|")):  # without their prose, which names files of the whole tree
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            write(os.path.join(folder, name), "".join(line for line in f if line.startswith(keep)))
    shutil.copytree(os.path.join(ROOT, "cmake", "deps"), os.path.join(folder, "cmake", "deps"))
    write(os.path.join(folder, "src/model/families.c"), HEAD + FAMILIES)
    write(os.path.join(folder, "src/backend/cuda/lower/yy.c"), HEAD + "void yy_forth(void) {\n    zz_back();\n}\n")
    write(os.path.join(folder, "tests/unit/test_zz.c"), HEAD + "int f(void) {\n    return zz_tested(1);\n}\n")


def have_clang_format(tree):
    return "is missing" not in run("format", tree)[1]


def one_case(tree, check, path, text, complaint):
    """None, or what went wrong."""
    full = os.path.join(tree, path)
    kept = None
    if os.path.exists(full):
        with open(full, encoding="utf-8") as f:
            kept = f.read()
    body = "int x;\n" if text is None else text
    is_c = path.endswith(".c") and text is not None
    write(full, (HEAD if is_c else "") + body)
    rc, output = run(check, tree)
    if kept is None:
        os.remove(full)
    else:
        write(full, kept)
    mine = [line for line in output.split("\n") if line.startswith((path, "CHANGELOG.md"))]
    if complaint is None:
        return f"complained: {mine}" if mine else None
    if rc == 0 or not any(complaint in line for line in mine):
        return f"exit code {rc}, said {mine or output[-300:]!r}, expected {complaint!r}"
    return None


def main():
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as tree:
        small_tree(tree)
        for check in ("layers", "style", "docs"):
            rc, output = run(check, tree)
            if rc:
                print(f"FAILED {check}: complains of the untouched tree: {output}")
                failed += 1
            else:
                passed += 1
        formats = have_clang_format(tree)
        for check, path, text, complaint in CASES:
            if check == "format" and not formats:
                print("skipped format: clang-format 14 is missing")
                skipped += 1
                continue
            problem = one_case(tree, check, path, text, complaint)
            if problem:
                print(f"FAILED {check} {path}: {problem}")
                failed += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
