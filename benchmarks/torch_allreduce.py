#!/usr/bin/env python3
"""Allreduces of one host's GPUs side by side: Alnico's, PyTorch's symmetric memory (one-shot, two-shot), NCCL's in PyTorch, and
vLLM's and TensorRT-LLM's kernels as FlashInfer has them. All run in the same processes, one for each GPU, in turns, in a CUDA graph
of --calls calls and eager, so that all see the same machine.

Prints one JSON object a line for each size, way and contender as soon as it is measured, and appends it to --out: the median over
--repeats of the slowest rank's microseconds for a call, or why there is none; the results are checked before. Then a table of
Alnico's time over the best of the others. What is not there is left out and named; alnico is needed. Exit status: 0 if all that is
there was measured, 1 if not, 77 without PyTorch, Alnico or GPUs.

    export ALNICO_LIBRARY=$PWD/build/src/libalnico.so PYTHONPATH=integrations/python
    torch_allreduce.py --out versus.json                         # pip install flashinfer-python==0.5.3 for the last three
    torch_allreduce.py --type bfloat16 --sizes 8K,64K,1M --ways graph
    torch_allreduce.py --gpus 4 --only alnico,nccl --sizes 1M,16M,256M
    torch_allreduce.py --device cpu --sizes 8,8K                 # what there is without GPUs: Alnico and gloo

alnico: plain tensors. alnico-memory: in alnico.Memory, which ranks share by themselves. alnico-registered: registered by all.
Symmetric memory is without NVLink multicast unless --multicast is given, which adds its multimem kernel.
"""
import argparse
import contextlib
import io
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

from arguments import above, require_writable

SKIPPED = 77
WAYS = ("graph", "eager")
TYPES = ("float32", "bfloat16", "float16")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Absent(Exception):
    """A contender is not there, or has not the type or size."""


class Contender:
    """An allreduce in buffers of its own. `source` holds the input when a call begins, `result` the sum when it has ended; the
    same tensor where it is in place."""

    name = ""

    def __init__(self, world):
        self.world = world

    def open(self, count):
        """Makes the buffers of so many elements. Collective."""
        self.source = self.result = self.world.tensor(count)

    def call(self):
        raise NotImplementedError

    def captured(self):
        """After a graph of calls was captured, before its first replay. Collective."""

    def close(self):
        self.source = self.result = None


class Alnico(Contender):
    name = "alnico"

    def __init__(self, world):
        super().__init__(world)
        import alnico
        self.alnico = alnico
        self.comm = world.alnico_communicator(alnico)

    def call(self):
        self.comm.allreduce(self.source)


class AlnicoMemory(Alnico):
    name = "alnico-memory"

    def open(self, count):
        self.memory = self.alnico.Memory(count * self.world.bytes, self.world.device.type)
        torch = self.world.torch
        if self.world.gpu:
            view = torch.as_tensor(self.memory, device=self.world.device)
        else:
            import numpy
            view = torch.from_numpy(numpy.asarray(self.memory))
        self.source = self.result = view.view(self.world.type)

    def close(self):
        self.world.synchronize()
        super().close()
        self.memory = None


class AlnicoRegistered(AlnicoMemory):
    name = "alnico-registered"

    def open(self, count):
        super().open(count)
        self.registration = self.comm.register(self.source)

    def close(self):
        self.registration.deregister()
        super().close()


class Nccl(Contender):
    """PyTorch's all_reduce."""

    name, gpu = "nccl", True

    def __init__(self, world):
        super().__init__(world)
        if world.gpu != self.gpu:
            raise Absent("GPUs only" if self.gpu else "the CPU only")

    def call(self):
        self.world.dist.all_reduce(self.source)


class Gloo(Nccl):
    name, gpu = "gloo", False


class Symmetric(Contender):
    """PyTorch's symmetric memory."""

    def __init__(self, world):
        super().__init__(world)
        world.need_gpu()
        import torch.distributed._symmetric_memory as symmetric
        self.symmetric = symmetric
        self.group = world.dist.group.WORLD.group_name
        if world.type_name == "float16":
            raise Absent("sums of float32 and bfloat16 only")

    def open(self, count):
        if count * self.world.bytes % 16:
            raise Absent("multiples of 16 bytes only")
        self.source = self.symmetric.empty(count, dtype=self.world.type, device=self.world.device)
        self.symmetric.rendezvous(self.source, self.group)
        self.result = self.source


class SymmetricOneShot(Symmetric):
    name = "symmetric-one-shot"

    def open(self, count):
        super().open(count)
        self.result = self.world.tensor(count)

    def call(self):
        self.world.torch.ops.symm_mem.one_shot_all_reduce_out(self.source, "sum", self.group, self.result)


class SymmetricTwoShot(Symmetric):
    name = "symmetric-two-shot"

    def call(self):
        self.world.torch.ops.symm_mem.two_shot_all_reduce_(self.source, "sum", self.group)


class SymmetricMultimem(Symmetric):
    name = "symmetric-multimem"

    def __init__(self, world):
        if not world.arguments.multicast:
            raise Absent("without --multicast")
        super().__init__(world)

    def call(self):
        self.world.torch.ops.symm_mem.multimem_all_reduce_(self.source, "sum", self.group)


class FlashInfer(Contender):
    def __init__(self, world):
        super().__init__(world)
        world.need_gpu()
        if world.size not in (2, 4, 8):
            raise Absent("2, 4 or 8 GPUs only")
        self.most = max(world.arguments.sizes)
        if self.most > 64 << 20:
            raise Absent("up to 64 MB")
        with quiet():
            import flashinfer.comm as comm
        self.flashinfer = comm

    def need_vectors(self, count):
        if count * self.world.bytes % 16:
            raise Absent("multiples of 16 bytes only")


class Vllm(FlashInfer):
    """vLLM's custom allreduce: what is captured reads its input where it is, what is not is copied first, as in vLLM."""

    name = "vllm"
    BLOCKS, RANK_DATA_BYTES = 36, 8 << 20

    def __init__(self, world):
        super().__init__(world)
        with quiet():
            meta = self.shared(self.flashinfer.vllm_meta_size() + self.most)
            self.rank_data = world.torch.empty(self.RANK_DATA_BYTES, dtype=world.torch.uint8, device=world.device)
            self.handle = self.flashinfer.vllm_init_custom_ar(meta, self.rank_data, world.rank, True)
            self.buffers = self.shared(self.most)
            self.flashinfer.vllm_register_buffer(self.handle, self.buffers)

    def shared(self, count):
        return self.flashinfer.create_shared_buffer(count, self.world.host_group)

    def open(self, count):
        self.need_vectors(count)
        self.source, self.result = self.world.tensor(count), self.world.tensor(count)

    def call(self):
        capturing = self.world.torch.cuda.is_current_stream_capturing()
        buffer, room = (0, 0) if capturing else (self.buffers[self.world.rank], self.most)
        self.flashinfer.vllm_all_reduce(self.handle, self.source, self.result, buffer, room, self.BLOCKS)

    def captured(self):
        all_metas = self.world.gather(tuple(map(list, self.flashinfer.vllm_get_graph_buffer_ipc_meta(self.handle))))
        handles, offsets = zip(*all_metas)
        self.flashinfer.vllm_register_graph_buffers(self.handle, list(handles), list(offsets))


class TensorRt(FlashInfer):
    """TensorRT-LLM's allreduce without what it can fuse with one."""

    WIDEST, one_shot, early = 1024, True, False

    def __init__(self, world):
        super().__init__(world)
        with quiet():
            self.handles, self.workspace = self.flashinfer.trtllm_create_ipc_workspace_for_all_reduce_fusion(
                world.rank, world.size, -(-self.most // (self.WIDEST * world.bytes)), self.WIDEST,
                use_fp32_lamport=world.type_name == "float32", group=world.host_group)

    def open(self, count):
        self.need_vectors(count)
        least = 1 if self.one_shot else 2 * self.world.size  # rows
        self.width = min(self.WIDEST, count // least // 4 * 4)
        if self.width * self.world.bytes < 16 or count % self.width:
            raise Absent(f"{least} rows of 16 bytes at least")
        self.source, self.result = self.world.tensor(count), self.world.tensor(count)

    def call(self):
        rows = self.source.numel() // self.width
        self.flashinfer.trtllm_allreduce_fusion(
            allreduce_in=self.source.view(rows, self.width), world_size=self.world.size, world_rank=self.world.rank,
            token_num=rows, hidden_dim=self.width, workspace_ptrs=self.workspace, launch_with_pdl=True,
            trigger_completion_at_end=not self.early, fp32_acc=True,
            pattern_code=self.flashinfer.AllReduceFusionPattern.kAllReduce, use_oneshot=self.one_shot,
            allreduce_out=self.result.view(rows, self.width), residual_in=None, residual_out=None, norm_out=None,
            quant_out=None, scale_out=None, rms_gamma=None, rms_eps=None, scale_factor=None, layout_code=None)


class TensorRtOneShot(TensorRt):
    name = "tensorrt-one-shot"


class TensorRtEarly(TensorRt):
    """The kernel behind it on the stream may start before it has ended."""

    name, early = "tensorrt-one-shot-early", True


class TensorRtTwoShot(TensorRt):
    name, one_shot = "tensorrt-two-shot", False


CONTENDERS = {one.name: one for one in (
    Alnico, AlnicoMemory, AlnicoRegistered, Nccl, Gloo, SymmetricOneShot, SymmetricTwoShot, SymmetricMultimem, Vllm,
    TensorRtOneShot, TensorRtEarly, TensorRtTwoShot)}


@contextlib.contextmanager
def quiet():
    """FlashInfer prints addresses; the output here is JSON."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


class World:
    """This rank, its GPU, and what the ranks tell each other through the host."""

    def __init__(self, arguments, torch):
        self.arguments, self.torch = arguments, torch
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.type_name, self.type = arguments.type, getattr(torch, arguments.type)
        self.bytes = self.type.itemsize if hasattr(self.type, "itemsize") else torch.empty(0, dtype=self.type).element_size()
        self.gpu = arguments.device == "cuda"
        self.device = torch.device("cuda", self.rank) if self.gpu else torch.device("cpu")
        import torch.distributed as dist
        self.dist = dist
        if self.gpu:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device)
        else:
            dist.init_process_group("gloo")
        self.host_group = dist.new_group(backend="gloo")
        self.communicator = None

    def need_gpu(self):
        if not self.gpu:
            raise Absent("GPUs only")

    def alnico_communicator(self, alnico):
        if self.communicator is None:
            self.communicator = alnico.Communicator.from_torch(self.host_group, device=self.arguments.device)
        return self.communicator

    def tensor(self, count):
        return self.torch.zeros(count, dtype=self.type, device=self.device)

    def gather(self, mine):
        everybody = [None] * self.size
        self.dist.all_gather_object(everybody, mine, group=self.host_group)
        return everybody

    def synchronize(self):
        if self.gpu:
            self.torch.cuda.synchronize()

    def all_did(self, step, *arguments):
        """The step's result, or an error of one rank on all of them: those that are absent, others."""
        result, error = None, None
        try:
            result = step(*arguments)
        except (Absent, ImportError) as reason:
            error = ("absent", str(reason))
        except Exception as reason:  # of any library: it is named, and the others go on
            error = ("error", f"rank {self.rank}: {type(reason).__name__}: {reason}"[:400])
        errors = [one for one in self.gather(error) if one]
        return (None, errors[0]) if errors else (result, None)


def check(world, contender):
    """Sums of small whole numbers, which every type holds."""
    count = contender.source.numel()
    pattern = (world.torch.arange(count, device=world.device) % 7).to(world.type)
    contender.source.copy_(pattern + world.rank)
    contender.call()
    world.synchronize()
    expected = pattern * world.size + world.size * (world.size - 1) // 2
    wrong = int((contender.result != expected).sum())
    if wrong:
        raise ValueError(f"{wrong} of {count} elements are wrong")
    contender.source.zero_()
    world.synchronize()


class Timer:
    """One contender in one way at one size: its graph, and the times of its turns."""

    def __init__(self, world, contender, way):
        self.world, self.contender, self.way, self.times, self.graph = world, contender, way, [], None
        if way == "graph":
            self.capture()

    def capture(self):
        torch, stream = self.world.torch, self.world.torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.contender.call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(self.world.arguments.calls):
                self.contender.call()
        self.contender.captured()

    def run(self, rounds):
        for _ in range(rounds):
            if self.graph:
                self.graph.replay()
                continue
            for _ in range(self.world.arguments.calls):
                self.contender.call()

    def turn(self):
        """Microseconds of a call, of this rank."""
        arguments, torch = self.world.arguments, self.world.torch
        self.world.dist.barrier(group=self.world.host_group)
        self.run(arguments.warmup)
        if not self.world.gpu:
            begin = time.perf_counter()
            self.run(arguments.rounds)
            return 1e6 * (time.perf_counter() - begin) / (arguments.rounds * arguments.calls)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.run(arguments.rounds)
        end.record()
        torch.cuda.synchronize()
        return 1000 * begin.elapsed_time(end) / (arguments.rounds * arguments.calls)


def say(world, size, way, name, report):
    line = json.dumps({"program": "torch_allreduce", "gpus": world.size, "device": world.arguments.device, "type": world.type_name,
                       "bytes": size, "way": way, "contender": name, **report})
    if world.rank:
        return
    print(line, flush=True)
    if world.arguments.out:
        with open(world.arguments.out, "a") as file:
            print(line, file=file)


def open_all(world, contenders, size):
    """Those that have the size and are right, and what is to be said of the others."""
    there, others = [], {}
    for contender in contenders:
        _, error = world.all_did(contender.open, size // world.bytes)
        if not error:
            _, error = world.all_did(check, world, contender)
        if error:
            others[contender.name] = error
            contender.close()
        else:
            there.append(contender)
    return there, others


def measure(world, contenders, size, way):
    """The medians, in turns; and the errors."""
    there, others = open_all(world, contenders, size)
    timers = []
    for contender in there:
        timer, error = world.all_did(Timer, world, contender, way)
        if error:
            others[contender.name] = error
        else:
            timers.append(timer)
    for _ in range(world.arguments.repeats):
        for timer in timers:
            timer.times.append(max(world.gather(timer.turn())))
    medians = {timer.contender.name: statistics.median(timer.times) for timer in timers}
    bests = {timer.contender.name: min(timer.times) for timer in timers}
    timers.clear()  # graphs, before their buffers
    for contender in there:
        contender.close()
    return medians, bests, others


def find_contenders(world):
    found, absent = [], {}
    for name in world.arguments.only:
        contender, error = world.all_did(CONTENDERS[name], world)
        if error:
            absent[name] = error
        else:
            found.append(contender)
    return found, absent


def ratio(medians):
    """Alnico's best way over the best of the others."""
    ours = [us for name, us in medians.items() if name.startswith("alnico")]
    others = {name: us for name, us in medians.items() if not name.startswith("alnico")}
    if not ours or not others:
        return None
    best = min(others, key=others.get)
    return min(ours) / others[best], best


def show(rows):
    print(f"\n{'bytes':>10} {'way':>6} {'ratio':>6}  best of the others", file=sys.stderr)
    for size, way, found in rows:
        if found:
            print(f"{size:>10} {way:>6} {found[0]:>6.2f}  {found[1]}", file=sys.stderr)


def run(world):
    contenders, absent = find_contenders(world)
    failed = sum(kind == "error" for kind, _ in absent.values())
    for name, (kind, reason) in absent.items():
        say(world, None, None, name, {kind: reason})
    if "alnico" in absent:
        if world.rank == 0:
            print(f"torch_allreduce: alnico: {absent['alnico'][1]}", file=sys.stderr)
        return SKIPPED if absent["alnico"][0] == "absent" else 1
    rows = []
    for size in world.arguments.sizes:
        for way in world.arguments.ways:
            medians, bests, others = measure(world, contenders, size, way)
            for name, (kind, reason) in others.items():
                failed += kind == "error"
                say(world, size, way, name, {kind: reason})
            for name, us in medians.items():
                say(world, size, way, name, {"median_us": round(us, 3), "best_us": round(bests[name], 3)})
            rows.append((size, way, ratio(medians)))
    if world.rank == 0:
        show(rows)
    return 1 if failed else 0


# ---- Processes ----

def lacks(arguments):
    """What is missing here, or None."""
    try:
        import torch
        import torch.distributed  # noqa: F401
    except ImportError as missing:
        return str(missing)
    if arguments.device == "cuda" and torch.cuda.device_count() < arguments.gpus:
        return f"PyTorch sees {torch.cuda.device_count()} GPUs, expected {arguments.gpus}"
    try:
        import alnico
        alnico.Memory(8)
    except Exception as missing:  # no package, or no library for it
        return f"alnico: {missing}"
    return None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def start_ranks(arguments):
    """One process for each rank; the first status that is not 0, after which the others are ended."""
    meeting = {"WORLD_SIZE": str(arguments.gpus), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.DEVNULL,
                                  env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(arguments.gpus)]
    end = time.monotonic() + arguments.limit
    try:
        while time.monotonic() < end:
            statuses = [process.poll() for process in processes]
            failed = [status for status in statuses if status]
            if failed or all(status == 0 for status in statuses):
                time.sleep(2 if failed else 0)  # for what the others have to say
                return failed[0] if failed else 0
            time.sleep(0.1)
        print(f"torch_allreduce: not finished in {arguments.limit:g} s", file=sys.stderr)
        return 1
    finally:
        stop(processes)


def size_of(text):
    digits, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    if not digits.isdigit() or int(digits) * unit < 8 or int(digits) * unit % 8:
        raise argparse.ArgumentTypeError(f"{text}: expected a multiple of 8 bytes, as 8, 64K or 1M")
    return int(digits) * unit


def names(known):
    def read(text):
        for part in text.split(","):
            if part not in known:
                raise argparse.ArgumentTypeError(f"{part}: expected one of {', '.join(known)}")
        return text.split(",")
    return read


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=above(int), default=2, help="or ranks on the CPU (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    parser.add_argument("--sizes", type=lambda text: [size_of(part) for part in text.split(",")],
                        default="8,64,512,4K,8K,32K,64K,128K,256K,512K,1M", help="in bytes (%(default)s)")
    parser.add_argument("--type", choices=TYPES, default="float32", help="(%(default)s)")
    parser.add_argument("--ways", type=names(WAYS), default=",".join(WAYS), help="(%(default)s)")
    parser.add_argument("--only", type=names(CONTENDERS), default=",".join(CONTENDERS), help="contenders (%(default)s)")
    parser.add_argument("--calls", type=above(int), default=20, help="of a graph (%(default)s)")
    parser.add_argument("--rounds", type=above(int), default=20, help="of these calls in a turn (%(default)s)")
    parser.add_argument("--warmup", type=above(int), default=3, help="rounds before (%(default)s)")
    parser.add_argument("--repeats", type=above(int), default=9, help="turns of each contender (%(default)s)")
    parser.add_argument("--multicast", action="store_true", help="let symmetric memory use NVLink multicast")
    parser.add_argument("--limit", type=above(float), default=1800, help="seconds in all (%(default)s)")
    parser.add_argument("--out", help="a file that the lines are appended to, too")
    arguments = parser.parse_args()
    if arguments.gpus < 2:
        parser.error(f"--gpus {arguments.gpus}: expected 2 or more")
    if arguments.device == "cpu":
        arguments.ways = ["eager"]
    require_writable(parser, arguments.out)
    return arguments


def main():
    arguments = parse()
    if not arguments.multicast:
        os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    if "RANK" not in os.environ:
        missing = lacks(arguments)
        if missing:
            print(f"torch_allreduce: {missing}", file=sys.stderr)
            return SKIPPED
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of stop()
        return start_ranks(arguments)
    import torch
    world = World(arguments, torch)
    status = run(world)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what is left of graphs and communicators may hang when it is destroyed


if __name__ == "__main__":
    sys.exit(main())
