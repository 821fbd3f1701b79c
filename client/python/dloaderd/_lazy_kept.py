"""Pictures that workers keep decoded, of files that a dataset's own code opens (DataLoader's cache): _lazy.py has their
pixels in place of the files' bytes.
"""

from __future__ import annotations

import functools
import io
from typing import Any

from PIL import ImageFile

from . import _info
from . import _worker as _built  # type: ignore[attr-defined]
from ._lazy_pending import NO_DRAFT, Source

_worker: Any = _built


@functools.cache
def _files() -> int:
    """How many there are, if each sample is one: of more than there is room for, so large a part is kept."""
    try:
        return len(_info.get_worker_info().dataset)
    except Exception:  # an iterable dataset; whatever its code raises
        return 0


class Kept:
    """What is kept of a picture's file; pixels: None, it may be."""

    __slots__ = ("image", "key", "pixels", "size")

    def __init__(self, image: Any, key: bytes, pixels: memoryview | None, *size: int) -> None:
        self.image, self.key, self.pixels, self.size = image, key, pixels, size

    def source(self) -> Source | None:
        """As if the file had been read; None: it has to be."""
        if self.pixels is None or self.size != self.image._size[::-1]:
            return None
        return Source(None, self.pixels, self.size, opened_as=self.image._mode)  # type: ignore[arg-type]

    def keep(self, source: Source, data: bytes, whole: int) -> None:
        """Decodes a file that was read, of which Pillow would have read all."""
        if -(-whole // ImageFile.MAXBLOCK) * ImageFile.MAXBLOCK < len(data):
            return
        made = _worker.picture_keep(self.image.fp.fileno(), self.key, data, _files())
        if made is not None:
            source.size, source.pixels = made[1:], made[0]


def find(image: Any, draft: tuple[int, bool]) -> Kept | None:
    """None: nothing is kept of such a picture, or at all."""
    fp = image.fp
    if draft != NO_DRAFT or image._mode == "CMYK" or "decodermaxblock" in image.__dict__ or \
            type(fp) is not io.BufferedReader or type(fp.raw) is not io.FileIO or fp.closed:
        return None
    found = _worker.picture_find(fp)
    return None if found is None else Kept(image, *found)
