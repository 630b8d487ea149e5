#!/usr/bin/env python3
"""Turns built programs into the files that are published: archives, packages, the installer, SBOM, notes, checksums.

usage: pack.py --cuda on|off --epoch SECONDS [--sign] [--dist DIR] TARGET...      (called by packaging/release.sh; reads build/release-TARGET)

Everything is deterministic: names sorted, owners root, times the commit's. What a target needs beyond Python is checked by
tools/setup.sh release: dpkg-deb, rpmbuild, makensis. --sign: Windows programs, installer and uninstaller pass packaging/sign.sh first.
"""
import argparse
import collections
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
import zipfile

import wheel

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIST = os.path.join(ROOT, "dist")
VERSION = open(os.path.join(ROOT, "VERSION")).read().strip()
SUMMARY = "runs language models from MLX and Hugging Face checkpoints"
AUTHORS = "The mlxcel authors"
MAX_ARCHIVE = 40 * 1000 * 1000
MAX_WHEEL = 20 * 1000 * 1000
SIGN = os.path.join(ROOT, "packaging/sign.sh")


def run(*command, **kwargs):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    if r.returncode:
        sys.exit(f"pack: {' '.join(command)} failed with {r.returncode}:\n{r.stdout}")
    return r.stdout


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def recipes():
    """The libraries that are linked, from cmake/deps: name, version, licence."""
    out = []
    for file in sorted(os.listdir(os.path.join(ROOT, "cmake/deps"))):
        m = re.search(r"mlxcel_recipe\((\S+)(?:\s+RUNTIME)?\s+VERSION (\S+)\s+LICENCE (\S+)", read(f"cmake/deps/{file}")) if file.endswith(".cmake") else None
        if m:
            out.append(m.groups())
    return out


# The part of the compiler's own libraries that a Windows program holds; Debian's package has the notices.
MINGW_NOTICES = "/usr/share/doc/mingw-w64-x86-64-dev/copyright"


def library_licences(target):
    """{library: text of its licence files}, from the sources that the target was built from."""
    folders = [f"build/deps-{target}-sysroot/src", f"build/deps-{target}/src"]
    base = next((f for f in folders if os.path.isdir(os.path.join(ROOT, f))), None)
    texts = {}
    for name, version, _ in recipes():
        top = os.path.join(ROOT, base or folders[0], f"{name}-{version}")
        found = []
        for folder, dirs, files in os.walk(top):
            dirs.sort()
            depth = os.path.relpath(folder, top).count(os.sep)
            if depth > 3:
                dirs[:] = []
            found += [os.path.join(folder, f) for f in sorted(files) if re.match(r"(LICEN[CS]E|License|COPYING|copyright)(\.|-|$)", f)]
            if found:
                break
        if not found:
            sys.exit(f"pack: no licence file under {top}")
        texts[f"{name}-{version}"] = "\n".join(open(f, encoding="utf-8", errors="replace").read() for f in found)
    if target.startswith("windows"):
        texts["mingw-w64-runtime"] = read(MINGW_NOTICES)
    return texts


def program_files(target, host_program):
    """{name in the archive: bytes} that every artifact holds beside the programs."""
    files = {"README.md": read("README.md").encode(), "LICENSE": read("LICENSE").encode(), "CHANGELOG.md": read("CHANGELOG.md").encode()}
    for name, text in library_licences(target).items():
        files[f"licenses/{name}.txt"] = text.encode()
    if host_program:
        for shell, end in (("bash", "bash"), ("zsh", "zsh"), ("fish", "fish"), ("powershell", "ps1")):
            files[f"completions/mlxcel.{end}"] = run(host_program, "completions", shell).encode()
        files["man/mlxcel.1"] = run(host_program, "help", "--man").encode()
    return files


def tar_gz(path, entries, epoch):
    """entries: (name, bytes or None, mode, link): sorted by name, a link refers to a name before it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data, mode, link in entries:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode, info.uname, info.gname = epoch, mode, "root", "root"
            if link:
                info.type, info.linkname = tarfile.LNKTYPE, link
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, mtime=epoch, compresslevel=9) as z:
        z.write(raw.getvalue())


def zip_file(path, entries, epoch):
    import time
    stamp = time.gmtime(epoch)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data, mode, _ in entries:
            info = zipfile.ZipInfo(name, stamp)
            info.external_attr = (0o100000 | mode) << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, data)


SYMBOLIC = "-> "  # before the target of a link that is a symbolic one


def stage(folder, entries, epoch):
    """The same entries as files below folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data, mode, link in entries:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if link and link.startswith(SYMBOLIC):
            os.symlink(link[len(SYMBOLIC):], path)
        elif link:
            os.link(os.path.join(folder, link), path)
        else:
            with open(path, "wb") as f:
                f.write(data)
            os.chmod(path, mode)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    for base, _, _ in os.walk(folder):
        os.chmod(base, 0o755)
        os.utime(base, (epoch, epoch))


ZSH_FOLDERS = {"deb": "vendor-completions", "rpm": "site-functions"}  # where the distributions' own packages have them


def linux_tree(program, files, kind):
    """Where the files go on a Linux system, for .deb and .rpm. man, bash and fish look for a file that is called like the command."""
    tree = [("usr/bin/mlxcel", program, 0o755, None), ("usr/bin/mlxcel-server", None, 0o755, "usr/bin/mlxcel")]
    places = {"man/mlxcel.1": "usr/share/man/man1/mlxcel.1", "completions/mlxcel.bash": "usr/share/bash-completion/completions/mlxcel",
              "completions/mlxcel.zsh": f"usr/share/zsh/{ZSH_FOLDERS[kind]}/_mlxcel", "completions/mlxcel.fish": "usr/share/fish/vendor_completions.d/mlxcel.fish"}
    for name, data in sorted(files.items()):
        place = places.get(name, f"usr/share/doc/mlxcel/{'copyright' if name == 'LICENSE' else name}")
        if place.endswith(".1"):
            place, data = place + ".gz", gzip.compress(data, 9, mtime=0)
        tree.append((place, data, 0o644, None))
        if name in ("man/mlxcel.1", "completions/mlxcel.bash", "completions/mlxcel.fish"):
            folder, base = os.path.split(place)
            tree.append((os.path.join(folder, base.replace("mlxcel", "mlxcel-server")), None, 0o644, place))
    tree.append(("usr/lib/systemd/user/mlxcel-server.service", read("packaging/linux/mlxcel-server.user.service").encode(), 0o644, None))
    tree.append(("usr/share/doc/mlxcel/mlxcel-server.service", read("packaging/linux/mlxcel-server.service").encode(), 0o644, None))
    return tree


def library_trees(target, kind):
    """What the packages of the library hold: that of programs which use it, and that of those who build them."""
    build = os.path.join(ROOT, f"build/release-{target}")
    machine = target.split("-", 1)[1]
    libdir = {"deb": f"lib/{machine}-linux-gnu", "rpm": "lib64"}[kind]
    shared = os.path.basename(os.path.realpath(os.path.join(build, "libmlxcel.so.0")))
    docs = f"usr/share/doc/{PACKAGES[kind]['libs'].name}"

    def file(path):
        with open(path, "rb") as f:
            return f.read()
    libs = [(f"usr/{libdir}/{shared}", file(os.path.join(build, shared)), 0o644, None),
            (f"usr/{libdir}/libmlxcel.so.0", None, 0o777, SYMBOLIC + shared), (f"{docs}/copyright", read("LICENSE").encode(), 0o644, None)]
    libs += [(f"{docs}/licenses/{name}.txt", text.encode(), 0o644, None) for name, text in sorted(library_licences(target).items())]
    texts = library_texts(build, libdir)
    dev = [("usr/include/mlxcel.h", read("include/mlxcel.h").encode(), 0o644, None),
           (f"usr/{libdir}/libmlxcel.a", file(os.path.join(build, "libmlxcel.a")), 0o644, None),
           (f"usr/{libdir}/libmlxcel.so", None, 0o777, SYMBOLIC + "libmlxcel.so.0"),
           *((f"usr/{libdir}/{name}", text.encode(), 0o644, None) for name, text in sorted(texts.items()))]
    folder = f"usr/share/doc/{PACKAGES[kind]['dev'].name}"
    dev += [(f"{folder}/copyright", read("LICENSE").encode(), 0o644, None), (f"{folder}/library.md", read("docs/library.md").encode(), 0o644, None)]
    dev += [(f"{folder}/examples/{name}", read(f"examples/{name}").encode(), 0o644, None) for name in sorted(os.listdir(os.path.join(ROOT, "examples")))]
    return libs, dev


def library_texts(build, libdir):
    """{path below the library folder: text} of what pkg-config and CMake read, for a library folder of this name below the prefix."""
    def built(name):
        with open(os.path.join(build, name), encoding="utf-8") as f:
            return f.read()
    values = {"MLXCEL_UP": os.path.relpath("/p", f"/p/{libdir}/pkgconfig"), "CMAKE_INSTALL_LIBDIR": libdir, "CMAKE_INSTALL_INCLUDEDIR": "include",
              "CMAKE_INSTALL_BINDIR": "bin", "MLXCEL_VERSION": VERSION,
              "MLXCEL_LIBS_PRIVATE": re.search(r"^Libs\.private: *(.*)$", built("mlxcel.pc"), re.M).group(1)}

    def filled(template):
        return re.sub(r"@(\w+)@", lambda m: values[m.group(1)], read(template))
    return {"pkgconfig/mlxcel.pc": filled("cmake/mlxcel.pc.in"), "cmake/mlxcel/mlxcel-config.cmake": filled("cmake/mlxcel-config.cmake.in"),
            "cmake/mlxcel/mlxcel-config-version.cmake": built("mlxcel-config-version.cmake")}


Package = collections.namedtuple("Package", "name needs text")
PROGRAM_TEXT = "One program: a command and an OpenAI-compatible server. A GPU needs only the NVIDIA driver."
LIBS_TEXT = "The shared library, for programs that were built against it."
DEV_TEXT = "Header, static library, and files for pkg-config and CMake: for building programs against libmlxcel."
PACKAGES = {
    "deb": {"program": Package("mlxcel", "libc6 (>= 2.31)", PROGRAM_TEXT), "libs": Package("libmlxcel0", "libc6 (>= 2.31)", LIBS_TEXT),
            "dev": Package("libmlxcel-dev", f"libmlxcel0 (= {VERSION})", DEV_TEXT)},
    "rpm": {"program": Package("mlxcel", "libc.so.6(GLIBC_2.30)(64bit)", PROGRAM_TEXT),
            "libs": Package("mlxcel-libs", "libc.so.6(GLIBC_2.30)(64bit)", LIBS_TEXT),
            "dev": Package("mlxcel-devel", f"mlxcel-libs = {VERSION.replace('-', '~')}", DEV_TEXT)}}


def make_deb(target, part, tree, epoch):
    machine = {"linux-x86_64": "amd64", "linux-aarch64": "arm64"}[target]
    package = PACKAGES["deb"][part]
    folder = os.path.join(ROOT, "build/stage", f"deb-{package.name}-{machine}")
    stage(folder, tree, epoch)
    size = sum(len(d or b"") for _, d, _, _ in tree) // 1024
    section = {"program": "science", "libs": "libs", "dev": "libdevel"}[part]
    control = {"control": (f"Package: {package.name}\nVersion: {VERSION}\nArchitecture: {machine}\nMaintainer: {AUTHORS} <mlxcel@mlxcel.invalid>\n"
                           f"Installed-Size: {size}\nDepends: {package.needs}\nSection: {section}\nPriority: optional\n"
                           f"Description: {SUMMARY}\n {package.text}\n")}
    if part == "libs":
        control["triggers"] = "activate-noawait ldconfig\n"
    os.makedirs(os.path.join(folder, "DEBIAN"))
    for name, text in control.items():
        with open(os.path.join(folder, "DEBIAN", name), "w") as f:
            f.write(text)
    for name in (*(f"DEBIAN/{n}" for n in control), "DEBIAN", "."):
        os.utime(os.path.join(folder, name), (epoch, epoch))
    out = os.path.join(DIST, f"{package.name}_{VERSION}_{machine}.deb")
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", folder, out,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "DPKG_DEB_THREADS_MAX": "1"})
    return out


def make_rpm(target, part, tree, epoch):
    machine = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64"}[target]
    package = PACKAGES["rpm"][part]
    base = os.path.join(ROOT, "build/stage", f"rpm-{package.name}-{machine}")
    shutil.rmtree(base, ignore_errors=True)
    source = os.path.join(base, "tree")
    stage(source, tree, epoch)
    listing = "\n".join(f"/{name}" if link and link.startswith(SYMBOLIC) else f"%attr({mode:04o},root,root) /{name}" for name, _, mode, link in tree)
    provides = "Provides: libmlxcel.so.0()(64bit)\n" if part == "libs" else ""
    spec = f"""Name: {package.name}
Version: {VERSION.replace('-', '~')}
Release: 1
Summary: {SUMMARY[0].upper() + SUMMARY[1:]}
License: Apache-2.0
Vendor: {AUTHORS}
AutoReqProv: no
Requires: {package.needs}
{provides}%global _build_id_links none
%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%description
{package.text}
%install
mkdir -p %{{buildroot}}
cp -a {source}/. %{{buildroot}}/
%files
{listing}
"""
    path = os.path.join(base, f"{package.name}.spec")
    with open(path, "w") as f:
        f.write(spec)
    run("rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", "--define", f"_topdir {base}/top", "--define", f"_rpmdir {base}/out",
        "--define", "_buildhost mlxcel.invalid", "--define", "use_source_date_epoch_as_buildtime 1", "--define", "clamp_mtime_to_source_date_epoch 1",
        "--define", "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm", path, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    made = os.listdir(os.path.join(base, "out"))
    out = os.path.join(DIST, made[0])
    shutil.copyfile(os.path.join(base, "out", made[0]), out)
    return out


def installer_list(entries):
    """What the installer's script includes: the files in order, and their removal. The order that a folder gives is not always the same."""
    install, remove, folders = [], [], set()
    for name, _, _, _ in entries:
        folder, _, base = name.replace("/", "\\").rpartition("\\")
        folders.add(folder)
        install.append(f'SetOutPath "$INSTDIR{chr(92) + folder if folder else ""}"\nFile "${{FILES}}/{name}"')
        remove.append(f'Delete "$INSTDIR{chr(92)}{folder + chr(92) if folder else ""}{base}"')
    remove += [f'RMDir "$INSTDIR{chr(92)}{folder}"' for folder in sorted(folders - {""}, reverse=True)]
    return "\n".join(["!macro install_files", *install, "!macroend", "!macro remove_files", *remove, "!macroend", ""])


def make_installer(entries, epoch, sign):
    folder = os.path.join(ROOT, "build/stage/installer")
    stage(folder, entries, epoch)
    listing = os.path.join(ROOT, "build/stage/installer.nsh")
    with open(listing, "w") as f:
        f.write(installer_list(entries))
    out = os.path.join(DIST, f"mlxcel-{VERSION}-windows-x86_64-installer.exe")
    signing = [f"-DSIGN={SIGN}"] if sign else []
    run("makensis", "-V2", f"-DVERSION={VERSION}", f"-DFILES={folder}", f"-DLIST={listing}", f"-DOUT={out}", *signing,
        os.path.join(ROOT, "packaging/windows/mlxcel.nsi"), env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    if sign:
        run(SIGN, out)
    return out


def make_sbom(epoch):
    import time
    parts = [{"type": "library", "bom-ref": f"{n}@{v}", "name": n, "version": v, "purl": f"pkg:generic/{n}@{v}", "licenses": [{"license": {"id": lic}}]} for n, v, lic in recipes()]
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'mlxcel-{VERSION}-{epoch}')}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "supplier": {"name": AUTHORS},
                     "component": {"type": "application", "bom-ref": f"mlxcel@{VERSION}", "name": "mlxcel", "version": VERSION,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": parts,
        "dependencies": [{"ref": f"mlxcel@{VERSION}", "dependsOn": [p["bom-ref"] for p in parts]}],
    }
    with open(os.path.join(DIST, f"mlxcel-{VERSION}.cdx.json"), "w") as f:
        json.dump(bom, f, indent=2, sort_keys=True)
        f.write("\n")


def make_notes():
    m = re.search(rf"^## {re.escape(VERSION)}.*?(?=^## |\Z)", read("CHANGELOG.md"), re.M | re.S)
    if not m:
        sys.exit(f"pack: CHANGELOG.md has no section {VERSION}")
    with open(os.path.join(DIST, "RELEASE_NOTES.md"), "w") as f:
        f.write(m.group().rstrip() + "\n")


def check_size(path):
    size = os.path.getsize(path)
    if size > MAX_ARCHIVE:
        sys.exit(f"pack: {path} has {size} bytes, at most {MAX_ARCHIVE}")


def make_wheel(target):
    path = wheel.make(os.path.join(ROOT, f"build/release-{target}"), DIST)
    if os.path.getsize(path) > MAX_WHEEL:
        sys.exit(f"pack: {path} has {os.path.getsize(path)} bytes, at most {MAX_WHEEL}")
    if target.startswith("linux") and "manylinux" not in path:
        sys.exit(f"pack: {path} needs more than the C library of 2020")


def pack_linux(target, suffix, epoch, host_program, _sign):
    program = open(os.path.join(ROOT, f"build/release-{target}/mlxcel"), "rb").read()
    files = program_files(target, host_program)
    top = f"mlxcel-{VERSION}"
    entries = [(f"{top}/mlxcel", program, 0o755, None), (f"{top}/mlxcel-server", None, 0o755, f"{top}/mlxcel")]
    units = {f"systemd/{name}": read(f"packaging/linux/{name}").encode() for name in ("mlxcel-server.service", "mlxcel-server.user.service")}
    entries += [(f"{top}/{name}", data, 0o644, None) for name, data in sorted({**files, **units}.items())]
    path = os.path.join(DIST, f"mlxcel-{target}{suffix}.tar.gz")
    tar_gz(path, entries, epoch)
    check_size(path)
    for kind, make in (("deb", make_deb), ("rpm", make_rpm)):
        libs, dev = library_trees(target, kind)
        for part, tree in (("program", linux_tree(program, files, kind)), ("libs", libs), ("dev", dev)):
            check_size(make(target, part, tree, epoch))
    make_wheel(target)


def windows_programs(target, sign):
    """{name: bytes}, signed on request."""
    programs = {}
    for name in ("mlxcel.exe", "mlxcel-server.exe"):
        path = os.path.join(ROOT, f"build/release-{target}", name)
        if sign:
            path = shutil.copyfile(path, os.path.join(ROOT, "build/stage", name))
            run(SIGN, path)
        with open(path, "rb") as f:
            programs[name] = f.read()
    return programs


def make_windows_dev(target, epoch):
    """The library and what one builds with it, as `cmake --install` lays it out."""
    build, top = os.path.join(ROOT, f"build/release-{target}"), f"mlxcel-dev-{VERSION}"
    names = {"bin/mlxcel.dll": "mlxcel.dll", "lib/libmlxcel.dll.a": "libmlxcel.dll.a"}
    entries = [(name, open(os.path.join(build, file), "rb").read(), 0o644, None) for name, file in names.items()]
    entries += [(f"lib/{name}", text.encode(), 0o644, None) for name, text in library_texts(build, "lib").items()]
    entries += [("include/mlxcel.h", read("include/mlxcel.h").encode(), 0o644, None), ("LICENSE", read("LICENSE").encode(), 0o644, None)]
    entries += [(f"licenses/{name}.txt", text.encode(), 0o644, None) for name, text in library_licences(target).items()]
    path = os.path.join(DIST, f"mlxcel-dev-{target}.zip")
    zip_file(path, [(f"{top}/{n}", d, m, link) for n, d, m, link in sorted(entries)], epoch)
    return path


def pack_windows(target, suffix, epoch, host_program, sign):
    os.makedirs(os.path.join(ROOT, "build/stage"), exist_ok=True)
    files = program_files(target, host_program)
    entries = [(name, data, 0o755, None) for name, data in windows_programs(target, sign).items()]
    entries += [(name, data, 0o644, None) for name, data in sorted(files.items()) if not name.startswith("man/")]
    entries += [(name, read(f"packaging/windows/{name}").encode(), 0o644, None) for name in ("service.ps1", "smoke.ps1")]
    path = os.path.join(DIST, f"mlxcel-{target}{suffix}.zip")
    zip_file(path, [(f"mlxcel-{VERSION}/{n}", d, m, link) for n, d, m, link in entries], epoch)
    check_size(path)
    check_size(make_installer(entries, epoch, sign))
    check_size(make_windows_dev(target, epoch))
    make_wheel(target)


def main():
    global DIST
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", choices=("on", "off"), required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--sign", action="store_true")
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--dist", default=DIST)
    args = parser.parse_args()
    DIST = os.path.abspath(args.dist)
    suffix = "-cuda13" if args.cuda == "on" else ""
    os.makedirs(DIST, exist_ok=True)
    host = f"build/release-linux-{os.uname().machine}/mlxcel"
    host_program = os.path.join(ROOT, host) if os.path.exists(os.path.join(ROOT, host)) else None
    for target in args.targets:
        (pack_windows if target.startswith("windows") else pack_linux)(target, suffix, args.epoch, host_program, args.sign)
    if args.cuda == "on":
        shutil.copyfile(os.path.join(ROOT, f"build/release-{args.targets[0]}/kernels/kernels.bin"), os.path.join(DIST, f"mlxcel-kernels-{VERSION}.bin"))
    make_sbom(args.epoch)
    make_notes()
    lines = []
    for name in sorted(os.listdir(DIST)):
        if name != "SHA256SUMS":
            lines.append(f"{hashlib.sha256(open(os.path.join(DIST, name), 'rb').read()).hexdigest()}  {name}\n")
    with open(os.path.join(DIST, "SHA256SUMS"), "w") as f:
        f.writelines(lines)


if __name__ == "__main__":
    main()
