#!/usr/bin/env python3
"""mlxcel-server, and llama-server beside it, under requests that arrive at random: times to the first token, and gaps between tokens.

Requests come by a Poisson process at a share of the rate that the server reaches when it is saturated, which is measured first: as many clients as
it has places, each asking again when it is answered. Prompts are of random ids that no cache knows, their lengths log-uniform. Times are those of a
client: a gap is the time between two frames of one stream. With --llama each server gets its share of its own rate, then ours the other's arrivals too.

usage: server_poisson.py MLXCEL [--shape llama-3.1-8b] [--device cuda] [--share 0.7] [--seconds 20] [--prompts 64,2048] [--new 128] [--processes 4]
                         [--options "--max-step-ms 30"]... [--llama LLAMA_SERVER] [--out FILE]
"""
import argparse
import asyncio
import json
import math
import multiprocessing
import os
import random
import shlex
import tempfile
import time

import server_compare
from server_gpu import VOCAB


def parse():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("--shape", default="llama-3.1-8b", choices=VOCAB)
    p.add_argument("--device", default="cuda")
    p.add_argument("--share", type=float, default=0.7)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--prompts", default="64,2048")
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--places", type=int, default=64)
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--options", action="append")
    p.add_argument("--llama")
    p.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "mlxcel-shapes"))
    p.add_argument("--out")
    args = p.parse_args()
    args.vocab = VOCAB[args.shape]
    os.makedirs(args.models, exist_ok=True)
    return args


async def ask(port, args, dice, times):
    """One request; its times go into the lists of `times`."""
    low, high = map(int, args.prompts.split(","))
    n = int(math.exp(dice.uniform(math.log(low), math.log(high))))
    body = {"prompt": [dice.randrange(10, args.vocab) for _ in range(n)], "max_tokens": args.new, "stream": True, "ignore_eos": True, "temperature": 1}
    data = json.dumps(body).encode()
    start = last = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    first, whole = None, False
    while part := await reader.read(1 << 20):
        now = time.monotonic()
        if b"data: " in part:
            times["first" if first is None else "gaps"].append(now - (start if first is None else last))
            first, last = first or now, now
        whole |= b"[DONE]" in part
    writer.close()
    times["done"] += whole
    times["lost"] += not whole


async def saturated(port, args, dice, times, end):
    async def client():
        while time.monotonic() < end:
            await ask(port, args, dice, times)
    await asyncio.gather(*(client() for _ in range(args.places // args.processes)))


async def poisson(port, args, dice, times, end):
    tasks = []
    while time.monotonic() < end:
        await asyncio.sleep(dice.expovariate(args.rate / args.processes))
        tasks.append(asyncio.create_task(ask(port, args, dice, times)))
    await asyncio.gather(*tasks)


def worker(kind, port, args, seed, gate, answers):
    times = {"first": [], "gaps": [], "done": 0, "lost": 0}
    gate.wait()
    start = time.monotonic()
    asyncio.run(kind(port, args, random.Random(seed), times, start + args.seconds))
    answers.put((times, time.monotonic() - start))


def load(kind, port, args, seed):
    gate, answers = multiprocessing.Barrier(args.processes), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=worker, args=(kind, port, args, seed + i, gate, answers)) for i in range(args.processes)]
    for w in workers:
        w.start()
    got = [answers.get() for _ in workers]
    for w in workers:
        w.join()
    times = {key: sum((t[key] for t, _ in got), [] if key in ("first", "gaps") else 0) for key in got[0][0]}
    if times["lost"]:
        raise SystemExit(f"{times['lost']} answers are not whole")
    return times, max(s for _, s in got)


def at(values, share):
    """In milliseconds; None where a whole answer came in one frame and there are no gaps."""
    if not values:
        return None
    values = sorted(values)
    return round(1000 * values[min(len(values) - 1, int(share * len(values)))], 1)


def ours(args, model, options):
    command = [args.mlxcel, "serve", "-m", model, "--device", args.device, "--parallel", args.places, "--max-queue-depth", 10000, *shlex.split(options)]
    return server_compare.Server("mlxcel-server", command, r"[^\n]* on [^\n]*\([^\n]*")


def theirs(args):
    each = int(args.prompts.split(",")[1]) + args.new + 64
    command = [args.llama, "-m", server_compare.make_theirs(args), "--parallel", args.places, "-c", args.places * each, "-ngl", "0" if args.device == "cpu" else "99"]
    return server_compare.Server("llama-server", command, r"n_threads = [^\n]*")


def run(args, server, options, rate=0):
    """One server: saturated, then arrivals at `rate`, 0: at a share of what it reached."""
    try:
        times, seconds = load(saturated, server.port, args, 1)
        full = times["done"] / seconds
        args.rate = rate or args.share * full
        times, seconds = load(poisson, server.port, args, 1000)
    finally:
        server.close()
    return {"server": server.name, "shape": args.shape, "options": options, "prompts": args.prompts, "new": args.new, "saturated_per_s": round(full, 2),
            "arrivals_per_s": round(args.rate, 2), "requests": times["done"], "tok_s": round(times["done"] * args.new / seconds),
            "first_ms": {"p50": at(times["first"], 0.5), "p99": at(times["first"], 0.99)},
            "gap_ms": {"p50": at(times["gaps"], 0.5), "p99": at(times["gaps"], 0.99), "p99.9": at(times["gaps"], 0.999)}}


def main():
    args = parse()
    model = server_compare.make_ours(args)
    results = []

    def note(result):
        results.append(result)
        print(json.dumps(result), flush=True)

    for options in args.options or [""]:
        note(run(args, ours(args, model, options), options))
    if args.llama:
        note(run(args, theirs(args), ""))
        note(run(args, ours(args, model, ""), "", results[-1]["arrivals_per_s"]))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(results, f)


if __name__ == "__main__":
    main()
