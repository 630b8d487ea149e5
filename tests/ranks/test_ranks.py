"""A model cut for ranks, through the program: test_ranks.py PROGRAM

Logits close to those of one rank and the same bits from run to run; what each rank has of the weights of a made-up model of 1B; generating with drafts; a server
that answers several at once with its prefix cache; and what is refused, by name.
"""
import array
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from harness import HANG, Server, check, finish  # noqa: E402

program = sys.argv[1]
BASE = ["--device", "cpu"]
PROMPT = "Once upon a time there was a little dog who wanted to see the sea"


def run(*args):
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=HANG)


def logits(folder, n, name):
    path = os.path.join(folder, name)
    r = run("logits", *BASE, "--precision", "exact", "--tensor-parallel", str(n), "-p", PROMPT, "-o", path)
    if not check(r.returncode == 0, f"logits of {n} ranks: {r.stderr}"):
        return array.array("f")
    with open(path, "rb") as f:
        return array.array("f", f.read())


def close_to_one_rank(folder):
    one = logits(folder, 1, "one")
    mean = sum(one) / len(one)
    sd = (sum((x - mean) ** 2 for x in one) / len(one)) ** 0.5
    for n in (2, 3, 4):
        first, second = logits(folder, n, "first"), logits(folder, n, "second")
        check(first and first == second, f"{n} ranks: other bits the second time")
        worst = max((abs(a - b) for a, b in zip(first, one)), default=1e9) / sd if len(first) == len(one) else 1e9
        check(worst <= 1e-4, f"{n} ranks: {worst:.2g} sd from one rank")


def memory_of_ranks():
    whole = None
    for n in (1, 2, 4):
        r = run("bench", *BASE, "--shape", "llama-3.2-1b", "--bits", "4", "--tensor-parallel", str(n), "-p", "0", "-n", "1", "-r", "1", "--log-level", "info")
        if n == 1:
            figures = re.search(r"tg1 +\S+ +\S+ +([\d.]+)", r.stdout)
            if not check(r.returncode == 0 and figures, f"a made-up model of 1B: {r.stdout}{r.stderr}"):
                return
            whole = float(figures.group(1)) / 1000  # MB that a token reads: all weights
            continue
        got = re.search(r"the first has ([\d.]+) GB of the weights, another ([\d.]+) GB at most", r.stderr)
        if check(r.returncode == 0 and got, f"memory of {n} ranks: {r.stderr}"):
            most = max(float(got.group(1)), float(got.group(2)))
            check(0 < most <= whole / n + 0.1 * whole, f"{n} ranks: one has {most} GB of {whole} GB")


def generating():
    want = run("generate", *BASE, "-p", PROMPT, "-n", "24", "--temp", "0").stdout
    for n in (2, 4):
        got = run("generate", *BASE, "--tp-size", str(n), "-p", PROMPT, "-n", "24", "--temp", "0")
        check(got.returncode == 0 and got.stdout == want, f"{n} ranks wrote {got.stdout!r} instead of {want!r}: {got.stderr}")
    drafts = run("generate", *BASE, "--tensor-parallel", "2", "--draft", "ngram", "-p", PROMPT, "-n", "24", "--temp", "0")
    check(drafts.returncode == 0 and drafts.stdout == want, f"with drafts: {drafts.stdout!r} {drafts.stderr}")


def ask(server, i):
    body = {"model": "x", "max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": f"{PROMPT}. Tell it {i} times."}]}
    status, _, text = server.request("/v1/chat/completions", body)
    return json.loads(text)["choices"][0]["message"]["content"] if status == 200 else f"{status} {text}"


def serving():
    answers = []
    for n in (1, 2):
        with Server(program, *BASE, "--tensor-parallel", str(n), "--parallel", "3") as server:
            with ThreadPoolExecutor(3) as pool:
                at_once = list(pool.map(lambda i: ask(server, i), range(6)))
            again = [ask(server, i) for i in range(6)]  # from the prefix cache
            check(at_once == again, f"{n} ranks: {at_once} at once, {again} one by one")
            answers.append(again)
    check(answers[0] == answers[-1] and len(set(answers[0])) > 0, f"two ranks serve {answers[1]} instead of {answers[0]}")


def refusals():
    for args, words in ((["--draft", "mtp"], "models and heads that draft do not run with --tensor-parallel"),
                        (["--tensor-parallel", "0"], "expected auto or a whole number from 1 to 64"),
                        (["--pp-size", "2"], "--pipeline-parallel and --tensor-parallel do not go together"),
                        (["--split", "layer"], "--split layer and --tensor-parallel do not go together"),
                        (["--tensor-parallel", "1", "--split", "layer"], "--split layer is for GPUs, and this runs on cpu"),
                        (["--tensor-parallel", "1", "--split", "tensor"], "--split tensor is for GPUs"),
                        (["--gpu-layers", "1"], "--gpu-layers is for a GPU")):
        r = run("generate", *BASE, "--tensor-parallel", "2", *args, "-p", "x", "-n", "1")
        check(r.returncode != 0 and words in r.stderr, f"{args}: {r.returncode} {r.stderr}")


with tempfile.TemporaryDirectory() as scratch:
    close_to_one_rank(scratch)
memory_of_ranks()
generating()
serving()
refusals()
finish()
