"""Memory that ranks can share. Without a GPU PyTorch's caching allocator is made up: a tensor on a GPU must
come from it, since it alone knows the streams that still use what is freed."""

import contextlib
import ctypes
import unittest
from unittest import mock

import alnico_torch.memory
import torch
import torch.distributed as dist
from alnico_torch import _C
from common import Case, main


class Caching:
    """What alnico_torch.memory uses of torch.cuda."""

    def __init__(self):
        self.allocators, self.entered, self.used = [], [], None

    def MemPool(self, allocator):
        self.allocators.append(allocator)
        return f"pool {len(self.allocators)}"

    @contextlib.contextmanager
    def use_mem_pool(self, pool, device):
        self.used = (pool, device)
        yield
        self.used = None

    def device(self, index):
        return contextlib.nullcontext()

    def empty(self, size, dtype, device):
        self.entered.append((self.used, size, dtype, device))
        return torch.zeros(size, dtype=dtype)


class Memory(Case):
    def backend(self):
        return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))

    def test_cpu(self):
        for size in (0, 1000):
            x = self.backend().allocate_tensor(size, dtype=torch.float32, device=torch.device("cpu"))
            x.fill_(1)
            dist.all_reduce(x)
            self.assertTrue((x == self.size).all().item())
        self.assertEqual(x.data_ptr() % 64, 0)

    def test_gpu_by_the_caching_allocator(self):
        caching, memory = Caching(), alnico_torch.memory
        with contextlib.ExitStack() as stack:
            for at, name, value in (
                (torch.cuda, "MemPool", caching.MemPool),
                (torch.cuda, "use_mem_pool", caching.use_mem_pool),
                (torch.cuda, "device", caching.device),
                (torch._C, "_cuda_customAllocator", lambda *functions: functions),
            ):
                stack.enter_context(mock.patch.object(at, name, value, create=True))
            stack.enter_context(mock.patch.object(memory, "torch", self.made_up(caching)))
            stack.enter_context(mock.patch.object(memory, "_pools", {}))
            stack.callback(memory.allocator.cache_clear)
            memory.allocator.cache_clear()
            for index in (0, 1, 0):
                device = torch.device("cuda", index)
                x = self.backend().allocate_tensor(7, dtype=torch.int32, device=device)
                self.assertEqual((x.numel(), x.dtype), (7, torch.int32))
                used = ("pool 1" if index == 0 else "pool 2", index)
                self.assertEqual(caching.entered.pop(), (used, 7, torch.int32, device))
            functions = _C.memory_functions()
            self.assertEqual(caching.allocators, [functions, functions])
            self.assertEqual(self.backend().mem_allocator, functions)

    def made_up(self, caching):
        names = {"cuda": torch.cuda, "_C": torch._C, "device": torch.device, "empty": caching.empty}
        return mock.Mock(**names)

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_no_gpu(self):
        """The allocator says so by NULL; no exception leaves a function that C calls."""
        allocate, free = _C.memory_functions()
        size = ctypes.c_size_t
        pointer, number = ctypes.c_void_p, ctypes.c_int
        allocate = ctypes.CFUNCTYPE(pointer, size, number, pointer)(allocate)
        self.assertIsNone(allocate(1000, 0, None))
        ctypes.CFUNCTYPE(None, pointer, size, number, pointer)(free)(None, 0, 0, None)


if __name__ == "__main__":
    main()
