#!/usr/bin/env python3
"""The server on the xla backend, with the CPU plugin: clients at once, streaming and not, get what the native backend answers.

usage: test_server.py PROGRAM [--suite]   (--suite: the server's own tests instead, over the xla backend)
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading

import plugin
from counting import HANG, check, finish

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "server"))
from harness import Server  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
PROMPTS = ["Once upon a time", "The dog", "Lily and Ben went to the park", "There was a big tree"]
# the order of sums depends on the batch, which depends on who comes first: choices closer than this could go either way
CLEAR = 1e-3


def complete(server, prompt, streaming):
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "stream": streaming}
    status, _, text = server.request("/v1/completions", body, timeout=HANG)
    if status != 200:
        return text
    if not streaming:
        return json.loads(text)["choices"][0]["text"]
    frames = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return "".join(json.loads(f)["choices"][0]["text"] for f in frames[:-1] if json.loads(f)["choices"])


def all_at_once(server, streaming):
    answers = [None] * len(PROMPTS)

    def ask(i):
        answers[i] = complete(server, PROMPTS[i], streaming(i))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(PROMPTS))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def narrowest(server, prompt):
    """The smallest distance between the first and the second choice on the way."""
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "logprobs": 2}
    steps = json.loads(server.request("/v1/completions", body)[2])["choices"][0]["logprobs"]["top_logprobs"]
    return min(max(s.values()) - min(s.values()) for s in steps)


def clients():
    with Server(PROGRAM, "--parallel", "4", "--precision", "exact", "--device", "cpu") as native:
        want = [complete(native, p, False) for p in PROMPTS]
        for p in PROMPTS:
            check(narrowest(native, p) > CLEAR, f"{p!r} has no clear answer: {narrowest(native, p)}")
    env = {**plugin.ENV, "MLXCEL_BACKEND": "xla"}
    with Server(PROGRAM, "--parallel", "4", env=env) as server:
        check(complete(server, PROMPTS[0], False) == want[0], "a client alone")
        for streaming in (lambda i: i % 2 == 0, lambda i: i % 2 == 1):
            for p, got, good in zip(PROMPTS, all_at_once(server, streaming), want):
                check(got == good, f"{p!r}: {got!r} instead of {good!r}")
        check(server.wait_quiet()["mlxcel_kv_blocks_used"] == 0, "blocks that were not given back")
    check("compiling the program for decoding" in server.log and "xla (" in server.log, f"what the log says: {server.log[-500:]}")


def suite():
    """test_server.py and test_load.py start what is called like a program of ours: a script that chooses the backend first."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("mlxcel", "mlxcel-server"):
            path = os.path.join(folder, name)
            settings = " ".join(f"{k}='{v}'" for k, v in {**plugin.ENV, "MLXCEL_BACKEND": "xla", "MLXCEL_XLA_CACHE": folder}.items())
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\n{settings} exec {os.path.join(os.path.dirname(PROGRAM), name)} \"$@\"\n")
            os.chmod(path, stat.S_IRWXU)
        for test in (["test_server.py"], ["test_load.py"]):
            done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "server", test[0]), os.path.join(folder, "mlxcel"), *test[1:]],
                                  capture_output=True, text=True)
            check(done.returncode == 0, f"{test[0]}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
            print(test[0], *done.stdout.splitlines()[-1:])


plugin.need()
suite() if "--suite" in sys.argv else clients()
finish()
