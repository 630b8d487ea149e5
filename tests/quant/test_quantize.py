#!/usr/bin/env python3
"""`mlxcel quantize` against mlx-lm's converter: the same tensors with the same bytes, the same quantisation in config.json, for
every mode, several families, bits by layer; and what happens when it cannot be done.

mlx-lm is asked for its model, its quantisation and its files; only the tokenizer is left aside. Where mlx-lm is not installed,
the comparison is made with what mx.quantize gives for each matrix.

usage: test_quantize.py PROGRAM DATA      last line: "N passed, N failed[, N skipped]"
"""
import copy
import fnmatch
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from counting import HANG, check, finish, skip  # noqa: E402

try:
    import mlx.core as mx
except ImportError as missing:
    skip(f"test_quantize: {missing}")
    finish()
try:
    from mlx_lm import utils as lm
except ImportError:
    lm = None

program, data = os.path.abspath(sys.argv[1]), Path(sys.argv[2])


def run(*args, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_"))}
    return subprocess.run([program, "quantize", *map(str, args)], capture_output=True, text=True, timeout=HANG, env=env, **more)


def read(folder):
    """Name -> (dtype, shape, bytes) of all shards."""
    out = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        raw = path.read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8 : 8 + n]).items():
            if name != "__metadata__":
                a, b = t["data_offsets"]
                out[name] = (t["dtype"], t["shape"], raw[8 + n + a : 8 + n + b])
    return out


def by_mlx_lm(source, target, mode, bits, group, overrides):
    """What convert() of mlx-lm does between loading and saving the tokenizer."""
    model, config = lm.load_model(Path(source), lazy=True)
    dtype = config.get("torch_dtype") or (config.get("text_config") or {}).get("dtype")
    if dtype in ("float16", "bfloat16", "float32"):
        cast = getattr(model, "cast_predicate", lambda _: True)
        kind = getattr(mx, dtype)
        from mlx.utils import tree_map_with_path
        model.update(tree_map_with_path(lambda k, v: v.astype(kind) if cast(k) and mx.issubdtype(v.dtype, mx.floating) else v, model.parameters()))
    own = getattr(model, "quant_predicate", None)

    def predicate(path, module):
        for glob, wanted in overrides:
            if fnmatch.fnmatchcase(path, glob):
                return False if wanted == 16 else {"group_size": group or 64, "bits": wanted, "mode": "affine"}
        return own(path, module) if own else True

    model, config = lm.quantize_model(model, config, group, bits, mode=mode, quant_predicate=predicate)
    lm.save_model(target, model)
    lm.save_config(config, config_path=Path(target) / "config.json")


def with_mode(quantization):
    """mlx-lm leaves the mode out where a model's own rule gives only bits and group."""
    out = copy.deepcopy(quantization)
    for value in out.values():
        if isinstance(value, dict):
            value.setdefault("mode", "affine")
    return out


def compare(source, mode="affine", bits=None, group=None, overrides=()):
    name = f"{Path(source).name} {mode} {bits or ''} {group or ''} {list(overrides) or ''}"
    with tempfile.TemporaryDirectory() as temp:
        args = ["-m", source, "-o", f"{temp}/ours", "--mode", mode]
        args += ["--bits", bits] if bits else []
        args += ["--group-size", group] if group else []
        for glob, wanted in overrides:
            args += ["--override", f"{glob}={wanted}"]
        r = run(*args)
        if r.returncode:
            check(False, f"{name}: {r.stderr}")
            return
        try:
            by_mlx_lm(source, f"{temp}/theirs", mode, bits, group, overrides)
        except (ValueError, TypeError) as why:  # its model of the family is narrower than ours
            skip(f"{name}: mlx-lm: {str(why)[:100]}")
            return
        ours, theirs = read(f"{temp}/ours"), read(f"{temp}/theirs")
        check(sorted(ours) == sorted(theirs), f"{name}: names {sorted(set(ours) ^ set(theirs))[:6]}")
        differ = [k for k in ours if k in theirs and ours[k] != theirs[k]]
        check(not differ, f"{name}: {len(differ)} of {len(ours)} tensors differ: {[(k, ours[k][:2], theirs[k][:2]) for k in differ[:3]]}")
        a, b = (json.load(open(f"{temp}/{who}/config.json")) for who in ("ours", "theirs"))
        check(with_mode(a["quantization"]) == with_mode(b["quantization"]), f"{name}: {a['quantization']} and {b['quantization']}")
        a["quantization"] = b["quantization"]
        a["quantization_config"] = b["quantization_config"]
        check(a == b, f"{name}: config.json: {[k for k in set(a) | set(b) if a.get(k) != b.get(k)]}")
        index = [json.load(open(f"{temp}/{who}/model.safetensors.index.json")) for who in ("ours", "theirs")]
        check(index[0] == index[1], f"{name}: index: {index[0]['metadata']} and {index[1]['metadata']}")


def flat(source, folder):
    """A golden model with the flat keys that mlx-lm's older classes want."""
    target = Path(folder, source.name)
    target.mkdir()
    config = json.load(open(source / "config.json"))
    config.setdefault("rope_theta", config.get("rope_parameters", {}).get("rope_theta", 10000.0))
    for key in ("num_local_experts", "num_experts"):
        if key in config:
            config.setdefault("num_experts", config[key])
            config.setdefault("num_local_experts", config[key])
    (target / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "generation_config.json"):
        os.symlink(source / name, target / name)
    return target


def check_turned(source):
    """Matrices that are stored [in, out] are written [out, in], quantised or plain, as mlx-lm has them; and the result can be run."""
    with tempfile.TemporaryDirectory() as temp:
        r = run("-m", source, "-o", f"{temp}/q", "--bits", 4, "--group-size", 32, "--override", "*.mlp.c_proj=16")
        check(r.returncode == 0, f"turned: {r.stderr}")
        ours, plain = read(f"{temp}/q"), mx.load(str(source / "model.safetensors"))
        for name in (k for k in plain if k.endswith((".c_attn.weight", ".c_fc.weight", ".c_proj.weight"))):
            want = mx.contiguous(plain[name].T)
            if not name.endswith(".mlp.c_proj.weight"):
                want = mx.quantize(want, 32, 4)[0]
            got = ours[name]
            raw = bytes(memoryview(want if want.dtype == mx.uint32 else want.view(mx.uint16)))
            check(got[1] == list(want.shape) and got[2] == raw, f"turned: {name} {got[:2]}, expected {want.shape}")
        r = subprocess.run([program, "generate", "-m", f"{temp}/q", "--tokens", "5,6,7", "--ids", "-n", "2"], capture_output=True, text=True, timeout=HANG)
        check(r.returncode == 0, f"turned: {r.stderr}")


def make_empty(folder, shapes):
    """A checkpoint of matrices without a single number."""
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))


def check_empty():
    """Matrices without rows or without columns, the way they lie or turned, are left as they are."""
    for name, shape in (("q_proj", [64, 0]), ("q_proj", [0, 64]), ("c_attn", [0, 0]), ("c_attn", [1 << 62, 0])):
        with tempfile.TemporaryDirectory() as temp:
            make_empty(Path(temp, "m"), {f"h.0.{name}.weight": shape})
            r = run("-m", f"{temp}/m", "-o", f"{temp}/q")
            check(r.returncode == 0 and "0 matrices quantised" in r.stderr, f"empty {name} {shape}: {r.returncode} {r.stderr}")


def check_refusals(source):
    with tempfile.TemporaryDirectory() as temp:
        full = Path(temp, "full")
        full.mkdir()
        (full / "x").write_text("x")
        for args, code, why in (
            (["-m", source, "-o", full], 2, "not empty"),
            (["-m", source], 2, "--output DIR is missing"),
            (["-o", f"{temp}/new"], 2, "--model MODEL is missing"),
            (["-m", source, "-o", f"{temp}/new", "--bits", "7"], 2, "7 bits"),
            (["-m", source, "-o", f"{temp}/new", "--mode", "mxfp4", "--bits", "8"], 2, "mxfp4"),
            (["-m", source, "-o", f"{temp}/new", "--override", "x"], 2, "--override"),
            (["-m", source, "-o", f"{temp}/new", "--override", "*.q_proj=6", "--override", "*.q_proj.weight=8"], 2, "--override *.q_proj.weight matches no matrix; their names are like model."),
            (["-m", source, "-o", ""], 2, "expected a path"),
            (["-m", f"{temp}/absent", "-o", f"{temp}/new"], 1, "absent"),
        ):
            r = run(*args)
            check(r.returncode == code and why in r.stderr, f"{args}: {r.returncode} {r.stderr}")
        ok = run("-m", source, "-o", f"{temp}/q/")
        check(ok.returncode == 0, f"a target with a slash: {ok.stderr}")
        check(" MB -> " in ok.stderr and "GB" not in ok.stderr, f"the sizes of a small model: {ok.stderr}")
        again = run("-m", f"{temp}/q", "-o", f"{temp}/new")
        check(again.returncode == 2 and "already" in again.stderr, f"quantised already: {again.stderr}")
        check(sorted(os.listdir(temp)) == ["full", "q"], f"nothing is left behind: {os.listdir(temp)}")
        check((Path(temp, "q", "tokenizer.json")).exists(), "side files are copied")


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))


def make_big(folder, rows=150000, width=1024):
    """One matrix of 614 MB, all zeros: a file with a hole."""
    header = {"lm_head.weight": {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, 4 * rows * width]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 4 * rows * width)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def check_whole(folder):
    names = set(read(folder))
    check(names == {"lm_head.weight", "lm_head.scales", "lm_head.biases"} and Path(folder, "config.json").exists(), f"not whole: {names}")


def check_ended(big, temp, how, leaves_partial):
    """Ended in the middle: the result is not there (or whole, if the signal came too late); afterwards it can be made."""
    target = Path(temp, f"ended-{how}")
    with subprocess.Popen([program, "quantize", "-m", big, "-o", target], stderr=subprocess.PIPE, text=True) as p:
        while p.poll() is None and not list(Path(temp).glob(f"{target.name}.partial-*")):
            time.sleep(0.01)
        p.send_signal(how)
        p.communicate(timeout=HANG)
    if target.exists():
        check_whole(target)
    else:
        check(p.returncode != 0, f"ended by {how.name}, and it says 0")
    check(leaves_partial or not list(Path(temp).glob(f"{target.name}.partial-*")), f"{how.name} leaves parts behind")
    if not target.exists():
        r = run("-m", big, "-o", target)
        check(r.returncode == 0, f"again after {how.name}: {r.stderr}")
        check_whole(target)


def check_big():
    """A matrix larger than the memory that the program may have, and long enough in the making to be ended."""
    with tempfile.TemporaryDirectory() as temp:
        big = Path(temp, "big")
        make_big(big)
        r = run("-m", big, "-o", f"{temp}/q", preexec_fn=limit_memory)
        check(r.returncode == 0, f"614 MB within 600 MB of memory: {r.stderr}")
        check_ended(big, temp, signal.SIGINT, False)
        check_ended(big, temp, signal.SIGKILL, True)


def main():
    stories = data / "models" / "stories260K" / "hf"
    check_refusals(stories)
    check_turned(data / "golden" / "gpt2")
    check_empty()
    check_big()
    if not lm:
        skip("the comparison: mlx-lm is not installed")
        finish()
    for bits in (2, 3, 4, 5, 6, 8):
        compare(stories, bits=bits, group=32)
    compare(stories)
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        compare(stories, mode=mode)
    compare(stories, bits=4, group=32, overrides=[("*.mlp.up_proj", 8), ("model.embed_tokens", 16), ("*.q_proj", 6)])
    tiny = data / "tiny" / "tiny-stories-7m"
    if (tiny / "config.json").exists():
        compare(tiny)
    with tempfile.TemporaryDirectory() as temp:
        for family in ("llama", "qwen3", "phi3", "mistral", "olmo2", "starcoder2", "qwen3_moe"):
            compare(flat(data / "golden" / family, temp), bits=4, group=32)
    finish()


sys.exit(main())
