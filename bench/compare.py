#!/usr/bin/env python3
"""mlxcel beside llama.cpp: one machine, one run, the same shapes, threads and bytes per weight; rounds interleaved, medians.

Each round starts both programs once for every shape, in turn A B, B A, ...; mlxcel measures `bench --shape` (4-bit groups of
64), llama-bench a Q4_0 file of the same shape that gguf_shape.py makes. Prompts of -p tokens, generation of -n tokens at
depth 0 and at --depth; with --batch also that many requests at once (llama-batched-bench, where it is given).

usage: compare.py MLXCEL LLAMA_BENCH [--batched PROGRAM] [--batch N] [--shapes A,B] [--threads N] [-p 128,512] [-n 64]
                  [--depth 4096] [--rounds 3] [--repeats 2] [--limit SECONDS] [--models FOLDER] [--out FILE]
"""
import argparse
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import gguf_shape


def run(command):
    start = time.time()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = f"signal {-done.returncode} ({signal.strsignal(-done.returncode)})" if done.returncode < 0 else f"exit code {done.returncode}"
        sys.exit(f"{' '.join(map(str, command))}: {why}\n{done.stderr.strip()[-2000:]}")
    return done.stdout, done.stderr, time.time() - start


def ints(text):
    return [int(i) for i in text.split(",") if int(i)]


class Ours:
    name = "mlxcel"

    def __init__(self, args):
        self.args = args
        self.read = []

    def run(self, shape):
        a = self.args
        base = [a.mlxcel, "bench", "--shape", shape, "--device", "cpu", "-t", a.threads, "-r", a.repeats, "-o", "json"]
        out = self.cases(base + ["-p", a.p, "-n", a.n])
        if a.depth:
            out += self.cases(base + ["-p", "0", "-n", a.n, "-d", a.depth])
        if a.batch:
            out += self.cases(base + ["-p", "0", "-n", a.n, "-b", a.batch])
        return out

    def cases(self, command):
        text, _, _ = run([str(c) for c in command])
        rows = json.loads(text)
        self.read += [r["read_bytes_s"] for r in rows]
        self.model = rows[0]["model"]
        return [(case(r["n_prompt"], r["n_gen"], r["depth"], r["batch"]), r["tok_s"], r.get("bytes_per_token", 0)) for r in rows]


class Llama:
    name = "llama.cpp"

    def __init__(self, args):
        self.args = args
        self.about = None

    def run(self, shape):
        a = self.args
        base = [a.llama_bench, "-m", a.models / f"{shape}.gguf", "-t", a.threads, "-r", a.repeats, "-o", "json"]
        out = self.cases(base + ["-p", a.p, "-n", a.n])
        if a.depth:
            out += self.cases(base + ["-p", "0", "-n", a.n, "-d", a.depth])
        if a.batch and a.batched:
            out += self.batched(shape)
        return out

    def cases(self, command):
        text, _, _ = run([str(c) for c in command])
        rows = json.loads(text)
        self.about = {k: rows[0].get(k) for k in ("build_commit", "build_number", "cpu_info", "backends", "model_type")}
        return [(case(r["n_prompt"], r["n_gen"], r.get("n_depth", 0), 1), statistics.median(r["samples_ts"]), 0) for r in rows]

    def batched(self, shape):
        a = self.args
        command = [a.batched, "-m", a.models / f"{shape}.gguf", "-t", a.threads, "-c", 8192, "-npp", "16", "-ntg", a.n, "-npl", a.batch]
        text, log, _ = run([str(c) for c in command])
        for line in (text + log).splitlines():
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if len(cells) == 10 and cells[2] == str(a.batch):
                return [(case(0, int(a.n), 0, a.batch), float(cells[7]), 0)]
        return []

    def system_info(self, shape):
        """What it says itself about the processor and the kernels that it chose."""
        a = self.args
        _, log, _ = run([str(c) for c in (a.llama_bench, "-v", "-m", a.models / f"{shape}.gguf", "-t", a.threads, "-p", 1, "-n", 0, "-r", 1,
                                          "--no-warmup")])
        server = Path(a.llama_bench).with_name("llama-server")
        if server.exists():  # llama-bench has no such line; the server prints it before it finds that there is no model
            try:
                said = subprocess.run([server, "-lv", "4", "-t", str(a.threads), "-m", a.models / "none.gguf", "--port", "0"],
                                      capture_output=True, text=True, timeout=20)
                log = said.stdout + said.stderr + log
            except subprocess.TimeoutExpired:
                pass
        wanted = ("system_info", "model buffer size")
        return "; ".join(re.sub(r"\s+", " ", line).strip(" .") for line in log.splitlines() if any(w in line for w in wanted)) or None


def case(n_prompt, n_gen, depth, batch):
    name = f"pp{n_prompt}" if n_prompt else f"tg{n_gen}"
    return name + (f" b{batch}" if batch > 1 else "") + (f" d{depth}" if depth else "")


def processor():
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    part = re.search(r"CPU part\s*: (\w+)", text)  # Arm gives a number instead of a name
    if part and not found:
        names = {"0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd49": "Neoverse N2", "0xd4f": "Neoverse V2", "0xd84": "Neoverse V3"}
        return names.get(part.group(1), f"{platform.machine()}, part {part.group(1)}")
    return found.group(1) if found else platform.processor() or platform.machine()


def kernels(mlxcel):
    """The instruction sets that mlxcel found, and the kernels that it chose."""
    text, _, _ = run([mlxcel, "inspect", "--kernels"])
    wanted = ("instruction sets", "integer products", "few or many rows")
    return "; ".join(re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.startswith(wanted))


def report(lines, path):
    """Prints them, and keeps them where a path is given."""
    text = "\n".join(lines) + "\n"
    print(text)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("llama_bench")
    p.add_argument("--batched")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--shapes", default="qwen3-0.6b,llama-3.2-1b")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("-p", default="128,512")
    p.add_argument("-n", default="64")
    p.add_argument("--depth", type=int, default=4096)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeats", type=int, default=2)
    p.add_argument("--limit", type=float, default=1e9, help="start no further round after this many seconds")
    p.add_argument("--models", type=Path, default=Path("build/gguf"))
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    shapes = a.shapes.split(",")
    a.models.mkdir(parents=True, exist_ok=True)
    for s in shapes:
        if not (a.models / f"{s}.gguf").exists():
            gguf_shape.write(s, str(a.models / f"{s}.gguf"))
    ours, theirs = Ours(a), Llama(a)
    found, start, rounds = {}, time.time(), 0
    info = theirs.system_info(shapes[0])
    for i in range(a.rounds):
        if time.time() - start > a.limit:
            break
        rounds += 1
        for shape in shapes:
            for program in (ours, theirs) if i % 2 == 0 else (theirs, ours):
                for name, rate, bytes_per_token in program.run(shape):
                    print(f"{time.time() - start:.0f} s: {program.name} {shape} {name} {rate:.1f}", file=sys.stderr, flush=True)
                    entry = found.setdefault((shape, name), {"mlxcel": [], "llama.cpp": [], "bytes": 0})
                    entry[program.name].append(rate)
                    entry["bytes"] = bytes_per_token or entry["bytes"]
    read = max(ours.read)
    lines = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {processor()}, {a.threads} threads, {rounds} rounds",
             f"mlxcel: {ours.model}; memory reads at {read * 1e-9:.1f} GB/s",
             f"mlxcel: {kernels(a.mlxcel)}",
             f"llama.cpp: {theirs.about}",
             f"llama.cpp: {info}", "",
             "| shape | test | mlxcel | llama.cpp | ratio | of read bandwidth |", "|---|---|---|---|---|---|"]
    for (shape, name), e in found.items():
        mine, his = (statistics.median(e[k]) if e[k] else None for k in ("mlxcel", "llama.cpp"))
        ratio = f"{mine / his:.2f}" if mine and his else "-"
        part = f"{100 * mine * e['bytes'] / read:.0f} %" if mine and e["bytes"] else ""
        lines.append(f"| {shape} | {name} | {mine or 0:.1f} | {f'{his:.1f}' if his else '-'} | {ratio} | {part} |")
    report(lines, a.out)


if __name__ == "__main__":
    main()
