"""Every operation of alnico.h on arrays. Sizes, types and places are checked here, what ranks pass
to each other by the library."""

from __future__ import annotations

import ctypes
import enum
import operator
from typing import Any, Generic, Optional, Sequence, TypeVar, Union

from ._buffers import NAMES, Buffer
from ._library import IN_PLACE
from .errors import ArgumentError

Result = TypeVar("Result", covariant=True)
Array = Any  # with the buffer protocol, __cuda_array_interface__ or DLPack
Counts = Sequence[int]


class Op(enum.IntEnum):
    """How contributions are reduced. Operations take the name in small letters too, as "sum"."""

    SUM = 0
    PRODUCT = 1
    MINIMUM = 2
    MAXIMUM = 3
    AVERAGE = 4
    LOGICAL_AND = 5
    LOGICAL_OR = 6
    LOGICAL_XOR = 7
    BITWISE_AND = 8
    BITWISE_OR = 9
    BITWISE_XOR = 10


class PremultipliedSum:
    """A sum of what each rank multiplies by its own factor first, for calls of one communicator with one
    type: Communicator.premultiplied_sum makes it. It lasts as long as its communicator."""

    def __init__(self, number: int, keep: object) -> None:
        self._number, self._keep = number, keep


AnyOp = Union[Op, PremultipliedSum, str]


def _op(op: AnyOp) -> int:
    if isinstance(op, PremultipliedSum):
        return op._number
    try:
        return Op[op.upper()] if isinstance(op, str) else Op(op)
    except (KeyError, ValueError):
        names = ", ".join(known.name.lower() for known in Op)
        raise ArgumentError(f"op is {op!r}; expected one of {names}") from None


def _size(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a {type(value).__name__}; expected an integer") from None
    if not 0 <= number < 1 << 63:
        raise ArgumentError(f"{what} is {number}; expected 0 or more")
    return number


def _rank(value: Any, what: str) -> int:
    """Whether there is such a rank says the library."""
    return min(_size(value, what), (1 << 31) - 1)


class Operations(Generic[Result]):
    """The operations of a communicator; Result is None of blocking ones, Request of nonblocking
    ones.

    Rules: arrays are contiguous, on the communicator's device, of one type for each call, and stay
    as they are until the operation is complete. Where `send` or `recv` may be None, the operation
    is in place: the data are in the other array, or stay there."""

    rank: int
    size: int

    def _side(self, array: Array, what: str, writes: bool = False) -> Buffer:
        raise NotImplementedError

    def _issue(self, name: str, arguments: list[Any], buffers: list[Buffer]) -> Result:
        raise NotImplementedError

    def _sides(self, send: Array, recv: Array) -> tuple[Optional[Buffer], Optional[Buffer]]:
        """Both sides, of one type; None stands for in place. The written one must be writable."""
        if send is None and recv is None:
            raise ArgumentError("send and recv are both None")
        reads = None if send is None else self._side(send, "send")
        if reads and recv is send:
            if not reads.writable:
                raise ArgumentError("recv is read-only")
            return reads, reads
        writes = None if recv is None else self._side(recv, "recv", True)
        if reads and writes and reads.type != writes.type:
            raise ArgumentError(f"send has type {NAMES[reads.type]}, and recv {NAMES[writes.type]}")
        return reads, writes

    def _counts(self, counts: Counts, what: str) -> list[int]:
        values = [_size(value, f"{what}[{i}]") for i, value in enumerate(counts)]
        if len(values) != self.size:
            raise ArgumentError(
                f"{what} has {len(values)} entries; expected one for each of {self.size} ranks"
            )
        return values

    def _blocks(
        self, buffer: Buffer, what: str, counts: list[int], at: Optional[Counts], of_at: str
    ) -> Any:
        """Checks that all blocks lie in the buffer; `at` for the library."""
        if at is None:
            _expect(buffer, what, sum(counts))
            return None
        places = self._counts(at, of_at)
        end = max((a + count for a, count in zip(places, counts) if count), default=0)
        if end > buffer.count:
            raise ArgumentError(f"{what} has {buffer.count} elements, and its blocks end at {end}")
        return _array(places)

    # ---- Reductions ----

    def allreduce(self, send: Array, recv: Array = None, op: AnyOp = Op.SUM) -> Result:
        """Every rank gets the elementwise reduction of `send` in `recv`; without `recv`, in
        `send`."""
        reads, writes = self._sides(send, send if recv is None else recv)
        assert reads and writes
        _expect(writes, "recv", reads.count)
        arguments = [reads.address, writes.address, writes.count, writes.type, _op(op)]
        return self._issue("allreduce", arguments, [reads, writes])

    def reduce(
        self, send: Array, recv: Array = None, root: int = 0, op: AnyOp = Op.SUM
    ) -> Result:
        """The same result, at rank `root` only. Elsewhere `recv` is ignored; at the root without
        `recv`, the result is in `send`."""
        into = (send if recv is None else recv) if self.rank == root else None
        reads, writes = self._sides(send, into)
        assert reads
        if writes:
            _expect(writes, "recv", reads.count)
        arguments = [
            reads.address,
            _address(writes),
            reads.count,
            reads.type,
            _op(op),
            _rank(root, "root"),
        ]
        return self._issue("reduce", arguments, [reads, writes or reads])

    def reduce_scatter(self, send: Array, recv: Array, op: AnyOp = Op.SUM) -> Result:
        """Each rank gets its own block of the reduction of `send`. Without `send`, in place in
        `recv`, which then is the whole vector."""
        reads, writes = self._sides(send, recv)
        assert writes
        count = _block(writes, "recv", self.size) if reads is None else writes.count
        if reads:
            _expect(reads, "send", self.size * count)
        arguments = [_in_place(reads), writes.address, count, writes.type, _op(op)]
        return self._issue("reduce_scatter", arguments, [reads or writes, writes])

    def reduce_scatterv(
        self, send: Array, recv: Array, counts: Counts, op: AnyOp = Op.SUM
    ) -> Result:
        """Reduce-scatter of blocks of different length: rank b gets counts[b] elements."""
        reads, writes = self._sides(send, recv)
        assert writes
        lengths = self._counts(counts, "counts")
        _expect(writes, "recv", lengths[self.rank] if reads else sum(lengths))
        if reads:
            _expect(reads, "send", sum(lengths))
        arguments = [_in_place(reads), writes.address, _array(lengths), writes.type, _op(op)]
        return self._issue("reduce_scatterv", arguments, [reads or writes, writes])

    # ---- Copies ----

    def broadcast(self, buffer: Array, root: int = 0) -> Result:
        """Copies the root's array to that of every other rank."""
        side = self._side(buffer, "buffer", self.rank != root)
        arguments = [side.address, side.count, side.type, _rank(root, "root")]
        return self._issue("broadcast", arguments, [side])

    def broadcast_to(self, send: Array, recv: Array, root: int = 0) -> Result:
        """Copies the root's `send`, which is ignored elsewhere, to `recv` of every rank."""
        reads, writes = self._sides(self._at_root(send, root, "send"), recv)
        if not writes:
            raise ArgumentError("recv is None")
        if reads:
            _expect(reads, "send", writes.count)
        arguments = [_address(reads), writes.address, writes.count, writes.type]
        return self._issue(
            "broadcast_to", arguments + [_rank(root, "root")], [reads or writes, writes]
        )

    def allgather(self, send: Array, recv: Array) -> Result:
        """Every rank gets the blocks of all ranks, in rank order. Without `send`, the own block is
        in `recv`."""
        reads, writes = self._sides(send, recv)
        assert writes
        count = _block(writes, "recv", self.size)
        if reads:
            _expect(reads, "send", count)
        arguments = [_in_place(reads), writes.address, count, writes.type]
        return self._issue("allgather", arguments, [reads or writes, writes])

    def allgatherv(
        self, send: Array, recv: Array, counts: Counts, at: Optional[Counts] = None
    ) -> Result:
        """Allgather of blocks of different length: that of rank b has counts[b] elements and begins
        at element at[b] of `recv`; without `at`, they are contiguous."""
        reads, writes = self._sides(send, recv)
        assert writes
        lengths = self._counts(counts, "counts")
        places = self._blocks(writes, "recv", lengths, at, "at")
        own = lengths[self.rank]
        if reads:
            _expect(reads, "send", own)
        arguments = [_in_place(reads), own, writes.address, _array(lengths), places, writes.type]
        return self._issue("allgatherv", arguments, [reads or writes, writes])

    def gather(self, send: Array, recv: Array = None, root: int = 0) -> Result:
        """The root gets the blocks of all ranks; elsewhere `recv` is ignored. Without `send` at the
        root, its own block is in `recv`."""
        reads, writes = self._sides(send, self._at_root(recv, root, "recv"))
        side = writes or reads
        assert side
        count = _block(writes, "recv", self.size) if writes else side.count
        if reads:
            _expect(reads, "send", count)
        arguments = [_in_place(reads), _address(writes), count, side.type, _rank(root, "root")]
        return self._issue("gather", arguments, [reads or side, side])

    def gatherv(
        self,
        send: Array,
        recv: Array = None,
        counts: Optional[Counts] = None,
        root: int = 0,
        at: Optional[Counts] = None,
    ) -> Result:
        """Gather of blocks of different length; `counts` and `at` are used at the root."""
        reads, writes = self._sides(send, self._at_root(recv, root, "recv"))
        lengths, places = self._root_blocks(writes, "recv", counts, at)
        side = writes or reads
        assert side
        own = lengths[self.rank] if lengths else side.count
        if reads:
            _expect(reads, "send", own)
        arguments = [_in_place(reads), own, _address(writes), _array(lengths), places]
        arguments += [side.type, _rank(root, "root")]
        return self._issue("gatherv", arguments, [reads or side, side])

    def scatter(self, send: Array, recv: Array, root: int = 0) -> Result:
        """Each rank gets its block of the root's `send`, which is ignored elsewhere. Without `recv`
        at the root, its block stays where it is."""
        reads, writes = self._sides(self._at_root(send, root, "send"), recv)
        side = writes or reads
        assert side
        count = _block(reads, "send", self.size) if reads else side.count
        if writes:
            _expect(writes, "recv", count)
        arguments = [_address(reads), _in_place(writes), count, side.type, _rank(root, "root")]
        return self._issue("scatter", arguments, [reads or side, side])

    def scatterv(
        self,
        send: Array,
        recv: Array,
        counts: Optional[Counts] = None,
        root: int = 0,
        at: Optional[Counts] = None,
    ) -> Result:
        """Scatter of blocks of different length; `counts` and `at` are used at the root."""
        reads, writes = self._sides(self._at_root(send, root, "send"), recv)
        lengths, places = self._root_blocks(reads, "send", counts, at)
        side = writes or reads
        assert side
        own = lengths[self.rank] if lengths else side.count
        if writes:
            _expect(writes, "recv", own)
        arguments = [_address(reads), _array(lengths), places, _in_place(writes), own]
        arguments += [side.type, _rank(root, "root")]
        return self._issue("scatterv", arguments, [reads or side, side])

    def alltoall(self, send: Array, recv: Array) -> Result:
        """Every rank sends one block to each rank. Without `send`, the blocks to send are in
        `recv`."""
        reads, writes = self._sides(send, recv)
        assert writes
        count = _block(writes, "recv", self.size)
        if reads:
            _expect(reads, "send", writes.count)
        arguments = [_in_place(reads), writes.address, count, writes.type]
        return self._issue("alltoall", arguments, [reads or writes, writes])

    def alltoallv(
        self,
        send: Array,
        recv: Array,
        recv_counts: Counts,
        send_counts: Optional[Counts] = None,
        recv_at: Optional[Counts] = None,
        send_at: Optional[Counts] = None,
    ) -> Result:
        """Alltoall of blocks of different length: send_counts[b] elements at send_at[b] go to rank
        b, whose recv_counts for this rank are the same. Without `send`, in place in `recv`."""
        reads, writes = self._sides(send, recv)
        assert writes
        lengths = self._counts(recv_counts, "recv_counts")
        places = self._blocks(writes, "recv", lengths, recv_at, "recv_at")
        sent, sent_places = None, None
        if reads:
            if send_counts is None:
                raise ArgumentError("send_counts is None; expected one count for each rank")
            sent = self._counts(send_counts, "send_counts")
            sent_places = self._blocks(reads, "send", sent, send_at, "send_at")
        arguments = [_in_place(reads), _array(sent), sent_places]
        arguments += [writes.address, _array(lengths), places, writes.type]
        return self._issue("alltoallv", arguments, [reads or writes, writes])

    def barrier(self) -> Result:
        """Ends on no rank before every rank has begun it."""
        return self._issue("barrier", [], [])

    # ---- Messages ----

    def send(self, buffer: Array, to: int) -> Result:
        """Sends the array to a rank, which receives as many bytes."""
        side = self._side(buffer, "buffer")
        return self._issue("send", [side.address, side.count, side.type, _rank(to, "to")], [side])

    def recv(self, buffer: Array, source: int) -> Result:
        """Receives the array from a rank."""
        side = self._side(buffer, "buffer", True)
        arguments = [side.address, side.count, side.type, _rank(source, "source")]
        return self._issue("recv", arguments, [side])

    def sendrecv(self, send: Array, to: int, recv: Array, source: int) -> Result:
        """Sends to one rank and receives from one, at the same time. The arrays must not
        overlap."""
        reads, writes = self._sides(send, recv)
        if not reads or not writes:
            raise ArgumentError("send or recv is None; a message is never in place")
        arguments = [reads.address, reads.count, _rank(to, "to"), writes.address, writes.count]
        arguments += [_rank(source, "source"), writes.type]
        return self._issue("sendrecv", arguments, [reads, writes])

    # ---- What rooted operations share ----

    def _at_root(self, array: Array, root: int, what: str) -> Array:
        if self.rank != root:
            return None
        if array is None:
            raise ArgumentError(f"{what} is None at the root")
        return array

    def _root_blocks(
        self, buffer: Optional[Buffer], what: str, counts: Optional[Counts], at: Optional[Counts]
    ) -> tuple[Optional[list[int]], Any]:
        if buffer is None:
            return None, None
        if counts is None:
            raise ArgumentError("counts is None at the root")
        lengths = self._counts(counts, "counts")
        return lengths, self._blocks(buffer, what, lengths, at, "at")


def _expect(buffer: Buffer, what: str, count: int) -> None:
    if buffer.count != count:
        raise ArgumentError(f"{what} has {buffer.count} elements; expected {count}")


def _block(buffer: Buffer, what: str, size: int) -> int:
    """Elements of one of `size` equal blocks."""
    if buffer.count % size:
        raise ArgumentError(
            f"{what} has {buffer.count} elements; expected a multiple of {size} ranks"
        )
    return buffer.count // size


def _address(buffer: Optional[Buffer]) -> Optional[int]:
    return buffer.address if buffer else None


def _in_place(buffer: Optional[Buffer]) -> Optional[int]:
    return buffer.address if buffer else IN_PLACE


def _array(values: Optional[list[int]]) -> Any:
    return (ctypes.c_size_t * len(values))(*values) if values is not None else None
