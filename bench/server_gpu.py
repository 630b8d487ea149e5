#!/usr/bin/env python3
"""mlxcel-server on a GPU, or the CPU, under many streaming clients, beside `mlxcel bench` at the same batch on the same made-up model.

Every client streams one /v1/completions: a prompt of random token ids that no cache knows, a fixed number of new tokens. The cases take turns:
greedy, temperature 1, the sampling that Qwen3 asks for, penalties, and answers that are held to a grammar. The bench runs the steps of the greedy case
without HTTP, text or scheduling, so its ratio is what the server costs. Clients run in several processes: one Python process cannot read all streams
of a fast GPU. An answer that is not whole ends the run. The server's processor time for a token stands beside the rate: on the CPU of a busy machine it is
the figure that means something.

usage: server_gpu.py MLXCEL [--shape llama-3.1-8b] [--device cuda] [--clients 64] [--processes 8] [--prompt 16] [--new 512] [--rounds 3]
                     [--cases greedy,one,qwen] [--defaults] [--models FOLDER] [--out FILE]
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

CASES = {"greedy": {}, "one": {"temperature": 1, "top_k": -1, "top_p": 1}, "min_p": {"temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0.05}, "qwen": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
         "penalties": {"temperature": 1, "top_k": -1, "top_p": 1, "repetition_penalty": 1.1, "frequency_penalty": 0.2},
         "logprobs": {"temperature": 1, "top_k": -1, "top_p": 1, "logprobs": 5},
         "grammar": {"temperature": 1, "top_k": -1, "top_p": 1, "guided_regex": "(<[0-9]*[02468]>)*"},
         # needs a vocabulary with words: tokenizer.json of another model beside the made-up weights
         "forced": {"temperature": 1, "top_k": -1, "top_p": 1, "guided_regex": "((sun|rain|snow|wind) falls softly over the old garden wall, and )*"},
         "words": {"temperature": 1, "top_k": -1, "top_p": 1, "guided_regex": "[ a-z]*"}}
VOCAB = {"llama-3.1-8b": 128256, "llama-3.2-1b": 128256, "qwen3-0.6b": 151936, "qwen3-30b-a3b": 151936, "tiny": 512}


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
    p.add_argument("--cases", default="greedy,one,qwen,min_p,penalties,logprobs,grammar")
    p.add_argument("--defaults", action="store_true", help="start the server with no option but the model")
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


def processor_seconds(pid):
    """Of a process so far; 0 where the system does not tell in this way."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def round_of(server, args, number):
    port, before = server.port, processor_seconds(server.process.pid)
    gate, answers = multiprocessing.Barrier(args.processes), multiprocessing.Queue()
    n = max(1, args.clients // args.processes)
    workers = [multiprocessing.Process(target=clients, args=(port, n, args, number * 100 + i, gate, answers))
               for i in range(args.processes)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        if w.exitcode:
            raise SystemExit(f"clients ended with status {w.exitcode}")
    got = [answers.get() for _ in workers]
    seconds = max(g[1] for g in got) - min(g[0] for g in got)
    used = processor_seconds(server.process.pid) - before
    return args.clients * args.new / seconds, statistics.median(g[3] for g in got), used / (args.clients * args.new)


def bench(args, model):
    command = [args.mlxcel, "bench", "-m", model, "--device", args.device, "-p", "0", "-n", str(args.new), "-b", str(args.clients),
               "-d", str(args.prompt), "-c", str(args.prompt + args.new + 64), "-r", str(args.rounds), "-o", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]["tok_s"]


def start(args, model):
    options = [] if args.defaults else ["--parallel", args.clients, "-c", args.prompt + args.new + 64, "--max-queue-depth", 1000]
    return server_compare.Server("mlxcel-server", [args.mlxcel, "serve", "-m", model, "--device", args.device, *options], r"[^\n]* on [^\n]*\([^\n]*")


def main():
    args = parse()
    args.processes = min(args.processes, args.clients)
    model = server_compare.make_ours(args)
    measured = bench(args, model)
    cases = {name: [] for name in args.cases.split(",")}
    server = start(args, model)
    print(server.info, flush=True)
    try:
        for number in range(args.rounds + 1):
            for name, rounds in cases.items():
                args.fields = CASES[name]
                rounds.append(round_of(server, args, 1000 * list(cases).index(name) + number))  # prompts that no case has had
    finally:
        server.close()
    results = []
    for name, rounds in cases.items():
        rounds = rounds[1:]  # the first is not counted
        rate = statistics.median(r[0] for r in rounds)
        results.append({"shape": args.shape, "case": name, "clients": args.clients, "prompt": args.prompt, "new": args.new,
                        "rounds": [round(r[0], 1) for r in rounds], "server_tok_s": round(rate, 1),
                        "first_token_s": round(statistics.median(r[1] for r in rounds), 3), "bench_tok_s": round(measured, 1),
                        "to_bench": round(rate / measured, 3) if measured else None,
                        "to_greedy": round(rate / results[0]["server_tok_s"], 3) if results else 1,
                        "processor_ms": round(1e3 * statistics.median(r[2] for r in rounds), 3),
                        "processor_ms_rounds": [round(1e3 * r[2], 3) for r in rounds]})
        print(json.dumps(results[-1]), flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(results, f)


if __name__ == "__main__":
    main()
