#!/usr/bin/env python3
"""Prompts of thousands of tokens: rows of logits against what transformers computed (tests/golden/long, by make_long.py).

The checkpoints are the fixtures of DATA/golden and golden2, some with another window or rope in their config.json; the prompt is a
formula. `mlxcel logits --precision exact` runs it in chunks of its own choice; a few rows, the last ones among them, must
lie within the tolerance of tests/golden/tolerance.list (there under "long:NAME" where it is wider for long prompts).

usage: test_long.py PROGRAM DATA [--only TEXT]                                       last line: "N passed, N failed"
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "long"
LONG = 4200
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 128, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 0.8, "rope_theta": 10000.0}

# name: fixture, keys of config.json that are changed, length of the prompt
CASES = {
    "llama3-rope": ("llama3-rope", {}, LONG),
    "llama-yarn": ("llama-yarn", {}, LONG),
    "mistral-w16": ("mistral", {}, LONG),
    "mistral-w1000": ("mistral", {"sliding_window": 1000}, LONG),
    "gemma3-w16": ("gemma3", {}, LONG),
    "gemma3-w1000": ("gemma3", {"sliding_window": 1000}, LONG),
    "gpt_oss-w128": ("gpt_oss", {"sliding_window": 128}, LONG),
    "llama4-c1000": ("llama4", {"attention_chunk_size": 1000}, LONG),
    "deepseek_v2": ("deepseek_v2", {}, LONG),
    "deepseek_v3-yarn": ("deepseek_v3", {"rope_parameters": YARN}, LONG),
    "qwen3_next": ("qwen3_next", {}, LONG),
    "qwen3_5": ("qwen3_5", {}, LONG),
    "mamba2": ("mamba2", {}, LONG),
    "bloom": ("bloom", {"seq_length": 8192}, 2100),
    "mpt": ("mpt", {"max_seq_len": 8192}, LONG),
    "falcon-alibi": ("falcon-alibi", {}, 2100),
    "phi3-longrope-32": ("phi3-longrope", {}, 32),
    "phi3-longrope-33": ("phi3-longrope", {}, 33),
    "phi3-longrope": ("phi3-longrope", {}, LONG),
    "phi3-longrope-4096": ("phi3-longrope", {"original_max_position_embeddings": 4096}, 4096),
    "phi3-longrope-4097": ("phi3-longrope", {"original_max_position_embeddings": 4096}, 4097),
}


def prompt(n, vocab):
    return [5 + (i * i * 31 + i * 7 + (i >> 5) * 11) % (vocab - 5) for i in range(n)]


def positions(n):
    """Some rows on the way, and the last two."""
    return sorted({p for p in (40, 1023, 2049, 4096) if p < n - 2} | {n - 2, n - 1})


def make_folder(data, case, to):
    """The fixture with its changed config.json in the folder `to`; returns that config."""
    fixture, changes, _ = CASES[case]
    source = next(p for d in ("golden", "golden2") if (p := Path(data).resolve() / d / fixture).exists())
    config = json.loads((source / "config.json").read_text())
    if "max_position_embeddings" in config:
        config["max_position_embeddings"] = 8192
    config.update(changes)
    if "original_max_position_embeddings" in changes:
        config["rope_parameters"]["original_max_position_embeddings"] = changes["original_max_position_embeddings"]
    for file in source.iterdir():
        if file.name not in ("config.json", "golden.safetensors"):
            os.symlink(file, Path(to) / file.name)
    (Path(to) / "config.json").write_text(json.dumps(config))
    return config


def tolerance(case):
    bars = {}
    for line in (HERE / "tolerance.list").read_text().splitlines():
        words = line.split(" ", 2)
        if len(words) == 3 and words[1] != "skip":
            bars[words[0]] = float(words[1])
    return bars.get(f"long:{case}", bars.get(CASES[case][0], 1e-4))


def floats(path):
    values = array.array("f")
    values.frombytes(Path(path).read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def check(program, data, case):
    """None and the worst distance, or what is wrong."""
    with tempfile.TemporaryDirectory() as temp:
        config = make_folder(data, case, temp)
        n, vocab = CASES[case][2], config["vocab_size"]
        out = os.path.join(temp, "logits")
        ids = ",".join(map(str, prompt(n, vocab)))
        done = subprocess.run([program, "logits", "-m", temp, "--tokens", ids, "--out", out, "--precision", "exact", "--device", "cpu", "-c", "4224"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip(), 0
        got = floats(out)
    if len(got) != n * vocab:
        return f"{len(got)} numbers, expected {n * vocab}", 0
    want = floats(KEPT / f"{case}.f32")
    rows = positions(n)
    mean = sum(want) / len(want)
    sd = (sum((x - mean) ** 2 for x in want) / len(want)) ** 0.5
    worst, where = 0.0, 0
    for i, row in enumerate(rows):
        d = max(abs(a - b) for a, b in zip(got[row * vocab:(row + 1) * vocab], want[i * vocab:(i + 1) * vocab])) / sd
        if not d <= worst:
            worst, where = d, row
    bar = tolerance(case)
    return (None if worst <= bar else f"position {where}: {worst:.2g} sd, allowed {bar:.2g}"), worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("data")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    passed = failed = 0
    for case in CASES:
        if args.only not in case:
            continue
        wrong, worst = check(args.program, args.data, case)
        passed += wrong is None
        failed += wrong is not None
        print(f"FAILED {case}: {wrong}" if wrong else f"ok {case}: {CASES[case][2]} tokens, {worst:.2g} sd", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
