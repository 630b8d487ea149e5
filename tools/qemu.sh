#!/usr/bin/env bash
# Runs a cross-built Linux program: tools/qemu.sh linux-aarch64|linux-x86_64 PROGRAM [ARGUMENT...]   (QEMU_CPU chooses the CPU model)
set -euo pipefail
machine=${1#linux-}
shift
exec "qemu-$machine-static" -L "/usr/${machine}-linux-gnu" "$@"
