"""The DLIO benchmark, which nobody here wrote: how busy its emulated accelerators are with its own loaders, and with
dloaderd in their place (dlio_loader.py).

    PYTHON dlio.py --build BUILD [--accelerators N] [--threads N] [--rounds N] [WORKLOAD ...]

PYTHON has PyTorch, and PyPI's dlio_benchmark 2.0.0 without its dependencies, of which it needs hydra-core, mpi4py,
h5py, psutil, pandas, pydftracer 1.0.2 and tensorflow-cpu, even where only PyTorch is measured; more than one
accelerator also needs mpiexec. DALI is not measured.

The workloads are MLPerf Storage's for an H100, with samples or batches that are so many times smaller, and with steps
that take as much less time, so that an accelerator wants as many bytes a second as there. An accelerator sleeps for
its step, and has a daemon of its own. DLIO's own readers decode a sample and return another, fixed one; dloaderd's
batches have the samples. Files are in the page cache. Each loader's runs take turns; printed are medians of all epochs
but the first of each run: the accelerators' busy time, and samples a second where steps take no time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TFRECORD = {"framework": "tensorflow", "reader.data_loader": "tensorflow"}
TORCH = {"framework": "pytorch", "reader.data_loader": "pytorch"}
# Of each: keys of the workload that it is based on, and of ours: scaled by the number behind it.
WORKLOADS = {
    "unet3d": ("unet3d_h100", TORCH, {  # samples / 16
        "dataset.num_files_train": 84, "dataset.record_length": 9162539, "dataset.record_length_stdev": 4271363,
        "dataset.record_length_resize": 131072, "reader.batch_size": 7, "train.computation_time": 0.323 / 16}),
    "resnet50": ("resnet50_h100", TFRECORD, {  # batches / 6.25
        "dataset.num_files_train": 16, "dataset.num_samples_per_file": 160, "reader.batch_size": 64,
        "train.computation_time": 0.224 / 6.25}),
    "cosmoflow": ("cosmoflow_h100", TFRECORD, {  # as it is, with fewer files
        "dataset.num_files_train": 256, "dataset.record_length_stdev": 71311, "reader.batch_size": 1,
        "train.computation_time": 0.0035}),
    "cosmoflow in HDF5": ("cosmoflow_h100", {**TORCH, "dataset.format": "hdf5"}, {
        "dataset.num_files_train": 256, "dataset.record_length_stdev": 71311, "reader.batch_size": 1,
        "train.computation_time": 0.0035}),
    "resnet50 in JPEG": ("resnet50_h100", {**TORCH, "dataset.format": "jpeg"}, {  # batches / 6.25
        "dataset.num_files_train": 2560, "dataset.num_samples_per_file": 1, "reader.batch_size": 64,
        "train.computation_time": 0.224 / 6.25}),
}
OURS = {"reader.data_loader_classname": "dlio_loader.Dloaderd", "reader.data_loader_sampler": "index"}
EPOCHS = 4


class Bench:
    def __init__(self, build, folder, threads, accelerators):
        self.folder, self.threads, self.accelerators = folder, threads, accelerators
        (folder / "bin").mkdir()
        # DLIO's generator of TFRecords calls it, for DALI's sake.
        (folder / "bin/tfrecord2idx").write_text("#!/bin/sh\n")
        (folder / "bin/tfrecord2idx").chmod(0o755)
        here = pathlib.Path(__file__).resolve().parent
        self.env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "DFTRACER_ENABLE": "0",
                    "DLOADERD": str(build / "daemon/dloaderd"), "PYTHONPATH": f"{build / 'client/python'}:{here}",
                    "HYDRA_FULL_ERROR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.env.pop("DLOADER_SOCKET", None)

    def run(self, name, processes, keys):
        """DLIO with these keys; its summary, or why there is none."""
        base, own, scaled = WORKLOADS[name]
        out = self.folder / "out"
        every = {**own, **scaled, "dataset.data_folder": self.folder / name.replace(" ", "-"), "train.epochs": EPOCHS,
                 "reader.read_threads": self.threads, "workflow.checkpoint": False, **keys}
        command = [sys.executable, "-c", "from dlio_benchmark.main import main; main()", f"workload={base}",
                   f"++hydra.run.dir={out}", *(f"++workload.{key}={value}" for key, value in every.items())]
        if processes > 1:
            command = ["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", str(processes), *command]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False)
        try:
            return json.loads((out / "summary.json").read_text())["metric"]
        except (OSError, ValueError, KeyError):
            return (done.stderr.strip().splitlines() or ["no summary"])[-1]
        finally:
            (out / "summary.json").unlink(missing_ok=True)

    def make(self, name):
        self.run(name, 1, {"workflow.generate_data": True, "workflow.train": False})

    def measure(self, name, ours):
        """The accelerators' busy share in per cent, and samples a second without steps; lists of epochs' values."""
        own = OURS if ours else {}
        busy = self.run(name, self.accelerators, own)
        free = self.run(name, self.accelerators, {**own, "train.computation_time": 0})
        for found in (busy, free):
            if isinstance(found, str):
                raise RuntimeError(found)
        return busy["train_au_percentage"][1:], free["train_throughput_samples_per_second"][1:]


def report(bench, name, rounds):
    values = {"dloaderd": ([], []), "DLIO's own": ([], [])}
    for turn in range(rounds):
        for loader in list(values)[::1 if turn % 2 else -1]:
            try:
                for all_of, found in zip(values[loader], bench.measure(name, loader == "dloaderd")):
                    all_of += found
            except RuntimeError as error:
                print(f"{name:18} {loader:10} none: {error}", flush=True)
    for loader, (busy, rate) in values.items():
        if busy and rate:
            busy, rate = statistics.median(busy), statistics.median(rate)
            print(f"{name:18} {loader:10} busy {busy:5.1f} %  {rate:9.1f} samples/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--accelerators", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of DLIO's reader, and dloaderd's workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dlio-") as folder:
        folder = pathlib.Path(folder)
        bench = Bench(options.build, folder, options.threads, options.accelerators)
        for name in options.workloads or WORKLOADS:
            bench.make(name)
            report(bench, name, options.rounds)


if __name__ == "__main__":
    main()
