#!/usr/bin/env python3
"""A GGUF file of a known shape with made-up weights, so that llama.cpp can be measured on the shapes of `mlxcel bench --shape`.

Matrices are of one type, such as Q4_0 (18 bytes for 32 weights: 4.5 bits each, as 4-bit groups of 64 with bias are) or BF16, or, as q4_k_m, of
Q4_K and Q6_K as llama.cpp's quantiser mixes them; norms are f32. The embedding is like the matrices (Q6_K in the mix) and serves as the
output matrix where the shape ties them. Bytes are random: speed does not depend on them. Needs Python alone.

usage: gguf_shape.py SHAPE FILE [TYPE]      shapes: see SHAPES, types: see TYPES
"""
import os
import random
import struct
import sys

SHAPES = {
    "qwen3-0.6b": dict(arch="qwen3", layers=28, width=1024, heads=16, kv_heads=8, head=128, inner=3072, vocab=151936,
                       theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=40960),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, width=2048, heads=32, kv_heads=4, head=128, inner=6144, vocab=151936,
                          theta=1e6, eps=1e-6, tied=False, qk_norm=True, context=40960, experts=128, used=8, expert_inner=768),
    "llama-3.2-1b": dict(arch="llama", layers=16, width=2048, heads=32, kv_heads=8, head=64, inner=8192, vocab=128256,
                         theta=5e5, eps=1e-5, tied=True, qk_norm=False, context=131072),
    "llama-3.1-8b": dict(arch="llama", layers=32, width=4096, heads=32, kv_heads=8, head=128, inner=14336, vocab=128256,
                         theta=5e5, eps=1e-5, tied=False, qk_norm=False, context=131072),
    "tiny": dict(arch="qwen3", layers=2, width=256, heads=4, kv_heads=2, head=64, inner=512, vocab=512,
                 theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=4096),
    "tiny-moe": dict(arch="qwen3moe", layers=2, width=256, heads=4, kv_heads=2, head=64, inner=512, vocab=512,
                     theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=4096, experts=8, used=2, expert_inner=64),
}

U32, F32, STRING, ARRAY, I32, BOOL = 4, 6, 8, 9, 5, 7
TYPE_F32, TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_BF16, MIX_Q4_K_M = 0, 2, 8, 12, 13, 14, 30, -1
FILE_TYPES = {TYPE_Q4_0: 2, TYPE_Q8_0: 7, TYPE_Q4_K: 14, TYPE_Q5_K: 16, TYPE_Q6_K: 18, TYPE_BF16: 32, MIX_Q4_K_M: 15}
TYPES = {"q4_0": TYPE_Q4_0, "q8_0": TYPE_Q8_0, "q4_k": TYPE_Q4_K, "q5_k": TYPE_Q5_K, "q6_k": TYPE_Q6_K, "q4_k_m": MIX_Q4_K_M, "bf16": TYPE_BF16}
BLOCKS = {TYPE_Q4_0: (32, 18), TYPE_Q8_0: (32, 34), TYPE_Q4_K: (256, 144), TYPE_Q5_K: (256, 176), TYPE_Q6_K: (256, 210)}  # weights, bytes
ALIGN = 32


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    out = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return out + string(value)
    if kind == ARRAY:
        of, items = value
        out += struct.pack("<IQ", of, len(items))
        if of == STRING:
            return out + b"".join(string(i) for i in items)
        return out + struct.pack(f"<{len(items)}{'i' if of == I32 else 'f'}", *items)
    return out + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def metadata(s, matrix):
    a = s["arch"]
    tokens = [f"<{i}>" for i in range(s["vocab"])]
    return [
        pair("general.architecture", STRING, a),
        pair("general.name", STRING, "shape"),
        pair("general.file_type", U32, FILE_TYPES[matrix]),
        pair(f"{a}.block_count", U32, s["layers"]),
        pair(f"{a}.context_length", U32, s["context"]),
        pair(f"{a}.embedding_length", U32, s["width"]),
        pair(f"{a}.feed_forward_length", U32, s["inner"]),
        pair(f"{a}.attention.head_count", U32, s["heads"]),
        pair(f"{a}.attention.head_count_kv", U32, s["kv_heads"]),
        pair(f"{a}.attention.key_length", U32, s["head"]),
        pair(f"{a}.attention.value_length", U32, s["head"]),
        pair(f"{a}.attention.layer_norm_rms_epsilon", F32, s["eps"]),
        pair(f"{a}.rope.freq_base", F32, s["theta"]),
        pair(f"{a}.rope.dimension_count", U32, s["head"]),
        pair(f"{a}.vocab_size", U32, s["vocab"]),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "qwen2" if a.startswith("qwen3") else "llama-bpe"),
        pair("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        pair("tokenizer.ggml.token_type", ARRAY, (I32, [1] * s["vocab"])),
        pair("tokenizer.ggml.merges", ARRAY, (STRING, ["< 0", "< 1"])),
        pair("tokenizer.ggml.bos_token_id", U32, 1),
        pair("tokenizer.ggml.eos_token_id", U32, 2),
    ] + ([
        pair(f"{a}.expert_count", U32, s["experts"]),
        pair(f"{a}.expert_used_count", U32, s["used"]),
        pair(f"{a}.expert_feed_forward_length", U32, s["expert_inner"]),
    ] if "experts" in s else [])


def mixed(name, s):
    """The type that Q4_K_M gives a matrix: half of the values and downward projections, and what makes the logits, have six bits."""
    if name in ("token_embd.weight", "output.weight"):
        return TYPE_Q6_K
    layer, n = int(name.split(".")[1]), s["layers"]
    more = layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2
    return TYPE_Q6_K if more and ("attn_v" in name or "ffn_down" in name) else TYPE_Q4_K


def tensors(s, matrix):
    """(name, dimensions with the innermost first, type)"""
    for name, dims, kind in matrices(s, matrix):
        yield name, dims, mixed(name, s) if kind == MIX_Q4_K_M else kind


def matrices(s, matrix):
    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    yield "token_embd.weight", (s["width"], s["vocab"]), matrix
    yield "output_norm.weight", (s["width"],), TYPE_F32
    if not s["tied"]:
        yield "output.weight", (s["width"], s["vocab"]), matrix
    for i in range(s["layers"]):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", (s["width"],), TYPE_F32
        yield p + "attn_q.weight", (s["width"], q), matrix
        yield p + "attn_k.weight", (s["width"], kv), matrix
        yield p + "attn_v.weight", (s["width"], kv), matrix
        yield p + "attn_output.weight", (q, s["width"]), matrix
        if s["qk_norm"]:
            yield p + "attn_q_norm.weight", (s["head"],), TYPE_F32
            yield p + "attn_k_norm.weight", (s["head"],), TYPE_F32
        yield p + "ffn_norm.weight", (s["width"],), TYPE_F32
        if "experts" in s:
            n, inner = s["experts"], s["expert_inner"]
            yield p + "ffn_gate_inp.weight", (s["width"], n), TYPE_F32
            yield p + "ffn_gate_exps.weight", (s["width"], inner, n), matrix
            yield p + "ffn_up_exps.weight", (s["width"], inner, n), matrix
            yield p + "ffn_down_exps.weight", (inner, s["width"], n), matrix
            continue
        yield p + "ffn_gate.weight", (s["width"], s["inner"]), matrix
        yield p + "ffn_up.weight", (s["width"], s["inner"]), matrix
        yield p + "ffn_down.weight", (s["inner"], s["width"]), matrix


def size(dims, kind):
    n = 1
    for d in dims:
        n *= d
    if kind in BLOCKS:
        return n // BLOCKS[kind][0] * BLOCKS[kind][1]
    return n * (4 if kind == TYPE_F32 else 2)


def blocks(n, kind, rng):
    """n blocks: small scales, random codes. A stretch of random ones, repeated."""
    scale, small = struct.pack("<e", 0.004), struct.pack("<ee", 0.0001, 0.0005)
    one = {
        TYPE_Q4_0: lambda: scale + rng.randbytes(16),
        TYPE_Q8_0: lambda: struct.pack("<e", 0.0003) + rng.randbytes(32),
        TYPE_Q4_K: lambda: small + rng.randbytes(140),
        TYPE_Q5_K: lambda: small + rng.randbytes(172),
        TYPE_Q6_K: lambda: rng.randbytes(208) + small[:2],
    }[kind]
    return b"".join(one() for _ in range(min(n, 65536)))


def halves(n, rng):
    """n bytes of BF16: both signs, magnitudes of 1/64 to 1/16."""
    return b"".join(bytes((b & 255, b >> 8 & 0x80 | 0x3C | b >> 9 & 1)) for b in (rng.getrandbits(16) for _ in range(min(n // 2, 65536))))


def write_tensor(out, dims, kind, rng):
    n = size(dims, kind)
    if kind == TYPE_F32 and len(dims) == 1:
        out.write(struct.pack("<f", 1.0) * (n // 4))
    elif kind == TYPE_F32:  # a router: rows that differ, or all rows would choose the same experts
        out.write(struct.pack(f"<{n // 4}f", *(rng.uniform(-0.04, 0.04) for _ in range(n // 4))))
    else:
        part = blocks(n // BLOCKS[kind][1], kind, rng) if kind in BLOCKS else halves(n, rng)
        for _ in range(n // len(part)):
            out.write(part)
        out.write(part[: n % len(part)])
    out.write(b"\0" * (-n % ALIGN))


def write(shape, path, matrix=TYPE_Q4_0, is_hole=False, **other):
    """is_hole: the numbers are a hole in the file, for those who read the header alone. other: sizes instead of the shape's own."""
    s = {**SHAPES[shape], **other}
    rng = random.Random(1)
    pairs, infos, offset = metadata(s, matrix), [], 0
    for name, dims, kind in tensors(s, matrix):
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        offset += (size(dims, kind) + ALIGN - 1) // ALIGN * ALIGN
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    with open(path + ".partial", "wb") as out:
        out.write(head + b"\0" * (-len(head) % ALIGN))
        for _, dims, kind in tensors(s, matrix) if not is_hole else ():
            write_tensor(out, dims, kind, rng)
        if is_hole:
            out.truncate(out.tell() + offset)
    os.replace(path + ".partial", path)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SHAPES or (sys.argv + ["q4_0"])[3] not in TYPES:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], TYPES[(sys.argv + ["q4_0"])[3]])
