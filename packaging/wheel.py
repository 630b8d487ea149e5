#!/usr/bin/env python3
"""Packs the Python package with a build's library and program into a wheel. The same input gives the same bytes.

usage: wheel.py BUILD [OUT]      prints the wheel's path; OUT: dist

A wheel for Linux is tagged manylinux_2_31 where its files need no more than that: the C library of 2020 and nothing else. Those of a release
do; a build with the system's libraries is tagged for this kind of machine alone.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (2, 31)
PLAIN = re.compile(r"(?:libmlxcel|libc|libm|libdl|libpthread|librt|ld-linux-[\w-]+)\.so\.\d+")


def read(*path):
    with open(os.path.join(ROOT, *path), "rb") as f:
        return f.read()


def elf_tag(paths):
    """By what the files need."""
    machine, plain, newest = None, True, (2, 17)
    for path in paths:
        text = subprocess.run(["readelf", "-hdVW", path], check=True, capture_output=True, text=True).stdout
        machine = {"AArch64": "aarch64", "Advanced Micro Devices X86-64": "x86_64"}[re.search(r"Machine:\s+(.*)", text).group(1).strip()]
        plain &= all(PLAIN.fullmatch(name) for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        newest = max([newest, *(tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_(\d+\.\d+)", text))])
    return f"manylinux_{OLDEST[0]}_{OLDEST[1]}_{machine}" if plain and newest <= OLDEST else f"linux_{machine}"


def natives(build):
    """The library and the program, by their names in the package."""
    folder = os.path.join(build, "wheel")
    names = ("mlxcel.dll", "mlxcel.exe") if os.path.exists(os.path.join(folder, "mlxcel.dll")) else ("libmlxcel.so.0", "mlxcel")
    return {name: os.path.realpath(os.path.join(folder, name)) for name in names}


def metadata(version):
    return f"""Metadata-Version: 2.1
Name: mlxcel
Version: {version}
Summary: Language models from MLX and Hugging Face checkpoints, in a library of C without dependencies
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

""".encode() + read("python/README.md")


def contents(build, version, tag):
    info = f"mlxcel-{version}.dist-info"
    for name in sorted(os.listdir(os.path.join(ROOT, "python/mlxcel"))):
        if name.endswith((".py", ".typed")):
            yield f"mlxcel/{name}", read("python/mlxcel", name), 0o644
    for name, path in natives(build).items():
        yield f"mlxcel/bin/{name}", read(path), 0o755
    yield f"{info}/METADATA", metadata(version), 0o644
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: mlxcel\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), 0o644
    yield f"{info}/entry_points.txt", b"[console_scripts]\nmlxcel = mlxcel.__main__:main\n", 0o644
    yield f"{info}/licenses/LICENSE", read("LICENSE"), 0o644


def make(build, out):
    """Writes the wheel of a build into a folder, and gives its path."""
    version = read("VERSION").decode().strip()
    files = natives(build)
    tag = "win_amd64" if "mlxcel.dll" in files else elf_tag(files.values())
    path = os.path.join(out, f"mlxcel-{version}-py3-none-{tag}.whl")
    os.makedirs(out, exist_ok=True)
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def put(name, data, mode):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
        for name, data, mode in contents(build, version, tag):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            put(name, data, mode)
        name = f"mlxcel-{version}.dist-info/RECORD"
        put(name, f"{record}{name},,\n".encode(), 0o644)
    return path


def main():
    build = os.path.abspath(sys.argv[1])
    print(make(build, os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else os.path.join(ROOT, "dist")))


if __name__ == "__main__":
    main()
