#!/usr/bin/env python3
"""Compare src/tensor/quant.c with MLX itself: the same bytes out of quant_pack as out of mx.quantize, the same numbers
out of quant_unpack as out of mx.dequantize, for every format, source dtype and kind of row.

Builds quant.c as a shared library in a temporary folder (compiler: $CC, else cc) and calls it through ctypes.
Says "skipped" and exits with 0 where mlx (pip install "mlx[cpu]") or numpy is not installed.

usage: test_quant_mlx.py [--rows N] [--seed S] [MODE ...]      rows of 256 random weights per format and dtype
"""
import argparse, os, sys, tempfile

try:
    import mlx.core as mx
    import numpy as np
except ImportError as missing:
    print(f'skipped test_quant_mlx: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from quant_lib import Format, Row, build

WIDTH = 256
DTYPES = {'f32': (0, mx.float32, 2.0**-23), 'f16': (1, mx.float16, 2.0**-10), 'bf16': (2, mx.bfloat16, 2.0**-7)}
MODES = {'affine': 1, 'mxfp4': 2, 'mxfp8': 3, 'nvfp4': 4}
FORMATS = [('affine', b, g) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)] + [('mxfp4', 4, 32), ('mxfp8', 8, 32), ('nvfp4', 4, 16)]


# Groups are independent, so a matrix goes through as one long row.
def our_pack(lib, f, x):
    planes = [np.zeros(getattr(lib, f'quant_{p}_bytes')(f, x.size), np.uint8) for p in ('values', 'scales', 'biases')]
    lib.quant_pack(f, x.ctypes.data, x.size, *[p.ctypes.data for p in planes])
    return planes


def our_unpack(lib, f, planes, n):
    out = np.empty(n, np.float32)
    lib.quant_unpack(f, Row(*[p.ctypes.data for p in planes]), 0, n, out.ctypes.data)
    return out


def as_bytes(a):
    return np.array(a.view(mx.uint16) if a.dtype == mx.bfloat16 else a).reshape(-1).view(np.uint8)


def kinds(rng, n):
    """Name and [n, WIDTH] weights of each kind of row."""
    normal = lambda: rng.standard_normal((n, WIDTH))
    yield 'normal', normal()
    few = max(1, n // 20)
    cut = lambda a: a[:few]
    yield 'small', cut(normal()) * 0.02
    yield 'wide', cut(normal()) * np.exp(rng.uniform(-12, 8, (few, 1)))
    yield 'positive', np.abs(cut(normal())) + 1
    yield 'negative', -np.abs(cut(normal())) - 1
    yield 'grid', rng.integers(-8, 9, (few, WIDTH)) * 0.25 * 2.0 ** rng.integers(-6, 6, (few, 1))
    ties = rng.integers(-24, 25, (few, WIDTH)) * 0.25 * 2.0 ** rng.integers(-6, 6, (few, 1))
    ties[:, ::16] = 6 * 2.0 ** rng.integers(-3, 3, (few, 1))
    yield 'ties', ties
    yield 'constant', np.ones((few, WIDTH)) * rng.standard_normal((few, 1))
    yield 'zero', np.zeros((few, WIDTH)) * rng.choice([1.0, -1.0], (few, WIDTH))
    yield 'tiny', cut(normal()) * 1e-7 * np.exp(rng.uniform(-10, 2, (few, 1)))
    yield 'large', np.clip(cut(normal()) * 2e4, -6e4, 6e4)
    yield 'huge', np.clip(cut(normal()) * 1e37, -3e38, 3e38)
    spikes = cut(normal()) * 1e-4
    spikes[:, ::32] = rng.standard_normal((few, WIDTH // 32))
    yield 'spikes', spikes


def compare(lib, mode, bits, group, dtype, rng, n_rows):
    index, mx_dtype, ulp = DTYPES[dtype]
    f, how, n_checked = Format(MODES[mode], index, bits, group), dict(group_size=group, bits=bits, mode=mode), 0
    for kind, weights in kinds(rng, n_rows):
        if dtype == 'f16' and kind == 'huge':
            continue
        where = f'{mode} {bits}-bit g{group} {dtype}, {kind}'
        w = mx.array(weights.astype(np.float32)).astype(mx_dtype)
        x = np.array(w.astype(mx.float32))
        theirs = mx.quantize(w, **how)
        planes = our_pack(lib, f, x)
        for name, ours, their in zip(('values', 'scales', 'biases'), planes, theirs):
            bad = np.flatnonzero(ours != as_bytes(their))
            assert bad.size == 0, f'{where}: {bad.size} of {ours.size} bytes of {name} differ, first at {bad[0]}: {ours[bad[0]]:#x}, MLX {as_bytes(their)[bad[0]]:#x}'
        got = our_unpack(lib, f, planes, x.size).reshape(x.shape)
        exact = [theirs[0]] + [p.astype(mx.float32) if mode == 'affine' else p for p in theirs[1:]]
        want = np.array(mx.dequantize(*exact, **how, dtype=mx.float32))
        assert np.array_equal(got, want), f'{where}: dequantised weights differ from mx.dequantize in float32'
        if mode == 'affine':  # MLX's own type: product and sum each rounded to it, relative to the group's largest term
            native = np.array(mx.dequantize(*theirs, **how).astype(mx.float32))
            top = np.abs(np.repeat(np.array(theirs[2].astype(mx.float32)), group, axis=1)) + np.abs(want)
            near = np.abs(native - got) <= 2 * ulp * top + 1e-7
            assert (near | ~np.isfinite(native)).all(), f'{where}: too far from mx.dequantize in {dtype}'
        n_checked += x.shape[0]
    return n_checked


def all_codes(lib, mode, bits, group, rng):
    """Every code with every scale but NaN, which no quantiser writes."""
    f = Format(MODES[mode], 0, bits, group)
    scales = np.repeat(np.arange(255 if mode != 'nvfp4' else 127, dtype=np.uint8), 256 // group if bits == 8 else 2)
    n_bytes = len(scales) * group * bits // 8
    values = (np.arange(n_bytes) % 256).astype(np.uint8) if bits == 8 else rng.integers(0, 256, n_bytes).astype(np.uint8)
    got = our_unpack(lib, f, [values, scales, scales], len(scales) * group)
    want = np.array(mx.dequantize(mx.array(values.view(np.uint32).reshape(1, -1)), mx.array(scales.reshape(1, -1)), group_size=group, bits=bits, mode=mode, dtype=mx.float32)).reshape(-1)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f'{mode}: code {int(np.flatnonzero(~same)[0])} of all codes: {got[~same][0]!r}, MLX {want[~same][0]!r}'


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('modes', nargs='*')
    ap.add_argument('--rows', type=int, default=400)
    ap.add_argument('--seed', type=int, default=1)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lib, total, failed = build(folder), 0, 0
        for mode, bits, group in FORMATS:
            if a.modes and mode not in a.modes:
                continue
            rng = np.random.default_rng([a.seed, bits, group, MODES[mode]])
            total += 1
            try:
                n = sum(compare(lib, mode, bits, group, dtype, rng, a.rows) for dtype in DTYPES)
                if mode != 'affine':
                    all_codes(lib, mode, bits, group, rng)
            except AssertionError as difference:
                failed += 1
                print(f'FAILED {mode} {bits}-bit g{group}: {difference}', flush=True)
                continue
            print(f'ok {mode} {bits}-bit g{group}: {n} rows of {WIDTH} weights, mlx {mx.__version__}', flush=True)
    print(f'{total - failed} passed, {failed} failed')
    return 1 if failed else 0


sys.exit(main())
