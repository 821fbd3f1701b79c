"""MP3 files that libsndfile writes here, as it reads them: whole, in parts, in folders, shards and columns, with
tags, and cut. Their numbers are compared with those of the same library, bit for bit, and with soundfile's."""
import ctypes
import importlib.util
import io
import os
import pathlib
import random
import sys
import tarfile
import tempfile
import unittest

import numpy
from dloaderd import Loader

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import arrow_files  # noqa: E402
import media  # noqa: E402

READ, WRITE, MP3 = 0x10, 0x20, 0x230082
SET_LEVEL, SET_MODE = 0x1301, 0x1305
CONSTANT, AVERAGE, VARIABLE = range(3)
# Rate, channels, frames, mode, and level, 0 to 1, of which 1 is the smallest file; those of one that is so small that
# its first frame has no room for its length.
FILES = [(44100, 2, 50000, CONSTANT, 0.5), (44100, 1, 30001, VARIABLE, 0.5), (48000, 2, 4000, VARIABLE, 0.0),
         (32000, 2, 41000, AVERAGE, 0.5), (22050, 1, 26000, VARIABLE, 0.9), (16000, 1, 30000, CONSTANT, 1.0),
         (48000, 2, 60000, CONSTANT, 1.0), (8000, 1, 12000, CONSTANT, 1.0), (24000, 2, 20000, CONSTANT, 1.0)]


class Info(ctypes.Structure):
    _fields_ = [("frames", ctypes.c_int64), ("rate", ctypes.c_int), ("channels", ctypes.c_int),
                ("format", ctypes.c_int), ("sections", ctypes.c_int), ("seekable", ctypes.c_int)]


def sndfile():
    library = ctypes.CDLL("libsndfile.so.1")
    library.sf_open.restype = ctypes.c_void_p
    library.sf_readf_float.restype = library.sf_writef_float.restype = ctypes.c_int64
    return library


def write(path, rate, channels, frames, mode, level):
    """A sine that rises, with some noise."""
    library, at = sndfile(), numpy.arange(frames) / rate
    noise = numpy.random.default_rng(frames).standard_normal((frames, channels))
    numbers = (0.4 * numpy.sin(2000 * at * (1 + at))[:, None] + 0.05 * noise).astype(numpy.float32)
    file = library.sf_open(os.fsencode(path), WRITE, ctypes.byref(Info(0, rate, channels, MP3)))
    if not file:
        raise unittest.SkipTest("this system's libsndfile writes no MP3")
    file = ctypes.c_void_p(file)
    library.sf_command(file, SET_MODE, ctypes.byref(ctypes.c_int(mode)), 4)
    library.sf_command(file, SET_LEVEL, ctypes.byref(ctypes.c_double(level)), 8)
    assert library.sf_writef_float(file, ctypes.c_void_p(numbers.ctypes.data), ctypes.c_int64(frames)) == frames
    library.sf_close(file)


def read(path):
    """All that libsndfile gives of it, [frames, channels], and its rate."""
    library, info = sndfile(), Info()
    file = ctypes.c_void_p(library.sf_open(os.fsencode(path), READ, ctypes.byref(info)))
    numbers = numpy.empty((info.frames, info.channels), numpy.float32)
    got = library.sf_readf_float(file, ctypes.c_void_p(numbers.ctypes.data), ctypes.c_int64(info.frames))
    library.sf_close(file)
    return numbers[:got], info.rate


def tag(content):
    """ID3v2.3 with one frame, and zeros behind it, as programs leave room for more."""
    frame = b"TIT2" + len(content).to_bytes(4, "big") + b"\0\0" + content
    size = len(frame) + 300
    return b"ID3\3\0\0" + bytes([0, 0, size >> 7, size & 127]) + frame + bytes(300)


class Mp3(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        try:
            sndfile()
        except OSError:
            raise unittest.SkipTest("libsndfile is not installed (Debian: libsndfile1)") from None
        cls.folder = cls.root / "sounds"
        (cls.folder / "a").mkdir(parents=True)
        for i, file in enumerate(FILES):
            path = cls.folder / "a" / f"{i}.mp3"
            write(path, *file)
            if i % 3 == 1:
                path.write_bytes(tag(b"\0title") + path.read_bytes())
            elif i % 3 == 2:
                path.write_bytes(tag(b"\0x") + tag(b"\0y") + path.read_bytes() + b"TAG".ljust(128, b"x"))
        cls.paths = sorted((cls.folder / "a").iterdir())
        cls.want = [read(path) for path in cls.paths]

    def samples(self, dataset, **keys):
        spec = {"dataset": dataset, "batch": {"size": 1}, "workers": {"count": 0}, "seed": 1, **keys}
        with Loader(spec, as_="numpy") as loader:
            return list(loader)

    def test_whole(self):
        dataset = {"kind": "audiofolder", "paths": str(self.folder), "channels": "keep"}
        for (want, rate), file, batch in zip(self.want, FILES, self.samples(dataset), strict=True):
            self.assertEqual(rate, batch["sample_rate"][0])
            numpy.testing.assert_array_equal(batch["audio"][0], want)
            # What was written, but where nothing says how much of the last frame is padding.
            self.assertIn(len(want) - file[2], range(3000) if file[4] == 1 else [0])
        for (want, _), batch in zip(self.want, self.samples({**dataset, "dtype": "int16"}), strict=True):
            numbers = numpy.rint(want.astype(float) * 32768).clip(-32768, 32767)
            numpy.testing.assert_array_equal(batch["audio"][0], numbers.astype(numpy.int16))

    def test_parts(self):
        """Each is of the whole, bit for bit: nothing depends on where decoding begins."""
        for crop in ("start", "center", "random"):
            for seed in range(4 if crop == "random" else 1):
                read = self.samples({"kind": "audiofolder", "paths": str(self.folder), "channels": "keep",
                                     "frames": 700, "crop": crop}, seed=seed)
                for (want, _), batch in zip(self.want, read, strict=True):
                    part, room = batch["audio"][0], len(want) - 700
                    begins = {"start": [0], "center": [room // 2]}.get(crop, range(room + 1))
                    self.assertTrue(any((want[at:at + 700] == part).all() for at in begins))

    def test_lengths(self):
        """As headers say them, with a limit of tokens that the two longest exceed together."""
        lengths = [len(want) for want, _ in self.want]
        read = self.samples({"kind": "audiofolder", "paths": str(self.folder)}, batch={"tokens": max(lengths)},
                            collate={"kind": "pad", "fields": ["audio"]})
        self.assertEqual(sum(len(batch["label"]) for batch in read), len(FILES))
        self.assertTrue(all(batch["audio"].size <= max(lengths) for batch in read))

    def test_records(self):
        """Members of shards, and columns, as of Hugging Face's Audio()."""
        files = [path.read_bytes() for path in self.paths]
        with tarfile.open(self.root / "s.tar", "w") as tar:
            for i, data in enumerate(files):
                member = tarfile.TarInfo(f"{i:03}.mp3")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        media.parquet(self.root / "s.parquet", {"speech": files}, 4)
        columns = [("speech", ("struct", [("bytes", "binary"), ("path", "string")]))]
        arrow_files.write(self.root / "s.arrow", columns, [[((data, "x.mp3"),) for data in files]],
                          {"speech": {"_type": "Audio"}})
        for kind, field in (("tar", "mp3"), ("parquet", "speech"), ("arrow", "speech")):
            read = self.samples({"kind": kind, "paths": str(self.root / f"s.{kind}"), "audio": [field],
                                 "channels": "keep"})
            for (want, _), batch in zip(self.want, read, strict=True):
                numpy.testing.assert_array_equal(batch[field][0], want)

    def test_cut(self):
        """Of any length: an error that names the file, or all of it; but between frames of one without a length."""
        (self.root / "cut/a").mkdir(parents=True)
        path = self.root / "cut/a/0.mp3"
        rng = random.Random("cut")
        for file, whole, (want, _) in zip(FILES, self.paths, self.want):
            data = whole.read_bytes()
            for n in [len(data) - 1, 12, *(rng.randrange(1, len(data)) for _ in range(5))]:
                path.write_bytes(data[:n])
                try:
                    batch, = self.samples({"kind": "audiofolder", "paths": str(path.parents[1]), "channels": "keep"})
                except Exception as error:
                    self.assertIn("cut/a/0.mp3: ", str(error))
                    continue
                got = batch["audio"][0]
                self.assertTrue(len(got) == len(want) or file[4] == 1 and len(got) % 576 == 0)
                numpy.testing.assert_array_equal(got, want[:len(got)])

    @unittest.skipUnless(importlib.util.find_spec("soundfile"), "the package soundfile is not installed")
    def test_soundfile(self):
        """It seeks to the beginning first, and PyPI's has a library of its own: the last bit may be another."""
        import soundfile
        for path, (want, rate) in zip(self.paths, self.want):
            theirs, their_rate = soundfile.read(path, dtype="float32", always_2d=True)
            self.assertEqual(rate, their_rate)
            numpy.testing.assert_allclose(theirs, want, rtol=0, atol=1e-6)
