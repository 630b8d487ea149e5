"""Picture files and resizing: test_images.py IMAGE_PROBE [DATA] [--count N]

Our own pictures, written here, have known pixels. With the test data: every file and every resized picture against what Pillow made of it, bit
for bit. Then N damaged files of every format (200), and files that would unpack to gigabytes: each is one clear line or a picture, never a crash, and
memory stays bounded.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import resource
except ImportError:  # Windows has none
    resource = None

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import made  # noqa: E402
from counting import HANG, check, finish  # noqa: E402
from made import bmp, chunk, gif, png  # noqa: E402

probe, data = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 and not sys.argv[2].startswith("--") else ""
count = int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else 200


def run(*args):
    """(width, height, pixels) or the error line."""
    r = subprocess.run([probe, *map(str, args)], capture_output=True, timeout=HANG)
    if r.returncode:
        return r.stderr.decode().strip() if r.returncode == 1 else f"exit {r.returncode}"
    head, _, pixels = r.stdout.partition(b"\n")
    _, w, h, _ = head.split()
    return int(w), int(h), pixels


folder = tempfile.TemporaryDirectory()


def write(name, content):
    path = os.path.join(folder.name, name)
    with open(path, "wb") as f:
        f.write(content)
    return path


def own_pictures():
    w, h = 5, 3
    pixels = bytes((i * 37) % 256 for i in range(w * h * 3))
    rows = [pixels[y * w * 3:(y + 1) * w * 3] for y in range(h)]
    check(run(write("a.png", png(w, h, rows))) == (w, h, pixels), "PNG")
    wide = [bytes(b for v in r for b in (v, 0x77)) for r in rows]
    check(run(write("b.png", png(w, h, wide, 16))) == (w, h, pixels), "PNG of 16 bits")
    grey = [r[:w] for r in rows]
    check(run(write("c.png", png(w, h, grey, 8, 0))) == (w, h, bytes(b for r in grey for v in r for b in (v, v, v))), "grey PNG")
    clear = [bytes(b for x in range(w) for b in (*r[3 * x:3 * x + 3], 0 if x % 2 else 255)) for r in rows]
    expect = bytes(b for r in rows for x in range(w) for b in ((255, 255, 255) if x % 2 else r[3 * x:3 * x + 3]))
    check(run(write("d.png", png(w, h, clear, 8, 6))) == (w, h, expect), "what is transparent lies on white")
    half = png(1, 1, [bytes((10, 100, 200, 128))], 8, 6)
    check(run(write("e.png", half)) == (1, 1, bytes((132, 177, 227))), "half transparent")
    check(run(write("a.bmp", bmp(w, h, pixels))) == (w, h, pixels), "BMP")
    indices = [(x + y) % 2 for y in range(h) for x in range(w)]
    expect = bytes(b for i in indices for b in ((0, 0, 255) if i else (255, 0, 0)))
    check(run(write("a.gif", gif(w, h, indices))) == (w, h, expect), "GIF")
    for o in range(1, 9):
        exif = chunk(b"eXIf", b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, o, 0, 0))
        pix = [[rows[y][3 * x:3 * x + 3] for x in range(w)] for y in range(h)]
        if o in (2, 3, 7, 8):
            pix = [r[::-1] for r in pix]
        if o in (3, 4, 6, 7):
            pix = pix[::-1]
        if o > 4:
            pix = [list(c) for c in zip(*pix)]
        got = run(write("o.png", png(w, h, rows, extra=exif)))
        check(got == (len(pix[0]), len(pix), b"".join(b"".join(r) for r in pix)), f"orientation {o}: {got[:2]}")


def bad_pictures():
    for name, (content, words) in made.bad().items():
        got = run(write(name, content))
        check(isinstance(got, str) and words in got and "\n" not in got, f"{name}: {got}")


def bombs():
    for name, content in made.bombs().items():
        limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))) if resource else None
        r = subprocess.run([probe, "-", write(name, content)], capture_output=True, text=True, errors="replace", timeout=HANG, preexec_fn=limit)
        check(r.returncode == 0 and len(r.stdout.splitlines()) == 1 and "no memory" not in r.stdout, f"{name}: {r.returncode} {r.stdout[:300]} {r.stderr[:300]}")
        os.remove(os.path.join(folder.name, name))


def damaged_pictures(seeds, count):
    rng = random.Random(7)
    for name, content in seeds:
        paths = [write(f"m{i}_{name}", made.damage(rng, content)) for i in range(count)]
        r = subprocess.run([probe, "-", *paths], capture_output=True, text=True, errors="replace", timeout=HANG)
        check(r.returncode == 0 and len(r.stdout.splitlines()) == count, f"damaged {name}: exit {r.returncode}, {r.stderr[-300:]}")
        for p in paths:
            os.remove(p)


def tensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    return {k: (v["shape"], body[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in head.items() if k != "__metadata__"}


def reference_pictures(images):
    for key, (shape, pixels) in sorted(tensors(f"{images}/decoded.safetensors").items()):
        kind, _, name = key.partition("_")
        if name == "grey16.png" or (kind == "rgb" and name in ("alpha.png", "greyalpha.png")):
            continue  # the high byte is taken, not Pillow's clipping; and what is transparent lies on white
        check(run(f"{images}/{name}") == (shape[1], shape[0], pixels), f"{key} against Pillow")
    n = 0
    for key, (shape, pixels) in sorted(tensors(f"{images}/resize.safetensors").items()):
        parts = key.split(":")
        if len(parts) != 3 or parts[2] not in ("bilinear", "bicubic", "lanczos"):
            continue
        h, w = parts[1].split("x")
        n += 1
        check(run(f"{images}/{parts[0]}", w, h, parts[2]) == (shape[1], shape[0], pixels), f"{key} against Pillow")
    check(n > 10, f"{n} resized pictures were compared")


own_pictures()
bad_pictures()
images = f"{data}/golden-vision/images"
if data and os.path.isdir(images):
    reference_pictures(images)
    seeds = [(n, open(f"{images}/{n}", "rb").read()) for n in made.SEEDS]
else:
    seeds = [(n, open(os.path.join(folder.name, n), "rb").read()) for n in ("a.png", "a.bmp", "a.gif")]
damaged_pictures(seeds, count)
bombs()
finish()
