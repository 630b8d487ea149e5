#!/usr/bin/env python3
"""Model folders whose only tokenizer is a file of another kind than tokenizer.json: generate and serve read them as tokenize does.

usage: test_folders.py PROGRAM
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from harness import Server, check, finish

PROGRAM = sys.argv[1]
OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "text", "tokenizers")
FOLDERS = [  # of a tokenizer, its file, the name that models have it under
    ("tiktoken-kimi", "ranks.tiktoken", "tiktoken.model"), ("tiktoken", "ranks.tiktoken", "qwen.tiktoken"), ("tekken", "tekken.json", "tekken.json"),
    ("spm-bpe", "tokenizer.model", "tokenizer.model"),
]
TEXT = "Hello, world 42"


def run(*args):
    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=300)
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr}"


def make(scratch, model, name, file, as_name):
    folder = os.path.join(scratch, name)
    shutil.copytree(model, folder)
    for old in ("tokenizer.json", "tokenizer_config.json"):
        if os.path.exists(os.path.join(folder, old)):
            os.remove(os.path.join(folder, old))
    shutil.copy(os.path.join(OWN, name, file), os.path.join(folder, as_name))
    config = os.path.join(OWN, name, "tokenizer_config.json")
    if os.path.exists(config):
        shutil.copy(config, folder)
    return folder


def main():
    with tempfile.TemporaryDirectory() as scratch:
        model = os.path.join(scratch, "model")
        run("synth", "--shape", "tiny", "-o", model)
        for name, file, as_name in FOLDERS:
            folder = make(scratch, model, name, file, as_name)
            lines = run("tokenize", "-m", folder, "-p", TEXT, "--add-special").splitlines()
            bos = ["1"] if name == "tekken" else []  # its raw prompts begin with <s>
            tokens = ",".join(bos + [line.split()[0] for line in lines])
            by_ids = run("generate", "-m", folder, "--device", "cpu", "--tokens", tokens, "--ids", "-n", "5", "--temperature", "0")
            by_text = run("generate", "-m", folder, "--device", "cpu", "-p", TEXT, "--ids", "-n", "5", "--temperature", "0")
            check(by_ids and by_ids == by_text and "exit" not in by_ids, f"{name}: {tokens} gives {by_ids}, the text {by_text}")
            with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
                code, _, text = s.request("/v1/completions", {"prompt": TEXT, "max_tokens": 3, "temperature": 0})
                n = json.loads(text)["usage"]["prompt_tokens"] if code == 200 else 0
                check(n == tokens.count(",") + 1, f"{name} served: {code} {text}")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
