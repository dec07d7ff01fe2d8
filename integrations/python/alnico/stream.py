"""CPU streams: queues of functions with a thread of their own."""

from __future__ import annotations

import atexit
import ctypes
import itertools
from typing import Callable

from ._library import FUNCTION, call, library
from .errors import ArgumentError

_numbers = itertools.count(1)
_queued: dict[int, Callable[[], object]] = {}  # by number, until they have run


def _run_queued(number: int) -> None:
    _queued.pop(number)()


_run = FUNCTION(_run_queued)


class Stream:
    """A first-in first-out queue of functions with one worker thread. Communicators on the CPU
    order their operations by it, and their calls return at once.

        with alnico.Stream() as stream, alnico.Communicator(stream=stream) as comm:
            comm.allreduce(gradient)
            stream.enqueue(lambda: update(gradient))
            stream.synchronize()
    """

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        call("stream_create", ctypes.byref(handle))
        self._handle = handle.value
        self._users = 0  # communicators that are open on it
        _streams.add(self)

    @property
    def handle(self) -> int:
        """The alnico_stream_t."""
        if self._handle is None:
            raise ArgumentError("the stream is closed")
        return self._handle

    def enqueue(self, function: Callable[[], object]) -> None:
        """Appends a function; the worker calls it after everything enqueued before. It must not
        call on communicators of this stream. An exception of it is printed. Any thread."""
        handle, number = self.handle, next(_numbers)
        _queued[number] = function
        try:
            call("stream_enqueue", handle, _run, number)
        except BaseException:
            _queued.pop(number, None)
            raise

    def synchronize(self) -> None:
        """Blocks until everything enqueued so far has run."""
        call("stream_synchronize", self.handle)

    def close(self) -> None:
        """Runs what is still queued and ends the worker. The stream's communicators must be closed
        before. Closing again does nothing."""
        if self._users:
            raise ArgumentError(f"the stream has {self._users} open communicators")
        handle, self._handle = self._handle, None
        _streams.discard(self)
        if handle is not None:
            library().alnico_stream_destroy(handle)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_streams: set[Stream] = set()  # that are open


@atexit.register
def _finish() -> None:
    """No worker calls a function of an interpreter that has ended."""
    for stream in list(_streams):
        stream.synchronize()
