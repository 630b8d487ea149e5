#!/usr/bin/env python3
"""bench/card_model.py: loops are found and counted, the counts that are kept bear out what docs/speed/cuda.md says, and its tables are the script's."""
import contextlib
import io
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests")]
import card_model
from counting import check, finish

# Two loops; the one without tensor instructions is longer.
LISTING = """
\t\tFunction : sums
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   IMMA.16832.U8.S8 R4, R8.ROW, R2.COL, R4 ;
        /*0020*/              @!P0 FADD R4, R4, R5 ;
        /*0030*/                   IMMA.16832.U8.S8 R4, R8.ROW, R2.COL, R4 ;
        /*0040*/                   LDS.128 R8, [R3] ;
        /*0050*/               @P0 BRA 0x10 ;
        /*0060*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0070*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0080*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0090*/                   IADD3 R3, R3, 0x1, RZ ;
        /*00a0*/                   IADD3 R3, R3, 0x1, RZ ;
        /*00b0*/                   IADD3 R3, R3, 0x1, RZ ;
        /*00c0*/               @P1 BRA 0x60 ;
\t\tFunction : none
        /*0000*/                   EXIT ;
"""


def check_counts():
    rows = list(card_model.count(LISTING.splitlines(), "86"))
    check(rows == [["86", "sums", 4.0, 2.0, 0.0, 2.0, 2.0]], f"half a part's tensor instructions, and two of each other kind for a part: {rows}")


def check_ratios():
    counts = card_model.read_counts()
    for arch in "86", "89", "120":
        for kernel in "gemm_bytes_4", "gemm_bytes_4_32", "gemm_bytes_8", "gemm_bytes_8_32":
            check(card_model.ratio(counts, arch, kernel) >= 1.7, f"{kernel} on {arch} is {card_model.ratio(counts, arch, kernel):.2f} times the bf16 kernel")
    tensor, issued = card_model.part_cycles({"tensor": 4, "float": 100}, "gemm_bytes_4")
    check((tensor, issued) == (64, 104), f"cycles of a part: {tensor} and {issued}")
    counts["86", "gemm_bytes_4"]["float"] = 100
    check(card_model.ratio(counts, "86") < 1.7, "too many instructions beside the products are seen")


def check_page():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        card_model.tables(card_model.read_counts())
    with open(os.path.join(ROOT, "docs", "speed", "cuda.md"), encoding="utf-8") as f:
        page = f.read()
    for table in out.getvalue().strip().split("\n\n"):
        check(table in page, f"docs/speed/cuda.md has not this table of bench/card_model.py:\n{table}")


check_counts()
check_ratios()
check_page()
finish()
