"""MosaicML's StreamingDataset over local files, which C reads: batches, order and errors are those of PyTorch's
DataLoader, which calls it.
"""

import gc
import io
import itertools
import json
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
import unittest
import warnings
from unittest import mock

import numpy
import torch

import dloaderd
import trainers
from black_box import OURS, PATIENCE, QUICK, Case, Played, TorchLoader, difference
from dloaderd import DataLoader, _versions

streaming = trainers.need("streaming")

if not _versions.is_compared("streaming"):
    raise unittest.SkipTest(f"streaming is of version {streaming.__version__}, which was not compared")

N = 61
SCALARS = ("int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
COLUMNS = {"id": "int", "text": "str", "raw": "bytes", "digits": "str_int", "fixed": "ndarray:int16:2,3",
           "row": "ndarray:float32", "half": "ndarray:float16:4", **{f"n_{name}": name for name in SCALARS}}
LINE = {"id": "int", "text": "str"}


def sample(i):
    return {"id": i - 5, "text": f"täxt {i}" * (i % 4), "raw": bytes(range(i)), "digits": -3 * i,
            "fixed": numpy.full((2, 3), i, "int16"), "row": numpy.arange(i, i + 4, dtype="float32"),
            "half": numpy.full(4, i / 2, "float16"),
            **{f"n_{name}": numpy.dtype(name).type(i % 100) for name in SCALARS}}


def write(root, columns=LINE, n=N, first=0, **options):
    """Several shards; samples first to first + n - 1."""
    with streaming.MDSWriter(out=root, columns=columns, size_limit=options.pop("size_limit", 400),
                             **options) as writer:
        for i in range(first, first + n):
            writer.write({name: value for name, value in sample(i).items() if name in columns})


class Called(Exception):
    """Python was asked for samples."""


class Streaming(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.root = os.path.join(folder.name, "data")

    def data(self, **options):
        """A new one, once the last is gone: its shared memory is theirs by the folder's name."""
        gc.collect()
        if "streams" not in options:
            options = {"local": self.root, **options}
        for _ in range(100):
            try:
                return streaming.StreamingDataset(**options)
            except FileExistsError:  # another program took the number of its memory that it had found free
                time.sleep(0.05)
        return streaming.StreamingDataset(**options)

    def epochs(self, cls, options, count, **loading):
        data = self.data(**options() if callable(options) else options)
        loader = cls(data, **loading)
        found = [list(loader) for _ in range(count)]
        del loader, data
        return found

    def assert_alike(self, options, count=2, called=False, **loading):
        """The batches of `count` epochs, which are those of PyTorch's class; called: Python reads some samples."""
        theirs = self.epochs(TorchLoader, options, count, **loading)
        more = {"native": "require"} if loading.get("num_workers") else {}
        watch = mock.patch.object(dloaderd._native._native_streaming.Numbers, "samples_of", side_effect=Called)
        if called:
            ours = self.epochs(DataLoader, options, count, **loading, **more)
        else:
            with watch:
                ours = self.epochs(DataLoader, options, count, **loading, **more)
        found = difference(ours, theirs)
        if found:
            self.fail(f"{found}, with {options}, {loading}")
        return theirs


class Batches(Streaming):
    def test_every_encoding(self):
        write(self.root, COLUMNS, size_limit=3000)
        for workers in (1, 2):
            batches = self.assert_alike({"batch_size": 8}, batch_size=8, num_workers=workers)
            self.assertEqual(sum(len(batch["id"]) for batch in batches[0]), N)
        self.assertEqual(batches[0][0]["n_float16"].dtype, torch.float16)

    def test_rows_of_one_shape(self):
        """Which are copied to where they stay."""
        columns = {name: encoding for name, encoding in COLUMNS.items()
                   if name in ("id", "fixed", "half", *(f"n_{scalar}" for scalar in SCALARS))}
        write(self.root, columns, size_limit=3000)
        self.assert_alike({"batch_size": 8, "shuffle": True}, batch_size=8, num_workers=2)
        self.assert_alike({"batch_size": 8}, batch_size=40, num_workers=3)

    def test_types_of_each_array(self):
        """Where the type is each value's own, those of NumPy that torch has."""
        write(self.root, {"row": "ndarray"})
        if len(dloaderd._native._native_streaming._types()[1]) < 11:
            with self.assertRaisesRegex(ValueError, "column row has the encoding ndarray"):
                DataLoader(self.data(batch_size=4), batch_size=4, num_workers=1, native="require")
            return
        self.assert_alike({"batch_size": 4}, batch_size=4, num_workers=2)

    def test_orders(self):
        write(self.root)
        algorithms = ["py1e", "naive"] if QUICK else ["naive", "py1br", "py1e", "py1s", "py2s"]
        turns = [(None, workers) for workers in (0, 1, 2, 3)]
        turns += [(algorithm, i % 4) for i, algorithm in enumerate(algorithms, 1)] + [("py1e", i) for i in range(4)]
        for algorithm, workers in turns:
            shuffle = {} if algorithm is None else {"shuffle": True, "shuffle_algo": algorithm,
                                                    "shuffle_block_size": 20, "num_canonical_nodes": 2}
            batches = self.assert_alike({"batch_size": 7, **shuffle}, batch_size=7, num_workers=workers)
            if algorithm is not None:
                self.assertGreater(len({str(epoch) for epoch in batches}), 1, f"{algorithm}: all epochs are alike")

    def test_sizes(self):
        """Of batches, of the loader and of the dataset's own; incomplete ones dropped or not."""
        write(self.root)
        sizes = [(8, 8), (5, 3)] if QUICK else [(1, 1), (8, 8), (5, 3), (3, 5), (100, 100)]
        for (own, size), drop in itertools.product(sizes, (False, True)):
            self.assert_alike({"batch_size": own, "shuffle": True}, batch_size=size, num_workers=2, drop_last=drop)

    def test_what_else_orders(self):
        write(self.root)
        for more in ({"epoch_size": 30}, {"epoch_size": 150, "shuffle": True}, {"partition_algo": "orig"},
                     {"sampling_method": "fixed", "epoch_size": 20, "shuffle": True}, {"num_canonical_nodes": 4},
                     {"shuffle": True, "shuffle_seed": 5}):
            self.assert_alike({"batch_size": 4, **more}, batch_size=4, num_workers=2)

    def test_streams(self):
        """Several of them, resampled, and their batches in each way."""
        for i, n in enumerate((40, 33, 30)):
            write(f"{self.root}/{i}", n=n, first=100 * i)

        def streams(weights, key):
            return [streaming.Stream(local=self.root, split=str(i), **{key: weight} if key else {})
                    for i, weight in enumerate(weights)]

        ways = [((1, 1, 1), None), ((0.2, 0.5, 0.3), "proportion"), ((1, 0.8, 2), "repeat"), ((20, 40, 15), "choose")]
        methods = ["random", "stratified", "per_stream", "device_per_stream"]
        for i, (weights, key) in enumerate(ways):
            for method in methods[i:i + 1] if QUICK else {"random", methods[i]}:
                self.assert_alike(lambda weights=weights, key=key, method=method: {
                    "streams": streams(weights, key), "batch_size": 6, "shuffle": True, "batching_method": method},
                    batch_size=6, num_workers=2)

    def test_compressed(self):
        """C unpacks these, if it was built with the libraries; where it was not, they are Python's."""
        for way in ("gz", "zstd"):
            self.root = os.path.join(self.folder, way)
            write(self.root, compression=way)
            ours = self.epochs(DataLoader, {"batch_size": 8, "shuffle": True}, 2, batch_size=8, num_workers=2,
                               native="require")
            self.assertEqual([name for name in os.listdir(self.root) if name.endswith(".mds")], [])
            theirs = self.epochs(TorchLoader, {"batch_size": 8, "shuffle": True}, 2, batch_size=8, num_workers=2)
            self.same(ours, theirs)

    def test_compressed_in_another_way(self):
        """Is Python's, until it has unpacked the shards."""
        write(self.root, compression="br")
        with self.assertRaisesRegex(ValueError, "shard.00000.mds.br is compressed by br, and not unpacked yet"):
            DataLoader(self.data(batch_size=8), batch_size=8, num_workers=2, native="require")
        self.same(self.epochs(DataLoader, {"batch_size": 8}, 1, batch_size=8, num_workers=2),
                  self.epochs(TorchLoader, {"batch_size": 8}, 1, batch_size=8, num_workers=2))
        self.assert_alike({"batch_size": 8}, batch_size=8, num_workers=2)

    def test_workers_that_stay(self):
        write(self.root)
        self.assert_alike({"batch_size": 8, "shuffle": True}, count=3, batch_size=8, num_workers=2,
                          persistent_workers=True)

    def test_workers_that_are_spawned(self):
        write(self.root)
        self.assert_alike({"batch_size": 8, "shuffle": True}, called=True, batch_size=8, num_workers=2,
                          multiprocessing_context="spawn")

    def test_an_epoch_that_is_left(self):
        """The next one is the next, as it is with PyTorch's class."""
        write(self.root)
        found = {}
        for cls in (TorchLoader, DataLoader):
            loader = cls(self.data(batch_size=8, shuffle=True), batch_size=8, num_workers=1)
            first = next(iter(loader))
            gc.collect()
            found[cls] = [first, *loader]
            del loader
        self.same(found[DataLoader], found[TorchLoader])

    def test_resuming(self):
        """By their own states, with another number of workers."""
        write(self.root)
        found = {}
        for cls in (TorchLoader, DataLoader):
            data = self.data(batch_size=5, shuffle=True, num_canonical_nodes=2)
            list(cls(data, batch_size=5, num_workers=2))
            seen = list(itertools.islice(iter(cls(data, batch_size=5, num_workers=2)), 4))
            state = data.state_dict(20, True)
            self.assertEqual((state["epoch"], state["sample_in_epoch"]), (1, 20))
            del data
            data = self.data(batch_size=5, shuffle=True)
            data.load_state_dict(state)
            found[cls] = [seen, *(list(cls(data, batch_size=5, num_workers=3)) for _ in range(2))]
            data._resume_shm.cleanup()  # else the next one goes on from there, too
            del data
        self.same(found[DataLoader], found[TorchLoader])
        seen = {i for part in found[DataLoader][:2] for batch in part for i in batch["id"].tolist()}
        self.assertEqual(len(seen), N)

    def resume_loader(self, theirs, stop, **loading):
        """Epoch 0, `stop` batches of the next one, a new dataset, and the rest: those are PyTorch's."""
        options = {"batch_size": 5, "shuffle": True, "num_canonical_nodes": 2}
        loader = DataLoader(self.data(**options), batch_size=5, **loading)
        found = [list(loader)]
        batches = iter(loader)
        seen = list(itertools.islice(batches, stop))
        state = json.loads(json.dumps(loader.state_dict()))
        list(batches)  # in one process; else threads and barriers of the dataset that is left are there still
        del batches, loader
        gc.collect()
        loader = DataLoader(self.data(**options), batch_size=5, **loading)
        loader.load_state_dict(state)
        self.same(loader.state_dict(), state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those before are loaded again
            found += [[*seen, *loader], list(loader)]
        del loader
        self.same(found, theirs)

    def test_resuming_a_loader(self):
        """By the loader's own state: the dataset counts on from the epoch that it was in."""
        write(self.root)
        for workers in (0, 2):
            theirs = self.epochs(TorchLoader, {"batch_size": 5, "shuffle": True, "num_canonical_nodes": 2}, 3,
                                 batch_size=5, num_workers=workers)
            self.assertNotEqual(str(theirs[0]), str(theirs[1]))
            for stop in (1, 4):
                self.resume_loader(theirs, stop, num_workers=workers)
            if workers:
                self.resume_loader(theirs, 4, num_workers=workers, persistent_workers=True)

    def test_resuming_behind_an_epoch(self):
        write(self.root)
        options = {"batch_size": 5, "shuffle": True, "num_canonical_nodes": 2}
        theirs = self.epochs(TorchLoader, options, 3, batch_size=5, num_workers=2)
        loader = DataLoader(self.data(**options), batch_size=5, num_workers=2)
        found = [list(loader), list(loader)]
        state = loader.state_dict()
        self.assertEqual(state["streaming_epoch"], 2)
        del loader
        loader = DataLoader(self.data(**options), batch_size=5, num_workers=2)
        for wrong in (-1, 1.5, "2", True, 2**63):
            with self.assertRaisesRegex(ValueError, "^streaming_epoch: "):
                loader.load_state_dict({**state, "streaming_epoch": wrong})
        loader.load_state_dict(state)
        self.same([*found, list(loader)], theirs)


class Ranks(Streaming):
    def rank(self, number, port, cls, options, loading, told):
        """In a process of its own, as torchrun starts it: tells the batches of two epochs."""
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        more = {"native": "require"} if cls is DataLoader else {}
        epochs = self.epochs(cls, options, 2, **loading, **more)
        told.put((number, [[(batch["id"].tolist(), batch["text"]) for batch in epoch] for epoch in epochs]))

    def run_ranks(self, cls, options, loading):
        """[rank: [epoch: its batches]]"""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        told = context.SimpleQueue()
        ranks = [context.Process(target=self.rank, args=(number, port, cls, options, loading, told))
                 for number in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(PATIENCE)
            rank.kill()
            rank.join()
        self.assertEqual([rank.exitcode for rank in ranks], [0, 0])
        return [epochs for _, epochs in sorted(told.get() for _ in ranks)]

    def test_two_ranks(self):
        write(self.root)
        for more in ({}, {"replication": 2}):
            options, loading = {"batch_size": 4, "shuffle": True, **more}, {"batch_size": 4, "num_workers": 2}
            theirs = self.run_ranks(TorchLoader, options, loading)
            self.assertEqual(self.run_ranks(DataLoader, options, loading), theirs)
            self.assertEqual(theirs[0] == theirs[1], bool(more))


class Errors(Streaming):
    def shard(self):
        return sorted(name for name in os.listdir(self.root) if name.endswith(".mds"))[1]

    def play(self, cls, columns, damage, **loading):
        """What came of files that were damaged when the loader had been made."""
        self.root = os.path.join(self.folder, f"{cls.__module__}-{len(os.listdir(self.folder))}")
        write(self.root, columns)
        more = {"native": "require"} if cls is DataLoader else {}

        def make(cls):
            loader = cls(self.data(batch_size=4), batch_size=4, **loading, **more)
            damage(os.path.join(self.root, self.shard()))
            return loader

        return Played(cls, make)

    def said(self, columns, damage, **loading):
        """The whole text of the error that our class raises."""
        self.root = os.path.join(self.folder, "said")
        write(self.root, columns)
        loader = DataLoader(self.data(batch_size=4), batch_size=4, native="require", **loading)
        damage(os.path.join(self.root, self.shard()))
        with self.assertRaises(Exception) as caught:
            list(loader)
        return str(caught.exception)

    def assert_alike_and_named(self, columns, damage, says, **loading):
        """Both classes have the same batches and errors; ours names file and sample, as C does, besides."""
        ours, theirs = (self.play(cls, columns, damage, **loading).events for cls in (DataLoader, TorchLoader))
        self.same(ours, theirs)
        self.assertIn("error", [event[0] for event in ours])
        self.assertRegex(self.said(columns, damage, **loading), says)

    def test_text_that_is_none(self):
        def damage(path):
            with open(path, "r+b") as file:
                at = file.read().index("täxt".encode()) + 1
                file.seek(at)
                file.write(b"\xff")

        self.assert_alike_and_named(LINE, damage, "said/shard.00001.mds: sample [0-9]+: its text is not UTF-8",
                                    num_workers=2)

    def test_a_shard_that_is_cut(self):
        def damage(path):
            os.truncate(path, os.stat(path).st_size // 2)

        for columns in (LINE, {"id": "int", "fixed": "ndarray:int16:2,3"}):
            self.assert_alike_and_named(columns, damage, "said/shard.00001.mds: has [0-9]+ bytes, but index.json says",
                                        num_workers=1)
            shutil.rmtree(os.path.join(self.folder, "said"))

    def test_a_shard_that_is_gone(self):
        """Theirs says so in a thread, and goes on, or waits for ever; a sample that is asked for is an error."""
        self.assertRegex(self.said(LINE, os.unlink, num_workers=1), "said/shard.00001.mds: no such file")

    def test_rows_of_several_lengths(self):
        with streaming.MDSWriter(out=self.root, columns={"id": "int", "row": "ndarray:int32"}) as writer:
            for i in range(20):
                writer.write({"id": i, "row": numpy.arange(1 + i // 10, dtype="int32")})
        found = {}
        for cls in (TorchLoader, DataLoader):
            found[cls] = Played(cls, lambda cls: cls(self.data(batch_size=4), batch_size=4, num_workers=1)).events
        self.same(found[DataLoader], found[TorchLoader])
        self.assertIn("error", [event[0] for event in found[DataLoader]])

    def test_no_batch_size(self):
        write(self.root)
        for cls in (TorchLoader, DataLoader):
            with self.assertRaisesRegex(ValueError, "Please pass `batch_size`"):
                list(cls(self.data(), batch_size=4, num_workers=1))


class Subclass(streaming.StreamingDataset):
    """Not theirs."""


class Explain(Streaming):
    def told(self, data, **options):
        out = io.StringIO()
        dloaderd.explain(DataLoader(data, batch_size=4, **{"num_workers": 2, **options}), file=out)
        return out.getvalue().splitlines()

    def refusal(self, data, **options):
        loader = {"batch_size": 4, "num_workers": 2, **options}
        with self.assertRaises(ValueError) as caught:
            DataLoader(data, native="require", **loader)
        lines = self.told(data, **options)
        self.assertRegex(lines[-2], "^batches +Python  ")
        return str(caught.exception)

    def test_what_is_known(self):
        write(self.root)
        self.assertEqual(self.told(self.data(batch_size=4)),
                         ["order    Python  StreamingDataset  (its own code, once an epoch)",
                          "samples  C       MDS files", "batches  C       default_collate"])

    def test_what_is_not(self):
        write(self.root)
        data = self.data(batch_size=4)
        self.assertIn("num_workers=0: without workers", self.refusal(data, num_workers=0))
        self.assertIn("list is not PyTorch's default_collate", self.refusal(data, collate_fn=list))
        with mock.patch.object(streaming.StreamingDataset, "get_item", lambda self, number: number):
            self.assertIn("StreamingDataset.get_item is not streaming's own", self.refusal(data))
        data.get_item = int
        self.assertIn("this StreamingDataset has a get_item of its own", self.refusal(data))
        del data.get_item
        coders = sys.modules["streaming.base.format.mds.encodings"]._encodings
        with mock.patch.dict(coders, {"str": type("Mine", (), {"decode": lambda self, data: data.hex()})}):
            dloaderd._native._native_streaming._found.clear()
            self.assertIn("the encoding str is not streaming's own", self.refusal(data))
        dloaderd._native._native_streaming._found.clear()
        with mock.patch.object(streaming, "__version__", "0.99.1"):
            known = " and ".join(_versions.COMPARED["streaming"])
            self.assertIn(f"streaming 0.99.1 has not been compared; {known} has", self.refusal(data))
        with mock.patch.object(data.streams[0], "validate_hash", "sha1"):
            self.assertIn("stream 0 has validate_hash='sha1'", self.refusal(data))
        with mock.patch.object(data, "cache_limit", 1 << 30):
            self.assertIn("cache_limit", self.refusal(data))
        del data
        gc.collect()
        mine = Subclass(local=self.root, batch_size=4)
        self.assertIn("the dataset is iterable: streaming's StreamingDataset divides", self.refusal(mine))
        self.assertEqual(sum(len(batch["id"]) for batch in DataLoader(mine, batch_size=4, num_workers=2)), N)

    def test_encodings_that_are_not(self):
        for encoding, value in (("json", {"a": 1}), ("str_float", 0.5)):
            root = os.path.join(self.folder, encoding)
            with streaming.MDSWriter(out=root, columns={"x": encoding}) as writer:
                for _ in range(6):
                    writer.write({"x": value})
            data = self.data(local=root, batch_size=4)
            self.assertIn(f"column x has the encoding {encoding}", self.refusal(data))
            self.assertEqual(len(list(DataLoader(data, batch_size=4, num_workers=2))), 2)
            del data

    def test_what_a_worker_changes(self):
        """Is seen: it is looked at behind worker_init_fn."""
        write(self.root)

        def change(worker):
            data = torch.utils.data.get_worker_info().dataset
            data.get_item = lambda number: {"id": -int(number)}

        loader = DataLoader(self.data(batch_size=4), batch_size=4, num_workers=1, worker_init_fn=change)
        self.assertEqual(next(iter(loader))["id"].tolist(), [0, -1, -2, -3])

    def test_off(self):
        write(self.root)
        data = self.data(batch_size=4)
        self.assertIn("native='off'", self.told(data, native="off")[0])
        with mock.patch.object(dloaderd._native._native_streaming, "lower", side_effect=Called):
            loader = DataLoader(data, batch_size=4, num_workers=2, native="off")
            self.assertEqual(sum(len(batch["id"]) for batch in loader), N)


if not OURS:
    del Batches, Ranks, Errors, Explain
