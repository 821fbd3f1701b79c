"""webdataset's pipelines, of which C reads the members and makes the pictures: batches, order, errors, generators.

Each pipeline is read by PyTorch's class, which calls webdataset, and by dloaderd's, in the same process.
"""

import contextlib
import io
import itertools
import os
import pickle
import random
import tarfile
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import numpy
import torch

import dloaderd
import trainers
from black_box import OURS, QUICK, Case, DataLoader, difference, seed_all
from dloaderd import _native_pictures, _native_tar, _native_webdataset, _versions
from tap import tries

wds = trainers.need("webdataset")
try:
    from PIL import Image
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

if not _versions.is_compared("webdataset"):
    raise unittest.SkipTest(f"webdataset {wds.__version__} is not compared")

COUNTS = (7, 1, 11, 5)  # samples of each shard
SAMPLES = sum(COUNTS)
EXACT = _native_pictures.How(bare=False, fast=False)
SEED = int(os.environ.get("WEBDATASET_SEED", "1"))
CASES = int(os.environ.get("WEBDATASET_CASES", "25" if QUICK else "100"))


# ---- shards --------------------------------------------------------------------------------------

def picture(number, form, size=(40, 52), **options):
    rng = numpy.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (size[0] // 4, size[1] // 4, 3), dtype=numpy.uint8))
    out = io.BytesIO()
    mode = options.pop("mode", "RGB")
    small.resize(size[::-1], Image.BICUBIC).convert(mode).save(out, form, **options)
    return out.getvalue()


def array(number):
    out = io.BytesIO()
    numpy.save(out, numpy.arange(number, number + 6, dtype="f4").reshape(2, 3))
    return out.getvalue()


def fields(number, size=(40, 52)):
    """Of a sample: JPEG and PNG in turn, of all kinds."""
    kinds = [("jpg", "JPEG", {}), ("png", "PNG", {}), ("jpg", "JPEG", {"mode": "L"}),
             ("png", "PNG", {"mode": "RGBA"}), ("jpeg", "JPEG", {"progressive": True}),
             ("jpg", "JPEG", {"mode": "CMYK"})]
    name, form, options = kinds[number % len(kinds)]
    return {name: picture(number, form, size, **options), "cls": b"%d" % number, "txt": f"text {number} ü".encode(),
            "json": b'{"n": %d, "tags": ["a", %d]}' % (number, number), "npy": array(number)}


def add(tar, name, data, kind=tarfile.REGTYPE, **more):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data) if kind in tarfile.REGULAR_TYPES else 0
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data) if info.size else None)


def write(path, samples, mode="w", **options):
    """samples: (key, fields) of each."""
    with tarfile.open(path, mode, **options) as tar:
        for key, members in samples:
            for ending, data in members.items():
                add(tar, f"{key}.{ending}", data)
    return path


FIT = v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ToImage(),
                  v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))])
OLD = v1.Compose([v1.Resize((20, 26)), v1.RandomCrop(16), v1.ColorJitter(0.4, 0.4, 0.4), v1.ToTensor()])


def untold(picture):
    """A transform that nobody knows, of a picture or a tensor: it draws, too."""
    return picture if random.random() < 2 else None


def pairs(sample):
    return sample["cls"], sample["txt"]


class Shards(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kept = tempfile.TemporaryDirectory()
        cls.root = cls.kept.name
        numbers = itertools.count()
        for shard, count in enumerate(COUNTS):
            rows = [(f"d{shard}/{number:05}", fields(number)) for number in itertools.islice(numbers, count)]
            write(f"{cls.root}/s-{shard}.tar", rows)
        cls.urls = f"{cls.root}/s-{{0..{len(COUNTS) - 1}}}.tar"

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()
        super().tearDownClass()

    def data(self, urls=None, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return wds.WebDataset(urls or self.urls, **{"shardshuffle": False, "empty_check": False, **options})

    def pictures(self, transform=FIT, **options):
        return self.data(**options).decode("pil").to_tuple("jpg;png;jpeg", "cls").map_tuple(transform, None)

    def lowered(self, dataset):
        found = _native_webdataset.lower(dataset, EXACT)
        return found, pickle.loads(pickle.dumps(found.dataset))

    def assert_alike(self, make, epochs=2):
        found, ours = self.lowered(make())
        told = difference(list(everything(ours, epochs)), list(everything(make(), epochs)))
        if told:
            self.fail(told)
        return found


def described(thing):
    """A picture as what it is, but for what is known besides, which transforms may lose; all else as it stands."""
    if isinstance(thing, Image.Image):
        return [type(thing).__name__, thing.mode, list(thing.size), thing.tobytes()]
    if isinstance(thing, dict):
        return {key: described(value) for key, value in thing.items()}
    if isinstance(thing, (tuple, list)):
        return type(thing)(described(one) for one in thing)
    if isinstance(thing, numpy.ndarray):
        return [thing, thing.flags.writeable, thing.strides]
    if isinstance(thing, torch.Tensor):
        return [type(thing).__name__, torch.clone(thing), [s for n, s in zip(thing.shape, thing.stride()) if n > 1]]
    return thing


def everything(dataset, epochs=2):
    """Of all samples and epochs, or up to an error, which comes last; with the generators' states."""
    seed_all(7)
    found = []
    try:
        for _ in range(epochs):
            found.append("epoch")
            for sample in dataset:
                found.append(described(sample))
    except Exception as error:
        said = str(error.args[0] if error.args else error).partition(" @ <")[0].partition("; /")[0]
        found.append([type(error).__name__, said, type(error.__cause__).__name__])
    return found, torch.get_rng_state(), random.getstate()


# ---- a loader ------------------------------------------------------------------------------------

class Loaders(Shards):
    def test_workers(self):
        """The same batches in the same order, partial ones among them; more workers than shards, too."""
        for workers in (0, 1, 2, 3, 6):
            for more in ({}, {"drop_last": True})[:2 if workers in (0, 2) else 1]:
                with self.subTest(workers=workers, **more):
                    got = self.check(lambda cls: cls(self.pictures(), batch_size=3, num_workers=workers, **more),
                                     seed=workers, epochs=2)
                    labels = [number for _, numbers in got for number in numbers.tolist()]
                    whole = sorted([*range(SAMPLES), *range(SAMPLES)])
                    self.assertTrue(sorted(labels) == whole if not more else set(labels) <= set(whole))

    def test_persistent_workers(self):
        for options in ({"persistent_workers": True}, {"prefetch_factor": 1}):
            self.check(lambda cls: cls(self.pictures(OLD), batch_size=4, num_workers=2, **options), epochs=3)

    def test_pipelines(self):
        """Stages of all kinds before, between and behind what C does."""
        choose = ("jpg;png;jpeg", "cls")
        parts = {
            "shuffled": lambda: self.data(shardshuffle=4, seed=3).shuffle(5, seed=4).decode("pil").shuffle(4, seed=5)
            .to_tuple(*choose).map_tuple(FIT).shuffle(3, seed=6),
            "in the order of a seed": lambda: self.data(shardshuffle=4, detshuffle=True, seed=1).decode("pil")
            .to_tuple(*choose).map_tuple(FIT, float),
            "dicts": lambda: self.data().decode("pil").rename(image="jpg;png;jpeg", label="cls", keep=False)
            .map_dict(image=OLD, label=str),
            "dicts, and tuples": lambda: self.data().decode("pil").rename(image="jpg;png;jpeg").map_dict(image=FIT)
            .to_tuple("image", "json", "txt"),
            "once renamed": lambda: self.data().decode("pil").rename(image="jpg;png;jpeg").to_tuple("image cls")
            .map_tuple(OLD),
            "epochs": lambda: self.pictures().with_epoch(9),
            "again": lambda: self.pictures().repeat(2),
            "a length": lambda: self.pictures().with_length(SAMPLES, silent=True),
            "a slice": lambda: self.data().decode("pil").slice(1, 8, 2).to_tuple(*choose).map_tuple(FIT),
            "kept": lambda: self.pictures().mcached(),
            "functions": lambda: self.data().decode("pil").select(is_even).to_tuple(*choose).map_tuple(untold, int)
            .map_tuple(FIT),
            "cut": lambda: self.pictures(v2.Compose([v2.Resize((16, 16)), untold, v2.ToTensor()])),
            "by hand": lambda: wds.DataPipeline(
                wds.SimpleShardList(self.urls), wds.split_by_node, wds.split_by_worker, wds.tarfile_to_samples(),
                wds.decode("pil"), wds.to_tuple(*choose), wds.map_tuple(FIT)),
            "tensors": lambda: self.data().decode("torchrgb8").to_tuple(*choose, "npy"),
            "floats": lambda: self.data().decode("torchrgb").to_tuple(*choose),
            "arrays": lambda: self.data().decode("rgb").to_tuple(*choose),
            "no pictures": lambda: self.data().decode(only=["json", "txt", "cls"]).map(pairs),
            "with what is empty": lambda: self.pictures(empty_check=True),
        }
        for name, make in parts.items():
            for workers in (0, 2):
                with self.subTest(name, workers=workers):
                    if name != "functions":
                        self.assertTrue(_native_webdataset.lower(make(), EXACT).stages)
                    stop = 4 if name == "epochs" else None
                    got = self.check(lambda cls, make=make, workers=workers:
                                     cls(make(), batch_size=2, num_workers=workers), epochs=2, stop=stop)
                    self.assertGreater(len(got), 0, name)

    def test_batched(self):
        """Batches of webdataset's own, by its rules."""
        for workers in (0, 2):
            for partial in (True, False):
                self.check(lambda cls, partial=partial, workers=workers: cls(
                    self.pictures().batched(3, partial=partial), batch_size=None, num_workers=workers), epochs=2)

    def test_init_function(self):
        """What a worker makes of its dataset first, counts."""
        self.check(lambda cls: cls(self.pictures(), batch_size=2, num_workers=2, worker_init_fn=without_last))

    def test_spawned(self):
        self.check(lambda cls: cls(self.pictures(), batch_size=4, num_workers=2, multiprocessing_context="spawn"))


def is_even(sample):
    return sample["cls"] % 2 == 0


def shout(key, data):
    return data.upper()


def without_last(worker):
    del torch.utils.data.get_worker_info().dataset.pipeline[-1]
    torch.utils.data.get_worker_info().dataset.append(wds.map_tuple(OLD))


# ---- samples -------------------------------------------------------------------------------------

class Samples(Shards):
    def test_decoders(self):
        """Each word for decode(): types, pixels, what else is known of a picture, and all other fields."""
        for spec in _native_tar.SPECS:
            for make in (lambda spec=spec: self.data().decode(spec),
                         lambda spec=spec: self.data().compose(wds.decode(spec, only=["jpg", "cls"]))):
                with self.subTest(spec):
                    self.assertIsNone(self.assert_alike(make).why)
                    theirs, ours = ([one.get("jpg") for one in data] for data in (make(), self.lowered(make())[1]))
                    self.assertEqual([getattr(one, "info", None) for one in ours],
                                     [getattr(one, "info", None) for one in theirs])
        for spec in ("l8", "pill", "rgba"):
            found = self.assert_alike(lambda spec=spec: self.data().decode(spec))
            self.assertRegex(found.why, f"decode: '{spec}' is not one of pil, ")
        self.assertIsNone(self.assert_alike(self.data).why)

    def test_draws(self):
        """Pipelines drawn at random, their generators' states behind them among what is equal."""
        for case in tries(CASES):
            with self.subTest(case=case):
                self.assert_alike(lambda case=case: self.drawn(random.Random(f"{SEED} {case}")), epochs=1)

    def drawn(self, draw):
        size = draw.randrange(4, 40)
        firsts = [v2.RandomResizedCrop(size), v2.RandomRotation(30), v2.ColorJitter(0.3, 0.3), v2.RandomGrayscale(0.5),
                  v2.Resize((size, size)), untold, v2.RandomHorizontalFlip(), v2.TrivialAugmentWide()]
        steps = [*draw.sample(firsts, draw.randrange(1, 4)), v2.Resize((9, 9)),
                 *draw.choice([[], [v2.ToTensor()], [v2.PILToTensor()], [v2.ToImage()]])]
        data = self.data()
        for part in draw.sample(["shuffle", "rename", "slice"], draw.randrange(3)):
            data = data.rename(picture="jpg;png;jpeg") if part == "rename" else \
                data.slice(draw.randrange(1, 20)) if part == "slice" else data.shuffle(4, seed=size)
        data = data.decode(draw.choice(["pil", "pilrgb"]))
        transform = draw.choice([v2.Compose(steps), steps[0]])
        if draw.random() < 0.3:
            return data.to_tuple("picture;jpg;png;jpeg", "cls").map_tuple(transform, draw.choice([None, int, untold]))
        if draw.random() < 0.5:
            return data.to_tuple("cls", "picture;jpg;jpeg;png", "jpg;json").map_tuple(None, transform)
        data = data.rename(image="picture;jpg;png;jpeg", keep=draw.random() < 0.5)
        return data.shuffle(draw.randrange(3), seed=1).map_dict(image=transform)

    def test_several_pictures(self):
        """Of which one, both or neither has transforms; one may stand in two places."""
        rows = [(f"k{i}", {"left.jpg": picture(i, "JPEG"), "right.png": picture(50 + i, "PNG"), "cls": b"%d" % i})
                for i in range(4)]
        path = write(f"{self.root}/two.tar", rows)
        makers = [lambda data: data.to_tuple("left.jpg", "right.png").map_tuple(FIT, OLD),
                  lambda data: data.to_tuple("left.jpg", "right.png", "cls").map_tuple(None, FIT),
                  lambda data: data.to_tuple("left.jpg", "left.jpg").map_tuple(FIT, None),
                  lambda data: data.to_tuple("left.jpg;right.png", "right.png").map_tuple(FIT, None),
                  lambda data: data.to_tuple("left.jpg;right.png", "cls").map_tuple(FIT),
                  lambda data: data.rename(a="left.jpg", b="left.jpg").map_dict(a=FIT),
                  lambda data: data.map_dict(**{"left.jpg": FIT, "right.png": FIT}),
                  lambda data: data.map_dict(**{"right.png": v2.Resize(7)}).map_dict(**{"left.jpg": FIT}),
                  lambda data: data.to_tuple("left.jpg").map_tuple(v2.Resize(9)).map_tuple(FIT),
                  lambda data: data.map(dict).map_dict(**{"left.jpg": FIT})]
        for number, make in enumerate(makers):
            with self.subTest(number):
                self.assert_alike(lambda make=make: make(self.data(path).decode("pil")))
                for workers in (0, 1):
                    if number < 5 and number != 2:
                        continue
                    self.check(lambda cls, make=make, workers=workers: cls(
                        make(self.data(path).decode("pil")), batch_size=None, num_workers=workers,
                        collate_fn=described), epochs=1)

    def test_two_in_a_batch(self):
        rows = [(f"k{i}", {"a.jpg": picture(i, "JPEG", (120, 160)), "b.png": picture(i, "PNG", (120, 160))})
                for i in range(9)]
        path = write(f"{self.root}/both.tar", rows)
        large = v2.Compose([v2.RandomCrop(112), v2.ToTensor()])
        for choose in (("a.jpg", "b.png"), ("b.png",)):
            for behind in (0, 3):
                self.check(lambda cls, choose=choose, behind=behind: cls(
                    self.data(path).decode("pil").to_tuple(*choose).map_tuple(*[large] * len(choose))
                    .shuffle(behind, seed=1), batch_size=3, num_workers=1), epochs=2)

    def test_errors(self):
        """A picture or a field that is broken, also one that nobody wants: the error is webdataset's."""
        good, row = picture(1, "JPEG"), {"cls": b"1"}
        broken = {"text": {"jpg": b"no picture", **row}, "cut": {"jpg": good[:len(good) // 2], **row},
                  "png": {"png": picture(1, "PNG")[:60], **row}, "number": {"jpg": good, "cls": b"one"},
                  "missing": dict(row), "small": {"jpg": picture(2, "JPEG", (4, 4)), **row},
                  "utf-8": {"jpg": good, "txt": b"\xff", **row}}
        for name, members in broken.items():
            path = write(f"{self.root}/bad-{name}.tar", [("a", {"jpg": good, **row}), ("b", members)])
            for transform in (v2.Compose([v2.RandomCrop(30), v2.ToTensor()]), v2.RandomCrop(30)):
                with self.subTest(name):
                    self.assert_alike(lambda path=path, transform=transform: self.data(path).decode("pil")
                                      .to_tuple("jpg;png", "cls").map_tuple(transform, int))
        self.check(lambda cls: cls(self.data(f"{self.root}/bad-text.tar").decode("pil").to_tuple("jpg", "cls")
                                   .map_tuple(FIT), num_workers=1))

    def test_handlers(self):
        """Who goes on behind an error, does."""
        write(f"{self.root}/h.tar", [("a", fields(0)), ("b", {"jpg": b"no", "cls": b"1"}), ("c", fields(2))])
        for handler in (wds.ignore_and_continue, wds.ignore_and_stop):
            self.assert_alike(lambda handler=handler: self.data(f"{self.root}/h.tar", handler=handler).decode(
                "pil", handler=handler).to_tuple("jpg", "cls", handler=handler).map_tuple(FIT, handler=handler))


# ---- tar files -----------------------------------------------------------------------------------

class Tars(Shards):
    def odd(self, path):
        """Members that belong to no sample, names of all kinds, and two files for one field at the end."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            add(tar, "d", b"", tarfile.DIRTYPE)
            for name in ("__meta__", "__keep__.txt", "x/__no__.txt", "__in__/a.txt", "a/.hidden.txt", "README",
                         "d/e.f/g.txt", "UPPER.TxT", "two.parts.TXT", "ü/ö.txt", "no/ending", ".txt",
                         "long" * 60 + ".txt", "tail.", "a b/c d.txt", "__a__b.txt", "a\nb.txt"):
                add(tar, name, name.encode())
            add(tar, "link.txt", b"", tarfile.SYMTYPE, linkname="UPPER.txt")
            add(tar, "hard.txt", b"", tarfile.LNKTYPE, linkname="UPPER.txt")
            add(tar, "empty.txt", b"")
        return path

    def test_members(self):
        found = self.assert_alike(lambda: self.data(self.odd(f"{self.root}/odd.tar")))
        self.assertIsNone(found.why)
        twice = self.odd(f"{self.root}/twice.tar")
        with tarfile.open(twice, "a") as tar:
            add(tar, "x.txt", b"1")
            add(tar, "x.TXT", b"2")
        self.assert_alike(lambda: self.data(twice))

    def test_kinds(self):
        """Of each kind of tar file, also those that C leaves to webdataset from the first or a later member on."""
        rows = [(f"{'deep/' * 30}{i:03}", fields(i)) for i in range(3)]
        for number, (mode, options) in enumerate([
                ("w", {"format": tarfile.USTAR_FORMAT}), ("w", {"format": tarfile.GNU_FORMAT}),
                ("w", {"format": tarfile.PAX_FORMAT}), ("w:gz", {}), ("w:xz", {}),
                ("w", {"format": tarfile.PAX_FORMAT, "pax_headers": {"comment": "for all"}})]):
            path = write(f"{self.root}/kind-{number}.tar", rows, mode, **options)
            with self.subTest(mode=mode, **options), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                self.assertIsNone(self.assert_alike(lambda path=path: self.data(path).decode("pil")).why)
        sparse = f"{self.root}/contiguous.tar"
        with tarfile.open(sparse, "w") as tar:
            add(tar, "a.txt", b"one")
            add(tar, "b.txt", b"two", tarfile.CONTTYPE)
            add(tar, "c.txt", b"three")
        self.assert_alike(lambda: self.data(sparse))
        self.assert_alike(lambda: self.data(f"pipe:cat {sparse}"))
        self.assert_alike(lambda: self.data(f"file:{sparse}"))

    def test_many_small_and_one_large(self):
        """Members on both sides of what is read at once."""
        sizes = [0, 1, 511, 512, 513, 65024, 65023, 65536, 70000, 200_000, 3, 131072] + [5] * 300
        rows = [(f"{i:04}", {"bin": bytes([i % 251]) * size, "cls": b"%d" % i}) for i, size in enumerate(sizes)]
        path = write(f"{self.root}/sizes.tar", rows)
        self.assert_alike(lambda: self.data(path))

    def test_cut(self):
        """It has webdataset's error, and where in the file it is; samples before it are there."""
        path = f"{self.root}/s-0.tar"
        with open(path, "rb") as file:
            whole = file.read()
        for place, bytes_left in (("data", 3000), ("header", 20)):
            with tarfile.open(path) as tar:
                members = tar.getmembers()
            last = members[10]
            begin = last.offset_data + 10 if place == "data" else last.offset + bytes_left
            with open(f"{self.root}/cut.tar", "wb") as file:
                file.write(whole[:begin])
            self.assert_alike(lambda: self.data(f"{self.root}/cut.tar"))
            ours = self.lowered(self.data(f"{self.root}/cut.tar"))[1]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if place == "data":
                    with self.assertRaises(tarfile.ReadError) as raised:
                        list(ours)
                    said = str(raised.exception)
                    with self.assertRaisesRegex(tarfile.ReadError, f"cut.tar: its member at byte {last.offset} has"):
                        list(DataLoader(self.data(f"{self.root}/cut.tar").to_tuple("cls"), num_workers=1))
                else:
                    list(ours)
                    [said] = [str(one.message) for one in caught if "takes this for the end" in str(one.message)]
            self.assertRegex(said, rf"cut\.tar: its (member|header) at byte {last.offset} ")

    def test_cut_meanwhile(self):
        """What was there when it was opened is not there any more; nothing is mapped that could be missed."""
        path = write(f"{self.root}/shrinks.tar", [(f"{i}", {"bin": bytes(50_000)}) for i in range(9)])
        samples = iter(self.lowered(self.data(path))[1])
        self.assertEqual(next(samples)["__key__"], "0")
        os.truncate(path, 170_000)
        with self.assertRaisesRegex(tarfile.ReadError, "unexpected end .*shrinks.tar: had 4[0-9]+ bytes and ends"):
            list(samples)

    def test_pipe(self):
        """What cannot be read twice is webdataset's to read."""
        path = f"{self.root}/fifo.tar"
        os.mkfifo(path)
        with open(f"{self.root}/s-0.tar", "rb") as file:
            whole = file.read()

        def fill():
            with open(path, "wb") as file:
                file.write(whole)

        writer = threading.Thread(target=fill)
        writer.start()
        samples = list(self.lowered(self.data(path))[1])
        writer.join()
        self.assertEqual([sample["cls"] for sample in samples], [b"%d" % i for i in range(COUNTS[0])])

    def test_damage(self):
        """A header that is not one ends a shard, as tarfile has it, and the warning says where."""
        with open(f"{self.root}/s-0.tar", "rb") as file:
            whole = bytearray(file.read())
        with tarfile.open(f"{self.root}/s-0.tar") as tar:
            at = tar.getmembers()[6].offset
        whole[at + 150] ^= 1
        with open(f"{self.root}/bent.tar", "wb") as file:
            file.write(whole)
        urls = [f"{self.root}/bent.tar", f"{self.root}/s-1.tar"]
        self.assert_alike(lambda: self.data(urls))
        with self.assertWarnsRegex(UserWarning, rf"end of the shard: .*bent\.tar: its header at byte {at} has a wrong"):
            list(self.lowered(self.data(urls))[1])
        for name, data in (("none", b""), ("text", b"this is no tar file, " * 99), ("zeroes", bytes(10240))):
            with open(f"{self.root}/{name}.tar", "wb") as file:
                file.write(data)
            self.assert_alike(lambda name=name: self.data(f"{self.root}/{name}.tar"))
        self.assert_alike(lambda: self.data(f"{self.root}/missing.tar"))
        with open(write(f"{self.root}/unfilled.tar", [("a", {"txt": b"one"}), ("b", {"txt": b"two"})]), "r+b") as file:
            file.truncate(2000)
        self.assert_alike(lambda: self.data(f"{self.root}/unfilled.tar"))

    def test_bent_anywhere(self):
        """Any byte of the headers, changed: the samples are tarfile's, or the error."""
        small = write(f"{self.root}/small.tar", [("a", {"txt": b"one", "cls": b"1"}), ("b", {"txt": b"two"})])
        with open(small, "rb") as file:
            whole = file.read()
        draw = random.Random(SEED)
        for _ in range(8 * CASES):
            bent = bytearray(whole)
            at = draw.choice([0, 1024, 2048]) + draw.randrange(512)
            bent[at] = draw.randrange(256)
            if draw.random() < 0.8:  # with a sum that is right
                head = at // 512 * 512
                bent[head + 148:head + 156] = b" " * 8
                bent[head + 148:head + 156] = b"%06o\0 " % sum(bent[head:head + 512])
            path = f"{self.root}/bent-any.tar"
            with open(path, "wb") as file:
                file.write(bent)
            with self.subTest(at=at, value=bent[at]):
                self.assert_alike(lambda path=path: self.data(path), epochs=1)


# ---- what is known -------------------------------------------------------------------------------

class Known(Shards):
    def told(self, dataset, **options):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            dloaderd.explain(DataLoader(dataset, **options))
        return out.getvalue().splitlines()

    def test_explain(self):
        self.assertEqual([line[:19].split() for line in self.told(self.pictures(), num_workers=2)],
                         [["samples", "C"], ["pictures", "C"], ["transform", "C"], ["batches", "C"]])
        lines = self.told(self.pictures(v2.Compose([v2.Resize(8), untold, v2.ToTensor()])).map(pairs))
        self.assertEqual([line[:19].split() for line in lines[:6]],
                         [["samples", "C"], ["pictures", "C"], ["transform", "C"], ["transform", "Python"],
                          ["stage", "Python"], ["batches", "C"]])
        self.assertRegex(lines[3], "untold, ToTensor .*untold is not known")
        self.assertRegex(lines[4], "map  .*pairs is not known")
        self.assertRegex(self.told(self.pictures().batched(3), batch_size=None)[3], "batched: default_collation_fn")
        self.assertIn("native='off'", self.told(self.pictures(), native="off")[0])

    def test_what_is_not(self):
        pictures = self.pictures
        reasons = {
            "select_files: .*is_even is called": self.data(select_files=is_even),
            "handler: .*warn_and_continue may continue": self.data(handler=wds.warn_and_continue),
            "decode: 'l8' is not one of": self.data().decode("l8"),
            "is_even is not known": self.data().decode("pil").select(is_even),
            "shout is not known": self.data().decode(shout),
            "untold is not known": self.data().decode("pil").to_tuple("jpg").map_tuple(untold),
            "webdataset's stage makes them": pictures().batched(3),
            "Mine is not one of|the dataset is iterable": type("Mine", (wds.WebDataset,), {})(
                self.urls, shardshuffle=False),
        }
        for reason, dataset in reasons.items():
            with self.subTest(reason), self.assertRaisesRegex(ValueError, f"native='require': .*({reason})"):
                DataLoader(dataset, native="require", batch_size=None if "stage makes" in reason else 1)
        DataLoader(pictures(), native="require")

    def test_another_version_or_code(self):
        with mock.patch.object(wds, "__version__", "0.2.86"):
            known = " and ".join(_versions.COMPARED["webdataset"])
            self.assertIn(f"webdataset 0.2.86 has not been compared; {known} has", self.told(self.pictures())[0])
        for target, name in ((wds.filters.FilterFunction, "__call__"), (wds.autodecode.Decoder, "decode"),
                             (wds.pipeline.DataPipeline, "iterator1")):
            with mock.patch.object(target, name, lambda *args: None):
                self.assertRegex(self.told(self.pictures())[0], rf"{name} is not webdataset's own")
        with mock.patch("webdataset.tariterators.group_by_keys", lambda data, **options: data):
            self.assertIn("not its own", self.told(self.pictures())[0])
        data = self.pictures()
        data.iterator1 = lambda: iter([1])
        self.assertIn("has a iterator1 of its own", self.told(data)[0])

    def test_it_is_native(self):
        """Neither Pillow nor tarfile is asked for a JPEG in a plain tar file; and nobody for what has to be called."""
        rows = [(f"{i}", {"jpg": picture(i, "JPEG"), "cls": b"%d" % i}) for i in range(5)]
        path = write(f"{self.root}/only.tar", rows)
        data = self.data(path).decode("pil").to_tuple("jpg", "cls").map_tuple(FIT)
        _native_pictures.Probe.check()
        stop, decode = mock.Mock(side_effect=AssertionError("by tarfile")), wds.autodecode.ImageHandler.__call__
        for workers in (0, 1):
            code = decode.__code__
            decode.__code__ = refuse.__code__.replace(co_filename=code.co_filename)
            try:
                with mock.patch.object(tarfile, "open", stop):
                    [batch] = DataLoader(data, batch_size=5, num_workers=workers)
            finally:
                decode.__code__ = code
            self.assertEqual((batch[0].shape, batch[1].tolist()), ((5, 3, 24, 24), list(range(5))))


def refuse(self, key, data):
    raise AssertionError("by Pillow")


if not OURS:
    del Loaders, Samples, Tars, Known
