#!/bin/bash
# alnico-perf with every operation on 1 to 3 ranks: values, algorithms, ways to call, roots, and what does not go together.
#
# Usage: perf_operations.sh ALNICO-PERF MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
perf=$1 mpiexec=$2 flag=$3
rooted=(reduce broadcast gather gatherv scatter scatterv)
placed=(reduce allgather allgatherv reduce_scatter reduce_scatterv gather gatherv scatter scatterv alltoall alltoallv)
all=(broadcast "${placed[@]}" barrier sendrecv exchange)

run() {
    local ranks=$1
    shift
    expect 0 "$mpiexec" "$flag" "$ranks" "$perf" "$@" -n 1 -w 0
    expect_out '^# Out of bounds values : 0 OK$'
}

# Sizes that neither types nor ranks divide, against MPI, and each algorithm.
for operation in "${all[@]}"; do
    run 1 "$operation" -b 1 -e 3001 -f 3000
    run 3 "$operation" -b 1 -e 30001 -f 173 --versus mpi --algorithm all
    run 2 "$operation" -d all -b 1 -e 3001 -f 3000 --versus mpi --nonblocking
done
run 2 pingpong -d all -b 1 -e 30001 -f 173 --versus mpi
run 3 pingpong -b 8 -e 8
for operation in "${placed[@]}"; do
    run 3 "$operation" -b 1 -e 30001 -f 173 --versus mpi --in-place --nonblocking
    run 1 "$operation" -b 64 -e 64 --in-place
done
for operation in "${rooted[@]}"; do
    run 3 "$operation" -r 2 -b 3001 -e 3001
    expect_out '^ +[0-9]+ +[0-9]+ +float32 +(sum|none) +2 '
done
for operation in reduce reduce_scatter reduce_scatterv; do
    run 3 "$operation" -d all -o all -b 3001 -e 3001
done
for operation in reduce allgatherv alltoall exchange; do
    run 2 "$operation" --stream -b 3001 -e 3001
    run 2 "$operation" --overlap --versus mpi -b 3001 -e 3001
done

# Sizes are those of all blocks, bandwidths by the factors of nccl-tests; messages and barriers.
run 2 allgather -b 4 -e 64 -f 4 --json "$work/a.json"
expect_out '^ +8 +1 +float32 +none +-1 '
expect_out '^ +64 +8 +float32 +none +-1 '
expect_json "$work/a.json" operation allgather
expect_json "$work/a.json" 'rows;1;bytes' 16
expect_json "$work/a.json" 'rows;1;count' 2
expect_json "$work/a.json" 'rows;1;op' none
[ "$(grep -cE '^ +[0-9]+ +[0-9]+ ' "$work/out")" -eq 3 ] || fail "expected rows of 8, 16 and 64 B"
factor() {
    run 3 "$1" -b 24M -e 24M -c 0
    awk -v factor="$2" '$1 == 25165824 && ($8 - factor * $7) ^ 2 < 0.0001 * $7 ^ 2 + 0.0004 { found = 1 }
        END { exit !found }' "$work/out" || fail "$1: busbw is not $2 algbw"
}
factor alltoall 0.66667
factor broadcast 1
factor exchange 2
run 3 barrier --versus mpi
[ "$(grep -cE '^ +0 +0 +float32 +none ' "$work/out")" -eq 1 ] || fail "a barrier has one row"
ALNICO_ALLGATHER=ring run 2 allgather -e 8
expect_out '^# algorithm: ring;'

usage() {
    expect 2 "$perf" "${@:2}"
    expect_err "$1"
}
usage '-r 0: allgather has no root' allgather -r 0
usage '-r x: expected a whole number' reduce -r x
usage '-o: broadcast combines nothing' broadcast -o sum
usage '--in-place: broadcast has no such form' broadcast --in-place
usage '--in-place: exchange has no such form' exchange --in-place
usage '--nonblocking: pingpong is timed by blocking calls' pingpong --nonblocking
usage '--overlap: pingpong is timed by blocking calls' pingpong --overlap
usage '--algorithm rabenseifner: expected one of .*bruck' allgather --algorithm rabenseifner
# What only the number of ranks tells is said once, by rank 0.
refuse() {
    expect 2 "$mpiexec" "$flag" "$2" "$perf" "${@:3}"
    [ "$(grep -cE -- "$1" "$work/err")" -eq 1 ] || fail "not one line like: $1"
}
refuse '^alnico-perf: -r 2: expected a rank below 2, the number of ranks$' 2 reduce -r 2 -e 8
refuse '^alnico-perf: -r 3: expected a rank below 3, the number of ranks$' 3 broadcast -r 3 -e 8
refuse '^alnico-perf: pingpong: needs 2 ranks$' 1 pingpong -e 8
expect 2 "$perf" pingpong
expect_err '^alnico-perf: pingpong: needs 2 ranks$'
expect 0 "$perf" --help
for operation in allreduce pingpong "${all[@]}"; do
    expect_out "^  $operation  +[a-z]"
done
