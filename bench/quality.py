#!/usr/bin/env python3
"""The default precision beside `--precision exact`: mean KL divergence and perplexity over a text, teacher-forced.

The text is cut into chunks; both precisions give the logits of every position of a chunk. KL is that of the exact
distribution from the other one, in nats. Needs numpy. --kv-bits 8 or 4 gives the other one such a cache; with --precision exact that
is all that differs. --device cuda computes the other one on a GPU.

usage: quality.py MLXCEL MODEL TEXT_FILE [--tokens 10000] [--chunk 256] [--seconds S] [--threads N] [--kv-bits N] [--precision KIND] [--device NAME]
"""
import os
import re
import subprocess
import tempfile
import time

import numpy as np

import options


def tokens_of(program, model, path):
    with open(path, encoding="utf-8") as text:
        done = subprocess.run([program, "tokenize", "-m", model], stdin=text, capture_output=True, text=True, check=True)
    return [int(i) for i in re.findall(r"\d+", done.stdout)]


def logits(program, model, ids, precision, kv_bits, threads, device, out):
    subprocess.run([program, "logits", "-m", model, "-o", out, "--tokens", ",".join(map(str, ids)), "--precision", precision,
                    "--kv-bits", str(kv_bits), "--device", device, "-t", str(threads)], check=True, capture_output=True)
    x = np.fromfile(out, np.float32).reshape(len(ids), -1).astype(np.float64)
    return x - np.logaddexp.reduce(x, axis=1, keepdims=True)


def main():
    a = options.read(__doc__, "mlxcel", "model", "text", tokens=10000, chunk=256, seconds=1e9, threads=2, kv_bits=16, precision="auto", device="cpu")
    ids = tokens_of(a.mlxcel, a.model, a.text)[: a.tokens]
    kl = loss_exact = loss_fast = same = n = m = 0.0
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits")
        for i in range(0, len(ids) - 1, a.chunk):
            part = ids[i : i + a.chunk]
            if len(part) < 2 or time.time() - start > a.seconds:
                break
            exact = logits(a.mlxcel, a.model, part, "exact", 16, a.threads, "cpu", out)
            fast = logits(a.mlxcel, a.model, part, a.precision, a.kv_bits, a.threads, a.device, out)
            kl += float((np.exp(exact) * (exact - fast)).sum())
            same += float((exact.argmax(1) == fast.argmax(1)).sum())
            n += len(part)
            rows, next_ids = np.arange(len(part) - 1), np.array(part[1:])
            loss_exact -= float(exact[rows, next_ids].sum())
            loss_fast -= float(fast[rows, next_ids].sum())
            m += len(part) - 1
    pe, pf = np.exp(loss_exact / m), np.exp(loss_fast / m)
    print(f"{os.path.basename(a.model.rstrip('/'))}: {int(n)} tokens, mean KL {kl / n:.2e}, same first choice {100 * same / n:.1f} %, "
          f"perplexity {pe:.4f} exact, {pf:.4f} {a.precision} on {a.device}, {a.kv_bits} bits ({100 * (pf / pe - 1):+.3f} %)", flush=True)


if __name__ == "__main__":
    main()
