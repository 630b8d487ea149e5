#!/usr/bin/env python3
"""What a GPU must show (`make test-cuda`): conformance of every op row, the golden models in exact and in default precision, depth, real
models, sampled texts beside the CPU's, heads that draft, adapters, compute-sanitizer, and the Windows program under Wine. Runs from a build folder alone, so that its programs can be carried to a
machine with a GPU.

usage: test_cuda.py BUILD DATA [--parts check,one,exact,close,kv8,depth,models,seeds,heads,adapters,sanitize,wine] [--out DIR] [--jobs N] [--only TEXT]
                    [--exe MLXCEL.EXE --bridge FOLDER --prefix FOLDER]

BUILD holds mlxcel, checkkern, cuda_one, head_tests and golden_tests; DATA holds golden/, golden2/, tiny/ and models/. BRIDGE and PREFIX are those of test_wine_gpu.sh
(also MLXCEL_WINE_BRIDGE, and WINEPREFIX). What is missing is skipped by name.
"""
import argparse
import concurrent.futures
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = ["check", "one", "exact", "close", "kv8", "depth", "models", "seeds", "heads", "adapters", "sanitize", "wine"]
KV8 = ["llama", "llama-q4-g64", "llama-hd80", "llama-hd128-gqa8", "llama-q8-g64", "gemma2", "gemma3", "gemma3-q4-g64", "qwen3-q4-g64", "qwen3_moe-q4-g64", "gpt_oss", "mistral"]
DEPTH = ["llama", "qwen3", "llama-hd128-gqa8", "gemma3", "deepseek_v3", "gpt_oss", "qwen3-q4-g64", "mamba2", "qwen3_5"]
# one fixture per mixer: attention, sliding attention with sinks, latent attention, conv, scan, ssd, delta, lightning
SANITIZE = ["qwen3-q4-g64", "gpt_oss", "deepseek_v2", "lfm2", "mamba", "mamba2", "qwen3_5", "minimax"]


class Tally:
    def __init__(self, out):
        self.passed = self.failed = self.skipped = 0
        self.out = out
        self.start = time.time()

    def note(self, ok, name, words=""):
        self.passed += ok
        self.failed += not ok
        if not ok:
            print(f"FAILED  {name} {words}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)

    def part(self, name, before, words=""):
        p, f = self.passed - before[0], self.failed - before[1]
        print(f"{name}: {p} passed, {f} failed{words} ({time.time() - self.start:.0f} s)", flush=True)

    def log(self, name, text):
        with open(os.path.join(self.out, name), "a") as f:
            f.write(text)


def execute(command, timeout, env=None):
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, env=env, cwd=ROOT)
        return run.returncode, run.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace") + f"\nno end after {timeout} s\n"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def gpu_or_reason(build):
    """The device line of a run on the GPU, or why there is none."""
    rc, text = execute([os.path.join(build, "mlxcel"), "generate", "--device", "cuda", "--tokens", "1,2,3", "-n", "4"], 120)
    return (rc == 0), last_line(text) if rc else next((line for line in text.splitlines() if "cuda:" in line), "a GPU")


def fixtures(data, only):
    """The folders of golden/ and golden2/ under DATA that hold a reference, as "golden/NAME"."""
    found = []
    for folder in ("golden", "golden2"):
        names = sorted(os.listdir(os.path.join(data, folder))) if os.path.isdir(os.path.join(data, folder)) else []
        found += [f"{folder}/{n}" for n in names if os.path.exists(os.path.join(data, folder, n, "golden.safetensors")) and only in n]
    return found


def fixtures_named(a, names):
    return [n for n in fixtures(a.data, a.only) if os.path.dirname(n) == "golden" and os.path.basename(n) in names]


def golden_some(a, names, args, prefix, timeout):
    """One golden_tests for several fixtures: for each its name, the exit code, the output and its own line of it."""
    folders = {os.path.join(a.data, name): name for name in names}
    rc, text = execute([*prefix, os.path.join(a.build, "golden_tests"), "--backend", "cuda", *args, *folders], timeout)
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith(("FAILED", "skipped", "ok"))}
    return [(name, rc, text, lines.get(folder, last_line(text))) for folder, name in folders.items()]


def golden_many(t, a, part, names, args, prefix=(), timeout=200, clean=None):
    """golden_tests on every fixture, several processes at a time; one for each fixture where the process itself is judged."""
    before = (t.passed, t.failed)
    size = 1 if clean else max(1, len(names) // (2 * a.jobs))
    groups = [names[i:i + size] for i in range(0, len(names), size)]
    figures = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for name, rc, text, words in itertools.chain.from_iterable(pool.map(lambda g: golden_some(a, g, args, prefix, timeout), groups)):
            t.log(part + ".log", words + "\n" if size > 1 else text)
            if words.startswith("skipped"):
                t.skip(f"{part} {name}", words.split(maxsplit=2)[-1])
                continue
            good = words.startswith("ok") and rc in (0, 1) if clean is None else clean in text and rc != 9
            t.note(good, f"{part} {name}", re.sub(r"^\S+\s+\S+\s*", "", words)[:200] if words.startswith(("FAILED", "ok")) else words[:200])
            figures.append((name, words))
    t.part(part, before)
    return figures


def part_check(t, a):
    before = (t.passed, t.failed)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        runs = list(pool.map(lambda i: execute([os.path.join(a.build, "checkkern"), "--cuda", "--part", f"{i}/{a.jobs}"], 400), range(a.jobs)))
    for rc, text in runs:
        t.log("check.log", text)
        for line in [line for line in text.splitlines() if line.startswith("FAILED")][:20]:
            print(line)
        found = re.search(r"(\d+) passed, (\d+) failed", last_line(text))
        if found:
            t.passed += int(found[1])
            t.failed += int(found[2])
        else:
            t.note(False, "checkkern", last_line(text))
    t.part("check", before)


def part_one(t, a):
    before = (t.passed, t.failed)
    rc, text = execute([os.path.join(a.build, "cuda_one")], 100)
    found = re.search(r"(\d+) passed, (\d+) failed", last_line(text))
    t.log("one.log", text)
    t.passed += int(found[1]) if found else 0
    t.note(rc == 0 and bool(found), "one", last_line(text))
    t.part("one", before)


def part_exact(t, a):
    worst = []
    for name, words in golden_many(t, a, "exact", fixtures(a.data, a.only), []):
        found = re.search(r"(\S+) sd$", words)
        if words.startswith("ok") and found:
            worst.append((float(found[1]), name))
    worst.sort(reverse=True)
    print("  largest: " + ", ".join(f"{n} {w:.1e} sd" for w, n in worst[:5]))


def part_close(t, a):
    rows, left_out, positions = [], 0, 0
    # bounds of the default precision are for golden/: models of golden2/ whose indexers pick positions pick others
    names = [n for n in fixtures(a.data, a.only) if os.path.dirname(n) == "golden"]
    for name, words in golden_many(t, a, "close", names, ["--precision", "auto", "--close"]):
        found = re.search(r"rms (\S+) sd \(median (\S+)\), KL (\S+) \(median (\S+)\)", words)
        if found:
            k = 1 if "experts" in words else 0
            rows.append((float(found[1 + k].rstrip("),")), float(found[3 + k].rstrip("),")), name))
        found = re.search(r"experts: (\d+) of (\d+)", words)
        if found:
            left_out, positions = left_out + int(found[1]), positions + int(found[2])
    rows.sort(reverse=True)
    print("  largest: " + ", ".join(f"{n} rms {r:.1e} sd KL {k:.1e}" for r, k, n in rows[:5]))
    print(f"  {left_out} of {positions} positions of models with experts left out: a router within 0.05 of another choice")


def part_kv8(t, a):
    """The cache of 8 bits, in both precisions, against the exact CPU path with a cache of f32."""
    names = fixtures_named(a, KV8)
    for precision in ("exact", "auto"):
        golden_many(t, a, f"kv8-{precision}", names, ["--precision", precision, "--close", "--kv-bits", "8"])


def part_depth(t, a):
    names = fixtures_named(a, DEPTH)
    for precision in ("exact", "auto"):
        figures = golden_many(t, a, f"depth-{precision}", names, ["--precision", precision, "--depth", "8192"])
        print("  " + "; ".join(re.sub(r".*worst (\S+ sd).*", rf"{n} \1", w) for n, w in figures if w.startswith("ok")))


def part_models(t, a):
    env = dict(os.environ, MLXCEL_DEVICE="cuda")
    before = (t.passed, t.failed)
    rc, text = execute([sys.executable, "tests/golden/test_models.py", os.path.join(a.build, "mlxcel"), a.data, str(a.jobs)], 300, env)
    t.log("models.log", text)
    found = re.search(r"(\d+) passed, (\d+) failed", last_line(text))
    if found and int(found[1]) + int(found[2]):
        print("\n".join(text.splitlines()[:-1][:20]))
        t.passed += int(found[1])
        t.failed += int(found[2])
        t.part("models", before)
    else:
        t.skip("models", f"no models under {a.data}" if found else last_line(text))


def run_suite(t, name, command, timeout=300):
    """A program that ends with its counts, which become ours."""
    rc, text = execute(command, timeout)
    t.log(f"{name}.log", text)
    found = re.search(r"(\d+) passed, (\d+) failed", last_line(text))
    print("\n".join("  " + line for line in text.splitlines()[:-1][-12:]))
    if found:
        t.passed += int(found[1])
        t.failed += int(found[2])
    else:
        t.note(False, name, last_line(text))


def part_seeds(t, a):
    before = (t.passed, t.failed)
    run_suite(t, "seeds", [sys.executable, "tests/cuda/test_seeds.py", os.path.join(a.build, "mlxcel")])
    t.part("seeds", before)


def part_heads(t, a):
    before, at = (t.passed, t.failed), "tests/speculate/heads/"
    own = [at + n for n in ("deepseek_v3", "glm4_moe", "qwen3_next", "qwen3_5")]
    run_suite(t, "heads", [os.path.join(a.build, "head_tests"), "--backend", "cuda", *own, f"{at}eagle:{at}eagle-target"])
    t.part("heads", before)


def part_adapters(t, a):
    before = (t.passed, t.failed)
    for name, script in (("adapters", "tests/adapters/test_adapters.py"), ("server-adapters", "tests/server/test_adapters.py")):
        run_suite(t, name, [sys.executable, script, os.path.join(a.build, "mlxcel"), "cuda"])
    t.part("adapters", before)


def part_sanitize(t, a):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        t.skip("sanitize", "compute-sanitizer is not installed (it comes with the CUDA toolkit)")
        return
    rc, text = execute([tool, "--tool", "memcheck", os.path.join(a.build, "mlxcel"), "generate", "--device", "cuda", "--tokens", "1,2", "-n", "1"], 120)
    if "not supported" in text:
        t.skip("sanitize", "compute-sanitizer: " + next(line for line in text.splitlines() if "not supported" in line).strip("= "))
        return
    names = fixtures_named(a, SANITIZE)
    for tool_name in a.tools.split(","):
        prefix = [tool, "--tool", tool_name, "--error-exitcode", "9", "--print-limit", "3"]
        clean = "RACECHECK SUMMARY: 0 hazards" if tool_name == "racecheck" else "ERROR SUMMARY: 0 errors"
        for label, args in (("exact", ["--depth", "560"]), ("auto", ["--precision", "auto", "--depth", "560"])):
            golden_many(t, a, f"{tool_name}-{label}", names, args, prefix, 240, clean)


def part_wine(t, a):
    before = (t.passed, t.failed)
    for what, path in (("Windows program (make windows)", a.exe), ("nvcuda.dll for Wine (--bridge)", a.bridge), ("Wine prefix (--prefix)", a.prefix)):
        if not path or not os.path.exists(path):
            t.skip("wine", f"no {what}")
            return
    rc, text = execute(["bash", "tests/cuda/test_wine_gpu.sh", os.path.join(a.build, "mlxcel"), a.exe, a.bridge, a.prefix], 300)
    t.log("wine.log", text)
    found = re.search(r"(\d+) passed, (\d+) failed", last_line(text))
    if text.startswith("skipped"):
        t.skip("wine", text.splitlines()[0])
        return
    print("\n".join("  " + line for line in text.splitlines()[:-1][:8]))
    if found:
        t.passed += int(found[1])
        t.failed += int(found[2])
    else:
        t.note(False, "wine", last_line(text))
    t.part("wine", before)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("data")
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--out")
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--only", default="")
    p.add_argument("--tools", default="memcheck")
    p.add_argument("--exe", default=os.path.join(ROOT, "build/windows-x86_64/mlxcel.exe"))
    p.add_argument("--bridge", default=os.environ.get("MLXCEL_WINE_BRIDGE"))
    p.add_argument("--prefix", default=os.environ.get("WINEPREFIX"))
    a = p.parse_args()
    a.build, a.data = os.path.abspath(a.build), os.path.abspath(a.data)
    a.out = a.out or tempfile.mkdtemp(prefix="mlxcel-cuda-")
    os.makedirs(a.out, exist_ok=True)
    t = Tally(a.out)
    there, words = gpu_or_reason(a.build)
    if not there:
        t.skip("cuda", words)
    else:
        print(words, flush=True)
        for part in a.parts.split(","):
            globals()["part_" + part](t, a)
    print(f"{t.passed} passed, {t.failed} failed, {t.skipped} skipped")
    sys.exit(1 if t.failed else 0)


main()
