#!/usr/bin/env python3
"""mlxcel-server beside llama-server: one machine, the same threads, shape and bytes per weight; rounds interleaved, medians.

Both serve a made-up model of the same shape: mlxcel 4-bit groups of 64 (`mlxcel synth`), llama-server Q4_0 (gguf_shape.py), 4.5
bits per weight each. Or, with --model and --gguf, a real one. Clients stream /v1/completions: a prompt of random token ids that no
cache knows, a fixed number of new tokens, greedy. Both have --parallel places; further clients wait. Reported: new tokens per
second of all clients together, time to the first token (median), and the ratio.

usage: server_compare.py MLXCEL LLAMA_SERVER [--shape qwen3-0.6b] [--model FOLDER --gguf FILE] [--threads 2] [--clients 1,4,16,64]
                         [--parallel 16] [--prompt 64] [--new 32] [--rounds 3] [--each 1] [--models FOLDER] [--out FILE]
"""
import argparse
import asyncio
import datetime
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import gguf_shape


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, name, command, info):
        self.name, self.port = name, free_port()
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([*map(str, command), "--host", "127.0.0.1", "--port", str(self.port)], stdout=self.log, stderr=self.log)
        self.wait()
        self.log.seek(0)
        found = re.search(info, self.log.read())
        self.info = found[0].strip() if found else "?"

    def wait(self):
        while self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as c:
                    c.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    if b" 200 " in c.recv(4096)[:20]:
                        return
            except OSError:
                pass
            time.sleep(0.2)
        self.log.seek(0)
        sys.exit(f"{self.name} did not start: {self.log.read()[-2000:]}")

    def close(self):
        self.process.terminate()
        self.process.wait(60)


async def ask(port, args, dice):
    """Seconds to the first token, and how many came."""
    ids = [dice.randrange(10, args.vocab) for _ in range(args.prompt)]
    body = {"prompt": ids, "max_tokens": args.new, "stream": True, "ignore_eos": True, "temperature": 0, "cache_prompt": False,
            "stream_options": {"include_usage": True}, **getattr(args, "fields", {})}
    data = json.dumps(body).encode()
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    got, first = b"", None
    while part := await reader.read(1 << 20):
        got += part
        if first is None and b"data: " in got:
            first = time.monotonic() - start
    writer.close()
    usage = re.findall(rb'"completion_tokens":\s*(\d+)', got)
    if first is None or not usage or int(usage[-1]) != args.new:
        sys.exit(f"an answer is not whole: {got[:300]!r} ... {got[-300:]!r}")
    return first, int(usage[-1])


async def load(port, n_clients, args, seed):
    async def client(i):
        dice = random.Random(seed * 1000 + i)
        return [await ask(port, args, dice) for _ in range(args.each)]
    start = time.monotonic()
    answers = [a for one in await asyncio.gather(*(client(i) for i in range(n_clients))) for a in one]
    return sum(n for _, n in answers) / (time.monotonic() - start), statistics.median(f for f, _ in answers)


def make_ours(args):
    """The shape as a checkpoint, with a tokenizer that names every id."""
    folder = os.path.join(args.models, args.shape)
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([args.mlxcel, "synth", "--shape", args.shape, "--bits", "4", "-o", folder], check=True)
        vocab = {f"<{i}>": i for i in range(args.vocab)}
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                     "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
    return folder


def make_theirs(args):
    path = os.path.join(args.models, args.shape + ".gguf")
    if not os.path.exists(path):
        gguf_shape.write(args.shape, path)
    return path


def llama_info(args):
    """Its line on the processor is only said aloud, and before the model is looked for."""
    told = subprocess.run([args.llama, "-m", "no-such-file.gguf", "-t", str(args.threads), "-lv", "4"], capture_output=True, text=True, timeout=120)
    found = re.search(r"system_info:[^\n]*", told.stdout + told.stderr)
    return found[0].strip() if found else "?"


def parse():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("llama")
    p.add_argument("--shape", default="qwen3-0.6b")
    p.add_argument("--model")
    p.add_argument("--gguf")
    p.add_argument("--vocab", type=int, default=0)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--clients", default="1,4,16,64")
    p.add_argument("--parallel", type=int, default=16)
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--new", type=int, default=32)
    p.add_argument("--each", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "mlxcel-shapes"))
    p.add_argument("--out")
    args = p.parse_args()
    args.vocab = args.vocab or gguf_shape.SHAPES[args.shape]["vocab"]
    os.makedirs(args.models, exist_ok=True)
    return args


def main():
    args = parse()
    per = args.prompt + args.new + 64
    ours = Server("mlxcel-server", [args.mlxcel, "serve", "-m", args.model or make_ours(args), "--device", "cpu", "-t", args.threads, "--parallel", args.parallel,
                                    "-c", per, "--max-queue-depth", 1000], r"[^\n]* on cpu \([^\n]*")
    theirs = Server("llama-server", [args.llama, "-m", args.gguf or make_theirs(args), "-t", args.threads, "-tb", args.threads, "--parallel", args.parallel,
                                     "-c", per * args.parallel, "-ngl", "0"], r"n_threads = [^\n]*")
    theirs.info = llama_info(args)
    results = {}
    try:
        for s in (ours, theirs):  # not counted: pages are touched, code is warm
            asyncio.run(load(s.port, 2, args, 999))
        for i in range(args.rounds):
            for n in map(int, args.clients.split(",")):
                for s in (ours, theirs) if i % 2 == 0 else (theirs, ours):
                    rate, first = asyncio.run(load(s.port, n, args, i))
                    results.setdefault((n, s.name), []).append((rate, first))
                    print(f"round {i + 1}, {n} clients, {s.name}: {rate:.1f} tok/s, first token {first:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        ours.close()
        theirs.close()
    lines = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, {args.model and os.path.basename(args.model) or args.shape}, {args.threads} threads, --parallel {args.parallel}, "
             f"prompt {args.prompt}, new {args.new}, median of {args.rounds} rounds", f"    mlxcel: {ours.info}", f"    llama-server: {theirs.info}", "",
             "| clients | mlxcel tok/s | llama-server tok/s | ratio | first token, mlxcel | first token, llama-server |", "|---|---|---|---|---|---|"]
    for n in map(int, args.clients.split(",")):
        a, b = ([statistics.median(column) for column in zip(*results[n, s.name])] for s in (ours, theirs))
        lines.append(f"| {n} | {a[0]:.1f} | {b[0]:.1f} | {a[0] / b[0]:.2f} | {a[1]:.2f} s | {b[1]:.2f} s |")
    print("\n".join(lines))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
