"""The commands of docs/ranks.md, line by line as they stand, in a network namespace of its own, so that its ports are free: test_page.py PROGRAM"""
import os
import re
import subprocess
import sys
import tempfile

from group import PATH, environment, find
from harness import HANG, check, finish, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Root of the namespace alone; /run is the namespace's, too. What the page starts ends with the shell.
BEFORE = """set -eE
trap 'code=$?; echo "failed: $BASH_COMMAND"; exit $code' ERR
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
ip link set lo up
mount -t tmpfs none /run
set -m
"""
# mpirun asks twice where somebody is root, and for cores where there are few
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def namespace():
    """The words that start a command in one, or why there is none."""
    why = find("unshare", "ip", "curl", "mount", "mpirun")
    if why:
        return None, why
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount"] if os.geteuid() else ["unshare", "--net", "--mount"]
    r = subprocess.run([*words, "bash", "-c", "ip link set lo up && mount -t tmpfs none /run && ip netns add x"], capture_output=True, text=True, check=False, env=environment())
    return (words, "") if r.returncode == 0 else (None, f"this machine forbids namespaces: {r.stderr.strip()}")


def run_page(program, text):
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    check(len(blocks) >= 4, f"{len(blocks)} blocks of commands")
    words, why = namespace()
    if not words:
        skip(f"the commands of the page: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        script = BEFORE + "".join(f"{block}echo; echo 'block {i} is done'\n" for i, block in enumerate(blocks))
        env = {**environment(MLXCEL_HOME=folder, **MPI), "PATH": f"{os.path.dirname(program)}:{PATH}"}
        del env["MLXCEL_JOB_SECRET"]
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
    check(said.count('"choices"') == 3, f"three groups answer: {said[-1500:]}")


def check_names(text):
    """Variables of the page are those of the option table, and the suites are there."""
    with open(os.path.join(ROOT, "src/cli/options.def"), encoding="utf-8") as f:
        rows = f.read()
    for option, names in (("RANK", "--rank"), ("WORLD_SIZE", "--world-size"), ("COORDINATOR", "--coordinator"), ("LOCAL_SIZE", "ranks of this machine")):
        of_table = set(re.search(rf"^OPTION\({option},.*?\.env = \"([A-Z_,]+)\"", rows, re.M | re.S)[1].split(","))
        line = re.search(rf"^\| `?{names}`? \|([^|]*)\|", text, re.M)[1]
        check(of_table == set(re.findall(r"`([A-Z_]+)`", line)) - {"MASTER_PORT"}, f"{names}: {of_table} and {line}")
    with open(os.path.join(ROOT, "tests/suites.list"), encoding="utf-8") as f:
        suites = {line.split()[1] for line in f if line.strip() and not line.startswith("#")}
    named = {n for n in re.findall(r"`([a-z0-9-]+)`", text) if n.startswith(("ranks", "golden"))}
    check(named and named <= suites, f"suites of the page: {named - suites}")


def main():
    with open(os.path.join(ROOT, "docs/ranks.md"), encoding="utf-8") as f:
        text = f.read()
    check_names(text)
    run_page(os.path.abspath(sys.argv[1]), text)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
