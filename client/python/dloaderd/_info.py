"""What a worker tells of itself: get_worker_info(), in this package and in PyTorch's."""

from __future__ import annotations

import sys
from typing import Any

# Of this process; None outside of a worker. Set once, before anything of the user's runs.
_current: Any = None


class WorkerInfo:
    """The same fields as torch.utils.data.get_worker_info() has, where torch is not in use.

    id: this worker's number, from 0. num_workers. seed: of its torch and random generators.
    dataset: this worker's own copy; None while it is being made.
    """

    def __init__(self, id: int, num_workers: int, seed: int | None, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self) -> str:
        return (f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, "
                f"dataset={self.dataset!r})")


def get_worker_info() -> Any:
    """This worker's WorkerInfo (id, num_workers, seed, dataset); None in any other process.

    torch.utils.data.get_worker_info() gives the same object.
    """
    return _current


def set_worker_info(worker: int, workers: int, seed: int | None, dataset: Any) -> None:
    """Makes both get_worker_info() answer; torch's only if it was imported."""
    global _current
    if "torch" in sys.modules:
        import torch.utils.data._utils.worker as theirs
        fields = {"id": worker, "num_workers": workers, "seed": seed, "dataset": dataset}
        _current = theirs._worker_info = theirs.WorkerInfo(**fields)
    else:
        _current = WorkerInfo(worker, workers, seed, dataset)
