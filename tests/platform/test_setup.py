#!/usr/bin/env python3
"""What a user sees when something is missing: packages without root, a library, a source archive. The last line is "N passed, N failed"."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = []


def case(function):
    CASES.append(function)
    return function


def stub(folder, name, script):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n" + script + "\n")
    os.chmod(path, 0o755)


def setup_path(folder, user, *extra):
    """A PATH on which nothing is installed: only stubs and what the script itself needs."""
    for tool in ("bash", "env", "uname", "head", "tail", "cat", "mktemp", "rm", "printf", "grep", "tr"):
        found = shutil.which(tool)
        if found:
            os.symlink(found, os.path.join(folder, tool))
    stub(folder, "dpkg-query", "exit 1")
    stub(folder, "id", f"echo {user}")
    for name, script in extra:
        stub(folder, name, script)
    return {"PATH": folder, "HOME": folder}


def run_setup(env, *groups):
    done = subprocess.run([shutil.which("bash"), os.path.join(ROOT, "tools", "setup.sh"), *groups], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@case
def without_root_one_line_names_the_packages(folder):
    rc, out, err = run_setup(setup_path(folder, 1000, ("apt-get", "exit 99")), "build")
    assert rc == 1 and out == "" and err.count("\n") == 1, (rc, out, err)
    for package in ("gcc", "cmake", "libuv1-dev", "libpcre2-dev"):
        assert package in err, err


@case
def without_apt_one_line_names_the_packages(folder):
    rc, _, err = run_setup(setup_path(folder, 0), "build")
    assert rc == 1 and "there is no apt here" in err and "libzstd-dev" in err and err.count("\n") == 1, (rc, err)


@case
def groups_that_share_packages_name_each_once(folder):
    rc, out, err = run_setup(setup_path(folder, 1000, ("apt-get", "exit 99")), "build", "test", "windows", "windows-test", "cross", "cross-test")
    packages = err.split(": ")[-1].split()
    assert rc == 1 and out == "" and "wine64" in packages and "qemu-user-static" in packages and len(packages) == len(set(packages)), (rc, out, err)


@case
def root_installs_exactly_what_is_missing(folder):
    log = os.path.join(folder, "log")
    apt = f'echo "$*" >> {log}'
    query = 'case $* in *libuv1-dev*) exit 1 ;; *) echo installed ;; esac'
    env = setup_path(folder, 0, ("apt-get", apt), ("dpkg-query", query), ("cc", ""), ("cmake", ""), ("ninja", ""), ("pkg-config", ""))
    rc, out, err = run_setup(env, "build")
    with open(log, encoding="utf-8") as f:
        lines = f.read().splitlines()
    assert rc == 0 and "libuv1-dev" in out and "event loop" in out, (rc, out, err)
    assert lines[-1].endswith("--no-install-recommends libuv1-dev"), lines


@case
def a_complete_machine_is_left_alone(folder):
    env = setup_path(folder, 0, ("apt-get", "exit 99"), ("dpkg-query", "echo installed"))
    rc, out, err = run_setup(env, "build", "check", "cross-test")
    assert rc == 0 and out == "" and err == "", (rc, out, err)


@case
def a_failing_apt_shows_its_words(folder):
    rc, _, err = run_setup(setup_path(folder, 0, ("apt-get", "echo E: no such mirror; exit 100")), "build")
    assert rc == 1 and "E: no such mirror" in err and "failed" in err, (rc, err)


@case
def an_unknown_group_is_refused(folder):
    rc, _, err = run_setup(setup_path(folder, 0), "nonsense")
    assert rc == 2 and "no group called nonsense" in err, (rc, err)


@case
def folders_with_blanks_reach_the_commands(_):
    for target, setting, wanted in (("install", "PREFIX", '--prefix "a b"'), ("test", "DATA", '--data "a b"'), ("test-medium", "DATA", '--data "a b"'), ("test-long", "DATA", '--data "a b"'),
                                    ("test-cuda", "DATA", 'build/release "a b"'), ("asan", "DATA", '--data "a b"'), ("tsan", "DATA", '"a b/golden"')):
        done = subprocess.run(["make", "-n", "-C", ROOT, target, f"{setting}=a b"], capture_output=True, text=True, check=False)
        assert wanted in done.stdout, (target, done.stdout, done.stderr)


def progress(folder, script):
    done = subprocess.run([os.path.join(ROOT, "tools", "progress.sh"), "the work", os.path.join(folder, "log"), "sh", "-c", script],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@case
def long_work_says_what_it_is(folder):
    rc, out, err = progress(folder, "echo '[1/2] first'; sleep 3")
    assert rc == 0 and err == "" and out.startswith("the work\n") and "the work: done in" in out, (rc, out, err)


@case
def warnings_of_a_build_are_shown(folder):
    rc, out, err = progress(folder, "echo '[1/2] first'; echo 'a.c:3:1: warning: unused'")
    assert rc == 0 and err == "" and "[1/2]" not in out and "a.c:3:1: warning: unused\n" in out, (rc, out, err)


@case
def failed_work_shows_its_words(folder):
    rc, _, err = progress(folder, "echo '[1/2] first'; echo 'a.c:3:1: error: no such thing'; exit 3")
    assert rc == 3 and err.startswith("a.c:3:1: error: no such thing\nthe work: failed after"), (rc, err)


with open(os.path.join(ROOT, "tools", "old_ptxas.sh"), encoding="utf-8") as script_file:
    PTXAS_SHA256 = re.search(r"amd64\) sha256=(\w+)", script_file.read())[1]


def old_ptxas(folder, version, digest=None):
    """tools/old_ptxas.sh with an archive of ours: apt brings a file, dpkg unpacks a ptxas that says its version."""
    tools, bin_ = os.path.join(folder, "tools"), os.path.join(folder, "bin")
    os.makedirs(tools)
    os.makedirs(bin_)
    script = shutil.copy(os.path.join(ROOT, "tools", "old_ptxas.sh"), tools)
    says = f'echo "release {version}"; seq 100000'  # more than a pipe holds: a reader that has left is noticed
    stub(tools, "debian_fetch.sh", ': >"$5/nvidia-cuda-toolkit_$4_amd64.deb"')
    stub(bin_, "dpkg", f"""[ $1 != --print-architecture ] || {{ echo amd64; exit; }}
mkdir -p $3/usr/bin; printf '#!/bin/sh\\n%s\\n' '{says}' >$3/usr/bin/ptxas; chmod +x $3/usr/bin/ptxas""")
    stub(bin_, "sha256sum", f"echo {digest or PTXAS_SHA256} $1")
    env = {**os.environ, "PATH": bin_ + os.pathsep + os.environ["PATH"]}
    for _ in range(2):  # fetched, and found again
        yield subprocess.run([shutil.which("bash"), script], env=env, capture_output=True, text=True, check=False)


@case
def an_older_ptxas_that_runs_is_taken(folder):
    for done in old_ptxas(folder, "12.4"):
        assert done.returncode == 0 and done.stdout.strip().endswith("usr/bin/ptxas"), done


@case
def an_older_ptxas_of_another_hash_is_refused(folder):
    for done in old_ptxas(folder, "12.4", "0" * 64):
        assert done.returncode == 1 and "is not " + PTXAS_SHA256 in done.stderr and not done.stdout, done


@case
def an_older_ptxas_that_does_not_run_is_refused_each_time(folder):
    for done in old_ptxas(folder, "of something else"):
        assert done.returncode == 1 and "does not run" in done.stderr and not done.stdout, done


def configure(folder, *args, **env):
    command = ["cmake", "-S", ROOT, "-B", os.path.join(folder, "build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *args]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@case
def a_missing_library_names_its_package(folder):
    rc, text = configure(folder, PKG_CONFIG_LIBDIR=folder, PKG_CONFIG_PATH=folder)
    assert rc != 0 and "mlxcel needs libuv: install the package libuv1-dev" in text, text[-800:]


# The fetch functions alone, with packages of ours: in a folder that pip is told of, and in a mirror of Debian that apt is told of.
FETCH = """
cmake_minimum_required(VERSION 3.22)
set(CMAKE_SOURCE_DIR {folder})
set(MLXCEL_DEPS_CACHE {folder}/cache)
include({root}/cmake/fetch.cmake)
set(R_VERSION 1)
set(R_PLACES {places})
mlxcel_unpack(thing {folder}/out dir)
message(STATUS "unpacked in ${{dir}}")
"""
BACKEND = """
def prepare_metadata_for_build_wheel(folder, settings=None):
    import os
    os.mkdir(folder + "/thing-1.dist-info")
    with open(folder + "/thing-1.dist-info/METADATA", "w") as f:
        f.write("Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
    return "thing-1.dist-info"
"""


def fetch(folder, places):
    script = os.path.join(folder, "fetch.cmake")
    with open(script, "w", encoding="utf-8") as f:
        f.write(FETCH.format(folder=folder, root=ROOT, places=" ".join(places)))
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": os.path.join(folder, "index"), "MLXCEL_DEBIAN_MIRROR": f"file:{folder}/mirror"}
    done = subprocess.run(["cmake", "-P", script], env=env, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def archive(folder, name):
    """A source archive that pip takes for a package, too; its sha256."""
    write(folder, "thing-1/thing.c", "int x;\n")
    write(folder, "thing-1/backend.py", BACKEND)
    write(folder, "thing-1/pyproject.toml", '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    path = write(folder, name, "")
    subprocess.run(["tar", "-czf", path, "-C", folder, "thing-1"], check=True)
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def mirror(folder, versions):
    """A Debian whose suite mlxcel-test has these versions of the source package "thing"; the sha256 of the first one's archive."""
    rows, first = [], None
    for version in versions:
        name = f"thing_{version.split('-')[0]}.orig.tar.gz"
        digest = archive(folder, "mirror/pool/" + name)
        first = first or digest
        size = os.path.getsize(os.path.join(folder, "mirror/pool", name))
        dsc = "0" * 64 + f" 9 thing_{version}.dsc"  # is not there, and not asked for
        rows.append(f"Package: thing\nFormat: 3.0 (quilt)\nBinary: thing\nArchitecture: any\nVersion: {version}\nDirectory: pool\n"
                    f"Checksums-Sha256:\n {digest} {size} {name}\n {dsc}\n")
    path = write(folder, "mirror/dists/mlxcel-test/main/source/Sources", "\n".join(rows))
    with open(path, "rb") as f:
        listed = f"{hashlib.sha256(f.read()).hexdigest()} {os.path.getsize(path)} main/source/Sources"
    write(folder, "mirror/dists/mlxcel-test/Release", "Origin: Debian\nLabel: Debian\nSuite: mlxcel-test\nCodename: mlxcel-test\n"
          f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: amd64 arm64\nComponents: main\nSHA256:\n {listed}\n")
    return first


@case
def pip_brings_an_archive_and_the_cache_keeps_it(folder):
    digest = archive(folder, "index/thing-1.tar.gz")
    rc, text = fetch(folder, ["pip:thing-1.tar.gz", digest])
    assert rc == 0 and "unpacked in" in text and text.count("fetching thing") == 1, text
    shutil.rmtree(os.path.join(folder, "out"))
    shutil.rmtree(os.path.join(folder, "index"))
    rc, text = fetch(folder, ["pip:thing-1.tar.gz", digest])
    assert rc == 0 and "fetching" not in text, text


@case
def a_wrong_hash_is_refused(folder):
    digest, wrong = archive(folder, "index/thing-1.tar.gz"), "0" * 64
    rc, text = fetch(folder, ["pip:thing-1.tar.gz", wrong])
    assert rc != 0 and "put one of these files into" in text and "thing-1.tar.gz, through pip" in text, text
    assert not os.path.exists(os.path.join(folder, "out", "thing-1.unpacked"))
    assert not [n for n in os.listdir(os.path.join(folder, "cache"))], "a refused file stayed in the cache"
    rc, text = fetch(folder, ["pip:thing-1.tar.gz", digest])
    assert rc == 0, text


@case
def a_damaged_cache_is_not_used(folder):
    digest = archive(folder, "index/thing-1.tar.gz")
    write(folder, "cache/thing-thing-1.tar.gz", "cut off")
    rc, text = fetch(folder, ["pip:thing-1.tar.gz", digest])
    assert rc == 0 and "fetching thing" in text, text


@case
def apt_brings_what_a_suite_has(folder):
    digest = mirror(folder, ["1-2~deb13u4", "2-1"])
    rc, text = fetch(folder, ["apt:mlxcel-test/thing_1.orig.tar.gz", digest])
    assert rc == 0 and "thing_1.orig.tar.gz, through apt" in text and "unpacked in" in text, text


@case
def the_next_place_is_tried(folder):
    mirror(folder, ["2-1"])
    digest = archive(folder, "index/thing-1.tar.gz")
    rc, text = fetch(folder, ["apt:mlxcel-test/thing_1.orig.tar.gz", digest, "pip:thing-1.tar.gz", digest])
    assert rc == 0 and text.count("fetching thing") == 2, text
    shutil.rmtree(os.path.join(folder, "cache"))
    shutil.rmtree(os.path.join(folder, "out"))
    rc, text = fetch(folder, ["apt:mlxcel-test/thing_1.orig.tar.gz", digest])
    assert rc != 0 and "mlxcel-test has no thing 1 but 2-1" in text, text


@case
def an_archive_of_apt_with_a_wrong_hash_is_refused(folder):
    digest, wrong = mirror(folder, ["1-1"]), "0" * 64
    rc, text = fetch(folder, ["apt:mlxcel-test/thing_1.orig.tar.gz", wrong])
    assert rc != 0 and f"its sha256 is {digest}, expected {wrong}" in text, text


@case
def a_machine_without_debian_is_told_what_to_set(folder):
    stub(folder, "apt-get", 'case $1 in indextargets) echo "Ubuntu|http://mirror.invalid/ubuntu/" ;; *) exit 99 ;; esac')
    env = {k: v for k, v in os.environ.items() if k != "MLXCEL_DEBIAN_MIRROR"}
    done = subprocess.run([os.path.join(ROOT, "tools", "debian_fetch.sh"), "source", "trixie", "thing", "1", folder], capture_output=True, text=True, check=False,
                          env={**env, "PATH": folder + os.pathsep + os.environ["PATH"]})
    assert done.returncode == 1 and "knows no Debian mirror; name one in MLXCEL_DEBIAN_MIRROR" in done.stderr, done


def main():
    passed = failed = 0
    for function in CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(folder)
                passed += 1
            except (AssertionError, OSError, subprocess.SubprocessError) as problem:
                failed += 1
                print(f"FAILED setup.{function.__name__}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
