"""A contact sheet, by Pillow: the samples of a batch as pictures, each with its index, label and name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

from . import _pictures
from ._fields import Field, Sample

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN = 64         # samples; a batch may have more
_SIDE = 144        # pixels of a picture's longer side
_SIDE_OF_NONE = 72  # of a sample without a picture among others with one
_WAVE_SIZE = (72, 288)
_COLUMNS = 8
_WIDTH_MIN = 480   # of the whole, for what stands above it
_GAP, _MARGIN, _LINE = 8, 12, 12
_GROUND, _MAT = (250, 250, 250), (224, 224, 228)
_INK, _FAINT = (20, 20, 24), (95, 95, 105)
_LABELS = ("label", "labels", "target", "targets", "class", "cls", "y", "category")
_KEY = "__key__"  # of tar's samples: their name in the shard
_LABELS_SHOWN = 2
_CLASSES_MAX = 1000  # a longer vector of chances is no label


class NoPictures(ValueError):
    """Nothing in the batch is an image or a sound, or there is no Pillow; the text says what there is."""


@dataclass
class Told:
    """What the sheet says besides what is in the batch.

    title: of the whole. marks: of each sample, "#17". names: of each, or "". classes: names of label 0, 1, ….
    normalised: the mean and the deviation that images were normalised by, if that is known.
    """

    title: str = ""
    marks: Sequence[str] = ()
    names: Sequence[str] = ()
    classes: Sequence[str] | None = None
    normalised: tuple[Any, Any] | None = None
    more: list[str] = field(default_factory=list)


# ---- captions -----------------------------------------------------------------------------------

def _class_text(number: int, classes: Sequence[str] | None) -> str:
    named = classes is not None and 0 <= number < len(classes)
    return f"{number} {classes[number]}" if named and classes is not None else str(number)


def _chances_text(chances: numpy.ndarray, classes: Sequence[str] | None) -> str:
    """The two greatest, as mixed labels have."""
    best = [int(i) for i in numpy.argsort(-chances, kind="stable")[:2] if chances[i] > 0]
    return " + ".join(f"{chances[i]:.2g} x {_class_text(i, classes)}" for i in best)


def _label_text(one: Field, classes: Sequence[str] | None) -> str | None:
    """None: it is no label."""
    if one.texts is not None:
        return " ".join(one.texts[0].split()) if len(one.texts) == 1 else None
    array = one.array
    assert array is not None
    if array.size == 1:
        number = array.reshape(()).item()
        if isinstance(number, float):
            return f"{number:.4g}"
        return str(number) if isinstance(number, bool) else _class_text(number, classes)
    if array.ndim == 1 and array.dtype.kind == "f" and array.size <= _CLASSES_MAX and \
            abs(float(array.sum()) - 1) < 1e-3 and float(array.min()) >= 0:
        return _chances_text(array, classes)
    return None


def _labels(sample: Sample, classes: Sequence[str] | None) -> list[str]:
    """Those that are called so first."""
    found = []
    for one in sample:
        text = _label_text(one, classes)
        if text is not None and one.name != _KEY:
            name = "label" if one.name.isdigit() or not one.name else one.name
            found.append((one.name not in _LABELS, f"{name} {text}"))
    found.sort(key=lambda pair: pair[0])
    return [text for _, text in found[:_LABELS_SHOWN]]


def _name(sample: Sample, number: int, told: Told) -> list[str]:
    """The file's, or what the sample says of itself."""
    own = [one.texts[0] for one in sample if one.name == _KEY and one.texts]
    named = told.names[number] if number < len(told.names) else ""
    return [named] if named else own


# ---- cells --------------------------------------------------------------------------------------

@dataclass
class _Cell:
    picture: Image
    lines: list[str]


def _fit(picture: numpy.ndarray) -> Image:
    """With its longer side _SIDE at most: a larger one is averaged, a smaller one enlarged by a whole number, so
    that its pixels can be told apart."""
    from PIL import Image

    longest = max(picture.shape[:2])
    height, width = (n * (_SIDE // longest) if longest <= _SIDE else max(1, n * _SIDE // longest)
                     for n in picture.shape[:2])
    return Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)


def _image_pictures(samples: Sequence[Sample], told: Told) -> list[Image | None]:
    images = [_pictures.image_of(sample) for sample in samples]
    arrays = [image.array for image in images if image is not None and image.array is not None]
    if not arrays:
        return [None] * len(samples)
    scale = _pictures.scale_of(arrays, told.normalised)
    n_masks = 0
    pictures: list[Image | None] = []
    for sample, image in zip(samples, images):
        if image is None or image.array is None:
            pictures.append(None)
            continue
        picture = _pictures.rgb(image.array, scale)
        masks = _pictures.masks_of(sample, image)
        for mask in masks:
            picture = _pictures.overlay(picture, mask)
        n_masks = max(n_masks, len(masks))
        pictures.append(_fit(picture))
    first = next(image for image in images if image is not None)
    text = f"{first.path or 'image'}: {arrays[0].dtype} {_shape_text(arrays)}"
    told.more.append(text + (f", {scale.text}" if scale.text else "") + (", masks over it" if n_masks else ""))
    return pictures


def _shape_text(arrays: Sequence[numpy.ndarray]) -> str:
    """ "[3, 224, 224]", or "[3, 224, *]" where they differ."""
    shapes = [array.shape for array in arrays]
    if len({len(shape) for shape in shapes}) > 1:
        return "of several shapes"
    return f"[{', '.join('*' if len(set(sizes)) > 1 else str(sizes[0]) for sizes in zip(*shapes))}]"


def _wave_pictures(samples: Sequence[Sample], told: Told) -> list[Image | None]:
    from PIL import Image

    waves = [_pictures.wave_of(sample) for sample in samples]
    arrays = [wave.array for wave in waves if wave is not None and wave.array is not None]
    if arrays:
        first = next(wave for wave in waves if wave is not None)
        told.more.append(f"{first.path or 'sound'}: {arrays[0].dtype} {_shape_text(arrays)}")
    return [None if wave is None or wave.array is None else
            Image.fromarray(_pictures.waveform(wave.array, *_WAVE_SIZE)) for wave in waves]


def _cells(samples: Sequence[Sample], told: Told) -> list[_Cell]:
    from PIL import Image

    pictures = _image_pictures(samples, told)
    if all(picture is None for picture in pictures):
        pictures = _wave_pictures(samples, told)
    if all(picture is None for picture in pictures):
        raise NoPictures(_what_there_is(samples))
    cells = []
    for number, (sample, picture) in enumerate(zip(samples, pictures)):
        lines = [said[number] for said in (told.marks,) if number < len(said)]
        lines += _labels(sample, told.classes)
        lines += _name(sample, number, told)
        cells.append(_Cell(picture or Image.new("RGB", (_SIDE_OF_NONE, _SIDE_OF_NONE), "white"), lines))
    return cells


def _what_there_is(samples: Sequence[Sample]) -> str:
    has = [f"{one.path or '(batch)'} {one.array.dtype} {list(one.array.shape)}" for one in samples[0]
           if one.array is not None] if samples else []
    return ("no field of a sample is an image ([h, w], [h, w, c] or [c, h, w] of uint8 or floating point) or a sound"
            + (f"; it has {', '.join(has[:8])}" if has else ""))


# ---- the sheet ----------------------------------------------------------------------------------

class _Pen:
    """Writes on a sheet, by Pillow's own font."""

    def __init__(self, sheet: Image) -> None:
        from PIL import ImageDraw, ImageFont

        self._draw, self._font = ImageDraw.Draw(sheet), ImageFont.load_default()

    def fill(self, left: int, top: int, width: int, height: int) -> None:
        self._draw.rectangle((left, top, left + width - 1, top + height - 1), _MAT)

    def write(self, left: int, top: int, text: str, width: int, colour: tuple[int, int, int]) -> None:
        """A text that is too long loses its middle; the font of some Pillows has Latin-1 alone."""
        text = "".join(char if char.isprintable() and char < "\u0100" else "?" for char in text)
        kept = len(text)
        shown = text
        while kept and self._font.getlength(shown) > width:
            kept -= 1
            shown = text[:kept // 2] + ".." + text[len(text) - (kept - kept // 2):]
        self._draw.text((left, top), shown, colour, self._font)


def draw(samples: Sequence[Sample], told: Told) -> Image:
    """Of the first SHOWN samples. NoPictures: there is nothing to be seen."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NoPictures("a contact sheet is drawn by Pillow, which is not installed: pip install pillow") from error
    told.more = []
    with numpy.errstate(all="ignore"):  # whatever numbers there are, they become a colour
        cells = _cells(samples[:SHOWN], told)
    if len(samples) > SHOWN:
        told.more.append(f"{SHOWN} of {len(samples)} samples")
    width = max(_SIDE, *(cell.picture.width for cell in cells))
    height = max(cell.picture.height for cell in cells)
    lines = max(len(cell.lines) for cell in cells)
    columns = min(len(cells), max(1, _COLUMNS * _SIDE // width))
    rows = -(-len(cells) // columns)
    heads = [text for text in (told.title, "; ".join(told.more)) if text]
    top = _MARGIN + len(heads) * (_LINE + 2) + (_GAP if heads else 0)
    step = height + lines * _LINE + 4 + _GAP
    sheet = Image.new("RGB", (2 * _MARGIN + max(columns * (width + _GAP) - _GAP, _WIDTH_MIN),
                              top + rows * step + _MARGIN - _GAP), _GROUND)
    pen = _Pen(sheet)
    for row, text in enumerate(heads):
        pen.write(_MARGIN, _MARGIN + row * (_LINE + 2), text, sheet.width - 2 * _MARGIN, _FAINT if row else _INK)
    for number, cell in enumerate(cells):
        left, above = _MARGIN + number % columns * (width + _GAP), top + number // columns * step
        pen.fill(left, above, width, height)
        sheet.paste(cell.picture, (left + (width - cell.picture.width) // 2,
                                   above + (height - cell.picture.height) // 2))
        for row, text in enumerate(cell.lines):
            pen.write(left, above + height + 4 + row * _LINE, text, width, _FAINT if row else _INK)
    return sheet
