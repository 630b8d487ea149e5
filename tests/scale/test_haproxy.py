#!/usr/bin/env python3
"""replicas.py behind HAProxy, by packaging/gateway/haproxy.cfg. The replica that is added comes through HAProxy's runtime API.

usage: test_haproxy.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import os
import re
import shutil
import socket
import sys

import replicas
from harness import HANG, check, finish, skip

HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class Haproxy(replicas.Fleet):
    def command(self):
        self.socket = os.path.join(self.folder, "admin.sock")
        changes = {"127.0.0.1:8000": f"127.0.0.1:{self.port}", "/run/haproxy/admin.sock": self.socket}
        changes.update({f"127.0.0.1:808{i}": f"127.0.0.1:{self.replicas[f'replica-{i}'].port}" for i in range(1, 5)})
        path = self.example("haproxy.cfg", changes)
        with open(path, encoding="utf-8") as f:
            self.checks = re.search(r"^ *default-server (.*)$", f.read(), re.M)[1]
        return [HAPROXY, "-db", "-f", path]

    def say(self, command):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(HANG)
            s.connect(self.socket)
            s.sendall(command.encode() + b"\n")
            got = b""
            while part := s.recv(65536):
                got += part
        return got.decode().strip()

    def column(self, server, name):
        rows = [line.split(",") for line in self.say("show stat").lstrip("# ").splitlines() if line]
        return {row[1]: row[rows[0].index(name)] for row in rows[1:] if row[0] == "replicas"}[server]

    def is_up(self):
        return os.path.exists(self.socket)

    def is_quiet(self):
        return self.column("BACKEND", "scur") == "0"

    def is_serving(self, name):
        return self.column(name, "status") == "UP"

    def add(self, name):
        said = self.say(f"add server replicas/{name} 127.0.0.1:{self.replicas[name].port} {self.checks}")
        check(said.startswith("New server registered"), f"it is added while requests run: {said}")
        self.say(f"enable health replicas/{name}")
        self.say(f"enable server replicas/{name}")

    def name_of(self, request):
        return request.replica


def main():
    if HAPROXY:
        replicas.run(Haproxy, sys.argv[1])
    else:
        skip("haproxy is not installed here (apt install haproxy)")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
