"""Vision models against the reference: test_towers.py PROGRAM VISION_PROBE DATA [--only NAME]

For every fixture of golden-vision: the expanded ids, the pixels, the rows that the tower makes, logits, and greedy tokens. Families in
not_yet.list must refuse a picture with one line that names them.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
from counting import HANG, check, finish  # noqa: E402

program, probe, data = sys.argv[1:4]
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""


def tensors(path):
    kinds = {"F32": "f", "I64": "q", "I32": "i", "U8": "B"}
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    out = {}
    for k, v in head.items():
        if k != "__metadata__" and v["dtype"] in kinds:
            raw = body[v["data_offsets"][0]:v["data_offsets"][1]]
            out[k] = (v["shape"], memoryview(raw).cast(kinds[v["dtype"]]))
    return out


def farthest(a, b):
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0) if len(a) == len(b) else float("inf")


def deviation(values):
    mean = sum(values) / len(values)
    return (sum((x - mean) ** 2 for x in values) / len(values)) ** 0.5


def run(*args):
    return subprocess.run([program, *args], capture_output=True, text=True, errors="replace", timeout=HANG)


def as_patches(golden, k, image, numbers, merge):
    """Pixels [3, height, width] of a picture as rows of patches, tokens row by row, patches of a token row by row."""
    shape, values = golden[f"pixel_values_{k}"]
    height, width = shape[-2:]
    side, base = int((numbers / 3) ** 0.5 + 0.5), image * 3 * height * width
    h, w = height, width
    if f"image_sizes_{k}" in golden:
        h, w = golden[f"image_sizes_{k}"][1][2 * image:2 * image + 2]
    out, cell = [], side * merge
    for y in range(0, h, cell):
        for x in range(0, w, cell):
            for i in range(merge * merge):
                top, left = y + i // merge * side, x + i % merge * side
                for c in range(3):
                    for row in range(top, top + side):
                        at = base + (c * height + row) * width + left
                        out += values[at:at + side]
    return out


def check_tower(name, folder, golden, k, images):
    """Pixels and rows of each picture; those of a prompt lie one behind the other."""
    want_pixels, want_rows = list(golden[f"pixel_values_{k}"][1]), list(golden[f"image_embeds_{k}"][1])
    pixels, sets = [], []
    for image in images:
        r = subprocess.run([probe, folder, image], capture_output=True, timeout=HANG)
        if r.returncode:
            check(False, f"{name} {k}: {r.stderr.decode()}")
            return
        patches, numbers, tokens, n_sets, hidden = struct.unpack("5i", r.stdout[:20])
        values = memoryview(r.stdout[20:]).cast("f")
        if len(golden[f"pixel_values_{k}"][0]) == 4:
            merge = int((patches / tokens) ** 0.5 + 0.5)
            want = as_patches(golden, k, len(pixels), numbers, merge)
            pixels.append(farthest(values[:patches * numbers], want))
        else:
            pixels += values[:patches * numbers]
        at = patches * numbers
        for i in range(n_sets):
            sets += [[]] if len(sets) <= i else []
            sets[i] += values[at + i * tokens * hidden:at + (i + 1) * tokens * hidden]
    far = max(pixels) if len(golden[f"pixel_values_{k}"][0]) == 4 else farthest(pixels, want_pixels)
    check(far <= 1e-5, f"{name} {k}: pixels differ by {far:g}")
    for i, rows in enumerate(sets):
        want = want_rows if i == 0 else list(golden[f"deepstack{i - 1}_{k}"][1])
        far, sd = farthest(rows, want), deviation(want)
        check(far <= 1e-4 * sd, f"{name} {k}: rows of set {i} differ by {far / sd:g} sd")


def check_prompt(name, folder, golden, k, prompt):
    images = [f"{data}/golden-vision/images/{i}" for i in prompt["images"]]
    if any(i.endswith("grey16.png") for i in images):
        return
    flags = [f for i in images for f in ("--image", i)]
    ids = list(golden[f"prompt_{k}"][1])
    model = ["-m", folder]
    if images:
        check_tower(name, folder, golden, k, images)
        r = run("tokenize", *model, *flags, "-p", prompt["rendered"])
        check(r.returncode == 0 and json.loads(r.stdout) == ids, f"{name} {k}: ids {r.stdout[:300]} {r.stderr[-300:]}")
    with tempfile.TemporaryDirectory() as t:
        r = run("logits", *model, *flags, "--tokens", ",".join(map(str, ids)), "--out", f"{t}/out", "--device", "cpu", "--precision", "exact")
        if r.returncode:
            check(False, f"{name} {k}: {r.stderr}")
            return
        with open(f"{t}/out", "rb") as f:
            got = memoryview(f.read()).cast("f")
    (rows, vocab), want = golden[f"logits_{k}"]
    places = list(golden[f"logits_pos_{k}"][1])
    far = max(farthest(got[p * vocab:(p + 1) * vocab], want[i * vocab:(i + 1) * vocab]) for i, p in enumerate(places))
    sd = deviation(list(want))
    check(far <= 1e-4 * sd + 1e-4, f"{name} {k}: logits differ by {far:g}, {far / sd:g} sd")
    greedy, margins = list(golden[f"greedy_{k}"][1]), list(golden[f"margin_{k}"][1])
    r = run("generate", *model, *flags, "--tokens", ",".join(map(str, ids)), "--ids", "-n", str(len(greedy)), "--ignore-eos", "--device", "cpu")
    said = [int(x) for x in r.stdout.replace(",", " ").split()] if r.returncode == 0 else []
    n = next((i for i, m in enumerate(margins) if m <= 1e-3), len(greedy))
    check(n == 0 or (said[:n] == greedy[:n]), f"{name} {k}: greedy {said} instead of {greedy} {r.stderr[-200:]}")
    if images and prompt.get("messages") and len(prompt["messages"]) == 1 and [p["type"] for p in prompt["messages"][0]["content"]] == ["image", "text"]:
        r = run("generate", *model, *flags, "-p", prompt["text"], "--ids", "-n", str(len(greedy)), "--ignore-eos", "--device", "cpu")
        said = [int(x) for x in r.stdout.replace(",", " ").split()] if r.returncode == 0 else []
        check(said[:n] == greedy[:n], f"{name} {k}: through the template {said} instead of {greedy} {r.stderr[-300:]}")


def damaged(folder, change_config=None, change_shapes=None):
    """A copy of a model with another config.json, or with other shapes in the header of its weights; (exit code, error) of a picture, and of text."""
    with tempfile.TemporaryDirectory() as t:
        for f in os.listdir(folder):
            os.symlink(f"{folder}/{f}", f"{t}/{f}")
        os.unlink(f"{t}/golden.safetensors")
        if change_config:
            config = json.load(open(f"{folder}/config.json"))
            change_config(config)
            os.unlink(f"{t}/config.json")
            json.dump(config, open(f"{t}/config.json", "w"))
        if change_shapes:
            with open(f"{folder}/model.safetensors", "rb") as f:
                n = struct.unpack("<Q", f.read(8))[0]
                head, body = json.loads(f.read(n)), f.read()
            change_shapes(head)
            os.unlink(f"{t}/model.safetensors")
            text = json.dumps(head).encode()
            with open(f"{t}/model.safetensors", "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + body)
        r = run("generate", "-m", t, "--image", f"{root}/images/land.png", "-p", "x", "-n", "1", "--device", "cpu")
        plain = run("generate", "-m", t, "-p", "x", "-n", "1", "--device", "cpu")
        return r, plain


def check_damaged():
    def deep(value):
        def change(config):
            config["vision_config"]["deepstack_visual_indexes"] = value
        return change

    def narrow(head):
        shape = head["model.visual.pos_embed.weight"]["shape"]
        head["model.visual.pos_embed.weight"]["shape"] = [shape[0] // 4, shape[1] * 4]
    for what, change, words in (
            ("a block that is not there", {"change_config": deep([0, 99])}, "deepstack_visual_indexes"),
            ("a block below 0", {"change_config": deep([-1])}, "deepstack_visual_indexes"),
            ("a block that is no number", {"change_config": deep(["x"])}, "deepstack_visual_indexes"),
            ("a merger that is not there", {"change_config": deep([0] * 9)}, "deepstack_merger_list.2"),
            ("positions of another width", {"change_shapes": narrow}, "pos_embed")):
        r, plain = damaged(f"{root}/qwen3_vl", **change)
        check(r.returncode == 1 and words in r.stderr.splitlines()[-1], f"{what}: {r.returncode} {r.stderr[-300:]}")
        check(plain.returncode == 0 and words in plain.stderr, f"{what}: text works, and the log says why pictures do not: {plain.returncode} {plain.stderr[-300:]}")


root = f"{data}/golden-vision"
not_yet = {line.strip() for line in open(f"{here}/not_yet.list") if line.strip() and not line.startswith("#")}
for name in sorted(os.listdir(root)):
    folder = f"{root}/{name}"
    if not os.path.isfile(f"{folder}/prompts.json") or only not in name:
        continue
    prompts = json.load(open(f"{folder}/prompts.json"))["prompts"]
    if name in not_yet or name.removesuffix("-mlx") in not_yet:
        r = run("generate", "-m", folder, "--image", f"{root}/images/land.png", "-p", "x", "-n", "1", "--device", "cpu")
        check(r.returncode != 0 and ("text alone" in r.stderr or "is not supported" in r.stderr) and len(r.stderr.strip().splitlines()) <= 3, f"{name}: a picture is refused: {r.returncode} {r.stderr}")
        continue
    golden = tensors(f"{folder}/golden.safetensors")
    r = run("inspect", "-m", folder)
    check(re.search("^pictures +[A-Z]", r.stdout, re.M), f"{name}: inspect names the tower: {r.stdout[-300:]}")
    for k, prompt in enumerate(prompts):
        check_prompt(name, folder, golden, k, prompt)
if only in "qwen3_vl":
    check_damaged()
finish()
