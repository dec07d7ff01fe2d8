"""What the tests of the backend "alnico" share: the seed, the default group of it, and one of gloo with
the same ranks, whose results are the reference."""

import os
import random
import sys
import unittest

import alnico_torch  # where PyTorch has not found it
import torch
import torch.distributed as dist

SEED = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
DEVICE = os.environ.get("TEST_DEVICE", "cpu")


class Case(unittest.TestCase):
    """Each rank runs the same tests in the same order."""

    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()
        cls.gloo = dist.new_group(backend="gloo")
        seed = [SEED]
        dist.broadcast_object_list(seed, group=cls.gloo)
        cls.random = torch.Generator().manual_seed(seed[0])

    def numbers(self, type, *shape):
        """This rank's part of numbers that are the same on all ranks; whole ones, whose sums are exact
        in all types."""
        all = torch.randint(0, 6, (self.size, *shape), generator=self.random)
        return all[self.rank].to(type)

    def same(self, got, expected, text=None):
        """Bits for integers, 1e-6 otherwise."""
        self.assertEqual(len(got), len(expected))
        for a, b in zip(got, expected):
            a = a.cpu()
            if a.is_floating_point() or a.is_complex():
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, msg=text and str(text))
            else:
                self.assertTrue(torch.equal(a, b), text)


def start(**options):
    """The default group, with a GPU of its own where the tests are on GPUs."""
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
        options["device_id"] = torch.device("cuda", torch.cuda.current_device())
    torch.set_num_threads(1)
    dist.init_process_group("alnico", **options)


def main():
    start()
    print(f"seed {SEED}", file=sys.stderr)
    program = unittest.main(argv=sys.argv[:1] + ["--failfast", *sys.argv[1:]], exit=False)
    if program.result.wasSuccessful():
        dist.destroy_process_group()
    sys.exit(not program.result.wasSuccessful())
