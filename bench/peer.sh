#!/usr/bin/env bash
# llama.cpp for comparisons, built natively for this machine: bench/peer.sh [FOLDER [VERSION]]
#
# Fetches the source package of llama-cpp-python from PyPI (it carries llama.cpp's sources), builds llama-bench, llama-batched-bench and
# llama-server into FOLDER/bin (default build/peer) and prints where they are. Nothing of it becomes part of mlxcel.
# Needs python3 with pip, cmake and a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/peer}
version=${2:-0.3.36}
mkdir -p "$folder"
if [ ! -d "$folder/source" ]; then
    python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "llama-cpp-python==$version"
    mkdir "$folder/source"
    tar -xf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder/source" --strip-components 1
    # gcc 12 takes _tile_loadconfig for a reader of eight bytes and drops the other stores: the first tile product is then an illegal instruction.
    sed -i 's/^\( *\)_tile_loadconfig(&tc);/\1asm volatile("" : "+m"(tc));\n&/' "$folder/source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
fi
cmake -S "$folder/source/vendor/llama.cpp" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_CUDA=OFF -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON >"$folder/configure.log"
cmake --build "$folder" -j "$(nproc)" --target llama-bench llama-batched-bench llama-server
ls "$folder"/bin/llama-*
