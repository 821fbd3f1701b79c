"""Pictures that a dataset's own code opens, decoded and transformed by C in workers (_lazy.py, _lazy_transforms.py):
lists of torchvision's transforms, datasets' own classes."""

import contextlib
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent import futures
from unittest import mock

import numpy
import torch

import trainers
from black_box import PATIENCE, Case, DataLoader, TorchLoader

try:
    from PIL import Image, ImageOps
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

from pillow_files import described, files, hooked, is_damaged

from dloaderd import _lazy, _lazy_pending, _lazy_transforms, _native_pictures, _versions

if _versions.not_compared("torchvision", "PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('torchvision', 'PIL')} is not compared")


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
        yield generation.Compose([crop, generation.ToTensor(), generation.Normalize(torch.tensor([0.4, 0.5, 0.6]),
                                                                                    torch.tensor([0.2, 0.3, 0.1]))])
    yield v1.Compose([])
    yield v2.Compose([v2.ToImage(), v2.RandomResizedCrop(33), v2.ToDtype(torch.float32, scale=True)])
    yield v2.Compose([v2.RandomResizedCrop(33), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


@contextlib.contextmanager
def installed():
    """As in a worker."""
    kinds = [(v1.Compose, "__call__"), (v2.Compose, "forward"), (v1.functional, "to_tensor"), (Image, "open")]
    theirs = [getattr(kind, method) for kind, method in kinds]
    with hooked():
        with mock.patch.object(_lazy, "hook"):
            _lazy.install()
        try:
            yield
        finally:
            for (kind, method), one in zip(kinds, theirs, strict=True):
                setattr(kind, method, one)


USES = {
    "grey": lambda compose, picture: compose(picture.convert("L")),
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

    def test_to_tensor_alone(self):
        """As others' transforms have it: by C, but for other types than float32, and for what somebody put there."""
        for name in "(120, 160) 2", "(120, 160) L", "cut at 0.5":
            for make in v1.functional.to_tensor, v1.ToTensor():
                for dtype, by_c in (torch.float32, name != "cut at 0.5"), (torch.float64, False):
                    before = torch.get_default_dtype()
                    torch.set_default_dtype(dtype)
                    try:
                        wanted = used("as it is", make, files()[name])
                        with installed(), mock.patch.object(_lazy_transforms.Part, "_finish", autospec=True,
                                                            side_effect=_lazy_transforms.Part._finish) as made:
                            function = v1.functional.to_tensor if not isinstance(make, v1.ToTensor) else make
                            got = used("as it is", function, files()[name])
                    finally:
                        torch.set_default_dtype(before)
                    self.assertTrue(got == wanted, (name, make, dtype))
                    self.assertEqual(made.called, by_c, (name, make, dtype))
        with mock.patch.object(v1.functional, "to_tensor", lambda pic: "mine"), installed():
            self.assertEqual(v1.ToTensor()(Image.open(io.BytesIO(files()["(120, 160) 2"]))), "mine")

    def test_it_is_read_again(self):
        """A Compose that was changed is followed, and its list is C's all the same."""
        data = files()["(120, 160) 2"]
        compose = v2.Compose([v2.RandomResizedCrop(20), *tail(v2)])
        mean = torch.tensor([0.2, 0.3, 0.4])
        for change in (lambda: None, lambda: setattr(compose.transforms[0], "size", [24, 30]),
                       lambda: compose.transforms.append(v2.Lambda(lambda tensor: tensor + 1)),
                       lambda: compose.transforms[2].mean.__setitem__(0, 0.9),
                       lambda: compose.transforms.insert(3, v1.Normalize(mean, [0.1, 0.2, 0.3])),
                       lambda: mean.mul_(2),
                       lambda: setattr(compose, "transforms", compose.transforms[:2])):
            change()
            self.compare([compose], ["(120, 160) 2"])
            with installed():
                used("rgb", compose, data)
                self.assertTrue(_lazy_transforms._Plans.known[compose].is_any)

    def test_hooks(self):
        """Of a transform, and of all of them: what they do is done."""
        compose = v2.Compose([v2.RandomResizedCrop(20), *tail(v2)])
        def doubled(module, inputs, made):
            return made * 2 if isinstance(made, torch.Tensor) else made
        everywhere = torch.nn.modules.module.register_module_forward_hook
        for register in compose.transforms[2].register_forward_hook, everywhere:
            self.compare([compose], ["(120, 160) 2"])
            with installed():
                used("rgb", compose, files()["(120, 160) 2"])
                hook = register(doubled)
                got = used("rgb", compose, files()["(120, 160) 2"])
            self.assertTrue(got == used("rgb", compose, files()["(120, 160) 2"]))
            hook.remove()


class Counting:
    """_worker, with how many whole pictures and parts of them it decodes."""

    def __init__(self, theirs):
        self.theirs = theirs
        self.decoded = 0

    def __getattr__(self, name):
        return getattr(self.theirs, name)

    def picture_steps(self, data, height, *more):
        self.decoded += height == 0
        return self.theirs.picture_steps(data, height, *more)

    def picture_of_file(self, *args):
        self.decoded += 1
        return self.theirs.picture_of_file(*args)


class TestManyViews(unittest.TestCase):
    """One file, ten views."""

    def decoded(self, views):
        compose = v1.Compose([v1.RandomResizedCrop(20), v1.RandomHorizontalFlip(), *tail(v1)])
        counting, found = Counting(_lazy_pending._worker), []
        with installed(), mock.patch.object(_lazy.Source, "again", False), \
                mock.patch.object(_lazy_pending, "_worker", counting), \
                mock.patch.object(_lazy_transforms, "_worker", counting):
            for _ in range(3):
                before = counting.decoded
                picture = Image.open(io.BytesIO(files()["(120, 160) 2"])).convert("RGB")
                for _ in range(5 * views):
                    compose(picture)
                    picture.crop((1, 2, 50, 60)).resize((20, 30)).tobytes()
                found.append(counting.decoded - before)
                del picture
        return found

    def test_they_are_decoded_once(self):
        """But for the first file, of which nobody knows yet that there will be more than one."""
        self.assertEqual(self.decoded(2), [2, 1, 1])


class TestThreads(unittest.TestCase):
    """Of the dataset's own: each with pictures of its own, and all with the same one."""

    def test_equal(self):
        names = [name for name in files() if not is_damaged(name) and not name.startswith("(1, 1)")]
        steps = [lambda p: p.tobytes(), lambda p: p.crop((1, 2, 20, 30)).resize((9, 8)).tobytes(),
                 lambda p: numpy.asarray(p).tobytes(), lambda p: p.getpixel((3, 4)), lambda p: p.info.keys(),
                 lambda p: p.transpose(0).resize((30, 20), 1).getpixel((5, 6)), lambda p: p.copy().mode]

        def run(pictures, seed):
            rng = random.Random(seed)
            return [described(rng.choice(steps)(pictures[rng.randrange(len(pictures))])) for _ in range(30)]

        def opened(opener):
            return [opener(io.BytesIO(files()[name])).convert("RGB") for name in names]
        wanted = [run(opened(_lazy._open), seed) for seed in range(12)]
        with hooked(), futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(lambda seed: run(opened(_lazy.open_lazily), seed), range(12))), wanted)
            for _ in range(3):
                shared = opened(_lazy.open_lazily)
                self.assertEqual(list(pool.map(lambda seed: run(shared, seed), range(12))), wanted)


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
    "waits": lambda self, path, n: (Image.open is _lazy.open_lazily,
                                    Image.open(path).convert("RGB") and Image.open is _lazy.open_lazily),
    "hook": lambda self, path, n: Image.open is not _lazy._open,
    "from_file": from_file, "tolerant": tolerant, "by_steps": by_steps,
}


UNOPENED = """
import sys
import PIL.Image
from dloaderd import DataLoader
class Own:
    def __len__(self):
        return 2
    def __getitem__(self, n):
        return "dloaderd._lazy" in sys.modules
print([bool(one) for one in DataLoader(Own(), num_workers=1)])
"""


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
        loader = kind(Pictures(folder, how), **{"batch_size": 2, "num_workers": 2, **options})
        try:
            return [described(leaf) for batch in loader for leaf in (batch if isinstance(batch, list) else [batch])]
        except Exception as error:
            return [type(error).__name__, str(error).splitlines()[-1]]

    def test_own_classes(self):
        whole = [name for name in files() if not is_damaged(name) and not name.startswith("(1, 1)")][:14]
        for names, hows in ((whole, [how for how in HOWS if how not in ("hook", "waits")]),
                            (["cut at 0.5", *whole[:3]], ["plain", "tolerant", "by_steps"])):
            with self.folder(names) as folder:
                for how in hows:
                    self.assertEqual(self.told(DataLoader, folder, how), self.told(TorchLoader, folder, how), how)

    def test_images_of_datasets(self):
        """A column of the feature Image, as set_transform() has it: its own code's load() is put off."""
        _, datasets = trainers.need("pyarrow", "datasets")
        names = [name for name in files() if not is_damaged(name) and not name.startswith("(1, 1)")][:14]
        features = datasets.Features({"image": datasets.Image(), "n": datasets.Value("int64")})
        data = datasets.Dataset.from_dict({"image": [{"bytes": files()[name], "path": None} for name in names],
                                           "n": list(range(len(names)))}, features)
        compose = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), *tail(v1)])

        def transformed(rows):
            pictures = rows.pop("image")
            rows["waits"] = [type(vars(one)["_im"]) is _lazy.Pending for one in pictures]
            rows["pixels"] = [compose(one.convert("RGB")) for one in pictures]
            return rows
        data.set_transform(transformed)
        found = []
        for kind in DataLoader, TorchLoader:
            torch.manual_seed(5)
            batches = list(kind(data, batch_size=2, num_workers=2))
            found.append([(described(one["pixels"]), one["n"].tolist()) for one in batches])
            waiting = [name for one, pair in zip(batches, zip(names[::2], names[1::2], strict=True), strict=True)
                       for name, waits in zip(pair, one["waits"].tolist(), strict=True) if waits]
            self.assertEqual(waiting, [one for one in names if "PNG" not in one] if kind is DataLoader else [])
        self.assertEqual(*found)

    def test_what_is_probed(self):
        """Before the first batch: no more than what is put off."""
        asked = []
        with mock.patch.object(_native_pictures.Probe, "_is_alike", lambda format, **_: asked.append(format) or True):
            self.assertIsNone(_lazy._why_other.__wrapped__())
        self.assertEqual(set(asked), {"JPEG"})

    def test_it_waits_for_a_picture(self):
        """Packages import Pillow for other things, too: until a picture is opened, nothing is imported or probed."""
        with self.folder(["(120, 160) 2"] * 2) as folder:
            found = self.told(DataLoader, folder, "waits", batch_size=1)
        self.assertEqual(found, [described(torch.tensor([one])) for _ in range(2) for one in (False, True)])
        ended = subprocess.run([sys.executable, "-c", UNOPENED], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, timeout=4 * PATIENCE)
        self.assertEqual((ended.stdout, ended.stderr), ("[False, False]\n", ""))

    def test_native_off(self):
        with self.folder(["(120, 160) 2"] * 4) as folder:
            for options, hooked in (({}, True), ({"native": "off"}, False)):
                found = self.told(DataLoader, folder, "hook", **options)
                self.assertEqual(found, [described(torch.tensor([hooked] * 2))] * 2)
            found = self.told(DataLoader, folder, "hook", num_workers=0)
            self.assertEqual(found, [described(torch.tensor([False] * 2))] * 2)
        self.assertIs(Image.open, _lazy._open)
