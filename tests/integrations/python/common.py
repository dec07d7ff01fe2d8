"""What the tests of the Python package share: the seed, and one communicator for a program's
tests."""

import os
import random
import sys
import unittest

import alnico
import numpy

SEED = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


class Float8:
    """Bytes as an array of a type that NumPy itself does not have."""

    def __init__(self, name, values):
        self.dtype, self.bits = name, numpy.array(values, "uint8")
        self.__array_interface__ = self.bits.__array_interface__


class Case(unittest.TestCase):
    """Each rank runs the same tests in the same order."""

    @classmethod
    def setUpClass(cls):
        cls.comm = alnico.Communicator()
        seed = numpy.array([SEED])
        cls.comm.broadcast(seed)
        cls.seed = int(seed[0])
        cls.rank, cls.size = cls.comm.rank, cls.comm.size

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def of_ranks(self, type, *shape):
        """Small whole numbers for each rank, the same on all ranks."""
        self.seed += 1
        values = numpy.random.default_rng(self.seed).integers(0, 6, (self.size, *shape))
        return values.astype(type)

    def refused(self, text, error=alnico.ArgumentError):
        return self.assertRaisesRegex(error, text)


def main():
    print(f"seed {SEED}", file=sys.stderr)
    unittest.main(argv=sys.argv[:1] + ["--failfast"])
