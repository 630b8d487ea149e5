#!/usr/bin/env python3
"""Models larger than the card: the CPU alone beside a GPU of which only so much memory may be taken.

Makes the shape (no files are needed), runs `mlxcel bench` for the CPU alone and for each limit, one after the other and again from the start
in every round, so that what else the machine does meets all of them, and prints the medians as a table. Generation and prompts, in tokens per
second; times are those of the CPU alone.

usage: large.py PROGRAM [--shape qwen3-30b-a3b] [--limits 4G,8G,12G] [--prompt 2048] [--new 64] [--rounds 3] [--threads N] [--layers N]
"""
import argparse
import json
import statistics
import subprocess
import sys


def measure(args, extra):
    """Tokens per second of the prompt and of generation, and what the program says of where it runs."""
    command = [args.program, "bench", "--shape", args.shape, "-p", str(args.prompt), "-n", str(args.new), "-b", "1", "-o", "json", *extra]
    if args.threads:
        command += ["--threads", str(args.threads)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")
    rows = json.loads(run.stdout)
    rate = {bool(row["n_gen"]): row["tok_s"] for row in rows}
    return rate.get(False, 0), rate.get(True, 0), rows[0]["model"]


def print_table(ways, seen, where):
    """Medians; times are those of the first way, which is the CPU alone."""
    medians = {name: [statistics.median(r[i] for r in seen[name]) for i in (0, 1)] for name, _ in ways}
    first = medians[ways[0][0]]
    print(f"| {'memory':10} | prompt tok/s | times | generation tok/s | times | where |")
    print("|---|---|---|---|---|---|")
    for name, _ in ways:
        prompt, new = medians[name]
        times = [f"{value / base:.2f}x" if base else "-" for value, base in zip((prompt, new), first)]
        place = where[name].split(": ")[-1] if " layers on the GPU" in where[name] else "one device"
        print(f"| {name:10} | {prompt:.1f} | {times[0]} | {new:.1f} | {times[1]} | {place} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--shape", default="qwen3-30b-a3b")
    parser.add_argument("--limits", default="4G,8G,12G")
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--layers", default="", help="a fixed --gpu-layers beside the limits")
    args = parser.parse_args()
    ways = [("CPU", ["--device", "cpu"])]
    ways += [(limit, ["--device", "cuda", "--gpu-memory", limit]) for limit in args.limits.split(",") if limit]
    if args.layers:
        ways.append((f"{args.layers} layers", ["--device", "cuda", "--gpu-layers", args.layers]))
    seen = {name: [] for name, _ in ways}
    where = {}
    for _ in range(args.rounds):
        for name, extra in ways:
            prompt, new, where[name] = measure(args, extra)
            seen[name].append((prompt, new))
    print_table(ways, seen, where)


main()
