"""In which order an epoch takes its samples, and where it stands.

The base seed and the sampler's draws come from torch itself, in PyTorch's order: iter(sampler), then
the base seed, then (with workers) iter(sampler) again, then whatever the sampler draws as it is
asked for keys. Where they must not come from the user's global generator (the `seed` option, and an
epoch that was begun in another process), another generator is put in its place meanwhile.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import DistributedSampler, WeightedRandomSampler

from . import _blocks, _datapipes, _native_streaming, _states
from ._seeds import MASK63, MASK64

# Samplers that draw from the global generator before their first key, if at all, and never after.
_DRAW_AT_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler,
                 DistributedSampler)


class Position:
    """Where an epoch of a DataLoader stands; it outlives its iterator.

    given: batches that the user got. rng: see capture(), before this epoch's first draw. sampler:
    state of a sampler that has one, when it had given the keys of the last batch that the user got.
    """

    def __init__(self, epoch: int, rng: dict[str, Any]) -> None:
        self.epoch = epoch
        self.rng = rng
        self.given = 0
        self.step = 0  # of workers, that comes next; an exhausted worker's are left out
        self.finished = False
        self.exhausted = False  # an iterable dataset in this process has given its last sample
        self.base_seed = 0
        self.drawn = True  # the base seed was, by this epoch, rather than by one before
        self.sampler: Any = None
        self.iterator: Any = None  # of the dataset, in this process, if it has a state
        self.behind: dict | None = None  # their states behind the last batch, where more are made
        self.workers: dict[str, Any] = {}  # states of their datasets; see _dataset_state
        self.iterators: str | None = None  # what those said that have none; see _states
        self.pipes: Any = None  # see _datapipes
        self.sampler_epochs: list[int] = []  # of samplers that go by them
        self.resume: Any = None  # what this epoch went on from
        self.streaming_epoch: int | None = None  # a StreamingDataset's own number of it

    def unused_resume(self) -> Any:
        """What was gone on from, if nobody has asked for a batch since."""
        if self.finished or self.resume is None or self.given != self.resume.given:
            return None
        return self.resume


class _Instead:
    """While entered, `generator` stands in for torch's global one; None: nothing changes."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def is_global(self) -> bool:
        """It stands where the global one does."""
        return (self.generator is not None and
                torch.equal(self.generator.get_state(), torch.default_generator.get_state()))

    def __enter__(self) -> None:
        if self.generator is not None:
            self._kept = torch.default_generator.get_state()
            torch.default_generator.set_state(self.generator.get_state())

    def __exit__(self, *_: Any) -> None:
        if self.generator is not None:
            self.generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(self._kept)


def has_state(thing: Any) -> bool:
    """It can be asked for its place, and put there. A module's state is its parameters."""
    if isinstance(thing, torch.nn.Module):
        return False
    return _states.knows(thing)


def stateful_sampler(loader: Any) -> Any:
    """The sampler of `loader` that knows its own place, or None."""
    for sampler in (loader._index_sampler, getattr(loader.batch_sampler, "sampler", None)):
        if has_state(sampler):
            return sampler
    return None


def _is_keyed(sampler: Any) -> bool:
    """Its order is a function of a number of the epoch, which somebody sets."""
    return callable(getattr(sampler, "set_epoch", None)) and type(
        getattr(sampler, "epoch", None)) is int


def _samplers(loader: Any) -> list[Any]:
    found: list[Any] = []
    for sampler in (loader.sampler, loader.batch_sampler,
                    getattr(loader.batch_sampler, "sampler", None)):
        if sampler is not None and not any(sampler is other for other in found):
            found.append(sampler)
    return found


def keyed_samplers(loader: Any) -> list[Any]:
    """Those whose numbers of the epoch others set; `rank` and `world_size` make one of ours."""
    return [sampler for sampler in _samplers(loader)
            if _is_keyed(sampler) and sampler is not loader._share]


def generators(loader: Any) -> list[torch.Generator]:
    """Every generator that an epoch of `loader` draws from, besides the global one.

    The last are those that keyed samplers seed anew for each epoch.
    """
    found: list[torch.Generator] = []
    for holder in sorted((loader, *_samplers(loader)), key=_is_keyed):
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is g for g in found):
            found.append(generator)
    return found


def numbers_of_generators(loader: Any) -> range:
    """How many a state may have: keyed samplers may make theirs when they are first asked."""
    own, keyed = len(generators(loader)), keyed_samplers(loader)
    made = sum(isinstance(getattr(sampler, "generator", None), torch.Generator)
               and sampler.generator is not loader.generator for sampler in keyed)
    yet = sum(getattr(sampler, "generator", 0) is None for sampler in keyed)
    return range(own - made, own + yet + 1)


def capture(loader: Any, instead: torch.Generator | None) -> dict[str, Any]:
    """The states of all generators: {"global": tensor of bytes, "generators": [the same]}."""
    return {"global": (instead or torch.default_generator).get_state(),
            "generators": [generator.get_state() for generator in generators(loader)]}


def new_generator(state: torch.Tensor) -> torch.Generator:
    """One that continues from `state`."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _draws_at_once(sampler: Any) -> bool:
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    return type(sampler) in _DRAW_AT_ONCE


def begin_anew(thing: Any) -> Any:
    """iter(thing), where its state may still be that of the end of an epoch: then once more."""
    iterator = iter(thing)
    for first in iterator:
        return itertools.chain([first], iterator)
    return iter(thing)


class Order:
    """The keys of one epoch's batches. Made by iter(loader); makes the epoch's Position.

    sampler: gives them; the same one in all epochs of persistent workers, as in PyTorch. workers: they are
    drawn ahead for worker processes. draw_base: the base seed is drawn, as it is but for the later epochs of
    persistent workers.
    """

    def __init__(self, loader: Any, sampler: Any, *, workers: bool, draw_base: bool) -> None:
        resume, loader._resume = loader._resume, None
        self.resume = resume
        # Only for this epoch; loader._instead is for those to come as well.
        self._instead = _Instead(resume.enter(loader) if resume else None)
        if self._instead.generator is None:
            self._instead.generator = loader._instead
        before = loader._position
        self.position = Position(loader._next_epoch, capture(loader, self._instead.generator))
        self.position.streaming_epoch = _native_streaming.next_epoch(loader.dataset)
        self.position.resume = resume
        loader._position = self.position
        loader._next_epoch += 1
        self._sampler = sampler
        self._stateful = stateful_sampler(loader)
        self._states: collections.deque = collections.deque()
        self._at_once = _draws_at_once(self._sampler)
        self._ended = False
        # In this process keys are ints, as the dataset is used to.
        self._blocks = _blocks.blocks(sampler, loader._auto_collation) if workers else None
        if loader._share is not None:
            loader._share.set_epoch(self.position.epoch)
            loader._share.passed = resume.passed if resume else 0
        keyed = keyed_samplers(loader)
        for sampler, epoch in zip(keyed, resume.sampler_epochs if resume else ()):
            sampler.set_epoch(epoch)
        self.position.sampler_epochs = [sampler.epoch for sampler in keyed]
        with self._instead:
            self._begin(loader, workers, draw_base, before and before.pipes)
        if self._instead.generator is not loader._instead and self._instead.is_global():
            self._instead.generator = None  # what was drawn is drawn once more; from here it continues
        self._is_first = True

    def _begin(self, loader: Any, workers: bool, draw_base: bool, before: Any) -> None:
        position, resume = self.position, self.resume
        position.pipes = _datapipes.begin(loader, None if draw_base else before)
        self._keys = self._blocks or iter(self._sampler)
        if draw_base if resume is None else resume.drawn:
            drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item()
            position.base_seed = (drawn + loader._stream_offset) & MASK63
            if workers:
                self._keys = self._blocks or iter(self._sampler)
                _datapipes.begin_once_more(loader, position.pipes)
        else:
            position.drawn = False
            position.base_seed = resume.base_seed if resume else loader._base_seed
        loader._base_seed = position.base_seed
        if loader._key_seed is None:
            loader._key_seed = position.base_seed & MASK64
        if resume is not None:
            self._pass_over(resume)

    def _pass_over(self, resume: Any) -> None:
        """Goes to where `resume` stands, without loading anything."""
        position = self.position
        position.given, position.step = resume.given, resume.step
        if resume.is_iterable:
            return
        if self._stateful is not None and resume.sampler is not None:
            self._stateful.load_state_dict(resume.sampler)
            position.sampler = resume.sampler
            again = begin_anew if resume.finished else iter
            self._keys = again(self._sampler)
            return
        try:
            if self._blocks:
                self._blocks.skip(resume.given)
            else:
                for _ in range(resume.given):
                    next(self._keys)
        except StopIteration:
            self._ended = True

    def next(self) -> Any:
        """What the sampler gives for the next batch; StopIteration once it has ended."""
        if self._ended:
            raise StopIteration
        if self._instead.generator is None or (self._at_once and not self._is_first):
            keys = next(self._keys)
        else:
            with self._instead:
                keys = next(self._keys)
        self._is_first = False
        if self._stateful is not None:
            self._states.append(self._stateful.state_dict())
        return keys

    def pass_over(self, batches: int) -> None:
        """Passes over `batches` more, without loading anything."""
        self.position.given += batches
        try:
            for _ in range(batches):
                self.next()
        except StopIteration:
            self._ended = True

    def ready(self) -> int:
        """Batches whose keys are drawn already, as far as that is known."""
        return self._blocks.ready() if self._blocks else 0

    def count(self) -> None:
        """The user gets the next batch."""
        self.position.given += 1
        if self._states:
            self.position.sampler = self._states.popleft()
