#!/bin/bash
# Installs into an empty prefix, moves it, builds a user by find_package (both libraries) and by
# pkg-config, and runs them; the shared library must export alnico_ names only.
#
# Usage: install.sh BUILD SOURCE VERSION [COMPILER FLAG...]
set -euo pipefail
build=$1 source=$2 version=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
expect_version() {
    local printed
    printed=$("$@") || fail "$* ended with status $?"
    [ "$printed" = "$version" ] || fail "$* printed '$printed', expected $version"
}

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
library=$(find "$work/prefix" -name libalnico.so)
pc=$(find "$work/prefix" -name alnico.pc)
[ -n "$library" ] && [ -n "$pc" ] || fail "libalnico.so or alnico.pc is not installed"
for file in bin/alnico-perf bin/alnico-tune bin/alnico-info bin/alnico-simulate include/alnico/alnico.h \
    include/alnico/mpi.h share/alnico/machines/{flat,sierra,h200-ndr}.json; do
    [ -e "$work/prefix/$file" ] || fail "$file is not installed"
done
"$work/prefix/bin/alnico-simulate" --machine sierra --ranks 8 -e 8 >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the installed alnico-simulate does not find its machine files"; }
readelf -d "$library" | grep -q "SONAME.*libalnico\.so\.${version%%.*}\]" || fail "soname"

foreign=$(nm -D --defined-only "$library" | awk '$3 !~ /^(alnico_|__asan_|__odr_asan)/ { print $3 }')
[ -z "$foreign" ] || fail "exported:" $foreign

cmake -S "$source/tests/programs/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_FLAGS="$*" >"$work/log" 2>&1 && cmake --build "$work/build" >>"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the find_package user does not build"; }
expect_version "$work/build/consumer_shared"
expect_version "$work/build/consumer_static"

export PKG_CONFIG_PATH=${pc%/*}
export LD_LIBRARY_PATH=${library%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ "$(pkg-config --modversion alnico)" = "$version" ] || fail "alnico.pc has another version"
cc "$@" -o "$work/consumer" "$source/tests/programs/consumer/consumer.c" \
    $(pkg-config --cflags --libs alnico)
expect_version "$work/consumer"
