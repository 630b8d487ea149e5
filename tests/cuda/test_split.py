#!/usr/bin/env python3
"""Models on an emulated GPU (tests/cuda/emu) and the CPU together: layers, or experts alone, where the CPU has them.

Golden models in exact precision (dense, experts, windows, recurrent state), and one in the default precision beside the exact CPU; prompts that borrow the CPU's weights and cache; the built-in
model's tokens against the CPU's; a card that is too small, with and without a wish; a server with several requests at once, twice the same; memory
that others take between planning and loading; a lost GPU; two GPUs. Needs a build with kernels for 9.0 (as test_emulated.py does), and g++.

usage: test_split.py BUILD [DATA [EMULATOR]]      EMULATOR: a folder with one that was built
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURE = "tests/golden/quant/affine-4-g64"
GENERATE = ["generate", "--tokens", "1,2,3,40,50", "-n", "4", "--precision", "exact"]
PROMPTS = ["Once upon a time", "Once upon a day there was", "The dog"]
HANG = 600


def execute(command, folder=None, limits="sms=4;late", **more):
    env = dict(os.environ, EMU_CUDA=limits, **more)
    if folder:
        env["LD_LIBRARY_PATH"] = folder
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT, timeout=HANG)
    return run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace")


def check_golden(build, folder, data):
    cases = [("dense", "1", FIXTURE, None)]
    if data:
        golden = os.path.join(data, "golden")
        cases += [("experts of a layer", "99,1", golden, "qwen3_moe-q4-g64"), ("layers with experts", "1", golden, "qwen3_moe-q4-g64"),
                  ("windows", "1", golden, "gemma3-q4-g64"), ("recurrent state", "1", golden, "jamba")]
        golden2 = os.path.join(data, "golden2")
        cases += [(f"the state of {name}", "1", golden2, name) for name in ("rwkv", "xlstm", "deepseek_v4") if os.path.isdir(golden2)]
    for what, places, models, only in cases:
        command = [f"{build}/golden_tests", "--backend", "cuda", "--split", places, *(["--only", only] if only else []), models]
        rc, out, err = execute(command, folder)
        yield f"{what}, --split {places}", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed, 0 skipped", out, re.M), out + err
    rc, out, err = execute([f"{build}/golden_tests", "--backend", "cuda", "--precision", "auto", "--close", "--split", "1", FIXTURE], folder)
    yield "the default precision", rc == 0 and "1 passed, 0 failed" in out, out + err
    yield from check_borrowed(build, folder, data)


def check_borrowed(build, folder, data):
    """Prompts that copy the CPU's weights to the GPU: panels in place, panels with scales of f32, and rows of mxfp4; weights that cannot be lent."""
    cases = [(f"{bits} bits", "1,0,1", f"tests/golden/quant/affine-{bits}", None, True) for bits in ("2-g32", "3-g128", "4-g64", "5-g64", "8-g64")]
    cases += [("plain weights", "1,0,1", "tests/golden/quant/mxfp8", None, False)]
    if data:
        golden = os.path.join(data, "golden")
        cases += [("experts", "99,99,1", golden, "qwen3_moe-q4-g64", True), ("layers with experts", "1,0,1", golden, "qwen3_moe-q4-g64", True), ("windows", "1,0,1", golden, "gemma3-q4-g64", True)]
    for what, places, models, only, is_lent in cases:
        command = [f"{build}/golden_tests", "--backend", "cuda", "--precision", "auto", "--close", "--split", places, *(["--only", only] if only else []), models]
        rc, out, err = execute(command, folder, "sms=4;lazy;report")  # copies as early, and kernels as late as may be
        visits = is_lent and places.startswith("1,")
        ok = rc == 0 and re.search(r"^1 passed, 0 failed", out, re.M) and ("emu: tile_of_panels" in err) == is_lent and ("emu: kv_fetch" in err) == visits and "emu: 0 pieces of memory left" in err
        yield f"{what}, borrowed, --split {places}", ok, out + err
    bench = [f"{build}/mlxcel", "bench", "--device", "cuda", "-p", "32", "-n", "2", "-b", "1", "-r", "1", "--verify"]
    for options, limits, is_lent in ((["--shape", "tiny-moe", "--cpu-experts", "2", "--stream-prompts", "1"], "late", True), (["--shape", "tiny", "--dtype", "f16", "--gpu-layers", "1", "--stream-prompts", "1"], "late", True),
                                     (["--shape", "tiny", "--gpu-layers", "1", "--stream-prompts", "1"], "unpinned", True), (["--shape", "tiny", "--gpu-layers", "1", "--stream-prompts", "0"], "late", False),
                                     (["--shape", "tiny", "--gpu-layers", "1"], "late", False)):
        rc, out, err = execute([*bench, *options], folder, f"sms=4;report;{limits}")
        kl = re.search(r"as a prompt, mean KL ([\d.e-]+);", err)
        yield f"bench {' '.join(options)} ({limits})", rc == 0 and kl and float(kl.group(1)) < 2e-4 and ("emu: tile_of_panels" in err) == is_lent, out + err


def check_tokens(build, folder, cpu_text):
    """The same tokens as on the CPU, however the model is placed; the line says how."""
    for options, line in ((["--gpu-layers", "3"], ": 3 of 8 layers on the GPU ("), (["--gpu-layers", "0"], ": 0 of 8 layers on the GPU ("),
                          (["--gpu-memory", "200M"], "since the GPU has no room for more"), (["--gpu-layers", "99"], "on cuda:0 (emulator")):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda", *options], folder)
        yield f"tokens with {' '.join(options)}", rc == 0 and out == cpu_text and line in err, f"{out!r} {cpu_text!r}\n{err}"
    rc, out, err = execute([f"{build}/mlxcel", "bench", "--device", "cuda", "--shape", "tiny-moe", "--cpu-experts", "1", "-p", "0", "-n", "2", "-b", "1", "--verify"], folder)
    yield "a model's experts, verified", rc == 0 and "32 one by one" in err and "the experts of 1 layers on the CPU" in out + err, out + err
    command = [f"{build}/mlxcel", "bench", "--device", "cuda", "--shape", "tiny-moe", "--cpu-experts", "2", "-p", "0", "-n", "4", "-b", "1,3", "-r", "1", "--verify"]
    rc, out, err = execute(command, folder, "sms=4;late;lazy;report")
    ok = rc == 0 and "32 one by one" in err and all(f"emu: {k} " in err for k in ("pass_in", "pass_out")) and "emu: 0 pieces of memory left" in err
    yield "values that kernels pass to the CPU and back", ok, out + err
    rc, out, err = execute([f"{build}/mlxcel", "inspect", "--gpu-layers", "3"], folder)
    yield "inspect", rc == 0 and re.search(r"^places        3 of 8 layers on the GPU \(\S+ MB\), 5 on the CPU \(\S+ MB\)$", out, re.M), out + err


def check_refusals(build, folder):
    for options, words, code in ((["--gpu-layers", "7", "--gpu-memory", "194M"], "--gpu-layers 0 fits", 1), (["--cpu-experts", "2"], "this model has no experts", 2),
                                 (["--gpu-layers", "many"], "neither a number of layers nor auto", 2), (["--gpu-layers", "2", "--kv-bits", "4"], "--kv-bits 4 is for the CPU", 2)):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda", *options], folder)
        yield f"refused: {' '.join(options)}", rc == code and not out and words in err, f"{rc} {out} {err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cpu", "--gpu-layers", "2"])
    yield "refused: --gpu-layers without a GPU", rc == 2 and "--gpu-layers is for a GPU, and this runs on cpu" in err, f"{rc} {err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda", "--gpu-layers", "3"], folder, "sms=4;grabbed=1")
    yield "memory that others take while it loads", rc == 1 and not out and "GPU 0 (emulator) has too little memory for model.layers." in err, f"{rc} {out} {err}"


def check_gpus(build, folder, cpu_text):
    """Two of them: the one with more free memory, or the one that was named."""
    for options, limits, which in ((["auto"], "second=7500", 1), (["auto"], "second=300", 0), (["cuda:0"], "second=7500", 0), (["cuda:1"], "second=900", 1)):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--gpu-layers", "1", "--device", *options], folder, f"sms=4;{limits}")
        yield f"--device {options[0]} ({limits})", rc == 0 and out == cpu_text and f"on cuda:{which} (" in err, f"{out!r}\n{err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda:2"], folder, "sms=4;second=300")
    yield "a GPU that is not there", rc == 2 and "there is no GPU 2: the driver has 2" in err, f"{rc} {err}"


def ask(url, prompt):
    """Status, text and log-probabilities of an answer."""
    body = json.dumps({"prompt": prompt, "max_tokens": 3, "temperature": 0, "logprobs": 1}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=HANG) as reply:
            choice = json.loads(reply.read())["choices"][0]
            return reply.status, choice["text"], choice["logprobs"]["token_logprobs"]
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), []


def serve(build, folder, limits, rounds, *options):
    """What a server says to rounds of prompts, those of one round at once; its exit code and messages."""
    env = dict(os.environ, EMU_CUDA=limits)
    if folder:
        env["LD_LIBRARY_PATH"] = folder
    server = subprocess.Popen([f"{build}/mlxcel", "serve", "--port", "0", "--log-format", "json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    url = json.loads(server.stdout.readline())["url"] + "/v1/completions"
    with concurrent.futures.ThreadPoolExecutor(max(len(prompts) for prompts in rounds)) as pool:
        answers = [list(pool.map(lambda p: ask(url, p), prompts)) for prompts in rounds]
    server.terminate()
    try:
        err = server.communicate(timeout=HANG)[1]
    except subprocess.TimeoutExpired:
        server.kill()
        err = "it does not end: " + server.communicate()[1]
    return answers, server.returncode, err


def texts(answers):
    return [[(a[0], a[1]) for a in together] for together in answers]


def are_close(answers, want):
    pairs = [(p, q) for a, b in zip(answers, want) for x, y in zip(a, b) for p, q in zip(x[2], y[2])]
    return texts(answers) == texts(want) and len(pairs) > 12 and max(abs(p - q) for p, q in pairs) < 0.05


def check_visits(build, folder):
    """Prompts whose attention the GPU computes with the CPU's cache: whole ones, beginnings that are kept, with company, and with a last chunk that the CPU computes."""
    girl, ball = "Once upon a time there was a little girl who lived in a house near the forest with her mother and her dog. " * 14, "Tom had a red ball. " * 60 + "He"
    rounds = [["Sue went home. " * 75], [girl[:700]], [girl], [girl + "One day she"], [girl + "The dog", ball, girl[:300]]]
    want = serve(build, None, "", rounds, "--device", "cpu", "--precision", "exact", "--parallel", "3")[0]
    for options, limits, visits in ((["1"], "late;lazy", True), (["200", "--gpu-memory", "500M"], "late;lazy", True), (["1"], "late;unpinned", False), (["1", "--kv-bits", "8"], "late;lazy", False)):
        answers, rc, err = serve(build, folder, f"sms=4;report;{limits}", rounds, "--device", "cuda", "--gpu-layers", "3", "--parallel", "3", "--stream-prompts", *options)
        ok = rc == 0 and are_close(answers, want) and all(f"emu: {k} " in err for k in ("kv_fetch", "kv_return")) == visits and "emu: 0 pieces of memory left" in err
        yield f"prompts with the CPU's cache, --stream-prompts {' '.join(options)} ({limits})", ok, f"{answers} {want} {err}"


def check_servers(build, folder):
    exact = ["--precision", "exact", "--parallel", "3", "--ctx-size", "256"]
    want = serve(build, None, "", [PROMPTS], "--device", "cpu", *exact)[0][0]
    answers, rc, err = serve(build, folder, "sms=4;report", [PROMPTS, PROMPTS], "--device", "cuda", "--gpu-layers", "2", *exact)
    yield "a server's answers, at once and again", rc == 0 and texts(answers) == texts([want, want]) and want[0][0] == 200, f"{answers} {want} {err}"
    yield "memory that a server gives back", "emu: 0 pieces of memory left" in err, err
    answers, rc, err = serve(build, folder, "sms=4;broken", [PROMPTS[:1]], "--device", "cuda", "--gpu-layers", "2")
    yield "a lost GPU's answer", any(a[0] == 500 and "failed on the server" in a[1] for a in answers[0]), str(answers)
    yield "a lost GPU's server", rc == 1 and "the device is lost" in err, f"{rc} {err}"


def skip(why):
    print(f"skipped: {why}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def run_on_emulator(checks, *flags):
    """The checks of (build, folder, data) on an emulator that is built with these flags, counted. Arguments of the command: BUILD [DATA [EMULATOR]]."""
    build, data = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    data = data if os.path.isdir(os.path.join(data, "golden")) else ""
    if not shutil.which("g++") or os.uname().machine not in ("x86_64", "aarch64"):
        skip("the emulator needs g++, and x86_64 or aarch64")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else os.path.join(top, "emu")
        rc, out, err = execute(["tests/cuda/emu/build.sh", folder, *flags])
        if rc:
            print(f"FAILED: the emulator does not build\n{err}\n0 passed, 1 failed")
            sys.exit(1)
        if execute([f"{build}/cuda_one"], folder)[1].startswith("skipped"):
            skip("the build has no kernels for 9.0 (cmake -DMLXCEL_CUDA=on -DMLXCEL_CUDA_ARCHS=90a)")
        for what, ok, words in checks(build, folder, data):
            passed += bool(ok)
            failed += not ok
            if not ok:
                print(f"FAILED {what}:\n{words[-2000:]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def all_checks(build, folder, data):
    cpu_text = execute([f"{build}/mlxcel", *GENERATE, "--device", "cpu"])[1]
    yield from check_tokens(build, folder, cpu_text)
    yield from check_refusals(build, folder)
    yield from check_gpus(build, folder, cpu_text)
    yield from check_servers(build, folder)
    yield from check_visits(build, folder)
    yield from check_golden(build, folder, data)


if __name__ == "__main__":
    run_on_emulator(all_checks)
