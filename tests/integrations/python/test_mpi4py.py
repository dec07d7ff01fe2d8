"""Communicators of mpi4py's ranks, which mpi4py's own results are compared with."""

import sys
import unittest

try:
    from mpi4py import MPI
except ImportError:
    sys.exit(77)
import alnico
import numpy


class Mpi4py(unittest.TestCase):
    def test_a_communicator_of_mpi_ranks(self):
        world = MPI.COMM_WORLD
        for mpi in (world, world.Split(world.rank % 2, -world.rank)):
            with alnico.Communicator.from_mpi(mpi) as comm:
                self.assertEqual((comm.rank, comm.size), (mpi.rank, mpi.size))
                mine = numpy.arange(1000.0) + world.rank
                ours, theirs = numpy.empty_like(mine), numpy.empty_like(mine)
                comm.allreduce(mine, ours)
                mpi.Allreduce(mine, theirs)
                numpy.testing.assert_array_equal(ours, theirs)
                for name in ("allgather", "gather"):
                    ours, theirs = (numpy.zeros((mpi.size, 1000)) for _ in range(2))
                    getattr(comm, name)(mine, ours)
                    getattr(mpi, name.capitalize())(mine, theirs)
                    numpy.testing.assert_array_equal(ours, theirs)

    def test_an_error_of_rank_0_is_every_ranks(self):
        before = alnico.communicator.create_id

        def fail():
            raise alnico.SystemCallError("no port")

        alnico.communicator.create_id = fail
        try:
            with self.assertRaisesRegex(alnico.SystemCallError, "^no port$"):
                alnico.Communicator.from_mpi(MPI.COMM_WORLD)
        finally:
            alnico.communicator.create_id = before


if __name__ == "__main__":
    if len(sys.argv) > 1 and MPI.COMM_WORLD.size != int(sys.argv.pop(1)):
        sys.exit(f"{MPI.COMM_WORLD.size} ranks; is mpi4py of the launcher's MPI?")
    unittest.main()
