"""dloaderd.PackedList: a list that is read from packed memory."""

import copy
import pickle
import random
import unittest

import numpy as np

from dloaderd import PackedList
from tap import slow

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
        got = PackedList(values)
        self.assertEqual(list.__len__(got), 0)
        return got

    def test_reads(self):
        for name, values in KINDS.items():
            with self.subTest(name):
                got = self.make(values)
                self.assertEqual(list(got), values)
                self.assertEqual(len(got), len(values))
                self.assertEqual([type(v) for v in got[:9]], [type(v) for v in values[:9]])
                self.assertTrue(got == values and values == got and not got != values)  # noqa: SIM202
                self.assertEqual(list.__len__(got), 0, "reading has unpacked it")

    def test_what_is_not_packed(self):
        for values in ([], [True] * 600, [1, 2.0] * 300, [2**63] * 600, [None] * 600,
                       [()] * 600, [(1,), (1, 2)] * 300, [[1]] * 600, [(1, None)] * 600):
            with self.assertRaisesRegex(ValueError, "cannot be packed"):
                PackedList(values)

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
        for other in (copy.copy(got), copy.deepcopy(got), got[:]):
            self.assertIs(type(other), list)
            self.assertEqual(other, values)
        other = pickle.loads(pickle.dumps(got))
        self.assertIs(type(other), PackedList)
        self.assertEqual((list.__len__(other), other), (0, values))
        grown = []
        grown.extend(got)
        grown[2:2] = got
        self.assertEqual(len(grown), 2 * len(values))
        self.assertTrue(got)
        with self.assertRaises(TypeError):
            hash(got)
        self.assertEqual(list.__len__(got), 0, "reading has unpacked it")

    @slow
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
