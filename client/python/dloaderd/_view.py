"""A batch to be looked at: as a picture, as a page, and as text. What `dlctl peek` writes, and dloaderd.show()."""

from __future__ import annotations

import base64
import html
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy

from . import _detokenize, _fields, _html, _reading, _sheet
from ._contents import statistics_of
from ._fields import Field

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }} body {{ margin: 1em; font-family: system-ui, sans-serif; }}</style>
</head>
<body>
<main>
<h1 style="font-size: 1.2em">{title}</h1>
{body}
</main>
</body>
</html>
"""
_ROWS_IN_TEXT = 8
_SUFFIXES = (".png", ".html", ".txt")


def _number(value: float) -> str:
    return f"{value:.6g}"


def _cells_of(field: Field) -> list[str]:
    """path, type, shape, and least, greatest and mean number."""
    path = field.path or "(batch)"
    if field.array is None:
        return [path, "string", f"[{len(field.texts or ())}]", "", "", ""]
    found = statistics_of(field.array)
    return [path, str(field.array.dtype), str(list(field.array.shape)),
            *([_number(one) for one in found] if found else ["", "", ""])]


class View:
    """What show() returns. A notebook shows it as HTML, print() as text; save() writes it to a file.

    It is drawn immediately, so the batch may be changed or released afterwards.
    """

    def __init__(self, fields: Sequence[Field], samples: Sequence[_fields.Sample], told: _sheet.Told,
                 tokenizer: _detokenize.Detokenizer | None = None) -> None:
        self._told = told
        self._tokenizer = tokenizer or _detokenize.Numbers()
        self._table = [_cells_of(field) for field in fields]
        self.rows = _reading.rows_of([_kept(field) for field in fields], told.marks)
        self._png: bytes | None = None
        self._why = ""
        try:
            file = io.BytesIO()
            _sheet.draw(samples, told).save(file, "PNG", optimize=True)
            self._png = file.getvalue()
        except _sheet.NoPictures as error:
            self._why = str(error)

    @property
    def why_no_pictures(self) -> str:
        """What there is instead of images and sounds, or that Pillow is missing; "": there are some."""
        return self._why

    def png(self) -> bytes:
        """The contact sheet, as a file. ValueError: nothing in the batch is an image or a sound, or
        Pillow is not installed."""
        if self._png is None:
            raise ValueError(self._why)
        return self._png

    def text_lines(self, most: int = _ROWS_IN_TEXT, colours: bool = False) -> list[str]:
        """Tokens as text, a line for each row."""
        return list(_reading.lines(self.rows, self._tokenizer, most, colours))

    def rows_json(self) -> list[dict[str, object]]:
        """The rows for programs; text is decoded span by span."""
        return [{"samples": row.samples, "spans": [
            {"text": "" if span.padding else self._tokenizer.text(span.tokens), "tokens": len(span.tokens),
             "padding": span.padding, "segment": span.segment, "loss": span.loss} for span in row.spans]}
            for row in self.rows]

    def __str__(self) -> str:
        widths = [max(len(row[i]) for row in self._table) for i in range(3)] if self._table else [0, 0, 0]
        told = [self._told.title] if self._told.title else []
        for path, dtype, shape, low, high, mean in self._table:
            line = f"{path:<{widths[0]}}  {dtype:<{widths[1]}}  {shape:<{widths[2]}}"
            told.append((line + (f"  min {low}  max {high}  mean {mean}" if low else "")).rstrip())
        return "\n".join([*told, *self.text_lines()])

    __repr__ = __str__

    def _body(self) -> str:
        parts = []
        if self._png is not None:
            source = base64.b64encode(self._png).decode()
            said = "; ".join(text for text in ("Contact sheet", self._told.title, *self._told.more) if text)
            parts.append(f'<img alt="{html.escape(said)}" src="data:image/png;base64,{source}">')
        if self.rows:
            parts.append(_reading.to_html(self.rows, self._tokenizer))
        parts.append(_html.table(("field", "type", "shape", "min", "max", "mean"), self._table))
        return "".join(parts)

    def _repr_html_(self) -> str:
        return _html.fragment(self._body())

    def page(self) -> str:
        """A whole page, which needs nothing but itself."""
        return _PAGE.format(title=html.escape(self._told.title or "Batch"), body=_html.fragment(self._body()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes .png (the contact sheet), .html (the page) or .txt (the text). ValueError: another ending, or
        no pictures, or no Pillow, for a .png; OSError."""
        place = pathlib.Path(path)
        if place.suffix.lower() not in _SUFFIXES:
            raise ValueError(f"path: {str(place)!r} ends in none of {', '.join(_SUFFIXES)}, which decide the format")
        if place.suffix.lower() == ".png":
            place.write_bytes(self.png())
        else:
            text = self.page() if place.suffix.lower() == ".html" else f"{self}\n"
            place.write_text(text, encoding="utf-8", errors="replace")


def _kept(field: Field) -> Field:
    """Numbers that are no view of the ring: only those that rows are made of are small enough to keep."""
    array = field.array
    if array is None or array.dtype.kind not in "biu" or array.ndim > 2:
        return field
    return Field(field.path, array[:_reading.ROWS_SHOWN].copy() if array.ndim == 2 else array.copy())


# ---- dloaderd.show() -----------------------------------------------------------------------------

def _tokenizer_of(given: Any, loader: Any) -> _detokenize.Detokenizer | None:
    if given is not None:
        if isinstance(given, (str, os.PathLike)):
            return _detokenize.of_file(os.fspath(given))
        if not callable(getattr(given, "decode", None)):
            raise TypeError(f"tokenizer: {type(given).__name__} is neither the path of a tokenizer.json or .model "
                            "file nor an object with decode()")
        return _detokenize.Foreign(given)
    spec = getattr(loader, "_spec", None)
    if spec is None:
        return None
    from . import _worker  # type: ignore[attr-defined]
    return _detokenize.of_spec(_worker.read_spec(str(spec)), spec.base)


def _classes_of(given: Any, loader: Any) -> list[str] | None:
    if given is None:
        given = getattr(getattr(loader, "dataset", None), "classes", None)
    return None if given is None else [str(one) for one in given]


def show(batch: Any, loader: Any = None, *, classes: Sequence[str] | None = None, tokenizer: Any = None,
         indices: Sequence[int] | None = None, title: str = "") -> View:
    """What is in a batch, to be looked at: in a notebook as the value of a cell, elsewhere by print() or save().

        dloaderd.show(next(iter(loader)))

    Images become a contact sheet, by Pillow: uint8 or normalised floating point, channels first or last, one or three
    channels, with masks of the same size over them and labels below. Sounds become waveforms, tokens text.

    batch: a batch of any loader: tensors, arrays, numbers and text, in dicts, lists and tuples. It is neither changed
        nor kept.
    loader: where it comes from: a Loader provides its tokenizer and how its images were normalised, a DataLoader
        dataset.classes.
    classes: names of the labels 0, 1, …
    tokenizer: the path of a tokenizer.json or of a .model file of sentencepiece, or an object with decode().
    indices: numbers of the samples, to be shown.
    title: text above the samples.

    TypeError, ValueError, OSError: from the tokenizer.
    """
    fields = _fields.of_batch(batch)
    samples = _fields.samples_of(fields, None if indices is None else len(indices))
    told = _sheet.Told(title=title, marks=[f"#{int(i)}" for i in indices or ()],
                       classes=_classes_of(classes, loader), normalised=_normalised_of(loader))
    return View(fields, samples, told, _tokenizer_of(tokenizer, loader))


def normalised_by(spec: Any) -> tuple[Any, Any] | None:
    """Mean and deviation of the last transform of the spec's list, if that is Normalize."""
    dataset = spec.get("dataset") if isinstance(spec, dict) else None
    while isinstance(dataset, dict) and "transforms" not in dataset:
        inner = dataset.get("dataset") or dataset.get("datasets")
        dataset = inner[0] if isinstance(inner, list) and inner else inner
    listed = dataset.get("transforms") if isinstance(dataset, dict) else None
    last = listed[-1] if isinstance(listed, list) and listed else None
    if not isinstance(last, dict) or last.get("kind") != "Normalize":
        return None
    try:
        mean, deviation = (numpy.asarray(last[key], float).reshape(-1) for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError):
        return None
    return (mean, deviation) if mean.size in (1, 3) and deviation.size in (1, 3) else None


def _normalised_of(loader: Any) -> tuple[Any, Any] | None:
    spec = getattr(loader, "_spec", None)
    if spec is None:
        return None
    from . import _worker  # type: ignore[attr-defined]
    return normalised_by(_worker.read_spec(str(spec)))
