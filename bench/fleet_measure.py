#!/usr/bin/env python3
"""fleet.py held against a server: its step times are measured, then its load; the same requests are simulated, and both are printed.

usage: fleet_measure.py MLXCEL MODEL [--rounds 3] [--share 0.7] [--requests 60] [--prompts 16,128] [--new 32] [--places 8] [--out FILE]

One thread computes, and time is processor time: of the server while it has something to do, of the clock while it has not. So the figures are those of a
machine that nobody else uses, also where others do. The simulation gets each request when the server got it, by this time. Calibration and load take
turns; each round is predicted by its own calibration.

Two loads: as many clients as there are places, each asking again when it is answered; and a Poisson process at a share of the rate that the first reached.
Answers come whole, so that the threads of HTTP have next to nothing to do.
"""
import http.client
import json
import os
import queue
import random
import statistics
import subprocess
import tempfile
import threading
import time

import fleet
import options
import server_compare

VOCAB = 3000  # ids below this are in every model's vocabulary


class Clock:
    """Seconds of a server's work: see above. `enter` and `leave` a request."""

    def __init__(self, pid):
        self.pid, self.now, self.n_open, self.lock, self.over = pid, 0.0, 0, threading.Lock(), False
        self.cpu, self.wall = self.read_cpu(), time.monotonic()
        threading.Thread(target=self.run, daemon=True).start()

    def read_cpu(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/schedstat", encoding="ascii") as f:
                    total += int(f.read().split()[0])
            except OSError:
                pass  # a thread that has just ended
        return total * 1e-9

    def tick(self):
        with self.lock:
            cpu, wall = self.read_cpu(), time.monotonic()
            self.now += cpu - self.cpu if self.n_open else wall - self.wall
            self.cpu, self.wall = cpu, wall
            return self.now

    def change(self, n):
        now = self.tick()
        with self.lock:
            self.n_open += n
        return now

    def run(self):
        while not self.over:
            self.tick()
            time.sleep(0.0005)


def ask(port, clock, r, dice):
    body = {"prompt": [dice.randrange(10, VOCAB) for _ in range(r.n_prompt)], "max_tokens": r.n_new, "ignore_eos": True, "temperature": 0}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    data = json.dumps(body)
    r.at = clock.change(1)
    connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    got = json.loads(answer.read())
    r.end = clock.change(-1)
    connection.close()
    if answer.status != 200 or got["usage"]["completion_tokens"] != r.n_new:
        raise SystemExit(f"an answer is not whole: {answer.status} {got}")


def saturated(port, clock, args, requests, dice):
    todo = queue.SimpleQueue()
    for r in requests:
        todo.put(r)

    def client(seed):
        own = random.Random(seed)
        while not todo.empty():
            ask(port, clock, todo.get(), own)
    threads = [threading.Thread(target=client, args=(dice.random(),)) for _ in range(args.places)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def poisson(port, clock, args, requests, dice):
    threads, start = [], clock.tick()
    for r in requests:
        while clock.now - start < r.at:
            time.sleep(0.0003)
        threads.append(threading.Thread(target=ask, args=(port, clock, r, random.Random(dice.random()))))
        threads[-1].start()
    for t in threads:
        t.join()


def calibrate(args):
    """Steps as bench measures them, by processor time."""
    half = max(int(args.prompts.split(",")[1]) // 2, 16)
    common = [args.mlxcel, "bench", "-m", args.model, "--device", "cpu", "--threads", "1", "-r", "3", "-o", "json"]
    rows = [b for b in (1, 2, 4, 8, 16, 32, 64) if b <= args.places]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, case in enumerate((["-p", f"1,8,32,{half},{half * 2}", "-n", "0"], ["-p", "0", "-n", "16", "-b", ",".join(map(str, rows)), "-d", f"8,{half * 2}"])):
            paths.append(os.path.join(folder, f"{i}.json"))
            with open(paths[-1], "w", encoding="utf-8") as f:
                subprocess.run([*common, *case], stdout=f, stderr=subprocess.DEVNULL, check=True)
        return fleet.read_times(paths, key="cpu_seconds")


def simulated(times, args, requests, rate):
    """The same requests as the server had them."""
    copies = [fleet.Request(r.at, r.n_prompt, r.n_new, i) for i, r in enumerate(requests)]
    given = fleet.parser().parse_args(["-", "--places", str(args.places), "--batch-size", "512", "--max-step-ms", "0", "--rate", str(rate), "--requests", str(len(copies))])
    return fleet.simulate(times, given, sorted(copies, key=lambda r: r.at) if rate else copies)[0]


def means(requests):
    return statistics.fmean(r.end - r.at for r in requests), len(requests) / (max(r.end for r in requests) - min(r.at for r in requests))


def make(args, dice, rate):
    given = fleet.parser().parse_args(["-", "--rate", str(rate), "--requests", str(args.requests), "--prompts", args.prompts, "--new", str(args.new)])
    return list(fleet.arrivals(given, dice))


def run_round(args, server, clock, seed):
    dice, found = random.Random(seed), {}
    times = calibrate(args)
    for name, load in (("saturated", saturated), ("poisson", poisson)):
        rate = args.share * found["saturated"]["measured"]["requests_s"] if name == "poisson" else 0
        requests = make(args, dice, rate)
        load(server.port, clock, args, requests, dice)
        (whole, per_s), (sim_whole, sim_per_s) = means(requests), means(simulated(times, args, requests, rate))
        found[name] = {"measured": {"requests_s": round(per_s, 3), "whole_s": round(whole, 4)}, "predicted": {"requests_s": round(sim_per_s, 3), "whole_s": round(sim_whole, 4)},
                       "ratio": {"requests_s": round(sim_per_s / per_s, 3), "whole_s": round(sim_whole / whole, 3)}}
        print(json.dumps({"load": name, **found[name]}), flush=True)
    return found


def main():
    args = options.read(__doc__, "mlxcel", "model", rounds=3, share=0.7, requests=60, prompts="16,128", new=32, places=8, out=None)
    command = [args.mlxcel, "serve", "-m", args.model, "--device", "cpu", "--threads", "1", "--parallel", args.places, "--batch-size", "512", "--max-step-ms", "0", "--max-queue-depth", "10000", "--log-level", "warning"]
    server = server_compare.Server("mlxcel-server", command, "x")
    clock = Clock(server.process.pid)
    try:
        rounds = [run_round(args, server, clock, i) for i in range(args.rounds)]
    finally:
        clock.over = True
        time.sleep(0.1)
        server.close()
    ratios = {name: {key: statistics.median(r[name]["ratio"][key] for r in rounds) for key in ("requests_s", "whole_s")} for name in ("saturated", "poisson")}
    print(json.dumps({"predicted / measured, medians": ratios}))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump({"model": os.path.basename(args.model), "places": args.places, "prompts": args.prompts, "new": args.new, "rounds": rounds, "ratios": ratios}, f, indent=1)


if __name__ == "__main__":
    main()
