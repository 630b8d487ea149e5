#!/usr/bin/env python3
"""Every weight, cache and state that the arguments of an op name stands in the tables of src/backend/op_fields.c.

A model on two devices finds by these tables what an op reads; an op that is left out would run with the numbers of another layer.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Ops that no list of a split has: what adapters add (refused there), and kinds that other ops become inside a backend.
INSIDE = {"ADAPT", "ADD_NORM", "TERMS_SUM"}
# Arguments that a kind shares with another one and does not use.
UNUSED = {("ATTN", "more"), ("ATTN_MORE", "slopes"), ("ATTN_MORE", "distances"), ("ATTN_MORE", "buckets")}


def read(name):
    with open(os.path.join(ROOT, "src/backend", name), encoding="utf-8") as f:
        return re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)


def fields(text):
    """(struct, field) of each weight, cache and state."""
    for name, body in re.findall(r"^struct (\w+)_args \{(.*?)^\};", text, re.M | re.S):
        for names in re.findall(r"const struct weight\s+([^;]*);|struct kv_ref ([^;]*);", body):
            for field in re.findall(r"\w+", names[0] + names[1]):
                yield name, field
        if re.search(r"int32_t [^;]*\bstate\b", body):
            yield name, "state"


def main():
    named = list(fields(read("ops.h")))
    kinds = re.findall(r"^OP\((\w+), \"\w+\", (\w+)\)", read("ops.def"), re.M)
    table = set(re.findall(r"FIELD\((\w+), (\w+\.\w+)\)", read("op_fields.c")))
    passed = failed = 0
    for kind, member in kinds:
        for of, field in named:
            if of != member or kind in INSIDE or (kind, field) in UNUSED:
                continue
            ok = (kind, f"{member}.{field}") in table
            passed, failed = passed + ok, failed + (not ok)
            if not ok:
                print(f"FAILED op_fields.c has no FIELD({kind}, {member}.{field})")
    if passed < 40:
        print(f"FAILED only {passed} fields found in ops.h")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
