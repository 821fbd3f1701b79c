"""StatefulDataLoader: torchdata's class by another name, beside torchdata's own where that is installed.

The datasets keep their places in the ways that torchdata's own tests know.
"""

import copy
import inspect
import itertools
import unittest
import warnings

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import datasets
from black_box import Case
from dloaderd import DataLoader, StateError, StatefulDataLoader

try:
    from torchdata.stateful_dataloader import StatefulDataLoader as Theirs
except ImportError as error:
    Theirs, WHY = None, f"torchdata is not installed: {error}"
else:
    WHY = ""

WAYS = [{}, {"num_workers": 1}, {"num_workers": 3}, {"num_workers": 3, "persistent_workers": True}]


def as_is(samples):
    return samples


def my_share(sizes):
    """The numbers of this worker, each of which has so many; of the one process, all."""
    info = get_worker_info()
    if info is None:
        return range(sum(sizes))
    begin = sum(sizes[:info.id])
    return range(begin, begin + sum(sizes[info.id:info.id + 1]))


class Resetting(IterableDataset):
    """A generator, and what it knows of itself at its end is where the next epoch begins."""

    def __init__(self, sizes):
        self.sizes, self.at, self.epoch, self.resumed = sizes, 0, 0, None

    def __iter__(self):
        self.at, self.resumed = self.resumed or 0, None
        for number in my_share(self.sizes)[self.at:]:
            self.at += 1
            yield number, self.epoch
        self.at = 0
        self.epoch += 1

    def state_dict(self):
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.resumed, self.epoch = state["at"], state["epoch"]


class Begun(IterableDataset):
    """Its own iterator, with a place from iter() on; it knows how often that was called."""

    def __init__(self, sizes):
        self.sizes, self.calls = sizes, 0

    def __iter__(self):
        share = my_share(self.sizes)
        self.calls += 1
        self.place = {"next": share.start, "end": share.stop}
        return self

    def __next__(self):
        if self.place["next"] >= self.place["end"]:
            raise StopIteration
        self.place["next"] += 1
        return self.place["next"] - 1, self.calls

    def state_dict(self):
        return {"place": dict(self.place), "calls": self.calls}

    def load_state_dict(self, state):
        self.place.update(state["place"])
        self.calls = state["calls"]


class Growing(Begun):
    """Whose state is longer with each sample."""

    def state_dict(self):
        seen = range(self.place["next"])
        return {**super().state_dict(), **{f"tensor {number}": torch.tensor(number) for number in seen}}


class Drawing(Dataset):
    """Draws from torch's global generator, which is its state."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index, int(torch.randint(1000, ()))

    def state_dict(self):
        return {"drawn": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["drawn"])


def run(loader, epochs, states):
    """The batches of so many epochs; a state before each of them, and behind each epoch."""
    given = []
    for _ in range(epochs):
        batches = iter(loader)
        while True:
            states.append((len(given), copy.deepcopy(loader.state_dict())))
            try:
                given.append(next(batches))
            except StopIteration:
                break
        states.append((len(given), copy.deepcopy(loader.state_dict())))
    return given


class TestStates(Case):
    def check(self, build, epochs=2, every=1):
        """From each place, another loader gives what is left of these epochs."""
        torch.manual_seed(5)
        states = []
        given = run(build(), epochs, states)
        for number, (place, state) in enumerate(states[::every]):
            torch.manual_seed(1000 + number)
            loader = build()
            loader.load_state_dict(state)
            rest = []
            while len(rest) < len(given) - place:
                before = len(rest)
                rest += list(loader)
                if len(rest) == before and place + before < len(given):
                    rest += list(loader)  # in the loop, an epoch with nothing left
                    self.assertGreater(len(rest), before)
            self.assertEqual(rest, given[place:], f"state {number * every}, after {place}")
        return given

    def test_what_a_dataset_does_at_its_end_is_part_of_its_state(self):
        for sizes, way in itertools.product(([7], [4, 0, 9]), WAYS):
            for batch_size, drop_last in ((None, False), (4, False), (4, True)):
                options = {"batch_size": batch_size, "drop_last": drop_last, **way}
                with self.subTest(f"{sizes} {options}"):
                    stays = way.get("persistent_workers", not way)
                    given = self.check(lambda: StatefulDataLoader(
                        Resetting(sizes), collate_fn=as_is, **options), every=5)
                    of_epoch = max(epoch for batch in given
                                   for _, epoch in ([batch] if batch_size is None else batch))
                    self.assertEqual(of_epoch, 1 if stays else 0)

    def test_a_place_that_iter_makes(self):
        for kind, way in itertools.product((Begun, Growing), WAYS):
            with self.subTest(f"{kind.__name__} {way}"):
                self.check(lambda: StatefulDataLoader(kind([5, 0, 4]), batch_size=2, **way,
                                                      collate_fn=as_is), every=4)

    def test_iterators_that_know_their_place(self):
        for way in WAYS:
            with self.subTest(f"{way}"):
                self.check(lambda: StatefulDataLoader(datasets.Resumable(11), batch_size=2, **way,
                                                      collate_fn=as_is), every=3)

    def test_iter_is_called_once_in_a_worker_and_epoch(self):
        for way in WAYS:
            loader = StatefulDataLoader(Begun([4, 4, 4]), batch_size=None, **way)
            next(iter(loader))
            fresh = StatefulDataLoader(Begun([4, 4, 4]), batch_size=None, **way)
            fresh.load_state_dict(loader.state_dict())
            self.assertEqual({int(calls) for _, calls in fresh}, {1})

    def test_a_state_is_not_changed_by_what_follows(self):
        for workers in (0, 2):
            loader = StatefulDataLoader(Growing([9, 9]), num_workers=workers, collate_fn=as_is)
            batches = iter(loader)
            next(batches)
            state = loader.state_dict()
            kept = copy.deepcopy(state)
            rest = list(batches)
            self.assertEqual(str(state), str(kept))
            fresh = StatefulDataLoader(Growing([9, 9]), num_workers=workers, collate_fn=as_is)
            fresh.load_state_dict(state)
            self.assertEqual(list(fresh), rest)

    def test_a_dataset_whose_state_is_torchs_generator(self):
        for way in ({}, {"num_workers": 2}):
            for shuffle in (False, True):
                with self.subTest(f"{way} {shuffle}"):
                    self.check(lambda: StatefulDataLoader(Drawing(7), shuffle=shuffle, **way,
                                                          collate_fn=as_is), every=3)

    def test_the_loader_that_a_state_came_from_takes_it(self):
        for way, steps in itertools.product(WAYS, (0, 3)):
            loader = StatefulDataLoader(Drawing(7), shuffle=True, collate_fn=as_is, **way)
            batches = iter(loader)
            for _ in range(steps):
                next(batches)
            state = loader.state_dict()
            rest = list(batches)
            loader.load_state_dict(state)
            self.assertEqual(list(loader), rest, f"{way} {steps}")

    def test_a_resumed_loader_says_what_the_first_one_would(self):
        for way in WAYS[1:]:
            def build():
                return StatefulDataLoader(Resetting([9, 9, 9]), **way, collate_fn=as_is)

            loader = build()
            batches = iter(loader)
            for _ in range(4):
                next(batches)
            state = loader.state_dict()
            next(batches), next(batches)
            fresh = build()
            fresh.load_state_dict(state)
            self.assertEqual(fresh.state_dict()["workers"], state["workers"])
            batches = iter(fresh)
            next(batches), next(batches)
            ours, theirs = fresh.state_dict(), loader.state_dict()
            # The global generator is not moved in the one that was resumed.
            self.assertEqual({key for key in theirs if ours[key] != theirs[key]} - {"now"}, set())


class TestOtherNames(Case):
    def test_workers_end_by_the_name_that_pytorch_has_for_it(self):
        for stays in (False, True):
            loader = DataLoader(range(50), num_workers=1, persistent_workers=stays)
            batches = iter(loader)
            next(batches)
            batches._shutdown_workers()
            with self.assertRaisesRegex(RuntimeError, "workers are gone: _shutdown_workers"):
                next(batches)
            self.assertEqual(len(list(loader)), 50)


@unittest.skipIf(Theirs is None, WHY)
class TestBesideTorchdata(Case):
    """The same program with either class."""

    def both(self, dataset, **options):
        for kind in (Theirs, StatefulDataLoader):
            yield lambda: kind(dataset(), collate_fn=as_is, **copy.copy(options))

    def test_the_arguments_are_theirs(self):
        ours = inspect.signature(StatefulDataLoader).parameters
        for name, theirs in inspect.signature(Theirs).parameters.items():
            self.assertIn(name, ours)
            self.assertEqual((ours[name].default, ours[name].kind),
                             (theirs.default, theirs.kind), name)

    def follow(self, build, steps):
        """Batches until a state is taken, behind it, and of a loader that goes on from it."""
        loader = build()
        batches = iter(loader)
        before = [next(batches) for _ in range(steps)]
        state = copy.deepcopy(loader.state_dict())
        rest = list(batches)
        behind = copy.deepcopy(loader.state_dict())
        fresh, next_epoch = build(), build()
        fresh.load_state_dict(state)
        next_epoch.load_state_dict(behind)
        return before, rest, list(fresh), list(next_epoch)

    def compare(self, dataset, steps, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an iterable one is read again; both say so
            theirs, ours = (self.follow(build, steps) for build in self.both(dataset, **options))
        self.assertEqual(ours, theirs, f"{dataset} {steps} {options}")

    def test_a_state_in_the_epoch_and_at_its_end(self):
        for every in (1, 3):
            for way in ({}, {"num_workers": 2}):
                for steps in (0, 1, 5, 6):
                    self.compare(lambda: list(range(12)), steps, batch_size=2,
                                 snapshot_every_n_steps=every, **way)
                    self.compare(lambda: Begun([6, 6]), steps, batch_size=2,
                                 snapshot_every_n_steps=every, **way)

    def test_epochs_that_datasets_count(self):
        """As long as no worker is at its end, which torchdata's begin anew in the same epoch."""
        for way in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
            for steps in (0, 2, 3):
                self.compare(lambda: Resetting([7, 6]), steps, batch_size=2, **way)

    def test_a_map_style_datasets_state(self):
        def seeded(steps, way):
            results = []
            for build in self.both(lambda: Drawing(9), batch_size=2, **way):
                torch.manual_seed(3)
                results.append(self.follow(build, steps))
            return results

        for way in ({}, {"num_workers": 2}):
            for steps in (0, 2, 5):
                theirs, ours = seeded(steps, way)
                self.assertEqual(ours[1], ours[2])
                self.assertEqual(ours[:3], theirs[:3], f"{way} {steps}")

    def test_in_order(self):
        for value in (True, False):
            given = [sorted(sum(build(), [])) for build in
                     (lambda: list(Theirs(range(20), num_workers=2, in_order=value, collate_fn=as_is)),
                      lambda: list(StatefulDataLoader(range(20), num_workers=2, in_order=value,
                                                      collate_fn=as_is)))]
            self.assertEqual(given, [list(range(20))] * 2)

    def test_their_states_are_refused_by_name(self):
        for workers in (0, 2):
            theirs = Theirs(range(9), num_workers=workers)
            next(iter(theirs))
            ours = StatefulDataLoader(range(9), num_workers=workers)
            with self.assertRaisesRegex(StateError, "torchdata's StatefulDataLoader, .* finish its "
                                                    "epoch with that class"):
                ours.load_state_dict(theirs.state_dict())
            self.assertEqual(len(list(ours)), 9)
