#!/usr/bin/env python3
"""Speed of our tokenizers beside Hugging Face tokenizers: same machine, same run, one thread, ids compared.

Text: 10 MB in equal parts of English, program code and Chinese, taken in blocks of 64 KiB in turn. English and code come
from this machine's documentation and Python library; Chinese from --chinese FILE... or, without it, from the translated
messages under /usr/share/locale/zh_CN. Whole: one call for the 10 MB. Lines: one call for each line. The package is
measured as encode (with offsets) and encode_batch_fast (without); the ratio is against the faster one.

Times are the process's processor time, which on a machine that does nothing else is the time that passes.

usage: tokenizers.py BENCH_PROGRAM DATA [--chinese FILE ...] [--only NAME,...] [--repeats N] [--bytes N] [--text FILE]
"""
import argparse
import gettext
import glob
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]  # this file has the package's name
import tokenizers  # noqa: E402  (after the environment is set)

BLOCK = 65536


def read(paths, most):
    parts, n = [], 0
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        parts.append(text)
        n += len(text.encode())
        if n > most:
            break
    return "".join(parts)


def chinese_messages():
    for path in sorted(glob.glob("/usr/share/locale/zh_CN/LC_MESSAGES/*.mo")):
        try:
            with open(path, "rb") as f:
                yield from gettext.GNUTranslations(f)._catalog.values()
        except (OSError, UnicodeDecodeError, ValueError):
            continue


def corpus(args):
    if args.text:
        return Path(args.text).read_text(encoding="utf-8")
    third = args.bytes // 3
    english = read(sorted(p for pattern in ("**/*.txt", "**/*.md", "**/README*", "**/NEWS*") for p in glob.glob(f"/usr/share/doc/{pattern}", recursive=True)), third)
    code = read(sorted(glob.glob(f"{os.path.dirname(os.__file__)}/**/*.py", recursive=True)), third)
    if args.chinese:
        chinese = read(args.chinese, third)
    else:
        chinese = "\n".join(m for m in chinese_messages() if any("\u4e00" <= c <= "\u9fff" for c in m))
    blocks = []
    sources = [s.encode() for s in (english, code, chinese)]
    for i in range(0, third, BLOCK):
        for s in sources:
            at = i % max(1, len(s) - BLOCK) if len(s) < third else i
            blocks.append(s[at:at + BLOCK].decode("utf-8", "ignore"))
    return "".join(blocks)


def timed(function, repeats):
    seconds = []
    result = None
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), result


def reference(path, text, repeats):
    """Median seconds of loading, whole and lines, and the ids of both."""
    load, _ = timed(lambda: tokenizers.Tokenizer.from_file(path), min(repeats, 3))
    lines = text.split("\n")
    out = {"load": load}

    def fresh(): # a new object, so that each run starts with an empty cache, as ours does
        return tokenizers.Tokenizer.from_file(path)

    def run(function):
        seconds, ids = [], None
        for _ in range(repeats):
            t = fresh()
            start = time.process_time()
            result = function(t)
            seconds.append(time.process_time() - start)
            ids = ids or [i for e in result for i in e.ids]
            del result
        return statistics.median(seconds), ids

    out["whole encode"], whole = run(lambda t: [t.encode(text, add_special_tokens=False)])
    out["whole fast"], _ = run(lambda t: t.encode_batch_fast([text], add_special_tokens=False))
    out["lines encode"], each = run(lambda t: [t.encode(line, add_special_tokens=False) for line in lines])
    out["lines fast"], _ = run(lambda t: t.encode_batch_fast(lines, add_special_tokens=False))
    return out, whole + each


def ours(program, path, text_path, repeats, temp):
    ids_path = os.path.join(temp, "ids")
    done = subprocess.run([program, path, text_path, str(repeats), ids_path], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    raw = Path(ids_path).read_bytes()
    return {k: statistics.median(v) for k, v in json.loads(done.stdout).items()}, list(struct.unpack(f"<{len(raw) // 4}i", raw))


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("data")
    parser.add_argument("--chinese", nargs="*")
    parser.add_argument("--text")
    parser.add_argument("--only", default="qwen3,llama3_2,gemma3")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=10_000_000)
    args = parser.parse_args()
    text = corpus(args)
    size = len(text.encode())
    failed = 0
    print(f"{size / 1e6:.1f} MB, {text.count(chr(10)) + 1} lines, medians of {args.repeats}; {cpu_name()}; tokenizers {tokenizers.__version__}")
    print("| tokenizer | way | ours MB/s | encode MB/s | encode_batch_fast MB/s | ratio | ids |\n|---|---|---|---|---|---|---|")
    loads = []
    with tempfile.TemporaryDirectory() as temp:
        text_path = os.path.join(temp, "text")
        Path(text_path).write_bytes(text.encode())
        for name in args.only.split(","):
            with tarfile.open(Path(args.data) / "text" / "tokenizers" / f"{name}.tar.xz") as tar:
                tar.extractall(temp)
            path = os.path.join(temp, name, "tokenizer.json")
            mine, ids = ours(args.program, path, text_path, args.repeats, temp)
            theirs, want = reference(path, text, args.repeats)
            equal = ids == want
            failed += not equal
            for way in ("whole", "lines"):
                best = min(theirs[f"{way} encode"], theirs[f"{way} fast"])
                print(f"| {name} | {way} | {size / mine[way] / 1e6:.1f} | {size / theirs[way + ' encode'] / 1e6:.2f} | {size / theirs[way + ' fast'] / 1e6:.2f} "
                      f"| {best / mine[way]:.1f} | {'equal' if equal else 'DIFFERENT'} |", flush=True)
            loads.append(f"| {name} | {os.path.getsize(path) / 1e6:.1f} | {mine['load'] * 1e3:.1f} | {theirs['load'] * 1e3:.0f} |")
    print("\n| tokenizer | file MB | ours load ms | package load ms |\n|---|---|---|---|")
    print("\n".join(loads))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
