#!/usr/bin/env python3
"""The first commands of README.md, as somebody types them who has just unpacked the archive: in a root folder that has nothing but the archive and the C library, the
README being the archive's own. The hub is one on this machine with a small made-up model under the name that README uses.

usage: test_first.py PROGRAM      last line: "N passed, N failed[, N skipped]"

Where dist/ has the archive for this machine, that is unpacked; else one is packed from PROGRAM in the same way, and the root gets the libraries that PROGRAM was linked with.
"""
import glob
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tests", "tests/hub", "tests/server", "packaging"):
    sys.path.insert(0, os.path.join(ROOT, folder))
from counting import HANG, check, finish, skip  # noqa: E402
from fakehub import Hub  # noqa: E402
from harness import free_port  # noqa: E402

MODEL = "mlx-community/Qwen3-0.6B-4bit"


def libraries(program):
    """What the loader would load for a program, the loader itself included."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", text)))


def curl():
    """The library that a build of this machine opens for downloads; a release has it linked."""
    text = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"libcurl\.so\.4 .*=> (\S+)", text)
    return [found.group(1), *libraries(found.group(1))] if found else []


def pack(program, path):
    """An archive as packaging/pack.py makes it, of this build."""
    import pack as packing
    files = {"README.md": packing.read("README.md").encode(), "LICENSE": packing.read("LICENSE").encode()}
    with open(program, "rb") as f:
        data = f.read()
    top = "mlxcel-test"
    entries = [(f"{top}/{n}", d, 0o644, None) for n, d in sorted(files.items())] + [(f"{top}/mlxcel", data, 0o755, None), (f"{top}/mlxcel-server", None, 0o755, f"{top}/mlxcel")]
    packing.tar_gz(path, entries, 1700000000)


def make_root(program, work):
    """The root folder, and the folder of the archive in it."""
    root = os.path.join(work, "root")
    for folder in ("opt", "home", "tmp", "proc", "etc"):
        os.makedirs(os.path.join(root, folder))
    found = glob.glob(os.path.join(ROOT, f"dist/mlxcel-linux-{platform.machine()}*.tar.gz"))
    archive = found[0] if found else os.path.join(work, "mlxcel.tar.gz")
    if not found:
        pack(program, archive)
    with tarfile.open(archive) as tar:
        tar.extractall(os.path.join(root, "opt"))  # our own archive; Python 3.11 has no filters
    top = os.path.join(root, "opt", os.listdir(os.path.join(root, "opt"))[0])
    needed = libraries(os.path.join(top, "mlxcel")) + ([] if found else curl())
    for path in needed:
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(os.path.realpath(path), root + path)
    print(f"{os.path.basename(archive)}, {len(needed)} libraries of the system in the root")
    return root, top


def first_commands(top):
    with open(os.path.join(top, "README.md"), encoding="utf-8") as f:
        block = re.search(r"^## Start\n\n((?:    .*\n)+)", f.read(), re.M).group(1)
    return [re.sub(r"\s+#.*$", "", line.strip()) for line in block.splitlines()]


class Place:
    """Runs commands in the root, with an environment that has nothing but where the archive lies and the hub."""

    def __init__(self, root, top, hub, port):
        self.enter = ["chroot", root] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "chroot", root]
        self.top, self.root, self.home = "/" + os.path.relpath(top, root), root, os.path.join(root, "home")
        self.env = {"HOME": "/home", "PATH": os.environ["PATH"], "HF_ENDPOINT": hub.url, "MLXCEL_PORT": str(port), "MLXCEL_MAX_TOKENS": "60"}

    def command(self, line):
        words = shlex.split(line)
        return [*self.enter, f"{self.top}/{words[0]}", *words[1:]]

    def run(self, line, text):
        return subprocess.run(self.command(line), input=text, capture_output=True, text=True, timeout=HANG, check=False, env=self.env, cwd="/")


def check_serve(place, line, port):
    p = subprocess.Popen(place.command(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place.env, cwd="/")
    first = p.stdout.readline()
    check(f"127.0.0.1:{port}" in first, f"{line}: {first!r}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=HANG) as r:
            check(r.status == 200 and b"<title>mlxcel</title>" in r.read(), f"{line}: the page")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=HANG) as r:
            names = [m["id"] for m in json.load(r)["data"]]
            check(names == [MODEL.split("/")[1]], f"{line}: the model: {names}")
    except OSError as e:
        check(False, f"{line}: {e}")
    p.terminate()
    p.communicate(timeout=HANG)
    check(p.returncode == 0, f"{line}: ended with {p.returncode}")


def main():
    program = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0 and subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        skip("the first commands: no root folder can be entered here")
        finish()
    hub, port = Hub(), free_port()
    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, "made-up")
        subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
        hub.add(MODEL, model)
        root, top = make_root(program, work)
        place = Place(root, top, hub, port)
        commands = first_commands(top)
        check(commands == ["mlxcel run", "mlxcel run qwen3:0.6b", "mlxcel serve qwen3:0.6b"], f"the first commands: {commands}")
        start = time.monotonic()
        r = place.run(commands[0], "Tell me a story about a dog and a kite.\n")
        print(f"the first answer after {time.monotonic() - start:.2f} s")
        check(r.returncode == 0 and len(r.stdout.split()) > 20, f"{commands[0]}: {r.returncode} {r.stdout!r} {r.stderr!r}")
        check(not hub.log, f"without a download: {hub.log}")
        r = place.run(commands[1], "Hi\n")
        check(r.returncode == 0 and os.path.exists(os.path.join(place.home, ".cache/mlxcel/models", MODEL, "config.json")), f"{commands[1]}: {r.returncode} {r.stderr!r}")
        check_serve(place, commands[2], port)
    hub.close()
    finish()


if __name__ == "__main__":
    main()
