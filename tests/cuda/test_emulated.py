#!/usr/bin/env python3
"""Decode of one row on emulated GPUs (tests/cuda/emu): a data-centre GPU, a GeForce with 99 KB of shared memory for a block, one with three
multiprocessors, and one with rings of one place. Products by themselves (cuda_one), a golden model against the CPU, the built-in model's tokens against the CPU's, a made-up model with experts against the reference; kernels/one.cu
must be what ran. Copies that name no stream have not arrived when others work. A launch that is a block short must end with a message; memory that others take must not stop
a step, and a lost GPU must end a server. Experts by themselves, beside the CPU's; GGUF files of K types. Needs a build with kernels for 9.0, whose images the emulator takes for its own, and g++.

usage: test_emulated.py BUILD
"""
import array
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests", "adapters")]
import gguf_shape
import random_adapter

SMALL = "-DMLXCEL_SMALL_SHARED"
GPUS = [("data centre", [], "sms=8;late;report"), ("GeForce", [SMALL], "sms=28;shared=101376;late;report"), ("three multiprocessors", [SMALL], "sms=3;shared=84000;late;report"),
        ("rings of one place", [SMALL], "sms=5;shared=64704;late;report")]
FIXTURES = ["affine-4-g64", "affine-8-g64", "affine-3-g128", "affine-5-g64", "mixed"]
GENERATE = ["generate", "--tokens", "1,2,3,40,50", "-n", "6"]


def execute(command, folder=None, limits="", **more):
    env = dict(os.environ, EMU_CUDA=limits, **more)
    if folder:
        env["LD_LIBRARY_PATH"] = folder
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT, timeout=1800)
    return run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace")


def ran_one(words):
    """Launches of kernels/one.cu, of the emulator's report."""
    return sum(int(n) for n in re.findall(r"^emu: one_\w+ (\d+) launches", words, re.M))


def check_rows(build, folder, limits):
    """Rows of one sequence in a step, as drafts are checked: each has the bits that it has with fewer rows behind it."""
    with tempfile.TemporaryDirectory() as room:
        logits, ran = [], []
        for n in range(1, 9):
            tokens, kernel = ",".join("1 2 3 40 5 6 7 8".split()[:n]), "one" if n == 1 else "few" if n <= 4 else "several"
            path = os.path.join(room, "logits")
            rc, out, err = execute([f"{build}/mlxcel", "logits", "--tokens", tokens, "-o", path, "--device", "cuda"], folder, limits)
            with open(path, "rb") as f:
                logits.append(f.read())
            ran.append(rc == 0 and re.search(rf"^emu: {kernel}_4_64 [1-9]", err, re.M) is not None)
        same = all(logits[-1].startswith(x) for x in logits)
        yield "the same bits with more rows", all(ran) and same and len(logits[-1]) == 8 * len(logits[0]), f"{ran} {[len(x) for x in logits]}"


def check_gpu(build, folder, limits, cpu_text):
    rc, out, err = execute([f"{build}/cuda_one"], folder, limits)
    yield "products", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M), out + err
    for name in FIXTURES if "sms=8" in limits else FIXTURES[:2]:
        rc, out, err = execute([f"{build}/golden_tests", "--backend", "cuda", "--precision", "auto", "--close", f"tests/golden/quant/{name}"], folder, limits)
        yield f"golden model {name}", rc == 0 and ran_one(err), out + err
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda", "--kv-bits", "8"], folder, limits)
    yield "tokens, with a cache of 8 bits", rc == 0 and out == cpu_text and re.search(r"^emu: one8_4_64 [1-9]", err, re.M) and "kv8_unpack_64" in err, f"{out!r}, on the CPU {cpu_text!r}\n{err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda"], folder, limits)
    yield "tokens", rc == 0 and out == cpu_text and ran_one(err), f"{out!r}, on the CPU {cpu_text!r}\n{err}"
    yield from check_rows(build, folder, limits)
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda"], folder, limits + ";lost")
    yield "a block that is not there", rc not in (0, 124) and "waited for each other in vain" in err and ran_one(err), out + err
    models = [("tiny-moe", "one_experts_64", [], 32), ("tiny-gemma", "one_post_256", [], 32)]
    if "shared=64704" not in limits:  # a tile of positions has no room beside such rings
        models += [("tiny-latent", "one_latent", [], 31), ("tiny-latents", "one_latent", [], 30)]  # as many as of a prompt, or one more
    if "shared=64704" not in limits:  # one place of a ring of one_mixed is larger than that
        models += [("tiny-oss", "one_mixed_64", [], 32), ("tiny-oss", "one8_mixed_64", ["--kv-bits", "8"], 32)]
    for shape, kernel, options, least in models:
        rc, out, err = execute([f"{build}/mlxcel", "bench", "--device", "cuda", "--shape", shape, "-p", "0", "-n", "2", "-b", "1", "--verify", *options], folder, limits)
        same = re.search(r"(\d+) one by one", err)
        yield f"{shape} by {kernel}", rc == 0 and same and int(same[1]) >= least and re.search(rf"^emu: {kernel} [1-9]", err, re.M), out + err
    rc, out, err = execute([f"{build}/checkkern", "--cuda", "--quick", "--only", "linear affine 4-bit g64 BF16 272"], folder, limits)
    yield "products of more rows", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M), out + err
    if "sms=28" in limits:
        yield from check_prompts(build, folder, limits)
        rc, out, err = execute([f"{build}/checkkern", "--cuda", "--only", "experts affine 4-bit g64, 4 of 32"], folder, limits)
        yield "experts of one pair each, with short rings", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M) and "emu: experts_some_down_4_4 " in err, out + err


def check_prompts(build, folder, limits):
    """Products of prompts in whole numbers (kernels/gemm_bytes.cu), which a GeForce alone has: of every kind of weight, with a gate, and a golden model."""
    for name, kernel in (("prompt affine 4-bit g64 264", "4"), ("prompt affine 4-bit g32 136", "4_32"), ("prompt affine 8-bit g64 with a gate", "8"), ("wide linear affine 8-bit g64 272 x 640, 40", "8")):
        rc, out, err = execute([f"{build}/checkkern", "--cuda", "--only", name], folder, limits)
        yield f"checkkern {name}", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M) and f"emu: gemm_bytes_{kernel} " in err, out + err
    rc, out, err = execute([f"{build}/checkkern", "--cuda", "--only", "prompt affine 4-bit g64"], folder, limits.replace("sms=28", "sms=1"))
    yield "wide blocks where there is work for them", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M) and "emu: gemm_bytes_wide_4 " in err, out + err
    rc, out, err = execute([f"{build}/golden_tests", "--backend", "cuda", "--precision", "auto", "--depth", "140", "tests/golden/quant/affine-4-g64"], folder, limits)
    yield "a prompt of a golden model", rc == 0 and "emu: gemm_bytes_4 " in err and "emu: gemm_bf16 " not in err, out + err


def check_gguf(build, folder):
    """Files of Q4_K and Q6_K, whose scales are f32 in groups of 32 and 16: logits near the CPU's, and no reference kernel."""
    for shape, other in (("tiny", {}), ("tiny-moe", {"expert_inner": 256})):
        with tempfile.TemporaryDirectory() as at:
            gguf_shape.write(shape, f"{at}/model.gguf", gguf_shape.MIX_Q4_K_M, **other)
            logits, err = {}, ""
            for device in "cpu", "cuda":
                rc, out, err = execute([f"{build}/mlxcel", "logits", "-m", f"{at}/model.gguf", "--tokens", "1,5,9,60,33,2,7", "--device", device, "-o", f"{at}/{device}"], folder, "sms=4;report")
                if rc == 0:
                    with open(f"{at}/{device}", "rb") as f:
                        logits[device] = array.array("f", f.read())
        far = max(abs(a - b) for a, b in zip(logits["cpu"], logits["cuda"])) / statistics.pstdev(logits["cpu"]) if len(logits) == 2 else float("nan")
        yield f"a GGUF file, {shape}", far < 0.1 and "emu: tile_pack" in err and not re.search(r"^emu: (linear_ref|experts_inner) ", err, re.M), f"{far} standard deviations from the CPU\n{err}"


def drafted(build, folder, shape):
    """Tokens that are drafted for a text with a word changed here and there."""
    text = {"prompt": "red ball, blue ball, green ball, old dog, young dog, big cat, small cat, tall tree, short tree, long road.",
            "answer": "red ball, blue box, green ball, old dog, young cat, big cat, small cat, tall house, short tree, long road, red ball, blue ball, green box."}
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "text.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(text, f)
        rc, out, err = execute([f"{build}/mlxcel", "bench", "--device", "cuda", "--shape", shape, "--bits", "4", "--replay", path, "--draft", "ngram", "-r", "1", "-o", "json"], folder, "sms=2")
    return (json.loads(out)[0]["draft_tokens"] if rc == 0 else -1), err


def check_beside(build, folder):
    """What is computed beside a model: drafts, heads that draft from its states, adapters."""
    (dense, words), (experts, more) = (drafted(build, folder, shape) for shape in ("tiny", "tiny-moe"))
    yield "drafts are longer where a step of several rows is one list", dense > experts + 10 > 20, f"{dense} {experts} {words} {more}"
    at = "tests/speculate/heads/"
    heads = [at + n for n in ("deepseek_v3", "glm4_moe", "qwen3_next", "qwen3_5")] + [f"{at}eagle:{at}eagle-target"]
    rc, out, err = execute([f"{build}/head_tests", "--backend", "cuda", "--quick", *heads], folder, "sms=2")
    yield "heads that draft", rc == 0 and f"{len(heads)} passed, 0 failed" in out, out + err
    rc, out, err = execute([sys.executable, "tests/adapters/test_adapters.py", f"{build}/mlxcel", "cuda"], folder, "sms=2")
    with tempfile.TemporaryDirectory() as at:
        flags = [f"--adapter={name}=" + random_adapter.make_adapter(os.path.join(at, name), i) for i, name in enumerate(("one", "two"))]
        asks = [{"prompt": "The", "max_tokens": 4, "temperature": 0, "model": m} for m in ("built-in", "one", "built-in", "two", "one")]
        texts = {d: [json.loads(text)["choices"][0]["text"] for _, text in ask_server(build, folder, "sms=2", asks, True, "-m", "built-in", *flags, "--parallel", "2", "--ctx-size", "128", device=d)[0]]
                 for d in ("cpu", "cuda")}
        yield "requests with and without adapters in turn", texts["cpu"] == texts["cuda"] and len(set(texts["cpu"])) == 3, str(texts)
    yield "adapters", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M), out + err


def check_faults(build, folder, cpu_text):
    """Memory that others take while a step runs, or that is not there; experts; servers."""
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda"], folder, "sms=4;report;taken")
    yield "memory that others take", rc == 0 and out == cpu_text and ran_one(err), out + err
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda"], folder, "sms=4;memory=258")
    yield "a GPU without room", rc == 0 and out == cpu_text and "since the GPU has no room for more" in err, out + err
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda", "--force"], folder, "sms=4;memory=258")
    yield "the same by force", rc == 1 and not out and "GPU 0 (emulator) has too little memory for" in err and "GiB wanted" in err, out + err
    rc, out, err = execute([f"{build}/unit_tests", "device.turn_by_turn"], folder, "sms=4", MLXCEL_TEST_DEVICE="cuda")
    yield "two models on one GPU", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M), out + err
    rc, out, err = execute([f"{build}/checkkern", "--cuda", "--only", "experts"], folder, "sms=4;report")
    yield "experts", rc == 0 and "0 failed" in out and all(f"experts_{k}_{f} " in err for k in ("few_down", "many_down") for f in ("t4", "8", "16", "fp4")) and all(f"experts_some_down_{f}_{n} " in err for f, n in (("8", 4), ("4", 8), ("fp4", 4), ("fp4", 8), ("fp4", 16))) and all(f"wexperts_down_fp4{f} " in err for f in ("", "_batch")), out + err
    rc, out, err = execute([sys.executable, "tests/server/test_slots.py", f"{build}/mlxcel", "cuda"], folder, "sms=4")
    yield "slots that are saved and restored", rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed", out, re.M), out + err
    yield from check_beside(build, folder)
    yield from check_gguf(build, folder)
    yield from check_servers(build, folder)
    yield from check_grammar(build, folder)
    yield from check_batches(build, folder)


def ask_server(build, folder, limits, prompts, stop, *options, device="cuda"):
    """A server's answers (status, text) to prompts or whole requests, then its exit code and messages; stop: it is told to end."""
    env = dict(os.environ, LD_LIBRARY_PATH=folder, EMU_CUDA=limits)
    server = subprocess.Popen([f"{build}/mlxcel", "serve", "--device", device, "--port", "0", "--log-format", "json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    url, answers = json.loads(server.stdout.readline())["url"] + "/v1/completions", []
    for prompt in prompts:
        body = prompt if isinstance(prompt, dict) else {"prompt": prompt, "max_tokens": 4}
        ask = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(ask, timeout=100) as reply:
                answers.append((reply.status, reply.read().decode()))
        except urllib.error.HTTPError as e:
            answers.append((e.code, e.read().decode()))
    if stop:
        server.terminate()
    try:
        err = server.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        server.kill()
        err = "it does not end: " + server.communicate()[1]
    return answers, server.returncode, err


def check_servers(build, folder):
    """A lost GPU: the request is told, and the server ends with the reason, also where every step is waited for. Otherwise the thread that closes a
    model is not the one that loaded it, and gives all memory back; and a kernel that runs for the first time finds its memory."""
    for limits in "sms=4;broken", "sms=4;broken;display":
        answers, rc, err = ask_server(build, folder, limits, ["A"], False)
        yield f"a lost GPU's answer ({limits})", answers[0][0] == 500 and "failed on the server" in answers[0][1], str(answers)
        yield f"a lost GPU's server ({limits})", rc == 1 and "the device is lost" in err, f"{rc} {err}"
    answers, rc, err = ask_server(build, folder, "sms=4;report;taken", ["A", "One two three four five six seven eight nine ten eleven twelve."], True)
    yield "a longer prompt when memory is taken", [a[0] for a in answers] == [200, 200] and "qmm" in err, f"{answers} {err}"
    answers, _, words = ask_server(build, folder, "sms=4", ["One two three four five six seven eight nine ten eleven twelve."], True, "--batch-size", "8")
    yield "a prompt in chunks, of which only the last has logits", answers and answers[0][0] == 200, f"{answers} {words}"
    yield "memory that a server gives back", rc == 0 and "emu: 0 pieces of memory left" in err, f"{rc} {err}"


def check_grammar(build, folder):
    """Answers of one request that obey the same grammar share masks: they are the CPU's, each another."""
    body = {"prompt": "A", "n": 4, "seed": 5, "temperature": 1, "guided_regex": "[a-d]{3}x[0-9]{2}", "max_tokens": 12}
    texts = []
    for device in "cpu", "cuda":
        answers, _, words = ask_server(build, folder, "sms=4", [body], True, "--precision", "exact", device=device)
        texts.append([c["text"] for c in json.loads(answers[0][1])["choices"]] if answers[0][0] == 200 else words)
    yield "answers that obey one grammar", texts[0] == texts[1] and len(set(texts[0])) > 1 and all(re.fullmatch(body["guided_regex"], t) for t in texts[0]), str(texts)


def check_batches(build, folder):
    """Twelve answers at once, of which each token's probability is the CPU's."""
    body = {"prompt": "The", "n": 12, "seed": 5, "temperature": 1, "max_tokens": 8, "logprobs": 1}
    found, words = [], ""
    for device in "cpu", "cuda":
        answers, _, words = ask_server(build, folder, "sms=8;late;report", [body], True, "--parallel", "12", "--ctx-size", "64", device=device)
        found.append([c["logprobs"] for c in json.loads(answers[0][1])["choices"]] if answers[0][0] == 200 else [])
    far = [abs(p - q) for a, b in zip(*found) if a["tokens"] == b["tokens"] for p, q in zip(a["token_logprobs"], b["token_logprobs"])]
    n = sum(len(a["tokens"]) for a in found[0])
    yield "twelve answers at once", n >= 60 and len(far) >= 0.9 * n and max(far) < 0.1 and re.search(r"^emu: attn_new_short_64 [1-9]", words, re.M), f"{len(far)} of {n} tokens, at most {max(far, default=0)} apart\n{words}"


def skip(why):
    print(f"skipped: {why}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def main():
    build = os.path.abspath(sys.argv[1])
    if not shutil.which("g++") or os.uname().machine not in ("x86_64", "aarch64"):
        skip("the emulator needs g++, and x86_64 or aarch64")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as top:
        cpu_text = execute([f"{build}/mlxcel", *GENERATE, "--device", "cpu"])[1]
        for name, flags, limits in GPUS:
            folder = os.path.join(top, "small" if flags else "large")
            rc, out, err = execute(["tests/cuda/emu/build.sh", folder, *flags])
            if rc:
                print(f"FAILED {name}: the emulator does not build\n{err}")
                failed += 1
                continue
            if execute([f"{build}/cuda_one"], folder, limits)[1].startswith("skipped"):
                skip("the build has no kernels for 9.0 (cmake -DMLXCEL_CUDA=on -DMLXCEL_CUDA_ARCHS=90a)")
            checks = check_gpu(build, folder, limits, cpu_text)
            for what, ok, words in checks if flags else itertools.chain(checks, check_faults(build, folder, cpu_text)):
                passed += bool(ok)
                failed += not ok
                if not ok:
                    print(f"FAILED {name}, {what}:\n{words[-2000:]}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
