"""Single runs of the build's programs, for the studies overhead and frameworks: their reports, and what keeps them from running.
On several ranks they meet by ALNICO_RANK, ALNICO_SIZE and ALNICO_ADDRESS."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import training

sys.path.append(os.path.join(training.HERE, ".."))
import packed_images  # noqa: E402


def networks(powers):
    """Reads NAME:BATCH,...; `powers`: of batches that are powers of two."""
    def read(text):
        pairs = []
        for part in text.split(","):
            name, _, batch = part.rpartition(":")
            fits = batch.isdecimal() and int(batch) > 0 and not (powers and int(batch) & (int(batch) - 1))
            if not name or not fits:
                raise argparse.ArgumentTypeError(f"{part}: expected NAME:BATCH" + (", a batch being a power of two" if powers else ""))
            pairs.append((name, int(batch)))
        return pairs
    return read


class Programs:
    """Those of a build, on its device; reports stand in a folder that is removed at the end."""

    def __init__(self, parser, arguments, names):
        training.arguments_check(parser, arguments)
        self.parser, self.build, self.device = parser, arguments.build, arguments.device
        for name in names:
            if not os.access(self.path(name), os.X_OK):
                parser.error(f"--build {arguments.build}: has no tools/{name}")
        if arguments.device == "cuda" and not training.gpus_list():
            training.fail("--device cuda: this machine has no GPU", training.NOT_HERE)
        self.temporary = tempfile.TemporaryDirectory()
        self.folder, self.machine, self.count = self.temporary.name, None, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def path(self, name):
        return os.path.join(self.build, "tools", name)

    def check(self, name, *options):
        """A usage error, in the program's words, if it fails."""
        done = subprocess.run([self.path(name), *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            self.parser.error((done.stderr.splitlines() or [name])[0].partition(": ")[2])

    def sides(self, model):
        """Height, width and channels of the images that a network is usually trained on; a usage error if there is none."""
        report = os.path.join(self.folder, "network.json")
        self.check("alnico-train", "--describe", "--model", model, "--batch", "1", "--json", report)
        with open(report) as file:
            return json.load(file)["network"]["input"]

    def pack(self, sides, images):
        """A packed file of so many random images of 10 classes, instead of the one before; sides: height, width."""
        path = os.path.join(self.folder, "images.packed")
        packed_images.make(self.path("alnico-pack"), os.path.join(self.folder, "images"), path, sides, images, min(10, images))
        return path

    def run(self, name, *options, ranks=1):
        """The report, and its path. If a rank fails the study ends, with 77 for want of memory."""
        self.count += 1
        report = os.path.join(self.folder, f"{self.count}.json")
        command = [self.path(name), *options, "--json", report]
        environment = dict(os.environ)
        if ranks > 1:
            environment.update(ALNICO_SIZE=str(ranks), ALNICO_ADDRESS=f"127.0.0.1:{training.free_port()}")
        processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**environment, **({"ALNICO_RANK": str(rank)} if ranks > 1 else {})})
                     for rank in range(ranks)]
        said = [process.communicate()[0] for process in processes]
        for process, text in zip(processes, said):
            if process.returncode:
                short = re.search(r"out of memory: .*", text)
                training.fail(short.group(0) if short else f"{' '.join(command)}: {(text.strip().splitlines() or ['failed'])[-1]}",
                              training.NOT_HERE if short else 1)
        with open(report) as file:
            result = json.load(file)
        self.machine = self.machine or result.get("machine")
        return result, report

    def train(self, *options, ranks=1):
        """As run, of alnico-train on the device."""
        more = ["--plan-cache", os.path.join(self.folder, "plans.json")] if self.device == "cuda" else []
        return self.run("alnico-train", "--device", self.device, *more, *options, ranks=ranks)
