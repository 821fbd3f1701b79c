"""torchvision's datasets and transforms, made in C: samples, batches, errors and generators are its own.

Pipelines are drawn at random from both generations of torchvision's transforms, and run on files of all kinds.
$TORCHVISION_SEED draws others, $TORCHVISION_CASES more, $DLOADER_TEST_TURN a fourth of them; with
$DLOADER_TEST_ANY_VERSION versions that are not in _versions.py run it, too (black_box.py).
"""

import contextlib
import io
import json
import os
import pickle
import random
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import numpy
import torch
from torch.utils.data import ConcatDataset, Subset, random_split

import dloaderd
from black_box import QUICK, Case, DataLoader, OURS, TorchLoader, difference
from tap import tries

try:
    import torchvision
    from PIL import Image, ImageFile
    from pillow_files import Opened, paint
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

from dloaderd import _native, _native_pictures, _private, _versions

SEED, CASES = (int(os.environ.get(f"TORCHVISION_{n}", k)) for n, k in (("SEED", 1), ("CASES", 40 if QUICK else 400)))
FILTERS = ["NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS"]
EXACT = _native_pictures.How(bare=False, fast=False)
WARPS = ["NEAREST", "BILINEAR", "BICUBIC"]

if _versions.others_of("torchvision", "PIL"):
    raise unittest.SkipTest(f"{' and '.join(_versions.others_of('torchvision', 'PIL'))}: not compared")


# ---- pictures ------------------------------------------------------------------------------------

def jpegs():
    for sampling in (0, 1, 2, "4:1:1"):
        yield "RGB", {"subsampling": sampling}
    yield "RGB", {"progressive": True, "quality": 95}
    yield "RGB", {"quality": 25, "dpi": (72, 72), "comment": "of its own"}
    yield "RGB", {"restart_marker_rows": 1}
    yield "L", {}
    yield "CMYK", {}


def write_pictures(folder):
    """Files of all kinds in two classes; and what no decoder here takes, for Pillow to read."""
    sizes = [(120, 160), (97, 61), (33, 47), (240, 135), (7, 5), (1, 1)]
    for name in "ab":
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for i, size in enumerate(sizes):
        picture = paint(*size, seed=SEED * 100 + i)
        where = os.path.join(folder, "ab"[i % 2], str(i))
        for j, (mode, options) in enumerate(list(jpegs()) if i < 4 else list(jpegs())[2:3]):
            picture.convert(mode).save(f"{where}-{j}.jpg", **{"quality": 90, **options})
        for mode in ("RGB", "L", "P", "RGBA", "LA", "1", "I;16") if i < 3 else ("RGB",):
            kept = Image.fromarray(numpy.asarray(picture.convert("L")).astype("<u2") * 3) \
                if mode == "I;16" else picture.convert(mode)
            kept.save(f"{where}-{mode.replace(';', '')}.png")
        picture.save(f"{where}.webp")
        for mode, how in (("RGB", "tiff_lzw"), ("RGB", "jpeg"), ("L", None), ("P", "packbits"),
                          ("CMYK", "tiff_deflate"), ("1", "group4"), ("I", None), ("RGB", "zstd"))[:8 if i < 4 else 1]:
            picture.convert(mode).save(f"{where}-{mode}-{how}.tif", compression=how)
        if i < 4:
            turned = Image.Exif()
            turned[0x0112] = 5 + i
            picture.save(f"{where}-turned.tiff", exif=turned, compression="packbits")
            picture.convert("RGBA").save(f"{where}-alpha.webp", quality=30 + 20 * i, method=i)
            picture.save(f"{where}-moves.webp", save_all=True, append_images=[picture.rotate(90)], lossless=i > 1)
        picture.save(f"{where}.bmp")
    turned = Image.Exif()
    turned[0x0112] = 6
    paint(80, 50, 9).save(os.path.join(folder, "b", "turned.jpg"), exif=turned, quality=90)


class Pictures(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kept = tempfile.TemporaryDirectory()
        cls.root = cls.kept.name
        write_pictures(cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()
        super().tearDownClass()

    def folder(self, *transforms, compose=v2.Compose, **options):
        made = compose(list(transforms)) if transforms else None
        return torchvision.datasets.ImageFolder(self.root, made, **options)


# ---- pipelines -----------------------------------------------------------------------------------

def filters(draw, names=FILTERS):
    return v2.InterpolationMode[draw.choice(names)]


def size(draw):
    return draw.choice([draw.randrange(1, 60), (draw.randrange(1, 70), draw.randrange(1, 70))])


def fill(draw):
    return draw.choice([0, draw.randrange(256), tuple(draw.randrange(256) for _ in range(3))])


def spread(draw, low, high):
    return tuple(sorted((draw.uniform(low, high), draw.uniform(low, high))))


def picture_transform(draw, t):
    """One of generation `t` that takes pictures and leaves them such."""
    p = draw.choice([0.0, 0.3, 0.5, 1.0])
    both = {
        "Resize": lambda: t.Resize(draw.choice([size(draw), draw.randrange(8, 60)]), filters(draw)),
        "Resize to": lambda: t.Resize(draw.randrange(8, 40), max_size=draw.randrange(40, 60)),
        "CenterCrop": lambda: t.CenterCrop(size(draw)),
        "RandomCrop": lambda: t.RandomCrop(draw.choice([size(draw), 33, 47, (33, 20), (20, 47)]),
                                           padding=draw.choice([None, 3, (1, 2), (1, 2, 3, 4)]),
                                           pad_if_needed=draw.random() < 0.8, fill=fill(draw)),
        "RandomResizedCrop": lambda: t.RandomResizedCrop(
            size(draw), scale=spread(draw, 0.01, 1), interpolation=filters(draw)),
        "Pad": lambda: t.Pad(draw.choice([2, (1, 3), (1, 2, 3, 4)]), fill(draw),
                             draw.choice(["constant", "edge", "reflect", "symmetric"])),
        "RandomHorizontalFlip": lambda: t.RandomHorizontalFlip(p),
        "RandomVerticalFlip": lambda: t.RandomVerticalFlip(p),
        "RandomRotation": lambda: t.RandomRotation(draw.choice([30, 180, (90, 90)]), filters(draw, WARPS),
                                                   expand=draw.random() < 0.5, fill=fill(draw)),
        "RandomAffine": lambda: t.RandomAffine(
            draw.choice([0, 20]), translate=draw.choice([None, (0.1, 0.2)]), scale=spread(draw, 0.5, 2),
            shear=draw.choice([None, 10, (-5, 5, -9, 9)]), interpolation=filters(draw, WARPS), fill=fill(draw)),
        "RandomPerspective": lambda: t.RandomPerspective(
            draw.choice([0, 0.02, 0.5, 1]), p, filters(draw, WARPS), fill=fill(draw)),
        "RandomGrayscale": lambda: t.RandomGrayscale(p),
        "Grayscale": lambda: t.Grayscale(3),
        "ColorJitter": lambda: t.ColorJitter(draw.choice([0, 0.4]), draw.choice([0, 0.4]),
                                             draw.choice([0, 0.9]), draw.choice([0, 0.1, 0.5])),
        "RandomInvert": lambda: t.RandomInvert(p),
        "RandomPosterize": lambda: t.RandomPosterize(draw.randrange(1, 9), p),
        "RandomSolarize": lambda: t.RandomSolarize(draw.uniform(0, 256), p),
        "RandomAdjustSharpness": lambda: t.RandomAdjustSharpness(draw.choice([0, 0.5, 3]), p),
        "RandomAutocontrast": lambda: t.RandomAutocontrast(p),
        "RandomEqualize": lambda: t.RandomEqualize(p),
    }
    if t is v2:
        both.update({
            "RandAugment": lambda: v2.RandAugment(draw.randrange(3), draw.randrange(31),
                                                  interpolation=filters(draw, WARPS)),
            "TrivialAugmentWide": v2.TrivialAugmentWide,
            "AutoAugment": lambda: v2.AutoAugment(draw.choice(list(v2.AutoAugmentPolicy))),
            "RandomPhotometricDistort": lambda: v2.RandomPhotometricDistort(p=p),
            "RandomChannelPermutation": v2.RandomChannelPermutation,
        })
    return both[draw.choice(list(both))]()


def nested(draw, t):
    inner = [picture_transform(draw, t) for _ in range(draw.randrange(1, 4))]
    if t is v1:
        return draw.choice([v1.Compose(inner), v1.RandomApply(inner, 0.5),
                            v1.RandomApply(torch.nn.ModuleList(inner), draw.random()), v1.RandomChoice(inner),
                            v1.RandomChoice(inner, p=[draw.choice([0.1, 2, 1]) for _ in inner]), v1.RandomOrder(inner)])
    return draw.choice([v2.Compose(inner), v2.RandomApply(inner, draw.random()), v2.RandomChoice(inner),
                        v2.RandomOrder(inner), v2.RandomChoice(inner, p=[1.0] + [0.0] * (len(inner) - 1))])


def tensor_transforms(draw, t):
    normalize = t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    erasing = t.RandomErasing(0.8, value=draw.choice([0, 0.5, "random", (0.1, 0.2, 0.3)]))
    scaled = draw.choice([[t.ToTensor()], [t.PILToTensor(), t.ConvertImageDtype(torch.float32)]])
    if t is v2:
        scaled = draw.choice([scaled, [v2.ToImage(), v2.ToDtype(torch.float32, scale=draw.random() < 0.7)],
                              [v2.ToImage(), v2.ConvertImageDtype(torch.float32), v2.ToPureTensor()]])
    if t is v2 and draw.random() < 0.4:
        narrow = [v2.ToDtype(draw.choice([torch.float16, torch.bfloat16]), scale=draw.random() < 0.7)]
        scaled = draw.choice([[v2.ToImage(), *narrow], [*scaled, *narrow], [*scaled, normalize, *narrow]])
    whole = [*scaled, *draw.sample([normalize, erasing], draw.randrange(3))]
    return draw.choice([whole, [draw.choice([t.ToTensor(), t.PILToTensor()])], []])


def cropping(draw, t):
    """FiveCrop or TenCrop, and what may follow it."""
    crop = draw.choice([t.FiveCrop(draw.choice([5, (7, 4)])), t.TenCrop(6, vertical_flip=draw.random() < 0.5)])
    if t is v1:
        return [crop]
    normalize = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    scaled = [v2.ToImage(), draw.choice([v2.ToDtype(torch.float32, scale=True), v2.ConvertImageDtype(torch.float32)])]
    return [crop, *draw.choice([[], [v2.ToTensor()], [v2.PILToTensor()], [v2.ToImage()], scaled, [*scaled, normalize],
                                [*scaled, normalize, v2.ToPureTensor()], [v2.ToImage(), v2.RandomErasing()]])]


def untold(sample):
    return sample  # a transform that nobody knows


def with_info(picture):
    return picture.rotate(len(picture.info))  # nor this, which sees what the file says besides its pixels


def pipeline(draw, t):
    steps = [nested(draw, t) if draw.random() < 0.25 else picture_transform(draw, t)
             for _ in range(draw.randrange(4))]
    steps += cropping(draw, t) if draw.random() < 0.1 else tensor_transforms(draw, t)
    if draw.random() < 0.2:
        steps.insert(draw.randrange(len(steps) + 1), untold)
    return t.Compose(steps or [t.Resize(8)])


# ---- samples, one by one -------------------------------------------------------------------------

def described(sample, like=None):
    """All that a sample is. What Pillow says besides of a picture, ours may have lost."""
    if isinstance(sample, tuple):
        others = like if isinstance(like, tuple) and len(like) == len(sample) else [None] * len(sample)
        return [described(one, other) for one, other in zip(sample, others, strict=True)]
    if isinstance(sample, Image.Image):
        info = like.info if isinstance(like, Image.Image) and not sample.info else sample.info
        return type(sample), sample.mode, sample.size, info, sample.tobytes()
    if isinstance(sample, torch.Tensor):
        strides = [stride for n, stride in zip(sample.shape, sample.stride()) if n > 1]
        return type(sample), sample.dtype, sample.shape, strides, sample.numpy().tobytes()
    return sample


def outcome(get, seed, like=None):
    """The sample or the error, the states of all generators behind it, and the picture itself."""
    torch.manual_seed(seed)
    torch.empty(1).normal_()  # keeps one more
    random.seed(seed)
    picture = None
    try:
        picture, target = get()
        made = described(picture, like), target
    except Exception as error:
        made = type(error), str(error)
    return (made, torch.get_rng_state().numpy().tobytes(), random.getstate()), picture


class Samples(Pictures):
    def assert_alike(self, dataset, indices, seed=1):
        lowered = _native_pictures.lower(dataset, EXACT)
        lowered = lowered._replace(dataset=pickle.loads(pickle.dumps(lowered.dataset))
                                   if seed % 3 == 0 else lowered.dataset)
        for index in indices:
            theirs, picture = outcome(lambda index=index: dataset[index], seed)
            ours, _ = outcome(lambda index=index: lowered.dataset[index], seed, picture)
            if ours != theirs:
                place = dataset.samples[index][0] if hasattr(dataset, "samples") else index
                self.fail(f"{place}, seed {seed}, {dataset.transform}: {str(ours[0])[:400]} "
                          f"instead of {str(theirs[0])[:400]}; states {ours[1:] == theirs[1:]}")
        return lowered

    def test_random_pipelines(self):
        native = 0
        for case in tries(CASES):
            draw = random.Random(f"{SEED} {case}")
            dataset = self.folder(v2.Resize(8))
            dataset.transform = pipeline(draw, draw.choice([v1, v2]))
            indices = draw.sample(range(len(dataset)), 6)
            with self.subTest(case=case):
                try:
                    native += self.assert_alike(dataset, indices, seed=case).why is None
                except dloaderd._native.Unknown as why:
                    self.assertRegex(str(why), "untold|function")
        self.assertGreater(native, len(tries(CASES)) // 2)

    def test_logarithms(self):
        """Crops are drawn between PyTorch's logarithms, whatever they are on this processor."""
        with mock.patch.object(torch, "log", lambda x, log=torch.log: log(x) + 0.25):
            self.assert_alike(self.folder(v2.RandomResizedCrop(9), v2.ToTensor(), v2.RandomErasing(1)), range(0, 99, 9))

    def test_crops(self):
        """Tuples, of which each is as torchvision's."""
        native = 0
        for case in tries(max(8, CASES // 10)):
            draw = random.Random(f"{SEED} crops {case}")
            t = draw.choice([v1, v2])
            dataset = self.folder(t.Resize((9, 14)), *cropping(draw, t), compose=t.Compose)
            with self.subTest(case=case):
                native += self.assert_alike(dataset, draw.sample(range(len(dataset)), 4), seed=case).why is None
        self.assertGreater(native, 0)
        dataset = self.folder(v2.Resize((9, 14)), v2.FiveCrop(5), v2.ToImage(), v2.ToDtype(torch.float32, scale=True))
        for workers in (0, 2):
            ours, theirs = (list(cls(dataset, batch_size=9, num_workers=workers)) for cls in (DataLoader, TorchLoader))
            self.assertIsNone(difference(ours, theirs))

    def test_every_file(self):
        for steps in ([v2.PILToTensor()], [v2.Resize(16)], [v2.RandomResizedCrop(20, (0.01, 0.3)), untold]):
            dataset = self.folder(*steps)
            self.assert_alike(dataset, range(len(dataset)))

    def test_a_folder_by_its_own_rules(self):
        """DatasetFolder with torchvision's loader, which finds its files by an ending or a function."""
        folder, steps = torchvision.datasets.folder, v2.Compose([v2.RandomResizedCrop(20), v2.ToTensor()])
        for options in ({"extensions": (".jpg", ".png")}, {"is_valid_file": lambda path: path.endswith(".webp")}):
            dataset = torchvision.datasets.DatasetFolder(self.root, folder.default_loader, transform=steps, **options)
            self.assertIsNone(_native_pictures.lower(dataset, EXACT).why)
            for index in range(len(dataset)):
                theirs, picture = outcome(lambda index=index: dataset[index], index)
                lowered = _native_pictures.lower(dataset, EXACT).dataset
                self.assertEqual(outcome(lambda index=index: lowered[index], index, picture)[0], theirs)

    def test_what_the_file_says(self):
        """Where the transforms before keep it, what is unknown finds it."""
        dataset = self.folder(v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), untold)
        [index] = [i for i, (path, _) in enumerate(dataset.samples) if path.endswith("turned.jpg")]
        picture = _native_pictures.lower(dataset, EXACT).dataset[index][0]
        self.assertEqual((picture.getexif()[0x0112], picture.info), (6, dataset[index][0].info))

    def test_files_that_are_none(self):
        """Errors are Pillow's, and what it forgives is forgiven."""
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(f"{root}/a")
            whole, scans = io.BytesIO(), io.BytesIO()
            paint(90, 120, 3).save(whole, "JPEG", quality=90)
            paint(90, 120, 4).save(scans, "JPEG", progressive=True)
            data, first = whole.getvalue(), scans.getvalue()
            first = first[:first.index(b"\xff\xc4", first.index(b"\xff\xda"))]  # libraries smooth it as they like
            for name, content in {"cut": data[:len(data) // 2], "empty": b"", "text": b"no picture at all",
                                  "ended": data[:-2], "more": data + b"more", "scans": first + b"\xff\xd9",
                                  "bent": data[:1500] + bytes(range(8)) + data[1508:]}.items():
                with open(f"{root}/a/{name}.jpg", "wb") as file:
                    file.write(content)
            dataset = torchvision.datasets.ImageFolder(
                root, v2.Compose([v2.RandomResizedCrop(20, (0.05, 1)), v2.ToTensor()]))
            dataset.samples.append((f"{root}/a/gone.jpg", 0))
            for seed in range(8):
                self.assert_alike(dataset, [*range(len(dataset.samples)), len(dataset.samples), -1], seed)
            with mock.patch.object(ImageFile, "LOAD_TRUNCATED_IMAGES", True):
                self.assert_alike(dataset, range(len(dataset.samples)))
            with mock.patch.object(Image, "MAX_IMAGE_PIXELS", 100):
                self.assert_alike(dataset, range(len(dataset.samples)))

    def memory(self, kind, data, targets, transform):
        dataset = object.__new__(kind)
        torchvision.datasets.VisionDataset.__init__(dataset, "", transform=transform)
        dataset.data, dataset.targets = data, targets
        return dataset

    def test_in_memory(self):
        small = numpy.stack([numpy.asarray(paint(32, 32, n)) for n in range(20)])
        grey = torch.from_numpy(small[:, :28, :28, 0].copy())
        for case in tries(max(10, CASES // 8)):
            draw = random.Random(f"{SEED} memory {case}")
            t = draw.choice([v1, v2])
            steps = [picture_transform(draw, t) for _ in range(draw.randrange(3))]
            coloured = t.Compose([*steps, *tensor_transforms(draw, t)] or [t.Resize(8)])
            plain = t.Compose([*steps, t.ToTensor(), t.Normalize((0.1307,), (0.3081,))])
            with self.subTest(case=case):
                for kind in (torchvision.datasets.CIFAR10, torchvision.datasets.CIFAR100):
                    self.assert_alike(self.memory(kind, small, list(range(20)), coloured), [0, 7, -1], case)
                for kind in (torchvision.datasets.MNIST, torchvision.datasets.FashionMNIST,
                             torchvision.datasets.KMNIST, torchvision.datasets.EMNIST):
                    self.assert_alike(self.memory(kind, grey, torch.arange(20), plain), [0, 7, 19], case)


# ---- loaders -------------------------------------------------------------------------------------

def with_states(samples):
    return samples, torch.get_rng_state(), random.getstate()


def copied_by_reading(values):
    """Bytes that become private to a process that is forked and reads each element once."""
    read, write = os.pipe()
    if os.fork() == 0:
        def private():
            with open("/proc/self/smaps_rollup", encoding="ascii") as file:
                return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_Dirty"))
        before = private()
        for at in range(len(values)):
            values[at]
        os.write(write, str(private() - before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        copied = int(file.read())
    os.wait()
    return copied


class Loaders(Pictures):
    def epochs(self, cls, dataset, **options):
        torch.manual_seed(5)
        loader = cls(dataset, generator=torch.Generator().manual_seed(3), **options)
        return [batch for _ in range(2) for batch in loader]

    def assert_alike(self, dataset, **options):
        self.assertIsNone(difference(self.epochs(DataLoader, dataset, **options),
                                     self.epochs(TorchLoader, dataset, **options)))

    def steps(self):
        return [v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,), (0.25,)), v2.RandomErasing()]

    def test_epochs(self):
        dataset = self.folder(*self.steps())
        for options in ({"num_workers": 2, "shuffle": True, "batch_size": 16},
                        {"num_workers": 3, "batch_size": 5, "persistent_workers": True, "shuffle": True},
                        {"num_workers": 2, "batch_size": None}, {"num_workers": 0, "batch_size": 9},
                        {"num_workers": 2, "batch_size": 4, "collate_fn": with_states},
                        {"num_workers": 1, "batch_size": 4, "multiprocessing_context": "spawn"}):
            with self.subTest(**options):
                self.assert_alike(dataset, **options)

    def test_joined(self):
        dataset = self.folder(*self.steps())
        listed = [(torch.zeros(3, 24, 24), 5)] * 9
        train, test = random_split(dataset, [len(dataset) - 9, 9])
        for joined in (Subset(dataset, range(0, 40, 3)), train, ConcatDataset([test, Subset(train, [5, 1])]),
                       ConcatDataset([listed, test])):
            for workers in (0, 2):
                self.assert_alike(joined, num_workers=workers, batch_size=8, shuffle=True)

    def test_rows_in_their_places(self):
        """Pictures so large that they are made in the batch itself; some files are Pillow's to read."""
        files = self.folder(v2.Resize((64, 60)), v2.ToTensor())
        native = [i for i, (path, _) in enumerate(files.samples) if path.endswith(".jpg")]
        some = [*native[:9], *(i for i in range(len(files)) if i not in native), *native[9:]]
        for chosen in (native, some):
            files.samples = [files.samples[i] for i in chosen] if chosen is native else files.samples
            for dataset in (files, Subset(files, range(0, len(files.samples), 2)), ConcatDataset([files, files])):
                for batch in (4, 5):
                    self.assert_alike(dataset, num_workers=1, batch_size=batch, shuffle=chosen is some)
            files = self.folder(v2.Resize((64, 60)), v2.ToTensor())
        self.assert_alike(files, num_workers=2, batch_size=6, collate_fn=list)

    def test_rows_where_batches_grow(self):
        """A batch that turns out too large for its slot is not lost; nor is one of another kind."""
        for targets in ([0, 1, 2, 3, "a" * 3_000_000], [0.5, 1, 2, 3], ["a", "b" * 4_000_000, 0, 1.5]):
            calls = iter(range(1_000))
            dataset = self.folder(v2.Resize((64, 60)), v2.ToTensor(),
                                  target_transform=lambda _: targets[next(calls) // 4 % len(targets)])
            dataset.samples = [sample for sample in dataset.samples if sample[0].endswith(".jpg")][:24]
            ours = self.epochs(DataLoader, dataset, num_workers=1, batch_size=4, persistent_workers=True)
            calls = iter(range(1_000))
            theirs = self.epochs(TorchLoader, dataset, num_workers=1, batch_size=4, persistent_workers=True)
            self.assertIsNone(difference(ours, theirs))

    def test_long_lists(self):
        """Packed in what workers have, and nowhere else; what they read of them stays shared."""
        dataset = self.folder(*self.steps())
        dataset.samples = dataset.samples * 3
        joined = ConcatDataset([dataset, Subset(dataset, list(range(100)) * 2), [(torch.zeros(3, 24, 24), 5)] * 9])
        with mock.patch.object(_native_pictures, "MANY_ELEMENTS", 50):
            self.assert_alike(joined, num_workers=2, batch_size=16, shuffle=True)
            copy = _native.with_pictures(joined, EXACT, True)
            self.assertIs(_native.with_pictures(joined, EXACT, False).datasets[0].samples, dataset.samples)
        self.assertIsInstance(copy.datasets[0].samples, dloaderd.PackedList)
        self.assertIsInstance(copy.datasets[1].indices, dloaderd.PackedList)
        self.assertEqual(copy.datasets[0].samples, dataset.samples)
        self.assertIs(type(dataset.samples), list)
        self.assertIs(type(joined.datasets[1].indices), list)
        self.assertIs(copy.datasets[2], joined.datasets[2])

    def test_what_reading_a_long_list_copies(self):
        dataset = self.folder(*self.steps())
        dataset.samples = [(f"{self.root}/a/{number:020}.jpg", number % 1000) for number in range(300_000)]
        packed = _native.with_pictures(dataset, EXACT, True).samples
        plain = copied_by_reading(dataset.samples)
        self.assertGreater(plain, 8 << 20)
        self.assertLess(copied_by_reading(packed), plain / 5)

    def test_what_a_worker_changes(self):
        def init(number):
            dloaderd.get_worker_info().dataset.transform = v2.Compose([v2.Resize((9, 9)), v2.PILToTensor()])
        loader = DataLoader(self.folder(*self.steps()), batch_size=4, num_workers=1, worker_init_fn=init)
        self.assertEqual(next(iter(loader))[0].shape, (4, 3, 9, 9))

    def test_errors(self):
        def fails(sample):
            raise ZeroDivisionError("of its own")
        for steps in ([v2.RandomCrop(5000), v2.ToTensor()], [v2.RandomCrop(20, pad_if_needed=True), fails]):
            told = []
            for cls in (DataLoader, TorchLoader):
                with self.assertRaises(Exception) as caught:
                    list(cls(self.folder(*steps), batch_size=4, num_workers=1))
                lines = str(caught.exception).splitlines()
                told.append((type(caught.exception), lines[0], lines[-1]))
            self.assertEqual(*told)


def slowly(sample):
    time.sleep(0.02)
    return sample


def listed(samples):
    time.sleep(0.02)
    return samples


class Times(Pictures):
    """dlctl times tells what of a stage's time was Python's, as explain() does."""

    def times(self, dataset, **options):
        """{stage: its row} in the middle of an epoch."""
        loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True, **options)
        list(loader)
        iterator = iter(loader)
        next(iterator)
        told = subprocess.run([os.environ["DLCTL"], "times", "--json", "--socket", _private.private_daemon().path],
                              check=True, stdout=subprocess.PIPE).stdout
        rows = {row["stage"]: row for row in json.loads(told) if row["rank"] is None}
        self.assertGreater(rows["fetch"]["batches"], 5)
        return rows

    def test_what_is_pythons(self):
        steps = [v2.Resize((200, 200)), v2.RandomAffine(9), v2.PILToTensor()]
        # What is C's of fetch, what is Python's of it at least, and of collate.
        for dataset, options, is_c, fetch, collate in (
                (self.files(*steps), {}, True, 0, 0),
                (self.files(*steps, slowly), {}, True, 0.06, 0),  # of four samples
                (self.files(*steps), {"collate_fn": listed}, True, 0, 0.015),
                (self.files(*steps, slowly), {"native": "off"}, False, 0.06, 0),
                (Opened(self.root), {}, True, 0, 0),
                (Opened(self.root), {"native": "off"}, False, 0, 0),
                (torch.zeros(80, 3), {}, True, 0, 0)):
            rows = self.times(dataset, **options)
            with self.subTest(fetch=fetch, collate=collate, rows=rows):
                made = rows["fetch"]
                self.assertGreaterEqual(made["python_s"], fetch)
                # C always brings the first batch, which did not fit, to a larger slot.
                self.assertEqual(made["python_s"] < 0.99 * made["mean_s"], is_c)
                if is_c and type(dataset) is Opened:
                    self.assertLess(made["python_s"], made["mean_s"] / 2)
                self.assertAlmostEqual(made["python_total_s"], made["python_s"] * made["batches"], delta=1e-6)
                self.assertEqual(made["python_s"] == 0, type(dataset) is torch.Tensor)
                self.assertGreaterEqual(rows["collate"]["python_s"], collate)
                self.assertEqual(rows["collate"]["python_s"] == 0, collate == 0)
                self.assertIsNone(rows["held"]["python_s"])

    def files(self, *steps):
        dataset = self.folder(*steps)
        dataset.samples = [sample for sample in dataset.samples if sample[0].endswith(".jpg")]
        return dataset


class Fast(Pictures):
    def test_smaller_scale(self):
        """Near to Pillow's pixels, the same draws, and equal where nothing gets much smaller."""
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(f"{root}/a")
            for i, size in enumerate([(900, 1200), (1201, 803), (160, 120)]):
                paint(*size, seed=i).save(f"{root}/a/{i}.jpg", quality=92)
            for t in (v1, v2):
                for first in (t.Resize((60, 80)), t.Resize(70), t.RandomResizedCrop(48, (0.5, 1)),
                              t.RandomResizedCrop((30, 64), interpolation=t.InterpolationMode.BICUBIC)):
                    self.assert_near(torchvision.datasets.ImageFolder(root, t.Compose([first, t.ToTensor()])), first)

    def test_blurred(self):
        """GaussianBlur is C's, by one step of 255 where torch rounds otherwise; draws are the same."""
        for t in (v1, v2):
            dataset = self.folder(t.GaussianBlur((5, 9), (0.3, 3)), t.RandomHorizontalFlip(), t.PILToTensor(),
                                  compose=t.Compose)
            fast = _native_pictures.lower(dataset, EXACT._replace(fast=True))
            self.assertIsNone(fast.why)
            for index in range(0, len(dataset), 3):
                if min(Image.open(dataset.samples[index][0]).size) > 5:
                    self.assert_a_step_apart(dataset, fast.dataset, index)

    def assert_a_step_apart(self, dataset, fast, index):
        torch.manual_seed(index)
        theirs, state = dataset[index][0], torch.get_rng_state()
        torch.manual_seed(index)
        ours = fast[index][0]
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        apart = (theirs.int() - ours.int()).abs()
        self.assertLessEqual(apart.max().item(), 1)
        self.assertLess(apart.float().mean().item(), 0.01)

    def assert_near(self, dataset, first):
        exact = _native_pictures.lower(dataset, EXACT).dataset
        fast = _native_pictures.lower(dataset, EXACT._replace(fast=True)).dataset
        apart = []
        for index in range(3):
            torch.manual_seed(index)
            slow, state = exact[index][0], torch.get_rng_state()
            torch.manual_seed(index)
            quick = fast[index][0]
            self.assertTrue(torch.equal(torch.get_rng_state(), state))
            self.assertEqual(slow.shape, quick.shape)
            apart.append((slow - quick).abs().mean().item() * 255)
        self.assertLess(max(apart), 3, f"{first}: {apart}")
        self.assertGreater(max(apart[:2]), 0, f"{first}: nothing was faster")
        self.assertEqual(apart[2], 0)


# ---- what is known -------------------------------------------------------------------------------

Own = type("Own", (v2.Resize,), {})
OwnFolder = type("OwnFolder", (torchvision.datasets.ImageFolder,), {})


class Known(Pictures):
    def why(self, dataset, **options):
        with self.assertRaises(ValueError) as caught:
            DataLoader(dataset, native="require", **options)
        return str(caught.exception)

    def test_why(self):
        hooked, own = v2.Resize(8), v2.Resize(8)
        hooked.register_forward_hook(lambda *_: None)
        own.forward = lambda picture: picture
        last = v2.ToTensor()
        for dataset, words in [
                (self.folder(Own(8)), "Own is not known"), (self.folder(own), "forward of its own"),
                (self.folder(hooked), "has hooks"), (self.folder(v2.Resize(8), untold, last), "untold"),
                (self.folder(v2.GaussianBlur(3)), "GaussianBlur: torch's convolution adds"),
                (self.folder(v1.RandomApply([v1.GaussianBlur(3)], 0.5)), "fast=True allows that"),
                (self.folder(v2.AugMix()), "AugMix: torchvision has it work on tensors"),
                (self.folder(v2.FiveCrop(2), v2.Resize(2)), "Resize is behind FiveCrop"),
                (self.folder(v2.FiveCrop(2), v2.ToTensor(), v2.Normalize((0.5,), (0.5,))), "Normalize is behind"),
                (self.folder(v2.RandomOrder([v2.FiveCrop(2)])), "RandomOrder has a FiveCrop in it"),
                (self.folder(v2.Resize(8), last, v1.RandAugment()), "RandAugment"),
                (self.folder(v2.RandomCrop(8), v1.Compose([v1.RandomAffine(4)])), "another generation"),
                (self.folder(v2.Pad(1, {torch.Tensor: 1})), "fill is of type dict"),
                (self.folder(v2.ToImage(), v2.ToDtype(torch.float64)), "ToDtype"),
                (self.folder(), "transform: there is none"),
                (self.folder(last, target_transform=int), "target_transform"),
                (self.folder(last, loader=Image.open), "loader: open is not torchvision's"),
                (OwnFolder(self.root, v2.Resize(8)), "OwnFolder is not one of"),
                (ConcatDataset([self.folder(last), [1]]), "list is not one of")]:
            with self.subTest(words):
                self.assertIn(words, self.why(dataset))
        self.assertIn("collate_fn: list is not", self.why(self.folder(last), collate_fn=list))
        DataLoader(self.folder(v2.Resize((8, 8)), last), native="require", num_workers=2)

    def test_patches(self):
        dataset = self.folder(v2.ToTensor())
        for patch, words in [
                (mock.patch.object(v2.ToTensor, "transform", untold), "ToTensor.transform is not"),
                (mock.patch.object(torchvision.datasets.DatasetFolder, "__getitem__", untold), "__getitem__ is not"),
                (mock.patch.object(Image, "open", untold), "untold is not PIL.Image's own"),
                (mock.patch.object(torchvision, "get_image_backend", lambda: "accimage"), "image backend")]:
            with self.subTest(words), patch:
                self.assertIn(words, self.why(dataset))
                out = io.StringIO()
                dloaderd.explain(DataLoader(dataset, num_workers=2), out)
                self.assertIn(words, out.getvalue())
                self.assertRegex(out.getvalue(), r"(?m)^samples +Python ")
                self.assertNotRegex(out.getvalue(), r"(?m)^batches +C ")
                if words == "untold is not PIL.Image's own":  # else its code opens them by Pillow
                    self.assertRegex(out.getvalue(), r"(?m)^pictures +Python .*replaced")
                self.assertIs(_native.with_pictures(dataset, EXACT, True), dataset)  # it is called

    def test_explain(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            dloaderd.explain(DataLoader(self.folder(v2.Resize(8), untold, v2.ToTensor()), num_workers=2))
        self.assertEqual([line[:19].split() for line in out.getvalue().splitlines()[:4]],
                         [["pictures", "C"], ["transform", "C"], ["transform", "Python"], ["batches", "C"]])
        self.assertIn("untold", out.getvalue())

    def test_it_is_native(self):
        """Pillow is not asked for a JPEG, nor for WebP and TIFF."""
        for ending, workers in ((".jpg", 0), (".jpg", 1), (".webp", 1), ("-jpeg.tif", 1)):
            with mock.patch.object(Image.Image, "convert", side_effect=AssertionError("by Pillow")):
                Image.Image.convert.__code__ = Image.open.__code__
                dataset = self.folder(v2.Resize((8, 8)), v2.ToTensor())
                dataset.samples = [one for one in dataset.samples if one[0].endswith(ending)]
                batches = list(DataLoader(dataset, batch_size=8, num_workers=workers))
            self.assertEqual(batches[0][0].shape, (min(8, len(dataset)), 3, 8, 8))


if not OURS:
    del Known, Fast, Samples, Times
