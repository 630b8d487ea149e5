#!/usr/bin/env python3
"""The Windows server under Wine: a streaming chat, the page, and an end that is asked for.

usage: test_wine.py FOLDER of the Windows build      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request

import harness
from harness import HANG, check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ask(url, path, body=None):
    request = urllib.request.Request(url + path, data=json.dumps(body).encode() if body else None, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG) as r:
        return r.headers, r.read().decode()


def check_server(url, model):
    chat = {"messages": [{"role": "user", "content": "Tell me a story about a dog."}], "max_tokens": 24, "temperature": 0}
    whole = json.loads(ask(url, "/v1/chat/completions", chat)[1])
    check(whole["usage"]["completion_tokens"] == 24 and whole["model"] == model, f"a chat: {whole}")
    headers, text = ask(url, "/v1/chat/completions", {**chat, "stream": True})
    frames = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    said = "".join(json.loads(f)["choices"][0]["delta"].get("content", "") for f in frames[:-1])
    check("text/event-stream" in headers["Content-Type"] and frames[-1] == "[DONE]" and len(frames) > 4, f"a stream: {text[-200:]}")
    check(said == whole["choices"][0]["message"]["content"] and len(said) > 20, f"streamed {said!r}")
    word = " " + said.split()[3]
    cut = json.loads(ask(url, "/v1/chat/completions", {**chat, "stop": word})[1])["choices"][0]
    check(cut["finish_reason"] == "stop" and whole["choices"][0]["finish_reason"] == "length", f"why it ended: {cut}")
    check("<!doctype html>" in ask(url, "/")[1], "the page")
    check('mlxcel_kv_blocks_used 0\n' in ask(url, "/metrics")[1], "figures")
    vector = json.loads(ask(url, "/v1/embeddings", {"input": "dog"})[1])["data"][0]["embedding"]
    check(abs(sum(x * x for x in vector) - 1) < 1e-4, "an embedding")


def main():
    server = os.path.join(sys.argv[1], "mlxcel-server.exe")
    if not os.path.exists(server):
        harness.skip("mlxcel-server.exe: not built here")
        harness.finish()
    if not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        harness.skip("mlxcel-server.exe: no Wine here")
        harness.finish()
    command = [os.path.join(ROOT, "tools", "wine.sh"), server, "--port", "0", "--log-format", "json", "--parallel", "2"]
    tls = subprocess.run([*command, "--ssl-cert-file", "c.pem", "--ssl-key-file", "k.pem"], capture_output=True, text=True, timeout=HANG)
    if tls.returncode == 127:
        harness.skip("mlxcel-server.exe: Wine does not run here")
        harness.finish()
    check(tls.returncode != 0 and "TLS" in tls.stderr, f"TLS is refused by name: {tls}")
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = p.stdout.readline()
        if check(line.startswith("{"), f"the ready line: {line!r}"):
            ready = json.loads(line)
            check_server(ready["url"], ready["model"])
    finally:
        os.killpg(p.pid, signal.SIGTERM)  # Wine's processes have no console here to send Ctrl-C to
        try:
            p.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
    harness.finish()


if __name__ == "__main__":
    main()
