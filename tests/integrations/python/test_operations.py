"""Every operation of the package on NumPy arrays against NumPy, blocking, nonblocking and on a
stream, in place and not, on any number of ranks."""

import alnico
import common
import numpy
from common import TYPES

REDUCTIONS = {
    "sum": lambda x: x.sum(0, x.dtype),
    "product": lambda x: x.prod(0, x.dtype),
    "minimum": lambda x: x.min(0),
    "maximum": lambda x: x.max(0),
    "logical_and": lambda x: numpy.logical_and.reduce(x).astype(x.dtype),
    "logical_or": lambda x: numpy.logical_or.reduce(x).astype(x.dtype),
    "logical_xor": lambda x: numpy.logical_xor.reduce(x).astype(x.dtype),
    "bitwise_and": numpy.bitwise_and.reduce,
    "bitwise_or": numpy.bitwise_or.reduce,
    "bitwise_xor": numpy.bitwise_xor.reduce,
}
COUNT = 5


class Blocking:
    """One way to call: every operation is complete when call() returns."""

    def open(self, comm):
        self.comm = comm
        self.operations = comm

    def call(self, name, *arguments, **named):
        getattr(self.operations, name)(*arguments, **named)

    def close(self):
        pass


class Nonblocking(Blocking):
    ends = 0

    def call(self, name, *arguments, **named):
        request = getattr(self.comm.nonblocking, name)(*arguments, **named)
        self.ends += 1
        if self.ends % 3 == 0:
            request.wait()
        elif self.ends % 3 == 1:
            request.synchronize()
        while not request.complete:
            request.test()


class Streamed(Blocking):
    def open(self, comm):
        self.stream = alnico.Stream()
        self.operations = self.comm = comm.duplicate(self.stream)

    def call(self, name, *arguments, **named):
        super().call(name, *arguments, **named)
        self.stream.synchronize()

    def close(self):
        self.comm.close()
        self.stream.close()


class Operations(common.Case):
    def each_way(self):
        for way in (Blocking(), Nonblocking(), Streamed()):
            with self.subTest(way=type(way).__name__):
                way.open(self.comm)
                yield way
                way.close()

    def check(self, got, expected):
        numpy.testing.assert_array_equal(got, expected)
        self.assertEqual(got.dtype, expected.dtype)

    def empty(self, like):
        return numpy.full_like(like, 99)

    def test_reductions(self):
        for way in self.each_way():
            for type in TYPES:
                for op, reference in REDUCTIONS.items():
                    if type.startswith("float") and "_" in op:
                        continue
                    with self.subTest(type=type, op=op):
                        self.reductions(way, type, op, reference)

    def test_float8(self):
        """1 of every rank: the sum is a number of both types up to 8."""
        for name, bias, fraction in (("float8_e4m3fn", 7, 3), ("float8_e5m2", 15, 2)):
            values = common.Float8(name, [bias << fraction] * COUNT)
            self.comm.allreduce(values)
            exponent = self.size.bit_length() - 1
            part = (self.size << fraction >> exponent) - (1 << fraction)
            self.check(values.bits, numpy.full(COUNT, (bias + exponent << fraction) + part, "uint8"))

    def test_premultiplied_sum(self):
        for way in self.each_way():
            for type in TYPES:
                all = self.of_ranks(type, self.size, COUNT) % 3
                sum = way.comm.premultiplied_sum(numpy.array([self.rank + 1], type))
                factors = numpy.arange(1, self.size + 1).reshape(-1, 1, 1)
                expected = (all * factors).sum(0).astype(type)
                got = all[self.rank].copy()
                way.call("allreduce", got, op=sum)
                self.check(got, expected)
                got = self.empty(expected[0])
                way.call("reduce_scatter", all[self.rank], got, sum)
                self.check(got, expected[self.rank])

    def reductions(self, way, type, op, reference):
        all, root = self.of_ranks(type, self.size, COUNT), self.size - 1
        mine = all[self.rank]
        expected = reference(all) if self.size > 1 else mine  # of one rank, every operation copies
        got = self.empty(mine)
        way.call("allreduce", mine, got, op)
        self.check(got, expected)
        got = mine.copy()
        way.call("allreduce", got, op=alnico.Op[op.upper()])
        self.check(got, expected)
        got = self.empty(mine)
        way.call("reduce", mine, got, root, op)
        self.check(got, expected if self.rank == root else self.empty(mine))
        got = mine.copy()
        way.call("reduce", got, root=root, op=op)
        self.check(got, expected if self.rank == root else mine)
        got = self.empty(mine[0])
        way.call("reduce_scatter", mine, got, op)
        self.check(got, expected[self.rank])
        got = mine.copy()
        way.call("reduce_scatter", None, got, op)
        self.check(got[self.rank], expected[self.rank])

    def test_average(self):
        for way in self.each_way():
            all = self.of_ranks("float64", COUNT)
            got = self.empty(all[0])
            way.call("allreduce", all[self.rank], got, "average")
            numpy.testing.assert_allclose(got, all.mean(0), rtol=1e-14)

    def lengths(self):
        """Of blocks of different length, one of them empty; and where they begin, with gaps,
        backwards."""
        counts = [(3 * b) % 5 for b in range(self.size)]
        at, end = [0] * self.size, 1
        for b in reversed(range(self.size)):
            at[b], end = end, end + counts[b] + 1
        return counts, at, end

    def test_vectors(self):
        for way in self.each_way():
            for type in ("int8", "float64"):
                self.vectors(way, type)

    def vectors(self, way, type):
        counts, at, end = self.lengths()
        root, total = 0, sum(counts)
        starts = numpy.cumsum([0] + counts)
        all = self.of_ranks(type, total)
        reduced, own = all.sum(0, all.dtype), slice(starts[self.rank], starts[self.rank + 1])
        got = self.empty(reduced[own])
        way.call("reduce_scatterv", all[self.rank], got, counts)
        self.check(got, reduced[own])
        got = all[self.rank].copy()
        way.call("reduce_scatterv", None, got, counts)
        self.check(got[own], reduced[own])

        blocks = [all[b, : counts[b]] for b in range(self.size)]
        laid = numpy.full(end, 99, type)
        for b, place in enumerate(at):
            laid[place : place + counts[b]] = blocks[b]
        got = self.empty(laid)
        way.call("allgatherv", blocks[self.rank], got, counts, at)
        self.check(got, laid)
        got = self.empty(reduced)
        way.call("allgatherv", blocks[self.rank], got, counts)
        self.check(got, numpy.concatenate(blocks))
        got = self.empty(laid)
        way.call("gatherv", blocks[self.rank], got, counts, root, at)
        self.check(got, laid if self.rank == root else self.empty(laid))
        got = self.empty(blocks[self.rank])
        at_root = (laid, got, counts, root, at) if self.rank == root else (None, got)
        way.call("scatterv", *at_root)
        self.check(got, blocks[self.rank])

    def test_alltoallv(self):
        for way in self.each_way():
            lengths = [[(a + 2 * b) % 4 for b in range(self.size)] for a in range(self.size)]
            flat = self.of_ranks("int32", 16 * self.size)
            sent, taken = lengths[self.rank], [row[self.rank] for row in lengths]
            starts = [numpy.cumsum([0] + row) for row in lengths]
            expected = [flat[b][starts[b][self.rank] :][: taken[b]] for b in range(self.size)]
            got = numpy.full(sum(taken), 99, "int32")
            mine = flat[self.rank][: sum(sent)].copy()
            way.call("alltoallv", mine, got, taken, sent)
            self.check(got, numpy.concatenate(expected))

    def test_copies(self):
        for way in self.each_way():
            for type in TYPES:
                with self.subTest(type=type):
                    self.copies(way, type)

    def copies(self, way, type):
        all, root = self.of_ranks(type, self.size, COUNT), self.size // 2
        mine, is_root = all[self.rank], self.rank == root
        got = mine.copy()
        way.call("broadcast", got, root)
        self.check(got, all[root])
        got = self.empty(mine)
        way.call("broadcast_to", mine if is_root else None, got, root)
        self.check(got, all[root])
        got = self.empty(mine)
        way.call("allgather", mine[0], got)
        self.check(got, all[:, 0])
        got = self.empty(mine)
        got[self.rank] = mine[-1]
        way.call("allgather", None, got)
        self.check(got, all[:, -1])
        got = self.empty(mine)
        way.call("gather", mine[0], got if is_root else None, root)
        self.check(got, all[:, 0] if is_root else self.empty(mine))
        got = self.empty(mine[0])
        way.call("scatter", mine if is_root else None, got, root)
        self.check(got, all[root][self.rank])
        got = self.empty(mine)
        way.call("alltoall", mine, got)
        self.check(got, all[:, self.rank])
        got = mine.copy()
        way.call("alltoall", None, got)
        self.check(got, all[:, self.rank])

    def test_messages(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for way in self.each_way():
            all = self.of_ranks("float32", COUNT)
            got = self.empty(all[0])
            way.call("sendrecv", all[self.rank], after, got, before)
            self.check(got, all[before])
            got = self.empty(all)
            with way.comm.group() as group:
                for peer in range(self.size):
                    group.recv(got[peer], peer)
                    group.send(all[self.rank], peer)
            way.comm.synchronize()
            self.check(got, all)
            way.call("barrier")
        if self.size > 1:
            got = self.empty(all[0])
            receive = self.comm.nonblocking.recv(got, before)
            self.comm.nonblocking.send(all[self.rank], after).wait()
            receive.wait()
            self.check(got, all[before])

    def test_an_exception_in_a_group_sends_nothing(self):
        got = numpy.zeros(3)
        with self.assertRaises(ZeroDivisionError):
            with self.comm.group() as group:
                group.send(got, self.rank)
                raise ZeroDivisionError
        got = numpy.ones(3)
        self.comm.allreduce(got)
        self.check(got, numpy.full(3, float(self.size)))

    def test_streams_order(self):
        with alnico.Stream() as stream, self.comm.duplicate(stream) as comm:
            values = numpy.ones(1000)
            for _ in range(3):
                stream.enqueue(lambda: values.__imul__(2))
                comm.allreduce(values)
            stream.enqueue(lambda: values.__iadd__(1))
            stream.synchronize()
            self.check(values, numpy.full(1000, 8.0 * self.size**3 + 1))

    def test_a_stream_holds_what_it_uses(self):
        with alnico.Stream() as stream, self.comm.duplicate(stream) as comm:
            whole = numpy.empty((self.size, 100000))
            comm.allgather(numpy.full(100000, float(self.rank)), whole)
            stream.synchronize()
            self.check(whole[:, -1], numpy.arange(float(self.size)))

    def test_nonblocking_operations_are_waited_for_in_any_order(self):
        arrays = [numpy.full(1000, float(i)) for i in range(20)]
        requests = [self.comm.nonblocking.allreduce(array) for array in arrays]
        for request in requests[::2] + requests[1::2]:
            request.wait()
        for i, array in enumerate(arrays):
            self.check(array, numpy.full(1000, float(i * self.size)))

    def test_other_communicators(self):
        with self.comm.split(self.rank % 2, -self.rank) as part:
            self.assertEqual(part.size, (self.size + 1 - self.rank % 2) // 2)
            self.assertEqual(part.rank, part.size - 1 - self.rank // 2)
        self.assertIsNone(self.comm.split(-1))
        ids = numpy.frombuffer(alnico.create_id() if self.rank == 0 else bytes(128), "uint8").copy()
        self.comm.broadcast(ids)
        with alnico.Communicator.from_id(ids.tobytes(), self.rank, self.size) as comm:
            comm.barrier()
            self.assertEqual((comm.rank, comm.size, comm.device), (self.rank, self.size, "cpu"))

    def test_settings(self):
        array = numpy.ones(4)
        registration = self.comm.register(array)
        self.comm.set_algorithm("allreduce", "ring")
        self.comm.allreduce(array)
        self.check(array, numpy.full(4, float(self.size)))
        with self.refused("no_such is not an algorithm|'no_such'"):
            self.comm.set_algorithm("allreduce", "no_such")
        self.comm.set_algorithm("allreduce", None)
        registration.deregister()
        with self.refused("removed"):
            registration.deregister()

    def test_local_registration(self):
        array = numpy.ones(4)
        if self.rank == 0:  # nobody waits for the others
            registration = self.comm.register(array, local=True)
            again = self.comm.register(array, local=True)
            registration.deregister()
            with self.refused("removed"):
                registration.deregister()
            again.deregister()
        self.comm.allreduce(array)
        self.check(array, numpy.full(4, float(self.size)))
        self.comm.register(array, local=True)  # the end of the communicator removes it

    def test_limits_and_memory(self):
        with self.comm.duplicate() as comm:
            comm.set_limits(blocks=8, scratch=1)
            memory = comm.memory()
            self.assertEqual(memory["scratch"], 0)
            places = sum(memory[place] for place in ("host", "device", "shared"))
            self.assertEqual(places, memory["scratch"] + memory["messages"])
            comm.barrier()
            with self.refused("has been used"):
                comm.set_limits(blocks=8)

    def test_an_abort_reaches_all(self):
        comm = self.comm.duplicate()
        if self.rank == self.size - 1:
            comm.abort()
        with self.assertRaisesRegex(alnico.AbortedError, f"rank {self.size - 1}|abort"):
            for _ in range(1000):
                comm.allreduce(numpy.ones(1))
        with self.assertRaises(alnico.AbortedError):
            comm.check()
        comm.close()


if __name__ == "__main__":
    common.main()
