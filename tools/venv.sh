#!/usr/bin/env bash
# Makes build/venv with the Python references of the tests (tests/requirements.txt), once per version of that file.
# Without network it says so and leaves none: the suites that need it are then reported as skipped.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/build/venv
want=$(sha256sum "$root/tests/requirements.txt" | cut -d' ' -f1)
[ "$(cat "$venv/.ready" 2>/dev/null)" = "$want" ] && exit 0
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=python3
rm -rf "$venv"
mkdir -p "$root/build"
what="venv: installing the Python references of the tests into build/venv"
if ! "$python" -m venv "$venv" >"$root/build/venv.log" 2>&1 ||
    ! "$root/tools/progress.sh" "$what" "$root/build/venv.log" "$venv/bin/pip" install --disable-pip-version-check --progress-bar off --retries 2 \
        --timeout 20 -r "$root/tests/requirements.txt" 2>/dev/null; then
    echo "venv: not available ($(grep -E 'ERROR|Error' "$root/build/venv.log" | tail -n 1)); its suites will be skipped"
    rm -rf "$venv"
    exit 0
fi
echo "$want" >"$venv/.ready"
