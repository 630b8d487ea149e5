#!/usr/bin/env python3
"""Every command of README.md and of the guide's first page is run, and the pictures of README.md are as new as what they show.

usage: test_commands.py PROGRAM      last line: "N passed, N failed[, N skipped]"

The hub is one on this machine that has a small made-up model under the name that the pages use; servers get a port of their own, and what is measured
is a small shape.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tests", "tests/hub", "tests/server"):
    sys.path.insert(0, os.path.join(ROOT, folder))
from counting import HANG, check, finish, skip  # noqa: E402
from fakehub import Hub  # noqa: E402
from harness import free_port  # noqa: E402

PAGES = ("README.md", "docs/cli.md", "docs/start.md")
EDITS = """[[edit]]
op = "scale"
pattern = "*.layers.0.mlp.*"
factor = 0.9
"""
FIRST = re.compile(r"(mlxcel|cat|echo|curl)\b")


def commands(page):
    """Lines of indented blocks, and commands of the running text, without their comments. docs/cli.md has the examples of every --help."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    for line in re.findall(r"^    (\S.*)$", text, re.M):
        if FIRST.match(line):
            yield re.sub(r"\s+#.*$", "", line)
    if page == "docs/cli.md":
        return
    for inline in re.findall(r"`((?:mlxcel|cat) [^`\n]+)`", text):
        yield inline


def start_server(command, env, cwd, port):
    """Its process, when it answers."""
    p = subprocess.Popen(["bash", "-c", "exec " + command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + HANG
    while p.poll() is None and time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).status == 200:
                return p
        except OSError:
            time.sleep(0.1)
    check(False, f"{command}: {p.poll()} {p.stderr.read() if p.poll() is not None else 'it does not answer'}")
    return p


def stop(p):
    if p:
        p.terminate()
        p.communicate(timeout=HANG)


def run_page(page, env, cwd):
    server, n, port = None, 0, int(env["MLXCEL_PORT"])
    for command in commands(page):
        n += 1
        local = command.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("--port 8080", "").replace("--shape qwen3-0.6b", "--shape tiny -r 1")
        if command.startswith("mlxcel serve"):
            stop(server)
            server = start_server(local, env, cwd, port)
            check(server.poll() is None, f"{page}: {command}")
            continue
        if command.startswith("curl") and not shutil.which("curl"):
            skip(f"{command}: no curl here")
            continue
        if "path/to/reranker" in command:
            skip(f"{command}: it takes a model made for that; tests/server/test_rerank.py has one")
            continue
        r = subprocess.run(["bash", "-o", "pipefail", "-c", local], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG)
        says = r.stdout.strip() or re.match(r"mlxcel (run( \S+)?|(rm|prune|import|stop|quantize|fuse|logits|synth|grammar) .*)$|.*mlxcel grammar", command)  # these say nothing, or write files
        check(r.returncode == 0 and says and '"error"' not in r.stdout, f"{page}: {command}: {r.returncode} {r.stdout[-300:]!r} {r.stderr[-500:]!r}")
    stop(server)
    check(n >= 5, f"{page}: {n} commands")


def main():
    program = os.path.abspath(sys.argv[1])
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/pictures.py"), program, "--check"], capture_output=True, text=True, check=False)
    check(r.returncode == 0, f"pictures: {r.stdout}{r.stderr}")
    hub = Hub()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "made-up")
        subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
        hub.add("mlx-community/Qwen3-0.6B-4bit", model)
        hub.add("acme/llama-gguf", model, found={"tags": ["gguf"]})
        for name, text in (("notes.txt", "A dog had a kite.\nThe kite was red.\n" * 4), ("edits.toml", EDITS),
                           ("chat.json", '{"messages": [{"role": "user", "content": "Hi"}]}')):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        shutil.copytree(model, os.path.join(folder, "folder"))
        shutil.copytree(model, os.path.join(folder, "home/models/acme/copy"))
        subprocess.run([program, "synth", "--shape", "tiny", "--bits", "16", "-o", os.path.join(folder, "plain")], check=True, capture_output=True)
        drop = ("MLXCEL_", "LLAMA_ARG_", "HF_", "SSL_CERT", "CURL_CA", "REQUESTS_CA")
        env = {k: v for k, v in os.environ.items() if not k.startswith(drop) and not k.lower().endswith("_proxy")}
        env.update(PATH=f"{os.path.dirname(program)}:{env['PATH']}", MLXCEL_HOME=os.path.join(folder, "home"), HF_HOME=os.path.join(folder, "hf"), HF_ENDPOINT=hub.url,
                   MLXCEL_PORT=str(free_port()), MLXCEL_MAX_TOKENS="40")
        for page in PAGES:
            run_page(page, env, folder)
    hub.close()
    finish()


if __name__ == "__main__":
    sys.exit(main())
