#!/usr/bin/env python3
"""Golden models rewritten as MLX stores them, against the same answers.

MLX's converter moves the channels of a convolution last, adds the 1 to norm weights that are stored without it, stacks
experts, renames w1/w2/w3, puts multimodal text models under "language_model" and folds fixed factors into weights. The
loader must give the same model for both forms.

usage: mlx_layout.py GOLDEN_TESTS DATA
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PLAIN = ["mamba", "mamba2", "granitemoehybrid", "jamba", "lfm2", "lfm2_moe", "falcon_h1", "nemotron_h", "minimax"]
NORMS_LACK_ONE = ["qwen3_next", "qwen3_5", "qwen3_5_moe"]
NORMS = (".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight", ".k_norm.weight")
RENAMED = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def load(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    return {k: (v["dtype"], v["shape"], data[v["data_offsets"][0] : v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}


def save(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def floats(data):
    """bf16 to Python floats."""
    return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]


def plus_one(tensor):
    values = [v + 1.0 for v in floats(tensor[2])]
    return ("F32", tensor[1], struct.pack(f"<{len(values)}f", *values))


def halves(name, tensor):
    """A stack of fused gate and up matrices as two stacks."""
    dtype, (experts, rows, width), data = tensor
    half = len(data) // experts // 2
    for i, part in enumerate(("gate_proj", "up_proj")):
        cut = b"".join(data[(2 * e + i) * half : (2 * e + i + 1) * half] for e in range(experts))
        yield name.replace("input_linear", "switch_mlp." + part), (dtype, [experts, rows // 2, width], cut)


def convert(tensors, lacks_one):
    out, stacks = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        if re.search(r"\.(conv1d|conv\.conv)\.weight$", name):
            shape = [shape[0], shape[2], 1]
        expert = re.match(r"(.*)\.experts\.(\d+)\.(\w+)\.weight$", name)
        tensor = (dtype, shape, data)
        if lacks_one and name.endswith(NORMS):
            tensor = plus_one(tensor)
        if expert:
            stacks.setdefault((expert[1], RENAMED.get(expert[3], expert[3])), {})[int(expert[2])] = tensor
        elif "block_sparse_moe.input_linear" in name:
            out.update(halves(name, tensor))
        else:
            name = name.replace("block_sparse_moe.output_linear", "block_sparse_moe.switch_mlp.down_proj")
            out[re.sub(r"\.(w[123])\.weight$", lambda m: f".{RENAMED[m[1]]}.weight", name)] = tensor
    for (stem, part), experts in stacks.items():
        joined = b"".join(experts[e][2] for e in range(len(experts)))
        out[f"{stem}.switch_mlp.{part}.weight"] = (experts[0][0], [len(experts)] + experts[0][1], joined)
    return out


def rewrite(source, target, lacks_one):
    os.makedirs(target)
    name = next(f for f in sorted(os.listdir(source)) if f.endswith(".safetensors") and f != "golden.safetensors")
    tensors = convert(load(os.path.join(source, name)), lacks_one)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if config["model_type"].endswith("_text"):
        tensors = {"language_model." + k: v for k, v in tensors.items()}
        config = {"model_type": config["model_type"].removesuffix("_text"), "text_config": config}
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    save(os.path.join(target, "model.safetensors"), tensors)
    shutil.copy(os.path.join(source, "golden.safetensors"), target)


def main():
    program, data = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        for name in PLAIN + NORMS_LACK_ONE:
            rewrite(os.path.join(data, "golden", name), os.path.join(folder, name), name in NORMS_LACK_ONE)
        return subprocess.run([program, folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
