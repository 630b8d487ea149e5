"""A server under test on a free port of this machine. For the test programs beside this file."""
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import HANG, check, finish, parts, skip  # noqa: E402,F401 (for the tests that import this)


SLOW = ("--cpu", "ref", "--threads", "1")  # a server that is busy for seconds on any machine, so that no test depends on its speed


def free_port():
    """Below those that systems give to whoever asks for any: nobody else takes it, and no client that tries it meets itself."""
    while True:
        port = random.SystemRandom().randrange(10000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Server:
    """`with Server(program, "--parallel", "8") as s`: s.port, s.url; ended by SIGTERM, which must end it with code 0."""

    def __init__(self, program, *args, port=0, env=None, before=()):
        """env: further variables; before: words in front of the command."""
        # the server goes by its second name where that lies beside the program
        folder, name = os.path.split(os.path.abspath(program))
        second = os.path.join(folder, name.replace("mlxcel", "mlxcel-server"))
        command = [second] if os.path.exists(second) else [program, "serve"]
        named = {"-m", "--model", "--shape", "--models-dir"}.intersection(args)
        self.command = [*before, *command, "--port", str(port), "--log-format", "json", *([] if named else ["-m", "built-in"]), *args]
        self.env = env or {}

    def __enter__(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_"))}
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**env, **self.env})
        self.lines = []  # of the log, read as they come: a pipe that nobody reads holds the server up
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the server did not start: {self.rest()}")
        self.ready = json.loads(line)
        self.port, self.url = self.ready["port"], self.ready["url"]
        return self

    def end(self):
        """SIGTERM, and back when it was seen."""
        self.process.terminate()
        while self.reader.is_alive() and not any('"ending' in line for line in self.lines):
            time.sleep(0.01)

    def kill(self):
        """The hard way: no goodbye to anybody."""
        self.process.kill()
        self.process.wait()
        self.rest()

    def read_log(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def rest(self):
        """The log, when the server has ended."""
        self.reader.join()
        return "".join(self.lines)

    def __exit__(self, *_):
        if self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        out, self.log = self.process.stdout.read(), self.rest()
        check(self.process.returncode == 0, f"the server ended with {self.process.returncode}: {self.log[-2000:]}")
        check(out == "", f"the server wrote more than one line: {out!r}")
        odd = [line for line in self.log.splitlines() if not line.startswith("{")]
        check(not odd, f"lines of the log are no JSON: {odd[:3]}")

    def request(self, path, body=None, headers=None, method=None, timeout=HANG):
        """Status, headers and body text; body: bytes, or anything that becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as r:
                return r.status, r.headers, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read().decode()

    def metrics(self):
        text = self.request("/metrics")[2]
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))}

    def wait_for(self, condition, seconds=HANG, pause=0.01):
        """The metrics once they fulfil a condition, or when the time is over."""
        end = time.monotonic() + seconds
        while True:
            m = self.metrics()
            if condition(m) or time.monotonic() > end:
                return m
            time.sleep(pause)

    def wait_quiet(self, seconds=HANG):
        """The metrics once nothing runs, waits or holds a block."""
        return self.wait_for(lambda m: m["mlxcel_generations_running"] == m["mlxcel_queue_depth"] == m["mlxcel_kv_blocks_used"] == 0, seconds, 0.1)
