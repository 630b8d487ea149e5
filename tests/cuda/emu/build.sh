#!/usr/bin/env bash
# Builds the emulated driver: FOLDER/libcuda.so.1. Then LD_LIBRARY_PATH=FOLDER makes `--device cuda` run the kernels on the CPU.
# usage: build.sh FOLDER [FLAGS]    -DMLXCEL_SMALL_SHARED: as a GeForce has them, with EMU_CUDA="sms=28;shared=101376"; -DEMU_THREADS: for ranks, which are threads
set -eu
# nvcc lets kernels take the same bytes for several types. gcc 12 for Arm makes wrong vectors of kernels/experts.cu.
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
mkdir -p "$1"
objects=()
for file in "$here/emu.cpp" $(sed -n 's/^\([a-z_0-9]*\.cu\) .*/\1/p' "$top/kernels/kernels.list" | grep -v '^probe' | sed "s|^|$top/kernels/|"); do
    object="$1/$(basename "$file").o"
    objects+=("$object")
    if [ ! -e "$object" ] || [ -n "$(find "$file" "$top/kernels" "$here" "$top/src/backend/cuda" -newer "$object" \( -name '*.cuh' -o -name '*.h' -o -path "$file" \) | head -1)" ]; then
        g++ -x c++ -std=c++17 -O2 -g -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -fno-tree-vectorize -DMLXCEL_EMULATE -D__CUDACC__ -I"$here" -I"$top/src" -Wno-attributes -Wno-unknown-pragmas "${@:2}" -c "$file" -o "$object"
    fi
done
g++ -shared -Wl,-soname,libcuda.so.1 -o "$1/libcuda.so.1" "${objects[@]}" -ldl
