"""On GPUs: collectives in CUDA graphs, streams of the program, and the time of a captured all_reduce beside
NCCL's, which is printed."""

import statistics
import time
import unittest

import torch
import torch.distributed as dist
from common import Case, main


class Gpu(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        default = dist.distributed_c10d._get_default_group()
        device, default.bound_device_id = default.bound_device_id, None  # else PyTorch splits it off "alnico"
        cls.nccl = dist.new_group(backend="nccl")
        default.bound_device_id = device

    def captured(self, function, repeats=1):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                function()
        return graph

    def test_graphs(self):
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        x = torch.zeros(1000, device="cuda")
        out, got = torch.zeros(self.size * 1000, device="cuda"), torch.zeros_like(x)

        def step():
            works = [dist.all_reduce(x, async_op=True)]
            works[0].wait()
            dist.all_gather_into_tensor(out, x)
            ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, got, left)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        graph = self.captured(step)
        for round in range(3):
            x.fill_(self.rank + round)
            graph.replay()
            expected = sum(range(self.size)) + self.size * round
            for tensor in (x, out, got):
                self.assertTrue((tensor == expected).all().item())
        dist.all_reduce(x)  # beside graphs
        self.assertEqual(x[0].item(), self.size * expected)

    def test_streams(self):
        """Tensors whose works nobody waits for, freed at once, beside kernels on other streams."""
        side = torch.cuda.Stream()
        for i in range(50):
            with torch.cuda.stream(side):
                x = torch.full((1 << 20,), float(i), device="cuda")
                work = dist.all_reduce(x, async_op=True)
                dist.all_reduce(torch.ones(1 << 20, device="cuda"), async_op=True)
                torch.cuda._sleep(10000)
                work.wait()
                self.assertTrue((x == i * self.size).all().item())

    def test_as_nccl(self):
        for type in (torch.int32, torch.float32, torch.bfloat16):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
                x = self.numbers(type, 12345).cuda()
                y = x.clone()
                dist.all_reduce(x, op)
                dist.all_reduce(y, op, self.nccl)
                self.same([x], [y.cpu()], (type, op))

    def test_memory(self):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
        device = torch.device("cuda", torch.cuda.current_device())
        x = backend.allocate_tensor(1000, dtype=torch.float32, device=device)
        x.fill_(1)
        dist.all_reduce(x)
        self.assertTrue((x == self.size).all().item())

    def test_memory_that_a_stream_still_reads(self):
        """It is neither given out again nor freed when its tensor ends."""
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
        device, side = torch.device("cuda", torch.cuda.current_device()), torch.cuda.Stream()
        make = lambda: backend.allocate_tensor(1 << 20, dtype=torch.float32, device=device)
        x = make().fill_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1 << 28)
            y = x * 2
        x.record_stream(side)
        del x
        others = [make().fill_(5) for _ in range(4)]
        torch.cuda.synchronize()
        self.assertTrue((y == 2).all().item())
        del others
        torch.cuda.empty_cache()

    def test_memory_pool(self):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(1000, device="cuda")
        dist.all_reduce(x)
        self.assertTrue((x == self.size).all().item())
        del x

    def test_split_group(self):
        part = dist.split_group(split_ranks=[list(range(self.size))])
        x = torch.ones(5, device="cuda")
        dist.all_reduce(x, group=part)
        self.assertEqual(x[0].item(), self.size)
        dist.destroy_process_group(part)

    def time(self, graph, repeats):
        samples = []
        for _ in range(20):
            dist.barrier(group=self.gloo)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - begin) / repeats * 1e6)
        return statistics.median(samples)

    def test_time_of_a_captured_allreduce(self):
        for bytes in (8, 512, 8192, 65536, 1 << 20):
            x = torch.zeros(bytes // 4, device="cuda")
            times = {}
            for name, group in (("alnico", None), ("nccl", self.nccl)):
                dist.all_reduce(x, group=group)
                graph = self.captured(lambda: dist.all_reduce(x, group=group), 100)
                self.time(graph, 100)
                times[name] = self.time(graph, 100)
                del graph
            if self.rank == 0:
                line = " ".join(f"{name} {us:.2f} us" for name, us in times.items())
                print(f"{line} at {bytes} bytes, {times['alnico'] / times['nccl']:.2f}", flush=True)


if __name__ == "__main__":
    main()
