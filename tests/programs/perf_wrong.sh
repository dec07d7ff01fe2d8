#!/bin/bash
# alnico-perf ends with 1, and says how many, where values are wrong.
#
# Usage: perf_wrong.sh PERF-WRONG MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
perf=$1 mpiexec=$2 flag=$3
quick=(allreduce -n 3 -w 0)

expect 0 "$mpiexec" "$flag" 2 "$perf" "${quick[@]}" -d int32 -e 2K
expect_out '^# Out of bounds values : 0 OK$'
for type in int32 float32 bfloat16; do
    expect 1 "$mpiexec" "$flag" 3 "$perf" "${quick[@]}" -d $type -b 1K -e 8K -f 8 --json "$work/a.json"
    expect_out '^# Out of bounds values : [1-9][0-9]* FAILED$'
    expect_json "$work/a.json" 'rows;0;wrong' 0
    expect_json "$work/a.json" 'rows;1;wrong' '[1-9][0-9]*'
done
expect 0 "$mpiexec" "$flag" 2 "$perf" "${quick[@]}" -c 0 -e 8K
