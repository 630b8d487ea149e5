#!/usr/bin/env python3
"""A GGUF file of a known shape with made-up weights, so that llama.cpp can be measured on the shapes of `mlxcel bench --shape`.

Matrices are of one type, such as Q4_0 (18 bytes for 32 weights: 4.5 bits each, as 4-bit groups of 64 with bias are) or BF16, or, as q4_k_m, of
Q4_K and Q6_K as llama.cpp's quantiser mixes them; norms, biases and routers are f32; experts of gpt-oss are MXFP4, as published. The embedding is
like the matrices (Q6_K in the mix) and serves as the output matrix where the shape ties them. Bytes are random, a stretch of them repeated: speed does
not depend on them. Needs Python alone.

usage: gguf_shape.py SHAPE FILE [TYPE]      shapes: see SHAPES, types: see TYPES
"""
import os
import random
import struct
import sys

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # kinds of values in the header
TYPE_F32, TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_BF16, TYPE_MXFP4, MIX_Q4_K_M = 0, 2, 8, 12, 13, 14, 30, 39, -1
FILE_TYPES = {TYPE_Q4_0: 2, TYPE_Q8_0: 7, TYPE_Q4_K: 14, TYPE_Q5_K: 16, TYPE_Q6_K: 18, TYPE_BF16: 32, MIX_Q4_K_M: 15}
TYPES = {"q4_0": TYPE_Q4_0, "q8_0": TYPE_Q8_0, "q4_k": TYPE_Q4_K, "q5_k": TYPE_Q5_K, "q6_k": TYPE_Q6_K, "q4_k_m": MIX_Q4_K_M, "bf16": TYPE_BF16}
BLOCKS = {TYPE_Q4_0: (32, 18), TYPE_Q8_0: (32, 34), TYPE_MXFP4: (32, 17), TYPE_Q4_K: (256, 144), TYPE_Q5_K: (256, 176),
          TYPE_Q6_K: (256, 210)}  # weights, bytes


def yarn(factor):
    return [("rope.scaling.type", STRING, "yarn"), ("rope.scaling.factor", F32, factor), ("rope.scaling.original_context_length", U32, 4096)]


SHAPES = {
    "qwen3-0.6b": dict(arch="qwen3", layers=28, width=1024, heads=16, kv_heads=8, head=128, inner=3072, vocab=151936,
                       theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=40960),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, width=2048, heads=32, kv_heads=4, head=128, inner=6144, vocab=151936,
                          theta=1e6, eps=1e-6, tied=False, qk_norm=True, context=40960, experts=128, used=8, expert_inner=768),
    "llama-3.2-1b": dict(arch="llama", layers=16, width=2048, heads=32, kv_heads=8, head=64, inner=8192, vocab=128256,
                         theta=5e5, eps=1e-5, tied=True, qk_norm=False, context=131072),
    "llama-3.1-8b": dict(arch="llama", layers=32, width=4096, heads=32, kv_heads=8, head=128, inner=14336, vocab=128256,
                         theta=5e5, eps=1e-5, tied=False, qk_norm=False, context=131072),
    "gpt-oss-20b": dict(arch="gpt-oss", layers=24, width=2880, heads=64, kv_heads=8, head=64, inner=2880, vocab=201088,
                        theta=150000.0, eps=1e-5, tied=False, qk_norm=False, context=131072, experts=32, used=4, expert_inner=2880,
                        expert_type=TYPE_MXFP4, biases="qkvo", has_expert_biases=True, has_sinks=True, ffn_norm="post_attention_norm",
                        more=[("attention.sliding_window", U32, 128), *yarn(32.0)]),
    "glm-4.5-air": dict(arch="glm4moe", layers=46, width=4096, heads=96, kv_heads=8, head=128, inner=10944, vocab=151552,
                        theta=1e6, eps=1e-5, tied=False, qk_norm=False, context=131072, experts=128, used=8, expert_inner=1408, shared=1,
                        dense_layers=1, biases="qkv", has_router_bias=True, ffn_norm="post_attention_norm", rope_width=64,
                        more=[("expert_weights_norm", BOOL, True), ("expert_weights_scale", F32, 1.0), ("expert_gating_func", U32, 2)]),
    "deepseek-v2-lite": dict(arch="deepseek2", layers=27, width=2048, heads=16, kv_heads=1, head=192, inner=10944, vocab=102400,
                             theta=1e4, eps=1e-6, tied=False, qk_norm=False, context=163840, experts=64, used=6, expert_inner=1408, shared=2,
                             dense_layers=1, latent=512, nope=128, rope_width=64, key=576, value=512,
                             more=[("attention.kv_lora_rank", U32, 512), ("attention.key_length_mla", U32, 192), ("attention.value_length_mla", U32, 128),
                                   ("expert_weights_scale", F32, 1.0), ("rope.scaling.yarn_log_multiplier", F32, 0.0707), *yarn(40.0)]),
    "gemma-3-4b": dict(arch="gemma3", layers=34, width=2560, heads=8, kv_heads=4, head=256, inner=10240, vocab=262208,
                       theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=131072, has_post_norms=True,
                       more=[("attention.sliding_window", U32, 1024), ("rope.scaling.type", STRING, "linear"), ("rope.scaling.factor", F32, 8.0)]),
    "phi-3-mini": dict(arch="phi3", layers=32, width=3072, heads=32, kv_heads=32, head=96, inner=8192, vocab=32064,
                       theta=1e4, eps=1e-5, tied=False, qk_norm=False, context=4096, is_fused=True),
    "tiny": dict(arch="qwen3", layers=2, width=256, heads=4, kv_heads=2, head=64, inner=512, vocab=512,
                 theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=4096),
    "tiny-moe": dict(arch="qwen3moe", layers=2, width=256, heads=4, kv_heads=2, head=64, inner=512, vocab=512,
                     theta=1e6, eps=1e-6, tied=True, qk_norm=True, context=4096, experts=8, used=2, expert_inner=64),
}

SPLITTERS = {"qwen3": "qwen2", "qwen3moe": "qwen2", "llama": "llama-bpe", "gpt-oss": "gpt-4o", "glm4moe": "glm4", "deepseek2": "deepseek-llm"}
ALIGN = 32
PIECE = 1 << 24  # bytes that are written at once
UNITS = 65537    # blocks or numbers before they come again; a prime, so that rows of a matrix do not


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
        pair(f"{a}.attention.key_length", U32, s.get("key", s["head"])),
        pair(f"{a}.attention.value_length", U32, s.get("value", s["head"])),
        pair(f"{a}.attention.layer_norm_rms_epsilon", F32, s["eps"]),
        pair(f"{a}.rope.freq_base", F32, s["theta"]),
        pair(f"{a}.rope.dimension_count", U32, s.get("rope_width", s["head"])),
        pair(f"{a}.vocab_size", U32, s["vocab"]),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, SPLITTERS.get(a, "default")),
        pair("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        pair("tokenizer.ggml.token_type", ARRAY, (I32, [1] * s["vocab"])),
        pair("tokenizer.ggml.merges", ARRAY, (STRING, ["< 0", "< 1"])),
        pair("tokenizer.ggml.bos_token_id", U32, 1),
        pair("tokenizer.ggml.eos_token_id", U32, 2),
    ] + ([
        pair(f"{a}.expert_count", U32, s["experts"]),
        pair(f"{a}.expert_used_count", U32, s["used"]),
        pair(f"{a}.expert_feed_forward_length", U32, s["expert_inner"]),
    ] if "experts" in s else []) + ([
        pair(f"{a}.expert_shared_count", U32, s["shared"]),
        pair(f"{a}.leading_dense_block_count", U32, s["dense_layers"]),
    ] if "shared" in s else []) + [pair(f"{a}.{key}", kind, value) for key, kind, value in s.get("more", [])]


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
    yield "token_embd.weight", (s["width"], s["vocab"]), matrix
    yield "output_norm.weight", (s["width"],), TYPE_F32
    if not s["tied"]:
        yield "output.weight", (s["width"], s["vocab"]), matrix
    for i in range(s["layers"]):
        for part in (latent if "latent" in s else attention, experts if "experts" in s and i >= s.get("dense_layers", 0) else dense):
            for name, dims, kind in part(s, matrix):
                yield f"blk.{i}.{name}", dims, kind


def attention(s, matrix):
    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    yield "attn_norm.weight", (s["width"],), TYPE_F32
    if s.get("is_fused"):
        yield "attn_qkv.weight", (s["width"], q + 2 * kv), matrix
    for name, rows in () if s.get("is_fused") else (("q", q), ("k", kv), ("v", kv)):
        yield f"attn_{name}.weight", (s["width"], rows), matrix
        if name in s.get("biases", ""):
            yield f"attn_{name}.bias", (rows,), TYPE_F32
    yield "attn_output.weight", (q, s["width"]), matrix
    if "o" in s.get("biases", ""):
        yield "attn_output.bias", (s["width"],), TYPE_F32
    if s.get("has_sinks"):
        yield "attn_sinks.weight", (s["heads"],), TYPE_F32
    if s["qk_norm"]:
        yield "attn_q_norm.weight", (s["head"],), TYPE_F32
        yield "attn_k_norm.weight", (s["head"],), TYPE_F32
    if s.get("has_post_norms"):
        yield "post_attention_norm.weight", (s["width"],), TYPE_F32
        yield "post_ffw_norm.weight", (s["width"],), TYPE_F32


def latent(s, matrix):
    """Keys and values out of one latent vector, whose matrices stand apart for keys and values, as converters write them today."""
    yield "attn_norm.weight", (s["width"],), TYPE_F32
    yield "attn_q.weight", (s["width"], s["heads"] * s["head"]), matrix
    yield "attn_kv_a_mqa.weight", (s["width"], s["key"]), matrix
    yield "attn_kv_a_norm.weight", (s["latent"],), TYPE_F32
    yield "attn_k_b.weight", (s["nope"], s["latent"], s["heads"]), matrix
    yield "attn_v_b.weight", (s["latent"], s["nope"], s["heads"]), matrix
    yield "attn_output.weight", (s["heads"] * s["nope"], s["width"]), matrix


def ffn_norm(s):
    return s.get("ffn_norm", "ffn_norm") + ".weight", (s["width"],), TYPE_F32


def dense(s, matrix, inner=None, kind=""):
    up = s["inner"] if inner is None else inner
    if not kind:
        yield ffn_norm(s)
    if not s.get("is_fused"):
        yield f"ffn_gate{kind}.weight", (s["width"], up), matrix
    yield f"ffn_up{kind}.weight", (s["width"], 2 * up if s.get("is_fused") else up), matrix
    yield f"ffn_down{kind}.weight", (up, s["width"]), matrix


def experts(s, matrix):
    n, inner = s["experts"], s["expert_inner"]
    kind = s.get("expert_type", matrix)
    yield ffn_norm(s)
    yield "ffn_gate_inp.weight", (s["width"], n), TYPE_F32
    if s.get("has_router_bias"):
        yield "exp_probs_b.bias", (n,), TYPE_F32
    if s.get("has_expert_biases"):
        yield "ffn_gate_inp.bias", (n,), TYPE_F32
    for name, columns, rows in (("gate", s["width"], inner), ("up", s["width"], inner), ("down", inner, s["width"])):
        yield f"ffn_{name}_exps.weight", (columns, rows, n), kind
        if s.get("has_expert_biases"):
            yield f"ffn_{name}_exps.bias", (rows, n), TYPE_F32
    if "shared" in s:
        yield from dense(s, matrix, inner * s["shared"], "_shexp")


def size(dims, kind):
    n = 1
    for d in dims:
        n *= d
    if kind in BLOCKS:
        return n // BLOCKS[kind][0] * BLOCKS[kind][1]
    return n * (4 if kind == TYPE_F32 else 2)


def blocks(kind, rng):
    """A stretch of blocks: small scales, random codes."""
    scale, small = struct.pack("<e", 0.004), struct.pack("<ee", 0.0001, 0.0005)
    one = {
        TYPE_Q4_0: lambda: scale + rng.randbytes(16),
        TYPE_Q8_0: lambda: struct.pack("<e", 0.0003) + rng.randbytes(32),
        TYPE_MXFP4: lambda: bytes([119]) + rng.randbytes(16),
        TYPE_Q4_K: lambda: small + rng.randbytes(140),
        TYPE_Q5_K: lambda: small + rng.randbytes(172),
        TYPE_Q6_K: lambda: rng.randbytes(208) + small[:2],
    }[kind]
    return b"".join(one() for _ in range(UNITS))


def halves(rng):
    """BF16: both signs, magnitudes of 1/64 to 1/16."""
    return b"".join(bytes((b & 255, b >> 8 & 0x80 | 0x3C | b >> 9 & 1)) for b in (rng.getrandbits(16) for _ in range(UNITS)))


def floats(rng):
    """F32: rows of a router must differ, or all would choose the same experts."""
    return struct.pack(f"<{UNITS}f", *(rng.uniform(-0.04, 0.04) for _ in range(UNITS)))


def stretch(kind, rng, known):
    """Random numbers of a type, made once and long enough to be written in large pieces, and the bytes of its unit."""
    if kind not in known:
        part = blocks(kind, rng) if kind in BLOCKS else floats(rng) if kind == TYPE_F32 else halves(rng)
        known[kind] = part * (PIECE // len(part) + 2)
    return known[kind], BLOCKS[kind][1] if kind in BLOCKS else 4 if kind == TYPE_F32 else 2


def write_tensor(out, name, dims, kind, rng, known):
    """Each begins elsewhere in the stretch of its type, so that layers differ."""
    n = size(dims, kind)
    if name.endswith("norm.weight"):
        out.write(struct.pack("<f", 1.0) * (n // 4))
    else:
        part, unit = stretch(kind, rng, known)
        period = UNITS * unit
        start = rng.randrange(UNITS) * unit
        piece = memoryview(part)[start : start + PIECE // period * period]
        for at in range(0, n, len(piece)):
            out.write(piece[: n - at])
    out.write(b"\0" * (-n % ALIGN))


def write(shape, path, matrix=TYPE_Q4_0, is_hole=False, **other):
    """is_hole: the numbers are a hole in the file, for those who read the header alone. other: sizes instead of the shape's own."""
    s = {**SHAPES[shape], **other}
    rng, known = random.Random(1), {}
    pairs, infos, offset = metadata(s, matrix), [], 0
    for name, dims, kind in tensors(s, matrix):
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        offset += (size(dims, kind) + ALIGN - 1) // ALIGN * ALIGN
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    with open(path + ".partial", "wb", buffering=0) as out:
        out.write(head + b"\0" * (-len(head) % ALIGN))
        for name, dims, kind in tensors(s, matrix) if not is_hole else ():
            write_tensor(out, name, dims, kind, rng, known)
        if is_hole:
            out.truncate(out.tell() + offset)
    os.replace(path + ".partial", path)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SHAPES or (sys.argv + ["q4_0"])[3] not in TYPES:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], TYPES[(sys.argv + ["q4_0"])[3]])
