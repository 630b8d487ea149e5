#!/usr/bin/env python3
"""`make test-release`: unpacks, installs and runs everything in dist/ as a user would, each in an empty folder with an empty environment.

usage: test_release.py [DIST]      last line: "N passed, N failed[, N skipped]"

For each artifact: imports and C library versions, both programs' --version, doctor, ten tokens of a made-up 4-bit model (the same on all
platforms and packages), one streaming chat, an orderly end. Foreign Linux programs run under qemu, Windows ones under Wine, packages in root
folders that hold Debian 11's C library and nothing else. What this host cannot do is printed as skipped with its reason.
"""
import contextlib
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests/hub")]
from counting import check, finish, skip  # noqa: E402
from fakehub import Hub, make_certificate  # noqa: E402
from runner import MACHINE, Runner, check_program, check_server, generate, only_folder, sysroot  # noqa: E402

DIST = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "dist"))
VERSION = open(os.path.join(ROOT, "VERSION")).read().strip()
GLIBC = (2, 31)
MAX_ARCHIVE, MAX_LAUNCHER = 40_000_000, 100_000
LINUX_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2",
                   "ld-linux-aarch64.so.1"}
DEB_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}
LICENCES = ("curl", "jpeg", "libuv", "llhttp", "pcre2", "png", "utf8proc", "webp", "yaml", "yyjson", "zlib", "zstd")


def artifact(start, end):
    """The path of the one file in dist/ with that name; None, and a skipped test, when there is none."""
    names = [n for n in sorted(os.listdir(DIST)) if n.startswith(start) and n.endswith(end)]
    if not names:
        skip(f"{start}*{end}: not in {DIST}")
    return os.path.join(DIST, names[0]) if names else None


# ---- archives ------------------------------------------------------------------------------------------------------------------------------


def check_linux_imports(path, name):
    text = subprocess.run(["readelf", "-dV", path], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"}).stdout
    foreign = set(re.findall(r"Shared library: \[(.*?)\]", text)) - LINUX_LIBRARIES
    check(not foreign, f"{name}: needs {sorted(foreign)}")
    newest = max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text))
    check(newest <= GLIBC, f"{name}: needs glibc {newest}")
    print(f"  {name}: newest glibc symbol {newest[0]}.{newest[1]}")


def check_windows_imports(path, name):
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/check_imports.py"), path], capture_output=True, text=True)
    check(r.returncode == 0, f"{name}: {r.stdout}{r.stderr}")


def check_contents(folder, name, more):
    wanted = ["README.md", "LICENSE", "CHANGELOG.md", "completions/mlxcel.bash", "completions/mlxcel.zsh", "completions/mlxcel.fish", "completions/mlxcel.ps1", *more]
    missing = [n for n in wanted if not os.path.exists(os.path.join(folder, n))]
    licences = " ".join(os.listdir(os.path.join(folder, "licenses")))
    missing += [n for n in LICENCES if n not in licences]
    check(not missing, f"{name}: lacks {missing}")


def linux_runner(name, folder, machine):
    """On this machine as it is; another one's by qemu against Debian 11's C library."""
    if machine == MACHINE:
        return Runner(name, folder)
    qemu = shutil.which(f"qemu-{machine}-static")
    return Runner(name, folder, [qemu, "-L", sysroot(machine)]) if qemu else None


WINE = {"WINEDEBUG": "-all", "LC_ALL": "C.UTF-8"}  # WINEPREFIX is added by main: a new one, in which nothing was ever installed


def wine_runner(name, folder, **env):
    if not os.path.exists("/usr/lib/wine/wine64") and not shutil.which("wine64"):
        return None
    env = {**WINE, **env}
    return Runner(name, folder, [os.path.join(ROOT, "tools/wine.sh")], ".exe", env, lambda p: "Z:" + p.replace("/", "\\"))


def test_linux_archive(machine, work, model, expected):
    path = artifact(f"mlxcel-linux-{machine}", ".tar.gz")
    if not path:
        return expected
    name = os.path.basename(path)
    check(os.path.getsize(path) < MAX_ARCHIVE, f"{name}: {os.path.getsize(path)} bytes")
    with tarfile.open(path) as tar:
        tar.extractall(os.path.join(work, f"linux {machine} ü"))
    folder = only_folder(os.path.join(work, f"linux {machine} ü"))
    a, b = (os.stat(os.path.join(folder, p)) for p in ("mlxcel", "mlxcel-server"))
    check(a.st_ino == b.st_ino, f"{name}: mlxcel-server is not a hard link")
    check_contents(folder, name, ["man/mlxcel.1", "systemd/mlxcel-server.service"])
    check_linux_imports(os.path.join(folder, "mlxcel"), name)
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as f:
        said = int(re.search(r"one program of (\d+) MB", f.read())[1])
    check(said - 3 <= os.path.getsize(os.path.join(folder, "mlxcel")) / 1e6 <= said + 0.5, f"{name}: README.md says {said} MB")
    runner = linux_runner(name, folder, machine)
    if not runner:
        skip(f"{name}: no qemu-{machine}-static")
        return expected
    tokens = check_program(runner, model, VERSION, expected)
    cert, key = make_certificate(work, f"server-{machine}", "IP:127.0.0.1")
    check_server(runner, "--ssl-cert-file", cert, "--ssl-key-file", key, context=ssl.create_default_context(cafile=cert))
    return expected or tokens


def test_windows_archive(work, model, expected):
    path = artifact("mlxcel-windows", ".zip")
    if not path:
        return
    name = os.path.basename(path)
    check(os.path.getsize(path) < MAX_ARCHIVE, f"{name}: {os.path.getsize(path)} bytes")
    with zipfile.ZipFile(path) as z:
        z.extractall(os.path.join(work, "windows ü"))
    folder = only_folder(os.path.join(work, "windows ü"))
    check_contents(folder, name, ["service.ps1", "smoke.ps1"])
    for program in ("mlxcel.exe", "mlxcel-server.exe"):
        check_windows_imports(os.path.join(folder, program), program)
    size = os.path.getsize(os.path.join(folder, "mlxcel-server.exe"))
    check(size < MAX_LAUNCHER, f"mlxcel-server.exe has {size} bytes")
    runner = wine_runner(name, folder)
    if not runner:
        return skip(f"{name}: Wine is missing")
    check_program(runner, model, VERSION, expected)
    r = runner.run("mlxcel-server", "--no-such-option")
    plain = runner.run("mlxcel", "serve", "--no-such-option")
    check(r.returncode == plain.returncode != 0 and r.stderr == plain.stderr, f"the launcher passes code and words on: {r} {plain}")


# ---- packages ------------------------------------------------------------------------------------------------------------------------------


def debian_root(work, name):
    """A root folder with Debian 11's C library, and a dpkg that knows of it."""
    root = os.path.join(work, name)
    shutil.copytree(sysroot(MACHINE), root, symlinks=True)
    for folder in ("proc", "tmp", "dev", "etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    with open(os.path.join(root, "var/lib/dpkg/status"), "w") as f:
        f.write(f"Package: libc6\nStatus: install ok installed\nArchitecture: {DEB_MACHINE[MACHINE]}\nVersion: 2.31-13+deb11u11\n"
                "Maintainer: none <none@invalid>\nDescription: C library\n")
    return root


def other_root(work, name):
    """The same C library where Fedora, RHEL and SUSE keep it: /usr/lib64, found through the loader's cache."""
    root, source = os.path.join(work, name), sysroot(MACHINE)
    for folder in ("usr/lib64", "lib64", "lib", "tmp", "dev", "proc", "etc", "var/lib/rpm"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    libraries = os.path.join(source, "lib", f"{MACHINE}-linux-gnu")
    for library in os.listdir(libraries):
        if ".so" in library:
            shutil.copy(os.path.join(libraries, library), os.path.join(root, "usr/lib64", library))
    loader = "lib64/ld-linux-x86-64.so.2" if MACHINE == "x86_64" else "lib/ld-linux-aarch64.so.1"
    shutil.copy(os.path.join(root, "usr/lib64", os.path.basename(loader)), os.path.join(root, loader))
    with open(os.path.join(root, "etc/ld.so.conf"), "w") as f:
        f.write("/usr/lib64\n")
    ldconfig = next((p for p in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if os.path.exists(p)), "ldconfig")
    subprocess.run([ldconfig, "-r", root], check=True, capture_output=True)
    return root


def chroot_runner(name, root, **env):
    runner = Runner(name, "/usr/bin", ["/usr/sbin/chroot", root], env={"HOME": "/tmp", "TMPDIR": "/tmp", **env}, path=lambda p: "/tmp/model")
    runner.cwd = root
    return runner


def check_installed(name, root, model, expected, install, remove):
    shutil.copytree(model, os.path.join(root, "tmp/model"))
    r = subprocess.run(install, capture_output=True, text=True)
    if not check(r.returncode == 0, f"{name}: {' '.join(install)}: {r.stdout}{r.stderr}"):
        return
    own = [f"usr/share/{place}" for program in ("mlxcel", "mlxcel-server")
           for place in (f"man/man1/{program}.1.gz", f"bash-completion/completions/{program}", f"fish/vendor_completions.d/{program}.fish")]
    zsh = "vendor-completions" if name.endswith(".deb") else "site-functions"
    for path in (*own, f"usr/share/zsh/{zsh}/_mlxcel", "usr/share/doc/mlxcel/copyright", "usr/lib/systemd/user/mlxcel-server.service"):
        check(os.path.exists(os.path.join(root, path)), f"{name}: no {path}")
    check_program(chroot_runner(name, root), model, VERSION, expected)
    r = subprocess.run(remove, capture_output=True, text=True)
    check(r.returncode == 0 and not os.path.exists(os.path.join(root, "usr/bin/mlxcel")), f"{name}: {' '.join(remove)}: {r.stdout}{r.stderr}")


def unpack(package, folder):
    os.makedirs(folder, exist_ok=True)
    if package.endswith(".deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    else:
        subprocess.run(["sh", "-c", 'rpm2cpio "$1" | cpio -idm --quiet', "sh", package], cwd=folder, check=True)


def program_of(package, work):
    folder = os.path.join(work, "unpacked " + os.path.basename(package))
    unpack(package, folder)
    with open(os.path.join(folder, "usr/bin/mlxcel"), "rb") as f:
        return f.read()


def test_packages(work, model, expected):
    for machine in ("x86_64", "aarch64"):
        folder = os.path.join(work, f"linux {machine} ü")
        for kind, start in (("deb", f"mlxcel_{VERSION}_{DEB_MACHINE[machine]}"), ("rpm", f"mlxcel-{VERSION}-1.{machine}")):
            path = artifact(start, "." + kind)
            if not path:
                continue
            name = os.path.basename(path)
            check(os.path.getsize(path) < MAX_ARCHIVE, f"{name}: {os.path.getsize(path)} bytes")
            if os.path.isdir(folder):
                with open(os.path.join(only_folder(folder), "mlxcel"), "rb") as f:
                    check(f.read() == program_of(path, work), f"{name}: not the program of the archive")
            if machine != MACHINE:
                skip(f"{name}: not installed on a {MACHINE} host; its program is, byte for byte, the archive's, which ran under qemu")
            elif os.getuid() != 0:
                skip(f"{name}: only root may install into a root folder of its own")
            elif kind == "deb":
                root = debian_root(work, "root-deb")
                dpkg = ["dpkg", f"--root={root}", "--log=/dev/null"]
                check_installed(name, root, model, expected, [*dpkg, "-i", path], [*dpkg, "--purge", "mlxcel"])
            else:
                root = other_root(work, "root-rpm")
                debian = ["--force-debian"] if os.path.exists("/etc/debian_version") else []
                rpm = ["rpm", "--root", root, *debian]
                check_installed(name, root, model, expected, [*rpm, "--nodeps", "-i", path], [*rpm, "-e", "mlxcel"])
    skip("packages on a Fedora, SUSE or Alpine system: none can be had here; the .rpm ran in a root laid out like Fedora's, with Debian 11's C library")


def check_library(name, root, libdir, machine):
    """A program built with pkg-config against the packages' files, in a folder that is not their place, with either library."""
    env = {**os.environ, "PKG_CONFIG_LIBDIR": f"{root}/usr/{libdir}/pkgconfig"}
    env.pop("PKG_CONFIG_PATH", None)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "mlxcel"], capture_output=True, text=True, env=env).stdout.split()
    if not check(any(f.startswith("-I") and os.path.exists(f"{f[2:]}/mlxcel.h") for f in flags), f"{name}: pkg-config says {flags}"):
        return
    private = subprocess.run(["pkg-config", "--static", "--libs-only-l", "mlxcel"], capture_output=True, text=True, env=env).stdout.split()
    private = [f for f in private if f != "-lmlxcel"]
    check_linux_imports(f"{root}/usr/{libdir}/libmlxcel.so.0", f"{name}: libmlxcel.so.0")
    if machine != MACHINE:
        return skip(f"{name}: no program is built against it on a {MACHINE} host")
    story = os.path.join(ROOT, "examples/batch.c")
    for how, rest in {"shared": [*flags, f"-Wl,-rpath,{root}/usr/{libdir}"],
                      "static": [f"-I{root}/usr/include", f"{root}/usr/{libdir}/libmlxcel.a", *private]}.items():
        program = os.path.join(root, f"batch-{how}")
        r = subprocess.run(["cc", "-std=c99", "-o", program, story, *rest], capture_output=True, text=True)
        if check(r.returncode == 0, f"{name}, {how}: {r.stderr}"):
            r = subprocess.run([program], input="Once upon a time\n", capture_output=True, text=True)
            check(r.returncode == 0 and len(r.stdout.split()) > 8, f"{name}, {how}: {r}")


def test_library_packages(work):
    for machine in ("x86_64", "aarch64"):
        for kind, names, libdir in (("deb", [f"{n}_{VERSION}_{DEB_MACHINE[machine]}" for n in ("libmlxcel0", "libmlxcel-dev")], f"lib/{machine}-linux-gnu"),
                                    ("rpm", [f"{n}-{VERSION}-1.{machine}" for n in ("mlxcel-libs", "mlxcel-devel")], "lib64")):
            paths = [artifact(n, "." + kind) for n in names]
            if not all(paths):
                continue
            root = os.path.join(work, f"library-{kind}-{machine}")
            for path in paths:
                unpack(path, root)
            missing = [n for n in ("include/mlxcel.h", f"{libdir}/libmlxcel.a", f"{libdir}/libmlxcel.so", f"{libdir}/libmlxcel.so.0",
                                   f"{libdir}/cmake/mlxcel/mlxcel-config.cmake") if not os.path.exists(os.path.join(root, "usr", n))]
            check(not missing, f"{names}: lack {missing}")
            check_library(" and ".join(map(os.path.basename, paths)), root, libdir, machine)


def test_wheels(work):
    """Their sizes and tags; the one of this machine answers from an environment of its own."""
    for tag in ("manylinux_2_31_x86_64", "manylinux_2_31_aarch64", "win_amd64"):
        path = artifact(f"mlxcel-{VERSION}-py3-none-{tag}", ".whl")
        if not path:
            continue
        check(os.path.getsize(path) < 20_000_000, f"{path}: {os.path.getsize(path)} bytes")
        folder = os.path.join(work, "wheel-" + tag)
        with zipfile.ZipFile(path) as z:
            z.extractall(folder)
        names = set(os.listdir(os.path.join(folder, "mlxcel/bin")))
        check(names == ({"mlxcel.dll", "mlxcel.exe"} if tag == "win_amd64" else {"libmlxcel.so.0", "mlxcel"}), f"{tag}: {names}")
        library = min(names - {"mlxcel", "mlxcel.exe"}, default="mlxcel")  # the program beside it needs the library alone
        (check_windows_imports if tag == "win_amd64" else check_linux_imports)(os.path.join(folder, "mlxcel/bin", library), f"{tag}: {library}")
        if tag.endswith(MACHINE):
            code = "from mlxcel import Model; print(Model().generate('Once upon a time', max_tokens=20, temperature=0).text())"
            r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": folder})
            check(r.returncode == 0 and len(r.stdout.split()) > 8, f"{tag}: {r}")


CERTIFICATE_PLACES = ("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                      "etc/ssl/ca-bundle.pem", "var/lib/ca-certificates/ca-bundle.pem", "etc/ssl/cert.pem")


def test_certificates(work, model):
    """Downloads over https in a root folder without libcurl and OpenSSL, with the authority wherever a distribution keeps it."""
    folder = os.path.join(work, f"linux {MACHINE} ü")
    if os.getuid() != 0 or not os.path.isdir(folder):
        return skip("certificate places: need root and the archive of this machine")
    root = other_root(work, "root-tls")
    os.makedirs(os.path.join(root, "usr/bin"))
    shutil.copy(os.path.join(only_folder(folder), "mlxcel"), os.path.join(root, "usr/bin"))
    authority = make_certificate(work, "authority", None)
    hub = Hub(tls=make_certificate(work, "hub", "IP:127.0.0.1,IP:127.0.0.2", authority=authority), second="127.0.0.1")
    hub.add("acme/tiny", model)
    try:
        def download(i, **env):
            runner = chroot_runner("download", root, HF_ENDPOINT=hub.url, MLXCEL_HOME=f"/tmp/home{i}", **env)
            return runner.run("mlxcel", "download", "acme/tiny")

        r = download("none")
        check(r.returncode != 0 and "--cacert" in r.stderr, f"without certificates: {r.returncode} {r.stderr}")
        for i, place in enumerate(CERTIFICATE_PLACES):
            path = os.path.join(root, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(authority[0], path)
            r = download(i)
            check(r.returncode == 0, f"certificates in /{place}: {r.returncode} {r.stderr}")
            os.remove(path)
        shutil.copy(authority[0], os.path.join(root, "tmp/authority.pem"))
        r = download("env", SSL_CERT_FILE="/tmp/authority.pem")
        check(r.returncode == 0, f"SSL_CERT_FILE: {r.returncode} {r.stderr}")
    finally:
        hub.close()


# ---- Windows -------------------------------------------------------------------------------------------------------------------------------


def user_path(runner):
    r = subprocess.run([*runner.prefix, "reg", "query", r"HKCU\Environment", "/v", "Path"], env=runner.env, capture_output=True, text=True, timeout=120)
    return r.stdout


def installer_args(option, folder):
    """The installer takes the rest of the line as the folder and wants no quotes; Wine puts them around an argument with a blank."""
    return ["/S", *(option + folder).split(" ")]


def test_installer(path, work, model, expected):
    name = os.path.basename(path)
    runner = wine_runner(name, work)
    if not runner:
        return skip(f"{name}: Wine is missing")
    target = os.path.join(work, "installed here")
    r = subprocess.run([*runner.prefix, path, *installer_args("/D=", runner.path(target))], env=runner.env, capture_output=True, text=True, timeout=300)
    if not check(r.returncode == 0 and os.path.exists(os.path.join(target, "mlxcel.exe")), f"{name}: silent install: {r.returncode} {r.stderr}"):
        return
    check_contents(target, name, ["mlxcel-server.exe", "uninstall.exe", "service.ps1"])
    check_program(wine_runner("installed program", target), model, VERSION, expected)
    check("installed here" in user_path(runner), f"PATH after the installation: {user_path(runner)}")
    menu = [os.path.join(top, f) for top, _, files in os.walk(runner.env["WINEPREFIX"]) for f in files if f == "mlxcel chat page.lnk"]
    check(menu, "no Start menu entry for the chat page")
    for file in ("server.log",):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(target, file))
    r = subprocess.run([*runner.prefix, os.path.join(target, "uninstall.exe"), *installer_args("_?=", runner.path(target))], env=runner.env,
                       capture_output=True, text=True, timeout=300)
    left = [f for _, _, files in os.walk(target) for f in files if f != "uninstall.exe"]  # it cannot remove itself when run in place
    check(r.returncode == 0 and not left, f"{name}: after the removal {left} {r.stderr}")
    check("installed here" not in user_path(runner), f"PATH after the removal: {user_path(runner)}")
    check(not any(os.path.exists(f) for f in menu), "the Start menu entry is still there")


def test_sign(work):
    """`make sign` with a certificate of our own: programs, installer and uninstaller."""
    path = artifact("mlxcel-windows", ".zip")
    if not path or not os.path.exists(os.path.join(ROOT, "build/release-windows-x86_64/mlxcel.exe")):
        return skip("signing: nothing built here to sign")
    if not shutil.which("osslsigncode"):
        return skip("signing: no osslsigncode")
    dist = os.path.join(work, "signed dist")
    shutil.copytree(DIST, dist)
    cert, key = os.path.join(work, "sign.pem"), os.path.join(work, "sign.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=mlxcel test",
                    "-addext", "extendedKeyUsage=codeSigning"], check=True, capture_output=True)
    env = {**os.environ, "MLXCEL_SIGN_CERT": cert, "MLXCEL_SIGN_KEY": key}
    cuda = "on" if "cuda" in os.path.basename(path) else "off"
    command = [sys.executable, os.path.join(ROOT, "packaging/pack.py"), "--cuda", cuda, "--epoch", "1700000000", "--dist", dist, "--sign", "windows-x86_64"]
    r = subprocess.run(command, env={k: v for k, v in env.items() if not k.startswith("MLXCEL_SIGN")}, capture_output=True, text=True)
    check(r.returncode != 0 and "MLXCEL_SIGN_CERT" in r.stderr, f"without a certificate: {r.returncode} {r.stderr}")
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    if not check(r.returncode == 0, f"signing: {r.stdout}{r.stderr}"):
        return
    with zipfile.ZipFile(os.path.join(dist, os.path.basename(path))) as z:
        z.extractall(os.path.join(work, "signed"))
    signed = only_folder(os.path.join(work, "signed"))
    installer = next(os.path.join(dist, n) for n in os.listdir(dist) if n.endswith("-installer.exe"))
    files = [os.path.join(signed, "mlxcel.exe"), os.path.join(signed, "mlxcel-server.exe"), installer]
    runner = wine_runner("signed installer", work)
    if runner:
        target = os.path.join(work, "signed and installed")
        subprocess.run([*runner.prefix, installer, *installer_args("/D=", runner.path(target))], env=runner.env, capture_output=True, timeout=300)
        if check(os.path.exists(os.path.join(target, "uninstall.exe")), "the signed installer installs"):
            files.append(os.path.join(target, "uninstall.exe"))
            r = wine_runner("", target).run("mlxcel", "--version")
            check(r.returncode == 0, f"the signed program runs: {r}")
            subprocess.run([*runner.prefix, files[-1], *installer_args("_?=", runner.path(target))], env=runner.env, capture_output=True, timeout=300)
    for file in files:
        r = subprocess.run(["osslsigncode", "verify", "-CAfile", cert, "-in", file], capture_output=True, text=True)
        check(r.returncode == 0, f"the signature of {os.path.basename(file)}: {r.stdout[-300:]}{r.stderr[-300:]}")
    check_sums(dist)


# ---- drivers -------------------------------------------------------------------------------------------------------------------------------

FAKE_GPU = "device=90|NVIDIA H200|143000|142000"
DRIVER_CASES = (
    ("no device", "init=100", r"NO_DEVICE"),
    ("no GPU behind the driver", "version=13000", r"sees no GPU"),
    ("old driver", f"version=11040;{FAKE_GPU}", r"11\.4.*550|550.*11\.4"),
    ("uncovered GPU", "version=13000;device=70|Tesla V100|16000|15000", r"Tesla V100.*7\.0.*does not cover.*the first is 7\.5"),
    ("out of memory", f"version=13000;retain=2;{FAKE_GPU}", r"OUT_OF_MEMORY.*no memory left"),
)


def check_driver_messages(name, runner_for):
    """What the program says to each thing that can be wrong with a GPU."""
    for what, setting, expected in DRIVER_CASES:
        r = runner_for(setting).run("mlxcel", "generate", "-p", "Hello", "-n", "2", "--device", "cuda")
        words = r.stderr.strip().splitlines()
        check(r.returncode != 0 and re.search(expected, r.stderr), f"{name}, {what}: {r.returncode} {r.stderr.strip()[-300:]}")
        print(f"  {name}, {what}: {words[-1] if words else ''}")


def build_fake(compiler, out, *flags):
    if not shutil.which(compiler):
        return False
    subprocess.run([compiler, "-shared", "-O1", "-D_GNU_SOURCE", "-I", os.path.join(ROOT, "src"), *flags, "-o", out,
                    os.path.join(ROOT, "tests/cuda/fake_libcuda.c")], check=True)
    return True


def test_drivers(work):
    if not any("-cuda" in n for n in os.listdir(DIST)):
        return skip("driver messages: this release has no kernels")
    folder = os.path.join(work, f"linux {MACHINE} ü")
    fake = os.path.join(work, "fake-driver")
    os.makedirs(fake)
    if not os.path.isdir(folder) or not build_fake("cc", os.path.join(fake, "libcuda.so.1"), "-fPIC"):
        skip("driver messages, Linux: no archive for this machine or no compiler")
    else:
        r = Runner("", only_folder(folder)).run("mlxcel", "generate", "-p", "Hello", "-n", "2", "--device", "cuda")
        check(r.returncode != 0 and "no NVIDIA driver" in r.stderr, f"no driver: {r.returncode} {r.stderr}")
        check_driver_messages("Linux", lambda setting: Runner("", only_folder(folder), env={"LD_LIBRARY_PATH": fake, "FAKE_CUDA": setting}))
    folder = os.path.join(work, "windows ü")
    runner = wine_runner("", only_folder(folder)) if os.path.isdir(folder) else None
    if not runner:
        return skip("driver messages, Windows: no archive or no Wine")
    dll = os.path.join(runner.env["WINEPREFIX"], "drive_c/windows/system32/nvcuda.dll")
    with contextlib.suppress(FileNotFoundError):
        os.remove(dll)
    r = runner.run("mlxcel", "generate", "-p", "Hello", "-n", "2", "--device", "cuda")
    check(r.returncode != 0 and "no NVIDIA driver" in r.stderr, f"no driver under Windows: {r.returncode} {r.stderr}")
    compiler = "x86_64-w64-mingw32-gcc-win32" if shutil.which("x86_64-w64-mingw32-gcc-win32") else "x86_64-w64-mingw32-gcc"
    if not build_fake(compiler, dll, "-static-libgcc"):
        return skip("driver messages, Windows: no mingw compiler")
    check_driver_messages("Windows", lambda setting: wine_runner("", only_folder(folder), FAKE_CUDA=setting))
    os.remove(dll)


# ---- the rest ------------------------------------------------------------------------------------------------------------------------------


def check_sums(dist):
    path = os.path.join(dist, "SHA256SUMS")
    if not check(os.path.exists(path), "no SHA256SUMS"):
        return
    listed = set()
    for line in open(path):
        digest, name = line.split()
        listed.add(name)
        with open(os.path.join(dist, name), "rb") as f:
            check(hashlib.sha256(f.read()).hexdigest() == digest, f"sha256 of {name}")
    check(listed == set(os.listdir(dist)) - {"SHA256SUMS"}, f"SHA256SUMS lists {sorted(listed)}")


def test_papers():
    with open(os.path.join(DIST, f"mlxcel-{VERSION}.cdx.json")) as f:
        bom = json.load(f)
    names = {c["name"] for c in bom["components"]}
    check(bom["bomFormat"] == "CycloneDX" and names >= {"openssl", *LICENCES}, f"SBOM: {sorted(names)}")
    with open(os.path.join(DIST, "RELEASE_NOTES.md")) as f:
        check(f.read().startswith(f"## {VERSION}"), "release notes")
    kernels = os.path.join(DIST, f"mlxcel-kernels-{VERSION}.bin")
    if any("-cuda" in n for n in os.listdir(DIST)):
        check(os.path.exists(kernels) and os.path.getsize(kernels) > 100_000, "no kernels file")


def make_model(work):
    """A made-up 4-bit model, by the archive of this machine."""
    path = artifact(f"mlxcel-linux-{MACHINE}", ".tar.gz")
    if not path:
        sys.exit(f"test_release: dist has no archive for linux-{MACHINE}")
    with tarfile.open(path) as tar:
        tar.extractall(os.path.join(work, "maker"))
    program = os.path.join(only_folder(os.path.join(work, "maker")), "mlxcel")
    model = os.path.join(work, "model")
    subprocess.run([program, "synth", "--shape", "tiny", "--bits", "4", "-o", model], check=True, capture_output=True)
    return model


def main():
    if not os.path.isdir(DIST):
        sys.exit(f"test_release: there is no {DIST}; run `make release` first")
    start = time.monotonic()

    def part(name, function, *args):
        before = time.monotonic()
        result = function(*args)
        print(f"{name}: {time.monotonic() - before:.0f} s", flush=True)
        return result

    part("checksums", check_sums, DIST)
    part("papers", test_papers)
    with tempfile.TemporaryDirectory(prefix="mlxcel-release-") as work:
        WINE.update(WINEPREFIX=os.path.join(work, "wine"), HOME=work, TMPDIR=work)  # Wine keeps its server's socket and lock there
        model = make_model(work)
        # the native build, where there is one, says what the tokens are
        native = os.path.join(ROOT, "build/release")
        expected = generate(Runner("build/release", native), model) if os.path.exists(os.path.join(native, "mlxcel")) else None
        for machine in sorted(("x86_64", "aarch64"), key=lambda m: m != MACHINE):
            expected = part(f"linux-{machine} archive", test_linux_archive, machine, work, model, expected)
        part("windows archive", test_windows_archive, work, model, expected)
        part("packages", test_packages, work, model, expected)
        part("packages of the library", test_library_packages, work)
        part("wheels", test_wheels, work)
        part("certificates", test_certificates, work, model)
        installer = artifact(f"mlxcel-{VERSION}-windows", "-installer.exe")
        if installer:
            part("installer", test_installer, installer, work, model, expected)
        part("signing", test_sign, work)
        part("drivers", test_drivers, work)
        server = shutil.which("wineserver64") or "/usr/lib/wine/wineserver64"
        if os.path.exists(server):
            subprocess.run([server, "-k"], env={**os.environ, **WINE}, capture_output=True)
    skip("real Windows: no such machine here; packaging/windows/smoke.ps1 is for one")
    skip("a GPU: `make test-cuda` and tests/release/test_gpu.py are for a machine that has one")
    print(f"{time.monotonic() - start:.0f} s")
    finish()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
