"""CuPy's nccl module on the drop-in: one thread with a communicator for each of up to two GPUs, and processes that share an id."""

import ctypes
import multiprocessing
import sys
import unittest

try:
    import cupy
    from cupy.cuda import nccl
except ImportError:
    sys.exit(77)

GPUS = min(2, cupy.cuda.runtime.getDeviceCount()) if cupy.cuda.is_available() else 0
if GPUS == 0:
    sys.exit(77)


def allreduce(comm, x, y, stream):
    comm.allReduce(x.data.ptr, y.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)


def process(identity, rank, size, results):
    with cupy.cuda.Device(rank):
        comm = nccl.NcclCommunicator(size, identity, rank)
        x, y = cupy.full(1000, rank + 1, "f"), cupy.zeros(1000, "f")
        for _ in range(5):  # streams that end before their communicator
            with cupy.cuda.Stream(non_blocking=True) as stream:
                allreduce(comm, x, y, stream.ptr)
                stream.synchronize()
        results.put((rank, comm.rank_id(), comm.device_id(), float(y.min()), float(y.max())))
        comm.destroy()


class Cupy(unittest.TestCase):
    def test_it_is_the_drop_in(self):
        self.assertTrue(hasattr(ctypes.CDLL(None), "alnico_nccl_dropin"))

    def test_one_thread(self):
        comms = nccl.NcclCommunicator.initAll(GPUS)
        xs, ys = [], []
        for i in range(GPUS):
            with cupy.cuda.Device(i):
                xs.append(cupy.full(100000, i + 1, "f"))
                ys.append(cupy.zeros(100000, "f"))
        for _ in range(3):
            nccl.groupStart()
            for i in range(GPUS):
                allreduce(comms[i], xs[i], ys[i], cupy.cuda.Stream.null.ptr)
            nccl.groupEnd()
        for i in range(GPUS):
            with cupy.cuda.Device(i):
                self.assertEqual(float(ys[i].sum()), 100000.0 * GPUS * (GPUS + 1) / 2)
        for comm in comms:
            comm.destroy()

    def test_processes(self):
        context = multiprocessing.get_context("spawn")
        identity, results = nccl.get_unique_id(), context.Queue()
        ranks = [context.Process(target=process, args=(identity, r, GPUS, results)) for r in range(GPUS)]
        for rank in ranks:
            rank.start()
        for _ in ranks:
            rank, own, device, least, most = results.get(timeout=120)
            self.assertEqual((own, device), (rank, rank))
            self.assertEqual((least, most), (GPUS * (GPUS + 1) / 2,) * 2)
        for rank in ranks:
            rank.join()
            self.assertEqual(rank.exitcode, 0)


if __name__ == "__main__":
    unittest.main()
