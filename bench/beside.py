#!/usr/bin/env python3
"""mlxcel beside llama.cpp on a GPU: one machine, one run, the same shapes and bytes per weight; program after program, rounds in turn, medians.

A case is a shape (mlxcel makes it up, llama.cpp reads a file of gguf_shape.py with as many bits) or a GGUF file that both read. Measured are a
prompt, generation, and 16 and 64 requests at once (llama-batched-bench). llama-bench runs with ubatches of 512 and 2,048 tokens; the faster one counts.
Cases stand in order of importance: after --limit seconds no further one begins, and the results are written after each program.

What runs on the GPU and the CPU together (group large): mlxcel gets a limit of memory or a number of layers, and llama.cpp as many layers, or layers with
experts on the CPU, as mlxcel said it took. The CPU alone stands beside them.

usage: beside.py MLXCEL LLAMA_BENCH LLAMA_BATCHED_BENCH [--cases A,B] [--rounds 1] [--repeats 3] [--limit SECONDS] [--models FOLDER] [--out FILE.json]
       beside.py MLXCEL LLAMA_BENCH LLAMA_BATCHED_BENCH --files yes     only makes the files      cases: see CASES
"""
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import gguf_shape
import options

GPU = ["--device", "cuda"]
THREADS = ["-t", os.cpu_count()]
LIMIT_OF_ONE = 150  # seconds that one start of a program may take


def case(shape, kind="q4_0", same=False, bits=4, ours=GPU, theirs=("-ngl", 99), batches=True, prompt=2048, new=128, repeats=0, ubatches="512,2048", layers=0, depth=0, at_once=1, is_shared=False):
    """same: mlxcel reads the file, too; batches: requests at once as well; repeats: instead of --repeats; layers: so many of the shape's, where it is large. With
    `depth` only generation is measured, of `at_once` requests that have so many tokens in the cache, is_shared: the same ones."""
    made = ["--shape", shape, "--bits", str(bits), *(["--layers", str(layers)] if layers else [])]
    return dict(shape=shape, kind=kind, layers=layers, made=None if same else made, ours=list(ours), theirs=list(theirs), batches=batches, prompt=prompt, new=new,
                repeats=repeats, ubatches=ubatches, depth=depth, at_once=at_once, is_shared=is_shared)


def at_depth(depth, at_once=1, ours=(), theirs=(), **more):
    """Llama-3.1-8B with a filled cache."""
    return case("llama-3.1-8b", ours=[*GPU, *ours], theirs=["-ngl", 99, "-fa", "on", *theirs], new=64, depth=depth, at_once=at_once, **more)


def large(memory):
    return case("qwen3-30b-a3b", ours=[*GPU, *THREADS, "--gpu-memory", memory], batches=False, new=64, repeats=2)


CPU = dict(ours=("--device", "cpu", *THREADS), theirs=("-ngl", 0, "-dev", "none", *THREADS), batches=False, prompt=512, new=64, ubatches="512")

CASES = {
    "gpt-oss-20b mxfp4": case("gpt-oss-20b"),
    "llama-3.1-8b Q4_K_M, same file": case("llama-3.1-8b", "q4_k_m", same=True),
    "qwen3-0.6b Q4_K_M, same file": case("qwen3-0.6b", "q4_k_m", same=True),
    "llama-3.2-1b Q4_K_M, same file": case("llama-3.2-1b", "q4_k_m", same=True),
    "qwen3-30b-a3b 4-bit": case("qwen3-30b-a3b"),
    "llama-3.1-8b 4-bit": case("llama-3.1-8b"),
    "qwen3-0.6b 4-bit": case("qwen3-0.6b"),
    "deepseek-v2-lite 4-bit": case("deepseek-v2-lite"),
    "gemma-3-4b 4-bit": case("gemma-3-4b"),
    "phi-3-mini 4-bit": case("phi-3-mini"),
    "llama-3.1-8b 8-bit": case("llama-3.1-8b", "q8_0", bits=8),
    "llama-3.1-8b 6-bit": case("llama-3.1-8b", "q6_k", bits=6),
    "qwen3-0.6b Q4_K_M, same file, CPU": case("qwen3-0.6b", "q4_k_m", same=True, **CPU),
    "llama-3.2-1b Q4_K_M, same file, CPU": case("llama-3.2-1b", "q4_k_m", same=True, **CPU),
    "llama-3.1-8b 4-bit, 16 of 32 layers": case("llama-3.1-8b", ours=[*GPU, *THREADS, "--gpu-layers", 16], theirs=["-ngl", 17, *THREADS], batches=False, new=32, repeats=2),
    "qwen3-30b-a3b 4-bit, 8G": large("8G"),
    "qwen3-30b-a3b 4-bit, 4G": large("4G"),
    "qwen3-30b-a3b 4-bit, 12G": large("12G"),
    "qwen3-30b-a3b 4-bit, CPU alone": {**large("0"), "ours": ["--device", "cpu", *THREADS], "theirs": [], "repeats": 1},
    "llama-3.1-8b at 16,384": at_depth(16384),
    "llama-3.1-8b at 16,384, 8-bit cache": at_depth(16384, ours=["--kv-bits", 8], theirs=["-ctk", "q8_0", "-ctv", "q8_0"]),
    "llama-3.1-8b at 1,024, 64 requests": at_depth(1024, 64),
    "llama-3.1-8b, 64 requests that share 8,192": at_depth(8192, 64, is_shared=True),
    "glm-4.5-air 4-bit": case("glm-4.5-air", batches=False, repeats=2),
    "glm-4.5-air 4-bit, 12 layers": case("glm-4.5-air", layers=12),
}


def model_file(args, c):
    layers = f"-{c['layers']}-layers" if c["layers"] else ""
    return Path(args.models) / f"{c['shape']}{layers}-{c['kind']}.gguf"


def is_new(path):
    try:
        return time.time() - path.stat().st_mtime < 5
    except FileNotFoundError:
        return False


def make_file(args, c):
    path = model_file(args, c)
    partial = Path(f"{path}.partial")
    while is_new(partial):  # another process writes it
        time.sleep(0.2)
    if not path.exists() and c["theirs"]:
        gguf_shape.write(c["shape"], str(path), gguf_shape.TYPES[c["kind"]], **({"layers": c["layers"]} if c["layers"] else {}))


def start(command):
    """Standard output, or an error in words. Standard error of a program that ended well is not looked at."""
    begin = time.time()
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=LIMIT_OF_ONE)
    except subprocess.TimeoutExpired:
        return None, f"{command[0]}: more than {LIMIT_OF_ONE} s", time.time() - begin
    if done.returncode:
        return None, f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()[-600:]}", time.time() - begin
    return done.stdout + done.stderr if "batched" in str(command[0]) else done.stdout, None, time.time() - begin


def test_name(prompt, batch):
    return f"prompt of {prompt}" if prompt else f"{batch} requests" if batch > 1 else "generation"


class Ours:
    name = "mlxcel"

    def commands(self, args, c):
        model = c["made"] or ["-m", model_file(args, c)]
        base = [args.mlxcel, "bench", *model, *c["ours"], "-r", c["repeats"] or args.repeats, "-o", "json"]
        if c["depth"]:
            yield [*base, "-p", 0, "-n", c["new"], "-b", c["at_once"], "-d", c["depth"], *(["--shared"] if c["is_shared"] else [])]
            return
        yield [*base, "-p", c["prompt"], "-n", c["new"], "-b", 1]
        if c["batches"]:
            yield [*base, "-p", 0, "-n", 64, "-b", "16,64"]

    def read(self, text, entry):
        for row in json.loads(text):
            tokens = (row["n_prompt"] or row["n_gen"]) * row["batch"]
            entry["about"] = row["model"]
            for key in ("reference_bytes_share", "reference_time_share"):
                if key in row:
                    entry[key] = max(row[key], entry.get(key, 0))
            yield test_name(row["n_prompt"], row["batch"]), "", [tokens / s for s in row["seconds"]], row["bytes_per_token"]


class Theirs:
    name = "llama.cpp"

    def commands(self, args, c):
        if not c["theirs"]:
            return
        if c["depth"]:
            yield self.deep(args, c)
            return
        yield [args.llama_bench, "-m", model_file(args, c), *placed(c), "-r", c["repeats"] or args.repeats, "-p", c["prompt"], "-n", c["new"],
               "-ub", c["ubatches"], "-o", "json"]
        if c["batches"]:
            yield [args.batched, "-m", model_file(args, c), *c["theirs"], "-c", 16384, "-npp", 16, "-ntg", 64,
                   "-npl", ",".join(["16"] * args.repeats + ["64"] * args.repeats)]

    def deep(self, args, c):
        repeats, n = c["repeats"] or args.repeats, c["at_once"]
        if n == 1:
            return [args.llama_bench, "-m", model_file(args, c), *c["theirs"], "-r", repeats, "-p", 0, "-n", c["new"], "-d", c["depth"], "-o", "json"]
        room = (c["depth"] if c["is_shared"] else c["depth"] * n) + n * (c["new"] + 64)
        return [args.batched, "-m", model_file(args, c), *c["theirs"], "-c", room, "-npp", c["depth"], "-ntg", c["new"], "-npl", ",".join([str(n)] * repeats), *(["-pps", "-kvu"] if c["is_shared"] else [])]

    def read(self, text, entry):
        if text.lstrip().startswith("["):
            for row in json.loads(text):
                entry["build"] = row["build_commit"]
                yield test_name(row["n_prompt"], 1), f"ubatch {row['n_ubatch']}", row["samples_ts"], 0
        for line in text.splitlines():
            cells = [x.strip() for x in line.strip().strip("|").split("|")]
            if len(cells) == 10 and cells[2].isdigit():
                yield test_name(0, int(cells[2])), "", [float(cells[7])], 0


def placed(c):
    """llama.cpp's options; with a limit of memory for what mlxcel said it put on the CPU. llama.cpp counts the output as a layer."""
    if "--gpu-memory" not in c["ours"]:
        return c["theirs"]
    experts = re.search(r"experts of (\d+) layers on the CPU", c.get("about", ""))
    layers = re.search(r"(\d+) of (\d+) layers on the GPU", c.get("about", ""))
    n_layers = int(layers[1]) + 1 if layers and layers[1] != layers[2] else 99
    return ["-ngl", n_layers, "-ncmoe", experts[1] if experts else 0, *THREADS]


def measure(args, c, program, found):
    """Adds what one program does in one case."""
    entry = found.setdefault(program.name, {"tests": {}})
    if program.name == Theirs.name or not c["made"]:
        make_file(args, c)
    for command in program.commands(args, c):
        text, error, seconds = start(command)
        entry["seconds"] = round(entry.get("seconds", 0) + seconds, 1)
        if error:
            entry.setdefault("errors", []).append(error)
            print(error, file=sys.stderr, flush=True)
            continue
        for test, how, rates, read in program.read(text, entry):
            kept = entry["tests"].setdefault(test, {})
            kept.setdefault(how, []).extend(round(r, 1) for r in rates)
            if read:
                entry.setdefault("bytes_per_token", {})[test] = int(read)
    if "about" in entry:
        c["about"] = entry["about"]


def best(tests, test):
    """The median of the fastest way, and which that was."""
    ways = {how: statistics.median(rates) for how, rates in tests.get(test, {}).items() if rates}
    return max(((rate, how) for how, rate in ways.items()), default=(None, ""))


def table(results):
    lines = ["| case | test | mlxcel | llama.cpp | times |", "|---|---|---|---|---|"]
    for name, found in results.items():
        mine, his = (found.get(p, {"tests": {}})["tests"] for p in (Ours.name, Theirs.name))
        for test in dict.fromkeys([*mine, *his]):
            (a, _), (b, how) = best(mine, test), best(his, test)
            cells = [f"{x:,.0f}" if x and x >= 100 else f"{x:.1f}" if x else "-" for x in (a, b)]
            lines.append(f"| {name} | {test} | {cells[0]} | {cells[1]}{f' ({how})' if how and test != 'generation' else ''} | {f'{a / b:.2f}' if a and b else '-'} |")
    return "\n".join(lines)


def chosen(text):
    """Cases by whole names, or by parts of them."""
    parts = text.split(",")
    return [name for name in CASES if any(part == name if part in CASES else part in name for part in parts)]


def main():
    args = options.read(__doc__, "mlxcel", "llama_bench", "batched", cases="", rounds=1, repeats=3, limit=1e9, models="build/gguf", out=None, files="")
    begin = time.time()
    os.makedirs(args.models, exist_ok=True)
    names = chosen(args.cases)
    if args.files:
        for name in names:
            make_file(args, CASES[name])
        return
    results = {}
    for i in range(args.rounds):
        for name in names:
            c = CASES[name]
            if time.time() - begin > args.limit:
                break
            found = results.setdefault(name, {})
            programs = (Ours(), Theirs())
            for program in programs if i % 2 == 0 or "--gpu-memory" in c["ours"] else programs[::-1]:
                measure(args, c, program, found)
                if args.out:
                    Path(args.out).write_text(json.dumps(results, indent=1) + "\n")
            print(f"{time.time() - begin:.0f} s\n{table({name: found})}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
