#!/usr/bin/env bash
# The Windows build of the program under Wine, for test suites that want one file to run.
root=$(cd "$(dirname "$0")/.." && pwd)
exec "$root/tools/wine.sh" "$root/build/windows-x86_64/mlxcel.exe" "$@"
