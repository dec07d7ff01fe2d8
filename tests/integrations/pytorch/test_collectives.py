"""Every collective of torch.distributed against gloo, blocking and asynchronous, and by coalescing."""

import unittest

import torch
import torch.distributed as dist
from common import DEVICE, Case, main

INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64]
TYPES = INTEGERS + FLOATS + [torch.float16, torch.bfloat16]
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def wait(work):
    if work is not None:
        work.wait()


class Collectives(Case):
    def both(self, function, *tensors, text=None):
        """function(group, tensors, async_op) returns the tensors that it has written, and a work or
        None."""
        copies = [[tensor.clone() for tensor in tensors] for _ in range(3)]
        expected, work = function(self.gloo, copies[0], False)
        for asynchronous in (False, True):
            on_device = [tensor.to(DEVICE) for tensor in copies[1 + asynchronous]]
            got, work = function(None, on_device, asynchronous)
            self.assertEqual(work is None, not asynchronous, text)
            wait(work)
            self.same(got, expected, text)

    def test_allreduce(self):
        def allreduce(group, tensors, asynchronous):
            return tensors, dist.all_reduce(tensors[0], op, group, asynchronous)

        for name in OPS:
            for type in TYPES:
                if name[0] == "B" and type not in INTEGERS:
                    continue
                op = getattr(dist.ReduceOp, name)
                for count in (1, 7, 5000):
                    self.both(allreduce, self.numbers(type, count), text=(name, type, count))
        op = dist.ReduceOp.SUM
        self.both(allreduce, self.numbers(torch.float32, 4, 3).t(), text="transposed")
        self.both(allreduce, self.numbers(torch.float32, 0), text="empty")

    def test_allreduce_as_no_other(self):
        """What gloo cannot: averages, sums times a factor, and truth values as NCCL has them."""
        x = self.numbers(torch.float32, 33).to(DEVICE)
        sum, mean = x.clone(), x.clone()
        dist.all_reduce(sum)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        torch.testing.assert_close(mean, sum / self.size)
        third = x.clone()
        dist.all_reduce(third, dist._make_nccl_premul_sum(1 / 3))
        torch.testing.assert_close(third, sum / 3)
        complex = torch.complex(x, 2 * x)
        dist.all_reduce(complex)
        torch.testing.assert_close(complex, torch.complex(sum, 2 * sum))
        for type in (torch.float8_e4m3fn, torch.float8_e5m2):
            small = torch.ones(33).to(type).to(DEVICE)
            dist.all_reduce(small)
            self.assertTrue((small.float() == self.size).all(), type)
        truth = torch.tensor([False, True, self.rank == 0]).to(DEVICE)
        for op, expected in (
            (dist.ReduceOp.SUM, [False, True, True]),
            (dist.ReduceOp.PRODUCT, [False, True, self.size == 1]),
        ):
            got = truth.clone()
            dist.all_reduce(got, op)
            self.assertEqual(got.tolist(), expected)

    def test_allreduce_of_sparse_tensors(self):
        """Entries that several ranks have, that one has twice, of ranks that have none, of rows."""
        for type in FLOATS + [torch.int64]:
            for count, row in ((0, ()), (5, ()), (9, (3,)), (1 + self.rank, (2, 2))):
                for mine in (count, count if self.rank == 0 else 0):
                    sizes = (4, 6)[: 1 + (not row)] + row
                    at = [self.numbers(torch.int64, 20)[:mine] % n for n in sizes[: 1 + (not row)]]
                    values = self.numbers(type, 20, *row)[:mine]
                    x = torch.sparse_coo_tensor(torch.stack(at), values, sizes)
                    expected = x.to_dense()
                    dist.all_reduce(expected, group=self.gloo)
                    for asynchronous in (False, True):
                        got = x.clone().to(DEVICE)
                        wait(dist.all_reduce(got, async_op=asynchronous))
                        self.assertTrue(got.is_sparse and got.is_coalesced())
                        self.same([got.to_dense()], [expected], (type, row, mine))

    def test_broadcast_and_reduce(self):
        for root in range(self.size):

            def broadcast(group, tensors, asynchronous):
                return tensors, dist.broadcast(tensors[0], root, group, asynchronous)

            def reduce(group, tensors, asynchronous):
                work = dist.reduce(tensors[0], root, dist.ReduceOp.SUM, group, asynchronous)
                wait(work)
                return tensors if self.rank == root else [], work

            for type in TYPES:
                self.both(broadcast, self.numbers(type, 3, 50), text=(root, type))
                self.both(reduce, self.numbers(type, 40), text=(root, type))
            self.both(broadcast, self.numbers(torch.bool, 9), text="bool")

    def test_allgather(self):
        def into_list(group, tensors, asynchronous):
            out = [torch.zeros_like(tensors[0]) for _ in range(self.size)]
            return out, dist.all_gather(out, tensors[0], group, asynchronous)

        def into_views(group, tensors, asynchronous):
            whole = torch.zeros(self.size, *tensors[0].shape, dtype=tensors[0].dtype)
            whole = whole.to(tensors[0].device)
            return [whole], dist.all_gather(list(whole), tensors[0], group, asynchronous)

        def into_tensor(group, tensors, asynchronous):
            out = torch.zeros(self.size * tensors[0].numel(), dtype=tensors[0].dtype)
            out = out.to(tensors[0].device)
            flat = tensors[0].reshape(-1)
            return [out], dist.all_gather_into_tensor(out, flat, group, asynchronous)

        for type in TYPES + [torch.bool]:
            for function in (into_list, into_views, into_tensor):
                self.both(function, self.numbers(type, 5, 3), text=(function.__name__, type))

    def test_allgather_of_different_sizes(self):
        mine = torch.full((self.rank + 1, 2), self.rank, device=DEVICE)
        out = [torch.zeros(r + 1, 2, dtype=torch.int64, device=DEVICE) for r in range(self.size)]
        dist.all_gather(out, mine)
        self.same(out, [torch.full((r + 1, 2), r) for r in range(self.size)])

    def test_gather_and_scatter(self):
        for root in range(self.size):

            def gather(group, tensors, asynchronous):
                out = [torch.zeros_like(tensors[0]) for _ in range(self.size)]
                mine = out if self.rank == root else None
                work = dist.gather(tensors[0], mine, root, group, asynchronous)
                wait(work)
                return mine or [], work

            def scatter(group, tensors, asynchronous):
                out = torch.zeros_like(tensors[0])
                blocks = list(tensors) if self.rank == root else None
                work = dist.scatter(out, blocks, root, group, asynchronous)
                return [out], work

            for type in TYPES:
                self.both(gather, self.numbers(type, 2, 7), text=(root, type))
                blocks = [self.numbers(type, 2, 7) for _ in range(self.size)]
                self.both(scatter, *blocks, text=(root, type))

    def test_reduce_scatter(self):
        def of_list(group, tensors, asynchronous):
            out = torch.zeros_like(tensors[self.rank])
            return [out], dist.reduce_scatter(out, tensors, op, group, asynchronous)

        def of_tensor(group, tensors, asynchronous):
            out = torch.zeros_like(tensors[0])
            whole = torch.cat(tensors)
            return [out], dist.reduce_scatter_tensor(out, whole, op, group, asynchronous)

        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            for type in TYPES:
                blocks = [self.numbers(type, 4, 3) for _ in range(self.size)]
                for function in (of_list, of_tensor):
                    self.both(function, *blocks, text=(function.__name__, type))
        out = torch.zeros(self.rank + 1, device=DEVICE)
        parts = [torch.full((r + 1,), r + 1.0, device=DEVICE) for r in range(self.size)]
        dist.reduce_scatter(out, parts)
        self.same([out], [torch.full((self.rank + 1,), (self.rank + 1.0) * self.size)])
        whole = torch.arange(2.0 * self.size, device=DEVICE)
        half = torch.zeros(2, device=DEVICE)
        dist.reduce_scatter_tensor(half, whole, dist._make_nccl_premul_sum(0.5))
        self.same([half], [torch.arange(2.0) * self.size / 2 + self.rank * self.size])

    def test_alltoall(self):
        def single(group, tensors, asynchronous):
            out = torch.zeros_like(tensors[0])
            return [out], dist.all_to_all_single(out, tensors[0], group=group, async_op=asynchronous)

        def uneven(group, tensors, asynchronous):
            # Rank r sends r + s + 1 rows to rank s.
            rows = [self.rank + s + 1 for s in range(self.size)]
            sent = tensors[0][: sum(rows)]
            out = torch.zeros_like(sent)
            work = dist.all_to_all_single(out, sent, rows, rows, group, asynchronous)
            return [out], work

        for type in TYPES:
            self.both(single, self.numbers(type, 2 * self.size, 3), text=type)
            rows = sum(self.rank + s + 1 for s in range(self.size))
            self.both(uneven, self.numbers(type, self.size * 2 * self.size, 3)[:rows], text=type)

    def test_alltoall_of_lists(self):
        sent = [torch.full((s + 1,), 10 * self.rank + s, device=DEVICE) for s in range(self.size)]
        got = [torch.zeros(self.rank + 1, dtype=torch.int64, device=DEVICE) for _ in sent]
        dist.all_to_all(got, sent)
        expected = [torch.full((self.rank + 1,), 10 * r + self.rank) for r in range(self.size)]
        self.same(got, expected)

    def test_messages(self):
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for type in TYPES:
            for count in (1, 100, 300000):
                x = self.numbers(type, count).to(DEVICE)
                expected = [torch.zeros(count, dtype=type) for _ in range(self.size)]
                dist.all_gather(expected, x.cpu(), group=self.gloo)
                got = torch.zeros_like(x)
                # Each sends first, and each receives first.
                for first, second in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
                    places = {dist.isend: (x, right), dist.irecv: (got, left)}
                    works = [function(*places[function]) for function in (first, second)]
                    for work in works:
                        work.wait()
                    self.same([got], [expected[left]], (type, count))
                    got.zero_()
                ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, got, left)]
                for work in dist.batch_isend_irecv(ops):
                    work.wait()
                self.same([got], [expected[left]], (type, count))
        if self.size > 1 and self.rank < 2:
            pair = torch.full((3,), self.rank, device=DEVICE)
            if self.rank == 0:
                dist.send(pair, 1)
            else:
                self.assertEqual(dist.recv(pair, 0), 0)
                self.assertEqual(pair.tolist(), [0, 0, 0])

    def test_coalescing(self):
        xs = [self.numbers(torch.float32, n).to(DEVICE) for n in (3, 200, 40000)]
        sums = [x.clone() for x in xs]
        outs = [torch.zeros(self.size * x.numel(), device=DEVICE) for x in xs]
        whole = [x.repeat(self.size) for x in xs]
        parts = [torch.zeros_like(x) for x in xs]
        groups = (
            ([(dist.all_reduce, (x,)) for x in sums]),
            ([(dist.all_gather_into_tensor, (out, x)) for out, x in zip(outs, xs)]),
            ([(dist.reduce_scatter_tensor, (p, w)) for p, w in zip(parts, whole)]),
        )
        for calls in groups:
            for asynchronous in (False, True):
                for x, sum in zip(xs, sums if calls is groups[0] else ()):
                    sum.copy_(x)
                with dist._coalescing_manager(async_ops=asynchronous) as manager:
                    for function, arguments in calls:
                        function(*arguments)
                if asynchronous:
                    manager.wait()
        for x, sum, out, part in zip(xs, sums, outs, parts):
            expected = x.cpu().clone()
            dist.all_reduce(expected, group=self.gloo)
            self.same([sum, part], [expected, expected])
            gathered = [torch.zeros(x.numel()) for _ in range(self.size)]
            dist.all_gather(gathered, x.cpu(), group=self.gloo)
            self.same([out], [torch.cat(gathered)])

    def test_coalescing_of_all_kinds(self):
        """By the device: any operations become one work."""
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        x = torch.full((5,), float(self.rank), device=DEVICE)
        sum, got = x.clone(), torch.zeros_like(x)
        group = dist.distributed_c10d._get_default_group()
        group._start_coalescing(torch.device(DEVICE))
        dist.isend(x, right)
        group.allreduce([sum])
        dist.irecv(got, left)
        group._end_coalescing(torch.device(DEVICE)).wait()
        self.assertEqual(got.tolist(), [left] * 5)
        self.assertEqual(sum.tolist(), [self.size * (self.size - 1) / 2] * 5)

    def test_lists_of_tensors(self):
        group = dist.distributed_c10d._get_default_group()
        mine = [torch.full((2,), self.rank, device=DEVICE), torch.full((3,), -self.rank, device=DEVICE)]
        out = [[torch.zeros_like(x) for x in mine] for _ in range(self.size)]
        group.allgather_coalesced(out, mine).wait()
        for r, (first, second) in enumerate(out):
            self.assertEqual((first.tolist(), second.tolist()), ([r] * 2, [-r] * 3))

    def test_objects_and_barrier(self):
        got = [None] * self.size
        dist.all_gather_object(got, {"rank": self.rank})
        self.assertEqual(got, [{"rank": r} for r in range(self.size)])
        chosen = [self.rank, "x"]
        dist.broadcast_object_list(chosen, self.size - 1)
        self.assertEqual(chosen, [self.size - 1, "x"])
        dist.barrier()
        dist.barrier(async_op=True).wait()


if __name__ == "__main__":
    main()
