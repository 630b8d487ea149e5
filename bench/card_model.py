#!/usr/bin/env python3
"""What products of prompts should take on a GeForce, where there is none: a prediction from counted instructions and published rates.

    cuobjdump -sass gemm_bytes.cubin | bench/card_model.py --count 86     lines of bench/results/geforce/instructions.csv
    bench/card_model.py                                                   the tables of docs/speed/cuda.md

A kernel's loop over k is taken from the machine code: its tensor instructions, and all others. A scheduler of a multiprocessor issues one
instruction in a cycle; its tensor core is busy for as long as the published rates say. The longer of both is what a part of the products takes at
least: 16 rows of the weight, 8 of x, 64 of k. What share of that a program reaches is not known. The upper end is the share that our bf16 kernel reaches on an
H200, the lower one that of llama.cpp's products of bytes on the same card, from its published prompts.
"""
import argparse
import csv
import os
import re
import sys

COUNTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "geforce", "instructions.csv")
FIELDS = ["arch", "kernel", "tensor", "float", "integer", "shared", "other"]

# Products of a multiprocessor in a cycle (NVIDIA's architecture papers, dense): bytes, and bf16 with f32 sums. Products of one instruction.
RATES = {"bytes": 1024, "bf16": 256}
PRODUCTS = {"IMMA": 16 * 8 * 32, "HMMA": 16 * 8 * 16}
SCHEDULERS = 4
PART = 16 * 8 * 64

# Multiprocessors, boost clock in GHz, memory in GB/s, architecture, llama.cpp's 7B of 4 bits at 512 tokens (its published table).
CARDS = {
    "RTX 3060": (28, 1.777, 360, "86", 2408),
    "RTX 3090": (82, 1.695, 936, "86", 5560),
    "RTX 4060": (24, 2.460, 272, "89", None),
    "RTX 4090": (128, 2.520, 1008, "89", 14771),
    "RTX 5090": (170, 2.407, 1792, "120", 14970),
}
UPPER = 0.49        # our bf16 kernel on an H200: 300 TFLOP/s of some 614 that mma.sync should have there (62 % of 990)
PEER_LOWEST = 0.24  # where no figure of the card is published: the lowest of those that are
PEER_WEIGHTS = 6.6e9
# An 8B model: weights of its layers, bytes of them at 4 bits, of x as it is read and written for a token's products, and of attention's products at 2,048.
WEIGHTS, WEIGHT_BYTES, ATTENTION = 6.98e9, 3.93e9, 2 * 32 * 4096 * 2048
X_BYTES = 32 * (3 * 4096 + 14336) * 4
BF16_BYTES = 2 * 6.98e9 * 2  # weights as bf16, written and read

KINDS = [("tensor", r"[IH]MMA"), ("float", r"F(FMA|ADD|MUL|SETP|SEL)|MUFU"), ("shared", r"LDS|LDSM|LDL|STL|STS"),
         ("integer", r"LOP3|IADD3|IMAD|LEA|SHF|PRMT|MOV|ISETP|SEL|U[A-Z0-9]+|VIADD|IADD|HADD2|CS2R")]


def kind_of(opcode):
    return next((name for name, pattern in KINDS if re.fullmatch(pattern, opcode)), "other")


def loops(lines):
    """(kernel, instructions of its longest loop with tensor instructions) for every kernel of a listing."""
    kernel, code = None, []
    for line in list(lines) + ["Function : "]:
        found = re.search(r"Function : (\S*)", line)
        if found:
            if kernel and code:
                yield kernel, longest_loop(code)
            kernel, code = found.group(1), []
            continue
        found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)\S*([^;]*)", line)
        if found:
            code.append((int(found.group(1), 16), found.group(2), found.group(3)))


def longest_loop(code):
    best = []
    for at, opcode, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if opcode == "BRA" else None
        if target and int(target.group(1), 16) < at:
            body = [c[1] for c in code if int(target.group(1), 16) <= c[0] <= at]
            if len(body) > len(best) and any(kind_of(c) == "tensor" for c in body):
                best = body
    return best


def count(lines, arch):
    for kernel, body in loops(lines):
        tensor = [c for c in body if kind_of(c) == "tensor"]
        if tensor:
            terms = 2 if tensor[0] == "IMMA" else 1
            parts = len(tensor) * PRODUCTS[tensor[0]] / PART / terms
            yield [arch, kernel] + [round(sum(kind_of(c) == name for c in body) / parts, 2) for name in FIELDS[2:]]


def read_counts():
    with open(COUNTS, newline="") as f:
        return {(row["arch"], row["kernel"]): {name: float(row[name]) for name in FIELDS[2:]} for row in csv.DictReader(f)}


def part_cycles(counts, kernel):
    """Cycles of a scheduler for a part: of its tensor core, and of issuing."""
    unit = "bf16" if kernel == "gemm_bf16" else "bytes"
    each = PRODUCTS["HMMA" if unit == "bf16" else "IMMA"] / (RATES[unit] / SCHEDULERS)
    return counts["tensor"] * each, sum(counts.values())


def ratio(counts, arch, kernel="gemm_bytes_4"):
    """How many times as fast as the bf16 kernel, where both reach the same share of what bounds them."""
    return max(part_cycles(counts[arch, "gemm_bf16"], "gemm_bf16")) / max(part_cycles(counts[arch, kernel], kernel))


def peer_share(card):
    """The share of the rate of bytes that llama.cpp reaches."""
    n, clock, _, _, peer = CARDS[card]
    return peer * PEER_WEIGHTS / (n * clock * 1e9 * RATES["bytes"]) if peer else PEER_LOWEST


def prompt(card, counts, kernel, share):
    """Tokens per second of 8B prompts of 2,048."""
    n, clock, gb, arch, _ = CARDS[card]
    schedulers = n * clock * 1e9 * SCHEDULERS
    seconds = (WEIGHTS / PART) * max(part_cycles(counts[arch, kernel], kernel)) / schedulers / share
    seconds += ATTENTION / (n * clock * 1e9 * RATES["bf16"]) / share
    once = (BF16_BYTES + WEIGHT_BYTES if kernel == "gemm_bf16" else 0) / 2048
    return 1 / (seconds + (once + X_BYTES) / (gb * 1e9))


def tables(counts):
    print("| architecture | kernel | tensor instructions | their cycles | all instructions | bound | times bf16 |")
    print("|---|---|---|---|---|---|---|")
    for (arch, kernel), c in counts.items():
        tensor, issued = part_cycles(c, kernel)
        print(f"| {arch} | {kernel} | {c['tensor']:.0f} | {tensor:.0f} | {issued:.1f} | {'tensor cores' if tensor > issued else 'issuing'} | {ratio(counts, arch, kernel):.2f} |")
    print("\n| card | bf16, predicted | bytes, predicted | llama.cpp, 7B at 512, published |")
    print("|---|---|---|---|")
    for card in CARDS:
        ends = [[prompt(card, counts, kernel, share) for share in (peer_share(card), UPPER)] for kernel in ("gemm_bf16", "gemm_bytes_4")]
        print(f"| {card} | " + " | ".join(f"{low:,.0f} to {high:,.0f}" for low, high in ends) + f" | {CARDS[card][4] or '-'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", metavar="ARCH", help="count the loops of a listing on standard input")
    options = parser.parse_args()
    if options.count:
        csv.writer(sys.stdout, lineterminator="\n").writerows(count(sys.stdin, options.count))
    else:
        tables(read_counts())


if __name__ == "__main__":
    main()
