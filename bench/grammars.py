#!/usr/bin/env python3
"""Masks and compile times of our grammars beside llguidance and xgrammar: same machine, same run, one thread, the same texts.

The texts are random walks under real-world schemas (tests/grammar/walk_main.c draws each token from our mask, mostly those that close
something). Each engine compiles the schema, then follows the walk's tokens and is timed at each mask, until it refuses a token. Times
are of the processor (of the thread that makes the mask), the least of --passes, each with a fresh matcher, ours with a machine that knows nothing yet; ours are
taken inside the program, the others' around their call from Python, which costs about a microsecond. Asking for the processor's time costs half of one in both.
An engine that needs more than --limit seconds for a schema, compile and masks, is ended and has refused it.

usage: grammars.py WALKER DATA [--every N] [--walks N] [--tokens N] [--passes N] [--tokenizer NAME] [--vocab N] [--limit SECONDS]

Needs the packages llguidance, xgrammar, transformers (and numpy, torch, which they use).
"""
import argparse
import json
import os
import platform
import select
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]  # bench/tokenizers.py has a package's name

ENGINES = ("llguidance", "xgrammar")


# ---- the other engines, each in a process of its own -------------------------------------------------------------------


def llguidance_engine(folder, vocab):
    import llguidance
    import llguidance.hf
    import llguidance.numpy
    import transformers

    tokenizer = llguidance.hf.from_tokenizer(transformers.AutoTokenizer.from_pretrained(folder), n_vocab=vocab)
    mask = llguidance.numpy.allocate_token_bitmask(1, vocab)

    def compile_schema(schema):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.get_error():
            raise ValueError(matcher.get_error())
        llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)  # the first mask belongs to compiling: lexers are built then
        return grammar

    def matcher_of(grammar):
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        return lambda: llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0), matcher.consume_token

    return compile_schema, matcher_of


def xgrammar_engine(folder, vocab):
    import transformers
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(transformers.AutoTokenizer.from_pretrained(folder), vocab_size=vocab)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = xgrammar.allocate_token_bitmask(1, vocab)

    def compile_schema(schema):
        return compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def matcher_of(compiled):
        matcher = xgrammar.GrammarMatcher(compiled)
        return lambda: matcher.fill_next_token_bitmask(mask), matcher.accept_token

    return compile_schema, matcher_of


def measure(compile_schema, matcher_of, schema, walks, passes):
    start = time.process_time_ns()
    compiled = compile_schema(schema)
    out = {"compile_us": (time.process_time_ns() - start) / 1000, "mask_us": []}
    for tokens in walks:
        best = []
        for _ in range(passes):
            fill, consume = matcher_of(compiled)
            for i, token in enumerate(tokens):
                start = time.thread_time_ns()
                fill()
                us = (time.thread_time_ns() - start) / 1000
                if i == len(best):
                    best.append(us)
                best[i] = min(best[i], us)
                if not consume(token):
                    break
        out["mask_us"].append(best)
    return out


def worker(name, folder, vocab):
    compile_schema, matcher_of = {"llguidance": llguidance_engine, "xgrammar": xgrammar_engine}[name](folder, vocab)
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        try:
            answer = measure(compile_schema, matcher_of, task["schema"], task["walks"], task["passes"])
        except Exception as e:  # an engine's own refusals have many types
            answer = {"refused": str(e)[:200]}
        print(json.dumps(answer), flush=True)


class Engine:
    def __init__(self, name, folder, vocab, limit):
        self.limit = limit
        self.arguments = [sys.executable, os.path.abspath(__file__), "--worker", name, folder, str(vocab)]
        self.process = None

    def ask(self, task):
        if not self.process:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.process.stdout.readline()
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        if select.select([self.process.stdout], [], [], self.limit)[0]:
            line = self.process.stdout.readline()
            if line:
                return json.loads(line)
        self.close()
        return {"refused": "took too long, or crashed"}

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


# ---- the comparison ----------------------------------------------------------------------------------------------------


def share(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))] if times else float("nan")


def row(name, times):
    print(f"| {name} | {len(times)} | {sum(times) / max(1, len(times)):.1f} | {share(times, .5):.1f} | {share(times, .99):.0f} | {share(times, .999):.0f} |"
          f" {max(times, default=0):.0f} |")


def report(results):
    """results: per schema {engine: answer}, ours with the same fields."""
    names = ("ours", *ENGINES)
    print("\n| compile | schemas | refused | half, ms | nine of ten, ms | most, ms |\n|---|---|---|---|---|---|")
    for name in names:
        ms = [r[name]["compile_us"] / 1000 for r in results if "refused" not in r[name]]
        print(f"| {name} | {len(ms)} | {len(results) - len(ms)} | {share(ms, .5):.2f} | {share(ms, .9):.1f} | {max(ms):.0f} |")
    header = "| masks, us | number | mean | half | 99 % | 99.9 % | most |\n|---|---|---|---|---|---|---|"
    print(f"\nAll masks that each engine gives:\n\n{header}")
    for name in names:
        row(name, [us for r in results for walk in r[name].get("mask_us", []) for us in walk])
    print(f"\nMasks that all of them give:\n\n{header}")
    common = {name: [] for name in names}
    for r in results:
        if all("refused" not in r[name] for name in names):
            for walks in zip(*(r[name]["mask_us"] for name in names)):
                n = min(map(len, walks))
                for name, walk in zip(names, walks):
                    common[name] += walk[:n]
    for name in names:
        row(name, common[name])


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("walker")
    p.add_argument("data")
    p.add_argument("--tokenizer", default="qwen3")
    p.add_argument("--vocab", type=int, default=151936)
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--walks", type=int, default=3)
    p.add_argument("--tokens", type=int, default=300)
    p.add_argument("--passes", type=int, default=3)
    p.add_argument("--limit", type=float, default=600)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(os.path.join(a.data, "text", "tokenizers", a.tokenizer + ".tar.xz")) as tar:
            tar.extractall(scratch, filter="data")
        folder = os.path.join(scratch, a.tokenizer)
        with open(os.path.join(a.data, "schema", "schemas.jsonl"), encoding="utf-8") as f:
            schemas = [json.loads(line)["schema"] for line in f][::a.every]
        walker = subprocess.Popen([a.walker, folder, str(a.walks), str(a.tokens), str(a.passes), str(a.vocab)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        engines = {name: Engine(name, folder, a.vocab, a.limit) for name in ENGINES}
        results = []
        for schema in schemas:
            walker.stdin.write(json.dumps({"schema": schema}) + "\n")
            walker.stdin.flush()
            answer = json.loads(walker.stdout.readline())
            walks = [w["tokens"][:-1] if w["ended"] else w["tokens"] for w in answer.get("walks", [])]
            if "walks" in answer:
                answer["mask_us"] = [w["mask_us"] for w in answer.pop("walks")]
            task = {"schema": json.dumps(schema), "walks": walks, "passes": a.passes}
            results.append({"ours": answer, **{name: e.ask(task) for name, e in engines.items()}})
            print(f"\r{len(results)} of {len(schemas)} schemas", end="", file=sys.stderr)
        for e in engines.values():
            e.close()
        walker.stdin.close()
        walker.wait()
    print(f"\n{len(schemas)} schemas, {a.walks} walks of at most {a.tokens} tokens, {a.tokenizer}, vocabulary {a.vocab}, least of {a.passes}; {platform.machine()}")
    report(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
