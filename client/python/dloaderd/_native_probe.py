"""Transforms of versions that the tests have not compared: their results on drawn pictures, beside C's.

Compared are pixels, types, strides, and the generators' states behind them, so that another order of draws shows,
too. A list of transforms is compared once in a process.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from . import _figures, _versions
from ._native_transforms import Unknown

# Pictures, and their heights and widths in turn: of odd ones, and of one that crops of 224 fit in.
DRAWN = 64
_SIZES = ((96, 128), (61, 97), (64, 64), (300, 260))
_GREY = 8  # each eighth picture


class Found(NamedTuple):
    """why: what differed; None: nothing did. compared: pictures. ms: how long it took."""

    why: str | None
    compared: int
    ms: float


_found: dict[Any, Found] = {}


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    torchs, pythons = torch.get_rng_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torchs)
        random.setstate(pythons)


def _picture(number: int) -> Any:
    """Shapes, edges and grain, as bytes of a formula: no generator is asked."""
    height, width = _SIZES[number % len(_SIZES)]
    channels = 1 if number % _GREY == _GREY - 1 else 3
    y, x, c = (torch.arange(n) for n in (height, width, channels))
    y, x, c = y[:, None, None], x[None, :, None], c[None, None, :]
    grain = (x * 7919 + y * 104729 + c * 31 + number * 613) * 2654435761 >> 13 & 15
    pixels = (x * x * (3 + c) // (29 + number) + y * (5 - c) + ((x // 17 + y // 13) % 2) * 60 + grain) & 255
    shape = pixels[:, :, 0] if channels == 1 else pixels
    return sys.modules["PIL.Image"].fromarray(shape.to(torch.uint8).numpy())


def _described(made: Any, exact: bool) -> Any:
    """All that a result is; exact: with its pixels."""
    if isinstance(made, tuple):
        return [_described(one, exact) for one in made]
    if isinstance(made, torch.Tensor):
        strides = [stride for n, stride in zip(made.shape, made.stride(), strict=True) if n > 1]
        pixels = made.contiguous().view(torch.uint8).numpy().tobytes() if exact else b""
        return type(made), made.dtype, tuple(made.shape), strides, pixels
    return type(made), made.mode, made.size, made.tobytes() if exact else b""


def _outcome(call: Any, picture: Any, seed: int, exact: bool) -> Any:
    """What it makes, and the generators' states behind it; None: it makes nothing of this picture."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        made = call(picture)
    except Exception:
        return None
    return None if made is None else (_described(made, exact), torch.get_rng_state().tolist(), random.getstate())


def _compare(made: Any, exact: bool) -> Found:
    begin, compared = time.monotonic(), 0
    for number in range(DRAWN):
        picture = _picture(number)
        theirs = _outcome(made.called, picture, number, exact)
        ours = _outcome(made.tried, picture, number, exact)
        if ours is None:
            continue  # C leaves it to them
        compared += 1
        if ours != theirs:
            return Found(f"picture {number} of {DRAWN} became another one", compared, 0)
    why = None if compared else "none of the drawn pictures could be compared"
    return Found(why, compared, (time.monotonic() - begin) * 1000)


def check(made: Any, key: Any, exact: bool) -> None:
    """Unknown, and said once: they differ. made: has tried() and called(), C's and the package's way of making
    something of a picture. key: of all that its results depend on. exact: its pixels have to be equal.
    """
    others = _versions.not_compared("torchvision", "PIL")
    if not others:
        return
    found = _found.get(key)
    if found is None:
        with _generators_kept():
            found = _found[key] = _compare(made, exact)
    if found.why:
        why = f"{others}: not one of the tests' versions, and its transforms differ from C's: {found.why}"
        _versions.say_once(f"{why}. Python does their work, slower; {_versions.remedy('torchvision', 'PIL')}")
        raise Unknown(why)
    _versions.say_once(f"{others}: not one of the tests' versions, but its transforms gave what C's give, of "
                       f"{found.compared} drawn pictures, in {_figures.seconds(found.ms / 1e3)}; C does their work")
