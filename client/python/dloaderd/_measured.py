"""What explain() says once batches were made: how long a sample takes, and what of that remains Python.

The times are the workers' own, of all their batches; `dlctl times` shows the same. The names of functions are those of
_sampled.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from . import _figures, _label, _native_pictures, _private, _sampled

# As explain() prints it: stage, by, what, why.
Row = tuple[str, str, str, str]

# Functions with a smaller share of Python's time are not named, and _MOST_NAMES at the most.
_LEAST_SHARE, _MOST_NAMES = 0.05, 4


class Times(NamedTuple):
    """Mean seconds; of a sample, or, where the size of batches is not known, of a batch."""

    made: float
    python: float
    unit: str


def note(loader: Any, connection: Any) -> None:
    """Before the connection is closed, which the daemon forgets then. A daemon that others use too is not asked."""
    if loader is not None and loader._options.native != "off" and not _private.is_shared(loader._options.socket):
        loader._keeper.times = connection.times() or loader._keeper.times


def _rows(loader: Any) -> Iterator[dict]:
    """Of the view `times`: its rows of this loader's."""
    from . import _worker  # type: ignore[attr-defined]
    keeper = loader._keeper
    connection = keeper.connection and keeper.connection()
    data = (connection.times() if connection is not None else None) or keeper.times
    for row in _worker.unpack(data) if data else ():
        if row["loader"] == _label.label_of(loader) and row["rank"] is None:
            yield row


def _size(loader: Any) -> int | None:
    """Of its batches; None: a sampler's own."""
    if not loader._auto_collation:
        return 1
    size = getattr(loader, "batch_size", None) or getattr(loader.batch_sampler, "batch_size", None)
    return size if type(size) is int and size > 0 else None


def _fits(loader: Any, size: int) -> int:
    """A dataset may have fewer samples."""
    try:
        return size if loader._is_iterable else max(1, min(size, len(loader.sampler)))
    except (TypeError, AttributeError, NotImplementedError):
        return size


def times_of(loader: Any) -> Times | None:
    """None: there were no batches yet, or the daemon does not tell."""
    rows = [row for row in _rows(loader) if row["stage"] in ("fetch", "collate") and row["batches"]]
    # Another program's loader may have the same name.
    if sorted(row["stage"] for row in rows) != ["collate", "fetch"] or any(row["python_s"] is None for row in rows):
        return None
    size = _size(loader)
    each = 1 if size is None else _fits(loader, size)
    made, python = (sum(row[key] for row in rows) / each for key in ("mean_s", "python_s"))
    return Times(made, python, "a batch" if size is None else "a sample")


def _names(functions: dict[str, float]) -> str:
    whole = sum(functions.values())
    named = sorted(functions.items(), key=lambda one: -one[1])[:_MOST_NAMES]
    return ", ".join(f"{name} {_figures.percent(seconds / whole)}" for name, seconds in named
                     if seconds >= _LEAST_SHARE * whole)


def _shares(stage: str, other: str, what: str, counted: dict[str, int]) -> list[Row]:
    """Of C, and of the other, with the reasons."""
    whole = sum(counted.values())
    return [(stage, other if why else "C", f"{_figures.percent(n / whole)} of its {what}", why)
            for why, n in sorted(counted.items(), key=lambda one: (one[0] != "", -one[1]))]


def _look(loader: Any) -> _sampled.Sampled | None:
    from ._iterators import _job
    context = loader.multiprocessing_context or torch.multiprocessing
    if not hasattr(context, "get_start_method"):
        return None
    return _sampled.sample(_job(loader, {"base_seed": 0}, None), int(loader.num_workers), _size(loader) or 1, context)


def rows_of(loader: Any) -> list[Row]:
    """Makes samples, in another process, if there is a time to tell that is Python's."""
    times = None if loader._options.native == "off" or loader.num_workers == 0 else times_of(loader)
    if times is None:
        return []
    found = (_look(loader) if times.python and not loader._is_iterable else None) or _sampled.Sampled({}, {}, {})
    # torchvision's own datasets open files for what these say besides their pixels, which C decodes.
    opened = {} if _native_pictures.has_pictures(loader.dataset) else found.pictures
    names = _names(found.functions)
    told = f"{_figures.seconds(times.python)} of {_figures.seconds(times.made)} {times.unit}"
    # Its samples may come from what processes share, a queue or a count: they come once.
    why = "an iterable dataset is not asked for more samples to find the functions" if loader._is_iterable else ""
    return [*_shares("opened", "Pillow", "pictures", opened),
            *_shares("tokenised", "Python", "calls", found.texts),
            ("measured", "Python", f"{told}: {names}" if names else told, why)]
