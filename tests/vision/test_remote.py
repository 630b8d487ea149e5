"""Pictures from elsewhere: test_remote.py PROGRAM REMOTE_PROBE DATA

The fetching unit under rules of the test (REMOTE_PROBE), against servers on this machine: redirects are held against the rules again, sizes and times have
limits, no proxy is asked. Then the server with --allow-remote-images, whose rules refuse this machine and every network that is not public, whatever
an address looks like: nobody is even connected to.
"""
import base64
import http.server
import json
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from harness import HANG, Server, check, finish  # noqa: E402

program, probe, data = sys.argv[1:4]
root = f"{data}/golden-vision"
picture = open(f"{root}/images/land.png", "rb").read()
asked = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        port = self.server.server_address[1]
        places = {"/here": "/picture", "/other": f"http://127.0.0.2:{port}/picture", "/ring": "/ring", "/file": "file:///etc/passwd"}
        if self.path in places:
            self.send_response(302)
            self.send_header("Location", places[self.path])
            self.end_headers()
            return
        if self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            gone.wait(HANG)
            return
        self.send_response(404 if self.path == "/none" else 200)
        self.end_headers()
        self.wfile.write(picture)

    def log_message(self, *_):
        pass


def serve(host, port=0):
    server = http.server.ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def fetch(path, max_bytes=1 << 20, limit_ms=HANG * 1000, allowed=("127.0.0.1",), **env):
    r = subprocess.run([probe, f"http://127.0.0.1:{port}{path}", str(max_bytes), str(limit_ms), *allowed], capture_output=True, timeout=HANG, env={**os.environ, **env})
    return r.returncode, r.stdout, r.stderr.decode()


gone = threading.Event()
port = serve("127.0.0.1")
serve("127.0.0.2", port)
check(fetch("/picture")[:2] == (0, picture), "a file")
check(fetch("/here")[:2] == (0, picture), "along a redirect")
check(fetch("/other", allowed=("127.0.0.1", "127.0.0.2"))[:2] == (0, picture), "along a redirect to another address that may be asked")
n = len(asked)
code, out, why = fetch("/other")
check(code == 1 and not out and "cannot be fetched" in why and asked[n:] == ["/other"], f"a redirect to an address that may not be asked: {why} {asked[n:]}")
n = len(asked)
code, out, why = fetch("/picture", allowed=())
check(code == 1 and not out and "cannot be fetched" in why and len(asked) == n, f"an address that may not be asked: {why}")
check(fetch("/picture", http_proxy=f"http://127.0.0.3:{port}", ALL_PROXY=f"http://127.0.0.3:{port}")[:2] == (0, picture), "no proxy is asked")
for path, words in ("/none", "status 404"), ("/ring", "cannot be fetched"), ("/file", "cannot be fetched"):
    code, out, why = fetch(path)
    check(code == 1 and not out and words in why and "passwd" not in why, f"{path}: {code} {why}")
code, out, why = fetch("/picture", max_bytes=len(picture) - 1)
check(code == 1 and not out and f"larger than {len(picture) - 1} bytes" in why, f"a file that is too large: {why}")
check(fetch("/picture", max_bytes=len(picture))[0] == 0, "a file of the largest size")
code, out, why = fetch("/slow", limit_ms=300)
check(code == 1 and not out and "in time" in why, f"a server that does not end: {why}")
gone.set()

listener = socket.create_server(("127.0.0.1", 0))
listener.setblocking(False)
closed = listener.getsockname()[1]
model = f"{root}/qwen2_5_vl"
with Server(program, "-m", model, "--device", "cpu", "--allow-remote-images") as s:
    for url in (f"https://127.0.0.1:{closed}/a.png", f"https://localhost:{closed}/a.png", f"https://[::1]:{closed}/a.png", f"https://[::ffff:127.0.0.1]:{closed}/a.png",
                f"https://2130706433:{closed}/a.png", f"https://0:{closed}/a.png", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1/a.png", "https://[fe80::1]/a.png",
                f"http://127.0.0.1:{port}/picture", f"https://user@127.0.0.1:{closed}/", "file:///etc/passwd", "ftp://example.com/a.png", "https://"):
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
                           ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}]}),
                           ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]})):
            status, _, text = s.request(path, {"model": "x", **body})
            check(status == 400 and ("cannot be fetched" in text or "https://" in text), f"{path} {url}: {status} {text[:300]}")
    try:
        listener.accept()
        check(False, "somebody was connected to")
    except BlockingIOError:
        check(True, "nobody was connected to")
    held = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(picture).decode()}}
    status, _, text = s.request("/v1/chat/completions", {"model": "x", "max_tokens": 2, "messages": [{"role": "user", "content": [held]}]})
    check(status == 200 and json.loads(text)["choices"], f"a picture in the request: {status} {text[:300]}")
finish()
