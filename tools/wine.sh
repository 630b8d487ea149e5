#!/usr/bin/env bash
# Runs a Windows program under Wine with a prefix of its own in build/wine: tools/wine.sh PROGRAM.exe [ARGUMENT...]
# On aarch64 hosts Wine is the x86_64 one under qemu-user, which needs binfmt_misc (mounted and registered here where root may).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wine=/usr/lib/wine/wine64
[ -x "$wine" ] || wine=$(command -v wine64 || command -v wine || true)
if [ -z "$wine" ]; then
    echo "wine.sh: Wine is missing: install the package wine64" >&2
    exit 127
fi
if [ "$(uname -m)" != x86_64 ]; then
    binfmt=/proc/sys/fs/binfmt_misc
    [ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt 2>/dev/null || true
    [ -e $binfmt/qemu-x86_64 ] || cat /usr/lib/binfmt.d/qemu-x86_64.conf >$binfmt/register 2>/dev/null || true
    if [ ! -e $binfmt/qemu-x86_64 ]; then
        echo "wine.sh: the kernel does not run x86_64 programs (binfmt_misc has no qemu-x86_64 and this user may not add it)" >&2
        exit 127
    fi
    export MLXCEL_TEST_EMULATED=1 # tests leave out what would take minutes
fi
export WINEPREFIX=${WINEPREFIX:-$root/build/wine} WINEDEBUG=${WINEDEBUG:--all} WINEDLLOVERRIDES=${WINEDLLOVERRIDES:-mscoree,mshtml=}
unset TMPDIR # Windows programs do not know it, and Wine 9 (Ubuntu 24.04) dies of it
mkdir -p "$WINEPREFIX"
# Linux puts Wine's heap anywhere in the gigabyte above its loader, where Windows' shared page has a fixed place: one process in some
# thousands dies of that before it starts ("Internal error"). With fixed addresses the two never meet. Some containers forbid the wish.
fixed=()
if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
(
    flock 9
    if [ ! -e "$WINEPREFIX/.ready" ]; then
        "${fixed[@]}" "$wine" wineboot -i >/dev/null 2>&1 9>&- || { echo "wine.sh: wineboot failed" >&2; exit 127; }
        touch "$WINEPREFIX/.ready"
    fi
) 9>"$WINEPREFIX/.lock"
# The tests look for their files through these; Z: is the root folder.
export MLXCEL_SOURCE_DIR="Z:$root"
[ -z "${MLXCEL_TEST_DATA:-}" ] || case $MLXCEL_TEST_DATA in /*) export MLXCEL_TEST_DATA="Z:$MLXCEL_TEST_DATA" ;; esac
exec "${fixed[@]}" "$wine" "$@"
