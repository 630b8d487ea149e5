#!/usr/bin/env python3
"""bench/fleet.py: queues whose figures are known in closed form, a server that was measured on an H200, and what `mlxcel bench` writes.

bench/fleet_measure.py, which takes minutes, holds it against a running server; docs/scale.md has its figures.

usage: test_fleet.py PROGRAM      last line: "N passed, N failed"
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(ROOT, "bench")]
from counting import HANG, check, finish  # noqa: E402
import fleet  # noqa: E402

H200 = [os.path.join(ROOT, "bench/results/h200", name) for name in ("decode.csv", "prefill.csv")]
SELECT = "version=one commit with --verify|and attention, dequantisation beside products;shape=llama-3.1-8b;bits=4"


def near(a, b, share):
    return abs(a - b) <= share * abs(b)


def options(*words):
    return fleet.parser().parse_args(["-", *map(str, words)])


def check_line():
    line = fleet.Line({1: 10, 3: 20, 5: 60})
    check([line(x) for x in (1, 2, 3, 4, 5)] == [10, 15, 20, 40, 60], "points and between them")
    check(line(7) == 100 and line(0) == 5 and fleet.Line({4: 9})(100) == 9, "beyond them")


def check_queues():
    """One place and prompts of one token: a queue with one server. Its time is 1 for each request, of which the answer has one token."""
    one = fleet.Times({1: 1.0, 2: 1.0}, {1: {1: 1.0}})
    for rate in (0.3, 0.7):
        done, replicas = fleet.simulate(one, options("--places", 1, "--new", 1, "--prompts", "1,1", "--rate", rate, "--requests", 20000))
        waits = [r.first - r.at - 1 for r in done]
        check(near(sum(waits) / len(waits), rate / (2 * (1 - rate)), 0.05), f"M/D/1 at {rate}: waits {sum(waits) / len(waits)}, {rate / (2 * (1 - rate))} in theory")
        check(near(replicas[0].busy / done[-1].end, rate, 0.03), "it is busy for its share")
    rows = fleet.Times({1: 0.0, 2: 0.0}, {1: {1: 1.0, 4: 1.6}})
    done, _ = fleet.simulate(rows, options("--places", 4, "--new", 11, "--prompts", "1,1", "--requests", 400))
    check(near(len(done) / done[-1].end, 4 / (10 * 1.6), 0.01), f"four at once: {len(done) / done[-1].end} requests a second")
    prompts = fleet.Times({100: 2.0, 200: 4.0}, {1: {1: 1.0}})
    done, _ = fleet.simulate(prompts, options("--places", 1, "--new", 5, "--prompts", "150,150", "--requests", 10))
    check(all(near(r.first - r.at, 3.0, 1e-9) and near(r.end - r.first, 4.0, 1e-9) for r in done), "a prompt, then tokens")


def check_steps():
    """Rows of prompts are cut by --batch-size, and by --max-step-ms while others write."""
    times = fleet.Times({100: 1.0, 200: 2.0}, {1: {1: 0.5, 64: 0.5}})
    r = fleet.Replica(times, options("--batch-size", 64, "--max-step-ms", 0))
    r.running = [fleet.Request(0, 100, 2, 0), fleet.Request(0, 100, 2, 1)]
    check([n for _, n in r.chunks(0, 0)] == [64], "as many rows as a step has")
    r.args = options("--batch-size", 512, "--max-step-ms", 800)
    check([n for _, n in r.chunks(0, 0)] == [100, 100], "nobody writes: as long as it takes")
    check(sum(n for _, n in r.chunks(1, 0)) <= 16 + 30 and len(r.chunks(1, 0)) == 2, f"somebody writes: {[n for _, n in r.chunks(1, 0)]}")


def check_fleet():
    """Replicas add up; conversations that stay where they are find their prompts in the cache."""
    times = fleet.read_times(H200, SELECT)
    one, four = (fleet.figures(*fleet.simulate(times, options("--replicas", n, "--seconds", 10)))["all"]["requests_s"] for n in (1, 4))
    check(near(four, 4 * one, 0.05), f"four replicas: {four} requests a second, one: {one}")
    first = {name: fleet.figures(*fleet.simulate(times, options("--replicas", 8, "--rate", 120, "--requests", 1600, "--router", name, "--sessions", 400, "--known", 1500)))["whole_s"]["mean"]
             for name in fleet.ROUTERS}
    check(first["session"] < 0.9 * first["random"], f"time of an answer by router: {first}")
    few = fleet.smallest(times, options("--rate", 60, "--first-ms", 400, "--requests", 600))
    less = fleet.figures(*fleet.simulate(times, options("--rate", 60, "--replicas", few["replicas"] - 1, "--requests", 600)))
    check(few["first_ms"]["p99"] <= 400 and (less["first_ms"]["p99"] > 400 or less["requests_s"] <= 54), f"{few['replicas']} replicas suffice, one less does not: {few} {less}")


def check_h200():
    """The server under 64 clients, recorded in poisson.json: the same lengths, places and 20 seconds."""
    with open(os.path.join(ROOT, "bench/results/h200/poisson.json"), encoding="utf-8") as f:
        measured = next(r for r in json.load(f) if r["shape"] == "llama-3.1-8b" and r["options"] == "--max-step-ms 0")
    args = options("--seconds", 20, "--max-step-ms", 0, "--new", measured["new"], "--prompts", measured["prompts"])
    got = fleet.figures(*fleet.simulate(fleet.read_times(H200, SELECT), args))["all"]["requests_s"]
    print(f"8B on an H200, 64 clients: {got} requests a second predicted, {measured['saturated_per_s']} measured")
    check(near(got, measured["saturated_per_s"], 0.1), "within 10 %")


def check_bench(program):
    """What the program writes is read, by either clock; the command line answers in JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "times.json")
        with open(path, "w", encoding="utf-8") as f:
            subprocess.run([program, "bench", "-m", "built-in", "-p", "8,32", "-n", "8", "-b", "1,4", "-r", "1", "-o", "json"], stdout=f, stderr=subprocess.DEVNULL, check=True, timeout=HANG)
        cases = json.load(open(path, encoding="utf-8"))
        for clock in ("seconds", "cpu_seconds"):
            times = fleet.read_times([path], key=clock)
            want = next(c[clock][0] / 8 for c in cases if c["n_gen"] == 8 and c["batch"] == 4)
            check(near(times.step(4, 4, []), want, 1e-9), f"a step of four rows by {clock}")
        command = [sys.executable, os.path.join(ROOT, "bench/fleet.py"), path, "--prompts", "8,32", "--new", "8", "--places", "4", "--requests", "200"]
        out = subprocess.run([*command, "--replicas", "2"], capture_output=True, text=True, check=False, timeout=HANG)
        check(out.returncode == 0 and json.loads(out.stdout)["replicas"] == 2 and json.loads(out.stdout)["tok_s"] > 0, f"{out.stdout} {out.stderr}")
        with open(path, "w", encoding="utf-8") as f:
            json.dump([c for c in cases if c["n_gen"]], f)
        out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
        check(out.returncode == 1 and "lengths of prompts" in out.stderr, f"times without prompts: {out.stderr}")


def main():
    check_line()
    check_queues()
    check_steps()
    check_fleet()
    check_h200()
    check_bench(os.path.abspath(sys.argv[1]))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
