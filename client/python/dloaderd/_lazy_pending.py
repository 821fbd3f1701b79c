"""Pixels that are made when they are needed: what a picture of Pillow's has in place of them until then (_lazy.py).

A Pending is a source, a file's bytes or pixels, and what is to be done to its picture. C does all steps at once
(steps.h of daemon/data/decode/image): it decodes the rows that a crop wants, and resizes them as they come. Where C
refuses, Pillow does the same steps.
"""

from __future__ import annotations

import collections
import io
from typing import Any

from PIL import Image, ImageFile, JpegImagePlugin

from . import _worker as _built  # type: ignore[attr-defined]

_worker: Any = _built

# Pictures that were opened, by why Pillow decodes them; "": C does. For explain().
opened: collections.Counter = collections.Counter()
UNTOUCHED = "JPEG files whose first method is another one"

CROP, RESIZE, TRANSPOSE, GREY, REDUCE = range(5)
CHANNELS = {"RGB": 3, "L": 1}
# As daemon/data/decode/resize/resize.h has them.
FILTERS = {Image.Resampling.NEAREST: 0, Image.Resampling.BOX: 1, Image.Resampling.BILINEAR: 2,
           Image.Resampling.HAMMING: 3, Image.Resampling.BICUBIC: 4, Image.Resampling.LANCZOS: 5}
MOST_PIXELS = 1 << 26
NO_DRAFT = 1, False

# Pillow's own, whatever is around them later.
_load = ImageFile.ImageFile.load
_convert, _resize, _reduce, _transpose = (getattr(Image.Image, name) for name in (
    "convert", "resize", "reduce", "transpose"))


def tell(before: str, now: str) -> None:
    opened[before] -= 1
    opened[now] += 1


class Source:
    """A picture that steps begin with. file: its bytes, or None; draft: of these, at which scale it is decoded, and
    whether its luma alone is; opened_as: the mode that Pillow has of it. pixels: of `size`, height and width, in
    `mode`; or None. A grey file is one in RGB, too, whose channels are equal.
    """

    __slots__ = ("asked", "draft", "file", "mode", "opened_as", "pixels", "size")
    # Whether the last picture was asked for more than once: then the next one is decoded as a whole.
    again = False

    def __init__(self, file: bytes | None, pixels: bytes | None = None, size: tuple[int, int] = (0, 0),
                 mode: str = "RGB", draft: tuple[int, bool] = NO_DRAFT, opened_as: str = "") -> None:
        self.file = file
        self.draft = draft
        self.opened_as = opened_as
        self.pixels = pixels
        self.size = size
        self.mode = mode
        self.asked = 0

    def __del__(self) -> None:
        if self.file is not None and self.asked:
            type(self).again = self.asked > 1

    def decode(self) -> bool:
        """Now, as a whole; False: C cannot."""
        if self.pixels is None:
            made = self._run((), self.mode)
            if made is not None:
                self.size, self.pixels = made[1:], made[0]  # in this order: another thread asks for pixels first
        return self.pixels is not None

    def ask(self) -> None:
        """Before each use of its picture."""
        if self.asked or Source.again:
            self.decode()
        self.asked += 1

    def is_made(self, mode: str) -> bool:
        """Whether its pixels are there, in that mode."""
        return self.pixels is not None and self.mode == mode

    def run(self, steps: tuple, mode: str) -> tuple[bytes, int, int] | None:
        """(Pixels, height, width) behind the steps; None: C cannot do it."""
        self.ask()
        if not steps and self.is_made(mode):
            return self.pixels, *self.size  # type: ignore[return-value]
        return self._run(steps, mode)

    def _run(self, steps: tuple, mode: str) -> tuple[bytes, int, int] | None:
        data, size = self.pixels, self.size
        if data is None:
            data, size = self.file, (0, 0)
        return _worker.picture_steps(data, *size, MOST_PIXELS, steps, CHANNELS[mode], *self.draft)

    def opened(self) -> Any:
        """By Pillow, in the mode that the file has."""
        if self.pixels is not None:
            return Image.frombytes(self.mode, self.size[::-1], self.pixels)
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(self.file or b""))
        scale, luma = self.draft
        image.draft("L" if luma else None, (image.width // scale, image.height // scale))
        _load(image)
        return image


def _core(size: tuple[int, int], mode: str, data: Any, decoder: Any, *args: str) -> Any:
    """Pillow's pixels, by a decoder of its own, as frombytes() and load() make them; None: it says that it cannot."""
    core, done = Image.core.new(mode, size), decoder(mode, *args)
    done.setimage(core, (0, 0, *size))
    try:
        left, error = done.decode(data)
    finally:
        done.cleanup()
    return core if left < 0 <= error else None


def _core_of_file(source: Source, size: tuple[int, int], mode: str) -> Any:
    """What load(), and convert(), make of a whole file, by what C says of its header; None: it has to be opened."""
    own = source.opened_as
    made = _core(size, own, source.file, Image.core.jpeg_decoder, "CMYK;I" if own == "CMYK" else own, "")
    return made if made is None or mode == own else made.convert(mode, Image.Dither.FLOYDSTEINBERG)


class Pending:
    """In Image._im. todo: its source, and the steps behind it; cores: Pillow's pixels, once they were made."""

    __slots__ = ("asked", "cores", "mode", "size", "todo")
    # As Pillow's pixels have it.
    readonly = 0
    # Whether the bytes of the last one were asked for more than once: then those of the next one are kept.
    again = False

    def __init__(self, source: Source, steps: tuple, size: tuple[int, int], mode: str) -> None:
        self.todo = source, steps
        self.size = size
        self.mode = mode
        self.asked = 0
        self.cores: list[Any] = []

    def __del__(self) -> None:
        if self.asked:
            type(self).again = self.asked > 1

    def done(self) -> tuple[Source, tuple]:
        """What is to be done once C has done the steps, if it can."""
        source, steps = self.todo
        if steps or not source.is_made(self.mode):
            made = source.run(steps, self.mode)
            if made is not None:
                self.todo = Source(None, made[0], made[1:], self.mode), ()
        return self.todo

    def tobytes(self) -> bytes | None:
        """Its pixels, which nobody else has: who gets them may write to them, as torch.from_numpy() lets one do. None:
        C cannot, or they are Pillow's by now.
        """
        if self.cores:
            return None
        source, steps = self.todo
        keep = self.asked or Pending.again
        self.asked += 1
        if keep:
            source, steps = self.done()
            # A copy: bytes() of bytes is themselves.
            return None if steps or not source.is_made(self.mode) else bytes(memoryview(source.pixels or b""))
        made = source.run(steps, self.mode)
        if made is None:
            return None
        return bytes(memoryview(made[0])) if made[0] is source.pixels else made[0]

    def core(self) -> Any:
        """Pillow's pixels, the same ones each time."""
        if not self.cores:
            self.asked += self.asked > 0
            self.cores.append(self._made())
        return self.cores[0]

    def _made(self) -> Any:
        source, steps = self.todo
        # Pillow's decoder needs no copy of what it makes.
        if not steps and source.pixels is None and source.draft == NO_DRAFT:
            core = _core_of_file(source, self.size, self.mode)
            if core is not None:
                return core
        if self.mode in CHANNELS:
            source, steps = self.done()
        if not steps and source.is_made(self.mode):
            return _core(self.size, self.mode, source.pixels, Image.core.raw_decoder, self.mode)
        if source.pixels is None:
            tell("", "files that C refuses" if self.mode in CHANNELS else UNTOUCHED)
        made = source.opened()
        if steps and made.mode not in CHANNELS:
            made = _convert(made, "RGB")
        for step in steps:
            made = _done(made, step)
        return (made if made.mode == self.mode else _convert(made, self.mode)).im

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core(), name)


def _done(image: Any, step: tuple) -> Any:
    """By Pillow."""
    kind, left, top, width, height, choice, *box = step
    if kind == CROP:
        return image._new(image.im.crop((left, top, left + width, top + height)))  # which says nothing of limits again
    if kind == RESIZE:
        filter = next(one for one, number in FILTERS.items() if number == choice)
        return _resize(image, (width, height), filter, tuple(box) or None)
    if kind == REDUCE:
        return _reduce(image, (width, height))
    return _convert(image, "L") if kind == GREY else _transpose(image, choice)
