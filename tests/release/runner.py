"""How the programs of an artifact are started, and what is asked of each: natively, under qemu, under Wine or in a root folder."""
import json
import os
import signal
import subprocess
import urllib.request

from counting import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MACHINE = os.uname().machine


def sysroot(machine):
    return subprocess.run([os.path.join(ROOT, "packaging/linux/sysroot.sh"), f"linux-{machine}"], check=True, capture_output=True,
                          text=True).stdout.strip()


def only_folder(folder):
    return os.path.join(folder, os.listdir(folder)[0])


class Runner:
    """path() is what the programs call a file of ours."""

    def __init__(self, name, folder, prefix=(), suffix="", env=None, path=lambda p: p):
        self.name, self.folder, self.prefix, self.suffix, self.path, self.cwd = name, folder, list(prefix), suffix, path, folder
        self.env = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, **(env or {})}

    def command(self, program, *args):
        return [*self.prefix, os.path.join(self.folder, program + self.suffix), *args]

    def run(self, program, *args, timeout=300):
        return subprocess.run(self.command(program, *args), cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout)


def stream_chat(url, context=None):
    """The text of one streamed answer, and whether it ended as it should."""
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12, "temperature": 0, "stream": True}).encode()
    request = urllib.request.Request(url.rstrip("/") + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    text, ended = "", False
    with urllib.request.urlopen(request, timeout=120, context=context) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            ended = ended or line.strip() == b"data: [DONE]"
    return text, ended


def check_server(runner, *options, context=None):
    """Starts, asks and ends it; returns the answer and the log."""
    text, path = "", os.path.join(runner.cwd, "server.log")
    with open(path, "w") as log:
        process = subprocess.Popen(runner.command("mlxcel-server", "--port", "0", "--log-format", "json", *options), cwd=runner.cwd, env=runner.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        try:
            line = process.stdout.readline()
            if not check(line.startswith("{"), f"{runner.name}: the server did not start: {open(path).read()[-500:]}"):
                return "", ""
            text, ended = stream_chat(json.loads(line)["url"], context)
            check(text.strip() and ended, f"{runner.name}: streamed {text!r}, ended {ended}")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                code = process.wait(120)
                # a signal ends Wine itself; elsewhere the server ends in order
                check(runner.suffix or code == 0, f"{runner.name}: the server ended with {code}")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                check(False, f"{runner.name}: the server did not end")
            process.stdout.close()
    with open(path, errors="replace") as log:
        return text, log.read()


def generate(runner, model):
    """Ten tokens, chosen by the reference arithmetic, which gives the same ones everywhere."""
    r = runner.run("mlxcel", "generate", "-m", runner.path(model), "--tokens", "5,6,7", "--ids", "-n", "10", "--ignore-eos", "--precision", "exact",
                   "--device", "cpu")
    tokens = r.stdout.split()
    check(r.returncode == 0 and len(tokens) == 10, f"{runner.name}: generate: {r.returncode} {r.stdout}{r.stderr}")
    return tokens


def check_program(runner, model, version, expected):
    """Everything that is asked of an unpacked or installed artifact; returns the ten tokens."""
    for program in ("mlxcel", "mlxcel-server"):
        r = runner.run(program, "--version")
        check(r.returncode == 0 and f"mlxcel {version}" in r.stdout, f"{runner.name}: {program} --version: {r.returncode} {r.stdout}{r.stderr}")
    r = runner.run("mlxcel", "doctor")
    check(r.returncode == 0 and "driver" in r.stdout.lower(), f"{runner.name}: doctor: {r.returncode} {r.stdout}{r.stderr}")
    tokens = generate(runner, model)
    check(expected is None or tokens == expected, f"{runner.name}: tokens {tokens}, expected {expected}")
    check_server(runner)
    return tokens
