#!/usr/bin/env bash
# Fetches ptxas of CUDA 12.4 through apt, from Debian's trixie (non-free), without installing anything, and prints where it is.
# Kernels built with -DMLXCEL_CUDA_OLD_PTXAS=$(tools/old_ptxas.sh) also serve NVIDIA drivers 550 to 579. docs/cuda-kernels.md explains.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/build/old-cuda
ptxas=$dir/usr/bin/ptxas
fail() { echo "old_ptxas: $1" >&2; exit 1; }
# The whole output first: "ptxas | grep -q" fails when grep has left before ptxas has written its last line.
runs() { [[ $("$ptxas" --version 2>&1) == *"release 12."* ]]; }
if [ -x "$ptxas" ] && runs; then
    echo "$ptxas"
    exit
fi
version=12.4.131~12.4.1-2 arch=$(dpkg --print-architecture)
case $arch in
    amd64) sha256=cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319 ;;
    arm64) sha256=34c1018e03a87493e2bac39dbb7ca7cff2ca84e64f4556089672ba09c8025858 ;;
    *) fail "there is no ptxas for $arch" ;;
esac
mkdir -p "$dir"
deb=$dir/nvidia-cuda-toolkit_${version}_$arch.deb
"$root/tools/debian_fetch.sh" package trixie/non-free "nvidia-cuda-toolkit:$arch" $version "$dir" ||
    fail "or unpack Debian's nvidia-cuda-toolkit 12.4 into $dir by hand"
[ "$(sha256sum "$deb" | cut -d' ' -f1)" = $sha256 ] || fail "the sha256 of $deb is not $sha256"
dpkg -x "$deb" "$dir"
rm "$deb"
runs || fail "$ptxas does not run"
echo "$ptxas"
