"""The object that travels to the workers: dloader._payload and dloader._packed."""

import copy
import mmap
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np
import torch

import dloader
from dloader import PayloadError, _packed, _payload

TEXTS = [f"images/{i:08d}.jpg" for i in range(2000)]


class Holder:
    """A dataset's like: whatever attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def travel(dataset, **more):
    fd = _payload.dump({"dataset": dataset, "collate_fn": None, "worker_init_fn": None, **more})
    try:
        return _payload.load(fd)
    finally:
        os.close(fd)


def private_kib(address):
    """KiB of the mapping at `address` that were copied for this process."""
    inside = False
    with open("/proc/self/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            head = line.split()[0]
            if "-" in head and not head.endswith(":"):
                low, high = (int(part, 16) for part in head.split("-"))
                inside = low <= address < high
            elif inside and head == "Anonymous:":
                return int(line.split()[1])
    return None


class RoundTrips(unittest.TestCase):
    def test_plain(self):
        got = travel(Holder(a=1, b=[1, "x"], c={"k": (1, 2)}))
        self.assertEqual(vars(got["dataset"]), {"a": 1, "b": [1, "x"], "c": {"k": (1, 2)}})
        self.assertIsNone(got["collate_fn"])
        self.assertFalse(got["iterable"])
        self.assertEqual(got["environ"], dict(os.environ))
        self.assertIn("sys_path", got["main"])

    def test_sealed(self):
        fd = _payload.dump({"dataset": 1, "collate_fn": None, "worker_init_fn": None})
        with self.assertRaises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with self.assertRaises(PermissionError):
            os.ftruncate(fd, 1)
        self.assertFalse(os.get_inheritable(fd))
        os.close(fd)

    def test_arrays(self):
        for array in (np.arange(12.0).reshape(3, 4), np.zeros((0, 3), "u1"), np.array("x"),
                      np.arange(24).reshape(4, 6)[:, ::2], np.asfortranarray(np.ones((3, 5), "f2")),
                      np.array([1, "a", None], dtype=object), np.arange(5, dtype=">i4"),
                      np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])):
            got = travel(Holder(x=array))["dataset"].x
            np.testing.assert_array_equal(got, array)
            self.assertEqual(got.dtype, array.dtype)

    def test_strides_stay(self):
        base = np.arange(60).reshape(3, 4, 5)
        for array in (base[::-1], base[:, ::-1, ::2], base[::2].T, base[1:, 1:3, 1:4],
                      np.arange(9, dtype=">u2")[::-2]):
            got = travel(Holder(x=array))["dataset"].x
            np.testing.assert_array_equal(got, array)
            self.assertEqual((got.strides, got.dtype), (array.strides, array.dtype))
            got[...] = 1
        sparse = np.zeros((1000, 1000))[:, 0]
        self.assertEqual(travel(Holder(x=sparse))["dataset"].x.strides, (8,))

    def test_arrays_are_views_of_the_file(self):
        array = np.arange(1 << 20, dtype="i8")
        got = travel(Holder(x=array))["dataset"].x
        self.assertTrue(got.flags.writeable)
        self.assertEqual(got.ctypes.data % 64, 0)
        before = private_kib(got.ctypes.data)
        self.assertLess(before, 64)
        self.assertEqual(int(got.sum()), int(array.sum()))
        self.assertEqual(private_kib(got.ctypes.data), before)
        got[:] = 0
        self.assertEqual(int(array[5]), 5)
        self.assertGreater(private_kib(got.ctypes.data), 4096)

    def test_tensors(self):
        base = torch.arange(24.0)
        for tensor in (base, base.view(4, 6), base.view(4, 6).t(), base[3:9], base[::2],
                       torch.tensor(3), torch.empty(0, 4), torch.ones(3, dtype=torch.bool),
                       torch.ones(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.complex64),
                       torch.ones(3).expand(5, 3), torch.ones(2, requires_grad=True)):
            got = travel(Holder(x=tensor))["dataset"].x
            self.assertTrue(torch.equal(got, tensor), tensor)
            self.assertEqual((got.dtype, got.stride(), got.requires_grad),
                             (tensor.dtype, tensor.stride(), tensor.requires_grad))

    def test_tensors_over_one_storage_stay_so(self):
        base = torch.zeros(1 << 16)
        got = travel(Holder(x=base, rows=[base[i * 64:(i + 1) * 64] for i in range(1024)]))
        got = got["dataset"]
        got.rows[3][1] = 5
        self.assertEqual(float(got.x[3 * 64 + 1]), 5)

    def test_unusual_tensors(self):
        for tensor in (torch.nn.Parameter(torch.ones(3)), torch.eye(3).to_sparse(),
                       torch.ones(2, dtype=torch.complex64).conj()):
            got = travel(Holder(x=tensor))["dataset"].x
            self.assertIs(type(got), type(tensor))
            self.assertTrue(torch.equal(got.to_dense() if got.is_sparse else got,
                                        tensor.to_dense() if tensor.is_sparse else tensor))

    def test_what_fork_would_have_kept(self):
        generator = torch.Generator().manual_seed(5)
        got = travel(Holder(lock=threading.Lock(), again=threading.RLock(), g=generator))["dataset"]
        self.assertTrue(got.lock.acquire(timeout=1))
        self.assertTrue(got.again.acquire(timeout=1))
        self.assertEqual(torch.randperm(9, generator=got.g).tolist(),
                         torch.randperm(9, generator=generator).tolist())

    def test_refused(self):
        with self.assertRaisesRegex(PayloadError, r"dataset\.a\['k'\]\[1\].*generator.*__getitem__"):
            travel(Holder(a={"k": [1, (i for i in "x")]}))
        with self.assertRaisesRegex(PayloadError, r"worker_init_fn"):
            travel(1, worker_init_fn=(i for i in "x"))
        function = lambda: 3  # noqa: E731
        if _payload.cloudpickle is None:
            with self.assertRaisesRegex(PayloadError, "collate_fn.*install cloudpickle"):
                travel(1, collate_fn=function)
        else:
            self.assertEqual(travel(1, collate_fn=function)["collate_fn"](), 3)

    def test_damaged(self):
        fd = os.memfd_create("x")
        for data in (b"", b"x" * 100, _payload.MAGIC + b"\xff" * 24, _payload.MAGIC + b"\0" * 8):
            os.ftruncate(fd, 0)
            os.pwrite(fd, data, 0)
            with self.assertRaises(PayloadError):
                _payload.load(fd)
        os.close(fd)


class Memmap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "rows.bin")
        np.arange(100000, dtype="i4").tofile(self.path)

    def tearDown(self):
        self.folder.cleanup()

    def test_by_name(self):
        whole = np.memmap(self.path, dtype="i4", mode="r", offset=8008, shape=(2000, 10))
        for array in (whole, whole[7:], whole[3], np.asarray(whole)[5:9]):
            fd = _payload.dump({"dataset": array, "collate_fn": None, "worker_init_fn": None})
            got = _payload.load(fd)["dataset"]
            self.assertIsInstance(got, np.memmap)
            np.testing.assert_array_equal(got, array)
            self.assertLess(os.fstat(fd).st_size, 60000)
            os.close(fd)

    def test_changed_copies_travel_whole(self):
        array = np.memmap(self.path, dtype="i4", mode="c")
        array[3] = -1
        self.assertEqual(int(travel(array)["dataset"][3]), -1)
        strided = np.memmap(self.path, dtype="i4", mode="r")[::3]
        np.testing.assert_array_equal(travel(strided)["dataset"], strided)


KINDS = {
    "ascii": [f"a{i}" for i in range(600)],
    "text": ["", "ä", "日本", "\ud800", "\0x"] * 150,
    "bytes": [b"", b"\0", b"xyz"] * 200,
    "ints": list(range(-300, 298)) + [2**63 - 1, -2**63],
    "floats": [i / 7 for i in range(600)],
    "pairs": [(f"f{i}", i % 5) for i in range(600)],
    "nested": [(("a", i), b"x" * (i % 3), 0.5) for i in range(600)],
}


class Packed(unittest.TestCase):
    def make(self, values):
        got = travel(Holder(x=values))["dataset"].x
        self.assertIs(type(got), _packed.PackedList)
        self.assertEqual(list.__len__(got), 0)
        return got

    def test_reads(self):
        for name, values in KINDS.items():
            with self.subTest(name):
                got = self.make(values)
                self.assertEqual(list(got), values)
                self.assertEqual(len(got), len(values))
                self.assertEqual([type(v) for v in got[:9]], [type(v) for v in values[:9]])
                self.assertTrue(got == values and values == got and not got != values)
                self.assertEqual(list.__len__(got), 0, "reading has unpacked it")

    def test_what_is_not_packed(self):
        for values in ([True] * 600, [1, 2.0] * 300, [2**63] * 600, ["x"] * 511, [None] * 600,
                       [()] * 600, [(1,), (1, 2)] * 300, [[1]] * 600, [(1, None)] * 600):
            got = travel(Holder(x=values))["dataset"].x
            self.assertIs(type(got), list)
            self.assertEqual(got, values)

    def test_everywhere_a_list_may_stand(self):
        values = KINDS["ascii"]
        got = self.make(values)
        self.assertEqual([] + got, values)
        self.assertEqual(got + ["x"], values + ["x"])
        self.assertEqual(["x"] + got, ["x"] + values)
        self.assertEqual(got + got, values + values)
        self.assertEqual([*got], values)
        self.assertEqual(tuple(got), tuple(values))
        self.assertEqual((lambda *a: a)(*got), tuple(values))
        self.assertEqual("".join(got), "".join(values))
        self.assertEqual(sorted(got), sorted(values))
        self.assertEqual(list(reversed(got)), values[::-1])
        self.assertEqual(np.array(got).tolist(), values)
        self.assertEqual(dict(enumerate(got)), dict(enumerate(values)))
        self.assertEqual((max(got), min(got), set(got)), (max(values), min(values), set(values)))
        self.assertEqual(repr(got), repr(values))
        for other in (copy.copy(got), copy.deepcopy(got), pickle.loads(pickle.dumps(got)), got[:]):
            self.assertIs(type(other), list)
            self.assertEqual(other, values)
        grown = []
        grown.extend(got)
        grown[2:2] = got
        self.assertEqual(len(grown), 2 * len(values))
        self.assertTrue(got)
        with self.assertRaises(TypeError):
            hash(got)
        self.assertEqual(list.__len__(got), 0, "reading has unpacked it")

    def test_one_list_twice_is_one(self):
        values = list(KINDS["ascii"])
        got = travel(Holder(x=values, y=values))["dataset"]
        self.assertIs(got.x, got.y)
        got.x.append("new")
        self.assertEqual(got.y[-1], "new")

    def test_random_operations(self):
        seed = random.randrange(1 << 30)
        for turn in range(300):
            chance = random.Random(f"{seed} {turn}")
            values = list(chance.choice(list(KINDS.values())))
            got = self.make(values)
            for _ in range(12):
                act = self.operation(chance)
                outcome = []
                for target in (values, got):
                    try:
                        outcome.append(act(target))
                    except (IndexError, ValueError, TypeError) as error:
                        outcome.append((type(error), str(error)))
                self.assertEqual(outcome[0], outcome[1], f"seed {seed}, turn {turn}")
                self.assertEqual(len(values), len(got), f"seed {seed}, turn {turn}")
            self.assertEqual(values, list(got), f"seed {seed}, turn {turn}")

    @staticmethod
    def operation(chance):
        i, j, k = (chance.randrange(-700, 700) for _ in range(3))
        step = chance.choice([None, 1, 2, -1, -3])
        fresh = chance.choice(["x", b"y", 3, ("f1", 1)])
        reads = [lambda t: t[i], lambda t: t[i:j:step], lambda t: len(t), lambda t: fresh in t,
                 lambda t: t.count(fresh), lambda t: t.index(fresh), lambda t: t[True],
                 lambda t: t.index(t[5], i, j), lambda t: t < t[i:], lambda t: t == t[:],
                 lambda t: t * 2, lambda t: 0 * t, lambda t: t["x"], lambda t: t + [fresh],
                 lambda t: t + (1,), lambda t: list(zip(t, t))[i], lambda t: t.__contains__(t[0])]
        writes = [lambda t: t.append(fresh), lambda t: t.pop(), lambda t: t.pop(i),
                  lambda t: t.insert(i, fresh), lambda t: t.__setitem__(i, fresh),
                  lambda t: t.__setitem__(slice(i, j), [fresh]), lambda t: t.__delitem__(k),
                  lambda t: t.reverse(), lambda t: t.remove(t[3]), lambda t: t.extend([fresh]),
                  lambda t: t.sort(key=repr), lambda t: t.__iadd__([fresh]) is t,
                  lambda t: t.__imul__(1) is t]
        return chance.choice(reads if chance.random() < 0.8 else writes)


MAIN = '''
import os, sys
from dloader import _payload
class Dataset:
    def __getitem__(self, i):
        return i * 2
if __name__ == "__main__":
    fd = _payload.dump({"dataset": Dataset(), "collate_fn": None, "worker_init_fn": None})
    os.set_inheritable(fd, True)
    code = ("from dloader import _bootstrap as b; s = b.open_worker(1, 2, 0, %d, None, "
            "{'base_seed': 5}, None, True); print(s.dataset[21], s.dataset.__class__.__name__)" % fd)
    os.execv(sys.executable, [sys.executable, "-c", code])
'''


class MainModule(unittest.TestCase):
    def run_main(self, arguments, **options):
        package = os.path.dirname(os.path.dirname(os.path.abspath(dloader.__file__)))
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                              timeout=300, env={**os.environ, "PYTHONPATH": package}, **options)

    def test_classes_of_the_main_module(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(MAIN)
            for arguments in ([path], ["-m", "script"]):
                done = self.run_main(arguments, cwd=folder)
                self.assertEqual(done.stdout, "42 Dataset\n", done.stderr)

    def test_of_no_file(self):
        done = self.run_main(["-c", MAIN])
        if _payload.cloudpickle is None:
            self.assertIn("install cloudpickle", done.stderr)
        else:
            self.assertEqual(done.stdout, "42 Dataset\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
