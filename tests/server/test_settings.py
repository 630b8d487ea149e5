#!/usr/bin/env python3
"""mlxcel serve --config FILE and --check: settings of the server and of each model from one TOML file.

usage: test_settings.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import subprocess
import sys
import tempfile

from harness import HANG, Server, check, finish

PROGRAM = sys.argv[1]
ASK = {"prompt": "Once upon a time", "temperature": 0}


def write(folder, text, name="server.toml"):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def look(*words, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_", "SSL_"))}
    return subprocess.run([PROGRAM, "serve", "--check", *words], capture_output=True, text=True, timeout=HANG, check=False, env={**clean, **(env or {})})


def post(s, path, body, want=200):
    code, _, text = s.request(path, body)
    check(code == want, f"{path} {str(body)[:150]}: {code} {text[:200]}")
    return json.loads(text)


BOTH = """
# for all
temperature = 0.5
max-tokens = 7
parallel = 2
keep-alive = 0

[models.small]
model = "built-in"
ctx-size = 256
temperature = 0.1
alias = "s, tiny"
preload = true
context-shift = true

[models.big]
model = "built-in"
max-tokens = 3
seed = 9
pooling = "none"
"""


def check_models(folder):
    """Each model has its own settings, and those of all where it has none."""
    with Server(PROGRAM, "--config", write(folder, BOTH), "--models-dir", folder) as s:
        s.wait_for(lambda m: m["mlxcel_models_loaded"] == 1)
        models = {m["id"]: m for m in json.loads(s.request("/v1/models")[2])["data"]}
        check(set(models) == {"small", "big"} and models["small"]["aliases"] == ["s", "tiny"], f"names and aliases: {models}")
        check(models["small"]["status"]["value"] == "loaded" and models["big"]["status"]["value"] == "unloaded", "the one that is loaded at the start")
        for name in ("small", "s", "tiny", "big"):
            want = 3 if name == "big" else 7
            r = post(s, "/completion", {**ASK, "model": name, "ignore_eos": True})
            check(r["tokens_predicted"] == want, f"{name}: an answer of {want} tokens by itself, {r['tokens_predicted']}")
            check(r["model"] == ("big" if name == "big" else "small"), f"{name} goes by its own name: {r['model']}")
        check(post(s, "/v1/completions", {**ASK, "model": "nobody"}, 404)["error"]["code"] == "model_not_found", "no other name")
        meta = {m["id"]: m["meta"] for m in json.loads(s.request("/v1/models")[2])["data"]}
        check(meta["small"]["n_ctx"] == 256 and meta["big"]["n_ctx"] > 256, f"contexts: {meta['small']['n_ctx']} {meta['big']['n_ctx']}")
        check(meta["small"]["sampling"]["temperature"] == 0.1 and meta["big"]["sampling"]["temperature"] == 0.5, "temperatures")
        texts = {post(s, "/completion", {"prompt": "Once", "model": "big"})["content"] for _ in range(2)}
        check(len(texts) == 1, "a seed of its own")
        long = {**ASK, "n_predict": 300, "ignore_eos": True}
        check(post(s, "/completion", {**long, "model": "small"})["tokens_predicted"] == 300, "a context that shifts")
        check(len(post(s, "/embeddings", {"input": "one two", "model": "big"})[0]["embedding"]) > 1, "vectors of tokens from one")
        check(len(post(s, "/embeddings", {"input": "one two", "model": "small"})[0]["embedding"]) == 1, "and pooled ones from the other")


def check_one(folder):
    path = write(folder, 'model = "built-in"\nalias = "named"\nmax-tokens = 4\nhost = "127.0.0.1"\nslots = false\nallowed-hosts = ["a.example", "b.example"]\n')
    with Server(PROGRAM, "--config", path) as s:
        check(post(s, "/completion", {**ASK, "ignore_eos": True})["tokens_predicted"] == 4, "a file for one model")
        check(json.loads(s.request("/v1/models")[2])["data"][0]["id"] == "named", "its alias is its name")
        check(s.request("/slots")[0] == 501 and s.request("/health", headers={"Host": "b.example"})[0] == 200, "flags and lists")
    with Server(PROGRAM, "--config", path, "--max-tokens", "2", env={"MLXCEL_SLOTS": "1"}) as s:
        check(post(s, "/completion", {**ASK, "ignore_eos": True})["tokens_predicted"] == 2, "a flag goes before the file")
        check(s.request("/slots")[0] == 200, "the environment, too")


def check_looking(folder):
    path = write(folder, BOTH)
    got = look("--config", path, "--models-dir", folder, "--top-k", "5", env={"MLXCEL_PORT": "1234", "MLXCEL_TEMPERATURE": "0.9"})
    check(got.returncode == 0 and got.stderr == "", f"--check: {got}")
    for line in ("server: http://127.0.0.1:1234, 2 models, at most 4 of them loaded at once", "  port = 1234 (MLXCEL_PORT)", "model small: built-in, loaded at the start",
                 f"  ctx-size = 256 ({path}:10)", "  temperature = 0.9 (MLXCEL_TEMPERATURE)", "  top-k = 5 (command line)", "model big: built-in", f"  parallel = 2 ({path}:5)",
                 f"  max-tokens = 3 ({path}:18)"):
        check(line in got.stdout.splitlines(), f"--check says {line!r}: {got.stdout}")
    got = look("--config", path, "-m", "small=built-in", "--api-key", "sesame")
    check("model small" in got.stdout and "model big" not in got.stdout and f"ctx-size = 256 ({path}:10)" in got.stdout, f"-m chooses among the tables: {got.stdout}")
    check("sesame" not in got.stdout and "api-key = 1 of them" in got.stdout, "keys are not shown")
    got = look("-m", "built-in", "--host", "::1,unix:/tmp/x.sock")
    check(got.returncode == 0 and got.stdout.startswith("server: http://[::1]:8080 unix:/tmp/x.sock"), f"without a file: {got}")
    got = look("--config", write(folder, '[models."nobody/nothing"]\n'), "--models-dir", folder)
    check(got.returncode == 0 and "it will be downloaded" in got.stdout, f"a model of the hub: {got}")
    got = look("--config", write(folder, ""), "--models-dir", folder)
    check(got.returncode == 0 and "model built-in: built-in" in got.stdout, f"an empty file: {got}")


WRONG = [
    ("port = 1\nport = 2\n", 2, "given twice"),
    ("a = 1\n", 1, "unknown option --a"),
    ("ctx-sizes = 1\n", 1, "did you mean --ctx-size?"),
    ("\nport = \"x\"\n", 2, "port is a text, expected a whole number from 0 to 65535"),
    ("port = 70000\n", 1, "port is '70000', expected a whole number from 0 to 65535"),
    ("port = [1]\n", 1, "port is a list"),
    ("temperature = true\n", 1, "temperature is true or false, expected a number"),
    ("temperature = nan\n", 1, "temperature is 'nan'"),
    ("slots = 1\n", 1, "slots is a whole number, expected true or false"),
    ("slots = \"no\"\n", 1, "slots is a text, expected true or false"),
    ("pooling = \"most\"\n", 1, "pooling is 'most', expected one of auto|mean|last|cls|max|none"),
    ("api-key = [\"a\",\n 2]\n", 2, "api-key is a whole number, expected text"),
    ("config = \"x\"\n", 1, "belongs on the command line"),
    ("check = true\n", 1, "belongs on the command line"),
    ("[server]\nport = 1\n", 1, "means nothing here"),
    ("models = 3\n", 1, "must be tables"),
    ("[models]\nx = 1\n", 2, "is no table"),
    ("[models.a]\nmodel = \"built-in\"\nport = 3\n", 3, "port is the server's, not a model's"),
    ("[models.a]\nmodel = \"built-in\"\n\npreload = \"yes\"\n", 4, "must be true or false"),
    ("[models.a]\nmodel = [\"built-in\"]\n", 2, "a table is of one model"),
    ("[models.a]\nmodel = \"built-in\"\ntop-p = 2\n", 3, "top-p is '2'"),
    ("[models.a]\nmodel = \"/nowhere/at/all\"\n", 1, "there is no model /nowhere/at/all"),
    ("[models.a]\nmodel = \"built-in\"\nchat-template-file = \"/nowhere\"\n", 1, "--chat-template-file"),
    ("[models.a]\nmodel = \"built-in\"\nshape = \"x\"\n", 1, "exclude each other"),
    ("[models.a]\nmodel = \"built-in\"\nalias = \"x\"\n[models.b]\nmodel = \"built-in\"\nalias = \"y,x\"\n", 4, "two models are called x"),
    ("[models.a]\nmodel = \"built-in\"\n[models.a]\n", 3, "given twice"),
    ("port = 1 x\n", 1, "goes on behind its end"),
    ("started = 2024-01-01\n", 1, "is a date"),
    ("[models.\"\"]\n", 1, "has no name"),
]


def check_faults(folder):
    for text, line, words in WRONG:
        path = write(folder, text)
        for got in (look("--config", path), subprocess.run([PROGRAM, "serve", "--config", path, "--port", "0"], capture_output=True, text=True, timeout=60, check=False)
                    if "nowhere" not in text else look("--config", path)):
            check(got.returncode == 2 and f"{path}:{line}: " in got.stderr and words in got.stderr, f"{text!r}: {got.returncode} {got.stderr!r}")
            check(len(got.stderr.strip().splitlines()) == 1 and got.stdout == "", f"{text!r}: one line, {got}")
    for path, words in ((os.path.join(folder, "none.toml"), "cannot open"), (folder, "--config")):
        got = look("--config", path)
        check(got.returncode == 2 and words in got.stderr, f"{path}: {got}")
    for words, say in ((["--host", "nowhere"], "is no address"), (["--ssl-cert-file", "/nowhere", "--ssl-key-file", "/nowhere"], "/nowhere"), (["--preload", "x"], "--preload names x"),
                       (["-m", "/nowhere/at/all"], "there is no model /nowhere/at/all")):
        got = look(*([] if "-m" in words else ["-m", "built-in"]), *words)
        check(got.returncode == 2 and say in got.stderr, f"--check {words}: {got}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_models(folder)
        check_one(folder)
        check_looking(folder)
        check_faults(folder)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
