"""Formats that others write, read in this process: value by value what was written, by the standard
library alone, and by the libraries whose formats they are where those are installed.
"""

import csv
import ctypes
import importlib.util
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import numpy
from dloaderd import Loader

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib")
sys.path.insert(0, LIB)
import media  # noqa: E402
from dltest import PATIENCE  # noqa: E402

ROWS = 23


def needs(module):
    return unittest.skipUnless(importlib.util.find_spec(module.partition(".")[0]),
                               f"the package of {module} is not installed")


def needs_all_of(module):
    """The module itself, not only the package that it is in."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    return unittest.skipUnless(found, f"{module} is not installed")


def has_libsndfile():
    try:
        ctypes.CDLL("libsndfile.so.1")
    except OSError:
        return False
    return True


needs_libsndfile = unittest.skipUnless(has_libsndfile(), "libsndfile is not installed (Debian: libsndfile1)")


def mosaic(**options):
    """A StreamingDataset. It looks for a number of shared memory that is free, and then takes it: where another
    program was faster, it is made again."""
    import streaming
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return streaming.StreamingDataset(**options)
        except FileExistsError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class KindCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def samples(self, dataset, **keys):
        """All samples, one a batch, as a dict of NumPy arrays and lists each."""
        spec = {"dataset": dataset, "batch": {"size": 1}, "workers": {"count": 0}, "seed": 1, **keys}
        with Loader(spec, as_="numpy") as loader:
            return list(loader)

    def assert_refused(self, dataset, says):
        with self.assertRaisesRegex(Exception, says):
            self.samples(dataset)


class OurWriters(KindCase):
    def test_megatron(self):
        documents = media.megatron(self.folder / "m", ROWS)
        path = str(self.folder / "m")
        read = self.samples({"kind": "megatron", "paths": path})
        self.assertEqual([batch["tokens"][0].tolist() for batch in read], documents)
        self.assertEqual(read[0]["tokens"].dtype, numpy.int64)
        flat = sum(documents, [])
        read = self.samples({"kind": "megatron", "paths": path, "view": "samples", "widen": "none",
                             "sequence_length": 8})
        self.assertEqual(len(read), (len(flat) - 1) // 8)
        for i, batch in enumerate(read):
            self.assertEqual(batch["tokens"].tolist(), [flat[8 * i:8 * i + 8]])
            self.assertEqual(batch["labels"].tolist(), [flat[8 * i + 1:8 * i + 9]])
        self.assertEqual(read[0]["tokens"].dtype, numpy.uint16)

    def test_mds(self):
        written = media.mds(self.folder / "d", ROWS)
        read = self.samples({"kind": "mds", "paths": str(self.folder / "d")})
        self.assertEqual(len(read), ROWS)
        for (number, text, array), batch in zip(written, read):
            self.assertEqual(batch["id"].tolist(), [number])
            self.assertEqual(list(batch["text"]), [text])
            self.assertEqual(batch["array"].reshape(-1).tolist(), array)
            self.assertEqual(batch["picture"].shape, (1, 17, 16 + number % 5, 3))

    def test_litdata(self):
        """Leaves of many formats, their lengths, and blocks of tokens."""
        written = media.litdata(self.folder / "l", ROWS)
        dataset = {"kind": "litdata", "paths": str(self.folder / "l")}
        read = self.samples(dataset)
        self.assertEqual(len(read), ROWS)
        for (number, half, text, ids, matrix), batch in zip(written, read):
            self.assertEqual([batch[name].item() for name in ("id", "half", "even")], [number, half, number % 2 == 0])
            self.assertEqual(list(batch["text"]), [text])
            self.assertEqual(batch["ids"].tolist(), [ids])
            self.assertEqual((batch["matrix"].reshape(-1).tolist(), batch["matrix"].shape), (matrix, (1, 2, 3)))
            self.assertEqual(batch["picture"].shape, (1, 17, 16 + number % 5, 3))
            self.assertEqual(batch["raw"].tolist(), [[[[number % 256] * 3, [3] * 3]]])
        tokens = {**dataset, "fields": ["ids"]}
        batches = self.samples(tokens, batch={"tokens": 14}, collate={"kind": "pad"})
        found = [ids for batch in batches for ids in batch["ids_lengths"].tolist()]
        self.assertEqual(sorted(found), sorted(len(ids) for _, _, _, ids, _ in written if ids))

    def test_litdata_tokens(self):
        chunks = media.litdata_tokens(self.folder / "t", [100, 77])
        root = str(self.folder / "t")
        read = self.samples({"kind": "litdata", "paths": root, "sequence_length": 16})
        blocks = [own[at:at + 16] for own in chunks for at in range(0, len(own) // 16 * 16, 16)]
        self.assertEqual([batch[0].tolist() for batch in read], blocks)
        self.assertEqual(read[0].dtype, numpy.uint16)
        items = self.samples({"kind": "litdata", "paths": root})
        self.assertEqual(sum((batch[0].tolist() for batch in items), []), sum(chunks, []))

    def test_tfrecord(self):
        media.tfrecord(self.folder / "t", 0, ROWS)
        read = self.samples({"kind": "tfrecord", "paths": str(self.folder / "t"),
                             "images": ["picture"], "fields": {"y": "label", "picture": "picture",
                                                               "floats": "floats", "text": "text"}})
        for i, batch in enumerate(read):
            self.assertEqual(batch["y"].tolist(), [[i]])
            self.assertEqual(list(batch["text"]), [media.words(str(i), 1)[0].encode()])
            self.assertEqual(batch["floats"].tolist(), [list(range(i % 4))])
            self.assertEqual(batch["picture"].shape, (1, 8, 9 + i % 3, 3))

    def test_csv(self):
        """Random tables of Python's csv module, in its dialects, cell by cell."""
        rng = random.Random("csv")
        pieces = ["", "a", "ä", "two\nlines", "\r\n", '"', '""', ",", "\t", ";", " ", "1", "x" * 50]
        for seed in range(60):
            columns, separator = rng.randrange(1, 6), rng.choice("comma tab semicolon pipe".split())
            delimiter = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|"}[separator]
            rows = [["".join(rng.choices(pieces, k=rng.randrange(4))) for _ in range(columns)]
                    + [rng.randrange(-9, 9), rng.random() * 10 ** rng.randrange(-20, 20)]
                    for _ in range(ROWS)]
            names = [f"c{i}" for i in range(columns + 2)]
            path = self.folder / f"{seed}.csv"
            with open(path, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, delimiter=delimiter,
                                    lineterminator=rng.choice(["\n", "\r\n"]),
                                    quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
                writer.writerows([names, *rows])
            read = self.samples({"kind": "csv", "paths": str(path), "separator": separator,
                                 "types": dict.fromkeys(names[:columns], "string")})
            self.assertEqual([[*(batch[name][0] for name in names[:columns]),
                               *(batch[name].item() for name in names[columns:])]
                              for batch in read], rows)
            self.assertEqual(read[0][names[-1]].dtype, numpy.float64)

    @needs_libsndfile
    def test_sounds(self):
        """Those of WAV and FLAC, as they were written; both by the means of the standard library."""
        rng = random.Random("sounds")
        for label in range(2):
            (self.folder / str(label)).mkdir()
        written = []
        for i in range(8):
            channels = 1 + i % 3
            samples = [rng.randrange(-32768, 32768) for _ in range(channels * rng.randrange(1, 3000))]
            name, write = [("wav", media.wav), ("flac", media.flac)][i % 2]
            (self.folder / str(i // 4) / f"{i}.{name}").write_bytes(write(samples, channels, 22050 + i))
            written.append(numpy.array(samples, numpy.int16).reshape(-1, channels))
        dataset = {"kind": "audiofolder", "paths": str(self.folder), "channels": "keep", "dtype": "int16"}
        read = self.samples(dataset)
        for i, batch in enumerate(read):
            numpy.testing.assert_array_equal(batch["audio"][0], written[i])
            self.assertEqual((batch["sample_rate"][0], batch["label"][0]), (22050 + i, i // 4))
        for batch, one in zip(self.samples({**dataset, "channels": "mono", "dtype": "float32"}), written):
            mean = (one.astype(float).sum(1) / one.shape[1] / 32768).astype(numpy.float32)
            numpy.testing.assert_allclose(batch["audio"][0], mean, rtol=1e-6, atol=1e-7)

    @needs_libsndfile
    def test_sounds_of_records(self):
        """Members of shards and columns, equal to those of a folder, and named where they are none."""
        media.sounds(self.folder / "shard", ROWS, classes=1)
        media.sound_shard(self.folder / "s.tar", ROWS)
        media.sound_columns(self.folder / "columns", ROWS)
        keys = {"sample_rate": 16000, "dtype": "int16"}
        want = [batch["audio"][0] for batch in self.samples(
            {"kind": "audiofolder", "paths": str(self.folder / "shard"), **keys})]
        tar = {"kind": "tar", "paths": str(self.folder / "s.tar"), "audio": ["flac", "wav"]}
        speech = {"audio": ["speech"]}
        arrow = {"kind": "arrow", "paths": str(self.folder / "columns/arrow.arrow"), **speech}
        parquet = {"kind": "parquet", "paths": str(self.folder / "columns/parquet.parquet"), **speech}
        for dataset, name in ((tar, None), ({**tar, "index": "auto"}, None), (arrow, "speech"), (parquet, "speech")):
            read = self.samples({**dataset, **keys})
            self.assertEqual(len(read), ROWS)
            for i, (one, other) in enumerate(zip(want, read)):
                own = name or ("wav" if i % 5 else "flac")
                self.assertEqual(other["id" if name else "cls"][0], i)
                numpy.testing.assert_array_equal(one, other[own][0])
        # What is listed is a sound, or an error that says where.
        self.assert_refused({**tar, "audio": ["cls"]},
                            r"s\.tar: its member 00000\.cls at byte \d+ is a sound that cannot be read: it has 1 bytes")
        self.assert_refused({**arrow, "audio": ["id"]}, "column id is of type int64, not bytes, and cannot be a sound")
        self.assert_refused({**arrow, "audio": ["other"]}, "has no column other; see dataset.audio")
        self.assert_refused({**parquet, "audio": ["id"]}, "its column id has no sounds, which are bytes")
        self.assert_refused({**parquet, "fields": ["id"]}, "dataset.audio has a column that is not among the fields")

    def test_lmdb(self):
        for seed, page in enumerate((512, 1024, 4096, 65536) * 5):
            rng = random.Random(seed)
            records = {rng.randbytes(rng.randrange(1, 60)): rng.randbytes(int(2 ** (rng.random() * 14)))
                       for _ in range(rng.randrange(1, 200))}
            media.lmdb(self.folder / str(seed), records, page)
            read = self.samples({"kind": "lmdb", "paths": str(self.folder / str(seed))})
            self.assertEqual([(batch["key"][0], batch["value"][0]) for batch in read],
                             sorted(records.items()))

    def test_arrow(self):
        written = media.arrow(self.folder / "a", ROWS)
        dataset = {"kind": "arrow", "paths": str(self.folder / "a")}
        read = self.samples({**dataset, "nulls": 0})
        for i, ((tokens, text), batch) in enumerate(zip(written, read, strict=True)):
            self.assertEqual((batch["id"].tolist(), batch["pair"].tolist()), ([i], [[i / 2, -i]]))
            self.assertEqual(batch["tokens"][0].tolist(), tokens)
            self.assertEqual(list(batch["text"]), [text or ""])
            self.assertEqual(batch["picture"].shape, (1, 8, 9 + i % 3, 3))
        self.assert_refused(dataset, "row 0: its column text is null")
        tokens = self.samples({**dataset, "fields": ["tokens"]}, batch={"tokens": 20},
                              collate={"kind": "pack", "length": 20}, sampler={"kind": "random"})
        self.assertEqual(sum(int((batch["tokens"] > 0).sum()) for batch in tokens),
                         sum(len(row) for row, _ in written) - 1)

    def test_tar_with_an_index(self):
        media.shard(self.folder / "a.tar", 0, 9)
        media.shard(self.folder / "b.tar", 9, ROWS - 9)
        dataset = {"kind": "tar", "paths": str(self.folder / "*.tar"), "index": "auto"}
        read = self.samples(dataset)
        stream = self.samples({**dataset, "index": "off"})
        self.assertEqual([batch["cls"].tolist() for batch in read], [[i] for i in range(ROWS)])
        for one, other in zip(read, stream):
            self.assertEqual(set(one), set(other))
            self.assertEqual((one["__key__"], one["txt"], one["bin"], one["json"]["tags"]),
                             (other["__key__"], other["txt"], other["bin"], other["json"]["tags"]))
            self.assertTrue((one["png"] == other["png"]).all())
        shuffled = self.samples({**dataset, "fields": ["cls"]}, sampler={"kind": "random"})
        self.assertEqual(sorted(batch["cls"].item() for batch in shuffled), list(range(ROWS)))
        self.assertNotEqual([batch["cls"].item() for batch in shuffled], list(range(ROWS)))

    def test_pickles_are_refused(self):
        media.mds(self.folder / "d", 3, shards=1)
        path = self.folder / "d" / "index.json"
        path.write_text(path.read_text().replace('"png"', '"pkl"'))
        dataset = {"kind": "mds", "paths": str(self.folder / "d")}
        self.assert_refused(dataset, "picture is pickled")
        self.assertEqual(len(self.samples({**dataset, "fields": ["id"]})), 3)


class TheirWriters(KindCase):
    @needs("webdataset")
    def test_webdataset(self):
        """Its writer's shards, also packed, beside its own reader; fields as its rename() has them."""
        import webdataset
        for packed in ("", ".gz"):
            path = str(self.folder / f"w.tar{packed}")
            with webdataset.TarWriter(path) as writer:
                for i in range(ROWS):
                    writer.write({"__key__": f"k{i:03}", "cls": i, "txt": f"text {i}",
                                  "left.npy": numpy.arange(i, dtype="f4"),
                                  "right.npy": numpy.full((2, i + 1), i), "json": {"i": i},
                                  "npz": {"one": numpy.arange(i), "two": numpy.array(i, "f4")}})
            theirs = list(webdataset.WebDataset(path, shardshuffle=False).decode().rename(
                label="cls", left="left.npy", right="right.npy", text="text;txt", json="json",
                arrays="npz"))
            ours = self.samples({"kind": "tar", "paths": path, "index": "off" if packed else "auto",
                                 "fields": {"label": "cls", "left": "left.npy", "right": "right.npy",
                                            "text": "text;txt", "json": "json", "arrays": "npz"}})
            self.assertEqual(len(theirs), len(ours))
            for one, other in zip(theirs, ours):
                self.assertEqual(one["label"], other["label"].item())
                self.assertEqual([one["text"]], list(other["text"]))
                self.assertEqual(one["json"]["i"], other["json"]["i"].item())
                sides = [(one[side], other[side]) for side in ("left", "right")]
                sides += [(one["arrays"][name], other["arrays"][name]) for name in ("one", "two")]
                for side, batch in sides:
                    numpy.testing.assert_array_equal(side, batch[0])
                    self.assertEqual(side.dtype, batch.dtype)

    @needs("wids")
    def test_wids(self):
        import wids
        for name, first, count in (("a", 0, 9), ("b", 9, ROWS - 9)):
            media.shard(self.folder / f"{name}.tar", first, count)
        (self.folder / "i.json").write_text(json.dumps({
            "__kind__": "wids-shard-index-v1", "wids_version": 1,
            "shardlist": [{"url": str(self.folder / "a.tar"), "nsamples": 9},
                          {"url": str(self.folder / "b.tar"), "nsamples": ROWS - 9}]}))
        theirs = wids.ShardListDataset(str(self.folder / "i.json"), transformations=[])
        ours = self.samples({"kind": "tar", "paths": str(self.folder / "[ab].tar"),
                             "index": str(self.folder / "i.json"), "fields": ["cls", "bin"]})
        self.assertEqual(len(theirs), len(ours))
        for i in range(ROWS):
            self.assertEqual(int(theirs[i][".cls"].read()), ours[i]["cls"].item())
            self.assertEqual([theirs[i][".bin"].read()], list(ours[i]["bin"]))

    def three_shards(self, lengths):
        """Shards as each of tarfile's formats has them: samples in folders whose names are so long, of several fields
        each, and of data of no byte up to some blocks."""
        rng = random.Random(3)
        for k, form in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
            with tarfile.open(self.folder / f"s{k}.tar", "w", format=form) as tar:
                for i in range(40):
                    folder = "f" * rng.choice(lengths) + f"/{k}-{i // 7}"
                    if i % 7 == 0 and len(lengths) > 1:
                        info = tarfile.TarInfo(folder)
                        info.type = tarfile.DIRTYPE
                        tar.addfile(info)
                    for field in rng.sample(["bin", "a.bin", "txt", "cls"], rng.randint(1, 4)):
                        data = b"%d" % (1000 * k + i) if field == "cls" else b"x" * rng.choice([0, 1, 511, 512, 1300])
                        info = tarfile.TarInfo(f"{folder}/{i:03}.{field}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        return [str(self.folder / f"s{k}.tar") for k in range(3)]

    def assert_same_as_scanned(self, index):
        dataset = {"kind": "tar", "paths": str(self.folder / "s[0-2].tar"), "decode": False}
        theirs = self.samples({**dataset, "index": str(index)})
        ours = self.samples({**dataset, "index": "auto"})
        self.assertEqual(len(theirs), len(ours))
        self.assertEqual(len(ours), 120)
        for one, other in zip(theirs, ours):
            self.assertEqual({key: list(value) for key, value in one.items()},
                             {key: list(value) for key, value in other.items()})

    @needs_all_of("wids.wids_index")
    def test_index_of_wids(self):
        path = self.folder / "index.json"
        subprocess.run([sys.executable, "-m", "wids.wids_index", "create", *self.three_shards([1]), "-o", str(path)],
                       check=True, capture_output=True)
        self.assert_same_as_scanned(path)

    @needs_all_of("megatron.energon")
    def test_index_of_energon(self):
        from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator
        names = [os.path.basename(path) for path in self.three_shards([1, 9, 120])]
        WebdatasetPreparator.prepare_dataset(self.folder, names, split_parts_ratio=[("train", 1.0)], workers=1)
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.idx")), [f"s{k}.tar.idx" for k in range(3)])
        self.assert_same_as_scanned(self.folder)

    @needs_all_of("wds2idx")
    def test_index_of_dali(self):
        import wds2idx
        for lengths in ([1], [120]):
            for path in self.three_shards(lengths):
                with wds2idx.IndexCreator(path, path.replace(".tar", ".idx"), verbose=False) as creator:
                    creator.create_index()
            if lengths == [1]:
                self.assert_same_as_scanned(self.folder)
        # Of names that take more than one header, its places lie in one of these.
        self.assert_refused({"kind": "tar", "paths": str(self.folder / "s1.tar"), "index": str(self.folder)},
                            "s1.tar: its header at byte .* has a wrong checksum")

    @needs("streaming")
    def test_mosaic(self):
        """Every encoding, in small shards, compressed in each way that we read, and not."""
        import streaming
        from PIL import Image
        rng = random.Random(1)
        arrays = {f"nd_{dtype}": f"ndarray:{dtype}" for dtype in
                  ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
                   "float16", "float32", "float64")}
        scalars = {f"n_{dtype}": dtype for dtype in
                   ("int", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                    "float16", "float32", "float64")}
        columns = {**arrays, **scalars, "nd": "ndarray", "fixed": "ndarray:int16:2,3", "bytes": "bytes",
                   "str": "str", "json": "json", "pil": "pil", "png": "png", "str_int": "str_int",
                   "str_float": "str_float", "str_decimal": "str_decimal"}
        samples = []
        for i in range(ROWS):
            sample = {name: numpy.array(rng.choices(range(100), k=1 + i % 4), encoding[8:]).reshape(-1, 1)
                      for name, encoding in arrays.items()}
            sample.update({name: i if encoding == "int" else getattr(numpy, encoding)(i)
                           for name, encoding in scalars.items()})
            picture = Image.frombytes("RGB", (4 + i % 3, 5), rng.randbytes(15 * (4 + i % 3)))
            import decimal
            sample.update(nd=numpy.full((300, 1, 2), i, "i4"), fixed=numpy.full((2, 3), i, "i2"),
                          bytes=rng.randbytes(i), str=media.words(str(i), 1)[0], json={"a": [i, "x"]},
                          pil=picture, png=picture, str_int=i - 5, str_float=i / 4,
                          str_decimal=decimal.Decimal(i) / 4)
            samples.append(sample)
        for compression in (None, "gz", "zstd"):
            root = str(self.folder / str(compression))
            with streaming.MDSWriter(out=root, columns=columns, compression=compression,
                                     size_limit=20000) as writer:
                for sample in samples:
                    writer.write(sample)
            try:
                ours = self.samples({"kind": "mds", "paths": root})
            except Exception as error:
                if compression == "zstd" and "build it with libzstd" in str(error):
                    continue
                raise
            self.assertEqual(len(ours), ROWS)
            for one, other in zip(samples, ours):
                self.assertEqual(set(one), set(other))
                for name, value in one.items():
                    if isinstance(value, numpy.ndarray):
                        numpy.testing.assert_array_equal(other[name][0], value, name)
                        self.assertEqual(other[name].dtype, value.dtype, name)
                    elif name in scalars:
                        self.assertEqual(other[name][0], value, name)
                        self.assertEqual(other[name].dtype, numpy.asarray(value).dtype, name)
                    elif name in ("pil", "png"):
                        numpy.testing.assert_array_equal(other[name][0], numpy.asarray(value), name)
                    elif name == "json":
                        self.assertEqual(other["json"]["a"][0].item(), value["a"][0])
                    elif name == "str_decimal":
                        self.assertEqual(list(other[name]), [str(value)])
                    else:
                        self.assertEqual(list(other[name]), [value], name)

    @needs("streaming")
    def test_mosaic_order(self):
        """Unshuffled, a DataLoader of it has the batches that we have, whatever its workers."""
        import streaming
        from torch.utils.data import DataLoader
        root = str(self.folder / "order")
        with streaming.MDSWriter(out=root, columns={"id": "int", "s": "str"}, size_limit=500) as writer:
            for i in range(5 * ROWS):
                writer.write({"id": i, "s": f"text {i}"})
        ours = self.samples({"kind": "mds", "paths": root}, batch={"size": 8})
        for workers in range(4):
            data = mosaic(local=root, shuffle=False, batch_size=8)
            theirs = list(DataLoader(data, batch_size=8, num_workers=workers))
            self.assertEqual([(batch["id"].tolist(), batch["s"]) for batch in theirs],
                             [(batch["id"].tolist(), list(batch["s"])) for batch in ours], workers)

    @needs("litdata")
    def test_litdata(self):
        """What its writer makes of leaves of every format that is read, compressed in each way and not,
        beside its own reader."""
        import litdata
        import torch
        from litdata.streaming.serializers import BytesSerializer
        from litdata.streaming.writer import BinaryWriter
        from PIL import Image
        rng, samples, jpeg = random.Random(2), [], io.BytesIO()
        Image.frombytes("RGB", (6, 5), rng.randbytes(90)).save(jpeg, "JPEG")
        for i in range(ROWS):
            picture = Image.frombytes("RGB", (4 + i % 3, 5), rng.randbytes(15 * (4 + i % 3)))
            samples.append({
                "id": i, "half": i / 2, "even": i % 2 == 0, "text": media.words(str(i), 1)[0], "raw": rng.randbytes(i),
                "vector": torch.arange(i, dtype=torch.int16), "matrix": torch.full((2, i + 1), i / 4),
                "bfloat": torch.full((3,), i, dtype=torch.float32), "number": torch.tensor(i),
                "array": numpy.full((2, 1, 3), i, "u1"), "row": numpy.arange(i, dtype="f8"),
                "list": [i, i + 1] if i % 2 else ["a", "ä"],
                "talk": [{"role": "user", "turn": i}, {"role": "x", "turn": 2}],
                "nested": {"flags": torch.tensor([True, False]), "pair": (torch.zeros(2), "x")}, "picture": picture,
                "jpeg": Image.open(io.BytesIO(jpeg.getvalue()))})
        ways = [{}, *({"compression": "zstd", "compression_level": level} for level in ("chunk", "batch", "sample"))]
        for number, way in enumerate(ways):
            root = str(self.folder / str(number))
            writer = BinaryWriter(root, chunk_size=9, **way)
            for i, sample in enumerate(samples):
                writer[i] = sample
            writer.done()
            writer.merge(1)
            ours = self.samples({"kind": "litdata", "paths": root})
            # Its own decoder is torchvision's, which not every build of it has.
            theirs = list(litdata.StreamingDataset(root, shuffle=False, serializers={"jpeg": BytesSerializer()}))
            self.assertEqual((len(ours), len(theirs)), (ROWS, ROWS))
            for one, other in zip(theirs, ours):
                self.check_litdata(one, other)

    def check_litdata(self, theirs, ours):
        from PIL import Image
        self.assertEqual(list(theirs), list(ours))
        for name, value in theirs.items():
            mine = ours[name]
            if name == "nested":
                self.assertEqual(mine["flags"].tolist(), [value["flags"].tolist()])
                self.assertEqual((mine["pair"][0].tolist(), list(mine["pair"][1])), ([[0, 0]], ["x"]))
            elif name == "list":
                self.assertEqual(value, [part[0] if isinstance(part[0], str) else part.item() for part in mine])
            elif name == "talk":
                self.assertEqual(value, [{"role": turn["role"][0], "turn": turn["turn"].item()} for turn in mine])
            elif name == "jpeg":
                want = numpy.asarray(Image.open(io.BytesIO(bytes(value))).convert("RGB"))
                self.assertLessEqual(abs(mine[0].astype(int) - want).max(), 2)
            elif name in ("text", "raw"):
                self.assertEqual([bytes(value) if name == "raw" else value], list(mine))
            else:
                want = numpy.asarray(value)
                numpy.testing.assert_array_equal(mine[0], want, name)
                self.assertEqual(mine.dtype, want.dtype, name)

    @needs("litdata")
    def test_litdata_rows(self):
        """Dicts of what Arrow has become rows of it; and tokens, in blocks of its TokensLoader."""
        import litdata
        import torch
        from litdata.streaming.item_loader import TokensLoader
        from litdata.streaming.writer import BinaryWriter

        def write(root, samples, **keys):
            writer = BinaryWriter(root, **keys)
            for i, sample in enumerate(samples):
                writer[i] = sample
            writer.done()
            writer.merge(1)

        samples = [{"id": i, "x": i / 2, "s": f"text {i}", "b": b"\0" * i, "even": i % 2 == 0,
                    "nested": {"list": list(range(i)), "s": "ä"}} for i in range(600)]
        for compression in (None, "zstd"):
            root = str(self.folder / f"rows-{compression}")
            write(root, samples, chunk_size=290, compression=compression)
            ours = self.samples({"kind": "litdata", "paths": root})
            theirs = list(litdata.StreamingDataset(root, shuffle=False))
            self.assertEqual(len(ours), len(theirs))
            for one, other in zip(theirs, ours):
                self.assertEqual(
                    [one["id"], one["x"], one["even"], one["s"], bytes(one["b"]), one["nested"]],
                    [other["id"].item(), other["x"].item(), other["even"].item(), other["s"][0], other["b"][0],
                     {"list": other["nested"]["list"][0].tolist(), "s": other["nested"]["s"][0]}])
        documents = [torch.randint(60000, (1 + i % 50,), dtype=torch.int32) for i in range(100)]
        for keys in ({}, {"compression": "zstd", "compression_level": "chunk"}):
            root = str(self.folder / f"tokens-{len(keys)}")
            write(root, documents, chunk_size=900, item_loader=TokensLoader(), **keys)
            ours = self.samples({"kind": "litdata", "paths": root, "sequence_length": 16})
            theirs = litdata.StreamingDataset(root, shuffle=False, item_loader=TokensLoader(block_size=16))
            self.assertEqual([batch[0].tolist() for batch in ours], [block.tolist() for block in theirs])

    @needs("lmdb")
    def test_lmdb(self):
        """By liblmdb itself, with what deleting leaves, and values of several pages."""
        import lmdb
        rng = random.Random("lmdb")
        for seed in range(12):
            records = {}
            with lmdb.open(str(self.folder / str(seed)), map_size=1 << 26, subdir=seed % 2 == 0) as env:
                for _ in range(4):
                    with env.begin(write=True) as transaction:
                        for _ in range(rng.randrange(1, 400)):
                            key = rng.randbytes(rng.randrange(1, 8))
                            records[key] = rng.randbytes(int(2 ** (rng.random() * 15)))
                            transaction.put(key, records[key])
                        for key in rng.sample(sorted(records), len(records) // 5):
                            transaction.delete(key)
                            del records[key]
            read = self.samples({"kind": "lmdb", "paths": str(self.folder / str(seed))})
            self.assertEqual([(batch["key"][0], batch["value"][0]) for batch in read],
                             sorted(records.items()))

    @needs_libsndfile
    @needs("soundfile")
    def test_soundfile(self):
        """Every coding, as the package reads it with a libsndfile of its own."""
        import soundfile
        rng = numpy.random.default_rng(5)
        codings = [("wav", "WAV", "PCM_16"), ("wav", "WAV", "PCM_U8"), ("wav", "WAV", "PCM_24"),
                   ("wav", "WAV", "PCM_32"), ("wav", "WAV", "FLOAT"), ("wav", "WAV", "DOUBLE"),
                   ("wav", "WAV", "ULAW"), ("wav", "WAV", "ALAW"), ("wav", "WAVEX", "PCM_16"),
                   ("wav", "RF64", "PCM_24"), ("flac", "FLAC", "PCM_16"), ("flac", "FLAC", "PCM_24"),
                   ("flac", "FLAC", "PCM_S8"), ("ogg", "OGG", "VORBIS"), ("opus", "OGG", "OPUS")]
        (self.folder / "a").mkdir()
        paths = []
        for i, (ending, container, coding) in enumerate(codings):
            paths.append(self.folder / "a" / f"{i:02}.{ending}")
            numbers = rng.uniform(-0.9, 0.9, (rng.integers(2000, 9000), 1 + i % 2))
            rate = 48000 if coding == "OPUS" else 44100
            soundfile.write(paths[-1], numbers, rate, format=container, subtype=coding)
        dataset = {"kind": "audiofolder", "paths": str(self.folder), "channels": "keep"}
        for dtype in ("float32", "int16"):
            for (_, _, coding), path, batch in zip(codings, paths, self.samples({**dataset, "dtype": dtype})):
                floats = coding in ("FLOAT", "DOUBLE", "VORBIS", "OPUS")
                want, rate = soundfile.read(path, dtype="float32" if floats else dtype, always_2d=True)
                if floats and dtype == "int16":  # which the package does not scale
                    want = numpy.rint(want.astype(float) * 32768).clip(-32768, 32767).astype(numpy.int16)
                self.assertEqual(batch["sample_rate"][0], rate)
                self.assertEqual(batch["audio"].dtype, dtype)
                if coding in ("VORBIS", "OPUS"):
                    atol = 1e-5 if dtype == "float32" else 1
                    numpy.testing.assert_allclose(batch["audio"][0], want, rtol=0, atol=atol)
                else:
                    numpy.testing.assert_array_equal(batch["audio"][0], want, str(path))

    @needs_libsndfile
    @needs("pyarrow")
    def test_sounds_of_structs(self):
        """Structs of bytes and path, as Hugging Face's datasets writes Audio()."""
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
        files = [media.sound("structs", i)[1] for i in range(ROWS)]
        table = pyarrow.table({"speech": [{"bytes": data, "path": f"{i}.wav"} for i, data in enumerate(files)],
                               "text": [str(i) for i in range(ROWS)]})
        pyarrow.parquet.write_table(table, self.folder / "s.parquet", row_group_size=7)
        with pyarrow.ipc.new_stream(self.folder / "s.arrow", table.schema) as writer:
            writer.write_table(table)
        media.sounds(self.folder / "structs", ROWS, classes=1)
        want = self.samples({"kind": "audiofolder", "paths": str(self.folder / "structs"), "channels": "keep"})
        for kind in ("parquet", "arrow"):
            read = self.samples({"kind": kind, "paths": str(self.folder / f"s.{kind}"), "audio": ["speech"],
                                 "channels": "keep"})
            for i, (one, other) in enumerate(zip(want, read)):
                self.assertEqual(other["text"], [str(i)])
                numpy.testing.assert_array_equal(one["audio"][0], other["speech"][0])

    @needs_libsndfile
    @needs("torchaudio")
    def test_torchaudio(self):
        """Resampled, beside torchaudio's, whose filter has phases of float32."""
        import torch
        from torchaudio.functional import resample
        rng = random.Random("rates")
        for i, (before, after) in enumerate([(44100, 16000), (16000, 44100), (8000, 16000), (48000, 44100),
                                             (22050, 16000), (11025, 8000)]):
            folder = self.folder / str(i) / "a"
            folder.mkdir(parents=True)
            samples = [rng.randrange(-32768, 32768) for _ in range(5000 + i)]
            (folder / "0.wav").write_bytes(media.wav(samples, 1, before))
            batch, = self.samples({"kind": "audiofolder", "paths": str(folder.parent), "sample_rate": after})
            theirs = resample(torch.tensor(samples, dtype=torch.float32) / 32768, before, after)
            numpy.testing.assert_allclose(batch["audio"][0], theirs.numpy(), rtol=0, atol=5e-5)

    @needs("tfrecord")
    def test_tfrecord(self):
        import tfrecord
        path = str(self.folder / "t.tfrecord")
        writer = tfrecord.TFRecordWriter(path)
        for i in range(ROWS):
            writer.write({"label": (i - 3, "int"), "many": ([i, -i, 1 << 40], "int"),
                          "floats": ([i / 2, -1.0], "float"), "bytes": (bytes([i]) * i, "byte")})
        writer.close()
        theirs = list(tfrecord.tfrecord_loader(path, None))
        ours = self.samples({"kind": "tfrecord", "paths": path})
        self.assertEqual(len(theirs), len(ours))
        for one, other in zip(theirs, ours):
            for name in ("label", "many", "floats"):
                numpy.testing.assert_array_equal(one[name], other[name][0])
            self.assertEqual(bytes(one["bytes"]), other["bytes"][0])

    @needs("megatron")
    def test_megatron(self):
        import torch
        try:
            from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
        except ImportError as error:
            self.skipTest(f"megatron.core cannot be imported: {error}")
        rng = random.Random(2)
        for dtype in (numpy.uint16, numpy.int32, numpy.int64):
            prefix = str(self.folder / f"m{numpy.dtype(dtype).name}")
            builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
            documents = []
            for i in range(ROWS):
                tokens = rng.choices(range(60000), k=rng.randrange(1, 50))
                lengths = [len(tokens)] if i % 3 else [1, len(tokens) - 1]
                builder.add_document(torch.tensor(tokens), lengths)
                documents.append(tokens)
            builder.finalize(f"{prefix}.idx")
            theirs = IndexedDataset(prefix)
            ours = self.samples({"kind": "megatron", "paths": prefix})
            self.assertEqual(len(ours), len(theirs.document_indices) - 1)
            self.assertEqual([batch["tokens"][0].tolist() for batch in ours], documents)
            first = theirs.document_indices[1]
            self.assertEqual(sum((theirs[i].tolist() for i in range(first)), []), documents[0])


class Shards(KindCase):
    def test_several_pictures(self):
        """left.png and right.png of a sample, each decoded, renamed."""
        with tarfile.open(self.folder / "p.tar", "w") as tar:
            for i in range(3):
                for side, width in (("left", 5), ("right", 7)):
                    data = media.png(f"{side}{i}", width, 4)
                    info = tarfile.TarInfo(f"k{i}.{side}.png")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        read = self.samples({"kind": "tar", "paths": str(self.folder / "p.tar"), "index": "auto",
                             "fields": {"a": "left.jpg;left.png", "b": "right.png"}})
        self.assertEqual([(batch["a"].shape, batch["b"].shape) for batch in read],
                         [((1, 4, 5, 3), (1, 4, 7, 3))] * 3)

    def test_arrays(self):
        """Members .npz, as numpy.savez() and savez_compressed() write them, beside numpy.load()."""
        rng = numpy.random.default_rng(0)
        types = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
        written = []
        with tarfile.open(self.folder / "a.tar", "w") as tar:
            for i in range(200):
                arrays = {f"a/{k} \u00e4": (rng.random(rng.integers(0, 5, size=rng.integers(0, 4))) * 100).astype(
                    types[rng.integers(len(types))], order="CF"[k % 2]) for k in range(rng.integers(0, 6))}
                if i % 3 == 0:
                    arrays = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
                data = io.BytesIO()
                (numpy.savez if i % 2 else numpy.savez_compressed)(data, **arrays)
                written.append(dict(numpy.load(io.BytesIO(data.getvalue()))))
                info = tarfile.TarInfo(f"{i:03}.npz")
                info.size = len(data.getvalue())
                tar.addfile(info, io.BytesIO(data.getvalue()))
        for index in ("auto", "off"):
            read = self.samples({"kind": "tar", "paths": str(self.folder / "a.tar"), "index": index})
            self.assertEqual(len(read), len(written))
            for batch, arrays in zip(read, written):
                ours = batch.get("npz", {})
                self.assertEqual(set(ours), set(arrays))
                for name, array in arrays.items():
                    numpy.testing.assert_array_equal(ours[name][0], array)
                    self.assertEqual(ours[name].dtype, array.dtype.newbyteorder("="))

    def test_arrays_in_files(self):
        """Of kind npy, in each order of bytes and dimensions, beside numpy.load()."""
        rng = numpy.random.default_rng(3)
        for i, dtype in enumerate(["i1", ">i2", "<u4", ">f4", "<f8", ">c8", "c16", "b1", ">f2"]):
            for order in "CF":
                for shape in ((7,), (7, 3), (7, 2, 5), (7, 3, 0), (7, 1, 2, 3)):
                    path = self.folder / f"{i}{order}{len(shape)}.npy"
                    numpy.save(path, numpy.asarray((rng.random(shape) * 100).astype(dtype), order=order))
                    want = numpy.load(path)
                    read = self.samples({"kind": "npy", "paths": {"x": str(path)}})
                    got = numpy.concatenate([batch["x"] for batch in read])
                    numpy.testing.assert_array_equal(got, want)
                    self.assertEqual(got.dtype, want.dtype.newbyteorder("="))

    def test_a_file_for_each_sample(self):
        """Beside numpy.load(); and no sample of a file that was damaged since."""
        rng = numpy.random.default_rng(4)
        files = []
        for i in range(40):
            arrays = {name: numpy.asarray(rng.random(rng.integers(0, 6, size=rng.integers(0, 4))) * 100).astype(
                dtype, order="CF"[i % 2]) for name, dtype in (("x", "f4"), ("y y", "i8"), ("z", ">u2"))}
            files.append((f"n/{i:03}.npz", arrays))
            (self.folder / "n").mkdir(exist_ok=True)
            (numpy.savez if i % 2 else numpy.savez_compressed)(self.folder / files[-1][0], **arrays)
        read = self.samples({"kind": "files", "paths": str(self.folder / "n")}, collate={"kind": "none"})
        for (_, arrays), (ours,) in zip(files, read, strict=True):
            self.assertEqual(set(ours), set(arrays))
            for name, array in arrays.items():
                numpy.testing.assert_array_equal(ours[name], array)
                self.assertEqual(ours[name].dtype, array.dtype.newbyteorder("="))
        (self.folder / "list").write_text("".join(f"{path}\n" for path, _ in files[::-3]))
        read = self.samples({"kind": "files", "paths": str(self.folder / "list"), "listed": True, "fields": {"a": "z"}},
                            collate={"kind": "none"})
        for (_, arrays), (ours,) in zip(files[::-3], read, strict=True):
            self.assertEqual(list(ours), ["a"])
            numpy.testing.assert_array_equal(ours["a"], arrays["z"])
        (self.folder / "n/007.npz").write_bytes(b"PK")
        self.assert_refused({"kind": "files", "paths": str(self.folder / "n/007.npz")},
                            r"n/007\.npz.*is not a zip archive")

    def test_bytes_as_numbers(self):
        """As TensorFlow's decode_raw(); the arrays lie in the batch."""
        rng = numpy.random.default_rng(5)
        written = [rng.random(6).astype("f4") for _ in range(9)]
        (self.folder / "b").mkdir()
        for i, array in enumerate(written):
            (self.folder / f"b/{i}.bin").write_bytes(array.tobytes())
        dataset = {"kind": "files", "paths": str(self.folder / "b")}
        for dtype in ("float32", "int16", "uint8", "complex64"):
            read = self.samples({**dataset, "raw": dtype}, batch={"size": 9})
            numpy.testing.assert_array_equal(read[0], numpy.stack([array.view(dtype) for array in written]))
        self.assertEqual(bytes(self.samples(dataset)[3][0]), written[3].tobytes())
        self.assert_refused({**dataset, "raw": "complex128"}, "has 24 bytes, which are no whole number of complex128")

    def test_arrays_that_are_refused(self):
        for name, array, says in (
                ("object", numpy.array([1, "a"], dtype=object), r"000\.npz at byte 0 cannot be read: its array x "
                                                                 r"its dtype '\|O' is not a number type"),
                ("text", numpy.array(["a", "b"]), "its array x its dtype '<U1' is not a number type")):
            data = io.BytesIO()
            numpy.savez(data, x=array)
            with tarfile.open(self.folder / f"{name}.tar", "w") as tar:
                info = tarfile.TarInfo("000.npz")
                info.size = len(data.getvalue())
                tar.addfile(info, io.BytesIO(data.getvalue()))
            dataset = {"kind": "tar", "paths": str(self.folder / f"{name}.tar"), "index": "auto"}
            self.assert_refused(dataset, says)
            self.assertEqual(bytes(self.samples({**dataset, "decode": False})[0]["npz"][0]), data.getvalue())
