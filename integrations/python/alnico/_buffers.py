"""What a call needs to know of an array, whichever package it is of: describe().

The order matters: PyTorch's tensors and NumPy's arrays say more by themselves than by a protocol,
and DLPack makes its stream wait for the array where __cuda_array_interface__ only names one."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16
from ctypes import c_uint64, c_void_p, py_object
from typing import Any, Optional

from .errors import ArgumentError

# The numbers are those of alnico_datatype_t.
TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "bfloat16": 7,
    "float32": 8,
    "float64": 9,
    "float8_e4m3fn": 10,
    "float8_e5m2": 11,
}
BYTES = {name: int(name.split("_")[0].lstrip("abfilnotu")) // 8 for name in TYPES}
NAMES = {number: name for name, number in TYPES.items()}


class Buffer:
    """An array's memory. `keep` holds it for as long as the library uses it."""

    __slots__ = ("address", "count", "type", "writable", "device", "keep", "stream")

    def __init__(self, address: int, count: int, type: str, device: str, keep: object) -> None:
        if type not in TYPES:
            raise ArgumentError(f"elements of type {type}; expected one of {', '.join(TYPES)}")
        self.address, self.count, self.type = address, count, TYPES[type]
        self.device, self.keep = device, keep
        self.writable = True
        self.stream: Optional[int] = None  # the caller's current one, on a GPU, where it is known

    @property
    def bytes(self) -> int:
        return self.count * BYTES[NAMES[self.type]]


def _contiguous(shape: Any, strides: Any, unit: int) -> bool:
    """Whether elements lie one behind the other, the last index fastest; strides in units."""
    if strides is None or 0 in shape:
        return True
    for length, stride in zip(reversed(tuple(shape)), reversed(tuple(strides))):
        if length != 1 and stride != unit:
            return False
        unit *= length
    return True


def _check_contiguous(yes: bool) -> None:
    if not yes:
        raise ArgumentError("is not contiguous; expected elements one behind the other, in C order")


def _describe_torch(tensor: Any) -> Buffer:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"is a {tensor.layout} tensor on {tensor.device}")
    _check_contiguous(tensor.is_contiguous())
    name = _name_dtype(tensor.dtype)
    buffer = Buffer(tensor.data_ptr(), tensor.numel(), name, tensor.device.type, tensor)
    if buffer.device == "cuda":
        buffer.stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return buffer


def _describe_interface(array: Any, interface: dict[str, Any], device: str) -> Buffer:
    """__array_interface__ or __cuda_array_interface__. The type's name tells bfloat16."""
    dtype = getattr(array, "dtype", None)
    name = _name_dtype(dtype) if dtype is not None else _name_typestr(interface["typestr"])
    address, read_only = interface["data"]
    buffer = Buffer(address or 0, math.prod(interface["shape"]), name, device, array)
    unit = BYTES[name]
    _check_contiguous(_contiguous(interface["shape"], interface.get("strides"), unit))
    buffer.writable = not read_only
    return buffer


@functools.lru_cache(maxsize=64)
def _name_dtype(dtype: Any) -> str:
    """The last part of torch.float32; NumPy takes long for it."""
    return str(dtype).split(".")[-1]


def _name_typestr(typestr: str) -> str:
    kinds = {"i": "int", "u": "uint", "f": "float"}
    native = "<" if sys.byteorder == "little" else ">"
    if typestr[0] not in (native, "|") or typestr[1] not in kinds:
        return typestr
    return f"{kinds[typestr[1]]}{8 * int(typestr[2:])}"


def _describe_cuda(array: Any) -> Buffer:
    interface = array.__cuda_array_interface__
    buffer = _describe_interface(array, interface, "cuda")
    buffer.stream = interface.get("stream")
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        buffer.stream = cupy.cuda.get_current_stream().ptr
    return buffer


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_DL_CPU, _DL_CUDA = (1, 3), (2, 13)
_DL_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_DL_FLOAT8 = {10: "float8_e4m3fn", 12: "float8_e5m2"}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [py_object, c_char_p], c_void_p


def _dlpack_device(array: Any) -> str:
    kind = int(array.__dlpack_device__()[0])
    if kind not in _DL_CPU + _DL_CUDA:
        raise ArgumentError(f"is on device type {kind} of DLPack; expected a CPU or a CUDA device")
    return "cpu" if kind in _DL_CPU else "cuda"


def _describe_dlpack(array: Any, stream: Optional[int]) -> Buffer:
    """The capsule is not consumed: its destructor gives the memory back. On a GPU the array's
    package makes `stream` wait for the array; 1 is its word for the default stream. JAX 0.11 ends
    the process when it is asked to: the host waits for its arrays."""
    device = _dlpack_device(array)
    if type(array).__module__.startswith("jax"):
        capsule = array.block_until_ready().__dlpack__()
    else:
        capsule = array.__dlpack__(stream=stream or 1) if device == "cuda" else array.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    name = f"{_DL_CODES.get(tensor.code, f'code {tensor.code} of ')}{tensor.bits}"
    name = _DL_FLOAT8.get(tensor.code, name)
    if tensor.lanes != 1:
        name += f"x{tensor.lanes}"
    shape = tensor.shape[: tensor.ndim]
    buffer = Buffer(
        (tensor.data or 0) + tensor.byte_offset, math.prod(shape), name, device, (array, capsule)
    )
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    _check_contiguous(_contiguous(shape, strides, 1))
    buffer.writable = not type(array).__module__.startswith("jax")  # JAX's arrays never change
    return buffer


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


def _describe_memory(memory: memoryview) -> Buffer:
    """The buffer protocol. A view of the memory is held: a bytearray cannot be resized
    meanwhile."""
    _check_contiguous(memory.c_contiguous)
    kinds = dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQNc", "uint")
    kinds |= dict.fromkeys("efd", "float")
    sign = memory.format.lstrip("@=")
    name = f"{kinds[sign]}{8 * memory.itemsize}" if sign in kinds else memory.format
    view = _PyBuffer()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get(py_object(memory), ctypes.byref(view), 0)
    address = view.buf
    release(ctypes.byref(view))
    buffer = Buffer(address or 0, memory.nbytes // memory.itemsize, name, "cpu", memory)
    buffer.writable = not memory.readonly
    return buffer


def _view(array: object) -> Optional[memoryview]:
    try:
        return memoryview(array)  # type: ignore[arg-type]
    except TypeError:
        return None


def _describe(array: Any, stream: Optional[int]) -> Buffer:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _describe_torch(array)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict):
        return _describe_interface(array, interface, "cpu")
    jax = type(array).__module__.startswith("jax")
    if not jax and isinstance(getattr(array, "__cuda_array_interface__", None), dict):
        return _describe_cuda(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _describe_dlpack(array, stream)
    memory = _view(array)
    if memory is None:
        raise TypeError(
            f"is a {type(array).__name__}; expected an array with the buffer protocol, "
            "__cuda_array_interface__ or DLPack"
        )
    return _describe_memory(memory)


def describe(array: Any, what: str, stream: Optional[int] = None) -> Buffer:
    """The memory of `array`, which a call was passed as `what`. stream: which a DLPack array on a
    GPU must be ready for."""
    try:
        return _describe(array, stream)
    except (ArgumentError, TypeError) as error:
        raise type(error)(f"{what} {error}") from None
