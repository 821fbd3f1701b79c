"""litData's StreamingDataset, which C reads, of a directory and of a bucket: batches, order and errors are those of
PyTorch's DataLoader, which calls it, and the order that of litData's own StreamingDataLoader.
"""

import copy
import io
import itertools
import os
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import numpy
import torch

import dloaderd
import trainers
from black_box import OURS, Case, DataLoader, TorchLoader, difference
from bucket import Bucket
from dloaderd import _versions
from dloaderd._native_transforms import Unknown

litdata = trainers.need("litdata")

if not _versions.is_compared("litdata"):
    raise unittest.SkipTest(f"litdata is of version {litdata.__version__}, which was not compared")
if not OURS:
    raise unittest.SkipTest("they are about dloaderd's class")

from litdata.streaming.item_loader import TokensLoader  # noqa: E402
from litdata.streaming.writer import BinaryWriter  # noqa: E402

N = 61


def line(i):
    return {"id": i, "text": f"täxt {i}" * (i % 4)}


def every_leaf(i):
    return {"id": i - 5, "half": i / 2, "even": i % 2 == 0, "text": f"täxt {i}",
            "vector": torch.arange(i, i + 3, dtype=torch.int16), "matrix": torch.full((2, 3), i / 4),
            "number": torch.tensor(i), "array": numpy.full((2, 1, 3), i, "u1"), "row": numpy.arange(i, i + 4.0),
            "nested": {"flags": torch.tensor([i % 2 == 0, False]), "more": {"text": str(i), "x": i}}}


def write(root, make=line, n=N, first=0, **options):
    """Several chunks; samples first to first + n - 1."""
    writer = BinaryWriter(str(root), chunk_size=options.pop("chunk_size", 9), **options)
    for i in range(n):
        writer[i] = make(first + i)
    writer.done()
    writer.merge(1)


def setUpModule():
    """One store, and one environment: the daemon of this program has what the program had when it was started."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    Litdata.bucket = Bucket(folder.name, signed=False)
    unittest.addModuleCleanup(Litdata.bucket.close)
    environment = mock.patch.dict(os.environ, Litdata.bucket.environment)
    environment.start()
    unittest.addModuleCleanup(environment.stop)


class Called(Exception):
    """Python was asked for samples."""


class Litdata(Case):
    bucket: Bucket

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(dir=self.bucket.root)
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "data"
        self.cache = pathlib.Path(folder.name) / "cache"
        self.bucket.asked.clear()

    def data(self, remote=False, **options):
        if not remote:
            return litdata.StreamingDataset(str(self.root), **options)
        url = f"s3://bucket/{self.root.relative_to(self.bucket.root)}"
        shutil.rmtree(self.cache, ignore_errors=True)
        return litdata.StreamingDataset(url, cache_dir=str(self.cache), **options)

    def epochs(self, cls, data, count=2, epoch=None, **loading):
        loader = cls(data, **loading)
        found = []
        for number in range(count):
            if epoch:
                data.set_epoch(epoch(number))
            found.append(list(loader))
        return found

    def assert_alike(self, options=None, called=False, remotes=(False, True), **loading):
        """The batches of some epochs of a local copy, which are those of PyTorch's class; called: Python reads some
        samples."""
        options = options or {}
        how = {name: loading.pop(name) for name in ("count", "epoch") if name in loading}
        theirs = self.epochs(TorchLoader, self.data(**options), **how, **loading)
        for remote in remotes:
            watch = mock.patch.object(dloaderd._native._native_litdata.Numbers, "samples_of", side_effect=Called)
            with watch if not called else mock.MagicMock():
                ours = self.epochs(DataLoader, self.data(remote, **options), **how, **loading, native="require")
            found = difference(ours, theirs)
            if found:
                self.fail(f"{found}, with {options}, {loading}, remote {remote}")
        return theirs

    def explained(self, loader):
        out = io.StringIO()
        dloaderd.explain(loader, out)
        return out.getvalue()


class Batches(Litdata):
    def test_every_leaf(self):
        write(self.root, every_leaf)
        for workers in 1, 2:
            batches = self.assert_alike(batch_size=8, num_workers=workers)
            self.assertEqual(sum(len(batch["id"]) for batch in batches[0]), N)

    def test_rows(self):
        """Of numbers alone, which are copied to where they stay; and of what Arrow has."""
        leaves = {"numbers": ("id", "half", "even", "vector"), "arrow": ("id", "half", "even", "text")}
        for name, keys in leaves.items():
            with self.subTest(name):
                self.root = self.root.with_name(name)
                write(self.root, lambda i, keys=keys: {key: every_leaf(i)[key] for key in keys})
                self.assert_alike({"shuffle": True}, batch_size=8, num_workers=2)

    def test_values(self):
        """Samples that are no dict."""
        for name, make in (("number", lambda i: i), ("text", str), ("tensor", lambda i: torch.full((3,), i))):
            with self.subTest(name):
                self.root = self.root.with_name(name)
                write(self.root, make)
                self.assert_alike(batch_size=8, num_workers=2)

    def test_compressed(self):
        for level in "chunk", "batch", "sample":
            with self.subTest(level):
                self.root = self.root.with_name(level)
                write(self.root, compression="zstd", compression_level=level)
                self.assert_alike({"shuffle": True}, batch_size=8, num_workers=2)

    def test_tokens(self):
        documents = [torch.randint(60000, (1 + i % 50,), dtype=torch.int32) for i in range(100)]
        write(self.root, documents.__getitem__, n=100, chunk_size=900, item_loader=TokensLoader())
        for shuffle in False, True:
            with self.subTest(shuffle=shuffle):
                theirs = self.epochs(TorchLoader, self.data(item_loader=TokensLoader(block_size=16), shuffle=shuffle),
                                     batch_size=4, num_workers=2)
                for remote in False, True:
                    data = self.data(remote, item_loader=TokensLoader(block_size=16), shuffle=shuffle)
                    self.assertIsNone(difference(self.epochs(DataLoader, data, batch_size=4, num_workers=2,
                                                             native="require"), theirs))

    def test_orders(self):
        write(self.root)
        for options in ({"shuffle": True}, {"shuffle": True, "seed": 7}, {"shuffle": True, "item_shuffle_window": 4},
                        {"shuffle": True, "drop_last": True}, {"drop_last": True}):
            for workers in 1, 3:
                with self.subTest(options=options, workers=workers):
                    self.assert_alike(options, remotes=(workers == 3,), batch_size=7, num_workers=workers)

    def test_epochs(self):
        """set_epoch() shuffles anew; workers that stay count by themselves."""
        write(self.root)
        epochs = self.assert_alike({"shuffle": True}, count=3, epoch=lambda number: number + 1, batch_size=8,
                                   num_workers=2)
        self.assertNotEqual(str(epochs[0]), str(epochs[1]))
        epochs = self.assert_alike({"shuffle": True}, count=3, batch_size=8, num_workers=2, persistent_workers=True)
        self.assertNotEqual(str(epochs[0]), str(epochs[1]))

    def test_as_its_own_loader(self):
        """The order of litData's loader, which tells the dataset of its batches and workers."""
        write(self.root)
        theirs = [list(litdata.StreamingDataLoader(self.data(), batch_size=4, num_workers=2, shuffle=True))]
        for remote in False, True:
            data = self.data(remote, shuffle=True)
            data.set_batch_size(4)
            data.set_num_workers(2)
            ours = self.epochs(DataLoader, data, count=1, batch_size=4, num_workers=2, native="require")
            self.assertIsNone(difference(ours, theirs))

    def test_ranks(self):
        write(self.root)
        seen = []
        for rank in range(2):
            with mock.patch.dict(os.environ, WORLD_SIZE="2", GLOBAL_RANK=str(rank), NNODES="1"):
                found = self.assert_alike({"shuffle": True}, batch_size=4, num_workers=2)
            seen += [number for batch in found[0] for number in batch["id"].tolist()]
        self.assertEqual(len(seen), len(set(seen)))
        self.assertGreater(len(seen), N - 8)

    def test_resumed(self):
        """By the loader's own state, and by the dataset's, with another number of workers."""
        write(self.root)
        for remote in False, True:
            loader = DataLoader(self.data(remote, shuffle=True), batch_size=5, num_workers=2, native="require")
            batches = list(loader)
            found = iter(loader)
            begun = list(itertools.islice(found, 3))
            state = loader.state_dict()
            del found, loader
            other = DataLoader(self.data(remote, shuffle=True), batch_size=5, num_workers=2, native="require")
            other.load_state_dict(state)
            self.assertIsNone(difference(begun + list(other), batches))
        found = {}
        for cls in TorchLoader, DataLoader:
            data = self.data(shuffle=True)
            state = data.state_dict(num_samples_yielded=20, num_workers=2, batch_size=5)
            data.load_state_dict(copy.deepcopy(state))
            found[cls] = self.epochs(cls, data, count=1, batch_size=5, num_workers=3)
        self.assertIsNone(difference(found[DataLoader], found[TorchLoader]))

    def test_an_epoch_that_is_left(self):
        write(self.root)
        found = {}
        for cls in TorchLoader, DataLoader:
            loader = cls(self.data(shuffle=True), batch_size=8, num_workers=1, persistent_workers=True)
            first = next(iter(loader))
            found[cls] = [first, *loader, *loader]
        self.assertIsNone(difference(found[DataLoader], found[TorchLoader]))


class Bytes(Litdata):
    def test_nothing_is_downloaded(self):
        """Of chunks, to the dataset's cache; and no chunk is claimed there."""
        write(self.root)
        data = self.data(True, shuffle=True)
        self.epochs(DataLoader, data, batch_size=8, num_workers=2, native="require")
        there = {path.name for path in self.cache.rglob("*") if path.is_file()}
        self.assertEqual({name for name in there if not name.startswith("index.json")}, set())
        asked = {name: count for name, count in self.bucket.asked.items() if name.endswith(".bin")}
        self.assertEqual(len(asked), -(-N // 9))
        self.assertLessEqual(max(asked.values()), 2)  # what it is, and again if that took long


class Errors(Litdata):
    def test_damaged(self):
        """A sample that C cannot read is litData's: its error. Of its neighbours, which litData decodes together with
        it, C reads those that are whole."""
        write(self.root, lambda i: {"id": i, "row": torch.zeros(3)})
        with open(self.root / "chunk-0-3.bin", "r+b") as file:
            file.seek(4 * 5)
            file.write(b"\xff" * 4)  # where its fifth sample begins
        told = []
        for cls in TorchLoader, DataLoader:
            found, seen = iter(cls(self.data(), batch_size=1, num_workers=1)), []
            for _ in range(N):
                try:
                    seen.append(next(found)["id"].tolist())
                except StopIteration:
                    break
                except Exception as error:
                    seen.append(type(error))
            told.append(seen)
        theirs, ours = told
        errors = [[one for one in seen if isinstance(one, type)] for seen in told]
        self.assertEqual(*map(set, errors))
        self.assertLess(0, len(errors[1]))
        self.assertLessEqual(len(errors[1]), len(errors[0]))
        self.assertEqual(len(ours), len(theirs))
        for mine, other in zip(ours, theirs):
            self.assertTrue(mine == other or isinstance(other, type), (mine, other))

    def test_jagged(self):
        """default_collate's own error."""
        write(self.root, lambda i: {"row": torch.zeros(1 + i)})
        told = []
        for cls in TorchLoader, DataLoader:
            with self.assertRaises(RuntimeError) as caught:
                list(cls(self.data(), batch_size=4, num_workers=1))
            told.append(str(caught.exception).splitlines()[-1])
        self.assertEqual(*told)


class Recognised(Litdata):
    def test_explained(self):
        write(self.root)
        local = DataLoader(self.data(), batch_size=4, num_workers=1)
        self.assertRegex(self.explained(local), "samples +C +litData's chunks\n")
        remote = DataLoader(self.data(True), batch_size=4, num_workers=1)
        self.assertRegex(self.explained(remote), f"samples +C +litData's chunks of s3://bucket/.*, none of which is "
                                                 f"downloaded to {self.cache}")

    def test_called(self):
        """And explain() says why."""
        write(self.root)

        class Derived(litdata.StreamingDataset):
            pass

        def derived():
            return Derived(str(self.root))

        def patched():
            data = self.data()
            data.__getitem__ = lambda index: index
            return data

        for make, why in [(derived, "Derived  .the dataset is iterable: litdata's StreamingDataset divides"),
                          (patched, "this StreamingDataset has a __getitem__ of its own"),
                          (lambda: self.data(transform=str), "its transform is called"),
                          (lambda: self.data(subsample=0.5), "a part of the samples only")]:
            with self.subTest(why):
                loader = DataLoader(make(), batch_size=4, num_workers=1)
                self.assertRegex(self.explained(loader), f"Python.*{why}")

    def test_options(self):
        """Only what the fetcher finds, too, may be given; no value is told."""
        check = dloaderd._native._native_litdata._check_options
        here = self.bucket.environment["AWS_ENDPOINT_URL"]
        check(mock.Mock(storage_options={"endpoint_url": here + "/"}, session_options=None))
        for options, why in (({"endpoint_url": "http://h:1"}, "storage_options's endpoint_url is http://h:1"),
                             ({"aws_access_key_id": "SECRET"}, "storage_options has aws_access_key_id")):
            with self.subTest(why), self.assertRaisesRegex(Unknown, why) as caught:
                check(mock.Mock(storage_options=options, session_options={}))
            self.assertNotIn("SECRET", str(caught.exception))

    def test_leaves(self):
        """What default_collate makes something else of, or C reads otherwise, is litData's."""
        import PIL.Image
        for value, why in ((b"x", "format bytes"), ([1, "a"], "format json"), ((1, 2), "builtins.tuple"),
                           (PIL.Image.new("RGB", (3, 4)), "format pil")):
            with self.subTest(why):
                self.root = self.root.with_name(why.replace(" ", "-"))
                write(self.root, lambda i, value=value: {"x": value, "t": torch.zeros(1)})
                with self.assertRaisesRegex(ValueError, why):
                    DataLoader(self.data(), batch_size=4, num_workers=1, native="require")

    def test_changed(self):
        """The store has other files than the index says: litData is called."""
        write(self.root)
        data = self.data()
        known = dloaderd._native._native_litdata.Numbers(data, dloaderd._native._native_litdata.lower(data))
        with mock.patch("dloaderd._worker.open_files", return_value=161), self.assertWarns(UserWarning) as told:
            self.assertFalse(known.opens())
        self.assertRegex(str(told.warning), "C does not read .* 161 samples.* 61")
