#!/bin/bash
# Installs into an empty prefix, moves it, builds users by find_package (shared and static, C and C++, with MPI where the
# build has it) and by pkg-config, and runs them; the libraries must export alnico_ names only, none but the part for MPI
# may need MPI, and another MPI than the build's is refused.
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
    share/alnico/machines/{ethernet,flat,sierra,h200-ndr}.json \
    share/doc/alnico/integrations/{python/alnico,pytorch/alnico_torch}/__init__.py; do
    [ -e "$work/prefix/$file" ] || fail "$file is not installed"
done
for file in alnico-train alnico-pack; do
    [ ! -e "$build/tools/$file" ] || [ -e "$work/prefix/bin/$file" ] || fail "$file is not installed"
done
"$work/prefix/bin/alnico-simulate" --machine sierra --ranks 8 -e 8 >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the installed alnico-simulate does not find its machine files"; }
soname=${version%%.*}
[ "$soname" != 0 ] || soname=${version%.*} # before 1.0 minor versions are incompatible
readelf -d "$library" >"$work/dynamic"
! grep -q libnccl "$work/dynamic" || fail "the library is linked with NCCL"
grep -q "SONAME.*libalnico\.so\.$soname\]" "$work/dynamic" || fail "soname"

mpi=
grep -q '^HAVE_MPI:INTERNAL=TRUE' "$build/CMakeCache.txt" &&
    mpi=$(sed -n 's/^MPI_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
parts=("$library")
if [ -n "$mpi" ]; then
    parts+=("${library%.so}-mpi.so")
    [ -e "$work/prefix/include/alnico/mpi.h" ] || fail "alnico/mpi.h is not installed"
    find "$work/prefix" -name alnico-perf-mpi.so | grep . >/dev/null || fail "alnico-perf-mpi.so is not installed"
else
    foreign=$(find "$work/prefix" -name '*mpi*' ! -path '*/doc/*')
    [ -z "$foreign" ] || fail "a build without MPI installs" $foreign
fi
for file in "$work"/prefix/bin/* "$library"; do
    needed=$(readelf -d "$file" 2>/dev/null | grep -E 'NEEDED.*lib(mpi|mpich|open-pal|pmix)' || true)
    [ -z "$needed" ] || fail "$file needs MPI: $needed"
done

for names in "${parts[@]/#/nm -D }" "${parts[@]/#/nm -g }"; do
    [[ $names != "nm -g"* ]] || names=${names%.so}.a
    foreign=$($names --defined-only | awk 'NF == 3 && $3 !~ /^(alnico_|__asan_|__odr_asan)/ { print $3 }')
    [ -z "$foreign" ] || fail "exported, by $names:" $foreign
done

# What the documents refer to, but for the header, which is elsewhere.
docs=$(dirname "$(find "$work/prefix" -name CHANGELOG.md)")
for document in "$docs"/*.md "$docs"/docs/*.md; do
    for link in $(grep -oP '\]\(\K(?!http|include/)[^)#]+' "$document"); do
        [ -e "${document%/*}/$link" ] || fail "${document#"$docs"/} refers to $link, which is not installed"
    done
done

# configure LANGUAGE OPTION...
configure() {
    rm -rf "$work/build"
    cmake -S "$source/tests/programs/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DLANGUAGE="$1" \
        -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" "${@:2}" >"$work/log" 2>&1
}
flags=$*
for language in C CXX; do
    for with in "" ${mpi:+-DWITH_MPI=ON}; do
        configure $language $with && cmake --build "$work/build" >>"$work/log" 2>&1 ||
            { cat "$work/log" >&2; fail "the find_package user in $language $with does not build"; }
        expect_version "$work/build/consumer_shared"
        expect_version "$work/build/consumer_static"
    done
done
if [ -z "$mpi" ]; then
    ! configure C -DWITH_MPI=ON || fail "the component mpi is found"
    grep -q 'it was built without MPI' "$work/log" || { cat "$work/log" >&2; fail "no reason for the component mpi"; }
fi
[ -z "$mpi" ] || configure C -DWITH_MPI=ON -DMPI_C_COMPILER="${mpi##*/}" || { cat "$work/log" >&2; fail "a compiler without its folder is not found"; }
for name in mpich openmpi; do
    other=$(command -v mpicc.$name) || continue
    [ -n "$mpi" ] && [ "$other" != "$mpi" ] || continue
    for option in FIRST MPI_C_COMPILER; do
        ! configure C -DWITH_MPI=ON -D$option="$other" || fail "$other is accepted beside $mpi"
        tr -s ' \n' ' ' <"$work/log" | grep -q "it was built with lib.*($mpi), and the MPI found is lib" ||
            { cat "$work/log" >&2; fail "$other is refused without a reason"; }
    done
done

export PKG_CONFIG_LIBDIR=${pc%/*} # nothing else is needed
export LD_LIBRARY_PATH=${library%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ "$(pkg-config --modversion alnico)" = "$version" ] || fail "alnico.pc has another version"
cc "$@" -o "$work/consumer" "$source/tests/programs/consumer/consumer.c" \
    $(pkg-config --cflags --libs alnico)
expect_version "$work/consumer"
if [ -n "$mpi" ]; then
    "$mpi" "$@" -DWITH_MPI -o "$work/consumer_mpi" "$source/tests/programs/consumer/consumer.c" \
        $(pkg-config --cflags --libs alnico-mpi)
    expect_version "$work/consumer_mpi"
fi
