#!/bin/bash
# The Python package, installed by pip: what it refuses, every operation on 1 to 4 ranks, its example, communicators of mpi4py's
# ranks, PyTorch's DistributedDataParallel against gloo, and arrays on GPUs. PART says which; a part whose package is missing is skipped.
#
# Usage: run.sh PART SOURCE LIBRARY HEADER MPIEXEC NUMPROC_FLAG [RANKS]
. "$(dirname "$0")/../../programs/common.sh"
. "$(dirname "$0")/../torchrun.sh"
part=$1 source=$2 library=$3 mpi_run=("$5" "$6")
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ALNICO_TIMEOUT=60 ALNICO_LIBRARY=$library PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# The first Python that has the modules; the system's may not be the first in PATH.
find_python() {
    for python in python3 /usr/bin/python3; do
        command -v $python >/dev/null && $python -c "import $1" 2>/dev/null && return
    done
    echo "skipped: no python3 with $1"
    exit 77
}
case $part in
mpi4py) find_python numpy,mpi4py ;;
ddp | gpu) find_python torch ;;
*) find_python numpy ;;
esac
tests=$source/tests/integrations/python
cp -r "$source/integrations/python" "$work/package"
export PYTHONPATH=$work/package

# By pip where there is one that needs no network.
install() {
    local module
    for module in pip setuptools wheel; do
        $python -c "import $module" 2>/dev/null || { echo "not installed by pip: no $module"; return; }
    done
    expect 0 $python -m pip install --quiet --no-index --no-build-isolation --no-deps --no-warn-script-location --target "$work/site" \
        "$work/package"
    [ -e "$work/site/alnico/py.typed" ] || fail "the installed package says nothing of its types"
    export PYTHONPATH=$work/site
}

case $part in
arguments)
    install
    expect 0 $python "$tests/test_arguments.py" "$4"
    expect 0 "${mpi_run[@]}" 2 $python "$work/package/example.py"
    for rank in 0 1; do
        grep -qF "rank $rank of 2: [1.  2.5 1.5]" "$work/out" || fail "the example's rank $rank"
    done
    ALNICO_LIBRARY=$work/none.so expect 1 $python -c 'import alnico; alnico.Communicator()'
    expect_err "ImportError: alnico: .*none.so.*ALNICO_LIBRARY says where"
    ALNICO_LIBRARY=libm.so.6 expect 1 $python -c 'import alnico; alnico.Communicator()'
    expect_err "ImportError: alnico: libm.so.6 is not libalnico.so"
    cp "$library" "$work/package/alnico/libalnico.so"
    unset ALNICO_LIBRARY
    PYTHONPATH=$work/package expect 0 $python -c 'import alnico; alnico.Communicator().close()'
    ;;
operations) expect 0 "${mpi_run[@]}" "$7" $python "$tests/test_operations.py" ;;
mpi4py)
    # mpi4py brings an MPI of its own.
    vendor=$($python -c 'from mpi4py import MPI; print(MPI.Get_library_version().split()[0])')
    launcher=mpiexec.openmpi
    [ "$vendor" = Open ] || launcher=mpiexec.mpich
    command -v $launcher >/dev/null || { echo "skipped: no $launcher"; exit 77; }
    expect 0 $launcher -n 3 $python "$tests/test_mpi4py.py" 3
    ;;
ddp)
    ranks=$7
    expect 0 torchrun $python "$tests/test_ddp.py"
    expect 137 torchrun $python "$tests/test_ddp.py" die
    [ "$(grep -c "rank $((ranks - 1)) did not come: its process has ended" "$work/out")" = $((ranks - 1)) ] ||
        fail "not all ranks name the one that was killed"
    ;;
gpu)
    ranks=$($python -c 'import torch; print(min(2, torch.cuda.device_count()))')
    [ "$ranks" -gt 0 ] || { echo "skipped: PyTorch sees no GPU"; exit 77; }
    expect 0 torchrun $python "$tests/test_gpu.py"
    ;;
*) fail "no such part" ;;
esac
