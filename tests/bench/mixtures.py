"""Mixtures of datasets, beside the libraries that have them: start, speed, shares, and what happens
when an epoch is continued by another number of ranks.

    PYTHON mixtures.py --build BUILD [--seconds S] [ROW ...]

PYTHON has NumPy, and for the others' rows PyTorch, grain, datasets or litdata; where one is missing
its line says so. All read the same three small sources in one process, by weights 0.5, 0.3 and 0.2.
A row is a process of its own: its start is the time to the first batch, once the library is there;
its speed that of batches of 64; its share error the greatest distance, in samples, of any source
from what it is due after each of the first 400 batches. Then two ranks read 20 batches each, save,
and three ranks restore and read 20 each: what they had together is compared with the first samples
of one rank alone. Runs take turns; only ratios of neighbours mean something.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy

WEIGHTS = (0.5, 0.3, 0.2)
SIZES = (60_000, 30_000, 20_000)
BATCH, BATCHES, STEPS = 64, 400, 20
WIDTH = 64


def make(folder):
    """Rows whose first number says which of all samples they are."""
    first = 0
    for i, size in enumerate(SIZES):
        rows = numpy.zeros((size, WIDTH), numpy.int64)
        rows[:, 0] = numpy.arange(first, first + size)
        numpy.save(folder / f"{i}.npy", rows)
        first += size


def arrays(folder):
    return [numpy.load(folder / f"{i}.npy", mmap_mode="r") for i in range(len(SIZES))]


class Ours:
    """dloaderd, in this process like the others."""

    def __init__(self, folder, world=1, rank=0, state=None):
        from dloaderd import Loader

        spec = {"dataset": {"kind": "mix", "weights": list(WEIGHTS),
                            "datasets": [{"kind": "npy", "paths": str(folder / f"{i}.npy")}
                                         for i in range(len(SIZES))]},
                "sampler": {"kind": "random", "order": "native"}, "batch": {"size": BATCH},
                "shard": {"even": False}, "workers": {"count": 0}, "seed": 1}
        self.loader = Loader(spec, rank=rank, world_size=world, as_="numpy")
        if state:
            self.loader.load_state_dict(state)

    def __iter__(self):
        return iter(self.loader)

    def state(self):
        return self.loader.state_dict()


class Grain:
    """MapDataset.mix, each source shuffled and repeated; sliced for ranks."""

    def __init__(self, folder, world=1, rank=0, state=None):
        import grain

        mixed = grain.MapDataset.mix([grain.MapDataset.source(source).seed(i).shuffle().repeat(None)
                                      for i, source in enumerate(arrays(folder))], WEIGHTS)
        self.iterator = iter(mixed[rank::world].batch(BATCH).to_iter_dataset())
        if state:
            self.iterator.set_state(state)

    def __iter__(self):
        return self.iterator

    def state(self):
        return self.iterator.get_state()


class GrainElastic(Grain):
    """The same in its iterator for numbers of ranks that change."""

    def __init__(self, folder, world=1, rank=0, state=None):
        import grain
        from grain.experimental import ElasticIterator

        mixed = grain.MapDataset.mix([grain.MapDataset.source(source).seed(i).shuffle().repeat(None)
                                      for i, source in enumerate(arrays(folder))], WEIGHTS)
        elastic = ElasticIterator(mixed, BATCH * world, grain.sharding.ShardOptions(rank, world))
        self.iterator = iter(elastic)
        if state:
            self.iterator.set_state(state)


class HuggingFace:
    """interleave_datasets(probabilities=) of iterable datasets, the kind that has a state."""

    def __init__(self, folder, world=1, rank=0, state=None):
        from datasets import interleave_datasets, load_from_disk
        from datasets.distributed import split_dataset_by_node

        sets = [load_from_disk(folder / f"hf{i}").with_format("numpy").to_iterable_dataset(num_shards=12)
                for i in range(len(SIZES))]
        mixed = interleave_datasets(sets, probabilities=list(WEIGHTS), seed=1,
                                    stopping_strategy="all_exhausted")
        if world > 1:
            mixed = split_dataset_by_node(mixed, rank, world)
        self.data = mixed
        if state:
            self.data.load_state_dict(state)

    def __iter__(self):
        for batch in self.data.iter(BATCH):
            yield numpy.asarray(batch["row"])

    def state(self):
        return self.data.state_dict()


class LitData:
    """CombinedStreamingDataset over optimized sources."""

    def __init__(self, folder, world=1, rank=0, state=None):
        from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
        from litdata.utilities.env import _DistributedEnv

        sets = [StreamingDataset(str(folder / f"lit{i}"), shuffle=True, seed=1) for i in range(len(SIZES))]
        for one in sets:  # as torch.distributed would say it
            one.distributed_env = _DistributedEnv(world, rank, 1)
        self.loader = StreamingDataLoader(
            CombinedStreamingDataset(sets, seed=1, weights=list(WEIGHTS), iterate_over_all=False),
            batch_size=BATCH)
        if state:
            self.loader.load_state_dict(state)

    def __iter__(self):
        for batch in self.loader:
            yield numpy.asarray(batch)

    def state(self):
        return self.loader.state_dict()


ROWS = {"dloaderd": Ours, "grain": Grain, "grain-elastic": GrainElastic, "datasets": HuggingFace,
        "litdata": LitData}


def prepare_datasets(folder):
    from datasets import Dataset

    for i, source in enumerate(arrays(folder)):
        Dataset.from_dict({"row": source}).save_to_disk(folder / f"hf{i}")


def prepare_litdata(folder):
    from litdata.streaming.writer import BinaryWriter

    for i, source in enumerate(arrays(folder)):
        (folder / f"lit{i}").mkdir(exist_ok=True)
        writer = BinaryWriter(str(folder / f"lit{i}"), chunk_bytes="16MB")
        for k, row in enumerate(source):
            writer[k] = numpy.array(row)
        writer.done()
        writer.merge()


# A library's own format of the sources; no part of the start.
PREPARE = {"datasets": prepare_datasets, "litdata": prepare_litdata}


def shares(ids):
    """The greatest distance of any source from its share at any end of a batch."""
    ends = numpy.cumsum(SIZES)
    counts = numpy.zeros(len(SIZES))
    worst, total = 0.0, 0
    for batch in ids:
        counts += numpy.bincount(numpy.searchsorted(ends, batch, "right"), minlength=len(SIZES))
        total += len(batch)
        worst = max(worst, float(abs(counts - total * numpy.array(WEIGHTS)).max()))
    return worst


def take(iterator, n):
    found = []
    for batch in iterator:
        found.append(numpy.array(batch)[:, 0].copy())
        if len(found) == n:
            break
    return found


def resume(kind, folder, alone):
    """Two ranks, then three, against the first samples of one alone."""
    had, states = [], []
    for rank in range(2):
        loader = kind(folder, 2, rank)
        had += take(iter(loader), STEPS)
        states.append(loader.state())
    for rank in range(3):
        loader = kind(folder, 3, rank, states[min(rank, 1)])
        had += take(iter(loader), STEPS)
    got = collections.Counter(int(i) for batch in had for i in batch)
    want = collections.Counter(int(i) for i in numpy.concatenate(alone)[:sum(got.values())])
    return {"missing": sum((want - got).values()), "others": sum((got - want).values()),
            "twice": sum(n - 1 for n in got.values()), "samples": sum(got.values())}


def measure(name, folder, seconds):
    kind = ROWS[name]
    next(iter(kind(folder)))  # imports, and reads the files
    begin = time.perf_counter()
    iterator = iter(kind(folder))
    next(iterator)
    start = time.perf_counter() - begin
    begin, n = time.perf_counter(), 0
    for _ in iterator:
        n += 1
        if time.perf_counter() - begin > seconds:
            break
    rate = n * BATCH / (time.perf_counter() - begin)
    alone = take(iter(kind(folder)), BATCHES)
    found = {"row": name, "start_s": start, "samples_s": rate, "share_error": shares(alone)}
    try:
        found["resume"] = resume(kind, folder, alone)
    except Exception as error:  # that is the finding
        found["resume"] = f"{type(error).__name__}: {error}"[:200]
    print(json.dumps(found), flush=True)
    os._exit(0)


def run(name, folder, build, seconds):
    env = {**os.environ, "DLOADER_LOCAL_MODULE": str(build / "client/dlclient-local.so"), "PYTHONPATH": os.pathsep.join(
        [str(build / "client/python"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, __file__, "--build", str(build), "--seconds", str(seconds),
                           "--in", str(folder), name], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=1800)
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {"row": name, "error": (done.stderr.strip().splitlines() or ["nothing"])[-1]}
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--in", dest="folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    if args.folder:
        measure(args.rows[0], args.folder, args.seconds)
    with tempfile.TemporaryDirectory(prefix="mixtures-") as name:
        folder = pathlib.Path(name)
        make(folder)
        for row in args.rows or ROWS:
            try:
                PREPARE.get(row, str)(folder)
            except ImportError:
                pass  # its row says so
        for row in args.rows or ROWS:
            print(json.dumps(run(row, folder, args.build.resolve(), args.seconds)), flush=True)


if __name__ == "__main__":
    main()
