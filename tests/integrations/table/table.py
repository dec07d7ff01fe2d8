"""One table of cases through alnico.h, nccl.h (libnccl.so.2), the Python package and torch.distributed: which there are, what must
come of each, by plain loops, and whether what a way printed is that.

    table.py list WAY SIZE            the lines of the table that the way has: abi, nccl, python or torch
    table.py run python|torch         this rank's part, of ALNICO_RANK or RANK; prints "CASE RANK HASH" lines
    table.py check WAY SIZE FILE...   compares such lines with what must come of the cases
"""
import functools
import operator
import struct
import sys

TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3",
         "float8_e5m2"]
OPS = ["sum", "product", "minimum", "maximum", "average", "logical_and", "logical_or", "logical_xor", "bitwise_and",
       "bitwise_or", "bitwise_xor"]
REDUCTIONS = {
    "sum": sum, "product": lambda x: functools.reduce(operator.mul, x), "minimum": min, "maximum": max,
    "average": lambda x: sum(x) / len(x), "logical_and": lambda x: int(all(x)), "logical_or": lambda x: int(any(x)),
    "logical_xor": lambda x: sum(map(bool, x)) % 2, "bitwise_and": lambda x: functools.reduce(operator.and_, x),
    "bitwise_or": lambda x: functools.reduce(operator.or_, x), "bitwise_xor": lambda x: functools.reduce(operator.xor, x)}


def is_integer(type):
    return "int" in type


def code(type, value):
    """The bytes of a small number that the type has exactly."""
    if is_integer(type):
        letter = {8: "b", 32: "i", 64: "q"}[int(type.lstrip("uint"))]
        return struct.pack("<" + (letter.upper() if type[0] == "u" else letter), int(value))
    if type == "bfloat16":
        return struct.pack("<f", value)[2:]
    if type.startswith("float8"):  # by its upper bits in float16, which has an exponent of 5 bits
        half, = struct.unpack("<H", struct.pack("<e", value))
        if type == "float8_e5m2":
            return bytes([half >> 8])
        return bytes([((half >> 10) - 8 << 3 | half >> 7 & 7) if half else 0])
    return struct.pack("<" + {"float16": "e", "float32": "f", "float64": "d"}[type], value)


class Case:
    def __init__(self, number, operation, type, op, count, in_place):
        self.number, self.operation, self.type, self.op = number, operation, type, op
        self.count, self.in_place = count, in_place

    def ways(self):
        """Who has it."""
        ways = {"abi"}
        if OPS.index(self.op) < 5:
            ways.add("nccl")
        if self.type not in ("bfloat16", "float8_e4m3", "float8_e5m2"):  # which NumPy has not
            ways.add("python")
        if (self.type not in ("uint32", "uint64") and not self.op.startswith("logical") and
                not (self.op == "average" and is_integer(self.type)) and (not self.in_place or self.operation == "allreduce")):
            ways.add("torch")
        return ways

    def line(self):
        codes = " ".join(code(self.type, value).hex() for value in range(3))
        return (f"{self.number} {self.operation} {TYPES.index(self.type)} {OPS.index(self.op)} {self.count} "
                f"{'in' if self.in_place else 'out'} {len(code(self.type, 0))} {codes}")

    def sends(self, size):
        return self.count * (size if self.operation in ("reduce_scatter", "scatter", "alltoall") else 1)

    def receives(self, size):
        return self.count * (size if self.operation in ("allgather", "gather", "alltoall") else 1)

    def input(self, rank, size):
        draws = [3 * i + 5 * rank + self.number + i // 3 for i in range(self.sends(size))]
        return [1 + draw % 2 if self.op == "product" else draw % 3 for draw in draws]

    def output(self, rank, size):
        """The values, or None where the rank gets none."""
        inputs, root, n = [self.input(r, size) for r in range(size)], self.number % size, self.count
        reduce = REDUCTIONS[self.op]
        if self.operation in ("reduce", "gather") and rank != root:
            return None
        if self.operation in ("allreduce", "reduce", "reduce_scatter"):
            sums = [reduce(list(x)) for x in zip(*inputs)]
            sums = [int(x) for x in sums] if is_integer(self.type) else sums
            return sums[rank * n:(rank + 1) * n] if self.operation == "reduce_scatter" else sums
        return {"broadcast": lambda: inputs[root], "allgather": lambda: sum(inputs, []), "gather": lambda: sum(inputs, []),
                "scatter": lambda: inputs[root][rank * n:(rank + 1) * n],
                "alltoall": lambda: sum((x[rank * n:(rank + 1) * n] for x in inputs), []),
                "sendrecv": lambda: inputs[rank - 1]}[self.operation]()


def has(type, op, size):
    """Averages of three are not exact."""
    if op == "average" and not is_integer(type):
        return size in (1, 2, 4)
    return OPS.index(op) < 5 or is_integer(type)


def cases(size):
    made = []
    def add(*what):
        made.append(Case(len(made), *what))
    for type in TYPES:
        for op in OPS:
            if not has(type, op, size):
                continue
            for count, in_place in ((1, False), (17, False), (17, True)):
                add("allreduce", type, op, count, in_place)
            if op in ("sum", "maximum", "average"):
                add("reduce", type, op, 17, False)
                add("reduce_scatter", type, op, 17, False)
                add("reduce_scatter", type, op, 5, True)
        for operation in ("broadcast", "allgather", "gather", "scatter", "alltoall", "sendrecv"):
            for count in (1, 17):
                add(operation, type, "sum", count, False)
        add("allgather", type, "sum", 5, True)
    return made


def digest(data):
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return f"{value:016x}"


def expected(case, rank, size):
    values = case.output(rank, size)
    return "-" if values is None else digest(b"".join(code(case.type, value) for value in values))


# ---- The two ways that are Python ----

def by_package(case, comm):
    import numpy
    rank, size, root, n = comm.rank, comm.size, case.number % comm.size, case.count
    x = numpy.array(case.input(rank, size), case.type)
    y = numpy.zeros(case.receives(size), case.type)
    own = slice(rank * n, (rank + 1) * n)
    if case.operation == "allreduce":
        comm.allreduce(x, None if case.in_place else y, op=case.op)
        return x if case.in_place else y
    if case.operation == "reduce":
        comm.reduce(x, y, op=case.op, root=root)
    elif case.operation == "broadcast":
        comm.broadcast_to(x, y, root=root)
    elif case.operation == "allgather":
        if case.in_place:
            y[own] = x
        comm.allgather(None if case.in_place else x, y)
    elif case.operation == "reduce_scatter":
        comm.reduce_scatter(None if case.in_place else x, x if case.in_place else y, op=case.op)
        return x[own] if case.in_place else y
    elif case.operation == "sendrecv":
        comm.sendrecv(x, (rank + 1) % size, y, (rank - 1) % size)
    elif case.operation == "alltoall":
        comm.alltoall(x, y)
    else:
        getattr(comm, case.operation)(x, y, root=root)
    return y


def by_torch(case, torch, dist):
    rank, size, root = dist.get_rank(), dist.get_world_size(), case.number % dist.get_world_size()
    type = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(case.type, case.type))
    op = getattr(dist.ReduceOp, {"sum": "SUM", "product": "PRODUCT", "minimum": "MIN", "maximum": "MAX", "average": "AVG",
                                 "bitwise_and": "BAND", "bitwise_or": "BOR", "bitwise_xor": "BXOR"}[case.op])
    x = torch.tensor(case.input(rank, size), dtype=torch.float32).to(type)
    y = torch.zeros(case.receives(size), dtype=torch.float32).to(type)
    if case.operation in ("allreduce", "reduce", "broadcast"):
        y = x if case.in_place else x.clone()
    if case.operation == "allreduce":
        dist.all_reduce(y, op)
    elif case.operation == "reduce":
        dist.reduce(y, root, op)
    elif case.operation == "broadcast":
        dist.broadcast(y, root)
    elif case.operation == "allgather":
        dist.all_gather_into_tensor(y, x)
    elif case.operation == "reduce_scatter":
        dist.reduce_scatter_tensor(y, x, op)
    elif case.operation == "gather":
        dist.gather(x, list(y.chunk(size)) if rank == root else None, root)
    elif case.operation == "scatter":
        dist.scatter(y, list(x.chunk(size)) if rank == root else None, root)
    elif case.operation == "alltoall":
        dist.all_to_all_single(y, x)
    else:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, y, (rank - 1) % size)])
        for work in works:
            work.wait()
    return y.view(torch.uint8)


def say(case, rank, size, data):
    none = case.output(rank, size) is None
    print(case.number, rank, "-" if none else digest(data))


def run(way):
    if way == "torch":
        import alnico_torch  # noqa: F401, where PyTorch has not found it
        import torch
        import torch.distributed as dist
        dist.init_process_group("alnico")
        rank, size = dist.get_rank(), dist.get_world_size()
        for case in cases(size):
            if way in case.ways():
                say(case, rank, size, bytes(by_torch(case, torch, dist).tolist()))
        dist.destroy_process_group()
        return
    import alnico
    with alnico.Communicator() as comm:
        for case in cases(comm.size):
            if way in case.ways():
                say(case, comm.rank, comm.size, by_package(case, comm).tobytes())


def check(way, size, files):
    found = {}
    for name in files:
        for line in open(name):
            number, rank, result = line.split()
            found[int(number), int(rank)] = result
    wrong, count = 0, 0
    for case in cases(size):
        for rank in range(size if way in case.ways() else 0):
            count += 1
            result = found.pop((case.number, rank), "nothing")
            if result != expected(case, rank, size):
                wrong += 1
                print(f"{way}, rank {rank} of {size}: {result}, expected {expected(case, rank, size)}: {case.line()}")
    print(f"{way}, {size} ranks: {count} results, {wrong} wrong, {len(found)} too many")
    return 1 if wrong or found or not count else 0


def main():
    what, way = sys.argv[1:3]
    if what == "run":
        return run(way)
    size = int(sys.argv[3])
    if what == "check":
        return check(way, size, sys.argv[4:])
    for case in cases(size):
        if way in case.ways():
            print(case.line())


if __name__ == "__main__":
    sys.exit(main())
