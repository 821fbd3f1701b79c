"""DataLoader: PyTorch's arguments, order, results and errors, with dloaderd's workers."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

try:
    import torch
except ImportError as _error:
    raise ImportError(f"dloaderd.DataLoader needs torch, which cannot be imported: {_error}; install "
                      "torch, or use dloaderd.Loader, which can return NumPy arrays") from _error

from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data.dataloader import _DatasetKind

from . import _arguments, _device, _html, _info, _native, _private, _single, _trainers, _world, state
from ._seeds import MASK64
from ._share import Share

T_co = TypeVar("T_co", covariant=True)

# Keeps a sampler's draws apart from the base seeds, which are drawn from the seed itself.
_SAMPLER_STREAM = 0x5DEECE66

_TORCH_TAKES_IN_ORDER = "in_order" in inspect.signature(TorchLoader.__init__).parameters


def _length_of(dataset: Any) -> int | None:
    """None: it does not say."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


class DataLoader(TorchLoader[T_co]):
    """Batches of a Dataset; replaces torch.utils.data.DataLoader.

    It is a subclass of PyTorch's class, for libraries that look for that class, divide its samples
    among ranks or rebuild a loader from its attributes, as Lightning does. The arguments up to
    `in_order` are PyTorch's, with the checks, samplers and messages of the imported torch. The same
    holds for the order of the samples, the draws from torch's generators and the seeds in the
    workers. Workers are processes of dloaderd, which starts when this process first needs it.
    Batches are in shared memory, and stay writable as long as anything refers to them.
    `multiprocessing_context` starts the process that forks the workers, for every iter(), or only
    for the first with persistent_workers.

    num_workers may also be "auto": as many as this process may use processors, by its affinity and the
    quotas of its control groups. The number then stays: samples' random draws depend on it, as in PyTorch.

    Additional keyword arguments:

    seed: all random draws of the loader (base seeds, shuffling, samplers without their own
        generator) depend on this number, not on torch's global generator: epochs differ, and a
        second run repeats them. Like generator=torch.Generator().manual_seed(seed).
    rank, world_size: take a DistributedSampler's share of a map-style dataset, shuffled if
        `shuffle` says so, from `seed` (0 if there is none) and the number of the epoch; set_epoch()
        is not needed. By default all samples, as with PyTorch's class, with a warning if `shuffle`
        is given and a launcher or torch.distributed has several ranks.
    device: batches arrive on this device, one copied ahead on a side stream.
    socket: the daemon's socket; by default $DLOADER_SOCKET, or a private daemon.
    native: "auto": batches of a dataset that dloaderd recognises, such as a TensorDataset, are made
        in C without calling it, and are the same; dloaderd.explain() says what runs where. "off":
        the dataset is always called. "require": ValueError, which says why, if it has to be called.
    fast: if the first transform, Resize or RandomResizedCrop, makes a JPEG at least 3, 6 or 12
        times smaller in both directions, the JPEG is decoded at a half, a quarter or an eighth of
        its size, where native decodes it. Pixels then differ from Pillow's, by 0.3 steps of 255 on
        average over 24 photographs. GaussianBlur also runs in C. Random draws and all else are the
        same.
    cache: bytes of shared memory, as a number or a text such as "8GiB", in which workers keep
        decoded pictures of files, where native decodes them, or JPEGs that your own class opens. All
        loaders of the same user and folder (dataset.paths) share it, and all of own classes; the
        first of them sets its size, and it lasts as long as one of them does. Batches are the same.
        If it is too small for all pictures, it keeps as many as fit.

    helpers: number of further workers on other machines, which the daemon's configuration names (HELPERS in
        dloaderd(8)); "auto": as many as it gives a loader. The dataset is sent there by cloudpickle,
        with collate_fn and worker_init_fn. NumPy's, torch's and Python's random numbers then depend on
        the batch alone, not on the worker that makes it as in PyTorch: batches are the same wherever
        they are made, and with no helper there. Of an IterableDataset, and of a dataset with state_dict() and
        load_state_dict(), that many of the num_workers run there, each with its share, and move with their
        state when a helper goes.

    One loader may have several iterators at once. Only one thread at a time may use it.
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable | None = None, batch_sampler: Iterable | None = None,
                 num_workers: int | str = 0, collate_fn: Callable | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True, seed: int | None = None,
                 rank: int | None = None, world_size: int | None = None, device: Any = None,
                 socket: str | None = None, native: str = "auto", fast: bool = False,
                 cache: int | str | None = None, helpers: int | str = 0) -> None:
        count = _arguments.workers_of(num_workers)
        _arguments.check_ours(dataset, sampler, batch_sampler, generator, seed, rank, world_size)
        _arguments.check_native(native)
        _arguments.check_cache(cache, fast)
        _arguments.check_helpers(helpers, count)
        self._options = _arguments.Options(seed, rank, world_size, device, socket, native, bool(fast), cache,
                                           helpers)
        self._keeper = _private.Keeper()
        # To make another loader of; a subclass may have attributes of these names that are its own.
        for name, value in self._options._asdict().items():
            self.__dict__.setdefault(name, value)
        has_sampler = sampler is not None or batch_sampler is not None
        self._shuffles_all = bool(shuffle) and world_size is None
        # Of the samplers made here that is known; what a user's may give is seen as it comes.
        self._keys_are_integers = not has_sampler
        if world_size is not None and not has_sampler:
            sampler = Share(dataset, num_replicas=world_size, rank=rank, shuffle=bool(shuffle),
                            seed=seed or 0, drop_last=drop_last)
            shuffle = None
        self._share = None if world_size is None else _arguments.find_share(sampler, batch_sampler)
        further: dict[str, Any] = {"in_order": in_order} if _TORCH_TAKES_IN_ORDER else {}
        # Nobody asked for a number: 2, and more of them where batches are tiny.
        self._prefetch_is_ours = prefetch_factor is None
        if prefetch_factor is not None:
            further["prefetch_factor"] = prefetch_factor
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, count,
                         collate_fn, pin_memory, drop_last, timeout, worker_init_fn,
                         multiprocessing_context, self._seeded(generator, has_sampler),
                         persistent_workers=persistent_workers,
                         pin_memory_device=pin_memory_device, **further)
        self.in_order = in_order
        self._is_iterable = self._dataset_kind == _DatasetKind.Iterable
        if native == "require":
            _native.require(self)
        # Workers of different ranks have different streams, though their ranks have one seed.
        self._stream_offset = (rank or 0) * max(1, count)
        self._forget()
        # A worker's own loader is seldom used.
        if count > 0 and _info.get_worker_info() is None:
            _private.prepare(socket)

    def _seeded(self, generator: Any, has_sampler: bool) -> Any:
        """What PyTorch's class takes as its generator."""
        self._instead = None
        seed = self._options.seed
        if seed is None:
            return generator
        if has_sampler:
            self._instead = torch.Generator()
            self._instead.manual_seed(seed ^ _SAMPLER_STREAM)
        return torch.Generator().manual_seed(seed) if generator is None else generator

    def _forget(self) -> None:
        """As before the first epoch; generators stay where they are."""
        self._iterator: Any = None  # of persistent workers
        self._proper: Any = None  # what is in that, where a subclass made it
        self._given: Any = None  # weak: the face of it that iter() returned
        self._IterableDataset_len_called: int | None = None
        self._position: Any = None
        self._resume: Any = None
        self._was_put_back = False  # the dataset in this process
        self._next_epoch = 0
        self._base_seed: int | None = None
        seed = self._options.seed
        self._key_seed = None if seed is None else seed & MASK64
        if self._share is not None:
            self._share.passed = 0

    @property
    def _length_said(self) -> int | None:
        return self._IterableDataset_len_called

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return _single.SingleIterator(self)
        from . import _iterators
        self.check_worker_number_rationality()
        made = _iterators.WorkerIterator(self)
        if not self.persistent_workers:
            return made
        self._proper = made
        # Which a subclass may put into an iterator of its own, and keep longer than the loader.
        is_wrapped = type(self)._get_iterator is not DataLoader._get_iterator
        return _iterators.PersistentIterator(self, made) if is_wrapped else made

    def __iter__(self) -> Iterator[Any]:
        if self._shuffles_all and _info.get_worker_info() is None:
            self._shuffles_all = False  # it is said once
            _world.warn_of_others(stacklevel=3)
        if self._resume is None and self._position is not None:
            # Lightning makes an iterator that it does not use.
            self._resume = self._position.unused_resume()
            if self._resume is not None:
                self._iterator = None
        if not (self.persistent_workers and self.num_workers > 0):
            return _device.to_device(self._get_iterator(), self._options.device)
        if self._resume is None and self._iterator is not None and self._proper.is_shifted \
                and self._position.finished:
            # Others continue in their places, with what their datasets know.
            self.load_state_dict(self.state_dict())
        if self._iterator is None or self._proper.is_stale:
            self._iterator = self._get_iterator()
            self._given = None
        else:
            self._iterator._reset(self)
        if self._iterator is not self._proper:
            return _device.to_device(self._iterator, self._options.device)
        given = self._given and self._given()
        if given is None:
            from ._iterators import PersistentIterator
            given = PersistentIterator(self, self._iterator)
            self._given = weakref.ref(given)
        return _device.to_device(given, self._options.device)

    def _repr_html_(self) -> str:
        """What a notebook shows, with what explain() tells."""
        told = _native.explained(self)
        return _html.fragment(_html.facts(type(self).__name__, (
            ("dataset", type(self.dataset).__name__), ("samples", _length_of(self.dataset)),
            ("batch size", self.batch_size), ("workers", self.num_workers), ("sampler", type(self.sampler).__name__),
            ("next epoch", self._next_epoch))) + told.body)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next epoch, which otherwise counts up from 0 with each iter().

        It is a key of sample_rng(), and with rank and world_size the order is drawn from it.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch: {epoch!r} is not a non-negative integer")
        self._next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The position of this loader, to be stored in a checkpoint, also as JSON.

        Batches count once next() has returned them, whatever was loaded ahead. Of several iterators
        the last one begun counts. After the last batch, but inside the loop, the state belongs to
        this epoch with nothing left; after the loop it belongs to the next epoch.
        """
        return state.take(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iter() continues from the state, and so does another one before a batch is
        taken. {} starts anew.

        With a dataset that has a length, nothing before that position is loaded. The state does not
        include the streams of random numbers inside the workers: they start from the epoch's own
        seeds again; those of sample_rng() are not affected.

        In the middle of an epoch the loader must give the batches that the state's loader would
        have given. num_workers may differ, and with the options rank and world_size the number of
        ranks, too; then each remaining sample of the epoch comes once. StateError (a ValueError):
        not such a state, or of a loader with other generators, or with another batch size, order or
        length; the error names them all.
        """
        state.load(self, state_dict)


_trainers.watch()
