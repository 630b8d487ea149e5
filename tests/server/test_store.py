#!/usr/bin/env python3
"""Models that come into a running server and go, through Ollama's protocol, against a hub on this machine.

usage: test_store.py MLXCEL      last line: "N passed, N failed[, N skipped]". With the ollama package installed, its client does the same.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cli"), os.path.join(HERE, "..", "hub"), os.path.join(HERE, "..", "gguf")]
import crafted  # noqa: E402
import test_small as gguf  # noqa: E402
from fakehub import Fault, Hub  # noqa: E402
from harness import HANG, SLOW, Server, check, finish, skip  # noqa: E402

PROGRAM = sys.argv[1]
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0}
WORDS = {"us/alpha": "one two three", "acme/beta": "four five six", "acme/gamma": "seven eight nine", "acme/long": " ".join(f"w{i}" for i in range(55))}


class Bench:
    """A hub with two models, and stores that hold a third."""

    def __init__(self, folder):
        self.folder, self.hub, self.n = folder, Hub(), 0
        for name, words in WORDS.items():
            first, *rest = words.split()
            path = os.path.join(folder, name.replace("/", "-"))
            crafted.make(path, [crafted.GO, first, *(" " + w for w in rest), crafted.END])
            if name.startswith("acme/"):
                self.hub.add(name, path)

    def serve(self, *args, models=("us/alpha",)):
        self.n += 1
        self.store = os.path.join(self.folder, f"store{self.n}")
        os.makedirs(self.store)
        for name in models:
            subprocess.run([PROGRAM, "import", "--models-dir", self.store, os.path.join(self.folder, name.replace("/", "-")), name], check=True,
                           capture_output=True)
        return Server(PROGRAM, "--models-dir", self.store, *args, env={"HF_ENDPOINT": self.hub.url, "HF_HOME": os.path.join(self.folder, "hf")})


def ask(s, model):
    status, _, body = s.request("/v1/chat/completions", {**CHAT, "model": model})
    return json.loads(body)["choices"][0]["message"]["content"] if status == 200 else status


def post(s, path, body, method="POST", **headers):
    status, got, text = s.request(path, body, method=method, headers=headers)
    return status, [json.loads(line) for line in text.splitlines()], got


def pull(s, name, **more):
    return post(s, "/api/pull", {"model": name, **more})[:2]


def listed(s):
    tags = sorted(m["name"] for m in json.loads(s.request("/api/tags")[2])["models"])
    check(tags == sorted(m["id"] for m in json.loads(s.request("/v1/models")[2])["data"]), f"both lists agree: {tags}")
    return tags


def journey(b):
    with b.serve() as s:
        check(ask(s, "anything") == WORDS["us/alpha"], "one model takes any name")
        status, frames = pull(s, "acme/beta")
        check(status == 200 and frames[0] == {"status": "pulling manifest"} and frames[-1] == {"status": "success"}, f"pull: {status} {frames}")
        bar = frames[-2]
        check(bar["status"] == "pulling acme/beta" and bar["completed"] == bar["total"] > 0 and bar["digest"].startswith("sha256:"), f"its last figures: {bar}")
        check(listed(s) == ["acme/beta", "us/alpha"], f"it is served: {listed(s)}")
        check(ask(s, "acme/beta") == WORDS["acme/beta"] and ask(s, "us/alpha") == WORDS["us/alpha"], "both answer")
        check(ask(s, "hf.co/acme/beta:latest") == WORDS["acme/beta"], "by the name that it was pulled by")
        check(ask(s, "anything") == 404, "of several models, an unknown one is refused")
        check(os.path.exists(os.path.join(b.store, "acme", "beta", "config.json")), "it lies in the store")
        check(pull(s, "hf.co/acme/gamma:latest", stream=False) == (200, [{"status": "success"}]), "another one, whole")
        check(pull(s, "acme/gamma", stream=False) == (200, [{"status": "success"}]), "one that is there")
        check(ask(s, "gamma") == WORDS["acme/gamma"], "it answers")
        check(post(s, "/api/delete", {"model": "acme/gamma"}, "DELETE")[0] == 200, "delete of one that is loaded")
        check(listed(s) == ["acme/beta", "us/alpha"] and ask(s, "gamma") == 404, f"it is served no more: {listed(s)}")
        check(not os.path.exists(os.path.join(b.store, "acme", "gamma")), "its files are gone")
        check(post(s, "/api/delete", {"model": "acme/gamma"}, "DELETE")[0] == 404, "delete of one that is not there")
        check(pull(s, "acme/gamma")[1][-1] == {"status": "success"} and ask(s, "gamma") == WORDS["acme/gamma"], "it comes back")
        check(s.metrics()["mlxcel_model_loads_total"] == 4, "loads are counted, those of removed models too")
    with Server(PROGRAM, "--models-dir", b.store) as s:
        check(listed(s) == ["acme/beta", "acme/gamma", "us/alpha"], f"after a new start: {listed(s)}")


def add_variants(b):
    """A repository with two GGUF files of one model, one of them in parts."""
    source, config = os.path.join(b.folder, "src-gguf"), json.load(open(os.path.join(gguf.SOURCE, "config.json"), encoding="utf-8"))
    meta, tensors = gguf.metadata(config), gguf.tensors(config)
    split, half = {"split.count": 2, "split.tensors.count": len(tensors)}, len(tensors) // 2
    gguf.save(os.path.join(source, "m-Q4_K_M.gguf"), gguf.gguf_bytes(meta, tensors))
    gguf.save(os.path.join(source, "Q8_0", "m-Q8_0-00001-of-00002.gguf"), gguf.gguf_bytes({**meta, **split, "split.no": 0}, tensors[:half]))
    gguf.save(os.path.join(source, "Q8_0", "m-Q8_0-00002-of-00002.gguf"), gguf.gguf_bytes({"split.no": 1, **split}, tensors[half:]))
    b.hub.add("acme/m-GGUF", source)


def says(s, model):
    status, _, body = s.request("/v1/completions", {"model": model, "prompt": "hello", "max_tokens": 8, "temperature": 0})
    return json.loads(body)["choices"][0]["text"] if status == 200 else status


def variants(b):
    add_variants(b)
    four, eight = "acme/m-GGUF:Q4_K_M", "acme/m-GGUF:Q8_0"
    with b.serve() as s:
        status, frames = pull(s, "hf.co/" + four)
        check(status == 200 and frames[-1] == {"status": "success"} and frames[-2]["status"] == f"pulling {four}", f"a file of several: {frames}")
        check(frames[-2]["completed"] == frames[-2]["total"] > 0 and listed(s) == [four, "us/alpha"], f"under its name: {listed(s)}")
        text = says(s, "hf.co/" + four)
        check(isinstance(text, str) and text and says(s, "m-GGUF:Q4_K_M") == text == says(s, "huggingface.co/" + four), f"it answers: {text}")
        check(not os.path.exists(os.path.join(b.store, "acme", "m-GGUF", "Q8_0")), "nothing else was fetched")
        check(pull(s, "acme/m-GGUF:q8_0", stream=False) == (200, [{"status": "success"}]) and listed(s) == [four, eight, "us/alpha"], f"in parts: {listed(s)}")
        check(says(s, eight) == text and says(s, "acme/m-GGUF:q8_0") == text, "by both spellings")
        status, frames = pull(s, "acme/m-GGUF", stream=False)
        check(status in (400, 404) and "say which" in frames[0]["error"], f"one must be named: {frames}")
    env = {"HF_ENDPOINT": b.hub.url, "HF_HOME": os.path.join(b.folder, "hf")}
    with Server(PROGRAM, "--models-dir", b.store, env=env) as s:
        check(listed(s) == [four, eight, "us/alpha"] and says(s, eight) == text, f"after a new start: {listed(s)}")
        check(post(s, "/api/delete", {"model": eight}, "DELETE")[0] == 200 and listed(s) == [four, "us/alpha"], f"delete of one: {listed(s)}")
        check(sorted(os.listdir(os.path.join(b.store, "acme", "m-GGUF"))) == [".mlxcel", "m-Q4_K_M.gguf"] and says(s, four) == text, "the other stays")
        check(pull(s, eight, stream=False)[0] == 200 and says(s, eight) == text, "it comes back")
        check(post(s, "/api/delete", {"model": eight}, "DELETE")[0] == 200, "and goes")
        check(post(s, "/api/delete", {"model": "hf.co/" + four}, "DELETE")[0] == 200 and listed(s) == ["us/alpha"], "delete of the last")
        check(not os.path.exists(os.path.join(b.store, "acme")), "nothing of the model is left")


def empty_store(b):
    with b.serve(models=()) as s:
        check(pull(s, "acme/beta", stream=False)[0] == 200 and listed(s) == ["acme/beta", "built-in"], f"beside the built-in model: {listed(s)}")
        check(ask(s, "acme/beta") == WORDS["acme/beta"], "it answers")
        status, frames, _ = post(s, "/api/delete", {"model": "built-in"}, "DELETE")
        check(status == 400 and "built-in" in frames[0]["error"], f"the built-in model stays: {frames}")


def refusals(b):
    with b.serve() as s:
        for name, words in (("acme/nothing", "has no model"), ("acme/beta:Q4_K_M", "no GGUF file whose name ends in"), ("acme/../beta", "no model name"), ("a/b/c", "no model name")):
            status, frames = pull(s, name, stream=False)
            check(status in (400, 404) and words in frames[0]["error"], f"{name}: {status} {frames}")
            status, frames = pull(s, name)
            check(status == 200 and words in frames[-1]["error"], f"{name}, streamed: {status} {frames}")
        for body, words in (({}, "model is required"), ({"model": "acme/beta", "insecure": True}, "insecure")):
            status, frames, _ = post(s, "/api/pull", body)
            check(status == 400 and words in frames[0]["error"], f"{body}: {status} {frames}")
        check(post(s, "/api/delete", {}, "DELETE")[0] == 400, "delete without a name")
        status, frames, _ = post(s, "/api/delete", {"model": "us/alpha"}, "DELETE")
        check(status == 400 and "only model" in frames[0]["error"] and ask(s, "us/alpha") == WORDS["us/alpha"], f"the last one stays: {frames}")
        for path in ("/api/copy", "/api/push", "/api/create", "/api/blobs/sha256:1"):
            status, frames, _ = post(s, path, {"source": "us/alpha", "destination": "x"})
            check(status == 501 and frames[0]["error"], f"{path}: {status} {frames}")
        check(listed(s) == ["us/alpha"] and sorted(os.listdir(b.store)) == [".locks", "us"], "nothing came of it")
    with b.serve("--offline") as s:
        status, frames = pull(s, "acme/beta", stream=False)
        check(status == 400 and "--offline" in frames[0]["error"], f"--offline: {frames}")
    with b.serve("-m", os.path.join(b.folder, "us-alpha")) as s:
        for path, method in (("/api/pull", "POST"), ("/api/delete", "DELETE")):
            status, frames, _ = post(s, path, {"model": "acme/beta"}, method)
            check(status == 501 and "--model" in frames[0]["error"], f"a server of named models, {path}: {status} {frames}")


def who_may(b):
    with b.serve("--api-key", "secret") as s:
        for path, method in (("/api/pull", "POST"), ("/api/delete", "DELETE")):
            check(post(s, path, {"model": "acme/beta"}, method)[0] == 401, f"{path} needs the key")
        key = {"Authorization": "Bearer secret"}
        check(post(s, "/api/pull", {"model": "acme/beta", "stream": False}, **key, Origin="https://evil.example")[0] == 403, "a page of somebody else")
        check(post(s, "/api/pull", {"model": "acme/beta", "stream": False}, **key)[0] == 200, "with the key")


def clients_that_leave(b):
    """Two watch one download; when both have left, it ends and goes on later. The hub waits in the middle, so nothing depends on time."""
    slow = Fault(count=10 ** 6, name="model.safetensors", trickle=1000)
    with b.serve() as s:
        b.hub.faults.append(slow)
        request = urllib.request.Request(s.url + "/api/pull", json.dumps({"model": "acme/beta"}).encode(), {"Content-Type": "application/json"})
        first, second = urllib.request.urlopen(request, timeout=HANG), urllib.request.urlopen(request, timeout=HANG)
        check(json.loads(first.readline()) == json.loads(second.readline()) == {"status": "pulling manifest"}, "both begin")
        line = json.loads(first.readline())
        check(line["completed"] < line["total"], f"in the middle: {line}")
        first.close()
        check(json.loads(second.readline())["total"] == line["total"], "the other one goes on")
        second.close()
        end = time.monotonic() + HANG
        while b.hub.n_trickling and time.monotonic() < end:
            time.sleep(0.05)
        check(b.hub.n_trickling == 0, "nobody watches, and it ends")
        b.hub.faults.clear()
        while (got := pull(s, "acme/beta", stream=False))[0] == 503 and time.monotonic() < end:
            time.sleep(0.1)
        check(got == (200, [{"status": "success"}]) and ask(s, "acme/beta") == WORDS["acme/beta"], f"another time: {got}")
    with b.serve() as s:  # the end of the server ends a download
        b.hub.faults.append(slow)
        answer = urllib.request.urlopen(urllib.request.Request(s.url + "/api/pull", json.dumps({"model": "acme/gamma"}).encode()), timeout=HANG)
        check(json.loads(answer.readline()) == {"status": "pulling manifest"}, "one more begins")
        s.end()
        last = json.loads(answer.read().splitlines()[-1])
        check("stopped" in last.get("error", ""), f"it is told so: {last}")
        b.hub.faults.clear()


def while_it_answers(b):
    """A model that is deleted finishes what it began."""
    with b.serve(*SLOW, models=("us/alpha", "acme/long")) as s:
        got = []
        thread = threading.Thread(target=lambda: got.append(ask(s, "acme/long")))
        thread.start()
        s.wait_for(lambda m: m.get('mlxcel_generations_running{model="acme/long"}', 0) > 0 or got)
        check(post(s, "/api/delete", {"model": "long"}, "DELETE")[0] == 200, "delete")
        thread.join(HANG)
        check(got == [WORDS["acme/long"]], f"its last answer is whole: {got}")
        check(not os.path.exists(os.path.join(b.store, "acme")), "its files went behind it")


def with_the_client(b):
    try:
        import ollama
    except ImportError:
        skip("the ollama package is not installed")
        return
    with b.serve() as s:
        client = ollama.Client(host=s.url)
        parts = list(client.pull("acme/beta", stream=True))
        check(parts[-1].status == "success" and parts[-2].completed == parts[-2].total > 0, f"ollama, pull as a stream: {parts}")
        check(client.pull("hf.co/acme/gamma").status == "success", "ollama, pull")
        check(sorted(m.model for m in client.list().models) == ["acme/beta", "acme/gamma", "us/alpha"], "ollama, list")
        check(client.chat("acme/beta", CHAT["messages"], options={"temperature": 0}).message.content == WORDS["acme/beta"], "ollama, chat")
        check(client.delete("acme/beta").status == "success" and len(client.list().models) == 2, "ollama, delete")
        for call in (lambda: client.delete("acme/beta"), lambda: client.pull("acme/nothing"), lambda: client.copy("us/alpha", "mine")):
            try:
                call()
                check(False, "ollama, refused")
            except ollama.ResponseError as e:
                check(e.status_code in (404, 501), f"ollama, refused: {e}")


def main():
    folder = tempfile.mkdtemp(prefix="mlxcel-serve-store-")
    b = Bench(folder)
    try:
        for test in (journey, variants, empty_store, refusals, who_may, clients_that_leave, while_it_answers, with_the_client):
            test(b)
    finally:
        b.hub.close()
        shutil.rmtree(folder)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
