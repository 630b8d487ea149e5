#!/usr/bin/env bash
# Runs a cross-built Linux program: tools/qemu.sh linux-aarch64|linux-x86_64 PROGRAM [ARGUMENT...]   (QEMU_CPU chooses the CPU model)
set -euo pipefail
machine=${1#linux-}
shift
# Without binfmt_misc the program cannot start itself again; the tests that do are then skipped.
export MLXCEL_TEST_EMULATED=qemu QEMU_LD_PREFIX="/usr/${machine}-linux-gnu"
# The libraries must be those of the loader's own folder: where Wine has brought others of the same architecture, the loader would find them first, and
# two versions of the C library in one program end in "stack smashing detected".
exec "qemu-$machine-static" -L "/usr/${machine}-linux-gnu" -E "LD_LIBRARY_PATH=/usr/${machine}-linux-gnu/lib" "$@"
