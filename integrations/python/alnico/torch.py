"""DistributedDataParallel of PyTorch with its gradients averaged by Alnico.

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
model.register_comm_hook(alnico.torch.State(), alnico.torch.ddp_hook)
"""

from typing import Any, Optional

import torch
import torch.distributed as dist

from .communicator import Communicator
from .errors import ArgumentError
from .stream import Stream

WIRES = {None: None, "fp16": torch.float16, "bf16": torch.bfloat16}


class State:
    """What ddp_hook needs. Collective over the group's ranks, by default all.

    device: of the gradients, "cpu" or "cuda", by default the GPU if there is one. compress: "bf16"
    or "fp16", gradients of more bits travel and are summed in these. close() when training has
    ended."""

    def __init__(
        self, group: Any = None, device: Optional[str] = None, compress: Optional[str] = None
    ) -> None:
        if compress not in WIRES:
            raise ArgumentError(f"compress is {compress!r}; expected None, 'bf16' or 'fp16'")
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.wire = WIRES[compress]
        self.stream: Any = torch.cuda.Stream() if self.device == "cuda" else Stream()
        self.communicator = Communicator.from_torch(group, self.device, self.stream)

    def close(self) -> None:
        """Closes the communicator and its stream. Collective."""
        self.communicator.close()
        if isinstance(self.stream, Stream):
            self.stream.close()


# PyTorch compares these annotations with its own types, so that they are no strings.
def ddp_hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket over the ranks, beside the rest of the backward pass."""
    gradient = bucket.buffer()
    narrow = state.wire is not None and gradient.element_size() > 2
    if state.device == "cuda":
        return _average_on_gpu(state, gradient, narrow)
    return _average_on_cpu(state, gradient, narrow)


def _average_on_gpu(state: State, gradient: torch.Tensor, narrow: bool) -> Any:
    """On a stream of its own; the future marks where its result is."""
    state.stream.wait_stream(torch.cuda.current_stream(gradient.device))
    with torch.cuda.stream(state.stream):
        sent = gradient.to(state.wire) if narrow else gradient
        state.communicator.allreduce(sent, op="average")
        if narrow:
            gradient.copy_(sent)
        future: Any = torch.futures.Future(devices=[gradient.device])
        future.set_result(gradient)
    return future


def _average_on_cpu(state: State, gradient: torch.Tensor, narrow: bool) -> Any:
    """The stream's thread ends the future."""
    sent = gradient.to(state.wire) if narrow else gradient
    future: Any = torch.futures.Future()

    def finish() -> None:
        try:
            state.communicator.check()
            future.set_result(gradient.copy_(sent) if narrow else gradient)
        except Exception as error:
            future.set_exception(error)

    state.communicator.allreduce(sent, op="average")
    state.stream.enqueue(finish)
    return future
