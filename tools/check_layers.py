#!/usr/bin/env python3
"""Checks the include directions of ARCHITECTURE.md: which folder of src/ may include which.

usage: check_layers.py [ROOT]      prints "file:line: message" for each violation, exit code 1 if there is one
"""
import re
import sys

import csource

# folder: folders it may include from, besides itself
ALLOWED = {
    "server": {"api", "base", "os"},
    "cli": {"server", "tools", "api", "hub", "base", "os"},
    "tools": {"api", "hub", "engine", "vision", "image", "model", "backend", "file", "text", "tensor", "os", "base"},
    "lib": {"api", "hub", "cli", "base", "os"},
    "api": {"hub", "engine", "vision", "image", "model", "backend", "file", "text", "tensor", "os", "base"},
    "engine": {"model", "backend", "text", "tensor", "os", "base"},
    "model": {"backend", "file", "text", "tensor", "base"},
    "vision": {"model", "backend", "image", "file", "tensor", "base"},
    "backend": {"tensor", "os", "base"},
    "hub": {"file", "tensor", "os", "base"},
    "file": {"tensor", "os", "base"},
    "text": {"base"},
    "tensor": {"base"},
    "image": {"base"},
    "os": {"base"},
    "base": set(),
}
# of a folder that is allowed above, these headers alone
ONLY = {("lib", "cli"): {"cli/serve.h"}, ("cli", "server"): {"server/server.h"}}
# headers without a folder: the public one, and the one that the build writes
PUBLIC = {"mlxcel.h": {"lib"}, "build_info.h": {"api", "cli"}}
# libraries and system headers, and the folders that may know them
SYSTEM = {
    r"windows\.h|winsock2\.h|ws2tcpip\.h|io\.h|direct\.h|psapi\.h|shellapi\.h|shlobj\.h": {"os"},
    r"pthread\.h|unistd\.h|fcntl\.h|dirent\.h|dlfcn\.h|poll\.h|signal\.h|spawn\.h|sys/.*|linux/.*|netinet/.*|arpa/.*|netdb\.h": {"os"},
    r"threads\.h": set(),
    r"errno\.h": {"os", "base"},
    r"uv\.h": {"os", "server"},
    r"yyjson\.h": {"base", "file"},
    r"pcre2\.h|utf8proc\.h": {"text"},
    r"llhttp\.h": {"server", "file"},
    r"curl/.*": {"hub"},
    r"openssl/.*": {"os", "server"},
    r"png\.h|zlib\.h|jpeglib\.h|jerror\.h|webp/.*": {"image"},
    r"zstd\.h": {"base", "file", "backend"},
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def check(folder, path, ours, system):
    """The complaint about one include, or None."""
    if ours is None:
        for pattern, homes in SYSTEM.items():
            if re.fullmatch(pattern, system) and folder not in homes:
                return f"<{system}> may be included in {' and '.join('src/' + h for h in sorted(homes)) or 'no folder'} only"
        return None
    if ours in PUBLIC:
        return None if folder in PUBLIC[ours] else f"src/{folder} must not include {ours}"
    if "/" not in ours or ours.startswith("."):
        return f'"{ours}" is not written from src/, as in "base/err.h"'
    target = ours.split("/")[0]
    if target not in ALLOWED:
        return f'"{ours}" is in no folder of src/'
    if target != folder and target not in ALLOWED[folder]:
        return f"src/{folder} must not include from src/{target} ({ours})"
    if ours not in ONLY.get((folder, target), {ours}):
        return f"src/{folder} may include {' and '.join(sorted(ONLY[folder, target]))} of src/{target} alone, not {ours}"
    mine, other = path.split("/")[2:-1], ours.split("/")[1:-1]
    if folder == "backend" and target == "backend" and other and mine and mine[0] != other[0]:
        return f"backend {mine[0]} must not include backend {other[0]} ({ours})"
    if folder == "backend" and target == "backend" and other and not mine:
        return f"src/backend must not include one backend's private header ({ours})"
    return None


def main():
    root = csource.root_of(sys.argv)
    bad = 0
    for path in csource.files(root, ".c", ".h", ".def", ".inc"):
        parts = path.split("/")
        if parts[0] != "src" or len(parts) < 3:
            continue
        folder = parts[1]
        if folder not in ALLOWED:
            print(f"{path}:1: src/{folder} has no row in tools/check_layers.py")
            bad += 1
            continue
        text = csource.code(csource.read(root, path), keep_strings=True)
        for found in INCLUDE.finditer(text):
            message = check(folder, path, found.group(1), found.group(2))
            if message:
                print(f"{path}:{csource.line_of(text, found.start())}: {message}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
