#!/usr/bin/env python3
"""The Windows program under Wine against a hub on this machine, over plain http: download, faults, kill and resume, generate by name.

usage: test_wine.py FOLDER of the Windows build [SHAPE]      last line: "N passed, N failed[, N skipped]"
"""
import filecmp
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from fakehub import Fault, Hub, wait_for_journal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish, skip  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = "mlx-community/Qwen3-0.6B-4bit"


class Windows:
    def __init__(self, program, home, endpoint):
        self.command = [os.path.join(ROOT, "tools", "wine.sh"), program]
        drop = ("MLXCEL_", "LLAMA_ARG_", "HF_", "HUGGING")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop) and not k.lower().endswith("_proxy")}
        self.env.update(MLXCEL_HOME="Z:" + home, HF_HOME="Z:" + home + "/hf", HF_ENDPOINT=endpoint)

    def run(self, *args, env=None):
        return subprocess.run([*self.command, *args], capture_output=True, text=True, env=env or self.env, stdin=subprocess.DEVNULL)


def same(home, repo, source, names):
    folder = os.path.join(home, "models", *repo.split("/"))
    bad = [n for n in names if not os.path.exists(os.path.join(folder, n)) or not filecmp.cmp(os.path.join(folder, n), os.path.join(source, n), shallow=False)]
    left = [n for n in os.listdir(os.path.join(folder, ".mlxcel")) if ".part" in n]
    check(not bad and not left, f"{repo}: not equal {bad}, left over {left}")


def check_all(windows, hub, folder, home, shape):
    tiny = os.path.join(folder, "tiny")
    r = windows.run("synth", "--shape", shape, "-o", "Z:" + tiny)
    check(r.returncode == 0, f"synth: {r}")
    hub.add(MODEL, tiny)
    r = windows.run("download", MODEL)
    check(r.returncode == 0, f"download: {r}")
    same(home, MODEL, tiny, os.listdir(tiny))
    r = windows.run("generate", "-m", MODEL, "-p", "Hello", "-n", "16")
    check(r.returncode == 0 and r.stdout.strip() and MODEL in r.stderr, f"generate: {r}")
    r = windows.run("list", "-q")
    check(r.stdout.strip() == MODEL, f"list: {r}")
    # a larger file with faults, killed and resumed
    big = os.path.join(folder, "big")
    os.makedirs(big)
    shutil.copy(os.path.join(tiny, "config.json"), big)
    with open(os.path.join(big, "model.safetensors"), "wb") as f:
        f.write(random.Random(3).randbytes(20 * 1024 * 1024 + 77))
    hub.add("acme/big", big)
    hub.faults = [Fault(1, status=503), Fault(2, cut=1000001), Fault(1000, slow=2e6)]
    p = subprocess.Popen([*windows.command, "download", "acme/big"], env=windows.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_journal(os.path.join(home, "models", "acme", "big"))
    p.kill()
    p.wait()
    hub.faults = []
    time.sleep(1)  # Wine's server lets go of the lock
    r = windows.run("download", "acme/big")
    check(r.returncode == 0, f"resume: {r}")
    same(home, "acme/big", big, ["model.safetensors", "config.json"])
    check(any("If-Range" in x[2] for x in hub.log), "resuming asks by If-Range")
    # without MLXCEL_HOME: %LOCALAPPDATA%\\mlxcel, which Wine puts into its own drive
    plain = {k: v for k, v in windows.env.items() if k != "MLXCEL_HOME"}
    windows.run("rm", MODEL, "--yes", env=plain)
    r = windows.run("download", MODEL, env=plain)
    place = re.fullmatch(r"C:/users/[^\\/]+/AppData/Local/mlxcel/models/(.*)", r.stdout.strip())
    check(r.returncode == 0 and place and place[1] == MODEL and "\\" not in r.stderr, f"LOCALAPPDATA: {r}")
    # whoever wrote a path, it is shown in one form
    back = {**plain, "MLXCEL_HOME": "Z:" + home.replace("/", "\\")}
    for args in (["show", "no/such"], ["inspect", "Z:\\no\\such\\folder"], ["import", "Z:\\no\\such", "me/mine"], ["list", "--models-dir", "Z:\\no\\such"]):
        r = windows.run(*args, env=back)
        check("\\" not in r.stdout + r.stderr, f"slashes of {args}: {r}")
    r = windows.run("generate", "-m", MODEL, "-p", "Hello", "-n", "16", "--offline", env=plain)
    check(r.returncode == 0 and r.stdout.strip(), f"generate from LOCALAPPDATA: {r}")
    r = windows.run("rm", MODEL, "--yes", env=plain)
    check(r.returncode == 0 and windows.run("list", "-q", env=plain).stdout.strip() == "", f"rm from LOCALAPPDATA: {r}")
    r = windows.run("rm", "acme/big", "--yes")
    check(r.returncode == 0 and not os.path.exists(os.path.join(home, "models", "acme")), f"rm: {r}")


def main():
    program = os.path.abspath(os.path.join(sys.argv[1], "mlxcel.exe"))
    reason = None
    if not os.path.exists(program):
        reason = "mlxcel.exe is not built here"
    elif not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        reason = "no Wine here"
    elif subprocess.run([os.path.join(ROOT, "tools", "wine.sh"), program, "version"], capture_output=True).returncode == 127:
        reason = "Wine does not run here"
    if reason:
        skip(f"hub under Wine: {reason}")
        finish()
    folder = tempfile.mkdtemp(prefix="mlxcel-wine-")
    hub, home = Hub(), os.path.join(folder, "home")
    try:
        check_all(Windows(program, home, hub.url), hub, folder, home, sys.argv[2] if len(sys.argv) > 2 else "tiny")
    finally:
        hub.close()
        shutil.rmtree(folder)
    finish()


if __name__ == "__main__":
    sys.exit(main())
