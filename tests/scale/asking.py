"""Requests to a balancer, each with what came of it. For the tests beside this file."""
import http.client
import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from harness import HANG  # noqa: E402


class Request:
    """One completion. When it has ended: `whole`, or what went wrong in `error`. `begun` from the first byte of an answer on."""

    def __init__(self, port, prompt, n_new, stream, session=None):
        self.port, self.prompt, self.n_new, self.stream, self.session = port, prompt, n_new, stream, session
        self.begun = self.whole = False
        self.replica = self.text = self.error = None
        self.cached = 0

    def run(self):
        try:
            self.ask()
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.error = f"{type(e).__name__}: {e}"
        return self

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def ask(self):
        body = {"prompt": self.prompt, "max_tokens": self.n_new, "temperature": 0, "ignore_eos": True, "stream": self.stream}
        headers = {"Content-Type": "application/json", **({"X-Session-ID": self.session} if self.session else {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            self.replica = answer.headers.get("x-replica")
            if answer.status != 200:
                raise ValueError(f"{answer.status} {answer.read()[:200]!r}")
            self.begun = True
            self.read_stream(answer) if self.stream else self.read_whole(answer)
        finally:
            connection.close()

    def read_whole(self, answer):
        got = json.loads(answer.read())
        self.text, self.cached = got["choices"][0]["text"], got["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.whole = True

    def read_stream(self, answer):
        text = ""
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                self.text, self.whole = text, True
                return
            text += json.loads(line[6:])["choices"][0]["text"]
        raise ValueError("the stream broke off")

    def is_running(self):
        return self.begun and not self.whole and not self.error


class Clients:
    """Clients that ask one request after another until `stop`, so many each at most. make(i, k): request k of client i."""

    def __init__(self, n, n_each, make):
        self.n_each, self.make, self.done, self.over = n_each, make, [], threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(n)]
        for t in self.threads:
            t.start()

    def client(self, i):
        for k in range(self.n_each):
            if self.over.is_set():
                return
            self.done.append(self.make(i, k).run())

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join()
        return self.done
