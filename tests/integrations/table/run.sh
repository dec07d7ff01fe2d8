#!/bin/bash
# The table of cases (table.py) by one of its ways on 2 and 3 ranks: what each prints is what must come of the cases. By
# torch.distributed: integrations/pytorch/run.sh.
#
# Usage: run.sh abi|nccl SOURCE PROGRAM
#        run.sh python SOURCE LIBRARY
. "$(dirname "$0")/../../programs/common.sh"
. "$(dirname "$0")/../torchrun.sh"
way=$1 source=$2 table=$2/tests/integrations/table/table.py
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ALNICO_INTERFACE=lo ALNICO_TIMEOUT=60 PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

if [ "$way" = python ]; then
    export ALNICO_LIBRARY=$3 PYTHONPATH=$source/integrations/python
    for python in python3 /usr/bin/python3 none; do
        $python -c 'import numpy' 2>/dev/null && break
    done
    [ $python != none ] || { echo "skipped: no python3 with numpy"; exit 77; }
fi

for ranks in 2 3; do
    case $way in
    abi | nccl)
        python3 "$table" list "$way" $ranks >"$work/table"
        "$3" $ranks <"$work/table" >"$work/lines" 2>"$work/err" || fail "$3 $ranks"
        expect 0 python3 "$table" check "$way" $ranks "$work/lines"
        ;;
    *)
        expect 0 torchrun "$python" "$table" run "$way"
        expect 0 python3 "$table" check "$way" $ranks $(seq -f "$work/%g.out" 0 $((ranks - 1)))
        ;;
    esac
    cat "$work/out"
    # One wrong bit of one rank is found, and one result too few.
    [ "$way" = abi ] || continue
    sed '7s/.$/x/' "$work/lines" >"$work/wrong"
    expect 1 python3 "$table" check "$way" $ranks "$work/wrong"
    sed 1d "$work/lines" >"$work/fewer"
    expect 1 python3 "$table" check "$way" $ranks "$work/fewer"
done
