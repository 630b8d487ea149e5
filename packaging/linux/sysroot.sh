#!/usr/bin/env bash
# Unpacks the C library of packaging/linux/sysroot.list into build/sysroot-TARGET and prints that folder.
#
#   packaging/linux/sysroot.sh linux-x86_64|linux-aarch64
#
# Packages come from MLXCEL_DEPS_CACHE (default build/downloads), else through apt (tools/debian_fetch.sh: MLXCEL_DEBIAN_MIRROR names a mirror, of
# old releases for one, where apt's own has them no more). The hash decides. Nothing is installed.
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

has_hash() { [ -e "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; } # FILE SHA256

package() { # NAME:ARCH VERSION SHA256 FILE
    local part=$4.part
    rm -rf "$part"
    tools/debian_fetch.sh package bullseye "$1" "$2" "$part" && mv "$part"/*.deb "$4"
    rm -rf "$part"
    has_hash "$4" "$3" || { rm -f "$4"; echo "sysroot: there is no $1 $2 with the sha256 $3; put ${4##*/} into $cache" >&2; return 1; }
}

rm -rf "$sysroot" "$sysroot.new"
mkdir -p "$sysroot.new"
while read -r for_target name version sha256; do
    [ "$for_target" = "$target" ] || continue
    file=$cache/${name%:*}_${version}_${name#*:}.deb
    has_hash "$file" "$sha256" || package "$name" "$version" "$sha256" "$file"
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
