#!/usr/bin/env python3
"""The server from the wire: requests that must be refused, limits, foreign pages, bodies of every nasty kind.

usage: test_wire.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import email.utils
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import harness
from harness import HANG, SLOW, Server, check

HOST = b"Host: localhost\r\n"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


def talk(port, data, wait=HANG, close=False):
    """Sends bytes, reads until the other side closes or answers completely; returns what came and whether it closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as s:
        try:
            s.sendall(data)
        except OSError:
            pass
        if close:
            return b"", True
        got = b""
        try:
            while True:
                part = s.recv(65536)
                if not part:
                    return got, True
                got += part
                head, _, body = got.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if length and len(body) >= int(length[1]) and b"Connection: keep-alive" in head:
                    return got, False
        except TimeoutError:
            return got, False
        except OSError:
            return got, True


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def check_smuggling(port):
    post = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
    rows = {
        "CL and TE": (post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n", 400),
        "two CL": (post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        "TE xchunked": (post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        "bad chunk size": (post + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", 400),
        "huge chunk size": (post + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400),
        "bare LF": (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
        "obs-fold": (b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 400),
        "no Host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
        "TLS hello": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
        "gzip body": (post + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
        "too large": (post + b"Content-Length: 999999999\r\n\r\n", 413),
        "many headers": (b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: 1\r\n" * 200 + b"\r\n", 431),
        "large header": (b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 100000 + b"\r\n\r\n", 431),
        "long path": (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    }
    for name, (data, want) in rows.items():
        got, closed = talk(port, data)
        check(status_of(got) == want and closed and got.count(b"HTTP/1.1 ") == 1, f"{name}: {got[:200]!r}, closed {closed}")


def check_keep_alive(port):
    one = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as s:
        s.sendall(one * 3)
        got = b""
        while got.count(b'{"status":"ok"}') < 3:
            got += s.recv(65536)
        check(got.count(b"HTTP/1.1 200 OK") == 3, "three requests at once")
        for byte in one:
            s.sendall(bytes([byte]))
        check(b"200 OK" in s.recv(65536), "byte by byte")
        body = json.dumps(CHAT).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        check(s.recv(65536).startswith(b"HTTP/1.1 100 Continue\r\n\r\n"), "100 Continue")
        s.sendall(body)
        check(b"200 OK" in s.recv(65536), "after 100 Continue")
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 7):
            s.sendall(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]))
        s.sendall(b"0\r\n\r\n")
        check(b"200 OK" in s.recv(65536), "a body in chunks")
    got, closed = talk(port, b"GET /health HTTP/1.0\r\n\r\n")
    check(b"200 OK" in got and closed, "HTTP/1.0")
    got, _ = talk(port, b"HEAD / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    check(got.endswith(b"\r\n\r\n") and b"Content-Length: " in got, "HEAD")


def check_limits(port):
    """Bodies without a length that go past the limit are cut off while they come."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sent = 0
        try:
            while sent < 40 << 20:
                s.sendall(chunk)
                sent += 65536
        except OSError:
            pass
        try:
            got = s.recv(65536)
        except OSError:
            got = b""
        check(sent < 40 << 20, f"the server took {sent} bytes")
        check(got == b"" or status_of(got) == 413, f"an endless body: {got[:100]!r}")


def check_guards(s):
    def status(path="/health", **headers):
        return s.request(path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    check(status(Host="localhost.evil.com")[0] == 403 and status(Host="notlocalhost")[0] == 403, "a foreign Host")
    check(status(Host="localhost")[0] == 200 and status(Host="192.168.0.1:80")[0] == 200, "names and addresses of this machine")
    code, headers, _ = status(Origin="http://localhost:3000")
    check(code == 200 and headers["Access-Control-Allow-Origin"] == "http://localhost:3000", "a page of this machine")
    for origin in ("https://evil.com", "http://localhost.evil.com", "null"):
        code, headers, _ = status(Origin=origin)
        check(code == 403 and headers["Access-Control-Allow-Origin"] is None, f"a page of {origin}")
    code, headers, _ = s.request("/v1/chat/completions", method="OPTIONS",
                                 headers={"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"})
    check(code == 200 and "POST" in headers["Access-Control-Allow-Methods"], "a preflight")
    code, headers, _ = s.request("/v1/chat/completions", method="OPTIONS", headers={"Origin": "https://evil.com", "Access-Control-Request-Method": "POST"})
    check(code == 200 and headers["Access-Control-Allow-Methods"] is None and headers["Access-Control-Allow-Origin"] is None, "a preflight of a foreign page")
    for target, want in ((b"http://localhost/health", 200), (b"http://evil.com/health", 403)):
        got, _ = talk(s.port, b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        check(status_of(got) == want, f"target {target}: {got[:100]!r}")
    for path, method, allowed in (("/v1/chat/completions", "GET", "POST, OPTIONS"), ("/v1/models", "DELETE", "GET, HEAD, OPTIONS")):
        code, headers, text = s.request(path, method=method)
        check(code == 405 and headers["Allow"] == allowed, f"405 and what is allowed: {code} {headers['Allow']} {text}")
    check(s.request("/nothing")[0] == 404, "404")
    for path in ("/health", "/nothing"):
        at = email.utils.parsedate_to_datetime(s.request(path)[1]["Date"] or "Thu, 01 Jan 1970 00:00:00 GMT")
        check(abs(at.timestamp() - time.time()) < 600, f"the date of an answer: {at}")


NUMBERS = {
    "chat": ["temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "repetition_context_size", "frequency_penalty",
             "presence_penalty", "seed", "max_tokens", "max_completion_tokens", "n", "top_logprobs"],
    "completions": ["temperature", "top_p", "top_k", "max_tokens", "n", "seed", "logprobs", "best_of"],
}
VALUES = ["-1", "0", "-0.0", "1.5", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616",
          "-9223372036854775809", "1e308", "-1e308", "1e999", "1e-400", "NaN", "Infinity", '"1"', '""', "null", "[]", "{}", "true", "[1]"]


def check_numbers(s):
    """Every number with every value: 200 or 400 with an error, nothing else; afterwards the server is well."""
    for kind, fields in NUMBERS.items():
        path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
        base = '"messages":[{"role":"user","content":"Hi"}]' if kind == "chat" else '"prompt":"Hi"'
        for field in fields:
            bad = []
            for value in VALUES:
                limit = "" if field in ("max_tokens", "max_completion_tokens") else ',"max_tokens":1'
                if field.startswith("max_") and value in ("2147483648", "null"):
                    limit = ',"stop":[" "]'
                body = f'{{{base},"{field}":{value}{limit}}}'.encode()
                code, _, text = s.request(path, body)
                error = json.loads(text).get("error") if text.startswith("{") else None
                wild = value in ("9223372036854775808", "18446744073709551616", "NaN", "Infinity", "1e999", '"1"', '""', "[]", "{}", "true", "[1]")
                if code not in (200, 400) or (code == 400) != bool(error) or (wild and code != 400):
                    bad.append((value, code, text[:80]))
            check(not bad, f"{kind} {field}: {bad}")


BODIES = [
    b"", b" ", b"{", b"}", b"[]", b"null", b"1", b'"x"', b"{}", b'{"messages":1}', b'{"messages":[1]}', b'{"messages":[{}]}',
    b'{"messages":[{"role":1,"content":"x"}]}', b'{"messages":[{"role":"king","content":"x"}]}', b'{"messages":[{"role":"user"}]}',
    b'{"messages":[{"role":"user","content":null}]}', b'{"messages":[{"role":"user","content":{}}]}',
    b'{"messages":[{"role":"user","content":[{}]}]}', b'{"messages":[{"role":"user","content":[{"type":"text"}]}]}',
    b'{"messages":[{"role":"user","content":[{"type":"video_url"}]}]}', b'{"messages":"' + b"x" * 100000 + b'"}',
    b"[" * 100000, b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"messages":[{"role":"user","content":"x"}],"stop":1}', b'{"messages":[{"role":"user","content":"x"}],"stop":[""]}',
    b'{"messages":[{"role":"user","content":"x"}],"stop":' + json.dumps(["x"] * 100).encode() + b"}",
    b'{"messages":[{"role":"user","content":"x"}],"stop":["' + b"y" * 5000 + b'"]}',
    b'{"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":"x"}}', b'{"messages":[{"role":"user","content":"x"}],"logit_bias":[1]}',
    b'{"messages":[{"role":"user","content":"x"}],"logit_bias":{"999999":1}}', b'{"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":1e9}}',
    b'{"messages":[{"role":"user","content":"x"}],"stream":"yes"}', b'{"messages":[{"role":"user","content":"x"}],"stream_options":1}',
    b'{"messages":[{"role":"user","content":"x"}],"tools":[{}]}', b'{"messages":[{"role":"user","content":"x"}],"response_format":1}',
    b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":[]}', b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', b'\xef\xbb\xbf{"messages":[]}', b'{"messages":[{"role":"user","content":"x"}]}garbage',
    b"{'messages':[]}", b'{"prompt":{}}', b'{"prompt":[]}', b'{"prompt":[[]]}', b'{"prompt":[1,null]}', b'{"prompt":["x",null]}', b'{"prompt":[-1]}',
    b'{"prompt":[1.5]}', b'{"prompt":[9223372036854775808]}', b'{"prompt":""}', b'{"prompt":["a",""]}', b'{"prompt":' + json.dumps(["x"] * 500).encode() + b"}",
]


def check_bodies(s):
    for body in BODIES:
        for path in ("/v1/chat/completions", "/v1/completions"):
            code, _, text = s.request(path, body)
            error = json.loads(text)["error"] if code != 200 else None
            ok = code == 400 and set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
            check(ok and "0x" not in text and "/src/" not in text, f"{path} {body[:60]!r}: {code} {text[:120]}")
    dice = random.Random(1)
    good = json.dumps({**CHAT, "stop": ["a"], "logit_bias": {"5": 1}, "stream": False}).encode()
    codes = set()
    for _ in range(150):
        body = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            body[dice.randrange(len(body))] = dice.choice(b'{}[]",:0-e\\\x00\xffnt')
        codes.add(s.request("/v1/chat/completions", bytes(body))[0])
    check(codes <= {200, 400}, f"changed bodies: {codes}")


def check_params(s):
    """The field that is to blame is named."""
    chat = {"messages": [{"role": "user", "content": "x"}]}
    rows = [("/v1/chat/completions", {**chat, "logit_bias": {"999999": 1}}, "logit_bias"),
            ("/v1/chat/completions", {**chat, "stop": ["y" * 5000]}, "stop"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}, "messages"),
            ("/v1/completions", {"prompt": "x " * 9000}, "prompt"),
            ("/v1/completions", {"prompt": "x", "stop": "y" * 1025}, "stop")]
    for path, body, want in rows:
        code, _, text = s.request(path, body)
        check(code == 400 and json.loads(text)["error"]["param"] == want, f"{want} is to blame: {code} {text[:200]}")
    for suffix, want in (("", 200), (None, 200), ("x", 400)):
        check(s.request("/v1/completions", {"prompt": "x", "max_tokens": 1, "suffix": suffix})[0] == want, f"suffix {suffix!r}")
    code, _, text = s.request("/v2/chat", {})
    check(code == 404 and "POST /v2/chat" in json.loads(text)["error"]["message"], f"an unknown endpoint is named: {text}")


def check_bytes(port):
    dice = random.Random(2)
    for i in range(60):
        talk(port, bytes(dice.randrange(256) for _ in range(dice.randint(1, 300))), wait=0.2 if i % 3 else 1, close=i % 4 == 0)


def read_all(s):
    got = bytearray()
    while part := s.recv(65536):
        got += part
    return bytes(got)


def post(path, body, headers=HOST, version=b"1.1"):
    data = json.dumps(body).encode()
    return b"POST " + path + b" HTTP/" + version + b"\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(data) + data


def check_keys(program):
    """Who has no key is told so when the head is there, whatever the body would be; the answer survives a body that is sent all the same."""
    with Server(program, "--parallel", "1", "--api-key", "sesame") as s:
        key = HOST + b"Authorization: Bearer sesame\r\n"
        head = b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n"
        rows = {"no key": (head % (b"/v1/chat/completions", HOST, 1000), 401),
                "a wrong key": (head % (b"/v1/chat/completions", HOST + b"Authorization: Bearer x\r\n", 1000), 401),
                "no key, too large": (head % (b"/v1/chat/completions", HOST, 1 << 40), 401),
                "no key, encoded": (head % (b"/v1/chat/completions", HOST + b"Content-Encoding: gzip\r\n", 9), 401),
                "no key, chunks": (b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 401),
                "no key, Expect": (head % (b"/v1/chat/completions", HOST + b"Expect: 100-continue\r\n", 9), 401),
                "unknown path": (head % (b"/v1/nothing", key, 1000), 404),
                "other method": (head % (b"/v1/models", key, 1000), 405),
                "foreign page": (head % (b"/v1/chat/completions", key + b"Origin: http://evil.com\r\n", 1000), 403),
                "ambiguous": (head % (b"/v1/chat/completions", HOST + b"Transfer-Encoding: chunked\r\n", 9), 400),
                "too large": (head % (b"/v1/chat/completions", key, 1 << 40), 413)}
        for name, (data, want) in rows.items():
            got, closed = talk(s.port, data)  # the body never comes
            check(status_of(got) == want and closed and got.count(b"HTTP/1.1 ") == 1, f"{name}: {got[:200]!r}, closed {closed}")
        with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
            body = b" " * (15 << 20)
            c.sendall(head % (b"/v1/chat/completions", HOST, len(body)))
            c.sendall(body)
            check(status_of(read_all(c)) == 401, "15 MiB without a key")
        got, closed = talk(s.port, post(b"/v1/chat/completions", CHAT, key))
        check(status_of(got) == 200 and not closed, f"with the key: {got[:200]!r}")
        got, closed = talk(s.port, b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n")
        check(status_of(got) == 401 and not closed, "without a body the connection stays")


def check_refusals(program):
    """What is refused before it is routed is counted like every answer, and a page that may ask can read it."""
    page = HOST + b"Origin: http://localhost:3000\r\n"
    post = b"POST /v1/completions HTTP/1.1\r\n"
    rows = {"too large": (post + page + b"Content-Length: 999999999\r\n\r\n", 413, True),
            "encoded": (post + page + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415, True),
            "bad chunks": (post + page + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, True),
            "a foreign page": (b"GET / HTTP/1.1\r\n" + HOST + b"Origin: http://evil.com\r\nExpect: tea\r\n\r\n", 417, False),
            "no HTTP": (b"hello\r\n\r\n", 400, False),
            "a tunnel": (b"CONNECT localhost:80 HTTP/1.1\r\n" + page + b"\r\n", 501, False),
            "HEAD": (b"HEAD / HTTP/1.1\r\n" + page + b"Expect: tea\r\n\r\n", 417, True)}
    names = ['mlxcel_http_answers_total{class="4xx"}', 'mlxcel_http_answers_total{class="5xx"}', "mlxcel_http_requests_total"]
    with Server(program, "--parallel", "1", "--max-connections", "8") as s:
        for name, (data, want, readable) in rows.items():
            before = s.metrics()
            got, closed = talk(s.port, data)
            m = s.metrics()
            head, _, body = got.partition(b"\r\n\r\n")
            check(status_of(got) == want and closed, f"{name}: {got[:200]!r}, closed {closed}")
            check((b"Access-Control-Allow-Origin: http://localhost:3000\r\n" in head) == readable, f"{name} for a page: {head!r}")
            check((body == b"") if name == "HEAD" else set(json.loads(body)["error"]) == {"message", "type", "param", "code"}, f"{name}: {body!r}")
            counted = [m[n] - before[n] for n in names]  # the second request is the one for the figures
            check(counted == ([1, 0, 2] if want < 500 else [0, 1, 2]), f"{name} is counted: {counted}")
        s.wait_for(lambda m: m["mlxcel_http_connections"] == 1)
        held = [socket.create_connection(("127.0.0.1", s.port), timeout=HANG) for _ in range(8)]
        got, closed = talk(s.port, b"")
        for c in held:
            c.close()
        check(status_of(got) == 503 and closed and b"Retry-After: " in got and b'"unavailable_error"' in got, f"one connection too many: {got!r}")


def check_half_closed(program):
    """A client that shuts its side down after a whole request is answered; one that closes is gone, and what it asked for ends."""
    def ask(port, data, shut=True):
        c = socket.create_connection(("127.0.0.1", port), timeout=HANG)
        c.sendall(data)
        if shut:
            c.shutdown(socket.SHUT_WR)
        return c

    with Server(program, *SLOW, "--parallel", "2") as s:
        long = {"prompt": "Once", "max_tokens": 60, "ignore_eos": True}
        whole = post(b"/v1/completions", long)
        with ask(s.port, whole) as c:
            got = read_all(c).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
            check(status_of(got) == 200 and b'"completion_tokens":60' in got, f"a whole answer: {got[:200]!r}")
        with ask(s.port, post(b"/v1/completions", {**long, "stream": True})) as c:
            got = read_all(c)
            check(got.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"), f"a stream: {got[-200:]!r}")
        with ask(s.port, whole + b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET /hea") as c:
            got = read_all(c).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
            check(got.count(b"HTTP/1.1 200 OK") == 2 and got.endswith(b'{"status":"ok"}'), f"two behind each other: {got[-200:]!r}")
        with ask(s.port, b"GET /health HTTP/1.0\r\n\r\n") as c:
            check(b'{"status":"ok"}' in read_all(c), "HTTP/1.0")
        long["max_tokens"] = 1900
        for stream in (False, True):
            for shut in (False, True):
                c = ask(s.port, post(b"/v1/completions", {**long, "stream": stream}), shut)
                s.wait_for(lambda m: m["mlxcel_generations_running"])
                c.close()
                before = s.metrics()['mlxcel_generations_total{reason="length"}']
                m = s.wait_quiet()
                check(m['mlxcel_generations_total{reason="length"}'] == before and m["mlxcel_generations_running"] == 0,
                      f"a client that is gone, stream {stream}, shut {shut}: {m}")
        check(s.metrics()['mlxcel_generations_total{reason="cancelled"}'] == 4, "four were cancelled")
    with Server(program, "--parallel", "2") as s:
        many = {"input": [[5]] * 2000, "encoding_format": "float"}
        with ask(s.port, post(b"/v1/embeddings", many)) as c:
            s.wait_for(lambda m: m['mlxcel_http_answers_total{class="2xx"}'] == m["mlxcel_http_requests_total"] - 1)  # more than the sockets hold
            got = read_all(c).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
            body = got.partition(b"\r\n\r\n")[2]
            check(b"Content-Length: %d\r\n" % len(body) in got and len(json.loads(body)["data"]) == 2000, f"a large answer: {len(got)} bytes")


def check_logprobs(s):
    """The chosen token is always among the likely ones; parts of characters are told apart; pieces without tokens have none."""
    def unique(pairs):
        check(len({k for k, _ in pairs}) == len(pairs), f"a key twice: {pairs}")
        return dict(pairs)

    def ask(**body):
        text = s.request("/v1/completions", {"max_tokens": 12, "seed": 3, "ignore_eos": True, **body})[2]
        events = [text] if not body.get("stream") else [line[6:] for line in text.split("\n\n") if line.startswith("data: {")]
        return [json.loads(e, object_pairs_hook=unique)["choices"][0]["logprobs"] for e in events]
    wild = ask(prompt="Hello", logprobs=1, temperature=2)[0]
    check(all(t in top and len(top) <= 2 for t, top in zip(wild["tokens"], wild["top_logprobs"])) and
          any(len(top) == 2 for top in wild["top_logprobs"]), f"the chosen token: {wild}")
    bytes_ = ask(prompt=[130], logprobs=20, logit_bias={"175": 100}, max_tokens=1)[0]
    check(bytes_["tokens"][0] == "bytes:\\xf0" and len(bytes_["top_logprobs"][0]) == 21, f"parts of characters: {bytes_}")
    check(ask(prompt="Hello", logprobs=0)[0]["top_logprobs"][0] == {}, "none asked for")
    pieces = ask(prompt="Hello", logprobs=1, temperature=2, stream=True)
    check(pieces[-1] is None and [t for p in pieces[:-1] for t in p["tokens"]] == wild["tokens"], f"in pieces: {pieces}")


def check_embeddings(s):
    """Texts that are read side by side have the vectors that each has alone, also beside those of clients that leave."""
    texts = ["Once " * (1 + i * 7 % 40) + str(i) for i in range(40)] + ["long " * 300]
    alone = [json.loads(s.request("/v1/embeddings", {"input": t})[2])["data"][0]["embedding"] for t in texts]
    with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
        c.sendall(post(b"/v1/embeddings", {"input": [[5] * 1000] * 500}))
        s.wait_for(lambda m: m["mlxcel_kv_blocks_used"])
    code, _, text = s.request("/v1/embeddings", {"input": texts})
    check(code == 200 and [d["embedding"] for d in json.loads(text)["data"]] == alone, "texts together and alone")
    m = s.wait_quiet()
    check(m["mlxcel_kv_blocks_used"] == 0 and m["mlxcel_queue_depth"] == 0, f"an embedding whose client left: {m}")


def memory_of(process):
    """Resident MiB; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except OSError:
        return 0


def check_takes_nothing(program):
    """A client that asks thousands of times and takes no answer fills no memory; when it reads, every answer is there, in order."""
    n = 3000
    with Server(program, "--parallel", "1") as s, socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
        page = s.request("/")[2].encode()
        before = memory_of(s.process)
        c.sendall((b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * n + b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        s.wait_for(lambda m: m["mlxcel_http_requests_total"] > n, 1)
        grown = memory_of(s.process) - before
        check(grown < n * len(page) >> 22, f"{grown} MiB for answers that nobody takes")
        got = read_all(c)
        check(got.count(b"HTTP/1.1 200 OK\r\n") == n + 1 and got.count(page) == n and got.endswith(b'{"status":"ok"}'), f"{got.count(page)} pages")


def check_bytes_behind(program):
    """Bytes behind the last request of a connection take nothing from its answer, not even for a client that is slow to take it."""
    with Server(program, "--parallel", "1") as s, socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(HANG)
        c.connect(("127.0.0.1", s.port))
        c.sendall(post(b"/v1/embeddings", {"input": [[5]] * 100}, HOST + b"Connection: close\r\n") + b"x" * 200000)
        s.wait_for(lambda m: m["mlxcel_http_connections"] == 1)  # the server is done with it
        try:
            head, _, body = read_all(c).partition(b"\r\n\r\n")
        except OSError as e:
            head, body = str(e).encode(), b""
        check(b"Content-Length: %d\r\n" % len(body) in head + b"\r\n", f"bytes behind the last request: {head[:200]!r} and {len(body)} bytes")


def check_drain_answer(program):
    """SIGTERM while the last answer is on its way to a client that keeps its connection: it arrives whole."""
    with Server(program, "--parallel", "1") as s, socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
        c.sendall(post(b"/v1/embeddings", {"input": [[5]] * 2000}))
        s.wait_for(lambda m: m['mlxcel_http_answers_total{class="2xx"}'] > m["mlxcel_http_requests_total"] - 1.5 and m["mlxcel_queue_depth"] == 0)
        s.end()
        head, _, body = read_all(c).partition(b"\r\n\r\n")
        check(b"Content-Length: %d\r\n" % len(body) in head + b"\r\n", f"the last answer: {head[:200]!r} and {len(body)} bytes")


def check_queue(program):
    with Server(program, *SLOW, "--parallel", "1", "--max-queue-depth", "1") as s:
        body = json.dumps({"prompt": "Once", "max_tokens": 900, "stream": True, "ignore_eos": True}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body
        held = []
        for _ in range(2):
            c = socket.create_connection(("127.0.0.1", s.port), timeout=HANG)
            c.sendall(request)
            held.append(c)
            if len(held) == 1:
                check(b"200 OK" in c.recv(4096), "a stream begins")
        s.wait_for(lambda m: m["mlxcel_queue_depth"] == 1)  # its status comes with its first token
        code, headers, text = s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})
        check(code == 503 and headers["Retry-After"], f"a full queue: {code} {text}")
        for c in held:
            c.close()
        m = s.wait_quiet()
        check(m["mlxcel_kv_blocks_used"] == 0 and m['mlxcel_generations_total{reason="cancelled"}'] == 2, f"clients that left: {m}")
        check(s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200, "room again")


def check_drain(program):
    """SIGTERM: the running request is answered whole, new connections are not taken."""
    with Server(program, *SLOW, "--parallel", "1") as s, socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
        c.sendall(post(b"/v1/completions", {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "temperature": 0}))
        s.wait_for(lambda m: m["mlxcel_generations_running"])
        s.end()
        try:
            socket.create_connection(("127.0.0.1", s.port), timeout=5).close()
            check(False, "a connection was taken after SIGTERM")
        except OSError:
            check(True, "")
        got = read_all(c)
        check(b'"completion_tokens":200' in got and b"Connection: close" in got, f"the running request: {got[-200:]!r}")


def check_drain_stream(program):
    """A connection whose stream began before SIGTERM is closed behind it: a client that keeps it open holds nothing up."""
    with Server(program, *SLOW, "--parallel", "1") as s, socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as c:
        body = json.dumps({"prompt": "Once", "max_tokens": 40, "stream": True, "ignore_eos": True}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        got = c.recv(65536)
        s.process.terminate()
        while b"[DONE]" not in got:
            got += c.recv(65536)
        rest = b""
        try:
            c.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            while part := c.recv(65536):
                rest += part
        except OSError:
            pass
        check(b"keep-alive" in got and b"HTTP/1.1" not in rest, f"one more request after the last stream: {rest[:200]!r}")


def check_end_at_work(program):
    """A second SIGTERM while long prompts are still being read: the workers are waited for."""
    with Server(program, "--parallel", "1") as s:
        body = json.dumps({"prompt": "Once upon a time. " * 400000, "max_tokens": 1}).encode()
        held = [socket.create_connection(("127.0.0.1", s.port), timeout=HANG) for _ in range(4)]
        for c in held:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        s.wait_for(lambda m: m["mlxcel_http_requests_total"] >= len(held))
        s.end()
        s.process.terminate()
        for c in held:
            c.close()


def check_tls_health(s, context):
    with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as raw, context.wrap_socket(raw, server_hostname="localhost") as c:
        c.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        check(b'"ok"' in c.recv(65536), "well over TLS")


def check_tls_end(s, context):
    """A client that says by TLS that it sends no more, behind requests whose answers it has not taken yet, gets them all."""
    def shake():
        try:
            return c.do_handshake() or True
        except ssl.SSLWantReadError:
            return False

    n = 1000  # more than the sockets hold
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as raw:
        while not shake():
            raw.sendall(outgoing.read())
            incoming.write(raw.recv(65536))
        c.write((b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * n)
        try:
            c.unwrap()
        except ssl.SSLWantReadError:
            pass
        raw.sendall(outgoing.read())
        check_tls_health(s, context)  # so the bytes before have been read
        incoming.write(read_all(raw))
        got = b""
        try:
            while part := c.read(65536):
                got += part
        except ssl.SSLError:
            pass
        check(got.count(b"HTTP/1.1 200 OK\r\n") == n and got.endswith(b"</html>\n"), f"TLS ended by the client: {got.count(b'200 OK')} answers")


def check_tls(program):
    """A chat over TLS with a certificate made here; or the refusal of a build without TLS."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        if not shutil.which("openssl"):
            return harness.skip("TLS: no openssl program")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        args = ["--ssl-cert-file", cert, "--ssl-key-file", key]
        tried = subprocess.run([program, "serve", "--port", "0", "--ssl-cert-file", key, "--ssl-key-file", key], capture_output=True, text=True, timeout=HANG)
        check(tried.returncode != 0 and tried.stderr.count("\n") == 1, f"a key as the certificate: {tried}")
        if "has no TLS" in tried.stderr:
            return harness.skip("TLS: this build has none")
        absent = os.path.join(folder, "absent.pem")
        for option, pair in (("--ssl-cert-file", (absent, key)), ("--ssl-key-file", (cert, absent))):
            tried = subprocess.run([program, "serve", "--port", "0", "--ssl-cert-file", pair[0], "--ssl-key-file", pair[1]], capture_output=True, text=True, timeout=HANG)
            check(tried.returncode != 0 and f"{option}: cannot open {absent}: " in tried.stderr, f"no {option}: {tried}")
        with Server(program, *args, "--parallel", "2") as s:
            context = ssl.create_default_context(cafile=cert)
            body = json.dumps({**CHAT, "stream": True, "max_tokens": 20, "ignore_eos": True}).encode()
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", s.port), timeout=HANG) as raw, context.wrap_socket(raw, server_hostname="localhost") as c:
                    for _ in range(2):
                        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                        got = b""
                        while b"[DONE]\n\n\r\n0\r\n\r\n" not in got and (part := c.recv(65536)):
                            got += part
                        check(b"200 OK" in got and b'"finish_reason":"length"' in got, f"a stream over TLS: {got[-200:]!r}")
            check_tls_end(s, context)
            talk(s.port, b"GET /health HTTP/1.1\r\n\r\n")
            talk(s.port, b"\x16\x03\x01\x00\x05garba" * 50, wait=1)
            check_tls_health(s, context)


def main():
    program = sys.argv[1]
    with Server(program, "--parallel", "4") as s:
        check_smuggling(s.port)
        check_keep_alive(s.port)
        check_limits(s.port)
        check_guards(s)
        check_numbers(s)
        check_bodies(s)
        check_params(s)
        check_bytes(s.port)
        check_logprobs(s)
        check_embeddings(s)
        code, headers, page = s.request("/")
        check(code == 200 and "text/html" in headers["Content-Type"] and "Content-Security-Policy" in headers, "the page")
        check(not re.search(r"""(src|href)=["']?(https?:)?//""", page), "the page asks for nothing from elsewhere")
        check(s.request("/v1/chat/completions", CHAT)[0] == 200, "well after all that")
        m = s.wait_quiet()
        check(m["mlxcel_kv_blocks_used"] == 0, f"{m}")
    check_keys(program)
    check_refusals(program)
    check_half_closed(program)
    check_queue(program)
    check_drain(program)
    check_drain_stream(program)
    check_drain_answer(program)
    check_takes_nothing(program)
    check_bytes_behind(program)
    check_end_at_work(program)
    check_tls(program)
    harness.finish()


if __name__ == "__main__":
    main()
