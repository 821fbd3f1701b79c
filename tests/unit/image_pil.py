"""Compares images as the daemon decodes them with what PIL makes of the same files, the keyed
generator and the boxes of random crops with NumPy's Philox and torchvision's rule, and the order
of an image folder with torchvision's.

Usage: image_pil.py CHECK_IMAGE. Exit status 77: no PIL or no NumPy here.

Pixels: without libjpeg's own reduction all are those of Pillow 13, and of an older one within one step of 255. With it,
which PIL's resize() does not use, the mean difference is at most one step.
"""

import ctypes
import io
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import numpy as np
    import PIL
    import tiff_files
    from PIL import Image, features
except ImportError:
    print("skipped: NumPy or PIL cannot be imported (Debian: python3-numpy, python3-pil)")
    sys.exit(77)

CHECK_IMAGE = ""
# Of the difference: the greatest, and the mean. Older ones always resize across first.
RESIZED = (0, 0) if int(PIL.__version__.split(".")[0]) >= 13 else (1, 0.3)
GAP = 1.5  # reduce_gap of daemon/data/decode/image/image.c

# Photographs, where Debian's packages of wallpapers are installed.
PHOTOS = [
    "/usr/share/wallpapers/Autumn/contents/images/1280x1024.jpg",
    "/usr/share/wallpapers/FallenLeaf/contents/images/2560x1600.jpg",
    "/usr/share/wallpapers/BytheWater/contents/images/1280x800.jpg",
]


class Tool:
    """One check_image, asked line by line."""

    def __init__(self, folder):
        self.out = os.path.join(folder, "out")
        self.child = subprocess.Popen([CHECK_IMAGE], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, *words):
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            raise AssertionError(f"check_image ended with status {self.child.wait()}")
        return answer.rstrip("\n")

    def image(self, path, transform="none", size=(0, 0), resize=0, flip=0, layout="hwc", key=(0, 0, 0)):
        answer = self.ask("image", self.out, transform, *size, resize, flip, layout, *key, path)
        if answer.startswith("error"):
            raise ValueError(answer)
        h, w = map(int, answer.split())
        pixels = np.fromfile(self.out, np.uint8)
        return pixels.reshape({"chw": (3, h, w), "hwc": (h, w, 3), "grey": (h, w)}[layout])

    def close(self):
        self.child.stdin.close()
        status = self.child.wait()
        self.child.stdout.close()
        return status


def paint(height, width, seed=0):
    """Something like a photograph: large shapes, edges, grain."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for c in range(3):
        p = 128 + 70 * np.sin(x / (17 + 9 * c) + seed) * np.cos(y / (23 - 4 * c))
        p += 60 * ((x // 37 + y // 29) % 2) - 30
        planes.append(p + rng.normal(0, 6, (height, width)))
    return np.clip(np.stack(planes, 2), 0, 255).astype(np.uint8)


def jpeg(path, pixels, mode="RGB", **options):
    image = Image.fromarray(pixels)
    if mode != "RGB":
        image = image.convert(mode)
    image.save(path, "JPEG", **{"quality": 90, **options})


def placed_webp(still, canvas, left, top):
    """An animation of one frame, a still picture's, which lies at (left, top) of a canvas of (width, height)."""
    def chunk(name, body):
        return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    def three(*numbers):
        return b"".join(struct.pack("<I", n)[:3] for n in numbers)
    width, height = Image.open(io.BytesIO(still)).size
    body = still[30 if still[12:16] == b"VP8X" else 12:]
    frame = three(left // 2, top // 2, width - 1, height - 1, 40) + b"\0" + body
    chunks = (chunk(b"VP8X", struct.pack("<I", 0x12) + three(canvas[0] - 1, canvas[1] - 1)) +
              chunk(b"ANIM", struct.pack("<IH", 0xff112233, 0)) + chunk(b"ANMF", frame))
    return chunk(b"RIFF", b"WEBP" + chunks)


def crop_of(words, height, width, scale=(0.08, 1.0), aspect=(3 / 4, 4 / 3), flip=0.0):
    """torchvision's RandomResizedCrop.get_params() and RandomHorizontalFlip, its draws ours."""
    def uniform(low=0.0, high=1.0):
        return low + (high - low) * ((next(words) >> 11) * 2.0**-53)

    def below(n):
        return (next(words) * n) >> 64

    def box():
        area = height * width
        for _ in range(10):
            target = area * uniform(*scale)
            ratio = math.exp(uniform(math.log(aspect[0]), math.log(aspect[1])))
            w = int(round(math.sqrt(target * ratio)))
            h = int(round(math.sqrt(target / ratio)))
            if 0 < w <= width and 0 < h <= height:
                top = below(height - h + 1)
                return top, below(width - w + 1), h, w
        ratio = width / height
        h, w = height, width
        if ratio < aspect[0]:
            h = int(round(w / aspect[0]))
        elif ratio > aspect[1]:
            w = int(round(h * aspect[1]))
        h, w = max(h, 1), max(w, 1)
        return (height - h) // 2, (width - w) // 2, h, w

    top, left, h, w = box()
    return top, left, h, w, flip > 0 and uniform() < flip


def philox(seed, epoch, index):
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64),
                            counter=np.array([0, 0, index, 0], np.uint64))
    while True:
        yield int(bits.random_raw())


def center_box(height, width, size, resize):
    """torchvision's Resize(resize), then CenterCrop(size)."""
    resize = resize or int(round(max(size) * 256 / 224))
    short, long = sorted((height, width))
    scaled = (resize, int(resize * long / short))
    h, w = scaled if height <= width else scaled[::-1]
    return h, w, int(round((h - size[0]) / 2)), int(round((w - size[1]) / 2))


def is_reduced(path, box, size):
    """Whether libjpeg's inverse DCT does a part: GAP more than twice as large in both directions."""
    return path.endswith("jpg") and all(b >= 2 * GAP * s for b, s in zip(box, size))


def bounds(path, box, size):
    """Of the difference: the greatest, and the mean."""
    if is_reduced(path, box, size):
        return 16, 1
    return RESIZED


class WithTool(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tool = Tool(self.folder.name)
        self.addCleanup(lambda: self.assertEqual(self.tool.close(), 0))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def has_webp(self):
        """Whether it is in this build, and in this PIL."""
        with open(self.path("probe"), "wb") as file:
            file.write(b"RIFF\x04\0\0\0WEBP")
        with self.assertRaises(ValueError) as raised:
            self.tool.image(self.path("probe"))
        return "no libwebp" not in str(raised.exception) and features.check("webp")

    def need_webp(self):
        if not self.has_webp():
            self.skipTest("no WebP in this build, or in this PIL (Debian: libwebp-dev)")

    def close_to(self, got, want, most=RESIZED[0], mean=RESIZED[1]):
        difference = np.abs(got.astype(int) - np.asarray(want).astype(int))
        self.assertEqual(got.shape, np.asarray(want).shape)
        self.assertLessEqual(difference.max(), most)
        self.assertLessEqual(difference.mean(), mean)


class Numbers(WithTool):
    def test_words_are_those_of_numpys_philox(self):
        big = 2**64 - 1
        for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (42, 3, 123456789),
                    (big, big, big), (2**63, 7, 2**40)]:
            with self.subTest(key=key):
                words = philox(*key)
                want = [next(words) for _ in range(11)]
                self.assertEqual(list(map(int, self.tool.ask("words", 11, *key).split())), want)

    def test_boxes_are_torchvisions(self):
        fallbacks = 0
        settings = [((0.08, 1.0), (3 / 4, 4 / 3), 0.5), ((1.0, 1.0), (3 / 4, 4 / 3), 0),
                    ((0.08, 1.0), (0.1, 9.0), 1.0), ((0.5, 0.6), (1.0, 1.0), 0.25)]
        sizes = [(375, 500), (500, 375), (1, 1), (1, 700), (700, 1), (2, 3), (31, 4000), (224, 224)]
        for scale, aspect, flip in settings:
            for n, (h, w) in enumerate(sizes):
                for index in range(25):
                    key = (n, index % 3, index * 2**33 + n)
                    want = crop_of(philox(*key), h, w, scale, aspect, flip)
                    fallbacks += scale == (1.0, 1.0)
                    got = self.tool.ask("box", h, w, *map(repr, scale + aspect), flip, *key)
                    self.assertEqual(list(map(int, got.split())), list(map(int, want)),
                                     (scale, aspect, flip, h, w, key))
        self.assertGreater(fallbacks, 0)


class Colours(WithTool):
    """transform: none, against convert("RGB")."""

    def same(self, name, most=0):
        want = np.asarray(Image.open(self.path(name)).convert("RGB"))
        self.close_to(self.tool.image(self.path(name)), want, most)
        self.close_to(self.tool.image(self.path(name), layout="chw"), want.transpose(2, 0, 1), most)
        self.close_to(self.tool.image(self.path(name), flip=1), want[:, ::-1], most)
        self.close_to(self.tool.image(self.path(name), flip=1, layout="chw"),
                      want[:, ::-1].transpose(2, 0, 1), most)
        grey = np.asarray(Image.open(self.path(name)).convert("RGB").convert("L"))
        self.close_to(self.tool.image(self.path(name), layout="grey"), grey, most)
        self.close_to(self.tool.image(self.path(name), flip=1, layout="grey"), grey[:, ::-1], most)

    def test_jpeg(self):
        for height, width in [(1, 1), (1, 9), (17, 1), (16, 16), (61, 83)]:
            for i, options in enumerate([{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2},
                                         {"progressive": True}, {"optimize": True}]):
                with self.subTest(height=height, width=width, **options):
                    jpeg(self.path("a.jpg"), paint(height, width, i), **options)
                    self.same("a.jpg")
                    jpeg(self.path("g.jpg"), paint(height, width, i), "L", **options)
                    self.same("g.jpg")

    def test_cmyk_jpeg(self):
        jpeg(self.path("c.jpg"), paint(50, 70), "CMYK")
        self.same("c.jpg")
        with open(self.path("c.jpg"), "rb") as file:
            data = bytearray(file.read())
        at = data.find(b"Adobe")
        self.assertGreater(at, 0)
        data[at + 11] = 2  # claim YCCK: other colours, for both of us
        with open(self.path("y.jpg"), "wb") as file:
            file.write(data)
        self.same("y.jpg")
        del data[at - 4:at + 12]  # no Adobe marker: inverted all the same
        with open(self.path("p.jpg"), "wb") as file:
            file.write(data)
        self.same("p.jpg")

    def test_png(self):
        pixels = Image.fromarray(paint(37, 53))
        alpha = pixels.copy()
        alpha.putalpha(Image.fromarray(paint(37, 53, 5)[:, :, 0]))
        cases = {
            "rgb": (pixels, {}), "grey": (pixels.convert("L"), {}), "bits": (pixels.convert("1"), {}),
            "palette": (pixels.convert("P"), {}), "alpha": (alpha, {}),
            "grey-alpha": (alpha.convert("LA"), {}),
            "few": (pixels.quantize(13), {}), "two": (pixels.quantize(2), {"bits": 1}),
            "see-through": (pixels.quantize(40), {"transparency": 3}),
            "key": (pixels, {"transparency": (1, 2, 3)}),
            "grey-key": (pixels.convert("L"), {"transparency": 7}),
        }
        for name, (image, options) in cases.items():
            with self.subTest(name):
                image.save(self.path("a.png"), "PNG", **options)
                self.same("a.png")

    def test_deep_png(self):
        """16 bits: the upper 8. (PIL reads grey as numbers up to 65535 and cuts them off.)"""
        import zlib

        def chunk(kind, body):
            return (struct.pack(">I", len(body)) + kind + body +
                    struct.pack(">I", zlib.crc32(kind + body)))
        for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
            values = np.random.default_rng(colour).integers(0, 65536, (9, 11, channels), np.uint16)
            rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
            with open(self.path("d.png"), "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n" +
                           chunk(b"IHDR", struct.pack(">IIBBBBB", 11, 9, 16, colour, 0, 0, 0)) +
                           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
            want = (values >> 8).astype(np.uint8)
            want = want[:, :, :3] if channels > 2 else np.repeat(want[:, :, :1], 3, 2)
            with self.subTest(colour=colour):
                self.close_to(self.tool.image(self.path("d.png")), want, 0)
                if colour == 2:
                    self.same("d.png")

    def test_webp(self):
        self.need_webp()
        for i, (height, width) in enumerate([(1, 1), (1, 9), (17, 1), (16, 16), (61, 83), (240, 321)]):
            pixels = Image.fromarray(paint(height, width, i))
            alpha = pixels.copy()
            alpha.putalpha(Image.fromarray(paint(height, width, 5)[:, :, 0]))
            for image in (pixels, alpha):
                for options in ({"quality": 0}, {"quality": 40, "method": 0}, {"quality": 80}, {"quality": 100},
                                {"lossless": True}, {"lossless": True, "exact": True}, {"alpha_quality": 30},
                                {"lossless": True, "quality": 10, "icc_profile": b"none"}):
                    with self.subTest(height=height, width=width, mode=image.mode, **options):
                        image.save(self.path("a.webp"), "WEBP", **options)
                        self.same("a.webp")

    def test_animated_webp(self):
        """The first frame; and where it leaves the canvas free, what is there in PIL."""
        self.need_webp()
        first, second = (Image.fromarray(paint(60, 90, i)) for i in (1, 2))
        for image in (first, first.convert("RGBA")):
            for options in ({}, {"lossless": True}, {"minimize_size": True}, {"allow_mixed": True}):
                image.save(self.path("a.webp"), "WEBP", save_all=True, append_images=[second, first], **options)
                with self.subTest(mode=image.mode, **options):
                    self.same("a.webp")
        seen = first.convert("RGBA")
        seen.putalpha(Image.fromarray(paint(60, 90, 3)[:, :, 1]))
        for options in ({}, {"lossless": True}):
            seen.save(self.path("a.webp"), "WEBP", **options)
            for left, top in ((0, 0), (8, 0), (10, 6)):
                with open(self.path("a.webp"), "rb") as file:
                    data = placed_webp(file.read(), (120, 77), left, top)
                with open(self.path("p.webp"), "wb") as file:
                    file.write(data)
                with self.subTest(left=left, top=top, **options):
                    self.same("p.webp")

    def test_exif_orientation_is_left_alone(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        if self.has_webp():
            Image.fromarray(paint(20, 30)).save(self.path("o.webp"), "WEBP", exif=exif.tobytes())
            self.same("o.webp")
        jpeg(self.path("o.jpg"), paint(20, 30), exif=exif.tobytes())
        self.same("o.jpg")
        self.assertEqual(self.tool.image(self.path("o.jpg")).shape, (20, 30, 3))


class Tiff(WithTool):
    """transform: none, against convert("RGB"): equal, or refused with the reason."""

    def setUp(self):
        super().setUp()
        with open(self.path("probe"), "wb") as file:
            file.write(b"II*\0\0\0\0\0")
        with self.assertRaises(ValueError) as raised:
            self.tool.image(self.path("probe"))
        if "no libtiff" in str(raised.exception) or not features.check("libtiff"):
            self.skipTest("no TIFF in this build, on this system, or in this PIL (Debian: libtiff-dev)")

    def same(self, data):
        with open(self.path("a.tif"), "wb") as file:
            file.write(data)
        want = np.asarray(Image.open(self.path("a.tif")).convert("RGB"))
        np.testing.assert_array_equal(self.tool.image(self.path("a.tif")), want)
        return want

    def refused(self, data, words):
        with open(self.path("a.tif"), "wb") as file:
            file.write(data)
        with self.assertRaises(ValueError) as raised:
            self.tool.image(self.path("a.tif"))
        self.assertIn(words, str(raised.exception))

    def samples(self, count, bits):
        if bits == 8:
            return np.concatenate([paint(37, 45, 1), paint(37, 45, 2)], 2)[:, :, :count]
        return np.random.default_rng(bits).integers(0, 1 << bits, (37, 45, count))

    LAYOUTS = [{}, {"rows": 7}, {"rows": 5, "deflate": True}, {"tile": (16, 32)}, {"tile": (32, 16), "deflate": True},
               {"order": ">", "rows": 9}, {"order": ">", "deflate": True}, {"big": True}]
    PLANES = [{"planar": 2}, {"planar": 2, "deflate": True, "rows": 6},
              {"planar": 2, "deflate": True, "tile": (16, 16)}]

    def test_colours(self):
        palette = np.random.default_rng(3).integers(0, 65536, (3, 256))
        cases = [(photometric, 1, bits, {}) for photometric in (0, 1) for bits in (1, 2, 4, 8)]
        cases += [(3, 1, bits, {"colours": palette[:, :1 << bits]}) for bits in (1, 2, 4, 8)]
        cases += [(1, 2, 8, {"extra": [2]}), (2, 3, 8, {}), (2, 3, 16, {}), (5, 4, 8, {}), (2, 4, 8, {})]
        cases += [(2, 4, 8, {"extra": [kind]}) for kind in (0, 1, 2, 999)]
        cases += [(2, 4, 16, {"extra": [kind]}) for kind in (0, 2)]
        for photometric, count, bits, options in cases:
            planes = count > 2 and bits == 8 and (count == 3 or photometric == 5 or options.get("extra") == [2])
            for layout in self.LAYOUTS + self.PLANES * planes:
                with self.subTest(photometric=photometric, count=count, bits=bits, **{**layout, **options}):
                    self.same(tiff_files.tiff(self.samples(count, bits), photometric, bits, **options, **layout))

    def test_deep_grey(self):
        """16 bits: the upper 8, as of PNG; lists of transforms cut them off, as PIL does."""
        values = self.samples(1, 16)
        for layout in self.LAYOUTS:
            with self.subTest(**layout), open(self.path("d.tif"), "wb") as file:
                file.write(tiff_files.tiff(values, 1, 16, **layout))
                file.flush()
                np.testing.assert_array_equal(self.tool.image(self.path("d.tif")), np.repeat(values >> 8, 3, 2))

    def test_orientation(self):
        """PIL turns TIFF when it loads it."""
        for orientation in range(10):
            for layout in ({}, {"rows": 4}, {"tile": (16, 16), "deflate": True}):
                with self.subTest(orientation=orientation, **layout):
                    data = tiff_files.tiff(self.samples(3, 8), 2, t274=orientation, **layout)
                    shape = self.same(data).shape
                    self.assertEqual(shape, (45, 37, 3) if orientation in (5, 6, 7, 8) else (37, 45, 3))

    def test_compressions(self):
        picture = Image.fromarray(paint(61, 83))
        done = set()
        for mode in ("RGB", "L", "1", "P", "RGBA", "CMYK", "LA"):
            for how in (None, "tiff_lzw", "packbits", "tiff_adobe_deflate", "tiff_deflate", "jpeg", "zstd",
                        "group3", "group4", "tiff_ccitt", "lzma"):
                for options in ({}, {"tiffinfo": {317: 2}}):
                    file = io.BytesIO()
                    try:
                        picture.convert(mode).save(file, "TIFF", compression=how, **options)
                    except OSError:  # libtiff has no such file
                        continue
                    with self.subTest(mode=mode, how=how, **options):
                        self.same(file.getvalue())
                        done.add(how)
        self.assertGreaterEqual(len(done), 6)

    def test_bits_in_reverse_order(self):
        for photometric in (0, 1):
            for bits in (1, 2, 4, 8) if photometric else (1, 2, 4):
                for layout in ({}, {"rows": 7}):
                    with self.subTest(photometric=photometric, bits=bits, **layout):
                        self.same(tiff_files.tiff(self.samples(1, bits), photometric, bits, t266=2, **layout))

    def test_runs_that_go_across_rows(self):
        """Of PackBits: 50 times 77, in rows of 10."""
        packed = np.zeros((5, 10, 1), np.uint8)
        packed.flat[:2] = 256 - 49, 77
        self.assertTrue((self.same(tiff_files.tiff(packed, 1, t259=32773)) == 77).all())

    def pixels_if_defined(self, path):
        """PIL's; ValueError: they depend on what was in fresh memory before."""
        perturb, decoded = -6, []
        for byte in (85, 170):
            ctypes.CDLL(None).mallopt(perturb, byte)
            with Image.open(path) as image:
                decoded.append(np.asarray(image.convert("RGB")))
        ctypes.CDLL(None).mallopt(perturb, 0)
        if not np.array_equal(*decoded):
            raise ValueError("undefined")
        return decoded[0]

    def test_damaged(self):
        """Where both read it, it is the same: of a strip that cannot be decoded to its end, too. There PIL leaves
        what its memory had: such files are passed over.
        """
        rng = np.random.default_rng(11)
        both = set()
        for mode, how in [("L", "packbits"), ("L", "tiff_lzw"), ("L", "tiff_adobe_deflate"), ("L", "zstd"),
                          ("L", "lzma"), ("L", "jpeg"), ("1", "group3"), ("1", "group4"), ("1", "packbits"),
                          ("P", "tiff_adobe_deflate"), ("RGB", "tiff_lzw")]:
            file = io.BytesIO()
            Image.fromarray(paint(40, 50, 3)).convert(mode).save(file, "TIFF", compression=how)
            for number in range(60):
                data = bytearray(file.getvalue())
                for at in rng.integers(8, len(data), 1 + number % 3):
                    data[at] ^= 1 << int(rng.integers(0, 8))
                with open(self.path("d.tif"), "wb") as damaged:
                    damaged.write(data)
                try:
                    want = self.pixels_if_defined(self.path("d.tif"))
                    got = self.tool.image(self.path("d.tif"))
                except (OSError, SyntaxError, TypeError, KeyError, ValueError):
                    continue
                with self.subTest(mode=mode, how=how, number=number):
                    np.testing.assert_array_equal(got, want)
                    both.add(how)
        self.assertGreaterEqual(len(both), 6)

    def test_jpeg(self):
        picture = Image.fromarray(paint(61, 83))
        for mode in ("RGB", "YCbCr", "L"):
            for quality in (20, 75, 100):
                file = io.BytesIO()
                picture.convert(mode).save(file, "TIFF", compression="jpeg", quality=quality)
                with self.subTest(mode=mode, quality=quality):
                    self.same(file.getvalue())

    def test_the_first_page(self):
        picture = Image.fromarray(paint(61, 83))
        file = io.BytesIO()
        picture.save(file, "TIFF", save_all=True, append_images=[picture.rotate(90, expand=True)])
        self.assertEqual(self.same(file.getvalue()).shape, (61, 83, 3))

    def test_refused(self):
        grey, deep, rgb = self.samples(1, 8), self.samples(1, 16), self.samples(3, 8)
        for words, data in {
                "not unsigned integers": tiff_files.tiff(deep, 1, 16, t339=2),
                "its bits in reverse order": tiff_files.tiff(rgb, 2, t266=2),
                "a number of bits per sample that is not supported": tiff_files.tiff(deep, 0, 16),
                "compressed in a way that is not supported": tiff_files.tiff(grey, 1, t259=34712),
                "colours that are neither grey": tiff_files.tiff(rgb, 8),
                "photometric interpretation 6": tiff_files.tiff(rgb, 6),
                "alpha of a kind": tiff_files.tiff(self.samples(2, 8), 1, extra=[1]),
                "does not match its colours and alpha": tiff_files.tiff(self.samples(5, 8), 2, extra=[2, 0]),
                "tiles are much larger than the picture": tiff_files.tiff(grey, 1, tile=(16, 16), t322=4096)}.items():
            with self.subTest(words):
                self.refused(data, words)

    def test_no_palette(self):
        """Cut off, or not there: PIL refuses it; libtiff would take the numbers of colours for grey."""
        palette = np.random.default_rng(3).integers(0, 65536, (3, 256))
        grey = self.samples(1, 8)
        whole = tiff_files.tiff(grey, 3, colours=palette)
        for name, data in [("cut", whole[:-700]), ("end", whole[:-1]),
                           *[(str(layout), tiff_files.tiff(grey, 3, **layout)) for layout in self.LAYOUTS]]:
            with self.subTest(name):
                self.refused(data, "the image is corrupt (")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.assertRaises((OSError, KeyError, SyntaxError), Image.open, self.path("a.tif"))

    def test_cut(self):
        for layout in self.LAYOUTS:
            data = tiff_files.tiff(self.samples(3, 8), 2, **layout)
            for share in (0.1, 0.5, 0.9, 0.99):
                with self.subTest(share=share, **layout):
                    self.refused(data[:int(len(data) * share)], "the image is corrupt (")


class Transforms(WithTool):
    def sources(self):
        for i, (height, width) in enumerate([(375, 500), (500, 333), (90, 120), (16, 700)]):
            for name, options in [("s444", {"subsampling": 0}), ("s422", {"subsampling": 1}),
                                  ("s420", {"subsampling": 2}),
                                  ("progressive", {"progressive": True})]:
                path = self.path(f"{i}-{name}.jpg")
                if not os.path.exists(path):
                    jpeg(path, paint(height, width, i), **options)
                yield path
            for ending in ("png", "webp") if self.has_webp() else ("png",):
                path = self.path(f"{i}.{ending}")
                if not os.path.exists(path):
                    Image.fromarray(paint(height, width, i)).save(path)
                yield path
            if i == 1:
                jpeg(self.path("grey.jpg"), paint(height, width, i), "L")
                yield self.path("grey.jpg")
                jpeg(self.path("cmyk.jpg"), paint(height, width, i), "CMYK")
                yield self.path("cmyk.jpg")

    def test_resize(self):
        for path in self.sources():
            image = Image.open(path).convert("RGB")
            for size in [(224, 224), (300, 600), (331, 251), (1, 1), (40, 50)]:
                want = image.resize(size[::-1], Image.BILINEAR)
                bound = bounds(path, (image.height, image.width), size)
                with self.subTest(path=os.path.basename(path), size=size):
                    got = self.tool.image(path, "resize", size)
                    self.close_to(got, want, *bound)
                    np.testing.assert_array_equal(
                        self.tool.image(path, "resize", size, layout="chw").transpose(1, 2, 0), got)
                    np.testing.assert_array_equal(
                        self.tool.image(path, "resize", size, flip=1)[:, ::-1], got)
                    self.close_to(self.tool.image(path, "resize", size, layout="grey"),
                                  image.convert("L").resize(size[::-1], Image.BILINEAR), *bound)

    def test_center_crop(self):
        for path in self.sources():
            image = Image.open(path).convert("RGB")
            for size, resize in [((224, 224), 0), ((224, 224), 224), ((224, 160), 232),
                                 ((200, 201), 0)]:
                h, w, top, left = center_box(image.height, image.width, size, resize)
                want = np.asarray(image.resize((w, h), Image.BILINEAR))
                want = want[top:top + size[0], left:left + size[1]]
                with self.subTest(path=os.path.basename(path), size=size, resize=resize):
                    self.close_to(self.tool.image(path, "center_crop", size, resize), want,
                                  *bounds(path, (image.height, image.width), (h, w)))

    def test_random_crop(self):
        reductions = 0
        for path in self.sources():
            image = Image.open(path).convert("RGB")
            for index in range(12):
                key = (7, index, index * 1000)
                size = (224, 224) if index % 3 else (97, 150)
                top, left, h, w, mirror = crop_of(philox(*key), image.height, image.width, flip=0.5)
                want = image.crop((left, top, left + w, top + h)).resize(size[::-1], Image.BILINEAR)
                want = np.asarray(want)[:, ::-1] if mirror else np.asarray(want)
                reductions += is_reduced(path, (h, w), size)
                with self.subTest(path=os.path.basename(path), index=index):
                    got = self.tool.image(path, "random_crop", size, flip=0.5, key=key)
                    self.close_to(got, want, *bounds(path, (h, w), size))

    def test_photographs(self):
        """Large ones, so that libjpeg does a part of the reduction."""
        photos = [p for p in PHOTOS if os.path.exists(p)]
        if not photos:
            self.skipTest("no photographs (Debian: plasma-workspace-wallpapers)")
        for path in photos:
            image = Image.open(path).convert("RGB")
            for width in (600, 450, 320, 224, 150, 64):
                size = (round(image.height * width / image.width), width)
                want = np.asarray(image.resize(size[::-1], Image.BILINEAR)).astype(int)
                difference = np.abs(self.tool.image(path, "resize", size).astype(int) - want)
                if os.environ.get("SHOW"):
                    print(f"{os.path.basename(path)} of {image.width} to {width}: mean"
                          f" {difference.mean():.3f}, max {difference.max()},"
                          f" 99.9%: {np.percentile(difference, 99.9)}", file=sys.stderr)
                with self.subTest(path=path, width=width):
                    self.assertLessEqual(difference.mean(), 1)
                    self.assertLessEqual(difference.max(), 16)


class Folders(WithTool):
    def test_order_is_torchvisions(self):
        """make_dataset() of torchvision/datasets/folder.py, of the same folders."""
        root = self.path("root")
        for name in ("b/1.jpg", "b/x/2.PNG", "b/x-1/3.jpeg", "b/x/y/4.jpg", "b/x.y/5.jpg", "b/z.txt",
                     "B/10.jpg", "B/9.jpg", "a b/1.jpg", "a-b/\u00e4.jpg", "a-b/\U0001f600/1.jpg",
                     "a-b/\uff5e/1.jpg", "b/.hidden.jpg", "0/.d/1.jpg", "b/6.webp", "b/7.TIF", "b/8.tiff"):
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="ascii"):
                pass
        os.symlink("../b/x", os.path.join(root, "B", "link"))
        want = []
        for label, name in enumerate(sorted(e.name for e in os.scandir(root) if e.is_dir())):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                want += [f"{label} {os.path.join(folder, file)}" for file in sorted(files)
                         if file.lower().endswith((".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"))]
        got = [self.tool.ask("list", root)]
        while got[-1]:
            got.append(self.tool.child.stdout.readline().rstrip("\n"))
        self.assertEqual(got[:-1], want)


class Faults(WithTool):
    def refused(self, data, words, transform="none", size=(0, 0)):
        with open(self.path("bad"), "wb") as file:
            file.write(data)
        with self.assertRaises(ValueError) as raised:
            self.tool.image(self.path("bad"), transform, size)
        self.assertIn(words, str(raised.exception))

    def test_what_pil_calls_truncated_is(self):
        for kind, options in [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {}),
                              ("WEBP", {"lossless": True})]:
            if kind == "WEBP" and not self.has_webp():
                continue
            file = io.BytesIO()
            Image.fromarray(paint(200, 300)).save(file, kind, **options)
            data = file.getvalue()
            for share in (0.3, 0.6, 0.9, 0.99):
                with self.subTest(kind=kind, share=share, **options):
                    self.refused(data[:int(len(data) * share)], "truncated")
                    self.refused(data[:int(len(data) * share)], "truncated", "resize", (20, 20))

    def test_damaged_jpegs(self):
        """Pixels are PIL's, and errors are where PIL has errors: of the whole picture, and of parts."""
        rng = np.random.default_rng(7)
        # libjpeg-turbo 3 smooths a progressive picture that lacks scans otherwise than 2 does.
        smooths_alike = (features.version("libjpeg_turbo") or "").startswith("2.")
        outcomes = {}
        for number in range(240):
            kind, data = damaged_jpeg(rng, number)
            with open(self.path("d.jpg"), "wb") as file:
                file.write(data)
            try:
                want = np.asarray(Image.open(self.path("d.jpg")).convert("RGB"))
            except (OSError, SyntaxError):
                want = None
            outcomes.setdefault(kind, set()).add(want is not None)
            with self.subTest(number=number, kind=kind):
                if want is None:
                    self.assertRaises(ValueError, self.tool.image, self.path("d.jpg"))
                    self.assertRaises(ValueError, self.tool.image, self.path("d.jpg"), "center_crop", (9, 9), 40)
                elif smooths_alike or number % 2 == 0:
                    np.testing.assert_array_equal(self.tool.image(self.path("d.jpg")), want)
                    for index in range(4):
                        self.same_part(want, (7, 0, number * 10 + index))
        self.assertEqual({kind for kind, read in outcomes.items() if True in read}, set(DAMAGE) - {"cut"})
        self.assertEqual({kind for kind, read in outcomes.items() if False in read}, set(DAMAGE))

    def same_part(self, want, key):
        height, width = want.shape[:2]
        top, left, h, w, mirror = crop_of(philox(*key), height, width, flip=0.5)
        part = Image.fromarray(want[top:top + h, left:left + w]).resize((31, 29), Image.BILINEAR)
        self.close_to(self.tool.image(self.path("d.jpg"), "random_crop", (29, 31), flip=0.5, key=key),
                      np.asarray(part)[:, ::-1] if mirror else part)


DAMAGE = ("cut", "early end", "bits", "gone", "more", "no end", "marker")


def damaged_jpeg(rng, number):
    """A kind of DAMAGE, and a JPEG with it, progressive if the number is odd."""
    file = io.BytesIO()
    mode = "RGB" if number % 5 else "L"
    Image.fromarray(paint(61, 83, number)).convert(mode).save(
        file, "JPEG", quality=85, progressive=number % 2 == 1, **({"subsampling": number % 3} if mode == "RGB" else {}))
    data, kind = file.getvalue(), DAMAGE[number % len(DAMAGE)]
    at = int(rng.integers(data.find(b"\xff\xda") + 16, len(data) - 2))
    if kind == "cut":  # sometimes just the end
        data = data[:at if number % 4 else -1]
    elif kind == "early end":
        data = data[:at] + b"\xff\xd9"
    elif kind == "bits":
        data = data[:at] + bytes(rng.integers(0, 256, 3, np.uint8)) + data[at + 3:]
    elif kind == "gone":
        data = data[:at] + data[at + 25:]
    elif kind == "more":
        data = data[:at] + bytes(rng.integers(0, 256, 40, np.uint8)) + data[at:]
    elif kind == "no end":
        data = data[:-2] + bytes(rng.integers(0, 255, number % 40, np.uint8))
    else:
        code = int(rng.choice([0xD0, 0xD3, 0xD9, 0xDA, 0xC4, 0xE1, 0xFE, 0xDD]))
        data = data[:at] + bytes([0xFF, code]) + data[at + 2:]
    return kind, data


if __name__ == "__main__":
    CHECK_IMAGE = sys.argv.pop(1)
    unittest.main(verbosity=1)
