"""Loading in the user's own process: num_workers=0."""

from __future__ import annotations

import collections
import weakref
from typing import Any

import torch

from . import _arguments, _dataset_state, _datapipes, _device, _native, _order, random, state


class LoaderIterator(_device.BatchIterator):
    """What iter(DataLoader) returns."""

    _workers = 0
    _has_workers = False

    @property
    def _loader(self) -> Any:
        return self._loader_of()

    def __init__(self, loader: Any) -> None:
        # A loader holds its persistent iterator; that must not hold it in turn, or both would stay.
        stays = loader.persistent_workers and self._has_workers
        self._loader_of = weakref.ref(loader) if stays else lambda: loader
        self._length_said = loader._length_said
        self._index_sampler = loader._index_sampler
        self._pin = _device.pinner(loader)
        # In a profile the loader's time stands where it does with PyTorch's iterators.
        kind = "_MultiProcessing" if self._has_workers else "_SingleProcess"
        self._range = f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", self.__class__.__name__)

    def _begin(self, *, draw_base: bool = True) -> None:
        self._order = _order.Order(self._loader, self._index_sampler, workers=self._workers > 0, draw_base=draw_base)

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
            _arguments.warn_of_length(self._loader.dataset, said, given, self._workers, 3)

    def _finished(self) -> None:
        self._order.position.finished = True


class SingleIterator(LoaderIterator):
    """Fetches and collates in next() itself, by Python code alone, as PyTorch does."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        _arguments.check_assertion(loader.timeout == 0,
                                   "_SingleProcessDataLoaderIter requires timeout == 0")
        self._dataset = loader.dataset
        self._collate = loader.collate_fn
        self._is_batched = loader._auto_collation
        self._drop_last = loader.drop_last
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
        """A dataset that is its own iterator keeps what iter() leaves: so it is told behind that."""
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
        batch = _native.take(self._dataset, keys, self._collate) if self._is_native else None
        if batch is not None:
            return batch
        # Looked at each time: the program may change its dataset meanwhile.
        if self._pictures is not None and not self._loader._is_iterable and len(keys) >= _native.MANY:
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
            self._order.count()  # the user may go on behind it, and so does a resumed epoch
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
