#!/usr/bin/env python3
"""The same model under the names and layouts of other tools: golden fixtures are rewritten and must give the same logits.

usage: test_layouts.py GOLDEN_TESTS PROGRAM DATA   (DATA/golden)
"""
import array
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

GOLDEN_TESTS, PROGRAM, DATA = sys.argv[1:4]
passed = failed = 0


class Tensor:
    """A bf16 tensor (or raw bytes of another type): shape and elements in row-major order."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), data

    def rows(self):
        width = self.shape[-1]
        return [self.data[i:i + width] for i in range(0, len(self.data), width)]

    def transposed(self):
        """The last two dimensions exchanged."""
        a, b = self.shape[-2:]
        out = array.array("H")
        for base in range(0, len(self.data), a * b):
            for j in range(b):
                out.extend(self.data[base + j:base + a * b:b])
        return Tensor(self.dtype, self.shape[:-2] + [b, a], out)

    def pick(self, first, step, of):
        """Every step-th row from `first` on, of each matrix of `of` rows."""
        out = array.array("H")
        rows = self.rows()
        for base in range(0, len(rows), of):
            for row in rows[base + first:base + of:step]:
                out.extend(row)
        n = len(range(first, of, step))
        return Tensor(self.dtype, self.shape[:-2] + [n, self.shape[-1]], out)

    def part(self, first, last, of):
        out = array.array("H")
        rows = self.rows()
        for base in range(0, len(rows), of):
            for row in rows[base + first:base + last]:
                out.extend(row)
        return Tensor(self.dtype, self.shape[:-2] + [last - first, self.shape[-1]], out)


def stack(tensors):
    out = array.array("H")
    for t in tensors:
        out.extend(t.data)
    return Tensor(tensors[0].dtype, [len(tensors)] + tensors[0].shape, out)


def join_rows(a, b, of_a, of_b):
    """Rows of a, then of b, matrix by matrix."""
    out = array.array("H")
    ra, rb = a.rows(), b.rows()
    for k in range(len(ra) // of_a):
        for row in ra[k * of_a:(k + 1) * of_a] + rb[k * of_b:(k + 1) * of_b]:
            out.extend(row)
    return Tensor(a.dtype, a.shape[:-2] + [of_a + of_b, a.shape[-1]], out)


def load(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        body = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            first, last = t["data_offsets"]
            out[name] = Tensor(t["dtype"], t["shape"], array.array("H", body[first:last]))
    return out


def save(folder, tensors):
    header, body = {}, bytearray()
    for name, t in tensors.items():
        raw = t.data if isinstance(t.data, (bytes, bytearray)) else t.data.tobytes()
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def take(tensors, pattern):
    """The tensors whose names match, removed, by their groups."""
    found = {}
    for name in list(tensors):
        m = re.fullmatch(pattern, name)
        if m:
            found[m.groups()] = tensors.pop(name)
    return found


# ---- the rewritings -----------------------------------------------------------------------------------------------

def stack_experts(tensors, config):
    """experts.N.gate_proj.weight (or w1) to switch_mlp.gate_proj.weight, as MLX stores experts."""
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    groups = {}
    for (base, i, proj), t in take(tensors, r"(.*)\.experts\.(\d+)\.(\w+)\.weight").items():
        groups.setdefault((base, names.get(proj, proj)), {})[int(i)] = t
    assert groups
    for (base, proj), by_number in groups.items():
        tensors[f"{base}.switch_mlp.{proj}.weight"] = stack([by_number[i] for i in range(len(by_number))])


def fuse_experts(tensors, config):
    """The same to experts.gate_up_proj [E, 2 * inner, in] and experts.down_proj, as newer files have them."""
    stack_experts(tensors, config)
    for (base,), gate in take(tensors, r"(.*)\.switch_mlp\.gate_proj\.weight").items():
        up = tensors.pop(f"{base}.switch_mlp.up_proj.weight")
        tensors[f"{base}.experts.gate_up_proj"] = join_rows(gate, up, gate.shape[1], up.shape[1])
        tensors[f"{base}.experts.down_proj"] = tensors.pop(f"{base}.switch_mlp.down_proj.weight")


def unweave_experts(tensors, config):
    """Transposed, woven experts.gate_up_proj to three stacks with biases, as MLX stores gpt-oss."""
    for (base,), t in take(tensors, r"(.*)\.experts\.gate_up_proj").items():
        rows = t.transposed()
        bias = tensors.pop(f"{base}.experts.gate_up_proj_bias")
        for first, proj in enumerate(("gate_proj", "up_proj")):
            tensors[f"{base}.experts.{proj}.weight"] = rows.pick(first, 2, rows.shape[1])
            values = array.array("H")
            for row in bias.rows():
                values.extend(row[first::2])
            tensors[f"{base}.experts.{proj}.bias"] = Tensor("BF16", [bias.shape[0], bias.shape[1] // 2], values)
        tensors[f"{base}.experts.down_proj.weight"] = tensors.pop(f"{base}.experts.down_proj").transposed()
        tensors[f"{base}.experts.down_proj.bias"] = tensors.pop(f"{base}.experts.down_proj_bias")


def split_gate_up(tensors, config):
    """Transposed experts.gate_up_proj, gate first, to stacks [E, out, in]."""
    for (base,), t in take(tensors, r"(.*)\.experts\.gate_up_proj").items():
        rows = t.transposed()
        half = rows.shape[1] // 2
        tensors[f"{base}.experts.gate_proj.weight"] = rows.part(0, half, 2 * half)
        tensors[f"{base}.experts.up_proj.weight"] = rows.part(half, 2 * half, 2 * half)
        tensors[f"{base}.experts.down_proj.weight"] = tensors.pop(f"{base}.experts.down_proj").transposed()


def split_input_linear(tensors, config):
    for (base,), t in take(tensors, r"(.*)\.input_linear\.weight").items():
        half = t.shape[1] // 2
        tensors[f"{base}.switch_mlp.gate_proj.weight"] = t.part(0, half, 2 * half)
        tensors[f"{base}.switch_mlp.up_proj.weight"] = t.part(half, 2 * half, 2 * half)
        tensors[f"{base}.switch_mlp.down_proj.weight"] = tensors.pop(f"{base}.output_linear.weight")


def absorb(tensors, config):
    """kv_b_proj to the two per-head matrices that stand in for it in newer MLX files."""
    heads, nope, value, rank = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    for (base,), t in take(tensors, r"(.*)\.kv_b_proj\.weight").items():
        t.shape = [heads, nope + value, rank]
        tensors[f"{base}.embed_q.weight"] = t.part(0, nope, nope + value).transposed()
        tensors[f"{base}.unembed_out.weight"] = t.part(nope, nope + value, nope + value)


def turn_matrices(tensors, config):
    """[in, out] to [out, in], under another prefix."""
    for (name,), t in take(tensors, r"transformer\.(.*)").items():
        is_matrix = len(t.shape) == 2 and "wte" not in name and "wpe" not in name
        tensors["model." + name] = t.transposed() if is_matrix else t


def split_fused(tensors, config):
    """qkv_proj and gate_up_proj to their parts."""
    hd, heads, kv = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    for (base,), t in take(tensors, r"(.*)\.qkv_proj\.weight").items():
        at = 0
        for name, n in (("q_proj", heads * hd), ("k_proj", kv * hd), ("v_proj", kv * hd)):
            tensors[f"{base}.{name}.weight"] = t.part(at, at + n, t.shape[0])
            at += n
    for (base,), t in take(tensors, r"(.*)\.gate_up_proj\.weight").items():
        half = t.shape[0] // 2
        tensors[f"{base}.gate_proj.weight"] = t.part(0, half, 2 * half)
        tensors[f"{base}.up_proj.weight"] = t.part(half, 2 * half, 2 * half)


def wrap(tensors, config):
    """A text model inside a larger one."""
    for (name,), t in take(tensors, r"(.*)").items():
        tensors["language_model." + name] = t
    tensors["vision_tower.patch.weight"] = Tensor("BF16", [2, 2], array.array("H", [0, 0, 0, 0]))
    inner = dict(config)
    config.clear()
    config.update(model_type=inner["model_type"].removesuffix("_text"), text_config=inner, vision_config={"hidden_size": 8})


def leave_bias(tensors, config):
    """A bias on the choice of experts where the model has none, or its config.json switches it off: the reference leaves it alone."""
    for name in [n for n in tensors if n.endswith(".mlp.gate.weight")]:
        n = tensors[name].shape[0]
        tensors[name.removesuffix("weight") + "e_score_correction_bias"] = Tensor("BF16", [n], array.array("H", [0x4000 + 16 * i for i in range(n)]))


CASES = [
    ("mixtral", stack_experts), ("qwen2_moe", stack_experts), ("qwen3_moe", fuse_experts), ("deepseek_v2", fuse_experts), ("gpt_oss", unweave_experts),
    ("llama4", split_gate_up), ("granitemoe", split_input_linear), ("deepseek_v2", absorb), ("deepseek_v3", absorb), ("gpt2", turn_matrices),
    ("qwen3_moe", leave_bias), ("phi3", split_fused), ("gemma3", wrap), ("llama4", wrap), ("qwen3", wrap),
]


# ---- running ------------------------------------------------------------------------------------------------------

def report(name, problem):
    global passed, failed
    passed += not problem
    failed += bool(problem)
    if problem:
        print(f"FAILED {name}: {problem}")


def copy(name, folder):
    source = os.path.join(DATA, "golden", name)
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model.safetensors"))
    with open(os.path.join(source, "config.json")) as f:
        return load(source), json.load(f)


def write(folder, tensors, config):
    save(folder, tensors)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)


def check(scratch, name, rewrite):
    folder = os.path.join(scratch, f"{name}-{rewrite.__name__}")
    tensors, config = copy(name, folder)
    rewrite(tensors, config)
    write(folder, tensors, config)
    run = subprocess.run([GOLDEN_TESTS, folder], capture_output=True, text=True)
    report(os.path.basename(folder), "" if run.stdout.startswith("ok") else run.stdout.strip() + run.stderr.strip())


def logits(folder, out):
    subprocess.run([PROGRAM, "logits", "-m", folder, "--tokens", "5,99,7,200,31", "--out", out, "--precision", "exact", "--log-level", "error"], check=True)
    with open(out, "rb") as f:
        return array.array("f", f.read())


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def to_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def quantise_blocks(t):
    """Rows to mxfp4 blocks and scales, and what they stand for in bf16 (exactly)."""
    blocks, scales, plain = bytearray(), bytearray(), array.array("H")
    for base in range(0, len(t.data), 32):
        x = [to_float(b) for b in t.data[base:base + 32]]
        exponent = max(-126, struct.unpack("<I", struct.pack("<f", max(map(abs, x))))[0] // (1 << 23) - 127 - 2)
        scales.append(exponent + 127)
        codes = []
        for v in x:
            code = min(range(8), key=lambda k: abs(abs(v) / 2.0 ** exponent - E2M1[k]))
            codes.append(code | (8 if v < 0 else 0))
            value = (-1 if v < 0 else 1) * E2M1[code] * 2.0 ** exponent
            plain.append(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
        blocks += bytes(codes[i] | codes[i + 1] << 4 for i in range(0, 32, 2))
    shape = t.shape[:-1] + [t.shape[-1] // 32]
    return Tensor("U8", shape + [16], blocks), Tensor("U8", shape, scales), Tensor("BF16", t.shape, plain)


def check_blocks(scratch):
    """Experts as the published gpt-oss checkpoints store them, against the same numbers in bf16."""
    folders = [os.path.join(scratch, "gpt_oss-blocks"), os.path.join(scratch, "gpt_oss-plain")]
    (a, config), (b, plain_config) = (copy("gpt_oss", f) for f in folders)
    for (name,), t in take(a, r"(.*\.experts\.(?:gate_up|down)_proj)").items():
        blocks, scales, plain = quantise_blocks(t.transposed())
        a[name + "_blocks"], a[name + "_scales"] = blocks, scales
        b[name] = plain.transposed()
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    write(folders[0], a, config)
    write(folders[1], b, plain_config)
    got, want = (logits(f, f + ".bin") for f in folders)
    worst = max(abs(x - y) for x, y in zip(got, want))
    report("gpt_oss-blocks", "" if len(got) == len(want) and worst < 1e-5 else f"logits differ by {worst}")


with tempfile.TemporaryDirectory() as scratch:
    for name, rewrite in CASES:
        check(scratch, name, rewrite)
    check_blocks(scratch)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
