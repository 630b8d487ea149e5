#!/usr/bin/env python3
"""Programs of the xla backend in another XLA: jaxlib's CPU client parses, verifies, compiles and runs what was dumped, and its results must be those
that our own code read back from its plugin.

usage: run_jax.py FOLDER   (written by mlxcel or golden_tests with MLXCEL_XLA_DUMP=FOLDER)
"""
import glob
import os
import re
import sys

import jax
import ml_dtypes
import numpy as np
from jaxlib import _jax

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i32": np.int32, "ui8": np.uint8}


def arguments(text, path):
    head, at, out = text[text.index("@main("):text.index(")\n    ->")], 0, []
    data = open(path, "rb").read()
    for shape in re.findall(r"%\d+: tensor<([^>]*)>", head):
        *dims, name = shape.split("x")
        n = int(np.prod([int(d) for d in dims])) * np.dtype(TYPES[name]).itemsize
        out.append(np.frombuffer(data[at:at + n], TYPES[name]).reshape([int(d) for d in dims]))
        at += n
    assert at == len(data), (at, len(data))
    return out


def run(text, args):
    device = jax.devices("cpu")[0]
    options = _jax.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    program = device.client.compile_and_load(text.encode(), _jax.DeviceList((device,)), options)
    results = program.execute_sharded([jax.device_put(a, device) for a in args])
    return [np.asarray(a[0]) for a in results.disassemble_into_single_device_arrays()]


failed = passed = 0
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.mlir"))):
    stem = path[:-len(".mlir")]
    text = open(path).read()
    if not os.path.exists(stem + ".args"):
        continue
    results = run(text, arguments(text, stem + ".args"))
    worst = 0.0
    outs = sorted(glob.glob(stem + ".*.out"))
    n_kept = text[:text.index("\n    ->")].count("tf.aliasing_output")
    for out in outs:
        got = results[n_kept + int(out.split(".")[-2])]
        want = np.fromfile(out, got.dtype).reshape(got.shape)
        if got.dtype == np.float32:
            worst = max(worst, float(np.abs(got - want).max() / want.std()))
    good = bool(outs) and worst <= 1e-4
    passed, failed = passed + good, failed + (not good)
    print(f"{'ok     ' if good else 'FAILED '} {os.path.basename(stem)} {worst:.2g} sd")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
