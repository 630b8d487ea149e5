#!/usr/bin/env python3
"""mlxcel-server on a GPU under many streaming clients, beside `mlxcel bench` at the same batch on the same made-up model.

Every client streams one /v1/completions: a prompt of random token ids that no cache knows, a fixed number of new tokens, greedy. The
bench runs the same steps without HTTP, text or scheduling, so the ratio is what the server costs. Clients run in several processes:
one Python process cannot read all streams of a fast GPU. An answer that is not whole ends the run.

usage: server_gpu.py MLXCEL [--shape llama-3.1-8b] [--device cuda] [--clients 64] [--processes 8] [--prompt 16] [--new 512] [--rounds 3]
                     [--models FOLDER] [--out FILE]
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time

import server_compare

VOCAB = {"llama-3.1-8b": 128256, "llama-3.2-1b": 128256, "qwen3-0.6b": 151936, "tiny": 512}


def parse():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("--shape", default="llama-3.1-8b", choices=VOCAB)
    p.add_argument("--device", default="cuda")
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--prompt", type=int, default=16)
    p.add_argument("--new", type=int, default=512)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "mlxcel-shapes"))
    p.add_argument("--out")
    args = p.parse_args()
    args.vocab, args.each = VOCAB[args.shape], 1
    os.makedirs(args.models, exist_ok=True)
    return args


def clients(port, n, args, seed, gate, answers):
    """One process: its clients begin together with those of the others."""
    gate.wait()
    start = time.monotonic()
    rate, first = asyncio.run(server_compare.load(port, n, args, seed))
    answers.put((start, time.monotonic(), round(rate * (time.monotonic() - start)), first))


def round_of(port, args, number):
    gate, answers = multiprocessing.Barrier(args.processes), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=clients, args=(port, args.clients // args.processes, args, number * 100 + i, gate, answers))
               for i in range(args.processes)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        if w.exitcode:
            raise SystemExit(f"clients ended with status {w.exitcode}")
    got = [answers.get() for _ in workers]
    seconds = max(g[1] for g in got) - min(g[0] for g in got)
    return args.clients * args.new / seconds, statistics.median(g[3] for g in got)


def bench(args, model):
    command = [args.mlxcel, "bench", "-m", model, "--device", args.device, "-p", "0", "-n", str(args.new), "-b", str(args.clients),
               "-d", str(args.prompt), "-c", str(args.prompt + args.new + 64), "-r", str(args.rounds), "-o", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]["tok_s"]


def main():
    args = parse()
    model = server_compare.make_ours(args)
    measured = bench(args, model)
    server = server_compare.Server("mlxcel-server", [args.mlxcel, "serve", "-m", model, "--device", args.device, "--parallel", args.clients,
                                                     "-c", args.prompt + args.new + 64, "--max-queue-depth", 1000], r"[^\n]* on [^\n]*\([^\n]*")
    print(server.info, flush=True)
    try:
        round_of(server.port, args, 0)  # not counted
        rounds = [round_of(server.port, args, i + 1) for i in range(args.rounds)]
    finally:
        server.close()
    rate = statistics.median(r[0] for r in rounds)
    result = {"shape": args.shape, "clients": args.clients, "prompt": args.prompt, "new": args.new, "rounds": [round(r[0], 1) for r in rounds],
              "server_tok_s": round(rate, 1), "first_token_s": round(statistics.median(r[1] for r in rounds), 3), "bench_tok_s": round(measured, 1), "ratio": round(rate / measured, 3)}
    print(json.dumps(result))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(result, f)


if __name__ == "__main__":
    main()
