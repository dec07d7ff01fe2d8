#!/bin/bash
# Ranks that PyTorch's launcher starts, with the agent's port in use. Skipped without PyTorch.
#
# Usage: torchrun.sh LAUNCHED PERF [TRAIN]
. "$(dirname "$0")/common.sh"
launched=$1 perf=$2 train=${3:-}
python=
for name in python3 /usr/bin/python3; do
    ! "$name" -c 'import torch.distributed.run' 2>/dev/null || python=$name
done
[ -n "$python" ] || exit 77
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ALNICO_TIMEOUT=30 OMP_NUM_THREADS=1

# Debian's PyTorch 1.13 with Python 3.11 needs the output redirected, 1: standard output, and then copied back.
under_torchrun() {
    expect 0 timeout 120 "$python" -m torch.distributed.run --redirects 1 --tee 1 --log_dir "$work/logs" \
        --nproc_per_node 2 --master_port $((22000 + RANDOM % 9000)) --no_python "$@"
}
under_torchrun "$launched"
for rank in 0 1; do
    expect_out "\\[default$rank\\]:rank $rank of 2$"
done
under_torchrun "$perf" allreduce -e 8
expect_out '^\[default0\]: +8 +2 +float32'
[ -z "$train" ] || {
    under_torchrun "$train" --model mnist --data synthetic:28x28x1 --batch 8 --steps 2 --test-images 16
    expect_out '^\[default0\]:parameters: .* equal on all ranks$'
}
