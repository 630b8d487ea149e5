#!/usr/bin/env python3
"""A hub that keeps one waiting: each way of it ends by itself with a line that says why, and at once by Ctrl-C.

usage: test_limits.py PROGRAM [--only PART]      last line: "N passed, N failed, N skipped"
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import time

from fakehub import Fault
from test_hub import MODEL, Bench

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish  # noqa: E402

HANGS_S = 60  # what has not ended by then never would; nothing here should need a quarter of it
CONFIG = ["download", MODEL, "--include", "config.json"]


def run(b, *args, **env):
    """What the program says, how often the hub was asked, and whether it had to be ended."""
    first = len(b.hub.log)
    p = subprocess.Popen([b.program, *args], env=b.env(b.home(), **env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        text = p.communicate(timeout=HANGS_S)[1]
    except subprocess.TimeoutExpired:
        p.kill()
        text = "(it hangs) " + p.communicate()[1]
    b.hub.faults, b.hub.list_faults = [], []
    return p.returncode, text, b.hub.log[first:]


def ends(b, what, args, *words):
    """One error line with these words; what the hub was asked."""
    code, text, asked = run(b, *args)
    last = text.strip().split("\n")[-1]
    check(code == 1 and "error" in last and all(w in last for w in words), f"{what}: {code} {text[-600:]}")
    return asked


def wait_with(seconds):
    return dict(status=429, headers=[("Retry-After", str(seconds))])


def test_retry_after(b):
    """A day is not waited for; less is, but no more than --max-wait in all."""
    day = wait_with(86400)
    b.hub.list_faults = [Fault(**day) for _ in range(20)]
    check(len(ends(b, "the list, in a day", CONFIG, "status 429", "24:00:00", "--max-wait")) == 1, "a day: the list is asked for once")
    b.hub.faults = [Fault(1000, **day)]
    asked = ends(b, "a file, in a day", CONFIG, "status 429", "24:00:00", "--max-wait")
    check(sum("/resolve/" in x[1] for x in asked) == 1, "a day: the file is asked for once")
    short = wait_with(1)
    patient = [*CONFIG, "--max-wait", "3", "--retries", "1000", "--connections", "1"]
    b.hub.list_faults = [Fault(**short) for _ in range(1000)]
    asked = ends(b, "a storm over the list", patient, "--max-wait")
    check(2 <= len(asked) <= 4, f"a storm over the list: asked {len(asked)} times")
    b.hub.faults = [Fault(1000, **short)]
    asked = sum("/resolve/" in x[1] for x in ends(b, "a storm over a file", patient, "--max-wait"))
    check(2 <= asked <= 4, f"a storm over a file: asked {asked} times")
    # files that come, each after a wait: the waits count together
    folder = os.path.join(b.dir, "src-many")
    os.makedirs(folder)
    for i in range(40):
        with open(os.path.join(folder, f"part-{i:02}.json"), "w") as f:
            f.write(f'{{"number": {i}}}\n')
    b.hub.add("acme/many", folder)
    b.hub.faults = [Fault(1, name=name, **short) for name in b.hub.repos["acme/many"]["files"]]
    asked = ends(b, "a wait for each file", ["download", "acme/many", "--max-wait", "4", "--connections", "2"], "status 429", "--max-wait")
    check(sum("/resolve/" in x[1] for x in asked) <= 30, f"a wait for each file: asked {len(asked)} times")


def test_lengths(b):
    """Lengths that are not those of what follows."""
    once = ["--retries", "1", "--connections", "1"]
    b.hub.add("acme/claims", b.big, lfs=(), sizeless=True)
    big = ["download", "acme/claims", "--include", "model.safetensors", *once]
    b.hub.faults = [Fault(1000, claim=200 << 20, plain=True)]
    asked = [x for x in ends(b, "a Content-Length that lies, and no ranges", big, "model.safetensors") if x[3] == "GET"]
    check(len(asked) <= 8, f"a Content-Length that lies: asked {len(asked)} times")
    b.hub.faults = [Fault(1000, claim=1 << 62, plain=True)]
    ends(b, "a Content-Length beyond everything", big, "model.safetensors", f"{1 << 62} bytes")
    b.hub.faults = [Fault(1000, claim=1 << 40, method="GET", name="model.safetensors")]
    ends(b, "a range that claims more than was asked for", ["download", "acme/big", *once], "model.safetensors", "more than was asked for")
    b.hub.faults = [Fault(1000, cut=1, name="model.safetensors")]
    asked = ends(b, "a byte for each request", ["download", "acme/big", "--include", "model.safetensors", *once], "model.safetensors", "bytes")
    check(len(asked) <= 12, f"a byte for each request: asked {len(asked)} times")
    b.hub.faults = [Fault(1000, etag="*", name="model.safetensors")]
    ends(b, "another file for each request", ["download", "acme/big", *once], "model.safetensors", "has changed on the server")


def test_sizes(b):
    """A list without sizes: one request for each file, said, and not for ever."""
    folder = os.path.join(b.dir, "src-sizes")
    os.makedirs(folder)
    for i in range(200):
        with open(os.path.join(folder, f"part-{i:03}.json"), "w") as f:
            f.write("x" * random.Random(i).randrange(1, 200))
    b.hub.add("acme/sizes", folder, sizeless=True)
    code, text, asked = run(b, "download", "acme/sizes")
    check(code == 0 and "sizes of 200 files" in text and sum(x[3] == "HEAD" for x in asked) == 200, f"200 files without sizes: {code} {text[-600:]}")
    b.hub.faults = [Fault(1000, stall=0.3, method="HEAD")]
    asked = ends(b, "sizes that come slowly", ["download", "acme/sizes", "--max-wait", "2"], "200 files", "--max-wait", "--include")
    check(sum(x[3] == "HEAD" for x in asked) < 100, f"sizes that come slowly: {len(asked)} were asked for")


def test_slow(b):
    """Bytes that come one by one."""
    b.hub.list_faults = [Fault(stall=7)]
    code, text, _ = run(b, *CONFIG)
    check(code == 0 and f"waiting for an answer from {b.hub.url}" in text, f"a list that takes its time: {code} {text}")
    b.hub.list_faults = [Fault(drip=0.2) for _ in range(100)]
    ends(b, "a list that drips", [*CONFIG, "--max-wait", "3"], "--max-wait")
    b.hub.faults = [Fault(1000, drip=0.1, name="model.safetensors")]
    asked = ends(b, "a file that drips", ["download", "acme/big", "--stall-timeout", "2", "--retries", "1", "--connections", "1"], "bytes")
    check(sum("/blob/" in x[1] for x in asked) == 2, f"a file that drips: asked {len(asked)} times")


def test_endless(b):
    """Parts of a reply that never end."""
    once = ["--retries", "0", "--connections", "1"]
    b.hub.list_faults = [Fault(endless="headers")]
    ends(b, "headers of the list", [*CONFIG, *once], "headers")
    b.hub.list_faults = [Fault(endless="body")]
    ends(b, "the list itself", [*CONFIG, *once], "larger than")
    b.hub.list_faults = [Fault(status=404, endless="body")]
    ends(b, "a refusal of the list", [*CONFIG, *once], "has no model")
    b.hub.faults = [Fault(10, status=403, endless="body", name="config.json")]
    ends(b, "a refusal of a file", [*CONFIG, *once], "status 403")
    for kind, words in (("endless", "redirect"), ("loop", "redirects more than")):
        b.hub.add("acme/turns", b.tiny, redirect=kind)
        ends(b, f"a redirect: {kind}", ["download", "acme/turns", *once], words)


def test_interrupt(b):
    """Ctrl-C while the hub keeps one waiting: the program says so and ends."""
    waits = {
        "the list asks to wait": (lambda: b.hub.list_faults.extend(Fault(**wait_with(200)) for _ in range(9)), "trying again"),
        "a file asks to wait": (lambda: b.hub.faults.append(Fault(1000, **wait_with(200))), "trying again"),
        "the list drips": (lambda: b.hub.list_faults.append(Fault(drip=0.2)), None),
    }
    for what, (begin, line) in waits.items():
        begin()
        first = len(b.hub.log)
        p = subprocess.Popen([b.program, *CONFIG], env=b.env(b.home()), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        text = ""
        while line and line not in text and p.poll() is None:
            text += p.stderr.readline()
        for _ in range(200):
            if len(b.hub.log) > first:
                break
            time.sleep(0.05)
        p.send_signal(signal.SIGINT)
        try:
            text += p.communicate(timeout=HANGS_S)[1]
        except subprocess.TimeoutExpired:
            p.kill()
            text += "(it hangs)" + p.communicate()[1]
        b.hub.faults, b.hub.list_faults = [], []
        check(p.returncode == 1 and "stopped" in text, f"{what}, interrupted: {p.returncode} {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only")
    args = parser.parse_args()
    b = Bench(os.path.abspath(args.program))
    try:
        for part in (test_retry_after, test_lengths, test_sizes, test_slow, test_endless, test_interrupt):
            if args.only and part.__name__[5:] not in args.only.split(","):
                continue
            start = time.monotonic()
            part(b)
            print(f"  {part.__name__[5:]}: {time.monotonic() - start:.1f} s", flush=True)
    finally:
        b.close()
    finish()


if __name__ == "__main__":
    sys.exit(main())
