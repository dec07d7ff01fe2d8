"""DistributedDataParallel of PyTorch with its gradients averaged by Alnico.

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
model.register_comm_hook(alnico.torch.State(), alnico.torch.ddp_hook)
"""

import functools
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .communicator import Communicator
from .errors import ArgumentError
from .stream import Stream

BLOCK = 256  # numbers of a scale of int8
Run = Callable[[Callable[[], object]], None]  # runs a function in the stream's order


class State:
    """What ddp_hook needs. Collective over the group's ranks, by default all.

    device: of the gradients, "cpu" or "cuda", by default the GPU if there is one. close() when
    training has ended. compress, how gradients of more than 16 bits travel:

    - "bf16" or "fp16": they are summed in these.
    - "int8": a byte each, and a scale for 256 of them; summed in 32 bits.
    - "topk:SHARE": only the SHARE (0 to 1) of a bucket that is largest. The rest is added to the
      gradients of the next step, as long as DistributedDataParallel keeps its buckets; it changes
      them once, after the first step."""

    def __init__(
        self, group: Any = None, device: Optional[str] = None, compress: Optional[str] = None
    ) -> None:
        self.average = _way(compress)
        self.kept: dict[int, torch.Tensor] = {}  # what topk has not sent, by bucket
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
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
    average = state.average if gradient.element_size() > 2 else _plain
    if state.device == "cuda":
        return _on_gpu(state, gradient, functools.partial(average, state, bucket.index()))
    return _on_cpu(state, gradient, functools.partial(average, state, bucket.index()))


def _on_gpu(state: State, gradient: torch.Tensor, average: Callable[..., None]) -> Any:
    """On a stream of its own; the future marks where its result is."""
    state.stream.wait_stream(torch.cuda.current_stream(gradient.device))
    with torch.cuda.stream(state.stream):
        average(gradient, lambda function: function())
        future: Any = torch.futures.Future(devices=[gradient.device])
        future.set_result(gradient)
    return future


def _on_cpu(state: State, gradient: torch.Tensor, average: Callable[..., None]) -> Any:
    """The stream's thread computes, and ends the future."""
    future: Any = torch.futures.Future()
    failed: list[Exception] = []

    def attempt(function: Callable[[], object]) -> None:
        try:
            if not failed:
                function()
        except Exception as error:
            failed.append(error)

    def finish() -> None:
        attempt(state.communicator.check)
        if failed:
            future.set_exception(failed[0])
        else:
            future.set_result(gradient)

    average(gradient, lambda function: state.stream.enqueue(functools.partial(attempt, function)))
    state.stream.enqueue(finish)
    return future


# ---- Ways to average: what is called here is called in the same order by all ranks ----


def _plain(state: State, index: int, gradient: torch.Tensor, run: Run) -> None:
    state.communicator.allreduce(gradient, op="average")


def _narrow(wire: torch.dtype, state: State, index: int, gradient: torch.Tensor, run: Run) -> None:
    sent = torch.empty_like(gradient, dtype=wire)
    run(lambda: sent.copy_(gradient))
    state.communicator.allreduce(sent, op="average")
    run(lambda: gradient.copy_(sent))


def _int8(state: State, index: int, gradient: torch.Tensor, run: Run) -> None:
    """Each rank adds up a shard: an alltoall, the sum, an allgather."""
    size = state.communicator.size
    blocks = -(-gradient.numel() // (size * BLOCK))  # of a shard
    numbers = torch.zeros(size, blocks, BLOCK, dtype=torch.float32, device=gradient.device)
    sent, got = (
        torch.empty(size, blocks, BLOCK + 4, dtype=torch.uint8, device=gradient.device)
        for _ in range(2)
    )
    mine = torch.empty_like(sent[0])
    flat = numbers.view(-1)[: gradient.numel()]
    run(lambda: flat.copy_(gradient))
    run(lambda: _quantize(numbers, sent))
    state.communicator.alltoall(sent, got)
    run(lambda: _quantize(_numbers(got).mean(0), mine))
    state.communicator.allgather(mine, got)
    run(lambda: numbers.copy_(_numbers(got)))
    run(lambda: gradient.copy_(flat))


def _quantize(numbers: torch.Tensor, out: torch.Tensor) -> None:
    """Of each block the scale, largest / 127, in front, which is not finite if a number is not."""
    scale = numbers.abs().amax(-1, keepdim=True) / 127
    out[..., :4].view(torch.float32).copy_(scale)
    out[..., 4:].view(torch.int8).copy_((numbers / scale).nan_to_num(0, 0, 0).round())


def _numbers(quantized: torch.Tensor) -> torch.Tensor:
    return quantized[..., 4:].view(torch.int8) * quantized[..., :4].view(torch.float32)


def _topk(share: float, state: State, index: int, gradient: torch.Tensor, run: Run) -> None:
    """Every rank adds up what all have sent."""
    size = state.communicator.size
    count = max(1, round(share * gradient.numel()))
    kept = state.kept.get(index)
    if kept is None or kept.shape != gradient.shape:
        kept = state.kept[index] = torch.zeros_like(gradient)
    values = torch.empty(size, count, dtype=gradient.dtype, device=gradient.device)
    places = torch.empty(size, count, dtype=torch.int64, device=gradient.device)
    place, value = (all_ranks[state.communicator.rank] for all_ranks in (places, values))

    def choose() -> None:
        kept.add_(gradient)
        place.copy_(kept.abs().topk(count, sorted=False).indices)
        value.copy_(kept[place])
        kept[place] = 0

    run(choose)
    state.communicator.allgather(None, values)
    state.communicator.allgather(None, places)

    def add_up() -> None:
        gradient.zero_()
        for rank in range(size):  # one by one: the same order everywhere
            gradient.index_add_(0, places[rank], values[rank])
        gradient.div_(size)

    run(add_up)


def _way(compress: Optional[str]) -> Callable[..., None]:
    ways: dict[Optional[str], Callable[..., None]] = {
        None: _plain,
        "bf16": functools.partial(_narrow, torch.bfloat16),
        "fp16": functools.partial(_narrow, torch.float16),
        "int8": _int8,
    }
    if compress in ways:
        return ways[compress]
    try:
        name, share = str(compress).split(":")
        if name == "topk" and 0 < float(share) <= 1:
            return functools.partial(_topk, float(share))
    except ValueError:
        pass
    raise ArgumentError(
        f"compress is {compress!r}; expected None, 'bf16', 'fp16', 'int8' or 'topk:SHARE' with a "
        "SHARE above 0, up to 1"
    )
