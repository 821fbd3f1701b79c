"""What DataLoader checks besides PyTorch's own class, and texts that changed with torch 2.0."""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset

from . import _processors
from ._seeds import MASK64
from ._share import Share

BEFORE_2 = int(torch.__version__.split(".", 1)[0]) < 2


class Options(NamedTuple):
    """The arguments that PyTorch's DataLoader does not have."""

    seed: int | None
    rank: int | None
    world_size: int | None
    device: Any
    socket: str | None
    native: str
    fast: bool
    cache: int | str | None
    helpers: int | str


def workers_of(num_workers: Any) -> Any:
    """A number stays what it is, for PyTorch's class to check; "auto": one for each processor."""
    return _processors.usable() if isinstance(num_workers, str) and num_workers == "auto" else num_workers


NATIVE = ("auto", "off", "require")


def check_native(native: Any) -> None:
    """ValueError: it is none of NATIVE."""
    if native not in NATIVE:
        raise ValueError(f"native option should be one of {', '.join(map(repr, NATIVE))}, but got "
                         f"native={native!r}")


_UNITS = {"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
_LEAST_CACHE, _MOST_CACHE = 1 << 20, 1 << 42


def check_cache(cache: Any, fast: bool) -> None:
    """ValueError, TypeError: it is no size, or goes with fast."""
    if cache is None:
        return
    if isinstance(cache, bool) or not isinstance(cache, (int, str)):
        raise TypeError(f"cache option should be a number of bytes or a text such as '8GiB', but got cache={cache!r}")
    found = re.fullmatch("([0-9]{1,15})(|[KMGT]iB)", str(cache))
    if found is None or not _LEAST_CACHE <= int(found[1]) << _UNITS[found[2]] <= _MOST_CACHE:
        raise ValueError(f"cache option should be 1MiB to 4TiB, such as '8GiB', but got cache={cache!r}")
    if fast:
        raise ValueError("cache option keeps pictures as they are decoded in full size, and fast=True decodes "
                         "them smaller; leave out one of them")


_MOST_HELPERS = 255


def check_helpers(helpers: Any, num_workers: Any) -> None:
    """ValueError, TypeError: it is no number of workers, or nothing that they could do."""
    automatic = isinstance(helpers, str) and helpers == "auto"
    if isinstance(helpers, bool) or not (automatic or isinstance(helpers, int)):
        raise TypeError(f"helpers option should be a number of workers, or 'auto', but got helpers={helpers!r}")
    if not automatic and not 0 <= helpers <= _MOST_HELPERS:
        raise ValueError(f"helpers option should be 0 to {_MOST_HELPERS}, but got helpers={helpers}")
    if helpers and num_workers == 0:
        raise ValueError("helpers option adds workers on other machines to those of num_workers, which is 0")


def check_assertion(holds: bool, text: str) -> None:
    """What PyTorch asserts in iter(); before 2.0 it did so without a word."""
    if not holds:
        raise AssertionError(*(() if BEFORE_2 else (text,)))


def find_share(sampler: Any, batch_sampler: Any) -> Share | None:
    """The sampler that was made of the options rank and world_size, if there is one."""
    found = sampler if sampler is not None else getattr(batch_sampler, "sampler", None)
    return found if isinstance(found, Share) else None


def _takes(share: Share | None, rank: int, world_size: int) -> bool:
    return share is not None and (share.rank, share.num_replicas) == (rank, world_size)


def check_ours(dataset: Any, sampler: Any, batch_sampler: Any, generator: Any, seed: Any, rank: Any,
               world_size: Any) -> None:
    """ValueError, TypeError: they do not go together, or with PyTorch's."""
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed option should be an integer, but got seed={seed!r}")
        # The attributes of a loader with a seed have the generator that was made of it.
        if generator is not None and generator.initial_seed() != seed & MASK64:
            raise ValueError("seed option is mutually exclusive with generator, whose seed it is")
    if rank is None and world_size is None:
        return
    if rank is None or world_size is None:
        raise ValueError("rank and world_size options belong together, but got "
                         f"rank={rank}, world_size={world_size}")
    given = sampler is not None or batch_sampler is not None
    # The attributes of a loader with a rank have the sampler that was made of it.
    if given and not _takes(find_share(sampler, batch_sampler), rank, world_size):
        raise ValueError("rank and world_size options make a DistributedSampler, and are mutually "
                         "exclusive with sampler and batch_sampler")
    if isinstance(dataset, IterableDataset):
        raise ValueError("rank and world_size options do not apply to an IterableDataset, which must "
                         "divide itself among the ranks")


def warn_of_length(dataset: Any, said: int, given: int, workers: int, stacklevel: int) -> None:
    """As PyTorch: an iterable dataset gives more than its len() said."""
    text = (f"Length of IterableDataset {dataset} was reported to be {said}"
            f"{' ' if BEFORE_2 else ''}(when accessing len(dataloader)), but {given} samples have "
            "been fetched. ")
    if workers:
        text += ("For multiprocessing data-loading, this could be caused by not properly "
                 "configuring the IterableDataset replica at each worker. Please see "
                 "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                 "examples.")
    warnings.warn(text, stacklevel=stacklevel + 1)
