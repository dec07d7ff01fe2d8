"""PyTorch's, CuPy's and JAX's arrays on GPUs: each package's stream is followed, captured ones too;
and ddp_hook. Started as torchrun does, a rank on each of up to two GPUs."""

import os
import sys
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)
import alnico
import alnico.torch
import torch.distributed as dist
from test_ddp import network

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COUNT = 1 << 20


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm = alnico.Communicator.from_torch(device="cuda")
        cls.sum = SIZE * (SIZE + 1) / 2

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def late(self, stream):
        """Keeps the stream busy, so that what does not follow it comes first."""
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)

    def test_the_current_stream_is_followed(self):
        streams = [torch.cuda.Stream() for _ in range(3)] + [torch.cuda.default_stream()]
        values, expected = torch.ones(COUNT, device="cuda"), 1.0
        torch.cuda.synchronize()
        for i in range(12):
            before, stream = streams[i % 4 - 1], streams[i % 4]
            stream.wait_stream(before)
            self.late(stream)
            with torch.cuda.stream(stream):
                values *= 0.5
                if i % 3:
                    self.comm.allreduce(values)
                else:
                    self.comm.nonblocking.allreduce(values).wait()
            expected *= 0.5 * SIZE
        torch.cuda.synchronize()
        self.assertTrue((values == expected).all())

    def test_operations_of_two_streams_keep_their_order(self):
        streams = [torch.cuda.Stream() for _ in range(2)]
        vectors = [torch.full((COUNT,), RANK + 1.0, device="cuda") for _ in range(20)]
        torch.cuda.synchronize()
        for i, vector in enumerate(vectors):
            if RANK == i % SIZE:
                self.late(streams[i % 2])
            with torch.cuda.stream(streams[i % 2]):
                self.comm.allreduce(vector)
        self.comm.synchronize()
        torch.cuda.synchronize()
        for vector in vectors:
            self.assertTrue((vector == self.sum).all())

    def test_a_graph(self):
        values = torch.ones(COUNT, device="cuda")
        self.comm.allreduce(values.clone())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            values.mul_(2)
            self.comm.allreduce(values)
        for _ in range(3):
            graph.replay()
        self.comm.allreduce(values)
        torch.cuda.synchronize()
        self.assertTrue((values == 8.0 * SIZE**4).all())

    def test_memory(self):
        values = torch.as_tensor(alnico.Memory(4 * COUNT, "cuda"), device="cuda").view(
            torch.float32
        )
        values.fill_(RANK + 1)
        registration = self.comm.register(values)
        self.comm.allreduce(values)
        self.assertTrue((values == self.sum).all())
        registration.deregister()

    def test_types(self):
        for name in (
            "int8",
            "uint8",
            "int32",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "float8_e4m3fn",
            "float8_e5m2",
        ):
            tensor = torch.full((3, 1000), RANK + 1.0, device="cuda").to(getattr(torch, name))
            self.comm.allreduce(tensor)
            self.assertTrue((tensor.float() == int(self.sum)).all(), name)
        with self.assertRaisesRegex(
            alnico.ArgumentError, "send is on cpu, and the communicator on cuda"
        ):
            self.comm.allreduce(torch.ones(3))

    def test_cupy(self):
        try:
            import cupy
        except ImportError:
            self.skipTest("no CuPy")
        with cupy.cuda.Stream(non_blocking=True) as stream:
            values = cupy.full(COUNT, RANK + 1, "float32")
            self.comm.allreduce(values)
            whole = cupy.zeros((SIZE, COUNT), "float32")
            self.comm.allgather(values, whole)
            self.assertEqual(self.comm._stream, stream.ptr)
        stream.synchronize()
        self.assertTrue(bool((whole == self.sum).all()))

    def test_jax(self):
        try:
            os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            import jax

            mine = jax.device_put(
                jax.numpy.full(1000, RANK + 1.0, "float32"),
                jax.devices("cuda")[torch.cuda.current_device()],
            )
        except (ImportError, RuntimeError) as error:
            self.skipTest(f"no JAX on a GPU: {error}")
        got = torch.zeros(1000, device="cuda")
        self.comm.allreduce(mine, got)
        self.assertTrue((got == self.sum).all())
        with self.assertRaisesRegex(alnico.ArgumentError, "read-only"):
            self.comm.allreduce(mine)

    def test_ddp(self):
        results = []
        for compress in ("", None, "bf16"):
            model = torch.nn.parallel.DistributedDataParallel(network().cuda(), bucket_cap_mb=0.01)
            state = alnico.torch.State(compress=compress) if compress != "" else None
            if state:
                model.register_comm_hook(state, alnico.torch.ddp_hook)
            generator = torch.Generator().manual_seed(RANK)
            optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
            for _ in range(5):
                inputs = torch.randn(8, 20, generator=generator).cuda()
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
            results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            if state:
                torch.cuda.synchronize()
                state.close()
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(results[2], results[0], rtol=1e-1, atol=2e-2)


if __name__ == "__main__":
    torch.cuda.set_device(RANK)
    dist.init_process_group("gloo")
    unittest.main(argv=sys.argv[:1] + ["--failfast"])
