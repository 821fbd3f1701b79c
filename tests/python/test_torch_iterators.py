"""Iterators as libraries use PyTorch's: its classes, its private names, and loaders that wrap what they get.

The loaders here are built as those of torch_geometric, ultralytics, timm and SpeechBrain are.
"""

import contextlib
import signal
from unittest import mock

import torch
from torch.utils.data import dataloader as theirs
from torch.utils.data._utils.worker import WorkerInfo

import black_box
import datasets
from black_box import Case, DataLoader

CLASSES = (theirs._BaseDataLoaderIter, theirs._SingleProcessDataLoaderIter, theirs._MultiProcessingDataLoaderIter)
# Without workers, with some, and with some that stay.
WAYS = ({}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True})


class Mapped:
    """What torch_geometric puts around an iterator."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.iterator)

    def _reset(self, loader, first_iter=False):
        self.iterator._reset(loader, first_iter)

    def __next__(self):
        return next(self.iterator) + 100


def wrapping(cls):
    class Wrapping(cls):
        def _get_iterator(self):
            return Mapped(super()._get_iterator())
    return Wrapping


class Again:
    """A sampler without an end."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


def infinite(cls):
    class Infinite(cls):
        """As ultralytics' InfiniteDataLoader, and timm's MultiEpochsDataLoader."""

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler)

        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

        def __del__(self):
            for worker in getattr(self.iterator, "_workers", ()):
                if worker.is_alive():
                    worker.terminate()
            if hasattr(self.iterator, "_shutdown_workers"):
                self.iterator._shutdown_workers()

        def reset(self):
            if hasattr(self.iterator, "_workers"):
                for worker in self.iterator._workers:
                    worker.is_alive()
                self.iterator._shutdown_workers()
            self.iterator = self._get_iterator()
    return Infinite


@contextlib.contextmanager
def saveable(cls):
    """As SpeechBrain's SaveableDataLoader, which replaces two of PyTorch's functions."""
    init = theirs._BaseDataLoaderIter.__init__

    class Saveable(cls):
        skip_to = None

        def __iter__(self):
            self.iterator = super().__iter__()
            return self.iterator

    def new_init(self, loader, *args, **names):
        init(self, loader, *args, **names)
        if getattr(loader, "skip_to", None) is not None:
            for _ in range(loader.skip_to):
                next(self._sampler_iter)
            self._num_yielded, loader.skip_to = loader.skip_to, None

    def new_reset(self, loader, first_iter=False, *args, **names):
        if not first_iter:
            self._sampler_iter = iter(self._index_sampler)
            self._num_yielded = 0
            self._IterableDataset_len_called = loader._IterableDataset_len_called

    with mock.patch.multiple(theirs._BaseDataLoaderIter, __init__=new_init, _reset=new_reset):
        yield Saveable


class Info(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return isinstance(info, WorkerInfo), info is theirs._utils.worker._worker_info


class TestNames(Case):
    def played(self, call, ways=WAYS):
        for options in ways:
            with self.subTest(options):
                self.both(lambda cls: call(cls, {"batch_size": 2, **options}))

    def test_classes(self):
        self.played(lambda cls, options: [isinstance(iter(cls(range(6), **options)), kind) for kind in CLASSES])

    def test_what_it_has_of_its_loader(self):
        names = ("_drop_last", "_num_workers", "_timeout", "_persistent_workers", "_auto_collation", "_base_seed",
                 "_num_yielded", "_IterableDataset_len_called")

        def told(cls, options):
            loader = cls(datasets.Numbers(9), shuffle=True, drop_last=True, **options)
            iterator = iter(loader)
            return [getattr(iterator, name) for name in names], [
                iterator._dataset is loader.dataset, iterator._index_sampler is loader.batch_sampler,
                iterator._collate_fn is loader.collate_fn, len(iterator), int(iterator._dataset_kind),
                hasattr(iterator, "_workers")]
        self.played(told)

    def test_how_many_it_gave(self):
        def told(cls, options):
            found = []
            loader = cls(datasets.Numbers(7), **options)
            for _ in range(2):
                iterator = iter(loader)
                found.append(iterator._num_yielded)
                for _ in iterator:
                    found.append(iterator._num_yielded)
            return found
        self.played(told)

    def test_the_samplers_iterator(self):
        """What is taken of it is not loaded."""
        def told(cls, options):
            iterator = iter(cls(datasets.Numbers(40), shuffle=True, **options))
            passed = [next(iterator._sampler_iter), iterator._next_index()]
            return passed, [batch.tolist() for batch in iterator]
        self.played(told)

    def test_reset(self):
        def told(cls, options):
            loader = cls(datasets.Numbers(7), shuffle=True, **options)
            iterator = iter(loader)
            found = [next(iterator).tolist()]
            for _ in range(2):
                iterator._reset(loader)
                found += [iterator._num_yielded, [batch.tolist() for batch in iterator]]
            return found, torch.get_rng_state()
        self.played(told, (WAYS[0], WAYS[2]))

    def test_worker_info(self):
        self.played(lambda cls, options: [[flag.tolist() for flag in batch] for batch in cls(Info(), **options)],
                    WAYS[1:])


class TestWorkers(Case):
    def test_are_processes(self):
        for persistent in (False, True):
            def told(cls):
                iterator = iter(cls(datasets.Pids(8), num_workers=2, persistent_workers=persistent))
                pids = [int(next(iterator)) for _ in range(2)]
                workers = iterator._workers
                found = [[worker.pid for worker in workers] == pids, [worker.is_alive() for worker in workers],
                         [worker.daemon for worker in workers], [worker.join(0) for worker in workers]]
                iterator._shutdown_workers()
                for worker in workers:
                    worker.join(black_box.PATIENCE)
                return found, [worker.is_alive() for worker in workers], black_box.wait_gone(pids)
            self.both(told)

    def test_of_an_iterator_that_was_read(self):
        def told(cls):
            iterator = iter(cls(datasets.Numbers(4), num_workers=2))
            list(iterator)
            for worker in iterator._workers:
                worker.join(black_box.PATIENCE)
            return [worker.is_alive() for worker in iterator._workers]
        self.both(told)

    def test_terminated(self):
        for end, number in (("terminate", signal.SIGTERM), ("kill", signal.SIGKILL)):
            iterator = iter(DataLoader(datasets.Pids(1000), num_workers=1))
            next(iterator)
            [worker] = iterator._workers
            with self.assertRaisesRegex(RuntimeError, f"is killed by signal: {signal.strsignal(number)}|exited unex"):
                getattr(worker, end)()
                worker.join(black_box.PATIENCE)
                for _ in iterator:
                    pass
            self.assertFalse(worker.is_alive())


class TestLibraries(Case):
    def test_wrapped(self):
        def told(cls, options):
            loader = wrapping(cls)(datasets.Numbers(5), batch_size=2, shuffle=True, **options)
            found = [[batch.tolist() for batch in loader] for _ in range(3)]
            kept = iter(loader)
            del loader
            return found, len(kept), [batch.tolist() for batch in kept], torch.get_rng_state()
        for options in WAYS:
            with self.subTest(options):
                self.both(lambda cls: told(cls, options))

    def test_a_state_of_a_wrapped_one(self):
        if not black_box.OURS:
            self.skipTest("PyTorch's class has none")
        for options in WAYS:
            loader, other = (wrapping(DataLoader)(datasets.Numbers(9), shuffle=True, **options) for _ in range(2))
            list(loader)
            iterator = iter(loader)
            for _ in range(4):
                next(iterator)
            other.load_state_dict(loader.state_dict())
            self.same(list(other), list(iterator))

    def test_infinite(self):
        def told(cls, options):
            loader = infinite(cls)(datasets.Numbers(6), batch_size=2, shuffle=True, **options)
            found = [[batch.tolist() for batch in loader] for _ in range(3)]
            loader.reset()
            return found, [[batch.tolist() for batch in loader] for _ in range(2)], len(loader)
        for options in WAYS:
            with self.subTest(options):
                self.both(lambda cls: told(cls, options))

    def test_saveable(self):
        """Goes on in the middle of an epoch; the next one is whole."""
        def told(cls, options):
            with saveable(cls) as kind:
                loader = kind(datasets.Numbers(20), batch_size=2, shuffle=True,
                              generator=torch.Generator().manual_seed(3), **options)
                iterator = iter(loader)
                for _ in range(3):
                    next(iterator)
                saved = loader.iterator._num_yielded
                loader = kind(datasets.Numbers(20), batch_size=2, shuffle=True,
                              generator=torch.Generator().manual_seed(3), **options)
                loader.skip_to = saved
                found = []
                for _ in range(2):
                    for batch in loader:
                        found.append((batch.tolist(), loader.iterator._num_yielded))
                return saved, found
        for options in WAYS[:2]:
            with self.subTest(options):
                self.both(lambda cls: told(cls, options))
