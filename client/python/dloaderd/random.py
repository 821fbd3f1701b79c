"""sample_rng(): randomness that belongs to the sample, not to the process that makes it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

_MASK64 = (1 << 64) - 1

# What this very thread makes, without workers: (seed, epoch, index of the sample or None), or (seed,
# epoch, keys of a batch, the iterator that has just given one of them).
_own = threading.local()


def sample_rng(index: int | None = None) -> np.random.Generator:
    """A NumPy generator for the current sample, inside `Dataset.__getitem__`.

    Its stream depends only on (seed, epoch, sample index): it is the same for any number of
    workers, including 0, differs between epochs, and repeats in a second run with the same seed.
    Each call makes a new Generator(Philox(key=[seed, epoch], counter=[0, 0, index, 0])).

    index: replaces the sample's number; required in `__getitems__`, in iterable datasets, and for
    keys that are not integers.

    Raises RuntimeError outside a sample.
    """
    key = _key()
    if key is None:
        raise RuntimeError("sample_rng() was called outside a sample: no (seed, epoch, index) is "
                           "known; call it in the dataset's __getitem__, or use your own "
                           "numpy.random.default_rng()")
    seed, epoch, own_index = key
    if index is None:
        index = own_index
    if index is None:
        raise RuntimeError("sample_rng(): the current sample has no number; give one: sample_rng(index)")
    bits = np.random.Philox(key=np.array([seed & _MASK64, epoch & _MASK64], dtype=np.uint64),
                            counter=np.array([0, 0, int(index) & _MASK64, 0], dtype=np.uint64))
    return np.random.Generator(bits)


def set_key(seed: int, epoch: int, index: Any) -> None:
    """What sample_rng() is keyed by in this thread; an index that is no integer counts as none."""
    _own.key = (seed, epoch, index if type(index) is int else _as_index(index))


def set_keys(seed: int, epoch: int, keys: list, iterator: Any) -> None:
    """The same for all samples of a batch: which of them is made, `iterator` over `keys` knows."""
    _own.key = (seed, epoch, keys, iterator)


def clear_key() -> None:
    """This thread makes no sample any more."""
    _own.key = None


def _as_index(index: Any) -> int | None:
    if isinstance(index, (int, np.integer)):
        return int(index)
    return None


def _key() -> tuple[int, int, int | None] | None:
    key = getattr(_own, "key", None)
    if key is not None and len(key) == 4:
        seed, epoch, keys, iterator = key
        return seed, epoch, _as_index(keys[len(keys) - 1 - iterator.__length_hint__()])
    if key is None:
        import sys
        worker = sys.modules.get("dloaderd._worker")
        key = worker.key() if worker is not None else None
    return key
