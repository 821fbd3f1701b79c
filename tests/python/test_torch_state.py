"""state_dict() and load_state_dict(): resuming in the middle of an epoch.

The cases are those of torchdata's stateful tests, with PyTorch's order of samples. PyTorch's own
class has no states; a plain class over it stands in, which shows that the tests are right.
"""

import collections
import itertools
import json
import random
import re
import unittest
import warnings

import torch
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler

import black_box
import datasets
from black_box import Case, OURS, QUICK
from tap import slow, tries

if OURS:
    from dloaderd import DataLoader
else:
    from replaying import Replaying as DataLoader

N, BATCH = 23, 2
STEPS = (N + BATCH - 1) // BATCH


def values(batches):
    return [batch.tolist() for batch in batches]


def take(iterator, count):
    return [next(iterator) for _ in range(count)]


def through_json(state):
    return json.loads(json.dumps(state))


def ordered(generator_seed=None, **options):
    """A loader over N numbers; a generator of its own where a seed is given."""
    if generator_seed is not None:
        options["generator"] = torch.Generator().manual_seed(generator_seed)
    return DataLoader(datasets.Numbers(N), batch_size=BATCH, **options)


WAYS = [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "prefetch_factor": 5}]
SHUFFLES = [{}, {"shuffle": True}, {"shuffle": True, "generator_seed": 7},
            {"shuffle": True, "seed": 9}]
if QUICK:
    WAYS, SHUFFLES = WAYS[:2], SHUFFLES[1:3]


class StateCase(Case):
    def resume_equals_the_rest(self, build, stops, same=values):
        """For each stop: a new loader with the state gives what the first one still gave."""
        torch.manual_seed(31)
        loader = build()
        iterator, states, given = iter(loader), {}, []
        for step in range(max(stops) + 1):
            if step in stops:
                states[step] = through_json(loader.state_dict())
            if step < max(stops):
                given.append(next(iterator))
        given += list(iterator)
        for step, state in states.items():
            torch.manual_seed(1000 + step)  # whatever the new process has drawn
            fresh = build()
            fresh.load_state_dict(state)
            self.assertEqual(same(list(fresh)), same(given[step:]), f"after {step}")
        return given


class TestInterrupted(StateCase):
    def test_at_0_1_10_and_the_end(self):
        for way in WAYS:
            for shuffle in SHUFFLES:
                with self.subTest(f"{way} {shuffle}"):
                    given = self.resume_equals_the_rest(lambda: ordered(**way, **shuffle),
                                                        (0, 1, 10, STEPS))
                    self.assertEqual(len(given), STEPS)

    def test_samplers(self):
        def build(name, sampler, **options):
            if name == "sampler":
                options["batch_size"] = 3
            return DataLoader(datasets.Numbers(N), **{name: sampler()}, **options)

        for name, sampler in (
                ("sampler", lambda: SubsetRandomSampler(range(5, N))),
                ("sampler", lambda: RandomSampler(range(N), replacement=True)),
                ("sampler", lambda: [3, 1, 4, 1, 5, 9, 2, 6]),
                ("batch_sampler", lambda: BatchSampler(RandomSampler(range(N)), 4, True))):
            for way in ({}, {"num_workers": 2}):
                self.resume_equals_the_rest(lambda: build(name, sampler, **way), (0, 1, 2))

    def test_no_batches_and_drop_last(self):
        self.resume_equals_the_rest(
            lambda: DataLoader(datasets.Numbers(9), batch_size=None, shuffle=True), (0, 4, 9),
            same=list)
        self.resume_equals_the_rest(lambda: ordered(drop_last=True, shuffle=True), (0, 3, 11))

    def test_a_position_counts_what_the_user_got(self):
        """Not what was made ahead of him."""
        loader = ordered(num_workers=2, prefetch_factor=4)
        iterator = iter(loader)
        next(iterator)
        fresh = ordered()
        fresh.load_state_dict(loader.state_dict())
        self.assertEqual(values(fresh)[0], [2, 3])

    def test_another_number_of_workers(self):
        """What does not depend on workers resumes with any number of them."""
        loader = ordered(shuffle=True, generator_seed=3, num_workers=2)
        iterator = iter(loader)
        take(iterator, 4)
        state, rest = loader.state_dict(), None
        rest = values(iterator)
        for workers in (0, 1, 2):
            fresh = ordered(shuffle=True, generator_seed=3, num_workers=workers)
            fresh.load_state_dict(through_json(state))
            self.assertEqual(values(fresh), rest)

    def test_nothing_is_loaded_that_lies_before(self):
        if not OURS:
            self.skipTest("the class that stands in goes through the epoch again")
        loader = DataLoader(datasets.Counter(50), batch_size=1, collate_fn=datasets.as_list)
        iterator = iter(loader)
        take(iterator, 40)
        state, calls = loader.state_dict(), loader.dataset.calls
        self.assertEqual(calls, 40)
        fresh = DataLoader(datasets.Counter(50), batch_size=1, collate_fn=datasets.as_list)
        fresh.load_state_dict(state)
        self.assertEqual(next(iter(fresh)), [(0, 1)])

    def test_random_interruptions(self):
        rng = random.Random(seed := random.getrandbits(32))
        for case in tries(10 if QUICK else 30):
            n, size = rng.randint(1, 30), rng.randint(1, 5)
            options = {"batch_size": size, "drop_last": rng.random() < 0.3,
                       "shuffle": rng.random() < 0.7,
                       "num_workers": rng.choice([0, 0, 0, 1, 2])}
            stop = rng.randint(0, n // size)
            with self.subTest(f"seed {seed} case {case}: {n} {options} {stop}"):
                self.resume_equals_the_rest(
                    lambda: DataLoader(datasets.Numbers(n), **options), (stop,))


class TestEpochs(StateCase):
    def uninterrupted(self, build, epochs):
        torch.manual_seed(8)
        loader = build()
        return [values(loader) for _ in range(epochs)]

    def goes_on(self, epochs, batches):
        """Four epochs, interrupted after that many and so many batches more, are as four in a row: by the state alone,
        and where the user restores torch's generator, too."""
        for way, shuffle, restored in itertools.product(({}, {"num_workers": 2}), SHUFFLES, (True, False)):
            if not (OURS or restored):
                continue
            with self.subTest(f"{way} {shuffle} {restored}"):
                def build():
                    return ordered(**way, **shuffle)

                straight = self.uninterrupted(build, 4)
                torch.manual_seed(8)
                loader = build()
                played = [values(loader) for _ in range(epochs)]
                iterator = iter(loader) if batches else None
                part = values(take(iterator, batches))
                state, rng = through_json(loader.state_dict()), torch.get_rng_state()
                torch.manual_seed(77)
                fresh = build()
                fresh.load_state_dict(state)
                if restored:
                    torch.set_rng_state(rng)
                rest = [values(fresh) for _ in range(4 - epochs)]
                self.assertEqual([*played, part + rest[0], *rest[1:]], straight)

    def test_two_epochs_and_two_more(self):
        self.goes_on(2, 0)

    @slow
    def test_the_epochs_after_a_resumed_one(self):
        self.goes_on(1, 5)

    def test_saved_in_the_loop_after_the_last_batch(self):
        """Resuming gives nothing, and then whole epochs."""
        for way in ({}, {"num_workers": 2}):
            loader = ordered(shuffle=True, generator_seed=5, **way)
            for step, _ in enumerate(loader):
                if step == STEPS - 1:
                    state = through_json(loader.state_dict())
            second = values(loader)
            fresh = ordered(shuffle=True, generator_seed=5, **way)
            fresh.load_state_dict(state)
            self.assertEqual(list(fresh), [])
            self.assertEqual(values(fresh), second)

    def test_saved_after_the_loop(self):
        """Resuming gives the next epoch, whole."""
        for way in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
            loader = ordered(**way)
            list(loader)
            fresh = ordered(**way)
            fresh.load_state_dict(through_json(loader.state_dict()))
            self.assertEqual(len(list(fresh)), STEPS)
            self.assertEqual(len(list(fresh)), STEPS)

    def test_saved_before_the_first_epoch(self):
        for shuffle in ({}, {"shuffle": True, "generator_seed": 4}):
            loader = ordered(**shuffle)
            state = through_json(loader.state_dict())
            fresh = ordered(**shuffle)
            fresh.load_state_dict(state)
            expected = values(loader)
            self.assertEqual(values(fresh), expected)
            self.assertEqual(len(values(fresh)), STEPS)

    def test_saved_soon_after_resuming(self):
        """A state of a resumed epoch, taken before its first batch and after it."""
        for way in ({}, {"num_workers": 2}):
            loader = ordered(shuffle=True, generator_seed=6, **way)
            iterator = iter(loader)
            take(iterator, 3)
            state = loader.state_dict()
            rest = values(iterator)
            for more in (0, 1, 4):
                again = ordered(shuffle=True, generator_seed=6, **way)
                again.load_state_dict(through_json(state))
                resumed = iter(again)
                take(resumed, more)
                last = ordered(shuffle=True, generator_seed=6, **way)
                last.load_state_dict(through_json(again.state_dict()))
                self.assertEqual(values(last), rest[more:])

    @slow
    @unittest.skipUnless(OURS, "the class that stands in goes on once")
    def test_an_iterator_that_nobody_asks_is_as_none(self):
        """Lightning makes one more."""
        for way in WAYS:
            for steps in (0, 3, STEPS):
                def build():
                    return ordered(shuffle=True, generator_seed=7, **way)

                loader = build()
                take(iter(loader), 1)
                iterator = iter(loader)
                take(iterator, steps)
                state = through_json(loader.state_dict())
                expected = [values(iterator), values(loader), values(loader)]
                again = build()
                again.load_state_dict(state)
                iter(again)
                unused = iter(again)
                self.assertEqual([values(again) for _ in range(3)], expected)
                del unused

    def test_loaded_twice_and_into_a_used_loader(self):
        loader = ordered()
        iterator = iter(loader)
        take(iterator, 2)
        early = loader.state_dict()
        take(iterator, 3)
        late = loader.state_dict()
        used = ordered()
        take(iter(used), 7)
        used.load_state_dict(late)
        used.load_state_dict(early)
        self.assertEqual(values(used)[0], [4, 5])

    def test_taking_a_state_changes_nothing(self):
        for way in ({}, {"num_workers": 2}):
            expected = self.uninterrupted(lambda: ordered(shuffle=True, **way), 2)
            torch.manual_seed(8)
            loader, found = ordered(shuffle=True, **way), []
            for _ in range(2):
                loader.state_dict()
                found.append([])
                for batch in loader:
                    loader.state_dict()
                    found[-1].append(batch.tolist())
            self.assertEqual(found, expected)

    def test_resuming_leaves_the_users_generators_alone(self):
        for way in ({}, {"num_workers": 1}):
            loader = ordered(shuffle=True, **way)
            take(iter(loader), 2)
            state = loader.state_dict()
            fresh = ordered(shuffle=True, **way)
            before = black_box.rng_states()
            fresh.load_state_dict(state)
            list(fresh)
            self.same(black_box.rng_states(), before)

    def test_two_loaders_at_once(self):
        loaders = [ordered(shuffle=True, generator_seed=s, num_workers=1) for s in (1, 2)]
        iterators = [iter(loader) for loader in loaders]
        for iterator in iterators:
            take(iterator, 3)
        states = [loader.state_dict() for loader in loaders]
        for seed, iterator, state in zip((1, 2), iterators, states):
            fresh = ordered(shuffle=True, generator_seed=seed, num_workers=1)
            fresh.load_state_dict(state)
            self.assertEqual(values(fresh), values(iterator))


class TestIterable(StateCase):
    def build(self, kind, workers, size=2):
        return DataLoader(kind(N), batch_size=size, num_workers=workers)

    def test_without_a_state_of_its_own(self):
        """What lies before is loaded again, and a warning says so."""
        for workers in (0, 1, 2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.resume_equals_the_rest(lambda: self.build(datasets.Split, workers), (0, 1, 10))
            self.assertTrue(any(issubclass(w.category, UserWarning) for w in caught))

    def test_with_a_state_of_its_own(self):
        for workers in (0, 1, 2):
            self.resume_equals_the_rest(lambda: self.build(datasets.Resumable, workers), (0, 1, 10))

    def test_a_dataset_that_is_its_own_iterator(self):
        if not OURS:
            self.skipTest("the class that stands in does not ask it")
        self.resume_equals_the_rest(lambda: self.build(datasets.OwnIterator, 0), (0, 1, 10))
        loader = self.build(datasets.OwnIterator, 0)
        epochs = [values(loader)]
        state = through_json(loader.state_dict())
        epochs += [values(loader), values(loader)]
        self.assertEqual([epoch[0] for epoch in epochs], [[0, 1], [1000, 1001], [2000, 2001]])
        fresh = self.build(datasets.OwnIterator, 0)
        fresh.load_state_dict(state)
        self.assertEqual([values(fresh), values(fresh)], epochs[1:])

    def test_workers_datasets_go_on_where_they_were(self):
        if not OURS:
            self.skipTest("the class that stands in does not ask them")
        for kind in (datasets.OwnIterator, datasets.Counting):
            for workers in (0, 1, 2):
                self.resume_equals_the_rest(lambda: self.build(kind, workers), (0, 1, 10))

    def test_epochs_are_counted_on_by_workers_that_stay(self):
        if not OURS:
            self.skipTest("the class that stands in does not ask them")

        def build():
            return DataLoader(datasets.OwnIterator(N), batch_size=BATCH, num_workers=1,
                              persistent_workers=True)

        loader = build()
        epochs = [values(loader)]
        state = through_json(loader.state_dict())
        epochs += [values(loader), values(loader)]
        self.assertEqual([epoch[0][0] for epoch in epochs], [0, 1000, 2000])
        fresh = build()
        fresh.load_state_dict(state)
        self.assertEqual([values(fresh), values(fresh)], epochs[1:])

    def test_each_workers_state_is_its_own(self):
        if not OURS:
            self.skipTest("the class that stands in does not ask them")
        loader = self.build(datasets.Counting, 2)
        next(iter(loader))
        with self.assertRaisesRegex(ValueError, "num_workers: 2, but this loader has 3"):
            self.build(datasets.Counting, 3).load_state_dict(loader.state_dict())

    def test_states_are_those_of_the_batch_that_the_user_has(self):
        """Not of the one that is copied to a device meanwhile."""
        if not OURS:
            self.skipTest("PyTorch's class has no device")
        for kind in (datasets.Resumable, datasets.OwnIterator):
            self.resume_equals_the_rest(
                lambda: DataLoader(kind(N), batch_size=BATCH, device="cpu"), (0, 1, 10, STEPS))

    def test_nothing_is_made_again_where_iterators_know_their_place(self):
        if not OURS:
            self.skipTest("the class that stands in goes through the epoch again")
        for workers in (0, 1, 2):
            def build():
                return DataLoader(datasets.Counted(60001), batch_size=2000, num_workers=workers,
                                  prefetch_factor=1 if workers else None)

            loader = build()
            iterator = iter(loader)
            take(iterator, 28)
            state = through_json(loader.state_dict())
            rest = [batch[0].tolist() for batch in iterator]
            for more in (0, 1):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    fresh = build()
                    fresh.load_state_dict(state)
                    given = [(batch[0].tolist(), max(batch[1].tolist())) for batch in fresh]
                self.assertEqual([values for values, _ in given], rest)
                self.assertLessEqual(max(made for _, made in given), 2 * 2000 + 1)
                again = build()
                again.load_state_dict(state)
                iterator = iter(again)  # its own state is that it was given
                take(iterator, more)
                state, rest = through_json(again.state_dict()), rest[more:]

    def test_to_the_end_and_beyond(self):
        for workers in (0, 2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loader = self.build(datasets.Split, workers)
                iterator = iter(loader)
                take(iterator, STEPS)
                state = loader.state_dict()
                fresh = self.build(datasets.Split, workers)
                fresh.load_state_dict(through_json(state))
                self.assertEqual(list(fresh), [])
                self.assertEqual(len(list(fresh)), STEPS)

    def test_sized_and_chained(self):
        def build(workers):
            chain = torch.utils.data.ChainDataset([datasets.Sized(9), datasets.Sized(4)])
            return DataLoader(chain, batch_size=2, num_workers=workers)

        for workers in (0, 2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.resume_equals_the_rest(lambda: build(workers), (0, 3))


class OwnBatches(BatchSampler):
    """May make batches of any size."""


@unittest.skipUnless(OURS, "PyTorch's class has no states")
class TestOtherLoaders(StateCase):
    """A state and a loader that is not as the one that it is of."""

    def state(self, steps=3, **options):
        loader = DataLoader(datasets.Numbers(N), **{"batch_size": BATCH, **options})
        take(iter(loader), steps)
        return through_json(loader.state_dict())

    def load(self, state, data=None, **options):
        loader = DataLoader(datasets.Numbers(N) if data is None else data,
                            **{"batch_size": BATCH, **options})
        loader.load_state_dict(state)
        return loader

    def test_what_cannot_be_gone_on_with_is_named(self):
        shares = [torch.utils.data.DistributedSampler(range(N), world, 0) for world in (1, 2)]
        table = (({}, {"batch_size": 3}, "batch_size: 2, but this loader has 3"),
                 ({}, {"batch_size": None}, "batch_size: 2, but this loader has None"),
                 ({}, {"drop_last": True}, "drop_last: False, but this loader has True"),
                 ({}, {"shuffle": True}, "sampler: 'SequentialSampler', but this loader has "
                  "'RandomSampler'"),
                 ({"shuffle": True}, {}, "sampler: 'RandomSampler'"),
                 ({}, {"data": datasets.Numbers(N + 1)}, "length: 23, but this loader has 24"),
                 ({}, {"data": datasets.Split(N)}, "dataset: 'map', but this loader has 'iterable'"),
                 ({}, {"batch_size": 1, "batch_sampler": [[1, 2], [3]] * 9},
                  "batch_sampler: None, but this loader has 'list'"),
                 ({"sampler": RandomSampler(range(N), replacement=True)}, {"shuffle": True},
                  "sampler.replacement: True, but this loader has False"),
                 ({"sampler": shares[0]}, {"sampler": shares[1]},
                  "sampler.num_replicas: 1, but this loader has 2"),
                 ({"rank": 0, "world_size": 2, "shuffle": True},
                  {"rank": 0, "world_size": 2, "shuffle": True, "seed": 3}, "sampler.seed: 0"),
                 ({"shuffle": True, "seed": 1}, {"shuffle": True, "seed": 1, "rank": 0,
                                                 "world_size": 2}, "sampler: 'RandomSampler'"),
                 ({"rank": 0, "world_size": 2}, {}, "world_size: 2, but this loader has none; give "
                  "it rank=0 and world_size=1"))
        for saved, own, told in table:
            with self.subTest(told):
                state = self.state(**saved)
                with self.assertRaisesRegex(ValueError, re.escape(told)):
                    self.load(state, **own)
                self.assertEqual(len(list(self.load(state, **saved))), STEPS - 3 if "rank" not in saved
                                 else 3)
        with self.assertRaisesRegex(ValueError, "batch_size: 2, .*; drop_last: False, .*; sampler:"):
            self.load(self.state(), batch_size=5, drop_last=True, shuffle=True)

    def test_at_an_epochs_end_another_loader_goes_on(self):
        loader = DataLoader(datasets.Numbers(N), batch_size=BATCH, shuffle=True, seed=5)
        list(loader)
        state = through_json(loader.state_dict())
        fresh = self.load(state, datasets.Numbers(30), batch_size=7, seed=5)
        self.assertEqual(values(fresh)[0], list(range(7)))
        self.assertEqual(fresh.state_dict()["epoch"], 2)

    def test_other_worlds(self):
        """Each sample of the epoch once, on any rank, as often as the world changes."""
        for n, shuffle in ((100, True), (100, False), (110, True)):
            seen, state, states = [], None, []
            for world, steps in ((4, 2), (3, 3), (3, 1), (5, 1), (1, None)):
                states, counts = [], []
                for rank in range(world):
                    loader = DataLoader(datasets.Numbers(n), batch_size=4, shuffle=shuffle, seed=9,
                                        rank=rank, world_size=world, num_workers=int(rank == 1))
                    loader.set_epoch(6)
                    if state:
                        loader.load_state_dict(state)
                    counts.append(len(loader))
                    batches = iter(loader)
                    given = values(batches if steps is None else take(batches, steps))
                    seen += sum(given, [])
                    states.append(through_json(loader.state_dict()))
                    del batches
                self.assertEqual(len(set(counts)), 1)
                state = states[-1]
                for one in states:  # but for how it was loaded, the state of one rank serves all
                    self.assertEqual({key for key in one if one[key] != state[key]}
                                     - {"num_workers", "step"}, set())
            self.assertEqual(sorted(seen), list(range(n)), (n, shuffle))
            loader.load_state_dict(state)
            self.assertEqual(sorted(sum(values(loader), [])), list(range(n)))
            self.assertEqual(loader.state_dict()["epoch"], 8)

    def ranks(self, world, how, **cut):
        """Of 100 samples, in batches of 4 that `how` makes of what rank and world_size give; None: one by one."""
        for rank in range(world):
            given = {"rank": rank, "world_size": world, "seed": 7}
            loader = DataLoader(datasets.Numbers(100), 4, **cut, **given)
            if how is None:
                loader = DataLoader(datasets.Numbers(100), None, sampler=loader.sampler, **given)
            elif how != 4:
                batches = how(loader.sampler, 4, cut["drop_last"])
                loader = DataLoader(datasets.Numbers(100), batch_sampler=batches, **given)
            yield loader

    def play(self, worlds, how, **cut):
        """How often each sample comes, where each world takes two batches, and the last one the rest."""
        seen, state = collections.Counter(), None
        for i, world in enumerate(worlds):
            for loader in self.ranks(world, how, **cut):
                if state:
                    loader.load_state_dict(state)
                batches = iter(loader)
                given = batches if i + 1 == len(worlds) else take(batches, 2)
                seen.update(sample for batch in given for sample in torch.as_tensor(batch).reshape(-1).tolist())
                behind = through_json(loader.state_dict())
            state = behind
        return seen

    def test_every_way_of_cutting_in_every_world(self):
        """What a state counts are batches: however they are cut, no sample is lost, and none comes twice but the last
        ones that even the ranks out."""
        hows, worlds = (4, None, BatchSampler, OwnBatches), ((2, 2), (1, 3), (3, 1, 2), (2, 2, 2, 2))
        for how, shuffle, drop_last, lives in itertools.product(hows, (False, True), (False, True), worlds):
            with self.subTest(how=how, shuffle=shuffle, drop_last=drop_last, lives=lives):
                if how is OwnBatches and len(set(lives)) > 1:
                    with self.assertRaisesRegex(ValueError, f"world_size: {lives[0]}, but .* OwnBatches, may make"):
                        self.play(lives, how, shuffle=shuffle, drop_last=drop_last)
                    continue
                seen = self.play(lives, how, shuffle=shuffle, drop_last=drop_last)
                self.assertLess(100 - len(seen), 4 * lives[-1] if drop_last else 1)
                self.assertLess(sum(seen.values()) - len(seen), lives[-1])

    def test_another_size_of_a_batch_sampler_is_named(self):
        for given in {}, {"rank": 0, "world_size": 2}:
            sampler = DataLoader(datasets.Numbers(N), **given).sampler
            states = [self.state(batch_size=1, batch_sampler=BatchSampler(sampler, size, False), **given)
                      for size in (2, 3)]
            with self.assertRaisesRegex(ValueError, "batch_size: 3, but this loader has 2"):
                self.load(states[1], **given)
            want = self.load(states[0], batch_size=1, **given,
                             batch_sampler=BatchSampler(sampler, 2, False))
            self.assertEqual(values(self.load(states[0], **given)), values(want))

    def test_ranks_have_equally_many_of_what_is_left(self):
        for drop_last in (False, True):
            state = self.state(2, rank=0, world_size=2, drop_last=drop_last)  # 15 are left
            ranks = [self.load(state, rank=rank, world_size=4, drop_last=drop_last)
                     for rank in range(4)]
            shares = [sum(values(rank), []) for rank in ranks]
            if drop_last:
                self.assertEqual(shares, [[8, 12], [9, 13], [10, 14], [11, 15]])
            else:
                self.assertEqual(shares, [[8, 12, 16, 20], [9, 13, 17, 21], [10, 14, 18, 22],
                                          [11, 15, 19, 8]])

    def test_without_ranks_and_in_order_any_number_of_ranks_goes_on(self):
        state = self.state(4)
        ranks = [self.load(state, rank=rank, world_size=2) for rank in range(2)]
        self.assertEqual(sorted(set(sum((sum(values(rank), []) for rank in ranks), []))),
                         list(range(8, N)))

    def test_no_order_is_told(self):
        loader = DataLoader(datasets.Numbers(N), num_workers=1, in_order=False)
        iterator = iter(loader)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader.state_dict()
            take(iterator, 2)
            with self.assertRaisesRegex(UserWarning, "in_order=False: the state has the number "
                                                     "of batches"):
                loader.state_dict()
            list(iterator)
            loader.state_dict()


class TestBadStates(Case):
    def test_are_refused_and_do_no_harm(self):
        for bad in (None, [], "state", 3, {"unknown": 1}, {"version": 1 << 70},
                    {"version": None, "batches": -1}):
            loader = ordered()
            with self.assertRaises((ValueError, TypeError, KeyError)) as caught:
                loader.load_state_dict(bad)
            self.assertTrue(str(caught.exception), "the error says nothing")
            self.assertEqual(len(list(loader)), STEPS)

    def test_every_field_may_be_damaged(self):
        """A state read from a broken file is refused or played; never a crash or a hang."""
        loader = ordered(shuffle=True)
        take(iter(loader), 3)
        state = loader.state_dict()
        for key in state:
            for value in (None, -1, 2**65, "x", [], {}):
                fresh = ordered(shuffle=True)
                try:
                    fresh.load_state_dict({**state, key: value})
                    list(fresh)
                except Exception as error:
                    self.assertNotIsInstance(error, (AssertionError, MemoryError))
