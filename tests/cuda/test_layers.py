#!/usr/bin/env python3
"""Layers over several emulated GPUs (tests/cuda/emu): two and three, with and without peer access, alike and not, with the CPU and without.

Golden models over two GPUs, and over the CPU and two GPUs; the bits of one GPU in the default precision, prompts and steps; the built-in model's tokens against the CPU's, with the line that
says what went where and why; a model that does not fit one GPU; a number of ranks that is found; a server with several requests at once; refusals; a GPU that is full, and one that is lost.
Needs a build with kernels for 9.0 (as test_emulated.py does), and g++.

usage: test_layers.py BUILD [DATA [EMULATOR]]      EMULATOR: a folder with one that was built
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from test_split import FIXTURE, GENERATE, HANG, PROMPTS, ROOT, execute, run_on_emulator, serve

TWO = "sms=4;late;report;second=7000"
THREE = TWO + ";third=6500"
NO_MEMORY_LEFT = "emu: 0 pieces of memory left"


def check_golden(build, folder, data):
    cases = [("dense", ["--cards", "cuda:0,cuda:1"], FIXTURE, None)]
    if data:
        golden, golden2 = os.path.join(data, "golden"), os.path.join(data, "golden2")
        cases += [(name, ["--cards", "cuda:1,cuda:0"], golden, name) for name in ("qwen3_moe-q4-g64", "gemma3-q4-g64", "jamba", "gemma3n")]
        cases += [("the CPU and two GPUs", ["--split", "2", "--cards", "cuda:0,cuda:1"], golden, "gemma3-q4-g64"),
                  ("experts on the CPU", ["--split", "99,1", "--cards", "cuda:0,cuda:1"], golden, "qwen3_moe-q4-g64")]
        cases += [(name, ["--cards", "cuda:0,cuda:1"], golden2, name) for name in ("rwkv", "xlstm", "deepseek_v4") if os.path.isdir(golden2)]
    for what, places, models, only in cases:
        for precision in [], ["--precision", "auto", "--close"]:
            command = [f"{build}/golden_tests", "--backend", "cuda", *precision, *places, *(["--only", only] if only else []), models]
            rc, out, err = execute(command, folder, TWO)
            ok = rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed, 0 skipped", out, re.M) and NO_MEMORY_LEFT in err
            yield f"{what} {' '.join(places + precision)}", ok, out + err
    for rows, is_lent in (("1", True), ("0", False)):
        command = [f"{build}/golden_tests", "--backend", "cuda", "--precision", "auto", "--close", "--split", f"1,0,{rows}", "--cards", "cuda:0,cuda:1", FIXTURE]
        rc, out, err = execute(command, folder, TWO)
        yield f"prompts that borrow from {rows} rows on", rc == 0 and "1 passed, 0 failed" in out and ("emu: tile_of_panels" in err) == is_lent and NO_MEMORY_LEFT in err, out + err


def logits(build, folder, limits, *options):
    """The bytes of a prompt's logits."""
    with tempfile.TemporaryDirectory() as top:
        path = os.path.join(top, "logits.npy")
        rc, out, err = execute([f"{build}/mlxcel", "logits", "-p", "Once upon a time there was a little dog", "-o", path, *options], folder, limits)
        if rc or not os.path.exists(path):
            return None, out + err
        with open(path, "rb") as f:
            return f.read(), err


def check_bits(build, folder, data):
    """One GPU and several: the same bits in the default precision, since the kernels are the same."""
    models = [[], ["--kv-bits", "8"]]
    if data:
        models += [["-m", os.path.join(data, "golden", name)] for name in ("qwen3_moe-q4-g64", "jamba") if os.path.isdir(os.path.join(data, "golden", name))]
    for options in models:
        steps = [f"{build}/mlxcel", "generate", "--tokens", "1,2,3,40,50", "-n", "10", "--temp", "1", "--seed", "5", *options]
        drawn = execute([*steps, "--device", "cuda:0"], folder, "sms=4;late")
        prompt = logits(build, folder, "sms=4;late", "--device", "cuda:0", *options) if "-m" not in options else (b"", "")
        yield f"one GPU {' '.join(options)}", drawn[0] == 0 and prompt[0] is not None, str(drawn) + prompt[1]
        for limits, device in ((TWO, "cuda:0,cuda:1"), (THREE + ";apart", "cuda:2,cuda:0,cuda:1")):
            if device.count(",") == 2 and "-m" in options:
                continue
            rc, out, err = execute([*steps, "--split", "layer", "--device", device], folder, limits)
            yield f"tokens that are drawn on {device} {' '.join(options)}", rc == 0 and out == drawn[1] and NO_MEMORY_LEFT in err, f"{out!r} {drawn[1]!r}\n{err}"
            if "-m" in options:
                continue
            got, words = logits(build, folder, limits, "--split", "layer", "--device", device, *options)
            yield f"logits on {device} {' '.join(options)}", got is not None and got == prompt[0], words


def check_tokens(build, folder, cpu_text):
    """The CPU's tokens in exact precision; the line says what went where, and why."""
    alike = "split by tensor, since the GPUs are alike and reach each other's memory"
    apart = "split by layer, since cuda:0 and cuda:1 do not reach each other's memory"
    unlike = "split by layer, since cuda:0 and cuda:1 are of different kinds"
    for options, limits, words in ((["--split", "layer"], TWO, [r": 4 of 8 layers on cuda:0 \(\S+ MB\), 4 on cuda:1 \(\S+ MB\), context"]),
                                   (["--split", "layer", "--device", "cuda"], THREE, [r"[23] of 8 layers on cuda:0 .*, [23] on cuda:1 .*, [23] on cuda:2 "]),
                                   (["--pipeline-parallel", "2"], THREE, [r": \d of 8 layers on cuda:0 .*, \d on cuda:1 \(\S+ MB\), context"]),
                                   (["--pp-size", "3", "--device", "cuda:2,cuda:0,cuda:1"], THREE, [r"on cuda:2 .* on cuda:0 .* on cuda:1 "]),
                                   (["--split", "layer", "--device", "cuda:0,cuda:0"], "sms=4;late;report", [": 4 of 8 layers on cuda:0 .*, 4 on cuda:0 "]),
                                   (["--device", "cuda:0,cuda:1"], TWO + ";apart", [apart, ": 4 of 8 layers on cuda:0 "]),
                                   (["--device", "cuda:0,cuda:1"], TWO + ";unlike", [unlike]),
                                   (["--gpu-layers", "5", "--device", "cuda:0,cuda:1"], TWO, [r"on cuda:0 \(\S+ MB\), \d on cuda:1 \(\S+ MB\), 3 on the CPU \(", "as --gpu-layers and --cpu-experts want it"]),
                                   (["--gpu-memory", "203M"], TWO, [r"layers on cuda:\d .* on cuda:\d .*, since one GPU has no room for it"]),
                                   (["--gpu-memory", "200M"], TWO, ["on the CPU .*, since the GPUs have no room for more"]),
                                   (["--split", "layer"], "sms=4;late;report", ["--split layer: there is one GPU"])):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, *options], folder, limits)
        yield f"tokens with {' '.join(options)} ({limits})", rc == 0 and out == cpu_text and all(re.search(w, err) for w in words) and NO_MEMORY_LEFT in err, f"{out!r} {cpu_text!r}\n{err}"
    for options, limits, words, n in ((["--tensor-parallel", "auto"], TWO, "a rank for each GPU", 2), (["--tensor-parallel", "auto"], THREE, "2 ranks, since 3 GPUs do not divide the heads", 2),
                                      (["--tp-size", "auto"], TWO + ";apart", "1 rank, since cuda:0 and cuda:1 do not reach", 1), (["--split", "tensor", "--device", "cuda:0,cuda:1"], TWO, "2 ranks", 2),
                                      (["--device", "cuda:0,cuda:1"], TWO, alike, 2), (["--tensor-parallel", "auto", "--device", "cpu"], TWO, "one rank, since auto counts GPUs", 1)):
        want = execute([f"{build}/mlxcel", *GENERATE, "--device", "cpu", "--threads", "1", "--tensor-parallel", str(n)])
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, *options], f"{folder}-threads", limits)
        yield f"tokens with {' '.join(options)} ({limits})", rc == want[0] == 0 and out == want[1] and words in err, f"{out!r} {want[1]!r}\n{err}"


def check_plans(build, folder):
    rc, out, err = execute([f"{build}/mlxcel", "inspect", "--split", "layer"], folder, TWO)
    yield "inspect", rc == 0 and re.search(r"^places        4 of 8 layers on cuda:0 \(\S+ MB\), 4 on cuda:1 \(\S+ MB\)$", out, re.M), out + err
    for limits, words in ((TWO, "2 GPUs are alike and reach each other's memory"), (TWO + ";apart", "2 GPUs do not reach each other's memory"), (TWO + ";unlike", "2 GPUs are of different kinds")):
        rc, out, err = execute([f"{build}/mlxcel", "doctor"], folder, limits)
        yield f"doctor ({limits})", words in out and "fit onto 2 GPUs" in out, out + err


def check_servers(build, folder):
    exact = ["--precision", "exact", "--parallel", "3", "--ctx-size", "256"]
    want = serve(build, None, "", 1, PROMPTS, "--device", "cpu", *exact)[0][0]
    for options, limits in ((["--pipeline-parallel", "2"], TWO), (["--device", "cuda:0,cuda:1,cuda:2", "--gpu-layers", "6"], THREE)):
        answers, rc, err = serve(build, folder, limits, 2, PROMPTS, *options, *exact)
        yield f"a server's answers, at once and again, {' '.join(options)}", rc == 0 and answers == [want, want] and want[0][0] == 200 and NO_MEMORY_LEFT in err, f"{answers} {want} {err}"
    answers, rc, err = serve(build, folder, "sms=4;second=7000;broken", 1, PROMPTS[:1], "--split", "layer")
    yield "a lost GPU's answer", any(a[0] == 500 and "failed on the server" in a[1] for a in answers[0]), str(answers)
    yield "a lost GPU's server", rc == 1 and "the device is lost" in err, f"{rc} {err}"
    answers, rc, err = serve(build, folder, "sms=4;memory=1000;second=700", 1, PROMPTS[:1], "--split", "layer")
    tokens = re.search(r"cache of (\d+) tokens", err)
    yield "a cache that fits the GPU with the least room", rc == 0 and answers[0][0][0] == 200 and tokens and 1024 < int(tokens.group(1)) < 200000, f"{answers}\n{err}"


def check_refusals(build, folder):
    for options, limits, words, code in ((["--pipeline-parallel", "3"], TWO, "--pipeline-parallel 3: GPUs that can be used here: 2", 2),
                                         (["--pipeline-parallel", "2", "--device", "cuda:0,cuda:1,cuda:0"], TWO, "must name a GPU for each of the 2", 2),
                                         (["--split", "layer", "--tensor-parallel", "2"], TWO, "--split layer and --tensor-parallel do not go together", 2),
                                         (["--pipeline-parallel", "2", "--split", "tensor"], TWO, "--split tensor does not", 2),
                                         (["--split", "layer", "--device", "cpu"], TWO, "--split layer is for GPUs, and this runs on cpu", 2),
                                         (["--split", "layer", "--device", "cuda:1"], TWO, "is one GPU; name several", 2),
                                         (["--device", "cuda:0,cuda:7"], TWO, "there is no GPU 7: the driver has 2", 2),
                                         (["--device", "cuda:0,tpu:1"], TWO, '"tpu:1" is no GPU', 2),
                                         (["--device", "cuda:1,cuda:1"], TWO, "names a GPU twice", 2),
                                         (["--split", "layer", "--kv-bits", "4"], TWO, "--kv-bits 4 is for the CPU", 2),
                                         (["--split", "layer", "--gpu-layers", "8", "--gpu-memory", "193M"], TWO, "layers on cuda:", 1),
                                         (["--split", "layer", "--draft", "mtp"], TWO, "a head that drafts is computed on the CPU or on one GPU", 1),
                                         (["--split", "layer"], TWO + ";grabbed=1", "emulator) has too little memory for model.", 1)):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, *options], folder, limits)
        yield f"refused: {' '.join(options)} ({limits})", rc == code and not out and words in err, f"{rc} {out} {err}"


def all_checks(build, folder, data):
    threads = f"{folder}-threads" # ranks are threads, and the emulator of this name runs them
    if not os.path.exists(f"{threads}/libcuda.so.1"):
        subprocess.run(["tests/cuda/emu/build.sh", threads, "-DEMU_THREADS"], cwd=ROOT, check=True, timeout=2 * HANG)
    cpu_text = execute([f"{build}/mlxcel", *GENERATE, "--device", "cpu"])[1]
    yield from check_tokens(build, folder, cpu_text)
    yield from check_refusals(build, folder)
    yield from check_plans(build, folder)
    yield from check_bits(build, folder, data)
    yield from check_servers(build, folder)
    yield from check_golden(build, folder, data)


if __name__ == "__main__":
    run_on_emulator(all_checks)
