"""How many requests to a store wait for one another: until a loader is open, and from then until its first batch. They
are counted by a store that answers nothing before all who may ask it do nothing but wait: no clock is in it.
"""

import os
import pathlib
import threading

import media
import test_remote_files as files
from digest_datasets import COLLATES, DATASETS, ITERABLE
from dltest import children_of

FIRST = 4  # at most, from open to the first batch
# To open: listings one below the other, an index, a file's end, and what that says, of datasets in datasets.
OPENING = 20
SHARDS = 40


def tree_of(pid):
    return [pid, *(one for child in children_of(pid) for one in tree_of(child))]


def turns_of(pids):
    """How often each thread of these has had a processor; None: one has it, or is about to."""
    turns, own = {}, threading.get_native_id()
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            if int(task) == own:
                continue
            with open(f"/proc/{pid}/task/{task}/status") as file:
                status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
            if status["State"][0] != "S":
                return None
            turns[task] = status["voluntary_ctxt_switches"], status["nonvoluntary_ctxt_switches"]
    return turns


def are_still(daemon):
    """Whether the daemon, all that it started and this process do nothing but wait: at a time between two looks none
    of them had a processor."""
    try:
        before = turns_of([os.getpid(), *tree_of(daemon.process.pid)])
        return before is not None and before == turns_of([os.getpid(), *tree_of(daemon.process.pid)])
    except (FileNotFoundError, ProcessLookupError):  # one has ended
        return False


class Rounds(files.RemoteCase):
    def first_batch(self, dataset, **more):
        """Rounds until a loader of it is open, and then until its first batch."""
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        try:
            return self.count(bucket, daemon, dataset, **more)
        finally:
            bucket.close()
            daemon.stop()

    def count(self, bucket, daemon, dataset, **more):
        client = self.client(daemon)
        bucket.answer_in_rounds(lambda: are_still(daemon))
        loader = client.open({"dataset": self.remote(dataset), "batch": {"size": 4}, "workers": {"count": 2},
                              "seed": 77, "sampler": {"kind": "random", "order": "native"}, **more})["loader"]
        opened = bucket.rounds
        client.start(loader, credits=1)
        client.next_batches()[0].release()
        rounds = opened, bucket.rounds - opened
        client.close()
        return rounds

    def check(self, name, rounds):
        print(f"# {name}: {rounds[0]} rounds until it is open, {rounds[1]} until the first batch", flush=True)
        self.assertLessEqual(rounds[1], FIRST)
        self.assertLessEqual(rounds[0], OPENING)

    def test_kinds(self):
        """Of each kind the first of its datasets."""
        seen = set(files.LOCAL)
        for name, kind, make in DATASETS:
            if kind in seen or name in files.LOCAL_ROWS:
                continue
            seen.add(kind)
            more = {"sampler": {"kind": "sequential"}} if name in ITERABLE else {}
            with self.subTest(dataset=name):
                dataset = {"kind": kind, **make(self)}
                self.check(name, self.first_batch(dataset, collate=COLLATES.get(name, {}), **more))

    def test_many(self):
        """Of as many files as a dataset has: what each says is asked of all at once."""
        media.mds(pathlib.Path(self.path("mds")), 5 * SHARDS, shards=SHARDS)
        media.parquet(self.path("0.parquet"), {"x": list(range(400))}, 10)
        os.makedirs(self.path("tables"))
        os.makedirs(self.path("pictures/c0"))
        with open(self.path("0.parquet"), "rb") as file:
            table = file.read()
        for i in range(SHARDS):
            self.write(f"{i:03}.tar", files.Together.tar(f"{i:03}"))
            self.write(f"tables/{i:03}.parquet", table)
            self.write(f"pictures/c0/{i:03}.jpg", files.PICTURE)
        for kind, paths in (("tar", "*.tar"), ("parquet", "tables"), ("parquet", "tables/*.parquet"), ("mds", "mds"),
                            ("imagefolder", "pictures")):
            with self.subTest(kind=kind, paths=paths):
                more = {"sampler": {"kind": "sequential"}} if kind == "tar" else {}
                fields = {"fields": ["id"]} if kind == "mds" else {}
                dataset = {"kind": kind, "paths": self.path(paths), **fields}
                self.check(f"{kind} {paths}", self.first_batch(dataset, **more))

    def test_pages(self):
        """Of row groups for which there is no room the pages alone, wherever their indexes are."""
        rows = [os.urandom(20_000) for _ in range(400)]
        for gap in 0, 1 << 20:
            path = self.path(f"{gap}.parquet")
            media.parquet(path, {"x": rows, "y": list(range(400))}, 100, paged=5, gap=gap)
            with self.subTest(gap=gap):
                dataset = {"kind": "parquet", "paths": path, "cache": "1MiB"}
                self.check(f"pages, {gap} bytes before the end", self.first_batch(dataset, batch={"size": 16}))
