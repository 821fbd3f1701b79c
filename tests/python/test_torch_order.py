"""The order of samples: shuffles, samplers, batches, workers, and the draws behind them."""

import os
import random
import unittest
import warnings
from unittest import mock

import numpy
import torch
from torch.utils.data import (BatchSampler, DistributedSampler, RandomSampler, SequentialSampler,
                              SubsetRandomSampler, WeightedRandomSampler)

import black_box
import datasets
from black_box import Case, DataLoader, TORCH, flat
from tap import slow, tries

CASES = len(tries(80 if black_box.QUICK else 240))
SEED = int(os.environ.get("DLOADER_TEST_SEED", random.getrandbits(32)))


class Counted:
    """A sampler that says how far it was asked."""

    def __init__(self, length):
        self.length, self.given = length, 0

    def __iter__(self):
        for i in range(self.length):
            self.given += 1
            yield i

    def __len__(self):
        return self.length


class TestSequential(Case):
    def test_one_by_one(self):
        batches = self.check(lambda cls: cls(datasets.Numbers(11)))
        self.assertEqual(flat(batches), list(range(11)))

    def test_batches(self):
        for drop_last in (False, True):
            batches = self.check(lambda cls: cls(datasets.Numbers(11), batch_size=4,
                                                 drop_last=drop_last))
            self.assertEqual([len(b) for b in batches], [4, 4] + [3] * (not drop_last))

    def test_with_workers_and_prefetch(self):
        for workers, prefetch in ((1, 1), (2, 3), (3, 2)):
            batches = self.check(lambda cls: cls(
                datasets.Numbers(23, "nested"), batch_size=2, num_workers=workers,
                prefetch_factor=prefetch))
            self.assertEqual([b["c"].label.tolist() for b in batches],
                             [[i, i + 1][:23 - i] for i in range(0, 23, 2)])

    def test_no_batches(self):
        for kind in datasets.Numbers.KINDS:
            with self.subTest(kind):
                self.check(lambda cls: cls(datasets.Numbers(3, kind), batch_size=None))
        for kind in ("dict", "int", "text", "nested"):
            with self.subTest(kind + " in a worker"):
                self.check(lambda cls: cls(datasets.Numbers(3, kind), batch_size=None,
                                           num_workers=1))

    def test_empty(self):
        for workers in (0, 2):
            self.assertEqual(self.check(lambda cls: cls(datasets.Numbers(0), batch_size=2,
                                                        num_workers=workers)), [])

    def test_lists_and_tuples_of_loaders(self):
        for workers in (0, 2):
            loader = DataLoader(list(range(5)), num_workers=workers)
            self.assertEqual(flat(list(loader)), [0, 1, 2, 3, 4])
            self.assertEqual(flat(tuple(loader)), [0, 1, 2, 3, 4])

    def test_growing_dataset(self):
        for workers in (0, 2):
            data = datasets.Growing(4)
            plain = DataLoader(data, num_workers=workers)
            shuffled = DataLoader(data, num_workers=workers, shuffle=True)
            self.assertEqual((len(plain), len(shuffled)), (4, 4))
            self.assertEqual(flat(plain), [0, 1, 2, 3])
            data.items.extend((4, 5))
            self.assertEqual((len(plain), len(shuffled)), (6, 6))
            self.assertEqual(flat(plain), [0, 1, 2, 3, 4, 5])
            self.assertEqual(sorted(flat(shuffled)), [0, 1, 2, 3, 4, 5])

    def test_several_loaders_at_once(self):
        loaders = [DataLoader(datasets.Numbers(9), batch_size=2, num_workers=w) for w in (0, 1, 2)]
        iterators = [iter(loader) for loader in loaders for _ in range(2)]
        for step in range(5):
            for iterator in iterators:
                self.assertEqual(next(iterator).tolist(), list(range(9))[2 * step:2 * step + 2])
        for iterator in iterators:
            self.assertRaises(StopIteration, next, iterator)
            self.assertRaises(StopIteration, next, iterator)

    def test_iterator_is_its_own_iterator(self):
        for workers in (0, 1):
            iterator = iter(DataLoader([1, 2], num_workers=workers))
            self.assertIs(iter(iterator), iterator)
            self.assertEqual(len(iterator), 2)

    def test_task_k_goes_to_worker_k_mod_workers(self):
        loader = DataLoader(datasets.Streams(14), batch_size=2, num_workers=3,
                            collate_fn=datasets.as_list)
        told = [[sample[:2] for sample in batch] for batch in loader]
        self.assertEqual(told, [[(2 * k, k % 3), (2 * k + 1, k % 3)] for k in range(7)])

    def test_asks_the_sampler_ahead_of_the_user(self):
        for workers, prefetch in ((2, 2), (1, 4)):
            sampler = Counted(20)
            iterator = iter(DataLoader(datasets.Numbers(20), sampler=sampler, batch_size=None,
                                       num_workers=workers, prefetch_factor=prefetch))
            self.assertEqual(sampler.given, workers * prefetch)
            next(iterator)
            self.assertEqual(sampler.given, workers * prefetch + 1)
        sampler = Counted(20)
        iterator = iter(DataLoader(datasets.Numbers(20), sampler=sampler, batch_size=2))
        self.assertEqual(sampler.given, 0)
        next(iterator)
        self.assertEqual(sampler.given, 2)

    @unittest.skipUnless(black_box.OURS, "PyTorch's loads as many ahead of any batches")
    def test_asks_further_ahead_where_batches_are_tiny(self):
        """As far as it is quick, unless the user said how far."""
        for quick_s, options, ahead in ((1e9, {}, 32), (0, {}, 4), (1e9, {"prefetch_factor": 3}, 6)):
            iterator = iter(DataLoader(datasets.Numbers(400), num_workers=2, **options))
            with mock.patch("dloaderd._iterators.QUICK_S", quick_s):
                self.assertEqual(max(len(iterator._tasks) for _ in iterator), ahead, (quick_s, options))

    def test_out_of_order_gives_each_once(self):
        if black_box.TORCH < (2, 6) and not black_box.OURS:
            self.skipTest("this PyTorch has no in_order")
        loader = DataLoader(datasets.Numbers(30), batch_size=2, num_workers=2, in_order=False)
        self.assertEqual(sorted(flat(loader)), list(range(30)))

    def test_out_of_order_one_that_is_stuck_holds_up_no_other(self):
        if black_box.TORCH < (2, 6) and not black_box.OURS:
            self.skipTest("this PyTorch has no in_order")
        for options in ({}, {"batch_size": None}, {"collate_fn": datasets.as_list}):
            dataset = datasets.Waiting(24)
            loader = DataLoader(dataset, num_workers=2, prefetch_factor=4, in_order=False, **options)
            batches = iter(loader)
            before = [int(next(batches)[0] if options.get("collate_fn") else next(batches))
                      for _ in range(20)]
            self.assertNotIn(0, before)
            dataset.go_on.set()
            self.assertEqual(len(list(batches)), 4)


class TestShuffle(Case):
    GLOBAL_42 = [[8, 0, 9, 1, 4, 5, 6, 3, 2, 7], [4, 6, 9, 3, 7, 5, 2, 0, 1, 8],
                 [6, 2, 1, 0, 3, 8, 5, 9, 4, 7]]
    GENERATOR_42 = [[6, 5, 4, 0, 8, 9, 2, 1, 3, 7], [3, 6, 5, 8, 9, 4, 2, 0, 7, 1],
                    [7, 4, 5, 0, 9, 1, 3, 2, 8, 6]]
    PERSISTENT_42 = [GLOBAL_42[0], [4, 3, 2, 6, 7, 5, 0, 8, 1, 9], GLOBAL_42[1]]

    def epochs(self, count=3, **options):
        generator = options.pop("generator", None)
        if generator is None:
            torch.manual_seed(42)
        loader = DataLoader(datasets.Numbers(10), shuffle=True, generator=generator, **options)
        return [flat(loader) for _ in range(count)]

    def test_known_epochs_of_the_global_generator(self):
        for workers in (0, 2):
            self.assertEqual(self.epochs(num_workers=workers, batch_size=3), self.GLOBAL_42)

    def test_known_epochs_of_a_given_generator(self):
        for workers in (0, 2):
            generator = torch.Generator().manual_seed(42)
            self.assertEqual(self.epochs(num_workers=workers, generator=generator),
                             self.GENERATOR_42)

    def test_known_epochs_of_persistent_workers(self):
        self.assertEqual(self.epochs(num_workers=2, persistent_workers=True), self.PERSISTENT_42)
        generator = torch.Generator().manual_seed(42)
        self.assertEqual(
            self.epochs(2, num_workers=2, persistent_workers=True, generator=generator),
            [self.GENERATOR_42[0], [9, 0, 3, 6, 1, 8, 7, 2, 4, 5]])

    def test_only_the_low_half_of_a_seed_counts(self):
        orders = []
        for seed in (5, (1 << 32) + 5, (1 << 40) + 5):
            torch.manual_seed(seed)
            orders.append(flat(DataLoader(datasets.Numbers(30), shuffle=True)))
        self.assertEqual(orders[0], orders[1])
        self.assertEqual(orders[0], orders[2])

    def test_base_seed_is_drawn_before_the_sampler_is_asked(self):
        for options in ({}, {"num_workers": 1}):
            torch.manual_seed(42)
            iter(DataLoader(datasets.Numbers(10), **options))
            drawn = int(torch.empty((), dtype=torch.int64).random_())
            self.assertEqual(drawn, 8314211556539077902)

    def test_building_a_loader_draws_nothing(self):
        before = black_box.rng_states()
        DataLoader(datasets.Numbers(10), shuffle=True, num_workers=2)
        self.same(black_box.rng_states(), before)

    def test_every_item_once(self):
        for options in ({}, {"batch_size": None}, {"batch_size": 4}, {"num_workers": 2},
                        {"num_workers": 2, "batch_size": 4, "prefetch_factor": 3}):
            for kind in ("int", "dict"):
                batches = self.check(lambda cls: cls(datasets.Numbers(17, kind), shuffle=True,
                                                     **options), epochs=2)
                if options and kind == "int" and options.get("batch_size", 1):
                    self.assertEqual(sorted(flat(batches)), sorted(list(range(17)) * 2))

    def test_same_seed_same_order_other_seed_other_order(self):
        def order(seed):
            torch.manual_seed(seed)
            return flat(DataLoader(datasets.Numbers(40), shuffle=True, num_workers=1))

        self.assertEqual(order(1), order(1))
        self.assertNotEqual(order(1), order(2))

    @slow
    def test_break_leaves_the_generators_as_torch_does(self):
        for workers in (0, 2):
            self.check(lambda cls: cls(datasets.Numbers(20), shuffle=True, batch_size=3,
                                       num_workers=workers), epochs=3, stop=2)
            self.check(lambda cls: cls(datasets.Numbers(20), shuffle=True, batch_size=3,
                                       num_workers=workers,
                                       generator=torch.Generator().manual_seed(9)),
                       epochs=3, stop=2)


class TestSamplers(Case):
    @slow
    def test_random_sampler(self):
        for options in ({}, {"replacement": True}, {"replacement": True, "num_samples": 70},
                        {"num_samples": 3}, {"num_samples": 23}):
            for workers in (0, 1):
                self.check(lambda cls: cls(
                    datasets.Numbers(10), batch_size=4, num_workers=workers,
                    sampler=RandomSampler(range(10), **options)), epochs=3, seed=42)

    @slow
    def test_subset_weighted_and_lists(self):
        samplers = (lambda: SubsetRandomSampler([5, 6, 7, 8, 9]),
                    lambda: WeightedRandomSampler([.1, .9, .4, .7, 3, .6], 12),
                    lambda: WeightedRandomSampler([.1, .9, .4, .7, 3, .6], 5, replacement=False),
                    lambda: SequentialSampler(range(7)), lambda: [3, 1, 3, 9],
                    lambda: range(8, 2, -2))
        for sampler in samplers:
            for workers in (0, 2):
                self.check(lambda cls: cls(datasets.Numbers(10), batch_size=2, sampler=sampler(),
                                           num_workers=workers), epochs=2)

    @slow
    def test_batch_samplers(self):
        samplers = (lambda: BatchSampler(RandomSampler(range(10)), 3, True),
                    lambda: BatchSampler([4, 2, 9, 1, 0], 2, False),
                    lambda: [[0], [1, 2, 3], [9, 9], [4, 5, 6, 7]], lambda: [(1, 2), (3,)])
        for sampler in samplers:
            for workers in (0, 2):
                self.check(lambda cls: cls(datasets.Numbers(10, "dict"), batch_sampler=sampler(),
                                           num_workers=workers), epochs=2)

    def test_generators_as_samplers(self):
        for workers in (0, 2):
            self.check(lambda cls: cls(datasets.Numbers(10), batch_size=3, num_workers=workers,
                                       sampler=(i for i in range(8))), epochs=2)
            self.check(lambda cls: cls(datasets.Numbers(10), num_workers=workers,
                                       batch_sampler=([i, i + 1] for i in range(8))), epochs=2)

    def test_bulk_loading_without_batches(self):
        sampler = BatchSampler(RandomSampler(range(12)), 5, False)
        for workers in (0, 1):
            self.check(lambda cls: cls(datasets.BulkList(), batch_size=None, sampler=sampler,
                                       num_workers=workers))

    def test_getitems(self):
        for workers in (0, 2):
            batches = self.check(lambda cls: cls(datasets.Bulk(), batch_size=5,
                                                 collate_fn=datasets.as_list,
                                                 num_workers=workers))
            if black_box.TORCH >= (2, 0):
                self.assertEqual(batches[2], [("many", 10), ("many", 11)])

    def test_keys_that_are_no_small_numbers(self):
        keys = ["a", "b" * 3000, -1, -2**63, 2**63 - 1, 2**70, ("x", 1), 2.5, None, True,
                b"bytes", numpy.int64(4), torch.tensor(5), frozenset([1])]
        for workers in (0, 2):
            self.check(lambda cls: cls(datasets.Keys(), sampler=keys, batch_size=None,
                                       num_workers=workers))
            self.check(lambda cls: cls(datasets.Keys(), sampler=keys, batch_size=3,
                                       num_workers=workers))

    def test_batches_of_very_many_indices(self):
        many = [list(range(70_000)), [1, 2], list(range(2**40, 2**40 + 30_000))]
        for workers in (0, 2):
            loader = DataLoader(datasets.Keys(), batch_sampler=many, num_workers=workers,
                                collate_fn=sum_of_keys)
            self.assertEqual(list(loader), [(len(b), sum(b)) for b in many])

    def test_distributed_sampler(self):
        seen = []
        for rank in range(3):
            sampler = DistributedSampler(range(10), 3, rank, seed=40)
            sampler.set_epoch(2)
            loader = DataLoader(datasets.Numbers(10), batch_size=2, sampler=sampler, num_workers=1)
            self.assertEqual(len(loader), 2)
            seen.append(flat(loader))
        self.assertEqual(seen, [[2, 8, 0, 7], [6, 4, 9, 2], [1, 5, 3, 6]])
        sampler.set_epoch(3)
        self.assertNotEqual(flat(loader), seen[2])

    def test_distributed_sampler_drops_or_repeats(self):
        for length, world, drop in ((10, 4, False), (10, 4, True), (2, 3, False), (1, 5, False)):
            for rank in range(world):
                self.check(lambda cls: cls(datasets.Numbers(length), sampler=DistributedSampler(
                    range(length), world, rank, shuffle=False, drop_last=drop)))

    def test_sampler_that_fails(self):
        def make(cls, workers):
            return cls(datasets.Numbers(10), batch_size=2, sampler=fails_after_five(),
                       num_workers=workers)

        self.check(lambda cls: make(cls, 0))
        loader = make(DataLoader, 1)
        with self.assertRaisesRegex(datasets.OwnError, "^sampler is bad$"):
            list(loader)


def fails_after_five():
    yield from range(5)
    raise datasets.OwnError("sampler is bad")


def sum_of_keys(samples):
    return len(samples), sum(int(text) for _, text in samples)


class Listed:
    """A batch sampler that takes what it gives of a list that may be changed."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def raised(loader):
    loader.batch_sampler.batch_size = 12


def much_raised(loader):
    loader.batch_sampler.batch_size = 20000


def lowered(loader):
    loader.batch_sampler.batch_size = 1


def replaced(loader):
    object.__setattr__(loader, "batch_sampler", BatchSampler(loader.sampler, 9, False))


def listed(loader):
    object.__setattr__(loader, "batch_sampler", Listed([[5] * 15, [1], [2, 3] * 6]))


def of_texts(loader):
    object.__setattr__(loader, "batch_sampler", Listed([["a" * 9, "b"] * 9, [f"{n}" * 30 for n in range(30)]]))


CHANGES = [raised, much_raised, lowered, replaced, listed, of_texts]


class Named(datasets.Numbers):
    def __getitem__(self, key):
        return len(key) if type(key) is str else super().__getitem__(key)


class TestChangedBatches(Case):
    """Of a loader that is there already: what its batch sampler is and gives, is read when it is used."""

    def crossed(self, option):
        yield {"shuffle": True}
        yield {"num_workers": 1, "prefetch_factor": 2, "shuffle": True}
        yield {"num_workers": 1, "prefetch_factor": 2, option: True}

    def test_before_the_first_epoch(self):
        for workers in (0, 1):
            for change in CHANGES:
                with self.subTest(f"{change.__name__} {workers}"):
                    self.check(lambda cls: self.changed(cls, change, num_workers=workers))

    def changed(self, cls, change, **options):
        loader = cls(Named(50), batch_size=4, **options)
        change(loader)
        return loader

    def test_between_epochs(self):
        for options in self.crossed("persistent_workers"):
            for change in CHANGES:
                with self.subTest(f"{change.__name__} {options}"):
                    self.both(lambda cls: self.play_between(cls(Named(50), batch_size=4, **options), change))

    def play_between(self, loader, change):
        before = [len(batch) for batch in loader]
        change(loader)
        return before, [batch.tolist() for batch in loader], len(loader), len(iter(loader))

    def test_within_an_epoch(self):
        for options in self.crossed("drop_last"):
            for change in CHANGES:
                with self.subTest(f"{change.__name__} {options}"):
                    self.both(lambda cls: self.play_within(cls(Named(90), batch_size=4, **options), change))

    def play_within(self, loader, change):
        iterator = iter(loader)
        given = [next(iterator).tolist() for _ in range(3)]
        change(loader)
        return given + [batch.tolist() for batch in iterator]

    def test_a_batch_of_very_many_samples(self):
        """After few of four: the second epoch's two batches are all of what the first had a little of."""
        def play(cls):
            keys = list(range(40))

            def change(loader):
                keys.extend(range(40, 40000))
                much_raised(loader)

            loader = cls(Named(70000), batch_size=4, num_workers=1, prefetch_factor=2, sampler=keys)
            return self.play_between(loader, change)

        self.both(play)

    def test_batches_of_any_kind(self):
        """Of keys that can be read once, too; PyTorch's workers hang on these."""
        rows = torch.utils.data.TensorDataset(torch.arange(20.0))
        kinds = [lambda: (key for key in range(12)), lambda: map(int, range(3)), lambda: iter([1, 2]), lambda: range(9),
                 lambda: tuple(range(9)), lambda: {1: 2, 3: 4}, lambda: torch.arange(9), lambda: numpy.arange(9)]
        for dataset in (datasets.Numbers(20), rows):
            for kind in kinds:
                def read(cls, workers):
                    return list(cls(dataset, batch_sampler=[kind(), kind()], num_workers=workers))
                expected = self.both(lambda cls: read(cls, 0))
                self.same(read(DataLoader, 1 if black_box.OURS else 0), expected)

    def test_long_keys(self):
        keys = [[os.urandom(300000).hex() for _ in range(2)] for _ in range(4)]
        for in_order in ((True, False) if TORCH >= (2, 6) else (True,)):
            further = {} if in_order else {"in_order": False}
            self.both(lambda cls: sorted(batch.tolist() for batch in cls(
                Named(9), batch_sampler=keys, num_workers=2, **further)))


class TestRandomArguments(Case):
    """Random arguments, against PyTorch's class in the same process."""

    def draw_sampler(self, rng, n):
        """Options that decide the order, as a function that builds them anew."""
        keys = [rng.randrange(max(n, 1)) for _ in range(rng.randint(0, 9))] if n else []
        count, replacement = rng.randint(1, 40), rng.random() < 0.5
        size, drop = rng.randint(1, 5), rng.random() < 0.5
        choices = [dict, lambda: {"shuffle": True}, lambda: {"shuffle": True},
                   lambda: {"sampler": keys}]
        if n:
            choices += [lambda: {"sampler": RandomSampler(range(n), replacement, count)},
                        lambda: {"sampler": SubsetRandomSampler(keys)},
                        lambda: {"sampler": WeightedRandomSampler([1.0 + i for i in range(n)],
                                                                  count)},
                        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(n)), size,
                                                               drop)}]
        return rng.choice(choices)

    def draw(self, rng):
        n, kind = rng.randint(0, 20), rng.choice(datasets.Numbers.KINDS)
        order = self.draw_sampler(rng, n)
        options, seed = {}, rng.choice([None, rng.getrandbits(40)])
        if "batch_sampler" not in order() or rng.random() < 0.1:
            options["batch_size"] = rng.choice([None, 1, 2, 3, 7])
            options["drop_last"] = rng.random() < (0.1 if options["batch_size"] is None else 0.4)
        if rng.random() < 0.3:
            options["collate_fn"] = datasets.as_list
        if rng.random() < 0.12:
            options["num_workers"] = rng.randint(1, 3)
            options["prefetch_factor"] = rng.randint(1, 3)
            options["persistent_workers"] = rng.random() < 0.5

        def make(cls):
            generator = None if seed is None else torch.Generator().manual_seed(seed)
            return cls(datasets.Numbers(n, kind), generator=generator, **options, **order())

        return make, f"{n} {kind} {options} {order()} generator {seed}"

    @slow
    def test_random_arguments(self):
        black_box_seed = f"DLOADER_TEST_SEED={SEED}"
        print("random arguments of", black_box_seed, flush=True)
        rng = random.Random(SEED)
        batches = 0
        for case in range(CASES):
            make, text = self.draw(rng)
            epochs, stop = rng.randint(1, 3), rng.choice([None, None, rng.randint(0, 4)])
            with self.subTest(f"{black_box_seed} case {case}: {text} {epochs} {stop}"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    batches += len(self.check(make, rng.getrandbits(64), epochs, stop))
        self.assertGreater(batches, CASES)
