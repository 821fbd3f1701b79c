"""What a DataLoader has beside PyTorch's, and what its iterators are made of: a seed and ranks, random numbers of a
sample's own, samplers that have states, words that carry keys, reports of errors."""

import os
import pickle
import struct
import unittest

import torch
from torch.utils import data as theirs

import dloaderd
from dloaderd import DataLoader, _keys, _reraise


class Rows(theirs.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Keyed(Rows):
    def __getitem__(self, index):
        return dloaderd.sample_rng().integers(0, 2**62)


class Many(Rows):
    def __getitems__(self, indices):
        return [torch.tensor([i, dloaderd.sample_rng(i).integers(100)]) for i in indices]


def run(loader, epochs=1):
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


def numbers(loader):
    """The sample numbers of one epoch."""
    return [i for batch in loader for i in batch.tolist()]


class Ours(unittest.TestCase):
    def test_seed(self):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = run(DataLoader(Rows(), shuffle=True, seed=7), 3)
        sampler = theirs.SubsetRandomSampler(range(10))
        with_sampler = run(DataLoader(Rows(), sampler=sampler, seed=7), 3)
        self.assertTrue(torch.equal(before, torch.get_rng_state()))
        torch.manual_seed(2)
        self.assertEqual(first, run(DataLoader(Rows(), shuffle=True, seed=7), 3))
        self.assertEqual(with_sampler, run(DataLoader(Rows(), sampler=sampler, seed=7), 3))
        self.assertNotEqual(with_sampler[0], with_sampler[1])
        plain = theirs.DataLoader(Rows(), shuffle=True, generator=torch.Generator().manual_seed(7))
        self.assertEqual(first, run(plain, 3))
        for wrong, error in (("7", TypeError), (True, TypeError)):
            with self.assertRaises(error):
                DataLoader(Rows(), seed=wrong)
        with self.assertRaisesRegex(ValueError, "mutually exclusive"):
            DataLoader(Rows(), seed=7, generator=torch.Generator())

    def test_ranks(self):
        for shuffle in (False, True):
            loaders = [DataLoader(Rows(11), shuffle=shuffle, seed=5, rank=r, world_size=3)
                       for r in range(3)]
            for epoch in range(2):
                for rank, loader in enumerate(loaders):
                    want = theirs.DistributedSampler(Rows(11), 3, rank, shuffle=shuffle, seed=5)
                    want.set_epoch(epoch)
                    self.assertEqual(numbers(loader), list(want))
        for wrong in ({"rank": 1}, {"rank": 1, "world_size": 2, "sampler": [1]},
                      {"rank": 2, "world_size": 2}):
            with self.assertRaises(ValueError):
                DataLoader(Rows(), **wrong)

    def test_keyed_samples(self):
        first = run(DataLoader(Keyed(), seed=3), 2)
        self.assertEqual(first, run(DataLoader(Keyed(), seed=3), 2))
        self.assertEqual(len({value for epoch in first for [value] in epoch}), 20)
        self.assertEqual(sorted(run(DataLoader(Keyed(), seed=3, shuffle=True))[0]), sorted(first[0]))
        self.assertEqual([batch[:, 0].tolist() for batch in DataLoader(Many(5), batch_size=2)], [[0, 1], [2, 3], [4]])
        with self.assertRaisesRegex(RuntimeError, "outside a sample"):
            dloaderd.sample_rng()


class State(unittest.TestCase):
    def test_stateful_sampler(self):
        class Sampler(theirs.Sampler):
            def __init__(self):
                self.at = 0
                self.skip = None

            def __len__(self):
                return 8

            def __iter__(self):
                self.at, self.skip = self.skip or 0, None
                while self.at < 8:
                    self.at += 1
                    yield self.at - 1

            def state_dict(self):
                return {"at": self.at}

            def load_state_dict(self, state):
                self.skip = state["at"]
        for batches in (0, 1, 2, 3, 4):
            loader = DataLoader(Rows(), sampler=Sampler(), batch_size=2)
            list(loader)
            for _ in zip(range(batches), loader):
                state = loader.state_dict()
            state = state if batches else loader.state_dict()
            loader = DataLoader(Rows(), sampler=Sampler(), batch_size=2)
            loader.load_state_dict(state)
            self.assertEqual([numbers(loader), numbers(loader)],
                             [list(range(2 * batches, 8)), list(range(8))], batches)

    def test_refused(self):
        loader = DataLoader(Rows(20), shuffle=True)
        good = loader.state_dict()
        for change in ({"version": 9}, {"version": None}, {"epoch": -1}, {"batches": "3"},
                       {"rng": {}}, {"rng": {"global": "!!", "generators": []}},
                       {"rng": {"global": "AAAA", "generators": []}}, {"drawn": 1},
                       {"rng": {**good["rng"], "generators": [good["rng"]["global"]]}}):
            with self.assertRaises(dloaderd.StateError, msg=change):
                loader.load_state_dict({**good, **change})
        with self.assertRaises(dloaderd.StateError):
            loader.load_state_dict(None)


class Parts(unittest.TestCase):
    def test_words_of_keys(self):
        words, kept = _keys.words([1, -5, 2**63 - 1], 3)
        self.assertEqual((list(words), kept), ([1, -5, 2**63 - 1], None))
        self.assertEqual(list(_keys.words(memoryview(b"12345678").cast("q"), 1)[0].tobytes()), list(b"12345678"))
        for keys in ([], list(range(200000)), ["a" * 600000], ["a"], [True], [2**64], [None], [os.urandom(600000)],
                     [_keys.KEYS_MARK_SIGNED], [1, 2, 3, 4]):
            words, kept = _keys.words(keys, 3)
            mark, length, *rest = words
            self.assertEqual(mark, _keys.KEYS_MARK_SIGNED)
            self.assertLessEqual(len(words), _keys.MAX_WORDS)
            self.assertEqual(kept is not None, type(keys and keys[0]) is bytes)
            self.assertEqual(pickle.loads(struct.pack(f"<{len(rest)}q", *rest)[:length]), keys)
        with self.assertRaisesRegex(TypeError, "integers or strings"):
            _keys.words([lambda: 1], 3)

    def test_reports(self):
        class Local(Exception):
            pass
        for where in (f"{__name__}:Local", "nowhere_at_all:X", "print"):
            with self.assertRaises(RuntimeError) as caught:
                _reraise.raise_report(where + "\nCaught X")
            self.assertIs(type(caught.exception), RuntimeError)
        with self.assertRaisesRegex(dloaderd.StateError, "Caught X"):
            _reraise.raise_report("dloaderd:StateError\nCaught X")
        self.assertRegex(_reraise.death_text("worker 1 (pid 5) exited with status 3"),
                         r"DataLoader worker \(pid 5\) exited unexpectedly with exit code 3")
        self.assertIsNone(_reraise.death_text("the cat sat on it"))
