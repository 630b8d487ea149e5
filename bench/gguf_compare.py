#!/usr/bin/env python3
"""mlxcel beside llama.cpp on the same GGUF files: one run, the same threads, rounds interleaved, medians.

llama.cpp comes as llama-cpp-python (PyPI), whose low-level calls are used: batches of prompts, then one token after the other, greedy. Files of made-up
weights come from gguf_shape.py. With --processor both have one thread, and seconds of processor time count instead of the clock: on a
machine with other work waiting for a turn says nothing.

usage: gguf_compare.py MLXCEL [--shapes A,B] [--type q4_k_m] [--threads 2] [-p 128] [-n 32] [--rounds 3] [--processor] [--models FOLDER] [--out FILE]
"""
import argparse
import datetime
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import compare
import gguf_shape


def child_seconds():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def ours(a, model, n_prompt, n_gen):
    """Tokens a second. By processor time: the difference of two runs, so that loading does not count."""
    base = [a.mlxcel, "bench", "-m", model, "--device", "cpu", "-t", a.threads, "-r", 1, "-o", "json", "-c", 1024]
    which, n = ("-p", n_prompt) if n_prompt else ("-n", n_gen)
    other = "-n" if n_prompt else "-p"
    if not a.processor:
        rows = json.loads(compare.run([str(c) for c in base + [which, n, other, 0]])[0])
        return rows[0]["tok_s"]
    few, seconds = n // 4, []
    for count in (few, n):
        before = child_seconds()
        compare.run([str(c) for c in base + [which, count, other, 0]])
        seconds.append(child_seconds() - before)
    return 2 * (n - few) / max(seconds[1] - seconds[0], 1e-9)  # each run computes once before it measures


def theirs(a, model, n_prompt, n_gen):
    command = [sys.executable, __file__, "--llama", model, a.threads, n_prompt, n_gen, int(a.processor)]
    return float(compare.run([str(c) for c in command])[0].split()[-1])


def llama_worker(model, threads, n_prompt, n_gen, processor):
    """In a process of its own: tokens a second of the second of two runs."""
    import llama_cpp as l

    clock = time.process_time if processor else time.perf_counter
    l.llama_backend_init()
    quiet = l.llama_log_callback(lambda *_: None)  # kept: it is called until the end
    l.llama_log_set(quiet, None)
    mp = l.llama_model_default_params()
    loaded = l.llama_load_model_from_file(model.encode(), mp)
    cp = l.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = 1024, 512, 512, threads, threads
    context = l.llama_new_context_with_model(loaded, cp)
    if not context:
        sys.exit(f"llama.cpp cannot load {model}")
    vocab = l.llama_n_vocab(l.llama_model_get_vocab(loaded))
    memory = l.llama_get_memory(context)

    def decode(tokens):
        array = (l.llama_token * len(tokens))(*tokens)
        if l.llama_decode(context, l.llama_batch_get_one(array, len(tokens))):
            sys.exit("llama_decode failed")
        logits = l.llama_get_logits(context)
        return max(range(0, vocab, 997), key=lambda i: logits[i])

    for _ in range(2):
        l.llama_memory_clear(memory, True)
        start = clock()
        if n_prompt:
            decode([i * 31 % 500 + 3 for i in range(n_prompt)])
        token = 5
        for _ in range(n_gen):
            token = decode([token])
        rate = (n_prompt or n_gen) / (clock() - start)
    print(rate, flush=True)
    l.llama_free(context)
    l.llama_free_model(loaded)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("--shapes", default="qwen3-0.6b,llama-3.2-1b")
    p.add_argument("--type", default="q4_k_m", choices=gguf_shape.TYPES)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("-p", type=int, default=128)
    p.add_argument("-n", type=int, default=32)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--processor", action="store_true")
    p.add_argument("--models", type=Path, default=Path("build/gguf"))
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    a.threads = 1 if a.processor else a.threads
    a.models.mkdir(parents=True, exist_ok=True)
    found = {}
    for i in range(a.rounds):
        for shape in a.shapes.split(","):
            model = a.models / f"{shape}-{a.type}.gguf"
            if not model.exists():
                gguf_shape.write(shape, str(model), gguf_shape.TYPES[a.type])
            for n_prompt, n_gen in ((0, a.n), (a.p, 0)):
                name = f"pp{n_prompt}" if n_prompt else f"tg{n_gen}"
                entry = found.setdefault((shape, name), {"mlxcel": [], "llama.cpp": []})
                for program in (("mlxcel", ours), ("llama.cpp", theirs))[:: 1 if i % 2 == 0 else -1]:
                    rate = program[1](a, model, n_prompt, n_gen)
                    entry[program[0]].append(rate)
                    print(f"{program[0]} {shape} {name} {rate:.2f}", file=sys.stderr, flush=True)
    kind = "one thread, tokens per second of processor time" if a.processor else f"{a.threads} threads, tokens a second"
    lines = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {compare.processor()}, {a.type}, {a.rounds} rounds, medians; {kind}",
             f"mlxcel: {compare.kernels(a.mlxcel)}", "", "| shape | test | mlxcel | llama.cpp | ratio |", "|---|---|---|---|---|"]
    for (shape, name), e in found.items():
        mine, his = statistics.median(e["mlxcel"]), statistics.median(e["llama.cpp"])
        lines.append(f"| {shape} | {name} | {mine:.2f} | {his:.2f} | {mine / his:.2f} |")
    compare.report(lines, a.out)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--llama":
        llama_worker(sys.argv[2], *(int(i) for i in sys.argv[3:6]), processor=sys.argv[6] == "1")
    else:
        main()
