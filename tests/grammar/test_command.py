#!/usr/bin/env python3
"""The command `mlxcel grammar`: its verdicts, exit codes and forms of output.

usage: test_command.py PROGRAM      last line: "N passed, N failed"
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

n_passed = n_failed = 0
TOKENIZER = Path(__file__).parents[1] / "text/tokenizers/byte-level-digits/tokenizer.json"
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"], "additionalProperties": False}


def check(ok, what):
    global n_passed, n_failed
    n_passed, n_failed = n_passed + bool(ok), n_failed + (not ok)
    if not ok:
        print(f"FAILED {what}")


def run(program, *args, stdin=""):
    done = subprocess.run([program, "grammar", *map(str, args)], input=stdin.encode(), capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")


def expect(program, args, stdin, code, out=None, err=None):
    got = run(program, *args, stdin=stdin)
    check(got[0] == code and (out is None or got[1] == out) and (err is None or err in got[2]), f"{args} {stdin!r}: {got}")


def verdicts(program, folder):
    schema, gbnf, bad, odd = folder / "s.json", folder / "g.gbnf", folder / "bad.json", folder / "odd.json"
    schema.write_text(json.dumps(PERSON))
    gbnf.write_text('root ::= "yes" | "no" [0-9]+\n')
    bad.write_text('{"properties": {"a": {"$ref": "https://example.com/x.json"}}}')
    odd.write_text('{"type": "string", "format": "colour"}')
    expect(program, ("--schema", schema), '{"age": 3, "name": "x"}\n', 0, "accepted\n")
    expect(program, ("--schema", schema), '{"age": 3, "name": 4}', 1, "rejected: byte 19 is not allowed; allowed: 0x09 0x0A 0x0D 0x20 \"\n")
    expect(program, ("--schema", schema), '{"age": 3', 1, "rejected: the text must go on after its 9 bytes; allowed: 0x09 0x0A 0x0D 0x20 , 0 to 9\n")
    expect(program, ("--schema", schema, "--keep-order"), '{"age": 3, "name": "x"}', 1)
    expect(program, ("--schema", schema, "--keep-order", "--space", "1"), '{"name": "x", "age": 3}', 0)
    expect(program, ("--schema", schema, "--space", "0"), '{"name": "x"}', 1, "rejected: byte 8 is not allowed; allowed: \"\n")
    expect(program, ("--schema", bad), "{}", 2, "", "at #/properties/a: $ref")
    expect(program, ("--schema", odd), '"red"', 0, "accepted\n", "colour")
    expect(program, ("--schema", folder / "none.json"), "{}", 2, "", "none.json")
    expect(program, ("--gbnf", gbnf), "no12", 0, "accepted\n")
    expect(program, ("--gbnf", gbnf), "maybe", 1, "rejected: byte 0 is not allowed; allowed: n y\n")
    expect(program, ("--regex", "a{2,3}b"), "aab", 0, "accepted\n")
    expect(program, ("--regex", "(a"), "a", 2, "", "regular expression: byte")
    expect(program, ("--json-object",), '{"a": []}', 0, "accepted\n")
    expect(program, ("--json-object",), "[]", 1)
    expect(program, (), "{}", 2, "", "give one grammar")
    expect(program, ("--json-object", "--regex", "a"), "{}", 2, "", "give one grammar")
    expect(program, ("--json-object", "--json", "--jsonl"), "{}", 2, "", "do not go together")
    expect(program, ("--schema", schema, "--draft", "7"), '{"name": ""}', 0)


def forms(program, folder):
    schema = folder / "s.json"
    code, out, _ = run(program, "--schema", schema, "--json", stdin='{"name": 1}')
    check(code == 1 and json.loads(out) == {"verdict": "rejected", "at": 9, "must_go_on": False}, f"--json, rejected: {out}")
    code, out, _ = run(program, "--schema", folder / "bad.json", "--json")
    check(code == 2 and json.loads(out)["verdict"] == "refused" and json.loads(out)["path"] == "#/properties/a", f"--json, refused: {out}")
    code, out, _ = run(program, "--regex", "[a-z ]+", "--json", "-m", TOKENIZER, stdin="the cat")
    tokens = json.loads(out)["tokens"] if code == 0 else []
    check("".join(t["text"] for t in tokens) == "the cat" and all(t["taken"] and t["allowed"] > 9 and t["mask_us"] >= 0 for t in tokens), f"-m: {out}")
    lines = [{"schema": PERSON, "texts": ['{"name":""}', "{}"]}, {"gbnf": 'root ::= "a"', "texts": ["a"]}, {"regex": "(", "texts": []},
             {"json_object": True, "texts": ["{}", "1"]}, {"texts": []}]
    code, out, _ = run(program, "--jsonl", stdin="\n".join(map(json.dumps, lines)))
    answers = list(map(json.loads, out.splitlines()))
    got = [[r["accepted"] for r in a["results"]] if "results" in a else None for a in answers]
    check(code == 0 and got == [[True, False], [True], None, [True, False], None], f"--jsonl: {out}")
    check(answers[0]["results"][1]["at"] == 1, f"--jsonl, at: {out}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        verdicts(program, Path(folder))
        forms(program, Path(folder))
    print(f"{n_passed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
