#!/usr/bin/env python3
"""A large file from a hub on this machine, against curl on the same address: speed with hashing, and memory.

usage: test_speed.py PROGRAM [--megabytes N] [--rounds N]      last line: "N passed, N failed"
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from fakehub import Hub


def serve(folder, pipe):
    """The hub in a process of its own, so that its interpreter takes no time from the clock of this one."""
    hub = Hub()
    hub.add("acme/large", folder)
    os.write(pipe, f"{hub.url} {hub.second}\n".encode())
    while True:
        time.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if not shutil.which("curl"):
        print("skipped: there is no curl to compare with\n0 passed, 0 failed, 1 skipped")
        return 0
    folder = tempfile.mkdtemp(prefix="mlxcel-speed-")
    source = os.path.join(folder, "source")
    os.makedirs(source)
    piece = os.urandom(1 << 20)
    with open(os.path.join(source, "model.safetensors"), "wb") as f:
        for i in range(args.megabytes):
            f.write(i.to_bytes(8, "little") + piece[8:])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        serve(source, writer)
    url, second = os.read(reader, 1000).decode().split()
    times, memory = {"curl": [], "mlxcel": []}, 0
    failed = 0
    try:
        for i in range(args.rounds):
            target = os.path.join(folder, f"curl{i}")
            start = time.time()
            subprocess.run(["curl", "-s", "-o", target, f"{second}/blob/acme/large/model.safetensors"], check=True)
            times["curl"].append(time.time() - start)
            os.remove(target)
            home = os.path.join(folder, f"home{i}")
            start = time.time()
            env = {**os.environ, "MLXCEL_HOME": home, "HF_ENDPOINT": url}
            r = subprocess.run([args.program, "download", "acme/large", "-q"], env=env, capture_output=True, text=True)
            times["mlxcel"].append(time.time() - start)
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            if r.returncode or os.path.getsize(os.path.join(home, "models/acme/large/model.safetensors")) != args.megabytes << 20:
                print(f"FAILED download: {r}")
                failed += 1
            shutil.rmtree(home)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        shutil.rmtree(folder)
    best = {k: min(v) for k, v in times.items()}
    share = best["curl"] / best["mlxcel"]
    print(f"{args.megabytes} MiB: curl {args.megabytes / best['curl']:.0f} MiB/s, mlxcel {args.megabytes / best['mlxcel']:.0f} MiB/s "
          f"({share * 100:.0f} %), most memory of a process {memory / 1024:.0f} MiB; all times {times}")
    failed += share < 0.8
    failed += memory > 200 * 1024
    print(f"{3 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
