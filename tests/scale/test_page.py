#!/usr/bin/env python3
"""The commands of docs/scale.md, and its names of files and suites.

usage: test_page.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish  # noqa: E402
from shell_page import read, run_page, suites  # noqa: E402

PAGE = "docs/scale.md"


def check_commands(program):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_")) and not k.lower().endswith("_proxy")}
    said = run_page(PAGE, program, env, programs=["haproxy"], folders=["packaging", "bench"], least=5)
    if said:
        check(re.search(r"x-replica: replica-\d", said), "an answer says who gave it")
        check("New server registered" in said and '"text"' in said, f"a replica is added, and the rest answers: {said[-1500:]}")


def check_names(text):
    named = set(re.findall(r"`(scale-[a-z]+)`", text))
    check(named == {s for s in suites() if s.startswith("scale-")}, f"suites of the page: {named}")
    checks = re.search(r"^ *default-server (.*)$", read("packaging/gateway/haproxy.cfg"), re.M)[1]
    check(f"127.0.0.1:8085 {checks}'" in text, "the added replica is checked as the others are")


check_names(read(PAGE))
check_commands(os.path.abspath(sys.argv[1]))
finish()
