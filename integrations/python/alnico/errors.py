"""One exception for each status of alnico.h; its text is the library's detail."""

from __future__ import annotations


class AlnicoError(RuntimeError):
    """A call failed. `status` is the number that alnico.h gives the error."""

    status = 0


class ArgumentError(AlnicoError, ValueError):
    """An argument is invalid; nothing was done."""

    status = -1


class OutOfMemoryError(AlnicoError, MemoryError):
    """Memory could not be allocated."""

    status = -2


class UnsupportedError(AlnicoError):
    """Valid, but this build or machine cannot do it."""

    status = -3


class DeadlineError(AlnicoError, TimeoutError):
    """A rank did not come before the deadline, or its process ended."""

    status = -4


class AbortedError(AlnicoError):
    """The communicator was aborted, here or by another rank."""

    status = -5


class MismatchError(AlnicoError):
    """Ranks called different operations or sizes."""

    status = -6


class MpiError(AlnicoError):
    """MPI reported an error."""

    status = -7


class SystemCallError(AlnicoError, OSError):
    """The operating system refused something."""

    status = -8


_BY_STATUS: dict[int, type[AlnicoError]] = {
    error.status: error for error in AlnicoError.__subclasses__()
}


def error_of(status: int, text: str) -> AlnicoError:
    """The exception for a status other than success."""
    return _BY_STATUS.get(status, AlnicoError)(text)
