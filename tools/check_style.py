#!/usr/bin/env python3
"""Checks the house rules that a script can check: lengths, banned functions and words, family names in one file, dead functions, names of the whole program.

usage: check_style.py [ROOT]      prints "file:line: message" for each violation, exit code 1 if there is one
"""
import collections
import os
import re
import sys

import csource

MAX_FILE_LINES = 1200
MAX_FUNCTION_LINES = 100

# Families that share their name with an algorithm, or with a word that requests have; these may be named anywhere.
ALGORITHMS = {"mamba", "mamba2", "rwkv", "deepseek"}

# Files that may name families: the table of families, that of call formats, whose names and markers hold them, that of models' short names, and the
# examples of commands.
FAMILY_HOMES = ("src/hub/short_names.def", "src/cli/commands.def", "src/model/families.c", "src/vision/towers.c", "src/model/family_defaults.inc", "src/model/family_gguf.inc", "src/text/output/formats.def")

# Longer functions that have a reason; (file, function): the reason.
LONG_FUNCTIONS = {}

# words: folders and files of src/ that may use them
BANNED = [
    (r"malloc|calloc|realloc|free|strdup|aligned_alloc|posix_memalign|_aligned_malloc", ("src/base/arena.c", "src/os/"),
     "allocates outside base/arena.c: take an arena, or mem_alloc and mem_try"),
    (r"fopen|freopen|fread|fgets|fscanf|tmpfile|remove|rename", ("src/os/",), "files are opened through os/os.h"),
    (r"printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|fputc|fwrite", ("src/os/", "src/base/log.c", "src/base/arena.c"),
     "writes past base/log.h and os/os.h"),
    (r"getenv|secure_getenv|setenv|putenv", ("src/os/",), "the environment is read by os/ for the option table of cli/args"),
    (r"os_env", ("src/os/",), "the environment is read through the option table (src/cli/options.def): take the value in an options struct"),
    (r"strcpy|strcat|strncpy|strncat|sprintf|vsprintf|gets|strtok|alloca|atoi|atol|atof|scanf|sscanf|rand|srand|system|popen", (),
     "is unsafe or depends on the locale: see base/str.h and base/rng.h"),
    (r"exit|_exit|quick_exit", ("src/os/", "src/cli/"), "only the command line ends the process"),
]
WORDS = [
    (r"_WIN32|_WIN64|__linux__|__APPLE__|__unix__|_MSC_VER|__MINGW32__", ("src/os/",), "operating systems are told apart in src/os only"),
    (r"pthread_\w+|errno", ("src/os/", "src/base/"), "belongs to src/os"),
    (r"__attribute__|__builtin_\w+|__asm__|asm", ("src/os/", "src/base/", "src/backend/cpu/", "src/backend/cuda/"),
     "is a compiler extension: kernels, base/ and os/ only"),
]
# What the compiler cannot refuse: a forward pass that asks for the family, code that tells backends apart instead of asking one.
ASKS = [
    (re.compile(r"\bm->spec\.family\b"), "the forward pass reads no row of a family: put what it needs into the spec"),
    (re.compile(r"[!=]=\s*&\w+_backend\b"), "a backend is asked what it can do, not which one it is"),
]
LONG = re.compile(r"\blong\b")
LONG_CAST = re.compile(r"\(\s*(?:unsigned\s+)?long\s+long\s*\)")
WIDE = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
# Where packages are fetched from is known to apt and pip, which a machine may have told of a mirror.
HOSTS = re.compile(r"\b(?:deb|security|archive|snapshot)\.debian\.org|\b(?:archive|ports|security)\.ubuntu\.com|\bpypi\.org|\bpythonhosted\.org|"
                   r"\bgithub\.com/[\w./-]+/(?:archive|releases/download)/")
ISA_FLAGS = re.compile(r"-march=native|-mtune=native|-mcpu=native|-ffast-math")
EARLY = re.compile(r"^EARLY\((\w+), ", re.M)
WAIT = re.compile(r"\b(?:after_previous|let_next_begin)\(\);")


def in_home(path, homes):
    return any(path == h or (h.endswith("/") and path.startswith(h)) for h in homes)


def families(root):
    """The types in the rows of src/model/families.c, without those that are ordinary short words."""
    try:
        text = csource.code(csource.read(root, "src/model/families.c"), keep_strings=True)
    except OSError:
        return []
    names = re.findall(r'\.type\s*=\s*"([a-z][a-z0-9_.-]*)"', text)
    return sorted({n for n in names if len(n) > 4 or re.search(r"\d", n)} - ALGORITHMS, key=len, reverse=True)


def check_lengths(path, text):
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield lines, f"the file has {lines} lines, at most {MAX_FILE_LINES}"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
    for name, first, last in csource.functions(text):
        if last - first + 1 > MAX_FUNCTION_LINES and (path, name) not in LONG_FUNCTIONS:
            yield first, f"{name} has {last - first + 1} lines, at most {MAX_FUNCTION_LINES}"


def check_words(path, text, names):
    code = csource.code(text)
    for pattern, homes, why in BANNED:
        if not in_home(path, homes):
            for m in re.finditer(rf"(?<![\w.>])({pattern})\s*\(", code):
                yield csource.line_of(code, m.start()), f"{m.group(1)}() {why}"
    for pattern, homes, why in WORDS:
        if not in_home(path, homes):
            for m in re.finditer(rf"\b(?:{pattern})\b", code):
                yield csource.line_of(code, m.start()), f"{m.group()} {why}"
    for pattern, why in ASKS:
        for m in pattern.finditer(code):
            yield csource.line_of(code, m.start()), why
    for m in LONG.finditer(LONG_CAST.sub(lambda c: " " * len(c.group()), code)):
        yield csource.line_of(code, m.start()), "long has 32 bits on Windows: int64_t, size_t (long long only as a cast for printf)"
    if path not in FAMILY_HOMES and names:
        spoken = csource.code(text, keep_strings=True)
        for m in re.finditer(rf"(?<![A-Za-z0-9])({'|'.join(map(re.escape, names))})(?![A-Za-z0-9])", spoken):
            yield csource.line_of(spoken, m.start()), f"{m.group(1)} is a family: its name belongs in src/model/families.c only"


EMITS = re.compile(r"\b(?:hlo|emit)_\w+\s*\(\s*(?:h|e|&e->h)\b")


def arguments(code, start):
    """The texts between the commas of the call whose bracket opens before `start`."""
    depth, from_, parts = 0, start, []
    for i in range(start, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth < 0 or (depth == 0 and code[i] == ","):
            parts.append(code[from_:i])
            from_ = i + 1
        if depth < 0:
            break
    return parts


def check_order(path, text):
    """C does not say which argument is computed first: a program whose instructions two arguments emit would depend on the compiler."""
    code = csource.code(text)
    for m in EMITS.finditer(code):
        if sum(bool(EMITS.search(a)) for a in arguments(code, code.index("(", m.start()) + 1)) > 1:
            yield csource.line_of(code, m.start()), "two arguments of this call emit instructions: compute one before"


def check_file(root, path, names):
    text = csource.read(root, path)
    is_c = path.endswith((".c", ".h", ".def", ".inc", ".cu", ".cuh"))
    if is_c and not path.startswith("kernels/"):
        yield from check_lengths(path, text)
    if is_c and path.startswith("src/"):
        yield from check_words(path, text, names)
        opening = text.lstrip()
        if not opening.startswith("/*") and not path.endswith((".def", ".inc")):
            yield 1, "the file does not open with a comment that says what it owns"
    if path.startswith("src/backend/xla/"):
        yield from check_order(path, text)
    if not path.startswith(("tools/check_", "tests/check/")):
        for m in HOSTS.finditer(text):
            yield csource.line_of(text, m.start()), f"{m.group()} is the host of a registry: name packages and versions, and let the client find them"
    if is_c or path.endswith((".cmake", ".txt", ".py", ".sh", "Makefile")):
        for m in WIDE.finditer(text):
            if not path.startswith(("tools/check_", "tests/check/")):
                yield csource.line_of(text, m.start()), f"{m.group()}: finish it or open an issue"
    if path.endswith((".cmake", "CMakeLists.txt", "CMakePresets.json")):
        for m in ISA_FLAGS.finditer(text):
            comment = text.rfind("#", text.rfind("\n", 0, m.start()) + 1, m.start()) >= 0
            if not comment:
                yield csource.line_of(text, m.start()), f"{m.group()} is never used: per-file instruction sets only"


PROTOTYPE = re.compile(r"^(?!typedef)(?:_Noreturn )?[a-z][\w *]*[ *](\w+)\([^;{}]*\)[^;{}]*;", re.M)
EXTERN = re.compile(r"^extern\s[\w\s*]*?[ *](\w+)(?:\[[^\]]*\])*;", re.M)
BODY = re.compile(r"^[a-z][\w *]*[ *](\w+)\([^;{}]*\)\s*\{", re.M)


# What the next changes call: going back for speculation; ranks that are processes with a GPU each.
AHEAD = {"gram_match_copy", "gram_match_back"}


def check_dead(root):
    """Functions that a header offers and the program does not take: every other word of that name is a prototype or a body. What tests and
    measurements call counts for nothing: if nobody else does, it belongs to them. The public header is for other programs."""
    offered, words = {}, collections.Counter()
    for path in csource.files(root, ".c", ".h", ".def", ".inc", ".cu", ".cuh"):
        if path.startswith(("tests/", "bench/")):
            continue
        code = csource.code(csource.read(root, path))
        words.update(re.findall(r"\w+", code))
        words.subtract(BODY.findall(code))
        if path.startswith(("src/", "include/")) and path.endswith(".h") and path != "include/mlxcel.h":
            for m in PROTOTYPE.finditer(code):
                words[m.group(1)] -= 1
                offered[m.group(1)] = (path, csource.line_of(code, m.start(1)))
    for name, (path, line) in offered.items():
        if words[name] <= 0 and name not in AHEAD:
            yield path, line, f"the program does not call {name}"


# Prefixes of global names besides those of the folder, the header and the file: types that a folder's functions are named after.
PREFIXES = {
    "src/api": "session text",
    "src/backend": "act op oplist",
    "src/backend/cuda/decode": "step",
    "src/backend/cuda/lower": "attn choose experts gemm qmm qmv",
    "src/base": "f16 f4e2m1 f8e4m3 jsonw m mem sb sha256 size utf8",
    "src/cli": "arg args char cmd line opt sampling_args",
    "src/engine": "job kv n_sampler",
    "src/file": "gguf quant st",
    "src/hub": "piece repo",
    "src/model": "family feed loader pass per_layer resolve",
    "src/os": "cpu",
    "src/server": "api call conn http",
    "src/tensor": "format plain quant",
    "src/text/grammar": "cs gram nfa",
    "src/text/template": "rt tbuf tdict titer tmpl tstr tv uni",
    "src/text/tokenizer": "tok",
}


def check_prefixes(root):
    """Names that a header gives to the whole program begin with their module: in a library they meet those of everybody else."""
    bodies = collections.defaultdict(set)
    for path in csource.files(root, ".c"):
        if path.startswith("src/"):
            for name in BODY.findall(csource.code(csource.read(root, path))):
                bodies[name].add(os.path.basename(path)[:-2])
    for path in csource.files(root, ".h"):
        if not path.startswith(("src/", "include/")):
            continue
        folder, header = os.path.split(path)
        known = {*folder.split("/")[1:], header[:-2], "mlxcel", *PREFIXES.get(folder, "").split()}
        code = csource.code(csource.read(root, path))
        for m in [*PROTOTYPE.finditer(code), *EXTERN.finditer(code)]:
            name = m.group(1)
            if "_" not in name or not f"{name}_".startswith(tuple(f"{k}_" for k in known | bodies[name])):
                yield path, csource.line_of(code, m.start(1)), f"{name} is a name of the whole program: begin it with that of its module"


def check_early(root):
    """Kernels of a file that begin before the one in front of them has ended (EARLY in kernels.def): each of them waits for it."""
    table = "src/backend/cuda/device/kernels.def"
    early = set(EARLY.findall(csource.read(root, table))) if os.path.exists(os.path.join(root, table)) else set()
    for path in csource.files(root, ".cu"):
        code, name = csource.code(csource.read(root, path)), os.path.basename(path)[:-3]
        waits, kernels = len(WAIT.findall(code)), code.count("__global__")
        if waits < kernels and (waits or name in early):
            yield path, 1, f"{kernels - waits} of {kernels} kernels do not wait for the kernel before them: call after_previous()"


def main():
    root = csource.root_of(sys.argv)
    names = families(root)
    bad = 0
    suffixes = (".c", ".h", ".def", ".inc", ".cu", ".cuh", ".cmake", ".txt", ".py", ".sh", ".yml", ".list", ".ci/run", "Makefile", "CMakePresets.json")
    for path in csource.files(root, *suffixes):
        for line, message in sorted(check_file(root, path, names)):
            print(f"{path}:{line}: {message}")
            bad += 1
    for path, line, message in sorted([*check_dead(root), *check_prefixes(root), *check_early(root)]):
        print(f"{path}:{line}: {message}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
