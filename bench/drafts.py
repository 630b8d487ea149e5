#!/usr/bin/env python3
"""What drafts are worth: three texts, replayed with and without them.

    edit    a source file, and the same file with 5 % of its lines edited
    quote   a document and questions; the answer quotes it
    prose   a question, and prose that repeats nothing

The texts are made by the script, always the same. `--out DIR` leaves them there as files for `mlxcel bench --replay`.

usage: drafts.py PROGRAM [--out DIR] [--repeats N] [further options of mlxcel bench, such as --shape qwen3-0.6b --threads 2]
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

WORDS = ("river stone window garden letter morning harbour silver market candle forest mountain winter summer thunder valley meadow bridge lantern shadow mirror "
         "feather copper engine ladder basket island kitchen orchard picture quarter railway saddle ticket uncle village wagon yellow zebra anchor bottle castle "
         "dragon eagle fiddle ginger hammer insect jacket kettle lemon marble needle ocean pepper quiver ribbon saffron temple urchin velvet whistle").split()
VERBS = "found carried painted followed measured opened remembered counted crossed repaired borrowed described noticed gathered traded folded lifted chased hid sold".split()


def source_file(numbers):
    lines = []
    for i in range(12):
        name, other, verb = numbers.choice(WORDS), numbers.choice(WORDS), numbers.choice(VERBS)
        lines += [f"def {verb}_{name}_{i}({other}, limit={numbers.randrange(100)}):", f"    total = {numbers.randrange(1000)}", f"    for item in {other}:",
                  f"        if item.{name} > limit:", f"            total += item.{name} * {numbers.randrange(2, 9)}", "    return total", ""]
    return lines


def edited(lines, numbers):
    out = list(lines)
    for i in numbers.sample([i for i, line in enumerate(lines) if line.strip()], max(1, len(lines) // 20)):
        out[i] = out[i].replace("total", "amount") if "total" in out[i] else out[i] + f"  # {numbers.choice(WORDS)}"
    return out


def sentence(numbers):
    a, b, c = numbers.sample(WORDS, 3)
    return f"The {a} {numbers.choice(VERBS)} a {b} near {numbers.randrange(10, 99)} of the {c}s, {numbers.choice(VERBS)} by {numbers.choice(WORDS)} and {numbers.choice(WORDS)}."


def quoting(sentences, numbers):
    """Half of each answer is the document's own words."""
    out = []
    for _ in range(5):
        at = numbers.randrange(len(sentences) - 3)
        out.append(f"On {numbers.choice(WORDS)} {numbers.choice(WORDS)} it says: \"" + " ".join(sentences[at:at + 3]) + f"\" That {numbers.choice(VERBS)} {numbers.choice(WORDS)}.")
    return " ".join(out)


def texts():
    numbers = random.Random(31)
    lines = source_file(numbers)
    document = [sentence(numbers) for _ in range(30)]
    prose = random.Random(7)
    return {"edit": {"prompt": "\n".join(lines) + "\nRename and comment as told.\n", "answer": "\n".join(edited(lines, numbers))},
            "quote": {"prompt": " ".join(document) + "\nWhat does it say?\n", "answer": quoting(document, numbers)},
            "prose": {"prompt": "Tell a story.\n", "answer": " ".join(prose.choice(WORDS + VERBS) for _ in range(300))}}


def measure(program, path, kind, repeats, more):
    command = [program, "bench", "--replay", path, "--draft", kind, "-r", str(repeats), "-o", "json", *more]
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(command)}: {r.stderr}")
    return json.loads(r.stdout)[0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--out")
    p.add_argument("--repeats", type=int, default=3)
    args, more = p.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = args.out or folder
        os.makedirs(folder, exist_ok=True)
        print(f"{'text':8} {'without':>10} {'with':>10} {'ratio':>7} {'tokens/step':>12} {'accepted':>18}   tok/s, fastest run")
        for name, text in texts().items():
            path = os.path.join(folder, name + ".json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(text, f)
            plain, drafted = (measure(args.program, path, kind, args.repeats, more) for kind in ("none", "ngram"))
            rate = [b["n_gen"] * b["batch"] / min(b["seconds"]) for b in (plain, drafted)]
            steps = (args.repeats + 1) * plain["n_gen"] / max(1, drafted["steps"] - (plain["steps"] - (args.repeats + 1) * plain["n_gen"]))
            print(f"{name:8} {rate[0]:10.2f} {rate[1]:10.2f} {rate[1] / rate[0]:6.2f}x {steps:12.2f} {drafted['draft_tokens_accepted']:8.0f} of {drafted['draft_tokens']:.0f}", flush=True)


if __name__ == "__main__":
    main()
