"""Slow samples: what they cost a trainer, in order, with `workers: {bypass: 8}`, and with `in_order: false`, beside the
same data without slow ones.

    PYTHON slow_samples.py --build BUILD [--rounds N] [--batches B] [--workers W] [--window N] [ROW ...]

PYTHON has NumPy. A sample sleeps, as one that waits for storage: 1 ms each; of `rare` one in 200, by its index, 50 ms;
of `pareto` as long as a Pareto distribution of shape 1.5 and the same mean says, up to 200 ms. A batch has 8 samples.
The trainer sleeps for each step so long that the workers would be busy for 70 % of the time without slow ones. Runs
take turns; printed are medians of rounds: batches a second and the 99th percentile of a batch's wait, and ratios to
the same turn without slow ones: of batches a second, and of that wait with the step behind it, as the trainer sees it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SIZE, USUAL, LOAD, WARM = 8, 0.001, 0.7, 50

DATA = f"""
import random, time
import numpy as np
class Data:
    def __init__(self, kind):
        self.kind = kind
    def __len__(self):
        return 1000000
    def took(self, index):
        if self.kind == "rare":
            return 0.050 if index * 2654435761 % 2 ** 32 % 200 == 0 else {USUAL}
        if self.kind == "pareto":
            return min({USUAL} / 3 * random.Random(index).paretovariate(1.5), 0.2)
        return {USUAL}
    def __getitem__(self, index):
        time.sleep(self.took(index))
        return np.float32(index)
    def sample_name(self, index):
        return f"sample {{index}}"
"""

TRAINER = f"""
import json, sys, time
import dloaderd
spec, batches, step = json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
waits = []
with dloaderd.Loader(spec, as_="numpy") as loader:
    it = iter(loader)
    for i in range(batches + {WARM}):
        asked = time.monotonic()
        next(it)
        got = time.monotonic()
        if i == {WARM}:
            begun = got
        elif i > {WARM}:
            waits.append(got - asked)
        time.sleep(step)
    waits.sort()
    print(json.dumps([len(waits) / (got - begun), waits[int(0.99 * len(waits))]]))
"""


def spec(kind, count, **workers):
    return {"name": "-".join(["slow", kind, *map(str, workers)]), "seed": 1, "batch": {"size": SIZE},
            "dataset": {"kind": "python", "object": "slow_samples_data:Data", "args": [kind],
                        "interpreter": sys.executable},
            "sampler": {"kind": "random", "order": "native"}, "workers": {"count": count, **workers}}


def run(bench, kind, **workers):
    step = SIZE * USUAL / bench.workers / LOAD
    done = subprocess.run([sys.executable, "-c", TRAINER, json.dumps(spec(kind, bench.workers, **workers)),
                           str(bench.batches), str(step)], env=bench.env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"a run failed: {done.stderr.strip().splitlines()[-1:]}")
    rate, wait = json.loads(done.stdout)
    return rate, wait, wait + step


def row(bench, kind):
    ways = {"in order": {}, "in order, 4 ahead": {"prefetch": 4}, f"bypass {bench.window}": {"bypass": bench.window},
            "any order": {"in_order": False}}
    runs = {way: [] for way in ways}
    for _ in range(bench.rounds):
        plain = run(bench, "plain")
        for way, workers in ways.items():
            rate, wait, whole = run(bench, kind, **workers)
            runs[way].append((rate, wait, rate / plain[0], whole / plain[2], plain[1]))
    for way, found in runs.items():
        rate, wait, share, times, plain = (statistics.median(column) for column in zip(*found))
        print(f"{kind:7} {way:17} {rate:7.1f} batches/s, {share:.3f} of those without slow ones; p99 of a wait "
              f"{wait * 1e3:6.2f} ms, theirs {plain * 1e3:.2f} ms; with the step {times:.2f} times theirs", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    bench = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "slow_samples_data.py").write_text(DATA)
        bench.env = {**os.environ, "PYTHONPATH": f"{bench.build / 'client/python'}:{folder}",
                     "DLOADERD": str(bench.build / "daemon/dloaderd")}
        bench.env.pop("DLOADER_SOCKET", None)
        print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}, {bench.workers} workers",
              flush=True)
        for kind in bench.rows or ("rare", "pareto"):
            row(bench, kind)
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
