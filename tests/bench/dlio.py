"""The DLIO benchmark, which nobody here wrote: how busy its emulated accelerators are with its own loaders, and with
dloaderd in their place (dlio_loader.py).

    PYTHON dlio.py --build BUILD [--threads N] [--rounds N] [--turns N] [--seconds S] [--quick] [WORKLOAD ...]

PYTHON has PyTorch, pyarrow, and PyPI's dlio_benchmark 2.0.0 without its dependencies, of which it needs hydra-core,
mpi4py, h5py, psutil, pandas, pydftracer 1.0.2 and, for what TensorFlow reads or writes, tensorflow-cpu; there is
mpiexec. DALI is measured where nvidia.dali can be imported, and not with JPEG, which its decoder without a GPU refused.

The workloads are MLPerf Storage's, scaled down: samples, or batches, are so many times smaller, and steps take as much
less time, so that an accelerator wants as many bytes a second as there. An accelerator is a process that sleeps for its
steps. Where one wants more than two cores can decode, those that are counted are so many times slower (WORKLOADS).

Of each loader are measured, in turns, medians of all epochs but the first (DALI: of the first, as DLIO has one more
pipeline work in each):
  rate   samples a second of one accelerator whose steps take no time
  busy   share of its time that one accelerator of full speed is busy; the first batch does not count
  waits  milliseconds that it waits for each batch; `late`: that it sleeps too long, or DLIO takes for itself
  kept   the greatest number of (slower) accelerators that are at least 90 % busy at once, each with its own loader of
         DLIO's, of THREADS threads together, but at least one each; or all with one daemon of THREADS workers. Turns
         begin at what the rate allows; what no turn had so many of is not counted.
DLIO's own readers decode a sample and return another, fixed and small one; dloaderd's batches have the samples. Files
are in the page cache. `idle` is a loader that has its batch at once: what DLIO allows on this machine.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import rates

HERE = pathlib.Path(__file__).resolve().parent
BUSY = 90
MOST = 8  # accelerators
HANGS = 180  # s

# What DLIO calls its loaders, and what ours and the idle one are to it.
TORCH, TENSORFLOW, DALI = "PyTorch", "TensorFlow", "DALI"
OURS, IDLE = "dloaderd", "idle"
LOADERS = {
    TORCH: {"framework": "pytorch", "reader.data_loader": "pytorch"},
    TENSORFLOW: {"framework": "tensorflow", "reader.data_loader": "tensorflow"},
    DALI: {"framework": "pytorch", "reader.data_loader": "native_dali"},
    OURS: {"framework": "pytorch", "reader.data_loader": "synthetic", "reader.data_loader_sampler": "index",
           "reader.data_loader_classname": "dlio_loader.Dloaderd"},
    IDLE: {"framework": "pytorch", "reader.data_loader": "synthetic", "reader.data_loader_sampler": "index",
           "reader.data_loader_classname": "dlio_loader.Idle"},
}
FLUX = {"t5_encodings": 65541, "clip_encodings": 51, "mean": 1029, "logvar": 1029, "timestamp": 1}

Workload = collections.namedtuple("Workload", "base loaders batch step slower keys")
# What each is based on; the loaders of DLIO that can read it; batch and seconds of a step for an accelerator of full
# speed; how many times slower those are that are counted; keys of the workload that are ours.
WORKLOADS = {
    "unet3d": Workload("unet3d_h100", (TORCH,), 7, 0.323 / 16, 8, {  # samples / 16
        "dataset.format": "npz", "dataset.num_files_train": 168, "dataset.record_length": 9162539,
        "dataset.record_length_stdev": 4271363, "dataset.record_length_resize": 131072}),
    "resnet50": Workload("resnet50_h100", (TENSORFLOW, DALI), 64, 0.224 / 6.25, 1, {  # batches / 6.25
        "dataset.format": "tfrecord", "dataset.num_files_train": 16, "dataset.num_samples_per_file": 160}),
    "resnet50 in JPEG": Workload("resnet50_h100", (TORCH,), 16, 0.224 / 25, 8, {  # batches / 25
        "dataset.format": "jpeg", "dataset.num_files_train": 1280, "dataset.num_samples_per_file": 1}),
    "cosmoflow": Workload("cosmoflow_h100", (TENSORFLOW, DALI), 1, 0.0035, 8, {  # as it is
        "dataset.format": "tfrecord", "dataset.num_files_train": 256}),
    "cosmoflow in HDF5": Workload("cosmoflow_h100", (TORCH,), 1, 0.0035, 4, {
        "dataset.format": "hdf5", "dataset.num_files_train": 256,
        "dataset.generation_buffer_size": 1}),  # else DLIO draws 2 GiB of numbers for each file
    "flux": Workload("resnet50_h100", (TORCH,), 12, 1.35 / 8 / 4, 1, {  # of a B200; samples / 8, batches / 4, files / 2
        "dataset.format": "synthetic", "dataset.num_files_train": 4, "dataset.num_samples_per_file": 144,
        "dataset.record_length": 4 * sum(FLUX.values()), "dataset.record_length_resize": 0,
        "reader.reader_classname": "dlio_parquet.Reader"}),
    "retinanet": Workload("unet3d_h100", (TORCH,), 6, 0.04755 / 4, 8, {  # of a B200; batches / 4
        "dataset.format": "jpeg", "dataset.num_files_train": 480, "dataset.record_length": 322957,
        "dataset.record_length_stdev": 0, "dataset.record_length_resize": 0}),
}

# DLIO imports TensorFlow for a profiler that does not run.
LAUNCH = """
import sys, types
if "++workload.framework=pytorch" in sys.argv:
    sys.modules["dlio_benchmark.profiler.tf_profiler"] = types.SimpleNamespace(TFProfiler=None)
from dlio_benchmark.main import main
main()
"""
# DALI's own tool, as far as DLIO's generator calls it: where each record begins, and its bytes.
TFRECORD2IDX = f"""#!{sys.executable}
import os, struct, sys
with open(sys.argv[1], "rb") as records, open(sys.argv[2], "w") as index:
    at, end = 0, os.fstat(records.fileno()).st_size
    while at < end:
        records.seek(at)
        size = struct.unpack("<Q", records.read(8))[0] + 16
        index.write(f"{{at}} {{size}}\\n")
        at += size
"""

Run = collections.namedtuple("Run", "rate busy waits late")


class Bench:
    def __init__(self, build, folder, threads, seconds, quick):
        self.build, self.folder, self.threads, self.seconds, self.quick = build, folder, threads, seconds, quick
        (folder / "bin").mkdir()
        (folder / "bin/tfrecord2idx").write_text(TFRECORD2IDX)
        (folder / "bin/tfrecord2idx").chmod(0o755)
        self.env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "DFTRACER_ENABLE": "0",
                    "PYTHONPATH": f"{build / 'client/python'}:{HERE}", "HYDRA_FULL_ERROR": "1",
                    "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        self.runs = 0

    def dlio(self, name, loader, ranks, keys):
        """DLIO with these keys; the folder with what it has written."""
        workload = WORKLOADS[name]
        self.runs += 1
        out = self.folder / f"out{self.runs}"
        every = {**LOADERS[loader], **workload.keys, "dataset.num_files_train": self.files(name),
                 "dataset.data_folder": self.data(name), "reader.batch_size": workload.batch,
                 "reader.prefetch_size": 2 * self.threads, "checkpoint.model_size": 1024,
                 "checkpoint.checkpoint_folder": self.folder / "checkpoints", "workflow.checkpoint": False, **keys}
        command = [sys.executable, "-c", LAUNCH, f"workload={workload.base}", f"++hydra.run.dir={out}",
                   *(f"++workload.{key}={value}" for key, value in every.items())]
        if ranks > 1:
            command = ["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
        if loader == OURS:
            with rates.daemon(self.build, self.folder, patient=True) as socket:
                done = self.call(command, {**self.env, "DLOADER_SOCKET": str(socket)})
            socket.unlink(missing_ok=True)
        else:
            done = self.call(command, self.env)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
            raise RuntimeError((said or done.stderr.splitlines() or ["ended early"])[-1])
        return out

    def call(self, command, env):
        """A rank that fails leaves the others at a barrier of MPI's."""
        with subprocess.Popen(command, env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True) as run:
            try:
                said = run.communicate(timeout=HANGS)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                said = run.communicate()[0], f"TimeoutError: a run did not end within {HANGS} s"
        return subprocess.CompletedProcess(command, run.returncode, *said)

    def data(self, name):
        return self.folder / name.replace(" ", "-")

    def make(self, name):
        workload = WORKLOADS[name]
        if workload.keys["dataset.format"] == "synthetic":
            import dlio_parquet
            for kind in ("train", "valid"):
                (self.data(name) / kind).mkdir(parents=True)
            for i in range(self.files(name)):
                dlio_parquet.write(self.data(name) / f"train/img_{i}_of_4.synthetic",
                                   workload.keys["dataset.num_samples_per_file"], FLUX, i)
        else:
            loader = TENSORFLOW if workload.keys["dataset.format"] == "tfrecord" else TORCH
            self.dlio(name, loader, 1, {"workflow.generate_data": True, "workflow.train": False})
        for path in self.data(name).rglob("*.*"):  # into the page cache, if it was not written to it
            path.read_bytes()

    def measure(self, name, loader, ranks, step):
        """One run of so many accelerators, whose steps take so many seconds."""
        workload = WORKLOADS[name]
        files = self.shared(name, ranks)
        steps = self.samples(name, files) // workload.batch // ranks
        wanted = 1 if self.quick else round(self.seconds / (steps * step)) if step else 2
        epochs = 1 if loader == DALI else 1 + min(max(wanted, 1), 4)
        threads = self.threads if loader == OURS else max(self.threads // ranks, 1)
        out = self.dlio(name, loader, ranks, {
            "dataset.num_files_train": files, "train.epochs": epochs, "train.computation_time": step,
            "reader.read_threads": threads,
            "workflow.generate_data": False, "workflow.train": True})
        measured = slice(None) if loader == DALI else slice(1, None)
        metric = json.loads((out / "summary.json").read_text())["metric"]
        epochs = [epoch for number, epoch in sorted(json.loads((out / "0_output.json").read_text()).items())
                  if number.isdigit()][measured]
        waits = 1e3 * statistics.mean(wait for epoch in epochs for wait in epoch["load"]["block1"][1:])
        busy = statistics.median(metric["train_au_percentage"][measured])
        return Run(statistics.median(metric["train_throughput_samples_per_second"][measured]), busy, waits,
                   1e3 * step * (100 / busy - 1) - waits if busy else 0)

    def files(self, name):
        keys = WORKLOADS[name].keys
        files = keys["dataset.num_files_train"]
        few = 4 * WORKLOADS[name].batch // keys.get("dataset.num_samples_per_file", 1)
        return max(few, 2) if self.quick else files

    def samples(self, name, files):
        return files * WORKLOADS[name].keys.get("dataset.num_samples_per_file", 1)

    def shared(self, name, ranks):
        """As many files as ranks share without a rest: DLIO's last rank would ask for samples that are not there."""
        files = self.files(name)
        return next((n for n in range(files, 0, -1) if self.samples(name, n) % ranks == 0), files)


class Counted:
    """How many accelerators a loader keeps busy, found by halves; what is kept, and one more, have turns then."""

    def __init__(self, expected):
        self.at = min(max(int(expected), 1), MOST)
        self.seen = collections.defaultdict(list)

    def kept(self):
        return max((n for n, busy in self.seen.items() if statistics.median(busy) >= BUSY), default=0)

    def take(self, busy):
        self.seen[self.at].append(busy)
        kept = self.kept()
        above = min((n for n in self.seen if n > kept), default=MOST + 1)
        again = kept and (above > MOST or len(self.seen[kept]) < len(self.seen[above]))
        self.at = (kept + above) // 2 if above - kept > 1 else kept if again else above

    def found(self):
        kept = self.kept()
        runs = "; ".join(f"{n}: {', '.join(f'{one:.0f}' for one in busy)}" for n, busy in sorted(self.seen.items()))
        return f"{kept}{' or more' if kept == MOST else ''} ({runs})"


def report(bench, name, rounds, turns, loaders):
    workload = WORKLOADS[name]
    free, full, counted, failed = ({loader: [] for loader in loaders} for _ in range(4))

    def each(run):
        for loader in loaders:
            if not failed[loader]:
                try:
                    run(loader)
                except (RuntimeError, OSError) as error:
                    failed[loader].append(error)
                    print(f"{name:18} {loader:10} none: {error}", flush=True)
        loaders.reverse()

    for _ in range(rounds):
        bench.quick or each(lambda loader: loader == IDLE or free[loader].append(bench.measure(name, loader, 1, 0.0)))
        each(lambda loader: full[loader].append(bench.measure(name, loader, 1, workload.step)))
    demand = workload.batch / workload.step / workload.slower  # samples a second of an accelerator
    for loader in loaders:
        if bench.quick:
            counted[loader] = Counted(2)
        elif free[loader] or loader == IDLE:
            most = statistics.median(run.rate for run in free[loader]) / demand * 100 / BUSY if free[loader] else MOST
            counted[loader] = Counted(most)
    for _ in range(turns):
        each(lambda loader: counted[loader].take(
            bench.measure(name, loader, counted[loader].at, workload.step * workload.slower).busy))
    for loader in sorted(loaders, key=list(LOADERS).index):
        if full[loader]:
            busy, waits, late = (statistics.median(column) for column in list(zip(*full[loader]))[1:])
            rate = f"{statistics.median(run.rate for run in free[loader]):.1f}" if free[loader] else "-"
            kept = counted[loader].found() if counted[loader] and counted[loader].seen else "-"
            print(f"{name:18} {loader:10} rate {rate:>8}/s  busy {busy:5.1f} %  waits {waits:6.2f} ms  late "
                  f"{late:5.2f} ms  kept {kept}", flush=True)


def has_dali():
    command = [sys.executable, "-c", "import nvidia.dali.fn"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--threads", type=int, default=2, help="of DLIO's readers, or dloaderd's workers")
    parser.add_argument("--rounds", type=int, default=2, help="of rate and busy")
    parser.add_argument("--turns", type=int, default=4, help="of kept")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each run measures, about")
    parser.add_argument("--quick", action="store_true", help="a few files, to see whether all of it runs")
    parser.add_argument("--loaders", help="of these alone, separated by commas")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    options = parser.parse_args()
    begin, loads, dali = time.monotonic(), [os.getloadavg()[0]], has_dali()
    with tempfile.TemporaryDirectory(prefix="dlio-") as folder:
        bench = Bench(options.build, pathlib.Path(folder), options.threads, options.seconds, options.quick)
        for name in options.workloads or WORKLOADS:
            bench.make(name)
            wanted = (*WORKLOADS[name].loaders, OURS, IDLE)
            report(bench, name, options.rounds, options.turns, [
                loader for loader in wanted if (loader != DALI or dali)
                and (not options.loaders or loader in options.loaders.split(","))])
            loads.append(os.getloadavg()[0])
    print(f"{time.monotonic() - begin:.0f} s; load {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
