"""Seeds of workers, sample_rng(), and what a worker makes of a job or a name."""

import random
import sys
import types
import unittest

import numpy as np
import torch
import torch.utils.data

import dloaderd
from dloaderd import _bootstrap, _info, _seeds
from dloaderd import random as keyed

# base seed, worker → the words; from PyTorch itself.
WORDS = [
    (0, 0, [2968811710, 3677149159, 745650761, 2884920346]),
    (0, 1, [1835504127, 1731038949, 1320224556, 2330041505]),
    (42, 0, [355231105, 2299483779, 806451919, 2125692606]),
    (42, 1, [3394225019, 2630397851, 1285277108, 1314967157]),
    (6909045637428952499, 0, [1635152616, 742584865, 3822113244, 3272642742]),
    (6909045637428952499, 1, [3232472729, 3564977305, 1873334822, 126208319]),
    (2**63 - 1, 3, [1885505632, 4179896284, 1438801625, 814051130]),
]


class Seeds(unittest.TestCase):
    def test_words(self):
        for base, worker, words in WORDS:
            self.assertEqual(_seeds.numpy_words(base, worker), words)

    def test_words_are_those_of_this_torch(self):
        from torch.utils.data._utils.worker import _generate_state
        for _ in range(50):
            base, worker = random.getrandbits(63), random.randrange(1000)
            self.assertEqual(_seeds.numpy_words(base, worker), list(_generate_state(base, worker)))

    def test_streams(self):
        self.assertEqual(_seeds.seed_all(6909045637428952499, 1), 6909045637428952500)
        self.assertEqual(random.random(), float.fromhex("0x1.3ea674086ea71p-1"))
        self.assertEqual(np.random.randint(0, 2**32, 2, dtype=np.uint32).tolist(),
                         [3809748468, 3289406567])
        self.assertEqual(int(torch.empty((), dtype=torch.int64).random_()), 2388289256833682258)

    def test_each_epoch_has_a_base_of_its_own(self):
        bases = {_seeds.epoch_base(seed, epoch) for seed in range(20) for epoch in range(50)}
        self.assertEqual(len(bases), 1000)
        self.assertTrue(all(0 <= base < 2**63 for base in bases))


class SampleRng(unittest.TestCase):
    def tearDown(self):
        keyed.clear_key()

    def test_is_the_documented_stream(self):
        keyed.set_key(-3, 7, 11)
        want = np.random.Generator(np.random.Philox(
            key=np.array([2**64 - 3, 7], "u8"), counter=np.array([0, 0, 11, 0], "u8")))
        self.assertEqual(dloaderd.sample_rng().integers(0, 2**62, 5).tolist(),
                         want.integers(0, 2**62, 5).tolist())
        self.assertEqual(dloaderd.sample_rng(3).random(), dloaderd.sample_rng(3).random())
        self.assertNotEqual(dloaderd.sample_rng(3).random(), dloaderd.sample_rng(4).random())

    def test_outside(self):
        with self.assertRaisesRegex(RuntimeError, "outside a sample.*__getitem__"):
            dloaderd.sample_rng()
        keyed.set_key(1, 2, "name")
        with self.assertRaisesRegex(RuntimeError, r"has no number.*sample_rng\(index\)"):
            dloaderd.sample_rng()
        self.assertIsInstance(dloaderd.sample_rng(5), np.random.Generator)

    def test_asks_the_worker(self):
        fake = types.ModuleType("dloaderd._worker")
        fake.key = lambda: (1, 2, 3)
        sys.modules["dloaderd._worker"] = fake
        try:
            value = dloaderd.sample_rng().random()
        finally:
            del sys.modules["dloaderd._worker"]
        keyed.set_key(1, 2, 3)
        self.assertEqual(dloaderd.sample_rng().random(), value)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(3))


class BadStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        raise ValueError("no stream today")


class Odd(Exception):
    """Of a module of its own."""


def fail(worker):
    raise Odd(f"worker {worker} does not want to")


def times_two(samples):
    return [2 * sample for sample in samples]


def numbers(length=4, start=0):
    return list(range(start, start + length))


class OpenWorker(unittest.TestCase):
    def setUp(self):
        self.threads = torch.get_num_threads()

    def tearDown(self):
        import torch.utils.data._utils.worker as theirs
        _info._current = theirs._worker_info = None
        torch.set_num_threads(self.threads)

    def open(self, dataset, *, iterable=False, collate=torch.utils.data.default_collate, init=None):
        return _bootstrap.open_job(_bootstrap.Job(dataset, iterable, collate, init, 40, None), 1, 3)

    def test_map_style(self):
        source = self.open(Numbers())
        self.assertEqual((source.dataset[3], source.length, source.iterable), (3, 5, False))
        self.assertIsNone(source.collate)
        self.assertEqual(torch.get_num_threads(), 1)
        self.assertEqual(torch.initial_seed(), 41)
        mine, theirs = dloaderd.get_worker_info(), torch.utils.data.get_worker_info()
        self.assertIs(mine, theirs)
        self.assertEqual((mine.id, mine.num_workers, mine.seed), (1, 3, 41))
        self.assertIs(mine.dataset, source.dataset)
        self.assertIsNone(source.reseed, "PyTorch's streams run on")

    def test_iterable(self):
        source = self.open(Stream(), iterable=True)
        self.assertTrue(source.iterable)
        self.assertEqual(list(source.iterate(0, 1, 0)), [0, 1, 2])
        with self.assertRaisesRegex(ValueError, "no stream today"):
            next(self.open(BadStream(), iterable=True).iterate(0, 1, 0))

    def test_collate(self):
        source = self.open(Numbers(), collate=times_two)
        self.assertEqual(source.collate([1, 2]), [2, 4])
        self.assertEqual(source.convert([1, 2]), [2, 4])
        self.assertEqual(self.open(Numbers()).default_collate([1, 2]).tolist(), [1, 2])

    def test_failing_init_is_told_by_the_samples(self):
        source = self.open(Numbers(), init=fail)
        for _ in range(2):
            try:
                source.dataset[0]
                self.fail("nothing was raised")
            except Odd:
                short, report = source.describe(sys.exc_info(), 0)
        self.assertEqual(short, "Odd: worker 1 does not want to, at sample 0")
        kind, told = report.split("\n", 1)
        self.assertEqual(kind, f"{Odd.__module__}:Odd")
        self.assertTrue(told.startswith("Caught Odd in DataLoader worker process 1.\n"
                                        "Original Traceback (most recent call last):\n"), told)
        self.assertIn("in fail", told)

    def test_describe(self):
        source = self.open(Numbers())
        short, report = source.describe(KeyError("x\ny"), None)
        self.assertEqual(short, r"KeyError: 'x\ny'")
        self.assertTrue(report.startswith("KeyError\nCaught KeyError in"))

    def test_named(self):
        name = f"{__name__}:numbers"
        for args, want in ((None, [0, 1, 2, 3]), ({"start": 2, "length": 1}, [2]), ([2, 5], [5, 6])):
            source = _bootstrap.open_named(0, 2, 9, name, args, f"{__name__}:times_two", True)
            self.assertEqual(source.dataset, want)
            self.assertEqual(source.collate([1]), [2])
        self.assertEqual(dloaderd.get_worker_info().seed, _seeds.epoch_base(9, 0))
        source.reseed(1 << 62)
        stepped = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        _seeds.seed_all(1 << 62, 0)
        self.assertTrue(torch.equal(torch.get_rng_state(), stepped[0]))
        self.assertEqual((random.getstate(), np.random.get_state()[1].tolist()), stepped[1:])
        for bad, error in (("nowhere:x", ImportError), ("json:nothing", AttributeError),
                           ("json", ValueError)):
            with self.assertRaises(error):
                _bootstrap.open_named(0, 2, 9, bad, None, None, True)
