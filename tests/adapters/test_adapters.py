#!/usr/bin/env python3
"""Adapters beside a model: logits against those of PEFT and mlx-lm (fixtures of make_adapters.py), scales, several at once, folders that are refused.

usage: test_adapters.py PROGRAM [DEVICE]     last line: "N passed, N failed"
"""
import array
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from counting import HANG, check, finish  # noqa: E402

sys.path.insert(0, os.path.join(HERE, "..", "gguf"))
from writer import bf16_to_f32, read_safetensors, safetensors_bytes  # noqa: E402

PROGRAM = sys.argv[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
FIXTURES = os.path.join(HERE, "fixtures")
CASES = sorted(n for n in os.listdir(FIXTURES) if os.path.exists(os.path.join(FIXTURES, n, "case.json")))
CLOSE = 2e-5  # of the logits' standard deviation: float32 in another order


def fixture(name):
    return os.path.join(FIXTURES, name)


def case(name):
    with open(os.path.join(fixture(name), "case.json")) as f:
        c = json.load(f)
    with open(os.path.join(fixture(name), "logits.f32"), "rb") as f:
        return fixture(c["base"]), c["ids"], array.array("f", f.read())


def run(*args):
    device = ["--device", DEVICE] if args[0] in ("logits", "generate") else []
    return subprocess.run([PROGRAM, *args, *device], capture_output=True, text=True, timeout=HANG, stdin=subprocess.DEVNULL)


def logits(base, ids, *adapters, more=("--precision", "exact")):
    with tempfile.NamedTemporaryFile() as out:
        flags = [flag for a in adapters for flag in ("--adapter", a)]
        r = run("logits", "-m", base, "--tokens", ",".join(map(str, ids)), "-o", out.name, *more, *flags)
        check(r.returncode == 0, f"{base} {adapters}: {r.stderr}")
        return array.array("f", open(out.name, "rb").read())


def distance(a, b):
    """The largest difference in standard deviations of b."""
    if len(a) != len(b):
        return float("inf")
    mean = sum(b) / len(b)
    sd = (sum((v - mean) ** 2 for v in b) / len(b)) ** 0.5
    return max(abs(x - y) for x, y in zip(a, b)) / sd


def references():
    for name in CASES:
        base, ids, want = case(name)
        d = distance(logits(base, ids, fixture(name)), want)
        check(d < CLOSE, f"{name}: {d:.2g} sd from the reference")
        d = distance(logits(base, ids, fixture(name), more=()), want)
        check(d < 0.05, f"{name}, in the usual precision: {d:.2g} sd from the reference")
        check(distance(logits(base, ids), want) > 0.1, f"{name} does something")


def scales():
    base, ids, want = case("peft-plain")
    plain, other = logits(base, ids), fixture("peft-all")
    check(logits(base, ids, fixture("peft-plain") + ":0") == plain, "scale 0 has the bits of none")
    check(logits(base, ids, "some=" + fixture("peft-plain")) == logits(base, ids, fixture("peft-plain") + "/"), "a name, and a slash behind the folder")
    half = logits(base, ids, fixture("peft-plain") + ":0.5")
    check(0.01 < distance(half, plain) < distance(want, plain), "half of it is less")
    twice = logits(base, ids, "a=" + fixture("peft-plain") + ":0.5", "b=" + fixture("peft-plain") + ":0.5")
    check(distance(twice, want) < CLOSE, "two halves are the whole")
    both = logits(base, ids, fixture("peft-plain"), other)
    turned = logits(base, ids, other, fixture("peft-plain"))
    check(distance(both, turned) < CLOSE < 0.01 < distance(both, want), "two at once, in any order")


def commands():
    base, ids, want = case("peft-plain")
    n = len(want) // len(ids)
    first = max(range(n), key=lambda i: want[-n:][i])
    args = ("generate", "-m", base, "--tokens", ",".join(map(str, ids)), "--ids", "-n", "1", "--temperature", "0", "--ignore-eos")
    r = run(*args, "--adapter", fixture("peft-plain"))
    check(r.returncode == 0 and r.stdout.split() == [str(first)], f"generate: {r} instead of {first}")


def tensors_of(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(size)), f.read()


def write_tensors(path, header, data):
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def refused(folder):
    def attempt(what, words, base="llama", source="peft-plain", config=None, header=None, flags=()):
        target = os.path.join(folder, "broken")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(fixture(source), target)
        if config:
            path = os.path.join(target, "adapter_config.json")
            settings = json.load(open(path))
            config(settings)
            json.dump(settings, open(path, "w"))
        if header:
            path = next(os.path.join(target, n) for n in os.listdir(target) if n.endswith(".safetensors"))
            names, data = tensors_of(path)
            write_tensors(path, header(names) or names, data)
        r = run("logits", "-m", fixture(base), "--tokens", "1,2", "-o", os.path.join(folder, "out"), "--adapter", target, *flags)
        lines = r.stderr.strip().splitlines()
        check(r.returncode in (1, 2) and words in lines[-1], f"{what}: {r.returncode} {r.stderr}")

    def rename(old, new):
        return lambda h: {k.replace(old, new): v for k, v in h.items()}

    def reshape(h):
        for v in h.values():
            if "shape" in v:
                v["shape"] = v["shape"][::-1]

    attempt("another model's", "no place for", base="phi3")
    attempt("another width", "goes from", header=rename("v_proj", "o_proj"))
    attempt("a module that is not there", "no place for", header=rename("q_proj", "z_proj"))
    attempt("a layer that is not there", "no place for", header=rename("layers.1.", "layers.7."))
    attempt("a norm", "is no part of an adapter", header=lambda h: {k.replace("lora_A.weight", "weight") if "layers.0" in k else k: v for k, v in h.items()})
    attempt("one matrix alone", "lacks one", header=lambda h: {k.replace("lora_A", "lora_A2.x.lora_A") if "layers.0.self_attn.q" in k else k: v for k, v in h.items()})
    attempt("a layer as an embedding", "embedding", header=lambda h: {k.replace("lora_A.weight", "lora_embedding_A").replace("lora_B.weight", "lora_embedding_B"): v for k, v in h.items()})
    attempt("an embedding as a layer", "embedding", header=rename("layers.0.self_attn.q_proj", "embed_tokens"))
    attempt("shapes turned over", "ranks", header=reshape)
    for key, value in (("peft_type", "IA3"), ("bias", "all"), ("modules_to_save", ["lm_head"]), ("lora_bias", True), ("fan_in_fan_out", True),
                       ("layer_replication", [[0, 1]]), ("trainable_token_indices", [1])):
        attempt(f"{key} {value}", "IA3" if key == "peft_type" else key, config=lambda c, key=key, value=value: c.__setitem__(key, value))
    attempt("a pattern", "alpha_pattern", config=lambda c: c.__setitem__("alpha_pattern", {"^q.*": 2}))
    attempt("no alpha", "no usable number", config=lambda c: c.pop("lora_alpha"))
    attempt("a huge alpha", "no usable number", config=lambda c: c.__setitem__("lora_alpha", 1e300))
    attempt("whole weights", "full", source="mlx-lora", base="llama-q4", config=lambda c: c.__setitem__("fine_tune_type", "full"))
    attempt("no scale", "lora_parameters.scale", source="mlx-lora", base="llama-q4", config=lambda c: c.pop("lora_parameters"))
    for flag, words in (("/nowhere", "neither"), (fixture("llama"), "neither"), (fixture("peft-plain") + ":1000", "within"), ("=", "names no folder")):
        r = run("logits", "-m", fixture("llama"), "--tokens", "1,2", "-o", os.path.join(folder, "out"), "--adapter", flag)
        check(r.returncode in (1, 2) and words in r.stderr, f"--adapter {flag}: {r.stderr}")
    r = run("logits", "-m", fixture("qwen2"), "--tokens", "1,2", "-o", os.path.join(folder, "out"), "--adapter", fixture("peft-dora") + ":0.5")
    check(r.returncode in (1, 2) and "DoRA" in r.stderr, f"half of a DoRA: {r.stderr}")
    same = ["--adapter", fixture("peft-plain")] * 2
    r = run("logits", "-m", fixture("llama"), "--tokens", "1,2", "-o", os.path.join(folder, "out"), *same)
    check(r.returncode == 2 and "two adapters" in r.stderr, f"one name twice: {r.stderr}")


def in_f32(base, folder):
    """The model with numbers of f32: what is added to them is not rounded away."""
    shutil.copytree(base, folder)
    header = {}
    for name, (kind, shape, data) in read_safetensors(os.path.join(base, "model.safetensors")).items():
        data = bf16_to_f32(data) if kind == "BF16" else data
        header[name] = ("F32" if kind == "BF16" else kind, shape, data)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(safetensors_bytes(header))
    return folder


def fused(folder):
    for name in CASES:
        base, ids, want = case(name)
        new, packed = os.path.join(folder, "fused-" + name), base.endswith("q4")
        if not packed:
            base = in_f32(base, os.path.join(folder, "f32-" + name))
        r = run("fuse", "-m", base, "--adapter", fixture(name), "-o", new)
        if name == "peft-tied":
            check(r.returncode == 1 and "is the embedding's matrix" in r.stderr, f"fuse {name}: {r.stderr}")
            continue
        check(r.returncode == 0 and "matrices changed" in r.stderr, f"fuse {name}: {r.stderr}")
        d = distance(logits(new, ids), want)
        bar = distance(logits(base, ids), want) / 2 if packed else CLOSE  # four bits again cost something
        check(d < bar, f"{name}, fused: {d:.2g} sd from the reference, bar {bar:.2g}")
        if packed:
            config = [json.load(open(os.path.join(p, "config.json"))).get("quantization") for p in (base, new)]
            check(config[0] and config[0] == config[1], f"{name}, fused: {config}")
            r = run("fuse", "-m", base, "--adapter", fixture(name), "--dequantize", "-o", new + "-plain")
            d = distance(logits(new + "-plain", ids), want)
            check(d < 0.05, f"{name}, fused and plain: {d:.2g} sd from the reference")
            kinds = {kind for kind, _, _ in read_safetensors(os.path.join(new + "-plain", "model.safetensors")).values()}
            check(kinds == {"BF16"}, f"{name}, fused and plain: {kinds}")
    base = fixture("llama-q4")
    r = run("fuse", "-m", base, "--dequantize", "-o", os.path.join(folder, "plain"))
    check(distance(logits(os.path.join(folder, "plain"), [3, 17, 60]), logits(base, [3, 17, 60])) < 0.05, f"no adapter, plain: {r.stderr}")
    r = run("fuse", "-m", base, "--adapter", fixture("peft-fused"), "-o", os.path.join(folder, "none"))
    check(r.returncode == 1 and "no place for" in r.stderr and not os.path.exists(os.path.join(folder, "none")), f"another model's: {r.stderr}")
    r = run("fuse", "-m", base, "-o", os.path.join(folder, "none"))
    check(r.returncode == 2 and "--adapter DIR is missing" in r.stderr, f"without adapters: {r.stderr}")


def edited(folder):
    """Edits by pattern: numbers against those that they should be."""
    a, b = fixture("llama"), in_f32(fixture("llama"), os.path.join(folder, "other"))
    mine = in_f32(a, os.path.join(folder, "mine"))
    name = "model.layers.0.mlp.up_proj.weight"
    tensors = read_safetensors(os.path.join(b, "model.safetensors"))
    values = array.array("f", tensors[name][2])
    tensors[name] = (*tensors[name][:2], array.array("f", [v * v + 1 for v in values]).tobytes())
    with open(os.path.join(b, "model.safetensors"), "wb") as f:
        f.write(safetensors_bytes(tensors))
    other = array.array("f", tensors[name][2])
    cases = {
        "scale": ("factor = 0.5", lambda v, o: v * 0.5), "add": (f'source = "{b}"\nalpha = 2', lambda v, o: v + 2 * o),
        "interpolate": (f'source = "{b}"\nratio = 0.25', lambda v, o: 0.75 * v + 0.25 * o), "replace": (f'source = "{b}"', lambda v, o: o)}
    for op, (rest, what) in cases.items():
        file, new = os.path.join(folder, op + ".toml"), os.path.join(folder, "edited-" + op)
        with open(file, "w") as f:
            f.write(f'[[edit]]\nop = "{op}"\npattern = "*.0.mlp.up_proj"\n{rest}\n')
        r = run("fuse", "-m", mine, "--surgery", file, "-o", new)
        got = read_safetensors(os.path.join(new, "model.safetensors")) if r.returncode == 0 else {}
        check(got and array.array("f", got[name][2]) == array.array("f", map(what, values, other)), f"{op}: {r.stderr}")
        check(got and all(got[k] == v for k, v in tensors.items() if k != name), f"{op}: the others")
    for text, words in {'[[edit]]\nop = "prune"\npattern = "*"': "lacks granularity", '[[edit]]\nop = "cut"': "op is scale", '[[edit]]\nop = "scale"\npattern = "*"': "lacks factor",
                        '[[edit]]\nop = "scale"\nfactor = 2\npattern = "x*"': "matches no weight", 'a = 1': "expected tables of [[edit]]",
                        '[[edit]]\nop = "scale"\nfactor = 2\npattern = "*"\nalpha = 1': "no use for alpha"}.items():
        with open(os.path.join(folder, "bad.toml"), "w") as f:
            f.write(text)
        r = run("fuse", "-m", mine, "--surgery", os.path.join(folder, "bad.toml"), "-o", os.path.join(folder, "bad"))
        check(r.returncode == 2 and words in r.stderr and not os.path.exists(os.path.join(folder, "bad")), f"{text}: {r.stderr}")


def main():
    references()
    scales()
    commands()
    if DEVICE != "cpu":  # the rest computes nothing, or does so on the CPU
        return finish()
    with tempfile.TemporaryDirectory() as folder:
        fused(folder)
        edited(folder)
    with tempfile.TemporaryDirectory() as folder:
        refused(folder)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
