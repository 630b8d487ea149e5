#!/usr/bin/env python3
"""Publishing without a network: packaging/publish.py over a small made-up dist/, its apt repository read by apt, its signatures by gpg, and the uploads run
with programs that only note what they were called with; the bucket goes into a git repository of this machine.

usage: test_publish.py      last line: "N passed, N failed[, N skipped]"
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from counting import HANG, check, finish, skip  # noqa: E402

BASE = "https://downloads.invalid/mlxcel/releases/v1"
VERSION = open(os.path.join(ROOT, "VERSION"), encoding="utf-8").read().strip()


def run(*command, env=None, cwd=None):
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False, env={**os.environ, **(env or {})}, cwd=cwd)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def make_dist(folder):
    """Files with the names of a release; the packages are real, what is in them is not."""
    dist = os.path.join(folder, "dist")
    os.makedirs(dist)
    for arch in ("amd64", "arm64"):
        for package in ("mlxcel", "libmlxcel0"):
            stage = os.path.join(folder, f"stage-{package}-{arch}")
            os.makedirs(os.path.join(stage, "DEBIAN"))
            os.makedirs(os.path.join(stage, "usr/share/doc", package))
            with open(os.path.join(stage, "DEBIAN/control"), "w", encoding="utf-8") as f:
                f.write(f"Package: {package}\nVersion: {VERSION}\nArchitecture: {arch}\nMaintainer: nobody <nobody@mlxcel.invalid>\nDescription: a test\n of publishing\n")
            with open(os.path.join(stage, "usr/share/doc", package, "copyright"), "w", encoding="utf-8") as f:
                f.write(arch)
            made = run("dpkg-deb", "--root-owner-group", "--build", stage, os.path.join(dist, f"{package}_{VERSION}_{arch}.deb"))
            check(made.returncode == 0, f"a package: {made.stderr}")
    with zipfile.ZipFile(os.path.join(dist, "mlxcel-windows-x86_64-cuda13.zip"), "w") as z:
        z.writestr(f"mlxcel-{VERSION}/mlxcel.exe", "MZ")
    names = [f"mlxcel-linux-{m}-cuda13.tar.gz" for m in ("x86_64", "aarch64")] + [f"mlxcel-{VERSION}-windows-x86_64-installer.exe", f"mlxcel-{VERSION}-py3-none-win_amd64.whl", "RELEASE_NOTES.md"]
    for name in names:
        with open(os.path.join(dist, name), "w", encoding="utf-8") as f:
            f.write(f"{name}\n")
    with open(os.path.join(dist, "SHA256SUMS"), "w", encoding="utf-8") as f:
        f.writelines(f"{digest(os.path.join(dist, n))}  {n}\n" for n in sorted(os.listdir(dist)) if n != "SHA256SUMS")
    return dist


def publish(dist, out, *more, base=BASE, env=None):
    return run(sys.executable, os.path.join(ROOT, "packaging/publish.py"), "--base", base, *more, dist, out, env={"SOURCE_DATE_EPOCH": "1700000000", **(env or {})})


def contents(folder):
    return {os.path.relpath(os.path.join(top, n), folder): digest(os.path.join(top, n)) for top, _, names in os.walk(folder) for n in names if n != "upload.sh"}


def check_manifests(dist, out):
    with open(f"{out}/packages/bucket/mlxcel.json", encoding="utf-8") as f:
        scoop = json.load(f)
    archive = scoop["architecture"]["64bit"]
    check(scoop["version"] == VERSION and archive["url"] == f"{BASE}/mlxcel-windows-x86_64-cuda13.zip" and archive["hash"] == digest(f"{dist}/mlxcel-windows-x86_64-cuda13.zip")
          and archive["extract_dir"] == f"mlxcel-{VERSION}", f"Scoop: {scoop}")
    with open(f"{out}/packages/Formula/mlxcel.rb", encoding="utf-8") as f:
        formula = f.read()
    pairs = re.findall(r'url "([^"]+)"\s+sha256 "([0-9a-f]{64})"', formula)
    check([(u.rsplit("/", 1)[1], h) for u, h in pairs] == [(n, digest(f"{dist}/{n}")) for n in ("mlxcel-linux-x86_64-cuda13.tar.gz", "mlxcel-linux-aarch64-cuda13.tar.gz")], f"Homebrew: {pairs}")
    if shutil.which("ruby"):
        r = run("ruby", "-c", f"{out}/packages/Formula/mlxcel.rb")
        check(r.returncode == 0, f"Homebrew: {r.stderr}")
    else:
        check(len(re.findall(r"\bdo\b|^class |^  def ", formula, re.M)) == len(re.findall(r"^ *end$", formula, re.M)), "Homebrew: blocks that end")
    winget = {}
    for kind in ("", ".installer", ".locale.en-US"):
        with open(f"{out}/packages/winget/mlxcel.mlxcel{kind}.yaml", encoding="utf-8") as f:
            lines = f.read().splitlines()
        check(all(re.fullmatch(r"(- |  )?[A-Za-z0-9]+: [^:]*(https://\S+)?|[A-Za-z]+:|- \S+", line) for line in lines), f"winget{kind}: {lines}")
        winget[kind] = dict(re.match(r"(?:- |  )?(\w+): (.*)", line).groups() for line in lines if re.match(r"(?:- |  )?\w+: ", line))
    check(all(m["PackageIdentifier"] == "mlxcel.mlxcel" and m["PackageVersion"] == VERSION for m in winget.values()), f"winget: {winget}")
    installer = f"mlxcel-{VERSION}-windows-x86_64-installer.exe"
    check(winget[".installer"]["InstallerUrl"] == f"{BASE}/{installer}" and winget[".installer"]["InstallerSha256"] == digest(f"{dist}/{installer}").upper(), f"winget: {winget}")


def apt(folder, repository, key, *words):
    """apt with places of its own, and this repository as the only source."""
    for name in ("lists/partial", "cache/archives/partial", "etc", "log"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    open(f"{folder}/status", "a", encoding="utf-8").close()
    with open(f"{folder}/etc/sources.list", "w", encoding="utf-8") as f:
        f.write(f"deb [arch=amd64,arm64 signed-by={key}] file:{repository} stable main\n")
    options = {"Dir::State::lists": "lists", "Dir::State::status": "status", "Dir::Cache": "cache", "Dir::Etc::sourcelist": "etc/sources.list", "Dir::Etc::sourceparts": "none",
               "Dir::Etc::preferencesparts": "none", "Dir::Etc::main": "none", "Dir::Log": "log"}
    flags = [f for k, v in options.items() for f in ("-o", f"{k}={folder}/{v}")]
    return run(*words[:1], *flags, "-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64,arm64", "-o", "APT::Sandbox::User=root", *words[1:], cwd=folder)


def check_apt(folder, out):
    if not shutil.which("apt-get"):
        skip("the apt repository: no apt here")
        return
    place, repository = f"{folder}/apt", f"{out}/apt"
    os.makedirs(place)
    key = f"{repository}/mlxcel.asc"
    r = apt(place, repository, key, "apt-get", "update")
    check(r.returncode == 0 and "W:" not in r.stderr, f"apt reads the repository: {r.stdout} {r.stderr}")
    r = apt(place, repository, key, "apt-cache", "policy", "mlxcel", "libmlxcel0:arm64")
    check(r.stdout.count(f"Candidate: {VERSION}") == 2, f"apt finds the packages: {r.stdout} {r.stderr}")
    r = apt(place, repository, key, "apt-get", "download", "mlxcel")
    check(r.returncode == 0 and os.path.exists(f"{place}/mlxcel_{VERSION}_amd64.deb"), f"apt fetches one: {r.stderr}")
    if not check(os.path.exists(f"{repository}/dists/stable/InRelease"), "the repository has its list signed in one file"):
        return
    with open(f"{repository}/dists/stable/InRelease", "r+", encoding="utf-8") as f:
        text = f.read().replace("Origin: mlxcel", "Origin: others")
        f.seek(0)
        f.write(text)
    os.remove(f"{repository}/dists/stable/Release.gpg")
    other = f"{folder}/apt-again"
    os.makedirs(other)
    r = apt(other, repository, key, "apt-get", "update")
    check(r.returncode != 0 and ("BADSIG" in r.stderr or "invalid" in r.stderr), f"a changed one is refused: {r.returncode} {r.stdout} {r.stderr}")


STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$UPLOAD_LOG"
"""


def check_upload(folder, dist, out):
    """Every command of every step, with programs that only note them; git is the real one."""
    stubs, log, remote = f"{folder}/stubs", f"{folder}/upload.log", f"{folder}/packages.git"
    os.makedirs(stubs)
    for name in ("gh", "twine", "docker"):
        with open(f"{stubs}/{name}", "w", encoding="utf-8") as f:
            f.write(STUB)
        os.chmod(f"{stubs}/{name}", 0o755)
    run("git", "init", "-q", "--bare", remote)
    env = {"PATH": f"{stubs}:{os.environ['PATH']}", "UPLOAD_LOG": log, "GITHUB_REPOSITORY": "acme/mlxcel", "TWINE_USERNAME": "u", "TWINE_PASSWORD": "p", "MLXCEL_IMAGE": "registry.invalid/mlxcel", "MLXCEL_PACKAGES": remote}
    r = run("bash", f"{out}/upload.sh", env=env)
    check(r.returncode == 0, f"upload.sh: {r.stdout} {r.stderr}")
    with open(log, encoding="utf-8") as f:
        calls = f.read().splitlines()
    released = next((c for c in calls if c.startswith("gh release create")), "").split()
    check(f"v{VERSION}" in released and {os.path.basename(w) for w in released if w.startswith(dist + "/")} == set(os.listdir(dist)), f"the release has every file: {released}")
    check([c for c in calls if c.startswith("twine")] == [f"twine upload --non-interactive {dist}/mlxcel-{VERSION}-py3-none-win_amd64.whl"], f"the Python package: {calls}")
    images = [c for c in calls if c.startswith("docker")]
    check(sum("docker build" in c and f"TARGETARCH={a}" in c and f"linux/{a}" in c for c in images for a in ("amd64", "arm64")) == 2 and sum("manifest push" in c for c in images) == 2
          and sum(c == f"docker push registry.invalid/mlxcel:{VERSION}-{a}" for c in images for a in ("amd64", "arm64")) == 2, f"the container: {images}")
    listed = run("git", "--git-dir", remote, "ls-tree", "-r", "--name-only", "packages").stdout.split()
    check({"bucket/mlxcel.json", "Formula/mlxcel.rb", "winget/mlxcel.mlxcel.yaml"} <= set(listed), f"bucket and tap are pushed: {listed}")
    with open(f"{out}/packages/bucket/mlxcel.json", "a", encoding="utf-8") as f:
        f.write("\n")
    r = run("bash", f"{out}/upload.sh", "packages", env=env)
    check(r.returncode == 0 and run("git", "--git-dir", remote, "rev-list", "--count", "packages").stdout.strip() == "2", f"the next release is a commit upon it: {r.stderr}")
    for step, names in (("release", "GITHUB_REPOSITORY"), ("wheels", "TWINE_USERNAME"), ("container", "MLXCEL_IMAGE"), ("packages", "MLXCEL_PACKAGES")):
        r = run("bash", f"{out}/upload.sh", step, env={**env, names: ""})
        check(r.returncode == 2 and names in r.stderr, f"{step} without {names}: {r.returncode} {r.stderr}")
    r = run("bash", f"{out}/upload.sh", "nonsense", env=env)
    check(r.returncode == 2 and "no step nonsense" in r.stderr, f"an unknown step: {r.stderr}")


def check_refusals(folder, dist):
    for name, base in (("plain", "http://downloads.invalid/x"), ("slash", BASE + "/"), ("quote", 'https://a"b/c')):
        r = publish(dist, f"{folder}/refused-{name}", base=base)
        check(r.returncode and "--base" in r.stderr and not os.path.exists(f"{folder}/refused-{name}"), f"--base {base}: {r.stderr}")
    copy = f"{folder}/damaged"
    shutil.copytree(dist, copy)
    with open(f"{copy}/RELEASE_NOTES.md", "a", encoding="utf-8") as f:
        f.write("more\n")
    r = publish(copy, f"{folder}/refused-damaged")
    check(r.returncode and "RELEASE_NOTES.md is not what SHA256SUMS says" in r.stderr, f"a damaged file: {r.stderr}")
    os.remove(f"{copy}/RELEASE_NOTES.md")
    r = publish(copy, f"{folder}/refused-missing")
    check(r.returncode and "differ: RELEASE_NOTES.md" in r.stderr, f"a missing file: {r.stderr}")
    r = publish(dist, dist)
    check(r.returncode and "is not empty" in r.stderr, f"a folder in use: {r.stderr}")


def main():
    if not shutil.which("dpkg-deb"):
        skip("publishing: no dpkg-deb here")
        finish()
    with tempfile.TemporaryDirectory() as folder:
        dist = make_dist(folder)
        r = publish(dist, f"{folder}/one")
        check(r.returncode == 0 and "nothing is signed" in r.stdout, f"publish: {r.stdout} {r.stderr}")
        publish(dist, f"{folder}/two")
        check(contents(f"{folder}/one") == contents(f"{folder}/two") and len(contents(f"{folder}/one")) >= 14, "the same input, the same bytes")
        check_manifests(dist, f"{folder}/one")
        check_refusals(folder, dist)
        out = f"{folder}/one"
        if shutil.which("gpg"):
            home = f"{folder}/gnupg"
            os.makedirs(home, 0o700)
            env = {"GNUPGHOME": home}
            made = run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "mlxcel test <test@mlxcel.invalid>", "rsa2048", "sign", env=env)
            r = publish(dist, f"{folder}/signed", "--key", "test@mlxcel.invalid", env=env)
            check(made.returncode == 0 and r.returncode == 0, f"signed: {made.stderr} {r.stderr}")
            check(run("gpg", "--verify", f"{dist}/SHA256SUMS.asc", f"{dist}/SHA256SUMS", env=env).returncode == 0, "the sums are signed")
            out = f"{folder}/signed"
            check_upload(folder, dist, out)
            check_apt(folder, out)
            run("gpgconf", "--kill", "all", env=env)
        else:
            skip("signatures: no gpg here")
            check_upload(folder, dist, out)
    finish()


if __name__ == "__main__":
    main()
