#!/usr/bin/env python3
"""The xla backend through a CPU plugin (the wheel xla-cpu-pjrt): fixtures, generating, the cache of programs, messages.

usage: test_xla.py PROGRAM GOLDEN_TESTS DATA [--all]   (without --all: one fixture for each kind of layer)
"""
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile

PROGRAM, GOLDEN, DATA = sys.argv[1:4]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLUGIN = os.path.join(sysconfig.get_paths()["purelib"], "xla_plugins", "xla_cpu_pjrt", "xla_cpu_pjrt.so")
# windows and soft caps, latent attention and groups of experts, sinks, scan, state space, delta rule, linear attention, 4 bits
KINDS = ["gemma2", "deepseek_v3", "gpt_oss", "mamba", "nemotron_h", "qwen3_next", "minimax", "llama-q4-g64"]
# programs are compiled quickly rather than well
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
passed = failed = 0


def check(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED {name}: {detail}")


def run(command, **env):
    env = {**os.environ, "XLA_FLAGS": QUICK, "MLXCEL_XLA_CACHE": "off", "MLXCEL_XLA_PLUGIN": PLUGIN, **env}
    done = subprocess.run(command, capture_output=True, text=True, env={k: v for k, v in env.items() if v is not None}, timeout=3000)
    return done.returncode, done.stdout, done.stderr


def fixtures(names, folder):
    with tempfile.TemporaryDirectory() as chosen:
        for name in names:
            os.symlink(os.path.join(folder, name), os.path.join(chosen, name))
        _, out, err = run([GOLDEN, "--backend", "xla", "--near", chosen])
    lines = [line for line in out.splitlines() if line.startswith(("ok ", "FAILED", "skipped"))]
    for line in lines:
        check("fixture", line.startswith("ok "), line)
    check("all fixtures ran", len(lines) == len(names), f"{len(lines)} of {len(names)}: {err[-300:]}")


def generating():
    tokens = ["generate", "--tokens", "5,6,7,8", "-n", "12", "--ids", "--ignore-eos"]
    _, want, _ = run([PROGRAM, *tokens, "--precision", "exact", "--device", "cpu"])
    with tempfile.TemporaryDirectory() as cache:
        code, got, err = run([PROGRAM, *tokens, "--backend", "xla"], MLXCEL_XLA_CACHE=cache)
        check("generate", code == 0 and got == want, f"{got} instead of {want}: {err[-300:]}")
        check("compiling is told", "compiling the program for decoding" in err, err)
        code, got, err = run([PROGRAM, *tokens], MLXCEL_XLA_CACHE=cache, MLXCEL_BACKEND="xla", MLXCEL_XLA_DEVICE="cpu", IREE_DIST="/x")
        check("the second start", code == 0 and got == want, err[-300:])
        check("compiles nothing", "compiling" not in err, err)
        check("IREE's variables are named", "IREE_DIST is set and unused" in err, err)
        for name in os.listdir(cache):  # a damaged file is compiled again
            with open(os.path.join(cache, name), "r+b") as f:
                f.seek(100)
                f.write(b"damaged")
        code, got, err = run([PROGRAM, *tokens, "--backend", "xla"], MLXCEL_XLA_CACHE=cache)
        check("a damaged cache", code == 0 and got == want and "compiling" in err, err[-300:])


def messages():
    for args, env, says in [
        (["--backend", "xla"], {"MLXCEL_XLA_PLUGIN": None, "VIRTUAL_ENV": None, "CONDA_PREFIX": None, "HOME": "/nowhere"}, "no PJRT plugin found"),
        (["--backend", "xla", "--xla-plugin", "/no/such.so"], {}, "/no/such.so"),
        (["--backend", "xla", "--xla-device", "cuda"], {}, "runs on cpu, not on cuda"),
        (["--backend", "xla", "--xla-device", "cpu:7"], {}, "there is no device 7"),
        (["--backend", "xla", "--device", "cpu"], {}, "--device belongs to the native backend"),
        (["--xla-device", "cpu"], {}, "--xla-device is for --backend xla"),
    ]:
        code, _, err = run([PROGRAM, "generate", "--tokens", "5", *args], **env)
        check(" ".join(args), code != 0 and says in err and err.count("\n") == 1, f"{code}: {err}")
    code, out, _ = run([PROGRAM, "doctor"], VIRTUAL_ENV=sys.prefix)
    check("doctor", code == 0 and f"--backend xla --xla-plugin {PLUGIN}" in out, out)


def in_jax(names, folder):
    """The same programs, run by jaxlib's client (run_jax.py)."""
    for name in names:
        with tempfile.TemporaryDirectory() as dump:
            run([GOLDEN, "--backend", "xla", "--near", os.path.join(folder, name)], MLXCEL_XLA_DUMP=dump)
            code, out, err = run([sys.executable, os.path.join(ROOT, "tests", "xla", "run_jax.py"), dump])
            check(f"jaxlib {name}", code == 0, out + err[-300:])


if not os.path.exists(PLUGIN):
    print("there is no CPU plugin for this machine: pip install xla-cpu-pjrt")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
messages()
generating()
golden = os.path.join(DATA, "golden")
if "--all" in sys.argv:
    fixtures(sorted(n for n in os.listdir(golden) if os.path.exists(os.path.join(golden, n, "golden.safetensors"))), golden)
    if importlib.util.find_spec("jax"):
        in_jax(KINDS, golden)
    else:
        print("without jax installed, programs run in our own plugin only")
    own = os.path.join(ROOT, "tests", "golden", "quant")
    fixtures(sorted(n for n in os.listdir(own) if os.path.exists(os.path.join(own, n, "golden.safetensors"))), own)
else:
    fixtures(KINDS, golden)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
