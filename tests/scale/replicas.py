"""Four replicas behind a balancer: one killed, one drained, one added, while requests come. The balancer is what the tests beside this file bring.

No request is lost that had not begun. What breaks off had begun, and came from the replica that was killed. Every other text is the one that a server
gives alone.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import time

from asking import Clients, Request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "server"))
from harness import HANG, Server, check, free_port  # noqa: E402

EXAMPLES = os.path.join(HERE, "..", "..", "packaging", "gateway")
PROMPTS = [f"Once upon a time there was a {animal} who lived in a house by the sea. " * 5 for animal in ("dog", "cat", "bird", "fish")]
N_CLIENTS, N_EACH_MAX = 4, 400  # clients that ask all the time, and how often at most
N_LONG = 16                     # requests that hold a replica for a while
SHORT, LONG = 4, 60             # new tokens
REPLICA = ("--threads", "1", "--parallel", "4")


def expected(program):
    """The texts of a server that is asked by nobody else; a short one is the beginning of the long one."""
    with Server(program, *REPLICA) as s:
        return {p: Request(s.port, p, LONG, False).run().text for p in PROMPTS}


def wait(condition):
    end = time.monotonic() + HANG
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Fleet:
    """The replicas and the balancer before them. A balancer has:

    command(folder): writes its files and says how it is started;  is_up(), is_quiet(): it takes requests; none is open
    add(name), is_serving(name);  name_of(request): the replica that answered
    """

    def __init__(self, program, folder):
        self.program, self.folder, self.stack, self.replicas, self.port = program, folder, contextlib.ExitStack(), {}, free_port()
        for i in range(1, 5):
            self.start(f"replica-{i}")
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log, cwd=folder)
        wait(lambda: self.process.poll() is not None or self.is_up())
        if self.process.poll() is not None:
            sys.exit(f"the balancer ended: {self.said()}")

    def start(self, name):
        self.replicas[name] = self.stack.enter_context(Server(self.program, *REPLICA))

    def example(self, name, changes):
        """A file of packaging/gateway in this folder, with this machine's ports and paths."""
        with open(os.path.join(EXAMPLES, name), encoding="utf-8") as f:
            text = f.read()
        for before, after in changes.items():
            check(text.count(before) == 1, f"{name} has {before} once, not {text.count(before)} times")
            text = text.replace(before, after)
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def said(self):
        self.log.flush()
        self.log.seek(0)
        return "".join(line for line in self.log if " HTTP/1.1" not in line)[-2000:]

    def request(self, i, n_new, stream, session=None):
        return Request(self.port, PROMPTS[i % len(PROMPTS)], n_new, stream, session)

    def alone(self, *args):
        """A request when nothing is open: only then is nothing pushed on to another replica."""
        wait(self.is_quiet)
        return self.request(*args).run()

    def close(self):
        self.process.terminate()
        self.process.wait(HANG)
        self.stack.close()
        self.log.close()


def affinity(fleet):
    """A session, or a body's beginning, stays where it is."""
    by_session = {s: [fleet.name_of(fleet.alone(k, SHORT, False, s)) for k in range(2)] for s in map(str, range(6))}
    check(all(len(set(r)) == 1 for r in by_session.values()), f"a session stays on its replica: {by_session}")
    check(len({r[0] for r in by_session.values()}) >= 2, f"sessions are spread: {by_session}")
    by_prompt = [[fleet.alone(i, SHORT, False) for _ in range(2)] for i in range(len(PROMPTS))]
    check(all(a.replica == b.replica and b.cached > 0 for a, b in by_prompt),
          f"a body's beginning too, and the cache knows it: {[(a.replica, b.replica, b.cached, b.error) for a, b in by_prompt]}")


def busy(fleet):
    """Long requests, half of them streams."""
    return [fleet.request(i, LONG, i % 2 == 0, f"long-{i // 2}").start() for i in range(N_LONG)]


def pick(fleet, jobs, but=()):
    """A replica that streams to somebody and has requests that it has not begun to answer."""
    found = []

    def look():
        for name in fleet.replicas:
            n_begun = sum(j.is_running() and fleet.name_of(j) == name for j in jobs)
            if name in but or not n_begun:
                continue
            m = fleet.replicas[name].metrics()
            if m["mlxcel_generations_running"] + m["mlxcel_queue_depth"] > n_begun:
                found.append(name)
                return True
        return not any(j.thread.is_alive() for j in jobs)
    wait(look)
    return found[0] if found else None


def join(jobs):
    for j in jobs:
        j.thread.join()
    return jobs


def events(fleet):
    """(killed, drained, requests of all kinds)"""
    clients = Clients(N_CLIENTS, N_EACH_MAX, lambda i, k: fleet.request(i + k, SHORT, k % 2 == 0, f"{i}-{k % 7}"))
    jobs = busy(fleet)
    killed = pick(fleet, jobs)
    if check(killed, "a replica has streams and requests that wait"):
        fleet.replicas[killed].kill()
    join(jobs)
    more = busy(fleet)
    drained = pick(fleet, more, but=(killed,))
    if check(drained, "another one, too"):
        fleet.replicas[drained].end()
    join(more)
    check(drained and fleet.replicas[drained].process.wait(HANG) == 0, f"{drained} ends by itself, with code 0")
    fleet.start("replica-5")
    fleet.add("replica-5")
    check(wait(lambda: fleet.is_serving("replica-5")), "the new one is taken up")
    for i in range(200):
        more.append(fleet.request(i, SHORT, True, f"late-{i}").run())
        if fleet.name_of(more[-1]) == "replica-5":
            break
    return killed, drained, jobs + more + clients.stop()


def judge(fleet, texts, killed, drained, jobs):
    failed = [j for j in jobs if j.error]
    lost = [j for j in failed if not j.begun]
    cut = [j for j in failed if j.begun]
    print(f"{len(jobs)} requests: {len(jobs) - len(failed)} whole, {len(cut)} cut off, {len(lost)} lost; {killed} killed, {drained} drained")
    check(not lost, f"requests that had not begun: {[(j.replica, j.error) for j in lost][:3]}; {fleet.said()}")
    check(cut and all(j.stream and fleet.name_of(j) == killed for j in cut), f"what broke off: {[(fleet.name_of(j), j.error) for j in cut]}, killed was {killed}")
    wrong = [j for j in jobs if j.whole and j.text != (texts[j.prompt] if j.n_new == LONG else texts[j.prompt][:len(j.text)] or None)]
    check(not wrong, f"texts: {[(j.replica, j.text, texts[j.prompt]) for j in wrong][:3]}")
    served = {fleet.name_of(j) for j in jobs if j.whole}
    check(served | {killed} == {f"replica-{i}" for i in range(1, 6)}, f"all have served, the new one too: {served}")
    check(wait(lambda: not fleet.is_serving(killed) and not fleet.is_serving(drained)), "those that are gone are known to be")


def run(kind, program):
    texts = expected(program)
    with tempfile.TemporaryDirectory() as folder:
        fleet = kind(program, folder)
        try:
            affinity(fleet)
            judge(fleet, texts, *events(fleet))
        finally:
            fleet.close()
