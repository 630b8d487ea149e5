#!/usr/bin/env bash
# Runs something that takes long and says how far it is: tools/progress.sh WHAT LOG COMMAND...
#
# What the command prints goes to LOG. A line every ten seconds holds the last line of it, and one at the end says how long it took; what is
# done within two seconds is passed over in silence. Warnings are shown; a failure shows the log, less the progress lines of ninja.
set -uo pipefail
what=$1 log=$2
shift 2

# The last line that is not empty; programs that draw bars end theirs with a carriage return.
last_line() {
    local text
    text=$(tail -c 2000 "$log" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1)
    echo "${text:0:100}"
}

# Sleeps in the shell itself: a child would live on, and hold the output open, when this is ended.
tell() {
    exec {nothing}<> <(:)
    read -rt 2 -u "$nothing"
    echo "$what"
    until read -rt 10 -u "$nothing" || ! kill -0 $$ 2>/dev/null; do echo "$what: $SECONDS s, $(last_line)"; done
}

tell &
teller=$!
trap 'kill $teller 2>/dev/null' EXIT
"$@" </dev/null >"$log" 2>&1
rc=$?
kill $teller
wait $teller 2>/dev/null
if [ $rc -ne 0 ]; then
    grep -vE '^\[[0-9]+/[0-9]+\] ' "$log" | tail -n 60 >&2
    echo "$what: failed after $SECONDS s; $log has all of it" >&2
else
    grep -F ' warning: ' "$log"
    [ $SECONDS -lt 2 ] || echo "$what: done in $SECONDS s"
fi
exit $rc
