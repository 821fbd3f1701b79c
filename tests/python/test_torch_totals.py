"""What those who watch a DataLoader see of its epochs: how many batches there are, how many have come and how long the
rest takes, where PyTorch's len() tells. The right total is that of PyTorch's own class.
"""

import json
import random
import re
import threading
import warnings

import numpy
import torch
from torch.utils.data import (BatchSampler, DataLoader as TorchLoader, Dataset, DistributedSampler, IterableDataset,
                              RandomSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler)

import dloaderd
import dltest
from dltest import dlctl, dlctl_json, wait_until

LENGTH = 50


class Numbers(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index


class Unsized(Dataset):
    def __getitem__(self, index):
        return index


class Backwards:
    """A sampler of the program's own."""

    def __iter__(self):
        return iter(range(LENGTH - 1, -1, -1))

    def __len__(self):
        return LENGTH


class UnsizedSampler:
    def __iter__(self):
        return iter(range(LENGTH))


class Pairs:
    """A batch sampler of the program's own, whose batches have several sizes."""

    def __iter__(self):
        for first in range(0, LENGTH, 10):
            yield list(range(first, first + 3))
            yield list(range(first + 3, first + 10))

    def __len__(self):
        return 2 * (LENGTH // 10)


class Failing(Backwards):
    def __len__(self):
        raise RuntimeError("nobody knows")


class Stream(IterableDataset):
    """Its workers' shares are of several lengths: of each the given one."""

    def __init__(self, *shares):
        self.shares = shares

    def __iter__(self):
        return iter(range(self.shares[torch.utils.data.get_worker_info().id]))


class Sized(Stream):
    def __len__(self):
        return sum(self.shares)


class Short(Sized):
    """There are more samples than it says."""

    def __len__(self):
        return 12


class Long(Sized):
    """There are fewer."""

    def __len__(self):
        return 1000


# What is told to DataLoader, besides num_workers.
KNOWN = {
    "in order": lambda: (Numbers(), {"batch_size": 4}),
    "shuffled": lambda: (Numbers(), {"batch_size": 4, "shuffle": True}),
    "drop_last": lambda: (Numbers(), {"batch_size": 4, "shuffle": True, "drop_last": True}),
    "one by one": lambda: (Numbers(), {"batch_size": None}),
    "a list": lambda: (list(range(LENGTH)), {"batch_size": 3}),
    "any order": lambda: (Numbers(), {"batch_size": 4, "in_order": False}),
    "TensorDataset": lambda: (TensorDataset(torch.arange(LENGTH)), {"batch_size": 4, "shuffle": True}),
    "RandomSampler": lambda: (Numbers(), {"batch_size": 4, "sampler": RandomSampler(Numbers(), num_samples=33)}),
    "SubsetRandomSampler": lambda: (Numbers(), {"batch_size": 4, "sampler": SubsetRandomSampler(range(30))}),
    "WeightedRandomSampler": lambda: (Numbers(), {"batch_size": 4,
                                                  "sampler": WeightedRandomSampler([1.0] * LENGTH, 41)}),
    "DistributedSampler": lambda: (Numbers(), {"batch_size": 2, "sampler": DistributedSampler(Numbers(), 3, 1)}),
    "a list as sampler": lambda: (Numbers(), {"batch_size": 4, "sampler": list(range(26))}),
    "own sampler": lambda: (Numbers(), {"batch_size": 4, "sampler": Backwards()}),
    "BatchSampler": lambda: (Numbers(), {"batch_sampler": BatchSampler(RandomSampler(Numbers()), 7, True)}),
    "own batch sampler": lambda: (Numbers(), {"batch_sampler": Pairs()}),
    "no length but the sampler's": lambda: (Unsized(), {"batch_size": 4, "sampler": Backwards()}),
    "iterable": lambda: (Sized(25, 25), {"batch_size": 5}),
    "iterable, unbatched": lambda: (Sized(20, 20), {"batch_size": None}),
    "iterable, uneven": lambda: (Sized(40, 10), {"batch_size": 5}),
    "iterable, uneven, any order": lambda: (Sized(10, 40), {"batch_size": 5, "in_order": False}),
}
UNKNOWN = {
    "own sampler": lambda: (Numbers(), {"batch_size": 4, "sampler": UnsizedSampler()}),
    "failing sampler": lambda: (Numbers(), {"batch_size": 4, "sampler": Failing()}),
    "iterable": lambda: (Stream(25, 25), {"batch_size": 5}),
}


class TotalsCase(dltest.TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.watcher = self.client(self.running)

    def loader(self, dataset, **options):
        return dloaderd.DataLoader(dataset, num_workers=2, socket=self.running.socket, **options)

    def row(self):
        row, = [row for row in self.watcher.query("epochs") if row["session"] is not None]
        return row


class Known(TotalsCase):
    def check(self, what, want, batches):
        """From the first batch to the last: `want` of them, and what is left of them."""
        next(batches)
        wait_until(lambda: self.row()["step"] > 0, f"{what}: a batch")
        row = self.row()
        self.assertIsNotNone(row["steps"], what)
        self.assertEqual(row["steps"], want, what)
        left = row["steps"] - row["step"]
        self.assertEqual(row["left_s"] > 0, left > 0, (what, row))
        taken = 1
        for _ in batches:
            taken += 1
            rows = [row for row in self.watcher.query("epochs") if row["session"] is not None]
            for row in rows:  # there is none once the workers have ended
                # Of workers with uneven shares, numbers are left out: never is there less than what comes.
                self.assertGreaterEqual(row["steps"], max(row["step"], want), (what, taken, row))
                self.assertEqual(row["left_s"] > 0, row["steps"] > row["step"], (what, row))
        self.assertEqual(taken, want, what)

    def test_kinds(self):
        for what, make in KNOWN.items():
            with self.subTest(what):
                dataset, options = make()
                torch_options = {name: value for name, value in options.items() if name != "in_order"}
                want = len(TorchLoader(dataset, **torch_options))
                self.check(what, want, iter(self.loader(dataset, **options)))

    def test_ranks(self):
        loaders = [self.loader(Numbers(), batch_size=2, shuffle=True, rank=rank, world_size=3) for rank in range(3)]
        iterators = [iter(loader) for loader in loaders]
        for iterator in iterators:
            next(iterator)
        rows = [row for row in self.watcher.query("epochs") if row["session"] is not None]
        want = len(TorchLoader(Numbers(), batch_size=2, sampler=DistributedSampler(Numbers(), 3, 0)))
        self.assertEqual([row["steps"] for row in rows], [want] * 3)
        self.assertEqual([len(list(iterator)) + 1 for iterator in iterators], [want] * 3)

    def test_persistent_workers(self):
        """Each epoch anew, also if the sampler's length has changed."""
        indices = list(range(40))
        loader = self.loader(Numbers(), batch_size=4, sampler=indices, persistent_workers=True)
        for _ in range(3):
            batches = iter(loader)
            next(batches)
            self.assertEqual(self.row()["steps"], len(loader))
            for _ in batches:
                pass
            indices.extend(range(5))

    def test_continued(self):
        """What is left of an epoch, by a state."""
        for what in ("shuffled", "own batch sampler", "iterable"):
            with self.subTest(what):
                dataset, options = KNOWN[what]()
                first = self.loader(dataset, **options)
                batches = iter(first)
                for _ in range(4):
                    next(batches)
                state = first.state_dict()
                del batches
                wait_until(lambda: not [row for row in self.watcher.query("epochs") if row["session"] is not None],
                           "the first to end")
                other = self.loader(dataset, **options)
                other.load_state_dict(state)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rest = iter(other)
                next(rest)
                row = self.row()
                begun = 4 if what == "iterable" else 0  # where the daemon counts from
                self.assertEqual(row["steps"] - begun, len(first) - 4)
                self.assertEqual(len(list(rest)) + 1, len(first) - 4)

    def test_shown(self):
        """In a table, and for Prometheus."""
        loader = self.loader(Numbers(), batch_size=1, shuffle=True, prefetch_factor=2)
        batches = iter(loader)
        for _ in range(10):
            next(batches)
        row, = dlctl_json("epochs", daemon=self.running)
        self.assertEqual((row["steps"], row["progress"]), (LENGTH, row["step"] / LENGTH))
        self.assertGreater(row["left_s"], 0)
        head, line = dlctl("epochs", daemon=self.running).stdout.splitlines()
        for word in ("STEP", "STEPS", "PROGRESS", "LEFT"):
            self.assertIn(word, head)
        step, share = re.search(rf" ([0-9]+) +{LENGTH} +([0-9]+) % +[0-9.]+ (?:µs|ms|s) ", line).groups()
        self.assertEqual(int(share), 100 * int(step) // LENGTH)
        metrics = dlctl("metrics", daemon=self.running).stdout
        self.assertRegex(metrics, rf"(?m)^dloader_rank_steps{{.*}} {LENGTH}$")
        self.assertRegex(metrics, r"(?m)^dloader_rank_left_seconds{.*} [0-9.e-]+$")


    def test_top(self):
        """While batches are taken."""
        batches = iter(self.loader(range(10 ** 6), batch_size=2, shuffle=True))
        next(batches)
        over = threading.Event()

        def train():
            while not over.is_set():
                next(batches)

        trainer = threading.Thread(target=train)
        trainer.start()
        try:
            told = dlctl("top", "--count", "2", "--interval", "0.1", "--json", daemon=self.running).stdout
            text = dlctl("top", "--count", "1", daemon=self.running).stdout
        finally:
            over.set()
            trainer.join()
        for look in map(json.loads, told.splitlines()):
            (loader,) = look["loaders"]
            self.assertGreater(loader["left_s"], 0)
            self.assertTrue(0 < loader["progress"] < 1)
        self.assertRegex(text, r" LEFT .*\n.* [0-9.]+( µs| ms| s| min|:)")


class NotKnown(TotalsCase):
    def test_kinds(self):
        for what, make in UNKNOWN.items():
            with self.subTest(what):
                dataset, options = make()
                batches = iter(self.loader(dataset, **options))
                next(batches)
                row = self.row()
                # Small ones may have ended already, by which all is known.
                self.assertIn(row["steps"], (None, 10, 13), what)
                self.assertEqual(row["left_s"] is None, row["steps"] is None, what)
                self.assertGreater(sum(1 for _ in batches), 8)

    def test_more_than_said(self):
        """The count goes on without a total."""
        loader = self.loader(Short(100, 100), batch_size=1)
        batches, totals = iter(loader), []
        for _ in range(60):
            next(batches)
            totals.append((self.row()["step"], self.row()["steps"]))
        self.assertEqual(totals[0][1], 12)
        self.assertIsNone(totals[-1][1])
        self.assertEqual(len(list(batches)), 140)

    def test_fewer_than_said(self):
        batches = iter(self.loader(Long(20, 20), batch_size=5, persistent_workers=True))
        next(batches)
        self.assertIn(self.row()["steps"], (200, 8))  # 8, once both workers have come to their ends
        self.assertEqual(len(list(batches)), 7)


class Unnoticed(TotalsCase):
    """A program that has not asked for the length cannot tell that it was asked for."""

    def test_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(len(list(self.loader(Short(20, 20), batch_size=1))), 40)

    def test_warned_who_has_asked(self):
        loader = self.loader(Short(20, 20), batch_size=1)
        self.assertEqual(len(loader), 12)
        with self.assertWarnsRegex(UserWarning, "Length of IterableDataset .* was reported to be 12"):
            list(loader)

    def test_len_that_draws(self):
        class Drawing(Backwards):
            def __iter__(self):
                return iter(torch.randperm(LENGTH).tolist())

            def __len__(self):
                numpy.random.rand()
                random.random()
                return len(list(self))

        def play(cls, **options):
            torch.manual_seed(3)
            numpy.random.seed(3)
            random.seed(3)
            loader = cls(Numbers(), 4, sampler=Drawing(), num_workers=2, **options)
            batches = [batch.tolist() for _ in range(2) for batch in loader]
            return json.dumps([batches, torch.rand(1).item(), numpy.random.rand(), random.random()])

        self.assertEqual(play(dloaderd.DataLoader, socket=self.running.socket), play(TorchLoader))
