"""Communicators, their requests, groups and registrations."""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from typing import Any, Callable, Optional, Union

from ._buffers import Buffer, describe
from ._library import OPERATIONS, CommMemory, Limits, call, library
from .errors import AlnicoError, ArgumentError
from .operations import Array, Operations, PremultipliedSum, _rank
from .stream import Stream

DEVICES = ("cpu", "cuda")
COLLECTIVES = [*list(OPERATIONS)[:14], "sendrecv"]  # in the order of alnico_collective_t
ID_BYTES = 128

StreamLike = Union[Stream, int, Any, None]  # of PyTorch and CuPy too


def create_id() -> bytes:
    """128 bytes by which ranks meet: Communicator.from_id. This process must go on running until
    they have; whoever reads the bytes can join."""
    buffer = ctypes.create_string_buffer(ID_BYTES)
    call("id_create", buffer)
    return buffer.raw


def _current_stream() -> int:
    """The calling thread's stream on its GPU, of the package that is in use."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream().cuda_stream)
    return int(cupy.cuda.get_current_stream().ptr) if cupy is not None else 0


def _stream_handle(device: str, stream: StreamLike) -> Optional[int]:
    """A Stream on the CPU, else what PyTorch and CuPy call a stream, or its number."""
    if device not in DEVICES:
        raise ArgumentError(f"device is {device!r}; expected one of {', '.join(DEVICES)}")
    if device == "cpu":
        if stream is not None and not isinstance(stream, Stream):
            raise TypeError(
                f"stream is a {type(stream).__name__}; expected an alnico.Stream or None"
            )
        return stream.handle if stream is not None else None
    if stream is None:
        return _current_stream()
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int):
        raise TypeError(f"stream is a {type(stream).__name__}; expected a CUDA stream")
    return stream


def _share_id(rank: int, broadcast: Callable[[Any], Any]) -> bytes:
    """Rank 0's id, or its error, on all ranks."""
    made: Any = None
    if rank == 0:
        try:
            made = create_id()
        except AlnicoError as error:
            made = error
    made = broadcast(made)
    if isinstance(made, AlnicoError):
        raise made
    return bytes(made)


class Request:
    """A nonblocking operation in flight. Its communicator holds the arrays until it is complete."""

    def __init__(
        self, communicator: "Communicator", handle: ctypes.c_void_p, keep: list[object]
    ) -> None:
        self._communicator, self._handle, self._keep = communicator, handle, keep
        communicator._pending.add(self)

    @property
    def complete(self) -> bool:
        """Whether wait, test or synchronize has found it complete, or made the stream wait for
        it."""
        return not self._handle

    def _call(self, name: str, *more: object) -> None:
        with self._communicator._lock:
            self._communicator._check_open()
            if self.complete:
                raise ArgumentError(f"{name}: the request is complete")
            try:
                call(name, ctypes.byref(self._handle), *more)
            finally:
                if self.complete:
                    self._communicator._forget(self)

    def wait(self) -> None:
        """Makes the communicator's stream wait for the operation; without a stream, the caller."""
        self._call("wait")

    def test(self) -> bool:
        """Whether the operation is complete, without waiting."""
        done = ctypes.c_bool()
        self._call("test", ctypes.byref(done))
        return done.value

    def synchronize(self) -> None:
        """Blocks until the operation is complete."""
        self._call("request_synchronize")


class _Nonblocking(Operations[Request]):
    def __init__(self, communicator: "Communicator") -> None:
        self._communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size

    def _side(self, array: Array, what: str, writes: bool = False) -> Buffer:
        return self._communicator._side(array, what, writes)

    def _issue(self, name: str, arguments: list[Any], buffers: list[Buffer]) -> Request:
        handle = ctypes.c_void_p()
        self._communicator._call("i" + name, arguments, buffers, ctypes.byref(handle))
        return Request(self._communicator, handle, [buffer.keep for buffer in buffers])


class _Group(Operations[None]):
    """Messages that begin together at the end of `with`; an exception inside leaves them all
    out."""

    def __init__(self, communicator: "Communicator") -> None:
        self._communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self._messages: list[tuple[str, list[Any], list[Buffer]]] = []

    def _side(self, array: Array, what: str, writes: bool = False) -> Buffer:
        return self._communicator._side(array, what, writes)

    def _issue(self, name: str, arguments: list[Any], buffers: list[Buffer]) -> None:
        if name not in ("send", "recv", "sendrecv"):
            raise ArgumentError(f"{name} in a group; expected messages only")
        self._messages.append((name, arguments, buffers))

    def __enter__(self) -> "_Group":
        return self

    def __exit__(self, kind: Any, *exception: object) -> None:
        if kind is None:
            self._communicator._run_group(self._messages)


class Registration:
    """Memory that other ranks reach directly: Communicator.register."""

    def __init__(self, communicator: "Communicator", handle: ctypes.c_void_p, keep: object) -> None:
        self._communicator, self._handle, self._keep = communicator, handle, keep
        communicator._registrations.add(self)

    def deregister(self) -> None:
        """Removes the registration, which lets the array go. Collective, unless it is local."""
        with self._communicator._lock:
            handle = self._communicator._check_open()
            if not self._handle:
                raise ArgumentError("comm_deregister: the registration is removed already")
            call("comm_deregister", handle, self._handle)
            self._handle, self._keep = ctypes.c_void_p(), None
            self._communicator._registrations.discard(self)


class Communicator(Operations[None]):
    """Ranks that exchange arrays. Without arguments, the processes that mpirun, srun or torchrun
    started together, or those of ALNICO_RANK, ALNICO_SIZE and ALNICO_ADDRESS.

    device: where the arrays are, "cpu" or "cuda" (the thread's current GPU). stream: what orders
    the operations. On the CPU an alnico.Stream, whose calls return at once, or None: calls return
    when they are done. With CUDA operations are ordered on the caller's current stream, that of the
    array's package; `stream` is the first one.

    One thread at a time is in a call; others wait for it. Errors of the library are AlnicoErrors
    with its detail. Close it, best by `with`: closing is collective."""

    def __init__(self, device: str = "cpu", stream: StreamLike = None) -> None:
        self._open(
            device, stream, lambda out, at: call("comm_create_env", DEVICES.index(device), at, out)
        )

    @classmethod
    def from_id(
        cls, id: bytes, rank: int, size: int, device: str = "cpu", stream: StreamLike = None
    ) -> "Communicator":
        """Ranks that have the same id (create_id). Collective."""
        if not isinstance(id, (bytes, bytearray)) or len(id) != ID_BYTES:
            raise ArgumentError(f"id is no {ID_BYTES} bytes of alnico.create_id()")
        mine, of = _rank(rank, "rank"), _rank(size, "size")
        return cls._made(
            device,
            stream,
            lambda out, at: call(
                "comm_create_id", bytes(id), mine, of, DEVICES.index(device), at, out
            ),
        )

    @classmethod
    def from_mpi(cls, comm: Any, device: str = "cpu", stream: StreamLike = None) -> "Communicator":
        """The ranks of an mpi4py communicator, which carries the id and nothing else.
        Collective."""
        rank, size = comm.Get_rank(), comm.Get_size()
        return cls.from_id(_share_id(rank, comm.bcast), rank, size, device, stream)

    @classmethod
    def from_torch(
        cls, group: Any = None, device: str = "cpu", stream: StreamLike = None
    ) -> "Communicator":
        """The ranks of a torch.distributed group, by default all, which carries the id and nothing
        else. Collective."""
        import torch.distributed as dist

        root = 0 if group is None else dist.get_global_rank(group, 0)

        def broadcast(made: Any) -> Any:
            box = [made]
            dist.broadcast_object_list(box, src=root, group=group)
            return box[0]

        rank, size = dist.get_rank(group), dist.get_world_size(group)
        return cls.from_id(_share_id(rank, broadcast), rank, size, device, stream)

    @classmethod
    def _made(
        cls, device: str, stream: StreamLike, create: Callable[[Any, Any], None]
    ) -> "Communicator":
        communicator = cls.__new__(cls)
        communicator._open(device, stream, create)
        return communicator

    def _open(self, device: str, stream: StreamLike, create: Callable[[Any, Any], None]) -> None:
        self._handle: Optional[int] = None
        at = _stream_handle(device, stream)
        handle = ctypes.c_void_p()
        create(ctypes.byref(handle), at)
        self._adopt(handle, device, stream, at)

    def _adopt(
        self, handle: ctypes.c_void_p, device: str, stream: StreamLike, at: Optional[int]
    ) -> None:
        self._handle = handle.value
        self.device, self.stream, self._stream = device, stream, at
        self.rank = library().alnico_comm_rank(handle)
        self.size = library().alnico_comm_size(handle)
        self._lock = threading.RLock()
        self._pending: set[Request] = set()
        self._registrations: set[Registration] = set()
        if isinstance(stream, Stream):
            stream._users += 1

    # ---- Calls ----

    def _check_open(self) -> int:
        if self._handle is None:
            raise ArgumentError("the communicator is closed")
        return self._handle

    def _side(self, array: Array, what: str, writes: bool = False) -> Buffer:
        self._check_open()
        buffer = describe(array, what, self._stream)
        if buffer.device != self.device:
            raise ArgumentError(
                f"{what} is on {buffer.device}, and the communicator on {self.device}"
            )
        if writes and not buffer.writable:
            raise ArgumentError(f"{what} is read-only")
        return buffer

    def _follow(self, handle: int, buffers: list[Buffer]) -> None:
        """Operations on GPUs are ordered on the caller's current stream."""
        current = next((b.stream for b in buffers if b.stream is not None), self._stream)
        if self.device == "cuda":
            call("comm_set_stream", handle, current)
            self._stream = current

    def _release(self, keep: list[object]) -> None:
        """A CPU stream uses the arrays until it has come here."""
        if isinstance(self.stream, Stream) and keep:
            self.stream.enqueue(keep.clear)

    def _call(self, name: str, arguments: list[Any], buffers: list[Buffer], *more: Any) -> None:
        with self._lock:
            handle = self._check_open()
            self._follow(handle, buffers)
            call(name, *arguments, handle, *more)

    def _issue(self, name: str, arguments: list[Any], buffers: list[Buffer]) -> None:
        self._call(name, arguments, buffers)
        self._release([buffer.keep for buffer in buffers])

    def _forget(self, request: Request) -> None:
        self._pending.discard(request)
        self._release(request._keep)

    def _run_group(self, messages: list[tuple[str, list[Any], list[Buffer]]]) -> None:
        buffers = [buffer for _, _, of_message in messages for buffer in of_message]
        with self._lock:
            handle = self._check_open()
            self._follow(handle, buffers)
            call("group_begin", handle)
            try:
                for name, arguments, _ in messages:
                    call(name, *arguments, handle)
            finally:
                call("group_end", handle, None)
            self._release([buffer.keep for buffer in buffers])

    @property
    def nonblocking(self) -> Operations[Request]:
        """The same operations, beside which the stream, or the caller, goes on:

        request = comm.nonblocking.allreduce(gradient)
        compute()
        request.wait()
        """
        self._check_open()
        return _Nonblocking(self)

    def group(self) -> _Group:
        """Messages that cannot deadlock, whatever their order:

        with comm.group() as group:
            for peer in range(comm.size):
                group.send(out[peer], peer)
                group.recv(into[peer], peer)
        """
        self._check_open()
        return _Group(self)

    # ---- Other communicators ----

    def _child(self, name: str, stream: StreamLike, *arguments: int) -> Optional["Communicator"]:
        with self._lock:
            handle, out = self._check_open(), ctypes.c_void_p()
            at = _stream_handle(self.device, stream)
            call(name, handle, *arguments, at, ctypes.byref(out))
        if not out:
            return None
        child = type(self).__new__(type(self))
        child._adopt(out, self.device, stream, at)
        return child

    def duplicate(self, stream: StreamLike = None) -> "Communicator":
        """The same ranks on another stream. Collective."""
        made = self._child("comm_duplicate", stream)
        assert made
        return made

    def split(
        self, color: int, key: int = 0, stream: StreamLike = None
    ) -> Optional["Communicator"]:
        """Ranks with the same color of 0 or more get a communicator of their own, in the order of
        their keys; others take part and get None. Collective."""
        limit = (1 << 31) - 1
        return self._child("comm_split", stream, max(-1, min(int(color), limit)), int(key))

    def shrink(self, stream: StreamLike = None) -> "Communicator":
        """After an error: the ranks that live, in the same order. Collective over them. This one
        keeps its error and is to be closed."""
        made = self._child("comm_shrink", stream)
        assert made
        return made

    # ---- The communicator itself ----

    def set_algorithm(self, collective: str, name: Optional[str]) -> None:
        """Forces an algorithm for the later calls of a collective; None: the tuning table's.
        Collective."""
        if collective not in COLLECTIVES:
            raise ArgumentError(
                f"collective is {collective!r}; expected one of {', '.join(COLLECTIVES)}"
            )
        with self._lock:
            chosen = name.encode() if name is not None else None
            call("comm_set_algorithm", self._check_open(), COLLECTIVES.index(collective), chosen)

    def set_limits(self, blocks: int = 0, scratch: int = 0) -> None:
        """Limits the blocks of its GPU kernels and the bytes that collectives work in, before its first
        operation; 0: no limit. Duplicates and splits have the same. Collective."""
        with self._lock:
            call("comm_set_limits", self._check_open(), ctypes.byref(Limits(blocks, scratch)))

    def memory(self) -> dict[str, int]:
        """The bytes that it has on this rank, by where they are (host, device, shared) and by what they
        are for (scratch, messages)."""
        out = CommMemory()
        with self._lock:
            call("comm_memory", self._check_open(), ctypes.byref(out))
        return {name: getattr(out, name) for name, _ in out._fields_}

    def register(self, array: Array, local: bool = False) -> Registration:
        """Registers an array, so that other ranks can reach it directly. Collective, unless it is
        local: then it counts in the calls in which all ranks pass such memory, or that of
        alnico.Memory, which needs none. It is held until it is deregistered, or the communicator
        closed."""
        buffer, out = self._side(array, "array", True), ctypes.c_void_p()
        with self._lock:
            call(
                "comm_register_local" if local else "comm_register",
                self._check_open(),
                buffer.address,
                buffer.bytes,
                ctypes.byref(out),
            )
        return Registration(self, out, buffer.keep)

    def premultiplied_sum(self, factor: Array) -> PremultipliedSum:
        """An operation that sums what each rank multiplies by its own factor first, an array of one
        element and of the type of the later calls. One of the CPU is read now, one of the GPU at each
        call.

        half = comm.premultiplied_sum(numpy.array([0.5], "float32"))
        comm.allreduce(gradient, op=half)
        """
        buffer, out = describe(factor, "factor"), ctypes.c_int()
        if buffer.count != 1:
            raise ArgumentError(f"factor has {buffer.count} elements; expected 1")
        with self._lock:
            call(
                "op_create_premultiplied_sum",
                self._check_open(),
                buffer.address,
                buffer.type,
                DEVICES.index(buffer.device),
                ctypes.byref(out),
            )
        return PremultipliedSum(out.value, buffer.keep)

    def synchronize(self) -> None:
        """Blocks until everything started on the communicator is complete."""
        with self._lock:
            call("synchronize", self._check_open())

    def check(self) -> None:
        """Raises the communicator's first error, if there was any. Any thread, without waiting for
        calls of others."""
        call("comm_status", self._check_open())

    def abort(self) -> None:
        """Ends everything in flight here with AbortedError, without waiting for other ranks, which
        learn of it. Only shrink and close may follow. Any thread."""
        call("comm_abort", self._check_open())

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._handle is None

    def close(self) -> None:
        """Waits for everything started and frees the communicator. Collective, but after an error
        it waits for nobody. Closing again does nothing."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                library().alnico_comm_destroy(handle)
                self._pending.clear()
                self._registrations.clear()
                if isinstance(self.stream, Stream):
                    self.stream._users -= 1

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, *exception: object) -> None:
        """An exception on this rank is not waited for by the others."""
        if kind is not None and not self.closed:
            self.abort()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        if getattr(self, "_handle", None) is None:
            return "<alnico.Communicator, closed>"
        return f"<alnico.Communicator, rank {self.rank} of {self.size} on {self.device}>"
