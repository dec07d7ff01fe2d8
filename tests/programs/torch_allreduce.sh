#!/bin/bash
# benchmarks/torch_allreduce.py: what it refuses, what it says where GPUs or packages are missing, and the whole of it on the CPU
# where there is a PyTorch: who takes part, who is left out and why, and that a contender which is wrong or fails is named.
#
# Usage: torch_allreduce.sh SOURCE LIBRARY [PYTHON]
. "$(dirname "$0")/common.sh"
source=$1
export ALNICO_LIBRARY=$2 PYTHONPATH=$source/integrations/python:$source/benchmarks
python=${3:-python3}
command -v "$python" >/dev/null || { echo "skipped: no python3"; exit 77; }
versus=("$python" "$source/benchmarks/torch_allreduce.py")

refuse() {
    expect 2 "${versus[@]}" "${@:2}"
    expect_err "^torch_allreduce.py: error: .*$1"
}
refuse '--gpus 1: expected 2 or more' --gpus 1
refuse 'sizes: 9: expected a multiple of 8 bytes' --sizes 8,9
refuse 'sizes: K: expected a multiple of 8 bytes' --sizes K
refuse 'ways: lazy: expected one of graph, eager' --ways lazy
refuse 'only: mpi: expected one of alnico, ' --only alnico,mpi
refuse '--calls: 0: expected a whole number above 0' --calls 0
refuse '--out .*/no/lines: No such file or directory' --out "$work/no/lines"

# Without what it needs, it says what.
mkdir "$work/torch"
echo 'raise ImportError("a PyTorch without its parts")' >"$work/torch/__init__.py"
PYTHONPATH=$work:$PYTHONPATH expect 77 "${versus[@]}"
expect_err '^torch_allreduce: a PyTorch without its parts$'
"$python" -c 'import torch.distributed' 2>/dev/null || { echo "skipped: no PyTorch from here on"; exit 77; }
"$python" -c 'import sys, torch; sys.exit(torch.cuda.device_count() > 99)' && expect 77 "${versus[@]}" --gpus 100
expect_err '^torch_allreduce: PyTorch sees [0-9]* GPUs, expected 100$'
ALNICO_LIBRARY=$work/none.so expect 77 "${versus[@]}" --device cpu
expect_err '^torch_allreduce: alnico: .*none.so'

# On the CPU.
brief=(--device cpu --repeats 3 --rounds 2 --calls 2 --limit 120)
expect 0 "${versus[@]}" "${brief[@]}" --sizes 8,64K --out "$work/lines"
cmp "$work/out" "$work/lines" || fail "what is printed is not what is written"
for contender in alnico alnico-memory alnico-registered gloo; do
    for bytes in 8 65536; do
        grep -q "\"bytes\": $bytes, \"way\": \"eager\", \"contender\": \"$contender\", \"median_us\": [0-9]" "$work/lines" ||
            fail "no time of $contender for $bytes bytes: $(cat "$work/lines")"
    done
done
for contender in nccl symmetric-one-shot symmetric-two-shot vllm tensorrt-one-shot tensorrt-one-shot-early tensorrt-two-shot; do
    grep -q "\"contender\": \"$contender\", \"absent\": \"GPUs only\"" "$work/lines" || fail "$contender is not named"
done
expect_err '^ *65536  eager *[0-9.]*  gloo$'

# A contender that is wrong on one rank, and one that fails: the others go on.
cat >"$work/sitecustomize.py" <<'SCRIPT'
import os, torch.distributed as dist
real = dist.all_reduce
def all_reduce(tensor, *rest, **named):
    real(tensor, *rest, **named)
    if os.environ.get("RANK") == "1":
        tensor[0] += 1
    if os.environ.get("BROKEN"):
        raise RuntimeError("no such ring")
dist.all_reduce = all_reduce
SCRIPT
PYTHONPATH=$work:$PYTHONPATH
rm -r "$work/torch"
expect 1 "${versus[@]}" "${brief[@]}" --sizes 64 --only alnico,gloo
expect_out '"contender": "gloo", "error": "rank 1: ValueError: 1 of 16 elements are wrong"'
expect_out '"contender": "alnico", "median_us"'
BROKEN=1 expect 1 "${versus[@]}" "${brief[@]}" --sizes 64 --only alnico,gloo
expect_out '"contender": "gloo", "error": "rank 0: RuntimeError: no such ring"'
expect_out '"contender": "alnico", "median_us"'
