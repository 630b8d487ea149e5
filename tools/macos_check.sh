#!/usr/bin/env bash
# Compiles and links everything for macOS on 64-bit ARM and x86_64, on Linux: `make macos-check`. Nothing of it can be run here, so it proves
# that the sources compile and that the libraries and the C library of macOS have every function they call, and no more.
#
# The compiler is zig's clang from PyPI, kept in build/zig; it brings headers and link stubs of macOS's C library, but no SDK.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.17.0
bin=$PWD/build/zig/bin
if [ "$(cat build/zig/.ready 2>/dev/null)" != $version ]; then
    echo "macos-check: installing zig $version into build/zig"
    rm -rf build/zig
    python=${PYTHON:-/usr/bin/python3}
    [ -x "$python" ] || python=python3
    "$python" -m venv build/zig
    # for x86_64 and for 64-bit ARM
    echo "ziglang==$version --hash=sha256:97079827064a7492cce5541ceb438ae8003ce1e54e399676da2d62fb7a5dc08b" \
        --hash=sha256:d2804f94f54f7fcf8169f4b212a619ad688a4e2e6592e976f0cf2e58e2cd8af3 >build/zig/requirements.txt
    build/zig/bin/pip install --quiet --disable-pip-version-check --retries 2 --timeout 60 --no-deps --require-hashes -r build/zig/requirements.txt
    zig=$(echo "$PWD"/build/zig/lib/python3*/site-packages/ziglang/zig)
    for tool in ar ranlib; do printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" $tool >"$bin/zig-$tool"; done
    # zig has its own names for instruction sets, and no bundles: what is loaded at run time is linked as a library
    for target in aarch64-macos x86_64-macos; do
        cat >"$bin/zig-cc-$target" <<END
#!/usr/bin/env bash
args=("\${@/#-march=armv8.2-a/-mcpu=generic+v8_2a}")
args=("\${args[@]/#-march=armv8-a/-mcpu=generic}")
exec "$zig" cc -target $target "\${args[@]/#-bundle/-dynamiclib}"
END
    done
    chmod +x "$bin"/zig-*
    echo $version >build/zig/.ready
fi
unset CMAKE_C_COMPILER_LAUNCHER
for target in macos-aarch64 macos-x86_64; do
    start=$SECONDS log=build/$target.log
    if ! { cmake --preset $target -DMLXCEL_CUDA=off && cmake --build build/$target; } >"$log" 2>&1; then
        grep -E -A 12 'error:|Error:|FAILED' "$log" | head -n 60 || tail -n 40 "$log"
        echo "macos-check: $target does not build; build/$target.log has all of it"
        exit 1
    fi
    # feedfacf: what a 64-bit Mach-O file starts with
    [ "$(od -An -tx4 -N4 build/$target/mlxcel | tr -d ' ')" = feedfacf ] || { echo "macos-check: build/$target/mlxcel is no Mach-O file"; exit 1; }
    # what is opened at run time is looked for by macOS's name
    grep -q 'libcurl\.4\.dylib' build/$target/mlxcel || { echo "macos-check: build/$target/mlxcel does not look for libcurl.4.dylib"; exit 1; }
    echo "$target: $(grep -c '"file": .*/\(src\|tools\|tests\|bench\)/' build/$target/compile_commands.json) files compiled and linked, not run, $((SECONDS - start)) s"
done
