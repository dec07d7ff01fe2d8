#!/bin/bash
# alnico-pack from end to end: what it packs trains as its source does, its usage errors end with 2, and a source
# or file that is not there with 1 and nothing left.
#
# Usage: pack.sh ALNICO_PACK ALNICO_TRAIN MPIEXEC OPTION
set -euo pipefail
pack=$1 train=$2 mpiexec=$3 number=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
# expect STATUS PATTERN ARGUMENT...: how alnico-pack ends, and what it says.
expect() {
    local status=0
    "$pack" "${@:3}" >"$work/out" 2>&1 || status=$?
    [ $status = "$1" ] && { [ -z "$2" ] || grep -q -- "$2" "$work/out"; } ||
        { cat "$work/out" >&2; fail "alnico-pack ${*:3}: status $status, expected $1 and '$2'"; }
}
# The hash that training on a source ends with.
hash_of() {
    "$train" --model neuron --data "$1" --steps 200 --batch 8 --lr 0.5 --deterministic --json "$work/json" >"$work/out" 2>&1 ||
        { cat "$work/out" >&2; fail "training on $1"; }
    grep -o '"parameter_hash":[^,]*' "$work/json"
}

expect 0 '' step "$work/packed" --threads 3
[ "$(hash_of step)" = "$(hash_of "packed:$work/packed")" ] || fail "a packed file trains otherwise than its source"
expect 0 '' step "$work/second" --threads 1
cmp "$work/packed" "$work/second" || fail "the number of threads makes a difference"
expect 0 '' "packed:$work/packed" "$work/third"
[ "$(hash_of step)" = "$(hash_of "packed:$work/third")" ] || fail "a packed file of a packed file trains otherwise"

# Two ranks, each in a folder of its own, with files of one name.
mkdir "$work/a" "$work/b"
cp "$work/packed" "$work/a/data"
cp "$work/packed" "$work/b/data"
two_ranks() {
    local run=("$train" --model neuron --data packed:data --steps 10)
    "$mpiexec" "$number" 1 -wdir "$work/a" "${run[@]}" : "$number" 1 -wdir "$work/b" "${run[@]}" >"$work/out" 2>&1
}
two_ranks || { cat "$work/out" >&2; fail "two ranks with the same files"; }
"$pack" synthetic:1x1x1 "$work/b/data"
! two_ranks || fail "two ranks train on different files"
grep -q "the ranks find different images in 'packed:data': here 50000" "$work/out" ||
    { cat "$work/out" >&2; fail "different files are not named"; }

expect 2 'expected SOURCE and FILE'
expect 2 'expected SOURCE and FILE' step
expect 2 "unexpected argument 'x'" step "$work/x" x
expect 2 'SOURCE jpeg:x: expected fashion-mnist, idx:DIR' jpeg:x "$work/x"
expect 2 '--classes: step has its own' step "$work/x" --classes 3
expect 2 '-t 0: expected' step "$work/x" --threads 0
expect 1 "$work/none/train: No such file" "folder:$work/none" "$work/x"
expect 1 "$work/none/x.part: making it: No such file" step "$work/none/x"
expect 0 'Usage: alnico-pack' --help
[ ! -e "$work/x" ] && [ ! -e "$work/x.part" ] || fail "something is left of a file that could not be made"
