"""PyTorch's data pipes: the seed that all parts of a graph share in an epoch, and each worker's part.

All that PyTorch's own loader does with them is done by its own functions, at the same moments: a
shared seed is drawn before all else of an epoch, rank 0's for all ranks, the pipes that draw are
seeded from it in this process and in each worker, and sharding_filter() gets their number.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data.dataloader as theirs
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding


class SharedSeed:
    """The seed of the epoch under way, which workers that stay see change."""

    def __init__(self, path: str | None = None) -> None:
        if path is None:
            self._fd = os.memfd_create("dloader-seed", os.MFD_CLOEXEC)
            os.ftruncate(self._fd, 8)
        else:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._memory = mmap.mmap(self._fd, 8)

    def __reduce__(self) -> tuple:
        return SharedSeed, (f"/proc/{os.getpid()}/fd/{self._fd}",)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)  # at the interpreter's end there is no `os` any more

    @property
    def value(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    @value.setter
    def value(self, seed: int) -> None:
        self._memory[:8] = seed.to_bytes(8, "little")


def _seed(pipe: Any, seed: int) -> None:
    generator = torch.Generator()
    generator.manual_seed(seed)
    apply_random_seed(pipe, generator)


# ---- in the user's process ---------------------------------------------------------------------

def begin(loader: Any, before: Any) -> Any:
    """An epoch of `loader`, whose generator draws now; returns what the workers need, or None.

    before: what it returned for the epoch before, if the workers are the same.
    """
    if not isinstance(loader.dataset, IterDataPipe):
        return None
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    shared, group = before or (SharedSeed(), torch.distributed.new_group(backend="gloo")
                               if distributed else None)
    shared.value = theirs._share_dist_seed(loader.generator, group)
    _seed(loader.dataset, shared.value)
    return shared, group


def begin_once_more(loader: Any, pipes: Any) -> None:
    """PyTorch's loader resets itself when its workers are started: it draws, and tells nobody."""
    if pipes is not None:
        _seed(loader.dataset, theirs._share_dist_seed(loader.generator, pipes[1]))


def shard(dataset: Any) -> None:
    """Without workers: this rank's part."""
    if isinstance(dataset, (IterDataPipe, MapDataPipe)):
        apply_sharding(dataset, *theirs._get_distributed_settings())


def worker_init(loader: Any) -> Callable | None:
    """The loader's worker_init_fn, behind what its pipes need first."""
    if not isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        return loader.worker_init_fn
    pipes = loader._position.pipes
    return WorkerInit(loader.worker_init_fn, None if pipes is None else pipes[0])


# ---- in a worker -------------------------------------------------------------------------------

_current: WorkerInit | None = None


class WorkerInit:
    """Makes a worker's copy of the graph its part; to be called with the worker's number once
    get_worker_info() is there.
    """

    def __init__(self, init: Callable | None, seed: SharedSeed | None) -> None:
        self._init = init
        self._seed = seed
        self._settings = theirs._get_distributed_settings()
        self.dataset: Any = None
        self._begun = False

    def __call__(self, worker: int) -> None:
        global _current
        _current = self
        self.dataset = torch.utils.data.get_worker_info().dataset
        self._apply()
        theirs._sharding_worker_init_fn(self._init, *self._settings, worker)

    def _apply(self) -> None:
        if self._seed is not None:
            _seed(self.dataset, self._seed.value)

    def begin_epoch(self) -> None:
        """The first one was begun with the worker; what the user's function set since then stays."""
        if self._begun:
            self._apply()
        self._begun = True


def begin_epoch(dataset: Any) -> None:
    """To be called in a worker before each iter(dataset)."""
    if _current is not None and _current.dataset is dataset:
        _current.begin_epoch()
