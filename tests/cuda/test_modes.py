#!/usr/bin/env python3
"""-DMLXCEL_CUDA=... at configure time: what each value says where it cannot be had. usage: test_modes.py"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# options, exit code is 0, words (all must occur; line breaks and indents count as one blank)
CASES = [
    (["-DMLXCEL_CUDA=off"], True, []),
    (["-DMLXCEL_CUDA=sometimes"], False, ['MLXCEL_CUDA is "sometimes", expected auto, on, off or prebuilt']),
    (["-DMLXCEL_CUDA=prebuilt", "-DMLXCEL_CUDA_PREBUILT=/no/such/kernels.bin"], False, ["prebuilt CUDA kernels:"]),
    (["-DMLXCEL_CUDA=on", "-DMLXCEL_CUDA_TOOLKIT=/no/such/toolkit"], False,
     ["MLXCEL_CUDA=on needs a CUDA toolkit", "MLXCEL_CUDA=prebuilt", "/no/such/toolkit (found by --toolkit): not taken, there is no bin/nvcc in it"]),
]


def main():
    passed = failed = 0
    for options, good, words in CASES:
        with tempfile.TemporaryDirectory() as build:
            done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", build] + options, capture_output=True, text=True, check=False)
        said = " ".join((done.stdout + done.stderr).split())
        missing = [w for w in words if w not in said]
        if (done.returncode == 0) == good and not missing:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {' '.join(options)}: exit code {done.returncode}, lacks {missing}: {said[-1500:]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
