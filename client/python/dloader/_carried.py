"""States of datasets that have one, carried from the workers with each batch.

A worker's batch is then a pair: the batch, and a pickle of where that worker's dataset stands behind
it. The client keeps the latest of each worker that the user got a batch of; to go on, it sends them
to new workers. The first of these takes over from the worker whose turn it was: worker w is the
old (w + turn) mod W.

The dataset's state is put back before iter(), and an iterator's behind it, as torchdata does it
(torchdata/stateful_dataloader/worker.py): so also that of a dataset that is its own iterator. At the
end of an epoch the states go on only where the workers do, that is with persistent ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any


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
    """An iterator of which is known whether it has ended."""

    def __init__(self, iterator: Iterator) -> None:
        self.iterator = iterator
        self.ended = False

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.iterator)
        except StopIteration:
            self.ended = True
            raise


class Carrier:
    """In a worker: makes the pairs, and begins its first epoch where the state says.

    worker: its number among the old ones. state: what take() made for it, or None: then the dataset
    stays as it is. finished: the state is that of the end of an epoch.
    """

    def __init__(self, worker: int, dataset: Any, state: dict | None, finished: bool) -> None:
        self._worker = worker
        self._dataset = dataset
        self._samples = _Watched(iter(()))
        self._ended = state is not None and state["ended"] and not finished
        self._own: Any = None  # of the iterator that the dataset gives next
        self._was_put_back = state is not None
        self._is_first = True
        if state is not None:
            put_back(dataset, state["dataset"], finished)
            self._own = None if finished else state["iterator"]

    def iterate(self) -> Iterator:
        """iter(dataset), from where it is to go on."""
        ended, self._ended = self._ended, False
        own, self._own = self._own, None
        if self._was_put_back and not self._is_first:
            move_on(self._dataset)
        self._is_first = False
        if ended:
            self._samples = _Watched(iter(()))
            return self._samples
        iterator = iter(self._dataset)
        if own is not None:
            iterator.load_state_dict(own)
        self._samples = _Watched(iterator)
        return self._samples

    def take(self) -> dict[str, Any]:
        """Where this worker's dataset stands now."""
        iterator = self._samples.iterator
        own = hasattr(iterator, "state_dict") and hasattr(iterator, "load_state_dict")
        return {"worker": self._worker, "ended": self._samples.ended,
                "dataset": self._dataset.state_dict(),
                "iterator": iterator.state_dict() if own else None}

    def with_state(self, make: Callable) -> Callable:
        """`make`, whose result travels with the state behind its samples."""
        def pair(samples: Any) -> tuple[Any, bytes]:
            state = pickle.dumps(self.take(), protocol=5)
            return make(samples), state
        return pair


def split(data: Any) -> tuple[Any, dict[str, Any]]:
    """In the client: a pair, taken apart again."""
    batch, state = data
    return batch, pickle.loads(state)


def keep(position: Any, state: dict[str, Any]) -> None:
    """The user has got the batch that `state` came with."""
    position.workers = {"last": state["worker"], "states":
                        {**position.workers.get("states", {}), str(state["worker"]): state}}


def to_send(resume: Any, workers: int, persistent: bool) -> dict[str, Any]:
    """What the workers are told of states: {"turn", "finished", "states": by number}."""
    finished = resume is not None and resume.finished
    kept = resume.workers if resume is not None and (persistent or not finished) else {}
    if "last" not in kept:
        kept = {}
    states = {int(number): state for number, state in kept.get("states", {}).items()}
    return {"turn": 0 if finished or not kept else (kept["last"] + 1) % workers,
            "finished": finished, "states": states}
