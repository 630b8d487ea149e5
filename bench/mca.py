#!/usr/bin/env python3
"""What a model of a processor says about the Arm kernels, where there is no such processor.

    bench/mca.py [--build build/linux-aarch64] [--cpu neoverse-v1] [--verbose]

Takes the hot loops out of the object files of a build for Arm (make cross, or a native one), writes each of them once from beginning
to end, loops as often as they run, and gives that to llvm-mca, which knows the processor's pipes, widths and latencies. It does not know
caches: every load hits the first level. So this is the limit that arithmetic sets, a prediction, not a measurement.

Needs objdump for Arm (binutils) and llvm-mca 15 or newer; nothing else.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

# Object, function; whole function, its longest loop, or the shortest one that has so many of an instruction; how often the innermost loops run, and the ones around them; what that makes:
# products of a weight with an activation (keys or values with queries), bytes of weights or cache; what it is.
KERNELS = [
    ("kern_i8mm", "span_8_rows_4_bits", "whole", 16, 2, 8 * 8 * 256, 0, "prompt, tile of 8 x 8, a span of 256"),
    ("kern_i8mm", "span_4_rows_4_bits", "whole", 16, 2, 4 * 8 * 256, 0, "4 rows, tile of 4 x 8, a span of 256"),
    ("kern_i8mm", "spread_4_bits", "loop", 4, 1, 512, 288, "codes of half a panel's group into bytes"),
    ("kern_i8mm", "span_4_rows_direct", "whole", 4, 2, 4 * 8 * 256, 0, "4 rows, codes as they lie"),
    ("kern_i8mm", "span_2_rows_direct", "whole", 4, 2, 2 * 8 * 256, 0, "2 rows, codes as they lie"),
    ("kern_i8mm", "span_8_rows_8_bits", "whole", 8, 2, 8 * 8 * 256, 0, "the same with 8-bit codes"),
    ("kern_i8mm", "row_4_bits", "loop", 1, 1, 1024, 576, "one row, a group of a panel"),
    ("kern_dotprod", "row_4_bits", "loop", 4, 1, 1024, 576, "the same by dot products"),
    ("kern_i8mm", "row_8_bits", "loop", 4, 1, 1024, 1088, "one row, 8-bit codes"),
    ("kern_neon", "block_scores", "fcvtl=2", 1, 1, 8 * 8, 16, "attention, 8 queries, an element of 8 keys"),
    ("kern_neon", "block_scores", "fcvtl=4", 1, 1, 4 * 16, 32, "4 queries, 16 keys"),
    ("kern_neon", "block_scores", "fcvtl=8", 1, 1, 2 * 32, 64, "2 queries, 32 keys"),
    ("kern_neon", "block_scores", "fcvtl=16", 1, 1, 64, 128, "1 query, 64 keys"),
]


def tool(names):
    for name in names:
        if shutil.which(name):
            return name
    sys.exit("mca.py: none of %s found" % ", ".join(names))


def functions(path):
    """Name -> list of (address, text, target of a branch or None)."""
    objdump = tool(["aarch64-linux-gnu-objdump", "objdump", "llvm-objdump"])
    out = subprocess.run([objdump, "-dr", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    found, code = {}, None
    for line in out.splitlines():
        head = re.match(r"[0-9a-f]+ <([^>]+)>:$", line)
        if head:
            code = found.setdefault(head[1], [])
            continue
        at = re.match(r"\s*([0-9a-f]+):\s+(.*)$", line)
        if not at or code is None or at[2].startswith("R_AARCH64"):
            continue
        text = re.sub(r"\s*//.*", "", at[2]).replace("\t", " ")
        jump = re.match(r"((?:b|b\.\w+|cbn?z|tbn?z)\s.*?)([0-9a-f]+) <", text)
        if jump:
            code.append((int(at[1], 16), jump[1] + "#0", int(jump[2], 16)))
        else:
            code.append((int(at[1], 16), re.sub(r"<.*>", "", re.sub(r"\b[0-9a-f]+ <[^>]+>", "#0", text)), None))
    return found


def loops(code):
    """(first, last) as indices, of every backward branch."""
    index = {address: i for i, (address, _, _) in enumerate(code)}
    return [(index[target], i) for i, (address, _, target) in enumerate(code) if target is not None and target <= address and target in index]


def written_out(code, first, last, inner, outer):
    """Instructions from first to last, loops as often as they run; what lies behind other branches is passed over."""
    found = [(f, l) for f, l in loops(code) if first <= f and l <= last and (f, l) != (first, last)]
    times = {l: (f, inner if not any(f <= f2 and l2 < l for f2, l2 in found) else outer) for f, l in found}

    def part(f, l):
        out, i = [], f
        while i <= l:
            ending = [(l2, f2, n) for l2, (f2, n) in times.items() if f2 == i and l2 <= l and (f2, l2) != (f, l)]
            if ending:
                l2, f2, n = max(ending)
                out += part(f2, l2) * n
                i = l2 + 1
            else:
                out.append(code[i][1])
                i += 1
        return out

    return part(first, last)


def hot_part(code, what, inner, outer):
    if "=" in what:
        name, n = what.split("=")
        parts = [[text for _, text, _ in code[first:last + 1]] for first, last in loops(code)]
        return min((part for part in parts if sum(text.startswith(name) for text in part) == int(n)), key=len)
    if what == "loop":
        first, last = max(loops(code), key=lambda fl: fl[1] - fl[0])
    else:
        first, last = 0, next(i for i, (_, text, _) in enumerate(code) if text.startswith("ret")) - 1
    return written_out(code, first, last, inner, outer)


def simulate(mca, cpu, lines, iterations=100):
    args = [mca, "-mtriple=aarch64", "-mcpu=" + cpu, "-mattr=+i8mm,+dotprod,+bf16,+fullfp16,+sve", "-iterations=%d" % iterations]
    done = subprocess.run(args, input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        sys.exit("mca.py: %s\n%s" % (" ".join(args), done.stderr[:2000]))
    cycles = float(re.search(r"Total Cycles:\s+(\d+)", done.stdout)[1]) / iterations
    return cycles, done.stdout


def find_object(build, name):
    found = glob.glob(os.path.join(build, "**", name + ".c.o"), recursive=True) or glob.glob(os.path.join(build, name + ".o"))
    if not found:
        sys.exit("mca.py: no object file of %s.c under %s (make cross builds them)" % (name, build))
    return found[0]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--build", default="build/linux-aarch64", help="folder of a build for Arm")
    args.add_argument("--cpu", default="neoverse-v1", help="a processor that llvm-mca knows")
    args.add_argument("--ghz", type=float, default=2.6, help="its clock")
    args.add_argument("--only", help="functions whose name has this in it")
    args.add_argument("--verbose", action="store_true", help="llvm-mca's own report as well")
    a = args.parse_args()
    mca = tool(["llvm-mca-%d" % version for version in range(30, 14, -1)] + ["llvm-mca"])
    print("%s by %s, %.1f GHz, everything in the first-level cache: predictions" % (a.cpu, mca, a.ghz))
    print("%-22s %8s %8s %9s %9s %8s  %s" % ("function", "instr.", "cycles", "MAC/cycle", "GMAC/s", "GB/s", ""))
    for name, function, what, inner, outer, macs, size, words in KERNELS:
        if a.only and a.only not in function:
            continue
        code = functions(find_object(a.build, name)).get(function)
        if not code:
            sys.exit("mca.py: %s has no function %s" % (name, function))
        lines = hot_part(code, what, inner, outer)
        cycles, report = simulate(mca, a.cpu, lines)
        print("%-22s %8d %8.1f %9.1f %9.1f %8s  %s" % (function, len(lines), cycles, macs / cycles, macs / cycles * a.ghz,
                                                       "%.1f" % (size / cycles * a.ghz) if size else "", words))
        if a.verbose:
            print(report)


if __name__ == "__main__":
    main()
