"""DataLoader without workers: against PyTorch's own, in the same process; and its state."""

import json
import random
import unittest
import warnings

import numpy as np
import torch
from torch.utils import data as theirs

import dloaderd
from dloaderd import DataLoader
from epochs import flat, run


class Rows(theirs.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return {"x": np.full(3, index), "y": index, "name": f"n{index}"}


class Keyed(Rows):
    def __getitem__(self, index):
        return dloaderd.sample_rng().integers(0, 2**62)


class Many(Rows):
    def __getitems__(self, indices):
        return [torch.tensor([i, dloaderd.sample_rng(i).integers(100)]) for i in indices]


class Stream(theirs.IterableDataset):
    def __init__(self, n=7):
        self.n = n

    def __len__(self):
        return 3

    def __iter__(self):
        yield from range(self.n)


class Stateful(theirs.IterableDataset):
    def __init__(self, n=7):
        self.n, self.at = n, 0

    def __iter__(self):
        while self.at < self.n:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def numbers(batches):
    """The sample numbers of one epoch of Rows."""
    return [i for batch in batches for i in batch["y"].tolist()]


def arguments(chance, dataset):
    n = len(dataset)
    choices = [{}, {"shuffle": True}, {"sampler": list(range(n))[::-1]},
               {"sampler": theirs.SubsetRandomSampler(range(n))},
               {"sampler": theirs.RandomSampler(dataset, replacement=True, num_samples=n + 3)},
               {"sampler": theirs.WeightedRandomSampler([0.1 + i for i in range(n)], 5)},
               {"batch_sampler": theirs.BatchSampler(theirs.RandomSampler(dataset), 3, True)}]
    chosen = dict(chance.choice(choices))
    if "batch_sampler" not in chosen:
        chosen["batch_size"] = chance.choice([1, 3, 4, None])
        if chosen["batch_size"]:
            chosen["drop_last"] = chance.random() < 0.3
    if chance.random() < 0.4:
        chosen["generator"] = chance.randrange(1000)
    return chosen


def make(kind, dataset, chosen):
    chosen = dict(chosen)
    if "generator" in chosen:
        chosen["generator"] = torch.Generator().manual_seed(chosen["generator"])
    return kind(dataset, **chosen)


class AgainstPyTorch(unittest.TestCase):
    def test_random_arguments(self):
        seed = random.randrange(1 << 30)
        for turn in range(200):
            chance = random.Random(f"{seed} {turn}")
            dataset = Rows(chance.randrange(1, 20))
            chosen = arguments(chance, dataset)
            results = []
            for kind in (theirs.DataLoader, DataLoader):
                torch.manual_seed(turn)
                loader = make(kind, dataset, chosen)
                results.append((run(loader, 3), len(loader), torch.get_rng_state().tolist(),
                                loader.generator and loader.generator.get_state().tolist()))
            self.assertEqual(results[0], results[1], f"seed {seed}, turn {turn}: {chosen}")

    def test_iterable(self):
        for options in ({}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True},
                        {"batch_size": None}):
            results = []
            for kind in (theirs.DataLoader, DataLoader):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    loader = kind(Stream(), **options)
                    before = run(loader)
                    length = len(loader)
                    results.append((before, length, run(loader, 2),
                                    [str(w.message).split("0x")[0] for w in caught],
                                    [str(w.message).split(">")[-1] for w in caught]))
            self.assertEqual(results[0], results[1], options)

    def test_errors(self):
        class Bad(Rows):
            def __getitem__(self, index):
                if index == 2:
                    raise KeyError("two")
                return index
        iterator = iter(DataLoader(Bad(4)))
        self.assertEqual([int(next(iterator)), int(next(iterator))], [0, 1])
        with self.assertRaisesRegex(KeyError, "two"):
            next(iterator)
        self.assertEqual(int(next(iterator)), 3)
        with self.assertRaises(AssertionError):
            iter(DataLoader(Rows(), timeout=1))

    def test_getitems(self):
        got = [batch[:, 0].tolist() for batch in DataLoader(Many(5), batch_size=2)]
        self.assertEqual(got, [[0, 1], [2, 3], [4]])

    def test_constructor(self):
        rows, stream = Rows(), Stream()
        cases = [
            (rows, {"num_workers": -1}), (rows, {"timeout": -1}), (rows, {"prefetch_factor": 3}),
            (rows, {"persistent_workers": True}), (rows, {"multiprocessing_context": "fork"}),
            (rows, {"num_workers": 1, "multiprocessing_context": "bad"}),
            (rows, {"num_workers": 1, "multiprocessing_context": object()}),
            (rows, {"num_workers": 1, "prefetch_factor": -1}),
            (stream, {"shuffle": True}), (stream, {"sampler": [1]}),
            (stream, {"batch_sampler": [[1]]}), (stream, {"shuffle": 1}),
            (rows, {"shuffle": True, "sampler": [1]}), (rows, {"batch_sampler": [[1]], "batch_size": 2}),
            (rows, {"batch_sampler": [[1]], "batch_size": None}),
            (rows, {"batch_sampler": [[1]], "drop_last": True}),
            (rows, {"batch_sampler": [[1]], "sampler": [1]}),
            (rows, {"batch_size": None, "drop_last": True}), (rows, {"batch_size": 0}),
            (rows, {"batch_size": True}), (rows, {"drop_last": 1}),
            (Rows(0), {"shuffle": True}), (rows, {"batch_size": 2.5}),
        ]
        for dataset, options in cases:
            texts = []
            for kind in (theirs.DataLoader, DataLoader):
                try:
                    kind(dataset, **options)
                    texts.append(None)
                except Exception as error:
                    texts.append((type(error), str(error).split(" object at")[0]))
            self.assertEqual(texts[0], texts[1], options)
            self.assertIsNotNone(texts[0], options)

    def test_attributes(self):
        for options in ({}, {"batch_size": None}, {"shuffle": True, "drop_last": True},
                        {"batch_sampler": [[1]]}, {"num_workers": 1, "persistent_workers": True}):
            ours, other = DataLoader(Rows(), **options), theirs.DataLoader(Rows(), **options)
            for name in ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "drop_last",
                         "timeout", "worker_init_fn", "generator", "collate_fn",
                         "persistent_workers", "multiprocessing_context", "pin_memory_device",
                         "_dataset_kind", "_auto_collation"):
                self.assertEqual(getattr(ours, name), getattr(other, name), name)
            self.assertIs(type(ours.sampler), type(other.sampler))
            self.assertIs(type(ours.batch_sampler), type(other.batch_sampler))
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset",
                     "persistent_workers"):
            with self.assertRaisesRegex(ValueError, f"{name} attribute should not be set after "
                                                    "DataLoader is initialized"):
                setattr(ours, name, 1)
        with self.assertWarnsRegex(UserWarning, "will create 1000 worker processes in total"):
            DataLoader(Rows(), num_workers=1000)
        self.assertIsNotNone(DataLoader[int])

    def test_a_device_that_is_none(self):
        self.assertEqual(len(list(DataLoader(Rows(), device="cpu"))), 10)


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
        self.assertEqual(len({str(value) for epoch in first for value in epoch}), 20)
        shuffled = [int(v) for v in DataLoader(Keyed(), seed=3, shuffle=True)]
        self.assertEqual(sorted(shuffled), sorted(v[1][0] for v in first[0]))
        with self.assertRaisesRegex(RuntimeError, "outside a sample"):
            dloaderd.sample_rng()


class State(unittest.TestCase):
    KINDS = ({"shuffle": True}, {"shuffle": True, "generator": 5}, {"shuffle": True, "seed": 9}, {},
             {"sampler": "subset"}, {"sampler": "subset", "seed": 9},
             {"sampler": "random generator"}, {"sampler": "subset", "generator": 3},
             {"shuffle": True, "seed": 2, "rank": 1, "world_size": 2})

    def make(self, options, dataset=None):
        dataset = Rows(20) if dataset is None else dataset
        options = dict(options)
        if "generator" in options:
            options["generator"] = torch.Generator().manual_seed(options["generator"])
        if options.get("sampler") == "subset":
            options["sampler"] = theirs.SubsetRandomSampler(range(20))
        elif "sampler" in options:
            options["sampler"] = theirs.RandomSampler(
                dataset, generator=torch.Generator().manual_seed(4))
        return DataLoader(dataset, batch_size=3, **options)

    def interrupted(self, loader, epoch, batches):
        for _ in range(epoch):
            for _ in loader:
                pass
        if batches:
            for at, _ in enumerate(loader, 1):
                if at == batches:
                    break
        return json.loads(json.dumps(loader.state_dict()))

    def test_goes_on_as_if_nothing_had_happened(self):
        for options in self.KINDS:
            torch.manual_seed(77)
            straight = run(self.make(options), 4)
            for epoch in (0, 1):
                for batches in (0, 1, 4, len(straight[0])):
                    torch.manual_seed(77)
                    state = self.interrupted(self.make(options), epoch, batches)
                    torch.manual_seed(epoch + batches)
                    kept = torch.get_rng_state()
                    loader = self.make(options)
                    loader.load_state_dict(state)
                    self.assertEqual(loader.state_dict(), state)
                    got = run(loader, 4 - epoch)
                    want = [straight[epoch][batches:]] + straight[epoch + 1:]
                    self.assertEqual(got, want, (options, epoch, batches))
                    self.assertTrue(torch.equal(kept, torch.get_rng_state()), options)

    def test_where_the_user_puts_the_generator_back(self):
        def train(loader, out):
            for batch in loader:
                out.append((flat(batch), float(torch.rand(()))))

        for options in ({"shuffle": True}, {"sampler": "subset"}):
            straight, resumed = [], []
            torch.manual_seed(8)
            loader = self.make(options)
            for _ in range(3):
                train(loader, straight)
            torch.manual_seed(8)
            loader = self.make(options)
            for at, batch in enumerate(loader, 1):
                resumed.append((flat(batch), float(torch.rand(()))))
                if at == 4:
                    break
            state, kept = loader.state_dict(), torch.get_rng_state()
            torch.manual_seed(99)
            loader = self.make(options)
            loader.load_state_dict(state)
            torch.set_rng_state(kept)
            for _ in range(3):
                train(loader, resumed)
            self.assertEqual(straight, resumed, options)

    def test_loads_nothing_of_what_lies_before(self):
        class Counted(Rows):
            loads = 0

            def __getitem__(self, index):
                Counted.loads += 1
                return index
        loader = self.make({"shuffle": True}, Counted(3000))
        state = self.interrupted(loader, 0, 900)
        Counted.loads = 0
        loader = self.make({"shuffle": True}, Counted(3000))
        loader.load_state_dict(state)
        next(iter(loader))
        self.assertEqual(Counted.loads, 3)

    def test_end_of_epoch(self):
        loader = self.make({"shuffle": True})
        for _ in loader:
            inside = loader.state_dict()
        after = loader.state_dict()
        again = run(loader)
        fresh = self.make({"shuffle": True})
        fresh.load_state_dict(inside)
        self.assertEqual(run(fresh, 2), [[], again[0]])
        fresh.load_state_dict(after)
        self.assertEqual(run(fresh), again)
        fresh.load_state_dict({})
        self.assertEqual(fresh.state_dict()["epoch"], 0)

    def test_iterable(self):
        for dataset, silent in ((Stateful, True), (Stream, False)):
            straight = run(DataLoader(dataset(), batch_size=2))[0]
            for batches in (0, 1, 3, 4):
                loader = DataLoader(dataset(), batch_size=2)
                state = self.interrupted(loader, 0, batches)
                loader = DataLoader(dataset(), batch_size=2)
                loader.load_state_dict(state)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    self.assertEqual(run(loader, 2), [straight[batches:], straight])
                self.assertEqual(len(caught), 0 if silent or batches in (0, 4) else 1)
                state = self.interrupted(DataLoader(dataset(), batch_size=2), 1, 0)
                loader.load_state_dict(state)
                self.assertEqual(run(loader, 2), [straight, straight])

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
            state = self.interrupted(loader, 1, batches)
            loader = DataLoader(Rows(), sampler=Sampler(), batch_size=2)
            loader.load_state_dict(state)
            self.assertEqual([numbers(loader), numbers(loader)],
                             [list(range(2 * batches, 8)), list(range(8))], batches)

    def test_refused(self):
        loader = self.make({"shuffle": True})
        good = loader.state_dict()
        for change in ({"version": 9}, {"version": None}, {"epoch": -1}, {"batches": "3"},
                       {"rng": {}}, {"rng": {"global": "!!", "generators": []}},
                       {"rng": {"global": "AAAA", "generators": []}}, {"drawn": 1},
                       {"rng": {**good["rng"], "generators": [good["rng"]["global"]]}}):
            with self.assertRaises(dloaderd.StateError, msg=change):
                loader.load_state_dict({**good, **change})
        with self.assertRaises(dloaderd.StateError):
            loader.load_state_dict(None)
