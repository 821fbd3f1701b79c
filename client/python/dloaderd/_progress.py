"""How far an epoch is, or the opening of a loader, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from . import _figures

INTERVAL_S = 0.2  # between two looks of one who watches a terminal,
IN_A_LOG_S = 10   # and two lines elsewhere
UNKNOWN = 2 ** 64 - 1  # of how many
ERASE = "\x1b[K"  # what is left of a longer line


class _Line:
    """What is shown where tqdm cannot be imported: one line, written again and again; where standard
    error is no terminal, a line now and then, and the last one."""

    def __init__(self, total: int | None, initial: int, label: str, unit: str = "batches") -> None:
        self.n, self.total, self.label, self.unit = initial, total, label, unit
        self._first, self._begun = initial, time.monotonic()
        self._redraws = sys.stderr.isatty()
        self._shown = 0.0 if self._redraws else self._begun

    def update(self, n: int = 1) -> None:
        self.n += n
        if time.monotonic() - self._shown >= (INTERVAL_S if self._redraws else IN_A_LOG_S):
            self._show("" if self._redraws else "\n")

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        rate = (self.n - self._first) / max(self._shown - self._begun, 1e-9)
        total = "" if self.total is None else f"/{self.total}"
        unit = f" {self.unit}" if self.unit else ""
        left = "" if self.total is None or rate == 0 or self.n >= self.total else \
            f", {_figures.seconds((self.total - self.n) / rate)} left"
        line = f"{self.label}: {self.n}{total}{unit}, {_figures.count(rate)}/s{left}"
        print(f"\r{line}{ERASE}" if self._redraws else line, end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._show("\n")


def _bar(total: int | None, initial: int, label: str, unit: tuple[str, str] = ("batch", "batches")) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(total, initial, label, unit[1])
    return tqdm(total=total, initial=initial, desc=label, unit=unit[0])


class Opening:
    """Shows what the daemon's workers do before a loader is open; called with (done, all, what).

    A bar for each thing that takes long: images that are found, shards that are indexed, lengths
    that are taken. Nothing where nobody has to wait. with Opening() as tell: ...
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""

    def __call__(self, done: int, total: int, what: str) -> None:
        known = None if total == UNKNOWN else total
        if what != self._what:
            self._end(True)
            self._what = what
            if known is None:  # the first word of it comes at once, also where it is the last one
                return
        if self._bar is None:
            unit = ("sample", "samples") if what == "lengths" else ("", "")
            self._bar = _bar(known, done, what, unit)
        if done > self._bar.n:
            self._bar.update(done - self._bar.n)

    def __enter__(self) -> Opening:
        return self

    def _end(self, whole: bool) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            if whole and bar.total is not None:  # the last ones are not told of
                bar.update(bar.total - bar.n)
            bar.close()

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(kind is None)


class Progress:
    """Passes an iterator's batches on, and shows how many there were."""

    def __init__(self, iterator: Iterator[Any], total: int | None, initial: int,
                 label: str) -> None:
        self._iterator = iterator
        self._bar = _bar(total, initial, label)

    def __iter__(self) -> Progress:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._iterator)
        except BaseException:
            self._close()
            raise
        if self._bar is not None:
            self._bar.update(1)
        return batch

    def _close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def __del__(self) -> None:
        if getattr(self, "_bar", None) is not None:
            self._close()
