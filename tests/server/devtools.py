"""A browser without a window, driven through its debugging socket. Just enough for test_page.py."""
import base64
import json
import os
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

from harness import HANG


class Tab:
    """One page, by the address of its debugging socket."""

    def __init__(self, target):
        host, resource = target.split("/", 3)[2:]
        port = int(host.rpartition(":")[2])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANG)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET /{resource} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.data += self.socket.recv(4096)
        self.data = self.data.partition(b"\r\n\r\n")[2]
        self.n, self.events = 0, []

    def _take(self, n):
        while len(self.data) < n:
            part = self.socket.recv(1 << 20)
            if not part:
                raise RuntimeError("the browser went away")
            self.data += part
        out, self.data = self.data[:n], self.data[n:]
        return out

    def _receive(self):
        text = b""
        while True:
            head = self._take(2)
            n = head[1] & 127
            n = struct.unpack(">H", self._take(2))[0] if n == 126 else struct.unpack(">Q", self._take(8))[0] if n == 127 else n
            text += self._take(n)
            if head[0] & 128:
                return json.loads(text)

    def call(self, method, **params):
        self.n += 1
        data, mask = json.dumps({"id": self.n, "method": method, "params": params}).encode(), os.urandom(4)
        head = b"\x81" + (bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data)) if len(data) < 65536 else b"\xff" + struct.pack(">Q", len(data)))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        while True:
            answer = self._receive()
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of an expression in the page; promises are waited for."""
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", r["exceptionDetails"]["text"]))
        return r["result"].get("value")

    def wait(self, condition, seconds=HANG):
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=None, text=None, modifiers=0):
        extra = {"windowsVirtualKeyCode": {"Enter": 13, "Escape": 27, "Tab": 9}.get(name, 0), "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=code or name, **({"text": text} if text else {}), **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=code or name, **extra)

    def screen(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Browser(Tab):
    """The program, and its first page."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-default-apps", "--disable-sync", "--remote-debugging-port=0", f"--user-data-dir={self.folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = os.path.join(self.folder.name, "DevToolsActivePort")
        end = time.monotonic() + HANG
        while not (os.path.exists(path) and open(path, encoding="utf-8").read().count("\n")):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the browser did not start")
            time.sleep(0.2)
        self.address = f"http://127.0.0.1:{int(open(path, encoding='utf-8').readline())}/json"
        pages = json.load(urllib.request.urlopen(f"{self.address}/list"))
        super().__init__(next(p for p in pages if p["type"] == "page")["webSocketDebuggerUrl"])

    def open_tab(self, url):
        """One more page of the same user."""
        ask = urllib.request.Request(f"{self.address}/new?{url}", method="PUT")
        return Tab(json.load(urllib.request.urlopen(ask))["webSocketDebuggerUrl"])

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(20)
        try:
            self.folder.cleanup()
        except OSError:
            pass
