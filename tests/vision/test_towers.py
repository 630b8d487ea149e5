"""Vision models against the reference: test_towers.py PROGRAM VISION_PROBE DATA [--only NAME] [--device cuda] [--precision default] [--jobs N]

For every fixture of golden-vision: the expanded ids, the pixels, the rows that the tower makes, logits, and greedy tokens; rows and logits of its first
prompt again from files as mlx-vlm has them; of some with quantised matrices, against the numbers that these stand for. Families in not_yet.list must
refuse a picture with one line that names them.

With --precision default, the fixtures alone and their files for MLX: rows and logits are held against the bounds of golden_tests --close. On another device
the fixtures are computed in both precisions, each in a process of its own, N at a time.
"""
import concurrent.futures
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
import counting  # noqa: E402
from counting import HANG, check, finish  # noqa: E402
from made import png  # noqa: E402
from mlx_layout import convert  # noqa: E402

program, probe, data = sys.argv[1:4]


def option(name, otherwise):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


only, device, precision, jobs = option("--only", ""), option("--device", "cpu"), option("--precision", ""), int(option("--jobs", "4"))
is_close = precision == "default"
is_whole = device == "cpu" and not is_close
RMS_MOST, KL_MOST = 2e-2, 4e-4
on_device = ["--device", device, *([] if is_close else ["--precision", "exact"])]


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


def rms(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / len(a)) ** 0.5 if len(a) == len(b) else float("inf")


def deviation(values):
    mean = sum(values) / len(values)
    return (sum((x - mean) ** 2 for x in values) / len(values)) ** 0.5


def run(*args):
    return subprocess.run([program, *args], capture_output=True, text=True, errors="replace", timeout=HANG)


def from_planes(values, base, stride, height, width, side, merge):
    """Pixels [3, height, width] as rows of patches, tokens row by row, patches of a token row by row. stride: [plane, row]."""
    out, cell = [], side * merge
    for y in range(0, height, cell):
        for x in range(0, width, cell):
            for i in range(merge * merge):
                top, left = y + i // merge * side, x + i % merge * side
                for c in range(3):
                    for row in range(top, top + side):
                        at = base + c * stride[0] + row * stride[1] + left
                        out += values[at:at + side]
    return out


def from_patches(values, base, down, across, side, merge, colours_last):
    """Patches row by row in the order of tokens, each by colours."""
    out, size, area = [], 3 * side * side, side * side
    for y in range(0, down, merge):
        for x in range(0, across, merge):
            for i in range(merge * merge):
                at = base + ((y + i // merge) * across + x + i % merge) * size
                patch = values[at:at + size]
                out += [patch[k * 3 + c] for c in range(3) for k in range(area)] if colours_last else patch
    return out


class Pixels:
    """The pixels of a prompt in the order of the tower's patches, tile by tile; each family has its own shape for them."""

    def __init__(self, golden, k):
        self.shape, self.values = golden[f"pixel_values_{k}"]
        self.sizes = golden.get(f"image_sizes_{k}", (None, None))[1]
        self.at = 0  # in values, or the number of the next tile
        self.first_of_image = True

    def tile(self, image, i_tile, down, across, side, frames, merge):
        shape, values, n = self.shape, self.values, down * across
        if len(shape) == 2 or (len(shape) == 4 and shape[-1] == side):  # patches of all pictures, one behind the other
            size, ordered = 3 * side * side * frames, len(shape) == 2
            out = values[self.at:self.at + n * size] if ordered else from_patches(values, self.at, down, across, side, merge, False)
            self.at += n * size
            return out
        if len(shape) == 3:  # patches with padding
            self.at += 1
            return from_patches(values, (self.at - 1) * shape[1] * shape[2], down, across, side, merge, True)
        height, width = shape[-2:]
        number = self.at
        if len(shape) == 6 or (len(shape) == 5 and shape[0] > 1):  # tiles of each picture, with padding
            number = image * shape[-4] + i_tile
        self.at += 1
        return from_planes(values, number * 3 * height * width, (height * width, width), down * side, across * side, side, merge)


def check_tower(name, folder, golden, k, images):
    """Pixels and rows of each picture; those of a prompt lie one behind the other."""
    config = json.load(open(f"{folder}/config.json"))
    factor = config.get("text_config", {}).get("embedding_multiplier", 1)  # which ours has already
    want_rows = [x * factor for x in golden[f"image_embeds_{k}" if f"image_embeds_{k}" in golden else f"cross_states_{k}"][1]]
    pixels, far, sets = Pixels(golden, k), 0.0, []
    for i, image in enumerate(images):
        r = subprocess.run([probe, folder, image, *(["rough"] if is_close else []), device], capture_output=True, timeout=HANG)
        if r.returncode:
            check(False, f"{name} {k}: {r.stderr.decode()}")
            return
        tiles, numbers, tokens, n_sets, hidden = struct.unpack("5i", r.stdout[:20])
        patch = config["vision_config"]["patch_size"]
        side = patch[0] if isinstance(patch, list) else patch
        frames, at, merge = numbers // (3 * side * side), 20, merge_of(config)
        for t in range(tiles):
            down, across = struct.unpack("2i", r.stdout[at:at + 8])
            end = at + 8 + 4 * down * across * numbers
            far = max(far, farthest(memoryview(r.stdout[at + 8:end]).cast("f"), pixels.tile(i, t, down, across, side, frames, merge)))
            at = end
        values = memoryview(r.stdout[at:]).cast("f")
        for n in range(n_sets):
            sets += [[]] if len(sets) <= n else []
            sets[n] += values[n * tokens * hidden:(n + 1) * tokens * hidden]
    check(far <= 1e-5, f"{name} {k}: pixels differ by {far:g}")
    for i, rows in enumerate(sets):
        want = want_rows if i == 0 else list(golden[f"deepstack{i - 1}_{k}"][1])
        far, sd = rms(rows, want) if is_close else farthest(rows, want), deviation(want)
        check(far <= (RMS_MOST if is_close else 1e-4) * sd, f"{name} {k}: rows of set {i} differ by {far / sd:g} sd")


def merge_of(config):
    """Patches of a token's side."""
    vision = config["vision_config"]
    for key in ("spatial_merge_size", "pooling_kernel_size", "scale_factor", "downsample_factor", "downsample_ratio", "pixel_shuffle_ratio", "merge_kernel_size"):
        value = vision.get(key, config.get(key))
        if value:
            value = value[0] if isinstance(value, list) else value
            return round(1 / value) if value < 1 else value
    if "mm_tokens_per_image" in config:
        return int(vision["image_size"] // vision["patch_size"] / config["mm_tokens_per_image"] ** 0.5)
    return 2 if config["model_type"].startswith("qwen") else 1


def logits_of(folder, flags, ids):
    """Of all tokens, one behind the other; or the error."""
    with tempfile.TemporaryDirectory() as t:
        r = run("logits", "-m", folder, *flags, "--tokens", ",".join(map(str, ids)), "--out", f"{t}/out", *on_device)
        if r.returncode:
            return r.stderr
        with open(f"{t}/out", "rb") as f:
            return memoryview(f.read()).cast("f")


def kl_of(got, want):
    tops = max(want), max(got)
    p, q = [math.exp(x - tops[0]) for x in want], [math.exp(x - tops[1]) for x in got]
    sums = sum(p), sum(q)
    return sum(a / sums[0] * (math.log(max(a, 1e-300) / sums[0]) - math.log(max(b, 1e-300) / sums[1])) for a, b in zip(p, q))


def check_closeness(name, got, want):
    """As golden_tests --close: of models with experts, of which another one may be chosen in a near tie, medians count."""
    sd = deviation([x for row in want for x in row])
    far, kls = [rms(g, w) / sd for g, w in zip(got, want)], [kl_of(g, w) for g, w in zip(got, want)]
    if "_moe" in name or "llama4" in name or "kimi" in name:
        judged = sorted(far)[len(far) // 2], sorted(kls)[len(kls) // 2]
    else:
        judged = (sum(x * x for x in far) / len(far)) ** 0.5, sum(kls) / len(kls)
    check(judged[0] <= RMS_MOST and judged[1] <= KL_MOST, f"{name}: logits differ by {judged[0]:g} sd rms, KL {judged[1]:g}")
    return True


def check_logits(name, folder, golden, k, flags):
    got = logits_of(folder, flags, list(golden[f"prompt_{k}"][1]))
    if isinstance(got, str):
        return check(False, f"{name} {k}: {got}")
    (rows, vocab), want = golden[f"logits_{k}"]
    places = list(golden[f"logits_pos_{k}"][1])
    if is_close:
        return check_closeness(f"{name} {k}", [got[p * vocab:(p + 1) * vocab] for p in places], [want[i * vocab:(i + 1) * vocab] for i in range(rows)])
    far = max(farthest(got[p * vocab:(p + 1) * vocab], want[i * vocab:(i + 1) * vocab]) for i, p in enumerate(places))
    sd = deviation(list(want))
    check(far <= 1e-4 * sd + 1e-4, f"{name} {k}: logits differ by {far:g}, {far / sd:g} sd")
    return True


def check_mlx(name, folder, golden, prompt):
    """The first prompt with the files as MLX has them."""
    images = [f"{data}/golden-vision/images/{i}" for i in prompt["images"]]
    with tempfile.TemporaryDirectory() as t:
        convert(folder, t)
        check_tower(f"{name} for MLX", t, golden, 0, images)
        check_logits(f"{name} for MLX", t, golden, 0, [f for i in images for f in ("--image", i)])


def check_quantised(name):
    """Quantised matrices in text model, projector and tower are the numbers that they stand for."""
    picture, golden = f"{root}/images/land.png", tensors(f"{root}/{name}/golden.safetensors")
    with tempfile.TemporaryDirectory() as packed, tempfile.TemporaryDirectory() as plain:
        convert(f"{root}/{name}", packed, True, plain)
        made = [subprocess.run([probe, f, picture], capture_output=True, timeout=HANG) for f in (packed, plain)]
        check(all(r.returncode == 0 for r in made), f"{name} quantised: {[r.stderr[-300:] for r in made]}")
        rows = [list(memoryview(r.stdout[20 + len(r.stdout[20:]) % 4:]).cast("f")) for r in made]
        check(rows[0] and farthest(*rows) <= 1e-4 * max(map(abs, rows[1])), f"{name} quantised: rows differ by {farthest(*rows):g}")
        got = [logits_of(f, ["--image", picture], list(golden["prompt_0"][1])) for f in (packed, plain)]
        if check(not any(isinstance(g, str) for g in got), f"{name} quantised: {[str(g)[:300] for g in got]}"):
            check(farthest(*got) <= 1e-3 * deviation(list(got[1])), f"{name} quantised: logits differ by {farthest(*got):g}")


def rows_of(folder, picture, *more):
    r = subprocess.run([probe, folder, picture, *more], capture_output=True, timeout=HANG)
    if r.returncode:
        return r.stderr.decode()
    tiles, numbers, tokens, sets, hidden = struct.unpack("5i", r.stdout[:20])
    return list(memoryview(r.stdout[len(r.stdout) - 4 * tokens * hidden:]).cast("f"))


def check_rough(name, size):
    """Attention in blocks, with keys and values in half precision, against the exact one: many patches, windows, heads of odd widths."""
    with tempfile.TemporaryDirectory() as t:
        for f in os.listdir(f"{root}/{name}"):
            if f not in ("golden.safetensors", "preprocessor_config.json"):
                os.symlink(f"{root}/{name}/{f}", f"{t}/{f}")
        config = json.load(open(f"{root}/{name}/preprocessor_config.json"))
        json.dump({**config, **({"size": size} if size else {})}, open(f"{t}/preprocessor_config.json", "w"))
        exact, rough = rows_of(t, f"{root}/images/photo.png"), rows_of(t, f"{root}/images/photo.png", "rough")
        if check(not isinstance(exact, str) and not isinstance(rough, str), f"{name}, rough: {exact} {rough}"):
            far = farthest(exact, rough) / deviation(exact)
            check(0 < far < 0.02, f"{name}, rough: rows differ by {far:g} sd")


def check_prompt(name, folder, golden, k, prompt):
    images = [f"{data}/golden-vision/images/{i}" for i in prompt["images"]]
    if any(i.endswith("grey16.png") for i in images):
        return
    flags = [f for i in images for f in ("--image", i)]
    ids = list(golden[f"prompt_{k}"][1])
    model = ["-m", folder]
    if images:
        check_tower(name, folder, golden, k, images)
    if images and device == "cpu":
        r = run("tokenize", *model, *flags, "-p", prompt["rendered"])
        check(r.returncode == 0 and json.loads(r.stdout) == ids, f"{name} {k}: ids {r.stdout[:300]} {r.stderr[-300:]}")
    if not check_logits(name, folder, golden, k, flags) or is_close:
        return
    greedy, margins = list(golden[f"greedy_{k}"][1]), list(golden[f"margin_{k}"][1])
    r = run("generate", *model, *flags, "--tokens", ",".join(map(str, ids)), "--ids", "-n", str(len(greedy)), "--ignore-eos", *(["--device", "cpu"] if device == "cpu" else on_device))
    said = [int(x) for x in r.stdout.replace(",", " ").split()] if r.returncode == 0 else []
    n = next((i for i, m in enumerate(margins) if m <= 1e-3), len(greedy))
    check(n == 0 or (said[:n] == greedy[:n]), f"{name} {k}: greedy {said} instead of {greedy} {r.stderr[-200:]}")
    if device == "cpu" and images and prompt.get("messages") and len(prompt["messages"]) == 1 and [p["type"] for p in prompt["messages"][0]["content"]] == ["image", "text"]:
        r = run("generate", *model, *flags, "-p", prompt["text"], "--ids", "-n", str(len(greedy)), "--ignore-eos", "--device", "cpu")
        said = [int(x) for x in r.stdout.replace(",", " ").split()] if r.returncode == 0 else []
        check(said[:n] == greedy[:n], f"{name} {k}: through the template {said} instead of {greedy} {r.stderr[-300:]}")


def check_inspect(name, folder, prompt):
    """The tower, the projector, and as many tokens as a picture of that size takes."""
    r, config = run("inspect", "-m", folder), json.load(open(f"{folder}/config.json"))
    told = re.search(r"^pictures +[A-Z].*: (\d+) layers, .*\nprojector +\S.* (\d+)(;.*)?\ntokens +(\d+) for a picture of 1024 x 1024 pixels$", r.stdout, re.M)
    if not check(told and int(told[2]) == config.get("text_config", config)["hidden_size"], f"{name}: inspect names tower and projector: {r.stdout[-400:]}"):
        return
    with tempfile.NamedTemporaryFile(suffix=".png") as f:
        f.write(png(1024, 1024, [bytes(3 * 1024)] * 1024))
        f.flush()
        r = run("tokenize", "-m", folder, "--image", f.name, "-p", prompt)
    ids, token = json.loads(r.stdout) if r.returncode == 0 else r.stderr, config.get("image_token_id", config.get("image_token_index"))
    check(ids.count(token) == int(told[4]), f"{name}: inspect says {told[4]} tokens, and there are {ids.count(token)}")


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


def each_in_a_process():
    """All fixtures on a device, in both precisions; their counts together."""
    names = [n for n in sorted(os.listdir(root)) if os.path.isfile(f"{root}/{n}/prompts.json") and n.removesuffix("-mlx") not in not_yet and only in n]

    def one(task):
        command = [sys.executable, *sys.argv[:4], "--device", device, "--precision", task[1], "--only", task[0]]
        return task, subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (name, how), out in pool.map(one, [(n, p) for p in ("exact", "default") for n in names]):
            last = re.search(r"^(\d+) passed, (\d+) failed$", out, re.M)
            print("".join(line + "\n" for line in out.splitlines() if line.startswith("FAILED")), end="")
            print(f"{name}, {how}: {last[0] if last else out[-300:]}", flush=True)
            counting.n_passed += int(last[1]) if last else 0
            counting.n_failed += int(last[2]) if last else 1
    finish()


root = f"{data}/golden-vision"
not_yet = {line.strip() for line in open(f"{here}/not_yet.list") if line.strip() and not line.startswith("#")}
if device != "cpu" and not precision:
    each_in_a_process()
for name in sorted(os.listdir(root)):
    folder = f"{root}/{name}"
    if not os.path.isfile(f"{folder}/prompts.json") or (only not in name if device == "cpu" else only != name):
        continue
    prompts = json.load(open(f"{folder}/prompts.json"))["prompts"]
    if name in not_yet or name.removesuffix("-mlx") in not_yet:
        r = run("generate", "-m", folder, "--image", f"{root}/images/land.png", "-p", "x", "-n", "1", "--device", "cpu")
        check(r.returncode != 0 and ("text alone" in r.stderr or "is not supported" in r.stderr) and len(r.stderr.strip().splitlines()) <= 3, f"{name}: a picture is refused: {r.returncode} {r.stderr}")
        continue
    golden = tensors(f"{folder}/golden.safetensors")
    check_inspect(name, folder, next(p for p in prompts if len(p["images"]) == 1)["rendered"])
    for k, prompt in enumerate(prompts):
        check_prompt(name, folder, golden, k, prompt)
    if not name.endswith("-mlx") and device == "cpu":
        check_mlx(name, folder, golden, prompts[0])
for name, size in (("qwen2_5_vl", {"shortest_edge": 150000, "longest_edge": 200000}), ("qwen3_vl", {"shortest_edge": 150000, "longest_edge": 200000}), ("gemma4", None)):
    if is_whole and only in name:
        check_rough(name, size)
for name in ("gemma4", "glm4v", "internvl", "qwen2_5_vl", "smolvlm"):
    if is_whole and only in name:
        check_quantised(name)
if is_whole and only in "qwen3_vl":
    check_damaged()
finish()
