"""Finds libalnico.so, declares its functions, and turns their statuses into exceptions."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_void_p

from ._version import __version__
from .errors import error_of

SIZES = POINTER(c_size_t)
HANDLE = POINTER(c_void_p)
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
IN_PLACE = ctypes.c_void_p(-1).value

# What each operation takes before the communicator: b buffer, n count, N counts of all ranks,
# i type, reduction or rank.
OPERATIONS = {
    "allreduce": "bbnii",
    "reduce": "bbniii",
    "broadcast": "bnii",
    "allgather": "bbni",
    "allgatherv": "bnbNNi",
    "reduce_scatter": "bbnii",
    "reduce_scatterv": "bbNii",
    "gather": "bbnii",
    "gatherv": "bnbNNii",
    "scatter": "bbnii",
    "scatterv": "bNNbnii",
    "alltoall": "bbni",
    "alltoallv": "bNNbNNi",
    "barrier": "",
    "broadcast_to": "bbnii",
    "send": "bnii",
    "recv": "bnii",
    "sendrecv": "bnibnii",
}
_TYPES = {"b": c_void_p, "n": c_size_t, "N": SIZES, "i": c_int}

class Limits(ctypes.Structure):
    """alnico_limits_t"""

    _fields_ = [("blocks", c_int), ("scratch", c_size_t)]


class CommMemory(ctypes.Structure):
    """alnico_comm_memory_t"""

    _fields_ = [(n, c_size_t) for n in ("host", "device", "shared", "scratch", "messages")]


# Functions that return a status.
_CALLS: dict[str, list[object]] = {
    "stream_create": [HANDLE],
    "stream_enqueue": [c_void_p, FUNCTION, c_void_p],
    "stream_synchronize": [c_void_p],
    "id_create": [c_char_p],
    "comm_create_id": [c_char_p, c_int, c_int, c_int, c_void_p, HANDLE],
    "comm_create_env": [c_int, c_void_p, HANDLE],
    "comm_duplicate": [c_void_p, c_void_p, HANDLE],
    "comm_split": [c_void_p, c_int, c_int, c_void_p, HANDLE],
    "comm_shrink": [c_void_p, c_void_p, HANDLE],
    "comm_set_stream": [c_void_p, c_void_p],
    "comm_abort": [c_void_p],
    "comm_status": [c_void_p],
    "comm_set_limits": [c_void_p, POINTER(Limits)],
    "comm_memory": [c_void_p, POINTER(CommMemory)],
    "comm_set_algorithm": [c_void_p, c_int, c_char_p],
    "memory_allocate": [c_int, c_size_t, HANDLE],
    "memory_free": [c_int, c_void_p],
    "comm_register": [c_void_p, c_void_p, c_size_t, HANDLE],
    "comm_register_local": [c_void_p, c_void_p, c_size_t, HANDLE],
    "comm_deregister": [c_void_p, c_void_p],
    "op_create_premultiplied_sum": [c_void_p, c_void_p, c_int, c_int, POINTER(c_int)],
    "op_destroy": [c_void_p, c_int],
    "group_begin": [c_void_p],
    "group_end": [c_void_p, HANDLE],
    "wait": [HANDLE],
    "test": [HANDLE, POINTER(c_bool)],
    "request_synchronize": [HANDLE],
    "synchronize": [c_void_p],
}


def _open() -> ctypes.CDLL:
    """DEEPBIND: the library finds the libraries that it is linked with, not others' versions."""
    named = os.environ.get("ALNICO_LIBRARY")
    beside = sorted(pathlib.Path(__file__).parent.glob("libalnico.so*"))
    system = "libalnico.so." + __version__.rsplit(".", 1)[0]
    path = named or (str(beside[0]) if beside else system)
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    except OSError as error:
        raise ImportError(f"alnico: {error}; ALNICO_LIBRARY says where libalnico.so is") from error


def _declare(library: ctypes.CDLL) -> None:
    def declare(name: str, arguments: list[object], result: object = c_int) -> None:
        function = getattr(library, "alnico_" + name)
        function.argtypes, function.restype = arguments, result

    for name, arguments in _CALLS.items():
        declare(name, arguments)
    for name, signs in OPERATIONS.items():
        arguments = [_TYPES[sign] for sign in signs] + [c_void_p]
        declare(name, arguments)
        declare("i" + name, arguments + [HANDLE])
    for name in ("comm_destroy", "stream_destroy"):
        declare(name, [c_void_p], None)
    for name in ("comm_rank", "comm_size"):
        declare(name, [c_void_p])
    for name in ("version", "error_detail"):
        declare(name, [], c_char_p)
    declare("status_string", [c_int], c_char_p)


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    loaded = _open()
    try:
        _declare(loaded)
    except AttributeError as error:
        raise ImportError(
            f"alnico: {loaded._name} is not libalnico.so {__version__}: {error}"
        ) from error
    version = loaded.alnico_version().decode()
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise ImportError(f"alnico: {loaded._name} has version {version}, expected {__version__}")
    return loaded


def call(name: str, *arguments: object) -> None:
    """Calls alnico_NAME, and raises what its status says. Other threads run meanwhile."""
    loaded = library()
    status = getattr(loaded, "alnico_" + name)(*arguments)
    if status != 0:
        short = loaded.alnico_status_string(status).decode()
        detail = loaded.alnico_error_detail().decode(errors="replace")
        raise error_of(status, detail or f"alnico_{name}: {short}")
