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


def put_below(a, b):
    return Tensor(a.dtype, [a.shape[0] + b.shape[0]] + a.shape[1:], a.data + b.data)


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


def zeros(n):
    return Tensor("BF16", [n], array.array("H", [0] * n))


def add_buffers(tensors, config):
    """What old files keep beside the weights: angles and masks; and layers behind the last, which guess ahead."""
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = zeros(16)
    tensors["model.layers.1.self_attn.k_scale"] = zeros(1)
    tensors[f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"] = zeros(8)


def rename_layers(tensors, config):
    """gpt_neox.layers.N to model.h.N, embed_out to model.embed_out."""
    for (name,), t in take(tensors, r"(?:gpt_neox\.)?(.*)").items():
        tensors["model." + re.sub(r"^layers\.", "h.", name)] = t


def mlx_step(tensors, config):
    """Experts under mlp, and 1 added to the norms' weights."""
    for (base, part), t in take(tensors, r"(.*)\.moe\.(.*)").items():
        names = {"gate.weight": "gate.gate.weight", "router_bias": "gate.router_bias"}
        tensors[f"{base}.mlp.{names.get(part, 'switch_mlp.' + part)}"] = t
    for (base, part), t in take(tensors, r"(.*)\.share_expert\.(.*)").items():
        tensors[f"{base}.mlp.share_expert.{part}"] = t
    for name in [n for n in tensors if "norm" in n and n.startswith("model.")]:
        values = [to_float(b) + 1.0 for b in tensors[name].data]
        tensors[name] = Tensor("F32", tensors[name].shape, struct.pack(f"<{len(values)}f", *values))


def text_model_inside(tensors, config):
    """The prefix of models with a tower from one maker."""
    for (name,), t in take(tensors, r"model\.(.*)").items():
        tensors["model.text_model." + name] = t
    nest(config, "smolvlm")


def nest(config, outer, **more):
    inner = dict(config)
    config.clear()
    config.update(model_type=outer, text_config=inner, vision_config={"hidden_size": 8}, **more)


def sparse_text_config(tensors, config):
    """A text_config that leaves out what its class has defaults for, down to its type."""
    for key in ("model_type", "hidden_act", "rms_norm_eps", "tie_word_embeddings"):
        config.pop(key)
    nest(config, "llava", tie_word_embeddings=False)


def named(type_, **more):
    """The same under another model_type."""
    def rename(tensors, config):
        config.update(model_type=type_, **more)
    rename.__name__ = f"named_{type_}"
    return rename


def nested_as(outer, inner):
    def rename(tensors, config):
        config["model_type"] = inner
        nest(config, outer)
    rename.__name__ = f"nested_as_{outer}"
    return rename


def vision_experts(tensors, config):
    """Fused experts as [E, in, out], which is how the text parts of these vision models have them."""
    fuse_experts(tensors, config)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        tensors[name] = tensors[name].transposed()
    nested_as("qwen3_vl_moe", "qwen3_vl_moe_text")(tensors, config)


def quant_method_left(tensors, config):
    """Weights that were made plain again, beside the name of what they were."""
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def tied_outside_only(tensors, config):
    """The larger model says that head and embedding are one, its text part that they are not; there is no head."""
    assert "lm_head.weight" not in tensors
    config["tie_word_embeddings"] = False
    nest(config, "llava", tie_word_embeddings=True)


def tied_inside_only(tensors, config):
    assert "lm_head.weight" not in tensors
    config["tie_word_embeddings"] = True
    nest(config, "llava", tie_word_embeddings=False)


def tied_with_head(tensors, config):
    """config.json says that there is no head of its own, and the file has one: it counts."""
    assert "lm_head.weight" in tensors
    config["tie_word_embeddings"] = True


def head_twice(tensors, config):
    """The embedding stored a second time as the head."""
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]


def fuse_memory(tensors, config):
    """Queries, keys, values and gates in one tensor, both gates of the memory in another, and the feed-forward's two."""
    config["weight_mode"] = "fused"
    for suffix in ("weight", "bias"):
        for (base,), t in take(tensors, rf"(.*)\.igate_preact\.{suffix}").items():
            tensors[f"{base}.ifgate_preact.{suffix}"] = put_below(t, tensors.pop(f"{base}.fgate_preact.{suffix}"))
    for (base,), t in take(tensors, r"(.*)\.mlstm_layer\.q\.weight").items():
        for part in ("k", "v", "ogate_preact"):
            t = put_below(t, tensors.pop(f"{base}.mlstm_layer.{part}.weight"))
        tensors[f"{base}.mlstm_layer.qkv_opreact.weight"] = t
    for (base,), t in take(tensors, r"(.*)\.proj_up_gate\.weight").items():
        tensors[f"{base}.proj_up_gate_z.weight"] = put_below(t, tensors.pop(f"{base}.proj_up.weight"))


# ---- weights that nothing reads: refused by name, and loaded all the same with --force ----------------------------------

def router_bias(tensors, config):
    tensors["model.layers.1.mlp.gate.e_score_correction_bias"] = zeros(8)
    return "model.layers.1.mlp.gate.e_score_correction_bias"


def third_norm(tensors, config):
    tensors["model.layers.0.post_feedforward_layernorm.weight"] = zeros(64)
    return "model.layers.0.post_feedforward_layernorm.weight"


def shared_expert(tensors, config):
    """An expert of every token that config.json does not count."""
    for part, shape in (("gate_proj", [8, 64]), ("up_proj", [8, 64]), ("down_proj", [64, 8])):
        tensors[f"model.layers.1.mlp.shared_expert.{part}.weight"] = Tensor("BF16", shape, array.array("H", [0] * 512))
    return "model.layers.1.mlp.shared_expert."


UNREAD = [("qwen3_moe", router_bias), ("llama", third_norm), ("qwen3_moe", shared_expert)]


CASES = [
    ("mixtral", stack_experts), ("qwen2_moe", stack_experts), ("qwen3_moe", fuse_experts), ("deepseek_v2", fuse_experts), ("gpt_oss", unweave_experts),
    ("llama4", split_gate_up), ("granitemoe", split_input_linear), ("deepseek_v2", absorb), ("deepseek_v3", absorb), ("gpt2", turn_matrices),
    ("llama", add_buffers), ("phi3", split_fused), ("gemma3", wrap), ("llama4", wrap), ("qwen3", wrap),
    ("gpt_neox", rename_layers), ("llama", text_model_inside), ("llama", sparse_text_config), ("llama", quant_method_left),
    ("qwen2", tied_outside_only), ("qwen2", tied_inside_only), ("llama", tied_with_head), ("qwen2", head_twice),
    ("llama", named("iquestcoder")), ("llama", named("xverse")), ("deepseek_v3", named("joyai_llm_flash")), ("deepseek_v3", named("kimi_k2")),
    ("mistral", named("ministral")), ("hunyuan_moe", named("hunyuan")), ("qwen2", nested_as("qwen2_vl", "qwen2_vl_text")),
    ("qwen2", named("qwen2_5_vl")), ("qwen3", nested_as("qwen3_vl", "qwen3_vl_text")), ("glm4", nested_as("glm4v", "glm4v_text")),
    ("glm4_moe", nested_as("glm4v_moe", "glm4v_moe_text")), ("gemma4", nested_as("gemma4_unified", "gemma4_unified_text")),
    ("llama", named("cwm", sliding_window=256)), ("qwen3_moe", vision_experts), ("../golden2/minimax_m2", named("minimax")), ("../golden2/step3p7", mlx_step),
    ("../golden2/xlstm", fuse_memory),
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
    folder = os.path.join(scratch, f"{os.path.basename(name)}-{rewrite.__name__}")
    tensors, config = copy(name, folder)
    rewrite(tensors, config)
    write(folder, tensors, config)
    run = subprocess.run([GOLDEN_TESTS, folder], capture_output=True, text=True)
    report(os.path.basename(folder), "" if run.stdout.startswith("ok") else run.stdout.strip() + run.stderr.strip())


def run_logits(folder, out, *args):
    return subprocess.run([PROGRAM, "logits", "-m", folder, "--tokens", "5,99,7,200,31", "--out", out, "--precision", "exact", "--log-level", "error", *args],
                          capture_output=True, text=True, timeout=300)


def logits(folder, out, *args):
    run_logits(folder, out, *args).check_returncode()
    with open(out, "rb") as f:
        return array.array("f", f.read())


def check_unread(scratch, name, change):
    folder = os.path.join(scratch, f"{name}-{change.__name__}")
    tensors, config = copy(name, folder)
    unread = change(tensors, config)
    write(folder, tensors, config)
    run = run_logits(folder, folder + ".bin")
    said = run.returncode != 0 and f"nothing here reads {unread}" in run.stderr and "--force" in run.stderr and run.stderr.count("\n") == 1
    report(f"{name}, {change.__name__} refused", "" if said else f"exit {run.returncode}, {run.stderr}")
    got, want = logits(folder, folder + ".bin", "--force"), logits(os.path.join(DATA, "golden", name), folder + ".want")
    report(f"{name}, {change.__name__} with --force", "" if got == want else "other logits than without the tensor")


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


def check_without_bias(scratch):
    """mlx-lm leaves out the bias on the choice of one family's experts: as if it were zero."""
    folders = [os.path.join(scratch, "ernie4_5_moe-zero"), os.path.join(scratch, "ernie4_5_moe-without")]
    (a, config), (b, other) = (copy("ernie4_5_moe", f) for f in folders)
    for name in [n for n in a if n.endswith("e_score_correction_bias")]:
        a[name].data = bytes(2 * len(a[name].data))
        del b[name]
    stack_experts(b, other)
    write(folders[0], a, config)
    write(folders[1], b, other)
    got, want = (logits(f, f + ".bin") for f in folders)
    report("ernie4_5_moe without its bias", "" if got == want else "other logits than with zeros")


with tempfile.TemporaryDirectory() as scratch:
    for name, rewrite in CASES:
        check(scratch, name, rewrite)
    check_blocks(scratch)
    check_without_bias(scratch)
    for name, change in UNREAD:
        check_unread(scratch, name, change)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
