"""Averages a gradient over the ranks of mpirun, srun or torchrun:

mpirun -n 2 python3 example.py
"""

import alnico
import numpy

with alnico.Communicator() as comm:
    gradient = numpy.array([1, 2, comm.rank], numpy.float32)
    request = comm.nonblocking.allreduce(gradient, op="average")
    halves = [n / 2 for n in range(3)]  # what this rank does meanwhile
    request.wait()
    print(f"rank {comm.rank} of {comm.size}: {gradient + halves}")
