"""DataLoader: PyTorch's arguments, order, results and errors, with dloaderd's workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

try:
    import torch
except ImportError as _error:
    raise ImportError(f"dloader.DataLoader needs torch, which cannot be imported: {_error}; install "
                      "torch, or use dloader.Loader, which gives NumPy arrays as well") from _error

from torch.utils.data import (BatchSampler, DistributedSampler, IterableDataset, RandomSampler,
                              SequentialSampler)
from torch.utils.data._utils.collate import default_collate, default_convert
from torch.utils.data.dataloader import _DatasetKind, _InfiniteConstantSampler

from . import _arguments, _device, _info, _private, _single, state
from ._seeds import MASK64

T_co = TypeVar("T_co", covariant=True)

# What may not be assigned to once the loader is there, as in PyTorch.
_FIXED = frozenset(("batch_size", "batch_sampler", "sampler", "drop_last", "dataset",
                    "persistent_workers"))

# Keeps a sampler's draws apart from the base seeds, which are drawn from the seed itself.
_SAMPLER_STREAM = 0x5DEECE66


class DataLoader(Generic[T_co]):
    """Batches of a Dataset: torch.utils.data.DataLoader by another import.

    The arguments up to `in_order` are PyTorch's, with its checks and its texts. The order of the
    samples, the draws from torch's generators and the seeds in the workers are those of the torch
    that is imported. Workers are processes of dloaderd, which is started for this process when it
    is first needed; batches lie in shared memory, writable, for as long as anything refers to them.
    `multiprocessing_context` is checked and has no effect: the dataset, collate_fn and
    worker_init_fn are pickled (by cloudpickle if it can be imported), for every iter(), or only for
    the first with persistent_workers.

    It is no subclass of torch's DataLoader: isinstance() against that says False.

    Ours, keyword-only:

    seed: all that the loader draws (base seeds, shuffling, samplers without a generator of their
        own) comes from this number and not from torch's global generator: each epoch is different,
        and a second run the same. As generator=torch.Generator().manual_seed(seed).
    rank, world_size: take a DistributedSampler's share of a map-style dataset, shuffled as
        `shuffle` says from `seed` (0 if there is none) and the number of the epoch, which is set by
        itself.
    device: batches come on it, one copied ahead on a side stream.
    socket: of the daemon to use; absent: $DLOADER_SOCKET, or one of this process's own.

    One loader may have several iterators at once. Not for use by two threads at the same time.
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    batch_sampler: Any
    generator: Any
    collate_fn: Callable
    _initialized = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable | None = None, batch_sampler: Iterable | None = None,
                 num_workers: int = 0, collate_fn: Callable | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True, seed: int | None = None,
                 rank: int | None = None, world_size: int | None = None, device: Any = None,
                 socket: str | None = None) -> None:
        self.prefetch_factor = _arguments.check_numbers(num_workers, timeout, prefetch_factor,
                                                        persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._is_iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._is_iterable else _DatasetKind.Map
        if self._is_iterable:
            _arguments.check_iterable(dataset, shuffle, sampler, batch_sampler)
        _arguments.check_ours(dataset, sampler, batch_sampler, generator, seed, rank, world_size)
        _arguments.check_batching(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.device, self.socket = device, socket
        self._seed_generators(generator, sampler is not None or batch_sampler is not None)
        self._set_samplers(batch_size, bool(shuffle) and not self._is_iterable, sampler,
                           batch_sampler, drop_last)
        # Nobody asked for a number: 2, and more of them where batches are tiny.
        self._prefetch_is_ours = prefetch_factor is None
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        # Workers of different ranks have different streams, though their ranks have one seed.
        self._stream_offset = (rank or 0) * max(1, num_workers)
        self._forget()
        self._initialized = True
        self.check_worker_number_rationality()
        # A worker's own loader is seldom used.
        if num_workers > 0 and _info.get_worker_info() is None:
            _private.prepare(socket)

    def _seed_generators(self, generator: Any, has_sampler: bool) -> None:
        self._instead = None
        if self.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.seed)
            if has_sampler:
                self._instead = torch.Generator()
                self._instead.manual_seed(self.seed ^ _SAMPLER_STREAM)
        self.generator = generator

    def _set_samplers(self, batch_size: int | None, shuffle: bool, sampler: Any,
                      batch_sampler: Any, drop_last: bool) -> None:
        self._distributes = self.world_size is not None
        # Of the samplers made here that is known; what a user's may give is seen as it comes.
        self._keys_are_integers = sampler is None and batch_sampler is None
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if self._distributes:
            sampler = DistributedSampler(self.dataset, num_replicas=self.world_size, rank=self.rank,
                                         shuffle=shuffle, seed=self.seed or 0, drop_last=drop_last)
        elif sampler is None and self._is_iterable:
            sampler = _InfiniteConstantSampler()
        elif sampler is None and shuffle:
            sampler = RandomSampler(self.dataset, generator=self.generator)
        elif sampler is None:
            sampler = SequentialSampler(self.dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler

    def _forget(self) -> None:
        """As before the first epoch; generators stay where they are."""
        self._iterator: Any = None  # of persistent workers
        self._given: Any = None  # weak: the face of it that iter() returned
        self._length_said: int | None = None  # by len(), of an iterable dataset
        self._position: Any = None
        self._resume: Any = None
        self._next_epoch = 0
        self._base_seed: int | None = None
        self._key_seed = None if self.seed is None else self.seed & MASK64

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is "
                             "initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """Kept for what reads it; the workers are the daemon's."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        self._context = _arguments.check_context(context, self.num_workers)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _IterableDataset_len_called(self) -> int | None:
        return self._length_said

    def check_worker_number_rationality(self) -> None:
        """Warns if there are to be more workers than this process may use processors."""
        _arguments.warn_of_many_workers(self.num_workers, 3)

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return _single.SingleIterator(self)
        from . import _iterators
        self.check_worker_number_rationality()
        return _iterators.WorkerIterator(self)

    def __iter__(self) -> Iterator[Any]:
        if not (self.persistent_workers and self.num_workers > 0):
            return _device.to_device(self._get_iterator(), self.device)
        if self._iterator is None or self._iterator.is_stale:
            self._iterator = self._get_iterator()
            self._given = None
        else:
            self._iterator.again()
        given = self._given and self._given()
        if given is None:
            from ._iterators import PersistentIterator
            given = PersistentIterator(self, self._iterator)
            self._given = weakref.ref(given)
        return _device.to_device(given, self.device)

    def __len__(self) -> int:
        """Batches in an epoch; TypeError where nobody knows."""
        if not self._is_iterable:
            return len(self._index_sampler)
        length = self._length_said = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next epoch, which otherwise counts up from 0 with each iter().

        sample_rng() is keyed by it, and the order with rank and world_size is drawn from it.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch: {epoch!r} is not a non-negative integer")
        self._next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where this loader stands, to be kept with a checkpoint; made for JSON.

        Batches count as soon as next() gave them, whatever was loaded ahead. Of several iterators
        the last one begun counts. After the last batch, but inside of the loop, the epoch goes on,
        and has nothing left; after the loop the next epoch is what is resumed.
        """
        return state.take(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iter() goes on from there. {} begins anew.

        With a dataset that has a length nothing before that place is loaded. The streams of random
        numbers inside the workers are not part of it: they start from the epoch's own seeds again;
        those of sample_rng() are as they would have been. StateError (a ValueError): no such state,
        or of a loader with other generators.
        """
        state.load(self, state_dict)
