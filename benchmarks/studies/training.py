"""Runs of alnico-train that a study is made of, several at once on cores or GPUs of their own, and pictures in the style of
study.h. A run that was finished in the folder is not repeated; one that was stopped goes on from its checkpoint."""
import argparse
import collections
import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_HERE = 77
# Seconds that stopped runs have for their checkpoints; between two looks at the runs.
GRACE, LOOK = 20, 0.01
TERMINALS = {".svg": ("svg size {},{} dynamic background '#ffffff' font 'sans,14'", 900),
             ".png": ("pngcairo size {},{} font 'sans,18'", 1350)}
COLOURS = ("#000000", "#a04000", "#1f4e9c", "#107030")

# A run: a name of its own, processes, options of alnico-train. With `threads` a rank it has all cores or GPUs to itself, so
# that its times can be compared; otherwise it has a unit for each rank: a core, or a share of a GPU.
Run = collections.namedtuple("Run", "name ranks options threads", defaults=(None,))


def fail(text, status=1):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
    sys.exit(status)


# ---- Options ----

def numbers(kind, least, most=float("inf")):
    """Reads one or more numbers with commas between them, without repeating one."""
    def read(text):
        try:
            values = [kind(part) for part in text.split(",")]
        except ValueError:
            values = []
        if not values or not all(least <= value <= most for value in values):
            bounds = f"from {least} to {most}" if most < float("inf") else f"of at least {least}"
            raise argparse.ArgumentTypeError(f"{text}: expected {'whole ' if kind is int else ''}numbers {bounds}")
        return sorted(set(values))
    return read


def number(kind, least, most=float("inf")):
    """Reads one number."""
    def read(text):
        values = numbers(kind, least, most)(text)
        if "," in text:
            raise argparse.ArgumentTypeError(f"{text}: expected one number")
        return values[0]
    return read


def parser_make(name, about, trains=True):
    """`trains`: the study's runs are of one source of images, and kept in a folder."""
    parser = argparse.ArgumentParser(prog=f"study_{name}", description=about,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", default=os.path.join(HERE, "..", "..", "build"), help="where tools/alnico-train is (build)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what computes (%(default)s)")
    add("--full", action="store_true", help="as large as the source's experiment")
    add("--json", metavar="FILE", help="writes the results")
    add("--picture", metavar="FILE.svg|FILE.png", help="draws them, by gnuplot")
    if trains:
        add("--data", metavar="SOURCE", default="fashion-mnist", help="images, as alnico-train's (%(default)s)")
        add("--folder", metavar="DIR", help="keeps the runs; those that are there are not repeated (none is kept)")
    return parser


def at_once_add(parser):
    """For studies of many runs whose times are compared with each other only."""
    parser.add_argument("--at-once", metavar="N", type=number(int, 1, 16), help="runs that share a GPU (1)")


def arguments_check(parser, arguments):
    """What all studies refuse, before anything is run."""
    if not os.access(os.path.join(arguments.build, "tools", "alnico-train"), os.X_OK):
        parser.error(f"--build {arguments.build}: has no tools/alnico-train")
    if getattr(arguments, "at_once", None) and arguments.device == "cpu":
        parser.error(f"--at-once {arguments.at_once}: is of --device cuda")
    if arguments.picture and not arguments.picture.endswith(tuple(TERMINALS)):
        parser.error(f"--picture {arguments.picture}: expected a name that ends with .svg or .png")
    if arguments.picture and not shutil.which("gnuplot"):
        fail(f"--picture {arguments.picture}: gnuplot is not installed", NOT_HERE)
    if arguments.json:
        try:
            open(arguments.json, "a").close()
        except OSError as error:
            fail(f"--json {arguments.json}: {error.strerror}")


# ---- Runs ----

def gpus_list():
    """Those that may be seen, as CUDA_VISIBLE_DEVICES names them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False).stdout
    except OSError:
        return []
    return listed.split()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Active:
    """A run that has been started: its processes, and the cores or GPUs that it holds."""

    def __init__(self, run, units, processes):
        self.run, self.units, self.processes = run, units, processes

    def ended(self):
        """All have, or one has failed and the others wait for it in vain."""
        states = [process.poll() for process in self.processes]
        return None not in states or any(states)

    def stop(self, number):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def wait(self, limit):
        """Whether all ended in time."""
        end = time.monotonic() + limit
        while time.monotonic() < end and any(process.poll() is None for process in self.processes):
            time.sleep(LOOK)
        return all(process.poll() is not None for process in self.processes)

    def finish(self):
        """Ends those that are left; the statuses of all, in which 0 is success."""
        if not self.wait(GRACE):
            self.stop(signal.SIGKILL)
        return [process.wait() for process in self.processes]


class Runs:
    """What alnico-train made of each run: its report, {"diverged": why}, or None where the study's `with` has ended it."""

    def __init__(self, arguments):
        self.device, self.data = arguments.device, arguments.data
        self.program = os.path.join(arguments.build, "tools", "alnico-train")
        devices = gpus_list() if self.device == "cuda" else range(len(os.sched_getaffinity(0)))
        if not devices:
            fail("--device cuda: this machine has no GPU", NOT_HERE)
        self.count = len(devices)
        self.units = [(share, device) for share in range(getattr(arguments, "at_once", None) or 1) for device in devices]
        self.free, self.active, self.machine = list(self.units), [], None
        self.temporary = None if arguments.folder else tempfile.TemporaryDirectory()
        self.folder = arguments.folder or self.temporary.name
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            fail(f"--folder {self.folder}: {error.strerror}")

    def __enter__(self):
        for number in signal.SIGINT, signal.SIGTERM:
            signal.signal(number, lambda caught, _: sys.exit(128 + caught))
        return self

    def __exit__(self, *_):
        for active in self.active:
            active.stop(signal.SIGTERM)
        for active in self.active:
            active.finish()
        if self.temporary:
            self.temporary.cleanup()

    def path(self, run, ending):
        return os.path.join(self.folder, f"{run.name}.{ending}")

    def ranks_of(self, workers):
        """The most ranks that divide the workers and have a core or GPU each."""
        return max(ranks for ranks in range(1, self.count + 1) if workers % ranks == 0)

    def each(self, wanted):
        """Yields (run, result) as runs end."""
        waiting = collections.deque(wanted)
        while waiting or self.active:
            while waiting and self._start(waiting):
                pass
            for active in [active for active in self.active if active.ended()]:
                yield active.run, self._end(active)
            time.sleep(LOOK)

    def all(self, wanted, tell=lambda run, result: None):
        """The results by name."""
        results = {}
        for run, result in self.each(wanted):
            results[run.name] = result
            tell(run, result)
        return results

    def curve(self, run):
        """(step, seconds, mean loss of the steps since the row before) of training. A run that went on after a stop began its
        seconds anew."""
        rows, before, last = [], 0, 0
        with open(self.path(run, "csv")) as file:
            for row in csv.DictReader(file):
                seconds = float(row["seconds"])
                if seconds < last:
                    before += last
                last = seconds
                if row["loss"]:
                    rows.append((int(row["step"]), before + seconds, float(row["loss"])))
        return rows

    def _start(self, waiting):
        """Whether the first one that waits has been started."""
        units = self._units_for(waiting[0])
        if not units:
            return False
        run = waiting.popleft()
        self.free = [unit for unit in self.free if unit not in units]
        self.active.append(Active(run, units, [] if self._kept(run) else self._launch(run, units)))
        return True

    def _units_for(self, run):
        """Free ones, each of another core or GPU; none if they are too few."""
        if run.threads:
            return self.free if len(self.free) == len(self.units) else []
        units = list({unit[1]: unit for unit in self.free}.values())
        return units[:run.ranks] if len(units) >= run.ranks else []

    def _command(self, run):
        return ["--data", self.data, "--device", self.device, *run.options]

    def _kept(self, run):
        """Whether the folder has the result of these options; what it has of others is removed."""
        command = " ".join([str(run.ranks), *self._command(run)])
        try:
            with open(self.path(run, "options")) as file:
                same = file.read() == command
        except OSError:
            same = False
        if not same:
            for ending in "json", "csv", "checkpoint":
                if os.path.exists(self.path(run, ending)):
                    os.remove(self.path(run, ending))
            with open(self.path(run, "options"), "w") as file:
                file.write(command)
        return os.path.exists(self.path(run, "json"))

    def _launch(self, run, units):
        command = [self.program, *self._command(run), "--json", self.path(run, "part"), "--log", self.path(run, "csv"),
                   "--save", self.path(run, "checkpoint")]
        if os.path.exists(self.path(run, "checkpoint")):
            command += ["--load", self.path(run, "checkpoint")]
        if self.device == "cpu":
            command += ["--threads", str(run.threads or 1)]
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("PMI", "PMIX", "OMPI_", "SLURM", "ALNICO_RANK", "ALNICO_SIZE", "ALNICO_ADDRESS"))}
        if self.device == "cuda":
            command += ["--plan-cache", os.path.join(self.folder, "plans.json")]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(sorted({device for _, device in units}))
        if run.ranks > 1:
            environment.update(ALNICO_SIZE=str(run.ranks), ALNICO_ADDRESS=f"127.0.0.1:{free_port()}")
        with open(self.path(run, "log"), "w") as log:
            return [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                     env={**environment, **({"ALNICO_RANK": str(rank)} if run.ranks > 1 else {})})
                    for rank in range(run.ranks)]

    def _end(self, active):
        statuses = active.finish()
        self.active.remove(active)
        self.free = sorted(self.free + active.units, key=self.units.index)
        if statuses:
            self._keep(active.run, any(statuses))
        with open(self.path(active.run, "json")) as file:
            result = json.load(file)
        self.machine = self.machine or result.get("machine")
        return result

    def _keep(self, run, failed):
        """Only a whole run gets its result."""
        result = {}
        if failed:
            with open(self.path(run, "log")) as log:
                said = [line.strip() for line in log if line.startswith("alnico-train: ")] or ["it failed"]
            why = next((line for line in said if "is not a number" in line), None)
            if not why:
                fail(f"{run.name}: {said[0]}", NOT_HERE if "out of memory" in "".join(said) else 1)
            result = {"diverged": why}
        else:
            with open(self.path(run, "part")) as file:
                result = json.load(file)
            if result["stopped"]:
                fail(f"{run.name}: alnico-train was stopped; the same command goes on")
        with open(self.path(run, "part"), "w") as file:
            json.dump(result, file)
        os.replace(self.path(run, "part"), self.path(run, "json"))
        if os.path.exists(self.path(run, "checkpoint")):
            os.remove(self.path(run, "checkpoint"))


def data_check(arguments):
    """Fashion-MNIST is a package; what is missing elsewhere alnico-train names."""
    if arguments.data == "fashion-mnist" and not os.path.isdir("/usr/share/datasets/fashion-mnist"):
        fail("--data fashion-mnist: needs Debian's dataset-fashion-mnist; --data idx:DIR names another place", NOT_HERE)


# ---- Results ----

def report_write(path, name, machine, content):
    if path:
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(path, "w") as file:
            json.dump({"study": name, "date": date, "machine": machine, **content}, file, indent=1)
            file.write("\n")


def picture_draw(path, title, panels, columns=1, height=0.5):
    """Each panel is lines of gnuplot; its height is a share of its width. Lines 1 to 8 can be told apart in black and white."""
    if not path:
        return
    terminal, width = TERMINALS[path[-4:]]
    rows = -(-len(panels) // columns)
    lines = [f"set terminal {terminal.format(width, int(width * height * rows / columns))}", f"set output '{path}'"]
    lines += [f"set linetype {i + 1} lc rgb '{COLOURS[i % 4]}' lw {1.5 if i < 4 else 3} dt {i % 4 + 1} pt {i + 4} ps 0.6"
              for i in range(8)]
    lines += ["set grid", "set key outside right top", f"set multiplot layout {rows},{columns} title '{title}' noenhanced"]
    script = "\n".join(lines + panels + ["unset multiplot", ""])
    done = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        fail(f"--picture {path}: gnuplot failed: {done.stderr.strip()}")


def series(name, rows):
    """A block of data for gnuplot."""
    return "\n".join([f"${name} << END", *(" ".join(str(value) for value in row) for row in rows), "END"])


def mean(values):
    return sum(values) / len(values)
