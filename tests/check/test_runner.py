#!/usr/bin/env python3
"""The runner's own tests: sums, skips, suites that crash, hang or forget their last line. The last line is "N passed, N failed"."""
import os
import subprocess
import sys
import tempfile

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
    ("middling a - true\n", [], ':1: not "short|long NAME NEEDS COMMAND"', 1, ""),
]


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (text, args, last, code, part) in enumerate(CASES):
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
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
