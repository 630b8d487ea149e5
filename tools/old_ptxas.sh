#!/usr/bin/env bash
# Fetches ptxas of CUDA 12.4 from Debian's archive (trixie, non-free) without installing anything, and prints where it is.
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
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "needs apt and dpkg; unpack Debian's nvidia-cuda-toolkit 12.4 into $dir by hand"
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e $key ] || fail "the package debian-archive-keyring is missing"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
# apt with lists and caches of its own: nothing of the system changes.
echo "deb [signed-by=$key] http://deb.debian.org/debian trixie non-free" >"$dir/apt/sources.list"
apt=(-q -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/apt/lists"
    -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3)
cd "$dir"
log=$( (apt-get "${apt[@]}" update && apt-get "${apt[@]}" download nvidia-cuda-toolkit) 2>&1) || fail "apt could not fetch it: $(tail -n 3 <<<"$log")"
for deb in nvidia-cuda-toolkit_12.4*.deb; do
    [ -e "$deb" ] || fail "the archive has another version than 12.4: $(ls ./*.deb)"
    dpkg -x "$deb" . && rm "$deb"
done
runs || fail "$ptxas does not run"
echo "$ptxas"
