"""Pictures of 8-bit RGB: text and other pictures put onto them, scaled, and written as PNG."""

from __future__ import annotations

import struct
import zlib

import numpy

from . import _font

Colour = tuple[int, int, int]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Canvas:
    """`pixels`: uint8 [height, width, 3]. What is put beyond an edge is cut off there."""

    def __init__(self, height: int, width: int, colour: Colour) -> None:
        self.pixels = numpy.empty((height, width, 3), numpy.uint8)
        self.pixels[:] = colour

    def put(self, top: int, left: int, picture: numpy.ndarray) -> None:
        room = self.pixels[top:top + picture.shape[0], left:left + picture.shape[1]]
        room[:] = picture[:room.shape[0], :room.shape[1]]

    def fill(self, top: int, left: int, height: int, width: int, colour: Colour) -> None:
        self.pixels[top:top + height, left:left + width] = colour

    def text(self, top: int, left: int, text: str, colour: Colour, scale: int = 1) -> None:
        dots = enlarge(_font.draw(text), scale)
        room = self.pixels[top:top + dots.shape[0], left:left + dots.shape[1]]
        room[dots[:room.shape[0], :room.shape[1]]] = colour


def shorten(text: str, most: int) -> str:
    """Shortens a text in the middle to a number of characters: "n014…0293.jpg" as "n014..0293.jpg"."""
    if len(text) <= most:
        return text
    kept = max(most - 2, 0)
    return (text[:kept // 2] + ".." + text[len(text) - (kept - kept // 2):])[:most]


# ---- scaling ------------------------------------------------------------------------------------

def enlarge(picture: numpy.ndarray, times: int) -> numpy.ndarray:
    """Each pixel as a square of times x times of it."""
    return picture.repeat(times, 0).repeat(times, 1) if times > 1 else picture


def _edges(old: int, new: int) -> numpy.ndarray:
    """Where each of `new` parts of `old` pixels begins; no part is empty."""
    return numpy.arange(new) * old // new


def _means(picture: numpy.ndarray, height: int, width: int) -> numpy.ndarray:
    """Each new pixel is the mean of those that it stands for."""
    tops, lefts = _edges(picture.shape[0], height), _edges(picture.shape[1], width)
    sums = numpy.add.reduceat(numpy.add.reduceat(picture.astype(numpy.uint32), tops, 0), lefts, 1)
    counts = (numpy.diff(tops, append=picture.shape[0])[:, None] *
              numpy.diff(lefts, append=picture.shape[1])[None, :])
    return ((sums + counts[:, :, None] // 2) // counts[:, :, None]).astype(numpy.uint8)


def fit(picture: numpy.ndarray, side: int) -> numpy.ndarray:
    """uint8 [h, w, 3], with its longer side `side` at most: a larger one is averaged, a smaller one
    enlarged by a whole number, so that its pixels can be told apart."""
    height, width = picture.shape[:2]
    longest = max(height, width)
    if longest <= side:
        return enlarge(picture, side // longest)
    return _means(picture, max(1, height * side // longest), max(1, width * side // longest))


# ---- PNG ----------------------------------------------------------------------------------------

def _filtered(pixels: numpy.ndarray) -> bytes:
    """Each row by that filter of PNG's which leaves the smallest numbers (PNG specification, 9)."""
    height, width = pixels.shape[:2]
    here = pixels.astype(numpy.int16)
    left = numpy.zeros_like(here)
    left[:, 1:] = here[:, :-1]
    up = numpy.zeros_like(here)
    up[1:] = here[:-1]
    corner = numpy.zeros_like(here)
    corner[1:, 1:] = here[:-1, :-1]
    guess = left + up - corner
    by_left, by_up, by_corner = (abs(guess - near) for near in (left, up, corner))
    paeth = numpy.where((by_left <= by_up) & (by_left <= by_corner), left,
                        numpy.where(by_up <= by_corner, up, corner))
    rows = numpy.stack([(here - said).astype(numpy.uint8).reshape(height, width * 3)
                        for said in (numpy.zeros_like(here), left, up, (left + up) // 2, paeth)])
    costs = abs(rows.view(numpy.int8).astype(numpy.int32)).sum(2)
    best = costs.argmin(0)
    return numpy.concatenate([best[:, None].astype(numpy.uint8), rows[best, numpy.arange(height)]], 1).tobytes()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels: numpy.ndarray) -> bytes:
    """The PNG file of uint8 [height, width, 3], neither of them 0. One picture is always one file."""
    height, width = pixels.shape[:2]
    return b"".join((_SIGNATURE, _chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
                     _chunk(b"IDAT", zlib.compress(_filtered(pixels), 9)), _chunk(b"IEND", b"")))
