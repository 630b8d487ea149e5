#!/usr/bin/env bash
# Runs a cross-built Linux program: tools/qemu.sh PROGRAM [ARGUMENT...]   (QEMU_CPU chooses the CPU model)
set -euo pipefail
# the architecture stands in the program's header
case $(od -An -tu2 -j18 -N2 "$1" | tr -d ' ') in
    62) machine=x86_64 ;;
    183) machine=aarch64 ;;
    *) echo "qemu.sh: $1 is a program for neither x86_64 nor aarch64" >&2; exit 2 ;;
esac
# Without binfmt_misc the program cannot start itself again; the tests that do are then skipped.
export MLXCEL_TEST_EMULATED=qemu QEMU_LD_PREFIX="/usr/${machine}-linux-gnu"
# The libraries must be those of the loader's own folder: where Wine has brought others of the same architecture, the loader would find them first, and
# two versions of the C library in one program end in "stack smashing detected".
exec "qemu-$machine-static" -L "/usr/${machine}-linux-gnu" -E "LD_LIBRARY_PATH=/usr/${machine}-linux-gnu/lib" "$@"
