#!/bin/bash
# libnccl.so.2 over Alnico as a file: its symbols against what programs want, and how it gets before the real NCCL. On a machine
# with GPUs also what PyTorch, CuPy and JAX compute with it; a package that is missing is skipped.
#
# Usage: run.sh symbols LIBRARY
#        run.sh loader LIBRARY PROGRAM FAKE_NCCL
#        run.sh gpu LIBRARY torch|cupy|jax [RANKS]
#        run.sh gpu LIBRARY nccl-tests FOLDER [GPUS]      whose folder has all_reduce_perf and the others
# ALNICO_NCCL_LIBRARY names the real NCCL; by default that of the Python package nvidia-nccl.
. "$(dirname "$0")/../../programs/common.sh"
part=$1 library=$2
real=${ALNICO_NCCL_LIBRARY:-}
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
    says "another, opened another, version -1, result 3"
    # The program's own path wins against the variable, and the preloaded library against that, by either way.
    says "another, opened another, version -1, result 3" LD_LIBRARY_PATH="$(dirname "$library")"
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
gpu)
    what=$3 gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    skip() {
        echo "skipped: $*"
        exit 77
    }
    [ "$gpus" -gt 0 ] || skip "no GPU"
    # The first Python that has the package.
    for python in python3 /usr/bin/python3 none; do
        [ $python != none ] || [ "$what" = nccl-tests ] || skip "no python3 with $what"
        $python -c "import $what" 2>/dev/null && break
    done
    [ -n "$real" ] || real=$(python3 -c 'import nvidia.nccl; print(nvidia.nccl.__path__[0])' 2>/dev/null)/lib/libnccl.so.2
    [ ! -e "$real" ] || export ALNICO_NCCL_LIBRARY=$real
    export ALNICO_TIMEOUT=120 NCCL_DEBUG=WARN PYTHONDONTWRITEBYTECODE=1 CUPY_CACHE_IN_MEMORY=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
    echo "the real NCCL: ${ALNICO_NCCL_LIBRARY:-wherever it is found}"
    case $what in
    torch)
        ranks=${4:-$gpus} port=$((21000 + RANDOM % 10000)) status=0 pids=()
        [ "$gpus" -ge "$ranks" ] || skip "$gpus GPUs"
        for ((rank = 0; rank < ranks; rank++)); do
            env LD_PRELOAD="$library" RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                $python "$here/gpu_torch.py" >"$work/$rank.out" 2>&1 &
            pids+=($!)
        done
        for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
        cat "$work"/[0-9].out
        exit $status
        ;;
    cupy | jax) LD_PRELOAD=$library $python "$here/gpu_$what.py" -v ;;
    nccl-tests)
        count=${5:-$gpus}
        # Each program, as it stands: GPUs of one thread, threads, graphs, registered and symmetric buffers, every type and reduction.
        for program in "$4"/*_perf; do
            for options in "-g $count" "-t $count" "-g $count -G 20" "-g $count -R 1" "-t $count -R 2" "-g $count -d all -o all -e 1M"; do
                echo "$(basename "$program") $options"
                expect 0 env LD_PRELOAD="$library" "$program" -b 8 -e 256M -f 8 -c 1 $options
                expect_out '^# Out of bounds values : 0 OK'
            done
        done
        ;;
    *) fail "no such program" ;;
    esac
    ;;
*) fail "no such part" ;;
esac
