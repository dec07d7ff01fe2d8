"""Memory that can be registered wherever the machine lets ranks share any."""

from __future__ import annotations

import ctypes
from typing import Any

from ._library import call
from .communicator import DEVICES
from .errors import ArgumentError
from .operations import _size


class Memory:
    """Bytes of the library's, for NumPy, or with device "cuda" for CuPy, PyTorch and JAX:

        gradient = numpy.asarray(alnico.Memory(4 * 1000)).view("float32")
        weights = torch.as_tensor(alnico.Memory(4 * 1000, "cuda"), device="cuda").view(torch.float32)
        registration = comm.register(weights)

    It is freed with the last array that stands on it. On a GPU nothing may run on it then.
    """

    def __init__(self, bytes: int, device: str = "cpu") -> None:
        self._address = None
        if device not in DEVICES:
            raise ArgumentError(f"device is {device!r}; expected one of {', '.join(DEVICES)}")
        address = ctypes.c_void_p()
        self._device, self.bytes = DEVICES.index(device), _size(bytes, "bytes")
        call("memory_allocate", self._device, self.bytes, ctypes.byref(address))
        self._address = address.value

    def _interface(self, device: str, version: int) -> dict[str, Any]:
        if DEVICES[self._device] != device:
            raise AttributeError(f"the memory is on {DEVICES[self._device]}")
        data = (self._address, False)
        return {"shape": (self.bytes,), "typestr": "|u1", "data": data, "version": version}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._interface("cpu", 3)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._interface("cuda", 3)

    def __del__(self) -> None:
        if self._address is not None:
            call("memory_free", self._device, self._address)
