"""Ranks that are processes over TCP: test_processes.py PROGRAM

What they compute has the bits of threads; a chat is served by groups that mpirun starts, on this machine and in network namespaces of their own, whole and as a
stream; every rank is killed in turn, and stopped, and all others end with a reason; the group starts again; and whoever does not belong is named.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from group import HERE, PATH, Namespaces, Process, end_all, environment, find, free_port, mpirun, start_ranks
from harness import HANG, check, finish, skip

program = os.path.abspath(sys.argv[1])
BASE = ["--device", "cpu", "--threads", "1"]
PROMPT = "Once upon a time there was a little dog who wanted to see the sea"
CHAT = {"model": "x", "max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": PROMPT}]}
SERVE = ["serve", "-m", "built-in", *BASE, "--log-format", "json", "--port", "0", "--parallel", "2"]


def run_alone(*args):
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=HANG, env=environment(), check=False)


def the_bits_of_threads(folder):
    """Prompts of several rows and of one; two, three and four ranks."""
    for n in (2, 3, 4):
        paths = [os.path.join(folder, f"{kind}-{n}") for kind in ("threads", "processes", "again")]
        args = ["logits", *BASE, "-p", PROMPT, "-o"]
        run_alone(*args, paths[0], "--tensor-parallel", str(n), "--threads", str(n))
        for path in paths[1:]:
            ranks = start_ranks(program, n, *args, path)
            codes = [p.wait() for p in ranks]
            end_all(ranks)
            check(codes == [0] * n, f"logits of {n} processes: {codes} {[p.said() for p in ranks]}")
        bits = [open(path, "rb").read() if os.path.exists(path) else None for path in paths]
        check(bits[0] and bits[0] == bits[1] == bits[2], f"{n} processes: the bits of threads, each time")


def generating():
    want = run_alone("generate", *BASE, "-p", PROMPT, "-n", "24").stdout
    for draft in ("none", "ngram"):
        ranks = start_ranks(program, 2, "generate", *BASE, "-p", PROMPT, "-n", "24", "--draft", draft)
        codes = [p.wait() for p in ranks]
        end_all(ranks)
        check(codes == [0, 0] and "".join(ranks[0].out) == want, f"draft {draft}: {codes} {ranks[0].out} instead of {want!r}: {ranks[0].said()} {ranks[1].said()}")
        check(not ranks[1].out, f"rank 1 writes {ranks[1].out}")


# The environment of rank r among two, as launchers make it.
LAUNCHERS = {
    "torchrun": lambda r, port: {"RANK": r, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
    "a LeaderWorkerSet": lambda r, port: {"LWS_WORKER_INDEX": r, "LWS_GROUP_SIZE": 2, "LWS_LEADER_ADDRESS": "127.0.0.1", "MASTER_PORT": port},
    "srun": lambda r, port: {"SLURM_PROCID": r, "SLURM_NTASKS": 2, "MLXCEL_COORDINATOR": f"127.0.0.1:{port}"},
    "hydra": lambda r, port: {"PMI_RANK": r, "PMI_SIZE": 2, "MPI_LOCALNRANKS": 2, "MASTER_PORT": port},
}


def environments():
    args = ["generate", *BASE, "-p", PROMPT, "-n", "4"]
    want = run_alone(*args).stdout
    for name, variables in LAUNCHERS.items():
        port = free_port()
        ranks = [Process([program, *args], environment(**{k: str(v) for k, v in variables(r, port).items()})) for r in range(2)]
        codes = [p.wait() for p in ranks]
        end_all(ranks)
        check(codes == [0, 0] and "".join(ranks[0].out) == want and not ranks[1].out, f"as {name} starts them: {codes} {ranks[0].said()} {ranks[1].said()}")
    # without a secret nobody meant that: a plain command under a launcher stays one
    alone = Process([program, *args], environment(MLXCEL_JOB_SECRET="", RANK="1", WORLD_SIZE="2", SLURM_NTASKS="many"))
    check(alone.wait() == 0 and "".join(alone.out) == want, f"without a secret: {alone.said()}")


def ask(url, before=(), **more):
    r = subprocess.run([*before, sys.executable, os.path.join(HERE, "ask.py"), url, json.dumps({**CHAT, **more})], capture_output=True, text=True,
                       timeout=HANG, env=environment(), check=False)
    return json.loads(r.stdout) if r.returncode == 0 else f"{r.returncode} {r.stderr[-500:]}"


def text_of_one():
    server = Process([program, *SERVE])
    ready = server.json_line()
    text = ask(ready["url"]) if ready else server.said()
    server.kill(signal.SIGTERM)
    check(server.wait() == 0 and len(text) > 20, f"one process: {text!r}")
    return text


def serve_by_mpirun(want, n, where, before=None, coordinator="127.0.0.1"):
    """SIGTERM to mpirun goes to all ranks; the first ends the others."""
    env = environment(MASTER_ADDR=coordinator, MASTER_PORT=str(free_port()))
    job = Process(mpirun(n, [program, *SERVE], before), env)
    ready = job.json_line()
    if not check(ready, f"{n} ranks {where}: {job.said()}"):
        end_all([job])
        return
    for stream in (False, True):
        text = ask(ready["url"], before[0] if before else (), stream=stream)
        check(text == want, f"{n} ranks {where}, {'streamed' if stream else 'whole'}: {text!r} instead of {want!r}")
    job.kill(signal.SIGTERM)
    code = job.wait()
    check(code is not None and "ended without a word" not in job.said(), f"{n} ranks {where} end: {code} {job.said()[-1500:]}")
    end_all([job])


def serving(want):
    why = find("mpirun")
    for n in (2, 4):
        if why:
            skip(f"{n} ranks by mpirun, on this machine and in namespaces: {why} (apt install openmpi-bin)")
            continue
        serve_by_mpirun(want, n, "by mpirun")
        with Namespaces(n) as s:
            if s.why:
                skip(f"{n} ranks in network namespaces: {s.why}")
            else:
                serve_by_mpirun(want, n, "by mpirun in namespaces", s.before, "10.77.0.1")


def wait_for_all(ranks, but, seconds=HANG):
    begin = time.monotonic()
    codes = [p.wait(seconds) if r != but else None for r, p in enumerate(ranks)]
    return codes, time.monotonic() - begin


def start_serving(n, port, *more):
    ranks = start_ranks(program, n, *SERVE, *more, port=port)
    return ranks, ranks[0].json_line()


def kill_one(want, n, victim, port, busy):
    """Idle, or in the middle of an answer. The group begins at the port of the one before it: a restart."""
    ranks, ready = start_serving(n, port)
    asking = None
    if check(ready, f"{n} ranks start: {[p.said() for p in ranks]}"):
        check(ask(ready["url"], max_tokens=4) == ask(ready["url"], max_tokens=4), "it answers")
        if busy:
            asking = Process([sys.executable, os.path.join(HERE, "ask.py"), ready["url"], json.dumps({**CHAT, "max_tokens": 900, "ignore_eos": True})])
            time.sleep(0.2)
        ranks[victim].kill()
        codes, seconds = wait_for_all(ranks, victim)
        others = [r for r in range(n) if r != victim]
        check(all(codes[r] == 1 for r in others), f"{n} ranks, {victim} killed: codes {codes} {[p.said()[-800:] for p in ranks]}")
        for r in others:
            check(f"rank {victim} at 127.0.0.1" in ranks[r].said(), f"{n} ranks, {victim} killed, rank {r} says why: {ranks[r].said()[-800:]}")
        worst.append(seconds)
    end_all(ranks + ([asking] if asking else []))
    return want


worst = []


def killing(want):
    port = free_port()
    for n in (2, 4):
        for victim in range(n):
            kill_one(want, n, victim, port, busy=victim % 2 == 0)
    ranks, ready = start_serving(2, port)  # and once more, to the end
    text = ask(ready["url"]) if ready else ranks[0].said()
    check(text == want, f"after the restart: {text!r}")
    ranks[1].kill(signal.SIGTERM)  # a launcher's, to all: the rank waits for the first
    ranks[0].kill(signal.SIGTERM)
    codes, _ = wait_for_all(ranks, None)
    check(codes == [0, 0], f"an end in order: {codes} {[p.said()[-800:] for p in ranks]}")
    end_all(ranks)


def stopping():
    """Nothing closes the connections of a process that stands still."""
    for victim in (0, 1):
        ranks, ready = start_serving(2, free_port(), "--rank-timeout", "2")
        check(ready, f"two ranks: {[p.said() for p in ranks]}")
        ranks[victim].kill(signal.SIGSTOP)
        code = ranks[1 - victim].wait()
        check(code == 1 and "has not been heard of for 2 s" in ranks[1 - victim].said(), f"rank {victim} stands still: {code} {ranks[1 - victim].said()[-800:]}")
        end_all(ranks)


def by_mpirun_one_dies():
    why = find("mpirun")
    if why:
        skip(f"a rank of mpirun's that is killed: {why} (apt install openmpi-bin)")
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = os.path.join(folder, "pid")
        # rank 1 writes down its number before it becomes the program
        script = f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && echo $$ > {kept}; exec "$@"'
        job = Process(mpirun(2, ["bash", "-c", script, "bash", program, *SERVE]), environment(MASTER_PORT=str(free_port())))
        ready = job.json_line()
        if check(ready and os.path.exists(kept), f"two ranks: {job.said()}"):
            with open(kept, encoding="utf-8") as f:
                os.kill(int(f.read()), signal.SIGKILL)
            check(job.wait() not in (None, 0), f"mpirun ends with the rank: {job.process.returncode}")
        end_all([job])


def refused(words, of, *args, n=2, env=None, **own):
    """Every rank ends with an error, and these ranks say so."""
    ranks = start_ranks(program, n, "generate", *BASE, "-p", "x", "-n", "1", *args, env=env, **own)
    codes = [p.wait() for p in ranks]
    end_all(ranks)
    check(all(codes), f"{words}: codes {codes}")
    for r in of:
        check(words in ranks[r].said(), f"{words}: rank {r} says {ranks[r].said()}")


def strangers(folder):
    other = os.path.join(folder, "other")
    made = run_alone("synth", "--shape", "tiny", "-o", other)
    check(made.returncode == 0, f"another model: {made.stderr}")
    refused("the checkpoint: rank 1 has", (0, 1), rank1=["-m", other])
    refused("--kv-bits: rank 1 has 8, and rank 0 has 16", (0, 1), rank1=["--kv-bits", "8"])
    refused("--precision: rank 1 has exact, and rank 0 has auto", (0, 1), rank1=["--precision", "exact"])
    refused("has another job secret", (1,), "--join-timeout", "2", env={1: {"MLXCEL_JOB_SECRET": "a secret of somebody else"}})
    refused("rank 1 of 2 has not come within 2 s", (0,), "--join-timeout", "2", env={1: {"MLXCEL_JOB_SECRET": "a secret of somebody else"}})
    alone = Process([program, "generate", *BASE, "-p", "x", "--rank", "0", "--world-size", "3", "--coordinator", f"127.0.0.1:{free_port()}", "--join-timeout", "1"])
    check(alone.wait() == 1 and "rank 1 of 3 has not come within 1 s" in alone.said(), f"nobody comes: {alone.said()}")


def usage():
    world = ["--rank", "0", "--world-size", "2", "--coordinator", "127.0.0.1:1"]
    for args, env, words in ((["--rank", "0"], {}, "--rank goes with --world-size"),
                             (["--world-size", "2"], {}, "--world-size goes with --rank"),
                             (["--rank", "2", "--world-size", "2"], {}, '--rank: "2" is no whole number from 0 to 1'),
                             (["--rank", "0", "--world-size", "2"], {}, "where rank 0 waits for the others is not known"),
                             (["--tensor-parallel", "3", *world], {}, "--tensor-parallel 3 among 2 processes"),
                             (world, {"MLXCEL_JOB_SECRET": ""}, "--world-size says that 2 processes compute together, which takes a secret"),
                             (["--tensor-parallel", "2"], {"MLXCEL_JOB_SECRET": "", "WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE says that 2 processes"),
                             (world, {"MLXCEL_JOB_SECRET": "short"}, "the job secret has 5 bytes; it needs 16 at least"),
                             (["--rank", "0", "--world-size", "2", "--coordinator", "8.8.8.8"], {}, "8.8.8.8:29500 is a public address"),
                             (["--rank", "0", "--world-size", "2", "--coordinator", "here:port"], {}, '"here:port" is not HOST:PORT')):
        p = Process([program, "generate", *BASE, "-p", "x", "-n", "1", *args], environment(**env))
        check(p.wait() in (1, 2) and words in p.said(), f"{args} {env}: {p.process.returncode} {p.said()}")


def main():
    os.environ["PATH"] = PATH
    with tempfile.TemporaryDirectory() as folder:
        the_bits_of_threads(folder)
        generating()
        environments()
        want = text_of_one()
        serving(want)
        killing(want)
        stopping()
        by_mpirun_one_dies()
        strangers(folder)
    usage()
    print(f"after a kill all others had ended within {max(worst, default=0):.1f} s")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
