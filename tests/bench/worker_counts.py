"""How many workers the daemon finds (workers.count: auto), beside each number by hand: batches a second.

    PYTHON worker_counts.py --build BUILD [--seconds S] [--rounds N] [--counts 1,2,4,8,16] [ROW ...]

PYTHON has NumPy, and Pillow for the photographs. A trainer takes batches and does nothing else. The first 5 seconds do
not count: a machine may be faster at first. Runs take turns; printed are medians, what auto had in the end, and its
ratios to the best number of the same turns, and to 2. `three` has three such loaders at once, with the numbers that
were best alone, and 2 each; its figure is the geometric mean of the three ratios to the best alone.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import photos
import rates

WARM = 5.0  # seconds that do not count

TRAINER = """
import json, sys, time
import dloaderd
spec, seconds, warm = json.loads(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with dloaderd.Loader(spec, as_="numpy") as loader:
    begun = time.monotonic()
    counted, first = 0, None
    while first is None or time.monotonic() - first < seconds:
        for _ in loader:
            now = time.monotonic()
            if now - begun >= warm:
                first, counted = first or now, counted + 1
                if now - first >= seconds:
                    break
    print("rate", (counted - 1) / (now - first))
"""

DATA = """
import time
import numpy as np
class Sleeps:
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        time.sleep(0.002)
        return np.full(1000, index, np.float32)
class Computes:
    def __len__(self):
        return 1000000
    def __getitem__(self, index):
        until = time.perf_counter() + 50e-6
        while time.perf_counter() < until:
            pass
        return np.full(100, index, np.float32)
class Mixed:
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        until = time.thread_time() + 50e-6 * (1 + index % 40)
        while time.thread_time() < until:
            pass
        time.sleep(0.0005 * (index * 7919 % 5))
        return np.full(1000, index, np.float32)
"""


def photographs(folder, **keys):
    return {"dataset": {"kind": "imagefolder", "paths": str(folder / "photos"), "transforms": [
        {"kind": "RandomResizedCrop", "size": 224}, "RandomHorizontalFlip"], **keys}, "batch": {"size": 32}}


def python(name, size):
    return {"dataset": {"kind": "python", "object": f"worker_counts_data:{name}", "interpreter": sys.executable},
            "batch": {"size": size}}


ROWS = {
    "photographs": photographs,
    "cached": lambda folder: photographs(folder, cache="512MiB"),
    "tokens": lambda folder: {"dataset": {"kind": "tokens", "paths": str(folder / "tokens.bin"), "dtype": "uint16",
                                          "sequence_length": 1024}, "batch": {"size": 32}},
    "python": lambda folder: python("Computes", 64),
    "sleeps": lambda folder: python("Sleeps", 16),
    "mixed": lambda folder: python("Mixed", 16),
}
THREE = ("photographs", "python", "sleeps")


@contextlib.contextmanager
def daemon(bench):
    """One for all runs, whose loaders end with their trainers."""
    config = bench.folder / "dloaderd.conf"
    path = [str(bench.folder), str(bench.build / "client/python")]
    config.write_text(json.dumps({"python": [sys.executable], "python_path": path, "linger": "20s"}))
    socket = bench.env["DLOADER_SOCKET"]
    with subprocess.Popen([bench.build / "daemon/dloaderd", "--config", config, "--socket", socket],
                          stderr=subprocess.DEVNULL, env=bench.env) as process:
        try:
            until = time.monotonic() + 30
            while not os.path.exists(socket) and time.monotonic() < until:
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def start(bench, name, count):
    spec = {**ROWS[name](bench.folder), "name": f"{name}-{count}", "seed": 1, "workers": {"count": count},
            "sampler": {"kind": "random", "order": "native"}}
    return subprocess.Popen([sys.executable, "-c", TRAINER, json.dumps(spec), str(bench.seconds), str(WARM)],
                            env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, errors = process.communicate()
    return rates.rate_of(subprocess.CompletedProcess([], process.returncode, out, errors))


def found(bench, name):
    """How many workers auto had in the end, and why, in words."""
    done = subprocess.run([bench.build / "client/dlctl/dlctl", "why", f"{name}-auto", "--json"], env=bench.env,
                          capture_output=True, text=True, check=False)
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return rows[0]["sized"] if rows else done.stderr.strip()


def median(runs):
    failed = [run for run in runs if not isinstance(run, float)]
    if failed:
        raise SystemExit(f"a run failed: {failed[0]}")
    return statistics.median(runs)


def row(bench, name):
    """Prints a row; the best number."""
    runs, words = {count: [] for count in [*bench.counts, "auto"]}, ""
    for _ in range(bench.rounds):
        for count in runs:
            runs[count].append(finish(start(bench, name, count)))
            words = found(bench, name) if count == "auto" else words
    by_count = {count: median(runs[count]) for count in runs}
    best = max(bench.counts, key=lambda count: by_count[count])
    ratio = {other: statistics.median(a / b for a, b in zip(runs["auto"], runs[other])) for other in (best, 2)}
    print(f"{name:12}", *(f"{count}: {by_count[count]:.1f}" for count in runs),
          f"batches/s; auto {ratio[best]:.2f} x the best, {best}, {ratio[2]:.2f} x 2; {words}", flush=True)
    return best, by_count[best]


def three(bench, best):
    splits = {"best alone": {name: best[name][0] for name in THREE}, "2 each": dict.fromkeys(THREE, 2),
              "auto": dict.fromkeys(THREE, "auto")}
    means = {split: [] for split in splits}
    for _ in range(bench.rounds):
        for split, counts in splits.items():
            processes = {name: start(bench, name, counts[name]) for name in THREE}
            got = {name: median([finish(process)]) / best[name][1] for name, process in processes.items()}
            means[split].append(math.exp(sum(map(math.log, got.values())) / len(got)))
    print("three       ", *(f"{split}: {statistics.median(means[split]):.3f}" for split in splits),
          "; ".join(f"{name} {found(bench, name).split(';')[0]}" for name in THREE), flush=True)


def prepare(bench):
    (bench.folder / "worker_counts_data.py").write_text(DATA)
    (bench.folder / "tokens.bin").write_bytes(bytes(range(256)) * 200000)
    photos.make(str(bench.folder / "photos"), 200)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", default="1,2,4,8,16")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    bench = parser.parse_args()
    bench.build = bench.build.resolve()
    bench.counts = [int(count) for count in bench.counts.split(",")]
    names = bench.rows or [*ROWS, "three"]
    with tempfile.TemporaryDirectory() as folder:
        bench.folder = pathlib.Path(folder)
        prepare(bench)
        bench.env = {**os.environ, "PYTHONPATH": f"{bench.build / 'client/python'}:{folder}",
                     "DLOADER_SOCKET": str(bench.folder / "socket")}
        with daemon(bench):
            print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}", flush=True)
            best = {name: row(bench, name) for name in names if name in ROWS}
            if "three" in names:
                three(bench, {**{name: row(bench, name) for name in THREE if name not in best}, **best})
            print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
