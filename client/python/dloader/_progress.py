"""How far an epoch is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

INTERVAL_S = 0.2


class _Line:
    """What is shown where tqdm cannot be imported: one line, written again and again."""

    def __init__(self, total: int | None, initial: int, label: str) -> None:
        self.n, self.total, self.label = initial, total, label
        self._first, self._begun = initial, time.monotonic()
        self._shown = 0.0

    def update(self, n: int = 1) -> None:
        self.n += n
        if time.monotonic() - self._shown >= INTERVAL_S:
            self._show("\r")

    def _show(self, start: str, end: str = "") -> None:
        self._shown = time.monotonic()
        seconds = max(self._shown - self._begun, 1e-9)
        total = "" if self.total is None else f"/{self.total}"
        print(f"{start}{self.label}: {self.n}{total} batches, "
              f"{(self.n - self._first) / seconds:.0f}/s", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._show("\r", "\n")


def _bar(total: int | None, initial: int, label: str) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(total, initial, label)
    return tqdm(total=total, initial=initial, desc=label, unit="batch")


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
