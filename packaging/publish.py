#!/usr/bin/env python3
"""Makes of dist/ what package managers read, and the commands that put everything where people get it.

usage: publish.py --base URL [--key KEY] DIST OUT

  OUT/apt          an apt repository of the .deb files (suite stable): pool, Packages, Release; with --key InRelease and Release.gpg, too
  OUT/packages     a Scoop bucket (bucket/mlxcel.json), a Homebrew tap for Linux (Formula/mlxcel.rb), a winget manifest (winget/)
  OUT/upload.sh    the uploads: the release with its files, the Python package, the container, the bucket and tap. Only this needs accounts and a network; it says
                   which settings it takes. `bash upload.sh STEP...` does some of them.

--base is the address below which the files of DIST will lie. --key names a key of gpg that signs; without one nothing is signed, which is said. Nothing is fetched,
and the same input gives the same bytes, signatures apart.
"""
import argparse
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME, OWNER = "mlxcel", "mlxcel"
SUMMARY = "Runs MLX and Hugging Face models: one program, no Python, no CUDA toolkit"
LICENCE = "Apache-2.0"
UPLOAD = """#!/usr/bin/env bash
# The uploads of mlxcel {version}, made by packaging/publish.py. Each step by its name; without names, all of them.
#
#   release    GH_TOKEN, GITHUB_REPOSITORY (owner/name)       the tag's page with every file
#   wheels     TWINE_USERNAME, TWINE_PASSWORD                 the Python package
#   container  MLXCEL_IMAGE (registry/owner/mlxcel), logged in    an image for both processors
#   packages   MLXCEL_PACKAGES (address of a git repository)  its branch `packages`: bucket, tap, winget manifest
set -euo pipefail
cd {root}
need() {{ for name in "$@"; do [ -n "${{!name:-}}" ] || {{ echo "upload: $name is not set; the head of this file says what it is" >&2; exit 2; }}; done; }}
do_release() {{
    need GITHUB_REPOSITORY
    gh release create v{version} --repo "$GITHUB_REPOSITORY" --title "mlxcel {version}" --notes-file {dist}/RELEASE_NOTES.md {files}
}}
do_wheels() {{
    need TWINE_USERNAME TWINE_PASSWORD
    twine upload --non-interactive {wheels}
}}
do_container() {{
    need MLXCEL_IMAGE
    local arch images=()
    for arch in {archs}; do
        docker build --platform "linux/$arch" --build-arg "TARGETARCH=$arch" -f packaging/Containerfile -t "$MLXCEL_IMAGE:{version}-$arch" .
        docker push "$MLXCEL_IMAGE:{version}-$arch"
        images+=("$MLXCEL_IMAGE:{version}-$arch")
    done
    local tag
    for tag in {version} latest; do
        docker manifest create "$MLXCEL_IMAGE:$tag" "${{images[@]}}"
        docker manifest push "$MLXCEL_IMAGE:$tag"
    done
}}
do_packages() {{
    need MLXCEL_PACKAGES
    local work
    work=$(mktemp -d)
    git init -q -b packages "$work"
    git -C "$work" fetch -q "$MLXCEL_PACKAGES" packages && git -C "$work" reset -q --soft FETCH_HEAD || true # the first time there is none
    cp -r {out}/packages/. "$work"
    git -C "$work" add -A
    git -C "$work" -c user.name=mlxcel -c user.email=mlxcel@mlxcel.invalid commit -q -m "mlxcel {version}"
    git -C "$work" push -q "$MLXCEL_PACKAGES" HEAD:packages
    rm -rf "$work"
}}
[ $# -gt 0 ] || set -- release wheels container packages
for step in "$@"; do
    declare -F "do_$step" >/dev/null || {{ echo "upload: there is no step $step" >&2; exit 2; }}
    echo "=== $step"
    "do_$step"
done
"""


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write(text)


def check_sums(dist):
    """Every file of dist is the one that SHA256SUMS names."""
    with open(os.path.join(dist, "SHA256SUMS"), encoding="utf-8") as f:
        named = dict(reversed(line.rstrip("\n").split("  ", 1)) for line in f)
    there = {n for n in os.listdir(dist) if not n.startswith("SHA256SUMS")}
    if there != set(named):
        sys.exit(f"publish: {dist} and its SHA256SUMS differ: {', '.join(sorted(there ^ set(named)))}")
    for name, wanted in named.items():
        if sha256(os.path.join(dist, name)) != wanted:
            sys.exit(f"publish: {dist}/{name} is not what SHA256SUMS says")


def one(dist, pattern):
    found = glob.glob(os.path.join(dist, pattern))
    if len(found) != 1:
        sys.exit(f"publish: {dist} has {len(found)} files {pattern}, and one is wanted")
    return found[0]


# ---- apt

def apt_entry(pool, path):
    fields = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, text=True, check=True).stdout.rstrip("\n")
    return f"{fields}\nFilename: pool/{os.path.basename(path)}\nSize: {os.path.getsize(path)}\nSHA256: {sha256(path)}\n"


def make_apt(dist, out, epoch):
    pool, suite = os.path.join(out, "apt/pool"), os.path.join(out, "apt/dists/stable")
    os.makedirs(pool)
    for path in sorted(glob.glob(os.path.join(dist, "*.deb"))):
        shutil.copy(path, pool)
    archs = sorted({re.search(r"_(\w+)\.deb$", n).group(1) for n in os.listdir(pool)})
    lines = []
    for arch in archs:
        text = "\n".join(apt_entry(pool, os.path.join(pool, n)) for n in sorted(os.listdir(pool)) if n.endswith(f"_{arch}.deb"))
        folder = f"main/binary-{arch}"
        write(os.path.join(suite, folder, "Packages"), text)
        with open(os.path.join(suite, folder, "Packages.gz"), "wb") as f:
            f.write(gzip.compress(text.encode(), mtime=0))
        lines += [f" {sha256(os.path.join(suite, folder, n))} {os.path.getsize(os.path.join(suite, folder, n))} {folder}/{n}" for n in ("Packages", "Packages.gz")]
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(epoch))
    write(os.path.join(suite, "Release"), f"Origin: {NAME}\nLabel: {NAME}\nSuite: stable\nCodename: stable\nDate: {date}\nArchitectures: {' '.join(archs)}\nComponents: main\n"
          f"Description: {SUMMARY}\nSHA256:\n" + "\n".join(lines) + "\n")
    return archs


def sign(dist, out, key):
    suite = os.path.join(out, "apt/dists/stable")
    gpg = ["gpg", "--batch", "--yes", "--local-user", key, "--digest-algo", "SHA256"]
    for args in (["--clearsign", "--output", f"{suite}/InRelease", f"{suite}/Release"], ["--armor", "--detach-sign", "--output", f"{suite}/Release.gpg", f"{suite}/Release"],
                 ["--armor", "--detach-sign", "--output", f"{dist}/SHA256SUMS.asc", f"{dist}/SHA256SUMS"]):
        subprocess.run([*gpg, *args], check=True)
    public = subprocess.run(["gpg", "--batch", "--armor", "--export", key], check=True, capture_output=True, text=True).stdout
    write(os.path.join(out, "apt/mlxcel.asc"), public)


# ---- Scoop, Homebrew, winget

def make_scoop(dist, out, version, base):
    path = one(dist, "mlxcel-windows-x86_64*.zip")
    with zipfile.ZipFile(path) as z:
        top = {n.split("/")[0] for n in z.namelist()}
    if len(top) != 1:
        sys.exit(f"publish: {path} has several folders at its top: {top}")
    name = os.path.basename(path)
    write(os.path.join(out, "packages/bucket/mlxcel.json"), json.dumps({
        "version": version, "description": SUMMARY, "homepage": base.split("/releases/")[0], "license": LICENCE,
        "architecture": {"64bit": {"url": f"{base}/{name}", "hash": sha256(path), "extract_dir": top.pop()}},
        "bin": ["mlxcel.exe", "mlxcel-server.exe"]}, indent=4) + "\n")


def make_formula(dist, out, version, base):
    parts = []
    for block, machine in (("on_intel", "x86_64"), ("on_arm", "aarch64")):
        path = one(dist, f"mlxcel-linux-{machine}*.tar.gz")
        parts.append(f'    {block} do\n      url "{base}/{os.path.basename(path)}"\n      sha256 "{sha256(path)}"\n    end\n')
    write(os.path.join(out, "packages/Formula/mlxcel.rb"), f'''class Mlxcel < Formula
  desc "{SUMMARY}"
  homepage "{base.split("/releases/")[0]}"
  version "{version}"
  license "{LICENCE}"

  on_linux do
{"".join(parts)}  end

  def install
    bin.install "mlxcel", "mlxcel-server"
    man1.install Dir["**/mlxcel.1"]
    generate_completions_from_executable(bin/"mlxcel", "completions", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/mlxcel --version")
    system bin/"mlxcel", "generate", "Once upon a time", "-n", "4"
  end
end
''')


def make_winget(dist, out, version, base):
    path = one(dist, "mlxcel-*-windows-x86_64-installer.exe")
    ident, folder = f"{OWNER}.{NAME}", os.path.join(out, "packages/winget")
    head = f"PackageIdentifier: {ident}\nPackageVersion: {version}\n"
    tail = "ManifestVersion: 1.6.0\n"
    write(f"{folder}/{ident}.yaml", f"{head}DefaultLocale: en-US\nManifestType: version\n{tail}")
    write(f"{folder}/{ident}.locale.en-US.yaml", f"{head}PackageLocale: en-US\nPublisher: {OWNER}\nPackageName: {NAME}\nLicense: {LICENCE}\nShortDescription: {SUMMARY.replace(': ', ', ')}\n"
          f"PackageUrl: {base.split('/releases/')[0]}\nManifestType: defaultLocale\n{tail}")
    write(f"{folder}/{ident}.installer.yaml", f"{head}InstallerType: nullsoft\nScope: user\nInstallModes:\n- interactive\n- silent\nCommands:\n- mlxcel\n- mlxcel-server\nInstallers:\n- Architecture: x64\n"
          f"  InstallerUrl: {base}/{os.path.basename(path)}\n  InstallerSha256: {sha256(path).upper()}\nManifestType: installer\n{tail}")


# ---- all of it

def make_upload(dist, out, version, archs):
    for arch in archs:
        one(dist, f"mlxcel_*_{arch}.deb")  # what packaging/Containerfile copies
    quoted = [json.dumps(p) for p in sorted(glob.glob(os.path.join(os.path.abspath(dist), "*")))]
    write(os.path.join(out, "upload.sh"), UPLOAD.format(version=version, root=json.dumps(ROOT), dist=json.dumps(os.path.abspath(dist)), out=json.dumps(os.path.abspath(out)), archs=" ".join(archs),
          files=" ".join(quoted), wheels=" ".join(q for q in quoted if q.endswith('.whl"'))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", required=True)
    parser.add_argument("--key")
    parser.add_argument("dist")
    parser.add_argument("out")
    args = parser.parse_args()
    if not re.fullmatch(r"https://[^\s\"'<>]+[^/\s\"'<>]", args.base):
        sys.exit(f"publish: --base must be an https address without a slash at its end, not {args.base}")
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as f:
        version = f.read().strip()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True).stdout)
    check_sums(args.dist)
    if os.path.isdir(args.out) and os.listdir(args.out):
        sys.exit(f"publish: {args.out} is not empty")
    archs = make_apt(args.dist, args.out, epoch)
    make_scoop(args.dist, args.out, version, args.base)
    make_formula(args.dist, args.out, version, args.base)
    make_winget(args.dist, args.out, version, args.base)
    if args.key:
        sign(args.dist, args.out, args.key)
    else:
        print("publish: nothing is signed: --key names a key of gpg")
    make_upload(args.dist, args.out, version, archs)
    for top, _, names in sorted(os.walk(args.out)):
        for name in sorted(names):
            print(os.path.join(top, name))


if __name__ == "__main__":
    main()
