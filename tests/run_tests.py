#!/usr/bin/env python3
"""The test runner: runs the suites of tests/suites.list and adds up their last lines.

Each suite ends with "N passed, N failed[, N skipped]"; so does this program. What cannot run here (no test data, no
Python references, no program) is counted as skipped and said with its reason, never passed over.

Suites run side by side, one for each processor, in the order of the list; those that mostly wait run beside them, and those that want the machine
alone come last, one by one.
What a suite prints appears in one piece when it ends.

usage: run_tests.py [--build DIR] [--data DIR] [--cost short|medium|long|all] [--jobs N] [--list FILE ...] [--timeout S] [-v] [SUITE ...]
"""
import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
COSTS = ("short", "medium", "long")
SILENCE = 15  # seconds without a line after which one says what is running


def read_suites(path, suites):
    """Adds the rows of a list. Of the words under NEEDS, "alone", "waits" and "@NAME" say beside what a suite runs; the others are conditions."""
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = line.split(None, 3)
            if len(fields) != 4 or fields[0] not in COSTS:
                sys.exit(f"{path}:{number}: not \"{'|'.join(COSTS)} NAME NEEDS COMMAND\"")
            if fields[1] in (s["name"] for s in suites):
                sys.exit(f"{path}:{number}: a second suite called {fields[1]}")
            suite = dict(zip(("cost", "name", "needs", "command"), fields))
            words = [w for w in suite["needs"].split(",") if w != "-"]
            suite["alone"] = "alone" in words
            suite["holds"] = {w for w in words if w.startswith("@")}
            suite["places"] = 0 if "waits" in words else 1
            suite["needs"] = [w for w in words if w not in ("alone", "waits") and not w.startswith("@")]
            suites.append(suite)


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
        self.changed = threading.Condition()  # guards what follows and everything that is printed
        self.running = {}  # suite name -> (process, start)
        self.held, self.n_taken = set(), 0  # what suites hold; processors that are taken
        self.spoke = time.monotonic()
        self.ending = False

    def unmet(self, needs):
        """The reason why a suite cannot run here, or None."""
        reasons = {
            "data": None if self.data else "no test-data folder (DATA=DIR or MLXCEL_TEST_DATA)",
            "venv": None if self.venv else "the Python references of tests/requirements.txt are not installed",
            "program": None if os.path.exists(self.program) else f"{self.program} was not built",
        }
        for need in needs:
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

    def run_all(self, suites):
        """Skips what cannot run; then the suites that share the machine, then the others."""
        ready = []
        for suite in suites:
            reason = self.unmet(suite["needs"])
            if reason:
                self.say(f"skipped {suite['name']}: {reason}")
                self.totals[2] += 1
            else:
                ready.append(suite)
        threading.Thread(target=self.tell_what_runs, daemon=True).start()
        try:
            self.run_beside([s for s in ready if not s["alone"]], self.args.jobs)
            self.run_beside([s for s in ready if s["alone"]], 1)
        except BaseException:
            self.end_all()
            raise

    def run_beside(self, waiting, most):
        """Starts the first waiting suite that may run, whenever there is room, until all have ended."""
        with self.changed:
            while waiting or self.running:
                suite = next((s for s in waiting if not s["holds"] & self.held and self.n_taken + s["places"] <= most), None)
                if suite is None:
                    self.changed.wait()
                    continue
                waiting.remove(suite)
                self.held |= suite["holds"]
                self.n_taken += suite["places"]
                self.running[suite["name"]] = (None, time.monotonic())
                threading.Thread(target=self.run, args=(suite,), daemon=True).start()

    def run(self, suite):
        start = time.monotonic()
        output, rc = self.execute(suite)
        with self.changed:
            del self.running[suite["name"]]
            self.held -= suite["holds"]
            self.n_taken -= suite["places"]
            if not self.ending:
                self.report(suite, output, rc, time.monotonic() - start)
            self.changed.notify_all()

    def execute(self, suite):
        """What the suite printed, and its exit code. It has a process group of its own, which ends with it where time is up."""
        env = dict(os.environ, XDG_CONFIG_HOME=os.path.join(self.build, "no-settings"), MLXCEL_SOURCE_DIR=ROOT, MLXCEL_BUILD_DIR=self.build, MLXCEL_PROGRAM=self.program)
        if self.data:
            env["MLXCEL_TEST_DATA"] = self.data
        try:
            process = subprocess.Popen(self.command(suite), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as e:
            return f"{e}\n", 127
        with self.changed:
            self.running[suite["name"]] = (process, time.monotonic())
            if self.ending:
                end_group(process)
            self.changed.notify_all()
        ended = ""
        try:
            output = process.communicate(timeout=self.args.timeout)[0]
        except subprocess.TimeoutExpired:
            end_group(process)
            output, ended = process.communicate()[0], f"\nended after {self.args.timeout} s\n"
        return output.decode("utf-8", "replace") + ended, 124 if ended else process.returncode

    def end_all(self):
        with self.changed:
            self.ending = True
            # those that are just being started would outlive this program
            self.changed.wait_for(lambda: all(process for process, _ in self.running.values()), timeout=10)
            for process, _ in self.running.values():
                if process:
                    end_group(process)

    def say(self, text):
        print(text, flush=True)
        self.spoke = time.monotonic()

    def tell_what_runs(self):
        while True:
            time.sleep(1)
            with self.changed:
                now = time.monotonic()
                if now - self.spoke >= SILENCE and self.running:
                    self.say("... " + ", ".join(f"{name} ({now - start:.0f} s)" for name, (_, start) in self.running.items()))

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
            self.say(f"FAILED {suite['name']}: " + ("it checked nothing" if empty else f"exit code {rc}" if found else f"no summary line, exit code {rc}"))
        skipped = f", {counts[2]} skipped" if counts[2] else ""
        self.say(f"{suite['name']}: {counts[0]} passed, {counts[1]} failed{skipped} ({seconds:.1f} s)")
        self.totals = [a + b for a, b in zip(self.totals, counts)]


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="folder of the built programs")
    parser.add_argument("--data", help="test-data folder")
    parser.add_argument("--cost", choices=(*COSTS, "all"), default="short")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="suites at once (default: one for each processor)")
    parser.add_argument("--list", action="append", help="a list of suites in place of tests/suites.list; several times for several")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one suite")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the suites print")
    parser.add_argument("suite", nargs="*", help="run only these")
    args = parser.parse_args()

    suites = []
    for path in args.list or [os.path.join(ROOT, "tests", "suites.list")]:
        read_suites(path, suites)
    unknown = set(args.suite) - {s["name"] for s in suites}
    if unknown:
        sys.exit(f"no suite called {', '.join(sorted(unknown))}")
    runner = Runner(args)
    # a shell starts what it runs in the background with interrupts ignored, the programs keep to that, and tests of interrupts would fail
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run_tests: ended by a signal"))
    try:
        runner.run_all([s for s in suites if (s["name"] in args.suite if args.suite else args.cost in ("all", s["cost"]))])
    except KeyboardInterrupt:
        sys.exit("run_tests: interrupted")
    passed, failed, skipped = runner.totals
    print(f"all suites: {time.monotonic() - start:.1f} s")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
