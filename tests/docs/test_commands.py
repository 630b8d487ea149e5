#!/usr/bin/env python3
"""Every command of README.md and of the guide's pages is run, and the pictures of README.md are as new as what they show.

usage: test_commands.py PROGRAM [DATA]      last line: "N passed, N failed[, N skipped]"

The hub is one on this machine that has small made-up models under the names that the pages use; tests/docs/examples.py says what the examples become here, and an
example that nothing runs is a failure. DATA has a model that sees, for the page of pictures.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tests", "tests/cli", "tests/docs", "tests/hub", "tests/server"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import crafted  # noqa: E402
from counting import HANG, check, finish, parts, skip  # noqa: E402
from examples import ELSEWHERE, FIRST, OF_WINDOWS, PAGES, SCRIPT, examples, files, local_form, strangers  # noqa: E402
from fakehub import Hub  # noqa: E402
from harness import free_port  # noqa: E402

SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"]}
# What the examples read.
GIVEN = {"notes.txt": "A dog had a kite.\nThe kite was red.\n" * 4,
         "text.json": '{"prompt": "Once upon a time", "answer": " there was a dog. There was a dog and a kite."}',
         "chat.json": '{"messages": [{"role": "user", "content": "Hi"}]}',
         "schema.json": json.dumps(SCHEMA), "answer.json": '{"kind": "dog"}', "rules.gbnf": 'root ::= [a-z]+ " " [0-9] [0-9]\n', "words": "kite 42", "edits.toml": '[[edit]]\nop = "scale"\npattern = "*.layers.0.mlp.*"\nfactor = 0.9\n',
         "mlxcel.tar.gz": "an archive", "SHA256SUMS": hashlib.sha256(b"an archive").hexdigest() + "  mlxcel.tar.gz\n" + "0" * 64 + "  missing.zip\n"}
# These say nothing, or write files.
SILENT = re.compile(r"mlxcel (run( \S+)?|(rm|prune|import|stop|quantize|fuse|logits|synth|export|grammar) .*)$|mlxcel run (-m )?\S+( --adapter \S+)*$|.*mlxcel grammar")
# A machine without a GPU refuses these by name; tests/cuda/test_split.py runs them.
OF_GPU = re.compile(r"--(gpu-layers|cpu-experts)\b")


def start_server(command, env, cwd, port):
    """Its process, when it answers."""
    p = subprocess.Popen(["bash", "-c", "exec " + command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + HANG
    while p.poll() is None and time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).status == 200:
                return p
        except OSError:
            time.sleep(0.1)
    check(False, f"{command}: {p.poll()} {p.stderr.read() if p.poll() is not None else 'it does not answer'}")
    return p


def stop(p):
    if p:
        p.terminate()
        p.communicate(timeout=HANG)


def run_make(page, command):
    """What it would do: that the target is there. CONTRIBUTING.md and .ci/run say who runs which."""
    r = subprocess.run([*command.replace("make ", "make --dry-run ", 1).split()], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    check(r.returncode == 0 and r.stdout, f"{page}: {command}: {r.stderr}")


def run_script(page, command):
    """A script of measurements shows its help, with every option of the example; one of the tests is a suite."""
    path = SCRIPT.match(command).group(1)
    if path.startswith("bench/"):
        r = subprocess.run([sys.executable, path, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
        check(r.returncode == 0 and all(o in r.stdout for o in re.findall(r" (--?[a-z][\w-]*)", command)), f"{page}: {command}: {r.stdout[-300:]} {r.stderr[-300:]}")
    else:
        with open(os.path.join(ROOT, "tests/suites.list"), encoding="utf-8") as f:
            check(path in f.read(), f"{page}: {command}: no suite runs {path}")


def tried_elsewhere(page, command):
    if command in ELSEWHERE:
        path, word = ELSEWHERE[command]
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            check(word in f.read(), f"{page}: {command}: {path} has no {word}")
        return
    script = OF_WINDOWS[command]
    if script:
        with open(os.path.join(ROOT, script), encoding="utf-8") as f:
            text = f.read()
        words = [w for w in command.split(".ps1", 1)[1].split() if re.fullmatch(r"-?[A-Za-z]+", w)]
        check(all(re.search(rf"\${w[1:]}\b" if w[0] == "-" else rf"\b{w}\b", text) for w in words), f"{page}: {command}: {script} does not know {words}")
    else:
        skip(f"{page}: {command}: a program of Windows")


def run_plain(page, command, local, env, cwd):
    if command.startswith("curl") and not shutil.which("curl"):
        skip(f"{command}: no curl here")
        return
    r = subprocess.run(["bash", "-o", "pipefail", "-c", local], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG)
    if OF_GPU.search(command) and r.returncode:
        check("is for a GPU" in r.stderr, f"{page}: {command}: {r.stderr[-500:]}")
        return
    check(r.returncode == 0 and (r.stdout.strip() or SILENT.match(command)) and '"error"' not in r.stdout, f"{page}: {command}: {r.returncode} {r.stdout[-300:]!r} {r.stderr[-500:]!r}")


def run_page(page, env, cwd):
    server, n, port = None, 0, int(env["MLXCEL_PORT"])
    for name, text in files(page):
        with open(os.path.join(cwd, name), "w", encoding="utf-8") as f:
            f.write(text)
    for command in examples(page):
        n += 1
        local = local_form(page, command, port)
        if command.startswith("make"):
            run_make(page, command)
        elif SCRIPT.match(command):
            run_script(page, command)
        elif not FIRST.match(command):
            tried_elsewhere(page, command)
        elif command.startswith("mlxcel serve") and not OF_GPU.search(command):
            stop(server)
            server = start_server(local, env, cwd, port)
            check(server.poll() is None, f"{page}: {command}")
        else:
            run_plain(page, command, local, env, cwd)
    stop(server)
    check(n >= 1, f"{page}: {n} commands")


def check_pictures(program):
    """Those of README.md are as new as what they show."""
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/pictures.py"), program, "--check"], capture_output=True, text=True, check=False)
    check(r.returncode == 0, f"pictures: {r.stdout}{r.stderr}")


def check_all_are_run():
    left_out = list(strangers())
    check(not left_out, f"examples that nothing runs: {left_out}")


def run_pages(program):
    hub = Hub()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "made-up")
        subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
        hub.add("mlx-community/Qwen3-0.6B-4bit", model)
        hub.add("acme/llama-gguf", model, found={"tags": ["gguf"]})
        for name, shape in (("mlx-community/Qwen3-30B-A3B-4bit", "tiny-moe"), ("mlx-community/Qwen3-32B-4bit", "tiny")):
            subprocess.run([program, "synth", "--shape", shape, "-o", os.path.join(folder, "large", shape)], check=True, capture_output=True)
            hub.add(name, os.path.join(folder, "large", shape))
        for name, text in GIVEN.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        shutil.copytree(model, os.path.join(folder, "folder"))
        shutil.copytree(os.path.join(ROOT, "tests/adapters/fixtures"), os.path.join(folder, "fixtures"))
        with open(os.path.join(folder, "fixtures/llama/tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(crafted.tokenizer(["<unk>", *(f"word{i}" for i in range(1, 96))]), f)
        seeing = os.path.join(sys.argv[2], "golden-vision") if len(sys.argv) > 2 else ""
        if os.path.isdir(seeing):
            os.symlink(os.path.join(seeing, "qwen2_vl"), os.path.join(folder, "seeing"))
            shutil.copy(os.path.join(seeing, "images/photo.png"), os.path.join(folder, "photo.jpg"))
        os.symlink(os.path.join(ROOT, "tests/golden/encoders/bert-cross"), os.path.join(folder, "reranker"))
        shutil.copytree(model, os.path.join(folder, "home/models/acme/copy"))
        subprocess.run([program, "synth", "--shape", "tiny", "--bits", "16", "-o", os.path.join(folder, "plain")], check=True, capture_output=True)
        drop = ("MLXCEL_", "LLAMA_ARG_", "HF_", "SSL_CERT", "CURL_CA", "REQUESTS_CA")
        env = {k: v for k, v in os.environ.items() if not k.startswith(drop) and not k.lower().endswith("_proxy")}
        env.update(PATH=f"{os.path.dirname(program)}:{env['PATH']}", MLXCEL_HOME=os.path.join(folder, "home"), HF_HOME=os.path.join(folder, "hf"), HF_ENDPOINT=hub.url,
                   MLXCEL_PORT=str(free_port()), MLXCEL_MAX_TOKENS="40")
        for page in PAGES:
            if page == "docs/images.md" and not os.path.isdir(seeing):
                skip(f"{page}: the test data has no model that sees")
                continue
            run_page(page, env, folder)
    hub.close()


def main():
    program = os.path.abspath(sys.argv[1])
    parts((check_pictures, program), check_all_are_run, (run_pages, program))
    finish()


if __name__ == "__main__":
    sys.exit(main())
