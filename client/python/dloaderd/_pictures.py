"""Pictures of samples: images of any layout and range, masks over them, and waveforms.

What a sample has is found by shape and type, and by name where these leave it open: an image has one, three or
four channels, first or last, or none; a mask has the image's height and width, one channel, and numbers
of classes; a waveform has many numbers and a name that says sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ._fields import Field, Sample

SIDE_MIN = 8         # pixels of an image without channels: smaller tables are none
SAMPLES_MIN = 256    # of a waveform
CHANNELS_MAX = 8     # of one that is called a sound: 7.1; of others two
_CHANNELS = (3, 1, 4)
_MASK_SHARE = 0.5    # of a mask's colour where it lies over an image
_IGNORED = 255       # a mask's number for what counts for nothing, as in Pascal VOC and Cityscapes
_SOUND = ("audio", "wave", "waveform", "wav", "sound", "speech", "pcm", "flac", "mp3")

# Not finite: neither a number nor a colour.
BAD = (255, 0, 255)
# Colours that people with any sight tell apart: those of M. Okabe and K. Ito (2008), but for black.
_CLASSES = numpy.array([(230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178),
                        (213, 94, 0), (204, 121, 167)], numpy.uint8)
_WAVE, _WAVE_GROUND, _WAVE_AXIS = (0, 114, 178), (255, 255, 255), (200, 200, 200)

# What most models that were trained on ImageNet have their images normalised by.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# ---- what is what -------------------------------------------------------------------------------

def layout_of(array: numpy.ndarray) -> str | None:
    """ "hwc", "chw" or "hw" of one sample's image; None: it is none."""
    if not array.size or array.dtype.kind not in "bfu" or array.dtype.itemsize > 2 and array.dtype.kind == "u":
        return None
    if array.ndim == 2:
        return "hw" if min(array.shape) >= SIDE_MIN else None
    if array.ndim != 3:
        return None
    for layout, axis in (("hwc", 2), ("chw", 0)):
        others = [n for at, n in enumerate(array.shape) if at != axis]
        if array.shape[axis] in _CHANNELS and min(others) > max(_CHANNELS):
            return layout
    return "hwc" if array.shape[2] in _CHANNELS else "chw" if array.shape[0] in _CHANNELS else None


def _rank(field: Field) -> tuple[int, int]:
    """Images with colours are looked for first, and then those that are called so."""
    array = field.array
    assert array is not None
    return -array.ndim, "image" not in field.path and "img" not in field.path


def image_of(sample: Sample) -> Field | None:
    """The field that is the sample's image."""
    found = [field for field in sample if field.array is not None and layout_of(field.array)]
    return min(found, key=_rank, default=None)


def _plane(array: numpy.ndarray) -> numpy.ndarray | None:
    """The [h, w] of a mask that has a channel, too."""
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
        return array[0] if array.shape[0] == 1 else array[:, :, 0]
    return array if array.ndim == 2 else None


def _size(image: numpy.ndarray) -> tuple[int, ...]:
    return image.shape[1:] if layout_of(image) == "chw" else image.shape[:2]


def masks_of(sample: Sample, image: Field) -> list[numpy.ndarray]:
    """Numbers of classes [h, w] of each pixel of the image, 0 for none."""
    found = []
    assert image.array is not None
    for field in sample:
        plane = None if field is image or field.array is None else _plane(field.array)
        if plane is None or plane.shape != _size(image.array):
            continue
        if plane.dtype.kind in "biu":
            found.append(plane)
        elif numpy.isin(plane, (0, 1)).all():
            found.append(plane.astype(bool))
    return found


def _is_called_sound(field: Field) -> bool:
    return any(word in field.path.lower() for word in _SOUND)


def _is_wave(field: Field) -> bool:
    array = field.array
    if array is None or array.ndim not in (1, 2) or array.dtype.kind not in "fi" or \
            max(array.shape, default=0) < SAMPLES_MIN:
        return False
    channels = min(array.shape) if array.ndim == 2 else 1
    if _is_called_sound(field):
        return 1 <= channels <= CHANNELS_MAX
    return channels in (1, 2) and (array.dtype.kind == "f" or array.dtype.itemsize <= 2)


def wave_of(sample: Sample) -> Field | None:
    """The field that is a sound: [n], [n, channels] or [channels, n]; one that is called so before any other."""
    return min((field for field in sample if _is_wave(field)), key=lambda field: not _is_called_sound(field),
               default=None)


# ---- colours ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Scale:
    """How numbers become bytes: (x * times + plus), of each channel. text: how to tell it, or ""."""

    times: Any
    plus: Any
    text: str


def _range(images: Sequence[numpy.ndarray]) -> tuple[float, float]:
    """The least and the greatest number that is finite."""
    low, high = numpy.inf, -numpy.inf
    for image in images:
        finite = image[numpy.isfinite(image)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def _undo(mean: Sequence[float], deviation: Sequence[float], text: str) -> Scale:
    return Scale(numpy.array(deviation, float) * 255, numpy.array(mean, float) * 255, text)


def scale_of(images: Sequence[numpy.ndarray], normalised: tuple[Any, Any] | None = None) -> Scale:
    """For all images of a batch, that they can be compared. normalised: the mean and the standard deviation that
    a spec says; without it, they are told from the range of the numbers."""
    kind, bytes_each = images[0].dtype.kind, images[0].dtype.itemsize
    if kind == "b":
        return Scale(255, 0, "")
    if kind == "u":
        return Scale(1, 0, "") if bytes_each == 1 else Scale(1 / 257, 0, "")
    low, high = _range(images)
    if normalised is not None:
        return _undo(*normalised, "normalised as the spec says, undone")
    near = 1e-3
    if low >= -near and high <= 1 + near:
        return Scale(255, 0, "from 0 to 1")
    if low >= -near and high <= 255 + near:
        return Scale(1, 0, "from 0 to 255")
    if low >= -1 - near and high <= 1 + near:
        return Scale(127.5, 127.5, "from -1 to 1")
    mean, deviation = IMAGENET
    colours = all(3 in (image.shape[0], image.shape[-1]) and image.ndim == 3 for image in images)
    if colours and low >= -mean[0] / deviation[0] - near and high <= (1 - mean[2]) / deviation[2] + near:
        return _undo(mean, deviation, "ImageNet's mean and deviation, undone")
    span = high - low or 1.0
    return Scale(255 / span, -low * 255 / span, f"from {low:.4g} to {high:.4g}, stretched")


def rgb(image: numpy.ndarray, scale: Scale) -> numpy.ndarray:
    """uint8 [h, w, 3]. What is not finite is BAD."""
    layout = layout_of(image)
    values = image.transpose(1, 2, 0) if layout == "chw" else image[:, :, None] if layout == "hw" else image
    values = values[:, :, :3].astype(numpy.float64)  # the fourth is how opaque it is
    bad = ~numpy.isfinite(values).all(2)
    values[bad] = 0
    out = numpy.clip(numpy.rint(values * scale.times + scale.plus), 0, 255).astype(numpy.uint8)
    out = out.repeat(3, 2) if out.shape[2] == 1 else out.copy()
    out[bad] = BAD
    return out


def overlay(picture: numpy.ndarray, mask: numpy.ndarray) -> numpy.ndarray:
    """The picture with each class of the mask in its colour over it; what is to be ignored is grey."""
    numbers = mask.astype(numpy.int64)
    colours = _CLASSES[(numbers - 1) % len(_CLASSES)].astype(numpy.float64)
    colours[numbers == _IGNORED] = 128
    mixed = picture * (1 - _MASK_SHARE) + colours * _MASK_SHARE
    shown = (numbers != 0) & (picture != BAD).any(2)
    return numpy.where(shown[:, :, None], numpy.rint(mixed), picture).astype(numpy.uint8)


# ---- sound --------------------------------------------------------------------------------------

def _loudest(sound: numpy.ndarray) -> float:
    if sound.dtype.kind == "i":
        return float(-int(numpy.iinfo(sound.dtype).min))
    low, high = _range([sound])
    return max(abs(low), abs(high), 1e-12) if max(abs(low), abs(high)) > 1 else 1.0


def waveform(sound: numpy.ndarray, height: int, width: int) -> numpy.ndarray:
    """uint8 [height, width, 3]: of each column's numbers the least to the greatest, each channel in a strip of
    its own. Integers fill it at their greatest, other numbers at 1, or at what they have if that is more."""
    channels = sound[None, :] if sound.ndim == 1 else sound if sound.shape[0] < sound.shape[1] else sound.T
    top = _loudest(sound)
    strips = []
    for channel in channels.astype(numpy.float64) / top:
        strip = numpy.empty((height // len(channels), width, 3), numpy.uint8)
        strip[:] = _WAVE_GROUND
        middle = (strip.shape[0] - 1) / 2
        strip[int(middle)] = _WAVE_AXIS
        columns = min(width, len(channel))
        begins = numpy.arange(columns) * len(channel) // columns
        bad = ~numpy.isfinite(channel)
        clean = numpy.where(bad, 0, channel)
        lows = numpy.rint(middle - numpy.minimum.reduceat(clean, begins) * middle)
        highs = numpy.rint(middle - numpy.maximum.reduceat(clean, begins) * middle)
        rows = numpy.arange(strip.shape[0])[:, None]
        drawn = numpy.zeros((strip.shape[0], width), bool)
        drawn[:, :columns] = (rows >= highs) & (rows <= lows)
        strip[drawn] = _WAVE
        strip[:, :columns][:, numpy.maximum.reduceat(bad, begins)] = BAD
        strips.append(strip)
    return numpy.concatenate(strips)
