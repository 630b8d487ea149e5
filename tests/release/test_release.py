#!/usr/bin/env python3
"""`make test-release`: unpacks, installs and runs everything in dist/ as a user would, each in an empty folder with an empty environment.

usage: test_release.py [DIST]

For each artifact: imports and C library versions, both programs' --version, doctor, ten tokens of a made-up 4-bit model (the same on all
platforms), one streaming chat, an orderly end. Foreign Linux programs run under qemu, Windows ones under Wine, packages in a root folder
that holds Debian 11's C library and nothing else. What this host cannot do is printed as skipped with its reason.
"""
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from counting import check, finish, skip  # noqa: E402

DIST = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "dist"))
MACHINE = os.uname().machine
GLIBC = (2, 31)
LINUX_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2",
                   "ld-linux-aarch64.so.1"}


def sysroot(machine):
    return subprocess.run([os.path.join(ROOT, "packaging/linux/sysroot.sh"), f"linux-{machine}"], check=True, capture_output=True,
                          text=True).stdout.strip()


class Runner:
    """How the programs of one artifact are started: natively, under qemu or under Wine. path() is what they call a file of ours."""

    def __init__(self, name, folder, prefix=(), suffix="", env=None, path=lambda p: p):
        self.name, self.folder, self.prefix, self.suffix, self.path = name, folder, list(prefix), suffix, path
        self.env = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, **(env or {})}

    def command(self, program, *args):
        return [*self.prefix, os.path.join(self.folder, program + self.suffix), *args]

    def run(self, program, *args, timeout=300):
        return subprocess.run(self.command(program, *args), cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout)


def check_linux_imports(path, name):
    text = subprocess.run(["readelf", "-dV", path], capture_output=True, text=True, check=True).stdout
    foreign = set(re.findall(r"Shared library: \[(.*?)\]", text)) - LINUX_LIBRARIES
    check(not foreign, f"{name}: needs {sorted(foreign)}")
    newest = max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text))
    check(newest <= GLIBC, f"{name}: needs glibc {newest}")


def check_windows_imports(path, name):
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/check_imports.py"), path], capture_output=True, text=True)
    check(r.returncode == 0, f"{name}: {r.stdout}{r.stderr}")


def stream_chat(url):
    """The text of one streamed answer."""
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12, "stream": True}).encode()
    request = urllib.request.Request(url.rstrip("/") + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    text, chunks = "", 0
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                chunks += 1
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    return text, chunks


def check_server(runner):
    log = open(os.path.join(runner.folder, "server.log"), "w+")
    process = subprocess.Popen(runner.command("mlxcel-server", "--port", "0", "--log-format", "json"), cwd=runner.folder, env=runner.env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    try:
        line = process.stdout.readline()
        if not check(line.startswith("{"), f"{runner.name}: the server did not start: {open(log.name).read()[-500:]}"):
            return
        text, chunks = stream_chat(json.loads(line)["url"])
        check(chunks > 3 and text.strip(), f"{runner.name}: streamed {chunks} chunks, {text!r}")
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            check(False, f"{runner.name}: the server did not end")
        log.close()


def check_program(runner, model, expected):
    """Everything that is asked of an unpacked artifact; returns the ten tokens."""
    version = open(os.path.join(ROOT, "VERSION")).read().strip()
    for program in ("mlxcel", "mlxcel-server"):
        r = runner.run(program, "--version")
        check(r.returncode == 0 and f"mlxcel {version}" in r.stdout, f"{runner.name}: {program} --version: {r.returncode} {r.stdout}{r.stderr}")
    r = runner.run("mlxcel", "doctor")
    check(r.returncode == 0 and "driver" in r.stdout.lower(), f"{runner.name}: doctor: {r.returncode} {r.stdout}{r.stderr}")
    r = runner.run("mlxcel", "generate", "-m", runner.path(model), "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos", "--precision", "exact", "--device", "cpu")
    tokens = r.stdout.split()
    check(r.returncode == 0 and len(tokens) == 10, f"{runner.name}: generate: {r.returncode} {r.stdout}{r.stderr}")
    check(expected is None or tokens == expected, f"{runner.name}: tokens {tokens}, the others gave {expected}")
    check_server(runner)
    return tokens


def linux_runner(name, folder, machine):
    """Against Debian 11's C library: on this machine by its own loader, on another by qemu."""
    root = sysroot(machine)
    if machine == MACHINE:
        return Runner(name, folder)
    qemu = shutil.which(f"qemu-{machine}-static")
    return Runner(name, folder, [qemu, "-L", root]) if qemu else None


def wine_runner(name, folder):
    if not os.path.exists("/usr/lib/wine/wine64") and not shutil.which("wine64"):
        return None
    env = {"WINEPREFIX": os.path.join(ROOT, "build/wine-release"), "WINEDEBUG": "-all"}
    return Runner(name, folder, [os.path.join(ROOT, "tools/wine.sh")], ".exe", env, lambda p: "Z:" + p.replace("/", "\\"))


def only_folder(folder):
    return os.path.join(folder, os.listdir(folder)[0])


def test_archives(work, model):
    """The .tar.gz and .zip files; returns the tokens they agree on."""
    expected = None
    machines = sorted(("x86_64", "aarch64"), key=lambda m: m != MACHINE)
    for machine in machines:
        names = [n for n in os.listdir(DIST) if n.startswith(f"mlxcel-linux-{machine}") and n.endswith(".tar.gz")]
        if not names:
            skip(f"linux-{machine}: no archive in {DIST}")
            continue
        folder = os.path.join(work, f"linux {machine} ü")
        with tarfile.open(os.path.join(DIST, names[0])) as tar:
            tar.extractall(folder)
        folder = only_folder(folder)
        a, b = (os.stat(os.path.join(folder, p)) for p in ("mlxcel", "mlxcel-server"))
        check(a.st_ino == b.st_ino, f"{names[0]}: mlxcel-server is not a hard link")
        check_linux_imports(os.path.join(folder, "mlxcel"), names[0])
        runner = linux_runner(names[0], folder, machine)
        if runner:
            expected = check_program(runner, model, expected) or expected
        else:
            skip(f"{names[0]}: no qemu-{machine}-static")
    names = [n for n in os.listdir(DIST) if n.startswith("mlxcel-windows") and n.endswith(".zip")]
    if not names:
        skip("windows-x86_64: no archive")
        return expected
    folder = os.path.join(work, "windows ü")
    with zipfile.ZipFile(os.path.join(DIST, names[0])) as z:
        z.extractall(folder)
    folder = only_folder(folder)
    for program in ("mlxcel.exe", "mlxcel-server.exe"):
        check_windows_imports(os.path.join(folder, program), program)
    check(os.path.getsize(os.path.join(folder, "mlxcel-server.exe")) < 100_000, "mlxcel-server.exe has over 100 KB")
    runner = wine_runner(names[0], folder)
    if runner:
        check_program(runner, model, expected)
    else:
        skip(f"{names[0]}: Wine is missing")
    return expected


def root_with_libc(work, name):
    """A root folder with Debian 11's C library and nothing else."""
    root = os.path.join(work, name)
    shutil.copytree(sysroot(MACHINE), root, symlinks=True)
    for folder in ("proc", "tmp", "dev"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    return root


def test_package(kind, path, work, model, expected):
    root = root_with_libc(work, f"root-{kind}")
    if kind == "deb":
        r = subprocess.run(["dpkg-deb", "-x", path, root], capture_output=True, text=True)
    else:
        r = subprocess.run(f'rpm2cpio "{path}" | (cd "{root}" && cpio -idm --quiet)', shell=True, capture_output=True, text=True)
    if not check(r.returncode == 0, f"{path}: {r.stderr}"):
        return
    shutil.copytree(model, os.path.join(root, "tmp/model"))
    if os.getuid() != 0:
        return skip(f"{os.path.basename(path)}: chroot needs root")
    chroot = Runner(os.path.basename(path), "/", ["chroot", root], path=lambda p: "/tmp/model")
    chroot.folder = "/usr/bin"
    chroot.run = lambda program, *args, timeout=300: subprocess.run(["chroot", root, f"/usr/bin/{program}", *args], env={"HOME": "/tmp"},
                                                                    capture_output=True, text=True, timeout=timeout)
    for program in ("mlxcel", "mlxcel-server"):
        r = chroot.run(program, "--version")
        check(r.returncode == 0 and r.stdout.startswith("mlxcel "), f"{path}: {program} --version: {r.stdout}{r.stderr}")
    r = chroot.run("mlxcel", "generate", "-m", "/tmp/model", "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos", "--precision", "exact", "--device", "cpu")
    check(r.stdout.split() == expected, f"{path}: tokens {r.stdout} {r.stderr}, expected {expected}")
    for name in ("usr/share/man/man1/mlxcel.1.gz", "usr/share/doc/mlxcel/copyright", "usr/share/bash-completion/completions/mlxcel"):
        check(os.path.exists(os.path.join(root, name)), f"{path}: no {name}")


def test_packages(work, model, expected):
    here = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}[MACHINE]
    for name in sorted(os.listdir(DIST)):
        kind = name.rsplit(".", 1)[-1]
        if kind not in ("deb", "rpm"):
            continue
        if here[kind == "rpm"] not in name:
            skip(f"{name}: a package of the other architecture is not installed here; its program ran from the archive")
        elif kind == "rpm" and not (shutil.which("rpm2cpio") and shutil.which("cpio")):
            skip(f"{name}: no rpm2cpio or cpio")
        else:
            test_package(kind, os.path.join(DIST, name), work, model, expected)


def test_installer(work, model, expected):
    names = [n for n in os.listdir(DIST) if n.endswith("-installer.exe")]
    if not names:
        return skip("no installer in dist")
    runner = wine_runner(names[0], work)
    if not runner:
        return skip(f"{names[0]}: Wine is missing")
    target = os.path.join(work, "installed here")
    wine = runner.prefix
    r = subprocess.run([*wine, os.path.join(DIST, names[0]), "/S", "/D=" + runner.path(target)], env=runner.env, capture_output=True, text=True, timeout=300)
    if not check(r.returncode == 0 and os.path.exists(os.path.join(target, "mlxcel.exe")), f"{names[0]}: silent install: {r.returncode} {r.stderr}"):
        return
    installed = wine_runner("installed program", target)
    r = installed.run("mlxcel", "generate", "-m", installed.path(model), "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos", "--precision", "exact", "--device", "cpu")
    check(r.stdout.split() == expected, f"installed program: {r.stdout} {r.stderr}")
    path = subprocess.run([*wine, "reg", "query", r"HKCU\Environment", "/v", "Path"], env=runner.env, capture_output=True, text=True, timeout=120)
    check("installed here" in path.stdout, f"PATH after the installation: {path.stdout}")
    subprocess.run([*wine, os.path.join(target, "uninstall.exe"), "/S", "_?=" + runner.path(target)], env=runner.env, capture_output=True, timeout=300)
    check(not os.path.exists(os.path.join(target, "mlxcel.exe")), "the uninstaller left mlxcel.exe")
    path = subprocess.run([*wine, "reg", "query", r"HKCU\Environment", "/v", "Path"], env=runner.env, capture_output=True, text=True, timeout=120)
    check("installed here" not in path.stdout, f"PATH after the removal: {path.stdout}")


FAKE_GPU = "device=90|NVIDIA H200|143000|142000"
DRIVER_CASES = (
    ("no device", "version=13000", "no NVIDIA GPU|no device|reports no"),
    ("old driver", f"version=11040;{FAKE_GPU}", "old|newer|550"),
    ("uncovered GPU", "version=13000;device=70|Tesla V100|16000|15000", "7.0|V100"),
    ("out of memory", f"version=13000;retain=2;{FAKE_GPU}", "memory"),
)


def test_driver_messages(work):
    """What the program says to each thing that can be wrong with a GPU; the fake driver is one of the test programs' libraries."""
    fake = os.path.join(ROOT, "build/release/fake-driver")
    folders = [f for f in os.listdir(work) if f.startswith(f"linux {MACHINE}")]
    if not os.path.isdir(fake) or not folders:
        return skip("driver messages: no fake driver (make test builds it) or no archive for this machine")
    folder = only_folder(os.path.join(work, folders[0]))
    for name, setting, expected in DRIVER_CASES:
        runner = Runner(name, folder, env={"LD_LIBRARY_PATH": fake, "FAKE_CUDA": setting})
        r = runner.run("mlxcel", "generate", "-p", "Hello", "-n", "2", "--device", "cuda")
        check(r.returncode != 0 and re.search(expected, r.stderr), f"{name}: {r.returncode} {r.stderr.strip()[-300:]}")


def test_sums():
    path = os.path.join(DIST, "SHA256SUMS")
    if not check(os.path.exists(path), "no SHA256SUMS"):
        return
    for line in open(path):
        digest, name = line.split()
        check(hashlib.sha256(open(os.path.join(DIST, name), "rb").read()).hexdigest() == digest, f"sha256 of {name}")


def main():
    if not os.path.isdir(DIST):
        sys.exit(f"test_release: there is no {DIST}; run `make release` first")
    start = time.monotonic()
    test_sums()
    with tempfile.TemporaryDirectory(prefix="mlxcel-release-") as work:
        model = os.path.join(work, "model")
        names = [n for n in os.listdir(DIST) if n.startswith(f"mlxcel-linux-{MACHINE}") and n.endswith(".tar.gz")]
        if not names:
            sys.exit(f"test_release: dist has no archive for linux-{MACHINE}")
        with tarfile.open(os.path.join(DIST, names[0])) as tar:
            tar.extractall(os.path.join(work, "maker"))
        subprocess.run([os.path.join(only_folder(os.path.join(work, "maker")), "mlxcel"), "synth", "--shape", "tiny", "--bits", "4", "-o", model],
                       check=True, capture_output=True)
        expected = test_archives(work, model)
        test_packages(work, model, expected)
        test_installer(work, model, expected)
        test_driver_messages(work)
    print(f"{time.monotonic() - start:.0f} s")
    finish()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
