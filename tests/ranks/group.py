"""Ranks that are processes, as the tests beside this file start them: one by one, by mpirun, in network namespaces."""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "server"))
from harness import HANG, free_port  # noqa: E402

SECRET = "a secret of the tests, long enough"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
# what launchers, the user's shell or a proxy would change
STRIPPED = ("MLXCEL_", "LLAMA_ARG_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "LWS_")
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS")


def environment(**more):
    plain = {k: v for k, v in os.environ.items() if not k.startswith(STRIPPED) and k not in NAMES and not k.lower().endswith("_proxy")}
    return {**plain, "PATH": PATH, "MLXCEL_JOB_SECRET": SECRET, **more}


class Process:
    """One command, whose output is read as it comes."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env or environment())
        self.out, self.err, self.has_line = [], [], threading.Event()
        self.readers = [threading.Thread(target=self.read, args=a, daemon=True) for a in ((self.process.stdout, self.out), (self.process.stderr, self.err))]
        for r in self.readers:
            r.start()

    def read(self, pipe, lines):
        for line in pipe:
            lines.append(line)
            self.has_line.set()
        self.has_line.set()

    def wait(self, seconds=HANG):
        """The exit code, or None where it does not end."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for r in self.readers:
            r.join(HANG)
        return self.process.returncode

    def said(self):
        return "".join(self.err)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def json_line(self):
        """The first line of standard output that is JSON; None where the process ends without one."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            ready = [line for line in list(self.out) if line.startswith("{")]
            if ready:
                return json.loads(ready[0])
            if self.process.poll() is not None and not any(r.is_alive() for r in self.readers):
                return None
            self.has_line.wait(0.05)
            self.has_line.clear()
        return None


def end_all(processes):
    """Nothing of a test stays behind."""
    for p in processes:
        if p.process.poll() is None:
            p.kill()
    for p in processes:
        p.wait()


def start_ranks(program, n, *args, port=None, env=None, **own):
    """One process for each rank, by plain options. own: rank1=[...] are further arguments of one rank."""
    port = port or free_port()
    ranks = []
    for r in range(n):
        world = ["--rank", str(r), "--world-size", str(n), "--coordinator", f"127.0.0.1:{port}"]
        ranks.append(Process([program, *args, *world, *own.get(f"rank{r}", [])], environment(**(env or {}).get(r, {}))))
    return ranks


def mpirun(n, command, before=None):
    """The words that start n ranks of a command; before[r]: words in front of rank r's."""
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    if not before:
        return [*words, "-n", str(n), *command]
    for r in range(n):
        words += [*([":"] if r else []), "-n", "1", *before[r], *command]
    return words


def find(*names):
    """Why these programs cannot be used; "" where they can."""
    absent = [name for name in names if not shutil.which(name, path=PATH)]
    return f"{' and '.join(absent)} not installed here" if absent else ""


class Namespaces:
    """`with Namespaces(4) as s`: a network of their own for each of n ranks, 10.77.0.1 to 10.77.0.n, with a switch between them. s.why: there are none."""

    def __init__(self, n):
        self.names = [f"mlxr-{os.getpid()}-{r}" for r in range(n)]
        self.switch = f"mlxr-{os.getpid()}-switch"
        self.before = [["ip", "netns", "exec", name] for name in self.names]
        self.why = find("ip")

    def ip(self, *words):
        r = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, env=environment())
        if r.returncode and not self.why:
            self.why = f"this machine forbids network namespaces: {r.stderr.strip()}"

    def __enter__(self):
        if self.why:
            return self
        for name in (self.switch, *self.names):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "bridge", "up")
        for r, name in enumerate(self.names):
            self.ip("-n", self.switch, "link", "add", f"to{r}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("-n", self.switch, "link", "set", f"to{r}", "master", "bridge", "up")
            self.ip("-n", name, "address", "add", f"10.77.0.{r + 1}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_):
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, env=environment())
