#!/usr/bin/env bash
# `make run`: tells a story with the built-in model; describes that model where the program cannot generate yet.
set -euo pipefail
program=$1
shift
if [ ! -x "$program" ]; then
    echo "run: $program was not built: src/cli/main.c is missing" >&2
    exit 1
fi
if "$program" --help 2>/dev/null | grep -Eq '^ *generate\b'; then
    set -- generate "$@"
    [ $# -gt 1 ] || set -- generate --prompt "Once upon a time" --max-tokens 120
else
    set -- inspect "$@"
fi
echo "+ $program $*"
exec "$program" "$@"
