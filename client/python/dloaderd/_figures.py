"""Numbers as people read them, by the rules of proto/common/figures.h, which tests/lib/figures.def holds both to."""

from __future__ import annotations

import math

_LONG = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def _scaled(n: float, by: int, units: tuple[str, ...], over: float) -> str:
    """In the unit of which there are fewer than `over`."""
    n /= by
    at = 0
    while abs(n) >= over and at + 1 < len(units):
        n /= by
        at += 1
    return f"{n:.1f}{units[at]}"


def count(n: float) -> str:
    """"0", "9.5", "812", "45.2k"."""
    if abs(n) >= 10000:
        return _scaled(n, 1000, ("k", "M", "G", "T", "P", "E"), 999.95)
    return f"{n:.0f}" if abs(n) >= 100 or n == int(n) else f"{n:.1f}"


def percent(share: float) -> str:
    """"< 0.1 %", "4.2 %", "83 %"."""
    p = 100 * share
    if 0 < p < 0.05:
        return "< 0.1 %"
    tenths = abs(p) < 9.95 and int(10 * abs(p) + 0.5) % 10 > 0
    return f"{p:.{1 if tenths else 0}f} %"


def bytes_of(n: float) -> str:
    """"164 B", "2.0 KiB"."""
    if abs(n) < 1024:
        return f"{n:.0f} B"
    return _scaled(n, 1024, (" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"), 1023.95)


def seconds(n: float) -> str:
    """"23 µs", "4.2 ms", "1.2 s", "2 h 5 min"."""
    s = abs(n)
    if s == 0:
        return "0 s"
    if s < 999.5e-6:
        return f"{n * 1e6:.0f} µs"
    if s < 0.9995:
        return f"{n * 1e3:.{1 if s < 9.95e-3 else 0}f} ms"
    if s < 59.5:
        return f"{n:.{1 if s < 9.95 else 0}f} s"
    whole = math.floor(s + 0.5)
    at = 0 if whole >= 86400 else 1 if whole >= 3600 else 2
    rest = whole % _LONG[at][0] // _LONG[at + 1][0]
    return (f"{'-' if n < 0 else ''}{whole // _LONG[at][0]} {_LONG[at][1]}"
            + (f" {rest} {_LONG[at + 1][1]}" if rest else ""))
