#!/usr/bin/env python3
"""`mlxcel perplexity` against transformers' numbers in cases.txt (to 0.1 %), and against itself in other batches.

usage: test_perplexity.py PROGRAM DATA      last line: "N passed, N failed"
"""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from counting import HANG, check, finish  # noqa: E402

HERE = Path(__file__).parent
program, data = os.path.abspath(sys.argv[1]), Path(sys.argv[2])


def perplexity(*args, stdin=None):
    r = subprocess.run([program, "perplexity", *map(str, args), "--json"], capture_output=True, text=True, timeout=HANG, input=stdin)
    return json.loads(r.stdout) if r.returncode == 0 else {"perplexity": 0, "error": r.stderr}


def main():
    story = HERE / "story.txt"
    for line in (HERE / "cases.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        folder, chunk, tokens, wanted = line.split()
        for batch in ("1", "4"):
            got = perplexity("-m", data / folder, "--chunk", chunk, "--batch", batch, story)
            off = abs(got["perplexity"] / float(wanted) - 1)
            check(off < 1e-3 and got["tokens"] == int(tokens), f"{folder} {chunk} batch {batch}: {got}, wanted {wanted}: off by {off:.5%}")
    stories = data / "models/stories260K/hf"
    exact = [perplexity("-m", stories, "--precision", "exact", "--chunk", "100", "--batch", b, story)["perplexity"] for b in ("1", "3", "8")]
    check(exact[0] > 1 and exact[0] == exact[1] == exact[2], f"the batch changes nothing: {exact}")
    check(perplexity("-m", stories, "-", stdin=story.read_text())["perplexity"] > 1, "standard input")
    r = subprocess.run([program, "perplexity", "-m", stories, "-"], capture_output=True, text=True, timeout=HANG, input="")
    check(r.returncode == 1 and "two tokens" in r.stderr, f"an empty text: {r.returncode} {r.stderr}")
    r = subprocess.run([program, "perplexity", "-m", stories, "/no/such/file"], capture_output=True, text=True, timeout=HANG)
    check(r.returncode == 1 and "/no/such/file" in r.stderr, f"no file: {r.returncode} {r.stderr}")
    finish()


sys.exit(main())
