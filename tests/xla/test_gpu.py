#!/usr/bin/env python3
"""What the xla backend must show on a GPU, through XLA's CUDA plugin, in one call of a few minutes. Runs from a build folder alone, so that its
programs can be carried to such a machine; with `--device cpu` and small shapes the same steps run anywhere.

usage: test_gpu.py BUILD DATA [--parts speed,again,synth,server,models,fixtures] [--device cuda] [--plugin PATH] [--shapes A,B] [--limit SECONDS]
                   [--n-prompt N] [--n-gen N] [--jobs N] [--only TEXT] [--no-bars] [--out DIR]

BUILD holds mlxcel, mlxcel-server and golden_tests; DATA holds golden/, tiny/ and models/. What is missing there, or what the time did not suffice
for, is skipped by name.

  speed     decode at batch 1 in bf16 and a prompt of 512 tokens, beside our CUDA backend's
  again     a second start of the same model compiles nothing
  synth     a made-up checkpoint of the first shape in float32: the ids of the exact CPU path
  server    clients at once get the native backend's answers
  models    every real model: transformers' ids and texts, in float32
  fixtures  every golden fixture in float32
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from counting import check, finish, skip  # noqa: E402

PARTS = ["speed", "again", "synth", "server", "models", "fixtures"]
ALONE = ["speed", "again", "synth"]  # one after the other; the other parts run side by side
DECODE_BAR, PROMPT_BAR = 150, 3  # tokens per second; times the CUDA backend's time
PROMPT = "5,6,7,8,9,10,11,12"


class Machine:
    """The programs, their environment, and the time that is left."""

    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.limit
        self.start = time.monotonic()
        self.cache = os.path.join(a.out, "programs")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MLXCEL_")}
        self.env.update(MLXCEL_XLA_PLUGIN=a.plugin, MLXCEL_XLA_DEVICE=a.device, MLXCEL_XLA_CACHE=self.cache, XLA_TEST_PLUGIN=a.plugin, XLA_TEST_DEVICE=a.device)
        self.sharing = {} if a.device == "cpu" else {"MLXCEL_XLA_PREALLOCATE": "false"}  # where several programs run at once
        if a.device != "cpu" and os.path.isdir("/usr/local/cuda"):
            self.env.setdefault("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/usr/local/cuda")

    def left(self):
        return self.end - time.monotonic()

    def run(self, name, command, **env):
        """Exit code, standard output and standard error; all of it in the log of that name."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**self.env, **env}, cwd=ROOT, timeout=max(5, self.left()))
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as e:
            code, out, err = 124, (e.stdout or b"").decode(errors="replace"), "the time is over"
        with open(os.path.join(self.a.out, name + ".log"), "a") as f:
            f.write(f"$ {' '.join(command)}\n{out}{err}\n")
        return code, out, err

    def mlxcel(self, name, *args, **env):
        return self.run(name, [os.path.join(self.a.build, "mlxcel"), *args], **env)

    def say(self, text):
        print(f"[{time.monotonic() - self.start:4.0f} s] {text}", flush=True)


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"


def rates(m, shape, *args, **env):
    """Tokens per second of a prompt and of decoding, and what was said."""
    code, out, err = m.mlxcel("speed", "bench", "--shape", shape, "--bits", "16", "-p", str(m.a.n_prompt), "-n", str(m.a.n_gen), "-b", "1", "-c", "1024", "-r", "3", "-o",
                              "json", *args, **env)
    if not check(code == 0, f"bench {shape} {' '.join(args)}: {last_line(err)}"):
        return None
    rows = json.loads(out)
    return next(r["tok_s"] for r in rows if r["n_prompt"]), next(r["tok_s"] for r in rows if r["n_gen"]), err


def part_speed(m):
    for shape in m.a.shapes:
        ours = rates(m, shape, "--backend", "xla", "--precision", "bf16")
        native = rates(m, shape, "--device", m.a.device)
        if not ours or not native:
            continue
        compiled = ", ".join(re.findall(r"compiled the program for .*? in ([\d.]+ s)", ours[2]))
        m.say(f"{shape} bf16: decode {ours[1]:.0f} tok/s (native {native[1]:.0f}), prompt of {m.a.n_prompt} {ours[0]:.0f} tok/s (native {native[0]:.0f}, "
              f"{native[0] / ours[0]:.2f}x its time), compiled in {compiled}")
        if m.a.bars:
            check(ours[1] >= DECODE_BAR, f"{shape}: {ours[1]:.0f} tok/s is below {DECODE_BAR}")
            check(native[0] <= PROMPT_BAR * ours[0], f"{shape}: a prompt of {m.a.n_prompt} takes {native[0] / ours[0]:.1f} times as long as on the native backend")


def part_again(m):
    """The programs of the speed part are in the cache; where that part did not run, the first start here fills it."""
    for shape in m.a.shapes:
        if "speed" not in m.a.parts:
            rates(m, shape, "--backend", "xla", "--precision", "bf16")
        again = rates(m, shape, "--backend", "xla", "--precision", "bf16")
        if again:
            check("compil" not in again[2], f"{shape}: the second start compiles: {last_line(again[2])}")
    m.say("second starts")


def part_synth(m):
    with tempfile.TemporaryDirectory(dir=m.a.out) as folder:
        model = os.path.join(folder, "model")
        code, _, err = m.mlxcel("synth", "synth", "--shape", m.a.shapes[0], "--bits", "16", "-o", model)
        if not check(code == 0, f"synth: {last_line(err)}"):
            return
        ids = ["generate", "-m", model, "--tokens", PROMPT, "-n", "48", "--ids", "--ignore-eos"]
        code, want, err = m.mlxcel("synth", *ids, "--device", "cpu", "--precision", "exact")
        check(code == 0, f"the CPU reference: {last_line(err)}")
        code, got, err = m.mlxcel("synth", *ids, "--backend", "xla", "--precision", "f32")
        want, got = want.split(), got.split()
        same = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
        check(code == 0 and got == want and len(want) == 48, f"{m.a.shapes[0]} f32: {same} of 48 ids are the CPU's: {last_line(err)}")
        m.say(f"{m.a.shapes[0]} f32: {same} of {len(want)} ids of the CPU reference")


def counted(m, part, code, out):
    found = re.search(r"(\d+) passed, (\d+) failed", last_line(out))
    check(code == 0 and found and int(found[1]) > 0, f"{part}: " + "\n".join(out.splitlines()[-12:]))
    m.say(f"{part}: {last_line(out)}")


def part_server(m):
    code, out, err = m.run("server", [sys.executable, "tests/xla/test_server.py", os.path.join(m.a.build, "mlxcel")])
    counted(m, "server", code, out or err)


def part_models(m):
    if not os.path.isdir(os.path.join(m.a.data, "models")):
        skip(f"models: {m.a.data} has none")
        return
    code, out, err = m.run("models", [sys.executable, "tests/golden/test_models.py", os.path.join(m.a.build, "mlxcel"), m.a.data, str(m.a.jobs)],
                           MLXCEL_BACKEND="xla", **m.sharing)
    counted(m, "models", code, out or err)


def part_fixtures(m):
    folder = os.path.join(m.a.data, "golden")
    names = sorted(n for n in os.listdir(folder) if m.a.only in n and os.path.exists(os.path.join(folder, n, "golden.safetensors"))) if os.path.isdir(folder) else []
    if not names:
        skip(f"fixtures: {folder} has none")
        return

    # four programs are compiled for each and run a few times: the choice between equal kernels is not worth trying them all
    quick = {} if m.a.device == "cpu" else {"XLA_FLAGS": m.env.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"}
    names.sort(key=lambda n: -os.path.getsize(os.path.join(folder, n, "model.safetensors")))  # those that take long first

    def one(name):
        if m.left() < 15:
            return name, "skipped: the time is over"
        _, out, err = m.run("fixtures", [os.path.join(m.a.build, "golden_tests"), "--backend", "xla", "--near", *(["--grow"] if m.sharing else []),
                            os.path.join(folder, name)], MLXCEL_XLA_CACHE="off", **quick)
        return name, next((line for line in out.splitlines() if line.startswith(("ok", "FAILED", "skipped"))), last_line(err))

    n_good, worst = 0, []
    with concurrent.futures.ThreadPoolExecutor(m.a.jobs) as pool:
        for name, line in pool.map(one, names):
            if line.startswith("skipped: "):
                skip(f"{name}: the time is over")
                continue
            n_good += check(line.startswith("ok"), f"{name}: {line}")
            found = re.search(r"(\S+) sd$", line)
            worst += [(float(found[1]), name)] if found and line.startswith("ok") else []
    m.say(f"fixtures: {n_good} of {len(names)}; largest " + ", ".join(f"{n} {w:.1e} sd" for w, n in sorted(worst, reverse=True)[:4]))


def run_part(m, part):
    if m.left() < 20:
        skip(f"{part}: the time is over")
    else:
        globals()["part_" + part](m)


def find_plugin(device):
    """Where pip put a plugin for this Python."""
    paths = [p for s in sys.path for p in sorted(glob.glob(os.path.join(s, "jax_plugins", f"xla_{device}*", "xla_*plugin.so")))]
    return paths[0] if paths else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("data")
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--device", default="cuda")
    p.add_argument("--plugin")
    p.add_argument("--shapes", default="llama-3.2-1b,qwen3-0.6b")
    p.add_argument("--n-prompt", type=int, default=512)
    p.add_argument("--n-gen", type=int, default=128)
    p.add_argument("--limit", type=float, default=340)
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--only", default="")
    p.add_argument("--no-bars", dest="bars", action="store_false")
    p.add_argument("--out")
    a = p.parse_args()
    a.build, a.data, a.shapes = os.path.abspath(a.build), os.path.abspath(a.data), a.shapes.split(",")
    a.out = os.path.abspath(a.out or tempfile.mkdtemp(prefix="mlxcel-xla-"))
    a.plugin = a.plugin or find_plugin(a.device)
    if not a.plugin:
        skip(f"xla on {a.device}: no plugin in this Python's packages (pip install jax-cuda13-plugin jax-cuda13-pjrt)")
        finish()
    m = Machine(a)
    code, _, err = m.mlxcel("start", "generate", "--backend", "xla", "--tokens", "1,2,3", "-n", "4")
    if code:
        skip(f"xla on {a.device}: {last_line(err)}")
        finish()
    m.say(next((line for line in err.splitlines() if "xla (" in line), "started"))
    wanted = a.parts.split(",")
    for part in wanted:
        if part in ALONE:
            run_part(m, part)
    with concurrent.futures.ThreadPoolExecutor(len(PARTS)) as pool:
        for done in [pool.submit(run_part, m, part) for part in wanted if part not in ALONE]:
            done.result()
    m.say(f"logs in {a.out}")
    finish()


main()
