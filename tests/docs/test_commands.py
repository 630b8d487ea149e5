#!/usr/bin/env python3
"""Every command of README.md and of the guide's pages is run, and the pictures of README.md are as new as what they show.

usage: test_commands.py PROGRAM [DATA]      last line: "N passed, N failed[, N skipped]"

The hub is one on this machine that has a small made-up model under the name that the pages use; servers get a port of their own, and what is measured
is a small shape. Words in capitals, which stand for a name that is not given, become one that is there. DATA has a model that sees, for the page of pictures.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tests", "tests/hub", "tests/server"):
    sys.path.insert(0, os.path.join(ROOT, folder))
from counting import HANG, check, finish, skip  # noqa: E402
from fakehub import Hub  # noqa: E402
from harness import free_port  # noqa: E402

# Each page with what its words in capitals stand for; the longer ones come first.
PAGES = {"README.md": {}, "docs/cli.md": {}, "docs/start.md": {}, "docs/questions.md": {}, "docs/windows.md": {}, "docs/wsl2.md": {},
         "docs/models.md": {"MODEL OWNER/NAME": "qwen3:0.6b acme/another", "OWNER/NAME": "mlx-community/Qwen3-0.6B-4bit", "--verify NAME": "--verify acme/copy", "WORD...": "qwen3"},
         "docs/offline.md": {"download OWNER/NAME --local-dir NAME": "download mlx-community/Qwen3-0.6B-4bit --local-dir carried", "import NAME OWNER/NAME": "import carried acme/carried", "OWNER/NAME": "acme/carried",
                             "path/to/NAME": "carried"},
         "docs/adapters.md": {"-m MODEL --adapter DIR -o NEW": "-m fixtures/llama --adapter fixtures/mlx-lora -o fused-by-adapter", "-m MODEL --surgery FILE -o NEW": "-m folder --surgery edits.toml -o fused-by-edits"},
         "docs/speculation.md": {"MODEL": "folder"}, "docs/images.md": {"MODEL": "seeing", "--out FILE": "--out logits.bin"}}
SHORT = {"mlxcel generate --image FILE", "mlxcel generate"}  # mentioned in a sentence, not to be typed; those with a model are on the page, too
EDITS = """[[edit]]
op = "scale"
pattern = "*.layers.0.mlp.*"
factor = 0.9
"""
FIRST = re.compile(r"(mlxcel|cat|echo|curl)\b")


def commands(page):
    """Lines of indented blocks, and commands of the running text, without their comments. docs/cli.md has the examples of every --help."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    for line in re.findall(r"^    (\S.*)$", text, re.M):
        if FIRST.match(line):
            yield re.sub(r"\s+#.*$", "", line)
    if page == "docs/cli.md":
        return
    for inline in re.findall(r"`((?:mlxcel|cat) [^`\n]+)`", text):
        if inline not in SHORT:
            yield inline


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


def local_form(page, command, port):
    """The command with what this machine has; nothing opens a browser."""
    for word, name in PAGES[page].items():
        command = command.replace(word, name)
    changes = {"127.0.0.1:8080": f"127.0.0.1:{port}", "--port 8080": "", "--shape qwen3-0.6b": "--shape tiny -r 1", "--shape llama-3.2-1b -p 512 -n 128": "--shape tiny -p 64 -n 8 -r 1", " --open": ""}
    for before, after in changes.items():
        command = command.replace(before, after)
    return command


def run_page(page, env, cwd):
    server, n, port = None, 0, int(env["MLXCEL_PORT"])
    for command in commands(page):
        n += 1
        local = local_form(page, command, port)
        if command.startswith("mlxcel serve"):
            stop(server)
            server = start_server(local, env, cwd, port)
            check(server.poll() is None, f"{page}: {command}")
            continue
        if command.startswith("curl") and not shutil.which("curl"):
            skip(f"{command}: no curl here")
            continue
        if "path/to/reranker" in command:
            skip(f"{command}: it takes a model made for that; tests/server/test_rerank.py has one")
            continue
        r = subprocess.run(["bash", "-o", "pipefail", "-c", local], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG)
        says = r.stdout.strip() or re.match(r"mlxcel (run( \S+)?|(rm|prune|import|stop|quantize|fuse|logits|synth|grammar) .*)$|mlxcel run (-m )?\S+$|.*mlxcel grammar", command)  # these say nothing, or write files
        check(r.returncode == 0 and says and '"error"' not in r.stdout, f"{page}: {command}: {r.returncode} {r.stdout[-300:]!r} {r.stderr[-500:]!r}")
    stop(server)
    check(n >= 1, f"{page}: {n} commands")


def main():
    program = os.path.abspath(sys.argv[1])
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/pictures.py"), program, "--check"], capture_output=True, text=True, check=False)
    check(r.returncode == 0, f"pictures: {r.stdout}{r.stderr}")
    hub = Hub()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "made-up")
        subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
        hub.add("mlx-community/Qwen3-0.6B-4bit", model)
        hub.add("acme/llama-gguf", model, found={"tags": ["gguf"]})
        for name, text in (("notes.txt", "A dog had a kite.\nThe kite was red.\n" * 4), ("edits.toml", EDITS),
                           ("text.json", '{"prompt": "Once upon a time", "answer": " there was a dog. There was a dog and a kite."}'),
                           ("chat.json", '{"messages": [{"role": "user", "content": "Hi"}]}')):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        shutil.copytree(model, os.path.join(folder, "folder"))
        shutil.copytree(os.path.join(ROOT, "tests/adapters/fixtures"), os.path.join(folder, "fixtures"))
        seeing = os.path.join(sys.argv[2], "golden-vision") if len(sys.argv) > 2 else ""
        if os.path.isdir(seeing):
            os.symlink(os.path.join(seeing, "qwen2_vl"), os.path.join(folder, "seeing"))
            shutil.copy(os.path.join(seeing, "images/photo.png"), os.path.join(folder, "photo.jpg"))
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
    finish()


if __name__ == "__main__":
    sys.exit(main())
