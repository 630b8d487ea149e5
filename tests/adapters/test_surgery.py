#!/usr/bin/env python3
"""Parts taken out of models: logits against the same model with those parts taken out, or their columns set to zero, by this script; slerp; YAML.

usage: test_surgery.py PROGRAM [DATA]      last line: "N passed, N failed[, N skipped]"
"""
import array
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from counting import HANG, check, finish, parts, skip  # noqa: E402

sys.path.insert(0, os.path.join(HERE, "..", "gguf"))
from writer import bf16_to_f32, read_safetensors, safetensors_bytes  # noqa: E402

PROGRAM = sys.argv[1]
DATA = os.path.join(sys.argv[2], "golden") if len(sys.argv) > 2 else None
FIXTURES = os.path.join(HERE, "fixtures")
IDS = [3, 17, 60, 5, 9, 44, 2, 31]
CLOSE = 2e-5  # of the logits' standard deviation: float32 in another order
SIZE = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1}
PARTS = {"layer": "layer_ids", "attention_head": "head_ids", "mlp_channel": "channel_ids"}


def run(*args, env=None):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=HANG, stdin=subprocess.DEVNULL, env=env)


def logits(model):
    with tempfile.NamedTemporaryFile() as out:
        r = run("logits", "-m", model, "--tokens", ",".join(map(str, IDS)), "-o", out.name, "--precision", "exact", "--device", "cpu")
        return array.array("f", open(out.name, "rb").read()) if check(r.returncode == 0, f"{model}: {r.stderr}") else []


def distance(a, b):
    """The largest difference in standard deviations of b."""
    if len(a) != len(b) or len(a) == 0:
        return float("inf")
    mean = sum(b) / len(b)
    sd = (sum((v - mean) ** 2 for v in b) / len(b)) ** 0.5
    return max(abs(x - y) for x, y in zip(a, b)) / sd


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def prune_text(granularity, ids, pattern=None):
    line = f'pattern = "{pattern}"\n' if pattern else ""
    return f'[[edit]]\nop = "prune"\ngranularity = "{granularity}"\n{PARTS[granularity]} = {json.dumps(ids)}\n{line}'


def fuse(folder, model, text, new, *more, ending=".toml"):
    target = os.path.join(folder, new)
    r = run("fuse", "-m", model, "--surgery", write(target + ending, text), "-o", target, *more)
    return target, r


def changed(folder, model, new, change):
    """A copy of a model whose tensors and config `change` makes others."""
    target = os.path.join(folder, new)
    shutil.copytree(model, target)
    tensors = read_safetensors(os.path.join(model, "model.safetensors"))
    with open(os.path.join(model, "config.json")) as f:
        config = json.load(f)
    tensors = change(tensors, config) or tensors
    os.chmod(target, 0o755)
    for name, data in (("model.safetensors", safetensors_bytes(tensors)), ("config.json", json.dumps(config).encode())):
        os.remove(os.path.join(target, name))
        with open(os.path.join(target, name), "wb") as f:
            f.write(data)
    return target


def zero_columns(tensors, name, columns):
    kind, shape, data = tensors[name]
    size, data = SIZE[kind], bytearray(data)
    for r in range(shape[0]):
        for c in columns:
            at = (r * shape[1] + c) * size
            data[at:at + size] = bytes(size)
    tensors[name] = (kind, shape, bytes(data))


def text_of(model):
    with open(os.path.join(model, "config.json")) as f:
        config = json.load(f)
    return config.get("text_config", config)


def layer_names(model, end):
    names = read_safetensors(os.path.join(model, "model.safetensors"))
    return sorted(n for n in names if n.endswith(end))


def golden(*names):
    """Folders of the golden models, those that are there."""
    if not DATA or not os.path.isdir(DATA):
        skip("the golden models: no test data")
        return []
    return [os.path.join(DATA, n) for n in names]


# ---- heads and channels: the same numbers as with their columns set to zero --------------------------------------------------------


def head_case(folder, model, heads, end="self_attn.o_proj.weight", kv=None):
    name = os.path.basename(model)
    config = text_of(model)
    n, hidden = config["num_attention_heads"], config["hidden_size"]
    width = config.get("head_dim") or hidden // n
    columns = [h * width + i for h in heads for i in range(width)]
    want = changed(folder, model, name + "-zeros", lambda tensors, _: [zero_columns(tensors, t, columns) for t in layer_names(model, end)] and None)
    got, r = fuse(folder, model, prune_text("attention_head", heads), name + "-heads")
    if not check(r.returncode == 0, f"{name}: {r.stderr}"):
        return
    new = text_of(got)
    check(new["num_attention_heads"] == n - len(heads), f"{name}: {new}")
    check(new.get("num_key_value_heads", n - len(heads)) == (kv or n - len(heads)), f"{name}: {new}")
    d = distance(logits(got), logits(want))
    check(d < CLOSE, f"{name} without heads {heads}: {d:.2g} sd")


def heads(folder):
    for model, gone, kv in (("llama", [0, 1], 1), ("llama", [1, 3], 2), ("qwen2", [2, 3], 1)):
        config = text_of(os.path.join(FIXTURES, model))
        if config["num_attention_heads"] == 4 and config["num_key_value_heads"] == 2:
            with tempfile.TemporaryDirectory() as inner:
                head_case(inner, os.path.join(FIXTURES, model), gone, kv=kv)
        else:
            check(False, f"{model} is not the model that this test was made for")
    for model in golden("gemma3", "phi3", "gpt_oss", "qwen3", "qwen3_next", "llama-bias", "stablelm"):
        config = text_of(model)
        n, kv = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
        if kv > 1:
            head_case(folder, model, list(range(n // kv)), kv=kv - 1)
        else:
            head_case(folder, model, [n - 1], kv=1)


def channel_case(folder, model, ids, end=".down_proj.weight"):
    name = os.path.basename(model)
    wide = text_of(model)["intermediate_size"]
    columns = [c for i in ids for c in (range(int(i.split("-")[0]), int(i.split("-")[1]) + 1) if isinstance(i, str) else [i])]
    want = changed(folder, model, name + "-czeros", lambda tensors, _: [zero_columns(tensors, t, columns) for t in layer_names(model, end)] and None)
    got, r = fuse(folder, model, prune_text("mlp_channel", ids), name + "-channels")
    if check(r.returncode == 0, f"{name}: {r.stderr}"):
        check(text_of(got)["intermediate_size"] == wide - len(columns), f"{name}: {text_of(got)}")
        d = distance(logits(got), logits(want))
        check(d < CLOSE, f"{name} without channels {ids}: {d:.2g} sd")


def channels(folder):
    channel_case(folder, os.path.join(FIXTURES, "llama"), [0, 7, "16-31"])
    channel_case(folder, os.path.join(FIXTURES, "qwen2"), ["3-10"])
    for model in golden("gemma3", "phi3", "nemotron"):
        channel_case(folder, model, [1, "8-23"])


# ---- layers: the same tensors under other numbers -------------------------------------------------------------------------------------


def without_layers(gone, n):
    def change(tensors, config):
        text, out = config.get("text_config", config), {}
        for name, value in tensors.items():
            before, found, rest = name.partition("layers.")
            number, _, rest = rest.partition(".")
            if found and int(number) in gone:
                continue
            out[f"{before}layers.{int(number) - sum(g < int(number) for g in gone)}.{rest}" if found else name] = value
        text["num_hidden_layers"] = n - len(gone)
        for key, value in text.items():
            if key in ("layer_types", "no_rope_layers", "mlp_layer_types") and isinstance(value, list):
                text[key] = [v for i, v in enumerate(value) if i not in gone]
        return out
    return change


def layers(folder):
    models = [os.path.join(FIXTURES, "llama"), os.path.join(FIXTURES, "llama-q4"), *golden("gemma3", "qwen3-qmixed", "smollm3", "lfm2", "gpt_oss")]
    for model in models:
        name, n = os.path.basename(model), text_of(model)["num_hidden_layers"]
        gone = [0] if n == 2 else [0, n - 2]
        got, r = fuse(folder, model, prune_text("layer", gone), name + "-layers")
        if not check(r.returncode == 0, f"{name}: {r.stderr}"):
            continue
        new = text_of(got)
        check(new["num_hidden_layers"] == n - len(gone) and len(new.get("layer_types") or [0] * (n - len(gone))) == n - len(gone), f"{name}: {new}")
        if name == "qwen3-qmixed":  # formats by path have other numbers then
            check(logits(got), f"{name} without layers {gone}")
            continue
        want = changed(folder, model, name + "-cut", without_layers(gone, n))
        a, b = logits(got), logits(want)
        check(a == b, f"{name} without layers {gone}: {distance(a, b):.2g} sd")


# ---- what cannot be cut evenly -----------------------------------------------------------------------------------------------------------


def uneven(folder):
    """Heads of one layer only: zeros in its projection, and the shapes as they were."""
    model = os.path.join(FIXTURES, "llama")
    width = text_of(model)["hidden_size"] // text_of(model)["num_attention_heads"]
    name = "model.layers.1.self_attn.o_proj.weight"
    want = changed(folder, model, "one-zeros", lambda tensors, _: zero_columns(tensors, name, range(3 * width, 4 * width)))
    got, r = fuse(folder, model, prune_text("attention_head", [3], "model.layers.1.self_attn.*"), "one-head")
    check(r.returncode == 0 and "set to zero" in r.stderr, f"one layer's head: {r.stderr}")
    tensors = [read_safetensors(os.path.join(p, "model.safetensors")) for p in (got, want)]
    check(tensors[0] == tensors[1] and text_of(got) == text_of(want), "one layer's head: other bytes than zeros")
    got, r = fuse(folder, model, prune_text("attention_head", [3]), "one-of-a-group")
    check(r.returncode == 0 and "set to zero" in r.stderr, f"one of two heads that share keys: {r.stderr}")
    check(text_of(got)["num_attention_heads"] == 4, "one of two heads that share keys")


def borrowed(folder):
    """Layers that read the keys of others cannot lose other key heads than those."""
    for model in golden("gemma3n"):
        config = text_of(model)
        n, heads, kv, width = (config[k] for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"))
        each, first = heads // kv, n - config["num_kv_shared_layers"]
        gone = {i: list(range(each)) if i < first else list(range(heads - each, heads)) for i in range(n)}
        text = "".join(prune_text("attention_head", gone[i], f"*.layers.{i}.self_attn.*") for i in range(n))
        want = changed(folder, model, "borrowed-zeros", lambda tensors, _: [
            zero_columns(tensors, name, [h * width + k for h in gone[i] for k in range(width)])
            for i in range(n) for name in tensors if name.endswith(f".layers.{i}.self_attn.o_proj.weight")] and None)
        got, r = fuse(folder, model, text, "borrowed")
        check(first < n and kv > 1 and r.returncode == 0 and "set to zero" in r.stderr, f"other heads than the lender's: {r.stderr}")
        d = distance(logits(got), logits(want))
        check(d < CLOSE, f"other heads than the lender's: {d:.2g} sd")


def packed(folder):
    """Whole groups of packed columns, or none."""
    for model in golden("qwen3-q4-g32"):
        plain, r = fuse(folder, model, prune_text("mlp_channel", ["0-31"]), "packed-plain", "--dequantize")
        check(r.returncode == 0, f"plain: {r.stderr}")
        got, r = fuse(folder, model, prune_text("mlp_channel", ["0-31"]), "packed")
        if check(r.returncode == 0, f"packed: {r.stderr}"):
            kinds = {kind for kind, _, _ in read_safetensors(os.path.join(got, "model.safetensors")).values()}
            check("U32" in kinds, f"packed: {kinds}")
            d = distance(logits(got), logits(plain))
            check(d < 0.05, f"packed: {d:.2g} sd from the same unpacked")
        _, r = fuse(folder, model, prune_text("mlp_channel", ["0-15"]), "torn")
        check(r.returncode == 1 and "take out 32 together (0-31, 32-63" in r.stderr, f"half a group: {r.stderr}")


def refused(folder):
    llama = os.path.join(FIXTURES, "llama")
    n = text_of(llama)["num_hidden_layers"]
    for text, words in ((prune_text("layer", [n]), f"no layer {n}"), (prune_text("attention_head", [4]), "no head 4"),
                        (prune_text("attention_head", ["0-3"]), "would keep no heads"), (prune_text("layer", [f"0-{n - 1}"]), "no layer would be left"),
                        (prune_text("layer", [0], "*.mlp.*"), "matches a part of layer 0 only"), (prune_text("layer", ["2-1"]), 'two as "4-7"'),
                        (prune_text("mlp_channel", [0], "*.up_proj"), "matches no weight that reads channels"), (prune_text("layer", []), "expected a list"),
                        ('[[edit]]\nop = "prune"\nhead_ids = [1]', "lacks granularity"), ('[[edit]]\nop = "prune"\ngranularity = "row"', "not row"),
                        (prune_text("layer", [0]) + "head_ids = [1]", "no use for head_ids")):
        new, r = fuse(folder, llama, text, "bad")
        check(r.returncode in (1, 2) and words in r.stderr and not os.path.exists(new), f"{words}: {r.stderr}")
    for model, granularity, words in (("olmo2", "attention_head", "normed over all heads"), ("deepseek_v3", "attention_head", "not made of plain heads"),
                                      ("gemma3n", "layer", "embed_tokens_per_layer"), ("mixtral", "mlp_channel", "no layer of the model has channels"),
                                      ("gpt_neox", "attention_head", "its family has no such model")):
        for path in golden(model):
            new, r = fuse(folder, path, prune_text(granularity, [0]), "bad")
            check(r.returncode == 1 and words in r.stderr and not os.path.exists(new), f"{model}: {r.stderr}")


# ---- slerp, YAML ---------------------------------------------------------------------------------------------------------------------------


def in_f32(folder, new, numbers=None):
    def change(tensors, _):
        out = {k: ("F32", shape, bf16_to_f32(data)) if kind == "BF16" else (kind, shape, data) for k, (kind, shape, data) in tensors.items()}
        for name, make in (numbers or {}).items():
            out[name] = (*out[name][:2], array.array("f", map(make, array.array("f", out[name][2]))).tobytes())
        return out
    return changed(folder, os.path.join(FIXTURES, "llama"), new, change)


def slerp(a, b, t):
    dot, la, lb = sum(x * y for x, y in zip(a, b)), math.sqrt(sum(x * x for x in a)), math.sqrt(sum(y * y for y in b))
    angle = math.acos(max(-1, min(1, dot / (la * lb))))
    if angle < 1.5e-3:
        return [(1 - t) * x + t * y for x, y in zip(a, b)]
    return [(math.sin((1 - t) * angle) * x + math.sin(t * angle) * y) / math.sin(angle) for x, y in zip(a, b)]


def numbers_of(model, name):
    return array.array("f", read_safetensors(os.path.join(model, "model.safetensors"))[name][2])


def arcs(folder):
    name, parallel = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"
    mine = in_f32(folder, "mine")
    other = in_f32(folder, "other", {name: lambda v: v * v + 0.01, parallel: lambda v: 3 * v})
    text = f'version: 1\noperations:\n- op: interpolate\n  pattern: "*.mlp.up_proj.weight"\n  source: other\n  ratio: 0.3\n  method: slerp\n'
    got, r = fuse(folder, mine, text, "arc", ending=".yaml")
    if not check(r.returncode == 0, f"slerp: {r.stderr}"):
        return
    want = slerp(numbers_of(mine, name), numbers_of(other, name), 0.3)
    worst = max(abs(x - y) for x, y in zip(numbers_of(got, name), want))
    check(worst < 1e-6 * max(map(abs, want)), f"slerp: {worst:.2g} off")
    want = array.array("f", [0.7 * x + 0.3 * y for x, y in zip(numbers_of(mine, parallel), numbers_of(other, parallel))])
    check(numbers_of(got, parallel) == want, "slerp of parallel weights")
    text = f'version: 1\noperations:\n- {{op: interpolate, pattern: "{name}", source_a: other, source_b: mine, ratio: 0.25, method: lerp}}\n'
    got, r = fuse(folder, in_f32(folder, "third", {name: lambda v: 5.0}), text, "two", ending=".yml")
    want = array.array("f", [0.75 * x + 0.25 * y for x, y in zip(numbers_of(other, name), numbers_of(mine, name))])
    check(r.returncode == 0 and numbers_of(got, name) == want, f"between two others: {r.stderr}")


def yaml(folder):
    model = os.path.join(FIXTURES, "llama")
    a, _ = fuse(folder, model, prune_text("attention_head", ["0-1"]), "by-toml")
    text = 'version: 1\noperations:\n  # as the other engine writes it\n  - op: prune\n    granularity: attention_head\n    pattern: "model.layers.*.self_attn.*"\n    head_ids: [0, 1]\n'
    b, r = fuse(folder, model, text, "by-yaml", ending=".yaml")
    check(r.returncode == 0, f"yaml: {r.stderr}")
    same = [open(os.path.join(p, "model.safetensors"), "rb").read() for p in (a, b)]
    check(same[0] == same[1], "yaml and toml write other bytes")
    env = {**os.environ, "MLXCEL_SURGERY": b + ".yaml"}
    r = run("fuse", "-m", model, "-o", os.path.join(folder, "by-variable"), env=env)
    check(r.returncode == 0 and text_of(os.path.join(folder, "by-variable"))["num_attention_heads"] == 2, f"MLXCEL_SURGERY: {r.stderr}")
    r = run("quantize", "-m", model, "--surgery", b + ".yaml", "--group-size", "32", "-o", os.path.join(folder, "small"))
    check(r.returncode == 0 and logits(os.path.join(folder, "small")), f"quantize: {r.stderr}")
    start = "version: 1\noperations:\n"
    laughs = "a: &a [x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20))
    for text, words in ((start + "- op: scale\n  factr: 2\n  pattern: x\n", "4: this edit has no use for factr"), ("version: 2\noperations: []\n", "1: expected version: 1"),
                        (laughs, "1: anchors and tags are not read"), (start + "- op: *x\n", "3: aliases are not read"), ("version: 1\noperatons: []\n", "2: expected version and operations, not operatons"),
                        (start + "- op: scale\n  op: add\n", "4: this key is there already"), ("[" * 2000, "too deep"), ("version: 1\n---\nversion: 1\n", "2: a second document"),
                        (start + "- op: scale\n  factor:\n", "4: a value is missing"), ("a: 'b", "1: "), ("", "nothing in it"), ("#" * 300000, "larger than"), ("- 1", "expected version: 1"),
                        ("\x00", "1: "), (start + "- op: prune\n  granularity: layer\n  layer_ids: [0, x]\n", '5: expected a number, or two as "4-7"')):
        new, r = fuse(folder, model, text, "bad", ending=".yaml")
        check(r.returncode in (1, 2) and words in r.stderr and not os.path.exists(new), f"{text[:60]!r}: {r.stderr}")


def main():
    for part in (heads, channels, layers, uneven, borrowed, packed, refused, arcs, yaml):
        with tempfile.TemporaryDirectory() as folder:
            parts((part, folder))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
