"""A hub on this machine: the file list of the API, files by redirect to a second host, ranges, ETags, and faults on demand."""
import glob
import hashlib
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class File:
    def __init__(self, path, lfs):
        self.path, self.lfs, self.size = path, lfs, os.path.getsize(path)
        digest = hashlib.sha256()
        with open(path, "rb") as f:
            for piece in iter(lambda: f.read(1 << 20), b""):
                digest.update(piece)
        self.sha256 = digest.hexdigest()


class Fault:
    """What happens to the next file requests; each is used up after `count` of them. Fields that are None do nothing. hold: so many bytes
    are sent, and the rest after a later request has met a fault. trickle: so many bytes are sent, then ten a second for a minute.
    claim: the Content-Length, whatever follows. endless: "headers" or "body" never end. drip: seconds between two bytes. method: HEAD or
    GET alone. etag "*": another one each time."""

    n_etags = 0

    def __init__(self, count=1, status=None, headers=None, cut=None, length=None, corrupt=False, slow=None, plain=False, stall=None,
                 etag=None, name=None, drop=False, hold=None, trickle=None, claim=None, endless=None, drip=None, method=None):
        self.__dict__.update(locals())

    def etag_of(self, f):
        if self.etag != "*":
            return self.etag or f'"{f.sha256[:32]}"'
        Fault.n_etags += 1
        return f'"changed-{Fault.n_etags}"'

    def answer(self, h):
        """Replies that are no file: a status, or something without an end."""
        h.send_response(self.status or 200)
        for key, value in self.headers or ():
            h.send_header(key, value)
        h.flush_headers()
        while self.endless == "headers":
            h.wfile.write(b"X-More: " + b"x" * 4000 + b"\r\n")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        while self.endless == "body":
            h.wfile.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        while self.drip:
            h.wfile.write(b"1\r\n \r\n")
            time.sleep(self.drip)
        h.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


class Hub:
    """repos: {"owner/name": {"files": {name: File}, "commit": 40 hex digits, "gate": status or None, "list": replacement JSON,
    "sizeless": whether the list leaves the sizes out, "redirect": None, or "loop", or "endless"}}"""

    def __init__(self, host="127.0.0.1", tls=None, second="127.0.0.2"):
        self.repos, self.faults, self.log, self.lock = {}, [], [], threading.Lock()
        self.list_faults, self.token = [], None
        self.n_trickling = 0  # files that are being sent byte by byte
        self.search = None  # the text that answers searches, instead of what is there
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.handle(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.servers = []
        for address in (host, second):
            server = Server((address, 0), Handler)
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*tls)
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(server)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{host}:{self.servers[0].server_port}"
        self.second = f"{scheme}://{second}:{self.servers[1].server_port}"

    def close(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def add(self, repo, folder, lfs=(".safetensors",), **more):
        files = {}
        for top, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(top, name)
                files[os.path.relpath(path, folder)] = File(path, name.endswith(tuple(lfs)))
        self.repos[repo] = {"files": files, "commit": hashlib.sha1(repo.encode()).hexdigest(), "gate": None, "list": None, "sizeless": False, "redirect": None, **more}
        return self.repos[repo]

    # ---- requests

    def handle(self, h):
        with self.lock:
            self.log.append((h.headers.get("Host"), h.path, dict(h.headers), h.command))
        path = urllib.parse.unquote(h.path.split("?")[0])
        if path == "/api/models":
            return self.send_found(h, dict(urllib.parse.parse_qsl(h.path.partition("?")[2])))
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        if found:
            return self.send_list(h, *found.groups())
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found:
            return self.send_resolve(h, *found.groups())
        found = re.fullmatch(r"/blob/([^/]+/[^/]+)/(.+)", path)
        if found:
            return self.send_file(h, self.repos[found.group(1)]["files"][found.group(2)], found.group(2))
        self.refuse(h, 404)

    def send_found(self, h, asked):
        """A search: by words in names, owner and tag. What a repository has under "found" goes out with it."""
        if self.search is not None:
            return self.send_text(h, self.search)
        rows = [{"id": name, "downloads": 0, "likes": 0, "gated": False, "tags": ["mlx"], **repo.get("found", {})} for name, repo in self.repos.items()]
        rows = [r for r in rows if all(w in r["id"].lower() for w in asked.get("search", "").lower().split()) and asked.get("filter", "mlx") in r["tags"]
                and r["id"].startswith(asked.get("author", ""))]
        return self.send_text(h, json.dumps(sorted(rows, key=lambda r: -r["downloads"])[:int(asked["limit"])]))

    def send_text(self, h, text):
        body = text.encode()
        h.send_response(200)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def refuse(self, h, status, code=None, headers=()):
        body = json.dumps({"error": "no"}).encode()
        h.send_response(status)
        if code:
            h.send_header("X-Error-Code", code)
        for key, value in headers:
            h.send_header(key, value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def gate(self, h, repo):
        if repo not in self.repos:
            self.refuse(h, 401, "RepoNotFound")
            return True
        status = self.repos[repo]["gate"]
        if status and h.headers.get("Authorization") != f"Bearer {self.token}":
            self.refuse(h, status, "GatedRepo")
            return True
        return False

    def send_list(self, h, repo, revision):
        with self.lock:
            fault = self.list_faults.pop(0) if self.list_faults else None
        if fault and (fault.endless or fault.drip):
            return fault.answer(h)
        if fault and fault.stall:
            time.sleep(fault.stall)
        elif fault:
            return self.refuse(h, fault.status, headers=fault.headers or ())
        if self.gate(h, repo):
            return None
        r = self.repos[repo]
        if revision not in ("main", r["commit"]):
            return self.refuse(h, 404, "RevisionNotFound")
        siblings = []
        for name, f in sorted(r["files"].items()):
            entry = {"rfilename": name, "blobId": "0" * 40} if r["sizeless"] else {"rfilename": name, "size": f.size, "blobId": "0" * 40}
            if f.lfs and not r["sizeless"]:
                entry["lfs"] = {"sha256": f.sha256, "size": f.size, "pointerSize": 135}
            siblings.append(entry)
        body = r["list"] or json.dumps({"id": repo, "sha": r["commit"], "siblings": siblings})
        body = body.encode()
        h.send_response(200)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def send_resolve(self, h, repo, revision, name):
        if self.gate(h, repo):
            return None
        r = self.repos[repo]
        f = r["files"].get(name)
        if not f or revision not in ("main", r["commit"]):
            return self.refuse(h, 404, "EntryNotFound")
        if r["redirect"]:
            return Fault(status=302, headers=[("Location", h.path)], endless="body" if r["redirect"] == "endless" else None).answer(h)
        if not f.lfs:
            return self.send_file(h, f, name)
        h.send_response(302)
        h.send_header("Location", f"{self.second}/blob/{repo}/{urllib.parse.quote(name)}")
        h.send_header("X-Linked-Etag", f'"{f.sha256}"')
        h.send_header("X-Linked-Size", str(f.size))
        h.send_header("X-Repo-Commit", r["commit"])
        h.send_header("Content-Length", "0")
        h.end_headers()

    def take_fault(self, name, method):
        with self.lock:
            for fault in self.faults:
                if fault.count > 0 and fault.name in (None, name) and fault.method in (None, method):
                    fault.count -= 1
                    return fault
        return None

    def wait_for_faults(self):
        """Until all are used up, and a moment more, in which the other side reads what it was told; not for ever."""
        for _ in range(100):
            if not any(fault.count > 0 for fault in self.faults):
                break
            time.sleep(0.1)
        time.sleep(0.3)

    def send_file(self, h, f, name):
        fault = self.take_fault(name, h.command) or Fault(0)
        if fault.drop:
            h.connection.shutdown(socket.SHUT_RDWR)
            h.close_connection = True
            return
        if fault.endless:
            return fault.answer(h)
        if fault.status:
            return self.refuse(h, fault.status, headers=fault.headers or ())
        etag = fault.etag_of(f)
        start, end = 0, f.size - 1
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", h.headers.get("Range", ""))
        if wanted and not fault.plain and h.headers.get("If-Range") in (None, etag):
            start, end = int(wanted.group(1)), min(end, int(wanted.group(2) or end))
            if start > end:
                return self.refuse(h, 416)
            h.send_response(206)
            h.send_header("Content-Range", f"bytes {start}-{end}/{f.size + (fault.length or 0)}")
        else:
            h.send_response(200)
        n = end - start + 1
        h.send_header("ETag", etag)
        h.send_header("Content-Length", str(fault.claim or n + (fault.length or 0)))
        h.end_headers()
        if fault.claim:
            h.close_connection = True
        if h.command == "HEAD":
            time.sleep(fault.stall or 0)
            return
        self.send_body(h, f, start, n, fault)

    def send_body(self, h, f, start, n, fault):
        special = fault.cut is not None or fault.corrupt or fault.slow or fault.stall or fault.hold or fault.trickle or fault.drip
        with open(f.path, "rb") as file:
            if not special and not isinstance(h.connection, ssl.SSLSocket):
                h.wfile.flush()
                while n > 0:
                    sent = os.sendfile(h.connection.fileno(), file.fileno(), start, min(n, 1 << 22))
                    if sent == 0:
                        break
                    start, n = start + sent, n - sent
                return
            file.seek(start)
            left = n if fault.cut is None else min(n, fault.cut)
            if fault.stall:
                time.sleep(fault.stall)
            if fault.trickle:
                return self.trickle(h, file, fault.trickle)
            while fault.drip and n > 0:
                h.wfile.write(file.read(1))
                time.sleep(fault.drip)
                n -= 1
            while left > 0:
                piece = bytearray(file.read(min(left, 1 << 16)))
                if fault.corrupt:
                    piece[len(piece) // 2] ^= 1
                h.wfile.write(piece)
                left -= len(piece)
                if fault.hold and n - left == fault.hold:
                    self.wait_for_faults()
                if fault.slow:
                    time.sleep(len(piece) / fault.slow)
        if fault.cut is not None and fault.cut < n:
            h.connection.shutdown(socket.SHUT_RDWR)
            h.close_connection = True

    def trickle(self, h, file, n_first):
        with self.lock:
            self.n_trickling += 1
        try:
            h.wfile.write(file.read(n_first))
            for _ in range(600):
                h.wfile.write(file.read(1))
                time.sleep(0.1)
        finally:
            with self.lock:
                self.n_trickling -= 1


def wait_for_journal(folder, seconds=300):
    """The bytes that the journal of a model's weights tells of, as soon as it tells of any."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name in glob.glob(os.path.join(folder, ".mlxcel", "*.part.log")):
            try:
                with open(name, "r", encoding="ascii") as f:
                    text = f.read()
            except FileNotFoundError:  # of a small file, which is whole by now
                continue
            told = re.findall(r"^0 (\d+)\n", text, re.M)
            if " model.safetensors\n" in text and told:
                return int(told[-1])
        time.sleep(0.1)
    return 0


class Proxy:
    """A forward proxy: absolute URLs for http, CONNECT for https. Counts what passes."""

    def __init__(self):
        self.seen = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_CONNECT(self):
                proxy.seen.append(("CONNECT", self.path, dict(self.headers)))
                host, port = self.path.rsplit(":", 1)
                other = socket.create_connection((host, int(port)))
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=pump, args=(other, self.connection), daemon=True)
                back.start()
                pump(self.connection, other)
                back.join()
                self.close_connection = True

            def do_GET(self):
                proxy.seen.append(("GET", self.path, dict(self.headers)))
                url = urllib.parse.urlsplit(self.path)
                with socket.create_connection((url.hostname, url.port)) as other:
                    lines = [f"{self.command} {url.path}{'?' + url.query if url.query else ''} HTTP/1.1"]
                    lines += [f"{k}: {v}" for k, v in self.headers.items() if k.lower() not in ("proxy-connection", "connection")]
                    other.sendall(("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode())
                    pump(other, self.connection)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def pump(a, b):
    try:
        while piece := a.recv(1 << 16):
            b.sendall(piece)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def make_certificate(folder, name, san, days=2, authority=None):
    """(certificate, key) as files, signed by `authority` or by itself; days < 0: expired."""
    cert, key = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")

    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert + ".req", "-subj", f"/CN={name}")
    extensions = os.path.join(folder, name + ".ext")
    with open(extensions, "w") as f:
        f.write(f"subjectAltName={san}\n" if san else "basicConstraints=critical,CA:TRUE\n")
    sign = ["-CA", authority[0], "-CAkey", authority[1], "-CAcreateserial"] if authority else ["-signkey", key]
    openssl("x509", "-req", "-in", cert + ".req", "-out", cert, "-extfile", extensions, *sign, "-days", str(days))
    return cert, key
