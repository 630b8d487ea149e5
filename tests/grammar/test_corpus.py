#!/usr/bin/env python3
"""The grammars of the test data and their texts: every valid one accepted, no other one, refusals counted with their reasons.

usage: test_corpus.py PROGRAM DATA [--verbose]
"""
import collections
import json
import os
import subprocess
import sys

MAX_REFUSED = 0.04  # of the real-world schemas


def read_jsonl(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def compact(value, ascii_only=False):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)


class Judge:
    """`mlxcel grammar --jsonl`, asked line by line."""

    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, "grammar", "--jsonl", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the program ended at {json.dumps(line)[:300]}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


class Tally:
    def __init__(self, verbose):
        self.passed = self.failed = 0
        self.verbose = verbose

    def check(self, good, what):
        self.passed += good
        self.failed += not good
        if not good:
            print(f"FAILED {what}"[:400])


def real_world(program, data, tally):
    refused, slow, times = [], 0, []
    judge = Judge(program)
    rows = read_jsonl(os.path.join(data, "schema", "schemas.jsonl"))
    for row in rows:
        texts = [compact(v, i % 2 == 1) for i, v in enumerate(row["valid"] + row["invalid"])]
        answer = judge.ask({"schema": row["schema"], "texts": texts})
        times.append(answer["compile_us"])
        if "refused" in answer:
            refused.append((row["name"], answer["refused"]))
            continue
        for i, result in enumerate(answer["results"]):
            want = i < len(row["valid"])
            tally.check(result["accepted"] == want, f"{row['name']}: {'valid' if want else 'invalid'} {texts[i]} at {result.get('at')}")
    judge.close()
    for name, why in refused:
        print(f"refused {name}: {why}")
    times.sort()
    print(f"schemas: {len(rows)}, refused {len(refused)} ({100 * len(refused) / len(rows):.1f} %), compiled in {times[len(times) // 2] / 1000:.1f} ms"
          f" (half), {times[len(times) * 9 // 10] / 1000:.1f} ms (nine of ten), {times[-1] / 1000:.1f} ms (all)")
    tally.check(len(refused) <= MAX_REFUSED * len(rows), f"{len(refused)} of {len(rows)} schemas refused")


def has_number_spelling(value):
    """1.0 for 1, or an exponent: spellings that a constrained text does not have."""
    if isinstance(value, float):
        return True
    if isinstance(value, list):
        return any(map(has_number_spelling, value))
    return isinstance(value, dict) and any(map(has_number_spelling, value.values()))


# Tests whose valid texts are rejected on purpose; each has its reason.
KNOWN_REJECTED = {
    "optional/format/hostname.json": "labels that stand for others (xn--) are not taken",
    "format.json": "the suite takes formats as notes by default; here they are always asserted",
}


def official_suite(program, data, tally, name, draft):
    path = os.path.join(data, "schema", f"json-schema-test-suite-{name}.json")
    with open(path, encoding="utf-8") as f:
        files = json.load(f)["files"]
    judge = Judge(program, *(["--draft", draft] if draft else []))
    report = collections.OrderedDict()
    spelled = []
    for file in files:
        counts = report.setdefault(file["file"], collections.Counter())
        for group in file["groups"]:
            texts = [compact(t["data"]) for t in group["tests"]]
            answer = judge.ask({"schema": group["schema"], "texts": texts})
            if "refused" in answer:
                counts["refused"] += len(texts)
                counts["refused groups"] += 1
                if tally.verbose:
                    print(f"refused {name} {file['file']}: {group['description']}: {answer['refused']}")
                continue
            for test, text, result in zip(group["tests"], texts, answer["results"]):
                what = f"{name} {file['file']}: {group['description']}: {test['description']}: {text}"
                if result["accepted"] == test["valid"]:
                    counts["right"] += 1
                elif test["valid"] and has_number_spelling(test["data"]):
                    spelled.append(what)
                    counts["number's spelling"] += 1
                elif test["valid"] and file["file"] in KNOWN_REJECTED:
                    counts["known"] += 1
                else:
                    counts["wrong"] += 1
                    tally.check(False, f"{'rejected' if test['valid'] else 'ACCEPTED'} {what}")
                    continue
                tally.passed += 1
    judge.close()
    print(f"{name}: tests right, refused, rejected for a number's spelling, rejected as known, wrong")
    total = collections.Counter()
    for file, counts in report.items():
        total.update(counts)
        print(f"  {file:45} {counts['right']:5} {counts['refused']:5} {counts[chr(110) + 'umber' + chr(39) + 's spelling']:5} {counts['known']:5} {counts['wrong']:5}")
    print(f"  {'all':45} {total['right']:5} {total['refused']:5} {total[chr(110) + 'umber' + chr(39) + 's spelling']:5} {total['known']:5} {total['wrong']:5}")
    for what in spelled:
        print(f"  spelling: {what}"[:300])


def texts_of(program, data, tally, file, key, field):
    judge = Judge(program)
    for row in read_jsonl(os.path.join(data, "schema", file)):
        texts = row.get("accept", []) + row.get("reject", [])
        answer = judge.ask({key: row[field], "texts": texts})
        if "error" in row:
            tally.check("refused" in answer, f"{file} {row['name']}: not refused ({row['error']})")
            continue
        if "refused" in answer:
            tally.check(False, f"{file} {row['name']}: refused: {answer['refused']}")
            continue
        for i, result in enumerate(answer["results"]):
            want = i < len(row["accept"])
            tally.check(result["accepted"] == want, f"{file} {row['name']}: {'accept' if want else 'reject'} {texts[i]!r} at {result.get('at')}")
    judge.close()


def main():
    program, data = sys.argv[1:3]
    tally = Tally("--verbose" in sys.argv)
    texts_of(program, data, tally, "regex.jsonl", "regex", "regex")
    texts_of(program, data, tally, "gbnf.jsonl", "gbnf", "grammar")
    real_world(program, data, tally)
    official_suite(program, data, tally, "draft2020-12", None)
    official_suite(program, data, tally, "draft7", "7")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
