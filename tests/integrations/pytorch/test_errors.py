"""The last rank dies, is late or aborts; the others print what DistributedDataParallel tells them."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from common import DEVICE, start
from torch.nn.parallel import DistributedDataParallel


def step(model):
    model(torch.ones(2, 4, device=DEVICE)).sum().backward()


def fail(how):
    if how in ("dead", "shrink"):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "late":
        time.sleep(6)
    if how == "abort":
        dist.distributed_c10d._abort_process_group()
        sys.exit(0)


def main(how):
    start(timeout=datetime.timedelta(seconds=2 if how == "late" else 60))
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(4, 3).to(DEVICE))
    step(model)
    if rank == size - 1:
        fail(how)
    try:
        while True:
            step(model)
            time.sleep(0.01)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
    if rank < size - 1 and how == "shrink":
        smaller = dist.shrink_group([size - 1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        x = torch.ones(1, device=DEVICE)
        dist.all_reduce(x, group=smaller)
        print(f"goes on with {int(x.item())} of {size}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
