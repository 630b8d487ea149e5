#!/usr/bin/env bash
# `make run` and `make test` from nothing: makes a root folder of Debian 12 or Ubuntu 24.04 that holds only git and make, copies the last
# commit of this clone into it and runs the two commands there, twice each. Needs root and debootstrap; not part of `make test`.
#
#   tests/platform/fresh_root.sh [debian12|ubuntu2404]... [--ci] [--keep] [--commit REV]     --ci: .ci/run there, too
#
# Roots lie in build/roots (ROOTS=DIR chooses another folder). The network is the host's: resolv.conf, apt's configuration and
# certificate authorities that the host trusts besides the usual ones are copied. The last line is "N passed, N failed[, N skipped]".
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
roots=${ROOTS:-$source/build/roots}
commit=HEAD keep=no ci=no
names=()
while [ $# -gt 0 ]; do
    case $1 in
        --keep) keep=yes ;;
        --ci) ci=yes ;;
        --commit) commit=$2; shift ;;
        *) names+=("$1") ;;
    esac
    shift
done
[ ${#names[@]} -gt 0 ] || names=(debian12 ubuntu2404)
passed=0 failed=0 skipped=0

mirror_of() { # the host's own mirror where it serves this distribution; else debootstrap knows one
    local label=Debian
    [ "$1" = debian12 ] || label=Ubuntu
    apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 2>/dev/null | sed -n "s/^$label|//p" | head -n 1
}

make_root() {
    local name=$1 root=$2 suite components mirror script=/usr/share/debootstrap/scripts
    mirror=$(mirror_of "$name")
    case $name in
        debian12) suite=bookworm components=main ;;
        ubuntu2404) suite=noble components=main,universe ;;
        *) echo "no recipe for $name"; return 1 ;;
    esac
    local args=(--variant=minbase "--components=$components" "--include=git,make")
    # A host of the other distribution lacks the keys and perhaps the script of this suite; the root is thrown away.
    if [ "$name" = ubuntu2404 ] && [ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]; then args+=(--no-check-gpg); fi
    if [ -e "$script/$suite" ]; then script=$script/$suite; else script=$script/gutsy; fi
    debootstrap "${args[@]}" "$suite" "$root" "$mirror" "$script"
}

# The host's way to the network.
lend_network() {
    local root=$1
    cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
    cp -L /etc/hosts "$root/etc/hosts" 2>/dev/null
    apt-config dump | grep -E '^Acquire::(http|https)::' >"$root/etc/apt/apt.conf.d/99host-network" 2>/dev/null
    mkdir -p "$root/usr/local/share/ca-certificates"
    local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    [ ! -e "$bundle" ] || cp -L "$bundle" "$root/usr/local/share/ca-certificates/host.crt"
}

enter() { # runs a command in the root with a small environment
    local root=$1
    shift
    local env=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
    local v
    for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL MLXCEL_DEBIAN_MIRROR; do
        [ -z "${!v:-}" ] || env+=("$v=${!v}")
    done
    env -i "${env[@]}" chroot "$root" "$@"
}

step() { # step NAME ROOT COMMAND: timed; a NAME that ends with "again" may not build anything
    local name=$1 root=$2 start=$SECONDS log
    shift 2
    log=$roots/${name// /-}.log
    if enter "$root" bash -c "cd /srv/mlxcel && $*" </dev/null >"$log" 2>&1; then
        if [[ $name == *again ]] && ! grep -q 'no work to do' "$root/srv/mlxcel/build/release/build.log"; then
            echo "FAILED $name: it built something a second time"
            failed=$((failed + 1))
        else
            echo "ok $name: $((SECONDS - start)) s; $(tail -n 1 "$log")"
            passed=$((passed + 1))
        fi
    else
        tail -n 30 "$log"
        echo "FAILED $name after $((SECONDS - start)) s, see $log"
        failed=$((failed + 1))
    fi
}

leave() {
    umount "$1/proc" "$1/dev" 2>/dev/null
    [ $keep = yes ] || rm -rf --one-file-system "$1"
}

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "skipped fresh roots: needs root and the package debootstrap"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
mkdir -p "$roots"
for name in "${names[@]}"; do
    root=$roots/$name
    if [ ! -e "$root/.made" ]; then
        echo "making the root of $name"
        rm -rf --one-file-system "$root"
        if ! make_root "$name" "$root" >"$roots/$name.debootstrap.log" 2>&1; then
            echo "skipped $name: debootstrap failed: $(tail -n 1 "$roots/$name.debootstrap.log")"
            skipped=$((skipped + 1))
            continue
        fi
        touch "$root/.made"
    fi
    lend_network "$root"
    mount -t proc proc "$root/proc" 2>/dev/null
    mount --bind /dev "$root/dev" 2>/dev/null
    rm -rf "$root/srv/mlxcel"
    git clone -q --no-hardlinks "$source" "$root/srv/mlxcel" && git -C "$root/srv/mlxcel" checkout -q "$(git -C "$source" rev-parse "$commit")"
    step "$name make run" "$root" make run
    step "$name make run again" "$root" make run
    step "$name make test" "$root" make test
    step "$name make test again" "$root" make test
    [ $ci = no ] || step "$name ci" "$root" "git clean -qfdx && CI=true bash .ci/run"
    leave "$root"
done
echo "$passed passed, $failed failed$([ $skipped -eq 0 ] || echo ", $skipped skipped")"
[ $failed -eq 0 ]
