#!/usr/bin/env bash
# What a GPU must show: kernels against the reference, the golden models in exact and in default precision, speed. Prints short tables.
# usage: run_device.sh BIN GOLDEN [OUT]    BIN: folder of mlxcel, checkkern, golden_tests; GOLDEN: folder of fixtures; OUT: for the logs
#        PARTS="check exact close bench profile" chooses
set -u
bin=$1 golden=$2 out=${3:-$(mktemp -d)}
parts=${PARTS:-check exact close bench}
has() { case " $parts " in *" $1 "*) return 0 ;; esac; return 1; }
SECONDS=0
say() { echo "== $* (${SECONDS} s)"; }

say device
nvidia-smi --query-gpu=name,driver_version,memory.free,clocks.sm,clocks.max.sm --format=csv,noheader
"$bin/mlxcel" doctor | grep gpu
"$bin/mlxcel" generate --device cuda --tokens 1,2,3 -n 8 2>&1 | tail -2

if has check; then
    say checkkern
    timeout 150 "$bin/checkkern" --cuda ${CHECK_ARGS:-} > "$out/checkkern.log" 2>&1
    grep -v '^ok' "$out/checkkern.log" | tail -${CHECK_LINES:-25}
fi
golden_run() { # name, arguments: fixtures in parallel, one process each
    ls "$golden" | xargs -P 8 -I NAME timeout 100 "$bin/golden_tests" --backend cuda $2 "$golden/NAME" > "$out/golden-$1.log" 2>&1
    grep -h '^FAILED\|^skipped\|error' "$out/golden-$1.log" | cut -c1-170 | head -${GOLDEN_LINES:-25}
    echo "$1: $(grep -c '^ok' "$out/golden-$1.log") ok, $(grep -c '^FAILED' "$out/golden-$1.log") failed, $(grep -c '^skipped' "$out/golden-$1.log") skipped"
}
if has exact; then
    say golden exact
    golden_run exact ""
fi
if has close; then
    say golden close
    golden_run close "--precision auto --close"
    python3 - "$out/golden-close.log" <<'PY'
import re, sys
rows = [(float(m[1]), float(m[2]), m[0]) for line in open(sys.argv[1]) for m in re.findall(r"^ok\s+(\S+)\s+rms (\S+) sd .*?KL (\S+) ", line)]
rows.sort(reverse=True)
for rms, kl, name in rows[:4]: print(f"largest rms {rms:.3g} sd, KL {kl:.2g}: {name}")
PY
fi
bench() { # shape, bits, arguments
    timeout 100 "$bin/mlxcel" bench --device cuda --shape "$1" --bits "$2" -r 3 ${@:3} 2>> "$out/bench.log" | grep -v '^test' | sed "s/^/$1 $2-bit  /" | tee -a "$out/bench.txt"
}
if has bench; then
    say bench
    bench qwen3-0.6b 4 -p 2048 -n 128 -b 1 -c 4096
    bench qwen3-0.6b 4 -p 0 -n 128 -b 64 -c 512
    bench llama-3.2-1b 4 -p 2048 -n 128 -b 1 -c 4096
    bench llama-3.2-1b 16 -p 2048 -n 128 -b 1 -c 4096
    bench llama-3.1-8b 4 -p 2048 -n 128 -b 1 -c 4096
    bench llama-3.1-8b 4 -p 0 -n 128 -b 64 -c 512
fi
profile() { # label, shape, bits, launches, arguments
    timeout 100 ncu --clock-control none --csv --metrics gpu__time_duration.sum --launch-count "$4" "$bin/mlxcel" bench --device cuda --shape "$2" --bits "$3" -r 1 ${@:5} > "$out/ncu-$1.csv" 2> "$out/ncu-$1.err"
    python3 - "$out/ncu-$1.csv" "$1" <<'PY'
import csv, sys, collections
rows = list(csv.DictReader(l for l in open(sys.argv[1]) if l.startswith('"')))
total, n = collections.Counter(), collections.Counter()
for r in rows:
    if r.get("Metric Name") == "gpu__time_duration.sum":
        ns = float(r["Metric Value"].replace(",", "")) * {"ns": 1, "us": 1e3, "usecond": 1e3, "nsecond": 1, "ms": 1e6, "msecond": 1e6}.get(r["Metric Unit"], 1)
        key = (r["Kernel Name"].split("(")[0], r.get("Grid Size", ""))
        total[key] += ns; n[key] += 1
print(f"{sys.argv[2]}: {sum(total.values())/1e3:.0f} us in {sum(n.values())} launches")
for k, v in total.most_common(14): print(f"  {v/1e3:9.1f} us {n[k]:5d} x {v/n[k]/1e3:7.2f}  {k[0]} {k[1]}")
PY
}
if has profile; then
    say profile
    profile 8b-decode llama-3.1-8b 4 270 -p 0 -n 2 -b 1 -c 512
    profile 06b-decode qwen3-0.6b 4 240 -p 0 -n 2 -b 1 -c 512
fi
say done
