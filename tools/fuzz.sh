#!/usr/bin/env bash
# Runs each fuzz target of build/clang: tools/fuzz.sh SECONDS [NAME...]; those of text, whose grammars are large, twice as long.
# New inputs are kept in build/fuzz/corpus/NAME, findings in build/fuzz/findings.
# The last line is "N passed, N failed".
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=$1
shift
passed=0 failed=0
mkdir -p "$root/build/fuzz/findings"
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for source in "$root"/tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || continue
        name=${source##*/fuzz_}
        names+=("${name%.c}")
    done
fi

# Runs one target; its line, or the end of its log, is the output.
fuzz_one() {
    local name=$1 time=$seconds
    local corpus=$root/build/fuzz/corpus/$name seeds=$root/tests/fuzz/seeds/$name dict=$root/tests/fuzz/$name.dict log=$root/build/fuzz/$name.log
    mkdir -p "$corpus"
    case $name in output | scanner | template | tokenizer_json | tokenizer_parts) time=$((seconds * 2)) ;; esac
    local args=(-max_total_time="$time" -timeout=30 -rss_limit_mb=2048 -max_len="${FUZZ_MAX_LEN:-65536}" -print_final_stats=1
        -artifact_prefix="$root/build/fuzz/findings/$name-")
    [ -e "$dict" ] && args+=(-dict="$dict")
    local folders=("$corpus")
    [ -d "$seeds" ] && folders+=("$seeds")
    if "$root/build/clang/fuzz_$name" "${args[@]}" "${folders[@]}" >"$log" 2>&1; then
        echo "fuzz $name: $time s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no finding"
    else
        tail -n 40 "$log"
        echo "FAILED fuzz $name: see $log"
        return 1
    fi
}

# One target per core at a time.
pids=()
for name in ${names[@]+"${names[@]}"}; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do sleep 0.2; done
    fuzz_one "$name" &
    pids+=($!)
done
for pid in ${pids[@]+"${pids[@]}"}; do
    if wait "$pid"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
