#!/usr/bin/env python3
"""No slow path that nobody knows of: of what the steps of well-known checkpoints (checkpoints.py) and GGUF files (bench/gguf_shape.py) read, at most 1 % may go through reference rows, on
every kind of GPU that we compile kernels for. Plans only; cuda_paths makes them from the CUDA backend's own choice. What is allowed above that stands
in EXCEPTIONS with its figure, and a larger one fails. Tokens of the models of ONE_KERNEL must be one list of instructions (kernels/one.cu) and little else. GPUs before 8.0 are listed and not judged.

usage: test_paths.py BUILD [--list] [NAME...]
"""
import json
import os
import subprocess
import sys
import tempfile

import checkpoints

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "bench"))
import gguf_shape

GGUF_FILES = [("llama-3.1-8b", "q4_k_m"), ("llama-3.2-1b", "q5_k"), ("llama-3.2-1b", "q6_k"), ("llama-3.2-1b", "q8_0"), ("qwen3-30b-a3b", "q4_k_m")]
LIMIT = 0.01
ONE_KERNEL = [f"{shape}-{kind}.gguf" for shape, kind in GGUF_FILES if shape != "qwen3-30b-a3b"] + [
    "gpt-oss-20b-mxfp4-q8", "Gemma-2-9B-4bit", "Gemma-3-1B-4bit", "Gemma-3-4B-4bit", "Gemma-3-27B-4bit", "DeepSeek-V2-Lite-4bit", "GLM-4.7-Flash-4bit"]
FEW_LAUNCHES = 6  # the embedding, the list, the choice
CUT_LISTS = {("llama-3.1-8b-q4_k_m.gguf", "80"), ("llama-3.2-1b-q6_k.gguf", "80"),  # rings of step.cu for long rows of Q6_K do not fit 163 KB
             ("Gemma-3-27B-4bit", "86"), ("Gemma-3-27B-4bit", "89"), ("Gemma-3-27B-4bit", "120")}  # nor those for rows of 21,504 elements 99 KB
LISTED = ["75"]  # their kernels for prompts and batches do not exist: bf16 products begin with 8.0
# (checkpoint, step): the share that is known, rounded up to a thousandth
EXCEPTIONS = {}


def plans(build, folders):
    run = subprocess.run([f"{build}/cuda_paths", os.path.join(ROOT, "kernels", "kernels.list"), *folders], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    if run.returncode:
        sys.exit(f"cuda_paths failed: {run.stderr.decode()}")
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


def write_gguf(folder, shape, kind):
    path = os.path.join(folder, f"{shape}-{kind}.gguf")
    gguf_shape.write(shape, path, gguf_shape.TYPES[kind], is_hole=True, layers=2, vocab=32000)
    return path


def share(step):
    return step["slow_bytes"] / step["bytes"]


def judge(name, gpu, step):
    """An error in words, or nothing."""
    known = EXCEPTIONS.get((name, step["step"]))
    if share(step) > (known or LIMIT):
        return f"{name} on {gpu}, {step['text']}" + (f"; {100 * known:.1f} % are known" if known else "")
    if name in ONE_KERNEL and step["step"] == "1 row" and (step["launches"] > FEW_LAUNCHES) != ((name, gpu) in CUT_LISTS):
        return f"{name} on {gpu}, {step['text']}; at most {FEW_LAUNCHES} are expected, but for CUT_LISTS"
    return None


def main():
    args = sys.argv[1:]
    shows = "--list" in args
    build, *only = [a for a in args if a != "--list"]
    rows = [r for r in checkpoints.CHECKPOINTS if not only or r[0] in only]
    failed = passed = 0
    worst = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [write_gguf(folder, *f) for f in GGUF_FILES if not only or f"{f[0]}-{f[1]}.gguf" in only]
        for plan in plans(build, [checkpoints.write(folder, r) for r in rows] + files):
            name, gpu = os.path.basename(plan["model"]), plan["gpu"]
            for step in plan["steps"]:
                key = (name, step["step"])
                worst[key] = max(worst.get(key, 0), 0 if gpu in LISTED else share(step))
                if shows:
                    print(f"{name:26} {gpu:4} {step['text']}")
                words = None if gpu in LISTED else judge(name, gpu, step)
                if words:
                    print("FAILED", words)
                passed += words is None
                failed += words is not None
    for key, known in EXCEPTIONS.items():
        if key in worst and worst[key] <= LIMIT:
            print(f"FAILED {key} is an exception of {known}, and needs none any more")
            failed += 1
    if len(checkpoints.CHECKPOINTS) < 40:
        failed += 1
        print("FAILED fewer than 40 checkpoints")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
