"""Memory of GPUs that ranks can share, by PyTorch's caching allocator: it keeps what was freed until the
streams that used it are done (Tensor.record_stream), and gives it out again."""

import functools
import threading
from typing import Any

import torch

from . import _C

_pools: dict = {}
_lock = threading.Lock()


@functools.cache
def allocator() -> Any:
    """What torch.cuda.MemPool takes. It calls alnico_memory_allocate and alnico_memory_free."""
    return torch._C._cuda_customAllocator(*_C.memory_functions())


def _pool(index: int) -> Any:
    with _lock, torch.cuda.device(index):
        if index not in _pools:
            _pools[index] = torch.cuda.MemPool(allocator())
        return _pools[index]


def allocate(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialised tensor on a GPU."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.use_mem_pool(_pool(index), index):
        return torch.empty(size, dtype=dtype, device=torch.device("cuda", index))
