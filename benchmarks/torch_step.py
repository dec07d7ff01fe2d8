#!/usr/bin/env python3
"""One measurement of benchmarks/torch_resnet.py, which starts this once for each GPU: a network of torch_models.py, synthetic
data that stays on the GPU, channels_last. Precisions that end in -pure have parameters in 16 bits, too, and no autocast. With several GPUs the variables are those of torch.distributed.

Rank 0 prints one JSON object: the median of the steps after warm-up, and the most memory that was allocated. Exit status: 77
without PyTorch or a GPU.

    torch_step.py --way compile --precision bf16 --batch 256
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch_models import LABEL_PIXELS, MODELS, loss as loss_of
except ImportError as missing:
    print(f"torch_step: {missing}", file=sys.stderr)
    sys.exit(77)

TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "bf16-pure": torch.bfloat16, "fp16-pure": torch.float16}
LOSS_SCALE = {"fp16": 1024.0, "fp16-pure": 1024.0}


def make_step(arguments, device, world):
    """The model, and a function that runs one training step, on the current stream."""
    way, precision = arguments.way, arguments.precision
    torch.manual_seed(1)
    kind, pure = TYPES[precision], precision.endswith("-pure")
    make, side, channels, classes = MODELS[arguments.model]
    side = arguments.image or side
    model = make().to(device, kind if pure else torch.float32, memory_format=torch.channels_last)
    images = torch.randn(arguments.batch, channels, side, side, device=device)
    images = images.to(kind or torch.float32, memory_format=torch.channels_last)
    sides = (side, side) if arguments.model in LABEL_PIXELS else ()
    labels = torch.randint(classes, (arguments.batch, *sides), device=device)
    scale = LOSS_SCALE.get(precision, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3 / scale, momentum=0.9, weight_decay=5e-5,
                                fused=True)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(
            model, device_ids=[device.index], gradient_as_bucket_view=True, static_graph=True,
            bucket_cap_mb=arguments.bucket)
    run = model
    if way in ("compile", "max-autotune", "reduce-overhead"):
        mode = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs",
                "reduce-overhead": "reduce-overhead"}[way]
        run = torch.compile(model, mode=mode)

    def step():
        context = torch.autocast("cuda", dtype=kind) if kind and not pure else contextlib.nullcontext()
        with context:
            loss = loss_of(run(images), labels) * scale
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=way != "graph")
        return loss

    return model, step


def make_graph(arguments, device, world):
    """The same as one CUDA graph. All of it is made on the stream that it is captured on, as DDP wants it."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model, step = make_step(arguments, device, world)
        for _ in range(15 if world > 1 else 5):  # DDP wants eleven before a capture
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return model, graph.replay


def measure(step, arguments):
    """Microseconds of each step."""
    for _ in range(arguments.warmup):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    marks[0].record()
    for i in range(arguments.steps):
        step()
        marks[i + 1].record()
    torch.cuda.synchronize()
    return [1000 * marks[i].elapsed_time(marks[i + 1]) for i in range(arguments.steps)]


def run(arguments, device, world):
    begin = time.time()
    model, step = (make_graph if arguments.way == "graph" else make_step)(arguments, device, world)
    times = measure(step, arguments)
    median = statistics.median(times)
    if world > 1:
        slowest = torch.tensor([median], device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        median = slowest.item()
    return {"image": arguments.image or MODELS[arguments.model][1], "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "gpu": torch.cuda.get_device_name(device),
            "median_us": round(median, 1), "best_us": round(min(times), 1),
            "images_per_second": round(world * arguments.batch / median * 1e6, 1),
            "parameters": sum(p.numel() for p in model.parameters()), "memory_bytes": torch.cuda.max_memory_allocated(),
            "seconds": round(time.time() - begin, 1)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", choices=MODELS)
    parser.add_argument("--way", required=True)
    parser.add_argument("--precision", required=True, choices=TYPES)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--image", type=int, default=0, help="0: the model's own")
    parser.add_argument("--warmup", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--bucket", type=float, default=25, help="of DDP, in MB (%(default)s)")
    return parser.parse_args()


def main():
    arguments = parse()
    world, rank, local = (int(os.environ.get(name, default))
                          for name, default in (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0")))
    if local >= torch.cuda.device_count():
        print(f"torch_step: PyTorch sees {torch.cuda.device_count()} GPUs, expected {local + 1}", file=sys.stderr)
        return 77
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    if world > 1:
        dist.init_process_group("nccl", device_id=device)
    report = run(arguments, device, world)
    if rank == 0:
        print(json.dumps(report), flush=True)
    sys.stderr.flush()
    os._exit(0)  # what is left of graphs and communicators may hang when it is destroyed


if __name__ == "__main__":
    sys.exit(main())
