"""PyTorch's NCCL backend on the drop-in: every collective of torch.distributed, groups, graphs, DDP, FSDP2 and ends, on a rank
for each of up to two GPUs. Started as torchrun does."""

import ctypes
import os
import sys
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPS = {
    dist.ReduceOp.SUM: lambda x: x.sum(0),
    dist.ReduceOp.PRODUCT: lambda x: x.prod(0),
    dist.ReduceOp.MAX: lambda x: x.amax(0),
    dist.ReduceOp.MIN: lambda x: x.amin(0),
}


def values(rank, count, dtype, seed=0):
    """What a rank has: 0 to 3, exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 4, (count,), generator=generator).to(dtype).cuda()


def everyone(count, dtype, seed=0):
    return torch.stack([values(r, count, dtype, seed) for r in range(SIZE)])


class Torch(unittest.TestCase):
    def same(self, found, expected):
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(found, expected.to(found.dtype)), f"{found} is not {expected}")

    def test_it_is_the_drop_in(self):
        self.assertTrue(hasattr(ctypes.CDLL(None), "alnico_nccl_dropin"))

    def test_reductions(self):
        for count in (1, 1000, 70001, 3000000):
            for dtype in INTEGERS + FLOATS:
                for op, combine in OPS.items():
                    expected = combine(everyone(count, dtype).double())
                    x = values(RANK, count, dtype)
                    dist.all_reduce(x, op)
                    self.same(x, expected)
        for root in range(SIZE):
            x = values(RANK, 999, torch.float32)
            dist.reduce(x, root)
            if RANK == root:
                self.same(x, everyone(999, torch.float32).sum(0))

    def test_averages_and_factors(self):
        x = values(RANK, 1000, torch.float32)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        self.same(x, everyone(1000, torch.float32).mean(0))
        for factor in (0.5, torch.tensor([0.25], device="cuda")):
            x = values(RANK, 1000, torch.float32)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            self.same(x, everyone(1000, torch.float32).sum(0) * float(factor))
            if SIZE == 1:  # PyTorch copies alone, without the factor, with any NCCL
                continue
            part = torch.empty(1000, device="cuda")
            dist.reduce_scatter_tensor(part, values(RANK, SIZE * 1000, torch.float32), dist._make_nccl_premul_sum(factor))
            all = everyone(SIZE * 1000, torch.float32).sum(0) * float(factor)
            self.same(part, all[RANK * 1000 :][:1000])

    def test_captured_factors(self):
        factor, start = torch.ones(1, device="cuda"), values(RANK, 5000, torch.float32)
        sum, x = dist._make_nccl_premul_sum(factor), torch.empty(5000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.copy_(start)
            dist.all_reduce(x, sum)
        for value in (2, 0.5):  # each replay reads it anew
            factor.fill_(value)
            graph.replay()
            self.same(x, everyone(5000, torch.float32).sum(0) * value)
        del graph
        torch.cuda.synchronize()

    def test_gathers_and_scatters(self):
        for dtype in INTEGERS + FLOATS:
            mine, all = values(RANK, 777, dtype), everyone(777, dtype)
            out = torch.empty(SIZE * 777, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(out, mine)
            self.same(out, all.flatten())
            parts = [torch.empty_like(mine) for _ in range(SIZE)]
            dist.all_gather(parts, mine)
            self.same(torch.stack(parts), all)
            big = everyone(SIZE * 500, dtype)
            out = torch.empty(500, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(out, values(RANK, SIZE * 500, dtype))
            self.same(out, big.double().sum(0)[RANK * 500 :][:500])
            for root in range(SIZE):
                got = [torch.empty_like(mine) for _ in range(SIZE)] if RANK == root else None
                dist.gather(mine, got, root)
                if RANK == root:
                    self.same(torch.stack(got), all)
                out = torch.empty_like(mine)
                dist.scatter(out, list(all) if RANK == root else None, root)
                self.same(out, all[RANK])
                x = mine.clone()
                dist.broadcast(x, root)
                self.same(x, all[root])

    def test_all_to_all(self):
        sizes = [[3 * (a + 1) + b for b in range(SIZE)] for a in range(SIZE)]
        mine = torch.arange(sum(sizes[RANK]), device="cuda") + 100 * RANK
        out = torch.empty(sum(sizes[r][RANK] for r in range(SIZE)), dtype=mine.dtype, device="cuda")
        dist.all_to_all_single(out, mine, [sizes[r][RANK] for r in range(SIZE)], sizes[RANK])
        expected = []
        for r in range(SIZE):
            begin = sum(sizes[r][:RANK])
            expected.append(torch.arange(begin, begin + sizes[r][RANK], device="cuda") + 100 * r)
        self.same(out, torch.cat(expected))
        equal, out = values(RANK, SIZE * 64, torch.float32), torch.empty(SIZE * 64, device="cuda")
        dist.all_to_all_single(out, equal)
        self.same(out, everyone(SIZE * 64, torch.float32).view(SIZE, SIZE, 64)[:, RANK].flatten())

    def test_messages(self):
        to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        out = torch.empty(12345, device="cuda")
        ops = [
            dist.P2POp(dist.isend, values(RANK, 12345, torch.float32), to),
            dist.P2POp(dist.irecv, out, source),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        self.same(out, values(source, 12345, torch.float32))
        if SIZE > 1:
            if RANK == 0:
                dist.send(out, 1)
            elif RANK == 1:
                dist.recv(out, 0)
                self.same(out, values(SIZE - 1, 12345, torch.float32))

    def test_coalesced(self):
        xs = [values(RANK, 100 + i, torch.float32, i) for i in range(20)]
        with dist._coalescing_manager(device=torch.device("cuda"), async_ops=True) as manager:
            for x in xs:
                dist.all_reduce(x)
        manager.wait()
        for i, x in enumerate(xs):
            self.same(x, everyone(100 + i, torch.float32, i).sum(0))
        outs = [torch.empty(SIZE * 64, device="cuda") for _ in range(4)]
        with dist._coalescing_manager(device=torch.device("cuda")):
            for i, out in enumerate(outs):
                dist.all_gather_into_tensor(out, values(RANK, 64, torch.float32, i))
        for i, out in enumerate(outs):
            self.same(out, everyone(64, torch.float32, i).flatten())

    def test_groups(self):
        alone = [dist.new_group([r]) for r in range(SIZE)]
        x = values(RANK, 10, torch.float32)
        dist.all_reduce(x, group=alone[RANK])
        self.same(x, values(RANK, 10, torch.float32))
        both = dist.new_group(list(range(SIZE)))
        dist.all_reduce(x, group=both)
        self.same(x, everyone(10, torch.float32).sum(0))
        part = dist.split_group(split_ranks=[list(range(SIZE))]) if hasattr(dist, "split_group") else None
        if part is not None:
            x = values(RANK, 10, torch.float32)
            dist.all_reduce(x, group=part)
            self.same(x, everyone(10, torch.float32).sum(0))
            dist.destroy_process_group(part)
        dist.destroy_process_group(both)

    def test_streams_and_graphs(self):
        for count in (2, 2048, 16384, 300000):
            x, start = torch.empty(count, device="cuda"), values(RANK, count, torch.float32)
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                x.copy_(start)
                dist.all_reduce(x)
            side.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x.copy_(start)
                dist.all_reduce(x)
                dist.all_reduce(x)
            for _ in range(5):
                graph.replay()
            self.same(x, everyone(count, torch.float32).sum(0) * SIZE)
            del graph
            torch.cuda.synchronize()

    def test_symmetric_registration(self):
        group = dist.group.WORLD._get_backend(torch.device("cuda"))
        try:
            allocator = group.mem_allocator
        except (AttributeError, RuntimeError) as error:  # as without the drop-in, where the GPU has no multicast
            self.skipTest(f"no memory pools of NCCL here: {error}")
        pool = torch.cuda.MemPool(allocator)
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(1 << 20, device="cuda")
        group.register_mem_pool(pool)
        dist.all_reduce(x)
        self.same(x, torch.full_like(x, SIZE))
        group.deregister_mem_pool(pool)

    def test_data_parallel(self):
        torch.manual_seed(3)
        whole = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
        torch.manual_seed(3)
        parts = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
        parallel = torch.nn.parallel.DistributedDataParallel(parts, device_ids=[torch.cuda.current_device()])
        data = torch.randn(SIZE * 16, 32, generator=torch.Generator().manual_seed(5)).cuda()
        for model, batch in ((whole, data), (parallel, data[RANK * 16 :][:16])):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(5):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        for a, b in zip(whole.parameters(), parts.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

    def test_fully_sharded(self):
        from torch.distributed.fsdp import fully_shard

        losses = []
        for sharded in (False, True):
            torch.manual_seed(4)
            model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).cuda()
            if sharded:
                fully_shard(model)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            data = torch.randn(32, 64, generator=torch.Generator().manual_seed(6)).cuda()
            for _ in range(4):
                optimizer.zero_grad()
                loss = model(data).square().mean()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        self.assertAlmostEqual(*losses, places=5)


if __name__ == "__main__":
    torch.cuda.set_device(RANK % torch.cuda.device_count())
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    ended = unittest.main(exit=False, verbosity=2 if RANK == 0 else 1)
    dist.destroy_process_group()
    sys.exit(not ended.result.wasSuccessful())
