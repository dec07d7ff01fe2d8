"""What the package refuses, each with its text; which arrays it takes; and that alnico.h says what
it declares. On one rank."""

import array
import ctypes
import gc
import re
import sys
import unittest
import warnings

import alnico
import common
import numpy
from alnico import _buffers, _library, communicator
from common import TYPES


class DLPack:
    """An array that has DLPack and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnGpu:
    """An array that says that it is on a GPU."""

    __cuda_array_interface__ = {
        "shape": (4, 2),
        "strides": None,
        "typestr": "<f4",
        "version": 3,
        "data": (4096, False),
        "stream": 7,
    }


class Premultiplied(unittest.TestCase):
    def test_refused(self):
        with alnico.Communicator() as comm:
            with self.assertRaisesRegex(alnico.ArgumentError, "factor has 2 elements; expected 1"):
                comm.premultiplied_sum(numpy.ones(2))
            half = comm.premultiplied_sum(numpy.array([0.5], "float32"))
            with self.assertRaisesRegex(alnico.ArgumentError, "type is float64, and operation"):
                comm.allreduce(numpy.ones(2), op=half)
            values = numpy.ones(2, "float32")
            comm.allreduce(values, op=half)
            numpy.testing.assert_array_equal(values, 0.5)


class Described(unittest.TestCase):
    def test_float8(self):
        for name in ("float8_e4m3fn", "float8_e5m2"):
            values = common.Float8(name, [0x38, 0x3C, 0x40])
            buffer = _buffers.describe(values, "x")
            self.assertEqual(_buffers.NAMES[buffer.type], name)
            self.assertEqual((buffer.address, buffer.count), (values.bits.ctypes.data, 3))
            self.assertEqual(buffer.bytes, 3)

    def test_types(self):
        for name in TYPES:
            values = numpy.zeros((2, 3), name)
            for of in (values, DLPack(values), memoryview(values)):
                buffer = _buffers.describe(of, "x")
                self.assertEqual(_buffers.NAMES[buffer.type], name)
                self.assertEqual((buffer.address, buffer.count), (values.ctypes.data, 6))
                self.assertEqual(buffer.bytes, values.nbytes)

    def test_the_buffer_protocol(self):
        for sign, name in zip(
            "bBiIqQfd",
            ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"),
        ):
            values = array.array(sign, [1, 2, 3])
            buffer = _buffers.describe(values, "x")
            self.assertEqual(_buffers.NAMES[buffer.type], name)
            self.assertEqual((buffer.address, buffer.count), (values.buffer_info()[0], 3))
        held = bytearray(4)
        buffer = _buffers.describe(held, "x")
        with self.assertRaises(BufferError):
            held.extend(b"more")
        self.assertFalse(_buffers.describe(b"1234", "x").writable)
        self.assertTrue(buffer.writable)

    def test_gpu_arrays(self):
        buffer = _buffers.describe(OnGpu(), "x")
        self.assertEqual(
            (buffer.device, buffer.address, buffer.count, buffer.stream), ("cuda", 4096, 8, 7)
        )
        self.assertEqual(_buffers.NAMES[buffer.type], "float32")

    def test_dimensions(self):
        self.assertEqual(_buffers.describe(numpy.array(1.0), "x").count, 1)
        self.assertEqual(_buffers.describe(numpy.zeros((3, 0)), "x").count, 0)
        square = numpy.zeros((4, 4))
        for slices in (square.T, square[::2], square[:, 1], square[::-1], DLPack(square.T)):
            with self.assertRaisesRegex(alnico.ArgumentError, "^x is not contiguous"):
                _buffers.describe(slices, "x")
        for rows in (square[1:3], square[2], square[:, :1][:1], square[:1].T[:1]):
            self.assertEqual(_buffers.describe(rows, "x").address, rows.ctypes.data)

    def test_refused(self):
        for values in (
            numpy.zeros(2, ">f4"),
            numpy.zeros(2, "bool"),
            numpy.zeros(2, "c8"),
            numpy.array([None]),
        ):
            with self.assertRaisesRegex(alnico.ArgumentError, "^x elements of type|^x "):
                _buffers.describe(values, "x")
        for values in (1, None, [1, 2], "text"):
            with self.assertRaisesRegex(TypeError, "^x is a .*; expected an array"):
                _buffers.describe(values, "x")


class Refused(common.Case):
    def test_arrays(self):
        good, whole = numpy.zeros(4), numpy.zeros(4)
        read_only = numpy.zeros(4)
        read_only.flags.writeable = False
        for text, function, *arguments in (
            ("recv is read-only", self.comm.allreduce, good, read_only),
            ("recv is read-only", self.comm.allreduce, read_only),
            (
                "send has type float64, and recv float32",
                self.comm.allreduce,
                good,
                numpy.zeros(4, "f4"),
            ),
            ("recv has 3 elements; expected 4", self.comm.allreduce, good, numpy.zeros(3)),
            ("send has 3 elements; expected 4", self.comm.allgather, numpy.zeros(3), whole),
            ("send has 5 elements; expected 4", self.comm.alltoall, numpy.zeros(5), whole),
            ("send and recv are both None", self.comm.allgather, None, None),
            ("send is not contiguous", self.comm.allreduce, numpy.zeros(8)[::2], whole),
            ("send is on cuda, and the communicator on cpu", self.comm.allreduce, OnGpu()),
            ("buffer is read-only", self.comm.recv, b"1234", 0),
            ("recv is None at the root", self.comm.gather, good),
            ("send is None at the root", self.comm.scatter, None, good),
            ("send is None at the root", self.comm.broadcast_to, None, good),
            ("recv is None", self.comm.broadcast_to, good, None),
            (
                "broadcast_to: send .* overlap; they must be",
                self.comm.broadcast_to,
                whole[1:],
                numpy.frombuffer(whole, "f8", 3),
            ),
            ("counts is None at the root", self.comm.gatherv, good, whole),
            (
                "counts has 2 entries; expected one for each of 1 ranks",
                self.comm.allgatherv,
                good,
                whole,
                [2, 2],
            ),
            (r"counts\[0\] is -4; expected 0 or more", self.comm.allgatherv, good, whole, [-4]),
            (
                "recv has 4 elements, and its blocks end at 5",
                self.comm.allgatherv,
                good,
                whole,
                [4],
                [1],
            ),
            ("recv has 4 elements; expected 3", self.comm.allgatherv, numpy.zeros(3), whole, [3]),
            ("send_counts is None", self.comm.alltoallv, good, whole, [4]),
            ("op is 'mean'; expected one of sum, ", self.comm.allreduce, good, None, "mean"),
            ("op is 11; expected", self.comm.allreduce, good, None, 11),
            ("root is -1; expected 0 or more", self.comm.broadcast, good, -1),
            ("alnico_broadcast: root 7 ", self.comm.broadcast, good, 7),
            ("float64 does not have the operation", self.comm.allreduce, good, None, "bitwise_or"),
            ("overlap", self.comm.allreduce, numpy.frombuffer(whole, "f8", 3), whole[1:]),
            ("no_such", self.comm.set_algorithm, "no_such", None),
        ):
            with self.subTest(text), self.refused(text):
                function(*arguments)
        with self.refused("send is a list; expected an array", TypeError):
            self.comm.allreduce([1.0])
        with self.refused("root is a str; expected an integer", TypeError):
            self.comm.broadcast(good, "0")

    def test_groups(self):
        with self.refused("allreduce in a group"), self.comm.group() as group:
            group.allreduce(numpy.zeros(1))
        self.comm.barrier()

    def test_creation(self):
        for text, error, arguments in (
            ("device is 'gpu'; expected one of cpu, cuda", alnico.ArgumentError, ("gpu",)),
            ("stream is a int; expected an alnico.Stream", TypeError, ("cpu", 5)),
        ):
            with self.refused(text, error):
                alnico.Communicator(*arguments)
        with self.refused("id is no 128 bytes"):
            alnico.Communicator.from_id(b"short", 0, 1)
        with self.refused("no id|is not an id|id"):
            alnico.Communicator.from_id(bytes(128), 0, 1)
        self.assertTrue(issubclass(alnico.DeadlineError, TimeoutError))
        self.assertTrue(issubclass(alnico.ArgumentError, ValueError))

    def test_closed(self):
        comm = alnico.Communicator()
        stream = alnico.Stream()
        request = comm.nonblocking.allreduce(numpy.zeros(1))
        operations, group, registration = (
            comm.nonblocking,
            comm.group(),
            comm.register(numpy.zeros(1)),
        )
        comm.close()
        comm.close()
        stream.close()
        stream.close()
        self.assertTrue(comm.closed)
        for function in (
            comm.barrier,
            operations.barrier,
            request.wait,
            request.test,
            request.synchronize,
            comm.check,
            comm.abort,
            comm.group,
            comm.duplicate,
            registration.deregister,
            lambda: comm.allreduce(numpy.zeros(1)),
            lambda: group.send(numpy.zeros(1), 0),
        ):
            with self.refused("the communicator is closed"):
                function()
        for function in (
            stream.synchronize,
            lambda: stream.enqueue(print),
            lambda: alnico.Communicator("cpu", stream),
        ):
            with self.refused("the stream is closed"):
                function()

    def test_a_stream_outlives_its_communicators(self):
        stream = alnico.Stream()
        comms = [self.comm.duplicate(stream), alnico.Communicator(stream=stream)]
        for comm in comms:
            with self.refused("the stream has . open communicators"):
                stream.close()
            comm.allreduce(numpy.zeros(1000))
            comm.close()
        stream.close()

    def test_a_machine_without_gpus(self):
        try:
            alnico.Communicator("cuda").close()
        except alnico.UnsupportedError as error:
            self.assertRegex(str(error), "^alnico_comm_create_env: .*(CUDA|device)")

    def test_memory(self):
        values = numpy.asarray(alnico.Memory(4000)).view("float32")
        gc.collect()  # the array holds the memory
        registration = self.comm.register(values)
        values[:] = 3
        self.comm.allreduce(values)
        self.assertTrue((values == 3).all())
        registration.deregister()
        self.assertFalse(hasattr(alnico.Memory(1), "__cuda_array_interface__"))
        for text, error, arguments in (
            ("device is 'gpu'", alnico.ArgumentError, (1, "gpu")),
            ("bytes is -1", alnico.ArgumentError, (-1,)),
            ("alnico_memory_allocate: cannot allocate", alnico.OutOfMemoryError, (1 << 62,)),
        ):
            with self.refused(text, error):
                alnico.Memory(*arguments)

    def test_a_request_completes_once(self):
        request = self.comm.nonblocking.barrier()
        request.synchronize()
        with self.refused("the request is complete"):
            request.wait()
        self.assertEqual(self.comm._pending, set())

    def test_an_open_communicator_is_missed(self):
        comm = alnico.Communicator()
        handle = comm._handle
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            del comm
            gc.collect()
        self.assertIn("was not closed", str(seen[0].message))
        alnico._library.library().alnico_comm_destroy(handle)

    def test_exceptions_in_enqueued_functions(self):
        seen = []
        before, sys.unraisablehook = sys.unraisablehook, seen.append
        with alnico.Stream() as stream:
            stream.enqueue(lambda: 1 // 0)
            stream.enqueue(lambda: seen.append("after"))
            stream.synchronize()
        sys.unraisablehook = before
        self.assertEqual(seen[0].exc_type, ZeroDivisionError)
        self.assertEqual(seen[1:], ["after"])


class Header(unittest.TestCase):
    """The package declares what alnico.h does."""

    @classmethod
    def setUpClass(cls):
        with open(sys.argv[1]) as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        cls.text = text
        pattern = (
            r"ALNICO_API (alnico_status_t|int|void|const char \*)\s*\*?alnico_(\w+)\(([^)]*)\);"
        )
        cls.functions = {
            name: parameters.split(",") for _, name, parameters in re.findall(pattern, text)
        }

    def test_functions(self):
        signs = {
            "size_t": ctypes.c_size_t,
            "int": ctypes.c_int,
            "alnico_datatype_t": ctypes.c_int,
            "alnico_op_t": ctypes.c_int,
            "alnico_device_t": ctypes.c_int,
            "alnico_status_t": ctypes.c_int,
            "alnico_collective_t": ctypes.c_int,
        }
        library = _library.library()
        for name, parameters in self.functions.items():
            if name == "comm_create":  # by from_id
                continue
            declared = getattr(library, "alnico_" + name).argtypes
            self.assertIsNotNone(declared, f"the package lacks alnico_{name}")
            parameters = [p.strip() for p in parameters if p.strip() != "void"]
            self.assertEqual(len(declared), len(parameters), name)
            for type, parameter in zip(declared, parameters):
                words = parameter.replace("const ", "").split()
                by_value = signs.get(words[0]) if "*" not in parameter else None
                self.assertEqual(type in signs.values(), by_value is not None, (name, parameter))
                if by_value:
                    self.assertIs(type, by_value, (name, parameter))

    def enumerators(self, enum, prefix):
        body = re.search(rf"typedef enum {enum} {{(.*?)}}", self.text, re.S).group(1)
        return [name.split("=")[0].strip()[len(prefix) :].lower() for name in body.split(",")]

    def test_enumerators(self):
        names = [re.sub("fn$", "", name) for name in _buffers.TYPES]
        self.assertEqual(self.enumerators("alnico_datatype", "ALNICO_"), names)
        self.assertEqual(list(_buffers.TYPES.values()), list(range(len(_buffers.TYPES))))
        self.assertEqual(
            self.enumerators("alnico_op", "ALNICO_"), [op.name.lower() for op in alnico.Op]
        )
        self.assertEqual(self.enumerators("alnico_collective", "ALNICO_"), communicator.COLLECTIVES)
        statuses = dict(re.findall(r"ALNICO_ERROR_(\w+) = (-\d+)", self.text))
        known = {error.status for error in alnico.AlnicoError.__subclasses__()}
        self.assertEqual(known, {int(status) for status in statuses.values()})

    def test_version(self):
        self.assertEqual(alnico.__version__, _library.library().alnico_version().decode())


if __name__ == "__main__":
    common.main()
