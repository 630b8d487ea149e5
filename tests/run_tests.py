#!/usr/bin/env python3
"""The test runner: runs the suites of tests/suites.list and adds up their last lines.

Each suite ends with "N passed, N failed[, N skipped]"; so does this program. What cannot run here (no test data, no
Python references, no program) is counted as skipped and said with its reason, never passed over.

usage: run_tests.py [--build DIR] [--data DIR] [--cost short|long|all] [--list FILE] [--timeout S] [-v] [SUITE ...]
"""
import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")


def read_suites(path):
    suites = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = line.split(None, 3)
            if len(fields) != 4 or fields[0] not in ("short", "long"):
                sys.exit(f"{path}:{number}: not \"short|long NAME NEEDS COMMAND\"")
            suites.append(dict(zip(("cost", "name", "needs", "command"), fields)))
    return suites


def data_dir(arg):
    """The folder given, else the one named by the environment, else the sibling folder "shared"."""
    path = arg or os.environ.get("MLXCEL_TEST_DATA") or os.path.join(os.path.dirname(ROOT), "shared")
    return os.path.abspath(path) if os.path.isdir(path) else None


def venv_python():
    path = os.path.join(ROOT, "build", "venv", "bin", "python")
    return path if os.path.exists(os.path.join(ROOT, "build", "venv", ".ready")) else None


class Runner:
    def __init__(self, args):
        self.args = args
        self.build = os.path.abspath(args.build)
        self.data = data_dir(args.data)
        self.venv = venv_python()
        exe = ".exe" if os.path.exists(os.path.join(self.build, "mlxcel.exe")) else ""
        self.program = os.path.join(self.build, "mlxcel" + exe)
        self.totals = [0, 0, 0]

    def unmet(self, needs):
        """The reason why a suite cannot run here, or None."""
        reasons = {
            "data": None if self.data else "no test-data folder (DATA=DIR or MLXCEL_TEST_DATA)",
            "venv": None if self.venv else "the Python references of tests/requirements.txt are not installed",
            "program": None if os.path.exists(self.program) else f"{self.program} was not built",
        }
        for need in needs.split(","):
            if need == "-":
                continue
            if need not in reasons:
                sys.exit(f"suites.list: unknown need {need}")
            if reasons[need]:
                return reasons[need]
        return None

    def command(self, suite):
        values = {"{build}": self.build, "{data}": self.data or "", "{program}": self.program, "{python}": self.venv or sys.executable}
        words = []
        for word in shlex.split(suite["command"]):
            for key, value in values.items():
                word = word.replace(key, value)
            words.append(word)
        return words

    def run(self, suite):
        reason = self.unmet(suite["needs"])
        if reason:
            print(f"skipped {suite['name']}: {reason}", flush=True)
            self.totals[2] += 1
            return
        env = dict(os.environ, MLXCEL_SOURCE_DIR=ROOT, MLXCEL_BUILD_DIR=self.build, MLXCEL_PROGRAM=self.program)
        if self.data:
            env["MLXCEL_TEST_DATA"] = self.data
        start = time.monotonic()
        try:
            done = subprocess.run(self.command(suite), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=self.args.timeout)
            output, rc = done.stdout.decode("utf-8", "replace"), done.returncode
        except subprocess.TimeoutExpired as e:
            output, rc = (e.stdout or b"").decode("utf-8", "replace") + f"\nended after {self.args.timeout} s\n", 124
        except OSError as e:
            output, rc = f"{e}\n", 127
        self.report(suite, output, rc, time.monotonic() - start)

    def report(self, suite, output, rc, seconds):
        lines = output.rstrip().splitlines() or [""]
        found = SUMMARY.match(lines[-1].strip())
        counts = [int(n or 0) for n in found.groups()] if found else [0, 1, 0]
        empty = found and not any(counts)
        broken = not found or empty or (rc != 0 and counts[1] == 0)
        if broken and found:
            counts[1] += 1
        if self.args.verbose or broken or counts[1]:
            print(output.rstrip())
        else:
            for line in lines:
                if line.lower().startswith("skipped"):
                    print(line)
        if broken:
            print(f"FAILED {suite['name']}: " + ("it checked nothing" if empty else f"exit code {rc}" if found else f"no summary line, exit code {rc}"))
        skipped = f", {counts[2]} skipped" if counts[2] else ""
        print(f"{suite['name']}: {counts[0]} passed, {counts[1]} failed{skipped} ({seconds:.1f} s)", flush=True)
        self.totals = [a + b for a, b in zip(self.totals, counts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="folder of the built programs")
    parser.add_argument("--data", help="test-data folder")
    parser.add_argument("--cost", choices=("short", "long", "all"), default="short")
    parser.add_argument("--list", default=os.path.join(ROOT, "tests", "suites.list"), help="the list of suites")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one suite")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the suites print")
    parser.add_argument("suite", nargs="*", help="run only these")
    args = parser.parse_args()

    suites = read_suites(args.list)
    unknown = set(args.suite) - {s["name"] for s in suites}
    if unknown:
        sys.exit(f"no suite called {', '.join(sorted(unknown))}")
    runner = Runner(args)
    # a shell starts what it runs in the background with interrupts ignored, the programs keep to that, and tests of interrupts would fail
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    for suite in suites:
        if suite["name"] in args.suite or (not args.suite and args.cost in ("all", suite["cost"])):
            runner.run(suite)
    passed, failed, skipped = runner.totals
    print(f"all suites: {time.monotonic() - start:.1f} s")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
