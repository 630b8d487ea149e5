#!/usr/bin/env python3
"""Embeddings as a model's own files want them: vectors of a sentence-transformers folder against that library's.

usage: test_embeddings.py PROGRAM DATA
"""
import json
import math
import os
import shutil
import struct
import sys
import tempfile

from harness import Server, check, finish

PROGRAM, DATA = sys.argv[1:3]
FOLDER = os.path.join(DATA, "golden2", "qwen3-st-last")


def golden():
    """Name to rows of numbers."""
    with open(os.path.join(FOLDER, "golden.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, body = json.loads(f.read(n)), f.read()
    out = {}
    for name, t in header.items():
        if name == "__metadata__" or t["dtype"] != "F32" or len(t["shape"]) != 2:
            continue
        first, last = t["data_offsets"]
        width = t["shape"][1]
        numbers = struct.unpack(f"<{(last - first) // 4}f", body[first:last])
        out[name] = [numbers[i:i + width] for i in range(0, len(numbers), width)]
    return out


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def compare(server, texts, want, what):
    code, _, text = server.request("/v1/embeddings", {"input": texts})
    vectors = [d["embedding"] for d in json.loads(text)["data"]] if code == 200 else []
    worst = min((cosine(v, w) for v, w in zip(vectors, want)), default=-1)
    check(len(vectors) == len(texts) and worst >= 0.99999, f"{what}: {code}, cosine {worst}")


def change(scratch, name, files):
    """A copy of the folder with other side files."""
    folder = os.path.join(scratch, name)
    shutil.copytree(FOLDER, folder)
    for path, value in files.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            json.dump(value, f)
    return folder


def refused(folder, words, what):
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        code, _, text = s.request("/v1/embeddings", {"input": "Hi"})
        check(400 <= code < 600 and words in text, f"{what}: {code} {text}")
        code, _, text = s.request("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
        check(code == 200, f"{what}, and a completion: {code} {text}")


def main():
    want = golden()
    with open(os.path.join(FOLDER, "texts.json"), encoding="utf-8") as f:
        given = json.load(f)
    texts, query = given["texts"], given["prompts"]["query"]
    with Server(PROGRAM, "-m", FOLDER, "--device", "cpu", "--precision", "exact") as s:
        compare(s, texts, want["sentence"], "as the folder says")
        compare(s, [query + t for t in texts], want["sentence_query"], "with the prompt of queries")
    with Server(PROGRAM, "-m", FOLDER, "--device", "cpu", "--precision", "exact", "--pooling", "mean") as s:
        compare(s, texts, want["pool_mean_norm"], "--pooling mean")
    with tempfile.TemporaryDirectory() as scratch:
        old = {"1_Pooling/config.json": {"word_embedding_dimension": 64, "pooling_mode_lasttoken": False, "pooling_mode_mean_tokens": True}}
        with Server(PROGRAM, "-m", change(scratch, "old", old), "--device", "cpu", "--precision", "exact") as s:
            compare(s, texts, want["pool_mean_norm"], "the older spelling")
        refused(change(scratch, "cls", {"1_Pooling/config.json": {"pooling_mode": "cls"}}), 'pooling \\"cls\\"', "a pooling that is not supported")
        both = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True}
        refused(change(scratch, "both", {"1_Pooling/config.json": both}), "several at once", "two poolings")
        dense = [{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]
        refused(change(scratch, "dense", {"modules.json": dense}), "models.Dense", "a layer behind the pooling")
        away = [{"path": "../other", "type": "sentence_transformers.models.Pooling"}]
        refused(change(scratch, "away", {"modules.json": away}), "no folder of the model", "a pooling outside the folder")
        prompt = {"prompts": {"document": "text: "}, "default_prompt_name": "document"}
        refused(change(scratch, "prompt", {"config_sentence_transformers.json": prompt}), "default_prompt_name", "a prompt by default")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
