#!/bin/bash
# What the scripts say to --help.
#
# Usage: usage.sh SOURCE
. "$(dirname "$0")/common.sh"
source=$1
mkdir "$work/empty"
cd "$work/empty"

scripts=(check-includes gpu-bundle gpu-check install-deps main-job plot-perf)
! command -v python3 >/dev/null || scripts+=(plot-train)
for script in "${scripts[@]}"; do
    expect 0 "$source/scripts/$script" --help
    expect_out "^[Uu]sage: (scripts/)?$script"
    [ ! -s "$work/err" ] || fail "$script --help writes to stderr"
done
for script in collectives-mpi peer-ranks; do
    expect 0 "$source/benchmarks/$script" --help
    expect_out "^Usage: benchmarks/$script"
done
[ -z "$(ls)" ] || fail "--help leaves files behind: $(ls)"
