#!/usr/bin/env python3
"""What the library costs: generation through mlxcel.h (tests/library/bench.c) against `mlxcel bench`, interleaved.

usage: library.py BUILD [--model MODEL] [--pairs 9] [--new 32] [--threads 1] [--batches 1,16]

BUILD has mlxcel and libmlxcel.so.0. For each batch, pairs of runs, program and library in turn, a few repeats in each; then the medians of both, and the ratio
of the library's to the program's, by two measures: the wall clock, which other programs on the machine disturb, and the processor time of all threads.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPEATS = 5


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


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
            program = [os.path.join(build, "mlxcel"), "bench", "-m", args.model, "--device", "cpu", "-t", str(args.threads), "-p", "0",
                       "-n", str(args.new), "-b", batch, "-r", str(REPEATS), "-o", "json"]
            library = [ours, args.model, str(args.new), batch, str(REPEATS), str(args.threads)]
            rows = {"program": [], "library": []}
            for _ in range(args.pairs):
                result = json.loads(run(program))[0]
                rows["program"].append([statistics.median(result[k]) for k in ("seconds", "cpu_seconds")])
                lines = [[float(x) for x in line.split()] for line in run(library).splitlines()]
                rows["library"].append([statistics.median(column) for column in zip(*lines)])
            for i, name in enumerate(("wall clock", "processor time")):
                a, b = (statistics.median(r[i] for r in rows[k]) for k in ("program", "library"))
                print(f"batch {batch:>2}, {name}: program {a * 1000:.1f} ms, library {b * 1000:.1f} ms a run, ratio {b / a:.4f}", flush=True)


main()
