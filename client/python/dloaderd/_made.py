"""What decides which samples are in which batch of a loader, as plain values, to be kept in a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, SequentialSampler

# What samplers say of themselves that decides their order; a rank or an epoch is no part of it.
_DECIDES = ("batch_size", "drop_last", "shuffle", "seed", "replacement", "num_samples",
            "num_replicas", "num_processes", "split_batches", "even_batches")


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _of_sampler(name: str, sampler: Any, length: int | None) -> Iterator[tuple[str, Any]]:
    yield name, type(sampler).__name__
    for attribute in _DECIDES:
        value = getattr(sampler, attribute, None)
        if type(value) in (bool, int) and not (attribute == "num_samples" and value == length):
            yield f"{name}.{attribute}", value


def batch_size(loader: Any) -> int | None:
    """Samples in each of its batches, but perhaps the last; None: only its batch_sampler knows."""
    batches = loader.batch_sampler
    if batches is None:
        return 1
    return batches.batch_size if type(batches) is BatchSampler else None


def describe(loader: Any) -> dict[str, Any]:
    """Flat; what a loader has no use for is not in it. Its world is separate."""
    batches = loader.batch_sampler
    # PyTorch's own says how it cuts, also where it was given instead of a size.
    cuts = batches if type(batches) is BatchSampler else loader
    made: dict[str, Any] = {"dataset": "iterable" if loader._is_iterable else "map",
                            "batch_size": cuts.batch_size, "drop_last": cuts.drop_last}
    if loader._is_iterable:
        return made
    made["length"] = length = _length(loader.dataset)
    share = loader._share
    if share is not None:
        # Of one rank and in order, it is as a loader without ranks.
        made["sampler"] = "DistributedSampler" if share.shuffle else SequentialSampler.__name__
        if share.shuffle:
            made["sampler.seed"] = share.seed
        if batches is not None and cuts is not batches:
            made.update(_of_sampler("batch_sampler", batches, length))
        return made
    if batches is None or type(batches) is BatchSampler:
        made.update(_of_sampler("sampler", loader.sampler if batches is None else batches.sampler,
                                length))
    else:
        made.update(_of_sampler("batch_sampler", batches, length))
        inner = getattr(batches, "sampler", None)
        if inner is not None:
            made.update(_of_sampler("batch_sampler.sampler", inner, length))
    return made


def differences(saved: dict[str, Any], own: dict[str, Any]) -> str:
    """Each by its name, with both values; "" if all are equal."""
    names = [*own, *(name for name in saved if name not in own)]
    return "; ".join(f"{name}: {saved.get(name)!r}, but this loader has {own.get(name)!r}"
                     for name in names if saved.get(name) != own.get(name))
