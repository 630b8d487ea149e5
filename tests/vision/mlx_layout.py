"""Rewrites a vision model as mlx-vlm stores it: its names, convolutions with the channels last, and, where asked for, quantised matrices.

Only what differs for the loader is changed. A quantised folder has a plain twin with the numbers that its matrices stand for.
"""
import json
import os
import struct
from array import array

QWEN2 = (("visual.", "vision_tower."), ("model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))
QWEN3 = (("model.visual.", "vision_tower."), ("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))
IDEFICS = (("model.vision_model.", "vision_model."), ("model.connector.", "connector."), ("model.text_model.", "language_model."), ("lm_head.", "language_model.lm_head."))
PIXTRAL = tuple((f"vision_tower.{x}", f"vision_tower.vision_model.{x}") for x in ("patch_conv", "ln_pre", "transformer"))
PADDLE = (("visual.vision_model.encoder.", "visual."), ("visual.vision_model.", "visual."), ("mlp_AR.", "visual.projector."), ("model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))
TOP = (("model.vision_tower.", "vision_tower."), ("model.embed_vision.", "embed_vision."), ("model.multi_modal_projector.", "multi_modal_projector."), ("model.language_model.", "language_model.model."))
KIMI = (("vision_tower.encoder.", "vision_tower."), ("model.mm_projector.", "mm_projector."))
RULES = {"qwen2_vl": QWEN2, "qwen2_5_vl": QWEN2, "smolvlm": IDEFICS, "idefics3": IDEFICS, "mistral3": PIXTRAL, "paddleocr_vl": PADDLE,
         "gemma4": TOP, "lfm2_vl": TOP, "kimi_k25": KIMI, **{t: QWEN3 for t in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm46v")}}
CONVOLUTIONS = ("patch_embed.proj.weight", "patch_embedding.weight", "patch_conv.weight", "downsample.weight", "projection.weight")
GROUP, BITS = 32, 4


def read(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    return {k: (v["dtype"], v["shape"], body[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in head.items() if k != "__metadata__"}


def write(path, tensors):
    head, at = {}, 0
    for k, (dtype, shape, raw) in tensors.items():
        head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def channels_last(shape, raw):
    """[out, in, ...] to [out, ..., in], numbers of two bytes."""
    out, channels, area = shape[0], shape[1], 1
    for n in shape[2:]:
        area *= n
    values, turned = array("H", raw), array("H")
    for o in range(out):
        for i in range(area):
            turned.extend(values[(o * channels + c) * area + i] for c in range(channels))
    return [out, *shape[2:], channels], turned.tobytes()


def renamed(name, rules):
    for old, new in rules:
        if name.startswith(old):
            return new + name[len(old):]
    return name


def join_qkv(tensors):
    """PaddleOCR-VL's queries, keys and values become one matrix."""
    for name in [n for n in tensors if n.startswith("visual.layers.") and ".q_proj." in n]:
        parts = [tensors.pop(name.replace("q_proj", x)) for x in ("q_proj", "k_proj", "v_proj")]
        dtype, shape, _ = parts[0]
        tensors[name.replace("q_proj", "qkv")] = (dtype, [3 * shape[0], *shape[1:]], b"".join(p[2] for p in parts))


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) & 0xffff


def f32(half):
    return struct.unpack("<f", struct.pack("<I", half << 16))[0]


def quantise(shape, raw):
    """(packed words, scales, biases, the numbers that they stand for)."""
    values, words, scales, biases, plain = array("H", raw), array("I"), array("H"), array("H"), array("f")
    for at in range(0, len(values), GROUP):
        group = [f32(v) for v in values[at:at + GROUP]]
        low, high = min(group), max(group)
        scale, bias = bf16((high - low) / (2 ** BITS - 1) or 1.0), bf16(low)
        levels = [max(0, min(2 ** BITS - 1, round((v - f32(bias)) / f32(scale)))) for v in group]
        for i in range(0, GROUP, 32 // BITS):
            words.append(sum(q << BITS * k for k, q in enumerate(levels[i:i + 32 // BITS])))
        scales.append(scale)
        biases.append(bias)
        plain.extend(f32(scale) * q + f32(bias) for q in levels)
    rows, columns = shape[0], shape[1]
    return ([rows, columns * BITS // 32], words.tobytes()), ([rows, columns // GROUP], scales.tobytes()), biases.tobytes(), plain.tobytes()


def is_matrix(name, dtype, shape):
    """What mlx_vlm.convert quantises, with the tower: linear layers and embeddings whose rows are whole groups."""
    return dtype == "BF16" and len(shape) == 2 and name.endswith(".weight") and shape[1] % GROUP == 0 and "conv" not in name


def convert(folder, out, quantised=False, twin=None):
    """folder as MLX has it, in out; with quantised its matrices in 4 bits, and twin a folder with the same numbers in plain."""
    config = json.load(open(f"{folder}/config.json"))
    rules, tensors = RULES.get(config["model_type"], ()), {}
    for name, (dtype, shape, raw) in read(f"{folder}/model.safetensors").items():
        if name.endswith(CONVOLUTIONS) and len(shape) > 3:
            shape, raw = channels_last(shape, raw)
        tensors[renamed(name, rules)] = (dtype, shape, raw)
    if config["model_type"] == "paddleocr_vl":
        join_qkv(tensors)
    plain = dict(tensors)
    for name, (dtype, shape, raw) in list(tensors.items() if quantised else ()):
        if not is_matrix(name, dtype, shape):
            continue
        words, scales, biases, values = quantise(shape, raw)
        path = name[:-len(".weight")]
        tensors[name] = ("U32", *words)
        tensors[f"{path}.scales"], tensors[f"{path}.biases"] = ("BF16", *scales), ("BF16", scales[0], biases)
        plain[name] = ("F32", shape, values)
    for where, what, is_packed in ((out, tensors, quantised), *(((twin, plain, False),) if twin else ())):
        for f in os.listdir(folder):
            if f not in ("config.json", "model.safetensors", "golden.safetensors"):
                os.symlink(f"{folder}/{f}", f"{where}/{f}")
        json.dump({**config, **({"quantization": {"group_size": GROUP, "bits": BITS}} if is_packed else {})}, open(f"{where}/config.json", "w"))
        write(f"{where}/model.safetensors", what)
