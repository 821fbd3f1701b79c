"""States of datasets that have one, which come from the workers with each batch.

A worker's batch is then a pair: the batch, and a pickle of where that worker's dataset stands behind it. The client
keeps the latest of each worker that the user got a batch of; to continue, it sends them to new workers. The first of
these takes over from the worker whose turn it was: worker w is the old (w + turn) mod W. Behind the last sample of an
iterable dataset comes one pair more, without a batch unless a smaller one is left: what the dataset does at its end is
part of its state.

The dataset's state is put back before iter(), and an iterator's behind it, as torchdata does it
(torchdata/stateful_dataloader/worker.py); a dataset that is its own iterator gets it after iter(). At the end of an
epoch the states continue only where the workers do, that is with persistent ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from . import _states
from ._errors import StateError

# Behind the last sample.
_END = object()


def _stays_put(dataset: Any) -> bool:
    """Hugging Face's streams begin every epoch at the place that they were told, as long as nobody
    calls their set_epoch()."""
    return any((kind.__module__, kind.__name__) == ("datasets.iterable_dataset", "IterableDataset")
               for kind in type(dataset).__mro__)


def put_back(dataset: Any, state: Any, finished: bool) -> None:
    """finished: the state is that of the end of an epoch, and the next one is to begin."""
    if not (finished and _stays_put(dataset)):
        dataset.load_state_dict(state)


def move_on(dataset: Any) -> None:
    """The epoch that it was put back into is over."""
    if _stays_put(dataset):
        dataset.load_state_dict({})


class _Watched:
    """An iterator whose samples end with _END, again and again until a pair was made of it.

    Where incomplete batches are dropped, only a full one gets there.
    """

    def __init__(self, iterator: Iterator, *, ended: bool = False) -> None:
        self.iterator = iterator
        self.ended = ended
        self.told = ended

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        if self.told:
            raise StopIteration
        if not self.ended:
            try:
                return next(self.iterator)
            except StopIteration:
                self.ended = True
        return _END


class Saver:
    """In a worker: makes the pairs, and begins its first epoch where the state says.

    worker: its number among the old ones. state: what _state() made for it, or None: then the dataset
    stays as it is. finished: the epoch of the state was taken to its end.

    Beside helpers it is the source's keeper, too: the state behind each round goes to the daemon, and from there to
    the worker that takes this one's place, wherever that is.
    """

    def __init__(self, worker: int, dataset: Any, state: dict | None, *, finished: bool,
                 drop_last: bool) -> None:
        self._worker = worker
        self._dataset = dataset
        self._drop_last = drop_last
        self._samples = _Watched(iter(()))
        self._ended = False
        self._own: Any = None  # of the iterator that the dataset gives next
        self._was_put_back = False
        self._passes = 0  # begun in this process
        self._epoch = 0  # the last one's
        self._behind: dict[str, Any] | None = None  # what take() found, for the pair of that round
        if state is not None:
            self._put_back(state, finished or state["before"])

    def _put_back(self, state: dict, finished: bool) -> None:
        self._was_put_back = True
        if state["dataset"] is not None:
            put_back(self._dataset, state["dataset"], finished)
        self._ended = state["ended"] and not finished
        self._own = state["iterator"]
        if state["ended"] or finished:
            self._leave(state)

    def _leave(self, state: dict) -> None:
        """The iterator is at its end; the dataset, which is the same object, continues with the next epoch."""
        if state["dataset"] is None and self._own is not None:
            iter(self._dataset).load_state_dict(self._own)
        self._own = None

    def iterate(self) -> Iterator:
        """iter(dataset), from where it is to continue."""
        ended, self._ended = self._ended, False
        own, self._own = self._own, None
        if self._was_put_back and self._passes > 0:
            move_on(self._dataset)
        self._passes += 1
        if ended:
            self._samples = _Watched(iter(()), ended=True)
            return self._samples
        iterator = iter(self._dataset)
        if own is not None:
            iterator.load_state_dict(own)
        self._samples = _Watched(iterator)
        return self._samples

    def begin(self, data: bytes | None, epoch: int) -> Iterator:
        """The same of that epoch. data: of the last round before it, or of this epoch, by whichever worker; or none."""
        state = _states.decode(data) if data else None
        if state is not None and (state["epoch"] == epoch or self._passes == 0):
            self._put_back(state, state["epoch"] != epoch)
            self._passes = 0 if state["epoch"] == epoch else 1
        self._epoch = epoch
        return self.iterate()

    def enter(self, _iterator: Iterator) -> None:
        """Nothing is to be done before a round."""

    def take(self, iterator: Iterator) -> bytes | None:
        """Behind it. None: the worker that takes this one's place begins the epoch anew, and drops what was made."""
        if iterator is not self._samples:
            return None
        self._behind = self._state()
        data = _states.encoded({**self._behind, "epoch": self._epoch})
        if isinstance(data, bytes):
            return data
        if self._passes > 1:  # what it was like when this epoch began is not known either
            raise _cannot_move(data)
        return None

    def _state(self) -> dict[str, Any]:
        """Where this worker's dataset stands now; once, where it is its own iterator."""
        iterator = self._samples.iterator
        own = hasattr(iterator, "state_dict") and hasattr(iterator, "load_state_dict")
        return {"worker": self._worker, "ended": self._samples.ended, "before": False,
                "dataset": None if iterator is self._dataset else self._dataset.state_dict(),
                "iterator": iterator.state_dict() if own else None}  # type: ignore[attr-defined]

    def _without_end(self, samples: Any) -> Any:
        """The samples of the last batch, or _END."""
        self._samples.told = True
        left = [] if samples is _END else [one for one in samples if one is not _END]
        return left if left and not self._drop_last else _END

    def with_state(self, make: Callable) -> Callable:
        """`make`, whose result travels with the state behind its samples."""
        def pair(samples: Any) -> tuple[Any, bytes]:
            if samples is _END or (type(samples) is list and samples and samples[-1] is _END):
                samples = self._without_end(samples)
            is_batch = samples is not _END
            behind, self._behind = self._behind or self._state(), None
            state = pickle.dumps((behind, is_batch), protocol=5)
            return make(samples) if is_batch else None, state
        return pair


def _cannot_move(why: int) -> StateError:
    return StateError(f"helpers option: the dataset's state {_states.WHY[why]}, so that it cannot move from worker to "
                      "worker; leave out helpers")


class Carrier:
    """In a worker at a helper, or beside some: a map-style dataset's state goes to the daemon with each batch, and from
    there to the worker that takes this one's place, wherever that is.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._is_new = True

    def put_back(self, data: bytes) -> None:
        """Before each step. data: of the one before, by whichever worker; or none."""
        if self._is_new and data:
            self._dataset.load_state_dict(_states.decode(data))
        self._is_new = False

    def take(self, _dataset: Any) -> bytes:
        """Behind it."""
        data = _states.encoded(self._dataset.state_dict())
        if isinstance(data, bytes):
            return data
        raise _cannot_move(data)


def split(data: Any) -> tuple[Any, dict[str, Any], bool]:
    """In the client: a pair, taken apart again; and whether there is a batch in it."""
    batch, state = data
    return batch, *pickle.loads(state)


def keep(position: Any, state: dict[str, Any]) -> None:
    """The user has got the batch that `state` came with."""
    position.workers = {"last": state["worker"], "states":
                        {**position.workers.get("states", {}), str(state["worker"]): state}}


def of_the_epoch_before(workers: dict[str, Any]) -> dict[str, Any]:
    """Where workers that stay begin an epoch, until the user has got a batch of theirs."""
    return {"states": {number: {**state, "before": True}
                       for number, state in workers.get("states", {}).items()}}


def to_send(resume: Any, loader: Any) -> dict[str, Any]:
    """What the workers get: {"turn", "finished", "drop_last", "states": by number}."""
    finished = resume is not None and resume.finished
    kept = resume.workers if resume is not None and (loader.persistent_workers or not finished) else {}
    states = {int(number): state for number, state in kept.get("states", {}).items()}
    return {"turn": 0 if finished or "last" not in kept else (kept["last"] + 1) % loader.num_workers,
            "finished": finished, "drop_last": bool(loader.drop_last), "states": states}
