#!/usr/bin/env python3
"""Embeddings as a model's own files want them: vectors of a sentence-transformers folder against that library's.

usage: test_embeddings.py PROGRAM DATA
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from harness import Server, check, finish

PROGRAM, DATA = sys.argv[1:3]
FOLDER = os.path.join(DATA, "golden2", "qwen3-st-last")
# first token; mean without the prompt, a dense layer; two dense layers and a prompt by default; last token; the largest numbers
FIXTURES = ["bert-st-cls", "nomic_bert-st-mean", "embeddinggemma-st", "qwen3-st-last", "mpnet-st-max"]
USUAL = {"embeddinggemma-st": "sentence_document"}


def golden(folder):
    """Name to rows of numbers."""
    with open(os.path.join(folder, "golden.safetensors"), "rb") as f:
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


def compare(server, texts, want, what, **fields):
    code, _, text = server.request("/v1/embeddings", {"input": texts, **fields})
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


def check_fixture(name):
    """As the folder says, with each of its prompts by name, and the same vectors from the command."""
    folder = os.path.join(DATA, "golden2", name)
    want = golden(folder)
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as f:
        given = json.load(f)
    texts, prompts = given["texts"], given.get("prompts", {})
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        compare(s, texts, want[USUAL.get(name, "sentence")], f"{name}, as its files say")
        compare(s, texts, want["sentence"], f"{name} without a prompt", prompt_name="")
        for prompt in prompts:
            compare(s, texts, want["sentence_" + prompt], f"{name}, prompt {prompt}", prompt_name=prompt)
        code, _, text = s.request("/v1/embeddings", {"input": "Hi", "prompt_name": "nonsense"})
        check(code == 400 and "nonsense" in text and all(p in text for p in prompts), f"{name}: a prompt that is not there: {code} {text}")
        alone = [json.loads(s.request("/v1/embeddings", {"input": t})[2])["data"][0]["embedding"] for t in texts]
        together = json.loads(s.request("/v1/embeddings", {"input": texts})[2])["data"]
        check(alone == [d["embedding"] for d in together], f"{name}: texts together have the numbers that they have alone")
    run = subprocess.run([PROGRAM, "embed", "-m", folder, "--device", "cpu", *texts], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check([json.loads(line) for line in run.stdout.splitlines()] == alone, f"{name}: the command: {run.returncode} {run.stderr[-300:]!r}")
    lines = subprocess.run([PROGRAM, "embed", "-m", folder, "--device", "cpu"], input="\n".join(texts).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    check(lines.stdout == run.stdout, f"{name}: lines of standard input")


def check_encoder():
    """What an encoder cannot do is said, and what is too long is refused or cut."""
    folder = os.path.join(DATA, "golden2", "bert-st-cls")
    long = "cat " * 600
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        code, _, text = s.request("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
        check(400 <= code < 600 and "encoder" in text, f"a completion of an encoder: {code} {text}")
        code, _, text = s.request("/v1/embeddings", {"input": long})
        check(code == 400 and "254" in text, f"a text beyond max_seq_length: {code} {text}")
        code, _, text = s.request("/api/embed", {"input": long})
        cut = json.loads(text).get("embeddings", [[]])[0] if code == 200 else []
        want = json.loads(s.request("/v1/embeddings", {"input": "cat " * 252})[2])["data"][0]["embedding"]
        check(len(cut) == 64 and cosine(cut, want) > 0.999999, f"cut where the protocol does that, and closed: {code} {text[:200]}")
    run = subprocess.run([PROGRAM, "generate", "-m", folder, "--device", "cpu", "-p", "Hi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(run.returncode == 1 and b"encoder" in run.stderr, f"generate with an encoder: {run.returncode} {run.stderr!r}")


def refused(folder, words, what):
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        code, _, text = s.request("/v1/embeddings", {"input": "Hi"})
        check(400 <= code < 600 and words in text, f"{what}: {code} {text}")
        code, _, text = s.request("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
        check(code == 200, f"{what}, and a completion: {code} {text}")


def main():
    for name in FIXTURES:
        check_fixture(name)
    check_encoder()
    want = golden(FOLDER)
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
        for mode, name in (("cls", "pool_cls_norm"), ("max", "pool_max_norm")):
            with Server(PROGRAM, "-m", change(scratch, mode, {"1_Pooling/config.json": {"pooling_mode": mode}}), "--device", "cpu", "--precision", "exact") as s:
                compare(s, texts, want[name], f"pooling {mode}")
        refused(change(scratch, "odd", {"1_Pooling/config.json": {"pooling_mode": "odd"}}), 'pooling \\"odd\\"', "a pooling that is not known")
        both = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True}
        refused(change(scratch, "both", {"1_Pooling/config.json": both}), "several at once", "two poolings")
        router = [{"path": "2_Router", "type": "sentence_transformers.models.Router"}]
        refused(change(scratch, "router", {"modules.json": router}), "models.Router", "a layer that is not known")
        dense = [{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]
        refused(change(scratch, "dense", {"modules.json": dense}), "2_Dense/config.json is missing", "a layer that is not there")
        refused(change(scratch, "lower", {"sentence_bert_config.json": {"do_lower_case": True}}), "do_lower_case", "texts in lower case")
        away = [{"path": "../other", "type": "sentence_transformers.models.Pooling"}]
        refused(change(scratch, "away", {"modules.json": away}), "no folder of the model", "a pooling outside the folder")
        prompt = {"prompts": {"document": "text: "}, "default_prompt_name": "query"}
        refused(change(scratch, "prompt", {"config_sentence_transformers.json": prompt}), "default_prompt_name", "a prompt by default that is not there")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
