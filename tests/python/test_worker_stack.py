"""The collate in C against PyTorch's default_collate, inside a worker."""

import collections
import random
import sys
import unittest
import warnings

import numpy as np

import worker_case
from worker_case import Loader, Source, grown, same, torch

BATCHES = 2000

Pair = collections.namedtuple("Pair", "left right")
NUMPY_DTYPES = ["?", "i1", "u1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "u2", "u4", "u8",
                ">f4", "U3", "S3", "M8[s]", "O", "g"]


def tensor_leaf(rng):
    dtype = rng.choice([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool,
                        torch.bfloat16, torch.float16, torch.complex64, torch.int32])
    shape = rng.choice([(), (3,), (2, 3), (0, 2), (2, 2, 2), (1,) * 7, (1,) * 8])
    how = rng.choice(["plain"] * 6 + ["strided", "grad", "conj", "neg", "param"])

    def make(own):
        value = torch.tensor(own.random() * 100).to(dtype).expand(shape).clone()
        if how == "strided" and len(shape) > 1:
            value = value.transpose(0, 1).contiguous().transpose(0, 1)
        if how in ("grad", "param") and dtype.is_floating_point:
            value.requires_grad_(True)
        if how == "conj" and dtype.is_complex:
            value = value.conj()
        if how == "neg" and dtype.is_complex:
            value = (value * (1 + 1j)).conj().imag
        if how == "param" and dtype.is_floating_point:
            value = torch.nn.Parameter(value)
        return value
    return make


def array_leaf(rng):
    dtype = rng.choice(NUMPY_DTYPES[:11] * 4 + NUMPY_DTYPES)
    shape = rng.choice([(), (3,), (2, 3), (0, 2), (2, 2, 2), (1,) * 7])
    how = rng.choice(["plain"] * 6 + ["fortran", "back", "broadcast", "read_only"])

    def make(own):
        value = np.full(shape, int(own.random() * 100)).astype(dtype)
        if how == "fortran":
            value = np.asfortranarray(value)
        elif how == "back" and len(value.shape) and value.shape[0] > 1:
            value = value[::-1]
        elif how == "broadcast":
            value = np.broadcast_to(value, (2,) + value.shape)
        elif how == "read_only":
            value.flags.writeable = False
        return value
    return make


def number_leaf(rng):
    kind = rng.choice(["int", "float", "bool", "big", "scalar", "scalar", "huge", "none", "complex"])
    scalar = rng.choice(["bool_", "int8", "uint8", "int16", "int32", "int64", "float16", "float32",
                         "float64", "uint16", "uint64", "longlong", "complex64", "str_", "bytes_"])

    def make(own):
        n = int(own.random() * 100)
        return {"int": n, "float": n / 7, "bool": n > 50, "big": (1 << 62) + n, "none": None,
                "huge": (1 << 63) + n, "complex": complex(n, 1),
                "scalar": getattr(np, scalar)(str(n) if scalar == "str_" else
                                              b"x" if scalar == "bytes_" else n)}[kind]
    return make


def text_leaf(rng):
    kind = rng.choice(["str", "bytes", "wild"])

    def make(own):
        n = own.choice([0, 1, 5, 40])
        text = "".join(own.choice("abäö€😀\0") for _ in range(n))
        if kind == "wild":
            return own.choice([text, "\ud800", b"x"])
        return text if kind == "str" else text.encode()
    return make


def container(rng, depth):
    kind = rng.choice(["dict", "list", "tuple", "pair", "ordered", "mixed keys", "set"])
    parts = [structure(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 2, 3]))]

    def make(own):
        values = [part(own) for part in parts]
        keys = [f"k{i}" for i in range(len(values))]
        if kind == "mixed keys":
            keys = [7 if i else "a" * 200 for i in range(len(values))]
        if kind in ("dict", "mixed keys"):
            return dict(zip(keys, values))
        if kind == "ordered":
            return collections.OrderedDict(zip(keys, values))
        if kind == "pair" and len(values) == 2:
            return Pair(*values)
        if kind == "set":
            return {1, 2}
        return tuple(values) if kind == "tuple" else values
    return make


def structure(rng, depth):
    choices = [tensor_leaf, array_leaf, array_leaf, number_leaf, number_leaf, text_leaf]
    if depth and rng.random() < 0.5:
        return container(rng, depth)
    return rng.choice(choices)(rng)


def batch_of(rng):
    """Samples of one structure; now and then one is of another."""
    plan = structure(rng, 3)
    plans = [plan] * rng.choice([1, 2, 3, 8])
    if rng.random() < 0.2:
        plans[rng.randrange(len(plans))] = structure(rng, 1)
    return [each(rng) for each in plans]


def outcome(function):
    try:
        return "batch", function()
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"


@unittest.skipIf(torch is None, "needs torch")
class DefaultCollate(unittest.TestCase):
    """Whatever the samples: value, or error, as default_collate's."""

    def setUp(self):
        worker_case.in_worker()
        warnings.simplefilter("ignore")

    def compare(self, samples, say):
        from torch.utils.data._utils.collate import default_collate
        kind, want = outcome(lambda: default_collate(samples))
        if kind == "batch" and "requires_grad=True" in repr(want):
            return kind
        code, _, got = Loader(Source(samples), len(samples)).fill(range(len(samples)))
        if kind == "error" and "DispatchKey" in want and code == 0:
            pass  # lazy negation, which PyTorch's own workers cannot share
        elif kind == "error":
            self.assertNotEqual(code, 0, say)
            self.assertEqual(got.error[0].split(", at sample")[0].strip(), want.strip(), say)
        else:
            self.assertEqual(code, 0, f"{say}: {got.error}, but torch gives {want}")
            tree = got.tree()
            self.assertTrue(same(tree, want), f"{say}:\n{tree}\n{want}")
        return kind

    def test_random_batches(self):
        counts = collections.Counter()
        for seed in range(BATCHES):
            samples = batch_of(random.Random(seed))
            counts[self.compare(samples, f"seed {seed}: {samples}")] += 1
        self.assertGreater(counts["batch"], BATCHES // 4)
        self.assertGreater(counts["error"], BATCHES // 10)

    def test_named_cases(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        cases = {
            "promotion of arrays": [array, array.astype(np.float64)],
            "promotion of tensors": [torch.tensor(1, dtype=torch.int32), torch.tensor(1)],
            "castable to the first": [torch.tensor(1.5), torch.tensor(1)],
            "int then float": [1, 2.5],
            "float then int": [2.5, 1],
            "int then bool": [1, True],
            "bool then int": [True, 2],
            "unequal": [array, array[:1]],
            "unequal lists": [[1], [1, 2]],
            "missing key": [{"a": 1}, {"b": 1}],
            "more keys": [{"a": 1}, {"b": 1, "a": 2}],
            "list then tuple": [[1, 2.0], (3, 4.0)],
            "tuple then list": [(1, 2.0), [3, 4.0]],
            "empty dict": [{}, {"a": 1}],
            "empty tuple": [(), ()],
            "array then tensor": [array, torch.from_numpy(array)],
            "tensor then array": [torch.from_numpy(array), array],
            "array then float": [np.float64(1), 2.0],
            "empty key": [{"": 1}, {"": 2}],
            "transposed": [array.T, array.T],
            "channels last": [torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last)] * 2,
            "expanded": [torch.ones(1).expand(5)] * 3,
            "empties": [np.zeros((0, 3)), np.zeros((0, 3))],
            "unequal empties": [np.zeros((0, 3)), np.zeros((0, 4))],
            "sparse": [torch.eye(2).to_sparse()] * 2,
            "scalars of two types": [np.float32(1), np.float64(2)],
            "scalar then nothing": [np.int64(1), None],
            "subclass of dict": [collections.defaultdict(int, a=1)] * 2,
        }
        for name, samples in cases.items():
            with self.subTest(name):
                self.compare(samples, name)

    def test_memmap_rows(self):
        import tempfile
        with tempfile.NamedTemporaryFile() as file:
            rows = np.memmap(file.name, np.float32, "w+", shape=(4, 3))
            rows[:] = np.arange(12).reshape(4, 3)
            self.assertEqual(self.compare([rows[i] for i in range(4)], "rows"), "batch")

    def test_plain_batches_never_ask_python(self):
        """The fast path is the fast path: no call of default_collate for these."""
        class Strict(Source):
            def default_collate(self, samples):
                raise AssertionError(f"asked for {samples}")
        samples = [(np.zeros((2, 2), np.float32), torch.ones(3), i, 1.5, True, "x", b"y",
                    {"a": np.float32(i), "b": [np.int64(i), np.float64(1), np.bool_(1)]})
                   for i in range(4)]
        loader = Loader(Strict(samples), 4)
        code, _, got = loader.fill(range(4))
        self.assertEqual(code, 0, got.error)

    def test_nothing_leaks(self):
        plain = [(np.ones(3), torch.ones(2), "x", {"a": 1.5, "b": [np.int8(i), b"y"]})
                 for i in range(8)]
        mixed = [(np.ones(3), 1)] * 4 + [(np.ones(4), 1)] * 4
        sources = [Source(plain), Source(mixed)]
        for source in sources:
            source.reseed = None  # it would keep all the seeds
        loaders = [Loader(source, 8) for source in sources]

        def rounds():
            for _ in range(200):  # an object for each fill would be 45 kB
                for loader in loaders:
                    loader.fill(range(8))
                    loader.fill(range(8), slot_bytes=256, step=1)
        rounds()
        held = [*plain[0], plain[0][3]["b"][0], *mixed[0], "a", "b"]
        before = [sys.getrefcount(item) for item in held]
        self.assertLess(grown(rounds), 1_000)
        after = [sys.getrefcount(item) for item in held]
        self.assertLess(max(abs(b - a) for a, b in zip(before, after)), 20, (before, after))
