#!/bin/bash
# What the scripts say to --help, and the small programs and scripts to nonsense: a line that names it, and status 2.
#
# Usage: usage.sh SOURCE SOAK [TRAIN-STEP]
. "$(dirname "$0")/common.sh"
source=$1 soak=$2 train_step=${3:-}
mkdir "$work/empty"
cd "$work/empty"

scripts=(check-includes gpu-bundle gpu-check install-deps main-job plot-perf)
! command -v python3 >/dev/null || scripts+=(plot-train)
for script in "${scripts[@]}"; do
    expect 0 "$source/scripts/$script" --help
    expect_out "^[Uu]sage: (scripts/)?$script"
    [ ! -s "$work/err" ] || fail "$script --help writes to stderr"
done
for script in collectives-mpi hosts peer-ranks; do
    expect 0 "$source/benchmarks/$script" --help
    expect_out "^Usage: benchmarks/$script"
done
[ -z "$(ls)" ] || fail "--help leaves files behind: $(ls)"

expect 2 "$source/scripts/install-deps" --mpi
expect_err '--mpi : expected mpich or openmpi'
expect 2 "$source/scripts/install-deps" --mpi lam
expect_err '--mpi lam: expected mpich or openmpi'

mkdir -p "$work/build/tools"
ln -s /bin/true "$work/build/tools/alnico-perf"
peer() {
    expect 2 env BUILD="$work/build" "$2" "$source/benchmarks/peer-ranks" "$work/folder"
    expect_err "$1"
    [ ! -e "$work/folder" ] || fail "it began"
}
peer 'RANKS=0: expected numbers above 0, as "2 64"' RANKS=0
peer 'RANKS=2 x: expected' RANKS='2 x'
peer 'OVERLAP=-1: expected a number of ranks' OVERLAP=-1
expect 2 "$source/benchmarks/peer-ranks"
expect_err 'Usage: benchmarks/peer-ranks FOLDER'

expect 2 "$soak"
expect_err '^Usage: soak local\|shm\|mpi '
[ ! -s "$work/out" ] || fail "the soak began"
expect 2 "$soak" tcp
expect_err 'tcp: expected local, shm or mpi'
[ ! -s "$work/out" ] || fail "the soak began"

[ -n "$train_step" ] || exit 0
expect 0 "$train_step" --help
expect_out '^Usage: train_step '
for wrong in '--batch -1' '--batch 0' '--steps 4x' '--image 99999999999999999999'; do
    # shellcheck disable=SC2086
    expect 2 "$train_step" $wrong
    expect_err "train_step: $wrong: expected a number"
done
expect 2 "$train_step" foo
expect_err 'train_step: foo: expected options only'
