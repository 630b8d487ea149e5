#!/usr/bin/env python3
"""Heads that draft: the checks of head_tests over all of tests/speculate/heads; then what cannot be had: one line says what is wrong, and nothing runs.

usage: test_heads.py PROGRAM HEAD_TESTS
"""
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HEADS = pathlib.Path(__file__).parent / "heads"
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from counting import HANG  # noqa: E402

program = sys.argv[1]
passed = failed = 0


def bench(model, *args):
    return subprocess.run([program, "bench", "-m", str(model), "-p", "8", "-n", "4", "-r", "1", "--device", "cpu", *map(str, args)], capture_output=True, text=True, timeout=HANG)


def check(name, ok, said):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(f"FAILED: {name}: {said}")


def refused(name, words, model, *args):
    r = bench(model, *args)
    lines = r.stderr.strip().splitlines()
    check(name, r.returncode not in (0, -6, -11) and lines and all(w in lines[-1] for w in words), (r.returncode, r.stdout, r.stderr))


def edited(folder, temp, config=None, tensors=None):
    """A copy whose config.json and tensors are changed; a tensor's function gets its bytes, None leaves it out."""
    copy = pathlib.Path(temp) / f"copy{len(list(pathlib.Path(temp).iterdir()))}"
    shutil.copytree(folder, copy)
    c = json.loads((copy / "config.json").read_text())
    c.update(config or {})
    (copy / "config.json").write_text(json.dumps(c))
    data = (copy / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    out, raw = {}, b""
    for name, t in header.items():
        if name == "__metadata__":
            continue
        part = body[t["data_offsets"][0]:t["data_offsets"][1]]
        change = next((f for pattern, f in (tensors or {}).items() if pattern in name), lambda b: b)
        if change is None:
            continue
        part = change(part)
        out[name] = {**t, "data_offsets": [len(raw), len(raw) + len(part)]}
        raw += part
    text = json.dumps(out).encode()
    (copy / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + raw)
    return copy


def head_tests(target, eagle):
    """Its lines, and its counts among ours."""
    global passed, failed
    own = sorted(str(f) for f in HEADS.iterdir() if f not in (target, eagle))
    r = subprocess.run([sys.argv[2], *own, f"{eagle}:{target}"], capture_output=True, text=True, timeout=HANG)
    lines = r.stdout.strip().splitlines()
    print("\n".join(lines[:-1]))
    counts = re.match(r"(\d+) passed, (\d+) failed", lines[-1] if lines else "")
    passed, failed = passed + int(counts[1] if counts else 0), failed + int(counts[2] if counts else 1)


def main():
    target, eagle = HEADS / "eagle-target", HEADS / "eagle"
    head_tests(target, eagle)
    with tempfile.TemporaryDirectory() as temp:
        r = bench(HEADS / "deepseek_v3", "--draft", "mtp")
        check("a head of the model's own runs", r.returncode == 0, r.stderr)
        r = bench(target, "--draft-model", eagle)
        check("a head of a folder runs", r.returncode == 0, r.stderr)
        refused("a checkpoint without a head", ["--draft mtp", "layers.7.eh_proj"], target, "--draft", "mtp")
        refused("half a head", ["layers.2.hnorm"], edited(HEADS / "deepseek_v3", temp, tensors={"hnorm": None}), "--draft", "mtp")
        refused("a head without its layer", ["mtp.layers.0"], edited(HEADS / "qwen3_5", temp, tensors={"mtp.layers.0.self_attn": None}), "--draft", "mtp")
        refused("another width", ["hidden_size is 48", "is 32"], target, "--draft-model", edited(eagle, temp, {"hidden_size": 48}))
        refused("another vocabulary", ["vocab_size is 99", "is 64"], target, "--draft-model", edited(eagle, temp, {"vocab_size": 99}))
        far = lambda b: b[:8] + struct.pack("<q", 1000) + b[16:]
        refused("tokens that the model lacks", ["d2t", "token 1", "1001"], target, "--draft-model", edited(eagle, temp, tensors={"d2t": far}))
        refused("no table of tokens", ["d2t"], target, "--draft-model", edited(eagle, temp, tensors={"d2t": None, "t2d": None}))
        refused("a smaller head than its config says", ["lm_head"], target, "--draft-model",
                edited(eagle, temp, {"draft_vocab_size": 64}, tensors={"d2t": None, "t2d": None}))
        refused("layers that the model lacks", ["eagle_aux_hidden_state_layer_ids", "7 layers"], target, "--draft-model",
                edited(eagle, temp, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}}))
        r = bench(target, "--draft-model", edited(eagle, temp, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}}))
        check("layers by config", r.returncode == 0, r.stderr)
        refused("a head as the model", ["embed_tokens"], eagle)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
