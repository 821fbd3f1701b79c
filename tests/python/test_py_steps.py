"""Loaders opened by a spec seed the global generators for each step: no stream comes twice.

Also no other comes where others look on, where workers are more or fewer, and where one has died.
"""

import os
import random
import signal
import tempfile
import unittest

import numpy as np
import torch

import dloaderd

HERE = os.path.dirname(os.path.abspath(__file__))


class Noisy:
    """Numbers out of all three generators; dies once, at a sample."""

    def __init__(self, deadly=None, mark=None):
        self.deadly = deadly
        self.mark = mark
        self.made = int(np.random.randint(1 << 30))

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == self.deadly and not os.path.exists(self.mark):
            open(self.mark, "x", encoding="utf-8").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return noise(index) + [self.made]


class Counted:
    """Samples larger and larger; the file has the number of each that is made."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 48

    def __getitem__(self, index):
        with open(self.path, "ab") as file:
            file.write(bytes([index]))
        return np.full(64 << index // 4, index)


class Stream:
    """Without end, as far as the test looks; draws before its first sample."""

    def __iter__(self):
        held = noise(0)
        for number in range(1 << 20):
            yield held
            held = noise(number)


def noise(number):
    return [number, int(np.random.randint(1 << 30)), random.randrange(1 << 30),
            int(torch.randint(1 << 30, ()))]


def spec(dataset="Noisy", workers=1, collate="python", **args):
    return {"dataset": {"kind": "python", "object": f"test_py_steps:{dataset}", "args": args},
            "batch": {"size": 2}, "sampler": {"kind": "sequential"}, "collate": {"kind": collate},
            "workers": {"count": workers, "retries": 2}, "seed": 7}


def plain(batch):
    return [[int(x) for x in column] for column in batch]


class TestSteps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Workers of named datasets find them where the daemon's environment says.
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, HERE]))

    def epochs(self, spec, count=2, **how):
        with dloaderd.Loader(spec, as_="torch", **how) as loader:
            return [[plain(batch) for batch in loader] for _ in range(count)]

    def test_the_number_of_workers_changes_nothing(self):
        for collate in ("python", "default"):
            with self.subTest(collate):
                one = self.epochs(spec(collate=collate))
                for workers in (2, 3):  # each imports a PyTorch
                    self.assertEqual(self.epochs(spec(workers=workers, collate=collate)), one)
                for column in (1, 2, 3):
                    drawn = [x for epoch in one for batch in epoch for x in batch[column]]
                    self.assertEqual(len(set(drawn)), 48, column)

    def test_a_worker_that_died(self):
        want = self.epochs(spec(workers=2))
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            got = self.epochs(spec(workers=2, deadly=9, mark=mark))
            self.assertTrue(os.path.exists(mark))
        self.assertEqual(got, want)

    def test_each_sample_is_made_once(self):
        """Also where its batch does not fit the slot that is there: by the worker that has the samples then, but where
        that one is busy and another one makes the batch sooner."""
        for collate in ("python", "default"):
            for workers in (1, 3):
                with self.subTest(collate, workers=workers), tempfile.NamedTemporaryFile() as file:
                    with dloaderd.Loader(spec("Counted", workers, collate, path=file.name), as_="torch") as loader:
                        got = [batch[:, -1].tolist() for batch in loader]
                    self.assertEqual(got, [[n, n + 1] for n in range(0, 48, 2)])
                    made = sorted(file.read())
                    self.assertEqual(made if workers == 1 else sorted(set(made)), list(range(48)))
                    self.assertLessEqual(len(made), 2 * 48)

    def test_ranks_at_different_epochs(self):
        """They share the workers, and make steps in turns."""
        alone = [self.epochs(spec(), rank=rank, world_size=2) for rank in (0, 1)]
        shared = {**spec(), "name": "steps-shared"}
        with dloaderd.Loader(shared, rank=0, world_size=2, as_="torch") as first, \
                dloaderd.Loader(shared, rank=1, world_size=2, as_="torch", epoch=1) as second:
            got = [(plain(a), plain(b)) for a, b in zip(first, second)]
            for _ in range(2):  # somebody else looks at what comes next
                with dloaderd.Loader(shared, rank=0, world_size=2, as_="torch", epoch=1) as third:
                    self.assertEqual(plain(next(iter(third))), alone[0][1][0])
            after = [plain(batch) for batch in first]
        self.assertEqual([a for a, _ in got], alone[0][0])
        self.assertEqual([b for _, b in got], alone[1][1])
        self.assertEqual(after, alone[0][1])

    def test_iterable(self):
        def steps(number):
            with dloaderd.Loader(spec("Stream", workers=2), as_="torch") as loader:
                return [plain(batch) for _, batch in zip(range(number), loader)]

        got = steps(12)
        self.assertEqual(steps(12), got)
        drawn = [x for batch in got for x in batch[1]]
        self.assertEqual(len(set(drawn)), 24)
