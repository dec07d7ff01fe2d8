#!/bin/bash
# The backend "alnico" of torch.distributed: built and installed by pip, every collective against gloo on 1 to 3 ranks, groups,
# DistributedDataParallel and FSDP2, and ranks that die or come late. `gpu`: the same on tensors of 1 and 2 GPUs. Skipped where
# PYTHON has no PyTorch from 2.11 on.
#
# Usage: run.sh cpu|gpu SOURCE LIBRARY [PYTHON]
# ALNICO_TORCH_SITE: a folder that keeps what is built, and is used as it is if it has something.
. "$(dirname "$0")/../../programs/common.sh"
. "$(dirname "$0")/../torchrun.sh"
part=$1 source=$(realpath "$2") library=$(realpath "$3") python=${4:-python3}
tests=$source/tests/integrations/pytorch site=${ALNICO_TORCH_SITE:-$work/site}
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

version='import torch; print(".".join(torch.__version__.split(".")[:2]))'
found=$($python -c "$version" 2>/dev/null || echo none)
[ "$(printf '%s\n' 2.11 "$found" | sort -V | head -1)" = 2.11 ] && [ "$found" != none ] ||
    { echo "skipped: $python has PyTorch $found; the backend needs 2.11"; exit 77; }

if [ ! -d "$site/alnico_torch" ]; then
    cp -r "$source/integrations/pytorch" "$work/package"
    ALNICO_LIBRARY=$library ALNICO_INCLUDE=$source/include LDFLAGS="-static-libstdc++ ${LDFLAGS:-}" \
        expect 0 $python -m pip install --no-index --no-build-isolation --no-deps --no-warn-script-location \
        --target "$site" "$work/package"
fi
export PYTHONPATH=$site

# The build above has a compiler that would link libstdc++ statically, as some do by themselves.
extension=$(echo "$site"/alnico_torch/_C.*.so)
expect 0 readelf --dynamic --wide "$extension"
expect_out 'NEEDED.*\[libstdc\+\+\.so\.6\]'
expect 0 nm --dynamic --defined-only "$extension"
[ "$(cut -d ' ' -f 3- "$work/out")" = PyInit__C ] || fail "$extension exports more than PyInit__C"

# The ranks that live name the last one.
die() {
    expect "$1" torchrun $python "$tests/test_errors.py" "$2"
    [ "$(grep -cE "$3" "$work/out")" = $((ranks - 1)) ] || fail "not all ranks say: $3"
}

case $part in
cpu)
    for ranks in 1 2 3; do
        expect 0 torchrun $python "$tests/test_collectives.py"
        expect 0 torchrun $python "$tests/test_groups.py"
    done
    for ranks in 2 3; do
        expect 0 torchrun $python "$tests/../table/table.py" run torch
        expect 0 $python "$tests/../table/table.py" check torch $ranks $(seq -f "$work/%g.out" 0 $((ranks - 1)))
    done
    for test in locks memory; do
        ranks=2 expect 0 torchrun $python "$tests/test_$test.py"
    done
    for ranks in 2 3; do
        last=$((ranks - 1))
        die 137 dead "DistBackendError: .*rank $last did not come: its process has ended"
        die 137 shrink "goes on with $last of $ranks"
        die 0 late "DistBackendError: .*rank $last did not come within 2 s"
        die 0 abort "DistBackendError: .*rank $last"
    done
    ranks=1 expect 0 torchrun $python -c 'import torch.distributed as d; d.init_process_group("alnico"); d.barrier()'
    ;;
gpu)
    gpus=$($python -c 'import torch; print(min(2, torch.cuda.device_count()))')
    [ "$gpus" -gt 0 ] || { echo "skipped: PyTorch sees no GPU"; exit 77; }
    export TEST_DEVICE=cuda
    for ((ranks = 1; ranks <= gpus; ranks++)); do
        for test in collectives groups gpu; do
            expect 0 torchrun $python "$tests/test_$test.py"
            grep -E '^(alnico|nccl)' "$work/out" || true
        done
    done
    [ "$gpus" -lt 2 ] || { ranks=2 && die 137 dead "DistBackendError: .*rank 1 did not come: its process has ended"; }
    ;;
*) fail "no such part" ;;
esac
