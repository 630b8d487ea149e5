#!/usr/bin/env python3
"""The runner's own tests: sums, skips, suites that crash, hang or forget their last line, what runs beside what.

The last line is "N passed, N failed".
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# (suites.list, further arguments, expected last line, expected exit code, text that must appear)
CASES = [
    ("short a - echo '3 passed, 0 failed'\nshort b - echo '2 passed, 0 failed, 1 skipped'\n", [], "5 passed, 0 failed, 1 skipped", 0, "a: 3 passed"),
    ("short a - sh -c 'echo FAILED x; echo 1 passed, 1 failed; exit 1'\n", [], "1 passed, 1 failed", 1, "FAILED x"),
    ("short a - sh -c 'echo 1 passed, 0 failed; exit 3'\n", [], "1 passed, 1 failed", 1, "exit code 3"),
    ("short a - echo '0 passed, 0 failed'\n", [], "0 passed, 1 failed", 1, "it checked nothing"),
    ("short a - echo nothing\n", [], "0 passed, 1 failed", 1, "no summary line"),
    ("short a - sh -c 'kill -SEGV $$'\n", [], "0 passed, 1 failed", 1, "no summary line"),
    ("short a - {build}/no_such_program\n", [], "0 passed, 1 failed", 1, "no_such_program"),
    ("short a - sleep 5\n", ["--timeout", "0.2"], "0 passed, 1 failed", 1, "ended after 0.2 s"),
    ("short a data echo '1 passed, 0 failed'\n", ["--data", "/nonexistent"], "0 passed, 0 failed, 1 skipped", 0, "skipped a: no test-data folder"),
    ("short a program echo '1 passed, 0 failed'\n", [], "0 passed, 0 failed, 1 skipped", 0, "was not built"),
    ("short a - echo '1 passed, 0 failed'\nlong b - echo '1 passed, 0 failed'\n", [], "1 passed, 0 failed", 0, "a: 1 passed"),
    ("short a - echo '1 passed, 0 failed'\nlong b - echo '1 passed, 0 failed'\n", ["--cost", "all"], "2 passed, 0 failed", 0, "b: 1 passed"),
    ("short a - echo '1 passed, 0 failed'\nlong b - echo '9 passed, 0 failed'\n", ["b"], "9 passed, 0 failed", 0, "b: 9 passed"),
    ("# a comment\n\nshort a - echo '1 passed, 0 failed'\n", ["nobody"], "no suite called nobody", 1, ""),
    ("middling a - true\n", [], ':1: not "short|medium|long NAME NEEDS COMMAND"', 1, ""),
    ("short a - echo '1 passed, 0 failed'\nmedium b - echo '1 passed, 0 failed'\n", ["--cost", "medium"], "1 passed, 0 failed", 0, "b: 1 passed"),
    ("short a - true\nshort a - true\n", [], "2: a second suite called a", 1, ""),
    ("short a magic true\n", [], "suites.list: unknown need magic", 1, ""),
    # what a suite left running ends with it
    ("short a - sh -c 'sleep 600 & wait'\n", ["--timeout", "0.2"], "0 passed, 1 failed", 1, "ended after 0.2 s"),
]
# Suites that wait for each other: they end only where they run side by side. The third is alone, and sees the files of both.
MEET = "sh -c 'echo > {0}/{1}; until [ -e {0}/{2} ]; do sleep 0.01; done; echo 1 passed, 0 failed'"
# Fails where another one that holds the same thing is at work.
HOLD = "sh -c 'mkdir {0}/held || exit 1; sleep 0.1; rmdir {0}/held; echo 1 passed, 0 failed'"


def cases(folder):
    """All cases; some need the folder's name."""
    alone = f"short c alone sh -c '[ -e {folder}/a ] && [ -e {folder}/b ] && echo 1 passed, 0 failed'\n"
    beside = alone + f"short a - {MEET.format(folder, 'a', 'b')}\nshort b - {MEET.format(folder, 'b', 'a')}\n"
    held = "".join(f"short {n} @thing {HOLD.format(folder)}\n" for n in "xyz")
    return [*CASES, (beside, ["--jobs", "2", "--timeout", "600"], "3 passed, 0 failed", 0, ""), (held, ["--jobs", "3"], "3 passed, 0 failed", 0, ""),
            (held.replace("@thing", "alone"), ["--jobs", "3"], "3 passed, 0 failed", 0, ""),
            (f"short d waits {MEET.format(folder, 'd', 'e')}\nshort e - {MEET.format(folder, 'e', 'd')}\n", ["--jobs", "1", "--timeout", "600"],
             "2 passed, 0 failed", 0, "")]


def interrupted(folder):
    """A signal ends the suites with the runner."""
    path, started = os.path.join(folder, "suites.list"), os.path.join(folder, "started")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"short a - sh -c 'echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600'\n")
    command = [sys.executable, os.path.join(ROOT, "tests", "run_tests.py"), "--build", folder, "--list", path]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not os.path.exists(started) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    words = process.communicate()[1]
    with open(started, encoding="utf-8") as f:
        while os.path.exists(f"/proc/{f.read().strip()}/cwd"):  # a dead process that nobody asked about yet has none
            f.seek(0)
            time.sleep(0.01)
    return process.returncode == 1 and "ended by a signal" in words


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (text, args, last, code, part) in enumerate(cases(folder)):
            path = os.path.join(folder, "suites.list")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            command = [sys.executable, os.path.join(ROOT, "tests", "run_tests.py"), "--build", folder, "--list", path] + args
            env = {k: v for k, v in os.environ.items() if k != "MLXCEL_TEST_DATA"}
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
            output = (done.stdout + done.stderr).rstrip()
            if output.split("\n")[-1].endswith(last) and done.returncode == code and part in output:
                passed += 1
            else:
                failed += 1
                print(f"FAILED runner case {i}: exit code {done.returncode}, output:\n{output}")
        ok = interrupted(folder)
        passed, failed = passed + ok, failed + (not ok)
        if not ok:
            print("FAILED runner: a signal does not end it and its suites")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
