"""What explain() tells of a class of the user's own, before and after batches were made; nobody sees it look."""

import cProfile
import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import threading
import unittest

import numpy
import torch

from black_box import Case, DataLoader

try:
    from PIL import Image
    from torchvision import transforms
except ImportError as error:
    raise unittest.SkipTest(f"torchvision or PIL cannot be imported: {error}") from None

import dloaderd
from dloaderd import _sampled, _versions

if _versions.not_compared("torchvision", "PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('torchvision', 'PIL')} is not compared")

COUNT = 48
WORDS = json.dumps(list(range(20000)))


# ---- datasets: functions that make a sample of a path, which Own calls -------------------------------

COMPOSE = transforms.Compose([transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(),
                              transforms.ToTensor()])


def sized(picture):
    json.loads(WORDS)
    return picture.width


CALLED = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.Lambda(sized)])


def opened(own, path):
    return own.transform(Image.open(path).convert("RGB"))


def with_words(own, path):
    json.loads(WORDS)
    return opened(own, path)


def as_array(own, path):
    return numpy.asarray(Image.open(path).convert("RGB"))


def filtered(own, path):
    return numpy.asarray(Image.open(path).effect_spread(3).convert("L"))


def drafted(own, path):
    picture = Image.open(path)
    picture.draft("YCbCr", (80, 60))
    return numpy.asarray(picture.convert("RGB"))


def of_another_file(own, path):
    """Whose class is none of io's."""
    with open(path, "rb") as file:
        return numpy.asarray(Image.open(tempfile._TemporaryFileWrapper(file, path, delete=False)).convert("RGB"))


def unpictured(own, path):
    return json.loads(WORDS)[0]


def watchful(own, path):
    """What it could see of a profiler or of another thread; it profiles itself, too."""
    seen = [sys.getprofile() is None, sys.gettrace() is None, threading.active_count() == 1,
            len(sys._current_frames()) == 1, len(os.listdir("/proc/self/task")) == own.threads]
    profile = cProfile.Profile()
    profile.runcall(json.loads, WORDS)
    return torch.tensor([*seen, any(getattr(one.code, "co_name", "") == "loads" for one in profile.getstats())])


def failing(own, path):
    if os.path.exists(own.mark):
        raise ValueError("it is there")
    return json.loads(WORDS)[0]


def noisy(own, path):
    os.write(1, b"it is made\n")
    return json.loads(WORDS)[0]


class Own(torch.utils.data.Dataset):
    def __init__(self, paths, make, transform=COMPOSE):
        self.paths, self.make, self.transform = paths, make, transform
        self.threads = 1
        self.mark = os.path.join(os.path.dirname(paths[0]), "mark")

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return self.make(self, self.paths[index % len(self.paths)])


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, own):
        self.own = own

    def __iter__(self):
        return (self.own[n] for n in range(COUNT))


def by_lists(samples):
    json.loads(WORDS)
    return samples


def told(loader):
    out = io.StringIO()
    dloaderd.explain(loader, out)
    return out.getvalue()


class Files(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.jpegs = [os.path.join(cls.folder, f"{n}.jpg") for n in range(3)]
        for n, path in enumerate(cls.jpegs):
            Image.effect_mandelbrot((320, 240), (-2, -1, 1, 1 + n), 50).convert("RGB").save(path)
        cls.png = os.path.join(cls.folder, "a.png")
        Image.open(cls.jpegs[0]).save(cls.png)

    def own(self, make, *transform, png=False):
        return Own([*self.jpegs, self.png] if png else self.jpegs, make, *transform)


NATIVE = r"pictures +C +JPEG files that its code opens by Pillow\n"
MEASURED = r"measured +Python +\d\S* \S+ of \d\S* \S+ a sample"


class TestExplain(Files):
    def test_what_it_says(self):
        # Words before an epoch and after it, as regular expressions; a "!" before what must not be there.
        cases = {
            "Compose": (self.own(opened), {},
                        [NATIVE, r"transform +C +RandomResizedCrop, RandomHorizontalFlip, ToTensor\n"],
                        [NATIVE, r"opened +C +100 % of its pictures\n", MEASURED]),
            "a step that is called": (self.own(opened, CALLED), {},
                                      [r"transform +C +RandomHorizontalFlip\ntransform +Python +Lambda"],
                                      [r"opened +C +100 %", MEASURED + r": .*json\.loads \d+ %"]),
            "json": (self.own(with_words), {}, [NATIVE], [r"opened +C +100 %", MEASURED + r": .*json\.loads \d+ %"]),
            "an array": (self.own(as_array), {}, [NATIVE], [r"opened +C +100 %", MEASURED]),
            "another method": (self.own(filtered), {}, [NATIVE],
                               [r"opened +\S+ +100 % ", "effect_spread"]),
            "PNG, too": (self.own(as_array, png=True), {}, [NATIVE],
                         [r"opened +C +7\d % ", r"opened +Pillow +2\d % of its pictures  \(files that are PNG\)"]),
            "a draft": (self.own(drafted), {}, [NATIVE],
                        [r"!opened +C", r"opened +Pillow +100 % of its pictures  \(JPEG files with a draft\(\)"]),
            "a file of its own": (self.own(of_another_file), {}, [NATIVE],
                                  [r"!opened +C", r"opened +Pillow +100 % .*_TemporaryFileWrapper"]),
            "no pictures": (self.own(unpictured), {}, [NATIVE], ["!opened", MEASURED + r": json\.loads \d+ %"]),
            "native off": (self.own(with_words), {"native": "off"}, [r"native='off'", "!pictures"],
                           [r"native='off'", "!pictures", "!opened", "!measured"]),
            "no workers": (self.own(with_words), {"num_workers": 0}, [r"pictures +Python .*num_workers=0"],
                           [r"pictures +Python .*num_workers=0", "!opened", "!measured"]),
            "iterable": (Stream(self.own(with_words)), {}, [NATIVE],
                         ["!opened", MEASURED + r"  \(an iterable dataset is not asked for more"]),
            "collate_fn": (self.own(as_array), {"collate_fn": by_lists, "batch_size": 1}, [NATIVE],
                           [MEASURED + r": .*json\.loads \d+ %"]),
            "sizes of their own": (self.own(unpictured),
                                   {"batch_size": 1, "batch_sampler": [range(5), range(5, 9), range(9, 20)]}, [NATIVE],
                                   [r"measured .* of \d\S* \S+ a batch: json\.loads"]),
            "tensors": (torch.zeros(COUNT, 3), {}, ["!pictures"], [r"measured +Python +0 s of [^:]*\n?$"]),
            "all workers stay": (self.own(with_words), {"persistent_workers": True}, [NATIVE], [MEASURED]),
            "spawned": (self.own(unpictured), {"multiprocessing_context": "spawn"}, [NATIVE],
                        [MEASURED + r": json\.loads \d+ %"]),
        }
        for name, (dataset, options, before, after) in cases.items():
            loader = DataLoader(dataset, **{"batch_size": 8, "num_workers": 2, **options})
            with self.subTest(name):
                self.check(told(loader), [*before, "!measured", "!opened"])
                for _ in loader:
                    pass
                self.check(told(loader), after)

    def check(self, text, words):
        for one in words:
            (self.assertNotRegex if one[0] == "!" else self.assertRegex)(text, one.lstrip("!"))

    def test_in_the_middle(self):
        loader = DataLoader(self.own(with_words), batch_size=2, num_workers=2)
        iterator = iter(loader)
        next(iterator)
        self.assertRegex(told(loader), MEASURED)
        self.assertEqual(len(list(iterator)), COUNT // 2 - 1)
        for _ in loader:
            break
        self.assertRegex(told(loader), MEASURED)

    def test_parts_of_it(self):
        """Of a Subset and a ConcatDataset transforms are told, too, each once."""
        whole = torch.utils.data.ConcatDataset([self.own(opened), torch.utils.data.Subset(self.own(opened), range(5))])
        self.assertEqual(len(re.findall(r"transform +C +RandomResizedCrop", told(DataLoader(whole, num_workers=2)))), 1)


class TestUnseen(Files):
    def test_in_workers(self):
        """What the dataset could see of a look, in all batches of a loader that is explained meanwhile."""
        own = self.own(watchful)
        probe = DataLoader(own, batch_size=1, num_workers=1, native="off")
        own.threads = self.threads_of_a_worker(probe)
        loader = DataLoader(own, batch_size=8, num_workers=2, persistent_workers=True)
        for _ in range(2):
            for seen in loader:
                self.assertTrue(seen.all(), seen)
                told(loader)

    def threads_of_a_worker(self, loader):
        def tasks(own, path):
            return len(os.listdir("/proc/self/task"))
        loader.dataset.make = tasks
        found = int(next(iter(loader)))
        loader.dataset.make = watchful
        return found

    def test_generators(self):
        def states():
            return torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()
        loader = DataLoader(self.own(with_words), batch_size=8, num_workers=2, shuffle=True)
        orders = []
        for asks in (False, True):
            torch.manual_seed(7)
            epochs = []
            for _ in range(2):
                epochs.append([batch.sum().item() for batch in loader])
                before = states()
                if asks:
                    self.assertRegex(told(loader), MEASURED)
                self.assertEqual(states(), before)
            orders.append(epochs)
        self.assertEqual(*orders)

    def test_a_dataset_that_fails(self):
        """Names are left out, the times are there."""
        own = self.own(failing)
        loader = DataLoader(own, batch_size=8, num_workers=2)
        for _ in loader:
            pass
        with open(own.mark, "w"):
            pass
        try:
            self.assertRegex(told(loader), MEASURED + r"\n")
        finally:
            os.remove(own.mark)
        self.assertRegex(told(loader), MEASURED + r": json\.loads")

    def test_words_are_thrown_away(self):
        loader = DataLoader(self.own(noisy), batch_size=8, num_workers=2)
        with self.words_of() as of_loop:
            for _ in loader:
                pass
        with self.words_of() as of_explain:
            self.assertRegex(told(loader), MEASURED + r": json\.loads")
        self.assertEqual((of_loop[0].count(b"it is made"), of_explain[0]), (COUNT, b""))

    @contextlib.contextmanager
    def words_of(self):
        """What comes to this process's standard output meanwhile, in a list."""
        found = []
        sys.stdout.flush()
        with tempfile.TemporaryFile() as file:
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                yield found
            finally:
                os.dup2(kept, 1)
                os.close(kept)
                file.seek(0)
                found.append(file.read())


class TestNames(unittest.TestCase):
    def frames(self, *files):
        """A chain of them, the outermost first: (file, function)."""
        code = "def {0}(*rest):\n    return rest[0](*rest[1:]) if rest else sys._getframe()"
        made = []
        for file, name in files:
            scope = {"sys": sys, "__name__": os.path.basename(file).removesuffix(".py")}
            exec(compile(code.format(name), file, "exec"), scope)
            made.append(scope[name])
        return made[0](*made[1:])

    def test_whose_it_is(self):
        packages, library = "/x/site-packages/", os.path.dirname(os.__file__)
        ours = os.path.dirname(_sampled.__file__) + "/"
        end, user = (ours + "_sampled.py", "make"), ("/home/u/train.py", "getitem")
        for chain, want in (
                ((user,), "getitem"),
                ((user, ("/home/u/more.py", "helper")), "helper"),
                ((user, (library + "/json.py", "loads"), (library + "/decoder.py", "decode")), "json.loads"),
                ((user, (packages + "timm.py", "call"), ("/home/u/more.py", "helper")), "helper"),
                ((user, (ours + "_lazy.py", "crop")), None),
                ((user, (ours + "_lazy.py", "crop"), (library + "/abc.py", "check")), None),
                ((user, (ours + "_lazy.py", "settle"), (packages + "PIL.py", "load")), "PIL.load"),
                ((user, (packages + "PIL.py", "open"), (ours + "_lazy.py", "convert")), None),
                (((packages + "datasets.py", "get"), (library + "/json.py", "loads")), "datasets.get"),
                ((), None)):
            with self.subTest(chain):
                frame = self.frames(end, *chain)
                outermost = frame
                while outermost.f_code.co_name != "make":
                    outermost = outermost.f_back
                self.assertEqual(_sampled.function_of(frame, outermost.f_code), want)
                self.assertIsNone(_sampled.function_of(frame, None))  # not called by it
