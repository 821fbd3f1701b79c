"""States of iterable datasets that know their own place, carried from the workers with each batch.

A worker's batch is then a pair: the batch, and a pickle of where that worker's dataset stands behind
it. The client keeps the latest of each worker that the user got a batch of; to go on, it sends them
to new workers. The first of these takes over from the worker whose turn it was: worker w is the
old (w + turn) mod W.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any


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

    worker: its number among the old ones. state: what take() made for it, or None.
    """

    def __init__(self, worker: int, dataset: Any, state: dict | None) -> None:
        self._worker = worker
        self._dataset = dataset
        self._state = state
        self._samples = _Watched(iter(()))

    def iterate(self) -> Iterator:
        """iter(dataset), from where it is to go on."""
        state, self._state = self._state, None
        if state is not None:
            self._dataset.load_state_dict(state["dataset"])
        if state is not None and state["ended"]:
            self._samples = _Watched(iter(()))
            return self._samples
        iterator = iter(self._dataset)
        if state is not None and state["iterator"] is not None:
            iterator.load_state_dict(state["iterator"])
        self._samples = _Watched(iterator)
        return self._samples

    def take(self) -> dict[str, Any]:
        """Where this worker's dataset stands now."""
        iterator = self._samples.iterator
        own = iterator is not self._dataset and hasattr(iterator, "state_dict")
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


def to_send(resume: Any, workers: int) -> dict[str, Any]:
    """What the workers' object says of states: {"turn", "states": by number}."""
    kept = resume.workers if resume is not None and not resume.finished else {}
    if "last" not in kept:
        kept = {}
    states = {int(number): state for number, state in kept.get("states", {}).items()}
    return {"turn": (kept["last"] + 1) % workers if kept else 0, "states": states}
