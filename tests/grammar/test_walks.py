#!/usr/bin/env python3
"""Random texts under real-world schemas: each that ended must be valid, each that was cut must be completed to a valid one.

usage: test_walks.py WALKER DATA [--tokenizer NAME] [--walks N] [--tokens N] [--passes N] [--every N] [--times]

WALKER is the program grammar_walk. Numbers are compared as decimals: binary fractions would make 0.29 no multiple of 0.01.
"""
import argparse
import decimal
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import jsonschema


MIN_ENDED = 0.9


def parse(text):
    return json.loads(text, parse_float=decimal.Decimal)


def validator(schema):
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    checker = cls.TYPE_CHECKER.redefine("number", lambda _, v: not isinstance(v, bool) and isinstance(v, (int, float, decimal.Decimal)))
    checker = checker.redefine(
        "integer", lambda _, v: not isinstance(v, bool) and (isinstance(v, int) or isinstance(v, (float, decimal.Decimal)) and v == int(v)))
    return jsonschema.validators.extend(cls, type_checker=checker)(schema, format_checker=cls.FORMAT_CHECKER)


def first_error(check, text):
    try:
        value = parse(text)
    except ValueError as e:
        return f"no JSON: {e}"
    for error in check.iter_errors(value):
        return error.message
    return None


def share(sorted_times, part):
    return sorted_times[min(len(sorted_times) - 1, int(len(sorted_times) * part))]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("walker")
    p.add_argument("data")
    p.add_argument("--tokenizer", default="qwen3")
    p.add_argument("--walks", type=int, default=3)
    p.add_argument("--tokens", type=int, default=600)
    p.add_argument("--passes", type=int, default=1)
    p.add_argument("--every", type=int, default=1, help="take each Nth schema")
    p.add_argument("--vocab", type=int, default=151936, help="length of the logits")
    p.add_argument("--times", action="store_true")
    a = p.parse_args()
    sys.set_int_max_str_digits(0)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(os.path.join(a.data, "text", "tokenizers", a.tokenizer + ".tar.xz")) as tar:
            tar.extractall(scratch)
        folder = os.path.join(scratch, a.tokenizer)
        models = [f for f in os.listdir(folder) if f.startswith("tokenizer.model")]
        path = folder if "tokenizer.json" in os.listdir(folder) else os.path.join(folder, models[0])
        with open(os.path.join(a.data, "schema", "schemas.jsonl"), encoding="utf-8") as f:
            rows = [json.loads(line) for line in f][::a.every]
        walker = subprocess.Popen([a.walker, path, str(a.walks), str(a.tokens), str(a.passes), str(a.vocab)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        passed = failed = ended = cut = refused = unknown = 0
        times, compiles = [], []
        for row in rows:
            walker.stdin.write(json.dumps({"schema": row["schema"]}) + "\n")
            walker.stdin.flush()
            line = walker.stdout.readline()
            if not line:
                print(f"FAILED {row['name']}: the walker ended")
                print(f"{passed} passed, {failed + 1} failed")
                return 1
            answer = json.loads(line)
            compiles.append(answer["compile_us"] / 1000)
            if "refused" in answer:
                refused += 1
                continue
            check = validator(json.loads(json.dumps(row["schema"]), parse_float=decimal.Decimal))
            for walk in answer["walks"]:
                text = walk["text"] + walk.get("rest", "")
                ended += walk["ended"]
                cut += not walk["ended"]
                times += walk["mask_us"]
                if not walk["ended"] and "rest" not in walk:
                    unknown += 1
                    failed += 1
                    print(f"FAILED {row['name']}: no completion was found for {text[:300]}")
                    continue
                why = first_error(check, text)
                passed += why is None
                failed += why is not None
                if why is not None:
                    print(f"FAILED {row['name']}: {why[:200]}: {text[:300]}")
        walker.stdin.close()
        walker.wait()
    print(f"{ended + cut} texts under {len(rows) - refused} schemas ({refused} refused): {ended} ended by themselves, {cut} were cut, {cut - unknown} of them completed")
    if a.times:
        times.sort()
        compiles.sort()
        print(f"masks: {len(times)}, mean {sum(times) / len(times):.1f} us, half {share(times, .5):.1f}, 99 % {share(times, .99):.1f},"
              f" 99.9 % {share(times, .999):.1f}, most {times[-1]:.1f}")
        print(f"compile: half {share(compiles, .5):.2f} ms, nine of ten {share(compiles, .9):.2f}, most {compiles[-1]:.1f}")
    enough = ended >= MIN_ENDED * (ended + cut)
    passed += enough
    failed += not enough
    if not enough:
        print(f"FAILED only {ended} of {ended + cut} texts ended by themselves")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
