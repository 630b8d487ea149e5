#!/usr/bin/env python3
"""Damaged model folders through the program: none may crash it, hold it up or fill the memory.

Each folder is a small model with one to three faults (tests/file/folders.py). `generate`, `tokenize`, `detokenize` and `inspect` run on it (and `embed` and `rerank` where it has modules), in
a build with sanitizers where one is given, and end with status 0, or with status 1 or 2 and a line that begins with "mlxcel: error: ". `generate` of
the plain build also shows how much memory the folder takes.

A folder is made from the seed and its number alone: `--only NUMBER --keep DIR` makes one again, runs it and leaves it there.

Without the build with sanitizers the plain one runs all commands, and that is said as skipped.

usage: fuzz_folders.py PROGRAM [--sanitized PROGRAM] [--count N | --seconds S] [--seed TEXT] [--jobs N] [--only NUMBER,...] [--keep DIR]
                                                                                last line: "N passed, N failed[, N skipped]"
"""
import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import folders

WALL_LIMIT = 20.0    # seconds until a command is suspected
CPU_LIMIT = 20.0     # seconds of work that are too many
PATIENCE = 120.0     # seconds for a suspect that runs again: a busy machine is no fault of the folder
MEMORY_LIMIT = 1 << 30
SANITIZED_LIMIT = 4 << 30  # sanitizers keep what was freed, and shadows of everything
TEXT = ("Hello, w\u00f6rld  <s> 12\n\U0001f600\u4f60\u597d aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "
        "e\u0301 \ufb01 \u2581the \uac00 \ufdfa " + "the quick brown fox jumps over the lazy dog. " * 20)
IDS = b"[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]\n[40,41,70,71,90,91]\n[100,150,200,250,255,200,150]\n[270,280,287]\n[5,5,5]\n"
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=8:exitcode=99:allocator_may_return_null=1:abort_on_error=0",
             "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1"}


class Watched:
    """A command that ended: its status (negative: a signal), its messages, processor seconds, resident bytes, and what was wrong."""

    def __init__(self, command, env, stdin, wall, memory):
        self.fault = None
        start = time.monotonic()
        with tempfile.TemporaryFile() as err:
            child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
            feeder = threading.Thread(target=self.feed, args=(child.stdin, stdin))
            feeder.start()
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - start > wall:
                    self.fault = f"did not end in {wall:.0f} s"
                elif resident(child.pid) > memory:
                    self.fault = f"took more than {memory >> 20} MiB"
                if self.fault:
                    os.killpg(child.pid, signal.SIGKILL)
                    _, status, usage = os.wait4(child.pid, 0)
                    break
                time.sleep(0.01)
            child.returncode = os.waitstatus_to_exitcode(status)
            feeder.join()
            err.seek(0)
            self.text = err.read(200000).decode("utf-8", "replace")
        self.status = child.returncode
        self.cpu = usage.ru_utime + usage.ru_stime
        self.bytes = usage.ru_maxrss * 1024

    @staticmethod
    def feed(pipe, data):
        try:
            with pipe:
                pipe.write(data)
        except OSError:
            pass


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def commands(program, path):
    out = {
        "generate": [program, "generate", "-m", path, "-n", "1", "--temperature", "0", "-t", "1", "--device", "cpu", "-p", TEXT[:160]],
        "tokenize": [program, "tokenize", "-m", path, "--add-special", "-p", TEXT],
        "detokenize": [program, "detokenize", "--jsonl", "-m", path],
        "inspect": [program, "inspect", "-m", path],
    }
    if os.path.lexists(os.path.join(path, "modules.json")):
        out["embed"] = [program, "embed", "-m", path, "-t", "1", "--device", "cpu", TEXT[:160], ""]
        out["rerank"] = [program, "rerank", "-m", path, "-t", "1", "--device", "cpu", TEXT[:40], TEXT[:160], ""]
    return out


def judge(done, memory):
    """What was wrong with a command that ended, or None."""
    if done.fault:
        return done.fault
    if done.cpu > CPU_LIMIT:
        return f"{done.cpu:.0f} s of work"
    if done.status == 0 and done.bytes <= memory:
        return None
    if done.bytes > memory:
        return f"{done.bytes >> 20} MiB resident"
    if done.status not in (1, 2):
        return f"status {done.status}"
    return None if any(line.startswith("mlxcel: error: ") for line in done.text.splitlines()) else "no message"


class Fuzzer:
    def __init__(self, args):
        self.args = args
        self.seeds = folders.Seeds()
        self.lock = threading.Lock()
        self.next = 0
        self.passed = self.failed = 0
        self.ended = time.monotonic() + args.seconds if args.seconds else None
        self.only = [int(n) for n in args.only.split(",")] if args.only else None
        self.root = args.keep or tempfile.mkdtemp(prefix="folders-")
        home = os.path.join(self.root, "home")
        os.makedirs(home, exist_ok=True)
        self.env = dict(os.environ, HOME=home, XDG_CACHE_HOME=home, LC_ALL="C", **SANITIZER)

    def take(self):
        with self.lock:
            if self.only is not None:
                return self.only.pop(0) if self.only else None
            if self.next >= self.args.count or (self.ended and time.monotonic() > self.ended):
                return None
            self.next += 1
            return self.next - 1

    def run(self, command, memory):
        done = Watched(command, self.env, IDS, WALL_LIMIT, memory)
        if done.fault and "did not end" in done.fault:
            done = Watched(command, self.env, IDS, PATIENCE, memory)
        return judge(done, memory), done

    def folder(self, number):
        """What was wrong with one folder: lines, none when it is well."""
        r = random.Random(f"{self.args.seed}:{number}")
        folder, faults = folders.make(r, self.seeds)
        path = os.path.join(self.root, str(number))
        folders.write(folder, path)
        wrong = []
        for program, memory, names in ((self.args.sanitized, SANITIZED_LIMIT, None), (self.args.program, MEMORY_LIMIT, ("generate", "tokenize"))):
            for name, command in commands(program, path).items() if program else ():
                if names and self.args.sanitized and name not in names:
                    continue
                what, done = self.run(command, memory)
                if self.args.keep:
                    print(f"{number} {name}: status {done.status}, {done.cpu:.2f} s, {done.bytes >> 20} MiB; {done.text.strip()[-300:]}", flush=True)
                if what:
                    wrong.append(f"FAILED folder {number} ({', '.join(faults)}), {name}{'' if memory == MEMORY_LIMIT else ', sanitized'}: {what}\n{done.text[-3000:]}")
        if not self.args.keep:
            shutil.rmtree(path)
        return wrong

    def work(self):
        while (number := self.take()) is not None:
            try:
                wrong = self.folder(number)
            except Exception as e:  # a fault of this script must not pass for a folder that is well
                wrong = [f"FAILED folder {number}: {type(e).__name__}: {e}"]
            with self.lock:
                self.passed += not wrong
                self.failed += bool(wrong)
                for line in wrong:
                    print(line, flush=True)
                if (self.passed + self.failed) % 500 == 0:
                    print(f"{self.passed + self.failed} folders, {self.failed} failed", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--sanitized", help="the same program built with sanitizers")
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", default="folders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    args = parser.parse_args()
    if args.count == 10**9 and not args.seconds and not args.only:
        parser.error("--count, --seconds or --only is needed")
    sys.setrecursionlimit(20000)  # values that are nested deeply
    threading.stack_size(256 << 20)
    skipped = args.sanitized and not os.path.exists(args.sanitized)
    if skipped:
        print(f"skipped the sanitizers: {args.sanitized} was not built")
        args.sanitized = None
    fuzzer = Fuzzer(args)
    workers = [threading.Thread(target=fuzzer.work) for _ in range(args.jobs)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if not args.keep:
        shutil.rmtree(fuzzer.root, ignore_errors=True)
    if fuzzer.failed:
        print(f"one folder again: --seed {args.seed} --only NUMBER --keep DIR")
    print(f"{fuzzer.passed} passed, {fuzzer.failed} failed" + (", 1 skipped" if skipped else ""))
    return 1 if fuzzer.failed else 0


if __name__ == "__main__":
    sys.exit(main())
