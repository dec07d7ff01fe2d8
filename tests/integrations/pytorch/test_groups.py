"""Groups, works, DistributedDataParallel and FSDP2 on the backend "alnico"; what is refused."""

import copy
import datetime
import time
import unittest

import torch
import torch.distributed as dist
from common import DEVICE, Case, main
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

SUM = dist.ReduceOp.SUM


def network(seed=1):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 3))


class Groups(Case):
    def sum_of_ranks(self, group, device=DEVICE):
        x = torch.full((4,), self.rank, dtype=torch.int64, device=device)
        dist.all_reduce(x, group=group)
        return x.tolist()[0]

    def test_new_group(self):
        """Of some ranks, in any order; the others get none."""
        for ranks in ([0], list(range(self.size))[1:] or [0], list(range(self.size))):
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.assertEqual(self.sum_of_ranks(group), sum(ranks))
                self.assertEqual(dist.get_backend(group), "alnico")
                dist.destroy_process_group(group)

    def test_split_and_shrink(self):
        """What torch.distributed.split_group and shrink_group call, without the device that they ask for."""
        group = dist.distributed_c10d._get_default_group()
        backend = group._get_backend(torch.device(DEVICE))
        self.assertTrue(backend.supports_splitting and backend.supports_shrinking)
        self.assertEqual(copy.deepcopy(backend.options)._timeout, backend.options._timeout)
        parts = [r for r in (range(0, self.size, 2), range(1, self.size, 2)) if len(r)]
        mine = list(parts[self.rank % 2])
        part = group.split_group(mine, timeout=datetime.timedelta(seconds=30))
        x = torch.full((4,), self.rank, dtype=torch.int64, device=DEVICE)
        part.allreduce([x]).wait()
        self.assertEqual((part.size(), x.tolist()[0]), (len(mine), sum(mine)))
        part.shutdown()
        if self.size > 1:
            smaller = dist.new_group()
            if self.rank:
                smaller = dist.shrink_group([0], smaller)
                self.assertEqual((smaller.rank(), smaller.size()), (self.rank - 1, self.size - 1))
                self.assertEqual(self.sum_of_ranks(smaller), sum(range(self.size)))
            dist.barrier()

    def test_works(self):
        x = torch.ones(100000, device=DEVICE)
        group = dist.distributed_c10d._get_default_group()
        group._enable_collectives_timing()
        work = dist.all_reduce(x, async_op=True)
        self.assertIs(work.wait(), True)
        while not work.is_completed():
            time.sleep(0.001)
        self.assertTrue(work.is_success())
        self.assertGreater(work._get_duration(), 0)
        future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2)
        doubled.wait()
        self.assertEqual(doubled.value()[0].item(), 2 * self.size**2)
        self.assertEqual(x[0].item(), self.size**2)
        # Nobody waits for these.
        for _ in range(100):
            dist.all_reduce(torch.ones(1000, device=DEVICE), async_op=True)
        dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20))
        self.assertEqual(x[0].item(), self.size**3)

    def test_many_in_flight(self):
        """Works are waited for in the order opposite to their start, beside messages."""
        works, sums, expected = [], [], []
        for i in range(50):
            sums.append(self.numbers(torch.int64, 1 + 977 * (i % 7)))
            expected.append(sums[-1].clone())
            dist.all_reduce(expected[-1], group=self.gloo)
            sums[-1] = sums[-1].to(DEVICE)
            works.append(dist.all_reduce(sums[-1], async_op=True))
            works.append(dist.isend(expected[-1].to(DEVICE) + i, (self.rank + 1) % self.size))
        for work in reversed(works[::2]):
            work.wait()
        self.same(sums, expected)
        for i, x in enumerate(expected):
            got = torch.zeros_like(x).to(DEVICE)
            dist.irecv(got, (self.rank - 1) % self.size).wait()
            self.same([got], [x + i])
        for work in reversed(works[1::2]):
            work.wait()

    def test_refused(self):
        x = torch.ones(4, 4, device=DEVICE)
        for text, error, function in (
            ("not contiguous", ValueError, lambda: dist.all_reduce(x[:, ::2])),
            ("Short cannot be reduced", TypeError, lambda: dist.all_reduce(x.to(torch.int16))),
            ("Bool have no average", TypeError, self.average_of_bools),
            ("sparse tensors can only be summed", ValueError, self.maximum_of_sparse),
            ("is Sparse; expected a dense", (ValueError, RuntimeError), self.broadcast_of_sparse),
            ("cannot be coalesced", ValueError, self.coalesced_sparse),
            ("recv from any rank", NotImplementedError, lambda: dist.recv(x)),
            ("complex tensors", TypeError, self.maximum_of_complex),
            ("tag 7", ValueError, lambda: dist.isend(x, (self.rank + 1) % self.size, tag=7)),
            (r"an output of \d+ elements", ValueError, self.short_output),
            ("bitwise", dist.DistBackendError, self.bits_of_floats),
        ):
            with self.assertRaisesRegex(error, text):
                function()
        if self.size > 1:
            with self.assertRaisesRegex(ValueError, "sparse dimensions on rank"):
                dist.all_reduce(torch.eye(3 + self.rank, device=DEVICE).to_sparse())
        dist.all_reduce(x)
        self.assertEqual(x[0, 0].item(), self.size)

    def average_of_bools(self):
        dist.all_reduce(torch.ones(2, dtype=torch.bool, device=DEVICE), dist.ReduceOp.AVG)

    def maximum_of_sparse(self):
        dist.all_reduce(torch.eye(3, device=DEVICE).to_sparse(), dist.ReduceOp.MAX)

    def broadcast_of_sparse(self):
        group = dist.distributed_c10d._get_default_group()
        x = torch.eye(3, device=DEVICE).to_sparse()
        group._get_backend(x.device).broadcast([x], dist.BroadcastOptions())

    def coalesced_sparse(self):
        group = dist.distributed_c10d._get_default_group()
        backend = group._get_backend(torch.device(DEVICE))
        backend._start_coalescing()
        try:
            backend.allreduce([torch.eye(3, device=DEVICE).to_sparse()])
        finally:
            backend._end_coalescing()

    def maximum_of_complex(self):
        x = torch.ones(2, dtype=torch.cfloat, device=DEVICE)
        group = dist.distributed_c10d._get_default_group()
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group._get_backend(x.device).allreduce([x], options)

    def short_output(self):
        x = torch.ones(16, device=DEVICE)
        group = dist.distributed_c10d._get_default_group()
        group._allgather_base(torch.zeros(16 if self.size > 1 else 17, device=DEVICE), x)

    def bits_of_floats(self):
        dist.all_reduce(torch.ones(2, device=DEVICE), dist.ReduceOp.BXOR)

    def train(self, model, parameters, steps=4):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
        generator = torch.Generator().manual_seed(7 + self.rank)
        for _ in range(steps):
            inputs, wanted = (torch.randn(8, n, generator=generator).to(DEVICE) for n in (20, 3))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
        return torch.cat([p.detach().cpu().flatten() for p in parameters(model)])

    def trained(self, group, **named):
        model = DistributedDataParallel(network().to(DEVICE), process_group=group, **named)
        return self.train(model, lambda model: model.parameters())

    def reference(self):
        """By gloo on the CPU, without DistributedDataParallel's buckets."""
        model = network()
        for parameter in model.parameters():
            parameter.register_hook(self.mean_by_gloo)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
        generator = torch.Generator().manual_seed(7 + self.rank)
        for _ in range(4):
            inputs, wanted = (torch.randn(8, n, generator=generator) for n in (20, 3))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    def mean_by_gloo(self, gradient):
        mean = gradient.clone()
        dist.all_reduce(mean, group=self.gloo)
        return mean / self.size

    def test_ddp(self):
        expected = self.reference()
        tolerance = 1e-5 if DEVICE == "cuda" else 1e-6
        for named in (
            {},
            {"bucket_cap_mb": 0.01},
            {"static_graph": True},
            {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01},
        ):
            got = self.trained(None, **named)
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)

    def test_ddp_with_sparse_gradients(self):
        torch.manual_seed(3)
        weights = torch.randn(10, 4)
        rows = torch.arange(self.rank, self.rank + 3)
        expected = torch.zeros(10, 4)
        expected[rows] = 1
        dist.all_reduce(expected, group=self.gloo)
        embedding = torch.nn.Embedding.from_pretrained(weights, freeze=False, sparse=True)
        model = DistributedDataParallel(embedding.to(DEVICE))
        model(rows.to(DEVICE)).sum().backward()
        got = embedding.weight.grad
        self.assertTrue(got.is_sparse)
        self.same([got.to_dense()], [expected / self.size])

    def test_fsdp2(self):
        expected = self.reference()
        mesh = dist.init_device_mesh(DEVICE, (self.size,))
        model = network().to(DEVICE)
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        whole = lambda model: [p.full_tensor() for p in model.parameters()]
        got = self.train(model, whole)
        tolerance = 1e-5 if DEVICE == "cuda" else 1e-6
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    main()
