#!/usr/bin/env bash
# Fetches files of Debian through this machine's apt. Nothing is installed, and nothing of the system changes.
#
#   tools/debian_fetch.sh source SUITE[/COMPONENT] NAME VERSION FOLDER         upstream's archive out of a source package; VERSION is upstream's
#   tools/debian_fetch.sh package SUITE[/COMPONENT] NAME:ARCH VERSION FOLDER   one package; VERSION is Debian's
#   tools/debian_fetch.sh mirror                                               prints whom it would ask
#
# apt keeps to the proxies and certificates that it is configured with, and asks the mirror of this machine's own sources. MLXCEL_DEBIAN_MIRROR
# names another one: needed on Ubuntu, whose sources hold no Debian, and of use for an older state of the archive. Lists and caches lie in
# build/apt. Whoever calls this has a sha256 of the file and checks it; so the signatures of lists are not asked for, and no keys are needed.
set -euo pipefail
kind=$1
fail() { echo "debian_fetch: $1" >&2; exit 1; }
command -v apt-get >/dev/null || fail "there is no apt here"

# Address of a mirror. The labels are known where the machine has read its lists; the name of the folder is the same everywhere, nearly.
mirror_here() {
    local label uri
    while IFS='|' read -r label uri; do
        if [ "$label" = Debian ] || { [ -z "$label" ] && [[ ${uri%/} == */debian ]]; }; then
            echo "$uri"
            return
        fi
    done < <(apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 2>/dev/null)
}
mirror=${MLXCEL_DEBIAN_MIRROR:-$(mirror_here)}
[ -n "$mirror" ] || fail "this machine's apt knows no Debian mirror; name one in MLXCEL_DEBIAN_MIRROR"
[ $kind != mirror ] || { echo "$mirror"; exit; }

suite=${2%%/*} component=${2#*/} name=$3 version=$4
mkdir -p "$5"
folder=$(cd "$5" && pwd)
[ "$component" != "$2" ] || component=main

arch=$(dpkg --print-architecture)
[ $kind = source ] || arch=${name#*:}
state=$(cd "$(dirname "$0")/.." && pwd)/build/apt/$suite-$component-$arch-$kind
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
exec 9>"$state/lock"
flock 9
deb=deb
[ $kind = package ] || deb=deb-src
echo "$deb [trusted=yes] $mirror $suite $component" >"$state/sources.list"
options=(-q -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache"
    -o Dir::State::status=/dev/null -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o APT::Sandbox::User=root -o Acquire::Retries=3
    -o Acquire::Languages=none -o Acquire::GzipIndexes=true -o Acquire::Check-Valid-Until=false -o APT::Get::List-Cleanup=false)

# Debian's version of the package, if the lists have it: of a source, the newest that is made of upstream's version.
listed() {
    if [ $kind = package ]; then
        apt-cache "${options[@]}" show "$name=$version" >/dev/null 2>&1 && echo "$version"
    else
        apt-cache "${options[@]}" showsrc --only-source "$name" 2>/dev/null | sed -n 's/^Version: //p' | sort -rV |
            while read -r full; do
                plain=${full#*:}
                [ "${plain%-*}" != "$version" ] || { echo "$full"; break; }
            done
    fi
}
have() { apt-cache "${options[@]}" "$([ $kind = package ] && echo show || echo showsrc)" "$name" 2>/dev/null | sed -n 's/^Version: //p' | sort -uV | paste -sd ' '; }
found=$(listed || true)
if [ -z "$found" ]; then
    log=$(apt-get "${options[@]}" update 2>&1) || fail "apt cannot read the lists of $suite: $(tail -n 2 <<<"$log" | paste -sd ' ')"
    found=$(listed || true)
fi
[ -n "$found" ] || fail "Debian's $suite has no $name $version but $(have)"
verb=(download)
[ $kind = package ] || verb=(source --download-only --only-source --tar-only)
log=$(cd "$folder" && apt-get "${options[@]}" "${verb[@]}" "$name=$found" 2>&1) || fail "apt cannot fetch $name $found: $(tail -n 2 <<<"$log" | paste -sd ' ')"
