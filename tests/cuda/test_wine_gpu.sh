#!/usr/bin/env bash
# The Windows program on a real GPU without Windows: under Wine, with an nvcuda.dll that forwards to libcuda.so.1. Its text must be that of
# the Linux program on the same GPU.
#
#   test_wine_gpu.sh LINUX_PROGRAM MLXCEL.EXE BRIDGE PREFIX
#
# BRIDGE is a folder with x86_64-unix/nvcuda.dll.so and x86_64-windows/nvcuda.dll, made from the list that `kernelc --functions` prints;
# PREFIX a Wine prefix, or a folder with the registry files of one, from which a prefix is made in a temporary folder.
set -u
program=$1 exe=$2 bridge=$(cd "$3" && pwd) source=$4
wine=/usr/lib/wine/wine64 server=/usr/lib/wine/wineserver64
skip() { echo "skipped: $1"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -x $wine ] || skip "Wine is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" generate --device cuda --tokens 1 -n 1 >"$work/probe" 2>&1 || skip "$(tail -n 1 "$work/probe")"

export WINEPREFIX=$work/prefix WINEDLLPATH=$bridge WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml,winemenubuilder.exe= WINESERVER=$server
system=$WINEPREFIX/drive_c/windows/system32
mkdir -p "$system" "$WINEPREFIX/dosdevices"
cp "$source"/*.reg "$source"/.update-timestamp "$WINEPREFIX/"
cp /usr/lib/x86_64-linux-gnu/wine/x86_64-windows/* "$bridge/x86_64-windows/nvcuda.dll" "$system/"
ln -s ../drive_c "$WINEPREFIX/dosdevices/c:"
ln -s / "$WINEPREFIX/dosdevices/z:"

passed=0 failed=0
same() { # the same arguments on both; services of a stripped Wine may have died, so each run gets a fresh server
    "$program" "$@" >"$work/linux.txt" 2>/dev/null
    timeout 60 $wine "$exe" "$@" >"$work/wine.out" 2>"$work/wine.err"
    local rc=$?
    timeout 10 $server -k
    tr -d '\r' <"$work/wine.out" >"$work/wine.txt"
    if [ $rc -eq 0 ] && [ -s "$work/wine.txt" ] && cmp -s "$work/wine.txt" "$work/linux.txt"; then
        passed=$((passed + 1))
        grep -a 'cuda:' "$work/wine.err" | tr -d '\r' | tail -n 1
    else
        failed=$((failed + 1))
        echo "FAILED  $*: exit code $rc: $(tail -n 1 "$work/wine.err")"
    fi
}
prompt="Once upon a time there was a"
same generate --device cuda -p "$prompt" -n 64
same generate --device cuda --precision exact -p "$prompt" -n 64
same generate --device cuda --ids --tokens 1,2,3 -n 32
timeout 60 $wine "$exe" doctor 2>/dev/null | tr -d '\r' | grep gpu
timeout 10 $server -k
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
