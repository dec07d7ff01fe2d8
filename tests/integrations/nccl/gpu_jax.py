"""JAX on the drop-in: sums, gathers and exchanges over up to two GPUs of one process, which it opens NCCL by name for."""

import ctypes
import sys
import unittest

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
except ImportError:
    sys.exit(77)
try:
    GPUS = jax.devices("gpu")[:2]
except RuntimeError:
    sys.exit(77)

SIZE = len(GPUS)
MESH = Mesh(GPUS, "r")
shard_map = jax.shard_map if hasattr(jax, "shard_map") else None
if shard_map is None:
    from jax.experimental.shard_map import shard_map


def over_gpus(function, out):
    return jax.jit(shard_map(function, mesh=MESH, in_specs=PartitionSpec("r"), out_specs=out))


class Jax(unittest.TestCase):
    def setUp(self):
        self.x = jnp.arange(SIZE * SIZE * 100, dtype=jnp.float32).reshape(SIZE, SIZE * 100)
        self.parts = jax.device_put(self.x, NamedSharding(MESH, PartitionSpec("r")))

    def test_it_is_the_drop_in(self):
        self.assertTrue(hasattr(ctypes.CDLL(None), "alnico_nccl_dropin"))

    def test_psum(self):
        found = over_gpus(lambda x: jax.lax.psum(x, "r"), PartitionSpec())(self.parts)
        self.assertTrue((found[0] == self.x.sum(0)).all())

    def test_all_gather(self):
        gather = over_gpus(lambda x: jax.lax.all_gather(x, "r", tiled=True)[None], PartitionSpec("r"))
        found = gather(self.parts)
        for r in range(SIZE):
            self.assertTrue((found[r] == self.x).all())

    def test_all_to_all(self):
        exchange = over_gpus(lambda x: jax.lax.all_to_all(x, "r", 1, 1, tiled=True), PartitionSpec("r"))
        found = exchange(self.parts)
        expected = self.x.reshape(SIZE, SIZE, 100).transpose(1, 0, 2).reshape(SIZE, SIZE * 100)
        self.assertTrue((found == expected).all())

    def test_psum_scatter(self):
        scatter = over_gpus(lambda x: jax.lax.psum_scatter(x, "r", scatter_dimension=1, tiled=True), PartitionSpec("r"))
        found = scatter(self.parts)
        self.assertTrue((found.reshape(-1) == self.x.sum(0)).all())


if __name__ == "__main__":
    unittest.main()
