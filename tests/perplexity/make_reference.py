#!/usr/bin/env python3
"""The reference numbers of cases.txt, by transformers: non-overlapping chunks, every token but a chunk's first is predicted.

usage: make_reference.py DATA MODEL_FOLDER CHUNK      needs torch and transformers; prints a line for cases.txt
"""
import math
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

data, name, chunk = sys.argv[1], sys.argv[2], int(sys.argv[3])
folder = os.path.join(data, name)
text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "story.txt"), encoding="utf-8").read()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
total, count = 0.0, 0
with torch.no_grad():
    for first in range(0, len(ids), chunk):
        part = torch.tensor([ids[first : first + chunk]])
        if part.shape[1] < 2:
            continue
        logp = torch.log_softmax(model(part).logits[0, :-1].double(), dim=-1)
        total -= logp[torch.arange(part.shape[1] - 1), part[0, 1:]].sum().item()
        count += part.shape[1] - 1
print(f"{name} {chunk} {count} {math.exp(total / count):.6f}")
