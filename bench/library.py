#!/usr/bin/env python3
"""What the library costs: generation through mlxcel.h (tests/library/bench.c) against `mlxcel bench`, interleaved.

usage: library.py BUILD [--model MODEL] [--pairs 9] [--new 32] [--threads 1] [--batches 1,16]

BUILD has mlxcel and libmlxcel.so.0. For each batch, pairs of runs, program and library in turn; then the medians of both, and the ratio of the
library's to the program's, by two measures: the wall clock, which other programs on the machine disturb, and the processor time of a run, for
which each process is run with few and with many repeats and the difference taken, so that loading does not count.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FEW, MANY = 1, 5


def run(command):
    """Its output and its processor time."""
    with tempfile.TemporaryFile("w+") as out:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {p.returncode}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime


def measure(command, seconds_of):
    """(wall seconds, processor seconds) of one repeat. command takes the number of repeats."""
    _, few = run(command(FEW))
    text, many = run(command(MANY))
    return statistics.median(seconds_of(text)), (many - few) / (MANY - FEW)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--model", default="built-in")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", default="1,16")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory() as folder:
        ours = os.path.join(folder, "bench")
        subprocess.run(["cc", "-O2", "-o", ours, os.path.join(ROOT, "tests/library/bench.c"), f"-I{ROOT}/include", f"-L{build}", "-lmlxcel",
                        f"-Wl,-rpath,{build}"], check=True)
        for batch in args.batches.split(","):
            def program(n, batch=batch):
                return [os.path.join(build, "mlxcel"), "bench", "-m", args.model, "--device", "cpu", "-t", str(args.threads), "-p", "0",
                        "-n", str(args.new), "-b", batch, "-r", str(n), "-o", "json"]

            def library(n, batch=batch):
                return [ours, args.model, str(args.new), batch, str(n), str(args.threads)]
            rows = {"program": [], "library": []}
            for _ in range(args.pairs):
                rows["program"].append(measure(program, lambda text: json.loads(text)[0]["seconds"]))
                rows["library"].append(measure(library, lambda text: [float(x) for x in text.split()]))
            for i, name in enumerate(("wall clock", "processor time")):
                a, b = (statistics.median(r[i] for r in rows[k]) for k in ("program", "library"))
                print(f"batch {batch:>2}, {name}: program {a * 1000:.1f} ms, library {b * 1000:.1f} ms a run, ratio {b / a:.4f}", flush=True)


main()
