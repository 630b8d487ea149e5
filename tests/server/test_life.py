#!/usr/bin/env python3
"""The server's life: loading, silence, deadlines, small caches, sudden death, browsers, slow clients, what the log holds.

usage: test_life.py PROGRAM [long]      last line: "N passed, N failed[, N skipped]"; long: the time limits of half a minute too
"""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

import harness
from harness import HANG, SLOW, Server, check, free_port

SECRET = "zanzibar"  # stands in prompts, and nowhere in a log


def send(port, body, path="/v1/completions"):
    data = json.dumps(body).encode()
    c = socket.create_connection(("127.0.0.1", port), timeout=HANG)
    c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return c


def read_all(c):
    got = b""
    try:
        while part := c.recv(65536):
            got += part
    except OSError:
        pass
    c.close()
    return got


def long_stream(**more):
    return {"prompt": f"Once upon a time in {SECRET}", "max_tokens": 900, "stream": True, "ignore_eos": True, "temperature": 0, **more}


def check_loading(program):
    """While the weights are made, health says 503 and so do requests; a made-up model has no text, so the server ends with an error."""
    port = free_port()
    p = subprocess.Popen([program, "serve", "--shape", "qwen3-0.6b", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = {}
    while p.poll() is None and len(seen) < 2:
        for path in ("/health", "/v1/models"):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=HANG) as c:
                    c.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
                    if got := read_all(c):
                        seen[path] = got
            except OSError:
                time.sleep(0.02)
    p.terminate()
    out, log = p.communicate(timeout=HANG)
    check(seen.get("/health", b"").startswith(b"HTTP/1.1 503") and b"Retry-After" in seen["/health"], f"health while loading: {seen}")
    check(b"model_loading" in seen.get("/v1/models", b""), f"requests while loading: {seen}")
    check(out == "", f"no ready line before it is ready: {out!r} {log}")


def check_end_while_loading(program):
    """A signal ends a server whose weights are still being made."""
    port = free_port()
    p = subprocess.Popen([program, "serve", "--shape", "qwen3-0.6b", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    got = b""
    while b" 503 " not in got and p.poll() is None:
        try:
            got = read_all(send(port, {"prompt": "x"}))
        except OSError:
            time.sleep(0.05)
    p.terminate()
    try:
        out, log = p.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        p.kill()
        out, log = p.communicate()
    check(p.returncode == 0 and out == "", f"a signal while loading: {p.returncode} {got[:100]!r} {out!r} {log!r}")


def check_ping(program):
    """A stream that waits for its turn gets comments; they are no part of what is said."""
    with Server(program, *SLOW, "--parallel", "1", "--sse-ping-interval", "1") as s:
        first = send(s.port, long_stream(prompt=["Once"] * 12, max_tokens=1000, stream=False))
        s.wait_for(lambda m: m["mlxcel_generations_running"])
        second = send(s.port, long_stream(max_tokens=3))
        got = b""
        while b": keep-alive\n\n" not in got and (part := second.recv(65536)):
            got += part
        check(b"200 OK" in got and b": keep-alive\n\n" in got, f"a comment while it waits: {got[-200:]!r}")
        first.close()  # its place is free at the next step
        got += read_all(second)
        check(b'"finish_reason":"length"' in got and b"data: [DONE]" in got, f"then the answer: {got[-300:]!r}")


def check_deadline(program):
    with Server(program, "--parallel", "1", "--timeout", "1") as s:
        code, _, text = s.request("/v1/completions", {"prompt": ["Once"] * 100, "max_tokens": 1000, "ignore_eos": True})
        check(code == 504 and json.loads(text)["error"]["code"] == "timeout", f"a deadline: {code} {text[:200]}")
        got = read_all(send(s.port, long_stream(n=100, seed=1, temperature=1)))
        check(b"200 OK" in got and b'"timeout"' in got and b"[DONE]" not in got, f"a deadline in a stream: {got[-200:]!r}")
        code, _, text = s.request("/v1/embeddings", {"input": [[5] * 1000] * 2000})
        check(code == 504, f"a deadline of embeddings: {code} {text[:200]}")
        m = s.wait_quiet()
        check(m['mlxcel_generations_total{reason="deadline"}'] >= 3 and m["mlxcel_kv_blocks_used"] == 0, f"counted and given back: {m}")
        tries = (s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] for _ in range(60))  # a busy machine takes a second for it, too
        check(200 in tries, "well afterwards")


def check_small_cache(program):
    """A cache that does not hold all requests: some are put back and computed again, and all answers are what they would be alone."""
    prompts = [f"{name} went to the park and saw a big" for name in ("Lily", "Tom", "The cat", "A dog", "Sam", "Mia", "Ben", "Sue")]
    with Server(program, "--parallel", "8", "--kv-tokens", "512") as s:
        def ask(prompt):
            body = {"prompt": prompt, "max_tokens": 150, "temperature": 0, "ignore_eos": True}
            choices = json.loads(s.request("/v1/completions", body, timeout=HANG)[2])["choices"]
            return [c["text"] for c in sorted(choices, key=lambda c: c["index"])]
        alone = [ask(p)[0] for p in prompts]
        together = ask(prompts)  # one request, so that all of them are there at once
        m = s.wait_quiet()
        check(together == alone, f"answers in company: {together}")
        check(m["mlxcel_preemptions_total"] > 0 and m["mlxcel_kv_blocks_used"] == 0, f"preempted: {m}")
        code, _, text = s.request("/v1/completions", {"prompt": [5] * 600, "max_tokens": 2})
        check(code == 400 and "context_length_exceeded" in text, f"more than the cache holds: {code} {text}")


def check_many_choices(program):
    """64 choices on an idle server of two places: the queue counts requests, and somebody else need not wait for them all."""
    with Server(program, *SLOW, "--parallel", "2", "--max-queue-depth", "1") as s:
        big = send(s.port, {"prompt": "Once", "max_tokens": 6, "n": 64, "ignore_eos": True, "temperature": 1, "seed": 3})
        s.wait_for(lambda m: m["mlxcel_generations_running"])
        code, _, text = s.request("/v1/completions", {"prompt": "The dog", "max_tokens": 2})
        done = s.metrics()['mlxcel_generations_total{reason="length"}']
        check(code == 200 and done < 50, f"another request in between: {code} {text[:100]}, {done} were done")
        got = read_all(big)
        check(b" 200 OK" in got and len(json.loads(got.partition(b"\r\n\r\n")[2])["choices"]) == 64, f"all choices: {got[:200]!r}")


def check_drain(program):
    """SIGTERM in the middle of streams: they come to their end, or are cut when --drain-timeout says so."""
    for flags, is_whole in (((), True), (("--drain-timeout", "0"), False)):
        with Server(program, *SLOW, "--parallel", "2", *flags) as s:
            streams = [send(s.port, long_stream(max_tokens=80 if is_whole else 900)) for _ in range(2)]
            for c in streams:
                c.recv(4096)
            s.end()
            ends = [b"[DONE]" in read_all(c) for c in streams]
            check(ends == [is_whole] * 2, f"drained with {flags}: {ends}")
        check(f"have {30 if is_whole else 0} s to finish" in s.log, f"it says how long: {s.log}")


def check_impatience(program):
    """SIGTERM again and again, until the very end: the exit code is that of a server that was asked to end."""
    s = Server(program, *SLOW, "--parallel", "2").__enter__()
    stream = send(s.port, long_stream())
    stream.recv(4096)
    for _ in range(100_000):
        s.process.terminate()
        if s.process.poll() is not None:
            break
    s.rest()
    check(s.process.returncode == 0, f"a server that is told to end many times ends with {s.process.returncode}")


def check_kill(program):
    """kill -9 in the middle of streams: clients see a broken answer, and the next server on the same port is well."""
    port = free_port()
    with Server(program, *SLOW, "--parallel", "4", port=port) as s:
        text = s.request("/v1/completions", {"prompt": "Once", "max_tokens": 20, "temperature": 0})[2]
        streams = [send(port, long_stream()) for _ in range(4)]
        for c in streams:
            c.recv(4096)
        # two more wait: sent only now, since requests that come together may be served in any order
        streams += [send(port, long_stream()) for _ in range(2)]
        s.kill()
        for c in streams:
            got = read_all(c)
            check(b"[DONE]" not in got, f"a broken stream: {got[-100:]!r}")
    for i in range(2):  # twice: what the first one left must not matter either
        with Server(program, *SLOW, "--parallel", "4", port=port) as s:
            again = s.request("/v1/completions", {"prompt": "Once", "max_tokens": 20, "temperature": 0})[2]
            check(json.loads(again)["choices"] == json.loads(text)["choices"], f"after a restart: {again}")
            m = s.wait_quiet()
            check(m["mlxcel_kv_blocks_used"] == 0 and m['mlxcel_generations_total{reason="length"}'] == 1, f"figures begin anew: {m}")
            if i == 0:
                s.kill()


def check_open(program):
    """--open calls what opens addresses here; where there is nothing, it says so and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        opener, seen = os.path.join(folder, "xdg-open"), os.path.join(folder, "seen")
        with Server(program, "--open", env={"PATH": folder}) as s:
            check(s.request("/health")[0] == 200, "well without a browser")
        check("no browser" in s.log, f"no browser: {s.log}")
        with open(opener, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\necho \"$@\" > '{seen}.new' && /bin/mv '{seen}.new' '{seen}'\n")
        os.chmod(opener, stat.S_IRWXU)
        with Server(program, "--open", env={"PATH": folder}) as s:
            end = time.monotonic() + HANG
            while not os.path.exists(seen) and time.monotonic() < end:
                time.sleep(0.05)
            with open(seen, encoding="utf-8") as f:
                check(f.read().strip() == s.url, "the page's address is opened")


def check_addresses(program):
    with Server(program, "--host", "0.0.0.0") as s:
        check(s.url.startswith("http://127.0.0.1:"), f"an address that can be opened: {s.url}")
    check("without an API key" in s.log, f"a warning beyond this machine: {s.log}")
    with Server(program, "--host", "0.0.0.0", "--allowed-hosts", "*") as s:
        pass
    check("without an API key" in s.log, f"a warning where every name is allowed: {s.log}")
    with Server(program, "--host", "0.0.0.0", "--api-key", "k") as s:
        pass
    check("without an API key" not in s.log, "no warning with a key")
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("\nfile-key-one\r\n  file-key-two  \n")
        with Server(program, "--api-key-file", keys) as s:
            for key, want in (("file-key-one", 200), ("file-key-two", 200), ("file-key", 401), ("", 401)):
                check(s.request("/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == want, f"the key {key!r} of a file")
        check("file-key" not in s.log, "keys do not stand in the log")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("\n")
        tried = subprocess.run([program, "serve", "--port", "0", "--api-key-file", keys], capture_output=True, text=True, timeout=HANG)
        check(tried.returncode != 0 and "no key" in tried.stderr, f"a file without keys: {tried}")
        tried = subprocess.run([program, "serve", "--port", "0", "--api-key-file", keys + "2"], capture_output=True, text=True, timeout=HANG)
        check(tried.returncode != 0 and "--api-key-file: cannot open" in tried.stderr, f"no file of keys: {tried}")
    taken = socket.create_server(("127.0.0.1", 0))
    tried = subprocess.run([program, "serve", "--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=HANG)
    check(tried.returncode != 0 and "cannot listen" in tried.stderr and "--port" in tried.stderr and tried.stderr.count("\n") == 1, f"a port in use: {tried}")
    taken.close()
    p = subprocess.Popen([program, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    check(re.fullmatch(r"ready: http://127\.0\.0\.1:\d+\n", line), f"the ready line: {line!r}")
    p.terminate()
    out, log = p.communicate(timeout=HANG)
    check(p.returncode == 0 and out == "" and "{" not in log, f"plain lines: {out!r} {log!r}")
    check(f"the chat page is at {line.split()[1]}/" in log, f"the page's address: {log!r}")


def check_without_streams(program):
    """Started with its standard streams closed, as some supervisors do: no connection gets their numbers, and with them the log."""
    port = free_port()
    p = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', program, "serve", "--port", str(port), "--log-level", "debug"])
    got = b""
    while b" 200 OK" not in got and p.poll() is None:
        try:
            got = read_all(send(port, {"prompt": "x", "max_tokens": 2}))
        except OSError:
            time.sleep(0.05)
    p.terminate()
    code = p.wait(HANG)
    check(got.startswith(b"HTTP/1.1 200 OK") and code == 0, f"without streams: {code} {got[:200]!r}")


def check_nohup(program):
    """A server that was started to outlive its terminal does."""
    with Server(program, "--parallel", "1", before=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")) as s:
        s.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)  # too short on a slow machine only hides the fault
        check(s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200, "after SIGHUP under nohup")
    check("ending" in s.log and s.log.count("ending") == 1, f"the end came by SIGTERM: {s.log}")


def check_log(program):
    """At its most talkative the log tells routes and times, and nothing that a client said."""
    with Server(program, "--parallel", "1", "--log-level", "debug", "--api-key", "top-secret-key") as s:
        key = {"Authorization": "Bearer top-secret-key"}
        s.request("/v1/chat/completions", {"messages": [{"role": "user", "content": f"{SECRET} {SECRET}"}], "max_tokens": 2}, key)
        s.request("/v1/completions", {"prompt": SECRET, "stop": [SECRET], "max_tokens": 2}, key)
        s.request("/v1/embeddings", {"input": SECRET}, key)
        s.request(f"/{SECRET}", headers={**key, "X-A": SECRET})
        s.request("/v1/completions", f'{{"prompt": "{SECRET}'.encode(), key)
        s.request("/v1/completions", {"prompt": SECRET, "temperature": SECRET}, {"Authorization": f"Bearer {SECRET}"})
    check(SECRET not in s.log and "top-secret-key" not in s.log, f"the log: {s.log}")
    check("/v1/chat/completions, 200" in s.log, f"requests in the log: {s.log}")
    with Server(program, "--parallel", "1") as s:
        for path in ("/health", "/v1/models", "/nothing"):
            s.request(path)
    asked = re.findall(r"request \d+: (\S+ \S+), \d+ after", s.log)
    check(asked == ["GET /v1/models", "GET -"], f"a line for each request, but for those that watch the server: {s.log}")
    check(s.log.count("request at once") == 1, f"requests at once, said once: {s.log}")


def check_slow(program, is_long):
    """Clients that dawdle are cut off: headers within 15 s; a body or a reader that stands still for 30 s."""
    with Server(program, "--parallel", "4") as s:
        head = socket.create_connection(("127.0.0.1", s.port), timeout=HANG)
        body = socket.create_connection(("127.0.0.1", s.port), timeout=HANG)
        late = socket.socket()  # reads nothing for a while, and then a long last answer
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.settimeout(HANG)
        late.connect(("127.0.0.1", s.port))
        late.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 299 + b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        taken = []
        taker = threading.Thread(target=lambda: (time.sleep(4), taken.append(read_all(late))))
        taker.start()
        body.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        start = time.monotonic()
        for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 60:
            try:
                head.sendall(bytes([byte]))
            except OSError:
                break
            if time.monotonic() - start > 17:
                break
            time.sleep(0.3)
        got = read_all(head)
        check(got.startswith(b"HTTP/1.1 408"), f"slow headers: {got[:80]!r}")
        page = s.request("/")[2].encode()
        taker.join()
        check(taken[0].count(page) == 300, "a reader that takes its time gets all of the last answers")
        if is_long:
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.settimeout(HANG)
            reader.connect(("127.0.0.1", s.port))
            reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
            got = read_all(body)
            check(got.startswith(b"HTTP/1.1 408") and time.monotonic() - start > 25, f"a slow body: {got[:80]!r}")
            end = time.monotonic() + HANG
            while (n := s.metrics()["mlxcel_http_connections"]) > 1 and time.monotonic() < end:
                try:
                    reader.send(b"\r\n")  # that it still talks is no sign that it takes anything
                except OSError:
                    pass
                time.sleep(1)
            check(n == 1, f"a reader that stands still: {n} connections")
            reader.close()
        body.close()
        check(s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200, "well afterwards")


def main():
    program, is_long = sys.argv[1], len(sys.argv) > 2
    slow = threading.Thread(target=harness.parts, args=((check_slow, program, is_long),))  # waits for most of its time
    slow.start()
    harness.parts(*((part, program) for part in (check_loading, check_end_while_loading, check_ping, check_deadline, check_small_cache, check_many_choices, check_drain, check_impatience, check_kill, check_open, check_addresses,
                                                 check_without_streams, check_nohup, check_log)))
    slow.join()
    harness.finish()


if __name__ == "__main__":
    main()
