"""The checks of DataLoader's arguments, in PyTorch's order and in the words of the torch in use."""

from __future__ import annotations

import multiprocessing.context
import os
import warnings
from typing import Any

import torch
from torch.utils.data import IterableDataset

# Texts and defaults that changed with torch 2.0.
BEFORE_2 = int(torch.__version__.split(".", 1)[0]) < 2


def check_prefetch(num_workers: int, prefetch_factor: int | None) -> int | None:
    """The prefetch_factor to use; ValueError where it has no meaning."""
    if num_workers == 0:
        if prefetch_factor not in ((None, 2) if BEFORE_2 else (None,)):
            raise ValueError("prefetch_factor option could only be specified in multiprocessing."
                             "let num_workers > 0 to enable multiprocessing"
                             + ("." if BEFORE_2 else ", otherwise set prefetch_factor to None."))
        return 2 if BEFORE_2 else None
    if prefetch_factor is None:
        return 2
    if BEFORE_2:
        assert prefetch_factor > 0
    elif prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    return prefetch_factor


def check_assertion(holds: bool, text: str) -> None:
    """What PyTorch asserts in iter(); before 2.0 it did so without a word."""
    if not holds:
        raise AssertionError(*(() if BEFORE_2 else (text,)))


def check_numbers(num_workers: int, timeout: float, prefetch_factor: int | None,
                  persistent_workers: bool) -> int | None:
    """Returns the prefetch_factor to use."""
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; "
                         "use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    prefetch_factor = check_prefetch(num_workers, prefetch_factor)
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    return prefetch_factor


def check_context(context: Any, num_workers: int) -> Any:
    """A multiprocessing context as torch takes it; the daemon's workers make no use of it."""
    if context is None:
        return None
    if num_workers == 0:
        raise ValueError("multiprocessing_context can only be used with multi-process loading "
                         f"(num_workers > 0), but got num_workers={num_workers}")
    if isinstance(context, str):
        methods = torch.multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError("multiprocessing_context option should specify a valid start method "
                             f"in {methods!r}, but got multiprocessing_context={context!r}")
        context = torch.multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError("multiprocessing_context option should be a valid context object or a "
                        "string specifying the start method, but got "
                        f"multiprocessing_context={context}")
    return context


def check_iterable(dataset: Any, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    """An iterable dataset has its own order."""
    from torch.utils.data import IterDataPipe
    given = [("sampler", sampler), ("batch_sampler", batch_sampler)]
    if isinstance(dataset, IterDataPipe):
        if shuffle is not None:
            torch.utils.data.graph_settings.apply_shuffle_settings(dataset, shuffle=shuffle)
    elif shuffle not in {False, None}:
        given.insert(0, ("shuffle", shuffle))
    for name, value in given:
        if value is not None:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} "
                             f"option, but got {name}={value}")


def check_batching(batch_size: int | None, shuffle: Any, sampler: Any, batch_sampler: Any,
                   drop_last: bool) -> None:
    """What excludes what."""
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, "
                             "sampler, and drop_last")
    elif batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive "
                         "with drop_last")


def check_ours(dataset: Any, sampler: Any, batch_sampler: Any, generator: Any, seed: Any, rank: Any,
               world_size: Any) -> None:
    """The arguments that PyTorch's DataLoader does not have."""
    if seed is not None:
        if generator is not None:
            raise ValueError("seed option is mutually exclusive with generator, whose seed it is")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed option should be an integer, but got seed={seed!r}")
    if rank is None and world_size is None:
        return
    if rank is None or world_size is None:
        raise ValueError("rank and world_size options belong together, but got "
                         f"rank={rank}, world_size={world_size}")
    if sampler is not None or batch_sampler is not None:
        raise ValueError("rank and world_size options make a DistributedSampler, and are mutually "
                         "exclusive with sampler and batch_sampler")
    if isinstance(dataset, IterableDataset):
        raise ValueError("rank and world_size options have no meaning for an IterableDataset, "
                         "which must divide itself among the ranks")


def warn_of_many_workers(num_workers: int, stacklevel: int) -> None:
    """As PyTorch: more workers than there are processors to run them."""
    if not num_workers:
        return
    has_affinity = hasattr(os, "sched_getaffinity")
    usable = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    if usable is not None and num_workers <= usable:
        return
    warnings.warn(
        f"This DataLoader will create {num_workers} worker processes in total. Our suggested max "
        f"number of worker in current system is {usable}"
        f"{'' if has_affinity else ' (`cpuset` is not taken into account)'}, which is smaller than "
        "what this DataLoader is going to create. Please be aware that excessive worker creation "
        "might get DataLoader running slow or even freeze, lower the worker number to avoid "
        "potential slowness/freeze if necessary.", stacklevel=stacklevel + 1)


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
