#!/usr/bin/env python3
"""Holds `mlxcel inspect --json` against the safetensors package.

1. Every model folder under DATA/golden, DATA/models and DATA/tiny, and the built-in model: names, types, shapes, bytes,
   parameters, quantisation, context and KV bytes as computed here from the package's view of the files.
2. Some hundreds of damaged headers: what the package accepts is accepted with the same tensors, what it rejects is
   rejected in one line with exit code 1.
3. Damaged folders: missing shards, stale and hostile indexes, absurd configs.

usage: test_inspect.py PROGRAM [DATA]      last line: "N passed, N failed"
"""
import json
import math
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import deserialize, safe_open

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from counting import HANG, check, finish, skip  # noqa: E402

BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
        "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}


def run(program, *args):
    return subprocess.run([program, "inspect", *map(str, args)], capture_output=True, text=True, errors="replace", timeout=HANG)


# ---- 1. whole folders -------------------------------------------------------------------------------------------------

def read_tensors(folder):
    """name -> (dtype, shape), from the package."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "np") as f:
            for name in f.keys():
                s = f.get_slice(name)
                out[name] = (s.get_dtype(), list(s.get_shape()))
    return out


def tensor_bytes(dtype, shape):
    return math.prod(shape) * BITS.get(dtype, 8) // 8


def quant_of(q, path):
    """The declared format of a path: (bits, group) or None, MLX's rule."""
    if not q:
        return None
    own = q.get(path)
    if own is False:
        return None
    source = own if isinstance(own, dict) else q
    return source.get("bits", 4), source.get("group_size", 64)


def count_parameters(tensors, q):
    total = 0
    for name, (_, shape) in tensors.items():
        path, _, last = name.rpartition(".")
        quantised = q and f"{path}.scales" in tensors and f"{path}.weight" in tensors and quant_of(q, path)
        if quantised and last in ("scales", "biases"):
            continue
        if quantised and last == "weight":
            bits, group = quant_of(q, path)
            width = tensors[f"{path}.scales"][1][-1] * group
            assert shape[-1] * 32 == width * bits, name
            total += math.prod(shape[:-1]) * width
        else:
            total += math.prod(shape)
    return total


def context_of(config):
    """The length that config.json says, or the one that yarn stretches it to where that is more."""
    context = config.get("max_position_embeddings") or config.get("n_positions")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    if not context or rope.get("rope_type", rope.get("type")) != "yarn":
        return context
    return max(context, int(rope["factor"] * (rope.get("original_max_position_embeddings") or context)))


def kv_bytes(config):
    c = {**config, **(config.get("text_config") or {})}
    layers = c.get("num_hidden_layers") or c.get("n_layer") or c.get("num_layers")
    heads = c.get("num_attention_heads") or c.get("n_head")
    kv_heads = c.get("num_key_value_heads") or heads
    hidden = c.get("hidden_size") or c.get("n_embd")
    context = context_of(c)
    if not (layers and kv_heads and context) or c.get("kv_lora_rank") is not None or isinstance(kv_heads, list):
        return None
    head_dim = c.get("head_dim") or hidden // heads
    if c.get("layer_types"):
        layers = sum(t in ("full_attention", "sliding_attention", "chunked_attention") for t in c["layer_types"])
    return layers * kv_heads * head_dim * 2 * 2 * context


def check_folder(program, folder, args):
    label = folder.name
    result = run(program, "--json", *args)
    if result.returncode:
        check(False, f"{label}: {result.stderr.strip()}")
        return
    got = json.loads(result.stdout)
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder)
    q = config.get("quantization")
    want = {name: {"name": name, "dtype": d, "shape": s, "bytes": tensor_bytes(d, s)} for name, (d, s) in tensors.items()}
    check({t["name"]: t for t in got["tensors"]} == want and len(got["tensors"]) == len(want), f"{label}: tensors")
    check(got["model_type"] == config["model_type"], f"{label}: model_type {got['model_type']}")
    check(got["weights_bytes"] == sum(t["bytes"] for t in want.values()), f"{label}: weights_bytes {got['weights_bytes']}")
    parameters = count_parameters(tensors, q)
    check(got["parameters"] == parameters, f"{label}: parameters {got['parameters']}, expected {parameters}")
    want_q = q and {"bits": q["bits"], "group_size": q["group_size"], "mode": q.get("mode", "affine")}
    check(got["quantization"] == want_q, f"{label}: quantization {got['quantization']}")
    context = context_of(config)
    check(got["context"] == context, f"{label}: context {got['context']}, expected {context}")
    check(got["kv_bytes"] == kv_bytes(config), f"{label}: kv_bytes {got['kv_bytes']}, expected {kv_bytes(config)}")


# ---- 2. damaged headers -----------------------------------------------------------------------------------------------

def blob(header, data=b"", n=None):
    h = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(h) if n is None else n) + h + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def written_cases():
    """Cases by hand: everything in which a reader could differ from the reference."""
    one = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    four = b"\0" * 4
    yield b""
    yield b"\0" * 7
    yield b"\0" * 8
    for h in (b"{", b"{}", b"{}   ", b" {}", b"{}\n\t\r ", b"{}\0", b"{}x", b"[]", b"\xef\xbb\xbf{}", b"null", b"{}\x0c"):
        yield blob(h)
    yield blob(b"{}", b"xx")
    for n in (0, 1, 3, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1):
        yield blob(b"{}", n=n)
    for dtype in list(BITS) + ["I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E3M4", "C128", "U4", "f32", ""]:
        for count in (0, 1, 3, 4, 8):
            size = count * BITS.get(dtype, 8) // 8
            yield blob({"a": tensor(dtype, [count], 0, size)}, b"\0" * size)
            yield blob({"a": tensor(dtype, [count], 0, size + 1)}, b"\0" * (size + 1))
    for shape in ([0, 5], [2**40, 2**40, 0], [0, 2**40, 2**40], [2**40, 2**40], [], [1] * 40, [2**62, 4, 0], [2**63 - 1, 0]):
        yield blob({"a": tensor("F32", shape, 0, 0)})
        yield blob({"a": tensor("F32", shape, 0, 4)}, four)
    a, b = tensor("F32", [1], 0, 4), tensor("F32", [1], 4, 8)
    yield blob({"a": a, "b": b}, four * 2)
    yield blob({"b": b, "a": a}, four * 2)
    yield blob({"a": a, "b": tensor("F32", [1], 8, 12)}, four * 3)
    yield blob({"a": b}, four * 2)
    yield blob({"a": a}, four * 2)
    yield blob({"a": a}, b"\0" * 3)
    yield blob({"a": a, "b": a}, four)
    yield blob({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, four * 3)
    yield blob({"a": tensor("F32", [1], 4, 0)}, four)
    for begin in (0, 2, 4, 8):
        yield blob({"a": a, "z": tensor("F32", [0], begin, begin)}, four)
    yield blob({"a": a, "z": tensor("I8", [0], 4, 4), "y": tensor("I8", [0], 4, 4), "b": b}, four * 2)
    for h in (b"{" + one + b"," + one + b"}", b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[5,7]},' + one + b"}",
              b'{"a":{"dtype":"XX","shape":[1],"data_offsets":[0,4]},' + one + b"}",
              b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1,"x":2}}',
              b'{"a":{"shape":[1],"data_offsets":[0,4]}}', b'{"a":{"dtype":"F32","data_offsets":[0,4]}}', b'{"a":{"dtype":"F32","shape":[1]}}',
              b'{"a":["F32",[1],[0,4]]}', b'{"a":["F32",[1],[0,4],1]}', b'{"a":["F32",[1]]}', b'{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}',
              b'{"a":{"dtype":{"F32":1},"shape":[1],"data_offsets":[0,4]}}', b'{"a":{"dtype":{"F32":null,"F16":null},"shape":[1],"data_offsets":[0,4]}}',
              b'{"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}', b'{"a":{"dtype":17,"shape":[1],"data_offsets":[0,4]}}',
              b'{"a":{"dtype":"\\u004632","shape":[1],"data_offsets":[0,4]}}', b'{"a":{"\\u0064type":"F32","shape":[1],"data_offsets":[0,4]}}',
              b"{" + one + b",}", b"{" + one + b',"__metadata__":{"k":"v"}}', b"{" + one + b',"__metadata__":null}', b"{" + one + b',"__metadata__":{}}',
              b"{" + one + b',"__metadata__":{"k":1}}', b"{" + one + b',"__metadata__":{"k":null}}', b"{" + one + b',"__metadata__":[]}',
              b"{" + one + b',"__metadata__":true}', b"{" + one + b',"__metadata__":{"a":"b","a":"c"}}', b'{"__metadata__":{},' + one + b',"__metadata__":{}}',
              b'{"__metadata__":' + one[4:] + b"}", b'{"":' + one[4:] + b"}", b'{"\\u0000":' + one[4:] + b"}", b'{"\xff":' + one[4:] + b"}",
              b'{"\\ud800":' + one[4:] + b"}", b'{"\\ud83d\\ude00":' + one[4:] + b"}", b'{"\\ude00\\ud83d":' + one[4:] + b"}", b'{"\\x":' + one[4:] + b"}",
              b'{"a\x01":' + one[4:] + b"}", b'{"\xed\xa0\x80":' + one[4:] + b"}", b'{"\xc0\x80":' + one[4:] + b"}", b'{"a":null}', b'{"a":{}}',
              b'{"a\\nmlxcel: all is well\\u001b[2J":{"dtype":"XX","shape":[1],"data_offsets":[0,4]}}'):
        yield blob(h, four)
    for number in (b"4.0", b"4e0", b"04", b"-4", b"+4", b'"4"', b"null", b"18446744073709551616", b"NaN", b"[4]"):
        yield blob(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,' + number + b"]}}", four)
        yield blob(b'{"a":{"dtype":"U8","shape":[' + number + b'],"data_offsets":[0,4]}}', four)
    for offsets in (b"[0]", b"[0,4,4]", b"[]", b"{}", b"null", b"[-0,4]"):
        yield blob(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":' + offsets + b"}}", four)
    for extra in (b"NaN", b"Infinity", b"1e999", b"9" * 400, b"9" * 300, b"-0", b'"\\ud800"', b"tru", b"[" * 125 + b"]" * 125,
                  b"[" * 126 + b"]" * 126, b'{"a":' * 125 + b"1" + b"}" * 125, b'{"a":' * 126 + b"1" + b"}" * 126, b'"[[[[{{{{"'):
        yield blob(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":' + extra + b"}}", four)


def mutated_cases(rng, count):
    seeds = [
        ({"a": tensor("F32", [2, 3], 0, 24), "b": tensor("U8", [5], 24, 29), "__metadata__": {"format": "pt"}}, 29),
        ({"w.weight": tensor("U32", [4, 2], 0, 32), "w.scales": tensor("BF16", [4, 1], 32, 40), "z": tensor("F16", [0, 7], 40, 40)}, 40),
        ({"x": tensor("F4", [4], 0, 2), "y": tensor("F6_E2M3", [4], 2, 5), "s": tensor("I64", [], 5, 13)}, 13),
    ]
    for _ in range(count):
        header, size = rng.choice(seeds)
        raw = bytearray(blob(header, bytes(rng.randrange(256) for _ in range(size))))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(raw))
            kind = rng.randrange(6)
            if kind == 0:
                raw[at] = rng.randrange(256)
            elif kind == 1:
                raw[at] = ord(rng.choice("0123456789{}[]\",:-.eE \\"))
            elif kind == 2:
                del raw[at]
            elif kind == 3:
                raw.insert(at, ord(rng.choice("0123456789{}[]\",: ")))
            elif kind == 4:
                del raw[at:]
            else:
                raw.extend(b"\0" * rng.randrange(1, 9))
            if not raw:
                break
        if rng.randrange(2) and len(raw) > 8:  # a length that fits again, so that the header itself is what is wrong
            end = raw.rfind(b"}}") + 2
            if end > 9:
                raw[:8] = struct.pack("<Q", end - 8)
        yield bytes(raw)


def reference(raw):
    try:
        return {name: (t["dtype"], list(t["shape"]), len(t["data"])) for name, t in deserialize(raw)}
    except Exception:  # the package's own class; anything else it raises is a rejection too
        return None


def check_header(program, path, raw, label):
    want = reference(raw)
    if want and any(d > 2**63 - 1 for _, shape, _ in want.values() for d in shape):
        return  # the one documented difference
    path.write_bytes(raw)
    result = run(program, "--json", path)
    if want is None:
        one_line = result.stderr.count("\n") == 1 and result.stderr.startswith("mlxcel: error: ") and "\x1b" not in result.stderr
        check(result.returncode == 1 and one_line and not result.stdout, f"{label}: rejected by the reference; {result.returncode} {result.stderr!r} {raw!r}")
        return
    got = None
    if result.returncode == 0:
        got = {t["name"]: (t["dtype"], t["shape"], t["bytes"]) for t in json.loads(result.stdout)["tensors"]}
    check(got == want, f"{label}: accepted by the reference; {result.returncode} {result.stderr!r} {raw!r}")


# ---- 3. damaged folders -----------------------------------------------------------------------------------------------

def one_tensor(name):
    return blob({name: tensor("F32", [1], 0, 4)}, b"\0" * 4)


def check_folders(program, tmp):
    def expect(label, files, code, text, stderr_lines=1):
        folder = tmp / label
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        result = run(program, "--json", folder)
        ok = result.returncode == code and text in result.stderr and result.stderr.count("\n") == stderr_lines
        check(ok, f"folder {label}: {result.returncode} {result.stderr!r}")
        return json.loads(result.stdout) if result.returncode == 0 else None

    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 16, "vocab_size": 8}
    index = "model.safetensors.index.json"
    s1, s2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    both = {s1: one_tensor("a"), s2: one_tensor("b")}
    got = expect("sharded", {**both, index: {"weight_map": {"a": s1, "b": s2}}}, 0, "", 0)
    check(got and got["shards"] == 2 and got["parameters"] == 2, "folder sharded: two shards")
    expect("glob", both, 0, "", 0)
    expect("missing", {s1: one_tensor("a"), index: {"weight_map": {"a": s1, "b": s2}}}, 1, s2)
    expect("missing-glob", {s2: one_tensor("b")}, 1, s1)
    got = expect("stale", {"model.safetensors": one_tensor("a"), index: {"weight_map": {"a": s1, "b": s2}}}, 0, s1)
    check(got and got["shards"] == 1, "folder stale: the shard on disk")
    expect("stale-tensor", {**both, index: {"weight_map": {"a": s1, "b": s2, "c": s2}}}, 0, "such as c")
    expect("twice", {s1: one_tensor("a"), s2: one_tensor("a")}, 1, "in both")
    expect("twice-index", {s1: one_tensor("a"), s2: one_tensor("a"), index: {"weight_map": {"a": s1, "b": s2}}}, 0, "such as b")
    for i, name in enumerate(("../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "a\\x.safetensors", "C:x.safetensors", "NUL.safetensors",
                              "com1.safetensors", "..", "x.bin", "", "x\u0000.safetensors", 7)):
        expect(f"hostile-{i}", {"model.safetensors": one_tensor("a"), index: {"weight_map": {"a": name}}}, 1, "is not the name of a .safetensors file")
    expect("index-json", {**both, index: b"{"}, 1, "line 1")
    expect("index-map", {**both, index: {}}, 1, "weight_map is missing")
    expect("empty", {}, 1, "no model there, neither config.json nor model*.safetensors")
    expect("gguf", {"model.gguf": b"GGUF"}, 1, "model.gguf")
    one = {"model.safetensors": one_tensor("a")}
    expect("nan", {**one, "config.json": b'{"model_type":"llama","x":NaN,"y":-Infinity}'}, 0, "", 0)
    expect("config-array", {**one, "config.json": b"[]"}, 1, "expected an object")
    for key, value, text in (("num_attention_heads", 0, "num_attention_heads is 0, expected 1 to 65536"), ("num_hidden_layers", 10**9, "num_hidden_layers is 1000000000"),
                             ("vocab_size", 0, "vocab_size is 0"), ("head_dim", 0, "head_dim is 0"), ("hidden_size", -1, "hidden_size is -1"),
                             ("num_attention_heads", "4", 'num_attention_heads is "4"'), ("num_attention_heads", 7, "not a multiple"),
                             ("max_position_embeddings", 1e30, "max_position_embeddings is 1e+30"), ("num_key_value_heads", 1.5, "num_key_value_heads is 1.5"),
                             ("quantization", {"bits": 4, "group_size": 3}, "group_size 3"), ("quantization", {"bits": 7, "group_size": 64}, "bits 7"),
                             ("quantization", {"bits": 4, "group_size": 64, "mode": "int"}, "mode is int"),
                             ("quantization", {"bits": 4, "group_size": 64, "a.b": {"bits": 99}}, "quantization of a.b.bits is 99")):
        expect(f"absurd-{key}-{abs(hash(str(value)))}", {**one, "config.json": {**config, key: value}}, 1, text)
    got = expect("foreign", {**one, "config.json": {**config, "quantization_config": {"quant_method": "gptq", "bits": 4}}}, 0, "", 0)
    check(got and got["quantization"] == {"bits": 4, "group_size": None, "mode": "gptq"}, "folder foreign: quantization")
    for kind, known in (("llama", True), ("no_such_type", False)):
        expect(f"type-{kind}", {**one, "config.json": {**config, "model_type": kind}}, 0, "", 0)
        text = run(program, tmp / f"type-{kind}").stdout
        check(("not one that this program runs" in text) != known, f"inspect of a {kind}: {text}")


def check_declarations(program, tmp):
    """What config.json declares of a matrix and what its tensors are: a difference is an error, for inspect and for the model's loader."""
    for path, mode, said in (("model.layers.0.self_attn.k_proj", "mxfp4", "U8"), ("model.layers.0.mlp.gate_proj", "affine", "float")):
        folder = Path(tmp) / mode
        shutil.copytree(ROOT / "tests" / "golden" / "quant" / "mixed", folder)
        config = json.loads((folder / "config.json").read_text())
        for key in {"quantization", "quantization_config"} & set(config):
            config[key][path]["mode"] = mode
        (folder / "config.json").write_text(json.dumps(config))
        r = run(program, folder)
        check(r.returncode == 1 and path in r.stderr, f"inspect: {path} as {mode}: {r}")
        r = subprocess.run([program, "generate", "-m", folder, "--tokens", "1,2", "-n", "1", "--ids"], capture_output=True, text=True, timeout=HANG)
        check(r.returncode == 1 and path in r.stderr and said in r.stderr, f"generate: {path} as {mode}: {r}")


def main():
    program, data = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    check_folder(program, ROOT / "models" / "tiny", [])
    if data:
        for config in sorted([*data.glob("golden/**/config.json"), *data.glob("models/**/config.json"), *data.glob("tiny/**/config.json")]):
            check_folder(program, config.parent, [config.parent])
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "x.safetensors"
        for i, raw in enumerate(written_cases()):
            check_header(program, path, raw, f"written {i}")
        for i, raw in enumerate(mutated_cases(random.Random(7), 600)):
            check_header(program, path, raw, f"mutated {i}")
        check_folders(program, Path(tmp))
        check_declarations(program, Path(tmp))
    if not data:
        skip("the model folders of the test data, which is not there")
    finish()


if __name__ == "__main__":
    sys.exit(main())
