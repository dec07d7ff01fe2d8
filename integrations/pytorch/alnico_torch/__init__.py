"""Alnico as a backend of torch.distributed, for tensors on the CPU and on GPUs.

    torch.distributed.init_process_group("alnico")

PyTorch finds the package by itself; `import alnico_torch` is needed only where
TORCH_DEVICE_BACKEND_AUTOLOAD=0. The collectives are those of libalnico.so (docs/frameworks.md).
"""

import os
from typing import Any


def _create(options: Any, backend_options: Any) -> Any:
    """A process group's backend. The first one's timeout is the library's deadline, too."""
    os.environ.setdefault("ALNICO_TIMEOUT", f"{max(1, round(options.timeout.total_seconds()))}")
    from . import _C

    return _C.create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        options.global_ranks_in_group,
    )


def register() -> None:
    """Makes the name "alnico" known to torch.distributed. PyTorch calls it while it is imported, be it
    by this package."""
    import torch.distributed as dist

    if dist.is_available() and "ALNICO" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "alnico", _create, extended_api=True, devices=["cpu", "cuda"]
        )


register()
