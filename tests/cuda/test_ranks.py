#!/usr/bin/env python3
"""Ranks on emulated GPUs (tests/cuda/emu): several on one, on two that reach each other's memory, on two that do not.

Golden models cut for 2, 3 and 4 ranks, exact and in the default precision; the built-in model's tokens against those of ranks on the CPU, greedy and drawn; a server with several requests
at once; NCCL by a fake of it; memory that is given back; who is refused; a rank that fails. Needs a build with kernels for 9.0, whose images the emulator takes for its own, and g++.

usage: test_ranks.py BUILD [DATA [EMULATOR]]      EMULATOR: a folder with one that was built
"""
import concurrent.futures
import os
import re
import socket
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from test_split import PROMPTS, execute, run_on_emulator, serve

QUANT = "tests/golden/quant"
GENERATE = ["generate", "--tokens", "1,2,3,40,50", "-n", "8", "--precision", "exact"]
NO_MEMORY_LEFT = "emu: 0 pieces of memory left"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def check_golden(build, folder, data):
    """Within the bar of the reference, whatever the number of ranks."""
    cases = [(n, f"{QUANT}/{name}", None, []) for n in (2, 4) for name in ("affine-4-g64", "mxfp4")] + [(3, f"{QUANT}/affine-8-g64", None, [])]
    cases += [(2, f"{QUANT}/affine-4-g64", None, ["--precision", "auto", "--close"])]
    if data:
        golden = os.path.join(data, "golden")
        for name in "llama-q4-g64", "qwen3_moe-q4-g64", "gemma3-q4-g64", "deepseek_v3", "jamba", "gpt_oss", "olmo2":
            if os.path.isdir(os.path.join(golden, name)):
                cases.append((2, golden, name, []))
        cases += [(4, golden, "qwen3_moe-q4-g64", []), (2, golden, "qwen3_moe-q4-g64", ["--precision", "auto", "--close"])]
    for n, models, only, options in cases:
        rc, out, err = execute([f"{build}/golden_tests", "--backend", "cuda", "--ranks", str(n), *options, *(["--only", only] if only else []), models], folder, "sms=8;late;report")
        ok = rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed, 0 skipped", out, re.M) and "emu: ranks_sum_few" in err and NO_MEMORY_LEFT in err
        yield f"{only or os.path.basename(models)} by {n} ranks {' '.join(options)}".rstrip(), ok, out + err


def check_nccl(build, folder, data):
    """Calls of NCCL instead of kernels, by a fake one for threads; a call that fails ends all ranks with its name. Processes without the library are told which one is missing."""
    both = f"{folder}:{build}/fake-nccl"
    cases = [(2, f"{QUANT}/affine-4-g64", None, []), (3, f"{QUANT}/affine-4-g64", None, []), (2, f"{QUANT}/affine-4-g64", None, ["--precision", "auto", "--close"])]
    if data:
        cases += [(2, os.path.join(data, "golden"), name, []) for name in ("qwen3_moe-q4-g64", "olmo2")]
    for n, models, only, options in cases:
        command = [f"{build}/golden_tests", "--backend", "cuda", "--ranks", str(n), "--nccl", *options, *(["--only", only] if only else []), models]
        rc, out, err = execute(command, both, "sms=8;late;report")
        ok = rc == 0 and re.search(r"^[1-9]\d* passed, 0 failed, 0 skipped", out, re.M) and "emu: ranks_" not in err and NO_MEMORY_LEFT in err
        yield f"{only or os.path.basename(models)} by NCCL and {n} ranks {' '.join(options)}".rstrip(), ok, out + err
    for call in "ncclAllReduce:3", "ncclAllGather:1", "ncclCommInitRank:1":
        rc, out, err = execute([f"{build}/golden_tests", "--backend", "cuda", "--ranks", "2", "--nccl", f"{QUANT}/affine-4-g64"], both, "sms=8", FAKE_NCCL=f"fail={call}")
        yield f"{call} fails", rc == 1 and call.partition(":")[0] in out + err, f"{rc} {out} {err}"
    group = [f"{build}/mlxcel", *GENERATE, "--device", "cuda:0", "--world-size", "2", "--coordinator", f"127.0.0.1:{free_port()}", "--rank"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda rank: execute([*group, rank], folder, "sms=8", MLXCEL_JOB_SECRET="a secret of the test, long"), "01"))
    yield "two processes whose NCCL is missing, or does not know this driver", all(rc == 1 and not out and "nccl" in err for rc, out, err in ends), str(ends)


def check_tokens(build, folder):
    """The tokens of ranks on the CPU, wherever the GPUs are; with 'apart' numbers go through the host's memory."""
    for ranks, device, limits in (("2", "cuda:0,cuda:0", "sms=8"), ("4", "cuda:0,cuda:0,cuda:0,cuda:0", "sms=8"), ("2", "cuda", "sms=4;second=7000"), ("2", "cuda:1,cuda:0", "sms=4;second=7000;apart")):
        for more in [], ["--temp", "1", "--seed", "7"]:
            command = [f"{build}/mlxcel", *GENERATE, *more, "--tensor-parallel", ranks]
            want = execute([*command, "--device", "cpu", "--threads", "1"])
            rc, out, err = execute([*command, "--device", device], folder, f"{limits};late;report")
            yield f"tokens of {ranks} ranks on {device} ({limits}) {' '.join(more)}".rstrip(), rc == 0 and want[0] == 0 and out == want[1] and "emu: ranks_gather" in err and NO_MEMORY_LEFT in err, f"{out!r} {want[1]!r}\n{err}"


def check_long_sums(build, folder):
    """A prompt whose sums go by slots, several rounds of them where four ranks share a GPU."""
    tokens = ",".join(map(str, range(1, 71)))
    for ranks in 2, 4:
        command = [f"{build}/mlxcel", "generate", "--tokens", tokens, "-n", "3", "--precision", "exact", "--tensor-parallel", str(ranks)]
        want = execute([*command, "--device", "cpu", "--threads", "1"])
        rc, out, err = execute([*command, "--device", ",".join(["cuda:0"] * ranks)], folder, "sms=8;late;report")
        yield f"a long prompt of {ranks} ranks", rc == 0 and want[0] == 0 and out == want[1] and "emu: ranks_sum_many" in err, f"{out!r} {want[1]!r}\n{err}"


def check_server(build, folder):
    options = ["--tensor-parallel", "2", "--precision", "exact", "--parallel", "3", "--ctx-size", "256"]
    want, rc_cpu, err_cpu = serve(build, None, "", 1, PROMPTS, *options, "--device", "cpu", "--threads", "1")
    got, rc, err = serve(build, folder, "sms=8;late;report", 2, PROMPTS, *options, "--device", "cuda:0,cuda:0")
    first, rc_small, err_small = serve(build, folder, "sms=8;second=700", 1, PROMPTS[:1], "--tensor-parallel", "2", "--device", "cuda")
    tokens = re.search(r"cache of (\d+) tokens", err_small)
    yield "a cache that fits the GPU with the least memory", rc_small == 0 and first[0][0][0] == 200 and 1024 < int(tokens.group(1)) < 65536, f"{first}\n{err_small}"
    yield "a server with several requests at once", rc_cpu == rc == 0 and got == want * 2 and NO_MEMORY_LEFT in err, f"{got} {want}\n{err}{err_cpu}"


def check_refusals(build, folder):
    for options, limits, words, code in ((["--device", "cuda:0"], "sms=8", "name one for each", 2), (["--device", "cuda:0,cuda:0,cuda:0"], "sms=8", "must name a GPU for each of the 2 ranks", 2),
                                         (["--device", "cuda"], "sms=8", "there is no GPU 1: the driver has 1", 2), (["--device", "cuda:0,cuda:0", "--gpu-layers", "2"], "sms=8", "do not go together", 2),
                                         (["--device", "cuda"], "sms=8;second=257", "too little memory", 1)):
        rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--tensor-parallel", "2", *options], folder, limits)
        yield f"refused: {' '.join(options)} ({limits})", rc == code and not out and words in err, f"{rc} {out} {err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE, "--device", "cuda:0,cuda:0"], folder, "sms=8")
    yield "refused: two GPUs for one rank", rc == 2 and "that is for --tensor-parallel" in err, f"{rc} {err}"
    rc, out, err = execute([f"{build}/mlxcel", *GENERATE[:-2], "--tensor-parallel", "2", "--device", "cuda:0,cuda:0"], folder, "sms=8;broken")
    yield "a GPU that faults", rc == 1 and not out and "a kernel read or wrote outside its memory" in err, f"{rc} {out} {err}"


def all_checks(build, folder, data):
    yield from check_golden(build, folder, data)
    yield from check_nccl(build, folder, data)
    yield from check_tokens(build, folder)
    yield from check_long_sums(build, folder)
    yield from check_server(build, folder)
    yield from check_refusals(build, folder)


if __name__ == "__main__":
    run_on_emulator(all_checks, "-DEMU_THREADS")
