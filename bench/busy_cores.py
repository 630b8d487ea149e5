#!/usr/bin/env python3
"""How threads do on cores that others want, too: generation with each number of threads in turn, while other processes keep cores busy.

Every round runs each program with each number of threads once, in another order each time, so that whatever else the machine does meets
all of them alike. The table has the median, the least and the most tokens per second, and the median of the rounds' ratios to the first
number of threads. Several programs (one before a change, one after) are compared in the same rounds.

usage: busy_cores.py MLXCEL [MLXCEL ...] [--shape NAME] [--threads 1,2] [--busy N] [-n 24] [--rounds 7] [--least RATIO] [--apart]

--busy N     processes that do nothing but compute; 0 measures the machine at rest (default: as many as there are processors)
--least R    exit code 1 when the last program's ratio for the largest number of threads is below R
--apart      where others work on the machine, too: all that is started here is a session of its own that comes before theirs, so that the
             load is the one that --busy makes (Linux with autogroups, root). They stand still meanwhile: few rounds, few tokens
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def measure(program, args, threads):
    command = [program, "bench", "--shape", args.shape, "--device", "cpu", "-t", str(threads), "-p", "0", "-n", str(args.n), "-r", "1", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)[0]["tok_s"]


def stand_apart():
    """Linux shares processors among sessions first, and within each among its processes."""
    if os.getpid() != os.getpgrp():
        os.setsid()
    elif os.getsid(0) != os.getpid():
        sys.exit("--apart: start it by `setsid -w python3 bench/busy_cores.py ...`: the leader of a group cannot begin a session")
    try:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")
    except OSError as e:
        sys.exit(f"--apart: {e}")


def run_rounds(args, cases):
    found = {case: [] for case in cases}
    for i in range(args.rounds):
        turn = cases[i % len(cases):] + cases[:i % len(cases)]
        for program, threads in turn if i % 2 == 0 else turn[::-1]:
            found[program, threads].append(measure(program, args, threads))
        print(f"round {i + 1} of {args.rounds}, load {os.getloadavg()[0]:.1f}: " +
              ", ".join(f"{found[case][-1]:.1f}" for case in cases), file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="MLXCEL")
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--busy", type=int, default=os.cpu_count())
    parser.add_argument("-n", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float)
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    if args.apart:
        stand_apart()
    threads = [int(t) for t in args.threads.split(",")]
    cases = [(p, t) for p in args.programs for t in threads]
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
    try:
        found = run_rounds(args, cases)
    finally:
        for p in others:
            p.kill()
            p.wait()
    print(f"{args.shape}, {os.cpu_count()} processors, {args.busy} kept busy, {args.rounds} rounds of {args.n} tokens\n")
    print("| program | threads | tok/s | least | most | ratio |\n|---|---|---|---|---|---|")
    for program, t in cases:
        speeds = found[program, t]
        ratio = statistics.median(a / b for a, b in zip(speeds, found[program, threads[0]]))
        print(f"| {program} | {t} | {statistics.median(speeds):.1f} | {min(speeds):.1f} | {max(speeds):.1f} | {ratio:.2f} |")
    return args.least is not None and ratio < args.least


sys.exit(main())
