"""Four jobs on one node that read the same photographs: samples a second of all together, and processor time.

    PYTHON jobs.py --build BUILD [--rounds N] [--count N] [--epochs N] [--pace MS] [--peers PYTHON] [ROW ...]

PYTHON has PyTorch, torchvision and Pillow; --peers names one that has tensorsocket and these, zephon and pyarrow. What
it lacks is left out, with the reason.
Photographs are made in a private directory, as photos.py makes them. A trainer takes --pace ms for a sample, in
which it sleeps. Counted is from the first job's first batch to the last one's last, decoding included. Runs take
turns; printed are medians, and ratios of the same turns. The loader's processor time is that of all processes but the
trainers', whoever has started them: this one adopts, and waits for, what a daemon or a trainer leaves.

  seeds      each job has its own seed, batch size, pace (within 20 %) and start (within a second): ImageFolder, of
             PyTorch with one worker each, and with the import changed and cache="1GiB"; how often a picture was not
             found decoded, and processor time beside that of one job that reads as many samples
  identical  all have one spec, and begin together: with share.window, without it, and one job alone; four of PyTorch's
             loaders; and one of these with two workers, whose batches TensorSocket gives to all four, by four
             batches, of which an epoch should have a multiple: 128 pictures
  table      each job has its own seed, batch size and start, and reads rows of 256 numbers of the same Parquet files:
             with `shared` row groups, and without; zephon with its row groups that a node shares, and without

Bars: seeds: 3.6 x PyTorch, and processor time as of one job; identical: 1.1 x the processor time of one.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import photos

JOBS, BATCHES, WINDOW = 4, (32, 48, 64, 24), 64
PATIENCE = 300  # seconds for a run
BECOME_SUBREAPER = 36  # prctl: a process that loses its parent below this one becomes its child

# Reads when it is told to, and says what it took.
TRAINER = """
import json, os, resource, sys, time
job = json.loads(sys.argv[1])
SETUP
loader = make()
print("ready", flush=True)
sys.stdin.readline()
time.sleep(job["delay"])
begun, samples = time.monotonic(), 0
for epoch in range(job["epochs"]):
    for batch in loader:
        n = count(batch)
        samples += n
        time.sleep(n * job["pace"])
        del batch
ended = time.monotonic()
print(json.dumps({"begun": begun, "ended": ended, "samples": samples}), flush=True)
sys.stdin.readline()
finish(loader)
own = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"own": own.ru_utime + own.ru_stime}), flush=True)
os._exit(0)
"""

DATA = """
import torch, torchvision
import torchvision.transforms as t
torch.set_num_threads(1)
def pictures():
    return torchvision.datasets.ImageFolder("photos", t.Compose([
        t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(),
        t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))
def count(batch):
    return len(batch[1])
def finish(loader):
    loader._iterator = None
"""
LOADER = """
from MODULE import DataLoader
def make():
    torch.manual_seed(job["seed"])
    return DataLoader(pictures(), batch_size=job["batch"], shuffle=True, num_workers=1, persistent_workers=TrueMORE)
"""
SPEC = """
import dloaderd
def make():
    return dloaderd.Loader(job["spec"], as_="numpy")
def count(batch):
    return len(batch[job.get("column", "label")])
def finish(loader):
    loader.close()
"""

LOADS_TORCH = LOADER.replace("MODULE", "torch.utils.data").replace("MORE", "")
PRODUCER = DATA + LOADS_TORCH.replace("workers=1", "workers=2") + """
from tensorsocket import TensorProducer
port, acks, *hearts = job["ports"]
producer = TensorProducer(make(), port=port, ack_port=acks, heart_ports=tuple(hearts), producer_batch_size=4)
while len(producer.hb.consumers) < job["jobs"]:
    time.sleep(0.05)
while True:
    for _ in producer:
        pass
"""
CONSUMER = DATA + """
from tensorsocket import TensorConsumer
def make():
    port, acks, *hearts = job["ports"]
    return TensorConsumer(port=port, ack_port=acks, heart_ports=tuple(hearts), batch_size=job["batch"])
def finish(loader):
    pass
"""
ZEPHON = """
from zephon import Dataset, MixtureSpec, Pipeline, StaticMixtureWorkSource
class Epochs:
    epoch = 0
    def __iter__(self):
        self.epoch += 1
        work = StaticMixtureWorkSource(datasets=[Dataset.from_path(name="table", path="table")], chunk_size=256,
                                       mixture=MixtureSpec({"table": 1.0}), exhausted_policy="stop",
                                       shuffle_within_shard=True, seed=job["seed"] + 1000 * self.epoch)
        return iter(Pipeline(work).batch(microbatch_size=job["batch"]).options(
            io_options={"parquet": {"rg_cache": job["kept"]}}))
make = Epochs
def count(batch):
    return len(batch)
def finish(loader):
    pass
"""

SETUPS = {
    "PyTorch": DATA + LOADS_TORCH,
    "import changed": DATA + LOADER.replace("MODULE", "dloaderd").replace("MORE", ', cache="1GiB"'),
    "spec": SPEC,
    "TensorSocket": CONSUMER,
    "zephon": ZEPHON,
}
PEERS = {"TensorSocket": "tensorsocket", "zephon": "zephon"}


def spec(folder, **more):
    return {"name": "jobs", "dataset": {"kind": "imagefolder", "paths": str(folder / "photos"), "layout": "chw",
                                        "transforms": [{"kind": "RandomResizedCrop", "size": 224},
                                                       "RandomHorizontalFlip"]},
            "sampler": {"kind": "random"}, "seed": 1, "batch": {"size": 32}, "workers": {"count": 2}, **more}


def table_spec(folder, job, **more):
    dataset = {"kind": "parquet", "paths": f"{folder}/table/*.parquet", **more}
    return {"name": f"table-{job['seed']}", "dataset": dataset, "sampler": {"kind": "random"}, "seed": job["seed"],
            "batch": {"size": job["batch"]}, "workers": {"count": 1}}


def make_table(folder):
    import numpy
    import pyarrow
    import pyarrow.parquet
    folder.mkdir()
    draw = numpy.random.default_rng(1)
    for part in range(8):
        x = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(draw.random(2000 * 256, numpy.float32)), 256)
        pyarrow.parquet.write_table(pyarrow.table({"x": x, "y": numpy.arange(2000) + 2000 * part}),
                                    folder / f"{part}.parquet", row_group_size=500, compression="zstd")


def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(n)]
        return [one.getsockname()[1] for one in sockets]


class Process:
    """A program that says when it is ready, and whose processor time, with its children's, is read at its end."""

    def __init__(self, command, bench):
        self.process = subprocess.Popen(command, cwd=bench.folder, env=bench.env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def line(self, start):
        """The next one that begins so, without those that packages log; '': there is none."""
        return next((line for line in self.process.stdout if line.startswith(start)), "")

    def wait_ready(self):
        if not self.line("ready"):
            raise SystemExit(f"{self.process.args[-1]}: it did not begin")

    def tell(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def said(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
        line = self.line("{")
        return json.loads(line) if line else None

    def end(self):
        """Seconds of processors: those of its children, as it ends them, and its own."""
        own = self.said()
        seconds = seconds_of(self.process)
        self.process.stdin.close()
        self.process.stdout.close()
        return (seconds - own["own"], own["own"]) if own else (0, 0)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.build = args, folder, args.build.resolve()
        self.socket = folder / "socket"
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.build / "client/python"), *sys.path[1:]]),
                    "DLOADER_SOCKET": str(self.socket), "OMP_NUM_THREADS": "1"}

    @contextlib.contextmanager
    def daemon(self, used):
        """Its processor time, and its workers', goes to `used`."""
        config = self.folder / "dloaderd.conf"
        config.write_text(json.dumps({"worker": str(self.build / "daemon/dloader-worker"), "linger": "5s"}))
        process = subprocess.Popen([self.build / "daemon/dloaderd", "--socket", self.socket, "--config", config],
                                   stderr=subprocess.DEVNULL)
        while not self.socket.exists():
            time.sleep(0.02)
        try:
            yield
        finally:
            process.terminate()
            used.append(seconds_of(process) + seconds_of_orphans())

    def decoded(self):
        text = subprocess.run([self.build / "client/dlctl/dlctl", "loaders", "--socket", self.socket, "--json"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        return max((row["cache_misses"] or 0 for row in json.loads(text)), default=0)

    def has(self, peer):
        """Whether it is measured; says why it is not."""
        if not self.args.peers:
            return False
        command = [self.args.peers, "-c", f"import {PEERS[peer]}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{peer} is left out: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return done.returncode == 0

    @contextlib.contextmanager
    def producer(self, jobs, used):
        """What makes TensorSocket's batches; the jobs learn where."""
        for job in jobs:
            job["ports"] = jobs[0].get("ports") or free_ports(4)
        code = f"import json, sys, time\njob = json.loads(sys.argv[1])\n{PRODUCER}"
        producer = Process([self.args.peers, "-c", code, json.dumps({**jobs[0], "jobs": len(jobs)})], self)
        try:
            yield
        finally:
            producer.process.kill()
            used.append(seconds_of(producer.process))

    def run(self, contender, jobs):
        """What the jobs did together."""
        program, used = TRAINER.replace("SETUP", SETUPS[contender]), []
        python = self.args.peers if contender in PEERS else sys.executable
        jobs = [{"epochs": self.args.epochs, **job} for job in jobs]
        with self.daemon(used), self.producer(jobs, used) if contender == "TensorSocket" else contextlib.nullcontext():
            processes = [Process([python, "-c", program, json.dumps(job)], self) for job in jobs]
            for process in processes:
                process.wait_ready()
            for process in processes:
                process.tell()
            said = [process.said() for process in processes]
            decoded = self.decoded() if contender == "import changed" else 0
            for process in processes:
                process.tell()
            loaders, own = zip(*(process.end() for process in processes))
        if None in said or not all(own):
            raise SystemExit(f"{contender}: a job failed")
        samples = sum(one["samples"] for one in said)
        took = max(one["ended"] for one in said) - min(one["begun"] for one in said)
        loader = sum(loaders) + sum(used)
        return {"rate": samples / took, "samples": samples, "own": sum(own), "decoded": decoded, "loader": loader}


def seconds_of(process):
    """What it used of processors, and all of its children that it has waited for, once it ends."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def seconds_of_orphans():
    """The same of those that nobody has waited for."""
    seconds = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            usage = os.wait4(-1, 0)[2]
            seconds += usage.ru_utime + usage.ru_stime
    return seconds


def seeds(bench, rng):
    pace = bench.args.pace / 1000
    jobs = [{"seed": i, "batch": batch, "delay": rng.uniform(0, 1), "pace": pace * rng.uniform(0.8, 1.2)}
            for i, batch in enumerate(BATCHES)]
    alone = [{**jobs[0], "delay": 0, "epochs": JOBS * bench.args.epochs}]
    return {"PyTorch": bench.run("PyTorch", jobs), "import changed": bench.run("import changed", jobs),
            "one job, as much": bench.run("import changed", alone)}


def identical(bench, _):
    job = {"seed": 1, "batch": 32, "delay": 0, "pace": bench.args.pace / 1000}
    shared = spec(bench.folder, share={"window": WINDOW})
    found = {"one job": bench.run("spec", [{**job, "spec": shared}]),
             "share.window": bench.run("spec", [{**job, "spec": shared}] * JOBS),
             "without": bench.run("spec", [{**job, "spec": spec(bench.folder)}] * JOBS),
             "PyTorch": bench.run("PyTorch", [job] * JOBS)}
    if bench.has("TensorSocket"):
        found["TensorSocket"] = bench.run("TensorSocket", [job] * JOBS)
    return found


def table(bench, rng):
    jobs = [{"seed": i + 1, "batch": batch, "delay": rng.uniform(0, 0.5), "pace": 0, "column": "y"}
            for i, batch in enumerate(BATCHES)]
    if not (bench.folder / "table").exists():
        make_table(bench.folder / "table")

    def specs(**more):
        return bench.run("spec", [{**job, "spec": table_spec(bench.folder, job, **more)} for job in jobs])

    def zephon(kept):
        return bench.run("zephon", [{**job, "kept": kept} for job in jobs])
    found = {"shared": specs(shared="1GiB"), "without": specs()}
    if bench.has("zephon"):
        with tempfile.TemporaryDirectory() as kept:
            found["zephon, shared"] = zephon({"root": kept, "limit_bytes": 1 << 30})
        found["zephon"] = zephon(False)
    return found


ROWS = {"seeds": (seeds, "PyTorch", "one job, as much"), "identical": (identical, "PyTorch", "one job"),
        "table": (table, "without", "without")}


def report(row, turns):
    _, base, one = ROWS[row]
    for name in turns[0]:
        def median(figure, to=None, name=name):
            return statistics.median(turn[name][figure] / (turn[to][figure] if to else 1) for turn in turns)
        decoded = median("decoded")
        print(f"{row:9} {name:16} {median('rate'):8.0f} samples/s, {median('rate', base):5.2f} x {base}; processors "
              f"of the loader {median('loader'):6.2f} s, {median('loader', one):5.2f} x {one}; of trainers "
              f"{median('own'):5.1f} s"
              + (f"; {decoded:.0f} pictures decoded" if decoded else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=640, help="photographs")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pace", type=float, default=0.1, help="ms that a trainer takes for a sample")
    parser.add_argument("--peers", metavar="PYTHON", help="has tensorsocket, zephon")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    if not photos.can_make():
        sys.exit(f"{sys.executable} has no Pillow, which makes the photographs; name another interpreter")
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="bench-jobs-") as name:
        bench = Bench(args, pathlib.Path(name))
        (bench.folder / "photos").mkdir()
        photos.make(str(bench.folder / "photos"), args.count)
        os.remove(bench.folder / "photos" / photos.DONE)
        time.sleep(0.2)  # what was written just now is not kept
        print(f"load {os.getloadavg()[0]:.2f} at the start; {args.count} "
              f"{'photographs' if photos.sources() else 'painted pictures'}")
        for row in args.rows or ROWS:
            report(row, [ROWS[row][0](bench, rng) for _ in range(args.rounds)])


if __name__ == "__main__":
    main()
