#!/usr/bin/env python3
"""Downloads and the store against a hub on this machine: every fault, then success, files byte-equal.

usage: test_hub.py PROGRAM [--kills N] [--only PART]      last line: "N passed, N failed, N skipped"
"""
import argparse
import filecmp
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from fakehub import Fault, File, Hub, Proxy, make_certificate, wait_for_journal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import HANG, check, finish, parts, skip  # noqa: E402
from terminal import read_all  # noqa: E402

MODEL = "mlx-community/Qwen3-0.6B-4bit"


class Bench:
    """A folder for everything, a hub with a few repositories, and the program with an environment of its own."""

    def __init__(self, program):
        self.program = program
        self.dir = tempfile.mkdtemp(prefix="mlxcel-hub-")
        self.hub = Hub()
        self.tiny = os.path.join(self.dir, "src-tiny")
        subprocess.run([program, "synth", "--shape", "tiny", "-o", self.tiny], check=True, capture_output=True)
        self.hub.add(MODEL, self.tiny)
        self.big = os.path.join(self.dir, "src-big")
        os.makedirs(os.path.join(self.big, "original"))
        shutil.copy(os.path.join(self.tiny, "config.json"), self.big)
        numbers = random.Random(11)
        for name, size in (("model.safetensors", 41 * 1024 * 1024 + 12345), ("empty.json", 0), ("original/model.safetensors", 1000),
                           ("consolidated.safetensors", 1000), ("pytorch_model.bin", 1000), ("README.md", 10), ("weights.gguf", 10)):
            with open(os.path.join(self.big, name), "wb") as f:
                f.write(numbers.randbytes(size))
        self.hub.add("acme/big", self.big)
        self.n = 0

    def close(self):
        self.hub.close()
        shutil.rmtree(self.dir)

    def home(self):
        self.n += 1
        return os.path.join(self.dir, f"home{self.n}")

    def env(self, home, **more):
        drop = ("MLXCEL_", "LLAMA_ARG_", "HF_", "HUGGING", "SSL_CERT", "CURL_CA", "REQUESTS_CA")
        full = {k: v for k, v in os.environ.items() if not k.startswith(drop) and not k.lower().endswith("_proxy")}
        full.update(MLXCEL_HOME=home, HF_HOME=os.path.join(home, "hf"), HF_ENDPOINT=self.hub.url)
        full.update(more)
        return full

    def run(self, home, *args, timeout=HANG, **env):
        return subprocess.run([self.program, *args], capture_output=True, text=True, timeout=timeout, env=self.env(home, **env),
                              stdin=subprocess.DEVNULL)

    def path(self, home, repo):
        return os.path.join(home, "models", *repo.split("/"))

    def same(self, home, repo, source, names, what):
        folder = self.path(home, repo)
        bad = [n for n in names if not os.path.exists(os.path.join(folder, n))
               or not filecmp.cmp(os.path.join(folder, n), os.path.join(source, n), shallow=False)]
        own = [n for n in os.listdir(os.path.join(folder, ".mlxcel")) if ".part" in n] if os.path.isdir(folder) else []
        check(not bad and not own, f"{what}: not equal {bad}, left over {own}")


BIG_NAMES = ["model.safetensors", "config.json", "empty.json"]
TINY_NAMES = ["model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]


def test_journey(b):
    home = b.home()
    r = b.run(home, "download", MODEL)
    check(r.returncode == 0 and r.stdout.strip() == b.path(home, MODEL), f"download: {r}")
    b.same(home, MODEL, b.tiny, TINY_NAMES, "download")
    n = len(b.hub.log)
    r = b.run(home, "generate", "-m", MODEL, "-p", "Hello", "-n", "16")
    check(r.returncode == 0 and r.stdout.strip() and MODEL in r.stderr, f"generate by name: {r}")
    check(len(b.hub.log) == n, "a model of the store needs no network")
    r = b.run(home, "generate", "-m", "Qwen3-0.6B-4bit", "-p", "Hello", "-n", "4", "--offline")
    check(r.returncode == 0, f"a bare name: {r}")
    r = b.run(home, "download", MODEL)
    check(r.returncode == 0 and "is complete" in r.stderr and len(b.hub.log) == n + 1, f"again: one request: {r.stderr}")
    for command in (["inspect", MODEL], ["tokenize", "-m", MODEL, "-p", "a b"], ["bench", "-m", MODEL, "-p", "4", "-n", "2", "-r", "1"]):
        r = b.run(home, *command)
        check(r.returncode == 0, f"{command}: {r}")
    # a name that is not there is downloaded, saying so
    home = b.home()
    r = b.run(home, "generate", "-m", MODEL, "-p", "Hello", "-n", "2")
    check(r.returncode == 0 and "not on this machine; getting it" in r.stderr, f"generate downloads: {r}")
    r = b.run(b.home(), "generate", "-m", MODEL, "-p", "Hello", "--offline")
    check(r.returncode == 1 and "--offline" in r.stderr, f"offline: {r}")
    for word, code in (("1", 1), ("True", 1), ("ON", 1), ("0", 0), ("FALSE", 0)):
        r = b.run(b.home(), "inspect", MODEL, HF_HUB_OFFLINE=word)
        check(r.returncode == code, f"HF_HUB_OFFLINE={word}: {r}")
    r = b.run(b.home(), "generate", "-m", "no-such-model", "-p", "Hello")
    check(r.returncode == 1 and "no model mlx-community/no-such-model" in r.stderr, f"unknown: {r}")
    # a local folder of that name comes first
    here = os.path.join(b.dir, "cwd", "mlx-community")
    os.makedirs(here)
    shutil.copytree(b.tiny, os.path.join(here, "Qwen3-0.6B-4bit"))
    r = subprocess.run([b.program, "inspect", MODEL, "--offline"], cwd=os.path.dirname(here), env=b.env(b.home()), capture_output=True, text=True)
    check(r.returncode == 0, f"a folder of that name: {r}")


def test_selection(b):
    home = b.home()
    r = b.run(home, "download", "acme/big")
    check(r.returncode == 0, f"big: {r}")
    b.same(home, "acme/big", b.big, BIG_NAMES, "big")
    ranges = [x[2]["Range"] for x in b.hub.log if x[1].endswith("/acme/big/model.safetensors") and "Range" in x[2]]
    check(len(ranges) >= 4 and len(set(ranges)) == len(ranges), f"a big file comes in parts: {ranges}")
    have = sorted(n for n in os.listdir(b.path(home, "acme/big")) if not n.startswith("."))
    check(have == sorted(BIG_NAMES), f"only what is needed: {have}")
    target = os.path.join(b.dir, "local dir")
    r = b.run(home, "download", "acme/big", "--include", "README.*", "--include", "original/*", "--local-dir", target)
    names = sorted(os.path.relpath(os.path.join(t, n), target) for t, _, ns in os.walk(target) for n in ns if ".mlxcel" not in t)
    check(r.returncode == 0 and names == ["README.md", "original/model.safetensors"], f"include: {r} {names}")
    r = b.run(home, "download", "acme/big", "--revision", "v9")
    check(r.returncode == 1 and "no such revision" in r.stderr, f"revision: {r}")
    r = b.run(home, "download", "acme/big", "--include", "*.xyz")
    check(r.returncode == 1 and "--include" in r.stderr, f"include nothing: {r}")


def test_variants(b):
    """OWNER/NAME:VARIANT gets one of the GGUF files of a repository, in parts or not."""
    source, home = os.path.join(b.dir, "src-gguf"), b.home()
    os.makedirs(os.path.join(source, "Q8_0"))
    for name in ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "mmproj-Q4_K_M.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf",
                 "a-IQ1_S.gguf", "b-IQ1_S.gguf", "README.md"):
        with open(os.path.join(source, name), "wb") as f:
            f.write(b"GGUF" + name.encode())
    b.hub.add("acme/m-GGUF", source)
    for variant, names in (("q4_k_m", ["m-Q4_K_M.gguf"]), ("Q8_0", ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"])):
        done = b.run(home, "download", f"acme/m-GGUF:{variant}")
        check(done.returncode == 0, f"download of {variant}: {done.stderr}")
        for name in names:
            check(os.path.exists(os.path.join(b.path(home, "acme/m-GGUF"), name)), f"{name} is there")
    check(os.path.exists(os.path.join(b.path(home, "acme/m-GGUF"), "m-Q4_K_M.gguf")), "the first variant stays")
    check(not os.path.exists(os.path.join(b.path(home, "acme/m-GGUF"), "m-Q4_K_S.gguf")), "nothing else is fetched")
    for variant, file in (("Q4_K_M", "m-Q4_K_M.gguf"), ("Q8_0", "m-Q8_0-00001-of-00002.gguf"), ("Q4_K_S", "m-Q4_K_S.gguf")):
        done = b.run(home, "inspect", "-m", f"acme/m-GGUF:{variant}")
        check(file in done.stderr and "GGUF version" in done.stderr, f"inspect opens {file}: {done.stderr}")
    for name, words in (("acme/m-GGUF:Q5_0", "no GGUF file whose name ends in"), ("acme/m-GGUF:IQ1_S", "several GGUF files"),
                        ("acme/m-GGUF", "say which, as in acme/m-GGUF:Q4_K_M")):
        done = b.run(b.home(), "inspect", "-m", name)
        check(done.returncode != 0 and words in done.stderr, f"{name}: {done.stderr}")
    done = b.run(home, "inspect", "--offline", "-m", "acme/m-GGUF:Q5_0")
    check("this is --offline" in done.stderr, f"offline: {done.stderr}")


def test_faults(b):
    size = 41 * 1024 * 1024 + 12345
    faults = {
        "429 with Retry-After": [Fault(2, status=429, headers=[("Retry-After", "1")])],
        "500 and 503": [Fault(2, status=500), Fault(2, status=503)],
        "cut after a byte": [Fault(3, cut=1)],
        "cut in the middle": [Fault(6, cut=3000001)],
        "cut before any byte": [Fault(2, drop=True)],
        "wrong length": [Fault(2, length=5)],
        "too short": [Fault(2, length=-5)],
        "wrong bytes once": [Fault(1, corrupt=True)],
        "no ranges": [Fault(1000, plain=True)],
        "ranges come and go": [Fault(1, plain=True)],
        "the file changes": [Fault(1, etag='"other"')],
        "the file changes beside a request that waits": [Fault(1, hold=1 << 18), Fault(1, etag='"other"')],
        "no ranges beside a request that waits": [Fault(1, hold=1 << 18), Fault(1, plain=True)],
        "expired address": [Fault(1), Fault(1, status=403)],  # good for one request, then refused; the hub gives a new one
        "slow": [Fault(4, slow=6e6)],
    }
    for what, list_ in faults.items():
        home = b.home()
        b.hub.faults = [f for f in list_]
        for f in b.hub.faults:
            f.name = f.name or "model.safetensors"
        start = time.monotonic()
        r = b.run(home, "download", "acme/big", "--retries", "8", *(["--connections", "1"] if what == "expired address" else []))
        b.hub.faults = []
        check(("is no longer good" in r.stderr) == (what == "expired address"), f"{what}: {r}")
        if check(r.returncode == 0, f"{what}: {r}"):
            b.same(home, "acme/big", b.big, BIG_NAMES, what)
        if what.startswith("429"):
            check(time.monotonic() - start >= 1, "Retry-After is kept")
        shutil.rmtree(home)
        if os.environ.get("HUB_TIMES"):
            print(f"    {what}: {time.monotonic() - start:.1f} s", flush=True)
    b.hub.list_faults = [Fault(status=503), Fault(status=429, headers=[("Retry-After", "1")])]
    home = b.home()
    r = b.run(home, "download", MODEL)
    check(r.returncode == 0 and not b.hub.list_faults, f"faults of the list: {r}")
    # what does not pass is an error that names the thing, and the next run goes on from there
    home = b.home()
    b.hub.faults = [Fault(1000, corrupt=True, name="model.safetensors")]
    r = b.run(home, "download", "acme/big")
    check(r.returncode == 1 and "sha256" in r.stderr and "model.safetensors" in r.stderr, f"wrong hash: {r}")
    check(not os.path.exists(os.path.join(b.path(home, "acme/big"), "model.safetensors")), "a wrong file never gets its name")
    b.hub.faults = [Fault(6, cut=1 << 20, name="model.safetensors"), Fault(1000, status=503, name="model.safetensors")]
    r = b.run(home, "download", "acme/big", "--retries", "1")
    check(r.returncode == 1 and "503" in r.stderr, f"given up: {r}")
    b.hub.faults = []
    n = len(b.hub.log)
    r = b.run(home, "download", "acme/big")
    check(r.returncode == 0, f"after giving up: {r}")
    b.same(home, "acme/big", b.big, BIG_NAMES, "after giving up")
    check(any("If-Range" in x[2] for x in b.hub.log[n:]), "resuming asks by If-Range")
    # so many tries more than the first, of a file and of the list
    for n in (0, 1, 2):
        first = len(b.hub.log)
        b.hub.faults = [Fault(1000, status=503, name="config.json")]
        r = b.run(b.home(), "download", MODEL, "--include", "config.json", "--retries", str(n))
        tries = sum(x[1].endswith("/config.json") for x in b.hub.log[first:])
        b.hub.faults, b.hub.list_faults = [], [Fault(status=503) for _ in range(10)]
        of_list = b.run(b.home(), "download", MODEL, "--retries", str(n))
        asked = 10 - len(b.hub.list_faults)
        b.hub.list_faults = []
        check(r.returncode == of_list.returncode == 1 and tries == asked == n + 1, f"--retries {n}: {tries} and {asked} tries, {r} {of_list}")
    # a stalled connection is opened again, long before it would go on by itself
    home = b.home()
    b.hub.faults = [Fault(1, stall=600, name="model.safetensors")]
    r = b.run(home, "download", MODEL, "--stall-timeout", "2")
    b.hub.faults = []
    check(r.returncode == 0 and "trying again" in r.stderr, f"stalled: {r}")


def test_refusals(b):
    home = b.home()
    b.hub.add("acme/gated", b.tiny, gate=401)
    b.hub.add("acme/closed", b.tiny, gate=403)
    for repo, text in (("acme/gated", "gated"), ("acme/closed", "gated"), ("acme/nothing", "no model acme/nothing")):
        r = b.run(home, "download", repo)
        check(r.returncode == 1 and text in r.stderr and r.stderr.count("error") == 1, f"{repo}: {r}")
        check(not os.path.exists(b.path(home, repo)), f"{repo} leaves no folder")
    # killed before the hub has answered: the store knows nothing of it, and the next command is not told to repair it
    b.hub.list_faults = [Fault(status=503) for _ in range(100)]
    p = subprocess.Popen([b.program, "download", "acme/never"], env=b.env(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = p.stderr.readline()
    p.kill()
    p.communicate()
    b.hub.list_faults = []
    check("trying again" in line and not os.path.exists(b.path(home, "acme/never")), f"killed while it asks: {line}")
    r = b.run(home, "import", os.path.join(b.dir, "no-such-folder"), "acme/none")
    check(r.returncode == 1 and "there is no folder" in r.stderr, f"import of nothing: {r}")
    for name in ("../x/y", "a/b/c", "a b/c", "/x", "owner/", "CON/x", "owner/a..b"):
        r = b.run(home, "download", name)
        check(r.returncode == 2 and "no model name" in r.stderr, f"name {name!r}: {r}")


def test_token(b):
    """The token goes to the hub alone, and not over plain http unless that is allowed."""
    b.hub.token = "hf_secret"
    b.hub.add("acme/gated", b.tiny, gate=401)
    home = b.home()
    first = len(b.hub.log)
    r = b.run(home, "download", "acme/gated", HF_TOKEN="hf_secret")
    check(r.returncode == 1 and "plain http" in r.stderr, f"withheld: {r}")
    check(all("Authorization" not in x[2] for x in b.hub.log[first:]), "no token over plain http")
    r = b.run(home, "download", "acme/gated", HF_TOKEN="hf_secret", MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
    check(r.returncode == 0 and "hf_secret" not in r.stderr + r.stdout, f"with a token: {r}")
    mine = [x for x in b.hub.log[first:] if x[2].get("Authorization") == "Bearer hf_secret"]
    other = [x for x in b.hub.log[first:] if x[0] == b.hub.second.split("//")[1]]
    check(mine and other and all("Authorization" not in x[2] for x in other), f"the second host sees no token: {len(mine)} {len(other)}")
    path = os.path.join(b.dir, "token")
    with open(path, "w") as f:
        f.write("hf_secret\n")
    r = b.run(b.home(), "download", "acme/gated", HF_TOKEN_PATH=path, MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
    check(r.returncode == 0, f"token file: {r}")
    r = b.run(b.home(), "download", "acme/gated", HF_TOKEN="bad token\r\nX: y", MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
    check(r.returncode == 2 and "no token has" in r.stderr, f"a token with a line break: {r}")


def test_names(b):
    """Names from the network never leave the folder."""
    good = {"rfilename": "config.json", "size": 2}
    hostile = ["../evil.json", "/etc/evil.json", "a/../../evil.json", "..\\evil.json", "C:evil.json", "C:\\evil.json", "NUL.json", "aux.json",
               "com1.safetensors", "evil.json.", "evil.json ", "a\x00b.json", "evil\n.json", ".mlxcel/manifest.json", "x/.MLXCEL/evil.json",
               "\\\\host\\share\\evil.json", "a:b.json", "-" * 300 + ".json"]
    for name in hostile:
        text = json.dumps({"sha": "a" * 40, "siblings": [good, {"rfilename": name, "size": 2}]})
        b.hub.add("acme/evil", b.tiny, list=text)
        home = b.home()
        r = b.run(home, "download", "acme/evil", "--include", "*")
        outside = [os.path.join(t, n) for t, _, ns in os.walk(b.dir) for n in ns if "evil" in n and ".locks" not in t]
        check(r.returncode == 1 and "refused" in r.stderr and not outside, f"{name!r}: {r} {outside}")
    for text, why in (("{", "file list"), ("[]", "which commit"), ('{"sha": "x"}', "which commit"), (json.dumps({"sha": "a" * 40}), "no file list"),
                      ("[" * 100000, "nested"), (json.dumps({"sha": "a" * 40, "siblings": [{"size": 1}]}), "without a name"),
                      (json.dumps({"sha": "a" * 40, "siblings": [good, {"rfilename": "CONFIG.json", "size": 1}]}), "two files"),
                      (json.dumps({"sha": "a" * 40, "siblings": [{"rfilename": "a.json", "size": 1 << 62}]}), "bytes"),
                      (json.dumps({"sha": "a" * 40, "siblings": [{"rfilename": "model.safetensors", "size": 1 << 45}]}), "free")):
        b.hub.add("acme/evil", b.tiny, list=text)
        home = b.home()
        r = b.run(home, "download", "acme/evil")
        check(r.returncode == 1 and why in r.stderr, f"list {text[:60]!r}: {r}")
        check(not os.path.exists(b.path(home, "acme/evil")) and b.run(home, "list", "-q").stdout == "", f"list {text[:60]!r} leaves no model")


def test_short_names(b):
    """What people type for a model: short names, the last part of a stored one; what may be meant where there is none."""
    home = b.home()
    r = b.run(home, "generate", "-m", "qwen3:0.6b", "Hello", "-n", "2")
    check(r.returncode == 0 and MODEL in r.stderr, f"a short name is downloaded: {r}")
    n = len(b.hub.log)
    for name in ("qwen3:0.6b", "QWEN3", "qwen3-0.6b-4bit", "Qwen3-0.6B:4bit"):
        r = b.run(home, "generate", "-m", name, "Hello", "-n", "2", "--offline")
        check(r.returncode == 0 and MODEL in r.stderr, f"{name}: {r}")
    r = b.run(home, "show", "qwen3:0.6b")
    check(r.returncode == 0 and MODEL in r.stdout and len(b.hub.log) == n, f"show takes a short name: {r}")
    os.makedirs(os.path.join(home, "models", "acme"))
    os.makedirs(os.path.join(home, "models", "other"))
    for owner in ("acme", "other"):
        shutil.copytree(b.path(home, MODEL), os.path.join(home, "models", owner, "Mine-8bit"))
    r = b.run(home, "generate", "-m", "mine-8bit", "Hello", "-n", "2", "--offline")
    check(r.returncode == 2 and "acme/Mine-8bit, other/Mine-8bit" in r.stderr, f"two of them: {r}")
    shutil.rmtree(os.path.join(home, "models", "other"))
    r = b.run(home, "generate", "-m", "mine-8bit", "Hello", "-n", "2", "--offline")
    check(r.returncode == 0, f"one of them: {r}")
    r = b.run(home, "generate", "-m", "Mine-9bit", "Hello", "--offline")
    check(r.returncode == 1 and "the store has acme/Mine-8bit" in r.stderr, f"what may be meant: {r}")
    r = b.run(home, "generate", "-m", "qwen3:9b", "Hello")
    check(r.returncode == 2 and "0.6b, 1.7b" in r.stderr, f"a size that there is not: {r}")
    r = b.run(home, "rm", "mine-8bit", "--yes")
    check(r.returncode == 0 and not os.path.exists(os.path.join(home, "models", "acme", "Mine-8bit")), f"rm takes a last part: {r}")
    r = b.run(b.home(), "generate", "-m", MODEL, "Hello", HF_ENDPOINT="http://no-such-host.invalid")
    check(r.returncode == 1 and "--offline" in r.stderr and "docs/offline.md" in r.stderr and "trying again" not in r.stderr, f"no network is said at once: {r}")
    r = b.run(b.home(), "generate", "-m", MODEL, "Hello", HF_ENDPOINT="http://127.0.0.1:1")
    check(r.returncode == 1 and "--offline" in r.stderr and "docs/offline.md" in r.stderr and "trying again" not in r.stderr, f"nobody listens is said at once: {r}")
    with socket.create_server(("127.0.0.1", 0)) as mute:  # connections stand, and no word comes
        r = b.run(b.home(), "download", MODEL, "--max-wait", "2", HF_ENDPOINT=f"http://127.0.0.1:{mute.getsockname()[1]}")
    check(r.returncode == 1 and "docs/offline.md" in r.stderr, f"nobody answers: {r}")


def test_search(b):
    home = b.home()
    b.hub.repos[MODEL]["found"] = {"downloads": 900, "likes": 7}
    b.hub.repos["acme/big"]["found"] = {"downloads": 20, "tags": ["gguf"], "gated": "auto"}
    b.run(home, "download", MODEL)
    r = b.run(home, "search", "qwen3", "--json")
    rows = json.loads(r.stdout or "[]")
    check(rows == [{"name": MODEL, "short_name": "qwen3:0.6b", "downloads": 900, "likes": 7, "gated": False, "stored": True}], f"search: {r.stdout} {r.stderr}")
    r = b.run(home, "search", "--kind", "any", "--most", "1")
    check(r.returncode == 0 and r.stdout.count("\n") == 2 and MODEL in r.stdout and "in the store" in r.stdout, f"the most downloaded one: {r.stdout}")
    r = b.run(home, "search", "big", "--kind", "gguf", "--owner", "acme")
    check("acme/big" in r.stdout and "terms have to be accepted" in r.stdout, f"by kind and owner: {r.stdout}")
    asked = b.hub.log[-1][1]
    check("search=big" in asked and "filter=gguf" in asked and "author=acme" in asked and "limit=20" in asked, f"asked for: {asked}")
    r = b.run(home, "search", "a b&limit=9", "c/d")
    check("search=a%20b%26limit%3D9%20c%2Fd" in b.hub.log[-1][1] and r.returncode == 0 and r.stdout == "" and "nothing found" in r.stderr, f"odd words: {b.hub.log[-1][1]} {r.stderr}")
    bad = [{"id": "no owner"}, {"id": "a/\x1b[2Jb"}, {"id": "../../etc"}, {"id": "good/one"}, {"id": 7}, "text"]
    for text, want in (("{}", "does not answer a search with a list"), ("[" * 5000, "nested too deeply"), ("no json", "what the hub found")):
        b.hub.search = text
        r = b.run(home, "search", "x")
        check(r.returncode and want in r.stderr, f"a bad answer: {text[:20]} {r.stderr}")
    b.hub.search = json.dumps(bad)
    r = b.run(home, "search", "x", "--json")
    check([m["name"] for m in json.loads(r.stdout)] == ["good/one"], f"names that are none are passed over: {r.stdout} {r.stderr}")
    b.hub.search = None
    r = b.run(home, "search", "x", "--offline")
    check(r.returncode and "exclude each other" in r.stderr, f"offline: {r.stderr}")


def test_copy(b):
    home = b.home()
    b.run(home, "download", MODEL)
    r = b.run(home, "cp", "qwen3:0.6b", "acme/mine")
    check(r.returncode == 0 and r.stdout.strip() == b.path(home, "acme/mine"), f"cp: {r.stdout} {r.stderr}")
    b.same(home, "acme/mine", b.tiny, ["config.json", "model.safetensors"], "the copy")
    r = b.run(home, "show", "acme/mine", "--verify")
    check(r.returncode == 0 and "complete" in r.stdout, f"the copy is whole: {r.stdout} {r.stderr}")
    for args, want in ((("nothing/here", "acme/x"), "the store has no model nothing/here"), (("acme/mine", MODEL), "has mlx-community"), (("acme/mine", "a/b/c"), "a/b/c")):
        r = b.run(home, "cp", *args)
        check(r.returncode and want in r.stderr, f"cp {args}: {r.stderr}")


# A file that is no model: its name, its bytes, and what is said of it.
ZIP = b"PK\x03\x04" + bytes(26)
NO_MODELS = (
    ("words.txt", b"hello\n", "is a text and no model; give a model folder"),
    ("pytorch_model.bin", ZIP + bytes(60), "pickled weights, which can run any program when it is read, and no model; take the .safetensors"),
    ("archive", ZIP + b"archive/data.pkl" + bytes(60), "pickled weights"),
    ("old.pt", b"\x80\x02}q\x00." + bytes(60), "pickled weights"),
    ("nothing", b"", "is empty and no model"),
    ("weights.bin", bytes(range(1, 57)), "is a file of another kind and no model; give a model folder"),
    ("cut.gguf", bytes(range(1, 57)), "is a file of another kind and no model"),
    ("config.json", b'{"model_type": "llama"}', 'is JSON and no model; give the model\'s folder (perhaps "'),
    ("tokenizer.model", b"\n\x0e\n\x05<unk>\x15" + bytes(20), "is a tokenizer and no model; give the model's folder"),
    ("chat_template.jinja", b"{% for m in messages %}{% endfor %}", "and no model; give the model's folder"),
    ("model.zip", ZIP + b"config.json", "is a ZIP archive and no model; unpack it"),
    ("model.tar", bytes(257) + b"ustar" + bytes(300), "is a tar archive and no model; unpack it"),
    ("model.tar.gz", b"\x1f\x8b\x08" + bytes(60), "is a compressed file and no model; unpack it"),
    ("model.npz", ZIP + b"w.npy", "NumPy's arrays and no model; take the .safetensors"),
    ("model.h5", b"\x89HDF\r\n\x1a\n" + bytes(60), "Keras or TensorFlow and no model; take the .safetensors"),
    ("model.onnx", b"\x08\x07\x12\x07pytorch", "ONNX and no model; take the .safetensors"),
    ("ggml-model.bin", b"tjgg" + bytes(60), "GGML from before GGUF and no model; take a .gguf"),
    ("cat.png", b"\x89PNG\r\n\x1a\n" + bytes(60), "is a picture and no model; pictures go with --image"),
    ("tool", b"\x7fELF" + bytes(60), "is a program and no model"),
    ("model.safetensors", b"<html>Log in</html>", "no safetensors file"),
)


def test_no_models(b):
    """Files that are no models are called what they are."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data, says in NO_MODELS:
            path = os.path.join(folder, name)
            with open(path, "wb") as f:
                f.write(data)
            r = b.run(b.home(), "generate", "-m", path, "x")
            check(r.returncode == 1 and says in r.stderr and path in r.stderr and r.stderr.count("\n") == 1, f"{name}: {r.stderr}")
        r = b.run(b.home(), "generate", "-m", os.path.join(folder, "gone.gguf"), "x")
        check(r.returncode == 1 and "there is no file or folder" in r.stderr, f"no such file: {r.stderr}")
        n = len(b.hub.log)
        for name in ("gone.gguf", "gone.json"):
            r = b.run(b.home(), "generate", "-m", name, "x")
            check(r.returncode == 1 and f'there is no file or folder "{name}"' in r.stderr and len(b.hub.log) == n, f"a name of a file is not looked for on the hub: {r.stderr}")
        config = os.path.join(folder, "config.json")
        for command in ("inspect", "run", "serve", "bench", "trace"):
            r = b.run(b.home(), command, "-m", config)
            check(r.returncode == 1 and "config.json is JSON and no model; give the model's folder" in r.stderr and r.stderr.count("\n") == 1, f"{command} of JSON: {r.stderr}")
        r = b.run(b.home(), "import", config, "acme/json")
        check(r.returncode and "config.json is a file; give the model's folder" in r.stderr, f"import of a file: {r.stderr}")
        r = b.run(b.home(), "generate", "x", "--adapter", config)
        check(r.returncode and "config.json is a file; give the adapter's folder" in r.stderr, f"an adapter that is a file: {r.stderr}")
    r = subprocess.run([b.program, "run", "--lines"], input="/save /no/such/folder/talk.json\n", capture_output=True, text=True, env=b.env(b.home()), timeout=HANG)
    check("/no/such/folder/talk.json" in r.stderr and ".tmp" not in r.stderr, f"/save speaks of the file: {r.stderr}")


def test_store(b):
    home = b.home()
    check(b.run(home, "list").returncode == 0 and json.loads(b.run(home, "list", "--json").stdout) == [], "an empty store")
    b.run(home, "download", MODEL)
    rows = json.loads(b.run(home, "list", "--json").stdout)
    check(len(rows) == 1 and rows[0]["name"] == MODEL and rows[0]["complete"] and rows[0]["context"] and "4" in rows[0]["quantization"]
          and rows[0]["size_bytes"] == sum(os.path.getsize(os.path.join(b.tiny, n)) for n in TINY_NAMES), f"list: {rows}")
    check(b.run(home, "list", "-q").stdout == MODEL + "\n", "list -q")
    check(MODEL in b.run(home, "list").stdout, "list")
    shown = json.loads(b.run(home, "show", MODEL, "--json", "--verify").stdout)
    check(shown["complete"] and len(shown["files"]) == 5 and len(shown["commit"]) == 40, f"show: {shown}")
    # damage
    weights = os.path.join(b.path(home, MODEL), "model.safetensors")
    with open(weights, "r+b") as f:
        f.seek(1000)
        f.write(b"damage")
    r = b.run(home, "show", MODEL, "--verify")
    check(r.returncode == 1 and "sha256" in r.stderr and "mlxcel download" in r.stderr, f"show --verify: {r}")
    r = b.run(home, "download", MODEL, "--verify")
    check(r.returncode == 0, f"repair: {r}")
    b.same(home, MODEL, b.tiny, TINY_NAMES, "repaired by --verify")
    os.truncate(weights, 1000)
    r = b.run(home, "generate", "-m", MODEL, "-p", "x", "-n", "1")
    check(r.returncode == 1 and "model.safetensors has 1000 bytes" in r.stderr and f"mlxcel download {MODEL}" in r.stderr, f"damaged: {r}")
    os.remove(weights)
    r = b.run(home, "generate", "-m", MODEL, "-p", "x", "-n", "1")
    check(r.returncode == 1 and "model.safetensors is missing" in r.stderr, f"missing: {r}")
    check("model.safetensors is missing" in b.run(home, "show", MODEL).stdout, "show names it")
    r = b.run(home, "download", MODEL)
    check(r.returncode == 0, f"repair: {r}")
    b.same(home, MODEL, b.tiny, TINY_NAMES, "repaired")
    # a part of it once more: the rest stays what it was, and prune leaves it alone
    r = b.run(home, "download", MODEL, "--include", "tokenizer_config.json")
    check(r.returncode == 0 and b.run(home, "prune", "--yes").returncode == 0, f"include after a whole download: {r}")
    b.same(home, MODEL, b.tiny, TINY_NAMES, "include, then prune")
    shown = json.loads(b.run(home, "show", MODEL, "--json", "--verify").stdout)
    check(shown["complete"] and len(shown["files"]) == 5, f"show after include: {shown}")
    # import, rm
    r = b.run(home, "import", b.tiny, "me/mine")
    check(r.returncode == 0 and b.run(home, "generate", "-m", "me/mine", "-p", "x", "-n", "1", "--offline").returncode == 0, f"import: {r}")
    check(b.run(home, "import", b.tiny, "me/mine").returncode == 2, "import twice")
    # an import can be verified as a download can, and the way back is another one
    shown = b.run(home, "show", "me/mine", "--json", "--verify")
    files = json.loads(shown.stdout)["files"]
    right = {n: hashlib.sha256(open(os.path.join(b.tiny, n), "rb").read()).hexdigest() for n in os.listdir(b.tiny)}
    check(shown.returncode == 0 and files and all(f["sha256"] == right[f["name"]] for f in files)
          and f"{len(files)} of {len(files)} files have the right sha256" in shown.stderr, f"show --verify of an import: {shown}")
    with open(os.path.join(b.path(home, "me/mine"), "model.safetensors"), "r+b") as f:
        f.seek(1000)
        f.write(b"damage")
    r = b.run(home, "show", "me/mine", "--verify")
    check(r.returncode == 1 and "sha256" in r.stderr and "mlxcel rm me/mine, then mlxcel import" in r.stderr, f"a damaged import: {r}")
    shutil.copytree(b.tiny, b.path(home, "me/byhand"))
    r = b.run(home, "show", "me/byhand", "--verify")
    check(r.returncode == 0 and "no sha256 is known" in r.stderr, f"show --verify without hashes: {r}")
    b.run(home, "rm", "me/byhand", "--yes")
    check("no whole model" in b.run(home, "import", b.dir, "me/other").stderr, "import of no model")
    r = b.run(home, "rm", "me/mine")
    check(r.returncode == 2 and "--yes" in r.stderr and os.path.exists(b.path(home, "me/mine")), f"rm asks: {r}")
    r = b.run(home, "rm", "me/mine", "--yes")
    check(r.returncode == 0 and not os.path.exists(os.path.dirname(b.path(home, "me/mine"))), f"rm: {r}")
    check(b.run(home, "rm", "me/mine", "--yes").returncode == 1, "rm of nothing")
    # a part of a model: what needs no weights works, and the rest says what gets them
    b.hub.add("acme/part", b.tiny)
    r = b.run(home, "download", "acme/part", "--include", "*.json")
    check(r.returncode == 0 and b.run(home, "tokenize", "-m", "acme/part", "-p", "x").returncode == 0, f"json files alone: {r}")
    for command in (["generate", "-m", "acme/part", "-p", "x", "-n", "1"], ["inspect", b.path(home, "acme/part")],
                    ["quantize", "-m", "acme/part", "-o", os.path.join(b.dir, "no-target")]):
        r = b.run(home, *command)
        check(r.returncode == 1 and "no model*.safetensors there; get it by: mlxcel download acme/part" in r.stderr, f"no weights: {r}")
    b.run(home, "download", "acme/part")
    check(b.run(home, "generate", "-m", "acme/part", "-p", "x", "-n", "1").returncode == 0, "the weights came")
    b.run(home, "rm", "acme/part", "--yes")
    # unfinished downloads: named, finished by -m, removed by prune
    b.hub.add("acme/tiny", b.tiny)
    b.hub.faults = [Fault(1000, status=503, name="model.safetensors")]
    b.run(home, "download", "acme/tiny", "--retries", "1")
    b.hub.faults = []
    check("unfinished" in b.run(home, "list").stdout, "list shows an unfinished download")
    r = b.run(home, "download", "acme/tiny", "--include", "config.json")
    check(r.returncode == 0 and "unfinished" in b.run(home, "list").stdout, f"a part of it does not finish it: {r}")
    r = b.run(home, "generate", "-m", "acme/tiny", "-p", "x", "-n", "1", "--offline")
    check(r.returncode == 1 and "mlxcel download acme/tiny" in r.stderr, f"unfinished, offline: {r}")
    r = b.run(home, "generate", "-m", "acme/tiny", "-p", "x", "-n", "1")
    check(r.returncode == 0, f"unfinished, finished by -m: {r}")
    b.hub.faults = [Fault(1000, status=503, name="model.safetensors")]
    b.hub.add("acme/half", b.tiny)
    b.run(home, "download", "acme/half", "--retries", "1")
    b.hub.faults = []
    check(b.run(home, "prune").returncode == 2 and os.path.exists(b.path(home, "acme/half")), "prune asks")
    r = b.run(home, "prune", "--yes")
    check(r.returncode == 0 and not os.path.exists(b.path(home, "acme/half")) and os.path.exists(b.path(home, "acme/tiny")), f"prune: {r}")
    # a new commit without one of the files: the old one is stale, prune takes it
    repo = b.hub.repos["acme/tiny"]
    repo["commit"] = "b" * 40
    old = repo["files"].pop("generation_config.json")
    changed = os.path.join(b.dir, "changed.json")
    shutil.copy(old.path, changed)
    with open(changed, "a") as f:
        f.write(" ")
    repo["files"]["tokenizer_config.json"] = File(os.path.join(b.tiny, "tokenizer_config.json"), False)
    r = b.run(home, "download", "acme/tiny")
    stale = os.path.join(b.path(home, "acme/tiny"), "generation_config.json")
    check(r.returncode == 0 and os.path.exists(stale), f"new commit: {r}")
    r = b.run(home, "prune", "--yes")
    check(r.returncode == 0 and not os.path.exists(stale), f"prune of old files: {r}")
    # the other places
    r = b.run(home, "list", "-q", "--models-dir", os.path.join(b.dir, "elsewhere"))
    check(r.returncode == 0 and r.stdout == "", "--models-dir")
    home2 = b.home()
    env = b.env(home2)
    env["MLXCEL_CACHE_DIR"] = env.pop("MLXCEL_HOME")
    subprocess.run([b.program, "download", MODEL], env=env, capture_output=True)
    check(os.path.exists(b.path(home2, MODEL)), "MLXCEL_CACHE_DIR")


def test_places(b):
    """Where models are looked for and put: each setting alone, and the user's own folder without any."""
    user = os.path.join(b.dir, "user")
    os.makedirs(user)

    def run(*args, **more):
        env = {k: v for k, v in b.env(b.home()).items() if k not in ("MLXCEL_HOME", "HF_HOME", "XDG_CACHE_HOME")}
        return subprocess.run([b.program, *args], env={**env, "HOME": user, **more}, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=HANG)

    r = run("download", MODEL)
    check(r.stdout.strip() == os.path.join(user, ".cache", "mlxcel", "models", MODEL), f"the user's folder: {r}")
    r = run("generate", "-m", MODEL, "-p", "x", "-n", "1", "--offline")
    check(r.returncode == 0, f"generate from there: {r}")
    elsewhere = os.path.join(b.dir, "all models")
    r = run("download", MODEL, MLXCEL_MODELS_DIR=elsewhere)
    check(r.stdout.strip() == os.path.join(elsewhere, MODEL), f"MLXCEL_MODELS_DIR: {r}")
    check(run("list", "-q", MLXCEL_MODELS_DIR=elsewhere).stdout == MODEL + "\n", "list, MLXCEL_MODELS_DIR")
    b.hub.add("acme/other", b.tiny)
    r = run("generate", "-m", "other", "-p", "x", "-n", "1", MLXCEL_DEFAULT_ORG="acme")
    check(r.returncode == 0 and "acme/other is not on this machine; getting it" in r.stderr, f"MLXCEL_DEFAULT_ORG: {r}")
    r = run("generate", "-m", "other", "-p", "x", "-n", "1")
    check(r.returncode == 0 and "acme/other" in r.stderr, f"a stored model by its last part: {r}")
    r = run("generate", "-m", "another", "-p", "x", "-n", "1")
    check(r.returncode == 1 and "mlx-community/another" in r.stderr, f"a bare name has one owner: {r}")
    commit = b.hub.repos["acme/other"]["commit"]
    r = run("download", "acme/other", "--revision", commit, MLXCEL_MODELS_DIR=os.path.join(b.dir, "by commit"))
    check(r.returncode == 0 and any(f"/revision/{commit}" in x[1] for x in b.hub.log), f"--revision COMMIT: {r}")
    # a token file where the Hugging Face tools put it
    b.hub.token = "hf_filed"
    b.hub.add("acme/gated", b.tiny, gate=401)
    hf = os.path.join(b.dir, "hf with token")
    os.makedirs(hf)
    with open(os.path.join(hf, "token"), "w") as f:
        f.write("hf_filed\n")
    r = run("download", "acme/gated", HF_HOME=hf, MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
    check(r.returncode == 0, f"HF_HOME/token: {r}")
    os.makedirs(os.path.join(b.dir, "xdg"))
    shutil.copytree(hf, os.path.join(b.dir, "xdg", "huggingface"))
    r = run("download", "acme/gated", XDG_CACHE_HOME=os.path.join(b.dir, "xdg"), MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
    check(r.returncode == 0, f"XDG_CACHE_HOME/huggingface/token: {r}")
    # the cache by its own name
    snapshot = os.path.join(b.dir, "hub cache", "models--acme--kept", "snapshots", "d" * 40)
    shutil.copytree(b.tiny, snapshot)
    os.makedirs(os.path.join(snapshot, "../../refs"))
    with open(os.path.join(snapshot, "../../refs/main"), "w") as f:
        f.write("d" * 40)
    r = run("generate", "-m", "acme/kept", "-p", "x", "-n", "1", "--offline", HF_HUB_CACHE=os.path.join(b.dir, "hub cache"))
    check(r.returncode == 0 and "Hugging Face cache" in r.stderr, f"HF_HUB_CACHE: {r}")


def test_commands(b):
    """run and serve take names of the hub, too, and say that they download; rm asks on a terminal."""
    import pty
    home = b.home()
    r = subprocess.run([b.program, "run", MODEL, "-n", "4"], env=b.env(home), input="Hello\n", capture_output=True, text=True, timeout=HANG)
    check(r.returncode == 0 and "not on this machine; getting it" in r.stderr and r.stdout.strip(), f"run: {r}")
    home = b.home()
    p = subprocess.Popen([b.program, "serve", "-m", MODEL, "--port", "0", "--log-format", "json"], env=b.env(home), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    p.terminate()
    err = p.communicate(timeout=HANG)[1]
    check(line.startswith("{") and p.returncode == 0 and "not on this machine; getting it" in err, f"serve: {line} {err}")
    b.same(home, MODEL, b.tiny, TINY_NAMES, "serve")
    rows = json.loads(b.run(home, "list", "--json").stdout)
    check(rows[0]["last_used"], f"list says when it was used: {rows}")
    for answer, kept in (("n", True), ("y", False)):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(b.program, [b.program, "rm", MODEL], b.env(home))
        text = b""
        try:
            while piece := os.read(fd, 1000):
                if b"?" in piece and b"?" not in text:
                    os.write(fd, answer.encode() + b"\n")
                text += piece
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.close(fd)
        check(os.path.exists(b.path(home, MODEL)) == kept, f"rm, answered {answer}: {text}")


def test_hf_cache(b):
    home = b.home()
    folder = os.path.join(home, "hf", "hub", "models--acme--cached")
    snapshot = os.path.join(folder, "snapshots", "c" * 40)
    os.makedirs(os.path.join(folder, "refs"))
    with open(os.path.join(folder, "refs", "main"), "w") as f:
        f.write("c" * 40)
    shutil.copytree(b.tiny, snapshot)
    before = sorted(os.listdir(snapshot))
    r = b.run(home, "generate", "-m", "acme/cached", "-p", "x", "-n", "1", "--offline")
    check(r.returncode == 0 and "Hugging Face cache" in r.stderr, f"HF cache: {r}")
    check(sorted(os.listdir(snapshot)) == before, "the cache is not written to")
    # as the hub's own tools lay it out: the files are links
    os.makedirs(os.path.join(folder, "blobs"))
    for i, name in enumerate(before):
        os.rename(os.path.join(snapshot, name), os.path.join(folder, "blobs", str(i)))
        os.symlink(os.path.join("..", "..", "blobs", str(i)), os.path.join(snapshot, name))
    r = b.run(home, "generate", "-m", "acme/cached", "-p", "x", "-n", "1", "--offline")
    check(r.returncode == 0, f"HF cache with links: {r}")
    os.makedirs(os.path.join(home, "xdg"))
    os.rename(os.path.join(home, "hf"), os.path.join(home, "xdg", "huggingface"))
    env = {k: v for k, v in b.env(home).items() if k != "HF_HOME"}
    r = subprocess.run([b.program, "inspect", "acme/cached", "--offline"], env={**env, "XDG_CACHE_HOME": os.path.join(home, "xdg")},
                       capture_output=True, text=True)
    check(r.returncode == 0, f"HF cache under XDG_CACHE_HOME: {r}")
    os.rename(os.path.join(home, "xdg", "huggingface"), os.path.join(home, "hf"))
    os.remove(os.path.join(snapshot, "model.safetensors"))
    r = b.run(home, "generate", "-m", "acme/cached", "-p", "x", "-n", "1", "--offline")
    check(r.returncode == 1, f"an incomplete snapshot is not used: {r}")


def test_two(b):
    """Two processes, one model: one waits, both succeed."""
    home = b.home()
    b.hub.faults = [Fault(1000, slow=4e6, name="model.safetensors")]

    def start():
        return subprocess.Popen([b.program, "download", "acme/big"], env=b.env(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    first = start()
    wait_for_journal(b.path(home, "acme/big"))
    second = start()
    waits = second.stderr.readline()
    b.hub.faults = []
    outs = [p.communicate(timeout=HANG)[1] for p in (first, second)]
    check(first.returncode == second.returncode == 0, f"two at once: {outs}")
    check("another process is working" in waits and "another process" not in outs[0], f"one waits: {waits!r} {outs}")
    b.same(home, "acme/big", b.big, BIG_NAMES, "two at once")


def test_kills(b, n_kills):
    """kill -9 at random moments, then resume."""
    home = b.home()
    numbers = random.Random(5)
    n_alive = 0
    received = []
    for i in range(n_kills):
        b.hub.faults = [Fault(1000, slow=3e6, name="model.safetensors")]
        p = subprocess.Popen([b.program, "download", "acme/big"], env=b.env(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            p.wait(timeout=numbers.uniform(0.03, 1.0))
        except subprocess.TimeoutExpired:
            n_alive += 1
        p.send_signal(signal.SIGKILL)
        p.stderr.close()
        p.wait()
        folder = b.path(home, "acme/big")
        name = os.path.join(folder, "model.safetensors")
        if os.path.exists(name):  # it was finished in between: begin again
            check(filecmp.cmp(name, os.path.join(b.big, "model.safetensors"), shallow=False), f"kill {i}: a finished file is right")
            received.append(i)
            shutil.rmtree(folder)
    b.hub.faults = []
    r = b.run(home, "download", "acme/big")
    check(r.returncode == 0 and n_alive >= n_kills * 3 // 4, f"after {n_kills} kills ({n_alive} while running): {r}")
    b.same(home, "acme/big", b.big, BIG_NAMES, f"after {n_kills} kills")
    print(f"  {n_kills} kills, {n_alive} while running, finished in between {len(received)} times")
    # an interrupt ends it politely
    home = b.home()
    b.hub.faults = [Fault(1000, slow=1e6, name="model.safetensors")]
    p = subprocess.Popen([b.program, "download", "acme/big"], env=b.env(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_journal(b.path(home, "acme/big"))
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=HANG)[1]
    b.hub.faults = []
    check(p.returncode == 1 and "goes on from here" in err, f"interrupt: {p.returncode} {err}")
    # on a slow line the journal does not wait for a whole piece
    home, sent = b.home(), 64 << 10
    b.hub.faults = [Fault(1000, trickle=sent, name="model.safetensors")]
    p = subprocess.Popen([b.program, "download", "--connections", "1", "acme/big"], env=b.env(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = wait_for_journal(b.path(home, "acme/big"))
    p.kill()
    p.wait()
    b.hub.faults, first = [], len(b.hub.log)
    check(told >= sent, f"a slow line: the journal has {told} bytes")
    r = b.run(home, "download", "acme/big")
    ranges = [h.get("Range", "bytes=0-") for _, path, h, _ in b.hub.log[first:] if path.endswith("model.safetensors")]
    check(r.returncode == 0 and int(re.match(r"bytes=(\d+)-", ranges[0])[1]) >= told, f"goes on behind what a slow line brought: {ranges} {r}")
    b.same(home, "acme/big", b.big, BIG_NAMES, "after a slow line")


def test_tls(b):
    if not shutil.which("openssl"):
        skip("TLS: no openssl program")
        return
    folder = os.path.join(b.dir, "certs")
    os.makedirs(folder)
    san = "IP:127.0.0.1,IP:127.0.0.2"
    authority = make_certificate(folder, "authority", None)
    cases = {
        "good": make_certificate(folder, "good", san, authority=authority),
        "self-signed": make_certificate(folder, "self", san),
        "expired": make_certificate(folder, "expired", san, days=-1, authority=authority),
        "wrong host": make_certificate(folder, "wrong", "DNS:elsewhere.example,IP:127.0.0.9", authority=authority),
    }
    for what, tls in cases.items():
        hub = Hub(tls=tls)
        hub.add(MODEL, b.tiny)
        home = b.home()
        r = b.run(home, "download", MODEL, HF_ENDPOINT=hub.url)
        check(r.returncode == 1 and "certificate" in r.stderr.lower() and "trying again" not in r.stderr, f"{what} without --cacert: {r}")
        r = b.run(home, "download", MODEL, "--cacert", authority[0], HF_ENDPOINT=hub.url)
        if what == "good":
            check(r.returncode == 0, f"--cacert: {r}")
            b.same(home, MODEL, b.tiny, TINY_NAMES, "over TLS")
            proxy = Proxy()
            r = b.run(b.home(), "download", MODEL, "--cacert", authority[0], HF_ENDPOINT=hub.url, HTTPS_PROXY=proxy.url, HF_TOKEN="hf_x")
            check(r.returncode == 0 and any(x[0] == "CONNECT" for x in proxy.seen), f"HTTPS_PROXY: {r} {proxy.seen[:2]}")
            check(all("hf_x" not in str(x) for x in proxy.seen), "a proxy sees no token")
            proxy.close()
            # from https to plain http is refused
            hub.second = b.hub.second
            r = b.run(b.home(), "download", MODEL, "--cacert", authority[0], HF_ENDPOINT=hub.url)
            check(r.returncode == 1 and "plain http" in r.stderr, f"downgrade: {r}")
        else:
            check(r.returncode == 1 and not os.path.exists(os.path.join(b.path(home, MODEL), "config.json")), f"{what} is refused: {r}")
            r = b.run(home, "download", MODEL, "--cacert", os.path.join(b.dir, "none.pem"), HF_ENDPOINT=hub.url)
            check(r.returncode == 1 and "trying again" not in r.stderr, f"no such file: {r}")
        if what == "self-signed":
            r = b.run(b.home(), "download", MODEL, "--cacert", tls[0], HF_ENDPOINT=hub.url)
            check(r.returncode == 0, f"a self-signed one by --cacert: {r}")
        hub.close()


def test_proxy(b):
    proxy = Proxy()
    r = b.run(b.home(), "download", MODEL, http_proxy=proxy.url)
    check(r.returncode == 0 and len(proxy.seen) >= 6, f"http_proxy: {r} {len(proxy.seen)}")
    n = len(proxy.seen)
    r = b.run(b.home(), "download", MODEL, http_proxy=proxy.url, NO_PROXY="127.0.0.1,127.0.0.2")
    check(r.returncode == 0 and len(proxy.seen) == n, f"NO_PROXY: {r}")
    proxy.close()


def on_terminal(b, home, command, columns=100):
    """The exit status of a command on a terminal, and what it wrote there."""
    import fcntl
    import pty
    import termios
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(b.program, [b.program, *command], b.env(home, COLUMNS="100"))
    text = read_all(fd)
    return os.waitpid(pid, 0)[1], text


def test_terminal(b):
    """A progress bar on a terminal, plain lines elsewhere."""
    home = b.home()
    b.hub.faults = [Fault(1000, slow=8e6, name="model.safetensors")]
    status, text = on_terminal(b, home, ["download", "acme/big"])
    b.hub.faults = []
    check(status == 0 and b"\r" in text and b"[#" in text and b"/s, " in text and b" left" in text, f"bar: status {status} {text[-400:]}")
    b.hub.faults = [Fault(1000, slow=8e6, name="model.safetensors")]
    status, text = on_terminal(b, b.home(), ["download", "acme/big"], columns=30)
    b.hub.faults = []
    bars = [part for part in re.split(rb"[\r\n]+", text) if b" % " in part and b" MB" in part]
    check(status == 0 and bars and all(len(bar) < 30 for bar in bars), f"bar on a narrow terminal: status {status} {bars}")
    r = b.run(b.home(), "download", "acme/big")
    check("\r" not in r.stderr and "complete" in r.stderr, f"plain: {r.stderr!r}")
    for command in (["import", b.tiny, "me/mine"], ["show", "me/mine", "--verify"]):
        status, text = on_terminal(b, home, command)
        check(status == 0 and b"[####" in text, f"bar of {command[0]}: status {status} {text[-400:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--only")
    args = parser.parse_args()
    b = Bench(os.path.abspath(args.program))
    all_parts = [test_journey, test_selection, test_variants, test_faults, test_refusals, test_token, test_names, test_short_names, test_search, test_copy, test_no_models, test_store, test_places, test_commands, test_hf_cache,
             test_two,
             test_tls, test_proxy, test_terminal, test_kills]
    try:
        for part in all_parts:
            name = part.__name__[5:]
            if args.only and name not in args.only.split(","):
                continue
            start = time.monotonic()
            parts((part, b, args.kills) if part is test_kills else (part, b))
            print(f"  {name}: {time.monotonic() - start:.1f} s", flush=True)
    finally:
        b.close()
    finish()


if __name__ == "__main__":
    sys.exit(main())
