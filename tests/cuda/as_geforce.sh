#!/usr/bin/env bash
# What a GeForce runs, for a test on a larger GPU: kernels of decode steps compiled for that one with 99 KB of shared memory, and a driver that
# says so.
# usage: as_geforce.sh KERNELC FOLDER ARCH   KERNELC: the program, of any build; ARCH: of the GPU, as in "90a"
#
# Makes FOLDER/kernels.bin and FOLDER/libcuda.so.1, and prints the line of cmake/kernels.lock without which a build with -DMLXCEL_CUDA=prebuilt does
# not take the kernels. There, with the true driver linked as FOLDER/libcuda-true.so.1:
# LD_LIBRARY_PATH=FOLDER LIMIT_CUDA="shared=101376;sms=28" mlxcel ...
set -eu
kernelc=$1 folder=$2 arch=$3
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mkdir -p "$folder/kernels"
ln -sfn "$top"/kernels/*.cu "$top"/kernels/*.cuh "$folder/kernels/"
ln -sfn "$top/src" "$folder/src"
sed "/_sm90\.cu/d; s/^\(one\|step\)\.cu \(.*\) - /\1.cu \2 -DMLXCEL_SMALL_SHARED /" "$top/kernels/kernels.list" > "$folder/kernels/kernels.list"
"$kernelc" --build "$folder/kernels.bin" --kernels "$folder/kernels/kernels.list" --cache "$folder/cache" --archs "$arch" --spills warn
cc -shared -fPIC -Wl,-soname,libcuda-true.so.1 -x c /dev/null -o "$folder/stub.so"
cc -shared -fPIC -O2 "$here/limit_libcuda.c" -Wl,--no-as-needed "$folder/stub.so" -ldl -o "$folder/libcuda.so.1"
folder=$(cd "$folder" && pwd)
echo "a line for cmake/kernels.lock, not to be committed: $(tr -d '[:space:]' < "$top/VERSION") $(sha256sum "$folder/kernels.bin" | cut -d' ' -f1) $folder/kernels.bin"
