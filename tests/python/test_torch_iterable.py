"""Iterable datasets: how they divide themselves, batches at their ends, warnings about len()."""

import random
import warnings

import torch
from torch.utils.data import ChainDataset

import black_box
import datasets
from black_box import Case, DataLoader
from tap import slow


def lists(loader):
    return [batch.tolist() for batch in loader]


def length_warnings(cls, data, ask, **options):
    """The texts of what a whole epoch warns of."""
    loader = cls(data, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ask:
            len(loader)
        taken = len(list(loader))
    return [(w.category, str(w.message)) for w in caught
            if "Length of IterableDataset" in str(w.message)], taken


class TestOrder(Case):
    def test_in_this_process(self):
        for options in ({}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True},
                        {"batch_size": None}):
            for n in (0, 1, 7):
                self.check(lambda cls: cls(datasets.Split(n), **options), epochs=2)

    def test_known_orders_of_divided_datasets(self):
        def run(workers, **options):
            return lists(DataLoader(datasets.Split(7), batch_size=2, num_workers=workers,
                                    **options))

        self.assertEqual(run(2), [[0, 2], [1, 3], [4, 6], [5]])
        self.assertEqual(run(2, drop_last=True), [[0, 2], [1, 3], [4, 6]])
        self.assertEqual(run(3), [[0, 3], [1, 4], [2, 5], [6]])

    def test_undivided_ones_repeat_in_each_worker(self):
        loader = DataLoader(datasets.Split(5, divide=False), batch_size=2, num_workers=2)
        self.assertEqual(lists(loader), [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]])

    @slow
    def test_uneven_workers(self):
        """One that has no more drops out of the round."""
        loader = DataLoader(datasets.Uneven([1, 7, 3]), batch_size=2, num_workers=3)
        self.assertEqual(lists(loader), [[0], [100, 101], [200, 201], [102, 103], [202],
                                         [104, 105], [106]])
        for counts in ([0, 4], [4, 0], [0, 0], [1, 9], [9, 1]):
            for drop_last in (False, True):
                self.check(lambda cls: cls(datasets.Uneven(counts), batch_size=2, num_workers=2,
                                           drop_last=drop_last))

    def test_drop_last_is_each_workers_own(self):
        loader = DataLoader(datasets.Uneven([3, 5]), batch_size=2, num_workers=2, drop_last=True)
        self.assertEqual(lists(loader), [[0, 1], [100, 101], [102, 103]])

    def test_no_batches(self):
        for workers in (0, 2):
            self.check(lambda cls: cls(datasets.Split(5), batch_size=None, num_workers=workers))

    def test_chains(self):
        for workers in (0, 2):
            chain = ChainDataset([datasets.Split(5), datasets.Split(0), datasets.Split(4)])
            batches = self.check(lambda cls: cls(chain, batch_size=2, num_workers=workers))
            self.assertEqual(sorted(black_box.flat(batches)), sorted([*range(5), *range(4)]))
        sized = ChainDataset([datasets.Sized(5), datasets.Sized(4)])
        self.assertEqual(len(DataLoader(sized, batch_size=2)), 5)

    def test_epochs_begin_anew(self):
        """Persistent workers keep the dataset and ask it for a new iterator."""
        for options in ({}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}):
            self.check(lambda cls: cls(datasets.Fresh(), batch_size=2, **options), epochs=3)
        stay = DataLoader(datasets.Fresh(), batch_size=4, num_workers=1, persistent_workers=True)
        self.assertEqual([lists(stay), lists(stay)], [[[1] * 4], [[2] * 4]])

    def test_break_and_again(self):
        for options in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
            self.check(lambda cls: cls(datasets.Split(20), batch_size=2, **options), epochs=3,
                       stop=3)

    def test_collate_fn_and_trees(self):
        def make(cls):
            return cls(datasets.Split(5), batch_size=2, collate_fn=datasets.as_objects,
                       num_workers=1)

        self.check(make)

    def test_generator_functions(self):
        class Words(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield from ("a", "b", "c")

        for workers in (0, 1):
            self.assertEqual(list(DataLoader(Words(), batch_size=2, num_workers=workers)),
                             [["a", "b"], ["c"]])

    def test_a_state_that_wants_to_be_told(self):
        """A dataset whose state_dict() has to be given something, as MosaicML's, is read, and not asked."""
        class Told(datasets.Split):
            def state_dict(self, num_samples, from_beginning):
                raise AssertionError("it was asked")

            def load_state_dict(self, state):
                raise AssertionError("it was told")

        for workers in (0, 2):
            self.assertEqual(lists(DataLoader(Told(5), batch_size=2, num_workers=workers)),
                             lists(DataLoader(datasets.Split(5), batch_size=2, num_workers=workers)))
            loader = DataLoader(Told(5), batch_size=2, num_workers=workers)
            first = next(iter(loader))
            state = loader.state_dict()
            again = DataLoader(Told(5), batch_size=2, num_workers=workers)
            again.load_state_dict(state)
            with self.assertWarnsRegex(UserWarning, "are loaded again and discarded"):
                rest = lists(again)
            self.assertEqual([first.tolist(), *rest], lists(DataLoader(Told(5), batch_size=2, num_workers=workers)))

    def test_random_arguments(self):
        rng = random.Random(seed := random.getrandbits(32))
        for case in range(8 if black_box.QUICK else 24):
            workers = rng.choice([0, 0, 1, 2, 3])
            counts = [rng.randint(0, 9) for _ in range(max(workers, 1))]
            options = {"batch_size": rng.choice([None, 1, 2, 3]), "num_workers": workers}
            options["drop_last"] = options["batch_size"] is not None and rng.random() < 0.4
            if workers:
                options["prefetch_factor"] = rng.randint(1, 3)
            stop = rng.choice([None, rng.randint(0, 5)])
            with self.subTest(f"seed {seed} case {case}: {counts} {options} {stop}"):
                self.check(lambda cls: cls(datasets.Uneven(counts), **options), seed, 2, stop)


class TestLengthWarnings(Case):
    def same_warnings(self, *args, **options):
        expected = length_warnings(black_box.TorchLoader, *args, **options)
        self.assertEqual(length_warnings(DataLoader, *args, **options), expected)
        return [text for _, text in expected[0]]

    def test_more_than_was_told(self):
        for workers in (0, 2):
            texts = self.same_warnings(datasets.Sized(5, sized=3), True, batch_size=None,
                                       num_workers=workers)
            self.assertEqual(len(texts), 2)
            self.assertIn("was reported to be 3", texts[0])
            self.assertIn("4 samples have been fetched", texts[0])

    def test_each_worker_has_all(self):
        texts = self.same_warnings(datasets.Sized(4, divide=False), True, batch_size=None,
                                   num_workers=2)
        self.assertEqual(len(texts), 4)
        self.assertIn("For multiprocessing data-loading", texts[0])

    def test_batches_are_counted_by_batches(self):
        self.same_warnings(datasets.Sized(9, sized=3), True, batch_size=2)
        self.same_warnings(datasets.Sized(3, sized=1), True, batch_size=1, num_workers=1)

    def test_nothing_is_said(self):
        self.assertEqual(self.same_warnings(datasets.Sized(5, sized=3), False, batch_size=None), [])
        self.assertEqual(self.same_warnings(datasets.Sized(5), True, batch_size=None), [])
        self.assertEqual(self.same_warnings(datasets.Sized(5, sized=9), True, num_workers=2), [])
        self.assertEqual(self.same_warnings(datasets.Split(5), False, num_workers=1), [])
