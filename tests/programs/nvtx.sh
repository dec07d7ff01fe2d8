#!/bin/bash
# The spans that a tool for NVTX sees of alnico-train: the rehearsals; each step, and in it forward, backward with the buckets' allreduces,
# what is joined, and the update.
#
# Usage: nvtx.sh ALNICO-TRAIN TOOL MPIEXEC OPTION
. "$(dirname "$0")/common.sh"
train=$1 tool=$2 mpi=("$3" "$4")
arguments=(--model cnn --kernels naive --data synthetic:8x8x1 --batch 4 --steps 3 --test-images 0 --buckets 2)
one=$'step\n  forward\n  backward\n  join\n  update'
trial=$'rehearsal\n  allreduce 0\n  allreduce 1'
two=$'step\n  forward\n  backward\n    allreduce 0\n    allreduce 1\n  join\n  update'

# spans TRIALS TEXT: so many trials, and the text three times.
spans() {
    local trials=()
    for ((i = 0; i < $1; i++)); do trials+=("$trial"); done
    printf '%s\n' "${trials[@]}" "$2" "$2" "$2" | diff - "$work/spans" >&2 || fail "other spans"
}

expect 0 env NVTX_INJECTION64_PATH="$tool" NVTX_SPANS="$work/spans" "$train" "${arguments[@]}"
spans 0 "$one"
expect 0 "${mpi[@]}" 1 env NVTX_INJECTION64_PATH="$tool" NVTX_SPANS="$work/spans" "$train" "${arguments[@]}" \
    : "${mpi[1]}" 1 "$train" "${arguments[@]}"
spans 9 "$two"
expect 0 env NVTX_INJECTION64_PATH="$work/none" "$train" "${arguments[@]}"
