"""Pictures that a dataset's own code opens, decoded by C when they are needed (_lazy.py): nobody notices.

Programs are drawn at random over the methods of Pillow's Image, and run on files of all kinds, damaged ones among them:
once as Pillow does it, and once by ours. $PILLOW_SEED draws others, $PILLOW_CASES more.
"""

import copy
import contextlib
import io
import math
import operator
import os
import pathlib
import pickle
import random
import re
import sys
import tempfile
import unittest
import warnings

import numpy
import torch

from black_box import QUICK

try:
    from PIL import (Image, ImageChops, ImageDraw, ImageEnhance, ImageFile, ImageFilter, ImageOps, ImageStat,
                     JpegImagePlugin)
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

from pillow_files import described, files, hooked, is_waiting, openers, saved

from dloaderd import _lazy, _lazy_frames, _versions, _worker

SEED, CASES = (int(os.environ.get(f"PILLOW_{n}", k)) for n, k in (("SEED", 1), ("CASES", 500 if QUICK else 4000)))

if _versions.not_compared("torchvision", "PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('torchvision', 'PIL')} is not compared")


# ---- programs ------------------------------------------------------------------------------------

FILTERS = [None, *Image.Resampling, 0, 2, 17]


def box_in(rng, picture):
    width, height = picture.size
    left, top = rng.randrange(width), rng.randrange(height)
    return left, top, rng.randint(left + 1, width), rng.randint(top + 1, height)


def any_box(rng, picture):
    kind = rng.randrange(6)
    box = box_in(rng, picture)
    if kind == 0:
        return tuple(n + rng.choice([0.0, 0.25, 0.5]) for n in box)
    if kind == 1:
        return [box[0] - 5, box[1] - 3, box[2] + 9, box[3] + 2]
    if kind == 2:
        return box[2], box[1], box[0], box[3]
    if kind == 3:
        return rng.choice([None, (0, 0, *picture.size), (0, 0, 0, 0), tuple(map(numpy.int64, box))])
    return box if kind == 4 else list(box)


def resized(rng, picture):
    size = rng.choice([(rng.randint(1, 90), rng.randint(1, 90)), [40, 30], picture.size, (0, 5), (7.5, 3), (-1, 4)]) \
        if rng.random() < 0.5 else (rng.randint(1, 99), rng.randint(1, 99))
    options = {}
    if rng.random() < 0.2:
        options["box"] = rng.choice([
            box_in(rng, picture), (0.5, 0.25, picture.width, picture.height), None, (0, 0.0, *picture.size),
            [at + rng.choice([-0.3, 0.71, 0]) * rng.random() for at in box_in(rng, picture)]])
    if rng.random() < 0.2:
        options["reducing_gap"] = rng.choice([None, 2.0, 0.5, 1, 1.1, 3.5])
    return lambda p: p.resize(size, rng.choice(FILTERS) if rng.random() < 0.7 else Image.Resampling.BILINEAR, **options)


def reduced(rng, picture):
    factor = rng.choice([rng.randint(1, 9), (rng.randint(1, 5), rng.randint(1, 40)), [2, 3], 0, 2.0, (1, 1)])
    box = box_in(rng, picture) if rng.random() < 0.3 else rng.choice([None, None, [0, 0, *picture.size], (0, 0, 0, 1)])
    return lambda p: p.reduce(factor, box)


def drafted(rng, picture):
    mode = rng.choice([None, None, "RGB", "L", "YCbCr"])
    size = rng.choice([(rng.randint(1, 80), rng.randint(1, 80)), (rng.randint(1, 20), rng.randint(1, 20)), None])
    return in_place(lambda p: p.draft(mode, size))


def thumbnail(rng, picture):
    size = rng.randint(1, 60), rng.randint(1, 60)
    options = {} if rng.random() < 0.5 else {"reducing_gap": rng.choice([None, 1.0, 1.5, 3]), "resample": rng.choice(
        FILTERS[1:-1])}
    return in_place(lambda p: p.thumbnail(size, **options))


def pasted(rng, picture):
    box = box_in(rng, picture)
    def done(p):
        p.paste((9, 8, 7) if p.mode == "RGB" else 3, box)
        return p
    return done


def in_place(change):
    def done(p):
        change(p)
        return p
    return done


def loaded(p):
    """What load() gives is for nobody, so it may be put off."""
    p.load()
    return p


def pickled(p):
    return pickle.loads(pickle.dumps(p))


def written(p):
    """torch lets one write to what NumPy does not: it is nobody else's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = torch.from_numpy(numpy.asarray(p))
    if array.numel() > 1:  # a single byte is one that all have
        array[:] = 7
    return numpy.asarray(p).tobytes(), p.tobytes()


class Mine(Image.Image):
    """Of a picture's attributes, as some classes are made."""


def shared(p, kind=Mine):
    made = kind.__new__(kind)
    made.__dict__.update(p.__dict__)
    return made


def drawn_on(p):
    ImageDraw.Draw(p).rectangle((2, 3, 20, 9), fill=(1, 2, 3, 4)[:len(p.getbands())] if len(p.getbands()) > 1 else 5)


def merged(p):
    return Image.merge("RGB", [p.getchannel(n % len(p.getbands())) for n in range(3)])


def combined(how):
    """With its mirror image."""
    def done(p):
        other = ImageOps.mirror(p)
        return {"add": ImageChops.add, "multiply": ImageChops.multiply, "difference": ImageChops.difference,
                "blend": lambda a, b: Image.blend(a, b, 0.3),
                "composite": lambda a, b: Image.composite(a, b, a.convert("L"))}[how](p, other)
    return done


OPERATIONS = [ImageOps.autocontrast, ImageOps.grayscale, ImageOps.flip, ImageOps.equalize, ImageOps.invert,
              lambda p: ImageOps.posterize(p, 3), lambda p: ImageOps.pad(p, (40, 30)),
              lambda p: ImageOps.contain(p, (40, 30)), lambda p: ImageOps.cover(p, (40, 30)),
              lambda p: ImageOps.solarize(p, 99), lambda p: ImageOps.scale(p, 0.4), lambda p: ImageOps.crop(p, 3),
              lambda p: p.quantize(8), lambda p: p.transform((30, 20), Image.Transform.AFFINE, (1, .1, 2, 0, 1, 3)),
              lambda p: p.effect_spread(0), lambda p: p.remap_palette([0]), lambda p: p.getchannel(0)]
FACTS = [lambda p: ImageStat.Stat(p).mean, lambda p: p.__array_interface__, lambda p: numpy.array(p, dtype="float32"),
         lambda p: (p.im.mode, p.im.size, p.im.bands), lambda p: p.getprojection(), lambda p: p.entropy(),
         lambda p: p._repr_png_(), lambda p: v2.functional.pil_to_tensor(p), lambda p: v2.functional.to_image(p),
         lambda p: v1.functional.pil_to_tensor(p), lambda p: (type(p) is Image.Image, p.__class__, type(p).__mro__),
         lambda p: p.load()[0, 0], lambda p: p.readonly, lambda p: (hasattr(p, "im"), hasattr(p, "fp"), p.palette),
         lambda p: p.crop(1, 2, 3), lambda p: p.resize(), lambda p: p.convert(nothing=1), lambda p: p.reduce(2, 3, 4),
         lambda p: p.resize((3, 4), 2, None, 2.0, 7), lambda p: p.transpose(), lambda p: p.tobytes(encoder_name="raw"),
         lambda p: [getattr(JpegImagePlugin, name)(p) for name in ("get_sampling",) if hasattr(p, "layer")],
         lambda p: bytes(memoryview(p.__array_interface__["data"]))[:9], lambda p: p.getexif().get_ifd(0x8769)]


# Each: what is done to a picture, which gives a picture or what is to be compared.
STEPS = {
    "crop": lambda rng, p: (lambda box: lambda p: p.crop(box))(any_box(rng, p)),
    "crop in it": lambda rng, p: (lambda box: lambda p: p.crop(box))(box_in(rng, p)),
    "resize": resized,
    "transpose": lambda rng, p: (lambda how: lambda p: p.transpose(how))(rng.choice([*Image.Transpose, 0, 3, 9])),
    "rgb": lambda rng, p: lambda p: p.convert("RGB"),
    "grey": lambda rng, p: lambda p: p.convert("L"),
    "convert": lambda rng, p: (lambda mode: lambda p: p.convert(mode))(rng.choice(["RGBA", "CMYK", "Z", None])),
    "transparency": lambda rng, p: in_place(lambda p: p.info.update(transparency=3 if p.mode == "L" else (1, 2, 3))),
    "copy": lambda rng, p: rng.choice([copy.copy, copy.deepcopy, lambda p: p.copy(), pickled]),
    "loaded": lambda rng, p: loaded,
    "exif_transpose": lambda rng, p: (lambda place: lambda p: ImageOps.exif_transpose(p, in_place=place))(
        rng.random() < 0.2),
    "tile": lambda rng, p: (lambda side: in_place(lambda p: setattr(p, "tile", [
        one._replace(extents=(0, 0, side, 8)) for one in p.tile]) if hasattr(p, "tile") else None))(rng.randint(1, 40)),
    "load": lambda rng, p: in_place(lambda p: p.load()),
    "thumbnail": thumbnail,
    "draft": drafted,
    "reduce": reduced,
    "rotate": lambda rng, p: (lambda n: lambda p: p.rotate(n, expand=True))(rng.choice([0, 90, 33, 180])),
    "paste": pasted,
    "putpixel": lambda rng, p: in_place(lambda p: p.putpixel((0, 0), 7 if len(p.getbands()) == 1 else (1, 2, 3, 4)[:len(
        p.getbands())])),
    "filter": lambda rng, p: lambda p: p.filter(ImageFilter.BLUR),
    "point": lambda rng, p: lambda p: p.point(lambda n: 255 - n),
    "enhance": lambda rng, p: lambda p: ImageEnhance.Color(p).enhance(0.5),
    "pad": lambda rng, p: lambda p: ImageOps.expand(p, 3),
    "fit": lambda rng, p: lambda p: ImageOps.fit(p, (31, 17)),
    "asarray": lambda rng, p: lambda p: numpy.asarray(p),
    "array": lambda rng, p: lambda p: numpy.array(p, copy=True),
    "tobytes": lambda rng, p: lambda p: (p.tobytes(), p.tobytes("raw", p.mode)),
    "getdata": lambda rng, p: lambda p: list(p.get_flattened_data())[:50] if hasattr(p, "get_flattened_data") else
    list(p.getdata())[:50],
    "histogram": lambda rng, p: lambda p: p.histogram(),
    "getpixel": lambda rng, p: lambda p: p.getpixel((0, 0)),
    "split": lambda rng, p: lambda p: p.split()[-1],
    "getbbox": lambda rng, p: lambda p: (p.getbbox(), p.getextrema(), p.getcolors()),
    "header": lambda rng, p: lambda p: (p.size, p.mode, p.format, p.width, p.getbands(), dict(p.getexif()), p.readonly,
                                        p.has_transparency_data, p.is_animated if hasattr(p, "is_animated") else None),
    "equal": lambda rng, p: lambda p: (p == p.copy(), p.copy() == p, p != p.crop((0, 0, 1, 1)), p == 3),
    "repr": lambda rng, p: lambda p: (repr(p), str(type(p)), isinstance(p, Image.Image)),
    "save": lambda rng, p: lambda p: saved(p, rng.choice(["PNG", "JPEG"])),
    "info": lambda rng, p: in_place(lambda p: p.info.update(mine=1)),
    "no such attribute": lambda rng, p: lambda p: p.pixels,
    "seek": lambda rng, p: in_place(lambda p: (p.seek(0), p.tell())),
    "close fp": lambda rng, p: in_place(lambda p: p.fp.close() if getattr(p, "fp", None) else None),
    "limit": lambda rng, p: (lambda n: in_place(lambda p: setattr(Image, "MAX_IMAGE_PIXELS", n)))(
        rng.choice([None, 10, 2000, 15000])),
    "truncated": lambda rng, p: (lambda on: in_place(lambda p: setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", on)))(
        rng.random() < 0.5),
    "close": lambda rng, p: in_place(lambda p: p.close()),
    "with": lambda rng, p: in_place(lambda p: p.__exit__(None, None, None)),
    "tensor": lambda rng, p: v1.functional.to_tensor,
    "written": lambda rng, p: written,
    "shared": lambda rng, p: shared,
    "its like": lambda rng, p: lambda p: shared(p, type(p)),
    "draw": lambda rng, p: in_place(drawn_on),
    "merge": lambda rng, p: merged,
    "combine": lambda rng, p: combined(rng.choice(["add", "multiply", "difference", "blend", "composite"])),
    "operation": lambda rng, p: rng.choice(OPERATIONS),
    "fact": lambda rng, p: rng.choice(FACTS),
    "putalpha": lambda rng, p: in_place(lambda p: p.putalpha(p.convert("L"))),
    "verify": lambda rng, p: in_place(lambda p: p.verify()),
    "resized_crop": lambda rng, p: lambda p: v2.functional.resized_crop(p, 1, 2, 30, 20, [24, 24]),
}
RARE = {"tile", "transparency", "close", "close fp", "with", "no such attribute", "draft", "verify", "shared",
        "its like", "putalpha", "limit", "truncated"}
NAMES = [name for name in STEPS for _ in range(1 if name in RARE else 6 if name in ("crop in it", "rgb") else 3)]


@contextlib.contextmanager
def having(owner, name, value):
    theirs = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, theirs)


def settings():
    """Which a program may change."""
    changes = contextlib.ExitStack()
    changes.enter_context(having(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS))
    changes.enter_context(having(ImageFile, "LOAD_TRUNCATED_IMAGES", False))
    return changes


def play(opened, seed, told):
    """Several steps on pictures that grow out of each other; told gets what each gives."""
    rng = random.Random(seed)
    pictures = [opened]
    for step in range(rng.randint(1, 9)):
        picture = pictures[-1] if rng.random() < 0.8 else rng.choice(pictures)
        name = "draft" if step == 0 and rng.random() < 0.2 else rng.choice(NAMES)  # behind others it does nothing
        told.append((name, picture.size, picture.mode))
        made = STEPS[name](rng, picture)(picture)
        if isinstance(made, Image.Image):
            pictures.append(made)
        else:
            told.append(described(made))
    told.extend(map(described, reversed(pictures)))


def played(opener, file, seed):
    """What a program makes of a file: all that it says, and what it ends by."""
    told = []
    opened = file()
    try:
        with warnings.catch_warnings(record=True) as warned, settings():
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ResourceWarning)
            picture = opener(opened)
            told.append(None if isinstance(opened, str) else opened.tell())
            play(picture, seed, told)
    except Exception as error:
        told.append(f"{type(error).__name__}: {error}")
    if not isinstance(opened, str):
        told.append(opened.closed or opened.tell())
    if isinstance(opened, io.BufferedReader):
        opened.close()
    return re.sub(r"0x[0-9a-fA-F]+", "0x", repr(told)), [str(one.message) for one in warned]


_worker_steps = _worker.picture_steps


class TestPrograms(unittest.TestCase):
    """Programs at random: the same bytes, errors and warnings."""

    def compare(self, name, file, seed):
        theirs, ours = (played(opener, file, seed) for opener in openers())
        if theirs != ours:
            told = []
            try:
                with settings():
                    play(_lazy._open(file()), seed, told)
            except Exception as error:
                told.append(error)
            steps = [one for one in told if type(one) is tuple and type(one[0]) is str and one[0] in STEPS]
            self.fail(f"{name}, program {seed}: {steps}\n{theirs[0][-600:]}\n{ours[0][-600:]}\n{theirs[1]} {ours[1]}")

    def test_programs(self):
        names = list(files())
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Pillow leaves files open that are not loaded
            for number, name in enumerate(names):
                pathlib.Path(folder, f"{number}.jpg").write_bytes(files()[name])
            for seed in range(SEED * 10 ** 6, SEED * 10 ** 6 + CASES):
                number = seed % len(names)
                path = os.path.join(folder, f"{number}.jpg")
                kinds = [lambda number=number: io.BytesIO(files()[names[number]]), lambda path=path: open(path, "rb"),
                         lambda path=path: path]
                self.compare(names[number], kinds[seed // len(names) % 3], seed)

    def test_headers(self):
        """Pillow reads one when somebody asks for what C has not said; nothing else is seen of that."""
        data = files()["(120, 160) 2"]
        def before(picture):
            return picture.size, picture.mode, picture.format, picture.filename
        mine = {1: 2}
        uses = [lambda p: p.info, lambda p: (p.app, p.applist), lambda p: p.quantization, lambda p: p.tile,
                lambda p: p.convert("RGB").info, lambda p: p.convert("RGB").copy().info,
                lambda p: (p.info, p.__delattr__("info"), hasattr(p, "info")),
                lambda p: p.nothing, lambda p: hasattr(p, "layers"), lambda p: p.getxmp(),
                lambda p: (setattr(p, "info", mine), p.convert("RGB").info, p.layers, p.info),
                lambda p: (setattr(p, "info", mine), p.app, p.info),
                lambda p: (p.info.update(a=1), p.convert("RGB").info),
                lambda p: (p.convert("RGB"), p.tile, p.app, p.fp), lambda p: (p.__exit__(), p.fp, p.info),
                lambda p: (p.getexif(), p._exif, p.getexif() is p.getexif(), p.convert("RGB").getexif(), p.layers),
                lambda p: p.get_format_mimetype(), lambda p: (p.draft("L", (9, 9)), p.tobytes()),
                lambda p: (p.close(), p.info), lambda p: (setattr(p, "tile", []), p.load())]
        for use in uses:
            for file in (data, files()["(120, 160) turned"], files()["(97, 61) progressive"], files()["(33, 47) CMYK"]):
                found = []
                for opener in openers():
                    picture = opener(io.BytesIO(file))
                    if opener is _lazy.open_lazily and file is data:
                        self.assertIn("_head", vars(picture))
                    told = [before(picture)]
                    try:
                        told.append(described(use(picture)))
                    except Exception as error:
                        told.append(f"{type(error).__name__}: {error}")
                    found.append(re.sub(r"0x[0-9a-fA-F]+", "0x", repr(told)))
                self.assertEqual(*found)

    def test_header_is_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.jpg")
            pathlib.Path(path).write_bytes(files()["(120, 160) 2"])
            with hooked(), _lazy.open_lazily(path) as picture:
                made = picture.convert("RGB").crop((1, 2, 3, 4))
                numpy.asarray(made)
                ImageOps.exif_transpose(made)
            self.assertTrue(all("_head" in vars(one) for one in (picture, made)))

    def test_file_is_written_to(self):
        """Behind the picture's back: Pillow's header and its pixels are then of two files."""
        found = []
        for opener in openers():
            file = io.BytesIO(files()["(120, 160) 2"])
            picture = opener(file)
            file.seek(0)
            file.write(files()["(240, 135) 2"])
            try:
                found.append(described(picture.convert("RGB")))
            except OSError as error:
                found.append(str(error))
        self.assertEqual(*found)

    def test_other_openers(self):
        """What is not Pillow's own is what opens a file."""
        data = files()["(120, 160) 2"]
        class Other(_lazy.JpegImagePlugin.JpegImageFile):
            pass
        for owner, name, other in ((Image.OPEN, "JPEG", (Other, _lazy.JpegImagePlugin._accept)),
                                   (_lazy.JpegImagePlugin.MARKER, 0xFFE0, ("APP0", "", lambda self, marker: None))):
            theirs = owner[name]
            owner[name] = other
            try:
                found = [opener(io.BytesIO(data)) for opener in openers()]
            except Exception as error:
                found = [repr(error)]
            finally:
                owner[name] = theirs
            self.assertTrue(all("_head" not in vars(one) for one in found if isinstance(one, Image.Image)))
            self.assertEqual(len({type(one) for one in found}), 1)

    @hooked()
    def test_they_are_put_off(self):
        """What the other tests compare is not Pillow beside Pillow."""
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
        def taken():
            return picture.convert("RGB").crop((1, 2, 30, 40)).resize((9, 8)).transpose(0)
        made = taken()
        self.assertTrue(is_waiting(made))
        self.assertEqual(len(vars(made)["_im"].todo[1]), 3)
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) turned"]))
        def transposed():
            return ImageOps.exif_transpose(loaded(picture))
        self.assertTrue(is_waiting(transposed()))
        made.getpixel((0, 0))
        self.assertFalse(is_waiting(made))

    @hooked()
    def test_boxes_are_put_off(self):
        """Of resize(), which fit() and thumbnail() call: where that would not reduce by whole numbers first."""
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"])).convert("RGB")
        for made in (picture.resize((50, 40), box=(0.3, 1, 100.7, 99)), ImageOps.fit(picture, (31, 17)),
                     picture.resize((100, 90), reducing_gap=2.0)):
            self.assertTrue(is_waiting(made))
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
        told = []
        with having(_lazy._worker, "picture_steps", lambda *args: told.append(args[4]) or _worker_steps(*args)):
            picture.thumbnail((100, 100))
        self.assertEqual(told, [((_lazy.RESIZE, 0, 0, 100, 75, 4),)])

    @hooked()
    def test_reductions_are_put_off(self):
        """By whole numbers, which resize() begins with for a reducing gap."""
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
        for made, size in ((picture.reduce(3), (54, 40)), (picture.reduce((2, 5), (1, 2, 30, 40)), (15, 8)),
                           (picture.resize((20, 30), reducing_gap=1.5), (20, 30))):
            self.assertTrue(is_waiting(made))
            self.assertEqual((made.size, made.copy().tobytes()), (size, made.tobytes()))

    @hooked()
    def test_drafts_are_put_off(self):
        """A thumbnail() of a file makes one; C decodes at that scale, if it does so as Pillow does."""
        for mode, size, wanted in ((None, (20, 20), (4, False)), ("L", (9, 9), (8, True)), ("RGB", None, (1, False)),
                                   ("L", None, (1, True)), ("YCbCr", (20, 20), None)):
            for alike in True, False:
                picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
                picture.draft(mode, size)
                with having(_lazy, "_drafts_are_alike", lambda alike=alike: alike):
                    made = picture.convert("RGB")
                is_ours = wanted is not None and (alike or wanted == (1, False))
                self.assertEqual(is_waiting(made), is_ours, (mode, size, alike))
                if is_ours:
                    self.assertEqual(vars(made)["_im"].todo[0].draft, wanted)
        told = []
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
        _lazy._drafts_are_alike()
        with having(_lazy._worker, "picture_steps", lambda *args: told.append(args[4:]) or _worker_steps(*args)):
            picture.thumbnail((30, 30))
        self.assertEqual(told, [(((_lazy.RESIZE, 0, 0, 30, 23, 4),), 3, 2, False)])

    @hooked()
    def test_grey_is_put_off(self):
        """Of pictures in colours, of grey files, and of what C has made of them."""
        for name in "(120, 160) 2", "(120, 160) L":
            picture = _lazy.open_lazily(io.BytesIO(files()[name]))
            made = picture.convert("L").crop((1, 2, 30, 40))
            for one in made, made.resize((9, 8)), made.convert("RGB"):
                self.assertEqual(len(one.tobytes()), math.prod(one.size) * len(one.mode))
                self.assertTrue(is_waiting(one.transpose(0).resize((3, 4)).convert("L")))
            self.assertTrue(_lazy.waits(picture))


# ---- what a program sets and replaces ------------------------------------------------------------

def used_with(opener, data, steps, at, change):
    """What the steps give if the change is made before step `at`; with warnings."""
    told = []
    with warnings.catch_warnings(record=True) as warned, contextlib.ExitStack() as changes:
        warnings.simplefilter("always")
        try:
            picture = io.BytesIO(data)
            for number, step in enumerate([opener, *steps]):
                if number == at:
                    changes.enter_context(having(*change))
                picture = step(picture)
                told.append((picture.size, len(warned)))
            told.append(described(picture))
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
    return told, [str(one.message) for one in warned]


class TestSettings(unittest.TestCase):
    STEPS = (lambda p: p.convert("RGB"), lambda p: p.crop((1, 2, 61, 50)), lambda p: p.resize((30, 20)))

    def compare(self, changes, names, places):
        for change in changes:
            for name in names:
                for at in places:
                    found = [used_with(opener, files()[name], self.STEPS, at, change()) for opener in openers()]
                    self.assertEqual(*found, (change()[1:], name, at))

    def test_limits(self):
        """Set before any step: warnings come with the steps they come with, and errors."""
        limits = [lambda n=n: (Image, "MAX_IMAGE_PIXELS", n) for n in (None, 10, 2000, 15000, 19200)]
        self.compare(limits, ["(120, 160) 2", "(120, 160) L", "cut at 0.5"], range(4))

    def test_truncated_files(self):
        self.compare([lambda: (_lazy.ImageFile, "LOAD_TRUNCATED_IMAGES", True)],
                     ["(120, 160) 2", "cut at 0.5", "cut, with an end", "damaged 3"], (0, 1))

    def test_replaced_functions(self):
        """They are called, with what Pillow calls them with."""
        calls = []

        def counting(owner, name):
            theirs = getattr(owner, name)
            def function(*args, **options):
                calls.append((name, len(args), sorted(options)))
                return theirs(*args, **options)
            return owner, name, function
        for owner, name in ((Image.Image, "crop"), (Image.Image, "convert"), (Image.Image, "resize"),
                            (_lazy.ImageFile.ImageFile, "load")):
            for at in range(len(self.STEPS) + 1):
                found = []
                for opener in openers():
                    found.append((used_with(opener, files()["(120, 160) 2"], self.STEPS, at, counting(owner, name)),
                                  *calls))
                    calls.clear()
                self.assertEqual(*found)
                self.assertGreater(len(found[0]) + at, 1)


# ---- who would see an error ----------------------------------------------------------------------

def changed(rng, data):
    """A file with a few bytes that are others, before its coded data more often than in them."""
    bad = bytearray(data)
    end = data.index(b"\xff\xda") + 14 if rng.random() < 0.7 else len(bad)
    for _ in range(rng.randint(1, 3)):
        bad[rng.randrange(2, end)] ^= rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
    return bytes(bad)


class TestErrors(unittest.TestCase):
    def test_whole_files(self):
        """Nothing is put off of which Pillow would raise an error: the dataset's code would see it, too late."""
        rng = random.Random(SEED)
        names = [name for name in files() if name.startswith("(33, 47)") and "PNG" not in name]
        self.assertTrue(all(_worker.picture_whole(files()[name]) for name in names))
        whole = broken = 0
        wrong = []
        for n in range(4 * CASES):
            data = changed(rng, files()[names[n % len(names)]])
            is_whole = bool(_worker.picture_whole(data))
            with contextlib.suppress(Exception):
                picture = Image.open(io.BytesIO(data))
                if math.prod(picture.size) > 1 << 20:
                    continue
                try:
                    picture.load()
                    whole += is_whole
                except Exception as error:
                    broken += 1
                    wrong += [f"{names[n % len(names)]}, case {n}: {error}"] * is_whole
        self.assertEqual(wrong, [])
        self.assertGreater(min(whole, broken), CASES // 4)


class TestHeaders(unittest.TestCase):
    def test_what_pillow_says(self):
        """Of a header that C takes as plain Pillow says the same, and no more."""
        rng = random.Random(SEED + 1)
        names = [name for name in files() if "PNG" not in name]
        plain = 0
        for n in range(4 * CASES):
            data = files()[names[n % len(names)]]
            data = data if n < len(names) else changed(rng, data)
            found = _worker.picture_header(data[:8192])
            if found is None:
                continue
            plain += 1
            file = io.BytesIO(data)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                picture = _lazy._factory(file)
            self.assertIs(type(picture), _lazy.JpegImagePlugin.JpegImageFile)
            self.assertEqual(found[:4], (picture.height, picture.width, picture.layers, file.tell()))
            self.assertEqual(found[4], bool({"exif", "xmp"} & picture.info.keys()))
        self.assertGreater(plain, CASES // 2)


class Called:
    """told: whether its callers drop what probe() returns to them."""

    def __init__(self):
        self.told = []

    def probe(self, *_):
        self.told.append(_lazy_frames.is_dropped(sys._getframe(1), "probe"))
        return self

    other = probe


class TestFrames(unittest.TestCase):
    def test_who_gets_a_result(self):
        """A statement drops it; and no other one may seem to, which would get None."""
        one = Called()

        def run():
            one.probe()
            one.probe()
            kept = one.probe()
            kept.probe(1)
            [kept.probe() for _ in range(1)]
            one.probe().probe()
            one.other()
            list(map(operator.methodcaller("probe"), [one]))
            one.told.extend(type(kept.probe()) is not Called for _ in range(1))
            return one.probe()
        run()
        run()
        wanted = [True, True, False, False, False, False, True, False, False, False, False, False]
        self.assertEqual(one.told, 2 * wanted)
