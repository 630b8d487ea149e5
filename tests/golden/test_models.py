#!/usr/bin/env python3
"""Real models against what transformers generated with them: ids and text, greedy, float32.

usage: test_models.py PROGRAM DATA   (DATA/models/**/reference.json, DATA/tiny/*/golden.json)
"""
import json
import os
import subprocess
import sys

PROGRAM, DATA = sys.argv[1], sys.argv[2]
passed = failed = 0


def generate(model, *args):
    command = [PROGRAM, "generate", "-m", model, "--precision", "exact", "--log-level", "error", *args]
    run = subprocess.run(command, capture_output=True, timeout=300)
    if run.returncode:
        return f"exit code {run.returncode}: {run.stderr.decode()}"
    return run.stdout.decode()


def check(name, got, want):
    global passed, failed
    if got == want:
        passed += 1
        return
    failed += 1
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    print(f"FAILED {name}: differs at {at}: {got[at:at + 60]!r}, expected {want[at:at + 60]!r}")


def check_reference(folder):
    with open(os.path.join(folder, "config.json")) as f:
        eos = json.load(f).get("eos_token_id")
    with open(os.path.join(folder, "reference.json")) as f:
        results = json.load(f)["results"]
    for i, r in enumerate(results):
        ids = r["generated_ids"]
        name = f"{os.path.relpath(folder, DATA)} {i}"
        prompt_ids = ",".join(map(str, r["prompt_ids"]))
        want = ids[:ids.index(eos)] if eos in ids else ids
        got = generate(folder, "--tokens", prompt_ids, "--ids", "-n", str(len(ids)))
        check(name + " ids", got.split(), [str(t) for t in want])
        if "rendered" not in r:
            continue
        text = r["text"].replace("<|im_end|>", "").replace("</s>", "")
        raw = [] if r["rendered"] != r["prompt"] else ["--no-chat-template"]
        check(name + " text", generate(folder, "-p", r["prompt"], "-n", str(len(ids)), *raw).rstrip("\n"), text.rstrip("\n"))


def check_tiny(folder):
    with open(os.path.join(folder, "golden.json")) as f:
        for i, r in enumerate(json.load(f)):
            got = generate(folder, "--no-chat-template", "-p", r["prompt"], "-n", "400")
            check(f"{os.path.relpath(folder, DATA)} {i} text", got[:len(r["text"])], r["text"])


for root, _, files in sorted(os.walk(DATA)):
    if "reference.json" in files:
        check_reference(root)
    if "golden.json" in files and "config.json" in files:
        check_tiny(root)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
