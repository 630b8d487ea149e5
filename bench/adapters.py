#!/usr/bin/env python3
"""What adapters cost in a batch: a made-up model with four adapters of rank 16 for all projections, N requests at once, each with one of the four,
beside the same requests without. Tokens per second of the server's processor time (with one thread), so that other work on the machine
does not count; rounds in turn, medians. Linux.

usage: adapters.py MLXCEL [--shape qwen3-0.6b] [--requests 16] [--new 24] [--rounds 3] [--rank 16] [--folder build/adapters]
"""
import argparse
import concurrent.futures
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def make_adapter(folder, config, rank, seed):
    """As PEFT writes one. A stretch of small random numbers, repeated."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    q, kv = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    sizes = {"self_attn.q_proj": (width, q), "self_attn.k_proj": (width, kv), "self_attn.v_proj": (width, kv), "self_attn.o_proj": (q, width),
             "mlp.gate_proj": (width, inner), "mlp.up_proj": (width, inner), "mlp.down_proj": (inner, width)}
    numbers, header, data = random.Random(seed), {}, bytearray()
    part = struct.pack("<4096f", *(numbers.gauss(0, 0.005) for _ in range(4096)))
    for layer in range(config["num_hidden_layers"]):
        for module, (n_in, n_out) in sizes.items():
            for which, shape in (("A", (rank, n_in)), ("B", (n_out, rank))):
                n = 4 * shape[0] * shape[1]
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{which}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + n]}
                data += (part * (n // len(part) + 1))[:n]
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [m.split(".")[1] for m in sizes]}))


def seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port, lora, n):
    body = {"prompt": [5, 6, 7, 8], "n_predict": n, "temperature": 0, "ignore_eos": True, "cache_prompt": False, "lora": lora}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def batch(a, pid, adapted):
    before = seconds(pid)
    with concurrent.futures.ThreadPoolExecutor(a.requests) as pool:
        jobs = [pool.submit(ask, a.port, [{"id": i % 4, "scale": 1}] if adapted else [], a.new) for i in range(a.requests)]
        for job in jobs:
            job.result()
    return a.requests * a.new / (seconds(pid) - before)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("--shape", default="qwen3-0.6b")
    p.add_argument("--requests", type=int, default=16)
    p.add_argument("--new", type=int, default=24)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--port", type=int, default=8931)
    p.add_argument("--folder", type=Path, default=Path("build/adapters"))
    a = p.parse_args()
    model = a.folder / a.shape
    if not (model / "config.json").exists():
        a.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([a.mlxcel, "synth", "--shape", a.shape, "-o", model], check=True)
    config = json.loads((model / "config.json").read_text())
    names = [a.folder / f"{a.shape}-{a.rank}-{i}" for i in range(4)]
    for i, name in enumerate(names):
        if not (name / "adapter_config.json").exists():
            make_adapter(name, config, a.rank, i)
    command = [a.mlxcel, "serve", "-m", model, "--device", "cpu", "-t", 1, "-c", 256, "--port", a.port]
    server = subprocess.Popen([str(c) for c in command + [x for n in names for x in ("--adapter", n)]], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                ask(a.port, [], 1)
                break
            except OSError:
                time.sleep(0.5)
        found = {False: [], True: []}
        for i in range(a.rounds):
            for adapted in (False, True) if i % 2 == 0 else (True, False):
                found[adapted].append(batch(a, server.pid, adapted))
                print("with" if adapted else "without", f"{found[adapted][-1]:.1f}", file=sys.stderr, flush=True)
    finally:
        server.terminate()
        server.wait()
    without, adapted = (statistics.median(found[k]) for k in (False, True))
    print(f"{a.shape}, {a.requests} requests, four adapters of rank {a.rank}: {without:.1f} tokens per second of processor time without, {adapted:.1f} with: "
          f"{100 * (1 - adapted / without):.1f} % less")


if __name__ == "__main__":
    main()
