#!/usr/bin/env bash
# Builds everything that is published, into dist/: `make release`. From one Linux host, for every platform; the same input gives the same bytes.
#
#   packaging/release.sh [--no-cuda] [--no-old-drivers] [TARGET...]      targets: linux-x86_64 linux-aarch64 windows-x86_64 (default: all)
#   packaging/release.sh --sign      packs the Windows artifacts of the last release again, signed (make sign); packaging/sign.sh has the settings
#
# Kernels are compiled once for all architectures (build/kernels-cache); each target then embeds the same file. --no-cuda leaves them out and
# names the artifacts accordingly: for trying the rest on a machine without nvcc. --no-old-drivers goes without the PTX for NVIDIA drivers 550
# to 579, which needs ptxas of CUDA 12.4 (tools/old_ptxas.sh fetches it).
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=on old_drivers=yes sign=no
targets=()
for arg in "$@"; do
    case $arg in
        --no-cuda) cuda=off ;;
        --no-old-drivers) old_drivers=no ;;
        --sign) sign=yes ;;
        linux-x86_64 | linux-aarch64 | windows-x86_64) targets+=("$arg") ;;
        *) echo "release: unknown argument $arg" >&2; exit 2 ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || targets=(linux-x86_64 linux-aarch64 windows-x86_64)

# Every time stamp inside the artifacts is the commit's.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

step() {
    local start=$SECONDS
    echo "=== $1"
    shift
    "$@"
    echo "    $((SECONDS - start)) s"
}

build() { # TARGET
    local dir=build/release-$1 args=("-DMLXCEL_CUDA=$cuda" "-DMLXCEL_CUDA_OLD_PTXAS=$old_ptxas" -DMLXCEL_STATIC_DEPS=ON)
    case $1 in
        linux-*) args+=("-DMLXCEL_SYSROOT=$(packaging/linux/sysroot.sh "$1")" -DMLXCEL_STATIC_TLS=ON) ;;
    esac
    cmake --preset "$1" -B "$dir" "${args[@]}" >"$dir.log" 2>&1 || { cat "$dir.log"; return 1; }
    local targets=(mlxcel mlxcel-server mlxcel_shared mlxcel_wheel mlxcel_beside)
    case $1 in linux-*) targets+=(mlxcel_static) ;; esac
    cmake --build "$dir" --target "${targets[@]}" >>"$dir.log" 2>&1 || { tail -n 50 "$dir.log"; return 1; }
}

if [ $sign = yes ]; then
    ls dist/mlxcel-windows-*.zip >/dev/null 2>&1 || { echo "release: dist/ has no Windows archive to sign; make release first" >&2; exit 1; }
    [ -e dist/mlxcel-windows-x86_64-cuda13.zip ] || cuda=off
    step "sign and pack" python3 packaging/pack.py --cuda $cuda --epoch "$SOURCE_DATE_EPOCH" --sign windows-x86_64
    exit
fi

tools/setup.sh build cross windows release
old_ptxas=
if [ $cuda$old_drivers = onyes ]; then
    old_ptxas=$(tools/old_ptxas.sh) || { echo "release: --no-old-drivers makes one without kernels for drivers 550 to 579" >&2; exit 1; }
fi
rm -rf dist build/stage
mkdir -p dist build
for target in "${targets[@]}"; do step "build $target" build "$target"; done
step "pack" python3 packaging/pack.py --cuda "$cuda" --epoch "$SOURCE_DATE_EPOCH" "${targets[@]}"
ls -l dist
