#!/usr/bin/env python3
"""Adapters in the server: each is a model of its own, llama-server's "lora" and /lora-adapters, many in one batch, and the prefix cache between them.

The adapters have random numbers for the built-in model. What an answer must be is asked of `mlxcel generate`, one at a time.

usage: test_adapters.py MLXCEL [DEVICE]      last line: "N passed, N failed"; another DEVICE than cpu: in exact precision
"""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

from harness import HANG, Server, check, finish

PROGRAM = sys.argv[1]
ON = ["--device", sys.argv[2], "--precision", "exact"] if len(sys.argv) > 2 else []
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "adapters"))
from random_adapter import make_adapter  # noqa: E402

PROMPT = "Once upon a time there was a little girl who had a red ball and a small dog, and every day " * 4
N_NEW = 12


def alone(*adapters):
    flags = [flag for a in adapters for flag in ("--adapter", a)]
    r = subprocess.run([PROGRAM, "generate", "-m", "built-in", "--no-chat-template", "-p", PROMPT, "-n", str(N_NEW), "--temperature", "0", "--ids", "--ignore-eos", *ON, *flags],
                       capture_output=True, text=True, timeout=HANG)
    check(r.returncode == 0, f"generate {adapters}: {r.stderr}")
    return r.stdout.split()


def ask(s, path="/completion", **more):
    body = {"prompt": PROMPT, "n_predict": N_NEW, "temperature": 0, "ignore_eos": True, "return_tokens": True, **more}
    status, _, text = s.request(path, body)
    return [str(t) for t in json.loads(text)["tokens"]] if status == 200 else (status, text)


def names(s, folders):
    models = json.loads(s.request("/v1/models")[2])["data"]
    check([m["id"] for m in models] == ["built-in", *folders], f"listed: {[m['id'] for m in models]}")
    check(all(m["parent"] == "built-in" for m in models[1:]), "their parent")
    status, _, text = s.request("/v1/models/two")
    check(status == 200 and json.loads(text)["id"] == "two", f"one by its name: {status} {text}")
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    for path, body in (("/v1/chat/completions", chat), ("/v1/messages", chat), ("/v1/completions", {"prompt": "Hi", "max_tokens": 2}),
                       ("/v1/responses", {"input": "Hi", "max_output_tokens": 16}), ("/v1/embeddings", {"input": "Hi"}),
                       ("/api/chat", {"messages": chat["messages"], "stream": False, "options": {"num_predict": 2}})):
        status, _, text = s.request(path, {**body, "model": "two"})
        check(status == 200 and json.loads(text)["model"] == "two", f"{path}: {status} {text[:200]}")
        status, _, text = s.request(path, {**body, "model": "nobody"})
        check(status == 404 and "nobody" in text, f"{path}, an unknown one: {status} {text[:200]}")
        check(s.request(path, {**body, "model": "built-in"})[0] == 200, f"{path}: the model itself")
    info = [line for line in s.request("/metrics")[2].splitlines() if line.startswith("vllm:lora_requests_info")]
    words = ('max_lora="3"', 'running_lora_adapters="one,two,three"', 'waiting_lora_adapters=""')
    check(len(info) == 1 and all(w in info[0] for w in words), f"what an endpoint picker reads of them: {info}")
    vectors = [json.loads(s.request("/v1/embeddings", {"input": "Hi", "model": m})[2])["data"][0]["embedding"] for m in ("built-in", "one", "two", "one")]
    check(vectors[1] == vectors[3] and vectors[0] != vectors[1] != vectors[2], "vectors are the adapter's")


def answers(s, want):
    """One by one, then all at once, some of them twice: by name, by number, mixed, and none."""
    asks = {"": {}, "one": {"model": "one"}, "two": {"lora": [{"id": 1, "scale": 1}]}, "three": {"model": "three"},
            "both": {"lora": [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 1.5}]}}
    for name, more in asks.items():
        check(ask(s, **more) == want[name], f"{name or 'none'}: {ask(s, **more)} instead of {want[name]}")
    jobs = [name for name in asks for _ in range(4)]
    random.Random(5).shuffle(jobs)
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        got = list(pool.map(lambda name: ask(s, **asks[name], cache_prompt=name != "one"), jobs))
    for name in asks:
        mine = [g for g, job in zip(got, jobs) if job == name]
        check(mine == [want[name]] * 4, f"in one batch, {name or 'none'}: {mine} instead of {want[name]}")


def prefix(s):
    """What is known of a prompt is known for the same adapters only."""
    def cached(**more):
        status, _, text = s.request("/v1/completions", {"prompt": "A new prompt. " + PROMPT, "max_tokens": 1, **more})
        return json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]
    check([cached(model="one"), cached(model="one") > 60] == [0, True], "the second time it is known")
    check([cached(), cached(model="two"), cached(lora=[{"id": 0, "scale": 0.5}])] == [0, 0, 0], "not to others")
    check(cached(lora=[{"id": 0, "scale": 1}]) > 60 and cached() > 60, "by number it is the same adapter")


def scales(s, want):
    def listed():
        return [(a["id"], a["scale"]) for a in json.loads(s.request("/lora-adapters")[2])]
    check(listed() == [(0, 0), (1, 0), (2, 0)], f"at the start: {listed()}")
    check(s.request("/lora-adapters", [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 1.5}])[0] == 200, "set")
    check(listed() == [(0, 0.5), (1, 1.5), (2, 0)] and ask(s) == want["both"], f"they count from now on: {listed()}")
    check(ask(s, model="one") == want["one"] and ask(s, lora=[]) == want[""], "not where a request says otherwise")
    for body, status in (([{"id": 3, "scale": 1}], 404), ([{"id": 0}], 400), ([{"id": 0, "scale": 1e9}], 400), ([{"id": "0", "scale": 1}], 400), ([7], 400), ({}, 400)):
        check(s.request("/lora-adapters", body)[0] == status, f"{body}: {s.request('/lora-adapters', body)}")
        check(s.request("/completion", {"prompt": "x", "n_predict": 1, "lora": body})[0] == status, f"lora {body}: {s.request('/completion', {'prompt': 'x', 'n_predict': 1, 'lora': body})}")
    check(s.request("/lora-adapters", [])[0] == 200 and ask(s) == want[""], "all off")


def started(folders):
    with Server(PROGRAM, *ON, "-m", "built-in", "--adapter", "one=" + folders["one"] + ":0.5", "--adapter", "two=" + folders["two"] + ":1.5") as s:
        check(ask(s) == alone(folders["one"] + ":0.5", folders["two"] + ":1.5"), "scales from the start")
    for flags, words in ((("-m", "a=built-in", "-m", "b=built-in"), "one model"), (("--models-dir", folders["one"]), "one model")):
        r = subprocess.run([PROGRAM, "serve", *ON, *flags, "--adapter", folders["one"]], capture_output=True, text=True, timeout=HANG)
        check(r.returncode == 2 and words in r.stderr, f"{flags}: {r.returncode} {r.stderr}")
    with Server(PROGRAM, *ON) as s:
        check(s.request("/lora-adapters")[2] == "[]" and s.request("/completion", {"prompt": "x", "n_predict": 1, "lora": [{"id": 0, "scale": 1}]})[0] == 404,
              "a server without adapters")
        check(isinstance(ask(s, model="anything"), list), "and any name of the model")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folders = {name: make_adapter(os.path.join(folder, name), i) for i, name in enumerate(("one", "two", "three"))}
        want = {"": alone(), **{name: alone(path) for name, path in folders.items()}, "both": alone(folders["one"] + ":0.5", folders["two"] + ":1.5")}
        check(len(set(map(tuple, want.values()))) == 5, f"they differ: {want}")
        with Server(PROGRAM, *ON, "-m", "built-in", "--parallel", "16", *[flag for path in folders.values() for flag in ("--adapter", path)]) as s:
            names(s, folders)
            answers(s, want)
            prefix(s)
            scales(s, want)
        started(folders)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
