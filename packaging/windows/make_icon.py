#!/usr/bin/env python3
"""Draws mlxcel.ico: three bars of growing height in a rounded square, at 16, 32, 48 and 256 pixels.

usage: make_icon.py OUT.ico
"""
import struct
import sys
import zlib

BACK, BAR = (0x1b, 0x26, 0x3b), (0x5c, 0xc8, 0xff)
BARS = ((0.20, 0.36, 0.42), (0.42, 0.58, 0.60), (0.64, 0.80, 0.80))  # left, right, height


def inside_round(x, y, radius=0.18):
    dx, dy = max(radius - x, x - (1 - radius), 0), max(radius - y, y - (1 - radius), 0)
    return dx * dx + dy * dy <= radius * radius


def colour(x, y):
    if not inside_round(x, y):
        return (0, 0, 0, 0)
    bar = any(left <= x <= right and 0.86 - height * 0.9 <= y <= 0.82 for left, right, height in BARS)
    return (*(BAR if bar else BACK), 255)


def pixel(col, row, size, grid=4):
    """The mean of grid x grid samples, for soft edges."""
    samples = [colour((col + (i + 0.5) / grid) / size, (row + (j + 0.5) / grid) / size) for i in range(grid) for j in range(grid)]
    alpha = sum(s[3] for s in samples)
    rgb = [sum(s[k] * s[3] for s in samples) // alpha if alpha else 0 for k in range(3)]
    return bytes((*rgb, alpha // len(samples)))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size):
    rows = b"".join(b"\0" + b"".join(pixel(c, r, size) for c in range(size)) for r in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def main():
    images = [(size, png(size)) for size in (16, 32, 48, 256)]
    offset = 6 + 16 * len(images)
    out = struct.pack("<HHH", 0, 1, len(images))
    for size, data in images:
        out += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(data), offset)
        offset += len(data)
    with open(sys.argv[1], "wb") as f:
        f.write(out + b"".join(data for _, data in images))


if __name__ == "__main__":
    main()
