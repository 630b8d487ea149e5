#!/usr/bin/env bash
# Unpacks the C library of packaging/linux/sysroot.list into build/sysroot-TARGET and prints that folder.
#
#   packaging/linux/sysroot.sh linux-x86_64|linux-aarch64
#
# Packages come from MLXCEL_DEPS_CACHE (default build/downloads), else from the Debian mirror of this machine's apt, else from Debian's
# archive of old releases; the hash decides. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$1
sysroot=$PWD/build/sysroot-$target
cache=${MLXCEL_DEPS_CACHE:-$PWD/build/downloads}
list=packaging/linux/sysroot.list
stamp=$(sha256sum "$list" | cut -d' ' -f1)
if [ "$(cat "$sysroot/.done" 2>/dev/null || true)" = "$stamp" ]; then
    echo "$sysroot"
    exit 0
fi
mkdir -p "$cache"

fetch() { # URL FILE
    if [ -x /usr/lib/apt/apt-helper ]; then
        /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "$1" "$2" >/dev/null 2>&1
    else
        curl -fsSL -o "$2" "$1"
    fi
}

package() { # POOL-PATH SHA256 FILE
    local mirror
    for mirror in $(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | sort -u) \
        http://deb.debian.org/debian/ http://archive.debian.org/debian/; do
        fetch "${mirror%/}/$1" "$3.part" || continue
        if [ "$(sha256sum "$3.part" | cut -d' ' -f1)" = "$2" ]; then
            mv "$3.part" "$3"
            return 0
        fi
    done
    rm -f "$3.part"
    echo "sysroot: no place has $1 with the sha256 $2; put the file into $cache" >&2
    return 1
}

rm -rf "$sysroot" "$sysroot.new"
mkdir -p "$sysroot.new"
while read -r for_target path sha256; do
    [ "$for_target" = "$target" ] || continue
    file=$cache/$(basename "$path")
    if [ ! -e "$file" ] || [ "$(sha256sum "$file" | cut -d' ' -f1)" != "$sha256" ]; then package "$path" "$sha256" "$file"; fi
    dpkg-deb -x "$file" "$sysroot.new"
done < <(grep -v '^#' "$list")
[ -d "$sysroot.new/usr" ] || { echo "sysroot: $list has no lines for $target" >&2; exit 1; }
# Links that begin at the root folder would lead out of the sysroot.
find "$sysroot.new" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$sysroot.new$(readlink "$link")")" "$link"
done
echo "$stamp" >"$sysroot.new/.done"
mv "$sysroot.new" "$sysroot"
echo "$sysroot"
