"""How long a blend of ten Megatron-LM sets of 10^8 tokens takes to its first batch, where a daemon runs.

    PYTHON blend_start.py --build BUILD [--rounds N]

PYTHON has NumPy. The .bin files take no room on the disk; the .idx files are real, and no other index is made.
A start is to open the loader, which starts its two workers, to begin an epoch and to have a batch of 8 samples of
1024 tokens. Beside it, by turns, the same of `kind: range`: what processes take by themselves.

Bar: a median of less than 50 ms. Measured with two cores under a load of 7: 33 to 39 ms in three runs (range 17 to
20); with both cores taken by other programs 88 (range 67).
"""

import argparse
import os
import pathlib
import statistics
import struct
import sys
import tempfile
import time

import numpy
import rates

SETS, TOKENS, DOCUMENT, SEQUENCE = 10, 100_000_000, 1000, 1024


def make(folder):
    n = TOKENS // DOCUMENT
    arrays = (numpy.full(n, DOCUMENT, numpy.int32), numpy.arange(n, dtype=numpy.int64) * 2 * DOCUMENT,
              numpy.arange(n + 1, dtype=numpy.int64))
    for i in range(SETS):
        with open(folder / f"{i}.bin", "wb") as file:
            file.truncate(2 * TOKENS)
        with open(folder / f"{i}.idx", "wb") as file:
            file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
            for array in arrays:
                file.write(array.tobytes())


def blend(folder):
    return {"kind": "mix", "weights": list(range(1, SETS + 1)), "datasets": [
        {"kind": "megatron", "paths": f"{folder}/{i}", "view": "samples", "sequence_length": SEQUENCE}
        for i in range(SETS)]}


def start(dataset, seed):
    """Milliseconds to the first batch of a loader that nobody had open."""
    from dloaderd import Loader
    begin = time.perf_counter()
    with Loader({"dataset": dataset, "sampler": {"kind": "random", "order": "native"}, "batch": {"size": 8},
                 "seed": seed, "workers": {"count": 2}}, as_="numpy") as loader:
        next(iter(loader))
        took = time.perf_counter() - begin
    time.sleep(0.1)  # its processes end
    return 1000 * took


def measure(folder, socket, rounds):
    """{name: its starts}, beside a daemon at `socket`."""
    from dloaderd import Loader
    rows = {"blend": blend(folder), "range": {"kind": "range", "length": SETS * TOKENS // SEQUENCE}}
    found = {name: [] for name in rows}
    os.environ["DLOADER_SOCKET"] = str(socket)
    with Loader({"dataset": {"kind": "range", "length": 1}, "seed": 1}, as_="numpy"):  # the daemon stays for it
        for seed in range(2, 2 + rounds):
            for name, dataset in rows.items():
                found[name].append(start(dataset, seed))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    build = args.build.resolve()
    sys.path.insert(0, str(build / "client/python"))
    print(f"load {os.getloadavg()[0]:.2f} at the start")
    with tempfile.TemporaryDirectory(prefix="blend-") as name:
        folder = pathlib.Path(name)
        make(folder)
        with rates.daemon(build, folder) as socket:
            found = measure(folder, socket, args.rounds)
    for row, took in found.items():
        print(f"{row:6} first batch after {statistics.median(took):.1f} ms, {min(took):.1f} to {max(took):.1f}")


if __name__ == "__main__":
    main()
