#!/bin/bash
# The include-direction script accepts the tree and goes red for one bad include of every kind.
#
# Usage: check_includes.sh SOURCE
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Adds an include to a file of a fresh copy and expects a complaint about it.
expect_red() {
    local file=$1 include=$2
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    cp -r "$source/src" "$source/include" "$source/tools" "$work/tree"
    mkdir -p "$work/tree/${file%/*}"
    echo "#include $include" >>"$work/tree/$file"
    if "$source/scripts/check-includes" "$work/tree" >"$work/out" 2>&1; then
        fail "$file may include $include"
    fi
    grep -qF "$file:" "$work/out" || fail "the complaint does not name $file: $(cat "$work/out")"
}

"$source/scripts/check-includes" || fail "the tree itself"
expect_red src/base/status.c '"device/device.h"'
expect_red src/device/cpu/math.c '"progress/progress.h"'
expect_red src/device/cpu/math.c '"device/cuda/math.h"'
expect_red src/progress/engine.c '"comm/communicator/comm.h"'
expect_red src/progress/engine.c '<mpi.h>'
expect_red src/comm/operations/rounds.c '"train/input/data.h"'
expect_red src/comm/algorithms/ring.c '"comm/transports/transport.h"'
expect_red src/comm/algorithms/ring.c '<mpi.h>'
expect_red src/comm/hostmem/segment.c '"comm/communicator/comm.h"'
expect_red src/comm/transports/mpi.c '"comm/backends/backend.h"'
expect_red src/comm/transports/shm/send.c '"comm/transports/sim/sim.h"'
expect_red src/comm/communicator/comm.c '"comm/api/api.h"'
expect_red src/comm/backends/nccl/calls.c '"comm/backends/peer_cuda/peer_cuda.h"'
expect_red src/comm/backends/peer_cuda/device.cuh '"comm/backends/nccl/nccl.h"'
expect_red src/comm/backends/peer/peer.c '"comm/api/api.h"'
expect_red src/comm/backends/peer/peer.c '"no_such_file.h"'
expect_red src/train/graph/network.c '"comm/communicator/comm.h"'
expect_red src/train/graph/network.c '"device/topology.h"'
expect_red src/train/graph/network.c '"train/trainer/trainer.h"'
expect_red src/train/kernels/cudnn/dense.c '"train/kernels/onednn/onednn.h"'
expect_red tools/perf/main.c '"tools/simulate/run.h"'
expect_red integrations/nccl/shim.c '"comm/call.h"'
expect_red include/alnico/alnico.h '<mpi.h>'
