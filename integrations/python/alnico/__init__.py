"""Asynchronous collectives for training deep networks.

    import alnico, numpy

    with alnico.Communicator() as comm:  # of mpirun, srun or torchrun
        gradient = numpy.array([1, 2, comm.rank], numpy.float32)
        comm.allreduce(gradient, op="average")

The package calls libalnico.so through ctypes: the file that ALNICO_LIBRARY names, one beside the
package, or the system's. Buffers are anything with the buffer protocol, __cuda_array_interface__ or
DLPack: NumPy, CuPy, PyTorch and JAX arrays. What every operation does is said in alnico.h.
"""

from ._version import __version__
from .communicator import Communicator, Registration, Request, create_id
from .errors import (
    AbortedError,
    AlnicoError,
    ArgumentError,
    DeadlineError,
    MismatchError,
    MpiError,
    OutOfMemoryError,
    SystemCallError,
    UnsupportedError,
)
from .memory import Memory
from .operations import Op, Operations, PremultipliedSum
from .stream import Stream

__all__ = [
    "AbortedError",
    "AlnicoError",
    "ArgumentError",
    "Communicator",
    "DeadlineError",
    "Memory",
    "MismatchError",
    "MpiError",
    "Op",
    "Operations",
    "OutOfMemoryError",
    "PremultipliedSum",
    "Registration",
    "Request",
    "Stream",
    "SystemCallError",
    "UnsupportedError",
    "__version__",
    "create_id",
]
