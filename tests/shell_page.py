"""Runs the blocks of shell commands of a page of docs/, line by line as they stand, in a network namespace of its own, so that its ports are free."""
import os
import re
import shutil
import subprocess
import tempfile

from counting import HANG, check, skip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
# Root of the namespace alone; /run is the namespace's, too. What the page starts ends with the shell.
BEFORE = """set -eE
trap 'code=$?; echo "failed: $BASH_COMMAND"; exit $code' ERR
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
ip link set lo up
mount -t tmpfs none /run
set -m
"""


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def suites():
    return {line.split()[1] for line in read("tests/suites.list").splitlines() if line.strip() and not line.startswith("#")}


def namespace(programs, probe):
    """The words that start a command in one, or why there is none. probe: what must be possible there, too."""
    missing = [name for name in ("unshare", "ip", "curl", "mount", *programs) if not shutil.which(name, path=PATH)]
    if missing:
        return None, f"{' and '.join(missing)} not installed here"
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount"] if os.geteuid() else ["unshare", "--net", "--mount"]
    r = subprocess.run([*words, "bash", "-c", f"ip link set lo up && mount -t tmpfs none /run && {probe}"], capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH})
    return (words, "") if r.returncode == 0 else (None, f"this machine forbids namespaces: {r.stderr.strip()}")


def start(command, folder, env):
    """The exit code of a command that should end, and all that it says."""
    with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
        p = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            code = p.wait(HANG)
        except subprocess.TimeoutExpired:
            p.terminate()
            code = p.wait()
        log.seek(0)
        return code, log.read()


def run_page(page, program, env, programs=(), probe="true", folders=(), least=1):
    """All that the page's blocks say, each of which is checked to come to its end; "" where they cannot be run here. folders: of the repository, that the page names."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", read(page), re.M | re.S)
    check(len(blocks) >= least, f"{len(blocks)} blocks of commands")
    words, why = namespace(programs, probe)
    if not words:
        skip(f"the commands of the page: {why}")
        return ""
    script = BEFORE + "".join(f"{block}echo; echo 'block {i} is done'\n" for i, block in enumerate(blocks))
    with tempfile.TemporaryDirectory() as folder:
        for name in folders:
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        code, said = start([*words, "bash", "-c", script], folder, {**env, "PATH": f"{os.path.dirname(program)}:{PATH}", "MLXCEL_HOME": folder})
    for i, block in enumerate(blocks):
        check(f"block {i} is done" in said, f"{block}: {code} {said[-1500:]}")
    check(code == 0, f"all of it: {code} {said[-500:]}")
    return said
