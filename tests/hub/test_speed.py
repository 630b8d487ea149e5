#!/usr/bin/env python3
"""A large file from a hub on this machine: memory is bounded, whatever the file's size.

The speed is printed beside that of curl on the same address, and not judged. The two take turns, so that what else the machine does
meets both; the figure is the median of the rounds' shares.

usage: test_speed.py PROGRAM [--megabytes N] [--rounds N] [--folder DIR]      last line: "N passed, N failed"
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from fakehub import Hub

MEMORY_MIB = 64


def serve(folders, pipe):
    """The hub in a process of its own, so that its interpreter takes no time from the clock of this one."""
    hub = Hub()
    for name, folder in folders.items():
        hub.add(name, folder)
    os.write(pipe, f"{hub.url} {hub.second}\n".encode())
    while True:
        time.sleep(3600)


def write_file(folder, megabytes):
    os.makedirs(folder)
    piece = os.urandom(1 << 20)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        for i in range(megabytes):
            f.write(i.to_bytes(8, "little") + piece[8:])


def time_curl(url, folder):
    target = os.path.join(folder, "curl")
    start = time.monotonic()
    subprocess.run(["curl", "-s", "-o", target, url], check=True)
    seconds = time.monotonic() - start
    os.remove(target)
    return seconds


def download(program, url, repo, folder, megabytes):
    """Seconds, and the most memory that the process ever had, in MiB; None where the download failed."""
    home = os.path.join(folder, "home")
    start, most = time.monotonic(), 0
    p = subprocess.Popen([program, "download", repo, "-q"], env={**os.environ, "MLXCEL_HOME": home, "HF_ENDPOINT": url},
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while p.poll() is None:
        try:
            with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
                most = max([most] + [int(line.split()[1]) // 1024 for line in f if line.startswith("VmHWM:")])
        except OSError:
            pass
        time.sleep(0.02)
    seconds = time.monotonic() - start
    path = os.path.join(home, "models", repo, "model.safetensors")
    good = p.returncode == 0 and os.path.getsize(path) == megabytes << 20
    if not good:
        print(f"FAILED download: {p.returncode} {p.stderr.read()}")
    shutil.rmtree(home, ignore_errors=True)
    return (seconds, most) if good else None


def measure(args, folder, url, second):
    shares, memory = [], []
    for _ in range(args.rounds):
        curl = time_curl(f"{second}/blob/acme/large/model.safetensors", folder)
        got = download(args.program, url, "acme/large", folder, args.megabytes)
        if not got:
            return 0, 1 << 20
        shares.append(curl / got[0])
        memory.append(got[1])
        print(f"  curl {args.megabytes / curl:.0f} MiB/s, mlxcel {args.megabytes / got[0]:.0f} MiB/s, {100 * shares[-1]:.0f} %, {got[1]} MiB", flush=True)
    return statistics.median(shares), max(memory)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where the files lie; else the system's folder for such things")
    args = parser.parse_args()
    if not shutil.which("curl"):
        print("skipped: there is no curl to compare with\n0 passed, 0 failed, 1 skipped")
        return 0
    folder = tempfile.mkdtemp(prefix="mlxcel-speed-", dir=args.folder)
    folders = {"acme/large": os.path.join(folder, "large"), "acme/small": os.path.join(folder, "small")}
    write_file(folders["acme/large"], args.megabytes)
    write_file(folders["acme/small"], args.megabytes // 8)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        serve(folders, writer)
    try:
        url, second = os.read(reader, 1000).decode().split()
        small = download(args.program, url, "acme/small", folder, args.megabytes // 8)
        share, memory = measure(args, folder, url, second)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        shutil.rmtree(folder)
    flat = small is not None and memory <= MEMORY_MIB and memory - small[1] <= 16
    print(f"{args.megabytes} MiB at {100 * share:.0f} % of curl's speed (median of {args.rounds}); memory {memory} MiB, "
          f"for an eighth of the file {small and small[1]} MiB")
    print(f"{int(flat)} passed, {int(not flat)} failed")
    return int(not flat)


if __name__ == "__main__":
    sys.exit(main())
