#!/usr/bin/env python3
"""The xla backend through a CPU plugin (the wheel xla-cpu-pjrt): fixtures, generating, the cache of programs, messages.

usage: test_xla.py PROGRAM GOLDEN_TESTS DATA [--all]   (without --all: one fixture for each kind of layer)
"""
import os
import pty
import subprocess
import sys
import tempfile

import plugin
from counting import HANG, check, finish
from terminal import read_all

PROGRAM, GOLDEN, DATA = map(os.path.abspath, sys.argv[1:4])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# windows and soft caps, latent attention and groups of experts, sinks, scan, state space, delta rule, linear attention, 4 bits
KINDS = ["gemma2", "deepseek_v3", "gpt_oss", "mamba", "nemotron_h", "qwen3_next", "minimax", "llama-q4-g64"]
TOKENS = ["generate", "--tokens", "5,6,7,8", "-n", "12", "--ids", "--ignore-eos"]


def run(command, **env):
    env = {**os.environ, **plugin.ENV, **env}
    done = subprocess.run(command, capture_output=True, text=True, env={k: v for k, v in env.items() if v is not None})
    return done.returncode, done.stdout, done.stderr


def on_terminal(command, **env):
    """What is on a terminal at the end, answer and log."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**os.environ, **plugin.ENV, **env})
    os.close(theirs)
    seen = read_all(ours)
    p.wait(timeout=HANG)
    return seen.decode(errors="replace").replace("\r\n", "\n")


def fixtures(names, folder):
    with tempfile.TemporaryDirectory() as chosen:
        for name in names:
            os.symlink(os.path.join(folder, name), os.path.join(chosen, name))
        _, out, err = run([GOLDEN, "--backend", "xla", "--near", chosen])
    lines = [line for line in out.splitlines() if line.startswith(("ok ", "FAILED", "skipped"))]
    for line in lines:
        check(line.startswith("ok "), f"fixture: {line}")
    check(len(lines) == len(names), f"{len(lines)} of {len(names)} fixtures ran: {err[-300:]}")


def generating():
    """A first start compiles, a second one does not, and whatever is wrong with the cache changes no answer."""
    _, want, _ = run([PROGRAM, *TOKENS, "--precision", "exact", "--device", "cpu"])

    def start(what, **env):
        code, got, err = run([PROGRAM, *TOKENS, "--backend", "xla"], **env)
        check(code == 0 and got == want, f"{what}: {got} instead of {want}: {err[-300:]}")
        return err

    text = on_terminal([PROGRAM, "generate", "-p", "Once upon a time", "-n", "4", "--backend", "xla"], MLXCEL_XLA_CACHE="off")
    check("\nOnce\nmlxcel: xla: compiling the program for decoding" in text, f"a line of the log begins a line: {text}")
    with tempfile.TemporaryDirectory() as cache:
        err = start("generate", MLXCEL_XLA_CACHE=cache)
        check("compiling the program for decoding" in err and "not kept" not in err, f"compiling is told: {err}")
        code, got, err = run([PROGRAM, *TOKENS], MLXCEL_XLA_CACHE=cache, MLXCEL_BACKEND="xla", MLXCEL_XLA_DEVICE="cpu", IREE_DIST="/x")
        check(code == 0 and got == want, f"the second start: {err[-300:]}")
        check("compiling" not in err, f"it compiles nothing: {err}")
        check("IREE_DIST is set and unused" in err, f"IREE's variables are named: {err}")
        err = start("other flags", MLXCEL_XLA_CACHE=cache, XLA_FLAGS=plugin.QUICK + " --xla_cpu_enable_fast_math=false")
        check("compiling" in err, f"other flags are other programs: {err}")
        names = os.listdir(cache)
        for name in names:
            with open(os.path.join(cache, name), "r+b") as f:
                f.seek(100)
                f.write(b"damaged")
        err = start("a damaged cache", MLXCEL_XLA_CACHE=cache)
        check(err.count("is damaged; the program is compiled again") == len(names) // 2, f"damage is told: {err}")
        err = start("the start after it", MLXCEL_XLA_CACHE=cache)
        check("compiling" not in err, f"it is whole again: {err}")
        err = start("a cache that cannot be written", MLXCEL_XLA_CACHE=os.path.join(cache, names[0], "folder"))
        check(err.count("compiled programs are not kept") == 1, f"that is told once: {err}")
    err = start("one program in memory", MLXCEL_XLA_PROGRAMS="1")
    check(err.count("compiling") == 2, f"prompt and decode program: {err}")


def messages():
    nowhere = {"MLXCEL_XLA_PLUGIN": None, "VIRTUAL_ENV": None, "CONDA_PREFIX": None, "HOME": "/nowhere"}
    for args, env, says in [
        (["--backend", "xla"], nowhere, "no PJRT plugin found"),
        (["--backend", "xla", "--xla-device", "cuda"], nowhere, "no PJRT plugin for cuda found"),
        (["--backend", "xla", "--xla-plugin", "/no/such.so"], {}, "/no/such.so"),
        (["--backend", "xla", "--xla-plugin", "/bin/sh"], {}, "/bin/sh"),
        (["--backend", "xla", "--xla-device", "cuda"], {}, "runs on cpu, not on cuda"),
        (["--backend", "xla", "--xla-device", "cpu:7"], {}, "there is no device 7"),
        (["--backend", "xla", "--device", "cpu"], {}, "--device belongs to the native backend"),
        (["--backend", "xla"], {"MLXCEL_XLA_PROGRAMS": "0"}, "MLXCEL_XLA_PROGRAMS is '0', expected a whole number from 1 to 64"),
        (["--xla-device", "cpu"], {}, "--xla-device is for --backend xla"),
    ]:
        code, _, err = run([PROGRAM, "generate", "--tokens", "5", *args], **env)
        check(code != 0 and says in err and err.count("\n") == 1, f"{' '.join(args)}: {code}: {err}")
    code, out, _ = run([PROGRAM, "doctor"], VIRTUAL_ENV=sys.prefix)
    check(code == 0 and f"--backend xla --xla-plugin {plugin.PATH}" in out, f"doctor: {out}")


def folders(path):
    return sorted(n for n in os.listdir(path) if os.path.exists(os.path.join(path, n, "golden.safetensors")))


plugin.need()
messages()
generating()
golden = os.path.join(DATA, "golden")
if "--all" in sys.argv:
    own = os.path.join(ROOT, "tests", "golden", "quant")
    fixtures(folders(golden), golden)
    fixtures(folders(own), own)
else:
    fixtures(KINDS, golden)
finish()
