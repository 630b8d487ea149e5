#!/usr/bin/env python3
"""Towers of Qwen2.5-VL-3B's and Gemma-3-4B's shape beside llama.cpp's mtmd, on the CPU, in turn: a picture of 1,024 x 1,024 pixels.

Weights are made up: bf16 here (`mlxcel bench --shape NAME/LAYERS --image`), f16 there, as its mmproj files are. Both programs make the same patches and tokens; resizing is
timed here and not there. The middle of each one's passes counts, by the processor time of all threads, which others on the machine do not lengthen much, and by the clock. With
fewer layers than the model has, the rest (patches, projector) weighs more in both. llama.cpp's threads wait for each other by turning: on a busy machine take one thread.
LLAMA_BUILD is built with -DBUILD_SHARED_LIBS=ON and the target mtmd, else as bench/peer.sh does it.

usage: towers.py PROGRAM LLAMA_SOURCE LLAMA_BUILD [--layers QWEN,GEMMA] [--rounds N] [--threads N]
"""
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import gguf_shape as g

TYPE_F16 = 1
SIDE = 1024
TOWERS = {
    "qwen2.5-vl-3b": dict(kind="qwen2.5vl_merger", layers=32, width=1280, inner=3420, heads=16, out=2048, image=560, eps=1e-6, act="silu"),
    "gemma-3-4b": dict(kind="gemma3", layers=27, width=1152, inner=4304, heads=16, out=2560, image=896, eps=1e-6, act="gelu"),
}


def metadata(t, layers):
    v = "clip.vision."
    pairs = [
        g.pair("general.architecture", g.STRING, "clip"),
        g.pair("general.file_type", g.U32, 1),
        g.pair("clip.has_vision_encoder", g.BOOL, True),
        g.pair("clip.projector_type", g.STRING, t["kind"]),
        g.pair("clip.use_" + t["act"], g.BOOL, True),
        g.pair(v + "image_size", g.U32, t["image"]),
        g.pair(v + "patch_size", g.U32, 14),
        g.pair(v + "embedding_length", g.U32, t["width"]),
        g.pair(v + "feed_forward_length", g.U32, t["inner"]),
        g.pair(v + "projection_dim", g.U32, t["out"]),
        g.pair(v + "block_count", g.U32, layers),
        g.pair(v + "attention.head_count", g.U32, t["heads"]),
        g.pair(v + "attention.layer_norm_epsilon", g.F32, t["eps"]),
        g.pair(v + "image_mean", g.ARRAY, (g.F32, [0.5] * 3)),
        g.pair(v + "image_std", g.ARRAY, (g.F32, [0.5] * 3)),
    ]
    return pairs + ([g.pair(v + "n_wa_pattern", g.U32, 8), g.pair(v + "window_size", g.U32, 112)] if "qwen" in t["kind"] else [])


def tensors(t, layers):
    """(name, dimensions with the innermost first, type)"""
    is_qwen, w = "qwen" in t["kind"], t["width"]

    def matrix(name, columns, rows):
        return [(name + ".weight", (columns, rows), TYPE_F16), (name + ".bias", (rows,), g.TYPE_F32)]

    def norm(name):
        return [(name + ".weight", (w,), g.TYPE_F32)] + ([] if is_qwen else [(name + ".bias", (w,), g.TYPE_F32)])

    out = [("v.patch_embd.weight", (14, 14, 3, w), TYPE_F16)]
    if is_qwen:
        out += [("v.patch_embd.weight.1", (14, 14, 3, w), TYPE_F16), *matrix("mm.0", 4 * w, 4 * w), *matrix("mm.2", 4 * w, t["out"])]
    else:
        out += [("v.patch_embd.bias", (w,), g.TYPE_F32), ("v.position_embd.weight", (w, 4096), g.TYPE_F32),
                ("mm.input_projection.weight", (t["out"], w), TYPE_F16), ("mm.soft_emb_norm.weight", (w,), g.TYPE_F32)]
    out += norm("v.post_ln")
    for i in range(layers):
        p = f"v.blk.{i}."
        out += [*norm(p + "ln1"), *norm(p + "ln2")]
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            out += matrix(p + name, w, w)
        out += matrix(p + "ffn_gate", w, t["inner"]) if is_qwen else []
        out += [*matrix(p + "ffn_up", w, t["inner"]), *matrix(p + "ffn_down", t["inner"], w)]
    return out


def halves(n, rng):
    """n bytes of f16: both signs, magnitudes of 1/64 to 1/16."""
    return struct.pack(f"<{n // 2}H", *(r & 0x8000 | 0x2400 + (r & 0x7FF) for r in (rng.getrandbits(16) for _ in range(n // 2))))


def write(name, layers, path):
    t, rng, known, infos, offset = TOWERS[name], random.Random(1), {}, [], 0
    part = halves(1 << 17, rng)
    for tensor, dims, kind in tensors(t, layers):
        infos.append(g.string(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        offset += (g.size(dims, kind) + g.ALIGN - 1) // g.ALIGN * g.ALIGN
    pairs = metadata(t, layers)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    with open(path, "wb") as out:
        out.write(head + b"\0" * (-len(head) % g.ALIGN))
        for tensor, dims, kind in tensors(t, layers):
            if kind == g.TYPE_F32:
                g.write_tensor(out, "norm.weight" if re.search(r"(ln\d?|norm)\.weight$", tensor) else tensor, dims, kind, rng, known)
                continue
            n = g.size(dims, kind)
            out.write((part * (n // len(part) + 1))[:n] + b"\0" * (-n % g.ALIGN))


def option(name, otherwise):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


def build(source, folder, out):
    libs = os.path.join(folder, "bin")
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([os.environ.get("CC", "cc"), "-O2", os.path.join(here, "tower_peer.c"), "-o", out, f"-I{source}/include", f"-I{source}/ggml/include",
                    f"-I{source}/tools/mtmd", f"-L{libs}", "-lmtmd", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libs}", "-lm"], check=True)


def main():
    program, source, folder = sys.argv[1:4]
    layers = dict(zip(TOWERS, map(int, option("--layers", "32,27").split(","))))
    rounds, threads = int(option("--rounds", "3")), option("--threads", "2")
    with tempfile.TemporaryDirectory() as t:
        build(source, folder, f"{t}/peer")
        print(f"| tower | tokens | llama.cpp, processor s | mlxcel, processor s | ratio | by the clock |\n|---|---|---|---|---|---|")
        for name, n in layers.items():
            if n == 0:
                continue
            write(name, n, f"{t}/mmproj.gguf")
            g.write("tiny", f"{t}/text.gguf", width=TOWERS[name]["out"])
            theirs, ours, tokens = [], [], set()
            for _ in range(rounds):
                out = subprocess.run([f"{t}/peer", f"{t}/mmproj.gguf", f"{t}/text.gguf", str(SIDE), threads, "1"], check=True, capture_output=True, text=True).stdout.split()
                theirs.append((float(out[1]), float(out[2])))
                tokens.add(int(out[0]))
                out = json.loads(subprocess.run([program, "bench", "--shape", f"{name}/{n}", "--image", f"{SIDE}x{SIDE}", "-r", "1", "-t", threads, "--device", "cpu", "-o", "json"],
                                                check=True, capture_output=True, text=True).stdout)[0]
                ours.append((out["seconds"], out["processor_seconds"]))
                tokens.add(out["tokens"])
            clock, used = ([statistics.median(x[i] for x in side) for side in (theirs, ours)] for i in range(2))
            print(f"| {name}, {n} of {TOWERS[name]['layers']} layers | {'/'.join(map(str, sorted(tokens)))} | {used[0]:.2f} | {used[1]:.2f} | {used[0] / used[1]:.2f} | {clock[0] / clock[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
