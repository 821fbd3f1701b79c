"""Pictures that a dataset's own code opens, decoded by C when they are needed (_lazy.py): nobody notices.

Programs are drawn at random over the methods of Pillow's Image, and run on files of all kinds, damaged ones among them:
once as Pillow does it, and once by ours. $PILLOW_SEED draws others, $PILLOW_CASES more.
"""

import contextlib
import copy
import functools
import io
import os
import pickle
import random
import re
import sys
import tempfile
import threading
import unittest
import warnings

import numpy
import torch

from black_box import QUICK, Case, DataLoader, TorchLoader

try:
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

from dloaderd import _lazy, _lazy_frames, _lazy_transforms, _versions

SEED, CASES = (int(os.environ.get(f"PILLOW_{n}", k)) for n, k in (("SEED", 1), ("CASES", 500 if QUICK else 4000)))

if _versions.not_compared("torchvision", "PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('torchvision', 'PIL')} is not compared")


# ---- files ---------------------------------------------------------------------------------------

def paint(height, width, seed):
    """Something like a photograph: large shapes, edges, grain."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    planes = [128 + 70 * numpy.sin(x / (17 + 9 * c) + seed) * numpy.cos(y / (23 - 4 * c))
              + 60 * ((x // 37 + y // 29) % 2) - 30 + rng.normal(0, 8, (height, width)) for c in range(3)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, 2), 0, 255).astype(numpy.uint8))


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
        options["box"] = rng.choice([box_in(rng, picture), (0.5, 0.25, picture.width, picture.height), None])
    if rng.random() < 0.2:
        options["reducing_gap"] = rng.choice([None, 2.0, 0.5])
    return lambda p: p.resize(size, rng.choice(FILTERS) if rng.random() < 0.7 else Image.Resampling.BILINEAR, **options)


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


def pickled(p):
    return pickle.loads(pickle.dumps(p))


# Each: what is done to a picture, which gives a picture or what is to be compared.
STEPS = {
    "crop": lambda rng, p: (lambda box: lambda p: p.crop(box))(any_box(rng, p)),
    "crop in it": lambda rng, p: (lambda box: lambda p: p.crop(box))(box_in(rng, p)),
    "resize": resized,
    "transpose": lambda rng, p: (lambda how: lambda p: p.transpose(how))(rng.choice([*Image.Transpose, 0, 3, 9])),
    "rgb": lambda rng, p: lambda p: p.convert("RGB"),
    "convert": lambda rng, p: (lambda mode: lambda p: p.convert(mode))(rng.choice(["L", "RGBA", "CMYK", "Z", None])),
    "copy": lambda rng, p: rng.choice([copy.copy, copy.deepcopy, lambda p: p.copy(), pickled]),
    "load": lambda rng, p: in_place(lambda p: p.load()),
    "thumbnail": lambda rng, p: (lambda *n: in_place(lambda p: p.thumbnail(n)))(rng.randint(1, 60), rng.randint(1, 60)),
    "draft": lambda rng, p: (lambda n: in_place(lambda p: p.draft(rng.choice(["RGB", "L"]), n)))((20, 20)),
    "reduce": lambda rng, p: (lambda n: lambda p: p.reduce(n))(rng.randint(1, 4)),
    "rotate": lambda rng, p: (lambda n: lambda p: p.rotate(n, expand=True))(rng.choice([0, 90, 33, 180])),
    "paste": pasted,
    "putpixel": lambda rng, p: in_place(lambda p: p.putpixel((0, 0), 7 if len(p.getbands()) == 1 else (1, 2, 3, 4)[:len(
        p.getbands())])),
    "filter": lambda rng, p: lambda p: p.filter(ImageFilter.BLUR),
    "point": lambda rng, p: lambda p: p.point(lambda n: 255 - n),
    "enhance": lambda rng, p: lambda p: ImageEnhance.Color(p).enhance(0.5),
    "exif_transpose": lambda rng, p: ImageOps.exif_transpose,
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
    "close": lambda rng, p: in_place(lambda p: p.close()),
    "with": lambda rng, p: in_place(lambda p: p.__exit__(None, None, None)),
    "tensor": lambda rng, p: v1.functional.to_tensor,
    "resized_crop": lambda rng, p: lambda p: v2.functional.resized_crop(p, 1, 2, 30, 20, [24, 24]),
}
RARE = {"close", "with", "no such attribute", "draft"}
NAMES = [name for name in STEPS for _ in range(1 if name in RARE else 6 if name in ("crop in it", "rgb") else 3)]


def described(thing):
    if isinstance(thing, Image.Image):
        return "picture", thing.mode, thing.size, thing.format, repr(thing.info), type(thing).__name__, thing.tobytes()
    if isinstance(thing, (numpy.ndarray, torch.Tensor)):
        return str(thing.dtype), tuple(thing.shape), numpy.asarray(thing).tobytes()
    if isinstance(thing, (list, tuple)):
        return [described(one) for one in thing]
    return repr(thing)


def play(opened, seed, told):
    """Several steps on pictures that grow out of each other; told gets what each gives."""
    rng = random.Random(seed)
    pictures = [opened]
    for _ in range(rng.randint(1, 9)):
        picture = pictures[-1] if rng.random() < 0.8 else rng.choice(pictures)
        name = rng.choice(NAMES)
        told.append((name, picture.size, picture.mode))
        made = STEPS[name](rng, picture)(picture)
        if isinstance(made, Image.Image):
            pictures.append(made)
        else:
            told.append(described(made))
    told.extend(map(described, reversed(pictures)))


_lazy_frames.end_at(play.__code__)


def played(opener, file, seed, kept):
    """What a program makes of a file: all that it says, and what it ends by."""
    told = []
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            play(opener(file()), seed, told)
    except Exception as error:
        told.append(f"{type(error).__name__}: {error}")
        if not kept:
            told = told[-1:]
    return re.sub(r"0x[0-9a-fA-F]+", "0x", repr(told)), [str(one.message) for one in warned]


class TestPrograms(unittest.TestCase):
    """Programs at random: the same bytes, errors and warnings."""

    def compare(self, name, file, seed):
        theirs, ours = (played(opener, file, seed, not is_damaged(name))
                        for opener in (_lazy._open, _lazy.open_lazily))
        if theirs != ours:
            told = []
            try:
                play(_lazy._open(file()), seed, told)
            except Exception as error:
                told.append(error)
            steps = [one for one in told if type(one) is tuple and type(one[0]) is str and one[0] in STEPS]
            self.fail(f"{name}, program {seed}: {steps}\n{theirs[0][-600:]}\n{ours[0][-600:]}\n{theirs[1]} {ours[1]}")

    def test_programs(self):
        names = list(files())
        for seed in range(SEED * 10 ** 6, SEED * 10 ** 6 + CASES):
            name = names[seed % len(names)]
            self.compare(name, lambda name=name: io.BytesIO(files()[name]), seed)

    def test_they_are_put_off(self):
        """What the other tests compare is not Pillow beside Pillow."""
        picture = _lazy.open_lazily(io.BytesIO(files()["(120, 160) 2"]))
        def taken():
            return picture.convert("RGB").crop((1, 2, 30, 40)).resize((9, 8)).transpose(0)
        _lazy_frames.end_at(self.test_they_are_put_off.__code__)
        made = taken()
        self.assertIs(type(made), _lazy.Picture)
        self.assertEqual(len(made._todo[1]), 3)
        made.getpixel((0, 0))
        self.assertIs(type(made), Image.Image)


# ---- who would see an error ----------------------------------------------------------------------

def bare():
    return _lazy_frames.is_guarded(probe())


def in_with():
    with contextlib.nullcontext():
        return _lazy_frames.is_guarded(probe())


def in_suppress():
    with contextlib.suppress(OSError):
        return _lazy_frames.is_guarded(probe())


def in_try():
    try:
        return _lazy_frames.is_guarded(probe())
    except OSError:
        return None


def in_finally():
    try:
        return _lazy_frames.is_guarded(probe())
    finally:
        probe()


def in_with_in_try():
    try:
        with contextlib.nullcontext():
            return _lazy_frames.is_guarded(probe())
    except OSError:
        return None


def behind_try():
    try:
        probe()
    except OSError:
        pass
    return _lazy_frames.is_guarded(probe())


def in_except():
    try:
        raise OSError
    except OSError:
        return _lazy_frames.is_guarded(probe())


def in_comprehension():
    return [_lazy_frames.is_guarded(probe()) for _ in range(1)][0]


def in_generator():
    return next(_lazy_frames.is_guarded(probe()) for _ in range(1))


def called_in_try():
    try:
        return in_with()
    except OSError:
        return None


def probe():
    return sys._getframe(1)


def asked(call):
    return call()


_lazy_frames.end_at(asked.__code__)


class TestFrames(unittest.TestCase):
    def test_handlers(self):
        for call, wanted in ((bare, False), (in_with, False), (in_suppress, True), (in_try, True), (in_finally, True),
                             (in_with_in_try, True), (behind_try, False), (in_except, False),
                             (in_comprehension, False), (in_generator, False), (called_in_try, True)):
            for _ in range(2):
                self.assertIs(asked(call), wanted, call.__name__)

    def test_a_thread(self):
        """Its errors are seen by what has started it."""
        found = []
        thread = threading.Thread(target=lambda: found.append(_lazy_frames.is_guarded(probe())))
        thread.start()
        thread.join()
        self.assertEqual(found, [True])


# ---- lists of transforms -------------------------------------------------------------------------

class Own:
    """A transform that C does not know; it draws, too."""

    def __call__(self, picture):
        torch.rand(1)
        return picture if isinstance(picture, torch.Tensor) else ImageOps.mirror(picture)


def tail(generation):
    return [generation.ToTensor(), generation.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])]


def lists():
    for generation in v1, v2:
        crop, flip = generation.RandomResizedCrop(40), generation.RandomHorizontalFlip()
        yield generation.Compose([crop, flip, *tail(generation)])
        yield generation.Compose([Own(), crop, flip, *tail(generation)])
        yield generation.Compose([crop, Own(), flip, *tail(generation), Own()])
        yield generation.Compose([generation.Compose([crop, flip]), generation.Compose(tail(generation))])
        yield generation.Compose([generation.Resize(50), generation.CenterCrop(32), generation.ColorJitter(0.4, 0.4)])
        yield generation.Compose([generation.RandomChoice([crop, flip]), generation.ToTensor()])
        yield generation.Compose([generation.FiveCrop(10)])
    yield v1.Compose([])
    yield v2.Compose([v2.ToImage(), v2.RandomResizedCrop(33), v2.ToDtype(torch.float32, scale=True)])
    yield v2.Compose([v2.RandomResizedCrop(33), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


@contextlib.contextmanager
def installed():
    """As in a worker."""
    kinds = [(v1.Compose, "__call__"), (v2.Compose, "forward")]
    theirs = [getattr(kind, method) for kind, method in kinds]
    _lazy.install()
    try:
        yield
    finally:
        Image.open = _lazy._open
        for (kind, method), one in zip(kinds, theirs, strict=True):
            setattr(kind, method, one)


USES = {
    "rgb": lambda compose, picture: compose(picture.convert("RGB")),
    "as it is": lambda compose, picture: compose(picture),
    "two views": lambda compose, picture: (lambda rgb: [compose(rgb), compose(rgb)])(picture.convert("RGB")),
    "cropped before": lambda compose, picture: compose(picture.convert("RGB").crop((0, 0, 30, 30)).transpose(0)),
    "changed before": lambda compose, picture: compose(ImageOps.invert(picture.convert("RGB"))),
}


def strides(made):
    return [one for one, n in zip(made.stride(), made.shape, strict=True) if n > 1] if isinstance(made, torch.Tensor) \
        else None


def used(use, compose, data):
    torch.manual_seed(3)
    random.seed(3)
    try:
        made = USES[use](compose, Image.open(io.BytesIO(data)))
        pictures = made if isinstance(made, (list, tuple)) else [made]
        found = [described(one) for one in pictures], [strides(one) for one in pictures]
    except Exception as error:
        return re.sub(r"0x[0-9a-fA-F]+", "0x", f"{type(error).__name__}: {error}")
    return found, torch.get_rng_state().tolist(), random.getstate()


class TestTransforms(unittest.TestCase):
    def compare(self, composes, names):
        for number, compose in enumerate(composes):
            for name in names:
                for use in USES:
                    wanted = used(use, compose, files()[name])
                    with installed():
                        got = [used(use, compose, files()[name]) for _ in range(2)]
                    self.assertTrue(got[0] == wanted == got[1], f"list {number}, {use}, {name}")

    def test_lists(self):
        self.compare(lists(), ["(120, 160) 2", "(97, 61) progressive", "(120, 160) L", "(120, 160) CMYK", "(1, 1) 0",
                               "(97, 61) P PNG", "cut at 0.5", "damaged 3", "a marker c0 in it"])

    def test_it_is_read_again(self):
        """A Compose that was changed is followed, and its list is C's all the same."""
        data = files()["(120, 160) 2"]
        compose = v2.Compose([v2.RandomResizedCrop(20), *tail(v2)])
        for change in (lambda: None, lambda: setattr(compose.transforms[0], "size", [24, 30]),
                       lambda: compose.transforms.append(v2.Lambda(lambda tensor: tensor + 1)),
                       lambda: compose.transforms[2].mean.__setitem__(0, 0.9),
                       lambda: setattr(compose, "transforms", compose.transforms[:2])):
            change()
            self.compare([compose], ["(120, 160) 2"])
            with installed():
                used("rgb", compose, data)
                self.assertTrue(_lazy_transforms._Plans.known[compose].is_any)


# ---- in workers ----------------------------------------------------------------------------------

class Pictures:
    """As most people write them. how: what __getitem__ does."""

    def __init__(self, folder, how):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.how = how
        self.compose = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), *tail(v1)])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, n):
        return HOWS[self.how](self, self.paths[n], n)


def from_file(self, path, n):
    with open(path, "rb") as file:
        return self.compose(Image.open(file).convert("RGB")), file.closed, n


def tolerant(self, path, n):
    try:
        return self.compose(Image.open(path).convert("RGB")), n
    except OSError as error:
        return torch.zeros(3, 32, 32), len(str(error))


def by_steps(self, path, n):
    picture = Image.open(path)
    array = numpy.asarray(picture.convert("RGB").resize((40, 30)).crop((1, 2, 21, 22)))
    return torch.from_numpy(array.copy()), picture.size[0], picture.mode, n


HOWS = {
    "plain": lambda self, path, n: (self.compose(Image.open(path).convert("RGB")), n),
    "two views": lambda self, path, n: (lambda p: (self.compose(p), self.compose(p)))(Image.open(path).convert("RGB")),
    "hook": lambda self, path, n: Image.open is not _lazy._open,
    "from_file": from_file, "tolerant": tolerant, "by_steps": by_steps,
}


class TestWorkers(Case):
    @contextlib.contextmanager
    def folder(self, names):
        with tempfile.TemporaryDirectory() as folder:
            for n, name in enumerate(names):
                with open(os.path.join(folder, f"{n:03}.jpg"), "wb") as file:
                    file.write(files()[name])
            yield folder

    def told(self, kind, folder, how, **options):
        torch.manual_seed(5)
        random.seed(5)
        loader = kind(Pictures(folder, how), batch_size=2, num_workers=2, **options)
        try:
            return [described(leaf) for batch in loader for leaf in (batch if isinstance(batch, list) else [batch])]
        except Exception as error:
            return [type(error).__name__, str(error).splitlines()[-1]]

    def test_own_classes(self):
        whole = [name for name in files() if not is_damaged(name) and not name.startswith("(1, 1)")][:14]
        for names, hows in ((whole, [how for how in HOWS if how != "hook"]),
                            (["cut at 0.5", *whole[:3]], ["plain", "tolerant", "by_steps"])):
            with self.folder(names) as folder:
                for how in hows:
                    self.assertEqual(self.told(DataLoader, folder, how), self.told(TorchLoader, folder, how), how)

    def test_native_off(self):
        with self.folder(["(120, 160) 2"] * 4) as folder:
            for options, hooked in (({}, True), ({"native": "off"}, False)):
                found = self.told(DataLoader, folder, "hook", **options)
                self.assertEqual(found, [described(torch.tensor([hooked] * 2))] * 2)
        self.assertIs(Image.open, _lazy._open)


if __name__ == "__main__":
    unittest.main()
