#!/bin/bash
# libnccl.so.2 over Alnico as a file: its symbols against what programs want, and how it gets before the real NCCL. On a machine
# with GPUs also what PyTorch, CuPy and JAX compute with it; a package that is missing is skipped.
#
# Usage: run.sh symbols|loader LIBRARY [PROGRAM FAKE_NCCL]
. "$(dirname "$0")/../../programs/common.sh"
part=$1 library=$2
unset ${!ALNICO_*} LD_PRELOAD NCCL_DEBUG

case $part in
symbols)
    exported=$work/exported
    nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort >"$exported"
    for list in "$here"/symbols/*; do
        sort "$list" | comm -23 - "$exported" >"$work/out"
        [ ! -s "$work/out" ] || fail "$(basename "$list") wants what is not there"
    done
    # Each has its name with a p; nothing else is seen of the library.
    grep '^nccl' "$exported" | sed 's/^/p/' | comm -23 - "$exported" >"$work/out"
    [ ! -s "$work/out" ] || fail "names without p only"
    grep -v '^p\?nccl' "$exported" >"$work/out" || true
    [ "$(cat "$work/out")" = alnico_nccl_dropin ] || fail "other names"
    readelf -d "$library" >"$work/out"
    expect_out 'SONAME.*\[libnccl\.so\.2\]'
    ! grep -qE 'NEEDED.*(cudart|libnccl)' "$work/out" || fail "it needs CUDA's runtime or NCCL"
    ;;
loader)
    program=$3 fake=$4
    says() {
        expect 0 env "${@:2}" "$program"
        expect_out "^linked $1$"
    }
    says "another, opened another, version -1, result 0"
    # The program's own path wins against the variable, and the preloaded library against that, by either way.
    says "another, opened another, version -1, result 0" LD_LIBRARY_PATH="$(dirname "$library")"
    says "Alnico's, opened Alnico's, version 2[0-9]{4}, result 0" LD_PRELOAD="$library"
    says "Alnico's, opened Alnico's, version -1, result 0" LD_PRELOAD="$library" ALNICO_NCCL=off ALNICO_NCCL_LIBRARY="$fake"
    # It is not its own real NCCL, and one that is not there is said.
    says "Alnico's, opened Alnico's, version 2[0-9]{4}, result 0" LD_PRELOAD="$library" ALNICO_NCCL=off \
        ALNICO_NCCL_LIBRARY="$library"
    expect_err "ALNICO_NCCL=off: the real NCCL is not there: .*it is Alnico's own"
    says "Alnico's, opened Alnico's, version 2[0-9]{4}, result 0" LD_PRELOAD="$library" ALNICO_NCCL=off \
        ALNICO_NCCL_LIBRARY=/nowhere/libnccl.so.2
    expect_err "ALNICO_NCCL=off: the real NCCL is not there: /nowhere/libnccl.so.2"
    ;;
*) fail "no such part" ;;
esac
