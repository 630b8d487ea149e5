#!/usr/bin/env python3
"""Checks the include directions of ARCHITECTURE.md: which folder of src/ may include which.

usage: check_layers.py [ROOT]      prints "file:line: message" for each violation, exit code 1 if there is one
"""
import os
import re
import sys

import csource

# folder: folders it may include from, besides itself
ALLOWED = {
    "server": {"api", "base", "os"},
    "cli": {"server", "tools", "api", "hub", "base", "os"},
    "tools": {"api", "hub", "engine", "comm", "vision", "image", "model", "backend", "file", "text", "tensor", "os", "base"},
    "lib": {"api", "hub", "cli", "base", "os"},
    "api": {"hub", "engine", "comm", "vision", "image", "model", "backend", "file", "text", "tensor", "os", "base"},
    "engine": {"model", "backend", "comm", "text", "tensor", "os", "base"},
    "model": {"backend", "comm", "file", "text", "tensor", "base"},
    "vision": {"model", "backend", "image", "file", "tensor", "base"},
    "backend": {"comm", "tensor", "os", "base"},
    "hub": {"file", "tensor", "os", "base"},
    "file": {"tensor", "os", "base"},
    "text": {"base"},
    "tensor": {"base"},
    "image": {"base"},
    "comm": {"os", "base"},
    "os": {"base"},
    "base": set(),
}
# of a folder that is allowed above, these headers alone
ONLY = {
    ("lib", "cli"): {"cli/serve.h"},
    ("cli", "server"): {"server/server.h"},
    # doors to the engine (docs/decisions.md): the library and the server have the same one, service.h; commands have session.h, a model on their own
    # thread. The other headers run no model.
    ("lib", "api"): {"api/service.h", "api/machine.h"},
    ("server", "api"): {"api/service.h", "api/build.h", "api/remote.h"},
    ("cli", "api"): {"api/session.h", "api/sampling.h", "api/build.h", "api/synth.h", "api/tokenizer_files.h"},
}
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
    r"yaml\.h": {"base"},
    r"pcre2\.h|utf8proc\.h": {"text"},
    r"llhttp\.h": {"server", "file"},
    r"curl/.*": {"hub"},
    r"openssl/.*": {"os", "server"},
    r"png\.h|zlib\.h|jpeglib\.h|jerror\.h|webp/.*": {"image"},
    r"zstd\.h": {"base", "file", "backend"},
}
# parts of a backend, each of which may include those before it; files beside the parts may include all of them
PARTS = {"src/backend/cuda": ("shared", "device", "context", "lower", "decode")}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def check_parts(path, ours):
    """The complaint about an include between the parts of one folder, or None."""
    for home, parts in PARTS.items():
        mine, other = path[len(home) + 1:].split("/")[0], ("src/" + ours)[len(home) + 1:].split("/")[0]
        if not path.startswith(home + "/") or not ("src/" + ours).startswith(home + "/") or mine not in parts:
            continue
        if other not in parts or parts.index(other) > parts.index(mine):
            return f"{home}/{mine} must not include {ours}: it may know {', '.join(parts[:parts.index(mine)]) or 'nothing'} beside itself"
    return None


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
    return check_parts(path, ours)


FUNCTION = re.compile(r"^(?!static\b)[a-z][\w \t*]*[ \t*](\w+)\([^;{]*\)\s*\{", re.M)


def circle(calls):
    """Files that call each other in a ring, as a list that begins and ends with the same one; None where there is none."""
    done, path = set(), []

    def visit(file):
        if file in path:
            return path[path.index(file):] + [file]
        if file in done:
            return None
        path.append(file)
        for other in sorted(calls[file]):
            found = visit(other)
            if found:
                return found
        done.add(path.pop())
        return None

    return next((found for found in map(visit, sorted(calls)) if found), None)


def check_circle(root, home):
    """The complaint about files of a folder that call each other, directly or through others, or None."""
    code = {f: csource.code(csource.read(root, f)) for f in csource.files(root, ".c") if f.startswith(home + "/")}
    owner = {name: f for f, text in code.items() for name in FUNCTION.findall(text)}
    calls = {f: {owner[w] for w in set(re.findall(r"\w+", text)) if w in owner} - {f} for f, text in code.items()}
    found = circle(calls)
    return found and f"{found[0]}:1: files call each other in a circle: {' -> '.join(os.path.basename(f) for f in found)}"


def main():
    root = csource.root_of(sys.argv)
    bad = 0
    for message in filter(None, (check_circle(root, home) for home in PARTS)):
        print(message)
        bad += 1
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
