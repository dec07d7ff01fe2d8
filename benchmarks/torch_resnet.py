#!/usr/bin/env python3
"""The peer of alnico-train on GPUs: the same networks in PyTorch (benchmarks/torch_step.py), with DDP on several.

Each way, precision, batch and number of GPUs is a run by itself with a time limit, so that one that compiles for too long
costs no more. Prints one JSON object a line for each, as soon as it has ended, and appends it to --out: the median of the steps
and the most memory that was allocated, or why there is none. What takes long comes last. scripts/plot-train draws the lines
beside benchmarks/weak_scaling. Exit status: 0 if all were measured, 1 if not, 77 without PyTorch or a GPU.

    torch_resnet.py --out torch.json
    torch_resnet.py --gpus 1 --batches 256 --ways max-autotune --precisions fp16 --limit 600
    torch_resnet.py --gpus 4 --ways eager,compile,graph,reduce-overhead
    torch_resnet.py --models alexnet --batches 1024 --precisions bf16,fp16,bf16-pure --out alexnet.json
    torch_resnet.py --models mesh1k --batches 1 --precisions bf16,fp16 --out mesh.json

Ways: eager, compile, max-autotune (without CUDA graphs; on one GPU only), reduce-overhead (compiled, in CUDA graphs), graph
(eager, a whole step as one CUDA graph).
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from arguments import above, require_writable

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = ("eager", "compile", "graph", "reduce-overhead", "max-autotune")
PRECISIONS = ("fp32", "bf16", "fp16", "bf16-pure", "fp16-pure")
MODELS = ("resnet50", "alexnet", "googlenet", "googlenet-aux", "mnist", "alexnet-cifar", "mesh1k", "mesh2k")
SKIPPED = 77


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(arguments, model, gpus, batch, precision, way, files):
    """One process for each GPU, each with processes of its own to kill."""
    command = [arguments.python, os.path.join(HERE, "torch_step.py"), "--model", model, "--way", way,
               "--precision", precision, "--batch", str(batch), "--image", str(arguments.image), "--warmup", str(arguments.warmup), "--steps",
               str(arguments.steps), "--bucket", str(arguments.bucket)]
    meeting = {"WORLD_SIZE": str(gpus), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} if gpus > 1 else {}
    return [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                             env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank, (out, err) in enumerate(files)]


def stop(processes):
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                os.killpg(process.pid, sign)
            except ProcessLookupError:
                pass
        for process in processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass


def wait(processes, limit):
    """The rank and exit status of the first that failed; None: all went well; "late": they did not end."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended = [(rank, process.poll()) for rank, process in enumerate(processes)]
        failed = [one for one in ended if one[1]]
        if failed or all(status == 0 for _, status in ended):
            return failed[0] if failed else None
        time.sleep(0.1)
    return "late"


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace").strip()


def result(outcome, files, limit):
    """What a run gave: its report, or {"error": ...}."""
    if outcome == "late":
        return {"error": f"not finished in {limit:g} s"}
    if outcome:
        rank, status = outcome
        return {"error": f"rank {rank} ended with {status}: {(text_of(files[rank][1]).splitlines() or ['(silent)'])[-1]}"[:400]}
    try:
        return json.loads(text_of(files[0][0]).splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "rank 0 reported nothing"}


def run(arguments, model, gpus, batch, precision, way):
    """The report; None if PyTorch or a GPU is missing."""
    files = [(tempfile.TemporaryFile(), tempfile.TemporaryFile()) for _ in range(gpus)]
    processes = start(arguments, model, gpus, batch, precision, way, files)
    try:
        outcome = wait(processes, arguments.limit)
    finally:
        stop(processes)
    if outcome not in (None, "late") and outcome[1] == SKIPPED:
        print(text_of(files[outcome[0]][1]), file=sys.stderr)
        return None
    return {"program": "torch_resnet", "model": model, "gpus": gpus, "way": way, "precision": precision, "batch": batch,
            "image": arguments.image, "steps": arguments.steps, **result(outcome, files, arguments.limit)}


def parts(known=None):
    """A list between commas, of names or of numbers above 0."""
    def read(text):
        for part in text.split(","):
            if part not in known if known else not part.isdigit() or int(part) < 1:
                raise argparse.ArgumentTypeError(f"{part}: expected " + (f"one of {', '.join(known)}" if known else "a number"))
        return [part if known else int(part) for part in text.split(",")]
    return read


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=parts(MODELS), default="resnet50", help=f"of {','.join(MODELS)} (%(default)s)")
    parser.add_argument("--gpus", type=parts(), default="1", help="numbers of GPUs (%(default)s)")
    parser.add_argument("--batches", type=parts(), default="256,32", help="images on each GPU (%(default)s)")
    parser.add_argument("--precisions", type=parts(PRECISIONS), default="bf16,fp16",
                        help=f"of {','.join(PRECISIONS)} (%(default)s)")
    parser.add_argument("--ways", type=parts(WAYS), default=",".join(WAYS), help="(%(default)s)")
    parser.add_argument("--limit", type=above(float), default=120, help="seconds of one run (%(default)s)")
    parser.add_argument("--out", help="a file that the lines are appended to, too")
    parser.add_argument("--image", type=above(int), default=0, help="their side (the model's own)")
    parser.add_argument("--warmup", type=int, default=15, help="steps (%(default)s)")
    parser.add_argument("--steps", type=above(int), default=30, help="that are measured (%(default)s)")
    parser.add_argument("--bucket", type=above(float), default=25, help="of DDP, in MB (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="that has PyTorch (%(default)s)")
    arguments = parser.parse_args()
    if not shutil.which(arguments.python):
        parser.error(f"--python {arguments.python}: no such program")
    require_writable(parser, arguments.out)
    return arguments


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of stop()
    runs = [(model, gpus, batch, precision, way) for model in arguments.models for gpus in arguments.gpus
            for batch in arguments.batches for precision in arguments.precisions for way in arguments.ways
            if gpus == 1 or way != "max-autotune"]
    failed = 0
    for one in sorted(runs, key=lambda run: WAYS.index(run[4]) > 2):
        report = run(arguments, *one)
        if report is None:
            return SKIPPED
        failed += "error" in report
        print(json.dumps(report), flush=True)
        if arguments.out:
            with open(arguments.out, "a") as file:
                print(json.dumps(report), file=file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
