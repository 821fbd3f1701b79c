"""Rows in memory or in Arrow's files, and only the import changed: batches a second.

    PYTHON native_rows.py --build BUILD [--seconds S] [--rounds N] [ROW ...]

PYTHON has PyTorch, for the rows `tokens` and `lists` datasets, and for `lists` transformers; where one is missing
the line says so. tensors: a TensorDataset of 64 float32 and a label, batches of 1024; tokens: a datasets.Dataset of
2048 int64 a row, as with_format("torch") gives them, batches of 64; lists: the same, as a datasets.Dataset gives them
unasked, lists of numbers, of which transformers' default_data_collator makes tensors. All shuffled. PyTorch has 2
workers, or none. Each batch's first element is read. Beside them stands what copying alone takes: numpy.take() of as
many rows as a batch has from as many places, by one thread, into memory that is there. Runs take turns; printed are
medians, and ratios of the same turns to ours with 2 workers, and how many bytes a second these batches are.

Bars: tensors >= 30 x PyTorch's 2 workers and >= 5 x its 0; lists and tokens >= 50 x PyTorch's. On a busy machine
(load 6 to 9, two cores), three rounds: lists 1868 batches/s, 98 x PyTorch's 2 workers and 117 x its 0 (149 x and 242 x
at another time). tokens 3208, 9.3 x and 9.6 x; in processor time, of all processes, 13 to 17 x and 7 to 9 x. That bar
is not met where datasets makes tensors, nor can it be by copying: a batch is 1 MiB, copying alone makes 4002 of them
a second, and 50 x would be 16,800. tensors could only be compared by processor time, for one batch 0.19 ms, PyTorch 7.7
with 2 workers and 5.2 with none: 40 x and 27 x.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import rates

DATA = {
    "tensors": """
data = torch.utils.data.TensorDataset(torch.randn(300_000, 64), torch.arange(300_000))
size = 1024""",
    "tokens": """
import datasets
data = datasets.load_from_disk("tokens").with_format("torch")
size = 64""",
    "lists": """
import datasets
from transformers import default_data_collator as collate
data = datasets.load_from_disk("tokens")
size = 64""",
}
# Of what a batch is: the rows there are, the numbers in one, their type, and the rows of a batch.
SHAPES = {"tensors": (300_000, 64, "float32", 1024), "tokens": (8_000, 2048, "int64", 64),
          "lists": (8_000, 2048, "int64", 64)}
# What is made once, before all runs.
TOKENS = """
import datasets, numpy, pyarrow
datasets.disable_progress_bars()
numbers = numpy.random.default_rng(1).integers(0, 50_000, 8_000 * 2048)
starts = numpy.arange(0, numbers.size + 1, 2048, dtype=numpy.int32)
rows = pyarrow.ListArray.from_arrays(starts, pyarrow.array(numbers))
datasets.Dataset(pyarrow.table({"input_ids": rows})).save_to_disk("tokens")"""
MAKE = {"tokens": TOKENS, "lists": TOKENS}
# Of each contender: where DataLoader comes from, and the number of workers.
CONTENDERS = {"PyTorch, 2 workers": ("torch.utils.data", 2), "PyTorch, 0 workers": ("torch.utils.data", 0),
              "import changed": ("dloaderd", 2), "0 workers": ("dloaderd", 0)}
OURS, COPYING = "import changed", "copying alone"

PROGRAM = """
import time, torch
from IMPORT import DataLoader
collate = None
DATA
loader = DataLoader(data, batch_size=size, shuffle=True, drop_last=True, num_workers=WORKERS,
                    persistent_workers=WORKERS > 0, collate_fn=collate)
def touch(batch):
    for part in batch.values() if isinstance(batch, dict) else batch:
        part.view(-1)[0].item()
begin, n = time.perf_counter(), 0
while time.perf_counter() - begin < SECONDS / 4:  # some of an epoch at least: memory is there
    for batch in loader:
        touch(batch)
        if time.perf_counter() - begin > SECONDS / 2:
            break
begin, n = time.perf_counter(), 0
while time.perf_counter() - begin < SECONDS:
    for batch in loader:
        touch(batch)
        n += 1
        if time.perf_counter() - begin > 2 * SECONDS:
            break
print("rate", n / (time.perf_counter() - begin), flush=True)
"""


COPY = """
import time, numpy
rows, width, dtype, size = SHAPE
data, batch = numpy.ones((rows, width), dtype), numpy.empty((size, width), dtype)
def epoch():
    order = numpy.random.default_rng(1).permutation(rows)
    for first in range(0, rows - size + 1, size):
        numpy.take(data, order[first:first + size], 0, batch, "clip")
    return rows // size
epoch()
begin, n = time.perf_counter(), 0
while time.perf_counter() - begin < SECONDS:
    n += epoch()
print("rate", n / (time.perf_counter() - begin), flush=True)
"""


def program(row, contender, seconds):
    if contender == COPYING:
        return COPY.replace("SHAPE", repr(SHAPES[row])).replace("SECONDS", str(seconds))
    module, workers = CONTENDERS[contender]
    text = PROGRAM.replace("DATA", DATA[row])
    for word, value in {"IMPORT": module, "WORKERS": workers, "SECONDS": seconds}.items():
        text = text.replace(word, str(value))
    return text


def run(text, folder, build):
    (folder / "run.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(build / "client/python"), "DLOADERD": str(build / "daemon/dloaderd"),
           "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=folder, text=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def rate(row, contender, folder, seconds, build):
    """Batches a second of a program of its own; or why there are none."""
    done = run(program(row, contender, seconds), folder, build)
    return rates.rate_of(done)


def measure(row, folder, args):
    """{contender: the rates of its runs, or why there is none}"""
    build = args.build.resolve()
    if row in MAKE:
        run(MAKE[row], folder, build)
    runs = {name: [] for name in (*CONTENDERS, COPYING)}
    for _ in range(args.rounds):
        for name in runs:
            runs[name].append(rate(row, name, folder, args.seconds, build))
    return runs


def bytes_of(row):
    """Of a batch's numbers."""
    _, width, dtype, size = SHAPES[row]
    return size * width * {"float32": 4, "int64": 8}[dtype]


def bandwidth(row, runs):
    """What the rates come to; nothing where there is none."""
    rates_only = [run for run in runs if isinstance(run, float)]
    return f"  {statistics.median(rates_only) * bytes_of(row) / 1e9:.2f} GB/s" if rates_only else ""


def shown(runs, ours):
    return rates.shown(runs, ours, runs, "we are {:.1f} x as fast")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(DATA))
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} at the start")
    for row in args.rows or DATA:
        with tempfile.TemporaryDirectory(prefix="bench-native-") as folder:
            runs = measure(row, pathlib.Path(folder), args)
        for name, of in runs.items():
            print(f"{row:8} {name:20} {shown(of, runs[OURS])}{bandwidth(row, of)}", flush=True)


if __name__ == "__main__":
    main()
