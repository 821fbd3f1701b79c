"""Loading in the user's own process: num_workers=0."""

from __future__ import annotations

import collections
import weakref
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from . import _arguments, _dataset_state, _datapipes, _device, _native, _order, random, state


# PyTorch's own, which a library may have put another one in the place of.
_INIT_FILE = TorchLoader.__init__.__code__.co_filename
# Of PyTorch's iterator, which libraries look at: what it has of its loader.
_COPIED = {"_dataset": "dataset", "_dataset_kind": "_dataset_kind", "_auto_collation": "_auto_collation",
           "_drop_last": "drop_last", "_index_sampler": "_index_sampler", "_num_workers": "num_workers",
           "_timeout": "timeout", "_collate_fn": "collate_fn", "_persistent_workers": "persistent_workers",
           "_prefetch_factor": "prefetch_factor"}


class _Keys:
    """The keys of the batches that are not asked for yet; next() passes over one."""

    def __init__(self, order: _order.Order) -> None:
        self._order = order

    def __iter__(self) -> _Keys:
        return self

    def __next__(self) -> Any:
        keys = self._order.next()
        return keys.tolist() if type(keys) is memoryview else keys


class _Probe(_BaseDataLoaderIter):
    """Shows what a library's own __init__ of PyTorch's iterators does."""


def _passed_over(loader: Any) -> int:
    """Batches that the next epoch begins behind, as a library has it: SpeechBrain's loader puts an __init__ of
    its own in the place of PyTorch's, to continue in the middle of an epoch.
    """
    code = getattr(_BaseDataLoaderIter.__init__, "__code__", None)
    if code is not None and code.co_filename == _INIT_FILE:
        return 0
    kept = [(generator, generator.get_state())
            for generator in (torch.default_generator, *_order.generators(loader))]
    probe = _Probe(loader)
    for generator, state_ in kept:
        generator.set_state(state_)
    return probe._num_yielded


class LoaderIterator(_device.BatchIterator, _BaseDataLoaderIter):
    """What iter(DataLoader) returns. Of PyTorch's class it has what others ask for, and none of the code."""

    _has_workers = False

    @property
    def _loader(self) -> Any:
        return self._loader_of()

    def __init__(self, loader: Any) -> None:
        # A loader holds its persistent iterator; that must not hold it in turn, or both would stay.
        stays = loader.persistent_workers and self._has_workers
        self._loader_of = weakref.ref(loader) if stays else lambda: loader
        self._length_said = loader._length_said
        for name, source in _COPIED.items():
            setattr(self, name, getattr(loader, source))
        self._pin = _device.pinner(loader)
        # In a profile the loader's time stands where it does with PyTorch's iterators.
        kind = "_MultiProcessing" if self._has_workers else "_SingleProcess"
        self._range = f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", self.__class__.__name__)

    def _begin(self, *, draw_base: bool = True) -> None:
        passed = _passed_over(self._loader) if draw_base else 0
        self._order = _order.Order(self._loader, self._index_sampler, workers=self._num_workers > 0,
                                   draw_base=draw_base)
        self._order.pass_over(passed)

    @property
    def _num_yielded(self) -> int:
        return self._order.position.given

    @property
    def _base_seed(self) -> int:
        return self._order.position.base_seed

    @property
    def _sampler_iter(self) -> _Keys:
        return _Keys(self._order)

    @property
    def _IterableDataset_len_called(self) -> int | None:
        return self._length_said

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Another epoch, as libraries ask for that which wrap PyTorch's iterator."""
        if not first_iter:
            self._length_said = loader._length_said
            self._begin(draw_base=False)

    def _prepared(self) -> Any:
        if not torch.autograd._profiler_enabled():
            data = self._next_data()
            return data if self._pin is None else self._pin(data)
        with torch.autograd.profiler.record_function(self._range):
            data = self._next_data()
            return data if self._pin is None else self._pin(data)

    def _count(self) -> None:
        self._order.count()
        given, said = self._order.position.given, self._length_said
        if self._loader._is_iterable and said is not None and given > said:
            _arguments.warn_of_length(self._loader.dataset, said, given, self._num_workers, 3)

    def _finished(self) -> None:
        self._order.position.finished = True


class SingleIterator(LoaderIterator, _SingleProcessDataLoaderIter):
    """Fetches and collates in next() itself, by Python code alone, as PyTorch does."""

    _dataset: Any

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        _arguments.check_assertion(loader.timeout == 0,
                                   "_SingleProcessDataLoaderIter requires timeout == 0")
        self._collate = loader.collate_fn
        self._is_batched = loader._auto_collation
        self._is_native = _native.takes(loader)
        self._pictures = _native.pictures_of(loader) if self._is_batched or loader._is_iterable else None
        self._ended = False
        self._begin()
        _datapipes.shard(self._dataset)
        self._key = loader._key_seed, self._order.position.epoch
        self._restore()
        # The states of a dataset behind batches that the user has not got: they are copied ahead.
        self._behind: collections.deque | None = None
        if loader._options.device is not None and state.asks_dataset(loader, self._order.position):
            self._behind = collections.deque()
            self._order.position.behind = state.of_dataset(loader, self._order.position)
        kind = type(self)
        # Not bound methods, which would make a cycle.
        self._fetch = (kind._fetch_next if loader._is_iterable else
                       kind._fetch_keys if self._is_batched else kind._fetch_key)

    def _restore(self) -> None:
        """The place in an iterable dataset."""
        resume, dataset = self._order.resume, self._dataset
        knows = resume is not None and resume.knows_dataset(self._loader)
        if not knows and self._loader._was_put_back:
            _dataset_state.move_on(dataset)
        self._loader._was_put_back = knows
        if not self._loader._is_iterable:
            return
        anew = knows and resume.finished
        self._samples = _order.begin_anew(dataset) if anew else iter(self._native_dataset())
        if _order.has_state(self._samples):
            self._order.position.iterator = self._samples
            knows |= self._restore_iterator(resume)
        if resume is not None and resume.exhausted:
            self._end()
        elif resume is not None and resume.given and not knows:
            state.warn_of_loading(resume.given, 6)
            self._pass_over(resume.given)

    def _native_dataset(self) -> Any:
        """What gives the samples of the iterable dataset."""
        how = self._pictures
        return self._dataset if how is None else _native.with_pictures(self._dataset, how, False)

    def _restore_iterator(self, resume: Any) -> bool:
        """A dataset that is its own iterator keeps what iter() leaves: so it gets the state after that."""
        own = self._samples is self._dataset
        if resume is None or resume.iterator is None or (resume.finished and not own):
            return False
        self._samples.load_state_dict(resume.iterator)
        if resume.finished:
            self._samples = iter(self._dataset)
        return True

    def _pass_over(self, batches: int) -> None:
        for _ in range(batches):
            try:
                self._take(self._order.next())
            except StopIteration:
                self._end()
                return

    def _end(self) -> None:
        self._ended = self._order.position.exhausted = True

    def _take(self, keys: Any) -> Any:
        """A list of as many samples as there are `keys`, or one sample; StopIteration."""
        if self._ended:
            raise StopIteration
        if not self._is_batched:
            return next(self._samples)
        samples = []
        for _ in keys:
            try:
                samples.append(next(self._samples))
            except StopIteration:
                self._end()
                break
        if not samples or (self._drop_last and len(samples) < len(keys)):
            raise StopIteration
        return samples

    def _fetch_next(self, keys: Any) -> Any:
        random.set_key(*self._key, None)
        return self._take(keys)

    def _fetch_key(self, key: Any) -> Any:
        random.set_key(*self._key, key)
        return self._dataset[key]

    def _fetch_keys(self, keys: Any) -> Any:
        many = getattr(self._dataset, "__getitems__", None)
        if many:
            random.set_key(*self._key, None)
            return many(keys)
        if type(keys) is not list:
            keys = list(keys)
        iterator = iter(keys)
        random.set_keys(*self._key, keys, iterator)
        dataset = self._dataset
        return [dataset[key] for key in iterator]

    def _make(self, keys: Any) -> Any:
        is_sized = hasattr(keys, "__len__")  # a generator is not
        batch = _native.take(self._dataset, keys, self._collate) if self._is_native and is_sized else None
        if batch is not None:
            return batch
        # Looked at each time: the program may change its dataset meanwhile.
        if self._pictures is not None and not self._loader._is_iterable and is_sized and len(keys) >= _native.MANY:
            self._dataset = _native.with_pictures(self._loader.dataset, self._pictures, False)
        try:
            samples = self._fetch(self, keys)
        finally:
            random.clear_key()
        return self._collate(samples)

    def _next_data(self) -> Any:
        keys = self._order.next()
        try:
            data = self._make(keys)
        except StopIteration:
            raise
        except Exception:
            self._order.count()  # the user may continue after it, and so does a resumed epoch
            raise
        if self._behind is not None:
            self._behind.append(state.of_dataset(self._loader, self._order.position))
        return data

    def _count(self) -> None:
        super()._count()
        if self._behind:
            self._order.position.behind = self._behind.popleft()

    def _finished(self) -> None:
        super()._finished()
        self._order.position.behind = None
