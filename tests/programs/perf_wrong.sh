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

# Every operation, out of place and in place; what a rank without a result must leave alone; and messages.
wrong() {
    expect 1 "$mpiexec" "$flag" 2 "$perf" "$1" -n 3 -w 0 -d "$2" -b 1K -e 8K -f 8 --json "$work/a.json" "${@:3}"
    expect_out '^# Out of bounds values : [1-9][0-9]* FAILED$'
    expect_err "alnico-perf: rank [01]: element [0-9]+ of [0-9]+ $2"
    expect_json "$work/a.json" 'rows;0;wrong' 0
    expect_json "$work/a.json" 'rows;1;wrong' '[1-9][0-9]*'
}
for operation in reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv gather gatherv scatter scatterv \
    alltoall alltoallv sendrecv exchange pingpong; do
    wrong $operation int32
    expect 1 env PERF_WRONG=behind "$mpiexec" "$flag" 2 "$perf" $operation -n 3 -w 0 -b 1K -e 1K
    expect_out '^# Out of bounds values : 1 FAILED$'
    expect_err 'rank 1: 1 bytes behind the result were written'
done
for operation in reduce allgatherv reduce_scatterv gather scatterv alltoallv; do
    wrong $operation int32 --in-place
done
wrong scatter float32 -r 1
wrong reduce int64 -r 1
