"""Pictures together with the rest: test_with_all.py PROGRAM DATA DOCS

Walks the table of docs/images.md that says what pictures go together with: a row without a test here, or a test without a row, is a failure. Rows that other
programs test name them. Answers are compared with those of plain requests about the same picture.
"""
import base64
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "server"), os.path.join(here, "..", "gguf")]
from harness import HANG, Server, check, finish  # noqa: E402
from writer import read_safetensors, safetensors_bytes  # noqa: E402

program, data, docs = sys.argv[1:4]
root, CHAT = f"{data}/golden-vision", "/v1/chat/completions"
QWEN, GEMMA = f"{root}/qwen2_5_vl", f"{root}/gemma3"
QUESTION = "What is in the image?"


def part(name="land.png"):
    with open(f"{root}/images/{name}", "rb") as f:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(f.read()).decode()}"}}


def body(n=24, picture="land.png", **more):
    return {"messages": [{"role": "user", "content": [part(picture), {"type": "text", "text": QUESTION}]}], "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}


def post(server, request, path=CHAT):
    status, _, text = server.request(path, request)
    return status, json.loads(text)


def said(server, request):
    status, answer = post(server, request)
    return answer["choices"][0]["message"]["content"] if status == 200 else f"{status} {answer}"


def serve(model, *flags):
    return Server(program, "-m", model, "--device", "cpu", *flags)


def sampling():
    """Ends, probabilities and seeds are those of the answer without them, from the prefix cache and without."""
    with serve(QWEN, "--precision", "exact") as s:
        whole = said(s, body())
        status, got = post(s, body(stop=[whole[6:9]]))
        check(status == 200 and got["choices"][0]["message"]["content"] == whole[:whole.index(whole[6:9])] and got["choices"][0]["finish_reason"] == "stop", f"a stop string: {got}")
        drawn = body(temperature=1.0, seed=7)
        first = said(s, drawn)
        check(first == said(s, {**drawn, "cache_prompt": False}) != said(s, {**drawn, "seed": 8}), f"a seed: {first!r}")
        status, got = post(s, body(4, logprobs=True, top_logprobs=5))
        top = got["choices"][0]["logprobs"]["content"][0]["top_logprobs"] if status == 200 else []
        golden = read_safetensors(f"{QWEN}/golden.safetensors")
        _, (rows, vocab), raw = golden["logits_0"]
        row = struct.unpack(f"<{vocab}f", raw[-4 * vocab:])
        most = max(row)
        total = most + math.log(sum(math.exp(x - most) for x in row))
        want = sorted((x - total for x in row), reverse=True)[:5]
        check(top and all(abs(t["logprob"] - w) < 1e-3 for t, w in zip(top, want)), f"log-probabilities {[t['logprob'] for t in top]} instead of {want}")


def drafts():
    """Guesses change nothing, and some come true: of few tokens a model makes a text that repeats itself."""
    few = {"logit_bias": {str(t): 50 for t in (40, 41, 42)}}
    for model in (QWEN, GEMMA):
        with serve(model) as s:
            want = [said(s, body(120, name, **few)) for name in ("land.png", "square.png")]
        with serve(model, "--draft", "ngram") as s:
            for name, text in zip(("land.png", "square.png"), want):
                check(said(s, body(120, name, **few)) == text, f"{model} {name}: the same text with drafts")
            m = s.metrics()
            check(m["mlxcel_draft_tokens_accepted_total"] > 0, f"{model}: {m['mlxcel_draft_tokens_total']} tokens were guessed, and none came true")


def small_numbers():
    """A cache of eight bits: the same answer from the prefix cache, beside others and alone."""
    for model in (QWEN, GEMMA):
        with serve(model, "--kv-bits", "8") as s:
            first = said(s, body())
            check(first == said(s, body()) == said(s, body(cache_prompt=False)), f"{model}: {first!r} in a cache of 8 bits")
            check(first != said(s, body(picture="square.png")), f"{model}: pictures make a difference in a cache of 8 bits")


def make_adapter(model, folder):
    """Numbers for the queries of every layer of the text model."""
    rng, tensors = random.Random(3), {}

    def matrix(rows, columns):
        return "F32", [rows, columns], struct.pack(f"<{rows * columns}f", *(rng.gauss(0, 0.3) for _ in range(rows * columns)))
    for name, (_, shape, _) in read_safetensors(f"{model}/model.safetensors").items():
        if re.search(r"\.layers\.\d+\.self_attn\.q_proj\.weight$", name) and "visual" not in name:
            tensors[f"base_model.model.{name[:-7]}.lora_A.weight"] = matrix(4, shape[1])
            tensors[f"base_model.model.{name[:-7]}.lora_B.weight"] = matrix(shape[0], 4)
    with open(f"{folder}/adapter_model.safetensors", "wb") as f:
        f.write(safetensors_bytes(tensors))
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}, f)


def adapters():
    """The model, and an adapter under its own name: each has its own prefix cache."""
    with tempfile.TemporaryDirectory() as folder:
        make_adapter(QWEN, folder)
        r = subprocess.run([program, "generate", "-m", QWEN, "--adapter", folder, "--image", f"{root}/images/land.png", "-p", QUESTION, "-n", "24", "--ignore-eos", "--device", "cpu", "--json"],
                           capture_output=True, text=True, timeout=HANG)
        want = json.loads(r.stdout)["text"] if r.returncode == 0 else r.stderr
        with serve(QWEN, "--adapter", f"other={folder}:0") as s:
            plain = said(s, body())
            check(said(s, body(model="other")) == want != plain, f"with an adapter: {said(s, body(model='other'))!r} instead of {want!r}; without: {plain!r}")
            check(said(s, body()) == plain, "and without it again")


def refused_by_server():
    with tempfile.TemporaryDirectory() as folder, serve(QWEN, "--context-shift", "--slot-save-path", folder, "--parallel", "1") as s:
        status, got = post(s, body())
        check(status == 400 and "pictures" in got["error"]["message"], f"--context-shift: {status} {got}")
    with tempfile.TemporaryDirectory() as folder, serve(QWEN, "--slot-save-path", folder, "--parallel", "1") as s:
        said(s, body())
        status, got = post(s, {"filename": "x"}, "/slots/0?action=save")
        check(status != 200 or got["n_saved"] == 0, f"a slot with pictures is saved: {status} {got}")


def refused_parts():
    with serve(QWEN) as s:
        for name, odd in (("audio", {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}), ("video", {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}),
                          ("low detail", {**part(), "image_url": {**part()["image_url"], "detail": "low"}})):
            status, got = post(s, {"messages": [{"role": "user", "content": [odd]}], "max_tokens": 1})
            check(status == 400 and (odd["type"] in got["error"]["message"] or "detail" in got["error"]["message"]), f"{name}: {status} {got}")


def ranks():
    r = subprocess.run([program, "generate", "-m", QWEN, "--tensor-parallel", "2", "--image", f"{root}/images/land.png", "-p", "x", "-n", "1", "--device", "cpu"], capture_output=True, text=True, timeout=HANG)
    check(r.returncode == 1 and "--tensor-parallel" in r.stderr.splitlines()[-1], f"ranks: {r.returncode} {r.stderr}")


ROWS = {
    "several pictures, and in earlier turns": "test_server.py",
    "streams, `n` above 1, penalties": "test_server.py",
    "log-probabilities, stop strings, seeds": sampling,
    "tools, JSON schemas, grammars": "test_server.py",
    "prefix cache, batches with text, preemption": "test_server.py",
    "drafts": drafts,
    "a cache of 8 bits": small_numbers,
    "adapters": adapters,
    "ranks": ranks,
    "`--context-shift`, saved slots": refused_by_server,
    "audio, video, `detail: low`": refused_parts,
    "GGUF and its mmproj files": "../gguf/test_small.py",
    "CUDA": "test_towers.py",
    "XLA": "../xla/test_jax.py",
}


def main():
    with open(f"{docs}/images.md", encoding="utf-8") as f:
        table = f.read().partition("| pictures together with | |\n|---|---|\n")[2].partition("\n\n")[0]
    told = [line.split("|")[1].strip() for line in table.splitlines()]
    check(told == list(ROWS), f"the rows of docs/images.md are {told}")
    for name, test in ROWS.items():
        if callable(test):
            test()
        else:
            check(os.path.isfile(os.path.join(here, test)), f"{name}: {test} is not there")
    finish()


main()
