"""What `dlctl peek` and `dlctl replay` make of a batch, without a daemon: the class of a pickle by its
opcodes, elements, lines and JSON, and what a signal leaves of a file that is being written.
"""

import array
import collections
import datetime
import decimal
import json
import math
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy
from dloaderd import _contents, _figures

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib")
sys.path.insert(0, LIB)
from dltest import DLCTL  # noqa: E402
from tap import slow  # noqa: E402

TENSOR, DICT, LIST, TUPLE, STRING, BYTES, OBJECT = range(1, 8)


class Point:
    def __init__(self, *args):
        self.args = args


class Numbers(list):
    pass


class Written(pickle.Pickler):
    """With the persistent ids that workers write."""

    def persistent_id(self, obj):
        return {"a tensor": ("t", 1), "an array": ("n", 0)}.get(obj) if isinstance(obj, str) else None


# Objects, and the class that is told of each. What a function makes is told by the function's name.
OBJECTS = [
    (Point(1, 2), f"{__name__}.Point"), (Numbers([1]), f"{__name__}.Numbers"),
    (collections.Counter("abc"), "collections.Counter"), (collections.deque([1]), "collections.deque"),
    (datetime.date(2020, 1, 2), "datetime.date"), (decimal.Decimal(1), "decimal.Decimal"),
    (range(3), "range"), (1j, "complex"), (bytearray(b"x"), "bytearray"), ({1}, "set"),
    (frozenset([1]), "frozenset"), ((), "tuple"), ((1, Point()), "tuple"), ((1, 2, 3, 4), "tuple"),
    ({1: Point()}, "dict"), ([Point(), Point()], "list"), (None, "NoneType"), (True, "bool"),
    (1, "int"), (1 << 100, "int"), (1.5, "float"), ("x", "str"), (b"x", "bytes"),
    (array.array("i", [1]), "array._array_reconstructor"), (Point, None), (len, None), (Point().__init__, None),
]

# Pickles, and what is told of them: words that CPython does not write, names that are none, or are not
# fit to be seen, stacks that have nothing, arguments that lead out, opcodes of no protocol.
PICKLES = [
    (b'\x80\x02cgeometry\nPoint\nK\x01\x85\x81.', 'geometry.Point'),
    (b'(d.', 'dict'),
    (b'(l.', 'list'),
    (b'K\x01(K\x02K\x031.', 'int'),
    (b'K\x01N0.', 'int'),
    (b'\x8c\x01a\x8c\x00\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x03\x1b[m\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x02b\n\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x03b\x00c\x93)\x81.', None),
    (b'\x8c\x03a\x00c\x8c\x01b\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x02\xc2\x85\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x01\xff\x93)\x81.', None),
    (b'\x8c\x01a\x8c\x02\xc3\xa4\x93)\x81.', 'a.ä'),
    (b'\x8c\x01aK\x01\x93)\x81.', None),
    (b'K\x01)\x81.', None),
    (b'\x8c\x01x\x85Q.', None),
    (b'\x8c\x02tt\x85Q.', None),
    (b'\x8c\x01tQ.', None),
    (b'', None),
    (b'.', None),
    (b'(.', None),
    (b'K\x01', None),
    (b'0.', None),
    (b'1.', None),
    (b't.', None),
    (b'K\x01t.', None),
    (b'R.', None),
    (b'N(R.', None),
    (b'(N\x85\x86.', None),
    (b'\x94.', None),
    (b'(\x94.', None),
    (b'h\x00.', None),
    (b'N\x94h\x01.', None),
    (b'N\x94j\xff\xff\xff\xff.', None),
    (b'a.', None),
    (b'Na.', None),
    (b'(Na.', None),
    (b'e.', None),
    (b'(e.', None),
    (b'\x95\x00\x00.', None),
    (b'K', None),
    (b'\x8c\xffabc.', None),
    (b'X\xff\xff\xff\xffa.', None),
    (b'\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.', None),
    (b'\x8b\xff\xff\xff\x7fa.', None),
    (b'ca\nb', None),
    (b'ca', None),
    (b'\xff.', None),
    (b'I1\n.', None),
    (b'N\x00.', None),
]

BFLOAT = numpy.array([0x3F80, 0xBFC0], "<u2")


class Tensor(bytes):
    """Stands for a _client.Leaf: a buffer with a name of its dtype."""

    def __new__(cls, dtype, shape, data):
        leaf = super().__new__(cls, data)
        leaf.dtype, leaf.shape, leaf.nbytes = dtype, shape, len(data)
        return leaf


def tensor(values, dtype, key=None):
    values = numpy.asarray(values, None if dtype == "bfloat16" else dtype)
    return TENSOR, key, 0, Tensor(dtype, values.shape, values.tobytes())


def told(node, values=8):
    (leaf,) = _contents.leaves([node])
    return _contents.leaf_json(leaf, values)


def lines(nodes, values=8):
    return list(_contents.leaf_lines(list(_contents.leaves(nodes)), values))


class Pickles(unittest.TestCase):
    def test_objects(self):
        for value, want in OBJECTS:
            with self.subTest(value):
                self.assertEqual(_contents.pickled_class(pickle.dumps(value, 5)), want)

    def test_what_workers_write(self):
        for value, want in ("a tensor", "torch.Tensor"), ("an array", "numpy.ndarray"), \
                (["a tensor"], "list"):
            with tempfile.TemporaryFile() as file:
                Written(file, 5).dump(value)
                file.seek(0)
                self.assertEqual(_contents.pickled_class(file.read()), want)

    def test_odd_ones(self):
        for data, want in PICKLES:
            with self.subTest(data):
                self.assertEqual(_contents.pickled_class(data), want)

    def test_long_names(self):
        for length, known in (157, True), (158, False):
            data = b"\x8c\x01m\x8c" + bytes([length]) + b"x" * length + b"\x93)\x81."
            self.assertEqual(_contents.pickled_class(data), "m." + "x" * length if known else None)

    def test_damaged(self):
        """Nothing is raised, and nothing is told that is not fit to be seen."""
        rng = random.Random(5)
        whole = [pickle.dumps(value, 5) for value, _ in OBJECTS] + [data for data, _ in PICKLES]
        for data in whole:
            for cut in range(len(data)):
                _contents.pickled_class(data[:cut])
            for _ in range(100):
                damaged = bytearray(data or b"N.")
                for _ in range(rng.randint(1, 4)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                name = _contents.pickled_class(bytes(damaged))
                self.assertTrue(name is None or name.isprintable() and " " not in name, damaged)

    @slow
    def test_is_bounded(self):
        most = _contents._OPCODES_MAX
        self.assertEqual(_contents.pickled_class(b"N" * 1000 + b"."), "NoneType")
        self.assertIsNone(_contents.pickled_class(b"N" * most + b"."))
        # Nothing is made of it: tuples in tuples this deep cannot even be hashed.
        self.assertEqual(_contents.pickled_class(b"})" + b"\x85" * 100000 + b"Ns."), "dict")


class Leaves(unittest.TestCase):
    def test_elements(self):
        for dtype, value, text, as_json in [
                ("bool", True, "true", True), ("uint8", 255, "255", 255), ("int8", -128, "-128", -128),
                ("uint16", 65535, "65535", 65535), ("int16", -2, "-2", -2),
                ("uint32", 2 ** 32 - 1, "4294967295", 2 ** 32 - 1),
                ("int32", -2 ** 31, "-2147483648", -2 ** 31),
                ("uint64", 2 ** 64 - 1, str(2 ** 64 - 1), str(2 ** 64 - 1)), ("int64", -1, "-1", -1),
                ("float16", 1.5, "1.5", 1.5), ("float32", 0.25, "0.25", 0.25),
                ("float64", -1e300, "-1e+300", -1e300), ("float64", math.inf, "inf", None),
                ("float64", math.nan, "nan", None), ("complex64", 1.5 - 2j, "1.5-2j", [1.5, -2.0]),
                ("complex128", 1 + 2j, "1+2j", [1.0, 2.0])]:
            with self.subTest(dtype=dtype, value=value):
                node = tensor([value], dtype)
                self.assertEqual(told(node)["values"], [as_json])
                self.assertEqual(lines([node])[1], " " * 10 + text)

    def test_statistics(self):
        for node, want in [(tensor([[1, 2], [3, 6]], "uint8"), (1, 6, 3)),
                           (tensor(BFLOAT, "bfloat16"), (-1.5, 1, -0.25)),
                           (tensor([2, math.nan], "float32"), (None,) * 3),
                           (tensor([True, False], "bool"), (0, 1, 0.5)),
                           (tensor([65504] * 4, "float16"), (65504,) * 3),
                           (tensor([1j], "complex64"), (None,) * 3),
                           (tensor([], "int64"), (None,) * 3)]:
            got = told(node)
            self.assertEqual((got["min"], got["max"], got["mean"]), want, node)
        self.assertEqual(told(tensor(BFLOAT, "bfloat16"))["values"], [1.0, -1.5])

    def test_lines(self):
        self.assertEqual(lines([
            (DICT, None, 6, None), tensor([[9, 4], [0, 7], [1, 2]], "uint8", "x"),
            (STRING, "s", 0, ["a\x1b[1m", "b", "c"]), (BYTES, "raw", 0, b"\xff\x01abcdefghijklmnopqr"),
            (DICT, "none", 0, None), (OBJECT, "meta", 2, None),
            (BYTES, None, 0, pickle.dumps(Point(), 5)), tensor(0, "complex64"),
            (OBJECT, "what\x1b", 1, None), (BYTES, None, 0, b"?")], 2), [
            "tree      x        uint8      [3, 2]  6 B  min 0  max 9  mean 3.83333",
            "          9 4 ...",
            "          s        string     [3]  7 B",
            '          "a\\x1b[1m", "b", ...',
            "          raw      bytes      []  20 B",
            "          20 bytes ff 01 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e ...",
            "          none     dict       empty",
            f"          meta     object: pickled, {len(pickle.dumps(Point(), 5))} bytes, of "
            f"{__name__}.Point, with 1 tensor",
            "          meta.1   complex64  []  8 B",
            "          0+0j",
            "          what?    object: pickled, 1 bytes"])

    def test_paths(self):
        nodes = [(TUPLE, None, 2, None), (LIST, None, 1, None), tensor(1, "int8"),
                 (DICT, None, 1, None), (STRING, "a.b", 0, "x")]
        self.assertEqual([leaf.path for leaf in _contents.leaves(nodes)], ["0.0", "1.a.b"])
        self.assertTrue(lines([tensor(1, "int8")])[0].startswith("tree      (batch)  int8"))

    def test_strings(self):
        """No UTF-8, and one that is cut inside its last character."""
        cut = "y" * 254 + "€" + "y" * 8
        got = told((STRING, None, 0, ["a\udcff\"", cut, "end\0"]))
        self.assertEqual(got["values"], [{"bytes": 3, "text": 'a?"'}, {"bytes": 265, "text": "y" * 254},
                                         {"bytes": 4, "text": "end\0"}])
        self.assertEqual(told((BYTES, None, 0, b"\xff\x00"))["values"], [{"bytes": 2, "hex": "ff00"}])
        (_, line) = lines([(STRING, None, 0, ["tab\t\"\\\x9b", "x" * 100])])
        self.assertEqual(line, r'          "tab\t\"\\\xc2\x9b", "' + "x" * 59 + '"...')

    def test_figures(self):
        """As C has them."""
        formats = {"bytes": _figures.bytes_of, "count": _figures.count, "percent": _figures.percent,
                   "seconds": _figures.seconds}
        table = pathlib.Path(__file__).parents[1] / "lib/figures.def"
        rows = re.findall(r'(?m)^FIGURE\((\w+), (\S+), "(.*)"\)$', table.read_text(encoding="utf-8"))
        self.assertEqual({kind for kind, _, _ in rows}, {*formats})
        for kind, n, want in rows:
            self.assertEqual(formats[kind](float(n)), want, (kind, n))


WRITE = """
import signal, sys, types
sys.path.append({lib!r})
from dloaderd import _archive
if {ignored} or signal.getsignal({number}) == signal.SIG_IGN:  # as under nohup
    signal.signal({number}, signal.SIG_IGN if {ignored} else signal.SIG_DFL)
batch = types.SimpleNamespace(data=[(6, None, 0, bytes(4 << 20))], indices=[1], lengths=None)
once = _archive._write_arrays
def interrupted(file, arrays):
    file.write(b"half of it")
    file.flush()
    signal.raise_signal({number})
    once(file, arrays)
_archive._write_arrays = interrupted
_archive.write(batch, sys.argv[1], {{}})
"""


class Signals(unittest.TestCase):
    @slow
    def test_nothing_is_left(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            for ignored in False, True:
                with self.subTest(number, ignored=ignored), tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder) / "batch.npz"
                    path.write_bytes(b"before")
                    code = WRITE.format(lib=LIB, number=int(number), ignored=ignored)
                    done = subprocess.run([sys.executable, "-c", code, path], check=False,
                                          stderr=subprocess.PIPE, text=True)
                    self.assertEqual(done.returncode, 0 if ignored else -number, done.stderr)
                    self.assertEqual(os.listdir(folder), ["batch.npz"])
                    self.assertEqual(path.read_bytes() != b"before", ignored)


class Needs(unittest.TestCase):
    """What dlctl says where Python, or the package, is not there."""

    def refused(self, python, *args):
        # Of a loader by its name, in a daemon that nobody asks.
        done = subprocess.run([DLCTL, "peek", "some", "--socket", "/nonexistent/socket", *args],
                              env={**os.environ, "DLOADER_PYTHON": str(python)}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        return done.stderr

    def test_no_python(self):
        text = self.refused("/nonexistent/python")
        self.assertIn("/nonexistent/python: cannot be started: No such file", text)
        self.assertIn("install python3-dloaderd (Debian)", text)

    def test_no_package(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
            python.chmod(0o755)
            text = self.refused(python)
            self.assertRegex(text, r"\Adlctl: dlctl peek needs the Python package dloaderd.* does not have: "
                                   r".*install python3-dloaderd \(Debian\)")
            error = json.loads(self.refused(python, "--json"))["error"]
            self.assertIn("install python3-dloaderd (Debian)", error["message"])

    def test_no_daemon(self):
        self.assertIn("/nonexistent/socket", self.refused(sys.executable))

    def test_modules_of_the_current_folder_are_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "json", "numpy", "dloaderd", "zipfile":
                (pathlib.Path(folder) / f"{name}.py").write_text("print('run')\n")
            done = subprocess.run([DLCTL, "peek", "some", "--socket", "/nonexistent/socket"],
                                  cwd=folder, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("/nonexistent/socket", done.stderr)
