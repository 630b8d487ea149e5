"""Counts the checks of a test program in Python and prints the last line that tests/run_tests.py reads."""
import os
import sys

# Seconds after which a program that should have ended or answered counts as hanging. Never a measure of speed: what it stops takes some
# seconds at most on an idle machine, and tests must pass on one that is busy with other things.
HANG = int(os.environ.get("MLXCEL_TEST_HANG", "300"))

# The one part of a test that is to be run, by its function's name; within another one as "check_outer/check_inner". Only checks below it count,
# and the first that fails ends the test: who chooses a part wants to know whether it holds.
ONLY = os.environ.get("MLXCEL_TEST_ONLY", "").split("/")

n_passed = n_failed = n_skipped = 0


def parts(*calls):
    """Calls the parts of a test, each a function or a tuple of one and its arguments: all of them, or the one that was chosen."""
    for function, *arguments in (c if isinstance(c, tuple) else (c,) for c in calls):
        if ONLY[0] in ("", "main", function.__name__):
            function(*arguments)


def counts():
    """Whether the check that is being made belongs to the part that was chosen."""
    frame = sys._getframe(2)
    while frame and frame.f_code.co_name != ONLY[-1]:
        frame = frame.f_back
    return frame is not None


def check(ok, what):
    global n_passed, n_failed
    if ONLY[-1] and not counts():
        return bool(ok)
    if ok:
        n_passed += 1
    else:
        n_failed += 1
        print(f"FAILED {what}", flush=True)
        if ONLY[-1]:
            finish()
    return bool(ok)


def skip(what):
    global n_skipped
    n_skipped += 1
    print(f"skipped {what}", flush=True)


def finish():
    print(f"{n_passed} passed, {n_failed} failed" + (f", {n_skipped} skipped" if n_skipped else ""))
    sys.exit(1 if n_failed else 0)
