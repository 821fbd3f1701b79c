"""torchvision and Pillow of versions that are not listed: compared with C where they are used, and said once."""

import random
import warnings
from unittest import mock

import torch

import test_with_torchvision as whole  # skips where there is no torchvision
from black_box import OURS
from dloaderd import _native, _native_pictures, _native_probe, _versions
from test_with_torchvision import torchvision, v1, v2


def drawing_hflip(picture, hflip=v1.functional.hflip):
    """Of a version that draws once more."""
    torch.rand(1)
    return hflip(picture)


def flipped_grey(picture, hflip=v1.functional.hflip):
    """Of a version that has grey pictures another way: C has to have seen one to know."""
    return picture if picture.mode == "L" else hflip(picture)


def across_first(picture, size, resample=None, *rest, resize=whole.Image.Image.resize, **options):
    """Of a Pillow that never has the columns' turn first, as before 13: where it would have been so, pixels differ."""
    return resize(resize(picture, (size[0], picture.height), resample), size, resample)


def wide_alone(picture, size, resample=None, *rest, resize=whole.Image.Image.resize, **options):
    """The same, of few sizes."""
    narrow = picture.height > 2 * picture.width
    return (across_first if narrow else resize)(picture, size, resample)


class Versions(whole.Pictures):
    """Versions that are not listed: what they make is compared with what C makes, and said once."""

    def setUp(self):
        for known in (_native_probe._found, _native_probe._resized, _versions._said):
            known.clear()
            self.addCleanup(known.clear)

    def lower(self, *transforms):
        """What was said of it, and why C does not do it; None: it does."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                why = _native_pictures.lower(self.folder(*transforms, compose=v1.Compose), whole.EXACT).why
            except _native.Unknown as unknown:
                why = str(unknown)
        return [str(one.message) for one in said if "what the tests run with" in str(one.message)], why

    def other(self, name):
        if name == "torchvision":
            return mock.patch.object(torchvision, "__version__", "0.99.1")
        if name == "Pillow":
            return mock.patch("PIL.__version__", "99.0.0")
        return mock.patch("platform.machine", lambda: "aarch64")

    def test_equal_ones_are_native_and_said_once(self):
        for name, words in (("torchvision", "torchvision 0.99.1:"), ("Pillow", "Pillow 99.0.0:"),
                            ("machine", "a processor of aarch64:")):
            with self.subTest(name), self.other(name):
                said, why = self.lower(v1.RandomHorizontalFlip(), v1.ToTensor())
                self.assertEqual((why, len(said)), (None, 1))
                self.assertRegex(said[0], f"^{words} not what the tests run with, but transforms gave what C's give, "
                                 rf"of {_native_probe.DRAWN} drawn pictures, in [\d.]+ m?s; C does the work$")
                self.assertEqual(self.lower(v1.RandomHorizontalFlip(), v1.ToTensor()), ([], None))

    def test_listed_ones_are_not_compared(self):
        with mock.patch.object(_native_probe, "_compare", side_effect=AssertionError):
            self.assertEqual(self.lower(v1.RandomHorizontalFlip(), v1.ToTensor()), ([], None))

    def test_different_ones_are_called_and_said_once(self):
        flip = v1.RandomHorizontalFlip()
        for other in (v1.functional.vflip, drawing_hflip, flipped_grey):
            with self.subTest(other.__name__), self.other("torchvision"), \
                    mock.patch.object(v1.functional, "hflip", other):
                self.setUp()
                said, why = self.lower(flip, v1.ToTensor())
                self.assertRegex(why, r"^torchvision 0\.99\.1: .* differ from C's: picture \d+ of \d+ became another")
                newest = _versions.PACKAGES["torchvision"].beginnings[-1]
                self.assertEqual(said, [f"{why}. Python does the work, slower; install torchvision {newest}, or a "
                                        "dloaderd that knows what is here"])
                self.assertEqual(self.lower(flip, v1.ToTensor()), ([], why))
                self.assertEqual(self.lower(v1.ToTensor())[1], None)  # which has no part in it

    def test_of_a_processor_the_remedy_is_no_package(self):
        with self.other("machine"), mock.patch.object(v1.functional, "hflip", v1.functional.vflip):
            said, why = self.lower(v1.RandomHorizontalFlip(), v1.ToTensor())
            self.assertEqual(said, [f"{why}. Python does the work, slower; install a dloaderd that knows what is here"])

    def test_resizing_that_differs_for_some_sizes(self):
        """Of these, the drawn pictures have none, or few: what resizing does is compared by itself."""
        for resize in across_first, wide_alone:
            for steps in ([v1.Resize((220, 230))], [v1.RandomApply([v1.RandomResizedCrop(224)], p=0.01)]):
                with self.subTest(resize.__name__, steps=steps), self.other("Pillow"), \
                        mock.patch.object(whole.Image.Image, "resize", resize):
                    self.setUp()
                    self.assertRegex(self.lower(*steps, v1.ToTensor())[1], r"^Pillow 99\.0\.0: .* differ from C's: "
                                     r"\d+ x \d+ pixels, resized by bilinear to \d+ x \d+, became others$")
                    nearest = v1.Resize((220, 230), v1.InterpolationMode.NEAREST)
                    self.assertIsNone(self.lower(nearest, v1.ToTensor())[1])

    def test_what_cannot_be_compared_is_called(self):
        with self.other("torchvision"):
            self.assertIn("none of the drawn pictures could be compared",
                          self.lower(v1.RandomCrop(5000), v1.ToTensor())[1])

    def test_generators_go_on_as_before(self):
        with self.other("torchvision"):
            torch.manual_seed(5)
            random.seed(5)
            before = torch.get_rng_state().tolist(), random.getstate()
            self.lower(v1.RandomHorizontalFlip(), v1.ToTensor())
            self.assertEqual((torch.get_rng_state().tolist(), random.getstate()), before)

    def test_random_pipelines(self):
        """All that is known is equal here, so what is drawn never differs."""
        for case in range(whole.CASES // 4):
            draw = random.Random(f"{whole.SEED} versions {case}")
            with self.subTest(case), self.other("torchvision"):
                why = self.lower(*whole.pipeline(draw, draw.choice([v1, v2])).transforms)[1] or ""
                self.assertNotIn("became another one", why)


if not OURS:
    del Versions
