"""Files for tests of pictures that a dataset's own code opens by Pillow, damaged ones among them; what of a result is
compared; and Pillow as workers have it."""

import contextlib
import functools
import io
import os
import random

import numpy
import torch
from PIL import Image

from dltest import settle_files
from dloaderd import _lazy


def paint(height, width, seed):
    """Something like a photograph: large shapes, edges, grain."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    planes = [128 + 70 * numpy.sin(x / (17 + 9 * c) + seed) * numpy.cos(y / (23 - 4 * c))
              + 60 * ((x // 37 + y // 29) % 2) - 30 + rng.normal(0, 8, (height, width)) for c in range(3)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, 2), 0, 255).astype(numpy.uint8))


def paint_folder(folder, names, modes=()):
    """Small pictures, in a new folder, which are old enough for caches to keep them. modes: {number: mode}."""
    os.mkdir(folder)
    for n, name in enumerate(names):
        paint(40, 50, n).convert(dict(modes).get(n, "RGB")).save(f"{folder}/{name}")
    settle_files()


class Opens:
    """A class of one's own, which opens files by their paths, or itself, and says how far it has read these."""

    transform = None

    def __init__(self, paths, by_path):
        self.paths, self.by_path = paths, by_path

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            picture = Image.open(self.paths[index] if self.by_path else file)
            mode = picture.mode
            made = numpy.array(picture.resize((20, 30))).flatten()[:600] if self.transform is None else \
                self.transform(picture.convert("RGB"))
            return made, mode, file.tell()


class Opened:
    """A class of one's own, which opens a file itself: one whose pixels take much longer than its header."""

    def __init__(self, folder):
        self.path = f"{folder}/large"
        paint(900, 1200, seed=1).save(self.path, "JPEG")

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return numpy.asarray(Image.open(self.path).convert("RGB").resize((99, 70)))


def saved(picture, format="JPEG", **options):
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def with_orientation(turned):
    exif = Image.Exif()
    exif[0x0112] = turned
    return exif


@functools.cache
def files():
    """Whole ones, and damaged ones."""
    found = {}
    for n, size in enumerate([(120, 160), (97, 61), (33, 47), (1, 1), (240, 135)]):
        picture = paint(*size, seed=n)
        for sampling in (0, 1, 2, "4:1:1"):
            found[f"{size} {sampling}"] = saved(picture, subsampling=sampling, quality=90)
        found[f"{size} progressive"] = saved(picture, progressive=True, dpi=(72, 72), comment=b"of its own")
        found[f"{size} restarts"] = saved(picture, restart_marker_rows=1)
        found[f"{size} turned"] = saved(picture, exif=with_orientation(1 + (n + 5) % 8))
        for mode in "L", "CMYK":
            found[f"{size} {mode}"] = saved(picture.convert(mode))
        for mode in "RGB", "P", "L":
            found[f"{size} {mode} PNG"] = saved(picture.convert(mode), "PNG")
    whole = found["(120, 160) 2"]
    rng = random.Random(0)
    for share in (0.2, 0.5, 0.9, 0.99):
        found[f"cut at {share}"] = whole[:int(len(whole) * share)]
    found["cut, with an end"] = whole[:len(whole) // 2] + b"\xff\xd9"
    found["with bytes behind"] = whole + b"\xff\xd8" * 100
    found["with many bytes behind"] = whole + bytes(70000)
    for n in range(8):
        bad = bytearray(whole)
        for _ in range(4):
            bad[rng.randrange(200, len(bad))] = rng.randrange(256)
        found[f"damaged {n}"] = bytes(bad)
    scan = whole.index(b"\xff\xda")
    for code in (0xC0, 0xC4, 0xC9, 0xDB, 0xDC):
        bad = bytearray(whole)
        bad[scan + 800:scan + 804] = bytes([0xFF, code, 0, 4])
        found[f"a marker {code:x} in it"] = bytes(bad)
    return found


def is_damaged(name):
    return name.startswith(("cut", "damaged", "a marker"))


def described(thing):
    if isinstance(thing, Image.Image):
        return "picture", thing.mode, thing.size, thing.format, repr(thing.info), type(thing).__name__, thing.tobytes()
    if isinstance(thing, (numpy.ndarray, torch.Tensor)):
        return str(thing.dtype), tuple(thing.shape), numpy.asarray(thing).tobytes()
    if isinstance(thing, (list, tuple)):
        return [described(one) for one in thing]
    return repr(thing)


@contextlib.contextmanager
def hooked():
    """Pillow's methods as in a worker."""
    unhook = _lazy.hook()
    try:
        yield
    finally:
        unhook()


def openers():
    """Pillow's open(), and then ours, each while Pillow's methods are as they go with it."""
    yield _lazy._open
    with hooked():
        yield _lazy.open_lazily


def is_waiting(picture):
    return type(picture) is Image.Image and type(vars(picture)["_im"]) is _lazy.Pending
