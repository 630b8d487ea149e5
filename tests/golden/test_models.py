#!/usr/bin/env python3
"""Real models against what transformers generated with them: ids and text, greedy, float32.

usage: test_models.py PROGRAM DATA [JOBS]   (DATA/models/**/reference.json, DATA/tiny/*/golden.json; JOBS programs at a time, else one)
"""
import concurrent.futures
import json
import os
import struct
import subprocess
import sys

PROGRAM, DATA = sys.argv[1], sys.argv[2]
JOBS = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def generate(model, *args):
    command = [PROGRAM, "generate", "-m", model, "--precision", "exact", "--log-level", "error", *args]
    run = subprocess.run(command, capture_output=True)
    if run.returncode:
        return f"exit code {run.returncode}: {run.stderr.decode()}"
    return run.stdout.decode()


def differs(name, got, want):
    """None, or the line that says where."""
    if got == want:
        return None
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"FAILED {name}: differs at {at}: {got[at:at + 60]!r}, expected {want[at:at + 60]!r}"


def reference_checks(folder):
    with open(os.path.join(folder, "config.json")) as f:
        eos = json.load(f).get("eos_token_id")
    with open(os.path.join(folder, "reference.json")) as f:
        results = json.load(f)["results"]
    for i, r in enumerate(results):
        ids = r["generated_ids"]
        name = f"{os.path.relpath(folder, DATA)} {i}"
        prompt_ids = ",".join(map(str, r["prompt_ids"]))
        want = [str(t) for t in (ids[:ids.index(eos)] if eos in ids else ids)]
        args = ["--tokens", prompt_ids, "--ids", "-n", str(len(ids))]
        yield lambda name=name, args=args, want=want: differs(name + " ids", generate(folder, *args).split(), want)
        if "rendered" not in r:
            continue
        text = r["text"].replace("<|im_end|>", "").replace("</s>", "").rstrip("\n")
        args = ["-p", r["prompt"], "-n", str(len(ids)), *([] if r["rendered"] != r["prompt"] else ["--no-chat-template"])]
        yield lambda name=name, args=args, text=text: differs(name + " text", generate(folder, *args).strip("\n "), text.strip())


def tiny_checks(folder):
    with open(os.path.join(folder, "golden.json")) as f:
        for i, r in enumerate(json.load(f)):
            name, text = f"{os.path.relpath(folder, DATA)} {i} text", r["text"]
            args = ["--no-chat-template", "-p", r["prompt"], "-n", "400"]
            yield lambda name=name, args=args, text=text: differs(name, generate(folder, *args)[:len(text)], text)


def read_ids(path, name):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start, end = header[name]["data_offsets"]
        f.seek(start, os.SEEK_CUR)
        return [str(i) for i in struct.unpack(f"<{(end - start) // 8}q", f.read(end - start))]


def dynamic_checks(folder):
    """Rope that follows the length: a longer context than the model's is had by asking for it."""
    path = os.path.join(folder, "golden.safetensors")
    if not os.path.exists(path):
        return
    prompt, want = read_ids(path, "prompt_2"), read_ids(path, "greedy_2")
    args = ["--tokens", ",".join(prompt), "--ids", "--ignore-eos", "-n", str(len(want))]
    yield lambda: differs("dynamic rope", generate(folder, *args, "-c", "96").split(), want)
    yield lambda: None if "context" in generate(folder, *args) else "FAILED dynamic rope: a long prompt without --ctx-size"


checks = [*dynamic_checks(os.path.join(DATA, "golden", "llama-dynamic-rope"))]
for root, _, files in sorted(os.walk(DATA)):
    if "reference.json" in files:
        checks += reference_checks(root)
    if "golden.json" in files and "config.json" in files:
        checks += tiny_checks(root)
with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
    found = list(pool.map(lambda one: one(), checks))
failures = [line for line in found if line]
for line in failures:
    print(line)
print(f"{len(found) - len(failures)} passed, {len(failures)} failed")
sys.exit(1 if failures else 0)
