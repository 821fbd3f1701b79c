"""The position of a DataLoader in its epoch, as a dict that JSON can hold, and how to return to it.

    version      2
    epoch        number of the epoch to resume, from 0
    batches      of it that the user got
    loader       what determines which samples are in them (see _made)
    world_size   the option, or null; passed: samples of the epoch that another number of ranks had
                 taken before
    step         of the workers' numbering of batches, which skips some over iterable datasets
    num_workers  which determines that numbering
    finished     the previous epoch was read to its end, so the next one is new
    exhausted    an iterable dataset has nothing left, although the epoch is not finished
    seed         the key of sample_rng(); null before the first epoch
    base_seed    of rank 0's workers; drawn: whether this epoch draws it
    rng          {"global", "generators"}: states of torch's generators before the epoch's first
                 draw, in base64
    now          SHA-1 of the global generator's state when this was made, in hexadecimal
    sampler      state_dict() of a sampler that has one, else null
    sampler_epochs  the numbers that samplers got by set_epoch() for this epoch; [] if they get
                 others for the next
    streaming_epoch  the number that MosaicML's StreamingDataset has for this epoch, or for the next
                 one; absent with other datasets
    dataset, iterator, workers      states of the dataset itself, or of its iterators, if there
                 are any, else null

Making it costs the same at any position. With a dataset that has a length, resuming loads no earlier
samples; only the sampler makes its keys again. If the user restored torch's global generator to where
it was, later epochs draw from it; otherwise they draw from the one in the state, as the interrupted
run would have, and the global one is not touched.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import warnings
from typing import Any

import torch

from . import _dataset_state, _lightning, _made, _native_streaming, _order
from ._errors import StateError
from ._seeds import MASK63

VERSION = 2


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _bytes(text: Any) -> torch.Tensor:
    try:
        data = bytearray(base64.b64decode(text, validate=True))
    except (TypeError, ValueError, binascii.Error) as error:
        raise StateError(f"rng: not the state of a generator: {error}") from None
    return torch.frombuffer(data, dtype=torch.uint8)


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha1(state.numpy().tobytes(), usedforsecurity=False).hexdigest()


# ---- taking it ---------------------------------------------------------------------------------

def asks_dataset(loader: Any, position: Any) -> bool:
    """The dataset in this process, or its iterator, can save its position."""
    return position.iterator is not None or _order.has_state(loader.dataset)


def of_dataset(loader: Any, position: Any) -> dict[str, Any]:
    """The current states of these two; the state of a dataset that is its own iterator is the
    iterator's."""
    states = {}
    iterator = position.iterator if position else None
    if _order.has_state(loader.dataset) and iterator is not loader.dataset:
        states["dataset"] = loader.dataset.state_dict()
    if iterator is not None:
        states["iterator"] = iterator.state_dict()
    return states


def _dataset_states(loader: Any, position: Any, finished: bool) -> dict[str, Any]:
    states: dict[str, Any] = {"dataset": None, "iterator": None, "workers": None}
    if loader.num_workers == 0:
        behind = position.behind if position else None
        states.update(of_dataset(loader, position) if behind is None else behind)
    elif position is not None and position.workers and (loader.persistent_workers
                                                        or not finished):
        states["workers"] = dict(position.workers)
    elif position is not None and position.iterators and not finished:
        states["workers"] = {"iterators": position.iterators}
    return states


def take(loader: Any) -> dict[str, Any]:
    """loader.state_dict()."""
    if loader._resume is not None:
        return copy.deepcopy(loader._resume.state)
    position = loader._position
    counted_out = position is not None and position.given > 0 and _lightning.epoch_has_ended()
    finished = position is not None and (position.finished or counted_out)
    goes_on = position is not None and not finished
    if goes_on and position.given and loader.num_workers > 0 and not loader.in_order:
        _warn_of_order()
    if goes_on and _lightning.batches_ahead() > 0:
        _warn_of_batches_ahead()
    now = _order.capture(loader, loader._instead)
    rng = position.rng if goes_on else now
    sampler = position.sampler if position else None
    if sampler is None and not goes_on:
        stateful = _order.stateful_sampler(loader)
        sampler = stateful.state_dict() if stateful is not None else None
    return {
        **_streaming_epoch(loader, goes_on),
        "version": VERSION,
        "epoch": position.epoch if goes_on else loader._next_epoch,
        "batches": position.given if goes_on else 0,
        "loader": _made.describe(loader),
        "world_size": loader._options.world_size,
        "passed": loader._share.passed if goes_on and loader._share is not None else 0,
        "step": position.step if goes_on else 0,
        "num_workers": loader.num_workers,
        "finished": finished,
        "exhausted": goes_on and position.exhausted,
        "seed": loader._key_seed,
        "base_seed": _without_rank(loader),
        "drawn": position.drawn if goes_on else _will_draw(loader),
        "rng": {"global": _text(rng["global"]),
                "generators": [_text(state) for state in rng["generators"]]},
        "now": _digest(now["global"]),
        "sampler": sampler,
        "sampler_epochs": _sampler_epochs(loader, goes_on, counted_out),
        **_dataset_states(loader, position, finished),
    }


def _streaming_epoch(loader: Any, goes_on: bool) -> dict[str, int]:
    """Of MosaicML's StreamingDataset, which counts epochs itself: the number of this one, or of the next."""
    epoch = loader._position.streaming_epoch if goes_on else _native_streaming.next_epoch(loader.dataset)
    return {} if epoch is None else {"streaming_epoch": epoch}


def _sampler_epochs(loader: Any, goes_on: bool, counted_out: bool) -> list[int]:
    """Lightning's Trainer tells the next epoch's numbers when a restarted epoch has begun already."""
    if not goes_on and not counted_out:
        return []
    return [epoch + counted_out for epoch in loader._position.sampler_epochs]


def _without_rank(loader: Any) -> int | None:
    """The state of one rank serves all."""
    if loader._base_seed is None:
        return None
    return (loader._base_seed - loader._stream_offset) & MASK63


def _will_draw(loader: Any) -> bool:
    return loader._base_seed is None or not (loader.persistent_workers and loader.num_workers > 0)


# ---- the way back ------------------------------------------------------------------------------

def _field(state: dict, name: str, kinds: Any) -> Any:
    value = state.get(name)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise StateError(f"{name}: {value!r} is not valid in a state of this version; pass what "
                         "DataLoader.state_dict() returned")
    return value


class Resume:
    """A loaded state, until iter() continues from it."""

    def __init__(self, loader: Any, state: Any) -> None:
        if not isinstance(state, dict):
            raise StateError(f"a state is a dict, not {type(state).__name__}")
        if "version" not in state and {"_snapshot", "_num_yielded"} & state.keys():
            raise StateError("this is a state of torchdata's StatefulDataLoader, whose samples "
                             "have another order; finish its epoch with that class")
        version = _field(state, "version", int)
        if version != VERSION:
            raise StateError(f"version: {version} is not a version that this dloaderd knows "
                             f"({VERSION})")
        optional = (int, type(None))
        self.state = copy.deepcopy(state)
        self.epoch = _field(state, "epoch", int)
        self.given = _field(state, "batches", int)
        self.step = _field(state, "step", int)
        if self.epoch < 0 or self.given < 0 or self.step < 0:
            raise StateError(f"epoch: {self.epoch}, batches: {self.given}, step: {self.step}: "
                             "negative")
        self.finished = _field(state, "finished", bool)
        self.exhausted = _field(state, "exhausted", bool)
        self.drawn = _field(state, "drawn", bool)
        self.seed = _field(state, "seed", optional)
        base_seed = _field(state, "base_seed", optional)
        self.base_seed = (None if base_seed is None else
                          (base_seed + loader._stream_offset) & MASK63)
        self.passed = _field(state, "passed", int)
        self.sampler = state.get("sampler")
        self.sampler_epochs = self._read_sampler_epochs()
        self.streaming_epoch = self._read_streaming_epoch()
        self.dataset = state.get("dataset")
        self.iterator = state.get("iterator")
        self.workers = _field(state, "workers", (dict, type(None))) or {}
        self.iterators = self.workers.get("iterators")
        self.is_iterable = loader._is_iterable
        rng = _field(state, "rng", dict)
        self._global = _bytes(rng.get("global"))
        self._generators = [_bytes(text) for text in _field(rng, "generators", list)]
        self._now = _field(state, "now", str)
        if not self.drawn and self.base_seed is None:
            raise StateError("base_seed: missing, but this epoch does not draw one")
        self.iterator_states = self._read_iterator_states()
        if self.given or self.passed:
            self._check_batches(loader)
        self._check(loader)

    def _read_sampler_epochs(self) -> list[int]:
        epochs = self.state.get("sampler_epochs", [])
        if not isinstance(epochs, list) or any(type(epoch) is not int or epoch < 0 for epoch in epochs):
            raise StateError(f"sampler_epochs: {epochs!r}: not numbers of epochs")
        return epochs

    def _read_streaming_epoch(self) -> int | None:
        epoch = self.state.get("streaming_epoch")
        if epoch is not None and (type(epoch) is not int or not 0 <= epoch < 2**63):
            raise StateError(f"streaming_epoch: {epoch!r}: not the number of an epoch")
        return epoch

    def _read_iterator_states(self) -> bytes | None:
        """What the iterators of the workers' datasets said."""
        try:
            return None if self.iterators is None else base64.b64decode(self.iterators,
                                                                        validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise StateError(f"workers.iterators: not as saved: {error}") from None

    def _check(self, loader: Any) -> None:
        workers = _field(self.state, "num_workers", int)
        if self.is_iterable and self.given and workers != loader.num_workers:
            raise StateError(f"num_workers: {workers}, but this loader has "
                             f"{loader.num_workers}; it divides an iterable dataset, so it must "
                             "not change within an epoch")
        if self.workers.get("states") and workers != loader.num_workers:
            raise StateError(f"num_workers: {workers}, but this loader has "
                             f"{loader.num_workers}; each worker's dataset has its own state, "
                             "so the number of workers must not change")
        if len(self._generators) not in _order.numbers_of_generators(loader):
            raise StateError(f"rng.generators: {len(self._generators)}, but this loader draws "
                             f"from {len(_order.generators(loader))}; give it the same "
                             "generator and samplers as the saved loader")
        try:
            for state in (self._global, *self._generators):
                _order.new_generator(state)
        except (RuntimeError, TypeError, ValueError) as error:
            raise StateError(f"rng: not the state of a generator: {error}") from None

    def _check_batches(self, loader: Any) -> None:
        """The rest of the epoch must be of the batches that it was begun with."""
        saved, own = _field(self.state, "loader", dict), _made.describe(loader)
        told = _made.differences(saved, own)
        if told:
            raise StateError(f"{told}: these must not change within an epoch; any loader can "
                             "resume from a state saved at the end of one")
        was, world = self.state.get("world_size"), loader._options.world_size
        if was == world:
            return
        if loader._share is None:
            raise StateError(f"world_size: {was}, but this loader has none; give it rank=0 and "
                             "world_size=1 to get all remaining samples")
        if not isinstance(was, int | None) or (was or 1) < 1 or self.passed < 0:
            raise StateError(f"world_size: {was!r}, passed: {self.passed}: invalid")
        size = _made.batch_size(loader)
        if size is None:
            raise StateError(f"world_size: {was}, but this loader has {world}, and its batch_sampler, of type "
                             f"{type(loader.batch_sampler).__name__}, may make batches of any size, so the "
                             f"samples that are left are not known; finish the epoch with world_size {was}")
        self.passed += (was or 1) * self.given * size
        self.given = self.step = 0

    def prepare(self, loader: Any) -> None:
        """What must be known before the epoch begins: len(loader) is that of the rest."""
        if loader._share is not None:
            loader._share.passed = self.passed

    def knows_dataset(self, loader: Any) -> bool:
        """The state includes one of the dataset in this process."""
        return (loader.num_workers == 0 and self.dataset is not None
                and _order.has_state(loader.dataset))

    def enter(self, loader: Any) -> Any:
        """Sets `loader` to the position; returns what replaces the global generator in this epoch.

        A dataset in this process comes first, as its state may be that of torch's global generator.
        """
        if self.knows_dataset(loader):
            _dataset_state.put_back(loader.dataset, self.dataset, self.finished)
        if self.streaming_epoch is not None and _native_streaming.next_epoch(loader.dataset) is not None:
            loader.dataset.next_epoch = self.streaming_epoch
        loader._next_epoch = self.epoch
        if self.seed is not None:
            loader._key_seed = self.seed
        for generator, state in zip(_order.generators(loader), self._generators):
            generator.set_state(state)
        user_put_it_back = _digest(torch.default_generator.get_state()) == self._now
        if user_put_it_back and loader._options.seed is None:
            # What this epoch drew is drawn once more; the user's own continues from there.
            loader._instead = None
            begun = self.given > 0 or _digest(self._global) != self._now
            return _order.new_generator(self._global) if begun else None
        if loader._instead is not None or loader._options.seed is None:
            loader._instead = _order.new_generator(self._global)
        return None


def load(loader: Any, state: dict[str, Any]) -> None:
    """loader.load_state_dict(); an empty state means from the start."""
    if state == {}:
        loader._forget()
        return
    resume = Resume(loader, state)
    loader._forget()
    loader._resume = resume
    resume.prepare(loader)


def _warn_of_order() -> None:
    warnings.warn("in_order=False: the state has the number of batches, but not which ones they "
                  "were; after resuming, some samples of this epoch may come twice and others "
                  "not at all",
                  UserWarning, stacklevel=4)


def _warn_of_batches_ahead() -> None:
    warnings.warn("Lightning's Trainer has taken a batch ahead, since the dataset has no "
                  "length; a run resumed from this checkpoint skips it: give the dataset a "
                  "__len__()", UserWarning, stacklevel=4)


def warn_of_loading(batches: int, stacklevel: int) -> None:
    """Warns if the position can only be reached by reading."""
    warnings.warn(f"the {batches} batches before this position are loaded again and discarded: "
                  "the dataset is iterable, and has no state_dict() and load_state_dict() to "
                  "skip them", UserWarning, stacklevel=stacklevel + 1)
