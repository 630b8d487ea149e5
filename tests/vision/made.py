"""Picture files that the tests write themselves: good ones, and those that no decoder should take."""
import struct
import zlib

SEEDS = ("land.png", "palette.png", "photo.jpg", "progressive.jpg", "lossy.webp", "lossless.webp", "drawn.gif", "drawn.bmp")  # of the test data, which are damaged


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(w, h, rows, depth=8, colour=2, extra=b""):
    """rows: the bytes of each row."""
    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")


def bmp(w, h, pixels):
    stride = (w * 3 + 3) // 4 * 4
    body = b"".join(b"".join(bytes(pixels[(y * w + x) * 3:(y * w + x) * 3 + 3][::-1]) for x in range(w)).ljust(stride, b"\0") for y in range(h - 1, -1, -1))
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, w, h, 1, 24, 0, len(body), 0, 0, 0, 0) + body


def gif(w, h, indices):
    """Two colours; each code is one index, cleared before the table grows."""
    bits = n = 0
    out = bytearray()

    def put(code):
        nonlocal bits, n
        bits, n = bits | code << n, n + 3
        while n >= 8:
            out.append(bits & 255)
            bits, n = bits >> 8, n - 8
    for i, v in enumerate(indices):
        if i % 2 == 0:
            put(4)
        put(v)
    put(5)
    if n:
        out.append(bits & 255)
    blocks = b"".join(bytes([len(out[i:i + 255])]) + bytes(out[i:i + 255]) for i in range(0, len(out), 255)) + b"\0"
    return b"GIF89a" + struct.pack("<HHBBB", w, h, 0x80, 0, 0) + b"\xff\0\0\0\0\xff" + b"," + struct.pack("<HHHHB", 0, 0, w, h, 0) + b"\2" + blocks + b";"


def damage(rng, content):
    """Cut off, with other bytes in its head or anywhere, or with a hole."""
    b = bytearray(content)
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(b[:rng.randrange(len(b))])
    for _ in range(rng.choice((1, 2, 8, 32))):
        at = rng.randrange(len(b) if kind != 1 else min(len(b), 64))
        b[at] = rng.randrange(256)
    if kind == 2:
        at = rng.randrange(len(b))
        del b[at:at + rng.randrange(1, 40)]
    return bytes(b)


def bad():
    """Files that say of themselves what is wrong, by name, each with a word of the error."""
    dot = bmp(1, 1, b"abc")
    return {
        "empty": (b"", "empty"), "text": (b"hello", "no picture"), "zero.png": (png(0, 0, []), "PNG"),
        "long.png": (png(100000, 1, [b"\0" * 300000]), "100000 x 1"), "bomb.png": (png(60000, 60000, [b"\0" * 10]), "60000 x 60000"),
        "zero.bmp": (bmp(0, 0, b""), "no pixels"), "zero.gif": (gif(0, 0, []), "GIF"), "long.bmp": (dot[:18] + b"\xff\xff\xff\x7f" + dot[22:], "BMP")}


def bombs(mib=1024):
    """Small files that say much, some of them so many MiB: what they may use is limited, and they must end with a picture or a line."""
    many = zlib.compressobj(9)
    packed = b"".join(many.compress(bytes(1 << 20)) for _ in range(mib)) + many.flush()
    rows = zlib.compress(b"\0" * (100 * 301), 9)
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100, 100, 8, 2, 0, 0, 0))
    end = chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return {
        "text.png": head + chunk(b"zTXt", b"a\0\0" + packed) + end,
        "profile.png": head + chunk(b"iCCP", b"a\0\0" + packed) + end,
        "pixels.png": head + chunk(b"IDAT", packed) + chunk(b"IEND", b""),
        "chunks.png": head + chunk(b"tEXt", b"a\0b") * 20000 + end,
        "wide.gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0) + b"\xff\0\0\0\0\xff;",
        "wide.webp": b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + b"\xff\xff\xff" * 2,
        "wide.jpg": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01\xff\xd9",
        "wide.bmp": b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 65535, 65535, 1, 24, 0, 0, 0, 0, 0, 0)}
