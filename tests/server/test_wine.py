#!/usr/bin/env python3
"""The Windows server under Wine: a streaming chat, the page, the same over TLS, and an end that is asked for.

usage: test_wine.py FOLDER of the Windows build      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import harness
from harness import HANG, check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ask(url, path, body=None, trust=None):
    request = urllib.request.Request(url + path, data=json.dumps(body).encode() if body else None, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG, context=trust) as r:
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


def check_tls(url, cert):
    """A client that knows the certificate is answered, one that does not is not."""
    trust = ssl.create_default_context(cafile=cert)
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    check(url.startswith("https://"), f"the address: {url}")
    check(json.loads(ask(url, "/v1/chat/completions", chat, trust)[1])["usage"]["completion_tokens"] > 0, "a chat over TLS")
    check(ask(url, "/v1/chat/completions", {**chat, "stream": True}, trust)[1].endswith("data: [DONE]\n\n"), "a stream over TLS")
    trust.minimum_version = ssl.TLSVersion.TLSv1_3
    check("<!doctype html>" in ask(url, "/", None, trust)[1], "TLS 1.3")
    trust = ssl.create_default_context(cafile=cert)
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    check("<!doctype html>" in ask(url, "/", None, trust)[1], "TLS 1.2")
    try:
        ask(url, "/", None, ssl.create_default_context())
        check(False, "a certificate that nobody knows was taken")
    except urllib.error.URLError as e:
        check("CERTIFICATE_VERIFY_FAILED" in str(e), f"a certificate that nobody knows: {e}")


def run(command, use):
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = p.stdout.readline()
        if check(line.startswith("{"), f"the ready line: {line!r}"):
            use(json.loads(line))
    finally:
        os.killpg(p.pid, signal.SIGTERM)  # Wine's processes have no console here to send Ctrl-C to
        try:
            p.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()


def run_tls(command):
    if not shutil.which("openssl"):
        return harness.skip("TLS: no openssl program")
    with tempfile.TemporaryDirectory() as folder:
        key, cert = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        run([*command, "--ssl-cert-file", "Z:" + cert, "--ssl-key-file", "Z:" + key], lambda ready: check_tls(ready["url"], cert))


def main():
    server = os.path.join(sys.argv[1], "mlxcel-server.exe")
    if not os.path.exists(server):
        harness.skip("mlxcel-server.exe: not built here")
        harness.finish()
    if not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        harness.skip("mlxcel-server.exe: no Wine here")
        harness.finish()
    command = [os.path.join(ROOT, "tools", "wine.sh"), server, "--port", "0", "--log-format", "json", "--parallel", "2"]
    tls = subprocess.run([*command, "--ssl-cert-file", "c.pem", "--ssl-key-file", "k.pem"], capture_output=True, text=True, timeout=HANG, check=False)
    if tls.returncode == 127:
        harness.skip("mlxcel-server.exe: Wine does not run here")
        harness.finish()
    check(tls.returncode != 0 and "c.pem" in tls.stderr, f"a certificate that is not there is named: {tls}")
    run(command, lambda ready: check_server(ready["url"], ready["model"]))
    run_tls(command)
    harness.finish()


if __name__ == "__main__":
    main()
