#!/usr/bin/env python3
"""The xla backend on jaxlib's own client for the CPU: golden_tests opens a plugin of ours (pipe_plugin.c) that hands every call to this program.
Each program is parsed, verified, compiled and run by jaxlib; prompts, chunks, batches and decode steps are judged by golden_tests with the tolerances
of the CPU backend, in float32. Every product of float32 must ask for the highest precision, or it is refused here.

With --devices N the programs run on N virtual devices of the CPU, each of which holds its share of the weights and of the cache.

usage: test_jax.py GOLDEN_TESTS DATA [--devices N] [--part I/N | --only FOLDER... | --pictures [NAME...]]   (without these: one fixture of each of a few kinds; with --part every
Nth of all, from the Ith on; with --pictures the prompts of golden-vision, pictures and all, of these fixtures or of every one)
"""
import collections
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish, skip  # noqa: E402

N_DEVICES = int(sys.argv[sys.argv.index("--devices") + 1]) if "--devices" in sys.argv else 1
# compiled quickly rather than well; before jaxlib is loaded, which reads it
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true" + f" --xla_force_host_platform_device_count={N_DEVICES}"
try:
    import jax
    import ml_dtypes
    import numpy as np
    from jaxlib import _jax
except ImportError as e:
    skip(f"jaxlib: {e}")
    finish()

GOLDEN, DATA = sys.argv[1:3]
PLUGIN = os.path.join(os.path.dirname(os.path.abspath(GOLDEN)), "fake-pjrt", "pipe_pjrt.so")
# windows and soft caps, latent attention and groups of experts, a delta rule beside attention, 4 bits, both ways with products for distances
KINDS = ["golden/gemma2", "golden/deepseek_v3", "golden/qwen3_next", "golden/llama-q4-g64", "golden2/deberta-v2"]
REFUSED = "mllama"
# PJRT's numbers of element types
TYPES = {4: np.int32, 6: np.uint8, 7: np.uint16, 8: np.uint32, 10: np.float16, 11: np.float32, 13: ml_dtypes.bfloat16}
ARGUMENT = re.compile(r'%\d+: tensor<([\dx]+)x\w+> \{mhlo\.sharding = "\{(replicated|devices=\[(\d+),(\d+)\]<=\[\d+\])\}"(, tf)?')
DOT = re.compile(r"stablehlo\.dot_general .*?(precision = \[\w+, \w+\])? : \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\)")


class Server:
    """Does what pipe_plugin.c asks for, until the program at the other end closes its pipe."""

    def __init__(self, read, write):
        self.read, self.write = read, write
        self.devices = jax.devices("cpu")[:N_DEVICES]
        self.objects, self.n_ids = {}, 0
        self.counts = collections.Counter()
        self.held = collections.Counter()  # elements of the programs' matrices: of all, on each device, and those of which no side can be divided

    def get(self, form):
        data = self.read.read(struct.calcsize("=" + form))
        return struct.unpack("=" + form, data)

    def get_numbers(self, n):
        return self.get(f"{n}q")

    def put(self, *numbers):
        self.write.write(struct.pack(f"={len(numbers)}q", *numbers))

    def keep(self, thing):
        self.n_ids += 1
        self.objects[self.n_ids] = thing
        return self.n_ids

    def serve(self):
        handlers = {b"U": self.upload, b"C": self.compile, b"X": self.execute, b"D": self.download, b"F": self.free}
        while letter := self.read.read(1):
            handlers[letter]()
            self.write.flush()

    def answer(self, work):
        """The result of work(); None after its failure was reported instead."""
        try:
            result = work()
        except Exception as e:  # whatever jaxlib throws is the other side's to tell
            text = str(e).encode()[:2000] or b"failed"
            self.put(len(text))
            self.write.write(text)
            return None
        self.put(0)
        return result

    def upload(self):
        kind, rank, device = self.get_numbers(3)
        dims = self.get_numbers(rank)
        data = self.read.read(self.get_numbers(1)[0])
        array = self.answer(lambda: jax.device_put(np.frombuffer(data, TYPES[kind]).reshape(dims), self.devices[device]))
        if array is not None:
            self.put(self.keep(array))

    def load(self, text, options):
        for line in text.splitlines():
            if "dot_general" not in line:
                continue
            found = DOT.search(line)
            if not found or (found[2] == "f32" and found[1] != "precision = [HIGHEST, HIGHEST]"):
                raise ValueError(f"a product below the highest precision: {line.strip()}")
            self.counts["products"] += 1
        options = _jax.CompileOptions.ParseFromString(options)
        if (options.num_replicas, options.num_partitions, options.executable_build_options.use_spmd_partitioning) != (1, N_DEVICES, N_DEVICES > 1):
            raise ValueError(f"options for {options.num_replicas} x {options.num_partitions} devices")
        program = self.devices[0].client.compile_and_load(text.encode(), _jax.DeviceList(tuple(self.devices)), options)
        return program, self.places(text) if N_DEVICES > 1 else None

    def places(self, text):
        """The whole shape of each argument, and how it lies on the devices, as the program says."""
        mesh = jax.sharding.Mesh(np.array(self.devices), ("d",))
        head = text[:text.index("\n    -> (")]
        found = []
        for shape, word, rows, columns, alias in ARGUMENT.findall(head):
            axes = () if word == "replicated" else ("d" if rows == str(N_DEVICES) else None, "d" if columns == str(N_DEVICES) else None)
            whole = tuple(map(int, shape.split("x")))
            if not alias and len(whole) > 1:
                self.held["whole"] += math.prod(whole)
                self.held["each"] += math.prod(whole) // (N_DEVICES if axes else 1)
                self.held["uncut"] += 0 if any(n % N_DEVICES == 0 for n in whole) else math.prod(whole)
            found.append((whole, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))))
        if len(found) != head.count(": tensor<"):
            raise ValueError("an argument does not say how it lies on the devices")
        return found

    def compile(self):
        n_text, n_options = self.get_numbers(2)
        text, options = self.read.read(n_text).decode(), self.read.read(n_options)
        program = self.answer(lambda: self.load(text, options))
        if program is not None:
            results = text[text.index("\n    -> (") + 8:]
            self.put(self.keep(program), results[:results.index(") {\n")].count("tensor<"))
            self.counts["programs"] += 1

    def execute(self):
        program, n, n_devices = self.get_numbers(3)
        lists = [[self.objects[i] for i in self.get_numbers(n)] for _ in range(n_devices)]

        def run():
            loaded, places = self.objects[program]
            args = lists[0] if n_devices == 1 else [jax.make_array_from_single_device_arrays(shape, place, list(parts)) for (shape, place), parts in zip(places, zip(*lists))]
            results = loaded.execute_sharded(args).disassemble_into_single_device_arrays()
            return [part[k] for k in range(n_devices) for part in results]

        results = self.answer(run)
        if results is not None:
            self.counts["runs"] += 1
            self.put(*[self.keep(r) for r in results])

    def download(self):
        array, n = self.get_numbers(2)
        data = self.answer(lambda: np.asarray(self.objects[array]).tobytes())
        if data is not None:
            self.write.write(data[:n].ljust(n, b"\0"))

    def free(self):
        del self.objects[self.get_numbers(1)[0]]


def serve(command, errors=subprocess.DEVNULL):
    """What a program writes that ran on this server, and the server."""
    theirs, our_write = os.pipe()
    our_read, their_write = os.pipe()
    env = dict(os.environ, PIPE_PLUGIN=f"{theirs},{their_write}", MLXCEL_XLA_PLUGIN=PLUGIN, MLXCEL_XLA_CACHE="off")
    if N_DEVICES > 1:
        env.update(PIPE_DEVICES=str(N_DEVICES), MLXCEL_XLA_DEVICE=f"cpu:0-{N_DEVICES - 1}")
    p = subprocess.Popen(command, pass_fds=(theirs, their_write), env=env, text=True, stdout=subprocess.PIPE, stderr=errors)
    os.close(theirs)
    os.close(their_write)
    with os.fdopen(our_read, "rb") as read, os.fdopen(our_write, "wb") as write:
        server = Server(read, write)
        server.serve()
    return p.communicate()[0] or f"exit code {p.returncode}", server


def run_fixture(folder):
    """The line of golden_tests about a fixture, and the server that it ran on."""
    out, server = serve([GOLDEN, "--backend", "xla", "--near", folder])
    return next((line for line in out.splitlines() if line.startswith(("ok", "FAILED", "skipped"))), out), server


def long_text():
    """A text of more tokens than a prompt's chunk has, whose rows see each other: the vector is the CPU's."""
    program, source = os.path.join(os.path.dirname(os.path.abspath(GOLDEN)), "mlxcel"), os.path.join(DATA, "golden2", "modernbert-b")
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(source):
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
        with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**config, "max_position_embeddings": 1024}, f)
        command = [program, "embed", "-m", folder, " ".join(f"word {i}" for i in range(100)), "--precision", "exact"]
        want = json.loads(subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True).stdout)
        out, server = serve([*command, "--backend", "xla"])
    check(server.counts["runs"] == 1, f"a long text is {server.counts['runs']} runs")
    got = json.loads(out) if out.startswith(("{", "[")) else []
    near = len(got) == len(want) and np.abs(np.array(got) - np.array(want)).max() < 1e-5
    check(near, f"the vector of a long text: {out[:200]} instead of {str(want)[:200]}")


def tensors(path):
    """Arrays of a safetensors file by name."""
    kinds = {"F32": np.float32, "I64": np.int64, "I32": np.int32}
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    return {k: np.frombuffer(body[v["data_offsets"][0]:v["data_offsets"][1]], kinds[v["dtype"]]).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__" and v["dtype"] in kinds}


def run_logits(folder, images, ids):
    """Logits of every token of a prompt with pictures, or what the program said; and the server."""
    program = os.path.join(os.path.dirname(os.path.abspath(GOLDEN)), "mlxcel")
    with tempfile.TemporaryDirectory() as t:
        flags = [f for i in images for f in ("--image", os.path.join(DATA, "golden-vision", "images", i))]
        out, server = serve([program, "logits", "-m", folder, *flags, "--tokens", ",".join(map(str, ids)), "--out", f"{t}/out",
                             "--backend", "xla", "--precision", "exact"], subprocess.STDOUT)
        if not os.path.exists(f"{t}/out"):
            return out, server
        return np.fromfile(f"{t}/out", np.float32), server


def check_pictures(name, most):
    """The first prompts of a fixture of golden-vision: tower and text model on jaxlib, logits within the bar of the CPU."""
    folder = os.path.join(DATA, "golden-vision", name)
    golden = tensors(os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "prompts.json"), encoding="utf-8") as f:
        prompts = json.load(f)["prompts"]
    total, done = collections.Counter(), 0
    for k, prompt in enumerate(prompts):
        if not prompt["images"] or any(i.endswith("grey16.png") for i in prompt["images"]) or done == most:
            continue
        got, server = run_logits(folder, prompt["images"], golden[f"prompt_{k}"])
        if not check(not isinstance(got, str), f"{name} {k}: {got}"):
            continue
        want = golden[f"logits_{k}"]
        far = np.abs(got.reshape(-1, want.shape[1])[golden[f"logits_pos_{k}"]] - want).max() / want.std()
        check(far <= 2e-4, f"{name} {k}: logits differ by {far:g} sd")
        check(server.counts["runs"] > 1, f"{name} {k}: tower and text are {server.counts['runs']} runs")
        check(not server.objects, f"{name} {k}: {len(server.objects)} objects were not freed")
        print(f"{name} {k}: {far:.2g} sd {dict(server.counts)}", flush=True)
        total, done = total + server.counts, done + 1
    check(done > 0, f"{name}: no prompt with a picture")
    return total


def check_refused():
    """Pictures of a model that looks at them are refused by name."""
    got, _ = run_logits(os.path.join(DATA, "golden-vision", REFUSED), ["land.png"], [1, 2, 3])
    check(isinstance(got, str) and f'pictures of "{REFUSED}" are not computed on xla' in got, f"{REFUSED}: {str(got)[:300]}")


def main():
    if not os.path.exists(PLUGIN):
        skip(f"{PLUGIN} was not built")
        finish()
    if "--pictures" in sys.argv:
        names = sys.argv[sys.argv.index("--pictures") + 1:]
        everything = sorted(n for n in os.listdir(os.path.join(DATA, "golden-vision"))
                            if n != REFUSED and os.path.exists(os.path.join(DATA, "golden-vision", n, "prompts.json")))
        total = sum((check_pictures(n, 1 if names else 2) for n in names or everything), collections.Counter())
        check_refused()
        print(f"jaxlib {jax.lib.__version__}: {total['programs']} programs with {total['products']} products, {total['runs']} runs")
        finish()
    total = collections.Counter()
    everything = sorted(os.path.join(d, n) for d in ("golden", "golden2") for n in os.listdir(os.path.join(DATA, d))
                        if os.path.exists(os.path.join(DATA, d, n, "golden.safetensors")))
    if "--part" in sys.argv:
        i, n = map(int, sys.argv[sys.argv.index("--part") + 1].split("/"))
        chosen = everything[i - 1::n]
    elif "--only" in sys.argv:
        chosen = sys.argv[sys.argv.index("--only") + 1:]
    else:
        chosen = KINDS
    for name in chosen:
        line, server = run_fixture(os.path.join(DATA, name))
        if line.startswith("skipped"):
            continue
        check(line.startswith("ok"), f"{name}: {line}")
        check(server.counts["runs"] > 0, f"{name}: nothing ran on jaxlib")
        if N_DEVICES > 1:
            share, uncut = server.held["each"] / server.held["whole"], server.held["uncut"] / server.held["whole"]
            bar = uncut + (1 - uncut) / N_DEVICES + 0.01
            check(share <= bar, f"{name}: each device holds {share:.3f} of the weights, {uncut:.3f} of which have no side to be divided")
            server.counts["thousandths of the weights on each device"] = round(share * 1000)
        check(not server.objects, f"{name}: {len(server.objects)} objects were not freed")
        print(f"{line} {dict(server.counts)}", flush=True)
        total.update({k: server.counts[k] for k in ("programs", "products", "runs")})
    if "--part" not in sys.argv and "--only" not in sys.argv and N_DEVICES == 1:
        long_text()
    print(f"jaxlib {jax.lib.__version__}: {total['programs']} programs with {total['products']} products, {total['runs']} runs")
    finish()


main()
