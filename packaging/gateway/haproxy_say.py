#!/usr/bin/env python3
"""Says lines to HAProxy's runtime API and prints what it answers.

usage: haproxy_say.py [--socket PATH] LINE...
"""
import argparse
import socket

p = argparse.ArgumentParser(usage=__doc__)
p.add_argument("--socket", default="/run/haproxy/admin.sock")
p.add_argument("lines", nargs="+")
args = p.parse_args()
for line in args.lines:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(args.socket)
        s.sendall(line.encode() + b"\n")
        while part := s.recv(65536):
            print(part.decode(), end="")
