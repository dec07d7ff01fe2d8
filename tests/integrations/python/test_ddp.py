"""DistributedDataParallel with ddp_hook against the same training by gloo alone; started as
torchrun does. Compressed gradients against exact means."""

import os
import random
import signal
import sys
import unittest
import unittest.mock

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)
import alnico
import alnico.torch
from torch.nn.parallel import DistributedDataParallel

SEED = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 3),
    )


def train(hook=None, state=None, steps=5):
    """The parameters after some steps, each rank on numbers of its own, in many small buckets."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    if hook:
        model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    generator = torch.Generator().manual_seed(SEED + dist.get_rank())
    for _ in range(steps):
        inputs, wanted = (torch.randn(8, n, generator=generator) for n in (20, 3))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Ddp(unittest.TestCase):
    def trained(self, **named):
        state = alnico.torch.State(**named)
        try:
            return train(alnico.torch.ddp_hook, state)
        finally:
            state.close()

    def assert_equal_everywhere(self, parameters):
        gathered = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, parameters)
        for other in gathered:
            self.assertTrue(torch.equal(other.view(torch.int32), parameters.view(torch.int32)))

    def test_as_gloo(self):
        expected, got = train(), self.trained()
        self.assert_equal_everywhere(got)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        self.assertFalse(
            torch.equal(got, torch.cat([p.detach().flatten() for p in network().parameters()]))
        )

    def test_compressed(self):
        expected = train()
        for wire, tolerance in (("bf16", 2e-2), ("fp16", 2e-3), ("int8", 1e-2)):
            got = self.trained(compress=wire)
            self.assert_equal_everywhere(got)
            difference = (got - expected).abs().max().item()
            self.assertLess(difference, tolerance, wire)
            self.assertGreater(difference, 1e-6, wire)  # it did travel in fewer bits

    def averaged(self, state, steps):
        """What the hook makes of one rank's vector a step, and the means of the vectors."""
        for numbers in steps:
            got, mean = numbers.clone(), numbers.double()
            bucket = unittest.mock.Mock(buffer=lambda: got, index=lambda: 0)
            self.assertIs(alnico.torch.ddp_hook(state, bucket).wait(), got)
            self.assert_equal_everywhere(got)
            dist.all_reduce(mean)
            yield got.double(), mean / dist.get_world_size()

    def vectors(self, steps, count):
        generator = torch.Generator().manual_seed(SEED + dist.get_rank())
        return [torch.randn(count, generator=generator) for _ in range(steps)]

    def test_int8(self):
        state = alnico.torch.State(compress="int8")
        for count in (1, 255, 1000):
            numbers = self.vectors(1, count)[0]
            largest = numbers.abs().max().double()
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            for got, mean in self.averaged(state, [numbers]):  # rounded twice, by half a scale
                self.assertLessEqual((got - mean).abs().max(), largest / 127 * 1.001)
        numbers = torch.zeros(1000)
        numbers[300] = float("inf")
        for got, _ in self.averaged(state, [numbers]):
            self.assertTrue(got[256:512].isnan().all() and (got[:256] == 0).all())
        state.close()

    def test_topk(self):
        steps, count, size = self.vectors(5, 1000), 1000, dist.get_world_size()
        state = alnico.torch.State(compress="topk:0.01")
        all_got, all_mean = 0, 0
        for step, (got, mean) in enumerate(self.averaged(state, steps)):
            self.assertLessEqual((got != 0).sum(), 10 * size)
            if not step:  # the largest of every rank were sent
                largest = steps[0].abs().topk(10).indices
                self.assertTrue((got[largest] != 0).all())
            all_got, all_mean = all_got + got, all_mean + mean
        left = state.kept[0].double()
        dist.all_reduce(left)
        torch.testing.assert_close(all_got + left / size, all_mean, rtol=1e-5, atol=1e-5)
        state.close()
        got, expected = self.trained(compress="topk:1"), train()
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)

    def test_tensors(self):
        rank, size = dist.get_rank(), dist.get_world_size()
        with alnico.Communicator.from_torch() as comm:
            for name in (
                "int8",
                "uint8",
                "int32",
                "int64",
                "float16",
                "bfloat16",
                "float32",
                "float64",
            ):
                tensor = torch.full((3, 4), rank + 1, dtype=getattr(torch, name))
                comm.allreduce(tensor)
                self.assertTrue((tensor == size * (size + 1) // 2).all(), name)
            for text, tensor in (
                ("not contiguous", torch.zeros(4, 4).t()),
                ("type complex64", torch.zeros(2, dtype=torch.cfloat)),
                ("sparse", torch.zeros(4, 4).to_sparse()),
                ("type bool", torch.zeros(2, dtype=torch.bool)),
            ):
                with self.assertRaisesRegex(alnico.ArgumentError, text):
                    comm.allreduce(tensor)

    def test_a_group_of_some_ranks(self):
        ranks = list(range(dist.get_world_size()))[1:]
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            with alnico.Communicator.from_torch(group) as comm:
                self.assertEqual((comm.rank, comm.size), (dist.get_rank() - 1, len(ranks)))
                comm.barrier()

    def test_errors_reach_the_training_loop(self):
        state = alnico.torch.State()
        state.communicator.abort()
        with self.assertRaisesRegex(Exception, "abort"):
            train(alnico.torch.ddp_hook, state, 1)
        state.close()

        state, late = alnico.torch.State(), alnico.DeadlineError("rank 7 did not come")
        state.communicator.check = unittest.mock.Mock(side_effect=late)
        with self.assertRaisesRegex(Exception, "rank 7 did not come"):
            train(alnico.torch.ddp_hook, state, 1)
        state.close()
        for wrong in ("int4", "topk", "topk:0", "topk:1.5", "topk:much", "topk:nan", 8):
            with self.assertRaisesRegex(
                alnico.ArgumentError, f"compress is {wrong!r}; expected None, .* 'topk:SHARE' with"
            ):
                alnico.torch.State(compress=wrong)


def die():
    """The last rank dies in the middle of training; the others name it."""
    state, rank, last = alnico.torch.State(), dist.get_rank(), dist.get_world_size() - 1

    def hook(state, bucket):
        if rank == last and not bucket.index():
            os.kill(os.getpid(), signal.SIGKILL)
        return alnico.torch.ddp_hook(state, bucket)

    try:
        train(hook, state)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    state.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(f"seed {SEED}", file=sys.stderr)
    torch.set_num_threads(1)
    if sys.argv[1:] == ["die"]:
        sys.exit(die())
    unittest.main(argv=sys.argv[:1] + ["--failfast"])
