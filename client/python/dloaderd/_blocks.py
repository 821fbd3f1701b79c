"""PyTorch's own samplers, many keys at a time.

An epoch of a RandomSampler is a few permutations, drawn whole. As a list of ints one of 2 million
samples takes 80 MB, and feeding them one by one more time than the workers need for small samples;
as an array it takes 16 MB and is fed by slices. The draws are those of the sampler itself, from the
same generators at the same moments (torch/utils/data/sampler.py, 1.13 to 2.13; the rules are in the
docstring of Blocks).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

# Keys of a SequentialSampler that are made at a time, at least.
_RUN = 65536


def _keeps_size() -> bool:
    """With drop_last, some versions of PyTorch look at the size once an epoch, and others for each batch."""
    sampler = BatchSampler(range(3), 1, True)
    batches = iter(sampler)
    next(batches)
    sampler.batch_size = 2
    return len(next(batches)) == 1


_KEEPS_SIZE = _keeps_size()


def _random(sampler: RandomSampler) -> Iterator[torch.Tensor]:
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    n = len(sampler.data_source)
    for _ in range(sampler.num_samples // n):
        yield torch.randperm(n, generator=generator)
    yield torch.randperm(n, generator=generator)[:sampler.num_samples % n]


def _sequential(sampler: SequentialSampler, size: int) -> Iterator[torch.Tensor]:
    n = len(sampler.data_source)
    run = max(size, _RUN // size * size)
    for first in range(0, n, run):
        yield torch.arange(first, min(first + run, n))


class Blocks:
    """The keys of one epoch, batch by batch: each a memoryview of int64 [size], the last maybe less.

    A block is what the sampler draws at once. The next one is drawn when a batch needs a key that
    no block has yet, so after the last whole batch only when another one is asked for: PyTorch's
    RandomSampler draws one permutation more than it gives then. One key a batch where there is no
    batching. A program may change the BatchSampler's size between two batches.
    """

    def __init__(self, sampler: Any) -> None:
        batches = type(sampler) is BatchSampler
        self._size = sampler.batch_size if batches else 1
        self._drop_last = batches and sampler.drop_last
        self._sizes = sampler if batches and not (self._drop_last and _KEEPS_SIZE) else None
        inner = sampler.sampler if batches else sampler
        self._blocks = (_random(inner) if type(inner) is RandomSampler
                        else _sequential(inner, self._size))
        self._block = memoryview(b"").cast("q")
        self._at = 0

    def ready(self) -> int:
        """Batches that need no draw."""
        return (len(self._block) - self._at) // self._size

    def __iter__(self) -> Blocks:
        return self

    def __next__(self) -> memoryview:
        if self._sizes is not None:
            self._size = self._sizes.batch_size
        while self.ready() == 0:
            block = next(self._blocks, None)
            if block is None:
                return self._last()
            rest = self._block[self._at:]
            if len(rest) > 0:
                block = torch.cat((torch.tensor(rest.tolist()), block))
            self._block, self._at = memoryview(block.numpy()), 0
        first = self._at
        self._at += self._size
        return self._block[first:self._at]

    def _last(self) -> memoryview:
        rest = self._block[self._at:]
        self._at = len(self._block)
        if len(rest) == 0 or self._drop_last:
            raise StopIteration
        return rest

    def skip(self, batches: int) -> None:
        """Passes over as many, as next() would; StopIteration if there are fewer."""
        while batches > 0:
            passed = min(self.ready(), batches)
            if passed > 0:
                self._at += passed * self._size
                batches -= passed
            else:
                next(self)
                batches -= 1


def blocks(sampler: Any, batched: bool) -> Blocks | None:
    """The Blocks of what gives a loader's keys, or None: that is to be iterated itself."""
    try:
        import numpy  # noqa: F401  what torch needs for an array of a tensor
    except ImportError:
        return None
    batches = type(sampler) is BatchSampler
    if batches != batched:  # lists as keys, say
        return None
    inner = sampler.sampler if batches else sampler
    plain = (type(inner) is SequentialSampler
             or type(inner) is RandomSampler and not inner.replacement)
    return Blocks(sampler) if plain else None
