#!/usr/bin/env python3
"""Writes the reference rows of tests/golden/long: transformers in float32 on the cases of test_long.py.

Needs torch and transformers, which no test needs: the rows are kept. With --double the same in float64 is compared, which
tells how far the reference itself is from the truth.

usage: make_long.py DATA [--only TEXT] [--double]
"""
import argparse
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from test_long import CASES, KEPT, make_folder, positions, prompt


def rows_of(folder, config, n, dtype):
    # Eager attention would add the slopes of this type twice.
    attention = "sdpa" if config["model_type"] == "falcon" else "eager"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
    ids = torch.tensor([prompt(n, config["vocab_size"])])
    with torch.no_grad():
        return model(ids, use_cache=False).logits[0][positions(n)].to(torch.float64).numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--only", default="")
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(2)
    KEPT.mkdir(exist_ok=True)
    for case, (_, _, n) in CASES.items():
        if args.only not in case:
            continue
        with tempfile.TemporaryDirectory() as temp:
            config = make_folder(args.data, case, temp)
            rows = rows_of(temp, config, n, torch.float32)
            assert np.isfinite(rows).all(), case
            (KEPT / f"{case}.f32").write_bytes(rows.astype("<f4").tobytes())
            note = ""
            if args.double:
                note = f", float64 at {np.abs(rows_of(temp, config, n, torch.float64) - rows).max() / rows.std():.2g} sd"
            print(f"{case}: {len(rows)} rows of {n} tokens, sd {rows.std():.3g}{note}", flush=True)


if __name__ == "__main__":
    main()
