#!/usr/bin/env python3
"""docs/scale.md, line by line as it stands, in a network namespace of its own, so that its ports are free; and its names of files and suites.

usage: test_page.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, ".."))
from counting import HANG, check, finish, skip  # noqa: E402

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
# Root of the namespace alone; /run is the namespace's, too. What the page starts ends with the shell.
BEFORE = """set -eE
trap 'code=$?; echo "failed: $BASH_COMMAND"; exit $code' ERR
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
ip link set lo up
mount -t tmpfs none /run
set -m
"""


def namespace():
    """The words that start a command in one, or why there is none."""
    missing = [name for name in ("haproxy", "unshare", "ip", "curl", "mount") if not shutil.which(name, path=PATH)]
    if missing:
        return None, f"{' and '.join(missing)} not installed here"
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount"] if os.geteuid() else ["unshare", "--net", "--mount"]
    r = subprocess.run([*words, "bash", "-c", "ip link set lo up && mount -t tmpfs none /run"], capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH})
    return (words, "") if r.returncode == 0 else (None, f"this machine forbids namespaces: {r.stderr.strip()}")


def run_page(program, text):
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    check(len(blocks) >= 5, f"{len(blocks)} blocks of commands")
    words, why = namespace()
    if not words:
        skip(f"the commands of the page: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("packaging", "bench"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        script = BEFORE + "".join(f"{block}echo 'block {i} is done'\n" for i, block in enumerate(blocks))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_")) and not k.lower().endswith("_proxy")}
        env.update(PATH=f"{os.path.dirname(program)}:{PATH}", MLXCEL_HOME=folder)
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            p = subprocess.Popen([*words, "bash", "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                code = p.wait(HANG)
            except subprocess.TimeoutExpired:
                p.terminate()
                code = p.wait()
            log.seek(0)
            said = log.read()
    for i, block in enumerate(blocks):
        check(f"block {i} is done" in said, f"{block}: {code} {said[-1500:]}")
    check(code == 0, f"all of it: {code} {said[-500:]}")
    check(re.search(r"x-replica: replica-\d", said), "an answer says who gave it")
    check("New server registered" in said and '"text"' in said, f"a replica is added, and the rest answers: {said[-1500:]}")


def check_names(text):
    with open(os.path.join(ROOT, "tests/suites.list"), encoding="utf-8") as f:
        suites = {line.split()[1] for line in f if line.strip() and not line.startswith("#")}
    named = set(re.findall(r"`(scale-[a-z]+)`", text))
    check(named == {s for s in suites if s.startswith("scale-")}, f"suites of the page: {named}")
    with open(os.path.join(ROOT, "packaging/gateway/haproxy.cfg"), encoding="utf-8") as f:
        checks = re.search(r"^ *default-server (.*)$", f.read(), re.M)[1]
    check(f"127.0.0.1:8085 {checks}'" in text, "the added replica is checked as the others are")


def main():
    with open(os.path.join(ROOT, "docs/scale.md"), encoding="utf-8") as f:
        text = f.read()
    check_names(text)
    run_page(os.path.abspath(sys.argv[1]), text)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
