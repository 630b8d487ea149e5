#!/usr/bin/env python3
"""How much n replicas of mlxcel-server can do: a simulation of their steps, fed by measured times.

usage: fleet.py TIMES... [--replicas 1] [--rate 10] [...]   what becomes of arrivals at this rate (requests a second; 0: as many as there are places for)
       fleet.py TIMES... --rate 300 --first-ms 500          how many replicas keep the time to the first token below this, for 99 of 100 requests

TIMES: what `mlxcel bench -o json` wrote, prompts and generations, one file or several; or CSV tables of bench/results with --select
"version=...;shape=...;bits=4", several values with "|" between them. bench/fleet_measure.py holds the predictions against a server.

How it works: a replica computes steps. A step has one row for each request that writes, and behind them rows of prompts, up to --batch-size, cut so that
the step keeps below --max-step-ms (0: any) while somebody writes; requests beyond --places wait in order. The time of a step is that of its generated
rows, by number and context, and what the rows of its prompts add to that: both between measured points in straight lines. The network, HTTP and the
balancer take no time. Requests come by a Poisson process; lengths of prompts are log-uniform, answers have --new tokens. With --sessions, each request
belongs to one of so many conversations, and --known tokens of its prompt are in the cache of the replica that had the conversation last.
"""
import argparse
import bisect
import csv
import heapq
import json
import math
import random
import statistics
import zlib


class Line:
    """Straight lines between measured points, and on beyond them."""

    def __init__(self, points):
        self.x, self.y = zip(*sorted(points.items()))

    def __call__(self, x):
        if len(self.x) == 1:
            return self.y[0]
        i = min(max(bisect.bisect_left(self.x, x), 1), len(self.x) - 1)
        slope = (self.y[i] - self.y[i - 1]) / (self.x[i] - self.x[i - 1])
        return self.y[i - 1] + slope * (x - self.x[i - 1])


class Times:
    """Seconds of steps. prompts: {tokens: seconds}; decode: {context: {rows: seconds}}."""

    def __init__(self, prompts, decode):
        if len(prompts) < 2 or not decode:
            raise SystemExit("the times have no generations or less than two lengths of prompts: mlxcel bench -p 16,64,256 -n 64 -b 1,4,16 -o json")
        self.prompt, self.decode = Line(prompts), {c: Line(rows) for c, rows in sorted(decode.items())}
        self.fixed = max(self.prompt(0), 0)  # of a step with rows of prompts alone

    def step(self, n_rows, context, chunks):
        """chunks: (tokens that were read before, tokens) of the prompts in this step."""
        more = sum(self.prompt(before + n) - self.prompt(before) for before, n in chunks)
        if n_rows == 0:
            return self.fixed + more
        return Line({c: line(n_rows) for c, line in self.decode.items()})(context) + more


def read_bench(path, key):
    """What bench wrote: `key` is seconds or cpu_seconds."""
    prompts, decode = {}, {}
    with open(path, encoding="utf-8") as f:
        for c in json.load(f):
            seconds = statistics.median(c[key])
            if c["n_prompt"] and c["batch"] == 1 and c["depth"] == 0:
                prompts[c["n_prompt"]] = seconds
            elif c["n_gen"]:
                decode.setdefault(c["depth"] + c["n_gen"] / 2, {})[c["batch"]] = seconds / c["n_gen"]
    return prompts, decode


def read_table(path, select):
    """Rows of a table of bench/results, those that came later in place of earlier ones. Its answers have 128 tokens."""
    prompts, decode = {}, {}
    with open(path, encoding="utf-8") as f:
        for row in csv.DictReader(line for line in f if not line.startswith("#")):
            if not all(row.get(k) in v.split("|") for k, v in select.items()):
                continue
            if "prompt" in row:
                prompts[int(row["prompt"])] = int(row["prompt"]) / float(row["tok_s"])
            else:
                decode.setdefault(int(row["depth"]) + 64, {})[int(row["batch"])] = int(row["batch"]) / float(row["tok_s"])
    return prompts, decode


def read_times(paths, select="", key="seconds"):
    chosen = dict(pair.split("=", 1) for pair in select.split(";")) if select else {}
    prompts, decode = {}, {}
    for path in paths:
        p, d = read_table(path, chosen) if path.endswith(".csv") else read_bench(path, key)
        prompts.update(p)
        for context, rows in d.items():
            decode.setdefault(context, {}).update(rows)
    return Times(prompts, decode)


class Request:
    def __init__(self, at, n_prompt, n_new, session):
        self.at, self.n_prompt, self.n_new, self.session = at, n_prompt, n_new, session
        self.n_read = self.n_made = 0
        self.first = self.end = None


class Replica:
    def __init__(self, times, args):
        self.times, self.args = times, args
        self.waiting, self.running, self.known, self.busy, self.n_steps, self.n_rows = [], [], set(), 0.0, 0, 0
        self.plan = None

    def n_open(self):
        return len(self.waiting) + len(self.running)

    def chunks(self, n_rows, context):
        """(request, tokens): prompts in order, as far as rows and time allow. While others write, a chunk has at least 16 tokens."""
        room, found = self.args.batch_size - n_rows, []
        for r in self.running:
            n = min(r.n_prompt - r.n_read, room)
            if n <= 0:
                continue
            if n_rows and self.args.max_step_ms:
                while n > 16 and self.times.step(n_rows, context, [(q.n_read, m) for q, m in found] + [(r.n_read, n)]) * 1000 > self.args.max_step_ms:
                    n = max(16, n * 3 // 4)
            found.append((r, n))
            room -= n
        return found

    def begin(self):
        """Plans the next step; its seconds, or None where there is nothing to do."""
        while self.waiting and len(self.running) < self.args.places:
            r = self.waiting.pop(0)
            if r.session in self.known:
                r.n_read = min(self.args.known, r.n_prompt - 1)
            self.known.add(r.session)
            self.running.append(r)
        writing = [r for r in self.running if r.n_read == r.n_prompt]
        context = sum(r.n_prompt + r.n_made for r in writing) / max(len(writing), 1)
        reading = self.chunks(len(writing), context)
        if not writing and not reading:
            return None
        seconds = self.times.step(len(writing), context, [(r.n_read, n) for r, n in reading])
        self.plan = writing, reading
        self.busy, self.n_steps, self.n_rows = self.busy + seconds, self.n_steps + 1, self.n_rows + len(writing)
        return seconds

    def finish(self, now):
        """The requests that ended with this step."""
        writing, reading = self.plan
        for r, n in reading:
            r.n_read += n
        for r in writing + [r for r, _ in reading if r.n_read == r.n_prompt]:
            r.n_made += 1
            r.first = r.first or now
            r.end = now if r.n_made == r.n_new else None
        done = [r for r in self.running if r.end]
        self.running = [r for r in self.running if not r.end]
        self.plan = None
        return done


def by_random(fleet, r, dice):
    return dice.choice(fleet)


def by_least(fleet, r, dice):
    """The one of two that has less to do: what balancers that count connections come to."""
    return min(dice.choice(fleet), dice.choice(fleet), key=Replica.n_open)


def by_session(fleet, r, dice):
    """Where the conversation was, unless that has 1.5 times its share; then the next one."""
    most = math.ceil(1.5 * (sum(map(Replica.n_open, fleet)) + 1) / len(fleet))
    i = zlib.crc32(str(r.session).encode()) % len(fleet)
    return next(fleet[(i + k) % len(fleet)] for k in range(len(fleet)) if fleet[(i + k) % len(fleet)].n_open() < most)


ROUTERS = {"random": by_random, "least": by_least, "session": by_session}


def arrivals(args, dice):
    low, high = map(int, args.prompts.split(","))
    at = 0.0
    for _ in range(args.requests):
        at += dice.expovariate(args.rate) if args.rate else 0
        yield Request(at, round(math.exp(dice.uniform(math.log(low), math.log(high)))), args.new, dice.randrange(args.sessions) if args.sessions else dice.random())


def simulate(times, args, requests=None):
    """(requests in the order of their ends, replicas); requests: others than args says. Without a rate, each replica always has as many as it has places, for --seconds."""
    dice = random.Random(args.seed)
    fleet = [Replica(times, args) for _ in range(args.replicas)]
    coming = list(requests if requests is not None else arrivals(args, dice))
    if not args.rate:
        starts, coming = coming[:args.places * args.replicas], coming[args.places * args.replicas:][::-1]
    else:
        starts, coming = coming, []
    heap = [(r.at, i, r) for i, r in enumerate(starts)]
    heapq.heapify(heap)
    n, done = len(heap), []

    def come_back(replica, when):
        nonlocal n
        n += 1
        heapq.heappush(heap, (when, n, replica))

    def take(r, now):
        replica = ROUTERS[args.router](fleet, r, dice) if args.rate else min(fleet, key=Replica.n_open)
        r.at = now
        replica.waiting.append(r)
        if not replica.plan and replica.n_open() == 1:
            come_back(replica, now)  # when all that come at this time are there
    while heap:
        now, _, what = heapq.heappop(heap)
        if isinstance(what, Request):
            take(what, now)
            continue
        ended = what.finish(now) if what.plan else []
        done += ended
        for _ in ended:
            if coming and not 0 < args.seconds < now:
                r = coming.pop()
                r.at = now
                what.waiting.append(r)
        seconds = what.begin()
        if seconds is not None:
            come_back(what, now + seconds)
    return done, fleet


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def figures(done, fleet):
    """Of the middle half of the requests: the fleet has filled by then, and has not yet emptied."""
    span, most = done[-1].end, len(done)
    middle = sorted(done, key=lambda r: r.end)[most // 4:most * 3 // 4] or done
    seconds = middle[-1].end - middle[0].end or span
    first, gaps = [r.first - r.at for r in middle], [(r.end - r.first) / max(r.n_new - 1, 1) for r in middle]
    return {"requests_s": round((len(middle) - 1) / seconds, 3), "tok_s": round((len(middle) - 1) * middle[0].n_new / seconds, 1),
            "first_ms": {"p50": round(at(first, 0.5) * 1000, 1), "p99": round(at(first, 0.99) * 1000, 1)},
            "gap_ms": {"p50": round(at(gaps, 0.5) * 1000, 2), "p99": round(at(gaps, 0.99) * 1000, 2)},
            "whole_s": {"mean": round(statistics.fmean(r.end - r.at for r in middle), 4), "p99": round(at([r.end - r.at for r in middle], 0.99), 4)},
            "all": {"requests": most, "seconds": round(span, 3), "requests_s": round(most / span, 3)},
            "busy": round(sum(f.busy for f in fleet) / (span * len(fleet)), 3), "rows_a_step": round(sum(f.n_rows for f in fleet) / max(sum(f.n_steps for f in fleet), 1), 2)}


def smallest(times, args):
    """The fewest replicas that keep --first-ms: doubled until it holds, then halved in between."""
    def holds(n):
        args.replicas = n
        got = figures(*simulate(times, args))
        return got if got["first_ms"]["p99"] <= args.first_ms and got["requests_s"] > 0.9 * args.rate else None
    low, high = 0, 1
    while not (best := holds(high)):
        low, high = high, high * 2
        if high > 4096:
            raise SystemExit(f"4096 replicas do not keep {args.first_ms} ms: one request alone may take longer")
    while high - low > 1:
        middle = (low + high) // 2
        got = holds(middle)
        low, high, best = (low, middle, got) if got else (middle, high, best)
    return {"replicas": high, **best}


def parser():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("times", nargs="+")
    for name, value in (("replicas", 1), ("rate", 0.0), ("requests", 2000), ("prompts", "64,2048"), ("new", 128), ("places", 64), ("batch-size", 2048), ("max-step-ms", 100),
                        ("router", "least"), ("sessions", 0), ("known", 0), ("seed", 1), ("seconds", 0.0), ("first-ms", 0.0), ("select", ""), ("clock", "seconds")):
        p.add_argument("--" + name, type=type(value), default=value, choices={"router": ROUTERS, "clock": ("seconds", "cpu_seconds")}.get(name))
    return p


def main():
    args = parser().parse_args()
    times = read_times(args.times, args.select, args.clock)
    print(json.dumps(smallest(times, args) if args.first_ms else {"replicas": args.replicas, **figures(*simulate(times, args))}))


if __name__ == "__main__":
    main()
