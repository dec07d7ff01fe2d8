#!/bin/bash
# The networks of benchmarks/torch_models.py have as many parameters as those of alnico-train, an output for each class (or pixel and
# class) of an image, and a loss that has gradients. Skipped without a python3 that has PyTorch.
#
# Usage: torch_models.sh SOURCE ALNICO-TRAIN
. "$(dirname "$0")/common.sh"
source=$1 train=$2
for python in python3 /usr/bin/python3 none; do
    [ $python != none ] || { echo "skipped: no python3 with PyTorch"; exit 77; }
    $python -c 'import torch' 2>/dev/null && break
done

cat >"$work/models.py" <<'PYTHON'
import torch
from torch_models import LABEL_PIXELS, MODELS, loss

torch.set_num_threads(1)
for name, (make, side, channels, classes) in MODELS.items():
    model = make()
    side = min(side, 128) if name in LABEL_PIXELS else side
    outputs = model(torch.rand(1, channels, side, side))
    labels = torch.ones(1, *((side, side) if name in LABEL_PIXELS else ()), dtype=torch.long)
    loss(outputs, labels).backward()
    assert all(p.grad is not None for p in model.parameters()), name
    first = outputs if torch.is_tensor(outputs) else outputs[0]
    numbers = 1 if name == "neuron" else classes
    assert first.shape[:2] == (1, numbers) and first.shape[2:] == labels.shape[1:], (name, first.shape)
    print(name, sum(p.numel() for p in model.parameters()))
value = loss(torch.tensor([[0.25], [0.75]]), torch.tensor([0, 1]))
assert value.item() == 0.0625, value
PYTHON
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source/benchmarks
$python "$work/models.py" >"$work/models" || fail "torch_models.py: see above"
[ "$(wc -l <"$work/models")" -ge 9 ] || fail "too few networks: $(cat "$work/models")"
while read -r name parameters; do
    expect 0 "$train" --model "$name" --describe
    expect_out "^$parameters parameters"
done <"$work/models"
