"""Pictures of batches: which fields are images, masks and sounds, their colours, and the sheet, pixel by pixel."""

import io
import sys
import unittest
import unittest.mock
import warnings

import numpy
from dloaderd import _fields, _pictures, _sheet

try:
    from PIL import Image
except ImportError:
    Image = None

RNG = numpy.random.default_rng(5)
F4 = numpy.float32


def decode(png):
    """uint8 [h, w, 3]"""
    with Image.open(io.BytesIO(png), formats=["PNG"]) as read:
        assert read.mode == "RGB", read.mode
        return numpy.asarray(read)


def smooth(height, width):
    """What a photograph is like."""
    y, x = numpy.mgrid[:height, :width]
    return numpy.stack([(x * 3 + y) % 256, (y * 2) % 256, (x * y) % 256], 2).astype(numpy.uint8)


def field(path, array):
    return _fields.Field(path, numpy.asarray(array))


@unittest.skipUnless(Image, "needs Pillow")
class Fit(unittest.TestCase):
    def test_sizes(self):
        for shape, want in [((10, 20), (70, 140)), ((28, 28), (140, 140)), ((400, 200), (144, 72)),
                            ((1, 1000), (1, 144)), ((145, 145), (144, 144))]:
            with self.subTest(shape=shape):
                picture = RNG.integers(0, 256, (*shape, 3), numpy.uint8)
                self.assertEqual(numpy.asarray(_sheet._fit(picture)).shape, (*want, 3))

    def test_enlarged_pixels_are_squares(self):
        picture = RNG.integers(0, 256, (24, 16, 3), numpy.uint8)
        fitted = numpy.asarray(_sheet._fit(picture))
        numpy.testing.assert_array_equal(fitted, picture.repeat(6, 0).repeat(6, 1))

    def test_means(self):
        picture = RNG.integers(0, 256, (288, 288, 3), numpy.uint8)
        want = numpy.rint(picture.reshape(144, 2, 144, 2, 3).mean((1, 3)))
        self.assertLessEqual(abs(numpy.asarray(_sheet._fit(picture)).astype(int) - want).max(), 1)


class Kinds(unittest.TestCase):
    def test_layouts(self):
        for shape, dtype, want in [((32, 40, 3), "u1", "hwc"), ((3, 32, 40), "u1", "chw"), ((1, 28, 28), "f4", "chw"),
                                   ((28, 28, 1), "f4", "hwc"), ((28, 28), "u1", "hw"), ((28, 28), "f2", "hw"),
                                   ((4, 32, 32), "u1", "chw"), ((28, 28), "i8", None), ((3, 32, 32), "i4", None),
                                   ((4, 4), "f4", None), ((100,), "f4", None), ((2, 3, 32, 32), "f4", None),
                                   ((5, 32, 40), "f4", None), ((32, 32), "u4", None), ((0, 32, 3), "u1", None),
                                   ((32, 32), "u2", "hw"), ((32, 32), "?", "hw"), ((3, 3, 3), "u1", "hwc")]:
            with self.subTest(shape=shape, dtype=dtype):
                self.assertEqual(_pictures.layout_of(numpy.zeros(shape, dtype)), want)

    def test_image_and_masks(self):
        image, mask = field("image", numpy.zeros((3, 20, 30), F4)), field("mask", numpy.ones((20, 30), numpy.int64))
        small, flags = field("small", numpy.ones((20, 29), bool)), field("flags", numpy.ones((1, 20, 30), F4))
        depth = field("depth", numpy.full((20, 30), 0.3, F4))
        sample = [mask, depth, small, flags, image]
        self.assertIs(_pictures.image_of(sample), image)
        self.assertEqual([m.shape for m in _pictures.masks_of(sample, image)], [(20, 30), (20, 30)])

    def test_sounds(self):
        for path, shape, dtype, want in [("x", (16000,), "f4", True), ("x", (2, 16000), "i2", True),
                                         ("x", (16000, 1), "f4", True), ("x", (16000,), "i8", False),
                                         ("audio", (16000,), "i4", True), ("x", (100,), "f4", False),
                                         ("x", (9, 16000), "f4", False), ("x", (6, 16000), "i2", False),
                                         ("Audio", (6, 16000), "i2", True), ("speech", (16000, 8), "f4", True),
                                         ("audio", (9, 16000), "f4", False), ("audio", (0, 16000), "f4", False)]:
            with self.subTest(path=path, shape=shape, dtype=dtype):
                self.assertEqual(_pictures.wave_of([field(path, numpy.zeros(shape, dtype))]) is not None, want)
        # One that is called so comes before what might be one.
        both = [field("embedding", numpy.zeros(512, "f4")), field("audio", numpy.zeros((2, 16000), "i2"))]
        self.assertEqual(_pictures.wave_of(both).path, "audio")


class Colours(unittest.TestCase):
    def picture(self, images, normalised=None):
        scale = _pictures.scale_of(images, normalised)
        return _pictures.rgb(images[0], scale), scale.text

    def test_ranges(self):
        """Whatever a picture was made of, it looks as it was."""
        want = smooth(16, 20)
        unit = want / 255
        mean, deviation = map(numpy.array, _pictures.IMAGENET)
        own = ((unit - 0.2) / 0.1).astype(F4)
        for name, image, said, text in [
                ("uint8", want, None, ""), ("uint16", want.astype(numpy.uint16) * 257, None, ""),
                ("float", unit.astype(F4), None, "from 0 to 1"),
                ("half", unit.astype(numpy.float16), None, "from 0 to 1"),
                ("bytes", want.astype(F4), None, "from 0 to 255"),
                ("signed", (unit * 2 - 1).astype(F4), None, "from -1 to 1"),
                ("imagenet", ((unit - mean) / deviation).astype(F4), None, "ImageNet's mean and deviation, undone"),
                ("spec", own, ([0.2], [0.1]), "normalised as the spec says, undone")]:
            for layout in "hwc", "chw":
                with self.subTest(name, layout=layout):
                    got, told = self.picture([image if layout == "hwc" else image.transpose(2, 0, 1)], said)
                    self.assertEqual(told, text)
                    self.assertLessEqual(abs(got.astype(int) - want).max(), 0 if name != "half" else 1)

    def test_stretched(self):
        got, text = self.picture([numpy.linspace(-7, 20, 400, dtype=F4).reshape(20, 20)])
        self.assertEqual((got.min(), got.max(), text), (0, 255, "from -7 to 20, stretched"))
        got, _ = self.picture([numpy.full((20, 20), -7, F4)])
        self.assertEqual(got.max(), 0)

    def test_one_scale_for_all(self):
        """A dark image stays dark beside a bright one."""
        dark, bright = numpy.full((20, 20), 0.1, F4), numpy.full((20, 20), 30, F4)
        got, _ = self.picture([dark, bright])
        self.assertEqual(got[0, 0].tolist(), [0, 0, 0])

    def test_one_channel(self):
        for image in (numpy.full((20, 20), 7, numpy.uint8), numpy.full((20, 20, 1), 7, numpy.uint8),
                      numpy.full((1, 20, 20), 7, numpy.uint8)):
            self.assertEqual(self.picture([image])[0][3, 3].tolist(), [7, 7, 7])
        self.assertEqual(self.picture([numpy.ones((20, 20), bool)])[0][3, 3].tolist(), [255] * 3)

    def test_not_finite(self):
        image = numpy.full((3, 20, 20), 0.5, F4)
        image[0, 4, 5], image[1, 6, 7] = numpy.nan, numpy.inf
        got, text = self.picture([image])
        self.assertEqual((text, got[4, 5].tolist(), got[6, 7].tolist()), ("from 0 to 1", [255, 0, 255], [255, 0, 255]))
        self.assertEqual(got[0, 0].tolist(), [128] * 3)
        nothing, _ = self.picture([numpy.full((20, 20), numpy.nan, F4)])
        self.assertEqual(nothing[0, 0].tolist(), [255, 0, 255])

    def test_overlay(self):
        picture = numpy.full((2, 4, 3), 100, numpy.uint8)
        got = _pictures.overlay(picture, numpy.array([[0, 1, 2, 255], [8, 0, 0, 0]]))
        self.assertEqual(got[0].tolist(), [[100, 100, 100], [165, 130, 50], [93, 140, 166], [114, 114, 114]])
        self.assertEqual(got[1, 0].tolist(), got[0, 1].tolist())  # the colours go round

    def test_waveform(self):
        sound = numpy.zeros(300, F4)
        sound[:100], sound[100:200] = 1, -1
        got = _pictures.waveform(sound, 21, 30)
        blue = (got == (0, 114, 178)).all(2)
        self.assertTrue(blue[0, :10].all() and blue[20, 10:20].all() and blue[10, 20:].all())
        self.assertFalse(blue[1:, :10].any() or blue[:20, 10:20].any())
        stereo = _pictures.waveform(numpy.stack([sound, sound]), 42, 30)
        numpy.testing.assert_array_equal(stereo[:21], got)
        numpy.testing.assert_array_equal(stereo[21:], got)
        whole = _pictures.waveform(numpy.full(300, -32768, numpy.int16), 21, 30)
        self.assertTrue((whole[20] == (0, 114, 178)).all())

    def test_waveform_not_finite(self):
        sound = numpy.zeros(300, F4)
        sound[5] = numpy.nan
        got = _pictures.waveform(sound, 21, 30)
        self.assertTrue((got[:, 0] == (255, 0, 255)).all() and not (got[:, 1] == (255, 0, 255)).all(1).any())


class Samples(unittest.TestCase):
    def test_shapes_of_batches(self):
        """What people's loaders give, and the paths of each sample's fields."""
        image, label = numpy.zeros((4, 3, 16, 16), F4), numpy.arange(4)
        one = {"image": image[0], "label": 3}
        for name, batch, n, want in [
                ("dict", {"image": image, "label": label}, None, (4, ["image", "label"])),
                ("pair", [image, label], None, (4, ["0", "1"])), ("tuple", (image, label), 4, (4, ["0", "1"])),
                ("bare", image, None, (4, [""])),
                ("names", {"image": image, "name": list("abcd")}, None, (4, ["image", "name"])),
                ("list", [one, one], None, (2, ["image", "label"])), ("listed", [one, one], 2, (2, ["image", "label"])),
                ("one", one, 1, (1, ["image", "label"])),
                ("two", {"image": image[:2], "label": label[:2]}, 2, (2, ["image", "label"])),
                ("pair of two", [image[:2], label[:2]], 2, (2, ["0", "1"])),
                ("unequal", [image[0], image[0, :, :9]], None, (2, [""])),
                ("beside", {"image": image, "scale": numpy.float32(2)}, None, (4, ["image"])),
                ("nothing", {}, None, (0, []))]:
            with self.subTest(name):
                samples = _fields.samples_of(_fields.of_batch(batch), n)
                self.assertEqual((len(samples), [one.path for one in samples[0]] if samples else []), want)

    def test_what_is_passed_over(self):
        fields = _fields.of_batch({"a": object(), "b": None, "c": numpy.array(["x"]), "d": 1j, "e": b"\xff", 5: [1, 2]})
        self.assertEqual([(one.path, one.texts, None if one.array is None else one.array.tolist()) for one in fields],
                         [("e", ["\N{REPLACEMENT CHARACTER}"], None), ("5", None, [1, 2])])


@unittest.skipUnless(Image, "needs Pillow")
class Sheet(unittest.TestCase):
    MARGIN, TOP, SIDE, GAP = 12, 12 + 2 * 14 + 8, 144, 8

    def draw(self, batch, **told):
        made = _sheet.Told(**told)
        return numpy.asarray(_sheet.draw(_fields.samples_of(_fields.of_batch(batch)), made)), made

    def test_where_pictures_are(self):
        image = numpy.zeros((10, 24, 24, 3), numpy.uint8)
        image[:] = (numpy.arange(10) * 20)[:, None, None, None]
        got, told = self.draw({"image": image, "label": numpy.arange(10)}, title="t")
        self.assertEqual(told.more, ["image: uint8 [24, 24, 3]"])
        for i in range(10):
            top = self.TOP + i // 8 * (self.SIDE + 12 + 4 + self.GAP)
            left = self.MARGIN + i % 8 * (self.SIDE + self.GAP)
            cell = got[top:top + self.SIDE, left:left + self.SIDE]
            self.assertTrue((cell == i * 20).all(), i)
            self.assertFalse((got[top:top + self.SIDE, left - 2:left] == i * 20).all())

    def written(self, sheet, cell, row):
        """Whether there is text in that line below a picture."""
        top, left = self.TOP + self.SIDE + 4 + row * 12, self.MARGIN + cell * (self.SIDE + self.GAP)
        return bool((sheet[top:top + 12, left:left + self.SIDE] != 250).any())

    def test_captions(self):
        image = numpy.zeros((2, 144, 144), numpy.uint8)
        got, _ = self.draw({"image": image, "label": numpy.array([1, 7])}, title="t", marks=["#12", "#3"],
                           names=["a/b.jpg", ""], classes=["cat", "dog"])
        self.assertEqual([[self.written(got, cell, row) for row in range(3)] for cell in (0, 1)],
                         [[True, True, True], [True, True, False]])
        other, _ = self.draw({"image": image, "label": numpy.array([1, 7])}, title="t", marks=["#12", "#3"],
                             names=["a/b.jpg", ""], classes=["cat", "cow"])
        rows = numpy.flatnonzero((got != other).any((1, 2)))
        self.assertTrue(rows.min() >= self.TOP + self.SIDE + 4 + 12 and rows.max() < self.TOP + self.SIDE + 4 + 24)

    def test_texts_of_any_kind(self):
        """What is too long stays in its column; what the font lacks, and what is no text, is drawn as something."""
        image = numpy.zeros((2, 144, 144), numpy.uint8)
        for name in "x" * 300, "日本語", "a\nb\x1b\0", "Éclair", "\udcff":
            with self.subTest(name=name):
                got, _ = self.draw({"image": image}, title=name, marks=["#1", "#2"], names=[name, ""])
                self.assertTrue(self.written(got, 0, 1))
                self.assertFalse(self.written(got, 1, 1))
                gap = got[self.TOP:, self.MARGIN + self.SIDE:self.MARGIN + self.SIDE + self.GAP]
                self.assertTrue((gap == 250).all())

    def test_key_of_a_shard(self):
        """It is a name, and none of the labels."""
        image = numpy.zeros((1, 144, 144), numpy.uint8)
        got, _ = self.draw({"__key__": ["n01/5"], "image": image, "cls": [5]}, title="t", marks=["#0"])
        self.assertEqual([self.written(got, 0, row) for row in (1, 2)], [True, True])

    def test_labels(self):
        for batch, want in [({"x": numpy.arange(2)}, ["x 0"]), ({"t": ["one\ntwo", "x"]}, ["t one two"]),
                            ({"a": numpy.zeros(2), "label": numpy.arange(2)}, ["label 0", "a 0"]),
                            ({"a": [1.5, 2], "b": [True, False], "c": [3, 4]}, ["a 1.5", "b True"]),
                            ({"y": numpy.array([[0.7, 0, 0.3], [1, 0, 0]])}, ["y 0.7 x 0 cat + 0.3 x 2"]),
                            ([numpy.zeros(2, int)], ["label 0 cat"])]:
            with self.subTest(batch=batch):
                sample = _fields.samples_of(_fields.of_batch(batch))[0]
                self.assertEqual(_sheet._labels(sample, ["cat"] if want[0].count("cat") else None), want)

    def test_many(self):
        got, told = self.draw({"image": numpy.zeros((100, 9, 9), numpy.uint8)})
        self.assertIn("64 of 100 samples", told.more)
        self.assertLess(got.shape[0], 8 * 160 + 100)

    def test_unequal_sizes(self):
        _, told = self.draw([{"image": numpy.zeros((3, 20, 30 + i), numpy.uint8)} for i in range(3)])
        self.assertEqual(told.more, ["image: uint8 [3, 20, *]"])

    def test_masks_are_told(self):
        image = numpy.zeros((2, 20, 20, 3), numpy.uint8)
        _, told = self.draw({"image": image, "mask": numpy.ones((2, 20, 20), int)})
        self.assertEqual(told.more, ["image: uint8 [20, 20, 3], masks over it"])

    def test_nothing_to_be_seen(self):
        for batch in {"tokens": numpy.zeros((2, 9), int)}, {}, {"text": ["a", "b"]}:
            with self.subTest(batch=batch):
                with self.assertRaisesRegex(_sheet.NoPictures, "no field of a sample is an image"):
                    self.draw(batch)

    def test_anything(self):
        """Whatever shapes and types there are, there is a sheet or a reason."""
        drawn = 0
        for _ in range(400):
            batch = {}
            for key in "image", "mask", "label":
                shape = (3, *RNG.choice((0, 1, 2, 3, 4, 9, 30), RNG.integers(0, 4)))
                dtype = str(RNG.choice(("u1", "u2", "u4", "i1", "i8", "f2", "f4", "f8", "?")))
                with numpy.errstate(all="ignore"):
                    batch[key] = (RNG.normal(0, 10.0 ** RNG.choice((-3, 0, 9, 300)), shape)).astype(dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    self.draw(batch)
                    drawn += 1
                except _sheet.NoPictures:
                    pass
        self.assertGreater(drawn, 50)


class WithoutPillow(unittest.TestCase):
    def test_reason(self):
        samples = _fields.samples_of(_fields.of_batch({"image": numpy.zeros((2, 20, 20), numpy.uint8)}))
        with unittest.mock.patch.dict(sys.modules, {"PIL": None}):
            with self.assertRaisesRegex(_sheet.NoPictures, "pip install pillow"):
                _sheet.draw(samples, _sheet.Told())
