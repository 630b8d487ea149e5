"""Counts the checks of a test program in Python and prints the last line that tests/run_tests.py reads."""
import sys

# Seconds after which a program that should have ended or answered counts as hanging. Never a measure of speed: what it stops takes some
# seconds at most on an idle machine, and tests must pass on one that is busy with other things.
HANG = 300

n_passed = n_failed = n_skipped = 0


def check(ok, what):
    global n_passed, n_failed
    if ok:
        n_passed += 1
    else:
        n_failed += 1
        print(f"FAILED {what}", flush=True)
    return bool(ok)


def skip(what):
    global n_skipped
    n_skipped += 1
    print(f"skipped {what}", flush=True)


def finish():
    print(f"{n_passed} passed, {n_failed} failed" + (f", {n_skipped} skipped" if n_skipped else ""))
    sys.exit(1 if n_failed else 0)
