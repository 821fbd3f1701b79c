"""Lengths of samples in tokens, for batches that are measured in them: taken, checked, and cut.

Used by the workers where Python collates, too. The rules are those of the native datasets: a
length is the first dimension of a leaf, an array or a tensor; its path goes through dicts by key
and through lists and tuples by number ("tokens", "pair.0"); without one it is the first leaf that
has a dimension.
"""

from __future__ import annotations

import array
import copy
import sys
from collections.abc import Iterator
from typing import Any

_CHANGED = "when lengths were taken; the data has changed: open the loader again"


def known(dataset: Any) -> bytes | None:
    """What dataset.lengths() says of all samples, int64 each; None: it has no such method."""
    ask = getattr(dataset, "lengths", None)
    if not callable(ask):
        return None
    said = ask()
    if len(said) != len(dataset):
        raise ValueError(f"lengths() returns {len(said)} lengths, but the dataset has {len(dataset)} "
                         "samples; return one for each")
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return array.array("q", said).tobytes()
    lengths = numpy.asarray(said)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise TypeError(f"lengths() returns {lengths.dtype} of shape {lengths.shape}; return one integer "
                        "for each sample")
    if lengths.size and int(lengths.max()) > (1 << 63) - 1:
        raise OverflowError("lengths() returns a number beyond int64; the maximum is 2**32 - 2 tokens")
    return lengths.astype(numpy.int64).tobytes()


def _has_dimension(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return ((numpy is not None and isinstance(value, numpy.ndarray)) or
            (torch is not None and isinstance(value, torch.Tensor))) and value.ndim > 0


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((key, item) for key, item in value.items() if isinstance(key, str))
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), item) for i, item in enumerate(value))


def _leaves(value: Any) -> Iterator[Any]:
    if _has_dimension(value):
        yield value
    for _, item in _children(value):
        yield from _leaves(item)


def _at(value: Any, path: str) -> Iterator[Any]:
    """A key may have dots in it: there can be several."""
    for name, item in _children(value):
        if path == name:
            yield item
        elif path.startswith(name + "."):
            yield from _at(item, path[len(name) + 1:])


def _find(sample: Any, leaf: str | None) -> Any:
    """The leaf whose length counts, or None."""
    if leaf is None:
        return next(_leaves(sample), None)
    found = next(_at(sample, leaf), None)
    return found if _has_dimension(found) else None


def length(sample: Any, index: int, leaf: str | None) -> int:
    """The length of one sample."""
    found = _find(sample, leaf)
    if found is None:
        raise ValueError(f"sample {index} has no {leaf or 'leaf'} with a dimension, so it has no length; "
                         "give its tokens as an array or a tensor, and name the leaf in batch.length_of, "
                         "or give the dataset a method lengths()")
    return int(found.shape[0])


def fit(sample: Any, index: int, leaf: str | None, planned: int, cut: int) -> Any:
    """The sample, if it has the planned length; longer ones are cut where that was planned."""
    found = _find(sample, leaf)
    if found is None:
        raise ValueError(f"sample {index} has no {leaf or 'leaf'} with a dimension, and had one "
                         f"{_CHANGED}")
    has = int(found.shape[0])
    if has == planned:
        return sample
    if has < planned or planned != cut:
        least = "at least " if planned == cut else ""
        raise ValueError(f"sample {index} has {has} tokens, and had {least}{planned} {_CHANGED}")
    return _cut(sample, has, cut)


def _cut(value: Any, whole: int, cut: int) -> Any:
    """All leaves whose first dimension is `whole`, as views; containers are new ones."""
    if _has_dimension(value):
        return value[:cut] if value.shape[0] == whole else value
    if isinstance(value, dict):
        new = copy.copy(value)
        for key, item in value.items():
            new[key] = _cut(item, whole, cut)
        return new
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cut(item, whole, cut) for item in value))
    if isinstance(value, tuple):
        return tuple(_cut(item, whole, cut) for item in value)
    if isinstance(value, list):
        return [_cut(item, whole, cut) for item in value]
    return value
