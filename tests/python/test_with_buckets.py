"""Other packages' datasets of remote files, which the daemon's fetcher reads: batches, order and errors are those that
PyTorch's DataLoader gives of the package, which fetches them itself, or of a local copy.

tests/lib/bucket.py is the store, for s3:// as for http://.
"""

import gc
import io
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import dloaderd
import trainers
from black_box import OURS, Case, DataLoader, TorchLoader, difference, seed_all
from bucket import Bucket
from dloaderd import _native_shards, _native_streaming, _native_tables, _native_urls, _versions

if not OURS:
    raise unittest.SkipTest("they are about dloaderd's class")


def setUpModule():
    """One store, and one environment: the daemon of this program has what the program had when it was started."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    Remote.root = pathlib.Path(folder.name)
    Remote.bucket = Bucket(folder.name, signed=False)
    unittest.addModuleCleanup(Remote.bucket.close)
    Remote.http = f"{Remote.bucket.url}/bucket"
    environment = mock.patch.dict(os.environ, Remote.bucket.environment)
    environment.start()
    unittest.addModuleCleanup(environment.stop)


class Remote(Case):
    root: pathlib.Path
    bucket: Bucket
    http: str

    def setUp(self):
        super().setUp()
        self.bucket.asked.clear()

    def explained(self, loader):
        out = io.StringIO()
        dloaderd.explain(loader, out)
        return out.getvalue()

    def read(self, cls, data, epochs=2, **loading):
        """The batches of some epochs, of whichever class."""
        seed_all(5)
        loader = cls(data, **loading)
        return [list(loader) for _ in range(epochs)]

    def assert_same(self, ours, theirs):
        found = difference(ours, theirs)
        if found:
            self.fail(found)


def need(name):
    """The package, or None: its cases are skipped."""
    try:
        return trainers.need(name)
    except unittest.SkipTest:
        return None


wds, streaming, datasets = need("webdataset"), need("streaming"), need("datasets")


# ---- webdataset ----------------------------------------------------------------------------------

@unittest.skipUnless(wds and _versions.is_compared("webdataset"), "webdataset of a known version is not there")
class Shards(Remote):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for shard in range(4):
            with wds.TarWriter(str(cls.root / f"t-{shard}.tar")) as tar:
                for i in range(9):
                    tar.write({"__key__": f"{shard}-{i}", "txt": f"text {i}", "cls": i, "bin": bytes(1000 * i)})
        with wds.TarWriter(str(cls.root / "packed.tar.gz"), compress=True) as tar:
            tar.write({"__key__": "0", "txt": "packed", "cls": 0, "bin": b""})
        data = (cls.root / "t-0.tar").read_bytes()
        (cls.root / "cut.tar").write_bytes(data[:len(data) // 2])

    def pipeline(self, urls, **options):
        data = wds.WebDataset(urls, shardshuffle=options.pop("shardshuffle", False), seed=3, **options)
        return data.shuffle(7, seed=4).decode().to_tuple("txt", "cls", "bin", "__key__")

    def assert_read(self, urls, native=None, workers=2, **options):
        """As webdataset reads it, but by C alone if native."""
        theirs = self.read(TorchLoader, self.pipeline(urls, **options), batch_size=5, num_workers=workers)
        refuse = mock.patch("webdataset.gopen.Pipe", side_effect=AssertionError("a program was started"))
        if native:
            with refuse:
                ours = self.read(DataLoader, self.pipeline(urls, **options), batch_size=5, num_workers=workers,
                                 native=native)
        else:
            ours = self.read(DataLoader, self.pipeline(urls, **options), batch_size=5, num_workers=workers)
        self.assert_same(ours, theirs)
        return ours

    def test_urls(self):
        ours = self.assert_read(self.http + "/t-{0..3}.tar", "require")
        self.assertEqual(sum(len(batch[0]) for batch in ours[0]), 36)
        self.assert_read([f"{self.http}/t-{n}.tar" for n in (2, 0)], "require", workers=1, shardshuffle=10)

    def test_local_copy(self):
        """Digest by digest that of the files."""
        local = self.read(DataLoader, self.pipeline(str(self.root) + "/t-{0..3}.tar"), batch_size=5, num_workers=2)
        remote = self.read(DataLoader, self.pipeline(self.http + "/t-{0..3}.tar"), batch_size=5, num_workers=2)
        self.assert_same(remote, local)

    def test_pipes(self):
        self.assert_read([f"pipe:curl -s -L {self.http}/t-1.tar", f"pipe:curl -sfL --retry 3 '{self.http}/t-2.tar'"],
                         "require")

    def test_pipe_of_aws(self):
        """aws itself is not asked for: as of the file."""
        shards = ["pipe:aws s3 cp --quiet s3://bucket/t-1.tar -", "pipe:aws s3 cp s3://bucket/t-2.tar - --no-progress"]
        with mock.patch("webdataset.gopen.Pipe", side_effect=AssertionError("a program was started")):
            ours = self.read(DataLoader, self.pipeline(shards), batch_size=5, num_workers=2, native="require")
        theirs = self.read(TorchLoader, self.pipeline([str(self.root / f"t-{n}.tar") for n in (1, 2)]), batch_size=5,
                           num_workers=2)
        self.assert_same(ours, theirs)

    def test_left_to_webdataset(self):
        """Compressed shards; commands that do more."""
        self.assert_read([f"{self.http}/packed.tar.gz", f"{self.http}/t-0.tar"])
        self.assert_read([f"pipe:cat '{self.root}/t-0.tar' | cat"], workers=1)

    def test_errors(self):
        """The package's own. That curl fails is seen before the empty tar is, or behind it."""
        either = {OSError, tarfile.ReadError}
        for name in "cut.tar", "none.tar":
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                told = set()
                for cls in TorchLoader, DataLoader:
                    with self.assertRaises(Exception) as caught:
                        self.read(cls, self.pipeline(f"{self.http}/{name}"), batch_size=2, num_workers=1)
                    told.add(type(caught.exception))
                self.assertTrue(len(told) == 1 or name == "none.tar" and told == either, told)

    def test_explained(self):
        known = DataLoader(self.pipeline(self.http + "/t-{0..3}.tar"), batch_size=5, num_workers=2)
        self.assertRegex(self.explained(known), rf"shards +C +4 such as {self.http}/t-0.tar")
        alone = DataLoader(self.pipeline(self.http + "/t-{0..3}.tar"), batch_size=5)
        self.assertRegex(self.explained(alone), "shards +Python.*num_workers=0")
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "C does not read")
            self.assertEqual(sum(len(batch[0]) for batch in alone), 36)
        other = DataLoader(self.pipeline(["pipe:aws s3 cp --profile me s3://bucket/t-1.tar -"]), batch_size=5,
                           num_workers=2)
        self.assertRegex(self.explained(other), "shards +Python.*aws's option --profile is not recognised")

    def test_commands(self):
        for command, url in [
                ("curl -s -L https://h/a.tar", "https://h/a.tar"), ("curl -sL https://h/a.tar", "https://h/a.tar"),
                ("curl --location --max-time 9 https://h/a.tar", "https://h/a.tar"),
                ("aws s3 cp s3://b/k -", "s3://b/k"), ("gsutil cat gs://b/k", "gs://b/k"),
                ("curl -s https://h/a.tar", None), ("curl -L -H 'X: y' https://h/a.tar", None),
                ("curl -L -u me:it https://h/a.tar", None), ("curl -L https://h/a.tar https://h/b.tar", None),
                ("curl -L https://h/$X.tar", None), ("curl -L https://h/a.tar | pigz -d", None),
                ("curl -L 'https://h/a.tar", None), ("curl -L https://h/[1-3].tar", None), ("curl -L ftp://h/a", None),
                ("aws s3 cp s3://b/k - --endpoint-url http://h", None), ("aws s3 cp s3://b/k /tmp/k", None),
                ("aws s3api get-object", None), ("cat /a.tar", None), ("", None)]:
            with self.subTest(command):
                read = _native_shards.read_as("pipe:" + command)
                self.assertEqual(read.url, url)
                self.assertEqual(read.why is None, url is not None)
        self.assertIsNone(_native_shards.read_as("/a.tar"))
        self.assertIsNone(_native_shards.read_as("s3://b/k").url, "webdataset opens no s3://")
        with mock.patch.dict(os.environ, GOPEN_REWRITE="https://a=https://b"):
            self.assertIsNone(_native_shards.read_as("https://a/k").url)
        with mock.patch.dict(wds.gopen.gopen_schemes if hasattr(wds.gopen, "gopen_schemes") else
                             sys.modules["webdataset.gopen"].gopen_schemes, {"https": print}):
            self.assertIsNone(_native_shards.read_as("https://a/k").url)


# ---- streaming -----------------------------------------------------------------------------------

@unittest.skipUnless(streaming and _versions.is_compared("streaming"), "streaming of a known version is not there")
class Mosaic(Remote):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, options in ("plain", {}), ("zipped", {"compression": "zstd"}):
            with streaming.MDSWriter(out=str(cls.root / name), columns={"id": "int", "text": "str"}, size_limit=400,
                                     **options) as writer:
                for i in range(61):
                    writer.write({"id": i, "text": f"text {i}" * (i % 4)})

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.local = pathlib.Path(folder.name)

    def data(self, name="plain", local=None, **options):
        """A remote one has index.json already, which streaming itself would get by boto3."""
        gc.collect()
        if local is None:
            local = self.local / name
            local.mkdir(exist_ok=True)
            shutil.copy(self.root / name / "index.json", local)
            options["remote"] = f"s3://bucket/{name}"
        return streaming.StreamingDataset(local=str(local), batch_size=4, shuffle=True, shuffle_seed=7,
                                          num_canonical_nodes=2, **options)

    def test_remote(self):
        for name in "plain", "zipped":
            for workers in 1, 2:
                with self.subTest(name, workers=workers):
                    shutil.copytree(self.root / name, self.local / f"{name}-{workers}")
                    theirs = self.read(TorchLoader, self.data(local=self.local / f"{name}-{workers}"), batch_size=4,
                                       num_workers=workers)
                    data = self.data(name)
                    ours = self.read(DataLoader, data, batch_size=4, num_workers=workers, native="require")
                    self.assert_same(ours, theirs)
                    self.assertEqual(os.listdir(self.local / name), ["index.json"])
                    del data

    def test_cache_limit(self):
        theirs = self.read(TorchLoader, self.data(local=self.root / "plain"), batch_size=4, num_workers=1)
        ours = self.read(DataLoader, self.data(cache_limit="100kb"), batch_size=4, num_workers=1, native="require")
        self.assert_same(ours, theirs)

    def test_there_already(self):
        """What was downloaded is read, and nothing is asked of the store."""
        shutil.copytree(self.root / "plain", self.local / "plain")
        loader = DataLoader(self.data(), batch_size=4, num_workers=1, native="require")
        self.assertNotIn("s3://", self.explained(loader))
        self.assertGreaterEqual(sum(len(batch["id"]) for batch in loader), 61)
        self.assertEqual(sum(self.bucket.asked.values()), 0)

    def test_explained(self):
        loader = DataLoader(self.data(), batch_size=4, num_workers=1)
        self.assertRegex(self.explained(loader), f"samples +C +MDS files of s3://bucket/plain, none of which is "
                                                 f"downloaded to {self.local}/plain")
        with mock.patch.dict(os.environ, S3_ENDPOINT_URL="http://127.0.0.1:1"):
            self.assertRegex(self.explained(loader), "Python.*S3_ENDPOINT_URL is http://127.0.0.1:1")
        with mock.patch.dict(os.environ, MOSAICML_STREAMING_AWS_REQUESTER_PAYS="other, bucket"):
            self.assertRegex(self.explained(loader), "Python.*MOSAICML_STREAMING_AWS_REQUESTER_PAYS")
        with mock.patch.object(loader.dataset.streams[0], "remote", "oci://bucket/plain"):
            self.assertRegex(self.explained(loader), "Python.*stream 0 has the remote oci://bucket/plain")

    def test_changed(self):
        """The store has other files than the index says: streaming is called."""
        data = self.data("zipped")
        known = _native_streaming.Numbers(data, _native_streaming.lower(data))
        with mock.patch("dloaderd._worker.open_files", return_value=161), self.assertWarns(UserWarning) as told:
            self.assertFalse(known.opens())
        self.assertRegex(str(told.warning), "C does not read s3://bucket/zipped.* 161 samples.* 61")


# ---- datasets ------------------------------------------------------------------------------------

@unittest.skipUnless(datasets and _native_tables.is_known(), "datasets of a known version is not there")
class Tables(Remote):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import pyarrow
        import pyarrow.parquet
        cls.sizes = (70, 81, 3, 90)
        for number, rows in enumerate(cls.sizes):
            first = 1000 * number
            table = pyarrow.table({"number": range(first, first + rows), "text": [f"täxt {i}" for i in range(rows)],
                                   "half": [i / 2 for i in range(rows)], "even": [i % 2 == 0 for i in range(rows)],
                                   "raw": [bytes(i % 5) for i in range(rows)]})
            pyarrow.parquet.write_table(table, cls.root / f"{number}.parquet", row_group_size=30)
        table = pyarrow.table({"number": [1, None, 3]})
        pyarrow.parquet.write_table(table, cls.root / "nulls.parquet")
        cls.rows = sum(cls.sizes)

    def data(self, place=None, names=("0", "1", "2", "3"), **options):
        """Of local files, whose names are then those of a place: fsspec's thread, by which datasets would look at
        URLs here, does not outlive a fork."""
        files = [f"{self.root}/{name}.parquet" for name in names]
        data = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, **options)
        if place is not None:
            leaf = data._ex_iterable
            leaf.kwargs = {**leaf.kwargs, "files": [f"{place}/{name}.parquet" for name in names]}
        return data

    def assert_read(self, make, epochs=2, workers=2, batch=8, place="s3://bucket"):
        """make: of a place. As datasets reads the local copy, but by C alone."""
        theirs = self.read(TorchLoader, make(None), epochs, batch_size=batch, num_workers=workers)
        called = mock.patch("pyarrow.dataset.ParquetFileFormat", side_effect=AssertionError("Python reads"))
        with called:
            ours = self.read(DataLoader, make(place), epochs, batch_size=batch, num_workers=workers, native="require")
        self.assert_same(ours, theirs)
        return ours

    def test_in_order(self):
        for workers in 1, 3, 6:
            with self.subTest(workers=workers):
                ours = self.assert_read(self.data, workers=workers, place=self.http if workers == 1 else "s3://bucket")
                self.assertEqual(sum(len(batch["number"]) for batch in ours[0]), self.rows)

    def test_local(self):
        self.assert_read(self.data, place=self.root)

    def test_stages(self):
        stages = {
            "shuffle": lambda data: data.shuffle(seed=3, buffer_size=40),
            "small buffer": lambda data: data.shuffle(seed=3, buffer_size=2),
            "one shard": lambda data: data.shuffle(seed=3, buffer_size=50, max_buffer_input_shards=1),
            "skip": lambda data: data.skip(75),
            "take": lambda data: data.take(100),
            "both": lambda data: data.shuffle(seed=1, buffer_size=30).skip(11).take(90),
            "repeat": lambda data: data.repeat(2),
        }
        for number, (name, stage) in enumerate(stages.items()):
            with self.subTest(name):
                self.assert_read(lambda place, stage=stage: stage(self.data(place)), workers=1 + number % 2)

    def test_nodes(self):
        from datasets.distributed import split_dataset_by_node
        for rank, world in (1, 2), (0, 3):
            with self.subTest(rank=rank, world=world):
                self.assert_read(lambda place, rank=rank, world=world: split_dataset_by_node(
                    self.data(place).shuffle(seed=2, buffer_size=20), rank, world))

    def test_epochs(self):
        """set_epoch() shuffles anew."""
        found = []
        for cls, place in (TorchLoader, None), (DataLoader, "s3://bucket"):
            data = self.data(place).shuffle(seed=2, buffer_size=20)
            loader = cls(data, batch_size=8, num_workers=2)
            epochs = []
            for epoch in range(3):
                data.set_epoch(epoch)
                epochs.append(list(loader))
            found.append(epochs)
        self.assert_same(*reversed(found))
        self.assertNotEqual(found[0][0][0]["number"].tolist(), found[0][1][0]["number"].tolist())

    def test_format(self):
        import pyarrow
        import pyarrow.parquet
        table = pyarrow.table({"x": pyarrow.array([0.5, 1.5, 2.5], "float32"), "y": [1, 2, 3], "z": ["a", "b", "c"]})
        pyarrow.parquet.write_table(table, self.root / "format.parquet")
        self.assert_read(lambda place: self.data(place, ["format"]).with_format("torch"), workers=1, batch=2)

    def test_columns(self):
        self.assert_read(lambda place: self.data(place, columns=["text", "number"]))

    def test_sample_of_python(self):
        """A null is datasets' to read: its error, and its samples beside it."""
        told = []
        for cls, place in (TorchLoader, None), (DataLoader, self.http):
            loader = cls(self.data(place, ["nulls"]), batch_size=1, num_workers=1)
            found = iter(loader)
            batch = next(found)
            with self.assertRaises(TypeError) as caught:
                next(found)
            told.append((batch["number"].tolist(), type(caught.exception)))
        self.assertEqual(*told)

    def test_resumed(self):
        make = lambda: self.data("s3://bucket").shuffle(seed=3, buffer_size=40)  # noqa: E731
        loader = DataLoader(make(), batch_size=8, num_workers=2, native="require")
        batches = list(loader)
        found = iter(loader)
        begun = [next(found) for _ in range(7)]
        state = loader.state_dict()
        del found, loader
        other = DataLoader(make(), batch_size=8, num_workers=2, native="require")
        other.load_state_dict(state)
        self.assert_same(begun + list(other), batches)

    def test_called(self):
        """And explain() says why."""
        for make, why in [
                (lambda: self.data().map(lambda row: row), "MappedExamplesIterable of .*lambda"),
                (lambda: self.data().filter(lambda row: True), "FilteredExamplesIterable"),
                (lambda: self.data(filters=[("number", ">", 3)]), "filters: rows are left out"),
                (lambda: self.data(on_bad_files="skip"), "on_bad_files is 'skip'"),
                (lambda: self.data().with_format("numpy"), "the format is numpy"),
                (lambda: self.data().reshard(), "reshard: its shards are row groups"),
                (lambda: self.data().select_columns("text"), "SelectColumnsIterable")]:
            with self.subTest(why):
                loader = DataLoader(make(), batch_size=4, num_workers=1)
                self.assertRegex(self.explained(loader), f"Python.*{why}")

    def test_options_of_stores(self):
        """Only what the fetcher finds, too, may be given; no value is told."""
        check = _native_tables._check_options

        def builder(options, token=None):
            return mock.Mock(storage_options=options, token=token)

        key, secret = self.bucket.environment["AWS_ACCESS_KEY_ID"], self.bucket.environment["AWS_SECRET_ACCESS_KEY"]
        url = self.bucket.environment["AWS_ENDPOINT_URL"]
        same = {"key": key, "secret": secret, "client_kwargs": {"endpoint_url": url}}
        check(builder(same), ["s3://b/k"])
        check(builder({"s3": same}), ["s3://b/k"])
        check(builder({"hf": {"endpoint": "https://huggingface.co", "token": None}}), ["hf://datasets/a/b/c"])
        for options, url, named in [({**same, "secret": "another"}, "s3://b/k", "secret"),
                                    ({"anon": True}, "s3://b/k", "anon"),
                                    ({"endpoint_url": "http://another"}, "s3://b/k", "endpoint_url"),
                                    ({"https": {"headers": {"X": "another"}}}, "https://h/k", "headers")]:
            with self.subTest(named), self.assertRaises(_native_tables.Unknown) as caught:
                check(builder(options), [url])
            self.assertIn(named, str(caught.exception))
            self.assertNotIn("another", str(caught.exception))
        import fsspec.config
        with mock.patch.dict(fsspec.config.conf, {"s3": {"endpoint_url": "http://another"}}), \
                self.assertRaisesRegex(_native_tables.Unknown, "endpoint_url"):
            check(builder({}), ["s3://b/k"])
        with self.assertRaisesRegex(_native_tables.Unknown, "HF_TOKEN"):
            check(builder({}, "hf_x"), ["hf://datasets/a/b/c"])


class Urls(unittest.TestCase):
    def test_endpoints(self):
        with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": "http://h:1/"}, clear=True):
            _native_urls.check_endpoint("http://h:1", "IT")
            _native_urls.check_endpoint(None, "IT")
            with self.assertRaisesRegex(_native_tables.Unknown, "IT is http://h:2"):
                _native_urls.check_endpoint("http://h:2", "IT")

    def test_secrets(self):
        self.assertEqual(_native_urls.shown("https://h/a?X-Amz-Signature=1"), "https://h/a?*")
