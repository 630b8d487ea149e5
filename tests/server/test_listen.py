#!/usr/bin/env python3
"""Where the server listens: sockets in the file system, several addresses at once.

usage: test_listen.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import http.client
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile

from harness import HANG, Server, check, finish, skip

PROGRAM = sys.argv[1]


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=HANG)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(HANG)
        self.sock.connect(self.path)


def ask(connection, path, body=None):
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def check_answers(connection, where):
    code, text = ask(connection, "/v1/models")
    check(code == 200 and json.loads(text)["data"], f"{where}: the models, {code} {text}")
    code, text = ask(connection, "/v1/completions", {"prompt": "Hi", "max_tokens": 2})
    check(code == 200, f"{where}: a completion on the same connection, {code} {text}")
    code, text = ask(connection, "/v1/completions", {"prompt": "Hi", "max_tokens": 2, "stream": True})
    check(code == 200 and text.rstrip().endswith("[DONE]"), f"{where}: a stream, {code} {text[-200:]}")


def refused(host, words, what):
    got = subprocess.run([PROGRAM, "serve", "-m", "built-in", "--port", "0", "--host", host], capture_output=True, text=True, timeout=HANG, check=False)
    check(got.returncode in (1, 2) and words in got.stderr, f"{what}: {got.returncode} {got.stderr!r}")
    check(len(got.stderr.strip().splitlines()) == 1, f"{what}, in one line: {got.stderr!r}")


def command(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=HANG, check=False)


def check_socket(folder):
    path = os.path.join(folder, "mlxcel.sock")
    with Server(PROGRAM, "--host", f"unix:{path}") as s:
        check(s.ready["url"] == f"unix:{path}" and s.ready["port"] == 0, f"what it says: {s.ready}")
        check(stat.S_ISSOCK(os.stat(path).st_mode), "a socket lies there")
        check_answers(Unix(path), "a socket")
        check("built-in" in command("ps", "--host", f"unix:{path}").stdout, "ps finds the server at a socket")
        refused(path, "another program listens", "a socket that is in use")
        check(ask(Unix(path), "/health")[0] == 200, "who listened there goes on")
    check(not os.path.exists(path), "the socket is gone with the server")
    got = command("ps", "--host", path)
    check(got.returncode == 1 and "no server answers" in got.stderr, f"ps where no server is: {got.stderr!r}")


def check_left_behind(folder):
    path = os.path.join(folder, "left.sock")
    s = Server(PROGRAM, "--host", path).__enter__()
    s.kill()
    check(os.path.exists(path), "killed, it leaves its socket behind")
    with Server(PROGRAM, "--host", path):
        check(ask(Unix(path), "/health")[0] == 200, "one that nobody listens on is replaced")
    plain = os.path.join(folder, "plain")
    with open(plain, "w") as f:
        f.write("precious")
    refused(plain, "is no socket", "a file that is no socket")
    check(open(plain).read() == "precious", "and it stays as it is")
    refused(os.path.join(folder, "x" * 200), "too long for a socket", "a path that is too long")
    refused(os.path.join(folder, "none", "a.sock"), "cannot listen on", "a folder that is not there")


def check_several(folder):
    path = os.path.join(folder, "beside.sock")
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
        hosts = ["127.0.0.1", "::1"]
    except OSError:
        skip("this machine has no ::1")
        hosts = ["127.0.0.1", "127.0.0.2"]
    with Server(PROGRAM, "--host", ",".join([*hosts, f"unix:{path}"])) as s:
        check(len(s.ready["urls"]) == 3 and s.ready["urls"][0] == s.url, f"all of them are said: {s.ready}")
        for host in hosts:
            check_answers(http.client.HTTPConnection(host, s.port, timeout=HANG), host)
        check_answers(Unix(path), "a socket beside addresses")
        refused(f"127.0.0.3,unix:{path}", "another program listens", "one of several that is in use")
    check(not os.path.exists(path), "the socket beside addresses is gone, too")
    refused("127.0.0.1,,::1", "an address is empty", "an empty address")
    refused("127.0.0.1,nowhere", "is no address", "one that is none")


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_socket(folder)
        check_left_behind(folder)
        check_several(folder)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
