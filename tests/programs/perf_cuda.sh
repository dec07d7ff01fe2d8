#!/bin/bash
# alnico-perf --device cuda from end to end on stand-ins for CUDA, NCCL and the kernels (mock_cuda.c): peers, graphs,
# algorithms that cannot do a call, and that what is wrong is found.
#
# Usage: perf_cuda.sh MOCK-PERF MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
perf=$1 mpiexec=$2 flag=$3
time='[0-9.]+'

run() {
    expect 0 "$mpiexec" "$flag" 2 "$perf" allreduce --device cuda --seconds 0.01 "$@"
    expect_out '^# Out of bounds values : 0 OK$'
}

# In graphs against both of NCCL, with a report.
run -G 9 -n 5 -b 8 -e 32K -f 64 --versus nccl,nccl-symmetric --register --json "$work/a.json"
expect_out '^# time: of one call in a CUDA graph of 5$'
expect_out '^# Mock; CUDA [0-9]+\.[0-9]+, driver for'
expect_out '#wrong +nccl +ratio nccl-symmetric +ratio$'
expect_out "^ +8 +2 +float32 +sum +-1( +$time){3} +0( +$time){4}$"
expect_out '^# Ratio ours / nccl-symmetric: geometric mean'
expect_json "$work/a.json" 'options;graph_calls' 5
expect_json "$work/a.json" 'options;registered' '(1|true|ON)'
expect_json "$work/a.json" 'gpu;name' Mock
expect_json "$work/a.json" 'rows;2;bytes' 32768
expect_json "$work/a.json" 'rows;2;nccl_symmetric_us' "$time(e-[0-9]+)?"
expect_json "$work/a.json" 'rows;0;ratio' "$time(e-[0-9]+)?"
expect_json "$work/a.json" 'summary;nccl;ratio_worst_bytes' '[0-9]+'

# Every algorithm; those that cannot do it are left out. The staged peer is no part of graphs.
run -b 512 -e 512 -n 3 --versus all --algorithm all --memory nccl --json "$work/b.json"
expect_out "^ +512 +128 +float32 +sum +-1( +$time){8}( +n/a)+ +$time( +n/a)+ +0( +$time){6}$"
expect_json "$work/b.json" 'rows;8;algorithm' one_shot
! grep -q two_shot_direct "$work/b.json" || fail "a row of an algorithm that cannot do it"
run -G 2 -b 8 -e 8 --in-place --versus staged
expect_out ' +0 +n/a +n/a$'
run -b 8 -e 8 -n 3 -d bfloat16 --versus staged
expect_out ' +0 +n/a +n/a$'

# Overlap and the host's time; GPUs by name.
run -b 64 -e 64 --versus nccl --overlap --gpu 2,3
expect_out "^ +64 .* $time +0 +$time +$time +$time$"
run -b 64 -e 64 --host-time
expect_out "^ +64 .* 0 +$time +$time$"
run -b 64 -e 64 --host-time --nonblocking --versus nccl,staged --json "$work/c.json"
expect_out '#wrong +host +launch +staged +ratio +host +nccl +ratio +host$'
expect_out "^ +64 .* 0 +$time +$time +$time +$time +n/a +$time +$time +$time$"
expect_json "$work/c.json" 'rows;0;nccl_host_us' "$time(e-[0-9]+)?"
expect_json "$work/c.json" 'options;nonblocking' '(1|true|ON)'
expect 1 "$mpiexec" "$flag" 2 "$perf" allreduce --device cuda -e 8 --gpu 3
expect_err '--gpu: names 1 GPUs, and this is rank 1 of its host'
expect 1 "$mpiexec" "$flag" 2 "$perf" allreduce --device cuda -e 8 --gpu 3,4
expect_err 'rank 1 of its host has GPU 4, and there are 4'

# Wrong results are found, wherever they are.
wrong() {
    expect 1 env MOCK_FAULT="$1" "$mpiexec" "$flag" 2 "$perf" allreduce --device cuda -n 3 -b 400 -e 400
    expect_out "^# Out of bounds values : $2 FAILED$"
    expect_err "$3"
}
wrong value 2 'rank 0: element 99 of 100 float32 sum is .*, expected'
wrong after 2 'rank 1: 1 bytes around the result were written'
wrong before 2 'rank 0: 1 bytes around the result were written'
wrong bits '[12]' "rank 1: the result's bits differ from rank 0's"

# Every operation against all peers, eager and in graphs, and wrong values of each.
any() {
    expect 0 "$mpiexec" "$flag" "$1" "$perf" "$2" --device cuda -w 0 -n 3 "${@:3}"
    expect_out '^# Out of bounds values : 0 OK$'
}
for operation in reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv gather gatherv scatter scatterv \
    alltoall alltoallv sendrecv exchange pingpong; do
    any 3 $operation -b 4 -e 70001 -f 133 --versus all
    any 2 $operation -b 4 -e 70001 -f 133 --versus all -G 2 --register
    expect 1 env MOCK_FAULT=value "$mpiexec" "$flag" 2 "$perf" $operation --device cuda -n 3 -b 400 -e 400
    expect_err 'rank [01]: element [0-9]+ of [0-9]+ float32( sum)? is .*, expected'
    expect 1 env MOCK_FAULT=after "$mpiexec" "$flag" 2 "$perf" $operation --device cuda -n 3 -b 400 -e 400
    expect_out '^# Out of bounds values : 2 FAILED$'
done
for operation in reduce allgatherv reduce_scatter gather scatterv alltoall; do
    any 2 $operation -b 4 -e 70001 -f 133 --versus all -G 2 --in-place
    any 3 $operation -b 4 -e 70001 -f 133 --versus all --in-place
done
any 2 barrier --versus all
expect_out '^ +0 +0 .* n/a +n/a +n/a +n/a$'
any 2 alltoallv --versus nccl-symmetric -e 8
expect_out ' n/a +n/a$'
any 2 exchange -b 64 -e 64 --versus nccl --overlap
any 2 broadcast -b 64 -e 64 --host-time --algorithm all
