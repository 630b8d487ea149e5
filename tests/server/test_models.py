#!/usr/bin/env python3
"""A server of several models: loaded when a request names them, unloaded to make room or when nobody asks for them.

Each model says words of its own, so that an answer of the wrong one is noticed.

usage: test_models.py MLXCEL      last line: "N passed, N failed[, N skipped]"
"""
import asyncio
import concurrent.futures
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402
from harness import HANG, SLOW, Server, check, finish, parts  # noqa: E402

PROGRAM = sys.argv[1]
WORDS = {"alpha": "one two three", "beta": "four five six", "gamma": "seven eight nine"}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0}


def make(folder):
    for name, words in WORDS.items():
        first, *rest = words.split()
        crafted.make(os.path.join(folder, name), [crafted.GO, first, *(" " + w for w in rest), crafted.END])
    return [arg for name in WORDS for arg in ("-m", os.path.join(folder, name))]


def ask(s, model, stream=False, **more):
    """Status and text."""
    status, _, body = s.request("/v1/chat/completions", {**CHAT, "model": model, "stream": stream, **more})
    if status != 200:
        return status, json.loads(body)["error"]["message"]
    if not stream:
        return status, json.loads(body)["choices"][0]["message"]["content"]
    frames = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    if frames and "error" in frames[-1]:
        return status, frames[-1]["error"]["message"]
    return status, "".join(f["choices"][0]["delta"].get("content", "") for f in frames if f["choices"])


def states(s):
    return {m["id"]: m["status"]["value"] for m in json.loads(s.request("/v1/models")[2])["data"]}


def wait_states(s, condition):
    end = time.monotonic() + HANG
    while not condition(seen := states(s)) and time.monotonic() < end:
        time.sleep(0.05)
    return seen


def names(models):
    with Server(PROGRAM, *models, "-m", "short=" + models[1], "--preload", "beta") as s:
        check(s.ready.get("models") == 4 and "model" not in s.ready, f"the first line: {s.ready}")
        seen = wait_states(s, lambda m: m["beta"] == "loaded")
        check(seen == {"alpha": "unloaded", "beta": "loaded", "gamma": "unloaded", "short": "unloaded"}, f"preloaded: {seen}")
        check(s.request("/health")[0] == 200, "health without the first model")
        for model, words in [*WORDS.items(), ("short", WORDS["alpha"])]:
            for stream in (False, True):
                got = ask(s, model, stream)
                check(got == (200, words), f"{model} stream {stream}: {got}")
        status, _, body = s.request("/v1/chat/completions", CHAT)
        check(status == 200 and json.loads(body)["model"] == "alpha", f"no model named: {status} {body}")
        check(ask(s, "delta")[0] == 404 and "delta" in ask(s, "delta")[1], f"an unknown one: {ask(s, 'delta')}")
        check(ask(s, 7)[0] == 400, f"a number as a model: {ask(s, 7)}")
        status, _, body = s.request("/v1/models/gamma")
        check(status == 200 and json.loads(body)["meta"]["n_vocab"] > 0, f"one model: {body}")
        check(s.request("/v1/models/delta")[0] == 404, "an unknown one by its path")
        for key, name in (("model", "gamma:latest"), ("name", "gamma")):
            status, _, body = s.request("/api/chat", {key: name, "messages": CHAT["messages"], "stream": False, "options": {"temperature": 0}})
            check(status == 200 and json.loads(body)["message"]["content"] == WORDS["gamma"], f"Ollama's {key} {name}: {status} {body}")
        check(sorted(m["name"] for m in json.loads(s.request("/api/tags")[2])["models"]) == ["alpha", "beta", "gamma", "short"], "Ollama's list")
        status, _, body = s.request("/v1/messages", {"model": "beta", "max_tokens": 20, "messages": CHAT["messages"], "temperature": 0})
        check(status == 200 and json.loads(body)["content"][0]["text"] == WORDS["beta"], f"Anthropic's messages: {status} {body}")
        status, _, body = s.request("/v1/responses", {"model": "alpha", "input": "hello", "temperature": 0})
        check(status == 200 and json.loads(body)["output"][-1]["content"][0]["text"] == WORDS["alpha"], f"OpenAI's responses: {status} {body}")
        status, _, body = s.request("/completion", {"model": "short", "prompt": "hello <go>", "temperature": 0})
        check(status == 200 and json.loads(body)["content"].strip() == WORDS["alpha"], f"llama-server's completion: {status} {body}")
        status, _, body = s.request("/v1/embeddings", {"model": "beta", "input": "hello"})
        check(status == 200 and json.loads(body)["model"] == "beta", f"an embedding: {status} {body[:200]}")


def by_hand(models):
    with Server(PROGRAM, *models) as s:
        check(set(states(s).values()) == {"unloaded"}, f"at the start: {states(s)}")
        check(s.request("/models/load", {"model": "gamma"})[0] == 200 and states(s)["gamma"] == "loaded", f"load: {states(s)}")
        check(s.request("/models/unload", {"model": "gamma"})[0] == 200, "unload")
        seen = wait_states(s, lambda m: m["gamma"] == "unloaded")
        check(seen["gamma"] == "unloaded", f"unload: {seen}")
        check(s.request("/models/unload", {"model": "gamma"})[0] == 200, "unloading twice")
        check(s.request("/models/unload", {"model": "delta"})[0] == 404, "unloading an unknown one")
        check(s.request("/models/unload", {})[0] == 400, "unloading nothing")
        check(ask(s, "gamma") == (200, WORDS["gamma"]), "again")
        m = s.metrics()
        check(m["mlxcel_model_loads_total"] == 2 and m["mlxcel_model_unloads_total"] == 1 and m["mlxcel_models_loaded"] == 1, f"counted: {m}")
        check(m['mlxcel_generations_total{model="gamma",reason="stop"}'] == 1, "a figure of one model")
    with Server(PROGRAM) as s:
        check(s.request("/models/unload", {"model": "built-in"})[0] == 400, "the only one stays")
        check(s.request("/models/load", {"model": "built-in"})[0] == 200, "the only one is loaded")


def commands(models):
    """mlxcel ps and mlxcel stop."""
    with Server(PROGRAM, *models, "--api-key", "secret") as s:
        def command(*args):
            return subprocess.run([PROGRAM, *args, "--port", str(s.port), "--api-key", "secret"], capture_output=True, text=True, timeout=HANG)
        s.request("/v1/chat/completions", {**CHAT, "model": "beta"}, {"Authorization": "Bearer secret"})
        r = command("ps")
        rows = [line.split() for line in r.stdout.splitlines()]
        check(r.returncode == 0 and [row[:2] for row in rows] == [["model", "state"], ["alpha", "unloaded"], ["beta", "loaded"], ["gamma", "unloaded"]], f"ps: {r}")
        check(command("stop", "beta").returncode == 0, "stop")
        r = command("ps", "--json")
        end = time.monotonic() + HANG
        while json.loads(r.stdout)[1]["status"]["value"] != "unloaded" and time.monotonic() < end:
            r = command("ps", "--json")
        check(json.loads(r.stdout)[1]["status"]["value"] == "unloaded", f"ps --json after stop: {r}")
        r = command("stop", "delta")
        check(r.returncode != 0 and "404" in r.stderr and r.stderr.count("\n") == 1, f"stop of an unknown one: {r}")
        port = s.port
    r = subprocess.run([PROGRAM, "ps", "--port", str(port)], capture_output=True, text=True, timeout=HANG)
    check(r.returncode != 0 and "no server answers" in r.stderr, f"no server: {r}")


def one_request(s, seed):
    r = random.Random(seed)
    model = r.choice(list(WORDS))
    return model, ask(s, model, r.random() < 0.5)


def under_a_budget(models):
    """Three models where two fit; nothing is lost, nothing is another model's."""
    with Server(PROGRAM, *models, "--models-max", "2") as s:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: one_request(s, i), range(200)))
        wrong = [(model, got) for model, got in answers if got != (200, WORDS[model])]
        check(len(answers) == 200 and not wrong, f"{len(wrong)} of 200 wrong: {wrong[:3]}")
        m = s.metrics()
        loads, unloads = m["mlxcel_model_loads_total"], m["mlxcel_model_unloads_total"]
        check(loads >= 3 and loads - unloads <= 2 and m["mlxcel_model_load_failures_total"] == 0, f"loads {loads}, unloads {unloads}")
        print(f"  three models, two places, 200 requests: {loads:.0f} loads, {unloads:.0f} unloads")
        s.kill()
    with Server(PROGRAM, *models, "--models-max", "2") as s:
        check([ask(s, m) for m in WORDS] == [(200, w) for w in WORDS.values()], "after kill -9 and a new start")


def request_bytes(model, stream):
    body = json.dumps({**CHAT, "model": model, "stream": stream}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def text_of(answer, stream):
    """The words of a whole HTTP answer; what else it is, where it has none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return answer[:200]
    if not stream:
        return json.loads(body)["choices"][0]["message"]["content"]
    frames = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(f["choices"][0]["delta"].get("content") or "" for f in frames if f["choices"]) if b"data: [DONE]" in body else body[-200:]


async def one_of_many(port, i, n, opened, everybody):
    """Asks when all connections are open."""
    model, stream = list(WORDS)[i % 3], i % 2 == 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    opened.append(i)
    if len(opened) == n:
        everybody.set()
    await everybody.wait()
    writer.write(request_bytes(model, stream))
    await writer.drain()
    got = text_of(await reader.read(), stream)
    writer.close()
    return got == WORDS[model] or (model, got)


async def ask_all(port, n):
    everybody, opened = asyncio.Event(), []
    return await asyncio.gather(*(one_of_many(port, i, n, opened, everybody) for i in range(n)))


def many_connections(models, n=1000):
    """All open at once, all of them asking at once, where two of three models fit."""
    with Server(PROGRAM, *models, "--models-max", "2", "--max-queue-depth", str(n)) as s:
        got = asyncio.run(ask_all(s.port, n))
        wrong = [g for g in got if g is not True]
        check(len(got) == n and not wrong, f"{len(wrong)} of {n} connections got something else: {wrong[:3]}")
        m = s.wait_for(lambda m: m["mlxcel_http_connections"] == 1)
        held = {k: v for k, v in m.items() if k.startswith(("mlxcel_queue_depth", "mlxcel_generations_running", "mlxcel_kv_blocks_used"))}
        check(m["mlxcel_http_connections"] == 1 and not any(held.values()), f"nothing is held: {held}")
        check(m['mlxcel_http_answers_total{class="5xx"}'] == 0 and m["mlxcel_model_load_failures_total"] == 0, "nothing failed")
        print(f"  three models, two places, {n} connections at once: {m['mlxcel_model_loads_total']:.0f} loads")


def under_a_budget_of_memory(models):
    """The bytes of two: the third one makes room, although more places are free."""
    with Server(PROGRAM, *models) as s:
        for model in WORDS:
            ask(s, model)
        check(set(states(s).values()) == {"loaded"}, f"without a budget: {states(s)}")
    with Server(PROGRAM, *models, "--memory-budget", "2M", "--ctx-size", "1024", "--threads", "2") as s:
        got = [ask(s, m) for m in [*WORDS, *WORDS]]
        check(got == [(200, w) for w in [*WORDS.values(), *WORDS.values()]], f"under 2 MB: {got}")
        check(list(states(s).values()).count("loaded") < 3, f"they do not all fit: {states(s)}")
    with Server(PROGRAM, *models, "--memory-budget", "100K") as s:
        status, text = ask(s, "beta")
        check(status == 503 and "beta could not be loaded" in text and "GB" in text, f"none fits: {status} {text}")


def one_that_fails(folder, models):
    broken = os.path.join(folder, "broken")
    shutil.copytree(models[1], broken)
    with open(os.path.join(broken, "config.json"), "w") as f:
        f.write('{"model_type": "nonsense9"}')
    with Server(PROGRAM, *models, "-m", broken) as s:
        for stream in (False, True):
            status, text = ask(s, "broken", stream)
            check(status == 503 and "nonsense9" in text, f"its reason, stream {stream}: {status} {text}")
        check(ask(s, "alpha") == (200, WORDS["alpha"]), "another one beside it")
        check(wait_states(s, lambda m: m["broken"] == "failed")["broken"] == "failed", f"its state: {states(s)}")
        shutil.copy(os.path.join(models[1], "config.json"), broken)
        check(ask(s, "broken") == (200, WORDS["alpha"]), "mended, it is loaded by the next request")


def idle_ones_go(models):
    with Server(PROGRAM, *models, "--keep-alive", "1") as s:
        ask(s, "alpha")
        check(wait_states(s, lambda m: m["alpha"] == "unloaded")["alpha"] == "unloaded", "unloaded when nobody asks")
        check(ask(s, "alpha") == (200, WORDS["alpha"]), "and loaded again")


def waiting(models):
    """One place, and a model that is busy: who waits hears of it, who leaves is forgotten, and nobody is turned out while it runs."""
    args = ["-m", "slow=built-in", *models, "--models-max", "1", "--sse-ping-interval", "1", *SLOW]
    with Server(PROGRAM, *args) as s:
        long = {**CHAT, "model": "slow", "max_tokens": 600, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            busy = pool.submit(s.request, "/v1/chat/completions", long)
            wait_states(s, lambda m: m["slow"] == "loaded")
            s.wait_for(lambda m: m.get('mlxcel_generations_running{model="slow"}', 0) == 1)
            with socket.create_connection(("127.0.0.1", s.port)) as gone:
                body = json.dumps({**CHAT, "model": "beta"}).encode()
                gone.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                time.sleep(0.2)
            status, _, text = s.request("/v1/chat/completions", {**CHAT, "model": "alpha", "stream": True})
            check(status == 200 and ": keep-alive" in text and "three" in text, f"it waited: {status} {text[:300]}")
            status, _, text = busy.result()
            check(status == 200 and json.loads(text)["usage"]["completion_tokens"] == 600, f"the busy one was finished: {status} {text[-300:]}")


def the_store(folder, models):
    """Without a model named, those of the store; one alone is loaded at the start."""
    store = os.path.join(folder, "store")
    for name in ("alpha", "beta"):
        subprocess.run([PROGRAM, "import", "--models-dir", store, os.path.join(folder, name), f"us/{name}"], check=True, capture_output=True)
    with Server(PROGRAM, "--models-dir", store) as s:
        check(states(s) == {"us/alpha": "unloaded", "us/beta": "unloaded"}, f"the store's: {states(s)}")
        check(ask(s, "us/beta") == (200, WORDS["beta"]) and ask(s, "alpha") == (200, WORDS["alpha"]), "by the whole name and by its last part")
    subprocess.run([PROGRAM, "import", "--models-dir", store, os.path.join(folder, "gamma"), "mlx-community/Qwen3-0.6B-4bit"], check=True, capture_output=True)
    with Server(PROGRAM, "--models-dir", store) as s:
        for model in ("mlx-community/Qwen3-0.6B-4bit", "Qwen3-0.6B-4bit", "qwen3-0.6b-4bit", "Qwen3-0.6B:4bit", "qwen3:0.6b"):
            check(ask(s, model) == (200, WORDS["gamma"]), f"{model} in OpenAI's protocol: {ask(s, model)}")
            for path, more in (("/v1/messages", {"max_tokens": 9}), ("/api/chat", {"stream": False}), ("/v1/responses", {})):
                body = {"model": model, "temperature": 0, **({"input": "hello"} if path == "/v1/responses" else {k: CHAT[k] for k in ("messages",)}), **more}
                status, _, text = s.request(path, body)
                check(status == 200 and WORDS["gamma"] in text, f"{model} at {path}: {status} {text[:300]}")
    with Server(PROGRAM, "--models-dir", os.path.join(folder, "nothing")) as s:
        check(s.ready["model"] == "built-in", f"an empty store: {s.ready}")


def refused(models):
    for args, says in [(["-m", "a=" + models[1], "-m", "a=" + models[3]], "two models are called a"), ([*models, "--alias", "x"], "--alias is for one model"),
                       ([*models, "--preload", "delta"], "--preload names delta")]:
        r = subprocess.run([PROGRAM, "serve", "--port", "0", *args], capture_output=True, text=True, timeout=HANG)
        check(r.returncode != 0 and says in r.stderr and r.stderr.count("\n") == 1, f"{args}: {r}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        models = make(folder)
        parts((names, models), (by_hand, models), (commands, models), (under_a_budget, models), (many_connections, models), (under_a_budget_of_memory, models), (one_that_fails, folder, models),
              (idle_ones_go, models), (waiting, models), (the_store, folder, models), (refused, models))
    finish()


main()
