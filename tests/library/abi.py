#!/usr/bin/env python3
"""The binary interface of libmlxcel as text: prototypes, values of enums, layouts of structs, from include/mlxcel.h and a C compiler.

usage: abi.py            compares with tests/library/abi.txt; exit code 1 where they differ
       abi.py --update   writes it; what breaks programs is refused unless MLXCEL_ABI was raised
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADER = os.path.join(ROOT, "include/mlxcel.h")
RECORD = os.path.join(HERE, "abi.txt")


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S)).strip()


def fields(body):
    """The names in a struct's body."""
    for line in body.split(";"):
        for part in line.split(",") if line.strip() else ():
            yield re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", part).group(1)


def layouts(text, cc):
    """Lines "struct.field offset size" by the compiler."""
    body = ""
    for m in re.finditer(r"typedef struct (\w+) \{(.*?)\} \1;", text):
        body += f'printf("struct {m.group(1)} %u\\n", (unsigned)sizeof({m.group(1)}));\n'
        for name in fields(m.group(2)):
            body += (f'printf("field {m.group(1)}.{name} %u %u\\n", (unsigned)offsetof({m.group(1)}, {name}), '
                     f'(unsigned)sizeof((({m.group(1)} *)0)->{name}));\n')
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        header = os.path.join(folder, "mlxcel.h")
        open(header, "w").write(text.replace("MLXCEL_NEWLINE", "\n"))
        open(source, "w").write(f'#include "mlxcel.h"\n#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n')
        subprocess.run([*cc.split(), "-std=c99", "-o", program, source], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def describe(header, cc="cc"):
    """The interface as sorted lines; the first one is its number."""
    raw = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    number = re.search(r"#define MLXCEL_ABI (\d+)", raw).group(1)
    code = plain(re.sub(r"^#.*$", "", raw, flags=re.M))
    lines = [f"function {plain(m.group(1))}" for m in re.finditer(r"MLXCEL_API ([^;]*?\));", code)]
    lines += [f"type {plain(m.group(1))}" for m in re.finditer(r"typedef ([^;{]*\(\*\w+\)[^;]*);", code)]
    for m in re.finditer(r"enum (\w+) \{(.*?)\}", code):
        lines += [f"value {m.group(1)} {plain(v)}" for v in m.group(2).split(",") if v.strip()]
    # the fields' own types: a pointer that becomes a number of the same size is no longer the same
    for m in re.finditer(r"typedef struct (\w+) \{(.*?)\} \1;", code):
        lines += [f"member {m.group(1)} {i} {plain(f)}" for i, f in enumerate(m.group(2).split(";")) if f.strip()]
    includes = "\n".join(re.findall(r"^#include .*$", raw, flags=re.M))
    lines += layouts(includes + "\n#define MLXCEL_API\n" + re.sub(r'extern "C" \{|\}\s*$', "", code), cc)
    return [f"abi {number}", *sorted(lines)]


def is_growth(line, old):
    """Whether a new line is no more than an addition: a function, a value, or something at the end of a struct that says its size."""
    kind, name = line.split()[:2]
    if kind == "struct":
        return any(o.startswith(f"field {name}.struct_size ") for o in old)
    return True


def breaks(old, new):
    """What a program that was compiled with the old one stumbles over."""
    names = {line.split()[1] for line in new if line.startswith("struct ")}
    lost = [line for line in old[1:] if line not in new]
    return [line for line in lost if not (line.startswith("struct ") and line.split()[1] in names and is_growth(line, old))]


def main():
    new = describe(open(HEADER).read())
    old = open(RECORD).read().splitlines() if os.path.exists(RECORD) else new
    lost = breaks(old, new)
    if "--update" in sys.argv:
        if lost and old[0] == new[0]:
            sys.exit("these are gone or changed, and MLXCEL_ABI was not raised:\n" + "\n".join(lost))
        open(RECORD, "w").write("\n".join(new) + "\n")
        return
    if old != new:
        for line in sorted(set(old) ^ set(new)):
            print("gone " if line in old else "new  ", line)
        sys.exit("the interface changed: raise MLXCEL_ABI where programs break, then tests/library/abi.py --update" if lost else
                 "the interface grew: tests/library/abi.py --update notes it")


if __name__ == "__main__":
    main()
