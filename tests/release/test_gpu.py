#!/usr/bin/env python3
"""The released archives on a GPU: the Linux program as it is, and the .exe of the Windows archive under Wine with an nvcuda.dll that forwards to
libcuda.so.1. For a machine with an NVIDIA GPU; without one everything is skipped.

usage: test_gpu.py [--bridge DIR --prefix DIR] [--shape NAME] DIST

Each program: doctor, ten tokens of a made-up 4-bit checkpoint, a text of the built-in model, one streamed chat. Start-up lines name the GPU;
tokens and texts are the same on both, and with `--precision exact` those of the CPU.

--bridge: a folder with x86_64-unix/nvcuda.dll.so and x86_64-windows/nvcuda.dll, made from the list that `kernelc --functions` prints;
--prefix: a Wine prefix, or only its registry files (*.reg, .update-timestamp). Without them the Windows archive is skipped.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests")]
from counting import check, finish, skip  # noqa: E402
from runner import MACHINE, Runner, check_server, only_folder  # noqa: E402

WINE, WINESERVER = "/usr/lib/wine/wine64", "/usr/lib/wine/wineserver64"
WINE_LIBRARIES = "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows"
DRIVER = {"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}
PROMPT, N_TEXT = "Once upon a time there was a", 32
START = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - START:4.0f} s] {text}", flush=True)


def artifact(dist, pattern):
    found = sorted(glob.glob(os.path.join(dist, pattern)))
    if not found:
        skip(f"{pattern}: not in {dist}")
    return found[0] if found else None


def linux_runner(dist, work):
    path = artifact(dist, f"mlxcel-linux-{MACHINE}*.tar.gz")
    if not path:
        finish()
    with tarfile.open(path) as tar:
        tar.extractall(os.path.join(work, "linux"))
    return Runner("Linux", only_folder(os.path.join(work, "linux")), env=DRIVER)


def make_prefix(prefix, source, bridge):
    """A Wine prefix with the registry of another one, all of Wine's libraries, and the bridge among them."""
    system = os.path.join(prefix, "drive_c/windows/system32")
    os.makedirs(system)
    os.makedirs(os.path.join(prefix, "dosdevices"))
    for file in [*glob.glob(os.path.join(source, "*.reg")), os.path.join(source, ".update-timestamp")]:
        shutil.copy(file, prefix)
    for file in glob.glob(os.path.join(WINE_LIBRARIES, "*")):
        shutil.copy(file, system)
    shutil.copy(os.path.join(bridge, "x86_64-windows/nvcuda.dll"), system)
    os.symlink("../drive_c", os.path.join(prefix, "dosdevices/c:"))
    os.symlink("/", os.path.join(prefix, "dosdevices/z:"))


class WineRunner(Runner):
    """Each run gets a fresh Wine server: the services of a stripped Wine may have died on a missing library."""

    def run(self, *args, **kw):
        result = super().run(*args, **kw)
        self.stop()
        return result

    def stop(self):
        subprocess.run([WINESERVER, "-k"], env=self.env, capture_output=True, timeout=30)


def windows_runner(a, work):
    if not a.bridge or not a.prefix:
        return skip("the Windows archive: no --bridge and --prefix")
    if not os.path.exists(WINE):
        return skip(f"the Windows archive: there is no {WINE}")
    path = artifact(a.dist, "mlxcel-windows-x86_64*.zip")
    if not path:
        return None
    with zipfile.ZipFile(path) as z:
        z.extractall(os.path.join(work, "windows"))
    prefix = os.path.join(work, "prefix")
    make_prefix(prefix, a.prefix, a.bridge)
    env = {**DRIVER, "WINEPREFIX": prefix, "WINEDLLPATH": os.path.abspath(a.bridge), "WINEDEBUG": "-all", "WINESERVER": WINESERVER,
           "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe="}
    return WineRunner("Windows", only_folder(os.path.join(work, "windows")), [WINE], ".exe", env, lambda p: "Z:" + p.replace("/", "\\"))


def generate(runner, *args):
    """What was generated, and what was said at the start."""
    r = runner.run("mlxcel", "generate", "--precision", "exact", *args, timeout=120)
    check(r.returncode == 0 and r.stdout.strip(), f"{runner.name}: generate {' '.join(args)}: {r.returncode} {r.stdout[-200:]}{r.stderr[-400:]}")
    return r.stdout.split(), r.stderr


def check_gpu(runner, model, name):
    """Everything that is asked of a program on the GPU of that name."""
    r = runner.run("mlxcel", "doctor", timeout=120)
    lines = [" ".join(line.split()) for line in r.stdout.splitlines() if re.match(r"ok +gpu", line)]
    check(r.returncode == 0 and name in " ".join(lines), f"{runner.name}: doctor: {r.returncode} {lines}")
    say(f"{runner.name}: {'; '.join(lines)}")
    tokens, said = generate(runner, "-m", runner.path(model), "--device", "cuda", "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos")
    check(name in said and len(tokens) == 10, f"{runner.name}: {len(tokens)} tokens; start-up line: {said[:300]}")
    say(f"{runner.name}: {next((s for s in said.splitlines() if name in s), said[:100])}: {' '.join(tokens)}")
    text, said = generate(runner, "--device", "cuda", "-p", PROMPT, "-n", str(N_TEXT))
    check(name in said, f"{runner.name}: start-up line: {said[:300]}")
    answer, log = check_server(runner, "--device", "cuda", "--precision", "exact")
    check(name in log, f"{runner.name}: the server's log does not name the GPU: {log[-400:]}")
    say(f"{runner.name}: built-in model: {' '.join(text)[:60]}; chat: {answer.strip()[:60]!r}")
    return tokens, text, answer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dist")
    p.add_argument("--bridge")
    p.add_argument("--prefix")
    p.add_argument("--shape", default="llama-3.2-1b")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlxcel-gpu-") as work:
        linux = linux_runner(a.dist, work)
        r = linux.run("mlxcel", "generate", "--device", "cuda", "--tokens", "1", "-n", "1", timeout=120)
        found = re.search(r" on cuda:0 \((.*?),", r.stderr)
        if r.returncode or not found:
            skip(f"a GPU: {(r.stderr.strip().splitlines() or ['nothing said'])[-1]}")
            finish()
        model = os.path.join(work, "model")
        linux.run("mlxcel", "synth", "--shape", a.shape, "--bits", "4", "-o", model)
        say(f"{found[1]}; made {a.shape}")
        want = check_gpu(linux, model, found[1])
        cpu, _ = generate(linux, "-m", model, "--device", "cpu", "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos")
        check(want[0] == cpu, f"tokens on the GPU {want[0]}, on the CPU {cpu}")
        cpu, _ = generate(linux, "--device", "cpu", "-p", PROMPT, "-n", str(N_TEXT))
        check(want[1] == cpu, f"text on the GPU {want[1]}, on the CPU {cpu}")
        windows = windows_runner(a, work)
        if windows:
            try:
                got = check_gpu(windows, model, found[1])
                for what, x, y in zip(("tokens", "text", "chat"), got, want):
                    check(x == y, f"{what} of the Windows program {x!r}, of the Linux program {y!r}")
            finally:
                windows.stop()
    say("done")
    finish()


main()
