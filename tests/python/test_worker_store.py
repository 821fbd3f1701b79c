"""Any Python object in a slot, and back: what a user's collate_fn returns."""

import collections
import random
import sys
import unittest

import numpy as np

import worker_case
from worker_case import ENOBUFS, Loader, Source, grown, same, torch
from slot import BYTES, DICT, LIST, OBJECT, STRING, TENSOR, TUPLE

Pair = collections.namedtuple("Pair", "left right")


class Thing:
    """Of a class of the user's."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __eq__(self, other):
        return type(other) is Thing and same(self.__dict__, other.__dict__)


class Shrinks:
    """Changes what is stored beside it, when it is pickled."""

    def __init__(self, victim):
        self.victim = victim

    def __reduce__(self):
        self.victim.clear()
        return int, ()


def stored(value, **how):
    """(code, used, Slot) of a batch that is `value`."""
    return Loader(Source([0], collate=lambda samples: value), 1).fill([0], **how)


@unittest.skipIf(torch is None, "needs torch")
class Store(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def check(self, value, kinds=None):
        code, used, got = stored(value)
        self.assertEqual(code, 0, got and got.error)
        tree = got.tree()
        self.assertTrue(same(tree, value) or tree == value, f"{tree!r} for {value!r}")
        if kinds is not None:
            self.assertEqual([node.kind for node in got.nodes], kinds)
        self.assertEqual(used, got.header.used)

    def test_plain_trees(self):
        tensor = torch.arange(6.0).reshape(2, 3)
        self.check(tensor, [TENSOR])
        self.check({"a": tensor, "b": [tensor, (tensor,)]}, [DICT, TENSOR, LIST, TENSOR, TUPLE,
                                                             TENSOR])
        self.check("text", [STRING])
        self.check(b"bytes\0", [BYTES])
        self.check(["a", "bc", ""], [STRING])
        self.check([b"a", b"bc"], [BYTES])
        self.check(["a", b"a"], [LIST, STRING, BYTES])
        self.check(("a", tensor), [TUPLE, STRING, TENSOR])
        self.check([], [LIST])
        self.check((), [TUPLE])
        self.check({}, [DICT])
        self.check({"": tensor}, [DICT, TENSOR])

    def test_objects(self):
        tensor = torch.arange(6.0)
        array = np.arange(4, dtype=np.int16)
        self.check(3, [OBJECT, BYTES])
        self.check(None, [OBJECT, BYTES])
        self.check(2.5)
        self.check(True)
        self.check(1 << 100)
        self.check([1, 2, 3], [OBJECT, BYTES])
        self.check(list(range(1000)), [OBJECT, BYTES])
        self.check({"a": 1, "b": tensor}, [DICT, OBJECT, BYTES, TENSOR])
        self.check(array, [OBJECT, BYTES, TENSOR])
        self.check({1: tensor}, [OBJECT, BYTES, TENSOR])
        self.check(Pair(tensor, array), [OBJECT, BYTES, TENSOR, TENSOR])
        self.check(Thing(x=tensor, y=[array, {"z": 3}]), [OBJECT, BYTES, TENSOR, TENSOR])
        self.check({"a\0b": tensor}, [OBJECT, BYTES, TENSOR])
        self.check({"k" * 200: 1}, [OBJECT, BYTES])
        self.check("\ud800", [OBJECT, BYTES])
        self.check(tuple(str(i) for i in range(100)), [OBJECT, BYTES])
        self.check(collections.OrderedDict(a=tensor), [OBJECT, BYTES, TENSOR])
        self.check(np.float32(3), [OBJECT, BYTES])
        self.check(np.array(["a", "b"]), [OBJECT, BYTES])
        self.check(np.array([3], ">i4"), [OBJECT, BYTES])
        self.check(torch.float32)
        self.check(torch.Size([1, 2]))

    def test_tensors_of_all_sorts(self):
        base = torch.arange(24.0).reshape(2, 3, 4)
        complex_ = torch.tensor([1 + 2j, 3 - 4j])
        for value in [base.permute(2, 0, 1), base[:, ::2], base[0, 0, 0], base[:0],
                      base.expand(2, 2, 3, 4), complex_.conj(), complex_.conj().imag,
                      base.to(torch.bfloat16), base > 3, base.to(torch.float16)]:
            with self.subTest(repr(value)):
                self.check(value, [TENSOR])
        self.check(torch.ones((1,) * 9), [OBJECT, BYTES, TENSOR])
        leaf = torch.ones(3, requires_grad=True)
        code, _, got = stored({"w": leaf})
        self.assertEqual(code, 0)
        self.assertTrue(got.tree()["w"].requires_grad)

    def test_part_of_a_graph(self):
        code, _, got = stored([torch.ones(3, requires_grad=True) * 2])
        self.assertNotEqual(code, 0)
        self.assertIn("Cowardly refusing to serialize non-leaf tensor", got.error[0])

    def test_random_trees(self):
        rng = random.Random(7)

        def value(depth):
            choice = rng.randrange(12 if depth else 8)
            if choice >= 8:
                values = [value(depth - 1) for _ in range(rng.randrange(4))]
                return [values, tuple(values), {f"k{i}": v for i, v in enumerate(values)},
                        {i: v for i, v in enumerate(values)}][choice - 8]
            return [1, "text", b"bytes", None, torch.rand(rng.randrange(3)),
                    np.ones(rng.randrange(3)), 2.5, Pair(torch.ones(2), "x")][choice]

        for i in range(500):
            with self.subTest(i):
                self.check(value(5))

    def test_deep_and_wide(self):
        nested = torch.ones(1)
        for _ in range(20):
            nested = [nested]
        self.check(nested)
        for _ in range(100):
            nested = [nested]
        self.check(nested)
        deep = []
        for _ in range(100_000):
            deep = [deep]
        code, _, got = stored(deep)
        self.assertNotEqual(code, 0)
        self.assertIn("RecursionError", got.error[0])
        while deep:
            deep = deep[0]
        code, _, got = stored([torch.ones(1)] * 70_000)
        self.assertNotEqual(code, 0)
        self.assertIn("RuntimeError", got.error[0])

    def test_holds_itself(self):
        own = []
        own.append(own)
        code, _, got = stored(own)
        self.assertEqual(code, 0)
        tree = got.tree()
        self.assertIs(tree[0], tree)
        twice = []
        twice += [twice, twice]
        code, _, got = stored(twice)
        self.assertEqual(code, 0)

    def test_cannot_be_pickled(self):
        code, _, got = stored({"a": torch.ones(1), "f": (n for n in range(3))})
        self.assertNotEqual(code, 0)
        self.assertIn("cannot pickle 'generator' object", got.error[0])

    def test_changes_while_stored(self):
        victim = {"a": torch.ones(1), "b": 3}
        code, _, got = stored([torch.ones(1), Shrinks(victim), victim])
        self.assertEqual(code, 0, got.error)
        inner = [torch.ones(1), "x", torch.ones(2)]
        code, _, got = stored([inner, Shrinks(inner), torch.ones(1)])
        self.assertEqual(code, 0)

    def test_array_resized_while_stored(self):
        class Resizes:
            def __init__(self, array):
                self.array = array

            def __reduce__(self):
                self.array.resize(1, refcheck=False)
                return int, ()

        array = np.arange(1000.0)
        code, _, got = stored([torch.ones(1), [array], Resizes(array)])
        self.assertNotEqual(code, 0)
        self.assertIn("changed", got.error[0])

    def test_tensor_resized_while_stored(self):
        class Resizes:
            def __init__(self, tensor):
                self.tensor = tensor

            def __reduce__(self):
                self.tensor.resize_(1 << 16)
                return int, ()

        tensor = torch.ones(4)
        code, _, got = stored([tensor, Resizes(tensor)])
        self.assertNotEqual(code, 0)
        self.assertIn("changed", got.error[0])

    def test_too_small(self):
        value = {"x": torch.ones(5000), "t": ["abc"] * 10, "o": Pair(np.ones(100), 1)}
        made = []
        loader = Loader(Source([0], collate=lambda samples: made.append(1) or value), 1)
        code, need, _ = loader.fill([0], slot_bytes=4096)
        self.assertEqual(code, ENOBUFS)
        code, used, got = loader.fill([0], slot_bytes=need)
        self.assertEqual((code, used), (0, need))
        self.assertTrue(same(got.tree(), value))
        self.assertEqual(len(made), 1, "the collate function is not called again")

    def test_gaps_are_zero(self):
        value = {"x": torch.ones(3, dtype=torch.uint8), "y": torch.ones(5), "z": "abc"}
        _, _, one = stored(value)
        _, _, two = stored(value)
        self.assertEqual(one.data, two.data)
        end = one.header.tree_off + one.header.tree_len
        self.assertEqual(set(one.data[end:one.header.data_off]), {0})

    def test_nothing_leaks(self):
        value = {"x": torch.ones(50), "o": Pair(np.ones(100), [1]), "t": ["a"], "n": 5,
                 "a": np.ones(3)}
        sources = [Source([0], collate=lambda samples: value),
                   Source([0], collate=lambda samples: [value, (n for n in ())])]
        for source in sources:
            source.reseed = None  # it would keep all the seeds
        loader, bad = (Loader(source, 1) for source in sources)

        def round_():
            for _ in range(50):
                loader.fill([0])
                loader.fill([0], slot_bytes=1024)
                bad.fill([0])
                loader.fill([0], slot_bytes=512, step=3)
                loader.fill([0], step=3)
        round_()
        before = {key: sys.getrefcount(item) for key, item in value.items()}
        self.assertLess(grown(round_), 1_000)
        self.assertEqual({key: sys.getrefcount(item) for key, item in value.items()}, before)


class WithoutTorch(unittest.TestCase):
    """In an interpreter that has not imported torch, arrays are the tensors."""

    CODE = """
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("no torch here")
sys.meta_path.insert(0, Hidden())
import numpy as np
import worker_case
from slot import Leaf
samples = [(np.full(3, i, np.uint16), i, {"a": np.float32(i), "b": "x"}) for i in range(4)]
loader = worker_case.Loader(worker_case.Source(samples), 4)
code, used, got = loader.fill(range(4))
assert code == 0, got.error
first, second, third = got.tree(Leaf.numpy)
assert first.dtype == np.uint16 and first.shape == (4, 3) and second.tolist() == [0, 1, 2, 3]
assert third["a"].dtype == np.float32 and third["b"] == ["x"] * 4
loader = worker_case.Loader(worker_case.Source(samples, collate=lambda s: s[0]), 1)
code, used, got = loader.fill([2])
tree = got.tree(Leaf.numpy)
assert type(tree) is tuple and tree[0].tolist() == [2, 2, 2] and tree[1] == 2
loader = worker_case.Loader(worker_case.Source([None, None]), 2)
code, used, got = loader.fill([0, 1])
assert code != 0 and "torch" in got.error[0], got.error
"""

    def test_numpy_alone(self):
        import subprocess
        path = [*sys.path]
        done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n" +
                               self.CODE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
