#!/usr/bin/env bash
# Checks what a job needs and installs exactly what is missing, through apt, saying what and why.
#
#   tools/setup.sh GROUP...     groups: build test check clang macos fuzz windows windows-test cross cross-test release sign site
#   tools/setup.sh --list GROUP...   prints the missing packages, installs nothing
#
# Touches system packages only (for windows-test on aarch64 hosts also dpkg's foreign architecture amd64). Where there is no apt, or
# neither root nor sudo, it ends with one line that names the packages.
set -euo pipefail

machine=$(uname -m)
list_only=no
missing=()
reasons=()

# need PACKAGE REASON [COMMAND]: with a command, a program of that name from anywhere is as good as the package.
need() {
    if [ $# -ge 3 ] && command -v "$3" >/dev/null 2>&1; then return 0; fi
    local package=$1 state
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1 || true)
    [ "$state" = installed ] && return 0
    case " ${missing[*]-} " in *" $package "*) return 0 ;; esac # a bare "return" would hand on that the test before it failed
    missing+=("$package")
    reasons+=("$2")
}

# What fetches library sources (cmake/fetch.cmake).
fetch_sources() {
    need ca-certificates "checks downloads of library sources"
    need python3 "runs pip" python3
    python3 -c 'import pip' 2>/dev/null || need python3-pip "fetches library sources"
}

group_build() {
    need gcc "compiles the program" cc
    need libc6-dev "headers of the C library"
    need cmake "describes the build" cmake
    need ninja-build "runs the build" ninja
    need pkgconf "finds the libraries" pkg-config
    fetch_sources
    need libuv1-dev "event loop and operating system layer"
    need libssl-dev "TLS of the server"
    need libcurl4-openssl-dev "downloads of models" curl-config
    need libpcre2-dev "regular expressions of tokenizers"
    need libutf8proc-dev "Unicode normalisation"
    need libzstd-dev "compressed data in the program"
    need libpng-dev "PNG pictures"
    need libjpeg-dev "JPEG pictures"
    need libwebp-dev "WebP pictures"
    need zlib1g-dev "inflates PNG"
    need libyaml-dev "files of edits in YAML"
    need node-markdown-it "Markdown in the chat page"
    need libjs-katex "formulas in the chat page"
    need node-prismjs "colours of code in the chat page"
}
group_test() {
    need python3 "runs the tests" python3
    need tmux "the terminal that the chat is tested in" tmux
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv "holds the Python references of the tests"
}
group_check() {
    need python3 "runs the style and layer checks" python3
    need clang-format-14 "checks the formatting" clang-format-14
}
group_clang() { need clang "second compiler, other warnings" clang; }
group_macos() {
    need cmake "describes the build" cmake
    need ninja-build "runs the build" ninja
    fetch_sources
    need python3 "fetches the compiler" python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv "holds the compiler"
}
group_fuzz() {
    group_clang
    need libclang-rt-dev "libFuzzer and the sanitizers of clang"
}
group_windows() {
    need gcc-mingw-w64-x86-64-win32 "compiles for Windows" x86_64-w64-mingw32-gcc-win32
    need cmake "describes the build" cmake
    need ninja-build "runs the build" ninja
    fetch_sources
    need perl "configures OpenSSL"
    need make "builds OpenSSL" make
    need python3 "checks the imported DLLs" python3
}
group_windows-test() {
    group_windows
    need g++-mingw-w64-x86-64-win32 "builds the library's example in C++" x86_64-w64-mingw32-g++-win32
    if [ "$machine" = x86_64 ]; then
        need wine64 "runs the Windows tests"
    else
        need qemu-user-static "runs x86_64 programs on this machine" qemu-x86_64-static
        need wine64:amd64 "runs the Windows tests"
    fi
}
group_cross() {
    need cmake "describes the build" cmake
    need ninja-build "runs the build" ninja
    fetch_sources
    if [ "$machine" = x86_64 ]; then
        need gcc-aarch64-linux-gnu "compiles for Linux on ARM" aarch64-linux-gnu-gcc
        need libc6-dev-arm64-cross "headers of that C library"
    else
        need gcc-x86-64-linux-gnu "compiles for Linux on x86_64" x86_64-linux-gnu-gcc
        need libc6-dev-amd64-cross "headers of that C library"
    fi
}
group_cross-test() {
    group_cross
    need qemu-user-static "runs programs of the other architecture"
}

group_release() {
    need python3 "packs the archives" python3
    need dpkg "makes .deb packages" dpkg-deb
    need rpm "makes .rpm packages" rpmbuild
    need nsis "makes the Windows installer" makensis
    need cpio "unpacks .rpm packages in the tests" cpio
    need perl "configures OpenSSL"
    need make "builds OpenSSL" make
}
group_site() { need mkdocs "makes the site of the documents" mkdocs; }
group_sign() {
    need osslsigncode "signs Windows programs" osslsigncode
    need openssl "makes the certificate of the tests" openssl
}

for arg in "$@"; do
    case $arg in
        --list) list_only=yes ;;
        *)
            if ! declare -F "group_$arg" >/dev/null; then
                echo "setup: no group called $arg" >&2
                exit 2
            fi
            "group_$arg"
            ;;
    esac
done

[ ${#missing[@]} -eq 0 ] && exit 0
if [ $list_only = yes ]; then
    printf '%s\n' "${missing[@]}"
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1 || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
        echo "setup: these packages are missing and this user may not install them; ask an administrator for: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: there is no apt here; install what these Debian packages hold: ${missing[*]}" >&2
    exit 1
fi

echo "setup: installing ${#missing[@]} missing package(s) through apt:"
for i in "${!missing[@]}"; do printf '  %-28s %s\n' "${missing[$i]}" "${reasons[$i]}"; done
if [[ " ${missing[*]} " == *":amd64 "* ]] && [ "$machine" != x86_64 ] && ! grep -qx amd64 <<<"$(dpkg --print-foreign-architectures)"; then
    echo "setup: adding the foreign architecture amd64 to dpkg"
    "${as_root[@]}" dpkg --add-architecture amd64
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { "${BASH_SOURCE[0]%/*}/progress.sh" "$1" "$log" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${@:2}" || exit 1; }
run "setup: reading the package lists" apt-get -o Acquire::Retries=3 update -q
run "setup: installing" apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "${missing[@]}"
