"""Transforms of versions that the tests have not compared: their results on drawn pictures, beside C's.

Compared are pixels, types, strides, and the generators' states behind them, so that another order of draws shows,
too. A list of transforms is compared once in a process. What resizing does depends on sizes, of which that sees few,
so Pillow's is compared by itself as well, from many sizes to many.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from . import _versions
from ._native_transforms import DRAWS

# Pictures, and their heights and widths: each of its own, but for each fourth, which crops of 224 fit in.
DRAWN = 64
_LARGE = ((300, 260), (240, 330))
_SIZES = [(23 + n * 37 % 101 + n * n % 61, 23 + n * 53 % 103 + n % 3 * 31) if n % 4 else _LARGE[n // 4 % 2]
          for n in range(DRAWN)]
_GREY = 8  # each eighth picture
# Heights and widths that are resized, and those that they get.
_BEFORE = [(1 + n * 37 % 61, 1 + n * 23 % 59) for n in range(1, 49)]
_AFTER = [(1 + n * 11 % 47, 1 + n * 29 % 43) for n in range(1, 17)]
_RESIZING = ("Resize", "RandomResizedCrop")


class Found(NamedTuple):
    """why: what differed; None: nothing did. compared: pictures. seconds: how long it took."""

    why: str | None
    compared: int
    seconds: float


_found: dict[Any, Found] = {}
_resized: dict[str, str | None] = {}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Behind it the generators are as before. Within it torch has one thread, as in a worker: of pictures this small,
    several wait for each other."""
    torchs, pythons, threads = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(torchs)
        random.setstate(pythons)


def told(made: Any) -> Any:
    """All that a batch is."""
    if isinstance(made, torch.Tensor):
        return type(made), made.dtype, made.shape, made.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(made, Mapping):
        return type(made), [(key, told(value)) for key, value in made.items()]
    if isinstance(made, (list, tuple)):
        return type(made), [told(one) for one in made]
    tell = getattr(made, "tobytes", None)
    return type(made), (made.dtype, made.shape, tell()) if tell else made


def _picture(number: int) -> Any:
    """Shapes, edges and grain, as bytes of a formula: no generator is asked."""
    height, width = _SIZES[number]
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


def _filters(items: list) -> set[str]:
    """By which pictures are resized, of C's list of transforms."""
    inner = {one for item in items for one in _filters(item.get("transforms", []))}
    return inner | {item["interpolation"] for item in items if item["kind"] in _RESIZING}


def _resized_alike(filter: str) -> str | None:
    """What Pillow resizes otherwise than C; None: nothing."""
    from . import _worker  # type: ignore[attr-defined]
    image = sys.modules["PIL.Image"]
    theirs = image.Resampling[filter.partition("-")[0].upper()]
    grain = bytes(n * n * 7 + n * 13 + (n >> 5) * 11 & 255 for n in range(61 * 59))

    def room(*_: Any) -> tuple[bytearray, bytearray]:
        pixels = bytearray(height * width)
        return pixels, pixels

    for height, width in _AFTER:
        item = {"kind": "Resize", "size": [height, width], "interpolation": filter, "max_size": None, "antialias": True}
        handle = _worker.pictures(json.dumps([item]), (None,) * DRAWS, 1)
        for rows, columns in _BEFORE:
            pixels = grain[:rows * columns]
            made = image.frombytes("L", (columns, rows), pixels).resize((width, height), theirs)
            if _worker.picture_of_pixels(handle, pixels, rows, columns, room) != made.tobytes():
                return f"{rows} x {columns} pixels, resized by {filter} to {height} x {width}, became others"
    return None


def _compare(made: Any, exact: bool, filters: set[str]) -> Found:
    begin, compared = time.monotonic(), 0
    for filter in sorted(filters):
        if filter not in _resized:
            _resized[filter] = _resized_alike(filter)
        if _resized[filter]:
            return Found(_resized[filter], 0, 0)
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
    return Found(why, compared, time.monotonic() - begin)


def check(made: Any, text: str, key: Any, exact: bool) -> None:
    """Unknown, and said once: they differ. made: has tried() and called(), C's and the package's way of making
    something of a picture. text: its transforms as C reads them; with key, all that its results depend on. exact:
    its pixels have to be equal.
    """
    others = _versions.not_compared("torchvision", "PIL")
    if not others:
        return
    found = _found.get((text, key))
    if found is None:
        with undisturbed():
            found = _found[text, key] = _compare(made, exact, _filters(json.loads(text)))
    if found.why:
        raise _versions.different(others, f"transforms differ from C's: {found.why}", "torchvision", "PIL")
    _versions.tell_equal(others, "transforms", f"gave what C's give, of {found.compared} drawn pictures", found.seconds)
