"""The commands of docs/ranks.md, its variables and its suites: test_page.py PROGRAM"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish  # noqa: E402
from group import environment  # noqa: E402
from shell_page import read, run_page, suites  # noqa: E402

PAGE = "docs/ranks.md"
# mpirun asks twice where somebody is root, and for cores where there are few
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def check_commands(program):
    env = environment(**MPI)
    del env["MLXCEL_JOB_SECRET"]
    said = run_page(PAGE, program, env, programs=["mpirun"], probe="ip netns add x", least=4)
    if said:
        check(said.count('"choices"') == 3, f"three groups answer: {said[-1500:]}")


def check_names(text):
    """Variables of the page are those of the option table, and the suites are there."""
    rows = read("src/cli/options.def")
    for option, names in (("RANK", "--rank"), ("WORLD_SIZE", "--world-size"), ("COORDINATOR", "--coordinator"), ("LOCAL_SIZE", "ranks of this machine"), ("LOCAL_RANK", "number on this machine")):
        of_table = set(re.search(rf"^OPTION\({option},.*?\.env = \"([A-Z_,]+)\"", rows, re.M | re.S)[1].split(","))
        line = re.search(rf"^\| `?{names}`? \|([^|]*)\|", text, re.M)[1]
        check(of_table == set(re.findall(r"`([A-Z_]+)`", line)) - {"MASTER_PORT"}, f"{names}: {of_table} and {line}")
    named = {n for n in re.findall(r"`([a-z0-9-]+)`", text) if n.startswith(("ranks", "golden"))}
    check(named and named <= suites(), f"suites of the page: {named - suites()}")


check_names(read(PAGE))
check_commands(os.path.abspath(sys.argv[1]))
finish()
