#!/usr/bin/env python3
"""Compare src/tensor/block.c with the gguf package: for every type of weights the numbers that quant_unpack makes of a repacked block are
those of gguf.quants.dequantize.

Builds the files as a shared library in a temporary folder (compiler: $CC, else cc) and calls it through ctypes.
Says "skipped" and exits with 0 where gguf (pip install gguf) or numpy is not installed.

usage: test_blocks.py [--blocks N] [--seed S]      random blocks of each type
"""
import argparse, ctypes, os, sys, tempfile

try:
    import gguf
    import numpy as np
    from gguf import quants
except ImportError as missing:
    print(f'skipped test_blocks: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'quant'))
from quant_lib import Format, Row, build

# Where a block keeps numbers of f16.
HALVES = {'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2], 'Q8_0': [0], 'Q2_K': [80, 82], 'Q3_K': [108], 'Q4_K': [0, 2], 'Q5_K': [0, 2],
          'Q6_K': [208], 'IQ2_XXS': [0], 'IQ2_XS': [0], 'IQ3_XXS': [0], 'IQ1_S': [0], 'IQ4_NL': [0], 'IQ3_S': [0], 'IQ2_S': [0], 'IQ4_XS': [0],
          'TQ1_0': [52], 'TQ2_0': [64], 'MXFP4': [], 'NVFP4': [], 'IQ1_M': []}
PLAIN = {'F32', 'F16', 'BF16', 'F64', 'I8', 'I16', 'I32', 'I64'}
INSIDE = {'Q8_1', 'Q8_K'}  # types of a computation's own, in no file


class Type(ctypes.Structure):
    _fields_ = [('name', ctypes.c_char_p), ('id', ctypes.c_uint16), ('n', ctypes.c_uint16), ('bytes', ctypes.c_uint16), ('format', Format),
                ('split', ctypes.c_void_p)]


def build_blocks(folder):
    lib = build(folder, ('tensor/block.c', 'tensor/block_iq.c'))
    lib.block_find.restype = ctypes.POINTER(Type)
    lib.block_plane.argtypes = [ctypes.POINTER(Type), ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    lib.block_plane.restype = ctypes.c_bool
    return lib


def ours(lib, kind, blocks, n):
    planes = [np.zeros(4 * n, np.uint8) for _ in range(3)]
    for i, plane in enumerate(planes):
        if not lib.block_plane(kind, i, blocks.ctypes.data, n, plane.ctypes.data):
            return None
    out = np.empty(n, np.float32)
    lib.quant_unpack(ctypes.byref(kind.contents.format), Row(*[p.ctypes.data for p in planes]), 0, n, out.ctypes.data)
    return out


def random_blocks(rng, name, n_blocks, n_bytes):
    """Any bytes; numbers of f16 are finite, of any size that weights could have."""
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), np.uint8)
    halves = (rng.standard_normal((n_blocks, 2)) * 2.0 ** rng.integers(-24, 6, (n_blocks, 2))).astype(np.float16)
    for i, at in enumerate(HALVES[name]):
        blocks[:, at:at + 2] = halves[:, i:i + 1].view(np.uint8)
    if name == 'IQ1_M':  # in the highest four bits of four words
        bits = halves[:, 0].view(np.uint16)
        for i in range(4):
            blocks[:, 49 + 2 * i] = (blocks[:, 49 + 2 * i] & 15) | ((bits >> 4 * i & 15) << 4).astype(np.uint8)
    if name == 'MXFP4':
        blocks[:, 0] = rng.integers(0, 252, n_blocks, np.uint8)  # beyond that twelve times the scale is no number of f32
    if name == 'NVFP4':
        blocks[:, :4] &= 0x7F  # scales have no sign
    return blocks


def check(lib, rng, t, n_blocks):
    n, n_bytes = gguf.GGML_QUANT_SIZES[t]
    kind = lib.block_find(t.value)
    if not kind:
        return 'is not known'
    if (kind.contents.n, kind.contents.bytes, kind.contents.name.decode()) != (n, n_bytes, t.name):
        return 'has another size or name'
    if t.name in PLAIN:
        return None
    blocks = random_blocks(rng, t.name, n_blocks, n_bytes)
    want = quants.dequantize(blocks, t).reshape(-1).astype(np.float32)
    got = ours(lib, kind, blocks, n * n_blocks)
    if got is None:
        return 'is refused'
    differ = np.flatnonzero((got + np.float32(0)).view(np.uint32) != (want + np.float32(0)).view(np.uint32))  # -0 counts as 0
    return f'differs in {differ.size} of {want.size}, first at {differ[0]}: {got[differ[0]]!r}, not {want[differ[0]]!r}' if differ.size else None


def main():
    args = argparse.ArgumentParser()
    args.add_argument('--blocks', type=int, default=4000)
    args.add_argument('--seed', type=int, default=1)
    args = args.parse_args()
    rng, passed, failed = np.random.default_rng(args.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        lib = build_blocks(folder)
        for t in gguf.GGML_QUANT_SIZES:
            if t.name in INSIDE or (t.name not in PLAIN and t not in quants._type_traits):
                continue
            why = check(lib, rng, t, args.blocks)
            failed, passed = failed + bool(why), passed + (not why)
            if why:
                print(f'{t.name} {why}')
        large = np.zeros((1, 34), np.uint8)
        large[0, :2] = np.array([600], np.float16).view(np.uint8)  # 128 times that is no number of f16
        refused = ours(lib, lib.block_find(8), large, 32) is None
        failed, passed = failed + (not refused), passed + refused
        if not refused:
            print('Q8_0 with a scale of 600 is not refused')
    print(f'{passed} passed, {failed} failed')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
