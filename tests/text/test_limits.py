#!/usr/bin/env python3
"""Hostile templates run into the limits of the interpreter, and long texts of one kind are tokenised to their end.

Nothing is judged by how fast it was. The system ends a program that has used STOP seconds of a processor (for each megabyte of text): these
take a fiftieth of that at most, and whatever is quadratic in such inputs, or without a limit, takes minutes to centuries.

usage: test_limits.py PROGRAM [DATA] [--verbose]                                      last line: "N passed, N failed"
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

STOP = 30  # seconds of a processor
HOSTILE = [
    "{{ x * 10**9 }}",
    "{{ 'ab' * 10**18 }}",
    "{{ [0] * 10**9 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ range(10**18)|list }}",
    "{{ range(99999)|list * 99999 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ x }}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ m([a]) }}{{ m([a]) }}{% endmacro %}{{ m(1) }}",
    "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s='') %}{% for i in range(99999) %}{% set ns.s = ns.s + 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' %}{% if ns.s == ns.s + '' %}{% endif %}{% endfor %}{% for i in range(99999) %}{{ ns.s|upper }}{% endfor %}",
    "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}",
    "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 10**6 %}{% set t = 'a' * 10**5 + 'b' %}{% for i in range(99999) %}{{ s.find(t) }}{{ s.count(t) }}{{ s.replace(t, '') }}{% endfor %}",
    "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{{ s.split('a')|length }}{% endfor %}",
    "{{ 'aaaaaaaaaaaaaaaaaaaa'.replace('', 'x' * 10**7) }}",
    "{{ range(99999)|map('string')|join('x' * 10**5) }}",
    "{{ '%2000000000d' % 1 }}",
    "{{ '{:2000000000}'.format(1) }}",
    "{{ 'a'.center(10**15) }}",
    "{{ range(99999)|list|tojson(indent=99999) }}",
    "{% for i in range(99999) %}{{ range(99999)|sort|first }}{% endfor %}",
    "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
    "{% if 1 %}" * 100000,
    "{{ " + "not " * 100000 + "1 }}",
    "{{ 1" + "|string" * 100000 + " }}",
]
KINDS = {"letter": "a", "letters": "the quick brown fox ", "space": " ", "newline": "\n", "digit": "7", "sign": "!", "mark": "\u0301", "marked letter": "e\u0301",
         "chinese": "\u4e2d", "emoji": "\U0001f600", "no character": "\x01", "apostrophe": "'s"}
OWN = ("byte-level-digits", "byte-fallback", "norm-nfkc", "unigram-precompiled", "wordpiece-lower", "split-isolated", "words-whitespace")
LARGE = ("qwen3", "llama3_2", "gemma3", "llama2", "t5-small", "bert-base-uncased", "gptoss")


def run(command, stdin, stop=STOP):
    """What it printed, how it ended and the processor seconds it took."""
    with open(stdin, "rb") as f, tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdin=f, stdout=out, stderr=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (stop, stop)))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        out.seek(0)
        return out.read(), os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


class Check:
    def __init__(self, verbose):
        self.passed = self.failed = 0
        self.verbose = verbose

    def note(self, ok, text):
        self.passed += ok
        self.failed += not ok
        if not ok or self.verbose:
            print(f"{'ok' if ok else 'FAILED'} {text}", flush=True)


def templates(check, program, temp):
    file = os.path.join(temp, "line")
    for source in HOSTILE:
        Path(file).write_text(json.dumps({"template": source, "input": {"x": "y"}}) + "\n", encoding="utf-8")
        out, status, seconds = run([program, "template", "--jsonl"], file)
        check.note(out.startswith(b'{"error"'), f"{source[:70]!r}: exit status {status}, {out[:100]!r} after {seconds:.2f} s")


def long_texts(check, program, path, name, n_bytes, temp):
    file = os.path.join(temp, "text")
    for kind, unit in KINDS.items():
        unit = unit.encode()
        Path(file).write_bytes(unit * (n_bytes // len(unit)))
        _, status, seconds = run([program, "tokenize", "-m", path], file, STOP * n_bytes // 1_000_000)
        check.note(status == 0, f"{name}, {n_bytes / 1e6:.0f} MB of {kind}: exit status {status} after {seconds:.2f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    check = Check(args.verbose)
    fixtures = Path(__file__).resolve().parent / "tokenizers"
    with tempfile.TemporaryDirectory() as temp:
        if args.only in "templates":
            templates(check, args.program, temp)
        for name in OWN if not args.data else ():
            if args.only in name:
                long_texts(check, args.program, str(fixtures / name / "tokenizer.json"), name, 1_000_000, temp)
        for name in LARGE if args.data else ():
            archive = Path(args.data) / "text" / "tokenizers" / f"{name}.tar.xz"
            if args.only in name and archive.exists():
                with tarfile.open(archive) as tar:
                    tar.extractall(temp, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(temp)
                long_texts(check, args.program, os.path.join(temp, name, "tokenizer.json"), name, 10_000_000, temp)
    print(f"{check.passed} passed, {check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
